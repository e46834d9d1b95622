//! `kurabe resume` on a directory whose files somebody else chose.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::harness::{NOBODY, Ran, Site};
use crate::{Disk, expect_unharmed, give_to_stranger, ground, ground_of_disks, precious, proof};

/// What the stored command says until a stranger changes it.
const COMMAND: &str = "echo mine";

/// A result that a study of two blocks left after its first trial.
fn interrupted(site: &Site, contender: &str, flags: &[&str]) -> PathBuf {
    let flags = [flags, &["--runs", "2", "--cache", "warm"]].concat();
    site.compare(&[contender], &flags, &[COMMAND]).expect(0);
    let result = site.work().join("result");
    let records = fs::read_to_string(result.join("records.jsonl")).unwrap();
    let (first, _) = records.split_once('\n').unwrap();
    fs::write(result.join("records.jsonl"), format!("{first}\n")).unwrap();
    result
}

/// Lets root go on with a result of a stranger's, and checks that nothing comes of it.
#[track_caller]
fn expect_refused(site: &Site, result: &std::path::Path) -> Ran {
    give_to_stranger(result);
    let ran = site.run(&["resume", "result"]);
    expect_unharmed(site, &ran);
    ran.expect(2)
}

/// The same when the stranger is trusted.
fn trusting(site: &Site) -> Ran {
    site.run(&["resume", "result", "--trust", &NOBODY.to_string()])
}

/// Finding 5: the last line of the target was cut off before the plan was refused.
#[test]
fn records_that_are_a_link_leave_the_target_its_bytes() {
    let Some(site) = ground() else { return };
    let result = site.work().join("result");
    fs::create_dir(&result).unwrap();
    fs::write(result.join("plan.json"), "{}").unwrap();
    symlink(precious(&site), result.join("records.jsonl")).unwrap();
    expect_refused(&site, &result);
    expect_unharmed(&site, &trusting(&site));
}

/// Finding 5: temporary names that can be foreseen can be taken.
#[test]
fn links_under_temporary_names_leave_the_target_its_bytes() {
    let Some(site) = ground() else { return };
    let result = interrupted(&site, "dir:.", &[]);
    let precious = precious(&site);
    for entry in fs::read_dir(&result).unwrap().flatten() {
        let name = entry.file_name().display().to_string();
        symlink(&precious, result.join(format!("{name}.new"))).unwrap();
    }
    expect_refused(&site, &result);
    expect_unharmed(&site, &trusting(&site).expect(0));
}

/// Finding 5: the plan holds commands.
#[test]
fn the_commands_of_a_stranger_are_not_run() {
    let Some(site) = ground() else { return };
    let result = interrupted(&site, "dir:.", &[]);
    let plan = fs::read_to_string(result.join("plan.json")).unwrap();
    assert!(plan.contains(COMMAND));
    let command = format!("touch {}", proof(&site).display());
    fs::write(result.join("plan.json"), plan.replace(COMMAND, &command)).unwrap();
    // What they are is shown, and whoever trusts the stranger then has them run.
    expect_refused(&site, &result).says(&[&command]);
    trusting(&site);
    assert!(proof(&site).exists());
}

/// Finding 5: what `--destroy` allowed was that day's disk; root's own result allows nothing today.
#[test]
fn a_stored_permission_destroys_nothing() {
    let Some(site) = ground_of_disks() else { return };
    let disk = Disk::formatted(&site, "disk");
    let permission = format!("{}:ext4", disk.name());
    interrupted(&site, "ext4", &["--device", &disk.text(), "--destroy", &permission]);
    let uuid = disk.format().expect("the study has ended");
    let ran = site.run(&["resume", "result"]);
    assert_eq!(disk.uuid(), uuid, "{ran:#?}");
    ran.expect(2);
}

/// A check of `kurabe crash` is stored by its path, and tried again by root.
#[test]
fn a_check_that_somebody_else_can_have_exchanged_is_not_run_again() {
    let Some(site) = ground_of_disks() else { return };
    let place = site.work().join("place");
    fs::create_dir(&place).unwrap();
    let check = place.join("check.sh");
    fs::write(&check, "#!/bin/sh\ntest ! -s \"$2\" || grep -q a \"$1/f\"\n").unwrap();
    fs::set_permissions(&check, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = site.kurabe(&["crash", "ext4", "--device", "mem:64M", "--states", "10"]);
    command
        .args(["--check", "./check.sh", "--out"])
        .arg(site.work().join("cuts"))
        .current_dir(&place);
    command.args(["--", "sh", "-c", "echo a >f; echo a >$KURABE_ACK"]);
    site.finish(command).expect(3);
    let replay = || site.run(&["crash", "--replay", "cuts:1"]);
    replay().expect(3);
    let refused = || {
        let ran = replay().expect(2);
        assert!(ran.stderr.contains("the check is not run again: "), "{}", ran.stderr);
    };
    give_to_stranger(&check);
    refused();
    fs::remove_file(&check).unwrap();
    give_to_stranger(&place);
    refused();
}
