//! Tests of whole fio runs, in a temporary directory with the installed fio.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use loads::fio::jobfile::System;
use loads::fio::{Fio, FioError, FioOutcome, JobFile, Step, Target, fio, lay_out, understood};
use loads::tool::{Tool, ToolError};

use super::{installed, tells_both_sizes};

struct Places {
    _keep: tempfile::TempDir,
    target: Target,
    scratch: PathBuf,
}

fn places() -> Places {
    let keep = tempfile::tempdir().unwrap();
    let target = keep.path().join("target");
    let scratch = keep.path().join("scratch");
    fs::create_dir(&target).unwrap();
    fs::create_dir(&scratch).unwrap();
    Places { target: Target::Directory(target), scratch, _keep: keep }
}

fn run_text(text: &str, places: &Places) -> Result<FioOutcome, FioError> {
    let job = JobFile::parse(text.as_bytes(), Path::new("job.fio"), &System).unwrap();
    run_job(&job, places)
}

fn run_job(job: &JobFile, places: &Places) -> Result<FioOutcome, FioError> {
    let plan = Fio { job, target: &places.target, scratch: &places.scratch, prepared: None };
    fio(&plan, &AtomicBool::new(false), &mut |_| {})
}

#[test]
fn what_verify_finds_is_a_check_and_ends_no_run() {
    if !installed(Tool::Fio) {
        return;
    }
    let kept = run_text("[a]\nrw=write\nbs=64k\nsize=1m\nverify=crc32c\n", &places()).unwrap();
    let check = kept.check.unwrap();
    assert_eq!((&*check.name, check.tried, check.violated), ("contents", 16, 0));
    // The second job writes another checksum over a quarter of what the third looks for.
    let text = "\
[global]
bs=64k
size=1m
filename=f
[a]
rw=write
verify=crc32c
do_verify=0
[b]
stonewall
rw=write
size=256k
[c]
stonewall
rw=read
verify=crc32c
";
    let lost = run_text(text, &places()).unwrap();
    let check = lost.check.unwrap();
    assert_eq!((check.tried, check.violated), (16, 4), "{check:?}");
    assert!(check.first.as_ref().unwrap().contains("at file"), "{check:?}");
    assert_eq!(lost.report.jobs.len(), 3);
}

#[test]
fn a_job_file_is_laid_out_run_and_read() {
    if !installed(Tool::Fio) {
        return;
    }
    let places = places();
    let text = "\
[global]
bs=4k
size=4m
[write it]
rw=randwrite
numjobs=2
fsync=100
[read it]
stonewall
rw=randread
directory=sub
filename=deep/file
unlink=1
";
    let outcome = run_text(text, &places).unwrap();
    let report = &outcome.report;
    assert_eq!(report.laid_out_in_run, 0, "{:?}", report.notes);
    let layout = report.layout;
    assert_eq!((layout.files, layout.bytes), (3, 12 << 20));
    assert!(layout.allocated_bytes >= layout.bytes);
    assert_eq!(report.needed_bytes, 12 << 20);
    assert_eq!(report.jobs.len(), 3);
    let written = report.jobs[0].write.as_ref().unwrap();
    assert_eq!((written.operations, written.bytes), (1024, 4 << 20));
    assert_eq!(written.latency.as_ref().unwrap().count, 1024);
    assert!(report.jobs[0].sync.as_ref().unwrap().count >= 10);
    assert_eq!(outcome.latencies.histogram("write").unwrap().len(), 2048);
    assert_eq!(outcome.latencies.histogram("read").unwrap().len(), 1024);
    assert!(report.job_text.contains("fallocate=none"));
    let series: Vec<&str> = report.series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(series, ["write it", "read it"]);
    let Target::Directory(target) = &places.target else { unreachable!() };
    assert!(target.join("write it.1.0").exists());
    assert!(!target.join("sub/deep/file").exists(), "the job unlinks it after the run");
}

#[test]
fn files_that_were_laid_out_before_are_used_as_they_are() {
    if !installed(Tool::Fio) {
        return;
    }
    let places = places();
    // Without a size: the free space that it is a share of changes with the layout.
    let job = JobFile::from_options("rw=randwrite bs=4k number_ios=10 nrfiles=2", "a", &System);
    let job = job.unwrap();
    let plan = Fio { job: &job, target: &places.target, scratch: &places.scratch, prepared: None };
    let stop = AtomicBool::new(false);
    let mut steps = Vec::new();
    let prepared = lay_out(&plan, &stop, &mut |step| steps.push(step)).unwrap();
    assert_eq!(steps, [Step::LayOut, Step::Overwrite]);
    assert_eq!(prepared.layout.files, 2);
    assert_eq!(Some(prepared.layout.bytes), prepared.default_size_bytes);
    steps.clear();
    let plan = Fio { prepared: Some(&prepared), ..plan };
    let report = fio(&plan, &stop, &mut |step| steps.push(step)).unwrap().report;
    assert_eq!(steps, [Step::Run]);
    assert_eq!((report.laid_out_in_run, report.layout), (0, prepared.layout));
    assert_eq!(report.default_size_bytes, prepared.default_size_bytes);
    assert_eq!(report.jobs[0].write.as_ref().unwrap().operations, 10);
}

#[test]
fn a_series_holds_what_was_done() {
    if !installed(Tool::Fio) {
        return;
    }
    let places = places();
    let text = "[a]\nrw=randrw\nbs=4k\nsize=1m\nrate_iops=400,400\ntime_based\nruntime=3\n";
    let report = run_text(text, &places).unwrap().report;
    let job = &report.jobs[0];
    let intervals = &report.series[0].intervals;
    assert!(intervals.len() >= 2, "{intervals:?}");
    let reads: u64 = intervals.iter().map(|interval| interval.reads).sum();
    let operations = job.read.as_ref().unwrap().operations;
    // The logs' means are whole numbers, and the last interval of a thread may be missing.
    assert!(reads <= operations + 10 && reads * 2 > operations, "{reads} of {operations}");
}

#[test]
fn a_load_that_does_not_fit_is_refused_with_both_sizes() {
    if !installed(Tool::Fio) {
        return;
    }
    let places = places();
    let error = run_text("[a]\nrw=write\nsize=900t\n", &places).unwrap_err();
    let FioError::TooBig { needed_bytes, available_bytes, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*needed_bytes, 900 << 40);
    tells_both_sizes(&error, *needed_bytes, *available_bytes);
    assert_eq!(fs::read_dir(places.target.path()).unwrap().count(), 0);
}

#[test]
fn fios_own_errors_are_shown() {
    if !installed(Tool::Fio) {
        return;
    }
    let places = places();
    let error = run_text("[a]\nrw=sideways\nsize=1m\n", &places).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("valid values"), "{text}");
    let FioError::Tool(ToolError::Failed(finished)) = error else {
        panic!("{text}");
    };
    assert!(!finished.stderr.is_empty());
}

#[test]
fn a_job_that_leaves_its_directory_is_refused_before_anything_is_made() {
    let places = places();
    let victim = tempfile::NamedTempFile::new().unwrap();
    fs::write(victim.path(), "precious").unwrap();
    let text = format!("[a]\nrw=write\nsize=1m\nfilename={}\n", victim.path().display());
    let error = run_text(&text, &places).unwrap_err();
    let expected =
        matches!(&error, FioError::JobFile(_) | FioError::Tool(ToolError::Missing { .. }));
    assert!(expected, "{error}");
    assert_eq!(fs::read_to_string(victim.path()).unwrap(), "precious");
    assert_eq!(fs::read_dir(&places.scratch).unwrap().count(), 0);
}

#[test]
fn a_raised_stop_ends_fio() {
    if !installed(Tool::Fio) {
        return;
    }
    let places = places();
    let text = "[a]\nrw=randread\nsize=1m\ntime_based\nruntime=600\nnumjobs=2\n";
    let job = JobFile::parse(text.as_bytes(), Path::new("job.fio"), &System).unwrap();
    let stop = AtomicBool::new(false);
    let plan = Fio { job: &job, target: &places.target, scratch: &places.scratch, prepared: None };
    let started = Instant::now();
    let running = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        let (stop, running) = (&stop, &running);
        scope.spawn(move || {
            while !running.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            std::thread::sleep(std::time::Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
        });
        let result = fio(&plan, stop, &mut |step| {
            running.store(step == Step::Run, Ordering::Relaxed);
        });
        // Whatever happened, the other thread must come to its end.
        running.store(true, Ordering::Relaxed);
        result.unwrap_err()
    });
    assert!(matches!(error, FioError::Tool(ToolError::Stopped(_))), "{error}");
    assert!(started.elapsed().as_secs() < 60);
}

#[test]
fn a_file_stands_for_a_device() {
    if !installed(Tool::Fio) {
        return;
    }
    let places = places();
    let image = places.scratch.join("image");
    fs::write(&image, vec![0_u8; 1 << 20]).unwrap();
    let places = Places { target: Target::Device(image.clone()), ..places };
    let report = run_text("[a]\nrw=randread\nbs=4k\nsize=512k\n", &places).unwrap().report;
    assert_eq!(report.layout.bytes, 512 << 10);
    assert_eq!(report.jobs[0].read.as_ref().unwrap().bytes, 512 << 10);
    let image = fs::read(image).unwrap();
    assert!(image[..512 << 10].chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)));
    assert!(image[512 << 10..].iter().all(|byte| *byte == 0));
    let error = run_text("[a]\nrw=read\nsize=2m\n", &places).unwrap_err();
    assert!(matches!(error, FioError::TooBig { available_bytes: 1_048_576, .. }), "{error}");
}

#[test]
fn what_fio_does_not_take_is_told_with_its_place_and_touches_nothing() {
    if !installed(Tool::Fio) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file").display().to_string();
    let told = |text: &str| {
        let text = format!("[global]\nfilename={file}\nsize=1m\n[a]\n{text}\n");
        let job = JobFile::parse(text.as_bytes(), Path::new("job.fio"), &System).unwrap();
        let result = understood(&job).map_err(|error| error.to_string());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "{text}");
        result
    };
    for good in [
        "rw=randrw\nbs=4k,8k\ndirect=1\nruntime=5\ntime_based",
        "rw=write\nbssplit=4k/60:8k/40\nverify=crc32c\nwrite_iolog=log",
        "rw=read\nsize=20%\nbs=16KiB",
    ] {
        assert_eq!(told(good), Ok(()), "{good}");
    }
    for (bad, says) in [
        ("bs=4k\nrw=randreed", &["job.fio:6:4: ", "`rw=randreed`", "randread", "randwrite"][..]),
        ("iodepth=many", &["job.fio:5:9: ", "`iodepth=many`", "fio --cmdhelp=iodepth"]),
        (
            "runtime=abc",
            &["job.fio:5:9: ", "`runtime=abc`", "with time postfix; write it like `runtime=10s`"],
        ),
        ("direct=2", &["job.fio:5:8: ", "max value out of range: 2 (1 max)"]),
        ("direct", &["job.fio:5:", "Option direct requires an argument"]),
        ("verify = crc99", &["job.fio:5:10: ", "`verify=crc99`", "crc32c"]),
        ("bz=4k", &["job.fio:5:1: ", "`bz=4k`", "no option of this name"]),
        ("bs=4q", &["job.fio:5:4: ", "`bs=4q` is no size", "4k"]),
    ] {
        let error = told(bad).expect_err(bad);
        for text in says {
            assert!(error.contains(text), "no '{text}' in {bad}: {error}");
        }
    }
}
