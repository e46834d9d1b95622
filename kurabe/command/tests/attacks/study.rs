//! Study files that somebody else wrote.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::harness::NOBODY;
use crate::{
    Disk, expect_unharmed, give_to_stranger, ground, ground_of_disks, precious, proof, theirs,
};

/// Finding 6: a colleague's sdb is not yours.
#[test]
fn a_permission_in_the_file_destroys_nothing() {
    let Some(site) = ground_of_disks() else { return };
    let disk = Disk::formatted(&site, "disk");
    let uuid = disk.uuid();
    let study = format!(
        "contenders = ['ext4']\ndevice = '{}'\ndestroy = '{}:ext4'\nruns = 1\n[[workload]]\ncommand = 'true'\n",
        disk.text(),
        disk.name()
    );
    fs::write(site.work().join("study.toml"), study).unwrap();
    let ran = site.run(&["run", "study.toml", "--out", "result"]);
    assert_eq!(disk.uuid(), uuid, "{ran:#?}");
    ran.expect(2);
}

/// Finding 6: its commands are not run.
#[test]
fn a_strangers_study_is_not_carried_out() {
    let Some(site) = ground() else { return };
    let study = format!(
        "contenders = ['dir:.']\nruns = 1\ncache = 'warm'\n[[workload]]\ncommand = 'touch {}'\n",
        proof(&site).display()
    );
    let path = theirs(&site).join("study.toml");
    fs::write(&path, study).unwrap();
    give_to_stranger(&path);
    let path = path.display().to_string();
    let ran = site.run(&["run", &path, "--out", "result"]);
    expect_unharmed(&site, &ran);
    ran.expect(2);
    // The way to allow it is there, and then it is carried out.
    let trusted = site.run(&["run", &path, "--out", "result", "--trust", &NOBODY.to_string()]);
    assert!(proof(&site).exists(), "{trusted:#?}");
}

/// Finding 6: an export that the file asks for is not worth what lies there already.
#[test]
fn an_export_that_a_file_asks_for_overwrites_nothing() {
    let Some(site) = ground() else { return };
    let study = format!(
        "contenders = ['dir:.']\nruns = 1\ncache = 'warm'\nexport-csv = '{}'\n[[workload]]\ncommand = 'true'\n",
        precious(&site).display()
    );
    fs::write(site.work().join("study.toml"), study).unwrap();
    let ran = site.run(&["run", "study.toml", "--out", "result"]);
    expect_unharmed(&site, &ran);
}

/// Finding 12: what a study names is not executed to find out whether the study is refused.
#[test]
fn a_study_that_is_refused_has_executed_nothing() {
    let Some(site) = ground() else { return };
    let shell = theirs(&site).join("sh");
    fs::write(&shell, format!("#!/bin/sh\ntouch {}\n", proof(&site).display())).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    // XFS needs 300M.
    let study = format!(
        "contenders = ['xfs']\ndevice = 'mem:32M'\n[[workload]]\ncommand = 'mine'\nshell = '{}'\n",
        shell.display()
    );
    fs::write(site.work().join("study.toml"), study).unwrap();
    let ran = site.run(&["run", "study.toml", "--out", "result"]);
    expect_unharmed(&site, &ran);
    ran.expect(2);
}
