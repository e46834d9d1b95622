//! Tests of the synthetic tree: its shape against the kernel's, and that it is reproducible.

use std::collections::{BTreeMap, HashSet};

use super::*;

fn sizes(tree: &SyntheticTree) -> Vec<u64> {
    let mut sizes: Vec<u64> = tree
        .entries()
        .iter()
        .filter_map(|entry| match entry.kind {
            EntryKind::File { size_bytes, .. } => Some(size_bytes),
            _ => None,
        })
        .collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn a_tree_of_the_kernels_size_has_the_kernels_shape() {
    let tree = SyntheticTree::new(KERNEL_FILES, 1);
    let entries = tree.entries();
    let of_kind = |wanted: fn(&EntryKind) -> bool| {
        entries.iter().filter(|entry| wanted(&entry.kind)).count() as u64
    };
    assert_eq!(of_kind(|kind| matches!(kind, EntryKind::File { .. })), KERNEL_FILES);
    assert_eq!(of_kind(|kind| matches!(kind, EntryKind::Link { .. })), KERNEL_LINKS);
    assert_eq!(of_kind(|kind| matches!(kind, EntryKind::Directory)), 5096);

    // The bytes are those of the quantiles: between two of them the real sizes need not lie on
    // a line.
    let bytes = sizes(&tree).iter().sum::<u64>() as f64;
    assert!((bytes / 1_298_681_992.0 - 1.0).abs() < 0.1, "{bytes} bytes");
    let sizes = sizes(&tree);
    let median = sizes[sizes.len() / 2] as f64;
    assert!((median / 3874.0 - 1.0).abs() < 0.02, "a median of {median}");

    let mut files_by_depth = BTreeMap::new();
    let mut files_by_directory: BTreeMap<&str, u64> = BTreeMap::new();
    let mut with_subdirectories = HashSet::new();
    for entry in entries {
        let (parent, _) = entry.path.rsplit_once('/').unwrap_or(("", &entry.path));
        match entry.kind {
            EntryKind::Directory => {
                files_by_directory.entry(&entry.path).or_default();
                with_subdirectories.insert(parent);
            }
            _ => {
                *files_by_directory.entry(parent).or_default() += 1;
                *files_by_depth.entry(entry.path.matches('/').count() - 1).or_insert(0_u64) += 1;
            }
        }
    }
    for (depth, files) in FILES_BY_DEPTH.iter().enumerate() {
        assert!(files_by_depth[&depth].abs_diff(*files) <= 1, "depth {depth}");
    }
    let mut in_directory: Vec<u64> = files_by_directory.into_values().collect();
    in_directory.sort_unstable();
    let at = |part: f64| in_directory[(part * (in_directory.len() - 1) as f64) as usize];
    // The kernel's are 6, 32 and 156.
    assert!((4..=9).contains(&at(0.5)), "{}", at(0.5));
    assert!((24..=40).contains(&at(0.9)), "{}", at(0.9));
    assert!((110..=210).contains(&at(0.99)), "{}", at(0.99));
    // In the kernel's tree 20 to 25 % of the directories have subdirectories.
    let part = with_subdirectories.len() as f64 / 5096.0;
    assert!((0.12..0.35).contains(&part), "{part}");
}

#[test]
fn a_small_tree_has_directories_within_directories_as_the_kernels() {
    for (files, directories, deepest) in [(500, 32, 5), (100, 6, 3)] {
        let tree = SyntheticTree::new(files, 1);
        let paths: Vec<&str> = tree
            .entries()
            .iter()
            .filter(|entry| matches!(entry.kind, EntryKind::Directory))
            .map(|entry| entry.path.as_str())
            .collect();
        assert!(paths.len().abs_diff(directories) <= 3, "{} directories", paths.len());
        let depth = paths.iter().map(|path| path.matches('/').count()).max().unwrap();
        assert!(depth >= deepest, "{files} files go down to depth {depth}");
    }
}

#[test]
fn paths_are_distinct_and_parents_come_first() {
    let tree = SyntheticTree::new(5000, 3);
    let mut seen = HashSet::new();
    for entry in tree.entries() {
        if let Some((parent, _)) = entry.path.rsplit_once('/') {
            assert!(seen.contains(parent), "{} comes before its directory", entry.path);
        }
        assert!(seen.insert(entry.path.as_str()), "{} is there twice", entry.path);
        if let EntryKind::Link { target } = &entry.kind {
            if target == "." {
                continue;
            }
            let mut place: Vec<&str> = entry.path.split('/').collect();
            place.pop();
            for part in target.split('/') {
                match part {
                    ".." => {
                        place.pop();
                    }
                    part => place.push(part),
                }
            }
            let goal = place.join("/");
            assert!(tree.entries().iter().any(|entry| entry.path == goal), "{goal}");
        }
    }
}

#[test]
fn a_seed_gives_one_tree_and_another_seed_another() {
    let one = SyntheticTree::new(300, 42);
    let again = SyntheticTree::new(300, 42);
    let other = SyntheticTree::new(300, 43);
    assert_eq!(one.entries(), again.entries());
    assert_ne!(one.entries(), other.entries());
    assert_eq!(one.contents(7, 10_000), again.contents(7, 10_000));
    assert_ne!(one.contents(7, 10_000), one.contents(8, 10_000));
    assert_ne!(one.contents(7, 10_000), other.contents(7, 10_000));
}

/// A tree that changes from one version of kurabe to the next would make old results
/// incomparable; the figure is this version's own.
#[test]
fn the_tree_of_a_seed_does_not_change() {
    let tree = SyntheticTree::new(2000, 7);
    let mut all = String::new();
    for entry in tree.entries() {
        // Field by field, since the name of the type is no part of the tree.
        let TreeEntry { path, kind, mode } = entry;
        all.push_str(&format!("Entry {{ path: {path:?}, kind: {kind:?}, mode: {mode:?} }}\n"));
    }
    all.push_str(&format!("{:?}", tree.contents(3, 5000)));
    assert_eq!(xxhash_rust::xxh3::xxh3_64(all.as_bytes()), GOLDEN);
}

const GOLDEN: u64 = 16_972_964_941_644_039_639;

#[test]
fn small_trees_are_trees() {
    for files in 0..40 {
        let tree = SyntheticTree::new(files, 5);
        assert_eq!(sizes(&tree).len() as u64, files);
        assert_eq!(tree.entries()[0].kind, EntryKind::Directory);
    }
    // Strata: a thousandth of the files carries much of the bytes, also in a small tree.
    let mean = sizes(&SyntheticTree::new(1000, 5)).iter().sum::<u64>() / 1000;
    assert!((8_000..30_000).contains(&mean), "a mean of {mean}");
}

#[test]
fn contents_have_their_length_and_compress_like_text() {
    let tree = SyntheticTree::new(10, 1);
    for size in [0, 1, 13, 4096, 100_000] {
        assert_eq!(tree.contents(1, size).len() as u64, size);
    }
    let text = tree.contents(1, 1 << 18);
    let mut counts = [0_u64; 256];
    for byte in &text {
        counts[usize::from(*byte)] += 1;
    }
    let entropy: f64 = counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| {
            let part = *count as f64 / text.len() as f64;
            -part * part.log2()
        })
        .sum();
    // English and C source have 4 to 5 bits a byte.
    assert!((3.5..5.2).contains(&entropy), "{entropy} bits a byte");
}
