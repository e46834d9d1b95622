//! Reads fio job files, as fio 3.33 reads them (init.c and parse.c of its source).
//!
//! Text in, sections of options out, each with the place that it stood at; includes are taken
//! in, `${VARIABLES}` are expanded. Knows the form of a job file and no option's meaning; what
//! a job may do is not judged here. Invariants: every option lies in a section;
//! no include is left.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use trust::Refused;

/// How deep job files may include each other.
const INCLUDE_DEPTH_MAX: usize = 8;
/// fio's own limit on the length of a line.
const LINE_BYTES_MAX: usize = 4096;

/// Reads an included file, given the path at which it is looked for.
pub type Include<'a> = dyn FnMut(&Path) -> Result<Vec<u8>, Refused> + 'a;

/// The environment variables that a job may read, with their values; one that is not set has none.
pub type Variables = BTreeMap<String, Option<String>>;

/// Reads an included file from the file system.
pub fn read_include(path: &Path) -> Result<Vec<u8>, Refused> {
    trust::file::read(path, trust::file::TEXT_BYTES_MAX)
}

/// Where something stands: for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFileLocation {
    /// The file, or how the text was given.
    pub source: String,
    /// Counted from 1.
    pub line: usize,
    /// In bytes, counted from 1.
    pub column: usize,
}

impl fmt::Display for JobFileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source, self.line, self.column)
    }
}

impl JobFileLocation {
    /// What kurabe adds to a job stands nowhere.
    fn of_kurabe() -> JobFileLocation {
        JobFileLocation { source: "kurabe".to_owned(), line: 1, column: 1 }
    }

    /// The place so many bytes further on.
    fn further(&self, bytes: usize) -> JobFileLocation {
        JobFileLocation { column: self.column + bytes, ..self.clone() }
    }

    pub(super) fn fault(&self, reason: impl Into<String>) -> JobFileError {
        JobFileError { place: self.clone(), reason: reason.into() }
    }
}

/// What is wrong with a job file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct JobFileError {
    pub place: JobFileLocation,
    pub reason: String,
}

impl From<JobFileError> for String {
    fn from(error: JobFileError) -> String {
        error.to_string()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOption {
    /// Its name as it was written.
    pub name: String,
    /// Its value; absent when there is no `=`, which is different from an empty one.
    pub value: Option<String>,
    /// Where its name begins.
    pub place: JobFileLocation,
    /// The column where its value begins.
    pub value_column: usize,
}

impl JobOption {
    /// An option that kurabe gives to a job.
    pub(super) fn added(name: &str, value: impl fmt::Display) -> JobOption {
        let (name, value) = (name.to_owned(), Some(value.to_string()));
        JobOption { name, value, place: JobFileLocation::of_kurabe(), value_column: 1 }
    }

    pub fn value_place(&self) -> JobFileLocation {
        JobFileLocation { column: self.value_column, ..self.place.clone() }
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSection {
    /// The name between the brackets.
    pub name: String,
    /// Where the name begins.
    pub place: JobFileLocation,
    /// Its options in order, those of included files in their place.
    pub options: Vec<JobOption>,
}

impl JobSection {
    /// Whether it sets defaults for the sections after it and is no job itself. fio looks at
    /// the first six letters only.
    pub fn is_global(&self) -> bool {
        self.name.starts_with(GLOBAL)
    }

    /// A section of kurabe's own.
    pub(super) fn added(name: &str, options: Vec<JobOption>) -> JobSection {
        JobSection { name: name.to_owned(), place: JobFileLocation::of_kurabe(), options }
    }
}

/// What a job file takes from outside its text.
struct Sources<'a, 'b> {
    variables: &'a Variables,
    include: &'a mut Include<'b>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFile {
    /// The sections in order.
    pub sections: Vec<JobSection>,
}

impl JobFile {
    /// Reads the text of the job file at `path`, its includes from the file system. No variable is known.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, JobFileError> {
        Self::parse_with(text, path, &Variables::new(), &mut read_include)
    }

    /// Reads the text of the job file at `path`, and its includes by `include`. A `${NAME}` is replaced where
    /// `variables` has the name.
    ///
    /// Errors: the place of what cannot be read, and of a variable that `variables` lacks: a job could otherwise
    /// copy any secret in the environment into a result that others read.
    pub fn parse_with(
        text: &[u8],
        path: &Path,
        variables: &Variables,
        include: &mut Include<'_>,
    ) -> Result<Self, JobFileError> {
        let mut job = JobFile { sections: Vec::new() };
        job.read_text(text, path, 0, &mut Sources { variables, include })?;
        if job.jobs().next().is_none() {
            let place = JobFileLocation { source: path.display().to_string(), line: 1, column: 1 };
            return Err(place.fault("the job file has no job: [global] is its only section"));
        }
        Ok(job)
    }

    /// Reads options on one line, such as `rw=randrw bs=4k` or a command line of fio's,
    /// `--name=a --rw=read --name=b --rw=write`. Words are separated by blanks, which quotes protect.
    ///
    /// As on fio's command line, `name=` begins a job, and what stands before the first name holds for
    /// all jobs; so does what follows `name=global`. Without any name all options are one job, called
    /// `name`. The words `sudo` and `fio` in front are skipped, and so are options about fio's own
    /// output: see [`left_out`].
    ///
    /// Errors: the place of a quote that is not closed, of a word that is no option, of an option without its
    /// value, of a variable that `variables` lacks; no option at all.
    pub fn from_options(
        text: &str,
        name: &str,
        variables: &Variables,
    ) -> Result<Self, JobFileError> {
        let begin = JobFileLocation { source: "the fio options".to_owned(), line: 1, column: 1 };
        let mut options = Vec::new();
        for word in options_of(text).map_err(|(at, reason)| begin.further(at).fault(reason))? {
            let text = expand(&word.text, &begin.further(word.at), variables)?;
            if let Some(at) = text.find(['#', ';']) {
                let reason = "fio takes what follows for a comment; leave this character out";
                return Err(begin.further(word.at + at).fault(reason));
            }
            options.push(option(&text, begin.further(word.at))?);
        }
        options.retain(|option| !is_about_output(&option.name));
        let mut sections: Vec<JobSection> = Vec::new();
        let has_names = options.iter().any(begins_job);
        for option in options {
            if begins_job(&option) {
                let (name, place) = (option.value.unwrap_or_default(), option.place);
                if name.is_empty() {
                    return Err(place.fault("`name` without a value; write it like `name=job`"));
                }
                sections.push(JobSection { name, place, options: Vec::new() });
                continue;
            }
            if sections.is_empty() {
                let name = if has_names { GLOBAL } else { name }.to_owned();
                sections.push(JobSection { name, place: begin.clone(), options: Vec::new() });
            }
            sections.last_mut().expect("one was added").options.push(option);
        }
        let job = Self { sections };
        if job.jobs().next().is_none() {
            return Err(begin.fault("no option is given"));
        }
        Ok(job)
    }

    /// The jobs: the sections that are not global, each with its number among the sections.
    pub fn jobs(&self) -> impl Iterator<Item = (usize, &JobSection)> {
        self.sections.iter().enumerate().filter(|(_, section)| !section.is_global())
    }

    /// The value that an option has for a job: its own, or the last of the global sections before
    /// it. One without a value counts as `1`, as fio takes its switches. `job` counts the sections,
    /// not the jobs.
    pub fn effective(&self, job: usize, name: &str) -> Option<&str> {
        let of_globals = self.sections[..job].iter().rev().filter(|section| section.is_global());
        let mut options = std::iter::once(&self.sections[job])
            .chain(of_globals)
            .flat_map(|section| section.options.iter().rev());
        let option = options.find(|option| option.name == name)?;
        Some(option.value.as_deref().unwrap_or("1"))
    }

    fn read_text(
        &mut self,
        text: &[u8],
        path: &Path,
        depth: usize,
        sources: &mut Sources<'_, '_>,
    ) -> Result<(), JobFileError> {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let begin =
                JobFileLocation { source: path.display().to_string(), line: index + 1, column: 1 };
            if line.len() > LINE_BYTES_MAX {
                return Err(begin.fault(format!("the line is longer than {LINE_BYTES_MAX} bytes")));
            }
            let line = std::str::from_utf8(line).map_err(|error| {
                begin.further(error.valid_up_to()).fault("this is no text (UTF-8) file")
            })?;
            if let Some(at) = line.find('\0') {
                return Err(begin.further(at).fault("this is no text file"));
            }
            // fio cuts at the first `;` or `#`, wherever it stands.
            let bare = line.split([';', '#']).next().unwrap_or(line);
            let content = bare.trim();
            if content.is_empty() {
                continue;
            }
            let place = begin.further(bare.len() - bare.trim_start().len());
            if content.starts_with('[') {
                self.begin_section(content, place, depth)?;
            } else if let Some(rest) = content.strip_prefix("include") {
                // fio skips one character after the word, whichever it is.
                let name = rest.chars().next().map_or("", |skipped| &rest[skipped.len_utf8()..]);
                self.include(name.trim_start(), path, (&place, depth), sources)?;
            } else {
                let option = option(&expand(content, &place, sources.variables)?, place)?;
                let Some(section) = self.sections.last_mut() else {
                    let reason = format!(
                        "the option `{}` is above the first section; put [global] above it",
                        option.name
                    );
                    return Err(option.place.fault(reason));
                };
                section.options.push(option);
            }
        }
        Ok(())
    }

    fn begin_section(
        &mut self,
        content: &str,
        place: JobFileLocation,
        depth: usize,
    ) -> Result<(), JobFileError> {
        if depth > 0 {
            return Err(place.fault("an included file has options alone, and no section of its own: fio reads it as part of the section that includes it"));
        }
        let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
            return Err(place.further(content.len()).fault("`]` is missing here"));
        };
        if name.trim().is_empty() {
            return Err(place.fault("the section has no name"));
        }
        // fio reads the name with sscanf("[%255[^\n]]").
        if name.len() > 250 {
            return Err(place.fault("the section's name is too long"));
        }
        let (name, place) = (name.to_owned(), place.further(1));
        self.sections.push(JobSection { name, place, options: Vec::new() });
        Ok(())
    }

    fn include(
        &mut self,
        name: &str,
        includer: &Path,
        (place, depth): (&JobFileLocation, usize),
        sources: &mut Sources<'_, '_>,
    ) -> Result<(), JobFileError> {
        if self.sections.is_empty() {
            return Err(place.fault("`include` is above the first section, and fio takes it inside one only; put [global] above it"));
        }
        if name.is_empty() || name == "-" {
            return Err(place.fault("the include names no file"));
        }
        if depth == INCLUDE_DEPTH_MAX {
            return Err(place.fault(format!("includes are nested deeper than {INCLUDE_DEPTH_MAX}")));
        }
        // fio tries the working directory first; kurabe's says nothing about the job, so the
        // including file's directory comes first here.
        let mut path = includer.parent().unwrap_or(Path::new("")).join(name);
        let text = (sources.include)(&path).or_else(|refused| {
            let elsewhere =
                if refused.is_missing() { (sources.include)(Path::new(name)).ok() } else { None };
            path = name.into();
            elsewhere.ok_or_else(|| place.fault(format!("cannot include {name}: {refused}")))
        })?;
        self.read_text(&text, &path, depth + 1, sources)
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

fn option(text: &str, place: JobFileLocation) -> Result<JobOption, JobFileError> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let value_start = text.len() - value.map_or(0, |value| value.trim_start().len());
    let name = name.trim();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() {
        return Err(place.fault("`=` without an option's name"));
    }
    if let Some((at, found)) = name.char_indices().find(|(_, c)| !is_name(*c)) {
        let found = found.escape_default();
        return Err(place.further(at).fault(format!("`{found}` cannot be in an option's name")));
    }
    let value_column = place.column + value_start;
    let value = value.map(|value| value.trim().to_owned());
    let option = JobOption { name: name.to_owned(), value, place, value_column };
    match left_to_fio(&option) {
        Some(left) => Err(option.value_place().fault(format!(
            "`{option}` has a `$` once its variables are expanded, and fio would expand `{left}` \
             again after kurabe has checked the job; write the value itself"
        ))),
        None => Ok(option),
    }
}

/// What fio replaces in the names of files, by this option alone and after it has read the job.
const FILE_NAME_FORMAT: &str = "filename_format";
const FILE_NAME_WORDS: [&str; 4] = ["$jobname", "$jobnum", "$filenum", "$clientuid"];

/// The rest of a value from the first `$` that fio might expand itself: `${NAME}`, or one of its
/// words such as `$ncpus`, whose arithmetic it gives to a shell.
fn left_to_fio(option: &JobOption) -> Option<&str> {
    let value = option.value.as_deref()?;
    let is_harmless = |rest: &str| {
        option.name == FILE_NAME_FORMAT && FILE_NAME_WORDS.iter().any(|word| rest.starts_with(word))
    };
    let mut marks = value.match_indices('$').map(|(at, _)| &value[at..]);
    marks.find(|rest| !is_harmless(rest))
}

/// Puts the values of variables in the places of `${NAME}`, as fio does: nothing where one is not set; a
/// `${` without `}` stays.
///
/// Errors: a name that `variables` lacks. `place` is where the text begins.
fn expand(
    text: &str,
    place: &JobFileLocation,
    variables: &Variables,
) -> Result<String, JobFileError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let after = &rest[start + 2..];
        let Some(end) = after.find('}') else {
            break;
        };
        let name = &after[..end];
        let Some(value) = variables.get(name) else {
            let at = text.len() - rest.len() + start;
            return Err(place.further(at).fault(format!(
                "`${{{name}}}` is an environment variable, and its value would be kept in the result; \
                 allow it with --fio-variables {name}"
            )));
        };
        expanded.push_str(&rest[..start]);
        // A line end in a variable would begin a new line of the job file.
        let value = value.as_deref().unwrap_or_default().chars();
        expanded.extend(value.map(|c| if c.is_control() { ' ' } else { c }));
        rest = &after[end + 1..];
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Name of the sections whose options hold for the jobs after them.
const GLOBAL: &str = "global";

fn begins_job(option: &JobOption) -> bool {
    option.name == "name"
}

/// Options of fio's command line that say what it prints, and where: kurabe reads fio's output itself.
const ABOUT_OUTPUT: [&str; 13] = [
    "output",
    "output-format",
    "minimal",
    "append-terse",
    "terse-version",
    "eta",
    "eta-newline",
    "eta-interval",
    "status-interval",
    "bandwidth-log",
    "warnings-fatal",
    "max-jobs",
    "debug",
];

fn is_about_output(name: &str) -> bool {
    ABOUT_OUTPUT.contains(&name)
}

/// The options of one line that are left out, since they say what fio prints.
pub fn left_out(text: &str) -> Vec<String> {
    let words = options_of(text).unwrap_or_default().into_iter().map(|word| word.text);
    words.filter(|word| is_about_output(word.split('=').next().unwrap_or_default())).collect()
}

/// An option as it was written, without its dashes, and its place in bytes.
struct Word {
    text: String,
    at: usize,
}

/// The options of a line. A word with a dash and no `=` takes the next word as its value, as on fio's
/// command line (`--bs 4k`), unless that has a dash or a `=` of its own.
fn options_of(text: &str) -> Result<Vec<Word>, (usize, &'static str)> {
    // A backslash at the end of a line joins it with the next.
    let words = words(text)?.into_iter().filter(|(word, _)| word != "\\");
    let mut words = words.peekable();
    let is_program = |word: &str| ["sudo", "fio"].contains(&word) || word.ends_with("/fio");
    while words.next_if(|(word, _)| is_program(word)).is_some() {}
    let mut options = Vec::new();
    while let Some((word, at)) = words.next() {
        let bare = word.trim_start_matches('-');
        let has_dash = bare.len() < word.len();
        let at = at + (word.len() - bare.len());
        let mut text = bare.to_owned();
        if has_dash && !word.contains('=') {
            let is_value =
                |(next, _): &(String, usize)| !next.starts_with('-') && !next.contains('=');
            if let Some((value, _)) = words.next_if(is_value) {
                text = format!("{text}={value}");
            }
        }
        options.push(Word { text, at });
    }
    Ok(options)
}

/// The words of a line, each with its place in bytes.
fn words(text: &str) -> Result<Vec<(String, usize)>, (usize, &'static str)> {
    let mut words = Vec::new();
    let mut word: Option<(String, usize)> = None;
    let mut quote: Option<(char, usize)> = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some((open, _)), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some((c, at));
                word.get_or_insert_with(|| (String::new(), at));
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) if c.is_control() => return Err((at, "a control character")),
            (_, c) => word.get_or_insert_with(|| (String::new(), at)).0.push(c),
        }
    }
    if let Some((_, at)) = quote {
        return Err((at, "this quote is not closed"));
    }
    words.extend(word.take());
    Ok(words)
}

#[cfg(test)]
#[path = "jobfile_tests.rs"]
mod tests;
