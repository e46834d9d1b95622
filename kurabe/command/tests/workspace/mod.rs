//! The crates of the workspace and where they lie, from its manifest: for tests that read the sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory that holds the workspace's manifest.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Each crate's directory, relative to the root, by the crate's name.
pub fn crates() -> BTreeMap<String, PathBuf> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members = ")).expect("members");
    let mut found = BTreeMap::new();
    for member in members.split('"').skip(1).step_by(2) {
        let directories = match member.strip_suffix("/*") {
            None => vec![PathBuf::from(member)],
            Some(parent) => fs::read_dir(root().join(parent))
                .unwrap()
                .map(|entry| Path::new(parent).join(entry.unwrap().file_name()))
                .filter(|directory| root().join(directory).join("Cargo.toml").exists())
                .collect(),
        };
        for directory in directories {
            let manifest = fs::read_to_string(root().join(&directory).join("Cargo.toml")).unwrap();
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
            found.insert(name.expect("a name").trim_matches('"').to_string(), directory);
        }
    }
    assert!(found.len() > 10, "{found:?}");
    found
}
