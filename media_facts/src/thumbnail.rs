//! Thumbnails of pictures: JPEG, made line by line where the format allows it.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::orientation::Orientation;
use crate::{MediaError, jpeg, undecodable};

/// Longest edge of a thumbnail, in pixels.
const THUMBNAIL_EDGE: u32 = 480;
/// Quality of a thumbnail, of 100.
const THUMBNAIL_QUALITY: u8 = 76;
/// A picture that is no larger than a thumbnail, and of so many bytes at most, needs none.
const SMALL_BYTES: u64 = 64 * 1024;
/// Pixels of a picture that is decoded as a whole, at most: 4 bytes each.
const WHOLE_PIXELS_MAX: u64 = 40_000_000;
/// The same of one that is read line by line.
const LINES_PIXELS_MAX: u64 = 400_000_000;
/// What lies behind the transparent parts of a picture.
const BACKGROUND: u32 = 238;

/// A picture on its way to its thumbnail: each pixel is added to the one that it becomes a part of, line after line.
pub(super) struct Picture {
    pub(super) width: u32,
    pub(super) height: u32,
    small_width: u32,
    small_height: u32,
    /// Pixels of the thumbnail that nothing is added to any more, 3 bytes each.
    pixels: Vec<u8>,
    /// The line of the thumbnail that is added to.
    row: usize,
    /// Red, green, blue and the number of pixels, for each of that line. They cannot overflow: 400 million pixels in the 480
    /// of the narrowest thumbnail are some 833,000 each, a sum of 213 million for a colour.
    sums: Vec<[u32; 4]>,
    /// Which column of the thumbnail each column becomes a part of.
    columns: Vec<usize>,
    /// How it is held.
    pub(super) orientation: Orientation,
}

impl Picture {
    /// Reads a PNG, a JPEG or a WebP.
    ///
    /// # Errors
    /// When it cannot be decoded, or has too many pixels.
    pub(super) fn read(reader: BufReader<File>, content_type: &str) -> Result<Picture, MediaError> {
        match content_type {
            "image/png" => png_picture(reader),
            "image/jpeg" => jpeg_picture(reader),
            "image/webp" => webp_picture(reader),
            other => Err(undecodable(format!("{other} is not decoded"))),
        }
    }

    /// Whether the picture of so many bytes is its own thumbnail.
    pub(super) fn is_small(&self, bytes: u64) -> bool {
        self.width.max(self.height) <= THUMBNAIL_EDGE && bytes <= SMALL_BYTES
    }

    fn new(width: u32, height: u32, pixels_max: u64) -> Result<Picture, MediaError> {
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 || pixels > pixels_max {
            return Err(MediaError::Undecodable(format!("it has {width} x {height} pixels")));
        }
        let edge = width.max(height);
        let small = |side: u32| {
            let scaled = u64::from(side) * u64::from(THUMBNAIL_EDGE.min(edge)) / u64::from(edge);
            u32::try_from(scaled).unwrap_or(THUMBNAIL_EDGE).max(1)
        };
        let (small_width, small_height) = (small(width), small(height));
        Ok(Picture {
            width,
            height,
            small_width,
            small_height,
            pixels: Vec::with_capacity((small_width * small_height * 3) as usize),
            row: 0,
            sums: vec![[0; 4]; small_width as usize],
            columns: (0..width).map(|x| scaled(x, small_width, width)).collect(),
            orientation: Orientation::default(),
        })
    }

    /// Adds line `y`, the one after that of the last call: 1 to 4 bytes a pixel, for grey, grey and alpha, colours, colours
    /// and alpha.
    fn add_line(&mut self, y: u32, line: &[u8], bytes_per_pixel: usize) {
        let row = scaled(y, self.small_height, self.height);
        if row != self.row {
            self.end_row();
            self.row = row;
        }
        for (pixel, column) in line.chunks_exact(bytes_per_pixel).zip(&self.columns) {
            let (red, green, blue, alpha) = match *pixel {
                [grey] => (grey, grey, grey, u8::MAX),
                [grey, alpha] => (grey, grey, grey, alpha),
                [red, green, blue] => (red, green, blue, u8::MAX),
                [red, green, blue, alpha] => (red, green, blue, alpha),
                _ => return,
            };
            let Some([reds, greens, blues, count]) = self.sums.get_mut(*column) else { return };
            *reds += seen(red, alpha);
            *greens += seen(green, alpha);
            *blues += seen(blue, alpha);
            *count += 1;
        }
    }

    /// Makes pixels of the line that was added to, and begins the next.
    #[allow(clippy::cast_possible_truncation)]
    fn end_row(&mut self) {
        for [red, green, blue, count] in &mut self.sums {
            for sum in [red, green, blue] {
                // The mean of bytes fits into a byte.
                self.pixels.push((*sum / (*count).max(1)) as u8);
                *sum = 0;
            }
            *count = 0;
        }
    }

    fn add_whole(mut self, pixels: &[u8], bytes_per_pixel: usize) -> Picture {
        let line_bytes = self.width as usize * bytes_per_pixel;
        for (y, line) in (0..self.height).zip(pixels.chunks_exact(line_bytes)) {
            self.add_line(y, line, bytes_per_pixel);
        }
        self
    }

    /// Writes the thumbnail.
    ///
    /// # Errors
    /// When it cannot be encoded or written.
    pub(super) fn write_thumbnail(mut self, path: &Path) -> Result<(), MediaError> {
        self.end_row();
        // Lines that a decoder left out are black.
        self.pixels.resize((self.small_width * self.small_height * 3) as usize, 0);
        let (small, width, height) = self.orientation.turn(self.pixels, self.small_width, self.small_height);
        let side = |side: u32| u16::try_from(side).map_err(undecodable);
        let jpeg = jpeg::encode(&small, side(width)?, side(height)?, THUMBNAIL_QUALITY)?;
        // Under its name it is whole: nobody makes the same thumbnail at the same time.
        let draft = path.with_extension("draft");
        std::fs::write(&draft, jpeg)?;
        Ok(std::fs::rename(&draft, path)?)
    }
}

/// A colour as it is seen before the background.
fn seen(colour: u8, alpha: u8) -> u32 {
    if alpha == u8::MAX {
        return u32::from(colour);
    }
    let (colour, alpha) = (u32::from(colour), u32::from(alpha));
    (colour * alpha + BACKGROUND * (255 - alpha)) / 255
}

/// Which of `small` parts place `at` of `large` is in.
fn scaled(at: u32, small: u32, large: u32) -> usize {
    usize::try_from(u64::from(at) * u64::from(small) / u64::from(large)).unwrap_or(usize::MAX)
}

fn png_picture(reader: BufReader<File>) -> Result<Picture, MediaError> {
    let mut decoder = png::Decoder::new_with_limits(reader, png::Limits { bytes: 64 * 1024 * 1024 });
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    let mut reader = decoder.read_info().map_err(undecodable)?;
    let (width, height, interlaced) = {
        let info = reader.info();
        (info.width, info.height, info.interlaced)
    };
    let bytes_per_pixel = reader.output_color_type().0.samples();
    if interlaced {
        let picture = Picture::new(width, height, WHOLE_PIXELS_MAX)?;
        let bytes = reader.output_buffer_size().ok_or_else(|| undecodable("it is too large"))?;
        let mut pixels = vec![0; bytes];
        reader.next_frame(&mut pixels).map_err(undecodable)?;
        return Ok(picture.add_whole(&pixels, bytes_per_pixel));
    }
    let mut picture = Picture::new(width, height, LINES_PIXELS_MAX)?;
    for y in 0..height {
        let row = reader.next_row().map_err(undecodable)?;
        let Some(row) = row else { return Err(undecodable("it is cut off")) };
        picture.add_line(y, row.data(), bytes_per_pixel);
    }
    Ok(picture)
}

fn jpeg_picture(reader: BufReader<File>) -> Result<Picture, MediaError> {
    let options = DecoderOptions::default()
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(reader, options);
    decoder.decode_headers().map_err(|error| undecodable(format!("{error:?}")))?;
    let info = decoder.info().ok_or_else(|| undecodable("it has no size"))?;
    let mut picture = Picture::new(u32::from(info.width), u32::from(info.height), WHOLE_PIXELS_MAX)?;
    let pixels = decoder.decode().map_err(|error| undecodable(format!("{error:?}")))?;
    // A browser turns the picture, and nothing tells it to turn the thumbnail.
    picture.orientation = decoder.exif().map(|exif| Orientation::of_exif(exif)).unwrap_or_default();
    Ok(picture.add_whole(&pixels, 3))
}

fn webp_picture(reader: BufReader<File>) -> Result<Picture, MediaError> {
    let mut decoder = image_webp::WebPDecoder::new(reader).map_err(undecodable)?;
    let (width, height) = decoder.dimensions();
    let picture = Picture::new(width, height, WHOLE_PIXELS_MAX)?;
    let bytes = decoder.output_buffer_size().ok_or_else(|| undecodable("it is too large"))?;
    let mut pixels = vec![0; bytes];
    decoder.read_image(&mut pixels).map_err(undecodable)?;
    let bytes_per_pixel = if decoder.has_alpha() { 4 } else { 3 };
    Ok(picture.add_whole(&pixels, bytes_per_pixel))
}
