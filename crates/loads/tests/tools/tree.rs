//! Tests of a tree's life in a temporary directory.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use loads::durable::WholeSync;
use loads::tool::{Tool, ToolError};
use loads::tree::{
    ArchiveFacts, Phase, SyntheticTree, Tree, TreeError, TreeOutcome, hash_tree, inspect, run_tree,
    write_archive,
};

use super::{installed, tells_both_sizes};

/// The directory that a run makes for itself.
const OWN_DIRECTORY: &str = "kurabe-tree";
const FILES: u64 = 400;

struct Places {
    keep: tempfile::TempDir,
    archive: PathBuf,
    facts: ArchiveFacts,
}

fn places() -> Places {
    let keep = tempfile::tempdir().unwrap();
    let archive = keep.path().join("tree.tar");
    let mut file = File::create(&archive).unwrap();
    let facts = write_archive(&SyntheticTree::new(FILES, 3), &mut file).unwrap();
    fs::create_dir(keep.path().join("work")).unwrap();
    Places { archive, facts, keep }
}

impl Places {
    fn work(&self) -> PathBuf {
        self.keep.path().join("work")
    }

    fn run(&self, phases: &[Phase], expected_hash: Option<&str>) -> Result<TreeOutcome, TreeError> {
        let work = self.work();
        let plan = Tree {
            archive: &self.archive,
            directory: &work,
            phases,
            facts: Some(self.facts),
            expected_hash,
            sync: WholeSync::Call,
        };
        let result = run_tree(&plan, &AtomicBool::new(false), &mut |_| {});
        assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "the run left something");
        result
    }
}

#[test]
fn a_whole_life_is_lived_and_counted() {
    let places = places();
    let all = [&Phase::DEFAULT[..], &[Phase::Unlink]].concat();
    let outcome = places.run(&all, None).unwrap();
    let report = &outcome.report;
    let of = |phase: Phase| report.phases.iter().find(|found| found.phase == phase).unwrap();
    assert_eq!(report.phases.iter().map(|found| found.phase).collect::<Vec<_>>(), all);

    let hash = report.hash.as_ref().unwrap();
    assert_eq!((hash.files, hash.bytes), (FILES, places.facts.file_bytes));
    assert_eq!(hash.directories + hash.links, places.facts.others);
    let entries = places.facts.files + places.facts.others;
    assert_eq!(of(Phase::Copy).bytes, places.facts.archive_bytes);
    // The directory that the tree is unpacked into is read as well.
    assert_eq!(of(Phase::Walk).operations, hash.directories + 1);
    assert_eq!(of(Phase::Stat).operations, entries);
    assert_eq!(of(Phase::Rewrite).operations, FILES);
    assert_eq!(of(Phase::Rewrite).bytes, places.facts.file_bytes);
    assert_eq!(of(Phase::DeleteEach).operations, FILES + hash.links);
    assert_eq!(of(Phase::Unlink).operations, entries);
    assert_eq!(of(Phase::Unpack).latencies, None);
    assert!(of(Phase::Unpack).elapsed_ns > 0);
    // After each of the first two deletions the tree is unpacked again.
    assert_eq!(report.restored, 2);
    assert_eq!(outcome.latencies.histogram("stat").unwrap().len(), entries);
    assert_eq!(outcome.latencies.histogram("rmdir").unwrap().len(), hash.directories);
}

#[test]
fn two_runs_unpack_the_same_tree_and_another_is_told() {
    let places = places();
    let hash = places.run(&[Phase::Unpack], None).unwrap().report.hash.unwrap().xxh3_128;
    places.run(&[Phase::Stat], Some(&hash)).unwrap();
    let error = places.run(&[Phase::Unpack], Some("0123")).unwrap_err();
    let TreeError::Different { expected, found } = error else {
        panic!("{error}");
    };
    assert_eq!((expected.as_str(), found.xxh3_128), ("0123", hash));
}

#[test]
fn a_rewrite_keeps_sizes_and_changes_contents() {
    let places = places();
    let work = places.work();
    let tree = work.join("kurabe-tree/unpacked");
    let before = places.run(&[Phase::Unpack], None).unwrap().report.hash.unwrap();
    let mut after = None;
    let plan = Tree {
        archive: &places.archive,
        directory: &work,
        phases: &[Phase::Rewrite, Phase::Stat],
        facts: None,
        expected_hash: None,
        sync: WholeSync::Call,
    };
    run_tree(&plan, &AtomicBool::new(false), &mut |phase| {
        if phase == Phase::Stat {
            after = Some(hash_tree(&tree, &AtomicBool::new(false)).unwrap());
        }
    })
    .unwrap();
    let after = after.unwrap();
    assert_eq!((after.files, after.bytes), (before.files, before.bytes));
    assert_ne!(after.xxh3_128, before.xxh3_128);
}

#[test]
fn a_file_system_with_a_sync_of_its_own_is_synced_by_it_before_and_after_each_phase() {
    let places = places();
    let work = places.work();
    let log = places.keep.path().join("syncs");
    let plan = |script: String| Tree {
        archive: &places.archive,
        directory: &work,
        phases: &[Phase::Unpack, Phase::Walk],
        facts: None,
        expected_hash: None,
        sync: WholeSync::Command(vec!["sh".into(), "-c".into(), script]),
    };
    let going = AtomicBool::new(false);
    run_tree(&plan(format!("echo x >> {}", log.display())), &going, &mut |_| {}).unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 4);
    let failed = run_tree(&plan("echo no pool >&2; false".into()), &going, &mut |_| {});
    assert!(failed.unwrap_err().to_string().contains("no pool"));
}

#[test]
fn what_does_not_fit_is_refused_with_both_sizes() {
    let mut places = places();
    places.facts.block_bytes = 1 << 60;
    let error = places.run(&Phase::DEFAULT, None).unwrap_err();
    let TreeError::TooBig { needed_bytes, available_bytes, .. } = &error else {
        panic!("{error}");
    };
    assert!(*needed_bytes > 1 << 60);
    tells_both_sizes(&error, *needed_bytes, *available_bytes);
}

#[test]
fn an_archive_that_tar_cannot_read_is_an_error_with_its_words() {
    let places = places();
    fs::write(&places.archive, b"no archive").unwrap();
    let error = places.run(&[Phase::Copy, Phase::Unpack], None).unwrap_err();
    assert!(error.to_string().contains("does not look like a tar archive"), "{error}");
}

#[test]
fn a_cut_archive_is_an_error() {
    let places = places();
    let file = OpenOptions::new().write(true).open(&places.archive).unwrap();
    file.set_len(places.facts.archive_bytes / 2 + 100).unwrap();
    let error = places.run(&[Phase::Unpack], None).unwrap_err();
    assert!(matches!(error, TreeError::Tool(ToolError::Failed(_))), "{error}");
}

#[test]
fn what_is_in_the_way_is_kept() {
    let places = places();
    let precious = places.work().join(OWN_DIRECTORY);
    fs::create_dir(&precious).unwrap();
    let work = places.work();
    let plan = Tree {
        archive: &places.archive,
        directory: &work,
        phases: &[Phase::Copy],
        facts: None,
        expected_hash: None,
        sync: WholeSync::Call,
    };
    let error = run_tree(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(matches!(error, TreeError::NotClean { .. }), "{error}");
    assert!(precious.exists());
}

#[test]
fn a_raised_stop_ends_any_phase_and_cleans_up() {
    let places = places();
    let work = places.work();
    for phase in Phase::DEFAULT {
        let phases = [phase];
        let plan = Tree {
            archive: &places.archive,
            directory: &work,
            phases: &phases,
            facts: None,
            expected_hash: None,
            sync: WholeSync::Call,
        };
        let stop = AtomicBool::new(false);
        let result = run_tree(&plan, &stop, &mut |_| stop.store(true, Ordering::Relaxed));
        // tar and rm may be done before the flag is looked at.
        match (phase, result) {
            (Phase::Unpack | Phase::DeleteAll, Ok(_)) => {}
            (_, Err(TreeError::Stopped { .. } | TreeError::Tool(ToolError::Stopped(_)))) => {}
            (phase, result) => panic!("{phase:?}: {:?}", result.map(|outcome| outcome.report)),
        }
        assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "{phase:?} left something");
    }
}

#[test]
fn tar_lists_what_was_written() {
    if !installed(Tool::Tar) {
        return;
    }
    let tree = SyntheticTree::new(3000, 9);
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("tree.tar");
    let mut file = File::create(&archive).unwrap();
    let written = write_archive(&tree, &mut file).unwrap();
    let listed = inspect(&archive, &AtomicBool::new(false)).unwrap();
    assert_eq!(listed, written);
    assert_eq!(listed.files, 3000);
    assert_eq!(listed.file_bytes, tree.file_bytes());
    assert!(listed.block_bytes >= listed.file_bytes);
}

#[test]
fn what_is_no_archive_is_an_error_with_tars_words() {
    if !installed(Tool::Tar) {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), b"no archive at all").unwrap();
    let error = inspect(file.path(), &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("tar: "), "{error}");
}
