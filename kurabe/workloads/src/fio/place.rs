//! Where jobs work: puts their directories below the target's, and says what leads elsewhere.
//!
//! What keeps a job in its target is the enclosure that its process lives in, whatever it asks for.
//! Here it is looked at early for the message's sake, and afterwards for the line that fio's failure
//! comes from.

use std::path::{Component, Path, PathBuf};

use super::jobfile::{JobFile, JobFileError, JobOption};

/// Where jobs may read and write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FioTarget {
    /// Files below a directory.
    Directory(PathBuf),
    /// One block device (or one file that stands for it).
    Device(PathBuf),
}

impl FioTarget {
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Device(path) => path,
        }
    }
}

/// Refuses a target whose name fio would change when it reads it from a job file.
///
/// Errors: the name, with the character that fio takes for something else.
pub fn check_name(target: &FioTarget) -> Result<(), String> {
    let name = target.path().display().to_string();
    match name.chars().find(|c| c.is_control() || ['$', ';', '#'].contains(c)) {
        Some(found) => Err(format!(
            "the job cannot use {}: fio gives `{}` a meaning of its own in a job file; use a path without it",
            name.escape_debug(),
            found.escape_debug()
        )),
        None => Ok(()),
    }
}

/// The jobs with every directory made absolute, below the target; without file names where the target is
/// a device. A directory, file or device of another place becomes one of the target: a path below its
/// directory, or the device.
///
/// Errors: the first `directory`, `opendir` or `filename` that goes up (`..`), or an `ioengine` that fio would
/// have to load.
pub fn placed(job: &JobFile, target: &FioTarget) -> Result<JobFile, JobFileError> {
    let mut placed = job.clone();
    for section in &mut placed.sections {
        let mut options = Vec::new();
        for option in section.options.drain(..) {
            let value = placed_value(&option, target).map_err(|reason| {
                option.value_place().fault(format!("`{option}` is refused: {reason}"))
            })?;
            options.extend(value.map(|value| JobOption { value, ..option }));
        }
        section.options = options;
    }
    Ok(placed)
}

/// The options that name another place than the target, in whose place the target comes; each once.
pub(super) fn moved(job: &JobFile, target: &FioTarget) -> Vec<String> {
    let is_elsewhere = |option: &&JobOption| {
        let names = split_names(option.value.as_deref().unwrap_or_default());
        let mut paths = names.iter().map(Path::new);
        match target {
            _ if !PLACES.contains(&option.name.as_str()) => false,
            FioTarget::Directory(root) => {
                paths.any(|path| path.is_absolute() && !path.starts_with(root))
            }
            FioTarget::Device(device) => paths.any(|path| path != device),
        }
    };
    let mut moved: Vec<String> = Vec::new();
    for option in job.sections.iter().flat_map(|section| &section.options).filter(is_elsewhere) {
        let option = option.to_string();
        if !moved.contains(&option) {
            moved.push(option);
        }
    }
    moved
}

/// The options that say where a job works.
const PLACES: [&str; 3] = ["directory", "opendir", "filename"];

/// The value that an option gets, or none where the option goes.
fn placed_value(option: &JobOption, target: &FioTarget) -> Result<Option<Option<String>>, String> {
    let names = || split_names(option.value.as_deref().unwrap_or_default());
    let within = |prefix: &Path| {
        let names = names().into_iter().map(|name| {
            Ok(prefix.join(below(Path::new(&name), target.path())?).display().to_string())
        });
        Ok(Some(Some(join_names(&names.collect::<Result<Vec<_>, String>>()?))))
    };
    match (option.name.as_str(), target) {
        ("directory" | "opendir", FioTarget::Directory(directory)) => within(directory),
        ("filename", FioTarget::Directory(_)) => within(Path::new("")),
        ("directory" | "opendir" | "filename", FioTarget::Device(_)) => Ok(None),
        ("ioengine", _) if names().iter().any(|name| name == "external" || name.contains('/')) => {
            Err("kurabe loads no engine of the job's own; take one of `fio --enghelp`".into())
        }
        // They would turn the logs into a form that is not read here.
        ("log_compression" | "log_store_compressed", _) => Ok(None),
        _ => Ok(Some(option.value.clone())),
    }
}

/// A path relative to the directory that it lies below; one of another place relative to the root of the
/// file system.
fn below(path: &Path, directory: &Path) -> Result<PathBuf, String> {
    let relative = path.strip_prefix(directory).or_else(|_| path.strip_prefix("/"));
    let relative = relative.unwrap_or(path);
    match relative
        .components()
        .find(|part| !matches!(part, Component::Normal(_) | Component::CurDir))
    {
        None => Ok(relative.components().filter(|part| *part != Component::CurDir).collect()),
        // Without its name: before the trial it has none, and in it one that says nothing.
        Some(_) => Err("it leads out of the directory that each contender gives the job; \
                        name it relative to that, without `..`"
            .into()),
    }
}

/// The option that names a path outside of the target and that a failure is about: one that fio `said`
/// something of, else the first.
pub(super) fn leads_out<'a>(
    job: &'a JobFile,
    target: &FioTarget,
    said: &str,
) -> Option<&'a JobOption> {
    let is_outside = |word: &str| {
        let path = Path::new(word);
        (path.is_absolute() && !path.starts_with(target.path()) && word != "/")
            || path.components().any(|part| part == Component::ParentDir)
    };
    let options = job.sections.iter().flat_map(|section| &section.options);
    let outside = options.filter(|option| !PLACES.contains(&option.name.as_str()));
    let outside = outside.filter(|option| {
        let value = option.value.as_deref().unwrap_or_default();
        value.split([':', ' ', '=']).any(is_outside)
    });
    let is_told = |option: &&JobOption| {
        said.contains(&option.name.replace('_', " ")) || said.contains(option.name.as_str())
    };
    // `fopen write iolog: Read-only file system`
    outside.max_by_key(|option| (is_told(option), std::cmp::Reverse(option.place.line)))
}

/// Splits a list of names at `:`, which a `\` protects, as fio does.
pub(crate) fn split_names(list: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut characters = list.chars().peekable();
    while let Some(c) = characters.next() {
        let last = names.len() - 1;
        match c {
            '\\' if characters.peek() == Some(&':') => {
                names[last].push(':');
                characters.next();
            }
            ':' => names.push(String::new()),
            c => names[last].push(c),
        }
    }
    names.retain(|name| !name.trim().is_empty());
    names
}

/// The opposite of [`split_names`].
pub(super) fn join_names(names: &[String]) -> String {
    names.iter().map(|name| name.replace(':', "\\:")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &str) -> JobFile {
        let text = format!("[a]\n{options}\n");
        JobFile::parse(text.as_bytes(), Path::new("job.fio")).unwrap()
    }

    fn in_directory(options: &str) -> Result<String, String> {
        let target = FioTarget::Directory("/mnt/target".into());
        placed(&parsed(options), &target)
            .map(|job| job.to_string().trim().replace("[a]\n", ""))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn directories_come_below_the_target() {
        for (given, kept) in [
            ("directory=/mnt/target", "directory=/mnt/target/"),
            ("directory=sub", "directory=/mnt/target/sub"),
            ("directory=/mnt/target/a:./b", "directory=/mnt/target/a:/mnt/target/b"),
            ("opendir=sub", "opendir=/mnt/target/sub"),
            ("filename=x:y/z", "filename=x:y/z"),
            ("filename=/mnt/target/x", "filename=x"),
            // Places of another machine.
            ("directory=/mnt/x", "directory=/mnt/target/mnt/x"),
            ("directory=/mnt/targetx", "directory=/mnt/target/mnt/targetx"),
            ("opendir=/etc", "opendir=/mnt/target/etc"),
            ("filename=/dev/sda:/dev/sdb", "filename=dev/sda:dev/sdb"),
            ("filename=./x\\:1", "filename=x\\:1"),
            ("ioengine=io_uring", "ioengine=io_uring"),
            ("bssplit=4k/60:8k/40", "bssplit=4k/60:8k/40"),
            ("norandommap", "norandommap"),
        ] {
            assert_eq!(in_directory(given).as_deref(), Ok(kept), "{given}");
        }
    }

    #[test]
    fn a_target_that_fio_would_read_as_another_is_refused() {
        for name in ["/mnt/${HOME}", "/mnt/$ncpus", "/mnt/a#b", "/mnt/a;b", "/mnt/a\nb"] {
            assert!(check_name(&FioTarget::Directory(name.into())).is_err(), "{name}");
        }
        check_name(&FioTarget::Directory("/mnt/a b:c".into())).unwrap();
    }

    #[test]
    fn what_leads_elsewhere_is_told_with_its_place() {
        for (given, column) in [
            ("directory=a/../../b", 11),
            ("directory=/mnt/../etc", 11),
            ("filename = ../x", 12),
            ("ioengine=external:/tmp/evil.so", 10),
            ("ioengine=external:evil.so", 10),
            ("ioengine=/tmp/evil.so", 10),
        ] {
            let error = in_directory(given).expect_err(given);
            assert!(error.starts_with(&format!("job.fio:2:{column}: ")), "{given}: {error}");
        }
    }

    #[test]
    fn a_device_job_uses_the_device_alone() {
        let device = FioTarget::Device("/dev/loop77".into());
        for names in ["/dev/loop77", "/dev/sda", "/dev/sda:/dev/sdb", "mark.dat"] {
            let job = parsed(&format!("filename={names}\ndirectory=/mnt\nopendir=x\nrw=read"));
            let placed = placed(&job, &device).unwrap();
            assert_eq!(placed.to_string(), "[a]\nrw=read\n\n", "{names}");
        }
        assert!(placed(&parsed("ioengine=external:x"), &device).is_err());
    }

    #[test]
    fn what_names_another_place_is_told() {
        let job = parsed("directory=/mnt/x\nfilename=a:/dev/sdb\nopendir=sub\nwrite_iolog=/x");
        let told = |target: FioTarget| moved(&job, &target);
        let outside = ["directory=/mnt/x", "filename=a:/dev/sdb"];
        assert_eq!(told(FioTarget::Directory("/run/c".into())), outside);
        assert_eq!(told(FioTarget::Directory("/mnt".into())), outside[1..]);
        let all = [&outside[..], &["opendir=sub"]].concat();
        assert_eq!(told(FioTarget::Device("/dev/loop1".into())), all);
        let own = parsed("filename=/dev/loop1");
        assert!(moved(&own, &FioTarget::Device("/dev/loop1".into())).is_empty());
    }

    #[test]
    fn the_option_that_leads_out_is_found() {
        let target = FioTarget::Directory("/mnt/target".into());
        let job = parsed("rw=write\ndirectory=/mnt/target/a\nbssplit=4k/60\nwrite_iolog=/etc/x");
        assert_eq!(leads_out(&job, &target, "").unwrap().name, "write_iolog");
        let job = parsed("exec_prerun=touch /x\nfilename_format=../x\nwrite_iolog=/x");
        let named = |said: &str| leads_out(&job, &target, said).unwrap().name.clone();
        assert_eq!(named("fopen write iolog: Read-only file system"), "write_iolog");
        assert_eq!(named("open: Read-only file system"), "exec_prerun");
        assert!(leads_out(&parsed("rw=write\nfilename=x"), &target, "").is_none());
    }
}
