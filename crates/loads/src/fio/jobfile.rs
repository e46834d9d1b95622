//! Reads fio job files, as fio 3.33 reads them (init.c and parse.c of its source).
//!
//! Text in, sections of options out, each with the place that it stood at; includes are taken
//! in, `${VARIABLES}` are expanded. Knows the form of a job file and no option's meaning; what
//! a job may do is not judged here. Invariants: every option lies in a section;
//! no include is left.

use std::fmt;
use std::path::{Path, PathBuf};

/// How deep job files may include each other.
const INCLUDE_DEPTH_MAX: usize = 8;
/// fio's own limit on the length of a line.
const LINE_BYTES_MAX: usize = 4096;

/// Where something stands: for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, or how the text was given.
    pub source: String,
    /// Counted from 1.
    pub line: usize,
    /// In bytes, counted from 1.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source, self.line, self.column)
    }
}

/// What is wrong with a job file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct JobFileError {
    /// Where.
    pub place: Place,
    /// What.
    pub reason: String,
}

impl From<JobFileError> for String {
    fn from(error: JobFileError) -> String {
        error.to_string()
    }
}

/// An option of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOption {
    /// Its name as it was written.
    pub name: String,
    /// Its value; absent when there is no `=`, which is different from an empty one.
    pub value: Option<String>,
    /// Where its name begins.
    pub place: Place,
    /// The column where its value begins.
    pub value_column: usize,
}

impl JobOption {
    /// The place of the value.
    #[must_use]
    pub fn value_place(&self) -> Place {
        Place { column: self.value_column, ..self.place.clone() }
    }
}

impl fmt::Display for JobOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

/// A section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The name between the brackets.
    pub name: String,
    /// Where the name begins.
    pub place: Place,
    /// Its options in order, those of included files in their place.
    pub options: Vec<JobOption>,
}

impl Section {
    /// Whether it sets defaults for the sections after it and is no job itself. fio looks at
    /// the first six letters only.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }

    /// The last value that is given to an option in this section.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let option = self.options.iter().rev().find(|option| option.name == name)?;
        option.value.as_deref()
    }
}

/// A job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFile {
    /// The sections in order.
    pub sections: Vec<Section>,
}

/// What a job file needs of its surroundings; a test brings its own.
pub trait Surroundings {
    /// The value of an environment variable; an unset one expands to nothing.
    fn variable(&self, name: &str) -> Option<String>;
    /// The text of an included file, or why it cannot be had.
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>>;
}

/// The process's environment and the file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Surroundings for System {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        Ok(trust::file::read(path, trust::file::TEXT_BYTES_MAX)?)
    }
}

impl JobFile {
    /// Reads the text of a job file that stands at `path`.
    ///
    /// # Errors
    /// The first fault with its place.
    pub fn parse(
        text: &[u8],
        path: &Path,
        surroundings: &dyn Surroundings,
    ) -> Result<Self, JobFileError> {
        let mut parser = Parser { surroundings, sections: Vec::new() };
        parser.text(text, path, 0)?;
        let has_job = parser.sections.iter().any(|section| !section.is_global());
        if !has_job {
            return Err(JobFileError {
                place: Place { source: path.display().to_string(), line: 1, column: 1 },
                reason: "the job file has no job: no section beside [global]".to_owned(),
            });
        }
        Ok(Self { sections: parser.sections })
    }

    /// Reads options on one line, such as `rw=randrw bs=4k`, as one job of the given name.
    ///
    /// Options are separated by blanks, which quotes protect, and may begin with `--`.
    ///
    /// # Errors
    /// The first fault with its place.
    pub fn from_options(
        text: &str,
        name: &str,
        surroundings: &dyn Surroundings,
    ) -> Result<Self, JobFileError> {
        let source = "the fio options";
        let place = |column| Place { source: source.to_owned(), line: 1, column };
        let mut options = Vec::new();
        for (word, column) in words(text).map_err(|(column, reason)| JobFileError {
            place: place(column),
            reason: reason.to_owned(),
        })? {
            let bare = word.strip_prefix("--").unwrap_or(&word);
            let column = column + (word.len() - bare.len());
            let expanded = expand(bare, surroundings);
            options.push(option(&expanded, place(column))?);
        }
        if options.is_empty() {
            return Err(JobFileError { place: place(1), reason: "no option is given".to_owned() });
        }
        let section = Section { name: name.to_owned(), place: place(1), options };
        Ok(Self { sections: vec![section] })
    }

    /// The jobs: the sections that are not global.
    pub fn jobs(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| !section.is_global())
    }

    /// The value that an option has for a job: its own, or the last of the global sections
    /// before it. `job` counts the sections, not the jobs.
    #[must_use]
    pub fn effective(&self, job: usize, name: &str) -> Option<&str> {
        let of_globals = self.sections[..job].iter().rev().filter(|section| section.is_global());
        self.sections[job]
            .value(name)
            .or_else(|| of_globals.into_iter().find_map(|section| section.value(name)))
    }

    /// The same, where an option without a value counts as `1`, as fio takes its switches.
    #[must_use]
    pub fn effective_or_bare(&self, job: usize, name: &str) -> Option<&str> {
        let of_globals = self.sections[..job].iter().rev().filter(|section| section.is_global());
        let mut sections = std::iter::once(&self.sections[job]).chain(of_globals);
        let option = sections
            .find_map(|section| section.options.iter().rev().find(|option| option.name == name))?;
        Some(option.value.as_deref().unwrap_or("1"))
    }
}

impl fmt::Display for JobFile {
    /// The job file that says the same, without includes and variables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for section in &self.sections {
            writeln!(f, "[{}]", section.name)?;
            for option in &section.options {
                writeln!(f, "{option}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

struct Parser<'a> {
    surroundings: &'a dyn Surroundings,
    sections: Vec<Section>,
}

impl Parser<'_> {
    fn text(&mut self, text: &[u8], path: &Path, depth: usize) -> Result<(), JobFileError> {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let place =
                |column| Place { source: path.display().to_string(), line: index + 1, column };
            let fault = |column, reason: String| JobFileError { place: place(column), reason };
            if line.len() > LINE_BYTES_MAX {
                return Err(fault(1, format!("the line is longer than {LINE_BYTES_MAX} bytes")));
            }
            let line = std::str::from_utf8(line).map_err(|error| {
                fault(error.valid_up_to() + 1, "this is no text (UTF-8) file".to_owned())
            })?;
            if let Some(column) = line.find('\0') {
                return Err(fault(column + 1, "this is no text file".to_owned()));
            }
            let bare = without_comment(line);
            let content = bare.trim();
            if content.is_empty() {
                continue;
            }
            let column = bare.len() - bare.trim_start().len() + 1;
            if content.starts_with('[') {
                self.section(content, place(column), depth)?;
            } else if let Some(rest) = content.strip_prefix("include") {
                // fio skips one character after the word, whichever it is.
                let name = rest.chars().next().map_or("", |skipped| &rest[skipped.len_utf8()..]);
                self.include(name.trim_start(), path, place(column), depth)?;
            } else {
                let expanded = expand(content, self.surroundings);
                let option = option(&expanded, place(column))?;
                match self.sections.last_mut() {
                    Some(section) => section.options.push(option),
                    None => {
                        return Err(fault(
                            column,
                            format!("the option `{}` stands before any [section]", option.name),
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn section(&mut self, content: &str, place: Place, depth: usize) -> Result<(), JobFileError> {
        if depth > 0 {
            let reason = "an included file cannot begin a section".to_owned();
            return Err(JobFileError { place, reason });
        }
        let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
            let place = Place { column: place.column + content.len(), ..place };
            return Err(JobFileError { place, reason: "`]` is missing here".to_owned() });
        };
        if name.trim().is_empty() {
            return Err(JobFileError { place, reason: "the section has no name".to_owned() });
        }
        // fio reads the name with sscanf("[%255[^\n]]").
        if name.len() > 250 {
            return Err(JobFileError {
                place,
                reason: "the section's name is too long".to_owned(),
            });
        }
        let place = Place { column: place.column + 1, ..place };
        self.sections.push(Section { name: name.to_owned(), place, options: Vec::new() });
        Ok(())
    }

    fn include(
        &mut self,
        name: &str,
        includer: &Path,
        place: Place,
        depth: usize,
    ) -> Result<(), JobFileError> {
        let fault = |reason: String| JobFileError { place: place.clone(), reason };
        if self.sections.is_empty() {
            return Err(fault("an include stands before any [section]".to_owned()));
        }
        if name.is_empty() || name == "-" {
            return Err(fault("the include names no file".to_owned()));
        }
        if depth == INCLUDE_DEPTH_MAX {
            return Err(fault(format!("includes are nested deeper than {INCLUDE_DEPTH_MAX}")));
        }
        // fio tries the working directory first; kurabe's says nothing about the job, so the
        // including file's directory comes first here.
        let beside: PathBuf = includer.parent().unwrap_or(Path::new("")).join(name);
        let (path, text) = match self.surroundings.read(&beside) {
            Ok(text) => (beside, text),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(fault(format!("cannot include {name}: {error}")));
            }
            Err(error) => match self.surroundings.read(Path::new(name)) {
                Ok(text) => (PathBuf::from(name), text),
                Err(_) => return Err(fault(format!("cannot include {name}: {error}"))),
            },
        };
        self.text(&text, &path, depth + 1)
    }
}

/// A line up to its comment: fio cuts at the first `;` or `#`, wherever it stands.
fn without_comment(line: &str) -> &str {
    line.split([';', '#']).next().unwrap_or(line)
}

fn option(text: &str, place: Place) -> Result<JobOption, JobFileError> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let value_start = text.len() - value.map_or(0, |value| value.trim_start().len());
    let name = name.trim();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() {
        return Err(JobFileError { place, reason: "`=` without an option's name".to_owned() });
    }
    if let Some((at, found)) = name.char_indices().find(|(_, c)| !is_name(*c)) {
        let place = Place { column: place.column + at, ..place };
        return Err(JobFileError {
            place,
            reason: format!("`{}` cannot be in an option's name", found.escape_default()),
        });
    }
    let value_column = place.column + value_start;
    Ok(JobOption {
        name: name.to_owned(),
        value: value.map(|value| value.trim().to_owned()),
        place,
        value_column,
    })
}

/// Puts the values of environment variables in the places of `${NAME}`. One that is not set
/// vanishes; a `${` without `}` stays.
fn expand(text: &str, surroundings: &dyn Surroundings) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let after = &rest[start + 2..];
        let Some(end) = after.find('}') else {
            break;
        };
        expanded.push_str(&rest[..start]);
        let value = surroundings.variable(&after[..end]).unwrap_or_default();
        // A line end in a variable would begin a new line of the job file.
        expanded.extend(value.chars().map(|c| if c.is_control() { ' ' } else { c }));
        rest = &after[end + 1..];
    }
    expanded.push_str(rest);
    expanded
}

/// The words of a line with their columns, counted from 1.
fn words(text: &str) -> Result<Vec<(String, usize)>, (usize, &'static str)> {
    let mut words = Vec::new();
    let mut word: Option<(String, usize)> = None;
    let mut quote: Option<(char, usize)> = None;
    for (at, c) in text.char_indices() {
        let column = at + 1;
        match (quote, c) {
            (Some((open, _)), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some((c, column));
                word.get_or_insert_with(|| (String::new(), column));
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) if c.is_control() => return Err((column, "a control character")),
            (_, c) => word.get_or_insert_with(|| (String::new(), column)).0.push(c),
        }
    }
    if let Some((_, column)) = quote {
        return Err((column, "this quote is not closed"));
    }
    words.extend(word.take());
    Ok(words)
}

#[cfg(test)]
#[path = "jobfile_tests.rs"]
mod tests;
