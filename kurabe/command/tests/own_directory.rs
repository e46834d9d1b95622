//! Nothing that somebody else can reach is believed: what kurabe takes and writes lies in its own
//! directory, and what a stranger puts where kurabe might look is left alone.

mod harness;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{NOBODY, Site, root, signal, wait_until};
use rustix::process::Signal;

/// Lines of a ledger whose owner is gone.
fn forged_ledger(parent: &Path) -> String {
    let parent = parent.display();
    [
        r#"{"owner":{"pid":4294967295,"start_ticks":1,"boot":"none"}}"#.to_string(),
        format!(r#"{{"take":{{"id":0,"what":{{"kind":"scratch","path":"{parent}/kurabe-precious"}}}}}}"#),
        format!(r#"{{"take":{{"id":1,"what":{{"kind":"image","path":"{parent}/kurabe-precious.img"}}}}}}"#),
        r#"{"take":{"id":2,"what":{"kind":"scratch","name":"kurabe-../../kurabe-precious"}}}"#.into(),
        format!(
            r#"{{"take":{{"id":3,"what":{{"kind":"subdirectory","parent":"{parent}","name":"kurabe-precious"}}}}}}"#
        ),
    ]
    .map(|line| line + "\n")
    .concat()
}

/// What nobody may touch: a directory and an image of names that kurabe could have given.
struct Precious(PathBuf);

impl Precious {
    fn in_site(site: &Site) -> Precious {
        let parent = site.home().join("private");
        fs::create_dir_all(parent.join("kurabe-precious/deep")).unwrap();
        fs::write(parent.join("kurabe-precious.img"), "x").unwrap();
        Precious(parent)
    }

    #[track_caller]
    fn expect_there(&self) {
        assert!(self.0.join("kurabe-precious/deep").is_dir());
        assert!(self.0.join("kurabe-precious.img").is_file());
    }
}

/// A directory of `nobody`'s that looks like the scratch directory of a trial that died.
fn plant(place: &Path, ledger: &str) -> PathBuf {
    let scratch = place.join("kurabe-1-0123456789abcdef");
    fs::create_dir_all(&scratch).unwrap();
    fs::write(scratch.join("taken-kurabe-1-0.jsonl"), ledger).unwrap();
    for path in [scratch.clone(), scratch.join("taken-kurabe-1-0.jsonl")] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    scratch
}

#[test]
fn forged_ledgers_are_obeyed_nowhere() {
    if !root() {
        return;
    }
    let site = Site::new();
    let precious = Precious::in_site(&site);
    let text = forged_ledger(&precious.0);
    fs::set_permissions(site.temporary(), fs::Permissions::from_mode(0o1777)).unwrap();
    // In the directory for everybody's temporary files, under every name that kurabe has used.
    let planted = plant(&site.temporary(), &text);
    fs::create_dir(site.temporary().join("ledger")).unwrap();
    fs::write(site.temporary().join("ledger/kurabe-1-0.jsonl"), &text).unwrap();
    let untouched = || {
        let next = ["compare", "dir:/dev/shm", "--runs", "1", "--out", "next", "--", "true"];
        let ran = site.run(&next).expect(0);
        assert!(!ran.stderr.contains("left by an earlier session"), "{}", ran.stderr);
        fs::remove_dir_all(site.work().join("next")).unwrap();
        let clean = site.run(&["clean"]).expect(0);
        assert_eq!(clean.stdout, "nothing was left behind\n");
        precious.expect_there();
        assert!(planted.join("taken-kurabe-1-0.jsonl").is_file());
    };
    untouched();
    // A link to them in kurabe's own directory is not followed.
    fs::create_dir_all(site.ledger()).unwrap();
    fs::set_permissions(site.ledger(), fs::Permissions::from_mode(0o700)).unwrap();
    let link = site.ledger().join("kurabe-1-0.jsonl");
    std::os::unix::fs::symlink(site.temporary().join("ledger/kurabe-1-0.jsonl"), &link).unwrap();
    site.run(&["clean"]).expect(1).says(&["is a symbolic link"]);
    precious.expect_there();
    fs::remove_file(link).unwrap();
    untouched();
    // Nor is a scratch directory that the dead one left believed once it is another user's.
    let again = plant(&site.own(), &text);
    let left = forged_ledger(&precious.0).lines().next().unwrap().to_string()
        + "\n{\"take\":{\"id\":0,\"what\":{\"kind\":\"scratch\",\"name\":\"kurabe-1-0123456789abcdef\"}}}\n";
    let ledger = site.ledger().join("kurabe-1-0.jsonl");
    fs::write(&ledger, left).unwrap();
    site.run(&["clean"]).expect(1).says(&["belongs to user"]);
    precious.expect_there();
    chown(&again, Some(0), Some(0)).unwrap();
    site.run(&["clean"]).expect(1).says(&["belongs to user"]);
    precious.expect_there();
    fs::remove_file(again.join("taken-kurabe-1-0.jsonl")).unwrap();
    site.run(&["clean"]).expect(0);
    assert!(!again.exists() && !ledger.exists());
    // An own directory that is another user's is nobody's own.
    let theirs = site.home().join("theirs");
    fs::create_dir_all(theirs.join("ledger")).unwrap();
    fs::write(theirs.join("ledger/kurabe-1-0.jsonl"), &text).unwrap();
    for path in [theirs.join("ledger"), theirs.clone()] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for arguments in
        [&["clean"][..], &["compare", "dir:/dev/shm", "--runs", "1", "--out", "new", "--", "true"]]
    {
        let mut command = site.kurabe(arguments);
        command.env("KURABE_HOME", &theirs);
        let ran = site.finish(command);
        assert!(ran.code != Some(0) && ran.stderr.contains("belongs to user"), "{ran:?}");
    }
    precious.expect_there();
    assert!(!site.work().join("new").exists());
    fs::remove_dir_all(site.temporary()).unwrap();
    site.expect_nothing_left();
}

/// What a trial's command sees of kurabe: no ledger, no other trial, no descriptor, and nothing in
/// a place that everybody can write.
#[test]
fn a_command_finds_its_room_and_nothing_else() {
    if !root() {
        return;
    }
    let site = Site::new();
    let seen = site.home().join("seen");
    let inherited = site.home().join("inherited");
    fs::write(&inherited, "").unwrap();
    let command = format!(
        "{{ find $KURABE_HOME $TMPDIR; readlink /proc/$$/fd/*; }} >{0}.new; mv {0}.new {0}",
        seen.display()
    );
    let mut compare = vec!["compare", "ext4", "--device", "mem:64M", "--runs", "1"];
    compare.extend(["--idle-wait", "50ms", "--out", "result", "--", &command]);
    // Whoever starts kurabe may have something open and not know it.
    let mut shell = site.program("sh");
    let script = format!("exec 7<{}; exec \"$0\" \"$@\"", inherited.display());
    shell.args(["-c", &script, harness::KURABE]).args(&compare);
    site.finish(shell).expect(0);
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.contains("/work/mount"), "{seen}");
    assert!(!seen.contains("ledger") && !seen.contains("jsonl"), "{seen}");
    assert!(!seen.contains("inherited"), "{seen}");
    let in_home = seen.lines().filter(|line| line.starts_with(&site.own().display().to_string()));
    // The mount, and the node of the trial's own device.
    let of_trial =
        |line: &&str| ["/work/mount", "/work/devices"].iter().any(|own| line.contains(own));
    let names: Vec<&str> = in_home.filter(|line| !of_trial(line)).collect();
    assert_eq!(names.len(), 3, "itself, the trial's directory and the room: {names:?}");
    site.expect_nothing_left();
}

/// A trial's directory is new in every trial, private, and gone after it.
#[test]
fn every_trial_has_a_directory_of_its_own() {
    let site = Site::new();
    let seen = site.home().join("seen");
    let command = format!("ls -lA $KURABE_HOME | grep kurabe- >>{}", seen.display());
    site.compare(&["dir:/dev/shm"], &["--runs", "3"], &[&command]).expect(0);
    let seen = fs::read_to_string(seen).unwrap();
    let mut names: Vec<&str> = seen.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert!(seen.lines().all(|line| line.starts_with("drwx------")), "{seen}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 3, "{seen}");
    site.expect_nothing_left();
}

/// With neither root's place nor a home there is nowhere that nobody else can reach.
#[test]
fn without_a_home_nothing_is_begun() {
    if !root() {
        return;
    }
    let site = Site::new();
    let program = site.home().join("kurabe");
    harness::copy_program(harness::KURABE, &program);
    chown(site.work(), Some(NOBODY), Some(NOBODY)).unwrap();
    let number = NOBODY.to_string();
    let mut command = site.program("setpriv");
    command.args([&format!("--reuid={number}"), &format!("--regid={number}"), "--clear-groups"]);
    command.arg(program).args(["compare", "dir:/dev/shm", "--out", "new/result", "--", "true"]);
    for name in ["KURABE_HOME", "HOME", "XDG_STATE_HOME"] {
        command.env_remove(name);
    }
    site.finish(command).expect(2).says(&["KURABE_HOME", "HOME", "name a directory of your own"]);
    site.expect_untouched(&[]);
}

/// A directory that others can change would lead a trial to wherever they like.
/// Whoever runs out of descriptors half-way cannot give everything back.
#[test]
fn without_descriptors_nothing_is_begun() {
    if !root() {
        return;
    }
    let site = Site::new();
    let place = site.work().join("place");
    fs::create_dir(&place).unwrap();
    let contender = format!("dir:{}", place.display());
    for (descriptors, code) in [(8, 2), (12, 2), (40, 2), (127, 2), (128, 0)] {
        let kurabe = site.compare_command(&[&contender], &["--runs", "1"], &["true"]);
        let mut bounded = site.program("sh");
        bounded.args(["-c", &format!("ulimit -n {descriptors}; exec \"$@\""), "sh"]);
        bounded.arg(kurabe.get_program()).args(kurabe.get_args());
        bounded.current_dir(site.work());
        let ran = site.finish(bounded).expect(code);
        if code == 2 {
            ran.says(&[&format!("only {descriptors} files may be open"), "ulimit -n 1024"]);
            site.expect_untouched(&["place"]);
        }
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{descriptors}");
    }
    site.expect_nothing_left();
}

#[test]
fn where_nothing_can_be_noted_nothing_is_made() {
    if !root() {
        return;
    }
    let site = Site::new();
    let own = site.own().display().to_string();
    let kurabe = site.compare_command(&["dir:/tmp"], &["--runs", "1"], &["true"]);
    let mut alone = site.program("unshare");
    let script = "own=$1; shift; mount --bind \"$own\" \"$own\" && mount -o remount,bind,ro \"$own\" && exec \"$@\"";
    alone.args(["--mount", "sh", "-c", script, "sh", &own]);
    alone.arg(kurabe.get_program()).args(kurabe.get_args());
    alone.current_dir(site.work());
    site.finish(alone).expect(2).says(&["ledger", &own, "Read-only file system", "KURABE_HOME"]);
    site.expect_untouched(&[]);
}

#[test]
fn a_contender_in_a_strangers_directory_is_refused() {
    if !root() {
        return;
    }
    let site = Site::new();
    let theirs = site.home().join("theirs");
    fs::create_dir(&theirs).unwrap();
    let compare = || {
        let contender = format!("dir:{}", theirs.display());
        site.run(&["compare", &contender, "--out", "result", "--", "true"]).expect(2)
    };
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).unwrap();
    compare().says(&["theirs can be written by other users", "chmod go-w"]);
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o755)).unwrap();
    chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    compare().says(&["theirs belongs to user"]);
    site.expect_untouched(&[]);
}

/// Whoever locks what can be locked from outside makes a cleaning wait for nothing.
#[test]
fn a_strangers_lock_delays_no_cleaning() {
    if !root() {
        return;
    }
    let site = Site::new();
    let running = site.start(site.compare_command(&["ext4"], &[], &["sleep 1000"]));
    wait_until("the command runs", || {
        site.taken().iter().any(|taken| taken.starts_with("process sleep"))
    });
    let mut scratch = fs::read_dir(site.own()).unwrap().flatten().map(|entry| entry.path());
    let scratch = scratch.find(|path| *path != site.ledger()).unwrap();
    let mut lock = site.program("setpriv");
    let number = NOBODY.to_string();
    lock.args([&format!("--reuid={number}"), &format!("--regid={number}"), "--clear-groups"]);
    lock.args(["flock", "--shared"]).arg(&scratch).args(["sleep", "100"]);
    let ran = site.finish(lock);
    assert!(ran.code != Some(0) && ran.stderr.contains("Permission denied"), "{ran:?}");
    signal(running.number(), Signal::KILL);
    running.reap();
    let ran = site.run(&["clean"]).expect(0);
    assert!(ran.elapsed < Duration::from_secs(30), "{:?}", ran.elapsed);
    site.expect_nothing_left();
}
