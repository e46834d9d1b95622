//! The page of a result, which every run leaves.

use std::path::PathBuf;

use report::document::Block;
use report::source::ResultSource;
use trust::{Directory, Refused};

/// Its name in a result directory.
const PAGE_FILE: &str = "report.html";

/// The page of a result, with its publication.
pub fn page(source: &ResultSource) -> String {
    report::page::page(source, &publication(source))
}

/// What a result says of its publication.
pub fn publication(source: &ResultSource) -> Vec<Block> {
    publications::section(&source.plan, &source.records, &source.analysis)
}

/// Writes the page of a result into its directory and yields its path.
pub fn write_page(directory: &Directory, source: &ResultSource) -> Result<PathBuf, Refused> {
    directory.replace(PAGE_FILE, page(source).as_bytes(), 0o644)?;
    Ok(directory.path().join(PAGE_FILE))
}
