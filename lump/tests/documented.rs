//! The documents and the rustdoc name tests as evidence for what they promise: each of these tests exists.

use std::fs;
use std::path::Path;

/// One for each level of durability.
const PROMISES: [&str; 3] = [
    "nothing_that_was_acknowledged_is_lost",
    "what_was_told_to_be_done_survives_sigkill",
    "a_buffered_change_is_seen_at_once_and_survives_after_a_sync",
];

#[test]
fn each_test_that_a_document_names_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = String::new();
    for directory in ["src", "tests", "tests/store", "model/tests"] {
        for entry in fs::read_dir(here.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                for line in fs::read_to_string(path).unwrap().lines() {
                    tests += line.trim_start();
                    tests += "\n";
                }
            }
        }
    }
    // Metrics have names like these too.
    let is_test = |word: &&str| {
        word.matches('_').count() >= 3
            && !word.starts_with("lump_")
            && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
    };
    for path in ["docs/durability.md", "docs/format-lump.md", "README.md", "src/store.rs"] {
        let text = fs::read_to_string(here.join(path)).unwrap();
        let names: Vec<&str> = text.split('`').filter(is_test).collect();
        for name in &names {
            let definition = format!("#[test]\nfn {name}()");
            assert!(tests.contains(&definition), "{path}: there is no test `{name}`");
        }
        for name in PROMISES {
            assert!(names.contains(&name), "{path} does not name `{name}`");
        }
    }
}
