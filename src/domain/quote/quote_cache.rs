//! Quotes of requests that differ in nothing but their prompts, as most rows of a large manifest do.
//!
//! A prompt decides about a quote in three ways: it may be missing, be too long, or say what the service refuses. A
//! request whose prompt does none of these costs what a request with another such prompt costs.

use serde_json::Value;

use super::Quote;
use super::model_rules::Rules;
use crate::domain::diagnostic::Diagnostic;
use crate::domain::request::{Kind, Request};

/// Most quotes that are kept: kinds of rows mostly come mixed.
const KNOWN_MAX: usize = 8;
/// After so many requests that are not found, more must be found than not: rows may each have a value of their own, a
/// seed for one.
const TRIALS: u64 = 256;

/// The quotes of the last requests, all by one catalog and the same rules.
#[derive(Debug, Default)]
pub struct QuoteCache {
    /// The one that was found last comes first.
    known: Vec<KnownQuote>,
    found: u64,
    missed: u64,
}

/// A request without its prompt, and its quote without the prompt in its body.
#[derive(Debug)]
struct KnownQuote {
    request: Request,
    quote: Quote,
    /// The longest prompt that was quoted so, in characters: a shorter one is not too long.
    prompt_chars: usize,
}

/// The field of the prompt, in requests and in bodies.
const PROMPT: &str = "prompt";

impl QuoteCache {
    /// The quote of a request: known from another one, or what `quote` makes of it.
    ///
    /// # Errors
    /// Those of `quote`.
    pub fn get_or(
        &mut self,
        kind: Kind,
        request: &Request,
        rules: &Rules,
        quote: impl FnOnce() -> Result<Quote, Vec<Diagnostic>>,
    ) -> Result<Quote, Vec<Diagnostic>> {
        let is_worth_it = self.missed < TRIALS || self.found > self.missed;
        let prompt = if is_worth_it { plain_prompt(request, rules) } else { None };
        let Some(prompt) = prompt else { return quote() };
        let chars = prompt.chars().count();
        if let Some(place) = self.known.iter().position(|known| known.is_of(kind, request)) {
            self.known[..=place].rotate_right(1);
            let known = &mut self.known[0];
            if chars <= known.prompt_chars {
                self.found += 1;
                return Ok(known.with_prompt(prompt));
            }
            let quote = quote()?;
            known.prompt_chars = chars;
            return Ok(quote);
        }
        self.missed += 1;
        let quote = quote()?;
        if let Some(known) = KnownQuote::of(request, &quote, chars) {
            self.known.truncate(KNOWN_MAX - 1);
            self.known.insert(0, known);
        }
        Ok(quote)
    }
}

/// The prompt as it is sent; nothing where something is to be said of it.
fn plain_prompt<'r>(request: &'r Request, rules: &Rules) -> Option<&'r str> {
    let prompt = request.prompt.as_deref()?.trim();
    (!prompt.is_empty() && rules.prohibited_in(prompt).is_none()).then_some(prompt)
}

impl KnownQuote {
    /// Nothing for one whose body has no prompt.
    fn of(request: &Request, quote: &Quote, prompt_chars: usize) -> Option<KnownQuote> {
        let mut quote = quote.clone();
        *quote.body.get_mut(PROMPT)? = Value::from("");
        Some(KnownQuote { request: Request { prompt: None, ..request.clone() }, quote, prompt_chars })
    }

    fn is_of(&self, kind: Kind, request: &Request) -> bool {
        let Request { model, prompt: _, text, voice_id, mode, scene, image_urls, video_urls, options } =
            request;
        let known = &self.request;
        self.quote.kind == kind
            && known.model == *model
            && known.options == *options
            && known.mode == *mode
            && known.scene == *scene
            && known.image_urls == *image_urls
            && known.video_urls == *video_urls
            && known.voice_id == *voice_id
            && known.text == *text
    }

    fn with_prompt(&self, prompt: &str) -> Quote {
        let mut quote = self.quote.clone();
        quote.body.insert(PROMPT.to_owned(), Value::from(prompt));
        quote
    }
}
