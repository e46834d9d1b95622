//! The documents: every link leads somewhere, and the guide stays short enough to be read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use literals::literals;
use workspace::root;

#[path = "workspace/literals.rs"]
mod literals;
mod workspace;

/// The words that the guide may have: what a reader must read, without reference and evidence.
const GUIDE_WORDS_MAX: usize = 15_000;

/// The documents, by their paths from the root: all Markdown that git would carry, but the list of changes.
fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for top in ["docs", "minfs", "lump", "examples", "studies"] {
        below(&root().join(top), "md", &mut found);
    }
    found.extend(["README.md", "ARCHITECTURE.md"].map(|name| root().join(name)));
    found.sort();
    let named = found.into_iter().map(|path| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, fs::read_to_string(&path).unwrap())
    });
    named.collect()
}

fn below(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            below(&path, extension, found);
        } else if path.extension().is_some_and(|has| has == extension) {
            found.push(path);
        }
    }
}

/// Whether a document is reference (formats, options) or evidence (tables of measurements).
fn is_reference(name: &str) -> bool {
    name.contains("/reference/")
        || name.contains("/evidence/")
        || name.contains("/format-")
        || name.contains("/tests/")
        || ["ARCHITECTURE.md", "minfs/docs/commands.md", "minfs/kernel/README.md"].contains(&name)
}

/// The lines of a document that are no code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    let anchor = |(_, line): (usize, &str)| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut tried = 0;
    let mut dead = Vec::new();
    for (name, text) in documents() {
        let directory = root().join(&name).parent().unwrap().to_path_buf();
        for (number, line) in prose(&text) {
            for rest in line.split("](").skip(1) {
                let target = rest.split([')', ' ']).next().unwrap();
                if target.contains("://") {
                    continue;
                }
                tried += 1;
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let file = if path.is_empty() { root().join(&name) } else { directory.join(path) };
                let there = file.exists()
                    && (anchor.is_empty()
                        || anchors(&fs::read_to_string(&file).unwrap()).contains(anchor));
                if !there {
                    dead.push(format!("{name}:{}: {target}", number + 1));
                }
            }
        }
    }
    assert!(tried >= 40, "only {tried} links were found in the documents");
    assert!(dead.is_empty(), "these links lead nowhere:\n{}", dead.join("\n"));
}

/// The documents that sources, help and messages name.
#[test]
fn every_document_that_a_source_names_is_there() {
    let mut tried = 0;
    let mut missing = BTreeSet::new();
    for (crate_name, directory) in workspace::crates() {
        let mut sources = Vec::new();
        rust_below(&root().join(&directory).join("src"), &mut sources);
        for source in sources {
            let text = fs::read_to_string(&source).unwrap();
            for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || "/-_.".contains(c))) {
                let word = word.trim_end_matches('.').trim_start_matches("../");
                if !word.ends_with(".md") || !word.contains("docs/") {
                    continue;
                }
                tried += 1;
                if !root().join(word).exists() {
                    missing.insert(format!("{crate_name}: {}: {word}", source.display()));
                }
            }
        }
    }
    assert!(tried >= 20, "only {tried} names of documents were found in the sources");
    assert!(missing.is_empty(), "no such documents: {missing:#?}");
}

fn rust_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_below(&path, found);
        } else if path.extension().is_some_and(|has| has == "rs") {
            found.push(path);
        }
    }
}

/// A phrase of the list `docs/phrases.txt`, what to write instead, and whether only the guide avoids it.
struct Phrase {
    words: Vec<String>,
    instead: String,
    guide: bool,
}

fn phrases() -> Vec<Phrase> {
    let list = fs::read_to_string(root().join("docs/phrases.txt")).unwrap();
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let phrase = |line: &str| {
        let (phrase, instead) = line.split_once(" => ").unwrap_or_else(|| panic!("{line}"));
        let guide = phrase.strip_prefix("guide: ");
        let words = words(guide.unwrap_or(phrase)).map(|(_, word)| word).collect();
        Phrase { words, instead: instead.to_string(), guide: guide.is_some() }
    };
    lines.map(phrase).collect()
}

/// The words of a text in lower case, each with its line. A path or a name with underscores is one word.
fn words(text: &str) -> impl Iterator<Item = (usize, String)> {
    let lines = text.lines().enumerate();
    lines.flat_map(|(number, line)| {
        let ends = |c: char| !(c.is_alphanumeric() || "'_/.-".contains(c));
        let words = line.split(ends).map(|word| word.trim_matches(['.', '\'', '-', '/']));
        words.filter(|word| !word.is_empty()).map(move |word| (number + 1, word.to_lowercase()))
    })
}

/// What a text says that the list rejects.
fn rejected(name: &str, text: &str, guide: bool, phrases: &[Phrase]) -> Vec<String> {
    let words: Vec<(usize, String)> = words(text).collect();
    let mut found = Vec::new();
    for phrase in phrases.iter().filter(|phrase| guide || !phrase.guide) {
        for window in words.windows(phrase.words.len()) {
            if window.iter().map(|(_, word)| word).eq(&phrase.words) {
                let said = phrase.words.join(" ");
                found.push(format!("{name}:{}: '{said}': {}", window[0].0, phrase.instead));
            }
        }
    }
    found
}

#[test]
fn a_rejected_phrase_is_found() {
    let phrases = phrases();
    assert!(phrases.len() >= 30);
    let found = |text: &str, guide: bool| rejected("page", text, guide, &phrases).len();
    assert_eq!(found("There are So\nmany files beside.", true), 2);
    assert_eq!(found("A trial.", true), 1);
    assert_eq!(found("A trial that understands besides `docs/trial.md`.", false), 0);
}

#[test]
fn documents_use_no_rejected_phrase() {
    let phrases = phrases();
    let mut found = Vec::new();
    let changes = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let documents = documents().into_iter().chain([("CHANGELOG.md".to_string(), changes)]);
    for (name, text) in documents {
        found.extend(rejected(&name, &text, !is_reference(&name), &phrases));
    }
    assert!(found.is_empty(), "see docs/phrases.txt:\n{}", found.join("\n"));
}

/// The help of every command, as it is printed.
fn helps(program: &str, words: &[&str], found: &mut Vec<(String, String)>) {
    let output = std::process::Command::new(program).args(words).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let commands = help.split("Commands:\n").nth(1).unwrap_or_default();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    for line in commands.filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let command = line.split_whitespace().next().unwrap();
        if command != "help" {
            helps(program, &[words, &[command]].concat(), found);
        }
    }
    found.push((format!("kurabe {} --help", words.join(" ")), help));
}

#[test]
fn help_uses_no_rejected_phrase() {
    let phrases = phrases();
    let mut helped = Vec::new();
    helps(env!("CARGO_BIN_EXE_kurabe"), &[], &mut helped);
    assert!(helped.len() >= 15, "only {} commands have help", helped.len());
    // The other two programs are of other packages: here are the sources of their help.
    for source in ["minfs/src/cli.rs", "minfs/src/program.rs", "lump/src/main.rs"] {
        helped.push((source.to_string(), fs::read_to_string(root().join(source)).unwrap()));
    }
    let mut found = Vec::new();
    for (name, text) in helped {
        found.extend(rejected(&name, &text, true, &phrases));
    }
    assert!(found.is_empty(), "see docs/phrases.txt:\n{}", found.join("\n"));
}

#[test]
fn every_page_is_in_the_contents() {
    let contents = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for (name, _) in documents() {
        let outside = !["docs/", "minfs/", "lump/"].iter().any(|part| name.starts_with(part));
        if outside || name.contains("/tests/") || name == "docs/SUMMARY.md" {
            continue;
        }
        let link = name.strip_prefix("docs/").map_or(format!("../{name}"), str::to_string);
        assert!(contents.contains(&format!("({link})")), "docs/SUMMARY.md lacks {name}");
    }
}

#[test]
fn the_guide_is_short() {
    let documents = documents();
    let guide = documents.iter().filter(|(name, _)| !is_reference(name));
    let words: Vec<(usize, &str)> =
        guide.map(|(name, text)| (text.split_whitespace().count(), name.as_str())).collect();
    let sum: usize = words.iter().map(|(count, _)| count).sum();
    assert!(sum <= GUIDE_WORDS_MAX, "the guide has {sum} words: {words:?}");
}

#[test]
fn literals_are_found_with_their_lines() {
    let source =
        "// \"no\"\nlet a = '\"';\nlet b = format!(\"one {block} \\\n  two\");\nlet c = \"three\";";
    let found: Vec<_> = literals(source, "");
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        (found[0].0, found[0].1.split_whitespace().collect::<Vec<_>>()),
        (3, vec!["one", "two"])
    );
    assert_eq!(found[1], (5, "three".into()));
}

/// What a user reads comes from texts in the source.
#[test]
fn messages_use_no_rejected_phrase() {
    let phrases = phrases();
    let (mut found, mut tried) = (Vec::new(), 0);
    let mut sources = Vec::new();
    below(&root().join("kurabe"), "rs", &mut sources);
    for path in sources {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if !name.starts_with("kurabe/") || name.contains("tests") {
            continue;
        }
        // What is printed by examples is for those who change the statistics.
        let guide = !name.contains("/examples/");
        // Everywhere else a single word is a name; here it may be the head of a column.
        let has_heads = name.starts_with("kurabe/report/src");
        for (line, text) in literals(&fs::read_to_string(&path).unwrap(), "") {
            if has_heads || text.trim().contains(' ') {
                tried += 1;
                let place = format!("{name}:{line}");
                found.extend(rejected(&place, &text, guide, &phrases));
            }
        }
    }
    assert!(tried > 1000, "{tried}");
    assert!(found.is_empty(), "see docs/phrases.txt:\n{}", found.join("\n"));
}
