//! Guests: built, listed, removed, refused.
//!
//! One image serves all tests of this file. Where QEMU or the package source is missing, they skip
//! and say so.

mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use harness::{Site, root};
use serde_json::Value;

fn has(program: &str) -> bool {
    let directories = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    directories.iter().any(|directory| Path::new(directory).join(program).exists())
}

/// The packages of kernels that the tests use: fetched once.
fn packages() -> Option<&'static Path> {
    static PACKAGES: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let packages = PACKAGES.get_or_init(|| {
        if !root() {
            return None;
        }
        for program in ["qemu-system-x86_64", "depmod", "dpkg-deb", "apt-get"] {
            if !has(program) {
                eprintln!("skipped: {program} is not installed, and guests need it");
                return None;
            }
        }
        let show = Command::new("apt-cache").args(["show", "linux-image-amd64"]).output().unwrap();
        let text = String::from_utf8_lossy(&show.stdout).into_owned();
        let depends = text.lines().find_map(|line| line.strip_prefix("Depends: "));
        let name = depends.and_then(|line| line.split([' ', ',']).next()).unwrap_or("none");
        let directory = tempfile::Builder::new()
            .prefix("test-of-kurabe-")
            .tempdir_in("/var/tmp")
            .expect("/var/tmp can be written");
        let fetched = Command::new("apt-get")
            .args(["-q", "-o", "APT::Sandbox::User=root", "download", name])
            .current_dir(directory.path())
            .output()
            .unwrap();
        if !fetched.status.success() {
            eprintln!("skipped: the package {name} cannot be had from the package source");
            return None;
        }
        Some(directory)
    });
    packages.as_ref().map(tempfile::TempDir::path)
}

fn lock_of(site: &Site) -> (PathBuf, Value) {
    let images = fs::read_dir(site.own().join("guests/images")).unwrap();
    let images: Vec<PathBuf> = images.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(images.len(), 1, "{images:?}");
    let text = fs::read_to_string(images[0].join("lock.json")).unwrap();
    (images[0].clone(), serde_json::from_str(&text).unwrap())
}

#[test]
fn an_image_is_built_named_after_its_content_and_removed() {
    let Some(packages) = packages() else { return };
    let site = Site::new();
    let packages = packages.display().to_string();
    let build = ["guest", "build", "debian", "--packages", packages.as_str()];
    let built = site.run(&build).expect(0);
    assert!(built.stdout.starts_with("debian  kernel "), "{}", built.stdout);
    assert!(built.stdout.contains(", TCG") || built.stdout.contains(", KVM"), "{}", built.stdout);
    let (first, lock) = lock_of(&site);
    let package = &lock["kernel"]["package"];
    assert!(package["name"].as_str().unwrap().starts_with("linux-image-"), "{package}");
    assert_eq!(package["sha256"].as_str().unwrap().len(), 64);
    let modules: Vec<&str> =
        lock["kernel"]["modules"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(modules.contains(&"nilfs2") && modules.contains(&"ext4"), "{modules:?}");
    let files: Vec<&str> =
        lock["files"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
    assert!(files.contains(&"kurabe") && files.iter().any(|file| file.ends_with("/mke2fs")));

    // Without the kernel's part and the image, the same comes out again.
    site.run(&["guest", "remove", "debian"]).expect(0);
    for kind in ["images", "kernels"] {
        assert_eq!(fs::read_dir(site.own().join("guests").join(kind)).unwrap().count(), 0);
    }
    site.run(&build).expect(0);
    assert_eq!(lock_of(&site).0, first);

    let listed = site.run(&["guest", "list"]).expect(0);
    assert!(listed.stdout.contains(first.file_name().unwrap().to_str().unwrap()));
    site.run(&["guest", "remove", "linux-6.1"]).expect(2).says(&["there are debian"]);
    site.run(&["clean", "--guests"]).expect(0);
    assert!(!site.own().join("guests").exists());
}

#[test]
fn what_is_missing_is_said_before_anything_is_touched() {
    let site = Site::new();
    site.run(&["guest", "build", "ubuntu"]).expect(2).says(&["names no guest", "linux-6.1"]);
    if !has("qemu-system-x86_64") {
        let said = ["'qemu-system-x86_64' is not installed", "apt-get install qemu-system-x86"];
        site.run(&["guest", "build", "debian"]).expect(2).says(&said);
        return;
    }
    let empty = site.work().join("empty");
    fs::create_dir(&empty).unwrap();
    let from = |notation| site.run(&["guest", "build", notation, "--packages", "empty"]).expect(2);
    from("linux-6.1").says(&["linux-6.1", "no kernel"]);
    fs::write(empty.join("linux-image-6.9.1-3-amd64_6.9_amd64.deb"), "no package").unwrap();
    from("linux-6.1").says(&["linux-6.1: there is no such kernel; there are linux-6.9.1-3"]);
    from("linux-6.9").says(&["dpkg-deb"]);
    site.run(&["guest", "build", "/bin/sh"]).expect(2).says(&["/bin/sh is no kernel"]);
    assert_eq!(fs::read_dir(site.own().join("guests/images")).unwrap().count(), 0);
}
