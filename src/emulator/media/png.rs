//! Images.

use png::{BitDepth, ColorType, Compression, Encoder};

use super::canvas::{dimensions, portrait};
use super::{RenderError, Subject};

/// The longest side of a picture, whatever was asked for.
const LONGEST: u32 = 512;

pub(super) fn render(subject: &Subject) -> Result<Vec<u8>, RenderError> {
    let canvas = portrait(subject, dimensions(subject.shape.ratio, LONGEST));
    let mut bytes = Vec::with_capacity(16 << 10);
    let mut encoder = Encoder::new(&mut bytes, canvas.width, canvas.height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    encoder.add_text_chunk(String::from("Task"), subject.id.to_string()).map_err(RenderError::new)?;
    let mut writer = encoder.write_header().map_err(RenderError::new)?;
    writer.write_image_data(&canvas.pixels).map_err(RenderError::new)?;
    writer.finish().map_err(RenderError::new)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::tests::subject;
    use super::*;
    use crate::emulator::tasks::Kind;

    #[test]
    fn an_image_decodes_at_the_right_aspect_ratio() {
        let bytes = render(&subject(Kind::Image, 3)).unwrap();
        let reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        assert_eq!((reader.info().width, reader.info().height), (512, 288));
    }
}
