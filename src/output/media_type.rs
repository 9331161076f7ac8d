//! The media type of a downloaded file, by its content.

use crate::domain::request::Kind;

/// The format of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    pub content_type: String,
    /// Its extension, without the dot.
    pub ext: String,
}

/// The content is not what the job asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the result is {found}, not {wanted}")]
pub struct NotMedia {
    found: String,
    wanted: &'static str,
}

/// Decides by the first bytes; where they tell nothing, by the host's `Content-Type`.
///
/// # Errors
/// [`NotMedia`] when either says that this is not a result of `kind`: a page that says "not found"
/// is never saved as a video.
pub fn detect_media_type(kind: Kind, head: &[u8], declared: Option<&str>) -> Result<Media, NotMedia> {
    let (wanted, families): (&'static str, &[&str]) = match kind {
        Kind::Video | Kind::ShortsStudio => ("a video", &["video/", "image/gif"]),
        Kind::Image => ("an image", &["image/"]),
        // An MPEG-4 or WebM file with sound alone is often recognised as video.
        Kind::Music | Kind::Speech | Kind::SoundEffect => ("audio", &["audio/", "video/mp4", "video/webm"]),
    };
    let fits = |mime: &str| families.iter().any(|family| mime.starts_with(family));
    let refuse = |found: String| Err(NotMedia { found, wanted });
    if head.is_empty() {
        return refuse("empty".to_owned());
    }
    if let Some(found) = infer::get(head) {
        let (content_type, ext) = (found.mime_type().to_owned(), found.extension().to_owned());
        return if fits(&content_type) { Ok(Media { content_type, ext }) } else { refuse(content_type) };
    }
    if is_text(head) {
        return refuse("text".to_owned());
    }
    let declared = declared.and_then(|text| text.split(';').next()).map(str::trim).unwrap_or_default();
    if !fits(declared) {
        return refuse(if declared.is_empty() { "of no known type".to_owned() } else { declared.to_owned() });
    }
    let ext = mime_guess::get_mime_extensions_str(declared).and_then(|all| all.first());
    Ok(Media { content_type: declared.to_owned(), ext: ext.map_or("bin", |ext| ext).to_owned() })
}

/// No media format begins with a run of printable text this long.
fn is_text(head: &[u8]) -> bool {
    let start = &head[..head.len().min(64)];
    start.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides_before_the_header() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        let found = detect_media_type(Kind::Image, png, Some("text/html")).unwrap();
        assert_eq!(found, Media { content_type: "image/png".into(), ext: "png".into() });
        assert!(detect_media_type(Kind::Video, png, Some("video/mp4")).is_err());
    }

    #[test]
    fn an_html_page_is_never_a_video() {
        for head in
            [&b"<!DOCTYPE html><html>"[..], b"<Error><Code>AccessDenied</Code>", b"{\"error\": 1}", b""]
        {
            assert!(detect_media_type(Kind::Video, head, Some("video/mp4")).is_err(), "{head:?}");
        }
    }

    #[test]
    fn an_unknown_format_is_believed_when_the_host_names_it() {
        let found = detect_media_type(Kind::Music, b"\x00\x01\x02odd", Some("audio/mpeg; x=1")).unwrap();
        assert_eq!(found.content_type, "audio/mpeg");
        assert!(
            detect_media_type(Kind::Music, b"\x00\x01\x02odd", Some("application/octet-stream")).is_err()
        );
    }

    #[test]
    fn sound_in_a_video_container_is_sound() {
        let mp4 = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom";
        assert_eq!(detect_media_type(Kind::Speech, mp4, None).unwrap().ext, "mp4");
    }
}
