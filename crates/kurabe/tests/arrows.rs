//! Which crate may depend on which: the table of ARCHITECTURE.md, compared with the manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Arrows = BTreeMap<String, BTreeSet<String>>;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The words between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_string)
}

/// The rows of the table of crates: the crate, and what it may depend on.
fn documented() -> Arrows {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let crates = page.split("\n## ").find(|part| part.starts_with("Crates")).expect("a table");
    let rows = crates.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let name = quoted(cells.first()?).next()?;
        Some((name, quoted(cells.get(2)?).collect()))
    });
    rows.collect()
}

/// The workspace's crates that each manifest names outside of its tests.
fn declared() -> Arrows {
    let crates: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let arrows = crates.iter().map(|name| {
        let path = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(path).unwrap();
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} has its own name");
        let mut section = "";
        let mut named = BTreeSet::new();
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let word = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if section == "[dependencies]" && crates.contains(word) {
                named.insert(word.to_string());
            }
        }
        (name.clone(), named)
    });
    arrows.collect()
}

#[test]
fn crates_depend_on_what_the_architecture_says() {
    assert_eq!(declared(), documented());
}

#[test]
fn no_arrow_runs_backwards() {
    let arrows = declared();
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    while placed.len() < arrows.len() {
        let next = arrows.iter().find(|(name, below)| {
            !placed.contains(name.as_str()) && below.iter().all(|one| placed.contains(one.as_str()))
        });
        let (name, _) = next.unwrap_or_else(|| panic!("a circle above {placed:?}: {arrows:#?}"));
        placed.insert(name);
    }
    // What must never be known, however the table changes.
    let never = [("lab", "loads"), ("loads", "lab"), ("report", "trial"), ("lump", "lab")];
    for (name, other) in never {
        assert!(!arrows[name].contains(other), "{name} knows {other}");
    }
}
