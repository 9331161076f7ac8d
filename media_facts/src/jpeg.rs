//! Pixels as a JPEG.

use crate::{MediaError, undecodable};

/// Encodes pixels of 3 bytes (red, green, blue), line after line, at a quality from 1 to 100.
///
/// # Errors
/// When a side is 0.
pub fn encode(pixels: &[u8], width: u16, height: u16, quality: u8) -> Result<Vec<u8>, MediaError> {
    let mut jpeg = Vec::new();
    let colours = Colours { pixels, width, height };
    jpeg_encoder::Encoder::new(&mut jpeg, quality).encode_image(colours).map_err(undecodable)?;
    Ok(jpeg)
}

/// Pixels of 3 bytes, for the encoder: [`jpeg_encoder::Encoder::encode`] compiles the whole encoder once for each of nine formats.
struct Colours<'a> {
    pixels: &'a [u8],
    width: u16,
    height: u16,
}

impl jpeg_encoder::ImageBuffer for Colours<'_> {
    fn get_jpeg_color_type(&self) -> jpeg_encoder::JpegColorType {
        jpeg_encoder::JpegColorType::Ycbcr
    }

    fn width(&self) -> u16 {
        self.width
    }

    fn height(&self) -> u16 {
        self.height
    }

    fn fill_buffers(&self, y: u16, [lumas, blues, reds, _]: &mut [Vec<u8>; 4]) {
        let line_bytes = usize::from(self.width) * 3;
        let line = self.pixels.chunks_exact(line_bytes).nth(usize::from(y)).unwrap_or_default();
        for pixel in line.as_chunks::<3>().0 {
            let [red, green, blue] = *pixel;
            let (luma, blue, red) = jpeg_encoder::rgb_to_ycbcr(red, green, blue);
            lumas.push(luma);
            blues.push(blue);
            reds.push(red);
        }
    }
}
