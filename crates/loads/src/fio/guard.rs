//! Keeps fio jobs within the directory or the device that they are given, before fio runs.
//!
//! Knows which of fio's options name a place, run a command or change the machine. What it
//! lets through it rewrites so that every name is relative to the target. Invariants: a job
//! that it returns can write to files below the target directory (or to the target device)
//! and to fio's working directory, and nowhere else; what it refuses is refused with the place
//! in the job file.

use std::path::{Component, Path, PathBuf};

use super::jobfile::{JobFile, JobFileError, JobOption, Section};

/// Where jobs may read and write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Files below a directory.
    Directory(PathBuf),
    /// One block device (or one file that stands for it).
    Device(PathBuf),
}

impl Target {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Device(path) => path,
        }
    }
}

/// The engines that do nothing but reads, writes and metadata operations on the files that the
/// job names. All others reach other places: networks, other devices, programs, libraries.
const ENGINES: [&str; 17] = [
    "sync",
    "psync",
    "vsync",
    "pvsync",
    "pvsync2",
    "libaio",
    "posixaio",
    "io_uring",
    "mmap",
    "splice",
    "null",
    "cpuio",
    "falloc",
    "ftruncate",
    "filecreate",
    "filestat",
    "filedelete",
];

/// Options that are refused whatever their value is.
const REFUSED: [(&str, &str); 13] = [
    ("exec_prerun", "it runs a command of its own"),
    ("exec_postrun", "it runs a command of its own"),
    ("read_iolog", "the log may name any file"),
    ("merge_blktrace_file", "it writes a file of its own"),
    ("replay_redirect", "it sends the operations to another device"),
    ("profile", "it makes jobs of its own"),
    ("ioscheduler", "it changes a setting of the machine"),
    ("cgroup", "it changes a setting of the machine"),
    ("cgroup_weight", "it changes a setting of the machine"),
    ("cgroup_nodelete", "it changes a setting of the machine"),
    ("allow_mounted_write", "it would let fio write to a mounted device"),
    ("clientuid", "jobs are run on this machine only"),
    ("donorname", "it names a file of another place"),
];

/// Logs that kurabe writes itself, in fio's working directory; a job's own wish for them is
/// granted by that.
pub(super) const LOGS: [&str; 4] =
    ["write_bw_log", "write_iops_log", "write_lat_log", "write_hist_log"];

/// Options whose values may hold a `/` that names no place to write to.
const SLASH_ALLOWED: [&str; 23] = [
    "description",
    "bssplit",
    "cmdprio_bssplit",
    "percentile_list",
    "random_distribution",
    "file_service_type",
    "verify_pattern",
    "buffer_pattern",
    "rate",
    "rate_min",
    "ratemin",
    "rate_iops",
    "rate_iops_min",
    "rw",
    "readwrite",
    "steadystate",
    "ss",
    "rwmixread",
    "rwmixwrite",
    "trim_percentage",
    "log_hist_coarseness",
    "size",
    "io_size",
];

/// Gives back the jobs with every place in them checked and made relative to the target, or
/// the first option that leads out.
///
/// # Errors
/// The option's place and why it is refused.
pub fn confine(job: &JobFile, target: &Target) -> Result<JobFile, JobFileError> {
    let mut sections = Vec::new();
    for section in &job.sections {
        if matches!(target, Target::Directory(_)) {
            check_name(&section.name).map_err(|reason| JobFileError {
                place: section.place.clone(),
                reason: format!("the section's name becomes a file's name, and {reason}"),
            })?;
        }
        let mut options = Vec::new();
        for option in &section.options {
            options.extend(confine_option(option, target)?);
        }
        sections.push(Section { options, ..section.clone() });
    }
    Ok(JobFile { sections })
}

/// The option as it may stay, or none when something else takes its place.
fn confine_option(option: &JobOption, target: &Target) -> Result<Option<JobOption>, JobFileError> {
    let value = option.value.as_deref().unwrap_or_default();
    let refuse = |reason: String| {
        Err(JobFileError {
            place: option.place.clone(),
            reason: format!("`{}` is refused: {reason}", option.name),
        })
    };
    let refuse_value = |reason: String| {
        Err(JobFileError {
            place: option.value_place(),
            reason: format!("`{}={value}` is refused: {reason}", option.name),
        })
    };
    let with_value = |value: String| Ok(Some(JobOption { value: Some(value), ..option.clone() }));
    // The checked text is written into a job file again, which fio reads: nothing in it may
    // mean more there than it does here.
    if option.name.starts_with("include") {
        return refuse("it would include a file unchecked".to_owned());
    }
    if value.contains([';', '#']) {
        return refuse_value("fio would take `;` or `#` for the begin of a comment".to_owned());
    }
    if value.find("${").is_some_and(|start| value[start..].contains('}')) {
        return refuse_value("the value of a variable holds a variable".to_owned());
    }
    if let Some((_, reason)) = REFUSED.iter().find(|(name, _)| *name == option.name) {
        return refuse((*reason).to_owned());
    }
    match option.name.as_str() {
        "directory" => match places(value, target) {
            Ok(places) => with_value(join_names(&places)),
            Err(reason) => refuse_value(reason),
        },
        "filename" => match target {
            Target::Directory(directory) => match file_names(value, directory) {
                Ok(names) => with_value(join_names(&names)),
                Err(reason) => refuse_value(reason),
            },
            // The device is put in for all jobs at once.
            Target::Device(device) => match same_devices(value, device) {
                Ok(()) => Ok(None),
                Err(reason) => refuse_value(reason),
            },
        },
        "opendir" => match places(value, target) {
            Ok(places) => with_value(join_names(&places)),
            Err(reason) => refuse_value(reason),
        },
        "filename_format" => match (target, relative(Path::new(value))) {
            (Target::Device(_), _) => refuse("the job is to use the device".to_owned()),
            (Target::Directory(_), Ok(_)) => Ok(Some(option.clone())),
            (Target::Directory(_), Err(reason)) => refuse_value(reason),
        },
        "ioengine" => {
            // Sub-options of old job files may follow after a colon; only `external` has any.
            if ENGINES.contains(&value) {
                Ok(Some(option.clone()))
            } else {
                refuse_value(format!(
                    "it is none of the engines that are known to stay within the files of the job: {}",
                    ENGINES.join(", ")
                ))
            }
        }
        "mem" | "iomem" => {
            if value.contains(':') {
                refuse_value("it maps a file of its own".to_owned())
            } else {
                Ok(Some(option.clone()))
            }
        }
        "name" => match check_name(value) {
            Ok(()) => Ok(Some(option.clone())),
            Err(reason) => refuse_value(reason),
        },
        "write_iolog" => {
            if value.contains('/') || value == ".." {
                refuse_value("the log would be written outside of the target".to_owned())
            } else {
                Ok(Some(option.clone()))
            }
        }
        name if LOGS.contains(&name) => {
            if value.contains('/') || value == ".." {
                refuse_value("the log would be written outside of the target".to_owned())
            } else {
                Ok(None)
            }
        }
        // They would turn the logs into a form of their own.
        "log_compression" | "log_store_compressed" => Ok(None),
        name if value.contains('/') && !SLASH_ALLOWED.contains(&name) => {
            refuse_value("the value looks like a path, and kurabe does not know the option".into())
        }
        _ => Ok(Some(option.clone())),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.contains('/') {
        return Err("a `/` in it leads elsewhere".to_owned());
    }
    if name == "." || name == ".." {
        return Err(format!("`{name}` leads elsewhere"));
    }
    Ok(())
}

/// Splits a list of names at `:`, which a `\` protects, as fio does.
pub(super) fn split_names(list: &str) -> Vec<String> {
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

/// The directories of a `directory` or `opendir` option as absolute paths.
fn places(list: &str, target: &Target) -> Result<Vec<String>, String> {
    let Target::Directory(directory) = target else {
        return Err("the job is to use the device".to_owned());
    };
    let names = split_names(list);
    if names.is_empty() {
        return Err("it names no directory".to_owned());
    }
    names
        .iter()
        .map(|name| {
            let below = below(Path::new(name), directory)?;
            // Joining an empty path would leave a slash behind.
            let place = directory.components().chain(below.components()).collect::<PathBuf>();
            Ok(place.display().to_string())
        })
        .collect()
}

/// The names of a `filename` option, relative to the target directory.
fn file_names(list: &str, directory: &Path) -> Result<Vec<String>, String> {
    let names = split_names(list);
    if names.is_empty() {
        return Err("it names no file".to_owned());
    }
    names
        .iter()
        .map(|name| {
            if name == "-" {
                return Err("`-` is the standard input or output".to_owned());
            }
            let below = below(Path::new(name), directory)?;
            if below.as_os_str().is_empty() {
                return Err("it names the target directory itself".to_owned());
            }
            Ok(below.display().to_string())
        })
        .collect()
}

fn same_devices(list: &str, device: &Path) -> Result<(), String> {
    for name in split_names(list) {
        let path = Path::new(&name);
        let same = path == device
            || matches!(
                (path.canonicalize(), device.canonicalize()),
                (Ok(one), Ok(other)) if one == other
            );
        if !same {
            return Err(format!("the job is to use {} and nothing else", device.display()));
        }
    }
    Ok(())
}

/// A path below a directory, relative to it, with no way out by `..` or by a symbolic link.
fn below(path: &Path, directory: &Path) -> Result<PathBuf, String> {
    // Without its name: before the trial it has none, and in it one that says nothing to anybody.
    let outside = || {
        "it is outside of the directory that each contender gives the job; name it relative to that"
            .to_owned()
    };
    let relative_path = if path.is_absolute() {
        let canonical = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let stripped = path.strip_prefix(directory).or_else(|_| path.strip_prefix(&canonical));
        stripped.map_err(|_| outside())?.to_owned()
    } else {
        path.to_owned()
    };
    let clean = relative(&relative_path)?;
    let mut walked = directory.to_owned();
    for component in clean.components() {
        walked.push(component);
        if walked.is_symlink() {
            let real = walked.canonicalize().map_err(|error| {
                format!("the symbolic link {} leads nowhere: {error}", walked.display())
            })?;
            let root = directory.canonicalize().map_err(|error| error.to_string())?;
            if !real.starts_with(root) {
                return Err(format!("the symbolic link {} leads outside", walked.display()));
            }
        }
    }
    Ok(clean)
}

/// A relative path without `.` components; refused when it is absolute or has `..`.
fn relative(path: &Path) -> Result<PathBuf, String> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err("`..` leads outside".to_owned()),
            Component::RootDir | Component::Prefix(_) => {
                return Err("an absolute path leads outside".to_owned());
            }
        }
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::jobfile::{Surroundings, System};

    /// The process's environment, and variables that hold what only a text may say.
    struct Tricky;

    impl Surroundings for Tricky {
        fn variable(&self, name: &str) -> Option<String> {
            let value = match name {
                "KURABE_TEST_INCLUDE" => "include=/etc/evil",
                "KURABE_TEST_NESTED" => "${HOME}/../x",
                "KURABE_TEST_COMMENT" => "x;y",
                _ => return None,
            };
            Some(value.to_owned())
        }

        fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
            std::fs::read(path)
        }
    }

    fn parsed(text: &str) -> JobFile {
        JobFile::parse(text.as_bytes(), Path::new("job.fio"), &Tricky).unwrap()
    }

    fn in_directory(options: &str) -> Result<String, String> {
        let directory = Target::Directory(PathBuf::from("/mnt/target"));
        match confine(&parsed(&format!("[job]\n{options}\n")), &directory) {
            Ok(job) => Ok(job.to_string().trim().replace("[job]\n", "")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn what_stays_inside_is_made_relative() {
        for (given, kept) in [
            ("directory=/mnt/target", "directory=/mnt/target"),
            ("directory=sub", "directory=/mnt/target/sub"),
            ("directory=/mnt/target/a:b", "directory=/mnt/target/a:/mnt/target/b"),
            ("filename=x:y/z", "filename=x:y/z"),
            ("filename=/mnt/target/x", "filename=x"),
            ("filename=./x\\:1", "filename=x\\:1"),
            ("filename_format=$jobname/$filenum", "filename_format=$jobname/$filenum"),
            ("ioengine=io_uring", "ioengine=io_uring"),
            ("bssplit=4k/60:8k/40", "bssplit=4k/60:8k/40"),
            ("write_iolog=log", "write_iolog=log"),
            ("some_future_option=7", "some_future_option=7"),
        ] {
            assert_eq!(in_directory(given).as_deref(), Ok(kept), "{given}");
        }
    }

    #[test]
    fn what_leads_outside_is_refused_with_its_place() {
        for (given, column, reason) in [
            ("directory=/mnt", 11, "outside of the directory"),
            ("directory=/mnt/targetx", 11, "outside of the directory"),
            ("directory=/mnt/target:/tmp", 11, "outside of the directory"),
            ("directory=a/../../b", 11, "`..` leads outside"),
            ("directory=", 11, "no directory"),
            ("filename=/dev/sda", 10, "outside of the directory"),
            ("filename=x:/etc/passwd", 10, "outside of the directory"),
            ("filename = ../x", 12, "`..` leads outside"),
            ("filename=-", 10, "standard"),
            ("filename=/mnt/target", 10, "the target directory itself"),
            ("filename_format=/tmp/$jobname", 17, "absolute"),
            ("filename_format=../$jobname", 17, "`..`"),
            ("opendir=/etc", 9, "outside"),
            ("exec_prerun=rm -rf x", 1, "runs a command"),
            ("exec_postrun=true", 1, "runs a command"),
            ("read_iolog=x", 1, "may name any file"),
            ("replay_redirect=/dev/sda", 1, "another device"),
            ("write_iolog=/tmp/x", 13, "outside of the target"),
            ("write_bw_log=../x", 14, "outside of the target"),
            ("write_hist_log=/x", 16, "outside of the target"),
            ("ioengine=net", 10, "none of the engines"),
            ("ioengine=exec", 10, "none of the engines"),
            ("ioengine=external:/tmp/evil.so", 10, "none of the engines"),
            ("ioengine=/tmp/evil.so", 10, "none of the engines"),
            ("mem=mmapshared:/dev/sda", 5, "maps a file"),
            ("iomem=mmap:x", 7, "maps a file"),
            ("profile=tiobench", 1, "jobs of its own"),
            ("ioscheduler=none", 1, "setting of the machine"),
            ("cgroup=x", 1, "setting of the machine"),
            ("name=../../x", 6, "leads elsewhere"),
            ("some_future_option=/etc/x", 20, "looks like a path"),
            ("${KURABE_TEST_INCLUDE}", 1, "include a file unchecked"),
            ("filename=${KURABE_TEST_NESTED}", 10, "holds a variable"),
            ("filename=${KURABE_TEST_COMMENT}", 10, "begin of a comment"),
        ] {
            let error = in_directory(given).expect_err(given);
            assert!(error.starts_with(&format!("job.fio:2:{column}: ")), "{given}: {error}");
            assert!(error.contains(reason), "{given}: {error}");
        }
    }

    #[test]
    fn a_section_that_is_a_path_is_refused() {
        let directory = Target::Directory(PathBuf::from("/mnt/target"));
        let error = confine(&parsed("[/dev/sda]\nrw=write\n"), &directory).unwrap_err();
        assert_eq!((error.place.line, error.place.column), (1, 2));
        assert!(error.reason.contains("leads elsewhere"));
    }

    #[test]
    fn options_of_global_sections_and_includes_are_checked_too() {
        let directory = Target::Directory(PathBuf::from("/mnt/target"));
        let job = parsed("[global]\nfilename=/dev/sda\n[a]\nrw=read\n");
        assert_eq!(confine(&job, &directory).unwrap_err().place.line, 2);
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("evil.inc"), "# nothing\nexec_prerun=reboot\n").unwrap();
        let path = place.path().join("job.fio");
        let job = JobFile::parse(b"[a]\ninclude evil.inc\n", &path, &System).unwrap();
        let error = confine(&job, &directory).unwrap_err();
        assert!(error.place.source.ends_with("evil.inc"));
        assert_eq!(error.place.line, 2);
    }

    #[test]
    fn a_symbolic_link_does_not_lead_out() {
        let place = tempfile::tempdir().unwrap();
        let inside = place.path().join("target");
        std::fs::create_dir_all(inside.join("real")).unwrap();
        std::fs::write(place.path().join("precious"), "x").unwrap();
        std::os::unix::fs::symlink(place.path().join("precious"), inside.join("link")).unwrap();
        std::os::unix::fs::symlink(place.path(), inside.join("up")).unwrap();
        std::os::unix::fs::symlink(inside.join("real"), inside.join("near")).unwrap();
        let target = Target::Directory(inside);
        for (name, allowed) in [("link", false), ("up/precious", false), ("near/x", true)] {
            let job = parsed(&format!("[a]\nfilename={name}\n"));
            assert_eq!(confine(&job, &target).is_ok(), allowed, "{name}");
        }
    }

    #[test]
    fn a_device_job_uses_the_device_alone() {
        let device = Target::Device(PathBuf::from("/dev/loop77"));
        let job = confine(&parsed("[a]\nfilename=/dev/loop77\nrw=read\n"), &device).unwrap();
        assert_eq!(job.to_string(), "[a]\nrw=read\n\n");
        for refused in [
            "filename=/dev/sda",
            "filename=/dev/loop77:/dev/sda",
            "filename=x",
            "directory=/mnt",
            "opendir=/mnt",
            "filename_format=$jobname",
            "allow_mounted_write=1",
        ] {
            assert!(confine(&parsed(&format!("[a]\n{refused}\n")), &device).is_err(), "{refused}");
        }
    }
}
