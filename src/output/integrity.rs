//! Whether a downloaded file is complete, as far as its own structure says.
//!
//! A host may serve the beginning of a file under headers that agree with it. Only what a file says of
//! itself shows that: nothing is refused on mere suspicion, since it was paid for.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

/// Most parts of a file that are checked; a file with more is accepted.
const PARTS_MAX: usize = 100_000;

/// Whether the file's structure says that more bytes should follow.
///
/// # Errors
/// When the file cannot be read.
pub fn is_truncated(mut file: impl Read + Seek, content_type: &str) -> io::Result<bool> {
    let file = &mut file;
    let length = file.seek(SeekFrom::End(0))?;
    let found = match content_type {
        "image/png" => png(file, length),
        "audio/wav" | "audio/x-wav" | "image/webp" => riff(file, length),
        "video/mp4" | "video/quicktime" | "audio/mp4" | "audio/m4a" | "audio/x-m4a" => mp4(file, length),
        _ => Ok(false),
    };
    match found {
        // It ends within a part's heading.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(true),
        other => other,
    }
}

/// Chunks up to `IEND`, each with its length, a name and a checksum.
fn png(file: &mut (impl Read + Seek), length: u64) -> io::Result<bool> {
    const SIGNATURE_BYTES: u64 = 8;
    let mut at = SIGNATURE_BYTES;
    for _ in 0..PARTS_MAX {
        let [size, name] = words_at(file, at)?;
        at += u64::from(u32::from_be_bytes(size)) + 12;
        if at > length {
            return Ok(true);
        }
        if name == *b"IEND" {
            return Ok(false);
        }
    }
    Ok(false)
}

/// `RIFF` and the length of all that follows.
fn riff(file: &mut (impl Read + Seek), length: u64) -> io::Result<bool> {
    /// Writers that do not know the length yet put this value there, or a greater one.
    const UNKNOWN: u32 = 0x7fff_0000;
    let [_, size] = words_at(file, 0)?;
    let size = u32::from_le_bytes(size);
    Ok(size < UNKNOWN && u64::from(size) + 8 > length)
}

/// Boxes, each with its length and a name, among them the index that every player needs. What is behind a whole index and its
/// media, and neither, is minded by no player: a few bytes, a tag, a part of a box.
fn mp4(file: &mut (impl Read + Seek), length: u64) -> io::Result<bool> {
    let mut at = 0;
    let (mut has_index, mut has_media) = (false, false);
    for _ in 0..PARTS_MAX {
        if has_index && has_media && length - at < 8 {
            return Ok(false);
        }
        let [size, name] = words_at(file, at)?;
        let is_tail = has_index && has_media && !matches!(&name, b"moov" | b"moof" | b"mdat");
        has_index |= name == *b"moov" || name == *b"moof";
        has_media |= name == *b"mdat";
        let size = match u32::from_be_bytes(size) {
            // To the end of the file.
            0 => length - at,
            1 => {
                let [high, low] = words_at(file, at + 8)?;
                u64::from(u32::from_be_bytes(high)) << 32 | u64::from(u32::from_be_bytes(low))
            }
            size => u64::from(size),
        };
        // No box is that small: whatever this is, it is left alone.
        if size < 8 {
            return Ok(false);
        }
        at = at.saturating_add(size);
        if at >= length {
            return Ok(!is_tail && (at > length || !has_index));
        }
    }
    Ok(false)
}

/// Two words of four bytes.
fn words_at(file: &mut (impl Read + Seek), at: u64) -> io::Result<[[u8; 4]; 2]> {
    let mut words = [[0; 4]; 2];
    file.seek(SeekFrom::Start(at))?;
    for word in &mut words {
        file.read_exact(word)?;
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x02IDATxxCRC_\0\0\0\0IENDCRC_";
    const WAV: &[u8] = b"RIFF\x0c\0\0\0WAVEdata\0\0\0\0";
    const MP4: &[u8] = b"\0\0\0\x0cftypisom\0\0\0\x01mdat\0\0\0\0\0\0\0\x12xx\0\0\0\x08moov";

    fn check(content_type: &str, bytes: &[u8]) -> bool {
        is_truncated(io::Cursor::new(bytes), content_type).unwrap()
    }

    #[test]
    fn whole_files_are_whole_and_cut_ones_are_cut_wherever_the_cut_is() {
        for (content_type, whole) in [("image/png", PNG), ("audio/x-wav", WAV), ("video/mp4", MP4)] {
            assert!(!check(content_type, whole), "{content_type}");
            for length in 0..whole.len() {
                assert!(check(content_type, &whole[..length]), "{content_type} cut at {length}");
            }
        }
    }

    #[test]
    fn a_few_bytes_behind_a_whole_movie_are_left_alone() {
        for more in 1..8 {
            assert!(!check("video/mp4", &[MP4, &vec![0; more]].concat()), "{more}");
        }
        let tagged = [MP4, b"TAGA tide of brass", &[0; 110]].concat();
        assert!(!check("video/mp4", &tagged), "a tag as of MP3 files");
        for cut in 1..8 {
            let more = [MP4, b"\0\0\0\x10mdat", &vec![0; cut]].concat();
            assert!(check("video/mp4", &more), "more media, cut off");
        }
        let without_media = b"\0\0\0\x0cftypisom\0\0\0\x08moov\0\0";
        assert!(check("video/mp4", without_media), "its media may follow");
    }

    #[test]
    fn what_tells_nothing_is_left_alone() {
        assert!(!check("audio/mpeg", b"\xff\xfb"));
        assert!(!check("audio/x-wav", b"RIFF\xff\xff\xff\xffWAVEdata"), "a length that nobody knew");
        assert!(!check("video/mp4", b"\0\0\0\x08moov\0\0\0\0mdat and on to the end"));
        assert!(!check("video/mp4", b"\0\0\0\x03what"));
        let with_a_tail = [PNG, b"and more"].concat();
        assert!(!check("image/png", &with_a_tail));
    }
}
