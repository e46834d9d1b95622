//! The documents name tests as evidence for what they promise: each of these tests exists.

use std::fs;
use std::path::{Path, PathBuf};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn files_below(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|has| has == extension) {
            found.push(path);
        }
    }
    found
}

/// The words in backticks that look like the name of a test: lower case, with three underscores or more.
fn names_of_tests(document: &str) -> Vec<&str> {
    let is_name = |word: &&str| {
        word.matches('_').count() >= 3
            && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
    };
    document.split('`').filter(is_name).collect()
}

#[test]
fn each_test_that_a_document_names_exists() {
    let here = Path::new(HERE);
    let sources: Vec<String> = ["src", "tests", "model/tests"]
        .iter()
        .flat_map(|directory| files_below(&here.join(directory), "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let mut documents = files_below(&here.join("docs"), "md");
    documents.extend([here.join("README.md"), here.join("kernel/README.md")]);
    let mut named = 0;
    for path in documents {
        let document = fs::read_to_string(&path).unwrap();
        for name in names_of_tests(&document) {
            let definition = format!("#[test]\nfn {name}()");
            let exists = sources.iter().any(|source| source.contains(&definition));
            assert!(exists, "{}: there is no test `{name}`", path.display());
            named += 1;
        }
    }
    assert!(named >= 4, "the README names a test for each promise, the documents only {named}");
}
