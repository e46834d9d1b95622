//! An installed minfs as the system reaches it: mount(8), umount(8), mkfs(8), fsck(8), fstab(5).
//!
//! `make install-minfs` fills a temporary directory; `install/steps.sh` lays it over the system's
//! directories in namespaces of its own. Needs root, /dev/fuse, make and overlayfs; says so and
//! passes where one is missing.

use std::fs;
use std::path::Path;
use std::process::Command;

const MINFS: &str = env!("CARGO_BIN_EXE_minfs");

#[test]
fn the_system_reaches_an_installed_minfs() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let missing = [
        (!rustix::process::geteuid().is_root(), "root"),
        (!Path::new("/dev/fuse").exists(), "/dev/fuse"),
        (!has("make"), "make"),
        (!has("findmnt"), "findmnt"),
        (
            !fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("overlay")),
            "overlayfs",
        ),
    ];
    if let Some((_, what)) = missing.into_iter().find(|(is_missing, _)| *is_missing) {
        eprintln!("SKIPPED: this needs {what}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (root, work) = (directory.path().join("root"), directory.path().join("work"));
    fs::create_dir(&work).unwrap();
    let built = Path::new(MINFS).parent().unwrap();
    let make = |target: &str| {
        let made = Command::new("make")
            .args(["--silent", "--directory", concat!(env!("CARGO_MANIFEST_DIR"), "/..")])
            .arg(target)
            .arg(format!("BINARIES={}", built.display()))
            .arg(format!("DESTDIR={}", root.display()))
            .args(["PREFIX=/usr/local", "HELPERS=/sbin"])
            .env_remove("MAKEFLAGS")
            .output()
            .unwrap();
        assert!(made.status.success(), "{target}: {}", String::from_utf8_lossy(&made.stderr));
    };
    make("install-minfs");
    for file in [
        "usr/local/bin/minfs",
        "usr/local/share/man/man8/mkfs.minfs.8",
        "usr/local/share/bash-completion/completions/minfs",
        "usr/local/share/zsh/site-functions/_minfs",
        "usr/local/share/fish/vendor_completions.d/minfs.fish",
    ] {
        let length = fs::metadata(root.join(file)).map(|facts| facts.len());
        assert!(length.is_ok_and(|length| length > 100), "{file}");
    }
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/install/steps.sh"))
        .args([&root, &work])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&output.stdout));
    assert!(
        output.status.success(),
        "after these steps: {}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    make("uninstall");
    let mut find = Command::new("find");
    let left = find.arg(&root).args(["!", "-type", "d"]).output().unwrap();
    assert_eq!(text(&left.stdout), "", "left behind by make uninstall");
}
