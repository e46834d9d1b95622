//! Asks the installed fio whether it understands a job, before anything is touched.
//!
//! fio reads the job from its standard input, says what it thinks of it and ends. It can load an engine that the
//! job names meanwhile, so it does that in an enclosure without a contender. What it does not find by that, and a run does: an engine
//! that this fio cannot load, values that do not go together (a block size that direct I/O
//! refuses). What it never finds, because it reads a number as far as it is one (`4q` is 4), is
//! told here for the sizes.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::process::Stdio;

use rustix::fs::{MemfdFlags, memfd_create};

use super::jobfile::{JobFile, JobFileError, JobOption};
use super::size::parse_bytes;
use crate::enclosure;
use crate::tool::{Finished, ToolError, WorkloadTool, ask};

/// Refuses a job that the installed fio does not understand, at the option that it is about. The
/// job must be [`placed`](super::place::placed). Where [`unasked`] has a reason, fio is not asked.
///
/// Errors: the place with fio's own words; fio is missing or cannot be started.
pub fn understood(job: &JobFile) -> Result<(), String> {
    match ask_about(job) {
        Ok(_) | Err(ToolError::NotKeptIn { .. }) => {}
        Err(ToolError::Failed(said)) => return Err(complaint(job, &said).into()),
        Err(error) => return Err(error.into()),
    }
    for engine in options(job).filter(|option| option.name == "ioengine") {
        check_engine(engine)?;
    }
    if let Some(option) = options(job).find(|option| ["uid", "gid"].contains(&option.name.as_str()))
    {
        let fault = format!(
            "`{option}`: a job stays the user that it is; leave it out, or give --user NAME"
        );
        return Err(option.place.fault(fault).into());
    }
    match options(job).find(|option| is_misread(option)) {
        Some(option) => {
            let fault = format!(
                "`{option}` is no size: fio would take the digits alone; write it like 4k, 16m or 1g"
            );
            Err(option.value_place().fault(fault).into())
        }
        None => Ok(()),
    }
}

/// Refuses an engine that the installed fio has not: it looks for one only when the job runs.
fn check_engine(option: &JobOption) -> Result<(), String> {
    let name = option.value.as_deref().unwrap_or_default();
    let Err(ToolError::Failed(said)) =
        ask(WorkloadTool::Fio, &[&format!("--enghelp={name}")], Stdio::null())
    else {
        return Ok(());
    };
    // Of one without options it says another thing, with the same exit code.
    if ![&said.stdout, &said.stderr].into_iter().any(|said| said.contains(" not found")) {
        Ok(())
    } else {
        let fault = format!(
            "`{option}`: this fio has no such engine; `fio --enghelp` lists those that it has"
        );
        Err(option.value_place().fault(fault).into())
    }
}

/// Why fio is not asked about jobs: it reads them only where the kernel keeps it in.
pub fn unasked() -> Option<&'static str> {
    if enclosure::is_inside() { None } else { enclosure::refusal() }
}

/// fio reads the job and runs code that the job names, so it is in an enclosure that has no contender.
fn ask_about(job: &JobFile) -> Result<Finished, ToolError> {
    let text = job_on_memory(job).map_err(|source| ToolError::Spawn {
        program: WorkloadTool::Fio.program().to_owned(),
        source,
    })?;
    ask(WorkloadTool::Fio, &["--parse-only", "-"], text.into())
}

fn job_on_memory(job: &JobFile) -> io::Result<File> {
    let mut text = File::from(memfd_create("job", MemfdFlags::CLOEXEC)?);
    text.write_all(job.to_string().as_bytes())?;
    text.rewind()?;
    Ok(text)
}

fn options(job: &JobFile) -> impl Iterator<Item = &JobOption> {
    job.sections.iter().flat_map(|section| &section.options)
}

/// What fio said, at the option that it said it of.
fn complaint(job: &JobFile, output: &Finished) -> JobFileError {
    let said = &output.stderr;
    let mut culprit = None;
    let mut is_unknown = false;
    let mut words = Vec::new();
    for line in said.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(option) = line.strip_prefix("fio: failed parsing ") {
            culprit = culprit.or(Some(option));
        } else if let Some(option) = line.strip_prefix("Bad option <") {
            culprit = culprit.or(Some(option.trim_end_matches('>')));
            is_unknown = true;
            words.push("it has no option of this name".to_owned());
        } else if !(line.starts_with("fio: job ") && line.ends_with(" dropped")) {
            words.push(line.to_owned());
        }
    }
    let values = valid_values(&output.stdout);
    if !values.is_empty() {
        words.push(format!("its values are {}", values.join(", ")));
    }
    let option =
        culprit.and_then(|culprit| options(job).find(|option| option.to_string() == culprit));
    if words.is_empty() {
        let name = option.map_or("all", |option| option.name.as_str());
        words.extend(option.and_then(|_| wanted(name, &help(name))));
        words.push(format!("see `fio --cmdhelp={name}`"));
    }
    let (place, what) = match option {
        Some(option) if is_unknown => (option.place.clone(), format!("`{option}`")),
        Some(option) => (option.value_place(), format!("`{option}`")),
        None => (job.sections[0].place.clone(), culprit.unwrap_or("the job").to_owned()),
    };
    JobFileError { place, reason: format!("fio does not take {what}: {}", words.join("; ")) }
}

/// What fio says of an option; nothing where it cannot be asked.
fn help(name: &str) -> String {
    let asked = ask(WorkloadTool::Fio, &[&format!("--cmdhelp={name}")], Stdio::null());
    asked.map(|output| output.stdout).unwrap_or_default()
}

/// What an option takes, by the line `type: string with time postfix (opt=10s)` of fio's help, with
/// the example as the next step.
fn wanted(name: &str, help: &str) -> Option<String> {
    let kind = help.lines().find_map(|line| line.trim_start().strip_prefix("type: "))?.trim();
    Some(match kind.split_once(" (opt=") {
        Some((kind, example)) => {
            format!("it takes: {kind}; write it like `{name}={}`", example.trim_end_matches(')'))
        }
        None => format!("it takes: {kind}"),
    })
}

/// The first words of fio's list of an option's values, which is one a line:
/// `valid values: read       Sequential read`, `: write      Sequential write`.
fn valid_values(printed: &str) -> Vec<&str> {
    let of_list = printed
        .lines()
        .map(str::trim_start)
        .filter_map(|line| line.strip_prefix("valid values:").or_else(|| line.strip_prefix(':')));
    of_list.filter_map(|rest| rest.split_whitespace().next()).collect()
}

/// Options whose values are sizes, several with `,` for reads, writes and trims, or with `-` for a
/// range.
const SIZES: [&str; 7] =
    ["bs", "blocksize", "bsrange", "blocksize_range", "size", "filesize", "io_size"];

/// Whether fio would take a number for what has other letters behind it.
fn is_misread(option: &JobOption) -> bool {
    let is_number_with_letters = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_digit())
            && part.ends_with(|c: char| c.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
    };
    // `10z` are ten zones.
    let is_size = |part: &str| parse_bytes(part.trim_end_matches('z'), false).is_some();
    SIZES.contains(&option.name.as_str())
        && option
            .value
            .as_deref()
            .unwrap_or_default()
            .split([',', '-', ':'])
            .any(|part| is_number_with_letters(part) && !is_size(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_option_takes_is_told_with_an_example() {
        let help = "             runtime: Stop workload when this amount of time has passed\n                type: string with time postfix (opt=10s)\n             default: 0\n";
        let said = "it takes: string with time postfix; write it like `runtime=10s`";
        assert_eq!(wanted("runtime", help).as_deref(), Some(said));
        assert_eq!(wanted("x", "type: empty\n").as_deref(), Some("it takes: empty"));
        assert_eq!(wanted("x", ""), None);
    }

    #[test]
    fn sizes_that_fio_would_misread_are_told() {
        for (option, misread) in [
            ("bs=4q", true),
            ("bs=4k,8q", true),
            ("size=1o0m", true),
            ("filesize=1k-2kk", true),
            ("bs=4k,,8KiB", false),
            ("size=20%", false),
            ("size=10z", false),
            ("bs=0x1000", false),
            ("size=(2*4k)", false),
            ("runtime=5s", false),
            ("name=4q", false),
        ] {
            let job = JobFile::from_options(option, "a", &Default::default()).unwrap();
            assert_eq!(options(&job).any(is_misread), misread, "{option}");
        }
    }
}
