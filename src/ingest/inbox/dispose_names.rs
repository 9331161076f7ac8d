//! Under which names a manifest and its receipt are filed.
//!
//! What that costs does not grow with what was filed under the same name: a free number is searched in steps that double,
//! and only the receipts of the last few are read. The same manifest as one that was filed long before is kept again.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use serde::Deserialize;

use crate::ingest::inbox::dir::{EntryKind, InboxDir};
use crate::ingest::inbox::ignored_names::RECEIPT_ENDING;
use crate::output::publish::hash;

/// Longest receipt that is read again, in bytes: a thousand problems and notes stay far below.
const RECEIPT_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Longest name of a filed manifest, in bytes: its receipt's is longer, and 255 is what file systems take.
pub(super) const NAME_MAX_BYTES: usize = 200;

/// So many receipts of the same name, the newest, are looked into for the very same manifest.
const RECENT: u32 = 16;

/// What tells whose a receipt is.
#[derive(Debug, Deserialize)]
struct Claim {
    filed_as: String,
    sha256: String,
}

/// Two names that belong together.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) manifest: OsString,
    pub(super) receipt: OsString,
    /// The very same manifest lies there.
    pub(super) has_manifest: bool,
    /// The receipt of the very same manifest lies there, and no manifest: disposing broke off.
    pub(super) has_receipt: bool,
}

/// Free names for a manifest and its receipt, and whether an earlier try with the very same one left something.
pub(super) fn find_place(
    target: &InboxDir,
    name: &OsStr,
    bytes: u64,
    sha256: &str,
) -> io::Result<Destination> {
    let free = free_number(|number| {
        let names = Names::of(name, number);
        let kinds = (target.file_at(&names.manifest)?, target.file_at(&names.receipt)?);
        Ok(kinds != (EntryKind::Nobody, EntryKind::Nobody))
    })?;
    for number in free.earlier() {
        let Names { manifest, receipt } = Names::of(name, number);
        let Some(filed_as) = claim(target, &receipt, sha256)? else { continue };
        // A receipt has the name as text, even where that is no UTF-8.
        let is_own = *filed_as == *manifest.to_string_lossy();
        let filed_as = if is_own { &manifest } else { OsStr::new(&filed_as) };
        match target.file_at(filed_as)? {
            EntryKind::Nobody if is_own => {
                return Ok(Destination { manifest, receipt, has_manifest: false, has_receipt: true });
            }
            EntryKind::File(found) if found == bytes => {
                if let Some(mut file) = target.read(filed_as)?
                    && hash(&mut file)? == sha256
                {
                    let (manifest, receipt) = (filed_as.to_owned(), Names::of(name, free.number).receipt);
                    return Ok(Destination { manifest, receipt, has_manifest: true, has_receipt: false });
                }
            }
            _ => {}
        }
    }
    let Names { manifest, receipt } = Names::of(name, free.number);
    Ok(Destination { manifest, receipt, has_manifest: false, has_receipt: false })
}

/// The names of one number.
struct Names {
    manifest: OsString,
    receipt: OsString,
}

impl Names {
    fn of(name: &OsStr, number: u32) -> Names {
        let manifest = numbered(name, number);
        let mut receipt = manifest.clone();
        receipt.push(RECEIPT_ENDING);
        Names { manifest, receipt }
    }
}

/// A number that is free, and what was seen on the way to it.
#[derive(Debug)]
struct FreeNumber {
    number: u32,
    /// Numbers that were looked at and taken, in the order of the looks.
    taken: Vec<u32>,
}

impl FreeNumber {
    /// The numbers whose receipts are read: some that precede it, and those that were looked at. Where earlier ones were
    /// removed, so that the free one is not the last, the one that was filed last is among these: the search before
    /// came to it by the same looks.
    fn earlier(&self) -> impl Iterator<Item = u32> {
        let recent = (self.number.saturating_sub(RECENT).max(1)..self.number).rev();
        let others = self.taken.iter().rev().filter(|taken| self.number - **taken > RECENT);
        recent.chain(others.copied())
    }
}

/// Finds a free number in steps that double, and then halve: its cost hardly grows with the numbers that are taken.
fn free_number(mut is_taken: impl FnMut(u32) -> io::Result<bool>) -> io::Result<FreeNumber> {
    let (mut low, mut high, mut taken) = (0u32, 1u32, Vec::new());
    while is_taken(high)? {
        taken.push(high);
        low = high;
        high = high.checked_mul(2).ok_or(io::ErrorKind::AlreadyExists)?;
    }
    // `low` is taken and `high` is free.
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_taken(middle)? {
            taken.push(middle);
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(FreeNumber { number: high, taken })
}

/// `m.csv`, `m.2.csv`, `m.3.csv`, and short enough for a receipt's name.
pub(super) fn numbered(name: &OsStr, number: u32) -> OsString {
    let path = Path::new(name);
    let (mut stem, mut ending) = (path.file_stem().unwrap_or_default().as_bytes(), Vec::new());
    match path.extension().map(OsStr::as_bytes) {
        Some(extension) if extension.len() < NAME_MAX_BYTES / 2 => {
            ending.push(b'.');
            ending.extend(extension);
        }
        _ => stem = name.as_bytes(),
    }
    let number = if number > 1 { format!(".{number}") } else { String::new() };
    let room = NAME_MAX_BYTES - ending.len() - number.len();
    if stem.len() > room {
        // Not in the middle of a letter.
        let end = (0..=room).rev().find(|&end| stem[end] & 0xC0 != 0x80).unwrap_or(room);
        stem = &stem[..end];
    }
    OsString::from_vec([stem, number.as_bytes(), &ending].concat())
}

/// What the manifest of a receipt is filed as, if the receipt is of one with this hash.
fn claim(target: &InboxDir, receipt: &OsStr, sha256: &str) -> io::Result<Option<String>> {
    let Some(file) = target.read(receipt)? else { return Ok(None) };
    let mut text = Vec::new();
    file.take(RECEIPT_MAX_BYTES).read_to_end(&mut text)?;
    let claim = serde_json::from_slice::<Claim>(&text).ok().filter(|claim| claim.sha256 == sha256);
    // Only a name in this folder counts: others may write receipts, too.
    Ok(claim.map(|claim| claim.filed_as).filter(|name| Path::new(name).file_name() == Some(name.as_ref())))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_search_for_a_free_number_takes_few_looks_and_comes_back_to_what_was_filed_last() {
        let search = |taken: &HashSet<u32>| {
            let mut looks = 0;
            let free = free_number(|number| {
                looks += 1;
                Ok(taken.contains(&number))
            });
            (free.unwrap(), looks)
        };
        let (free, looks) = search(&(1..=100_000).collect());
        assert_eq!((free.number, looks), (100_001, 34));
        assert!(free.earlier().count() < 50);
        // Some were removed meanwhile, as somebody does who tidies up.
        let mut taken: HashSet<u32> = (1..=1_000).filter(|number| number % 7 != 3 || *number > 800).collect();
        for _ in 0..300 {
            let (free, _) = search(&taken);
            assert!(taken.insert(free.number), "{} was free", free.number);
            let (next, _) = search(&taken);
            assert!(next.earlier().any(|earlier| earlier == free.number), "{} is not found", free.number);
        }
    }
}
