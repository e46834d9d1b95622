//! Jobs that verify what they read: what fio finds is a check, and ends neither job nor trial.
//!
//! fio would stop at the first mismatch and count none; told to go on, it counts them
//! (`continue_on_error=verify`, `total_err` in its output) and names each on standard error.

use std::collections::BTreeSet;

use vocabulary::check::{CONTENTS, Check};

use super::jobfile::JobFile;
use super::output::FioJob;
use super::place::split_names;
use super::run::{is_durable_at_end, some_jobs, writes};
use super::size::need;

/// fio's option that says whether a job goes on after an error.
const GO_ON: &str = "continue_on_error";

pub(super) fn verifies(job: &JobFile, index: usize) -> bool {
    job.effective(index, "verify").is_some_and(|value| !["0", "none"].contains(&value))
}

/// Whether one of the jobs verifies.
pub fn verifies_any(job: &JobFile) -> bool {
    job.jobs().any(|(index, _)| verifies(job, index))
}

/// What a job that verifies gets besides its own options.
pub(super) fn added(job: &JobFile, index: usize) -> Option<(&'static str, String)> {
    let has_own = job.effective(index, GO_ON).is_some();
    (verifies(job, index) && !has_own).then(|| (GO_ON, "verify".to_owned()))
}

/// Whether a job's error is that what it read was not what was written, after which it went on.
pub(super) fn is_mismatch(job: &FioJob) -> bool {
    let mismatch = i64::from(rustix::io::Errno::ILSEQ.raw_os_error());
    job.error == mismatch && job.total_err > 0
}

/// The check of all jobs that verify; none where no job does. Tried are the blocks that were read
/// to be compared: of a job that writes no more than it wrote.
pub(super) fn check(job: &JobFile, ran: &[FioJob], said: &str) -> Option<Check> {
    let verifying = |of: &FioJob| {
        job.jobs().find(|(index, section)| section.name == of.jobname && verifies(job, *index))
    };
    let mut check: Option<Check> = None;
    for (of, (index, _)) in ran.iter().filter_map(|of| Some((of, verifying(of)?))) {
        let check = check.get_or_insert_with(|| Check::new(CONTENTS));
        let (read, written) = (of.read.total_ios, of.write.total_ios);
        check.tried += match written {
            0 => read,
            _ if job.effective(index, "do_verify") == Some("0") => 0,
            written => read.min(written),
        };
        check.violated += if is_mismatch(of) { of.total_err } else { 0 };
    }
    let mut check = check?;
    check.tried = check.tried.max(check.violated);
    if check.violated > 0 {
        let is_it =
            |line: &&str| line.starts_with("verify:") || line.contains(": verify failed at");
        check.first = said.lines().map(str::trim).find(is_it).map(str::to_owned);
    }
    if check.tried == 0 {
        check.evidence = Some("no job read back what it had written".to_owned());
    }
    Some(check)
}

/// The jobs that verify what no job of the file has written: they would find random data.
pub fn unwritten(job: &JobFile) -> Vec<String> {
    let all = || job.jobs().filter(|(index, _)| verifies(job, *index));
    if all().any(|(index, _)| writes(job, index)) {
        Vec::new()
    } else {
        all().map(|(_, section)| section.name.clone()).collect()
    }
}

/// What makes it impossible to tell later what a job has written.
const UNREPEATABLE: [&str; 8] = [
    "runtime",
    "time_based",
    "loops",
    "file_append",
    "write_iolog",
    "unlink",
    "unlink_each_loop",
    "trim_percentage",
];

/// Whether what these jobs have written is durable at their end, and can be verified from then on without
/// writing it again (`verify_only`).
#[must_use]
pub fn verifies_later(job: &JobFile) -> bool {
    let later = |index: usize| {
        let given = |name: &str| job.effective(index, name);
        let is_repeatable = given("randrepeat") != Some("0")
            && !UNREPEATABLE.into_iter().any(|name| given(name).is_some());
        verifies(job, index) && is_repeatable && is_durable_at_end(job, index)
    };
    let trims = |index: usize| {
        let given = |name: &str| job.effective(index, name);
        given("rw").or_else(|| given("readwrite")).is_some_and(|pattern| pattern.contains("trim"))
    };
    let mut writing =
        job.jobs().map(|(index, _)| index).filter(|index| writes(job, *index)).peekable();
    writing.peek().is_some()
        && need(job).jobs_without_size == 0
        && !job.jobs().any(|(index, _)| trims(index))
        && !share_a_file(job)
        && writing.all(later)
}

/// Whether more than one process writes, each where the others do when they share a device.
pub fn several_write(job: &JobFile) -> bool {
    let writing = job.jobs().map(|(index, _)| index).filter(|index| writes(job, *index));
    let processes = writing.map(|index| {
        let jobs = job.effective(index, "numjobs").and_then(|jobs| jobs.parse().ok());
        jobs.unwrap_or(1_u64)
    });
    processes.sum::<u64>() > 1
}

/// Whether two jobs write one file: neither would find what it wrote.
fn share_a_file(job: &JobFile) -> bool {
    let mut files = BTreeSet::new();
    job.jobs().filter(|(index, _)| writes(job, *index)).any(|(index, section)| {
        let given = |name: &str| job.effective(index, name);
        let named = given("filename").or_else(|| given("filename_format"));
        let is_many = named.is_some() && given("numjobs").is_some_and(|jobs| jobs != "1");
        let directory = given("directory").unwrap_or_default();
        let names = split_names(named.unwrap_or(&section.name));
        is_many || names.into_iter().any(|name| !files.insert((directory, name)))
    })
}

/// The job file that compares what an earlier run of it has written, and writes nothing.
pub(super) fn only_verifying(job: &JobFile) -> JobFile {
    let options = [("verify_only", "1"), ("do_verify", "1"), ("stonewall", "1")];
    some_jobs(job, &options, |index| writes(job, index))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fio::Direction;

    fn job(text: &str) -> JobFile {
        JobFile::from_options(text, "a", &Default::default()).unwrap()
    }

    fn ran(read: u64, written: u64, total_err: u64) -> FioJob {
        let side = |total_ios: u64| Direction { total_ios, ..Direction::default() };
        FioJob {
            jobname: "a".into(),
            error: if total_err > 0 { 84 } else { 0 },
            total_err,
            read: side(read),
            write: side(written),
            ..FioJob::default()
        }
    }

    #[test]
    fn what_was_read_to_be_compared_is_counted() {
        let counted = |text: &str, ran: FioJob| {
            let found = check(&job(text), &[ran], "fio: x\nmd5: verify failed at file f\nmore\n");
            found.map(|check| (check.tried, check.violated, check.first))
        };
        let first = Some("md5: verify failed at file f".to_owned());
        assert_eq!(counted("rw=write", ran(16, 16, 0)), None);
        assert_eq!(counted("rw=write verify=0", ran(16, 16, 0)), None);
        assert_eq!(counted("rw=write verify=md5", ran(16, 16, 3)), Some((16, 3, first)));
        // The reads of a mixed job are no comparisons.
        assert_eq!(counted("rw=randrw verify=md5", ran(16, 6, 0)), Some((6, 0, None)));
        assert_eq!(counted("rw=randrw verify=md5 do_verify=0", ran(9, 6, 0)), Some((0, 0, None)));
    }

    #[test]
    fn a_device_is_shared_by_all_that_write() {
        let text = "[global]\nrw=write\nsize=1m\n[a]\n[b]\n";
        assert!(several_write(&JobFile::parse(text.as_bytes(), Path::new("a.fio")).unwrap()));
        let text = "[a]\nrw=write\n[b]\nrw=read\n";
        assert!(!several_write(&JobFile::parse(text.as_bytes(), Path::new("a.fio")).unwrap()));
        assert!(several_write(&job("rw=write numjobs=2")) && !several_write(&job("rw=write")));
    }

    #[test]
    fn what_is_durable_at_its_end_and_repeatable_can_be_verified_later() {
        for text in
            ["rw=write verify=md5 size=1m", "rw=randrw verify=md5 size=1m direct=1 end_fsync=1"]
        {
            assert!(verifies_later(&job(text)), "{text}");
        }
        for more in [
            "direct=1",
            "end_fsync=0",
            "runtime=3",
            "loops=2",
            "randrepeat=0",
            "verify=0",
            "unlink=1",
            "unlink_each_loop=1",
            "rw=trimwrite",
            "filename=f numjobs=2",
        ] {
            assert!(
                !verifies_later(&job(&format!("rw=write verify=md5 size=1m {more}"))),
                "{more}"
            );
        }
        let two = |first: &str, second: &str| {
            let every = "[global]\nrw=write\nverify=md5\nsize=1m";
            let text = format!("{every}\n[a]\n{first}\n[b]\n{second}\n");
            verifies_later(&JobFile::parse(text.as_bytes(), Path::new("a.fio")).unwrap())
        };
        assert!(two("filename=f", "filename=g") && two("filename=f", "rw=read\nfilename=f"));
        assert!(!two("filename=f:g", "filename=g"));
        assert!(!two("", "rw=randtrim"));
        assert!(!verifies_later(&job("rw=write verify=md5")), "without a size");
        assert!(!verifies_later(&job("rw=read verify=md5 size=1m")), "it writes nothing");
    }

    #[test]
    fn a_job_that_verifies_goes_on_and_one_that_says_otherwise_stays() {
        let added = |text: &str| added(&job(text), 0);
        assert_eq!(added("rw=write verify=md5"), Some(("continue_on_error", "verify".into())));
        assert_eq!(added("rw=write verify=md5 continue_on_error=none"), None);
        assert_eq!(added("rw=write"), None);
        assert_eq!(unwritten(&job("rw=read verify=md5")), ["a"]);
        assert_eq!(unwritten(&job("rw=write verify=md5")), [""; 0]);
    }
}
