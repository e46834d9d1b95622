//! Study files: TOML in, TOML out, with errors that point at the line.
//!
//! The file's keys are the fields of [`StudyText`]; what is wrong with a value is found by the
//! same validation that flags go through, and brought back to its place in the file here.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};
use vocabulary::suggestion::unknown;

use crate::study::{Catalogue, Study, StudyError, StudyText};

/// What is wrong with a study file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StudyFileError {
    pub path: PathBuf,
    /// Line, from 1; absent when the place is the whole file.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// The text of that line.
    pub source: String,
    /// What is wrong, and the next step.
    pub problem: String,
}

impl fmt::Display for StudyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (Some(line), Some(column)) => {
                let margin = line.to_string().len();
                writeln!(f, "{}:{line}:{column}: {}", self.path.display(), self.problem)?;
                writeln!(f, "{:margin$} |", "")?;
                writeln!(f, "{line} | {}", self.source)?;
                write!(f, "{:margin$} | {}^", "", " ".repeat(column - 1))
            }
            _ => write!(f, "{}: {}", self.path.display(), self.problem),
        }
    }
}

impl std::error::Error for StudyFileError {}

/// Reads the text of a study file. `path` is only named in errors.
pub fn parse(path: &Path, text: &str) -> Result<StudyText, StudyFileError> {
    let at = |offset: Option<usize>, problem: String| place(path, text, offset, problem);
    let refused =
        |error: toml::de::Error| at(error.span().map(|span| span.start), in_words(error.message()));
    let mut table = DeTable::parse(text).map_err(refused)?;
    check_study(table.get_ref()).map_err(|(offset, problem)| at(Some(offset), problem))?;
    keep_digits(table.get_mut());
    StudyText::deserialize(Deserializer::from(table)).map_err(refused)
}

/// Makes texts of the numbers in published cells, as they are written: the value of 1.30 has lost
/// a digit that was published.
fn keep_digits(study: &mut DeTable<'_>) {
    for table in entries(study, "published") {
        let DeValue::Table(table) = table else { continue };
        for row in entries(table, "rows") {
            let DeValue::Table(row) = row else { continue };
            for cell in entries(row, "cells") {
                let text = match cell {
                    DeValue::Integer(number) => number.to_string(),
                    DeValue::Float(number) => number.to_string(),
                    _ => continue,
                };
                *cell = DeValue::String(text.into());
            }
        }
    }
}

/// The entries of the list at a key; none where there is no list.
fn entries<'a, 'i>(
    table: &'a mut DeTable<'i>,
    key: &str,
) -> impl Iterator<Item = &'a mut DeValue<'i>> {
    let list = match table.get_mut(key).map(Spanned::get_mut) {
        Some(DeValue::Array(list)) => Some(list),
        _ => None,
    };
    list.into_iter().flat_map(|list| list.iter_mut()).map(Spanned::get_mut)
}

/// Brings an error of the validation back to its place in the file.
pub fn locate(path: &Path, text: &str, error: &StudyError) -> StudyFileError {
    let offset = DeTable::parse(text).ok().and_then(|table| find(table.get_ref(), &error.field));
    let problem = format!("{}: {}", error.field, error.problem);
    place(path, text, offset, problem)
}

/// Reads and validates a study file.
pub fn load<'a>(
    path: &Path,
    text: &str,
    known: impl Into<Catalogue<'a>>,
) -> Result<(StudyText, Study), StudyFileError> {
    let parsed = parse(path, text)?;
    let study = parsed.resolve(known).map_err(|error| locate(path, text, &error))?;
    Ok((parsed, study))
}

/// Writes the study file that equals `study`.
pub fn print(study: &StudyText) -> String {
    toml::to_string_pretty(study).expect("every field of a study has a TOML form")
}

fn place(path: &Path, text: &str, offset: Option<usize>, problem: String) -> StudyFileError {
    let Some(offset) = offset.map(|offset| offset.min(text.len())) else {
        return StudyFileError {
            path: path.into(),
            line: None,
            column: None,
            source: String::new(),
            problem,
        };
    };
    let before = &text[..text.floor_char_boundary(offset)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    StudyFileError {
        path: path.into(),
        line: Some(before.matches('\n').count() + 1),
        column: Some(before[line_start..].chars().count() + 1),
        source: text[line_start..].lines().next().unwrap_or_default().to_string(),
        problem,
    }
}

/// What only the command line may say: a file may have been written by somebody else, who would
/// decide what is destroyed here and which files are written.
const FLAGS: [(&str, &str); 5] = [
    ("destroy", "--destroy NAME"),
    ("out", "--out DIR"),
    ("export-json", "--export-json FILE"),
    ("export-csv", "--export-csv FILE"),
    ("export-markdown", "--export-markdown FILE"),
];

/// Refuses what a file may not say, in any of its tables.
fn check_study(study: &DeTable<'_>) -> Result<(), (usize, String)> {
    check_keys(study)?;
    match study.get("quick").map(|quick| (quick.span().start, quick.get_ref())) {
        Some((_, DeValue::Table(quick))) => check_keys(quick)?,
        Some((at, _)) => return Err((at, "quick is a table".into())),
        None => {}
    }
    match study.get("workload").map(|list| (list.span().start, list.get_ref())) {
        Some((_, DeValue::Array(workloads))) => {
            workloads.iter().try_for_each(|workload| match workload.get_ref() {
                DeValue::Table(table) => check_keys(table),
                _ => Err((workload.span().start, "each of workload is a table".into())),
            })
        }
        Some((at, _)) => Err((at, "workload is a list of tables; write [[workload]]".into())),
        None => Ok(()),
    }
}

fn check_keys(table: &DeTable<'_>) -> Result<(), (usize, String)> {
    let flag_of = |name: &str| FLAGS.iter().find(|(key, _)| *key == name);
    match table.keys().find_map(|key| Some((key, flag_of(key.get_ref())?))) {
        None => Ok(()),
        Some((key, (name, flag))) => Err((
            key.span().start,
            format!(
                "'{name}' is said by whoever starts the study and not by its file; type {flag} on the command line"
            ),
        )),
    }
}

/// An error of the reader in our words: of an unknown key it says which there are, each in backquotes.
fn in_words(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    match names.next().filter(|_| message.starts_with("unknown field")) {
        Some(name) => unknown_key(name, &names.collect::<Vec<_>>()),
        None => message.to_string(),
    }
}

/// The message for a key that is none of those there are.
pub(crate) fn unknown_key(name: &str, known: &[&str]) -> String {
    unknown("key is called", name, known)
}

/// Offset of the value at a path such as `workload[0].command`; of its nearest parent when the
/// value itself is not written.
fn find(table: &DeTable<'_>, path: &str) -> Option<usize> {
    let mut offset = None;
    let mut table = Some(table);
    for step in path.split('.') {
        let (name, index) = match step.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (step, None),
        };
        let Some(value) = table.and_then(|table| table.get(name)) else { break };
        let mut value: &Spanned<DeValue<'_>> = value;
        if let (Some(index), DeValue::Array(array)) = (index, value.get_ref()) {
            value = array.get(index)?;
        }
        offset = Some(value.span().start);
        table = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => None,
        };
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Known;
    use crate::study::{CommandText, WorkloadText};

    const KNOWN: &[Known] = &Known::named(["ext4", "xfs", "btrfs", "dir"]);

    fn message(text: &str) -> String {
        load(Path::new("study.toml"), text, KNOWN).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_study_reads() {
        let text = r#"
            name = "unpack"
            why = "to choose a file system for builds"
            contenders = ["ext4", "nj: ext4 -O ^has_journal @ noatime"]
            device = "loop:2G"
            budget = "10m"
            [parameters]
            level = ["1", "9"]
            [[workload]]
            why = "many small files"
            command = "tar xf /tmp/x.tar"
            [[workload]]
            command = ["gzip", "-{level}", "file"]
            setup = "cp /tmp/x.tar file"
        "#;
        let (_, study) = load(Path::new("study.toml"), text, KNOWN).unwrap();
        assert_eq!(study.contenders.len(), 2);
        assert_eq!(study.workloads.len(), 3);
        assert_eq!(study.budget_ns, Some(600_000_000_000));
    }

    #[test]
    fn errors_point_at_the_line() {
        let unknown_key = message("contenders = ['ext4']\nbugdet = '10m'\n");
        assert!(
            unknown_key
                .starts_with("study.toml:2:1: no key is called 'bugdet'; did you mean 'budget'?"),
            "{unknown_key}"
        );
        let syntax = message("contenders = ['ext4'\n[[workload]]\n");
        assert!(
            syntax.starts_with("study.toml:2:") || syntax.starts_with("study.toml:1:"),
            "{syntax}"
        );
        let value = message("contenders = ['ext4',\n  'xsf']\n[[workload]]\ncommand = 'true'\n");
        assert!(value.starts_with("study.toml:2:3: contenders[1]:"), "{value}");
        assert!(value.contains("did you mean 'xfs'"), "{value}");
        assert!(value.contains("2 |   'xsf']\n  |   ^"), "{value}");
        let wrong_type =
            message("contenders = ['ext4']\nruns = 'five'\n[[workload]]\ncommand='true'\n");
        assert!(wrong_type.starts_with("study.toml:2:8:"), "{wrong_type}");
        let missing = message("contenders = ['ext4']\n\n[[workload]]\nname = 'x'\n");
        assert!(missing.starts_with("study.toml:3:"), "{missing}");
        let nested = message("contenders = ['ext4']\n[[workload]]\ncomand = 'x'\n");
        assert!(nested.contains("study.toml:3:1") && nested.contains("'command'"), "{nested}");
    }

    #[test]
    fn what_only_the_command_line_may_say_is_no_key() {
        for (key, flag) in FLAGS {
            let text =
                format!("contenders = ['ext4']\n{key} = 'x'\n[[workload]]\ncommand='true'\n");
            let error = message(&text);
            assert!(error.starts_with(&format!("study.toml:2:1: '{key}'")), "{error}");
            assert!(error.contains(&format!("type {flag} on the command line")), "{error}");
        }
        let file = "contenders = ['ext4']\noutput = '/etc/x'\n[[workload]]\ncommand='true'\n";
        let error = message(file);
        assert!(error.starts_with("study.toml:2:10: output: '/etc/x'"), "{error}");
        // A real device may stand in a file; what is on it is not granted by that.
        let text = "contenders = ['ext4']\ndevice = '/dev/sdb'\n[[workload]]\ncommand='true'\n";
        let (_, study) = load(Path::new("study.toml"), text, KNOWN).unwrap();
        assert!(!serde_json::to_string(&study).unwrap().contains("destroy"));
    }

    #[test]
    fn what_is_printed_reads_back() {
        let study = StudyText {
            name: Some("x".into()),
            contenders: vec!["ext4".into(), "b: ext4 @ sync".into()],
            seed: Some(7),
            gate: vec!["b <= 1.1".into()],
            parameters: [("n".to_string(), vec!["1".to_string()])].into(),
            workloads: vec![WorkloadText {
                command: Some(CommandText::Words(vec!["echo".into(), "{n} 'quoted'".into()])),
                setup: Some(CommandText::Line("touch \"a b\"".into())),
                ..Default::default()
            }],
            ..Default::default()
        };
        let printed = print(&study);
        assert_eq!(parse(Path::new("p"), &printed).unwrap(), study, "{printed}");
    }

    #[test]
    fn what_is_said_of_a_publication_is_kept_as_it_is_written() {
        let text = "contenders = ['ext4']\n[[workload]]\ncommand = 'true'\n[[published]]\n\
                    title = 't'\nrows = [{ cells = [1.30, -20.0, 100000, '-'] }]\n\
                    [[claim]]\ntext = 'x'\n";
        let (parsed, study) = load(Path::new("study.toml"), text, KNOWN).unwrap();
        // The value of 1.30 has lost a digit that was published.
        let cells = serde_json::json!(["1.30", "-20.0", "100000", "-"]);
        assert_eq!(study.published[0]["rows"][0]["cells"], cells);
        assert_eq!(study.claims, [serde_json::json!({ "text": "x" })]);
        let printed = print(&parsed);
        let (again, study) = load(Path::new("p"), &printed, KNOWN).unwrap();
        assert_eq!(again, parsed);
        assert_eq!(study.published[0]["rows"][0]["cells"], cells, "{printed}");
        let single = message(&text.replace("[[claim]]", "[claim]"));
        assert!(single.starts_with("study.toml:7:1: invalid type: map"), "{single}");
        let error =
            StudyError { field: "published[0].rows[0].cells[1]".into(), problem: "x".into() };
        let located = locate(Path::new("study.toml"), text, &error).to_string();
        assert!(located.starts_with("study.toml:6:26: published[0]"), "{located}");
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        for text in
            ["", "=", "[[workload", "\u{feff}x=1", "workload = 3", "workload = [3]", "ä = 'ö'"]
        {
            let _ = load(Path::new("p"), text, KNOWN).map_err(|error| error.to_string());
        }
    }
}
