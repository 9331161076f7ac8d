//! What every page has in common.

use maud::{DOCTYPE, Markup, html};

/// What a page may load: its own style and script, pictures and media from its own folder, and nothing from elsewhere. From
/// disk some browsers match files by their scheme alone.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self' file:; style-src 'self' file:; \
    img-src 'self' file: data:; media-src 'self' file:; base-uri 'none'; form-action 'none'";

/// A page whose style and script lie in `folder`, beside it.
pub fn page(title: &str, folder: &str, name: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" data-page=(name) {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(CONTENT_SECURITY_POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="data:,";
                link rel="stylesheet" href={ (folder) "/style.css" };
                script src={ (folder) "/script.js" } defer {}
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// A name as a part of an address.
pub fn in_address(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The switch between light, dark and what the system has.
pub fn theme_switch() -> Markup {
    html! {
        button #theme type="button" class="quiet" title="Light, dark, or as the system" aria-label="Colours: as the system" {
            span aria-hidden="true" { "◐" }
        }
    }
}

/// `1,234,567`
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_markup() {
        let page = page("<b>&\"", "gallery", "x", &html! { p { "</script><script>" } });
        assert!(page.contains("<title>&lt;b&gt;&amp;") && page.contains("&lt;/script&gt;"), "{page}");
        assert!(!page.contains("unsafe-inline") && page.matches("<script").count() == 1, "{page}");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
