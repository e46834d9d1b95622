//! Programs that a stranger put where root's kurabe might look for tools: next to it, or in a
//! directory of `PATH`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::harness::{KURABE, Site, copy_program};
use crate::{expect_unharmed, give_to_stranger, ground, proof, theirs};

/// Tools that root's kurabe starts, each as a script of the stranger's.
const TOOLS: [&str; 12] = [
    "mkfs.ext4",
    "mke2fs",
    "dumpe2fs",
    "fsck.ext4",
    "e2fsck",
    "mount",
    "wipefs",
    "sh",
    "fio",
    "tar",
    "cpio",
    "uname",
];

/// Puts them into a directory.
fn plant(site: &Site, directory: &Path) {
    for name in TOOLS {
        let path = directory.join(name);
        let script =
            format!("#!/bin/sh\ntouch {}\nexec /usr/bin/env -i false\n", proof(site).display());
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        give_to_stranger(&path);
    }
}

/// A directory that everybody can write, sticky as `/tmp` is, with the stranger's tools.
fn sticky(site: &Site) -> PathBuf {
    let directory = site.home().join("sticky");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).unwrap();
    plant(site, &directory);
    directory
}

const STUDY: [&str; 12] = [
    "compare",
    "ext4",
    "--device",
    "mem:64M",
    "--runs",
    "1",
    "--idle-wait",
    "200ms",
    "--out",
    "result",
    "--",
    "true",
];

#[test]
fn tools_next_to_the_program_are_not_used() {
    let Some(site) = ground() else { return };
    let program = sticky(&site).join("kurabe");
    copy_program(KURABE, &program);
    for words in [&["doctor"][..], &STUDY] {
        let mut command = site.program(&program);
        command.args(words);
        let ran = site.finish(command);
        expect_unharmed(&site, &ran);
        if words[0] == "compare" {
            ran.expect(0);
        }
    }
}

#[test]
fn a_directory_of_the_path_that_a_stranger_can_change_is_passed_over() {
    let Some(site) = ground() else { return };
    plant(&site, &theirs(&site));
    plant(&site, &site.work());
    for first in [theirs(&site), sticky(&site), ".".into()] {
        let usual = std::env::var("PATH").unwrap();
        let path = format!("{}:{usual}", first.display());
        for words in [&["doctor"][..], &STUDY] {
            let _ = fs::remove_dir_all(site.work().join("result"));
            let mut command = site.kurabe(words);
            command.env("PATH", &path);
            let ran = site.finish(command);
            let _ = fs::remove_file(site.work().join("true"));
            expect_unharmed(&site, &ran);
            let note = format!("{} in PATH is not searched", first.display());
            let said = (ran.stdout.clone() + &ran.stderr).replace('\'', "");
            assert!(said.contains(&note), "{ran:#?}");
            if words[0] == "compare" {
                ran.expect(0);
            }
        }
    }
}
