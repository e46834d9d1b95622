//! Debian packages and archives: what `make deb` and `make tarballs` pack is installed into an empty root, works from
//! there, and is gone when the packages are. Needs root, make and dpkg, and the programs of all three products
//! as `cargo build --workspace` leaves them; says so and does nothing otherwise.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The directory of the Makefile.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

const KURABE: &str = env!("CARGO_BIN_EXE_kurabe");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The directory of the programs that were built; None, with the reason, where one of them or a tool is missing.
fn programs(tools: &[&str]) -> Option<PathBuf> {
    let built = Path::new(KURABE).parent().unwrap().to_path_buf();
    let programs = ["kurabe", "lump", "minfs"].map(|name| built.join(name));
    if let Some(missing) = programs.iter().find(|program| !program.is_file()) {
        eprintln!("SKIPPED: {} is not built", missing.display());
        return None;
    }
    let is_there = |tool: &&&str| Command::new(tool).arg("--version").output().is_ok();
    if let Some(missing) = tools.iter().find(|tool| !is_there(tool)) {
        eprintln!("SKIPPED: {missing} is not installed");
        return None;
    }
    Some(built)
}

/// The output of a command that must succeed.
#[track_caller]
fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{stderr}");
    String::from_utf8(stdout).expect("it writes text")
}

/// Every file and link below a directory, by its path from there.
fn files_below(directory: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(at) = directories.pop() {
        for entry in fs::read_dir(&at).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
            } else {
                let path = entry.path();
                files.insert(path.strip_prefix(directory).unwrap().display().to_string());
            }
        }
    }
    files
}

fn make(target: &str, binaries: &Path, variables: &[(&str, &Path)]) {
    let mut make = Command::new("make");
    make.args(["--silent", "--directory"]).arg(root()).arg(target);
    make.arg(format!("BINARIES={}", binaries.display())).env_remove("MAKEFLAGS");
    for (name, value) in variables {
        make.env(name, value).arg(format!("{name}={}", value.display()));
    }
    // The programs of a test are large, and packed only to be unpacked.
    said(make.env("DEB_COMPRESSION", "-Zgzip -z1"));
}

#[test]
fn packages_are_installed_into_an_empty_root_work_and_leave_nothing() {
    let Some(built) = programs(&["make", "dpkg", "dpkg-deb"]) else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: dpkg installs as root alone");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (packages, into) = (place.path().join("deb"), place.path().join("root"));
    make("deb", &built, &[("DEB_DIR", &packages)]);
    let mut made: Vec<PathBuf> =
        fs::read_dir(&packages).unwrap().map(|entry| entry.unwrap().path()).collect();
    made.sort();
    let field = |package: &Path, name: &str| {
        said(Command::new("dpkg-deb").arg("--field").arg(package).arg(name)).trim().to_string()
    };
    let names: Vec<String> = made.iter().map(|package| field(package, "Package")).collect();
    assert_eq!(names, ["kurabe", "lump", "minfs-dkms", "minfs"]);
    for package in &made {
        assert_eq!(field(package, "Version"), VERSION);
        assert!(!field(package, "Depends").is_empty(), "{}", package.display());
        // Nobody but root owns what is installed.
        let list = said(Command::new("dpkg-deb").arg("--contents").arg(package));
        assert!(list.lines().all(|line| line.contains(" root/root ")), "{list}");
    }

    for directory in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"] {
        fs::create_dir_all(into.join(directory)).unwrap();
    }
    fs::write(into.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |words: &[&str]| {
        // The root is empty: it has neither a shell nor the libraries.
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", into.display()))
            .args(["--force-depends", "--force-script-chrootless", "--no-debsig"])
            .arg(format!("--log={}", place.path().join("log").display()))
            .args(words);
        dpkg
    };
    said(dpkg(&["--install"]).args(&made));
    let states = said(&mut dpkg(&["--list"]));
    for name in &names {
        let is_installed = |line: &str| line.starts_with("ii ") && line.contains(name.as_str());
        assert!(states.lines().any(is_installed), "{name}: {states}");
    }

    let usr = into.join("usr");
    let files = files_below(&usr);
    for name in ["kurabe", "lump", "minfs"] {
        let program = usr.join("bin").join(name);
        let version = said(Command::new(&program).arg("--version"));
        assert!(version.starts_with(&format!("{name} {VERSION}")), "{version}");
        let chapter = if name == "minfs" { 8 } else { 1 };
        for file in [
            format!("share/man/man{chapter}/{name}.{chapter}.gz"),
            format!("share/bash-completion/completions/{name}"),
            format!("share/zsh/vendor-completions/_{name}"),
            format!("share/fish/vendor_completions.d/{name}.fish"),
            format!("share/doc/{name}/copyright"),
        ] {
            assert!(files.contains(&file), "{file}: {files:?}");
        }
    }
    for helper in ["mkfs.minfs", "fsck.minfs", "mount.minfs", "mount.fuse.minfs"] {
        let link = fs::read_link(usr.join("sbin").join(helper)).unwrap();
        assert!(link.ends_with("bin/minfs"), "{helper}");
    }
    let source = format!("src/minfs-{VERSION}");
    let dkms = fs::read_to_string(usr.join(&source).join("dkms.conf")).unwrap();
    assert!(dkms.contains(&format!("PACKAGE_VERSION=\"{VERSION}\"")), "{dkms}");
    assert!(files.contains(&format!("{source}/minfs_format.h")));
    assert!(files.iter().all(|file| !file.ends_with(".ko") && !file.ends_with(".o")), "{files:?}");
    // The sums are those of the files.
    let sums = fs::read_to_string(into.join("var/lib/dpkg/info/kurabe.md5sums")).unwrap();
    assert!(sums.lines().any(|line| line.ends_with("  usr/bin/kurabe")), "{sums}");
    assert_eq!(said(dpkg(&["--verify"]).args(&names)), "");

    said(dpkg(&["--purge"]).args(&names));
    assert!(!usr.exists() || files_below(&usr).is_empty());
}

#[test]
fn archives_hold_the_programs_where_binstall_looks_for_them() {
    let Some(built) = programs(&["make", "tar", "rustc"]) else { return };
    let place = tempfile::tempdir().unwrap();
    make("tarball-lump", &built, &[("tarballs", place.path())]);
    let host = said(Command::new("rustc").arg("-vV"));
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    // The names that the manifest promises.
    let manifest = fs::read_to_string(root().join("lump/Cargo.toml")).unwrap();
    let promised = |key: &str| {
        let (_, rest) = manifest.split_once(&format!("\n{key} = \"")).unwrap();
        let text = rest.split('"').next().unwrap();
        let known = [("name", "lump"), ("bin", "lump"), ("version", VERSION), ("target", host)];
        known.iter().fold(text.to_string(), |text, (name, value)| {
            text.replace(&format!("{{ {name} }}"), value)
        })
    };
    let archive = place.path().join(promised("pkg-url").rsplit('/').next().unwrap());
    let list = said(Command::new("tar").arg("-tzf").arg(&archive));
    let program = promised("bin-dir");
    assert!(list.lines().any(|line| line == program), "{program}: {list}");
    for part in ["/share/man/man1/lump.1", "/completions/lump", "/LICENSE-MIT"] {
        assert!(list.lines().any(|line| line.ends_with(part)), "{part}: {list}");
    }
    // The three manifests say the same.
    let said_by = |manifest: &str| {
        let text = fs::read_to_string(root().join(manifest)).unwrap();
        let (_, rest) = text.split_once("[package.metadata.binstall]\n").unwrap();
        rest.split("\n\n").next().unwrap().to_string()
    };
    assert_eq!(said_by("kurabe/command/Cargo.toml"), said_by("lump/Cargo.toml"));
    assert_eq!(said_by("minfs/Cargo.toml"), said_by("lump/Cargo.toml"));
}
