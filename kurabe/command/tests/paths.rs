//! Paths that the user typed lead to the user's files, whatever the working directory of the trial
//! or of the workload's process is.

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use harness::{Site, root, tool};

const LOAD_FILE: &str = r#"Mkdir "\clients" NT_STATUS_OK
NTCreateX "\clients\a" 0x40 0x2 9938 NT_STATUS_OK
WriteX 9938 0 4096 4096 NT_STATUS_OK
Close 9938 NT_STATUS_OK
Unlink "\clients\a" 0x6 NT_STATUS_OK
"#;

/// A small tarball, a dbench load file, an object program, and a fio job with an include in its
/// directory and one in the working directory, all below the working directory.
fn files(site: &Site) {
    let work = site.work();
    fs::create_dir(work.join("in")).unwrap();
    let write = |name: &str, text: &str| fs::write(work.join(name), text).unwrap();
    write("in/p.obj", "Command { 3.times { New(4K); }; Get; }");
    write("in/smb.loadfile", LOAD_FILE);
    write("in/job.fio", "[a]\nrw=write\nbs=4k\ninclude common.inc\ninclude far.inc\n");
    write("in/common.inc", "size=64k\n");
    write("far.inc", "direct=1\n");
    let made = Command::new("tar")
        .args(["-cf", "in/gnu.tar", "in/p.obj", "in/job.fio"])
        .current_dir(&work)
        .status();
    assert!(made.unwrap().success());
}

#[test]
fn relative_paths_of_workloads_start_from_the_users_directory() {
    if !root() {
        return;
    }
    let site = Site::new();
    files(&site);
    let mut loads = vec![
        vec!["--tree", "in/gnu.tar"],
        vec!["--dbench-replay", "1:in/smb.loadfile", "--time", "1s"],
        vec!["--objects", "./in/p.obj"],
    ];
    if tool("fio").is_some() {
        loads.push(vec!["--fio", "in/job.fio"]);
    }
    for (number, load) in loads.iter().enumerate() {
        let out = number.to_string();
        let flags = [&["--out", &out][..], load].concat();
        site.finish(site.compare_command(
            &["ext4"],
            &[&flags[..], &["--print-plan"]].concat(),
            &[],
        ))
        .expect(0);
        site.finish(site.compare_command(&["ext4"], &flags, &[])).expect(0);
        // As a study file, and resumed from another directory.
        let mut printed =
            site.compare_command(&["ext4"], &[load, &["--print-study"][..]].concat(), &[]);
        let text = printed.output().unwrap().stdout;
        fs::write(site.work().join("s.toml"), text).unwrap();
        let out = format!("study-{number}");
        site.run(&["run", "s.toml", "--out", &out]).expect(0);
        let result = site.work().join(&out).display().to_string();
        let mut resumed = site.kurabe(&["resume", &result, "--more", "1"]);
        resumed.current_dir("/");
        site.finish(resumed).expect(0);
        let records = fs::read_to_string(Path::new(&result).join("records.jsonl")).unwrap();
        assert_eq!(records.matches("\"kind\":\"completed\"").count(), 2, "{load:?}: {records}");
    }
    site.expect_nothing_left();
}

#[test]
fn a_relative_directory_is_the_same_one_for_a_resumed_study() {
    let site = Site::new();
    fs::create_dir(site.work().join("here")).unwrap();
    site.compare(&["dir:here"], &[], &["touch", "x"]).expect(0);
    let result = site.work().join("result").display().to_string();
    let mut resumed = site.kurabe(&["resume", &result, "--more", "1"]);
    resumed.current_dir("/");
    site.finish(resumed).expect(0);
    assert_eq!(site.records().len(), 2);
}

#[test]
fn a_check_runs_where_the_study_was_asked_for() {
    if !root() {
        return;
    }
    let site = Site::new();
    let script = "#!/bin/sh\nread n <$1/n && last=$(tail -n 1 $2) && [ $n -ge ${last:-0} ]\n";
    let path = site.work().join("check.sh");
    let check = ["--durability=4", "--check", "./check.sh"];
    let setup = ["--setup", "echo 0 >n; sync"];
    let load = "for i in 1 2 3; do echo $i >m; sync m; mv m n; sync .; echo $i; done";
    let compare = |out: &str| {
        let flags = [&check[..], &setup, &["--out", out]].concat();
        site.finish(site.compare_command(&["ext4"], &flags, &[load]))
    };
    let refused = compare("none").expect(2);
    let missing = "check: the program './check.sh' is not found";
    assert!(refused.stderr.contains(missing), "{}", refused.stderr);
    assert!(!site.work().join("none").exists());
    fs::write(&path, script).unwrap();
    compare("plain").expect(2).says(&["is not executable; chmod +x"]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = compare("result").expect(0);
    assert!(ran.stdout.contains("durability held (4 of 4)"), "{}", ran.stdout);
    // The power cuts are left to a session that starts elsewhere.
    let records = site.work().join("result/records.jsonl");
    let lines = fs::read_to_string(&records).unwrap();
    let timed: Vec<&str> = lines.lines().filter(|line| !line.contains("power_cuts\":{")).collect();
    fs::write(&records, timed.join("\n") + "\n").unwrap();
    let result = site.work().join("result").display().to_string();
    let mut resumed = site.kurabe(&["resume", &result]);
    resumed.current_dir("/");
    let resumed = site.finish(resumed).expect(0);
    assert!(resumed.stdout.contains("durability held (4 of 4)"), "{}", resumed.stdout);
    site.expect_nothing_left();
}
