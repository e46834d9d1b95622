//! Tests of the job files that fio gets. Whole runs are in tests/tools/fio.rs.

use super::*;

#[test]
fn options_without_a_size_get_one() {
    let directory = tempfile::tempdir().unwrap();
    let target = FioTarget::Directory(directory.path().to_owned());
    let text = "rw=write bs=1m number_ios=4";
    let job = JobFile::from_options(text, "kurabe", &Default::default()).unwrap();
    let resolved = place::placed(&job, &target).unwrap();
    let plan = Fio {
        job: &job,
        target: &target,
        device_bytes: None,
        scratch: directory.path(),
        as_written: false,
    };
    let (resolved, need, size) = resolve(&resolved, &plan, None).unwrap();
    let size = size.unwrap();
    assert!(size > 0 && size <= DEFAULT_SIZE_BYTES_MAX);
    assert_eq!(need.bytes, size);
    assert_eq!(resolved.effective(1, "size"), Some(size.to_string().as_str()));
    // Once the files are there, less space is free, and the size must stay the same.
    let confined = place::placed(&job, &target).unwrap();
    let (resolved, _, again) = resolve(&confined, &plan, Some(4096)).unwrap();
    assert_eq!((again, resolved.effective(1, "size")), (Some(4096), Some("4096")));
}

#[test]
fn buffered_writes_are_synced_within_the_figures_of_their_job() {
    let ending_of = |text: &str| {
        let job = JobFile::from_options(text, "a", &Default::default()).unwrap();
        let given = measured(&job, false).effective(0, "end_fsync").map(str::to_owned);
        (given, synced_at_end(&job).len(), unsynced(&job).len())
    };
    let one = || Some("1".to_owned());
    // `fsync=N` leaves the last writes in the page cache.
    for text in ["rw=write", "rw=randrw fsync=100", "rw=trimwrite:8 direct=0", "readwrite=rw"] {
        assert_eq!(ending_of(text), (one(), 1, 0), "{text}");
    }
    for text in ["rw=write direct=1", "rw=rw direct", "rw=write buffered=0", "rw=write sync=dsync"]
    {
        assert_eq!(ending_of(text), (None, 0, 0), "{text}");
    }
    for text in ["bs=4k", "rw=randread", "rw=write ioengine=ftruncate", "rw=write ioengine=null"] {
        assert_eq!(ending_of(text), (None, 0, 0), "{text}");
    }
    assert_eq!(ending_of("rw=write fsync_on_close=1"), (None, 0, 0));
    assert_eq!(ending_of("rw=write end_fsync=1"), (one(), 0, 0));
    // What its author wrote stays, and is told.
    assert_eq!(ending_of("rw=write end_fsync=0"), (Some("0".to_owned()), 0, 1));
    // Global options hold for the jobs after them, unless a job has its own.
    let text = b"[global]\nrw=write\ndirect=1\n[direct]\n[buffered]\ndirect=0\n";
    let job = JobFile::parse(text, Path::new("job.fio")).unwrap();
    assert_eq!(synced_at_end(&job), ["buffered"]);
}

/// A job that syncs what it appends is not given a file to overwrite.
#[test]
fn a_file_that_grows_is_not_laid_out() {
    let laid_out = |text: &str| {
        let job =
            JobFile::from_options(&format!("{text} size=1m"), "a", &Default::default()).unwrap();
        (creating(&job).jobs().count(), measured(&job, false).effective(0, "overwrite").is_some())
    };
    for text in ["rw=write fdatasync=1", "rw=write:4k fsync=8", "rw=write sync=dsync"] {
        assert_eq!(laid_out(text), (0, false), "{text}");
    }
    for text in [
        "rw=write",
        "rw=randwrite fsync=1",
        "rw=read fsync=1",
        "rw=write fsync=0",
        "rw=write fdatasync=1 overwrite=1",
        "rw=write fdatasync=1 time_based runtime=1",
        "rw=write fdatasync=1 loops=2",
        "rw=write fdatasync=1 filename=f",
    ] {
        assert_eq!(laid_out(text), (1, true), "{text}");
    }
}
