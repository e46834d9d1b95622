//! What is read and written, and what of a stranger is refused. Another user's files need root.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use trust::{Directory, LockError, Refused, file, owner};

/// A user who is nobody's caller.
const STRANGER: u32 = 54_321;

struct Ground {
    _temporary: tempfile::TempDir,
    path: PathBuf,
}

impl Ground {
    fn new() -> Ground {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().to_path_buf();
        Ground { _temporary: temporary, path }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn directory(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.path.join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: only root can give a file to another user");
    }
    root
}

fn give_away(path: &Path) {
    std::os::unix::fs::lchown(path, Some(STRANGER), Some(STRANGER)).unwrap();
}

#[test]
fn own_files_are_read_through_own_links() {
    let ground = Ground::new();
    let path = ground.file("study.toml", "text");
    symlink("study.toml", ground.path.join("link")).unwrap();
    symlink(&path, ground.path.join("absolute")).unwrap();
    for name in ["study.toml", "link", "absolute", "../x/../study.toml"] {
        let path = if name.starts_with("..") {
            ground.path.join("x").join(name)
        } else {
            ground.path.join(name)
        };
        fs::create_dir_all(ground.path.join("x")).unwrap();
        assert_eq!(file::read_text(&path).unwrap(), "text", "{name}");
    }
}

#[test]
fn what_is_no_file_or_too_large_is_an_error_at_once() {
    let ground = Ground::new();
    let fifo = ground.path.join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(file::read_text(&fifo)));
    let read = receiver.recv_timeout(Duration::from_secs(20)).expect("a FIFO does not hold it up");
    assert!(matches!(read, Err(Refused::Kind { is: "a FIFO", .. })), "{read:?}");
    let zeros = file::read_text(Path::new("/dev/zero"));
    assert!(matches!(zeros, Err(Refused::Kind { is: "a device", .. })), "{zeros:?}");
    // Regular files by their kind, whose reading waits for the kernel's next message.
    for path in ["/proc/kmsg", "/proc/version", "/sys/kernel/uevent_seqnum"] {
        let read = file::open(Path::new(path));
        let is = "a file that the kernel makes up";
        assert!(matches!(read, Err(Refused::Kind { is: found, .. }) if found == is), "{read:?}");
    }
    let large = ground.file("large", "12345");
    assert!(matches!(file::read(&large, 4), Err(Refused::TooLarge { bytes_max: 4, .. })));
    assert_eq!(file::read(&large, 5).unwrap(), b"12345");
    assert!(file::read_text(&ground.path.join("none")).unwrap_err().is_missing());
}

#[test]
fn a_strangers_file_directory_or_link_is_refused_by_name() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let own = ground.file("own", "text");
    let theirs = ground.file("theirs", "text");
    give_away(&theirs);
    symlink(&own, ground.path.join("their-link")).unwrap();
    give_away(&ground.path.join("their-link"));
    let inside = ground.directory("their-directory", 0o755).join("own");
    fs::write(&inside, "text").unwrap();
    give_away(inside.parent().unwrap());
    for (path, named) in [
        (&theirs, "theirs"),
        (&ground.path.join("their-link"), "their-link"),
        (&inside, "their-directory"),
    ] {
        let refused = file::read_text(path).unwrap_err();
        let text = refused.to_string();
        assert!(matches!(refused, Refused::Stranger { .. }), "{text}");
        assert!(text.contains(named) && text.contains("--trust 54321"), "{text}");
    }
    assert_eq!(file::read_text(&own).unwrap(), "text");
}

#[test]
fn what_others_can_write_is_refused_unless_its_directory_is_sticky() {
    let ground = Ground::new();
    let open = ground.file("open", "text");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
    let inside = |name, mode| {
        let path = ground.directory(name, mode).join("own");
        fs::write(&path, "text").unwrap();
        path
    };
    let in_open = inside("open-directory", 0o777);
    let in_sticky = inside("sticky-directory", 0o1777);
    for path in [&open, &in_open] {
        let refused = file::read_text(path).unwrap_err();
        assert!(matches!(refused, Refused::Writable { .. }), "{refused}");
    }
    assert_eq!(file::read_text(&in_sticky).unwrap(), "text");
    // A result directory is written to: there sticky does not help, names can be taken first.
    let sticky = Directory::open(in_sticky.parent().unwrap());
    assert!(matches!(sticky, Err(Refused::Writable { .. })));
    // A new name of 64 random bits, or none, nobody else can touch there.
    Directory::open_shared(in_sticky.parent().unwrap()).unwrap();
    let open = Directory::open_shared(in_open.parent().unwrap());
    assert!(matches!(open, Err(Refused::Writable { .. })));
    assert!(matches!(Directory::open_shared(&in_sticky), Err(Refused::Kind { .. })));
}

#[test]
fn a_group_with_others_in_it_counts_as_others() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let file = ground.file("shared", "text");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
    assert_eq!(file::read_text(&file).unwrap(), "text", "root's own group");
    chown(&file, None, Some(STRANGER)).unwrap();
    assert!(matches!(file::read_text(&file), Err(Refused::Writable { .. })), "an unknown group");
}

/// Says to a copy of this program in which file's place a group is asked for.
const ASKED: &str = "KURABE_TEST_GROUP_FILE";

/// With other users and groups in `/etc`, in a mount namespace of a copy of this program.
#[test]
fn a_group_is_who_is_in_it_and_not_its_number() {
    const NAME: &str = "a_group_is_who_is_in_it_and_not_its_number";
    if let Some(file) = std::env::var_os(ASKED) {
        owner::trust(&["1000".into()]).unwrap();
        println!("{}", if file::read_text(Path::new(&file)).is_ok() { "read" } else { "refused" });
        return;
    }
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let shared = ground.file("shared", "text");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o664)).unwrap();
    chown(&shared, Some(1000), Some(1000)).unwrap();
    let root = "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n";
    let by_primary = "bob:x:1001:1000::/:/bin/sh\n";
    let listed = "bob:x:1001:1001::/:/bin/sh\n";
    for (bob, group, expected) in [
        ("", "alice:x:1000:", "read"),
        ("", "alice:x:1000:alice,root", "read"),
        (listed, "alice:x:1000:", "read"),
        (listed, "alice:x:1000:bob", "refused"),
        (by_primary, "alice:x:1000:", "refused"),
        ("", "alice:x:1000:ghost", "refused"),
        ("", "other:x:1001:", "refused"),
    ] {
        let users = ground.file("passwd", &format!("{root}{bob}"));
        let groups = ground.file("group", &format!("root:x:0:\n{group}\n"));
        let script = "mount --bind \"$1\" /etc/passwd && mount --bind \"$2\" /etc/group && exec \"$3\" --exact \"$4\" --nocapture";
        let output = std::process::Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .args([&users, &groups, &std::env::current_exe().unwrap()])
            .arg(NAME)
            .env(ASKED, &shared)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.lines().any(|line| line.ends_with(expected)), "{bob}{group}: {text}");
    }
}

#[test]
fn a_directory_never_reads_or_writes_through_a_link() {
    let ground = Ground::new();
    let precious = ground.file("precious", "precious");
    let path = ground.directory("result", 0o755);
    let directory = Directory::open(&path).unwrap();
    symlink(&precious, path.join("plan.json")).unwrap();
    assert!(matches!(directory.read_text("plan.json"), Err(Refused::Kind { .. })));
    assert!(matches!(directory.append_file("plan.json"), Err(Refused::Kind { .. })));
    assert!(directory.create_file("plan.json", 0o600).is_err());
    directory.replace("plan.json", b"new", 0o644).unwrap();
    assert_eq!(directory.read_text("plan.json").unwrap(), "new");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert_eq!(directory.names().unwrap(), ["plan.json"]);
}

/// Says to a copy of this program where it is to make a directory without a free descriptor.
const WITHOUT_DESCRIPTORS: &str = "KURABE_TEST_WITHOUT_DESCRIPTORS";

#[test]
fn a_directory_that_cannot_be_opened_is_not_made() {
    const NAME: &str = "a_directory_that_cannot_be_opened_is_not_made";
    if let Some(path) = std::env::var_os(WITHOUT_DESCRIPTORS) {
        let directory = Directory::open(Path::new(&path)).unwrap();
        let all: Vec<fs::File> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        let made = directory.make_directory("new", 0o700);
        drop(all);
        assert!(made.unwrap_err().to_string().contains("Too many open files"));
        assert_eq!(directory.names().unwrap(), [] as [&str; 0]);
        return;
    }
    let ground = Ground::new();
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(WITHOUT_DESCRIPTORS, ground.directory("above", 0o755))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_directory_is_the_one_that_was_opened() {
    let ground = Ground::new();
    let path = ground.directory("result", 0o755);
    let directory = Directory::open(&path).unwrap();
    fs::rename(&path, ground.path.join("moved")).unwrap();
    ground.directory("result", 0o755);
    directory.replace("file", b"text", 0o644).unwrap();
    assert!(ground.path.join("moved/file").is_file() && !path.join("file").exists());
}

#[test]
fn a_tree_is_removed_without_leaving_its_ground() {
    let ground = Ground::new();
    let precious = ground.directory("precious", 0o755);
    fs::write(precious.join("file"), "x").unwrap();
    let directory = Directory::open(&ground.path).unwrap();
    let scratch = directory.make_directory("scratch", 0o700).unwrap();
    scratch.make_directory("deep", 0o700).unwrap().create_file("file", 0o600).unwrap();
    symlink(&precious, scratch.path().join("link")).unwrap();
    directory.remove_tree("scratch").unwrap();
    assert_eq!(directory.names().unwrap(), ["precious"]);
    assert!(precious.join("file").is_file());
}

#[test]
fn a_private_directory_is_made_private_and_must_stay_so() {
    let ground = Ground::new();
    let path = ground.path.join("deep/own");
    let own = Directory::private(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    drop(own);
    let sticky = ground.directory("sticky-directory", 0o1777);
    assert_eq!(Directory::private(&sticky.join("own")).unwrap().path(), sticky.join("own"));
    let open = ground.directory("open-directory", 0o777);
    assert!(matches!(Directory::private(&open.join("own")), Err(Refused::Writable { .. })));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = Directory::private(&path).unwrap_err().to_string();
    assert!(refused.contains("chmod 700"), "{refused}");
}

#[test]
fn a_lock_is_held_once_and_names_its_holder() {
    let ground = Ground::new();
    let directory = Directory::open(&ground.path).unwrap();
    let lock = directory.lock("device-8:16").unwrap();
    // A lock belongs to an open file, so that the same process is refused too.
    let refused = directory.lock("device-8:16").unwrap_err();
    let own = std::process::id();
    assert!(matches!(refused, LockError::Held { pid } if pid == own), "{refused}");
    drop(lock);
    directory.lock("device-8:16").unwrap();
}

#[test]
fn a_nameless_file_leaves_no_name() {
    let ground = Ground::new();
    let directory = Directory::open(&ground.path).unwrap();
    let file = directory.nameless_file().unwrap();
    file.set_len(4096).unwrap();
    // Through its descriptor a file can be given a name, unless it was made to have none for ever.
    let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    let name = ground.path.join("name");
    rustix::fs::linkat(rustix::fs::CWD, descriptor, rustix::fs::CWD, name, follow).unwrap_err();
    assert!(directory.names().unwrap().is_empty());
}

#[test]
fn named_files_are_replaced_and_never_written_through() {
    let ground = Ground::new();
    let precious = ground.file("precious", "precious");
    let target = ground.path.join("target");
    symlink(&precious, &target).unwrap();
    file::write(&target, b"new").unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(!target.is_symlink());
    std::io::Write::write_all(&mut file::append(&target).unwrap(), b"er").unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "newer");
    file::write(Path::new("/dev/null"), b"nothing").unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    for wrong in [Path::new("/dev/zero"), Path::new("/"), &ground.path] {
        assert!(matches!(file::check_target(wrong), Err(Refused::Kind { .. })), "{wrong:?}");
    }
    assert!(file::check_target(&ground.path.join("absent/x")).unwrap_err().is_missing());
    if is_root() {
        give_away(&target);
        assert!(matches!(file::write(&target, b""), Err(Refused::Stranger { .. })));
        assert_eq!(file::read_text_of_anybody(&target).unwrap(), "newer");
    }
}

#[test]
fn links_of_processes_are_refused_and_not_resolved() {
    let ground = Ground::new();
    let opened = fs::File::open(&ground.path).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&opened);
    let process = std::process::id();
    for path in [format!("/proc/self/fd/{number}"), format!("/proc/{process}/root/tmp")] {
        let refused = Directory::open_shared(Path::new(&path)).unwrap_err().to_string();
        assert!(refused.contains("a link into what a process has open"), "{refused}");
    }
}

#[test]
fn a_directory_is_made_in_a_sticky_one_and_used_in_none_that_others_write() {
    let ground = Ground::new();
    let sticky = ground.directory("sticky", 0o1777);
    Directory::open_or_make(&sticky.join("a/b"), 0o755).unwrap();
    assert!(Directory::open_shared(&sticky).is_ok());
    assert!(matches!(Directory::open(&sticky), Err(Refused::Writable { .. })));
    let open = ground.directory("open", 0o777);
    for refused in [
        Directory::open_or_make(&open.join("a"), 0o755).unwrap_err(),
        Directory::open_shared(&open).unwrap_err(),
    ] {
        assert!(matches!(refused, Refused::Writable { .. }), "{refused}");
    }
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
}

/// Behind an access control list the bits of the group are its mask: whom it lets write is not
/// told by the group's number.
#[test]
fn a_list_that_lets_somebody_write_is_not_hidden_by_an_own_group() {
    let ground = Ground::new();
    let file = ground.file("listed", "text");
    // As setfacl -m u:54321:rw would write it: version 2; user, named user, group, mask, others.
    let entries: [(u16, u16, u32); 5] = [
        (1, 6, u32::MAX),
        (2, 6, STRANGER),
        (4, 4, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 4, u32::MAX),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&file, "system.posix_acl_access", &list, flags).is_err() {
        eprintln!("SKIPPED: the file system of {} knows no access control lists", file.display());
        return;
    }
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o664);
    assert!(matches!(file::read_text(&file), Err(Refused::Writable { .. })));
}

#[test]
fn a_file_on_a_read_only_file_system_is_refused_before_it_is_written() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let target = home.path().join("file");
    trust::file::check_target(&target).unwrap();
    if let Err(error) = mount("test", home.path(), "tmpfs", MountFlags::RDONLY, None) {
        eprintln!("SKIPPED: mounting needs root ({error})");
        return;
    }
    let checked = trust::file::check_target(&target);
    unmount(home.path(), UnmountFlags::DETACH).unwrap();
    assert!(checked.unwrap_err().to_string().contains("Read-only"));
}
