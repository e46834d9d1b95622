//! Tests of the job files that fio gets. Whole runs are in tests/tools/fio.rs.

use super::*;
use crate::fio::jobfile::System;

#[test]
fn options_without_a_size_get_one() {
    let directory = tempfile::tempdir().unwrap();
    let target = Target::Directory(directory.path().to_owned());
    let text = "rw=write bs=1m number_ios=4";
    let job = JobFile::from_options(text, "kurabe", &System).unwrap();
    let resolved = guard::confine(&job, &target).unwrap();
    let (resolved, need, size) = resolve(&resolved, &target, None).unwrap();
    let size = size.unwrap();
    assert!(size > 0 && size <= DEFAULT_SIZE_BYTES_MAX);
    assert_eq!(need.bytes, size);
    assert_eq!(resolved.effective(1, "size"), Some(size.to_string().as_str()));
    // Once the files are there, less space is free, and the size must stay the same.
    let confined = guard::confine(&job, &target).unwrap();
    let (resolved, _, again) = resolve(&confined, &target, Some(4096)).unwrap();
    assert_eq!((again, resolved.effective(1, "size")), (Some(4096), Some("4096")));
}
