//! The tool, as a user meets it. Needs no root.

use std::fs;
use std::process::{Command, Output};

use block::{FileDevice, FileDeviceOptions};

fn lump(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lump")).args(arguments).output().unwrap()
}

/// What a command printed that must succeed.
#[track_caller]
fn succeed(arguments: &[&str]) -> String {
    let output = lump(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a command said that must end with `code`.
#[track_caller]
fn fail(arguments: &[&str], code: i32) -> String {
    let output = lump(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

#[test]
fn values_go_in_and_come_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, file, out) = (path("image"), path("file"), path("out"));
    assert!(succeed(&["create", "--size", "16M", &image]).contains("UUID"));
    let bytes: Vec<u8> = (0..300_000_u32).map(|number| ((number * 7) >> 5) as u8).collect();
    fs::write(&file, &bytes).unwrap();
    succeed(&["put", &image, "2a", &file]);
    succeed(&["put", &image, "ff", "/dev/null"]);
    succeed(&["get", &image, "0x2A", &out]);
    assert!(fs::read(&out).unwrap() == bytes);
    assert!(lump(&["get", &image, "2a"]).stdout == bytes);
    assert!(lump(&["get", &image, "2a", "--range", "1k-2k"]).stdout == bytes[1024..2048]);
    assert!(fail(&["get", &image, "2a", &out], 2).contains("--force"));
    assert!(fail(&["get", &image, "2a", "-f", &image], 2).contains("the store itself"));
    assert!(fail(&["get", &image, "2b"], 2).contains("no value"));
    assert!(fail(&["get", &image, "2a", "--range", "5-300001"], 2).contains("300000 bytes"));
    assert!(fail(&["put", &image, "key", &file], 2).contains("hexadecimal"));
    assert!(fail(&["delete", &image, "9-1"], 2).contains("ends before"));
    let listed = succeed(&["list", "-l", &image, "0-ff"]);
    assert_eq!(listed, format!("{:032x} 300000\n{:032x} 0\n", 0x2a, 0xff));
    let usage = succeed(&["stat", &image]);
    assert!(usage.contains("TYPE=lump\n") && usage.contains("OBJECTS=2\n"), "{usage}");
    assert!(succeed(&["check", &image]).ends_with("2 objects, 300000 bytes, clean\n"));
    assert_eq!(succeed(&["delete", &image, "2a", "2a", "f0-ff"]), "2 deleted\n");
    assert_eq!(succeed(&["list", &image]), "");
    let measured = succeed(&["bench", &image, "-s", "4k", "-c", "2", "-t", "0"]);
    assert!(measured.contains("\nput ") && measured.contains("\nget "), "{measured}");
    for line in measured.lines().filter(|line| line.starts_with("put") || line.starts_with("get")) {
        let us: Vec<f64> =
            line.split_whitespace().skip(3).take(4).map(|w| w.parse().unwrap()).collect();
        assert!(us[3] >= 1.0 && us.is_sorted(), "{measured}");
    }
    assert_eq!(succeed(&["list", &image]), "", "a benchmark leaves nothing");
}

#[test]
fn damage_ends_with_1_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image").to_str().unwrap().to_string();
    succeed(&["create", "-q", "--size", "4M", &image]);
    fs::write(directory.path().join("file"), [0xa7; 5000]).unwrap();
    succeed(&["put", &image, "7", directory.path().join("file").to_str().unwrap()]);
    let mut bytes = fs::read(&image).unwrap();
    let at = bytes.windows(64).position(|window| window == [0xa7; 64]).unwrap();
    bytes[at + 100] ^= 1;
    fs::write(&image, &bytes).unwrap();
    for command in ["check", "scrub"] {
        let output = lump(&[command, &image]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(said.contains("corrupt: key") && said.contains("chunk 0"), "{command}: {said}");
    }
    assert!(fail(&["get", &image, "7"], 1).contains("corrupt: key 00000"));
    assert!(lump(&["get", &image, "7"]).stdout.is_empty(), "corrupt bytes are not given out");
    assert!(fs::read(&image).unwrap() == bytes, "nothing was written");
}

#[test]
fn what_is_in_use_or_holds_anything_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, other) = (path("image"), path("other"));
    assert!(fail(&["create", &image], 2).contains("--size"));
    assert!(fail(&["create", "--size", "8k", &image], 2).contains("no room"));
    assert!(!directory.path().join("image").exists(), "a refusal makes no image");
    succeed(&["create", "-q", "--size", "4M", &image]);
    fs::write(&other, [b'x'; 1 << 20]).unwrap();
    let before = (fs::read(&image).unwrap(), fs::read(&other).unwrap());
    for held in [&image, &other] {
        assert!(fail(&["create", held], 2).contains("--force"));
        assert!(fail(&["create", "--size", "4M", held], 2).contains("--force"));
    }
    assert!(fail(&["list", &other], 2).contains("no lump store"));
    assert!(fail(&["list", &path("missing")], 2).contains("No such file"));
    let options = FileDeviceOptions { exclusive: true, ..Default::default() };
    let holder = FileDevice::open(&image, &options).unwrap();
    for command in [&["create", "-f", &image][..], &["delete", &image, "1"], &["list", &image]] {
        assert!(fail(command, 2).contains("in use"), "{command:?}");
    }
    drop(holder);
    assert!((fs::read(&image).unwrap(), fs::read(&other).unwrap()) == before);
    succeed(&["create", "-q", "-f", &other]);
    assert!(succeed(&["stat", &other]).contains("OBJECTS=0\n"));
}

#[test]
fn every_command_has_its_man_page() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    succeed(&["man", pages.to_str().unwrap()]);
    for name in ["lump", "lump-create", "lump-put", "lump-check", "lump-bench"] {
        let page = fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(succeed(&["completions", "bash"]).contains("lump"));
}
