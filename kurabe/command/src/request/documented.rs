//! The documents' own commands and study files, tried: what they show must at least be accepted.

use std::path::{Path, PathBuf};

use clap::Parser;
use lab::study_file;
use trial::filesystem;

use crate::request::flags::{Action, Cli};
use crate::request::studies::catalogue;

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec![root.join("README.md")];
    for directory in ["docs", "docs/reference", "docs/evidence"] {
        let entries = std::fs::read_dir(root.join(directory)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        documents.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    documents
}

/// The fenced blocks of a language, with the line that each begins at.
fn fences(text: &str, language: &str) -> Vec<(usize, String)> {
    let mut fences = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(tag)) if tag.trim() == language => open = Some((index + 2, String::new())),
            (Some(_), Some(_)) => fences.extend(open.take()),
            (Some((_, body)), None) => {
                body.push_str(line);
                body.push('\n');
            }
            _ => {}
        }
    }
    fences
}

#[test]
fn every_documented_command_is_accepted() {
    let mut tried = 0;
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for (begin, body) in fences(&text, "sh") {
            // A command may go on in the next line.
            let body = body.replace("\\\n", " ");
            for (offset, line) in body.lines().enumerate() {
                let command = line.trim().strip_prefix("sudo ").unwrap_or(line.trim());
                if !command.starts_with("kurabe ") {
                    continue;
                }
                let place = format!("{}:{}", path.display(), begin + offset);
                let command = command.split(" #").next().unwrap();
                let words = shlex::split(command).expect(&place);
                let cli = Cli::try_parse_from(&words).unwrap_or_else(|e| panic!("{place}: {e}"));
                if let Action::Compare(args) = &cli.action {
                    let study = args.study_text().resolve(catalogue(&filesystem::known()));
                    study.unwrap_or_else(|error| panic!("{place}: {error}"));
                }
                tried += 1;
            }
        }
    }
    assert!(tried >= 10, "only {tried} commands were found in the documents");
}

#[test]
fn every_documented_study_is_accepted() {
    let mut tried = 0;
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for (begin, body) in fences(&text, "toml") {
            study_file::load(&path, &body, catalogue(&filesystem::known()))
                .unwrap_or_else(|error| panic!("study at {}:{begin}: {error}", path.display()));
            tried += 1;
        }
    }
    assert!(tried >= 1, "no study was found in the documents");
}
