//! Pages for a browser: the gallery that each batch leaves in its output folder, and the list of batches.
//!
//! Architecture invariant: pages are derived, never state. Whatever is in them is made again from the rows and outcomes of
//! the state; a folder that is deleted costs nothing but the time to write it. Nothing is loaded from elsewhere, no script or
//! text of a manifest or of the service is ever taken for markup, and every page works from disk, where a browser lets
//! it fetch nothing: data lies in script files.

pub mod batch_list;
pub mod decoder_process;
pub mod document;
pub mod gallery_index;
pub mod gallery_job;
pub mod gallery_page;
pub mod live_batch;
pub mod live_budget_bar;
pub mod live_document;
pub mod live_forms;
pub mod live_overview;
pub mod live_review;
pub mod script_data;

use crate::output::own_file::OwnFile;

/// The folder of a batch's folder that a gallery's data, style, script and thumbnails lie in.
pub const GALLERY_FOLDER: &str = "gallery";
/// The same beside the list of batches: no batch can be called so.
pub const LIST_FOLDER: &str = "_gallery";
/// The page of a batch, and the list of batches.
pub const INDEX: &str = OwnFile::Page.name();

/// The style of every page.
pub const STYLE: &str =
    concat!(include_str!("page.css"), include_str!("gallery.css"), include_str!("batch_list.css"));

/// The script of every page: the parts of the gallery's share one scope, in this order.
const SCRIPT: &str = concat!(
    include_str!("theme_switch.js"),
    "if (document.documentElement.dataset.page === \"gallery\") {\n",
    include_str!("gallery_data.js"),
    include_str!("gallery_format.js"),
    include_str!("gallery_filter.js"),
    include_str!("gallery_grid.js"),
    include_str!("gallery_players.js"),
    include_str!("gallery_keyboard.js"),
    include_str!("gallery_viewer.js"),
    include_str!("gallery_start.js"),
    "}\n",
);

/// The style sheet and the script of every page: file name and content.
pub const ASSETS: [(&str, &str); 2] = [("style.css", STYLE), ("script.js", SCRIPT)];
