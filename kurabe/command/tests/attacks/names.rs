//! Names that others can take: in directories that everybody can write, and above kurabe's own.

use std::ffi::CString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

use crate::harness::{NOBODY, Site};
use crate::{
    Holder, expect_unharmed, give_to_stranger, ground, own, precious, proof, secret, stranger,
    temporary, theirs,
};

/// What `/dev/shm` is for an [`enclosed`] kurabe.
fn shared_memory(site: &Site) -> PathBuf {
    site.home().join("shm")
}

/// kurabe where `/tmp` and `/dev/shm` are directories of the site, so that what appears there
/// is of nobody else; as the stranger where `user` says so.
fn enclosed(site: &Site, user: &str, arguments: &[&str]) -> Command {
    let script = r#"
        exec 9<"$1"; mount --bind "$2" /tmp; mount --bind "$3" /dev/shm
        user=$4; shift 4
        exec setpriv --reuid "$user" --regid "$user" --clear-groups /proc/self/fd/9 "$@""#;
    fs::create_dir(shared_memory(site)).unwrap();
    for place in [temporary(site), shared_memory(site)] {
        open_to_all(&place);
    }
    let mut command = site.program("unshare");
    command.args(["--mount", "sh", "-ec", script, "sh", crate::harness::KURABE]);
    command.args([temporary(site), shared_memory(site)]).arg(user).args(arguments);
    command
}

/// Everybody's and sticky, as `/tmp` is.
fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o1777)).unwrap();
}

/// Finding 1: whoever can write where kurabe makes a name again can take it in between.
#[test]
fn nothing_appears_where_everybody_can_write() {
    let Some(site) = ground() else { return };
    let _ = fs::remove_dir(own(&site));
    fs::create_dir(site.work().join("place")).unwrap();
    let study = format!(
        "contenders = ['ext4', 'dir:{}']\ndevice = 'mem:64M'\nruns = 1\n\
         idle-wait = '100ms'\ncache = 'warm'\n\
         [[workload]]\ncommand = 'true'\n[[workload]]\ntree = 'synthetic:5'\n",
        site.work().join("place").display()
    );
    fs::write(site.work().join("study.toml"), study).unwrap();
    let command = enclosed(&site, "0", &["run", "study.toml", "--out", "result"]);
    let watcher = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    for place in [temporary(&site), shared_memory(&site)] {
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
    let own = own(&site).metadata().unwrap();
    assert_eq!((own.uid(), own.mode() & 0o077), (0, 0), "{own:?}");
}

/// Finding 1 and 2: who can write kurabe's own directory can write its ledger.
#[test]
fn an_own_directory_that_others_can_write_is_not_used() {
    type Prepare = fn(&Site);
    let cases: [(&str, Prepare); 4] = [
        ("a stranger's", |site| {
            fs::create_dir(own(site)).unwrap();
            give_to_stranger(&own(site));
        }),
        ("open to all", |site| {
            fs::create_dir(own(site)).unwrap();
            open_to_all(&own(site));
        }),
        ("a stranger's link", |site| {
            fs::create_dir(secret(site).join("linked")).unwrap();
            symlink(secret(site).join("linked"), own(site)).unwrap();
            give_to_stranger(&own(site));
        }),
        ("in a stranger's directory", |site| {
            fs::create_dir_all(theirs(site).join("linked")).unwrap();
            symlink(theirs(site).join("linked"), own(site)).unwrap();
        }),
    ];
    let mut used = Vec::new();
    for (case, prepare) in cases {
        let Some(site) = ground() else { return };
        let _ = fs::remove_dir(own(&site));
        prepare(&site);
        let command = format!("touch {}", proof(&site).display());
        let ran = site.compare(&["dir:."], &["--cache", "warm"], &[&command]);
        let is_empty = fs::read_dir(own(&site)).unwrap().next().is_none();
        if ran.code == Some(0) || proof(&site).exists() || !is_empty {
            used.push((case, ran));
        }
    }
    assert!(used.is_empty(), "{used:#?}");
}

/// Finding 12: the next user of `/tmp` could have made it.
#[test]
fn without_a_home_nothing_is_made_in_tmp() {
    let Some(site) = ground() else { return };
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
    let made: Vec<_> = fs::read_dir(temporary(&site)).unwrap().flatten().collect();
    assert!(made.is_empty(), "{made:?} of {ran:#?}");
}

/// Finding 5: a link in the working directory leads the result where root alone can write.
#[test]
fn a_strangers_results_directory_is_not_written_to() {
    for is_link in [true, false] {
        let Some(site) = ground() else { return };
        open_to_all(&site.work());
        precious(&site);
        let results = site.work().join("kurabe-results");
        let target = if is_link { secret(&site) } else { theirs(&site) };
        if is_link {
            symlink(&target, &results).unwrap()
        } else {
            fs::rename(&target, &results).unwrap()
        }
        give_to_stranger(&results);
        let place = format!("dir:{}", temporary(&site).display());
        let arguments = ["compare", &place, "--runs", "1", "--cache", "warm", "--", "true"];
        let ran = site.run(&arguments);
        expect_unharmed(&site, &ran);
        let known = usize::from(is_link);
        assert_eq!(fs::read_dir(results).unwrap().count(), known, "{ran:#?}");
        assert_eq!(ran.code, Some(2), "{ran:#?}");
    }
}

/// Found later: fio looks for a file there, and gives no figures when it finds one; the trial counted
/// as completed without any.
#[test]
fn a_file_of_a_strangers_takes_no_figures_from_a_workload() {
    let Some(site) = ground() else { return };
    if Command::new("fio").arg("--version").output().is_err() {
        eprintln!("SKIPPED: fio is not installed");
        return;
    }
    open_to_all(&temporary(&site));
    let script = "while :; do : >\"$0/fio-dump-status\"; sleep 0.05; done 2>/dev/null";
    let mut endless = stranger(script);
    let _stranger = Holder(endless.arg(temporary(&site)).process_group(0).spawn().unwrap());
    let place = format!("dir:{}", site.work().display());
    let job = "rw=read bs=4k size=1m time_based runtime=1";
    let flags = ["--cache", "warm", "--runs", "1", "--out", "result", "--fio", job];
    site.run(&[&["compare", &place], &flags[..]].concat());
    let record = &site.records()[0];
    let has_figures = record["load"]["metrics"].as_array().is_some_and(|all| !all.is_empty());
    assert!(has_figures || record["outcome"]["kind"] != "completed", "{record:#?}");
}
