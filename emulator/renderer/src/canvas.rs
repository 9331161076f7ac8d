//! A small picture in memory, with text on it.

use embedded_graphics::mono_font::iso_8859_1::{FONT_6X10, FONT_8X13_BOLD, FONT_10X20};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use embedded_graphics::primitives::Rectangle;
use embedded_graphics::text::{Baseline, Text};

use crate::Subject;

/// RGB, eight bits each, rows without padding.
#[derive(Clone)]
pub(crate) struct Canvas {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) pixels: Vec<u8>,
}

impl Canvas {
    pub(crate) fn new((width, height): (u32, u32), colour: Rgb888) -> Self {
        let count = usize::try_from(u64::from(width) * u64::from(height)).unwrap_or(0);
        let pixels = [colour.r(), colour.g(), colour.b()].repeat(count);
        Self { width, height, pixels }
    }

    /// Fill a rectangle; what lies outside is cut off.
    pub(crate) fn fill(&mut self, (x, y): (u32, u32), (width, height): (u32, u32), colour: Rgb888) {
        let right = x.saturating_add(width).min(self.width);
        for row in y.min(self.height)..y.saturating_add(height).min(self.height) {
            let at = |column: u32| usize::try_from((row * self.width + column) * 3).unwrap_or(usize::MAX);
            if let Some(pixels) = self.pixels.get_mut(at(x.min(right))..at(right)) {
                for pixel in pixels.chunks_exact_mut(3) {
                    pixel.copy_from_slice(&[colour.r(), colour.g(), colour.b()]);
                }
            }
        }
    }

    /// One line of text. Letters the font does not have become question marks.
    pub(crate) fn line(&mut self, (x, y): (i32, i32), text: &str, font: &MonoFont<'_>, colour: Rgb888) {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let style = MonoTextStyle::new(font, colour);
        // Drawing on this target cannot fail.
        let _ = Text::with_baseline(&text, Point::new(x, y), style, Baseline::Top).draw(self);
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = std::convert::Infallible;

    fn draw_iter<I>(&mut self, pixels: I) -> Result<(), Self::Error>
    where
        I: IntoIterator<Item = Pixel<Rgb888>>,
    {
        for Pixel(point, colour) in pixels {
            let (Ok(x), Ok(y)) = (u32::try_from(point.x), u32::try_from(point.y)) else { continue };
            if x >= self.width || y >= self.height {
                continue;
            }
            let at = usize::try_from((y * self.width + x) * 3).unwrap_or(usize::MAX);
            if let Some(pixel) = self.pixels.get_mut(at..at.saturating_add(3)) {
                pixel.copy_from_slice(&[colour.r(), colour.g(), colour.b()]);
            }
        }
        Ok(())
    }

    fn fill_solid(&mut self, area: &Rectangle, colour: Rgb888) -> Result<(), Self::Error> {
        self.draw_iter(area.points().map(|point| Pixel(point, colour)))
    }
}

/// Width and height with this ratio and this longest side, both even and not tiny.
pub(crate) fn dimensions((w, h): (u32, u32), longest: u32) -> (u32, u32) {
    let (w, h) = (u64::from(w.max(1)), u64::from(h.max(1)));
    let long = u64::from(longest);
    let short = (long * w.min(h) / w.max(h)).max(48) & !1;
    let short = u32::try_from(short).unwrap_or(longest).min(longest);
    if w >= h { (longest, short) } else { (short, longest) }
}

/// A dark colour to write on.
pub(crate) fn background(seed: u64) -> Rgb888 {
    let [r, g, b, ..] = seed.to_le_bytes();
    Rgb888::new(24 + r / 3, 24 + g / 3, 24 + b / 3)
}

/// A bright colour to move about.
pub(crate) fn accent(seed: u64) -> Rgb888 {
    let [.., r, g, b] = seed.to_le_bytes();
    Rgb888::new(140 + r / 3, 140 + g / 3, 140 + b / 3)
}

/// The picture of a subject: what was asked for, in words, on the task's own colour.
pub(crate) fn portrait(subject: &Subject, size: (u32, u32)) -> Canvas {
    let seed = subject.seed();
    let mut canvas = Canvas::new(size, background(seed));
    pattern(&mut canvas, seed);
    let (width, height) = size;
    let bright = Rgb888::new(255, 255, 255);
    let dim = Rgb888::new(205, 205, 205);
    canvas.line((6, 6), &subject.model, &FONT_6X10, accent(seed));
    canvas.line((6, 18), &subject.options, &FONT_6X10, dim);
    let font = if width >= 400 && height >= 200 { &FONT_10X20 } else { &FONT_8X13_BOLD };
    let Size { width: letter, height: line } = font.character_size;
    let columns = usize::try_from(width.saturating_sub(12) / letter).unwrap_or(1).max(1);
    let rows = usize::try_from(height.saturating_sub(52) / (line + 1)).unwrap_or(0);
    for (n, text) in (0..).zip(wrap(&subject.prompt, columns).into_iter().take(rows)) {
        let y = i32::try_from(line + 1).unwrap_or(14) * n + 34;
        canvas.line((6, y), &text, font, bright);
    }
    let bottom = i32::try_from(height).unwrap_or(64) - 14;
    let id = if width < 240 { subject.id.simple().to_string() } else { subject.id.to_string() };
    let id: String = id.chars().take(usize::try_from(width / 6).unwrap_or(36).saturating_sub(2)).collect();
    let id = if subject.index == 0 { id } else { format!("{id} #{}", subject.index) };
    canvas.line((6, bottom), &id, &FONT_6X10, dim);
    canvas
}

/// A row of sixteen blocks along the bottom that is the task's own bits: no two tasks look alike.
fn pattern(canvas: &mut Canvas, seed: u64) {
    let (width, height) = (canvas.width, canvas.height);
    let block = (width / 64).max(1);
    for bit in 0..64_u32 {
        if seed >> bit & 1 == 1 {
            canvas.fill((bit * block, height.saturating_sub(3)), (block, 3), accent(seed));
        }
    }
}

/// Break text into lines at spaces, and inside words that are longer than a line.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(columns) {
            let gap = usize::from(used > 0);
            if used + gap + piece.len() > columns {
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                if used > 0 {
                    line.push(' ');
                    used += 1;
                }
                line.extend(piece);
                used += piece.len();
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_keep_the_ratio_and_are_even() {
        assert_eq!(dimensions((16, 9), 320), (320, 180));
        assert_eq!(dimensions((9, 16), 320), (180, 320));
        assert_eq!(dimensions((1, 1), 512), (512, 512));
        assert_eq!(dimensions((21, 9), 320), (320, 136));
        assert_eq!(dimensions((0, 9), 320), (48, 320));
    }

    #[test]
    fn long_words_are_broken() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
    }

    #[test]
    fn drawing_outside_is_harmless() {
        let mut canvas = Canvas::new((8, 8), Rgb888::new(0, 0, 0));
        canvas.fill((20, 20), (5, 5), Rgb888::new(1, 1, 1));
        canvas.line((-50, 4), "edge", &FONT_6X10, Rgb888::new(255, 255, 255));
        assert_eq!(canvas.pixels.len(), 8 * 8 * 3);
    }
}
