//! The tools on unmounted volumes, as a user meets them. Needs no root.

#[path = "common/mount.rs"]
mod common;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use block::{FileDevice, FileDeviceOptions};
use minfs::{MountOptions, Volume};

use common::{MINFS, minfs, pattern, succeed};

/// A volume with the files `text` and `binary`, and what each holds.
struct Site {
    directory: tempfile::TempDir,
    image: String,
    binary: Vec<u8>,
}

const TEXT: &[u8] = b"a line\n";

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
        let (image, binary) = (path("image"), pattern(100_000, 1));
        succeed(minfs(&["mkfs", "--size", "16M", "-q", &image]));
        for (name, content) in [("text", TEXT), ("binary", &binary)] {
            fs::write(path(name), content).unwrap();
            succeed(minfs(&["put", &image, &path(name)]));
            fs::remove_file(path(name)).unwrap();
        }
        Self { directory, image, binary }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_string()
    }
}

/// What was said by a command that must refuse.
#[track_caller]
fn refusal(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "{said}");
    said
}

#[test]
fn get_writes_where_it_is_told_and_replaces_nothing_unasked() {
    let site = Site::new();
    let (image, out) = (&site.image, site.path("out"));
    let mut printing = Command::new(MINFS);
    let printed = printing.args(["get", image, "binary", "-"]).current_dir(&site.directory);
    assert!(printed.output().unwrap().stdout == site.binary);
    assert!(!Path::new(&site.path("-")).exists());
    assert!(minfs(&["get", image, "binary"]).stdout == site.binary);
    succeed(minfs(&["get", image, "binary", &out]));
    assert!(fs::read(&out).unwrap() == site.binary);
    assert!(refusal(&minfs(&["get", image, "text", &out]), 2).contains("--force"));
    assert!(fs::read(&out).unwrap() == site.binary);
    succeed(minfs(&["get", "--force", image, "text", &out]));
    assert_eq!(fs::read(&out).unwrap(), TEXT);
    // Nothing is lost in what holds nothing.
    succeed(minfs(&["get", image, "text", "/dev/null"]));
}

#[test]
fn put_refuses_a_fifo_that_nobody_may_ever_write_to_and_takes_a_stream_that_is_open() {
    let site = Site::new();
    let (image, fifo) = (&site.image, site.path("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(refusal(&minfs(&["put", image, &fifo, "x"]), 2).contains("it is a FIFO"));
    let mut put = Command::new("sh");
    put.args(["-c", "printf streamed | \"$0\" put \"$1\" /dev/fd/0 x", MINFS, image]);
    succeed(put.output().unwrap());
    assert_eq!(minfs(&["get", image, "x"]).stdout, b"streamed");
}

#[test]
fn a_new_image_is_its_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    let image = site.path("new");
    let made = Command::new("sh")
        .args(["-c", "umask 0; exec \"$0\" mkfs --size 16M \"$1\"", MINFS, &image])
        .output();
    succeed(made.unwrap());
    assert_eq!(fs::metadata(&image).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn neither_put_nor_get_takes_a_directory_or_the_volume_itself() {
    let site = Site::new();
    let (image, directory) = (&site.image, site.path(""));
    let before = fs::read(image).unwrap();
    assert!(refusal(&minfs(&["put", image, &directory, "x"]), 2).contains("it is a directory"));
    for force in [None, Some("--force")] {
        let get = |to: &str| {
            let mut get = Command::new(MINFS);
            get.arg("get").args(force).args([image, "text", to]).output().unwrap()
        };
        assert!(refusal(&get(&directory), 2).contains("it is a directory"));
        assert!(refusal(&get(image), 2).contains("what is copied lies in it"));
        assert!(fs::read(image).unwrap() == before);
    }
}

#[test]
fn get_gives_a_copy_no_more_rights_than_the_file_has() {
    let site = Site::new();
    let image = &site.image;
    for (mode, umask, copied) in [
        (0o600, "022", 0o600),
        (0o640, "022", 0o640),
        (0o666, "022", 0o644),
        (0o644, "077", 0o600),
        (0o4755, "022", 0o755),
    ] {
        let device = FileDevice::open(image, &FileDeviceOptions::default()).unwrap();
        let volume = Volume::mount(Arc::new(device), &MountOptions::default()).unwrap();
        let file = volume.open(b"text").unwrap();
        file.set_attributes(|attributes| attributes.mode = mode).unwrap();
        drop(file);
        volume.unmount().unwrap();
        let out = site.path("out");
        let get = format!("umask {umask}; exec {MINFS} get {image} text {out}");
        succeed(Command::new("sh").args(["-c", &get]).output().unwrap());
        assert_eq!(fs::metadata(&out).unwrap().mode() & 0o7777, copied, "{mode:o}, {umask}");
        fs::remove_file(out).unwrap();
    }
}

#[test]
fn put_copies_no_right_to_run_as_another_user() {
    let site = Site::new();
    let program = site.path("program");
    fs::write(&program, "x").unwrap();
    for (mode, copied) in [(0o4755, "0755"), (0o2711, "0711"), (0o1640, "0640"), (0o600, "0600")] {
        fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        succeed(minfs(&["put", "--force", &site.image, &program]));
        let facts = succeed(minfs(&["stat", &site.image, "program"]));
        assert!(facts.contains(&format!("mode: {copied}\n")), "{mode:o}: {facts}");
    }
}

#[test]
fn a_terminal_gets_no_binary_file_unless_it_asks() {
    let site = Site::new();
    let at_terminal = |arguments: &str| {
        let mut script = Command::new("script");
        let command = format!("{MINFS} get {} {arguments}", site.image);
        let output = script.args(["-qec", &command, "/dev/null"]).output().unwrap();
        (output.status.code(), output.stdout)
    };
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIPPED: this needs script of util-linux");
        return;
    }
    let (code, said) = at_terminal("binary");
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("standard output is a terminal"), "{said}");
    let (code, printed) = at_terminal("binary -");
    assert!(code == Some(0) && printed.len() >= site.binary.len());
    // The terminal ends lines in its own way.
    assert_eq!(at_terminal("text"), (Some(0), b"a line\r\n".to_vec()));
}

#[test]
fn what_is_no_volume_is_named_once() {
    let site = Site::new();
    let directory = site.path("directory");
    fs::create_dir(&directory).unwrap();
    // Opening a FIFO would wait for someone at its other end.
    let pipe = site.path("pipe");
    succeed(Command::new("mkfifo").arg(&pipe).output().unwrap());
    for path in ["/dev/null", &directory, &pipe, "/no/such/image"] {
        for arguments in [
            vec!["ls", path],
            vec!["stat", path],
            vec!["df", path],
            vec!["map", path],
            vec!["get", path, "a"],
            vec!["put", path, MINFS],
            vec!["rm", path, "a"],
            vec!["mv", path, "a", "b"],
            vec!["mkfs", path],
            vec!["fsck", path],
            vec!["fsck", "--repair", path],
        ] {
            let code = if arguments[0] == "fsck" { 8 } else { 2 };
            let said = refusal(&minfs(&arguments), code);
            assert_eq!(said.matches(path).count(), 1, "{arguments:?}: {said}");
        }
    }
    let sized = refusal(&minfs(&["mkfs", "--size", "16M", &directory]), 2);
    assert!(!sized.contains("--force") && sized.matches(&directory).count() == 1, "{sized}");
}

#[test]
fn sizes_and_labels_that_cannot_be_leave_nothing_and_say_what_can() {
    let site = Site::new();
    let image = site.path("new");
    let refused = |arguments: &[&str], says: &str| {
        let arguments = [&["mkfs"], arguments, &[image.as_str()]].concat();
        let output = minfs(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {said}");
        assert!(said.contains(says), "{said}");
        assert!(!Path::new(&image).exists(), "{arguments:?} left an image");
    };
    // More than the largest units reach, and more than a file can have here.
    refused(&["--size", "8388607T"], "");
    refused(&["--size", "16777215T"], "too large");
    refused(&["--size", "16M", "--unit", "3072"], "a power of two from 4096");
    refused(&["--size", "16M", "--unit", "1G"], "a smaller unit");
    refused(&["--size", "16M", "--label", "a\nUUID=b"], "control characters");
    refused(&["--size", "16M", "--uuid", "none"], "'none' is no UUID");
}

#[test]
fn a_size_for_an_image_that_exists_makes_it_anew_by_force_only() {
    let site = Site::new();
    let image = &site.image;
    let length = || fs::metadata(image).unwrap().len();
    let said = refusal(&minfs(&["mkfs", "--size", "32M", image]), 2);
    assert!(said.contains("--force") && said.contains("lost"), "{said}");
    assert_eq!((length(), succeed(minfs(&["ls", image]))), (16 << 20, "binary\ntext\n".into()));
    for (size, bytes) in [("32M", 32 << 20), ("8M", 8 << 20)] {
        succeed(minfs(&["mkfs", "--force", "--size", size, image]));
        assert_eq!((length(), succeed(minfs(&["ls", image]))), (bytes, String::new()));
    }
}

/// `PROGRAM ... | head -1`, and a full disk under standard output.
#[test]
fn a_reader_that_has_left_is_no_failure_and_a_full_disk_is() {
    let site = Site::new();
    let image = site.image.as_str();
    for words in [
        &["ls", "-l", image][..],
        &["get", image, "binary"],
        &["stat", image],
        &["stat", image, "text"],
        &["df", image],
        &["map", image],
        &["fsck", "-v", image],
        &["completions", "bash"],
    ] {
        for (number, errors) in [Stdio::piped(), Stdio::null()].into_iter().enumerate() {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = Command::new(MINFS);
            command.args(words).stdout(writer.try_clone().unwrap()).stderr(errors);
            if number == 1 {
                command.stderr(writer);
            }
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), &*said), (Some(0), ""), "{words:?}");
        }
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(MINFS).args(words).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if words[0] == "fsck" {
            assert_eq!(output.status.code(), Some(0), "the volume is sound all the same: {said}");
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("standard output: No space left"), "{words:?}: {said}");
    }
}

#[test]
fn a_name_that_a_terminal_would_obey_is_escaped_for_people_only() {
    let site = Site::new();
    let (image, name) = (&site.image, "a\u{1b}[2J");
    let source = site.path("source");
    fs::write(&source, TEXT).unwrap();
    succeed(minfs(&["put", image, &source, name]));
    // A script gets the name as it is, and its file by it.
    assert!(succeed(minfs(&["ls", image])).contains(name));
    assert!(minfs(&["get", image, name]).stdout == TEXT);
    let long = succeed(minfs(&["ls", "-l", image]));
    assert!(long.contains("a\\u{1b}[2J") && !long.contains('\u{1b}'), "{long}");
}

/// Runs a shell's words, `$MINFS` being the program and `$1` the image.
fn shell(site: &Site, words: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", words, "sh", &site.image]).env("MINFS", MINFS);
    shell.current_dir(&site.directory).output().unwrap()
}

#[test]
fn get_leaves_holes_where_nothing_was_written_and_nothing_where_it_fails() {
    let site = Site::new();
    let sizes = [("small", 64 << 20), ("large", 1 << 40), ("largest", i64::MAX as u64)];
    let device = block::FileDevice::open(&site.image, &Default::default()).unwrap();
    let volume = minfs::Volume::mount(std::sync::Arc::new(device), &Default::default()).unwrap();
    for (name, size) in sizes {
        let file = volume.create(name.as_bytes(), 0o644).unwrap();
        file.write(&site.binary, 0).unwrap();
        file.preallocate(0, 1 << 20, true, false).unwrap();
        file.truncate(size).unwrap();
    }
    volume.create(b"hole", 0o644).unwrap().truncate(64 << 20).unwrap();
    volume.unmount().unwrap();
    let out = site.path("out");
    let check = |size: u64, copies: u64| {
        let file = fs::File::open(&out).unwrap();
        let facts = file.metadata().unwrap();
        assert_eq!(facts.len(), size * copies);
        assert!(facts.blocks() * 512 < 4 << 20, "{size}: {} blocks", facts.blocks());
        for copy in 0..copies {
            let mut back = vec![0; site.binary.len() + 1000];
            file.read_exact_at(&mut back, copy * size).unwrap();
            let (data, zeros) = back.split_at(site.binary.len());
            assert!(data == site.binary && zeros.iter().all(|byte| *byte == 0));
        }
        fs::remove_file(&out).unwrap();
    };
    for (name, size) in &sizes[..2] {
        succeed(minfs(&["get", &site.image, name, &out]));
        check(*size, 1);
        fs::write(&out, vec![7; 300_000]).unwrap();
        succeed(minfs(&["get", "--force", &site.image, name, &out]));
        check(*size, 1);
        let twice = format!("($MINFS get $1 {name} && $MINFS get $1 {name} -) >out");
        succeed(shell(&site, &twice));
        check(*size, 2);
    }
    succeed(shell(&site, "for n in small hole; do $MINFS get $1 $n >>out; done"));
    let facts = fs::metadata(&out).unwrap();
    assert_eq!((facts.len(), facts.blocks() * 512 < 4 << 20), (128 << 20, true));
    // A pipe has no holes.
    assert_eq!(succeed(shell(&site, "$MINFS get $1 small | wc -c")).trim(), "67108864");
    // Beyond what may be held, whatever file system this is; the old content stays.
    for force in ["", "--force"] {
        let before = fs::read(&out).ok().filter(|_| !force.is_empty());
        if force.is_empty() {
            fs::remove_file(&out).unwrap();
        }
        let words = format!("ulimit -f 1000; exec $MINFS get {force} $1 small out");
        let said = refusal(&shell(&site, &words), 1);
        assert!(said.contains("67108864 bytes"), "{said}");
        assert!(fs::read(&out).ok() == before, "{force}");
        fs::write(&out, b"old").unwrap();
    }
    // File systems differ in what they can hold.
    let output = minfs(&["get", "--force", &site.image, "largest", &out]);
    if output.status.success() {
        check(i64::MAX as u64, 1);
    } else {
        assert!(refusal(&output, 1).contains(&i64::MAX.to_string()));
        assert_eq!(fs::read(&out).unwrap(), b"old");
        fs::remove_file(&out).unwrap();
        refusal(&minfs(&["get", &site.image, "largest", &out]), 1);
        assert!(!Path::new(&out).exists());
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: in part: a full file system needs root");
        return;
    }
    // The mount ends with its namespace.
    let words = "unshare --mount sh -c 'mkdir full && mount -t tmpfs -o size=64k none full && \
                 $MINFS get $0 binary full/out; echo $?; ls full' $1";
    let output = shell(&site, words);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{output:?}");
}

/// A user who is nobody's caller.
const STRANGER: u32 = 54_321;

/// Whatever is written goes where the user named it: by own links, never by a stranger's.
#[test]
fn a_strangers_link_leads_no_command_to_another_file_and_an_own_one_does() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give a link to another user");
        return;
    }
    let site = Site::new();
    let (image, precious) = (&site.image, site.path("precious"));
    let directory = site.path("sticky");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, PermissionsExt::from_mode(0o1777)).unwrap();
    let link = format!("{directory}/link");
    let relink = |owner| {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        lchown(&link, Some(owner), Some(owner)).unwrap();
    };
    let commands: [&[&str]; 6] = [
        &["mkfs", "-q", "--size", "16M", "-f", &link],
        &["mkfs", "-q", "-f", &link],
        &["get", "-f", image, "text", &link],
        &["put", &link, image, "name"],
        &["fsck", "--repair", &link],
        &["mkfs", "-q", "--size", "16M", &link],
    ];
    for arguments in commands {
        fs::write(&precious, vec![7; 16 << 20]).unwrap();
        relink(STRANGER);
        let output = minfs(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 8)), "{arguments:?}: {said}");
        let is_strangers = said.contains("belongs to user 54321");
        // Without --force a name that is taken is enough to refuse it.
        assert!(is_strangers || said.contains("it exists"), "{arguments:?}: {said}");
        assert!(fs::read(&precious).unwrap() == vec![7; 16 << 20], "{arguments:?}");
        relink(0);
    }
    succeed(minfs(commands[0]));
    succeed(minfs(commands[2]));
    assert_eq!(fs::read(&precious).unwrap(), TEXT);
    // A name that is free in a sticky directory is made there, and leads nowhere else.
    relink(STRANGER);
    fs::remove_file(&precious).unwrap();
    for arguments in commands {
        assert!(!minfs(arguments).status.success(), "{arguments:?}");
        assert!(!Path::new(&precious).exists(), "{arguments:?}");
    }

    let pages = site.path("pages");
    fs::create_dir(&pages).unwrap();
    fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(&precious, format!("{pages}/minfs.8")).unwrap();
    succeed(minfs(&["man", &pages]));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(fs::read_to_string(format!("{pages}/minfs.8")).unwrap().contains("minfs"));
    fs::set_permissions(&pages, PermissionsExt::from_mode(0o777)).unwrap();
    assert!(refusal(&minfs(&["man", &pages]), 2).contains("can be written by other users"));
}
