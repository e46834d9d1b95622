//! Tests of a tree's life in a temporary directory.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use measure::durable::WholeSync;
use measure::latency::LatencyRecording;
use workloads::tool::WorkloadTool;
use workloads::tree::{
    ArchiveFacts, SyntheticTree, Tree, TreePhase, TreeReport, archive_facts, hash_tree, inspect,
    run_tree, write_archive,
};

use super::installed;

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
    let tree = SyntheticTree::new(FILES, 3);
    write_archive(&tree, &mut file).unwrap();
    let facts = archive_facts(&tree);
    fs::create_dir(keep.path().join("work")).unwrap();
    Places { archive, facts, keep }
}

impl Places {
    fn work(&self) -> PathBuf {
        self.keep.path().join("work")
    }

    fn plan<'a>(&'a self, work: &'a Path) -> Tree<'a> {
        let (archive, facts) = (&self.archive, self.facts);
        Tree { archive, directory: work, facts, sync: WholeSync::Call }
    }

    fn run(&self) -> Result<(TreeReport, LatencyRecording), String> {
        let work = self.work();
        let result = run_tree(&self.plan(&work), &AtomicBool::new(false), &mut |_| {});
        assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "the run left something");
        result
    }
}

#[test]
fn a_whole_life_is_lived_and_counted() {
    let places = places();
    let work = places.work();
    let tree = work.join("kurabe-tree/unpacked");
    let mut rewritten = None;
    let (report, latencies) =
        run_tree(&places.plan(&work), &AtomicBool::new(false), &mut |phase| {
            if phase == TreePhase::DeleteEach {
                rewritten = Some(hash_tree(&tree, &AtomicBool::new(false)).unwrap());
            }
        })
        .unwrap();
    let of = |phase: TreePhase| report.phases.iter().find(|found| found.phase == phase).unwrap();
    assert_eq!(report.phases.iter().map(|found| found.phase).collect::<Vec<_>>(), TreePhase::ALL);

    let hash = &report.hash;
    assert_eq!((hash.files, hash.bytes), (FILES, places.facts.file_bytes));
    assert_eq!(hash.directories + hash.links, places.facts.others);
    let entries = places.facts.files + places.facts.others;
    assert_eq!(of(TreePhase::Copy).bytes, places.facts.archive_bytes);
    // The directory that the tree is unpacked into is read as well.
    assert_eq!(of(TreePhase::Walk).operations, hash.directories + 1);
    assert_eq!(of(TreePhase::Stat).operations, entries);
    assert_eq!(of(TreePhase::Rewrite).operations, FILES);
    assert_eq!(of(TreePhase::Rewrite).bytes, places.facts.file_bytes);
    assert_eq!(of(TreePhase::DeleteEach).operations, FILES + hash.links);
    assert_eq!(of(TreePhase::Unpack).operations, 0);
    assert!(of(TreePhase::Unpack).elapsed_ns > 0);
    assert_eq!(latencies.histogram("stat").unwrap().len(), entries);
    // A rewrite keeps sizes and changes contents.
    let rewritten = rewritten.unwrap();
    assert_eq!((rewritten.files, rewritten.bytes), (hash.files, hash.bytes));
    assert_ne!(rewritten.xxh3_128, hash.xxh3_128);
    // Another run unpacks the same tree.
    assert_eq!(places.run().unwrap().0.hash, *hash);
}

#[test]
fn a_file_system_with_a_sync_of_its_own_is_synced_by_it_before_and_after_each_phase() {
    let places = places();
    let work = places.work();
    let log = places.keep.path().join("syncs");
    let plan = |script: String| Tree {
        sync: WholeSync::Command(vec!["sh".into(), "-c".into(), script]),
        ..places.plan(&work)
    };
    let going = AtomicBool::new(false);
    run_tree(&plan(format!("echo x >> {}", log.display())), &going, &mut |_| {}).unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 2 * TreePhase::ALL.len());
    let failed = run_tree(&plan("echo no pool >&2; false".into()), &going, &mut |_| {});
    assert!(failed.unwrap_err().contains("no pool"));
}

#[test]
fn what_does_not_fit_is_refused_with_both_sizes() {
    let mut places = places();
    places.facts.block_bytes = 1 << 60;
    let error = places.run().unwrap_err();
    let needed_bytes = places.facts.needed_bytes();
    assert!(error.contains(&format!("need {needed_bytes} bytes")), "{error}");
    assert!(error.contains(" has "), "{error}");
}

/// As a sparse file whose map goes on behind the size that is listed.
#[test]
fn a_tree_that_is_larger_than_its_list_is_refused() {
    let mut places = places();
    places.facts.file_bytes -= 1;
    let error = places.run().unwrap_err();
    assert!(error.contains("unpacked they have") && error.contains("sparse"), "{error}");
}

#[test]
fn an_archive_that_tar_cannot_read_is_an_error_with_its_words() {
    let places = places();
    fs::write(&places.archive, b"no archive").unwrap();
    let error = places.run().unwrap_err();
    assert!(error.to_string().contains("does not look like a tar archive"), "{error}");
}

#[test]
fn a_cut_archive_is_an_error() {
    let places = places();
    let file = OpenOptions::new().write(true).open(&places.archive).unwrap();
    file.set_len(places.facts.archive_bytes / 2 + 100).unwrap();
    let error = places.run().unwrap_err();
    assert!(error.contains("`tar` ended with exit code"), "{error}");
}

#[test]
fn what_is_in_the_way_is_kept() {
    let places = places();
    let precious = places.work().join(OWN_DIRECTORY);
    fs::create_dir(&precious).unwrap();
    let work = places.work();
    let error = run_tree(&places.plan(&work), &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(error.contains("exists already"), "{error}");
    assert!(precious.exists());
}

#[test]
fn a_raised_stop_ends_any_phase_and_cleans_up() {
    let places = places();
    let work = places.work();
    for phase in TreePhase::ALL {
        let stop = AtomicBool::new(false);
        let result = run_tree(&places.plan(&work), &stop, &mut |begun| {
            stop.store(begun == phase, Ordering::Relaxed);
        });
        // rm may be done before the flag is looked at.
        match (phase, result) {
            (TreePhase::DeleteAll, Ok(_)) => {}
            (_, Err(error)) if error.contains("was stopped") => {}
            (phase, result) => panic!("{phase:?}: {:?}", result.map(|(report, _)| report)),
        }
        assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "{phase:?} left something");
    }
}

#[test]
fn tar_lists_what_was_written() {
    if !installed(WorkloadTool::Tar) {
        return;
    }
    let tree = SyntheticTree::new(3000, 9);
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("tree.tar");
    let mut file = File::create(&archive).unwrap();
    write_archive(&tree, &mut file).unwrap();
    let written = archive_facts(&tree);
    let listed = inspect(&archive, &AtomicBool::new(false)).unwrap();
    assert_eq!(listed, written);
    assert_eq!(listed.files, 3000);
    assert_eq!(listed.file_bytes, written.file_bytes);
    assert!(listed.block_bytes >= listed.file_bytes);
}

#[test]
fn what_is_no_archive_is_an_error_with_tars_words() {
    if !installed(WorkloadTool::Tar) {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), b"no archive at all").unwrap();
    let error = inspect(file.path(), &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("tar: "), "{error}");
}
