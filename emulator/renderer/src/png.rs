//! Images: a small picture, and enlarged to exact pixels where they were asked for.
//!
//! A picture has a handful of colours, so it is written with a palette, and each enlarged row repeats the one
//! above: the largest size the service takes is rendered in milliseconds and is a few kilobytes.

use png::{BitDepth, ColorType, Compression, Encoder, Filter};

use crate::canvas::{Canvas, dimensions, portrait};
use crate::{RenderError, Subject};

/// The longest side of a picture whose exact size was not asked for.
const LONGEST: u32 = 512;
/// The longest side of what is drawn before it is enlarged.
const LONGEST_DRAWN: u32 = 640;

pub(crate) fn render(subject: &Subject) -> Result<Vec<u8>, RenderError> {
    let size = subject.pixels.unwrap_or_else(|| dimensions(subject.ratio, LONGEST));
    let scale = scale_of(size);
    let canvas = portrait(subject, (size.0 / scale, size.1 / scale));
    let (palette, indices) = indexed(&canvas);
    let mut bytes = Vec::with_capacity(16 << 10);
    let mut encoder = Encoder::new(&mut bytes, size.0, size.1);
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_palette(palette);
    encoder.set_compression(Compression::Fast);
    encoder.set_filter(Filter::Up);
    encoder.add_text_chunk(String::from("Task"), subject.id.to_string()).map_err(RenderError::new)?;
    let mut writer = encoder.write_header().map_err(RenderError::new)?;
    writer.write_image_data(&enlarged(indices, canvas.width, scale)).map_err(RenderError::new)?;
    writer.finish().map_err(RenderError::new)?;
    Ok(bytes)
}

/// By how much a drawing is enlarged; both sides of a larger picture are multiples of 16.
fn scale_of((width, height): (u32, u32)) -> u32 {
    let fits = |scale: &u32| width.max(height) / scale <= LONGEST_DRAWN;
    let divides = |scale: &u32| width.is_multiple_of(*scale) && height.is_multiple_of(*scale);
    [1, 2, 4, 8].into_iter().filter(divides).find(fits).unwrap_or(1)
}

/// The colours of a drawing, and for each pixel which one it has.
fn indexed(canvas: &Canvas) -> (Vec<u8>, Vec<u8>) {
    let mut palette: Vec<u8> = Vec::new();
    let mut last = None;
    let index = |colour: &[u8; 3]| match last {
        Some((known, at)) if known == *colour => at,
        _ => {
            let known = palette.as_chunks().0.iter().position(|known| known == colour);
            let at = known.unwrap_or_else(|| {
                palette.extend_from_slice(colour);
                palette.len() / 3 - 1
            });
            // A drawing has far fewer colours than 256.
            let at = u8::try_from(at).unwrap_or(0);
            last = Some((*colour, at));
            at
        }
    };
    let indices = canvas.pixels.as_chunks().0.iter().map(index).collect();
    (palette, indices)
}

/// Every pixel as a square of this many.
fn enlarged(indices: Vec<u8>, width: u32, scale: u32) -> Vec<u8> {
    if scale == 1 {
        return indices;
    }
    let (width, scale) = (usize::try_from(width).unwrap_or(1), usize::try_from(scale).unwrap_or(1));
    let mut out = Vec::with_capacity(indices.len() * scale * scale);
    let mut wide = Vec::with_capacity(width * scale);
    for row in indices.chunks_exact(width) {
        wide.clear();
        for index in row {
            wide.resize(wide.len() + scale, *index);
        }
        for _ in 0..scale {
            out.extend_from_slice(&wide);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Medium;
    use crate::tests::subject;

    fn size_of(bytes: Vec<u8>) -> (u32, u32) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        (frame.width, frame.height)
    }

    #[test]
    fn an_image_decodes_at_the_right_aspect_ratio() {
        assert_eq!(size_of(render(&subject(Medium::Image, 3)).unwrap()), (512, 288));
    }

    #[test]
    fn an_exact_size_is_the_size_of_the_picture() {
        for size in [(1024, 1024), (640, 1024), (3840, 2160), (2160, 3840), (2400, 800), (2896, 2864)] {
            let mut exact = subject(Medium::Image, 3);
            exact.pixels = Some(size);
            let bytes = render(&exact).unwrap();
            assert!(bytes.len() < 200_000, "{size:?}: {} bytes", bytes.len());
            assert_eq!(size_of(bytes), size);
        }
    }
}
