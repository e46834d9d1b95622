//! What other users can lay in kurabe's way: files, directories and results of theirs, links, FIFOs
//! and devices, and studies that would decide what is destroyed and written here.

mod harness;

use std::fs;
use std::os::unix::fs::{FileTypeExt, lchown, symlink};
use std::path::Path;

use harness::{NOBODY, Ran, Site, root};

fn give_away(path: &Path) {
    lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

/// kurabe, ended when it waits for something that never comes or eats the memory.
fn bounded(site: &Site, arguments: &[&str]) -> Ran {
    let mut command = site.program("timeout");
    command.args(["--signal=KILL", "100", "prlimit", "--as=8000000000", harness::KURABE]);
    command.args(arguments);
    site.finish(command)
}

const STUDY: &str = "contenders = ['dir:/tmp']\n[[workload]]\ncommand = 'true'\n";

/// Every flag that names a file to read, with what a stranger, a FIFO or a device in its place says.
#[test]
fn files_that_are_read_are_regular_and_of_somebody_who_is_believed() {
    if !root() {
        return;
    }
    let site = Site::new();
    let file = site.work().join("file");
    let name = file.display().to_string();
    let replay = format!("1:{name}");
    let loads: [&[&str]; 5] = [
        &["run", &name],
        &["compare", "dir:/tmp", "--objects", &name],
        &["compare", "dir:/tmp", "--fio", &name],
        &["compare", "dir:/tmp", "--dbench-replay", &replay],
        &["compare", "dir:/tmp", "--tree", &name],
    ];
    fs::write(&file, STUDY).unwrap();
    give_away(&file);
    for arguments in loads {
        bounded(&site, arguments).expect(2).says(&[&name, "belongs to user", "--trust nobody"]);
    }
    let trusting = ["run", &name, "--print-study", "--trust", "nobody"];
    site.run(&trusting).expect(0);
    site.run(&["run", &name, "--trust", "no-such-user"]).expect(2).says(&["no-such-user"]);
    lchown(&file, Some(0), Some(0)).unwrap();
    site.run(&["run", &name, "--print-study"]).expect(0);
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o646)).unwrap();
    bounded(&site, loads[0]).expect(2).says(&[&name, "can be written by other users"]);
    // The working directory has no name in a relative path, and one in the refusal.
    fs::set_permissions(site.work(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let refused = format!("{} can be written by other users", site.work().display());
    site.run(&["run", "file"]).expect(2).says(&[&refused]);
    // Whoever trusts those who can write the directory trusts no file that they can write.
    let shared = ["run", "file", "--print-study", "--trust-shared"];
    site.run(&shared).expect(2).says(&["file can be written by other users"]);
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    site.run(&shared).expect(0);
    fs::set_permissions(site.work(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::remove_file(&file).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, mode).unwrap();
    for arguments in loads {
        bounded(&site, arguments).expect(2).says(&[&name, "is a FIFO"]);
    }
    fs::remove_file(&file).unwrap();
    symlink("/dev/zero", &file).unwrap();
    for arguments in loads {
        bounded(&site, arguments).expect(2).says(&[&name, "is a device"]);
    }
    site.expect_untouched(&["file"]);
}

#[test]
fn a_study_grants_nothing_and_names_no_file_to_write() {
    let site = Site::new();
    let precious = site.home().join("precious");
    fs::write(&precious, "precious").unwrap();
    for (key, flag) in [
        ("export-csv", "--export-csv FILE"),
        ("out", "--out DIR"),
        ("destroy", "--destroy NAME"),
        ("output", "--output FILE"),
    ] {
        let text = format!("{key} = '{}'\n{STUDY}", precious.display());
        fs::write(site.work().join("study.toml"), text).unwrap();
        site.run(&["run", "study.toml"]).expect(2).says(&["study.toml:1:", flag]);
    }
    let real = STUDY.replace("dir:/tmp", "ext4");
    fs::write(site.work().join("study.toml"), format!("device = '/dev/null'\n{real}")).unwrap();
    site.run(&["run", "study.toml"]).expect(2).says(&["/dev/null is not a block device"]);
    let printed = site.run(&["run", "study.toml", "--print-study", "--destroy", "x"]).expect(0);
    let words = printed.stdout.lines().filter(|line| !line.starts_with('#'));
    assert!(!words.collect::<String>().contains("destroy"), "{}", printed.stdout);
    assert!(printed.stdout.contains("# Everything on /dev/null is lost"), "{}", printed.stdout);
    assert_eq!(fs::read_to_string(precious).unwrap(), "precious");
    site.expect_untouched(&["study.toml"]);
}

#[test]
fn a_result_of_somebody_else_is_shown_and_not_gone_on_with() {
    if !root() {
        return;
    }
    let site = Site::new();
    let mark = site.home().join("mark");
    let line = format!("touch {}\n: \x1b[2J", mark.display());
    let directory = harness::memory_directory();
    let contender = format!("dir:{}", directory.path().display());
    site.compare(&[&contender], &["--setup", "true"], &[&line]).expect(0);
    fs::remove_file(&mark).unwrap();
    let result = site.work().join("result");
    fs::write(result.join("records.jsonl"), "torn").unwrap();
    give_away(&result);
    let ran = bounded(&site, &["resume", "result"]).expect(2);
    let said = ran.says(&["belongs to user nobody", "--trust nobody", "on mem:64M", "setup: "]);
    let shown = format!("  command: sh -c 'touch {}\\u{{a}}: \\u{{1b}}[2J'", mark.display());
    assert!(said.stderr.contains(&shown), "{}", said.stderr);
    // It is shown to root, as nothing of it is executed or written; a file is not made of it.
    bounded(&site, &["report", "result"]).expect(0);
    let page = ["report", "result", "--html", "x.html"];
    bounded(&site, &page).expect(2).says(&["--trust nobody"]);
    assert_eq!(fs::read_to_string(result.join("records.jsonl")).unwrap(), "torn");
    assert!(!mark.exists());
    // Who is trusted is gone on with.
    lchown(result.join("records.jsonl"), Some(NOBODY), Some(NOBODY)).unwrap();
    site.run(&["resume", "result", "--trust", "nobody"]).expect(0);
    assert!(mark.exists());
    // Nor is anything made below a directory of somebody else's.
    fs::create_dir(site.work().join("kurabe-results")).unwrap();
    give_away(&site.work().join("kurabe-results"));
    let ran = site.run(&["compare", &contender, "--runs", "1", "--", "true"]);
    ran.expect(2).says(&["kurabe-results", "belongs to user nobody", "--out DIR"]);
    assert_eq!(fs::read_dir(site.work().join("kurabe-results")).unwrap().count(), 0);
}

#[test]
fn the_preflight_runs_no_shell_of_the_study() {
    let site = Site::new();
    let (shell, mark) = (site.work().join("sh"), site.home().join("mark"));
    fs::write(&shell, format!("#!/bin/sh\ntouch {}\nexit 1\n", mark.display())).unwrap();
    fs::set_permissions(&shell, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let shell = shell.display().to_string();
    let arguments = ["compare", "dir:/tmp", "--shell", &shell, "--", "no-such-program-of-kurabe"];
    site.run(&arguments).expect(2).says(&["'no-such-program-of-kurabe' is not found"]);
    assert!(!mark.exists());
    site.expect_untouched(&["sh"]);
}

#[test]
fn exports_replace_files_and_write_through_nothing() {
    if !root() {
        return;
    }
    let site = Site::new();
    let directory = harness::memory_directory();
    let contender = format!("dir:{}", directory.path().display());
    let precious = site.home().join("precious");
    fs::write(&precious, "precious").unwrap();
    let link = site.work().join("link.csv");
    symlink(&precious, &link).unwrap();
    give_away(&link);
    for flag in ["--export-csv", "--output"] {
        let ran = site.compare(&[&contender], &[flag, "link.csv"], &["true"]);
        ran.expect(2).says(&["link.csv belongs to user nobody"]);
    }
    fs::remove_file(&link).unwrap();
    // What an older kurabe wrote beside a file and renamed.
    symlink(&precious, site.work().join("mine.csv.new")).unwrap();
    let flags = ["--export-csv", "mine.csv", "--export-json", "/dev/null"];
    let flags =
        [&flags[..], &["--export-markdown", "/dev/stdout", "--output", "/dev/null"]].concat();
    let ran = site.compare(&[&contender], &flags, &["true"]).expect(0);
    assert!(ran.stdout.contains("| "), "the tables as Markdown: {}", ran.stdout);
    assert!(site.work().join("mine.csv").is_file());
    let null = fs::symlink_metadata("/dev/null").unwrap().file_type();
    assert!(null.is_char_device() && !Path::new("/dev/null.latencies").exists());
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

#[test]
fn the_directory_of_a_contender_is_the_one_that_was_named() {
    let site = Site::new();
    let process = format!("dir:/proc/{}/root/tmp", std::process::id());
    let ran = site.run(&["compare", &process, "--out", "result", "--", "true"]);
    ran.expect(2).says(&["a link into what a process has open"]);
    site.expect_untouched(&[]);
    if !root() {
        return;
    }
    let ground = harness::memory_directory();
    let (named, moved) = (ground.path().join("named"), ground.path().join("moved"));
    fs::create_dir(&named).unwrap();
    give_away(&named);
    let contender = format!("dir:{}", named.display());
    let arguments = ["compare", &contender, "--out", "result", "--", "true"];
    site.run(&arguments).expect(2).says(&["belongs to user nobody", "--trust nobody"]);
    lchown(&named, Some(0), Some(0)).unwrap();
    // The first trial exchanges it for another one; the second notices.
    let exchange = format!("mv {0} {1} && mkdir {0}", named.display(), moved.display());
    site.compare(&[&contender], &["--runs", "2", "--cleanup", &exchange], &["true"]).expect(1);
    let records = site.records();
    assert_eq!(harness::kinds(&records), ["completed", "failed"]);
    let (_, message, _) = harness::failure(&records[1]);
    assert!(message.contains("is another directory than the one that the study began with"));
    for directory in [named, moved] {
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "{}", directory.display());
    }
}

/// An entry of a tar archive: its name, kind, target of a link and contents.
type Member<'a> = (&'a str, u8, &'a str, &'a str);

/// A tar archive in the ustar format, which no tar would write like this.
fn archive(members: &[Member<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, target, contents) in members {
        let mut header = [0; 512];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, name);
        put(100, "0000666\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", contents.len()));
        put(136, "00000000000\0");
        put(148, "        ");
        put(157, target);
        put(257, "ustar\x0000");
        // The kernel's messages, where it is a device.
        put(329, "0000001\0");
        put(337, "0000013\0");
        header[156] = *kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(contents.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// An archive is data: what is in it reaches nothing but the contender.
#[test]
fn a_hostile_archive_changes_nothing_outside_of_its_contender() {
    if !root() {
        return;
    }
    let site = Site::new();
    let (place, outside) = (site.work().join("place"), site.home().join("outside"));
    fs::create_dir(&place).unwrap();
    fs::create_dir(&outside).unwrap();
    let precious = outside.join("precious");
    fs::write(&precious, "precious").unwrap();
    let (directory, file) = (outside.to_str().unwrap(), precious.to_str().unwrap());
    let above = format!("../../../../../../../../..{file}");
    let whole = ("tree/file", b'0', "", "whole");
    let long = format!("tree/{}", "d/".repeat(45));
    let archives: [&[Member<'_>]; 8] = [
        &[whole, (file, b'0', "", "overwritten")],
        &[whole, (&above, b'0', "", "overwritten")],
        &[whole, ("tree/out", b'2', directory, ""), ("tree/out/precious", b'0', "", "overwritten")],
        &[whole, ("tree/out", b'2', file, ""), ("tree/out", b'0', "", "overwritten")],
        &[whole, ("tree/out", b'1', file, ""), ("tree/out", b'0', "", "overwritten")],
        &[whole, ("tree/kmsg", b'3', "", ""), ("tree/fifo", b'6', "", "")],
        &[whole, ("-rf", b'0', "", "x"), ("tree/\x1b[31m\n-rw-r--r-- 0/0 9999", b'0', "", "x")],
        &[whole, (&long, b'5', "", ""), ("", b'0', "", "x")],
    ];
    let done = |program: &str, words: &[&str]| {
        let mut command = site.program(program);
        command.args(words).output().unwrap();
    };
    let contender = format!("dir:{}", place.display());
    for (number, members) in archives.into_iter().enumerate() {
        fs::write(site.work().join("a.tar"), archive(members)).unwrap();
        if number < 3 {
            // The trap works with a tar that obeys.
            done("tar", &["-xPf", "a.tar", "-C", "place"]);
            assert_eq!(fs::read_to_string(&precious).unwrap(), "overwritten", "{number}");
            fs::write(&precious, "precious").unwrap();
            fs::remove_dir_all(place.join("tree")).unwrap();
        }
        // Links on an image too, all others packed once more.
        let flags = ["--runs", "1", "--idle-wait", "50ms", "--out", "result", "--tree"];
        let packed = ["compare", &contender, "a.tar.gz"];
        let on_image = ["compare", &contender, "ext4", "--device", "mem:64M", "a.tar"];
        done("gzip", &["-kf", "a.tar"]);
        let (last, first) =
            if matches!(number, 2 | 4) { &on_image[..] } else { &packed }.split_last().unwrap();
        let ran = bounded(&site, &[first, &flags, &[last]].concat());
        assert!(matches!(ran.code, Some(0..=2)), "{number}: {}", ran.stderr);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious", "{number}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{number}");
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{number}");
        assert!(!ran.stderr.contains('\x1b'), "{number}: {}", ran.stderr);
        let _ = fs::remove_dir_all(site.work().join("result"));
        site.expect_nothing_left();
    }
}

/// What an archive says that it holds is believed only to refuse it.
#[test]
fn an_archive_that_grows_is_refused_before_anything_is_made() {
    if !root() {
        return;
    }
    let site = Site::new();
    let shell = "truncate -s 1T sparse; tar -cSf sparse.tar sparse; gzip -k sparse.tar; rm sparse\n\
        truncate -s 1G zeros; tar -czf zeros.tar.gz zeros; rm zeros";
    let mut pack = site.program("sh");
    assert!(pack.args(["-ec", shell]).status().unwrap().success());
    // A header that promises 8 GiB, and no byte of them.
    let mut cut = archive(&[("tree/file", b'0', "", "")]);
    cut[124..135].copy_from_slice(b"77777777777");
    cut[148..156].fill(b' ');
    let sum: u32 = cut[..512].iter().map(|byte| u32::from(*byte)).sum();
    cut[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    fs::write(site.work().join("cut.tar"), cut).unwrap();
    for (name, said) in [
        ("sparse.tar", "archive and its tree need"),
        ("sparse.tar.gz", "archive and its tree need"),
        ("zeros.tar.gz", "archive and its tree need"),
        ("cut.tar", "tar"),
    ] {
        let facts = fs::metadata(site.work().join(name)).unwrap();
        assert!(facts.len() < 2 << 20, "{name}: {}", facts.len());
        let flags = ["--device", "mem:64M", "--runs", "1", "--out", "result", "--tree", name];
        bounded(&site, &[&["compare", "ext4"], &flags[..]].concat()).expect(2).says(&[said]);
        assert!(!site.work().join("result").exists(), "{name}");
        site.expect_nothing_left();
    }
}
