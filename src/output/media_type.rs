//! The media type of a downloaded file, by its content.

use crate::domain::request::Kind;

/// The format of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    pub content_type: String,
    /// Its extension, without the dot.
    pub ext: String,
}

/// The media type of a drawing.
const SVG: &str = "image/svg+xml";

/// The content is not what the job asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the result is {found}, not {wanted}")]
pub struct NotMedia {
    found: String,
    wanted: &'static str,
}

/// Decides by the first bytes; where they tell nothing, by the host's `Content-Type`, and where that is left open, too, by the
/// brand of an MPEG-4 file or the extension in the `url`: what is refused was paid for.
///
/// # Errors
/// [`NotMedia`] when either says that this is not a result of `kind`: a page that says "not found"
/// is never saved as a video.
pub fn detect_media_type(
    kind: Kind,
    head: &[u8],
    declared: Option<&str>,
    url: &str,
) -> Result<Media, NotMedia> {
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
    let declared = declared.and_then(|text| text.split(';').next()).unwrap_or_default();
    let declared = &*declared.trim().to_ascii_lowercase();
    // The only picture that is text, so it is taken for one where its host and its content say so.
    if declared == SVG && fits(SVG) && is_svg(head) {
        return Ok(Media { content_type: SVG.to_owned(), ext: "svg".to_owned() });
    }
    if let Some(found) = infer::get(head) {
        let (content_type, ext) = (found.mime_type().to_owned(), found.extension().to_owned());
        return if fits(&content_type) { Ok(Media { content_type, ext }) } else { refuse(content_type) };
    }
    if is_text(head) {
        return refuse("text".to_owned());
    }
    if !fits(declared) {
        let by_url = || if is_open(declared) && !is_utf8_text(head) { by_extension(url) } else { None };
        let found = of_brand(head).or_else(by_url).filter(|media| fits(&media.content_type));
        let said = if declared.is_empty() { "of no known type" } else { declared };
        return found.map_or_else(|| refuse(said.to_owned()), Ok);
    }
    let of_link = by_extension(url).filter(|media| media.content_type == declared).map(|media| media.ext);
    let ext = of_link.unwrap_or_else(|| usual_extension(declared).to_owned());
    Ok(Media { content_type: declared.to_owned(), ext })
}

/// The extension that files of a type mostly have.
fn usual_extension(content_type: &str) -> &'static str {
    match content_type {
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/ogg" => "ogg",
        "image/jpeg" | "image/jpg" => "jpg",
        // The first by the alphabet.
        other => {
            mime_guess::get_mime_extensions_str(other).and_then(|all| all.first()).map_or("bin", |ext| ext)
        }
    }
}

/// The format of an MPEG-4 file by its brand. There are more brands than anybody lists: one that is of no picture and no
/// sound is of a film.
fn of_brand(head: &[u8]) -> Option<Media> {
    let brand = head.get(8..12).filter(|_| head.get(4..8) == Some(b"ftyp"))?;
    let (content_type, ext) = match brand {
        b"avif" | b"avis" => ("image/avif", "avif"),
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" | b"miaf" => {
            ("image/heif", "heif")
        }
        b"M4A " | b"M4B " | b"M4P " | b"F4A " | b"F4B " => ("audio/mp4", "m4a"),
        _ => ("video/mp4", "mp4"),
    };
    Some(Media { content_type: content_type.to_owned(), ext: ext.to_owned() })
}

/// Whether a host leaves open what it sends.
fn is_open(declared: &str) -> bool {
    matches!(declared, "" | "application/octet-stream" | "binary/octet-stream" | "application/binary")
}

/// The format that the extension in an address stands for.
fn by_extension(url: &str) -> Option<Media> {
    let path = url.split(['?', '#']).next()?;
    let (_, ext) = path.rsplit('/').next()?.rsplit_once('.')?;
    let ext = ext.to_ascii_lowercase();
    let content_type = mime_guess::from_ext(&ext).first()?.essence_str().to_owned();
    Some(Media { content_type, ext })
}

/// Whether it is text in whatever language, and perhaps cut off within a letter.
fn is_utf8_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    text.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r'))
}

/// Whether the root of a drawing is among the first bytes, perhaps behind a declaration and remarks.
fn is_svg(head: &[u8]) -> bool {
    let at = head.windows(b"<svg".len()).position(|window| window == b"<svg");
    at.is_some_and(|at| is_utf8_text(&head[..at]))
}

/// No media format begins with a run of printable text this long.
fn is_text(head: &[u8]) -> bool {
    let start = &head[..head.len().min(64)];
    start.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://results.test/1";

    #[test]
    fn content_decides_before_the_header() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        let found = detect_media_type(Kind::Image, png, Some("text/html"), URL).unwrap();
        assert_eq!(found, Media { content_type: "image/png".into(), ext: "png".into() });
        assert!(detect_media_type(Kind::Video, png, Some("video/mp4"), URL).is_err());
    }

    #[test]
    fn a_drawing_is_an_image_where_host_and_content_say_so() {
        let plain = &b"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\"/>"[..];
        let declared = "image/svg+xml; charset=utf-8";
        for head in [plain, &[b"<?xml version=\"1.0\"?>\n<!-- drawn -->\n", plain].concat()] {
            assert_eq!(detect_media_type(Kind::Image, head, Some(declared), URL).unwrap().ext, "svg");
            assert!(detect_media_type(Kind::Image, head, Some("text/html"), URL).is_err());
            assert!(detect_media_type(Kind::Video, head, Some(declared), URL).is_err());
        }
        let page = b"<!DOCTYPE html><html><body>not found";
        assert!(detect_media_type(Kind::Image, page, Some(declared), URL).is_err());
    }

    #[test]
    fn an_html_page_is_never_a_video() {
        for head in
            [&b"<!DOCTYPE html><html>"[..], b"<Error><Code>AccessDenied</Code>", b"{\"error\": 1}", b""]
        {
            assert!(detect_media_type(Kind::Video, head, Some("video/mp4"), URL).is_err(), "{head:?}");
        }
    }

    #[test]
    fn an_unknown_format_is_believed_when_the_host_names_it() {
        let found = detect_media_type(Kind::Music, b"\x00\x01\x02odd", Some("audio/mpeg; x=1"), URL).unwrap();
        assert_eq!(found.content_type, "audio/mpeg");
        assert!(
            detect_media_type(Kind::Music, b"\x00\x01\x02odd", Some("application/octet-stream"), URL)
                .is_err()
        );
    }

    #[test]
    fn a_format_that_the_host_alone_names_has_its_usual_extension() {
        // MP3 with a checksum, and MPEG 2.5.
        for head in [&b"\xff\xfa\x90\x64\0\0"[..], b"\xff\xe3\x18\xc4\0\0"] {
            for (declared, url, ext) in [
                ("audio/mpeg", URL, "mp3"),
                ("Audio/MPEG; x=1", URL, "mp3"),
                ("audio/mp3", URL, "mp3"),
                ("audio/mpeg", "https://results.test/1.MPGA?x=1", "mpga"),
                ("audio/mpeg", "https://results.test/1.wav", "mp3"),
                ("audio/ogg", URL, "ogg"),
                ("audio/x-new", URL, "bin"),
            ] {
                let found = detect_media_type(Kind::Music, head, Some(declared), url).unwrap();
                assert_eq!(found.ext, ext, "{declared} {url}");
                assert!(declared.to_lowercase().starts_with(&found.content_type), "{}", found.content_type);
            }
        }
        let jpeg =
            |declared| detect_media_type(Kind::Image, b"\x00\x01odd", Some(declared), URL).unwrap().ext;
        assert_eq!((jpeg("image/jpeg"), jpeg("IMAGE/JPG")), ("jpg".to_owned(), "jpg".to_owned()));
    }

    #[test]
    fn sound_in_a_video_container_is_sound() {
        let mp4 = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom";
        assert_eq!(detect_media_type(Kind::Speech, mp4, None, URL).unwrap().ext, "mp4");
    }

    #[test]
    fn an_mpeg_4_file_is_known_by_any_brand() {
        for (kind, brand, expected) in [
            (Kind::Video, "iso8", "video/mp4 mp4"),
            (Kind::Video, "hvc1", "video/mp4 mp4"),
            (Kind::ShortsStudio, "new!", "video/mp4 mp4"),
            (Kind::Speech, "M4B ", "audio/mp4 m4a"),
            (Kind::Music, "iso9", "video/mp4 mp4"),
            (Kind::Image, "heim", "image/heif heif"),
            (Kind::Video, "heim", "refused"),
            (Kind::Video, "F4A ", "refused"),
            (Kind::Image, "iso8", "refused"),
        ] {
            let head = [b"\0\0\0\x10ftyp", brand.as_bytes(), b"\0\0\0\0"].concat();
            for declared in [None, Some("application/octet-stream"), Some("application/x-download")] {
                let found = detect_media_type(kind, &head, declared, URL);
                let found = found
                    .map_or("refused".to_owned(), |media| format!("{} {}", media.content_type, media.ext));
                assert_eq!(found, expected, "{brand} {declared:?}");
            }
        }
    }

    #[test]
    fn an_unknown_format_without_a_type_is_known_by_the_extension_of_its_link() {
        let odd = b"\x00\x01\x02odd";
        let found = |kind, head: &[u8], declared, url| {
            detect_media_type(kind, head, declared, url)
                .map(|media| format!("{} {}", media.content_type, media.ext))
        };
        for declared in [None, Some("application/octet-stream")] {
            let song = found(Kind::Music, odd, declared, "https://results.test/a/1.MP3?signature=a.b/c");
            assert_eq!(song.unwrap(), "audio/mpeg mp3");
            assert!(found(Kind::Video, odd, declared, "https://results.test/1.mp3").is_err());
            assert!(found(Kind::Video, odd, declared, "https://results.mp4/1?name=1.mp4").is_err());
            // Neither is an error in another language.
            let text = "\u{9519}\u{8bef}: not found".as_bytes();
            for cut in [0, 1, 2] {
                assert!(found(Kind::Video, &text[..text.len() - cut], declared, "https://x/1.mp4").is_err());
                assert!(found(Kind::Video, &text[..6 - cut], declared, "https://x/1.mp4").is_err());
            }
        }
        assert!(found(Kind::Music, odd, Some("text/html"), "https://results.test/1.mp3").is_err());
    }
}
