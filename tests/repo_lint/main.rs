//! What the repository promises of itself: imports, dependencies, the package, the schema of manifests.

mod dependencies;
mod import_cycles;
mod packaging;
mod schema;
mod sources;
