//! The `callsheet` program.

fn main() {}
