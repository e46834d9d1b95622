//! What a workload makes for somebody else, and what it reaches by system calls that know no directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::harness::{Site, tool, wait_until};
use crate::hidden::prerun;
use crate::{ground, ground_of_disks};

/// A job of fio's that runs a script first.
fn job(site: &Site, script: &str) {
    let text = format!("[a]\nsize=64k\nrw=write\nbs=4k\n{}\n", prerun(script));
    fs::write(site.work().join("job.fio"), text).unwrap();
}

/// Files of this name below a directory, as root sees them.
fn named(below: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .flat_map(|path| if path.is_dir() { named(&path, name) } else { vec![path] })
        .filter(|path| path.file_name().is_some_and(|its| its == name))
        .collect()
}

/// A job gives its directory to everybody and leaves a program there that runs with its rights.
#[test]
fn nobody_else_gets_at_what_a_job_makes() {
    for flags in [&[][..], &["--user", "daemon"]] {
        let Some(site) = ground() else { return };
        if tool("fio").is_none() {
            eprintln!("SKIPPED: fio is not installed");
            return;
        }
        job(
            &site,
            "cd $KURABE_DIR; [ -e was ] && exit 0; touch was; cp /bin/sh shell; chmod 6755 shell; chmod 777 .; touch ready\n\
             for i in $(seq 600); do [ -e ready ] || break; sleep 0.1; done; rm shell; chmod 700 .",
        );
        let place = site.home().join("place");
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        let contender = format!("dir:{}", place.display());
        let all = ["compare", &contender, "--cache", "warm", "--runs", "1", "--fio", "job.fio"];
        let mut running = site.start(site.kurabe(&[&all, flags].concat()));
        wait_until("the job's script to be there", || {
            assert!(!running.has_ended());
            named(&place, "ready").len() == 1
        });
        let shell = named(&place, "shell").remove(0);
        assert_eq!(fs::metadata(&shell).unwrap().permissions().mode() & 0o6777, 0o6755);
        let script = "\"$1\" -c true && echo ran; find \"$2\" -perm -4000; true";
        let output = crate::stranger(script).arg("sh").arg(&shell).arg(&place).output().unwrap();
        fs::remove_file(shell.with_file_name("ready")).unwrap();
        running.finish().expect(0);
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(found, "", "{flags:?}: a stranger got at {}", shell.display());
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    }
}

/// The loop device of the contender is told to show other bytes of its file.
#[test]
fn a_job_does_not_set_up_its_device_anew() {
    let Some(site) = ground_of_disks() else { return };
    if tool("fio").is_none() || tool("perl").is_none() {
        eprintln!("SKIPPED: fio or perl is not installed");
        return;
    }
    // The job fails where a device could be set up anew, and where none was found. find(1) believes the directory,
    // which does not know that a device is mounted on its file.
    job(
        &site,
        "find / -path /proc -prune -o -path /sys -prune -o -print 2>/dev/null | perl -ne 'chomp; next unless -b; open(F, \"+<\", $_) or next; $tried++; \
         $set = \"\\0\" x 232; exit 9 if ioctl(F, 0x4c04, $set); END { $? ||= !$tried }' || \
         for own in /proc/[0-9]*; do grep -q fio $own/comm && kill -9 ${own#/proc/}; done",
    );
    let flags = ["--cache", "warm", "--runs", "1", "--device", "loop:64M", "--idle-wait", "100ms"];
    site.run(&[&["compare", "raw"], &flags[..], &["--fio", "job.fio"]].concat()).expect(0);
}

/// A key of root's session, which a workload of another user's inherits like a descriptor.
#[test]
fn a_workload_of_a_user_has_none_of_roots_keys() {
    let Some(site) = ground() else { return };
    if tool("perl").is_none() {
        eprintln!("SKIPPED: perl is not installed");
        return;
    }
    let call = if cfg!(target_arch = "x86_64") { 250 } else { 219 };
    // The number of the session keyring. That of kurabe, made for this test, is written first.
    let number = format!("print syscall({call}, 0, -3, 0), \"\\n\"");
    let (ours, theirs) = (site.home().join("ours"), site.home().join("output"));
    let begin = format!(
        "syscall({call}, 1, 0); open(O, \">\", shift); select(O); {number}; close(O); exec(@ARGV)"
    );
    let mut started = site.program("perl");
    started.args(["-e", &begin]).arg(&ours).arg(crate::harness::KURABE).arg("compare");
    started.arg(format!("dir:{}", site.home().display()));
    started.args(["--user", "nobody", "--runs", "1", "--cache", "warm", "--output"]).arg(&theirs);
    started.args(["--", "perl", "-e", &number]);
    site.finish(started).expect(0);
    let number = |path: &Path| fs::read_to_string(path).unwrap().trim().to_string();
    let (ours, theirs) = (number(&ours), number(&theirs));
    if ours == "-1" {
        eprintln!("SKIPPED: this kernel has no keys");
        return;
    }
    assert!(theirs.parse::<i64>().is_ok_and(|number| number > 0), "{theirs}");
    assert_ne!(ours, theirs);
}
