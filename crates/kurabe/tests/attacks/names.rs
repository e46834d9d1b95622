//! Names that others can take: in directories that everybody can write, and above kurabe's own.

use std::ffi::CString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

use crate::harness::{NOBODY, Site, root};
use crate::{expect_unharmed, give_to_stranger, ground, precious, proof, secret, theirs};

/// kurabe where `/tmp` and `/dev/shm` are `tmp` and `shm` of the site, so that what appears there
/// is of nobody else; as the stranger where `user` says so.
fn enclosed(site: &Site, user: &str, arguments: &[&str]) -> Command {
    let script = r#"
        exec 9<"$1"; mount --bind "$2/tmp" /tmp; mount --bind "$2/shm" /dev/shm
        user=$3; shift 3
        exec setpriv --reuid "$user" --regid "$user" --clear-groups /proc/self/fd/9 "$@""#;
    for name in ["tmp", "shm"] {
        fs::create_dir(site.home().join(name)).unwrap();
        open_to_all(&site.home().join(name));
    }
    let mut command = site.program("unshare");
    command.args(["--mount", "sh", "-ec", script, "sh", crate::harness::KURABE]);
    command.arg(site.home()).arg(user).args(arguments);
    command
}

/// Everybody's and sticky, as `/tmp` is.
fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o1777)).unwrap();
}

/// Finding 1: whoever can write where kurabe makes a name again can take it in between.
#[test]
fn nothing_appears_where_everybody_can_write() {
    if !root() {
        return;
    }
    let site = ground();
    open_to_all(&site.scratch());
    fs::create_dir(site.work().join("place")).unwrap();
    let study = format!(
        "contenders = ['ext4', 'dir:{}']\ndevice = 'mem:64M'\nruns = 1\nout = 'result'\n\
         idle-wait = '100ms'\ncache = 'warm'\n\
         [[workload]]\ncommand = 'true'\n[[workload]]\ntree = 'synthetic:5'\n",
        site.work().join("place").display()
    );
    fs::write(site.work().join("study.toml"), study).unwrap();
    let command = enclosed(&site, "0", &["run", "study.toml"]);
    let watcher = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    for place in [site.scratch(), site.home().join("tmp"), site.home().join("shm")] {
        let what = WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify::add_watch(&watcher, place, what).unwrap();
    }
    site.finish(command).expect(0);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(&watcher, &mut buffer);
    let mut names = Vec::<CString>::new();
    while let Ok(event) = events.next() {
        names.extend(event.file_name().map(Into::into));
    }
    assert!(names.is_empty(), "{names:?}");
    // Nor can anybody look into what kurabe keeps for itself.
    let own = site.ledger().metadata().unwrap();
    assert_eq!((own.uid(), own.mode() & 0o077), (0, 0), "{own:?}");
}

/// Finding 1 and 2: who can write kurabe's own directory can write its ledger.
#[test]
fn an_own_directory_that_others_can_write_is_not_used() {
    if !root() {
        return;
    }
    type Prepare = fn(&Site);
    let cases: [(&str, Prepare); 4] = [
        ("a stranger's", |site| {
            fs::create_dir(site.ledger()).unwrap();
            give_to_stranger(&site.ledger());
        }),
        ("open to all", |site| {
            fs::create_dir(site.ledger()).unwrap();
            open_to_all(&site.ledger());
        }),
        ("a stranger's link", |site| {
            fs::create_dir(secret(site).join("linked")).unwrap();
            symlink(secret(site).join("linked"), site.ledger()).unwrap();
            give_to_stranger(&site.ledger());
        }),
        ("in a stranger's directory", |site| {
            fs::create_dir_all(theirs(site).join("linked")).unwrap();
            symlink(theirs(site).join("linked"), site.ledger()).unwrap();
        }),
    ];
    let mut used = Vec::new();
    for (case, prepare) in cases {
        let site = ground();
        prepare(&site);
        let command = format!("touch {}", proof(&site).display());
        let ran = site.compare(&["dir:."], &["--cache", "warm"], &[&command]);
        let is_empty = fs::read_dir(site.ledger()).unwrap().next().is_none();
        if ran.code == Some(0) || proof(&site).exists() || !is_empty {
            used.push((case, ran));
        }
    }
    assert!(used.is_empty(), "{used:#?}");
}

/// Finding 12: the next user of `/tmp` could have made it.
#[test]
fn without_a_home_nothing_is_made_in_tmp() {
    if !root() {
        return;
    }
    let site = ground();
    let place = format!("dir:{}", theirs(&site).display());
    let out = theirs(&site).join("result").display().to_string();
    let arguments =
        ["compare", &place, "--runs", "1", "--cache", "warm", "--out", &out, "--", "true"];
    let mut command = enclosed(&site, &NOBODY.to_string(), &arguments);
    for name in ["HOME", "XDG_STATE_HOME", "KURABE_HOME", "KURABE_LEDGER"] {
        command.env_remove(name);
    }
    command.env("TMPDIR", theirs(&site));
    let ran = site.finish(command);
    let made: Vec<_> = fs::read_dir(site.home().join("tmp")).unwrap().flatten().collect();
    assert!(made.is_empty(), "{made:?} of {ran:#?}");
}

/// Finding 5: a link in the working directory leads the result where root alone can write.
#[test]
fn a_strangers_results_directory_is_not_written_to() {
    if !root() {
        return;
    }
    for is_link in [true, false] {
        let site = ground();
        open_to_all(&site.work());
        precious(&site);
        let results = site.work().join("kurabe-results");
        let target = match is_link {
            true => secret(&site),
            false => theirs(&site),
        };
        match is_link {
            true => symlink(&target, &results).unwrap(),
            false => fs::rename(&target, &results).unwrap(),
        }
        give_to_stranger(&results);
        let place = format!("dir:{}", site.scratch().display());
        let arguments = ["compare", &place, "--runs", "1", "--cache", "warm", "--", "true"];
        let ran = site.run(&arguments);
        expect_unharmed(&site, &ran);
        let known = usize::from(is_link);
        assert_eq!(fs::read_dir(results).unwrap().count(), known, "{ran:#?}");
        assert_eq!(ran.code, Some(2), "{ran:#?}");
    }
}
