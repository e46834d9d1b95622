//! The tool, as a user meets it. Needs no root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::process::{Command, Output, Stdio};

use block::{FileDevice, FileDeviceOptions};
use cannyls::lump::{LumpData, LumpId};
use cannyls::nvm::FileNvm;
use cannyls::storage::StorageBuilder;

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
    assert!(fail(&["get", &image, "2a", "-f", &image], 2).contains("what is copied lies in it"));
    assert!(fail(&["get", &image, "2b"], 1).contains("no value"));
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
fn a_fifo_that_nobody_may_ever_write_to_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, fifo) = (path("image"), path("fifo"));
    succeed(&["create", "--size", "16M", &image]);
    assert_eq!(fs::metadata(&image).unwrap().permissions().mode() & 0o077, 0);
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(fail(&["put", &image, "1", &fifo], 2).contains("it is a FIFO"));
}

#[test]
fn a_value_that_is_taken_out_is_for_those_who_may_read_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, out) = (path("image"), path("out"));
    succeed(&["create", "-q", "--size", "4M", &image]);
    succeed(&["put", &image, "7", "/dev/null"]);
    for (mode, copied) in [(0o600, 0o600), (0o755, 0o644)] {
        fs::set_permissions(&image, PermissionsExt::from_mode(mode)).unwrap();
        succeed(&["get", &image, "7", &out]);
        assert_eq!(fs::metadata(&out).unwrap().mode() & 0o7777, copied, "{mode:o}");
        fs::remove_file(&out).unwrap();
    }
}

#[test]
fn a_device_is_never_what_a_value_is_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, disk) = (path("image"), path("disk"));
    succeed(&["create", "-q", "--size", "4M", &image]);
    fs::write(path("value"), "value").unwrap();
    succeed(&["put", &image, "7", &path("value")]);
    fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let losetup = |arguments: &[&str]| Command::new("losetup").args(arguments).output();
    let node = match losetup(&["--find", "--show", &disk]) {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        _ => return eprintln!("skipped: no loop device can be made here"),
    };
    let node = node.trim();
    let said = [&["get", &image, "7", node][..], &["get", "-f", &image, "7", node]].map(lump);
    let attached = lump(&["get", "-f", &image, "7", &disk]);
    losetup(&["--detach", node]).unwrap();
    for output in said.iter().chain([&attached]) {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    assert!(fs::read(&disk).unwrap() == vec![7; 1 << 20]);
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
    assert!(fail(&["create", "--size", "8k", &image], 2).contains("too few for a store; --size"));
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
fn a_storage_of_cannyls_is_brought_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (source, image, out) = (path("source.lusf"), path("image"), path("out"));
    let (nvm, _) = FileNvm::create_if_absent(&source, 8 << 20).unwrap();
    let mut storage = StorageBuilder::new().journal_region_ratio(0.02).create(nvm).unwrap();
    let mut expected = BTreeMap::new();
    // So many that the journal wraps around; some embedded, some deleted, alone and in ranges.
    for step in 0..12_000_u32 {
        let key = u128::from(step * 31 % 97) << 70;
        let id = LumpId::new(key);
        let bytes: Vec<u8> = (0..step * 13 % 3000).map(|place| (place ^ step) as u8).collect();
        let data = match bytes.len() {
            0..300 => LumpData::new_embedded(bytes.clone()).unwrap(),
            _ => storage.allocate_lump_data_with_bytes(&bytes).unwrap(),
        };
        storage.put(&id, &data).unwrap();
        expected.insert(key, bytes);
        if step % 11 == 0 {
            storage.delete(&id).unwrap();
            expected.remove(&key);
        }
        if step % 500 == 499 {
            let (first, end) = (5_u128 << 70, 9_u128 << 70);
            storage.delete_range(LumpId::new(first)..LumpId::new(end)).unwrap();
            expected.retain(|key, _| !(first..end).contains(key));
        }
    }
    storage.journal_sync().unwrap();
    drop(storage);
    let before = fs::read(&source).unwrap();
    succeed(&["create", "-q", "--size", "8M", &image]);
    let said = succeed(&["import", &image, &source]);
    assert!(said.starts_with(&format!("{} values", expected.len())), "{said}");
    let listed: Vec<String> = expected.keys().map(|key| format!("{key:032x}")).collect();
    assert_eq!(succeed(&["list", &image]).lines().collect::<Vec<_>>(), listed);
    for (key, bytes) in &expected {
        succeed(&["get", "-f", &image, &format!("{key:x}"), &out]);
        assert!(fs::read(&out).unwrap() == *bytes, "{key:x}");
    }
    assert!(fs::read(&source).unwrap() == before, "the source is only read");
    assert!(fail(&["import", &image, &source], 2).contains("--force"));
    succeed(&["import", "--force", &image, &source]);
    assert!(succeed(&["check", &image]).ends_with("clean\n"));
    // Damage in the journal, and what is no storage at all.
    let mut damaged = before;
    let head = u64::from_be_bytes(damaged[512..520].try_into().unwrap()) as usize;
    damaged[1024 + head + 200] ^= 1;
    fs::write(&source, &damaged).unwrap();
    succeed(&["create", "-q", "-f", &image]);
    let said = fail(&["import", &image, &source], 2);
    assert!(said.contains("journal") && said.contains("--partial"), "{said}");
    assert_eq!(succeed(&["list", &image]), "");
    // What the records before the damage say may be of long ago, and its bytes gone since.
    let output = lump(&["import", "--partial", &image, &source]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() != Some(2) && said.contains("checksum does not match"), "{said}");
    assert!(fail(&["import", &image, &image], 2).contains("no CannyLS storage"));
}

#[test]
fn free_space_is_trimmed_and_the_numbers_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, file) = (path("image"), path("file"));
    succeed(&["create", "-q", "--size", "16M", &image]);
    fs::write(&file, vec![7; 8 << 20]).unwrap();
    succeed(&["put", &image, "1", &file]);
    succeed(&["put", &image, "2", "/dev/null"]);
    let used = |path: &str| fs::metadata(path).unwrap().blocks() * 512;
    assert!(used(&image) > 8 << 20);
    succeed(&["delete", &image, "1"]);
    assert!(used(&image) > 8 << 20);
    let said = succeed(&["trim", &image]);
    assert!(said.ends_with("bytes trimmed\n"), "{said}");
    assert!(used(&image) < 2 << 20, "{} bytes after {said}", used(&image));
    assert!(succeed(&["check", &image]).contains("1 objects, 0 bytes, clean"));
    let text = succeed(&["stat", "--prometheus", &image]);
    let (_, rest) = text.split_once("# TYPE lump_objects gauge\n").expect(&text);
    assert!(rest.starts_with("lump_objects{store=\"") && rest.contains("\"} 1\n"), "{text}");
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

/// A user who is nobody's caller.
const STRANGER: u32 = 54_321;

/// Whatever is written goes where the user named it: by own links, never by a stranger's.
#[test]
fn a_strangers_link_leads_no_command_to_another_file_and_an_own_one_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, precious, pages) = (path("image"), path("precious"), path("pages"));
    succeed(&["create", "--size", "16M", &image]);
    fs::write(path("value"), "value").unwrap();
    succeed(&["put", &image, "1", &path("value")]);
    if fs::metadata(&image).unwrap().uid() != 0 {
        eprintln!("SKIPPED: only root can give a link to another user");
        return;
    }
    let sticky = path("sticky");
    fs::create_dir(&sticky).unwrap();
    fs::set_permissions(&sticky, PermissionsExt::from_mode(0o1777)).unwrap();
    let link = format!("{sticky}/link");
    let relink = |owner| {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        lchown(&link, Some(owner), Some(owner)).unwrap();
    };
    let commands: [&[&str]; 7] = [
        &["create", "--size", "16M", "-f", &link],
        &["create", "-f", &link],
        &["get", "-f", &image, "1", &link],
        &["put", &link, "1", &image],
        &["create", "--size", "16M", &link],
        &["delete", &link, "1"],
        &["trim", &link],
    ];
    for arguments in commands {
        fs::write(&precious, vec![7; 16 << 20]).unwrap();
        relink(STRANGER);
        let said = fail(arguments, 2);
        let is_strangers = said.contains("belongs to user 54321");
        // Without --force a name that is taken is enough to refuse it.
        assert!(is_strangers || said.contains("it exists"), "{arguments:?}: {said}");
        assert!(fs::read(&precious).unwrap() == vec![7; 16 << 20], "{arguments:?}");
    }
    relink(0);
    succeed(commands[0]);
    succeed(commands[2]);
    assert_eq!(fs::read(&precious).unwrap(), b"value");
    // A name that is free in a sticky directory is made there, and leads nowhere else.
    relink(STRANGER);
    fs::remove_file(&precious).unwrap();
    for arguments in commands {
        fail(arguments, 2);
        assert!(fs::metadata(&precious).is_err(), "{arguments:?}");
    }

    fs::create_dir(&pages).unwrap();
    fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(&precious, format!("{pages}/lump.1")).unwrap();
    succeed(&["man", &pages]);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(fs::read_to_string(format!("{pages}/lump.1")).unwrap().contains("lump"));
    assert!(fs::read_to_string(format!("{pages}/lump-create.1")).unwrap().contains("create"));
    fs::set_permissions(&pages, PermissionsExt::from_mode(0o777)).unwrap();
    assert!(fail(&["man", &pages], 2).contains("can be written by other users"));
}

/// A file whose reading would wait for the kernel's next message.
#[test]
fn what_the_kernel_makes_up_is_no_storage() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image").to_str().unwrap().to_string();
    succeed(&["create", "--size", "16M", &image]);
    for source in ["/proc/kmsg", "/proc/version"] {
        // Another user than root may not even open the first.
        fail(&["import", &image, source], 2);
    }
}

/// `PROGRAM ... | head -1`, and a full disk under standard output.
#[test]
fn a_reader_that_has_left_is_no_failure_and_a_full_disk_is() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image").to_str().unwrap().to_string();
    succeed(&["create", "--size", "16M", &image]);
    succeed(&["put", &image, "2a", "/etc/passwd"]);
    for words in [
        &["list", "-l", &image][..],
        &["get", &image, "2a"],
        &["stat", &image],
        &["stat", "--prometheus", &image],
        &["check", &image],
        &["scrub", &image],
        &["completions", "bash"],
    ] {
        for (number, errors) in [Stdio::piped(), Stdio::null()].into_iter().enumerate() {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = Command::new(env!("CARGO_BIN_EXE_lump"));
            command.args(words).stdout(writer.try_clone().unwrap()).stderr(errors);
            if number == 1 {
                command.stderr(writer);
            }
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), &*said), (Some(0), ""), "{words:?}");
        }
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_lump")).args(words).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("standard output: No space left"), "{words:?}: {said}");
    }
}
