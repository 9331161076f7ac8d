//! How long a video is, by the header of its file; nothing is decoded. Libraries of tags refuse a video without sound.

use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

/// Boxes of an MPEG-4 file that are looked at, at most.
const BOXES_MAX: usize = 10_000;

/// The length in the movie header of an MPEG-4 or QuickTime file (ISO/IEC 14496-12, 8.2.2), to a millisecond; nothing
/// where there is none.
pub fn movie_length(reader: &mut (impl Read + Seek)) -> Option<Duration> {
    find_box(reader, *b"moov")?;
    find_box(reader, *b"mvhd")?;
    let version = u32::from_be_bytes(read(reader)?) >> 24;
    let is_long = version == 1;
    // When it was made and changed.
    reader.seek_relative(if is_long { 16 } else { 8 }).ok()?;
    let scale = u32::from_be_bytes(read(reader)?);
    let units = if is_long {
        u64::from_be_bytes(read(reader)?)
    } else {
        let units = u32::from_be_bytes(read(reader)?);
        if units == u32::MAX { u64::MAX } else { u64::from(units) }
    };
    // All ones: it is not known.
    let ms = u128::from(units) * 1000;
    let ms = ms.checked_div(u128::from(scale)).filter(|ms| *ms > 0 && units != u64::MAX);
    ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis)
}

/// Goes to what is in the next box of that name.
fn find_box(reader: &mut (impl Read + Seek), wanted: [u8; 4]) -> Option<()> {
    for _ in 0..BOXES_MAX {
        let size = u32::from_be_bytes(read(reader)?);
        let name: [u8; 4] = read(reader)?;
        let (size, head) = if size == 1 { (u64::from_be_bytes(read(reader)?), 16) } else { (size.into(), 8) };
        if name == wanted {
            return Some(());
        }
        let skipped = size.checked_sub(head).and_then(|rest| i64::try_from(rest).ok())?;
        reader.seek(SeekFrom::Current(skipped)).ok()?;
    }
    None
}

fn read<const BYTES: usize>(reader: &mut impl Read) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    reader.read_exact(&mut bytes).ok()?;
    Some(bytes)
}
