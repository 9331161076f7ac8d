//! `callsheet open`: the page of a batch, or the list of batches, made current and shown.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use url::Url;

use crate::cli::failure::Failure;
use crate::cli::global_flags::Global;
use crate::cli::terminal::say;
use crate::cli::{client, printable, printable_path, written};
use crate::domain::exit_code::Exit;
use crate::domain::ids::BatchName;
use crate::domain::path_text::ExactPath;
use crate::server::protocol::GalleryRequest;

/// What `open` takes.
#[derive(Debug, Args)]
pub(super) struct OpenCommand {
    /// Name of the batch [default: the list of batches]
    #[arg(value_name = "BATCH")]
    batch: Option<BatchName>,
    /// Print the path of the page and do not open it
    #[arg(long)]
    print: bool,
}

/// How long an opener may take to say that it failed.
const OPENER_TIMEOUT: Duration = Duration::from_secs(3);
/// Openers of a desktop.
const OPENERS: [&str; 2] =
    if cfg!(target_os = "macos") { ["open", "xdg-open"] } else { ["xdg-open", "open"] };

pub(super) async fn run(command: &OpenCommand, global: &Global) -> Result<Exit, Failure> {
    let page = client::call(global, &GalleryRequest { batch: command.batch.clone() }).await?.page;
    let Some(ExactPath(path)) = page else {
        return Err(Failure::new(Exit::Usage, "galleries are switched off")
            .hint("set output.gallery = true in the configuration, and restart the daemon if one runs"));
    };
    let url = Url::from_file_path(&path).map(String::from).unwrap_or_else(|()| path.display().to_string());
    let opened = if command.print || global.json { None } else { open(&url).await };
    if global.json {
        let page = json!({ "batch": command.batch, "page": path.display().to_string(), "url": url });
        written(writeln!(anstream::stdout(), "{page:#}"))?;
        return Ok(Exit::Success);
    }
    if command.print {
        written(writeln!(anstream::stdout(), "{}", printable_path(&path)))?;
        return Ok(Exit::Success);
    }
    match opened {
        Some(opener) => say!("{}: opened with {}", printable_path(&path), printable(&opener)),
        None => {
            say!("no browser found; open this page, or set BROWSER:");
            written(writeln!(anstream::stdout(), "{}", printable(&url)))?;
        }
    }
    Ok(Exit::Success)
}

/// Has the desktop open an address. Returns what took it; nothing where nothing did.
async fn open(url: &str) -> Option<String> {
    let browsers = std::env::var("BROWSER").unwrap_or_default();
    let named = browsers.split(':').filter(|browser| !browser.trim().is_empty()).map(str::to_owned);
    let has_display = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"]
            .iter()
            .any(|name| std::env::var(name).is_ok_and(|value| !value.is_empty()));
    let desktop = OPENERS.iter().filter(|_| has_display).map(|&opener| opener.to_owned());
    for opener in named.chain(desktop) {
        if takes(&opener, url).await {
            return Some(opener.split_whitespace().next().unwrap_or_default().to_owned());
        }
    }
    None
}

/// Starts an opener: a program with its arguments, `%s` of which is the address. One that still runs after a while is a
/// browser.
async fn takes(opener: &str, url: &str) -> bool {
    let mut words = opener.split_whitespace();
    let Some(program) = words.next() else { return false };
    let mut arguments: Vec<String> = words.map(|word| word.replace("%s", url)).collect();
    if !opener.contains("%s") {
        arguments.push(url.to_owned());
    }
    let program = Path::new(program);
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    let waited = tokio::time::timeout(OPENER_TIMEOUT, tokio::task::spawn_blocking(move || child.wait()));
    match waited.await {
        Ok(Ok(Ok(status))) => status.success(),
        Ok(_) => false,
        Err(_) => true,
    }
}
