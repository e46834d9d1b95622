//! What each system call on the mount answers, call by call: success and every errno that POSIX
//! or Linux documents and that a flat file system can give. Needs root and /dev/fuse; elsewhere
//! each test says that it was skipped. `pjdfstest.rs` runs the published suite over the same calls.

#[path = "common/mount.rs"]
mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Mount, assert_errno, run, succeed};
use libc::{
    EACCES, EBADF, EBUSY, EEXIST, EFBIG, EINVAL, EISDIR, ENAMETOOLONG, ENODATA, ENOENT, ENOSPC,
    ENOTDIR, ENXIO, EOPNOTSUPP, EPERM, EROFS, EXDEV,
};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    Uid, XattrFlags,
};

/// Zero, or the errno of a call.
fn errno<T>(outcome: rustix::io::Result<T>) -> i32 {
    outcome.map_or_else(rustix::io::Errno::raw_os_error, |_| 0)
}

fn open(path: impl AsRef<Path>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(CWD, path.as_ref(), flags, Mode::from_raw_mode(0o644))
}

fn rename(from: PathBuf, to: PathBuf, flags: RenameFlags) -> i32 {
    errno(rustix::fs::renameat_with(CWD, from, CWD, to, flags))
}

fn unlink(path: PathBuf) -> i32 {
    errno(rustix::fs::unlinkat(CWD, path, AtFlags::empty()))
}

fn chmod(path: PathBuf, mode: u32) -> i32 {
    errno(rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty()))
}

fn chown(path: PathBuf, user: u32, group: u32) -> i32 {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    errno(rustix::fs::chownat(CWD, path, Some(user), Some(group), AtFlags::empty()))
}

fn utimens(path: PathBuf, accessed: Timespec, modified: Timespec) -> i32 {
    let times = Timestamps { last_access: accessed, last_modification: modified };
    errno(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()))
}

fn truncate(path: PathBuf, size: u64) -> i32 {
    // truncate(2) itself is what a path without an open file gets; a shell's `truncate` opens.
    errno(open(path, OFlags::WRONLY).and_then(|file| rustix::fs::ftruncate(file, size)))
}

fn mknod(path: PathBuf, kind: FileType) -> i32 {
    errno(rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o644), 0))
}

/// Runs `work` on a thread that is the user 65534 of the group 65534, without capabilities.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

/// A mount that any user can reach and make files in, with a file of root's in it.
fn shared_mount(options: &str) -> Option<Mount> {
    let mount = Mount::new("16M", options)?;
    fs::set_permissions(mount.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(mount.path("file"), b"content").unwrap();
    Some(mount)
}

fn end(mount: &Mount) {
    mount.umount();
    assert_eq!(mount.fsck(), 0);
}

#[test]
fn open_and_creat() {
    let Some(mount) = shared_mount("rw,root_mode=1777") else { return };
    let at = |name: &str| mount.path(name);
    let (create, exclusive) = (OFlags::CREATE | OFlags::RDWR, OFlags::CREATE | OFlags::EXCL);
    assert_eq!(errno(open(at("none"), OFlags::RDONLY)), ENOENT);
    assert_eq!(errno(open(at("file"), exclusive)), EEXIST);
    assert_eq!(errno(open(at("new"), exclusive)), 0);
    assert_eq!(errno(open(at("file/x"), OFlags::RDONLY)), ENOTDIR);
    assert_eq!(errno(open(at("file/x"), create)), ENOTDIR);
    assert_eq!(errno(open(at("none/x"), create)), ENOENT);
    assert_eq!(errno(open(at("file"), OFlags::DIRECTORY)), ENOTDIR);
    assert_eq!(errno(open(mount.root(), OFlags::WRONLY)), EISDIR);
    assert_eq!(errno(open(mount.root(), OFlags::RDONLY | OFlags::DIRECTORY)), 0);
    assert_eq!(errno(open(mount.root(), create)), EISDIR);
    // The umask of the test may differ, so only the bits that every umask leaves are compared.
    assert_eq!(fs::metadata(at("new")).unwrap().mode() & 0o700, 0o600);
    // What is opened at its creation can be written whatever the mode says that it gets.
    as_nobody(|| {
        let flags = exclusive | OFlags::WRONLY;
        let file = rustix::fs::openat(CWD, at("closed"), flags, Mode::empty()).unwrap();
        assert_eq!(errno(rustix::io::write(&file, b"abc")), 0);
        assert_eq!(errno(rustix::fs::ftruncate(&file, 100)), 0);
        assert_eq!(errno(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4096)), 0);
        assert_eq!(errno(open(at("closed"), OFlags::RDONLY)), EACCES);
    });
    assert_eq!(fs::metadata(at("closed")).unwrap().len(), 4096);
    // Truncation at open, and appending wherever the end is.
    fs::write(at("long"), [1; 10_000]).unwrap();
    assert_eq!(errno(open(at("long"), OFlags::WRONLY | OFlags::TRUNC)), 0);
    assert_eq!(fs::metadata(at("long")).unwrap().len(), 0);
    let (mut one, mut two) = (
        OpenOptions::new().append(true).open(at("long")).unwrap(),
        OpenOptions::new().append(true).open(at("long")).unwrap(),
    );
    for _ in 0..10 {
        one.write_all(b"one").unwrap();
        two.write_all(b"two").unwrap();
    }
    drop((one, two));
    assert_eq!(fs::read(at("long")).unwrap(), b"onetwo".repeat(10));
    // An unnamed file needs a link to get a name, so there is none.
    assert_eq!(errno(open(mount.root(), OFlags::TMPFILE | OFlags::WRONLY)), EOPNOTSUPP);
    fs::set_permissions(at("file"), fs::Permissions::from_mode(0o640)).unwrap();
    as_nobody(|| {
        for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
            assert_eq!(errno(open(at("file"), flags)), EACCES);
        }
        assert_eq!(errno(open(at("own"), exclusive | OFlags::WRONLY)), 0);
    });
    let facts = fs::metadata(at("own")).unwrap();
    assert_eq!((facts.uid(), facts.gid()), (65534, 65534));
    end(&mount);
}

#[test]
fn names_have_1_to_255_bytes() {
    let Some(mount) = shared_mount("rw") else { return };
    let (long, longer) = (mount.path(&"x".repeat(255)), mount.path(&"x".repeat(256)));
    fs::write(&long, b"long").unwrap();
    assert_eq!(fs::read(&long).unwrap(), b"long");
    assert_eq!(errno(open(&longer, OFlags::RDONLY)), ENAMETOOLONG);
    assert_eq!(errno(open(&longer, OFlags::CREATE | OFlags::WRONLY)), ENAMETOOLONG);
    assert_errno(fs::metadata(&longer), ENAMETOOLONG);
    assert_eq!(unlink(longer.clone()), ENAMETOOLONG);
    assert_eq!(chmod(longer.clone(), 0o600), ENAMETOOLONG);
    assert_eq!(chown(longer.clone(), 1, 1), ENAMETOOLONG);
    assert_eq!(truncate(longer.clone(), 1), ENAMETOOLONG);
    assert_eq!(mknod(longer.clone(), FileType::RegularFile), ENAMETOOLONG);
    assert_errno(fs::create_dir(&longer), ENAMETOOLONG);
    assert_errno(fs::remove_dir(&longer), ENAMETOOLONG);
    assert_errno(std::os::unix::fs::symlink("x", &longer), ENAMETOOLONG);
    assert_eq!(rename(long.clone(), longer.clone(), RenameFlags::empty()), ENAMETOOLONG);
    assert_eq!(rename(longer, long.clone(), RenameFlags::empty()), ENAMETOOLONG);
    assert_eq!(rename(long, mount.path("short"), RenameFlags::empty()), 0);
    // A path of more than 4095 bytes.
    let path = mount.path(&"y/".repeat(2048));
    assert_eq!(errno(open(path, OFlags::RDONLY)), ENAMETOOLONG);
    // Any byte but the slash and zero may be in a name.
    let odd = mount.root().join(std::ffi::OsStr::from_bytes(b"\xff\n\x01 \\"));
    fs::write(&odd, b"odd").unwrap();
    mount.umount();
    mount.mount();
    assert_eq!(fs::read(odd).unwrap(), b"odd");
    end(&mount);
}

#[test]
fn rename_replaces_atomically_or_refuses() {
    let Some(mount) = shared_mount("rw,root_mode=1777") else { return };
    let at = |name: &str| mount.path(name);
    let plain = RenameFlags::empty();
    fs::write(at("other"), b"other").unwrap();
    assert_eq!(rename(at("none"), at("x"), plain), ENOENT);
    assert_eq!(rename(at("file"), at("none/x"), plain), ENOENT);
    assert_eq!(rename(at("file"), at("other/x"), plain), ENOTDIR);
    assert_eq!(rename(at("file/x"), at("y"), plain), ENOTDIR);
    assert_eq!(rename(at("file"), mount.directory.path().join("out"), plain), EXDEV);
    assert_eq!(rename(mount.root().join("."), at("x"), plain), EBUSY);
    assert_eq!(rename(at("file"), at("other"), RenameFlags::NOREPLACE), EEXIST);
    assert_eq!(rename(at("file"), at("other"), RenameFlags::EXCHANGE), EINVAL);
    assert_eq!(rename(at("file"), at("x"), RenameFlags::WHITEOUT), EINVAL);
    assert_eq!(rename(at("file"), at("moved"), RenameFlags::NOREPLACE), 0);
    let held = File::open(at("other")).unwrap();
    assert_eq!(rename(at("moved"), at("other"), plain), 0);
    assert_eq!(fs::read(at("other")).unwrap(), b"content");
    assert_errno(fs::metadata(at("moved")), ENOENT);
    // Whoever had the replaced file open still has it, without a name.
    let mut bytes = [0; 5];
    held.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes, held.metadata().unwrap().nlink()), (b"other", 0));
    drop(held);
    assert_eq!(rename(at("other"), at("other"), plain), 0);
    assert_eq!(fs::read(at("other")).unwrap(), b"content");
    // In a directory with the sticky bit only the owner of a file may rename or remove it.
    as_nobody(|| {
        fs::write(at("own"), b"own").unwrap();
        assert_eq!(rename(at("other"), at("taken"), plain), EPERM);
        assert_eq!(rename(at("own"), at("other"), plain), EPERM);
        assert_eq!(rename(at("own"), at("renamed"), plain), 0);
    });
    end(&mount);
}

#[test]
fn unlink_and_rmdir() {
    let Some(mount) = shared_mount("rw,root_mode=1777") else { return };
    let at = |name: &str| mount.path(name);
    assert_eq!(unlink(at("none")), ENOENT);
    assert_eq!(unlink(at("file/x")), ENOTDIR);
    assert_eq!(unlink(mount.root()), EISDIR);
    assert_errno(fs::remove_dir(at("file")), ENOTDIR);
    assert_errno(fs::remove_dir(at("none")), ENOENT);
    assert_errno(fs::remove_dir(mount.root()), EBUSY);
    as_nobody(|| {
        assert_eq!(unlink(at("file")), EPERM);
        fs::write(at("own"), b"own").unwrap();
        assert_eq!(unlink(at("own")), 0);
    });
    let before = fs::metadata(mount.root()).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(unlink(at("file")), 0);
    assert_eq!(unlink(at("file")), ENOENT);
    let after = fs::metadata(mount.root()).unwrap();
    assert!(after.modified().unwrap() > before.modified().unwrap());
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 0);
    end(&mount);
}

#[test]
fn truncate_and_ftruncate() {
    let Some(mount) = shared_mount("rw") else { return };
    let at = |name: &str| mount.path(name);
    assert_eq!(truncate(at("none"), 1), ENOENT);
    assert_eq!(truncate(at("file/x"), 1), ENOTDIR);
    assert_eq!(truncate(mount.root(), 1), EISDIR);
    assert_eq!(truncate(at("file"), i64::MAX as u64 + 1), EINVAL);
    for size in [3, 10_000, 1 << 40, 0] {
        assert_eq!(truncate(at("file"), size), 0);
        assert_eq!(fs::metadata(at("file")).unwrap().len(), size);
    }
    let mut reader = File::open(at("file")).unwrap();
    assert_eq!(errno(rustix::fs::ftruncate(&reader, 3)), EINVAL);
    assert_errno((&reader).write(b"x"), EBADF);
    assert_errno(reader.seek(SeekFrom::Current(-1)), EINVAL);
    as_nobody(|| assert_eq!(truncate(at("file"), 1), EACCES));
    // A write past what a file of Linux can hold.
    let file = OpenOptions::new().write(true).open(at("file")).unwrap();
    assert!([EFBIG, EINVAL].contains(&errno(rustix::io::pwrite(&file, b"xy", i64::MAX as u64))));
    drop((reader, file));
    end(&mount);
}

#[test]
fn chmod_and_chown() {
    let Some(mount) = shared_mount("rw,root_mode=1777") else { return };
    let at = |name: &str| mount.path(name);
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
    assert_eq!(chmod(at("none"), 0o600), ENOENT);
    assert_eq!(chmod(at("file/x"), 0o600), ENOTDIR);
    assert_eq!(chown(at("none"), 1, 1), ENOENT);
    assert_eq!(chown(at("file/x"), 1, 1), ENOTDIR);
    for wanted in [0, 0o777, 0o6755, 0o1644, 0o640] {
        assert_eq!(chmod(at("file"), wanted), 0);
        assert_eq!(mode("file"), wanted);
    }
    assert_eq!(chown(at("file"), 12, 34), 0);
    let facts = fs::metadata(at("file")).unwrap();
    assert_eq!((facts.uid(), facts.gid()), (12, 34));
    // The root's mode and owner are options of the mount: only what is so already may be set.
    assert_eq!((chmod(mount.root(), 0o1777), chmod(mount.root(), 0o755)), (0, EPERM));
    assert_eq!((chown(mount.root(), 0, 0), chown(mount.root(), 5, 0)), (0, EPERM));
    as_nobody(|| {
        assert_eq!(chmod(at("file"), 0o777), EPERM);
        assert_eq!(chown(at("file"), 65534, 65534), EPERM);
        fs::write(at("own"), b"own").unwrap();
        assert_eq!(chmod(at("own"), 0o6755), 0);
        // A user cannot give files away, and gains no group by owning one.
        assert_eq!(chown(at("own"), 0, 65534), EPERM);
        assert_eq!(chown(at("own"), 65534, 0), EPERM);
        // Whoever writes without privilege takes the set-user-ID and set-group-ID bits away.
        OpenOptions::new().write(true).open(at("own")).unwrap().write_all(b"x").unwrap();
    });
    assert_eq!(mode("own"), 0o755);
    end(&mount);
}

#[test]
fn utimensat_sets_what_is_asked() {
    let Some(mount) = shared_mount("rw,root_mode=1777") else { return };
    let at = |name: &str| mount.path(name);
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let (now, omit) = (time(0, rustix::fs::UTIME_NOW), time(0, rustix::fs::UTIME_OMIT));
    let times = |name: &str| {
        let facts = fs::metadata(at(name)).unwrap();
        ((facts.atime(), facts.atime_nsec()), (facts.mtime(), facts.mtime_nsec()))
    };
    assert_eq!(utimens(at("none"), now, now), ENOENT);
    assert_eq!(utimens(at("file/x"), now, now), ENOTDIR);
    assert_eq!(utimens(at("file"), time(1, 1_000_000_000), now), EINVAL);
    assert_eq!(utimens(at("file"), time(1, 23), time(4_000_000_000, 999_999_999)), 0);
    assert_eq!(times("file"), ((1, 23), (4_000_000_000, 999_999_999)));
    assert_eq!(utimens(at("file"), omit, time(-5, 7)), 0);
    mount.umount();
    mount.mount();
    assert_eq!(times("file"), ((1, 23), (-5, 7)));
    // Nearly the earliest time of all; what the format cannot hold becomes the earliest that it can.
    assert_eq!(utimens(at("file"), omit, time(i64::MIN + 1, 1)), 0);
    assert!(times("file").1.0 < -9_000_000_000);
    assert_eq!(utimens(at("file"), now, time(-5, 7)), 0);
    assert!(times("file").0.0 > 1_700_000_000 && times("file").1 == (-5, 7));
    fs::set_permissions(at("file"), fs::Permissions::from_mode(0o666)).unwrap();
    as_nobody(|| {
        // Whoever may write a file may set it to now; another time needs its owner.
        assert_eq!(utimens(at("file"), now, now), 0);
        assert_eq!(utimens(at("file"), time(1, 0), time(1, 0)), EPERM);
    });
    fs::set_permissions(at("file"), fs::Permissions::from_mode(0o600)).unwrap();
    as_nobody(|| assert_eq!(utimens(at("file"), now, now), EACCES));
    // The root's times last as long as the mount.
    assert_eq!(utimens(mount.root(), time(9, 0), time(10, 0)), 0);
    assert_eq!(fs::metadata(mount.root()).unwrap().mtime(), 10);
    end(&mount);
}

#[test]
fn fallocate_and_the_end_of_space() {
    let Some(mount) = shared_mount("rw") else { return };
    let at = |name: &str| mount.path(name);
    let file = OpenOptions::new().read(true).write(true).open(at("file")).unwrap();
    let fallocate =
        |flags, offset, length| errno(rustix::fs::fallocate(&file, flags, offset, length));
    let (plain, keep) = (FallocateFlags::empty(), FallocateFlags::KEEP_SIZE);
    assert_eq!(fallocate(plain, 0, 0), EINVAL);
    assert_eq!(fallocate(plain, 0, 1 << 30), ENOSPC);
    assert_eq!(fallocate(plain, 0, i64::MAX as u64), ENOSPC);
    assert_eq!(fallocate(plain, i64::MAX as u64, 1), EFBIG);
    for flags in [
        FallocateFlags::PUNCH_HOLE | keep,
        FallocateFlags::COLLAPSE_RANGE,
        FallocateFlags::INSERT_RANGE,
        FallocateFlags::UNSHARE_RANGE,
    ] {
        assert_eq!(fallocate(flags, 0, 4096), EOPNOTSUPP);
    }
    assert_eq!(fs::read(at("file")).unwrap(), b"content");
    assert_eq!(fallocate(keep, 0, 1 << 20), 0);
    assert_eq!(file.metadata().unwrap().len(), 7);
    assert_eq!(fallocate(plain, 0, 1 << 20), 0);
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    assert_eq!(fallocate(FallocateFlags::ZERO_RANGE, 3, 4096), 0);
    assert_eq!(&fs::read(at("file")).unwrap()[..8], b"con\0\0\0\0\0");
    let reader = File::open(at("file")).unwrap();
    assert_eq!(errno(rustix::fs::fallocate(&reader, plain, 0, 4096)), EBADF);
    let directory = File::open(mount.root()).unwrap();
    assert_eq!(errno(rustix::fs::fallocate(&directory, plain, 0, 4096)), EBADF);
    // A write may end early at the last megabyte; what follows it may not succeed.
    let big = vec![1; 20 << 20];
    let outcome = file.write_at(&big, 0).and_then(|written| file.write_at(&big, written as u64));
    assert_errno(outcome, ENOSPC);
    drop((reader, directory, file));
    let facts = rustix::fs::statvfs(mount.root()).unwrap();
    assert_eq!((facts.f_namemax, facts.f_files), (255, 16));
    for index in facts.f_files - facts.f_ffree..facts.f_files {
        fs::write(at(&format!("n{index}")), b"").unwrap();
    }
    assert_errno(File::create(at("one more")), ENOSPC);
    assert_eq!(mknod(at("one more"), FileType::RegularFile), ENOSPC);
    end(&mount);
}

#[test]
fn what_a_flat_file_system_does_not_have() {
    let Some(mount) = shared_mount("rw") else { return };
    let at = |name: &str| mount.path(name);
    assert_errno(fs::create_dir(at("directory")), EPERM);
    assert_errno(fs::create_dir(at("file")), EEXIST);
    assert_errno(fs::create_dir(at("file/x")), ENOTDIR);
    assert_errno(std::os::unix::fs::symlink("x", at("symlink")), EPERM);
    assert_errno(std::os::unix::fs::symlink("x", at("file")), EEXIST);
    assert_errno(fs::hard_link(at("file"), at("link")), EPERM);
    assert_errno(fs::hard_link(at("none"), at("link")), ENOENT);
    assert_errno(fs::hard_link(at("file"), at("file")), EEXIST);
    assert_errno(fs::hard_link(at("file"), mount.directory.path().join("out")), EXDEV);
    assert_errno(fs::read_link(at("file")), EINVAL);
    for kind in [FileType::Fifo, FileType::Socket, FileType::CharacterDevice, FileType::BlockDevice]
    {
        assert_eq!(mknod(at("special"), kind), EPERM);
        assert_eq!(mknod(at("file"), kind), EEXIST);
    }
    assert_eq!(mknod(at("regular"), FileType::RegularFile), 0);
    assert_eq!(mknod(at("file/x"), FileType::RegularFile), ENOTDIR);
    assert_errno(std::os::unix::net::UnixListener::bind(at("socket")).map(drop), EPERM);
    let names: Vec<_> =
        fs::read_dir(mount.root()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for name in ["user.x", "trusted.x", "security.x"] {
        let path = at("file");
        assert_eq!(errno(rustix::fs::getxattr(&path, name, &mut [0; 8][..])), EOPNOTSUPP);
        let set = rustix::fs::setxattr(&path, name, b"y", XattrFlags::empty());
        assert_eq!(errno(set), EOPNOTSUPP);
        assert_eq!(errno(rustix::fs::removexattr(&path, name)), EOPNOTSUPP);
    }
    // The kernel answers for access control lists itself: none are there, none can be set.
    let acl = "system.posix_acl_access";
    assert_eq!(errno(rustix::fs::getxattr(at("file"), acl, &mut [0; 8][..])), ENODATA);
    let set = rustix::fs::setxattr(at("file"), acl, b"\x02\0\0\0", XattrFlags::empty());
    assert_eq!(errno(set), EOPNOTSUPP);
    assert!([0, EOPNOTSUPP].contains(&errno(rustix::fs::listxattr(at("file"), &mut [0; 8][..]))));
    let file = File::open(at("file")).unwrap();
    let seek = |from| errno(rustix::fs::seek(&file, from));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(7)), ENXIO);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(3)), 0);
    drop(file);
    end(&mount);
}

#[test]
fn a_read_only_mount_refuses_every_change() {
    let Some(mut mount) = shared_mount("rw") else { return };
    mount.umount();
    mount.options = "ro".into();
    mount.mount();
    {
        let at = |name: &str| mount.path(name);
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        assert_eq!(errno(open(at("file"), OFlags::WRONLY)), EROFS);
        assert_eq!(errno(open(at("file"), OFlags::RDONLY | OFlags::TRUNC)), EROFS);
        assert_eq!(errno(open(at("new"), OFlags::CREATE | OFlags::WRONLY)), EROFS);
        assert_eq!(unlink(at("file")), EROFS);
        assert_eq!(rename(at("file"), at("x"), RenameFlags::empty()), EROFS);
        assert_eq!(chmod(at("file"), 0o600), EROFS);
        assert_eq!(chown(at("file"), 1, 1), EROFS);
        assert_eq!(utimens(at("file"), now, now), EROFS);
        assert_eq!(truncate(at("file"), 1), EROFS);
        assert_eq!(mknod(at("new"), FileType::RegularFile), EROFS);
        assert_eq!(mknod(at("new"), FileType::Fifo), EROFS);
        assert_errno(fs::create_dir(at("new")), EROFS);
        assert_errno(fs::remove_dir(at("file")), EROFS);
        assert_errno(std::os::unix::fs::symlink("x", at("new")), EROFS);
        assert_errno(fs::hard_link(at("file"), at("new")), EROFS);
        let set = rustix::fs::setxattr(at("file"), "user.x", b"y", XattrFlags::empty());
        assert_eq!(errno(set), EROFS);
        assert_eq!(errno(open(at("none"), OFlags::RDONLY)), ENOENT);
        assert_eq!(fs::read(at("file")).unwrap(), b"content");
    }
    mount.umount();
    // The same of a mount that was made read-only later, and writable again after.
    mount.options = "rw".into();
    mount.mount();
    let options = |words: &str| {
        succeed(common::minfs(&["mount", "-o", words, &mount.image(), &mount.root_text()]))
    };
    options("remount,ro");
    assert_errno(fs::write(mount.path("new"), b"x"), EROFS);
    assert_eq!(unlink(mount.path("file")), EROFS);
    options("remount,rw");
    fs::write(mount.path("new"), b"x").unwrap();
    end(&mount);
    assert!(!run("umount", &[&mount.root_text()]).status.success());
}

#[test]
fn a_change_by_another_user_takes_setuid_and_setgid_away() {
    type Work = (&'static str, fn(&File));
    let works: [Work; 4] = [
        ("write", |file| {
            let block = block::AlignedBuffer::zeroed(4096);
            file.write_all_at(&block, 0).unwrap();
        }),
        ("ftruncate", |file| file.set_len(4096).unwrap()),
        ("fallocate", |file| {
            rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 16_384).unwrap();
        }),
        ("zero range", |file| {
            rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE, 0, 8192).unwrap();
        }),
    ];
    for options in ["suid", "suid,direct_io", "suid,writeback_cache"] {
        let Some(mount) = shared_mount(options) else { return };
        let path = mount.path("program");
        for flags in [OFlags::empty(), OFlags::DIRECT] {
            for (what, work) in works {
                for (mode, left) in [(0o6777, 0o777), (0o2767, 0o2767), (0o4666, 0o666)] {
                    fs::write(&path, [1; 8192]).unwrap();
                    assert_eq!(chmod(path.clone(), mode), 0);
                    let work = || work(&open(&path, OFlags::RDWR | flags).unwrap().into());
                    let seen = || fs::metadata(&path).unwrap().mode() & 0o7777;
                    let title = format!("{what}, {mode:o}, {options}, {flags:?}");
                    work();
                    assert_eq!(seen(), mode, "{title}: root may keep it");
                    as_nobody(work);
                    assert_eq!(seen(), left, "{title}");
                }
            }
        }
        end(&mount);
    }
}

/// The kernel looks at the mode that it remembers.
#[test]
fn a_program_that_another_user_wrote_to_past_the_page_cache_runs_as_its_caller() {
    for options in ["suid", "suid,direct_io"] {
        let Some(mount) = shared_mount(options) else { return };
        let path = mount.path("id");
        let content = fs::read("/usr/bin/id").unwrap();
        fs::write(&path, &content).unwrap();
        assert_eq!(chmod(path.clone(), 0o4777), 0);
        let user = || as_nobody(|| succeed(run(path.to_str().unwrap(), &["-u"])));
        assert_eq!(user(), "0\n", "{options}: setuid works here");
        as_nobody(|| {
            let mut block = block::AlignedBuffer::zeroed(4096);
            block.copy_from_slice(&content[..4096]);
            let file: File = open(&path, OFlags::WRONLY | OFlags::DIRECT).unwrap().into();
            file.write_all_at(&block, 0).unwrap();
        });
        assert_eq!(user(), "65534\n", "{options}");
        end(&mount);
    }
}

#[test]
fn a_setgid_root_directory_passes_on_its_group() {
    for (mode, group) in [("2777", 34), ("777", 65534)] {
        let options = format!("root_mode={mode},root_group=34");
        let Some(mount) = shared_mount(&options) else { return };
        let facts = |name: &str| {
            let facts = fs::metadata(mount.path(name)).unwrap();
            (facts.uid(), facts.gid(), facts.mode() & 0o7777)
        };
        as_nobody(|| {
            // Whoever is not in the group gets no program of the group's.
            let wish = Mode::from_raw_mode(0o2710);
            let create = OFlags::CREATE | OFlags::WRONLY;
            rustix::fs::openat(CWD, mount.path("created"), create, wish).unwrap();
            assert_eq!(mknod(mount.path("made"), FileType::RegularFile), 0);
        });
        let left = if group == 34 { 0o710 } else { 0o2710 };
        assert_eq!(facts("created"), (65534, group, left), "{options}");
        assert_eq!((facts("made").0, facts("made").1), (65534, group), "{options}");
        end(&mount);
    }
}
