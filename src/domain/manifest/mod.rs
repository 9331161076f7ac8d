//! Manifests: bytes in, typed rows and positioned problems out.
//!
//! A reader never stops at the first problem and never lets a bad row take a good one down.

pub mod row;
