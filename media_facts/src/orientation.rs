//! How a camera held a picture: the orientation in its EXIF data, and the picture turned by it.

/// The turn and the mirror that show a picture upright, as EXIF numbers them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Orientation(u8);

/// The tag of the orientation.
const ORIENTATION: u16 = 0x0112;
/// Type of a number of two bytes.
const SHORT: u16 = 3;
const ENTRY_BYTES: usize = 12;

impl Orientation {
    /// The one that EXIF data (a TIFF file) tell of; upright where they tell of none, or are damaged.
    pub(super) fn of_exif(exif: &[u8]) -> Orientation {
        found(exif).filter(|number| (2..=8).contains(number)).map(Orientation).unwrap_or_default()
    }

    /// Whether width and height change places.
    pub(super) fn is_sideways(self) -> bool {
        self.0 >= 5
    }

    /// Pixels of 3 bytes, turned, with their width and height then.
    pub(super) fn turn(self, pixels: Vec<u8>, width: u32, height: u32) -> (Vec<u8>, u32, u32) {
        if self == Orientation::default() {
            return (pixels, width, height);
        }
        let (wide, high) = if self.is_sideways() { (height, width) } else { (width, height) };
        let mut turned = Vec::with_capacity(pixels.len());
        for y in 0..high {
            for x in 0..wide {
                let (right, bottom) = (wide - 1 - x, high - 1 - y);
                let (from_x, from_y) = match self.0 {
                    2 => (right, y),
                    3 => (right, bottom),
                    4 => (x, bottom),
                    5 => (y, x),
                    6 => (y, right),
                    7 => (bottom, right),
                    8 => (bottom, x),
                    _ => (x, y),
                };
                let at = (from_y as usize * width as usize + from_x as usize) * 3;
                turned.extend_from_slice(pixels.get(at..at + 3).unwrap_or(&[0; 3]));
            }
        }
        (turned, wide, high)
    }
}

fn found(exif: &[u8]) -> Option<u8> {
    let is_little = match exif.get(..4)? {
        [b'I', b'I', 42, 0] => true,
        [b'M', b'M', 0, 42] => false,
        _ => return None,
    };
    let short = |at: usize| -> Option<u16> {
        let two = [*exif.get(at)?, *exif.get(at + 1)?];
        Some(if is_little { u16::from_le_bytes(two) } else { u16::from_be_bytes(two) })
    };
    let four = [*exif.get(4)?, *exif.get(5)?, *exif.get(6)?, *exif.get(7)?];
    let first = if is_little { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) };
    let first = usize::try_from(first).ok().filter(|first| *first < exif.len())?;
    let entries = usize::from(short(first)?);
    let mut entry = (0..entries).map(|n| first + 2 + n * ENTRY_BYTES);
    let at = entry.find(|at| short(*at) == Some(ORIENTATION) && short(at + 2) == Some(SHORT))?;
    u8::try_from(short(at + 8)?).ok()
}
