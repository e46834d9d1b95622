//! The commands and study files of documents, and the commands and options that messages name, tried: what they say
//! must at least be accepted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use lab::study_file;
use trial::filesystem;

use crate::request::flags::{Action, Cli};
use crate::request::studies::catalogue;

#[path = "../../tests/workspace/literals.rs"]
mod literals;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn documents() -> Vec<PathBuf> {
    let root = root();
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

/// Options of other programs that messages name.
const OPTIONS_OF_OTHERS: [&str; 11] = [
    "assemble",       // mdadm
    "create",         // mdadm
    "cmdhelp",        // fio
    "enghelp",        // fio
    "rw",             // fio
    "extpass",        // encfs
    "path",           // cargo
    "fix-fixable",    // reiserfsck
    "rebuild-tree",   // reiserfsck
    "library-path",   // ld.so
    "no-kstat-mount", // zfs-fuse
];

/// The names of all options of a command and of those below it.
fn options(command: &clap::Command, found: &mut BTreeSet<String>) {
    for argument in command.get_arguments() {
        let aliases = argument.get_all_aliases().into_iter().flatten();
        found.extend(argument.get_long().into_iter().chain(aliases).map(str::to_string));
    }
    command.get_subcommands().for_each(|below| options(below, found));
}

/// The options that a text names, but for the variables of a style sheet.
fn options_in(text: &str) -> Vec<&str> {
    let of = |(at, _): (usize, &str)| {
        let is_apart = text[..at].ends_with([' ', '\'', '`', '(', '[']) || at == 0;
        let rest = &text[at + 2..];
        let ends = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        let name = rest.split(ends).next()?;
        let is_style = text[..at].ends_with("var(") || rest[name.len()..].starts_with(':');
        let is_option = name.starts_with(|c: char| c.is_ascii_lowercase());
        (is_apart && is_option && !is_style).then_some(name)
    };
    text.match_indices("--").filter_map(of).collect()
}

/// The calls of kurabe that a text has in quotes, or that it consists of.
fn calls_in(text: &str) -> Vec<&str> {
    let of = |(at, _): (usize, &str)| {
        let before = text[..at].strip_suffix("sudo ").unwrap_or(&text[..at]);
        match before.chars().next_back() {
            Some(quote @ ('\'' | '`')) => text[at..].split(quote).next(),
            Some(_) => None,
            None => {
                let first = text[at..].split_whitespace().nth(1)?;
                Cli::command().find_subcommand(first).map(|_| &text[at..])
            }
        }
    };
    text.match_indices("kurabe ").filter_map(of).collect()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_of_tests = path.file_name().unwrap().to_string_lossy().contains("tests");
        match path.extension() {
            _ if is_of_tests || path.ends_with("documented.rs") => {}
            Some(end) if end == "rs" => found.push(path),
            _ if path.is_dir() => sources(&path, found),
            _ => {}
        }
    }
}

/// A message may leave values out, and names them in capitals.
fn is_accepted(call: &str) -> Result<(), String> {
    let word = |word: &str| {
        let is_name = word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        if is_name { "1".to_string() } else { word.to_string() }
    };
    // An example has its description in a column of its own.
    let call = call.split("  ").next().unwrap_or_default();
    let words = shlex::split(call).ok_or("a quote is not closed")?;
    match Cli::command().try_get_matches_from(words.iter().map(|text| word(text))) {
        Err(error)
            if ![
                ErrorKind::MissingRequiredArgument,
                ErrorKind::MissingSubcommand,
                ErrorKind::DisplayHelp,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ]
            .contains(&error.kind()) =>
        {
            Err(error.to_string())
        }
        _ => Ok(()),
    }
}

#[test]
fn a_call_that_there_is_not_is_found() {
    let text = "go on by 'kurabe resume 1 --more 1', or sudo kurabe is needed";
    assert_eq!(calls_in(text), ["kurabe resume 1 --more 1"]);
    assert_eq!(options_in("(--cache) var(--k) a--b '--more N'"), ["cache", "more"]);
    assert!(is_accepted("kurabe resume DIR --more N").is_ok());
    assert!(is_accepted("kurabe resume").is_ok());
    assert!(is_accepted("kurabe resume 1 --mere 1").is_err());
    assert!(is_accepted("kurabe resum 1").is_err());
}

#[test]
fn what_messages_name_exists() {
    let mut known: BTreeSet<String> = OPTIONS_OF_OTHERS.map(str::to_string).into();
    options(&Cli::command(), &mut known);
    known.extend(["help".to_string(), "version".to_string()]);
    let (mut paths, mut wrong, mut tried) = (Vec::new(), Vec::new(), [0; 2]);
    sources(&root().join("kurabe"), &mut paths);
    for path in paths.iter().filter(|path| path.iter().any(|part| part == "src")) {
        let source = std::fs::read_to_string(path).unwrap();
        for (line, text) in literals::literals(&source, "1") {
            let place = format!("{}:{line}", path.display());
            // One word is an argument of a program, and several lines are a script or examples.
            let is_message = text.trim().contains(' ') && !text.trim().contains('\n');
            for option in options_in(&text).into_iter().filter(|_| is_message) {
                tried[0] += 1;
                if !known.contains(option) {
                    wrong.push(format!("{place}: no option --{option}: {text}"));
                }
            }
            for call in text.lines().flat_map(|line| calls_in(line.trim())) {
                tried[1] += 1;
                let refused = is_accepted(call).err();
                wrong.extend(refused.map(|why| format!("{place}: {call}: {why}")));
            }
        }
    }
    assert!(tried[0] > 100 && tried[1] > 20, "{tried:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
