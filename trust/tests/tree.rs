//! Trees that a load made to exhaust whoever cleans up after it. In a process of its own: it lowers
//! its limit of open files.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trust::tree::{WalkStep, walk};
use trust::{Directory, tree};

const DESCRIPTORS: u64 = 256;

/// A directory that is not removed when a test fails: what removes it would fail at such trees.
fn home() -> PathBuf {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum: hard }).unwrap();
    tempfile::tempdir().unwrap().keep()
}

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

/// Nests directories, each with a file, and gives the last one.
fn nest(top: &Path, depth: usize) -> OwnedFd {
    fs::create_dir(top).unwrap();
    let mut at = open(top);
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, "d", flags, Mode::empty()).unwrap();
        let flags = OFlags::WRONLY | OFlags::CREATE;
        rustix::fs::openat(&at, "file", flags, Mode::RUSR).unwrap();
    }
    at
}

#[test]
fn a_tree_is_removed_however_deep_it_is() {
    let home = home();
    drop(nest(&home.join("deep"), 100_000));
    Directory::open(&home).unwrap().remove_tree("deep").unwrap();
    drop(nest(&home.join("deep"), 3000));
    tree::remove(&home.join("deep")).unwrap();
    fs::remove_dir(home).unwrap();
}

#[test]
fn what_is_mounted_deep_below_stays_and_is_named_shortly() {
    let home = home();
    let kept = home.join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "kept").unwrap();
    let last = nest(&home.join("deep"), 3000);
    rustix::fs::mkdirat(&last, "mounted", Mode::RWXU).unwrap();
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let point = || rustix::fs::openat(&last, "mounted", flags, Mode::empty()).unwrap();
    let path = |opened: &OwnedFd| format!("/proc/self/fd/{}", opened.as_raw_fd());
    // The same file system, which the device's number does not tell apart.
    if let Err(error) = rustix::mount::mount_bind(&kept, path(&point())) {
        eprintln!("SKIPPED: nothing can be mounted here: {error}");
    } else {
        let directory = Directory::open(&home).unwrap();
        let refused = directory.remove_tree("deep").map_err(|refused| refused.to_string());
        rustix::mount::unmount(path(&point()), UnmountFlags::DETACH).unwrap();
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "kept");
        let top = home.join("deep").display().to_string();
        let expected =
            format!("{top}/(3000 directories)/mounted: Device or resource busy (os error 16)");
        assert_eq!(refused, Err(expected));
    }
    tree::remove(&home).unwrap();
}

#[test]
fn a_directory_that_is_moved_away_takes_the_walk_nowhere_else() {
    let home = home();
    for name in ["tree", "tree/one", "tree/one/two", "outside"] {
        fs::create_dir(home.join(name)).unwrap();
    }
    fs::write(home.join("tree/one/two/file"), "").unwrap();
    let mut left = Vec::new();
    let refused = walk(open(&home.join("tree")), &home.join("tree"), |step| {
        match step {
            WalkStep::File(..) => {
                fs::rename(home.join("tree/one/two"), home.join("outside/two")).unwrap();
            }
            WalkStep::Left(_, name) => left.push(name.to_owned()),
            WalkStep::Directory(_) => {}
        }
        Ok(())
    });
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("tree/one/two: it was moved away"), "{text}");
    assert!(left.is_empty(), "{left:?}");
    tree::remove(&home).unwrap();
}

#[test]
fn every_file_and_directory_is_visited_once_and_links_are_not_followed() {
    let home = home();
    for name in ["tree", "tree/a", "tree/a/b", "tree/c"] {
        fs::create_dir(home.join(name)).unwrap();
    }
    for name in ["tree/1", "tree/a/2", "tree/a/b/3"] {
        fs::write(home.join(name), "").unwrap();
    }
    std::os::unix::fs::symlink("a", home.join("tree/link")).unwrap();
    let (mut files, mut entered, mut left) = (Vec::new(), 0, Vec::new());
    walk(open(&home.join("tree")), &home, |step| {
        match step {
            WalkStep::File(_, name) => files.push(name.to_str().unwrap().to_owned()),
            WalkStep::Directory(_) => entered += 1,
            WalkStep::Left(_, name) => left.push(name.to_str().unwrap().to_owned()),
        }
        Ok(())
    })
    .unwrap();
    files.sort();
    assert_eq!(files, ["1", "2", "3", "link"]);
    let at = |name: &str| left.iter().position(|one| one == name).unwrap();
    assert_eq!((entered, left.len()), (4, 3));
    assert!(at("b") < at("a"), "{left:?}");
    tree::remove(&home).unwrap();
    assert!(!home.exists());
}
