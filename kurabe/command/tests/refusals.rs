//! Wrong use: exit code 2, a message that names the place, the value and the nearest valid one,
//! and nothing touched.

mod harness;

use std::fs;
use std::path::{Path, PathBuf};

use harness::{NOBODY, Site, root};

/// Runs `kurabe compare` with these contenders and flags, and checks that it is refused.
#[track_caller]
fn refused(contenders: &[&str], flags: &[&str], says: &[&str]) {
    let site = Site::new();
    let mut arguments = vec!["compare"];
    arguments.extend(contenders);
    arguments.extend(flags);
    arguments.extend(["--", "true"]);
    let ran = site.run(&arguments).expect(2).says(says);
    assert_eq!(ran.stdout, "");
    site.expect_untouched(&[]);
}

#[test]
fn contenders() {
    refused(&["ext5"], &[], &["CONTENDER", "'ext5'", "did you mean 'ext4'"]);
    refused(&["ext4", "hammer"], &[], &["CONTENDER", "'hammer'", "there are", "xfs"]);
    refused(&["ext4", "ext4"], &[], &["CONTENDER", "'ext4' is taken", "'b: ext4'"]);
    refused(&["ext4 -L 'x"], &[], &["CONTENDER", "ext4 -L 'x", "quote"]);
    refused(&["ext4 @"], &[], &["CONTENDER", "'@' is followed by no mount option"]);
    refused(&[": ext4"], &[], &["CONTENDER", "the label", "empty"]);
    refused(&["dir:/no/such/place"], &[], &["dir:/no/such/place", "No such file or directory"]);
    refused(
        &["dir:/etc/passwd"],
        &[],
        &["/etc/passwd is a regular file, and a directory is needed"],
    );
    refused(&["dir:/tmp @ noatime"], &[], &["CONTENDER", "never formatted"]);
    refused(&[], &[], &["<CONTENDER>"]);
}

#[test]
fn flags_and_subcommands() {
    refused(&["ext4"], &["--bugdet", "10m"], &["--bugdet", "'--budget'"]);
    refused(&["ext4"], &["--style", "fancy"], &["--style", "'fancy'", "full"]);
    refused(&["ext4"], &["--runs", "many"], &["--runs", "'many'", "a whole number such as 5"]);
    refused(&["ext4"], &["--seed", "x"], &["--seed", "'x'", "a whole number such as 5"]);
    refused(&["ext4"], &["--warmup", "4294967296"], &["--warmup", "from 0 to 4294967295"]);
    refused(&["ext4"], &["--max-runs", "-3"], &["--max-runs", "'-3'", "a whole number"]);
    refused(&["ext4"], &["--same-within", "5%"], &["--same-within", "'5%'", "such as 5 or 0.5"]);
    refused(&["ext4"], &["-N", "--shell", "sh"], &["-N", "--shell"]);
    let site = Site::new();
    site.run(&["comapre", "ext4", "--", "true"]).expect(2).says(&["comapre", "'compare'"]);
    site.run(&["compare", "ext4"]).expect(2).says(&[
        "COMMAND",
        "--objects",
        "--fio-matrix",
        "--tree",
    ]);
    site.run(&["compare", "ext4", "--", ""]).expect(2).says(&["COMMAND", "empty"]);
    site.expect_untouched(&[]);
}

#[test]
fn devices() {
    refused(&["ext4"], &["--device", "lop:8G"], &["--device", "'lop:8G'", "loop:8G"]);
    refused(&["ext4"], &["--device", "loop:8X"], &["--device", "'8X'", "8G"]);
    refused(&["ext4"], &["--device", "loop:"], &["--device", "size", "8G"]);
    refused(&["ext4"], &["--device", "loop:1M"], &["--device", "1M", "too small"]);
    refused(&["ext4"], &["--device", "mem:5000001K"], &["--device", "5000001K", "multiple"]);
    refused(&["ext4"], &["--device", "/dev/sdz"], &["--device /dev/sdz: /dev/sdz does not exist"]);
    refused(&["ext4"], &["--destroy", "sdz"], &["--destroy", "real device"]);
    refused(&["ext4"], &["--device", "mem:64M,mem:64M"], &["several devices", "--on debian"]);
    refused(&["ext4"], &["--device", "mem:64M,loop:8X"], &["--device", "'8X'"]);
    refused(&["ext4"], &["--device", "mem:64M,/dev/sdz"], &["/dev/sdz does not exist"]);
    refused(
        &["ext4", "xfs"],
        &["--device", "loop:64M"],
        &["'xfs'", "300M", "--device loop:64M has 64M"],
    );
    refused(
        &["xfs over raid1:2"],
        &["--device", "mem:512M"],
        &["xfs needs at least 300M, and 'raid1:2' leaves it at most 256 MiB of --device mem:512M"],
    );
}

#[test]
fn gates_on_what_nothing_checks() {
    refused(&["ext4"], &["--gate", "ext4: durable"], &["gate 'ext4: durable'", "--durability"]);
    refused(&["ext4"], &["--gate", "ext4: contents held"], &["nothing here checks 'contents'"]);
    let site = Site::new();
    fs::write(site.work().join("a.obj"), "Command { New(4K); }").unwrap();
    let flags = ["compare", "ext4", "--objects", "a.obj", "--gate", "ext4: contents held"];
    site.run(&flags).expect(2).says(&["no check is called 'contents'; there are presence"]);
}

#[test]
fn numbers_and_times() {
    refused(&["ext4"], &["--runs", "0"], &["--runs", "1 to 10000"]);
    refused(&["ext4"], &["--min-runs", "9", "--max-runs", "3"], &["--min-runs", "9", "3"]);
    refused(&["ext4"], &["--runs", "9", "--max-runs", "3"], &["--runs", "max-runs"]);
    refused(&["ext4"], &["--budget", "soon"], &["--budget", "'soon'", "10m"]);
    refused(&["ext4"], &["--budget", "0s"], &["--budget", "'0s'"]);
    refused(&["ext4"], &["--timeout", "5 parsecs"], &["--timeout", "'5 parsecs'"]);
    refused(&["ext4"], &["--idle-wait", "1.2.3s"], &["--idle-wait", "'1.2.3s'"]);
    refused(&["ext4"], &["--same-within", "0"], &["--same-within", "0 is no margin", "such as 5"]);
    refused(&["ext4"], &["--same-within", "NaN"], &["--same-within", "NaN"]);
    refused(&["ext4"], &["--cache", "tepid"], &["--cache", "'tepid'", "'cold'", "'warm'"]);
}

#[test]
fn gates_labels_and_parameters() {
    let two = ["ext4", "xfs"];
    refused(&two, &["--gate", "xsf <= 1.1"], &["--gate", "'xsf'", "did you mean 'xfs'"]);
    refused(&two, &["--gate", "xfs = 1.1"], &["--gate", "xfs = 1.1", "column 10", "<="]);
    refused(&two, &["--gate", "xfs <= ten"], &["--gate", "'ten'", "1.10"]);
    refused(&two, &["--gate", "ext4 <= 1.1"], &["--gate", "'ext4' is the baseline"]);
    refused(&two, &["--baseline", "xsf"], &["--baseline", "'xsf'", "did you mean 'xfs'"]);
    refused(&two, &["-L", "jobs", "1,2"], &["--parameter-list", "{jobs}", "no workload"]);
    refused(&["ext4 -b {b}"], &[], &["CONTENDER", "no parameter is called 'b'"]);
    refused(&two, &["--name", "a/b"], &["--name", "'a/b'"]);
    refused(&two, &["--output", ""], &["--output", "empty"]);
    refused(&two, &["--shell", "sh 'c"], &["--shell", "sh 'c"]);
}

#[test]
fn programs_that_are_not_there() {
    let site = Site::new();
    fs::write(site.work().join("mine.sh"), "#!/bin/sh\n").unwrap();
    let mine = site.work().join("mine.sh").display().to_string();
    let absent = "no-such-program-of-kurabe";
    let line = format!("{absent} --fast");
    let command = "command: ";
    for (flags, says) in [
        (&["--", absent, "argument"][..], &[command, absent, "is not found; install it"][..]),
        (&["--", &line], &[command, absent, "is not found; install it"]),
        (&["--shell", "bash", "--", &line], &[command, absent, "is not found"]),
        (&["-N", "--", "/no/such/program --help"], &["/no/such/program", "is not found"]),
        (&["--", "/no/such/program --help"], &["/no/such/program", "is not found"]),
        (&["--shell", "no-such-shell", "--", "true"], &["no-such-shell", "is not found"]),
        (&["--setup", &line, "--", "true"], &["': setup: ", absent, "is not found"]),
        (&["--", &mine, "x"], &[command, &mine, "is not executable; chmod +x"]),
        (&["--", "./mine.sh"], &[command, &mine, "is not executable; chmod +x"]),
        (&["--", "./other", "x"], &["'./other'", "is empty", "or make it in the setup"]),
    ] {
        let arguments = [&["compare", "dir:/tmp"], flags].concat();
        site.run(&arguments).expect(2).says(says);
    }
    site.expect_untouched(&["mine.sh"]);
}

/// What only the shell can know is not refused.
#[test]
fn lines_that_only_the_shell_understands_are_tried() {
    let absent = "no-such-program-of-kurabe";
    let fallback = format!("{absent} 2>/dev/null || true");
    let made = "printf '#!/bin/sh\\n' >made; chmod +x made";
    for (flags, line) in [
        (&[][..], fallback.as_str()),
        (&[], "cd ."),
        (&[], "command -v sh"),
        (&["--shell", "bash"], "time true"),
        (&[], "MINE=1 true"),
        (&[], "\"true\""),
        (&["--setup", made], "./made"),
    ] {
        Site::new().compare(&["dir:."], flags, &[line]).expect(0);
    }
}

#[test]
fn files_and_directories() {
    refused(&["dir:/tmp"], &["--export-json", "no/x.json"], &["no/x.json", "make the directory"]);
    refused(&["dir:/tmp"], &["--export-csv", "/"], &["export file /"]);
    let site = Site::new();
    for action in ["report", "resume"] {
        site.run(&[action, "."]).expect(2).says(&["plan.json", "kurabe-results/"]);
        site.run(&[action, "absent"]).expect(2).says(&["absent", "does not exist"]);
    }
    let tree = |tree: &str, says: &[&str]| {
        site.run(&["compare", "dir:/tmp", "--tree", tree]).expect(2).says(says);
    };
    tree("synthetic:18446744073709551615", &["more than 10000000 files"]);
    tree("synthetic:0", &["no number of files"]);
    // Reading it would wait for the kernel's next message.
    tree("/proc/kmsg", &["/proc/kmsg is a file that the kernel makes up"]);
    site.run(&["run", "absent.toml"]).expect(2).says(&["absent.toml", "No such file"]);
    site.expect_untouched(&[]);
    fs::create_dir(site.work().join("mine")).unwrap();
    fs::write(site.work().join("mine/plan.json"), "mine").unwrap();
    let arguments = ["compare", "dir:/tmp", "--out", "mine", "--", "true"];
    site.run(&arguments).expect(2).says(&["mine", "holds a result already", "--out"]);
    assert_eq!(fs::read_to_string(site.work().join("mine/plan.json")).unwrap(), "mine");
    assert_eq!(fs::read_dir(site.work().join("mine")).unwrap().count(), 1);
    site.run(&["resume", "mine", "--more", "0"]).expect(2).says(&["--more", "0 is not in 1.."]);
    site.run(&["resume", "mine"]).expect(2).says(&["mine/plan.json:1"]);
}

#[test]
fn study_files_point_at_the_line() {
    let site = Site::new();
    for (text, says) in [
        (
            "contenders = ['ext4']\nbugdet = '10m'\n[[workload]]\ncommand = 'true'\n",
            &["study.toml:2:1", "'bugdet'", "did you mean 'budget'"][..],
        ),
        (
            "contenders = ['ext4',\n  'xsf']\n[[workload]]\ncommand = 'true'\n",
            &["study.toml:2:3", "'xsf'", "did you mean 'xfs'", "2 |   'xsf']"],
        ),
        (
            "contenders = ['ext4']\nruns = 'five'\n[[workload]]\ncommand = 'true'\n",
            &["study.toml:2:8", "runs = 'five'"],
        ),
        (
            "contenders = ['ext4']\nbudget = 'soon'\n[[workload]]\ncommand = 'true'\n",
            &["study.toml:2:10", "'soon'", "10m"],
        ),
        ("contenders = ['ext4'\n[[workload]]\n", &["study.toml:"]),
        (
            "contenders = ['ext4']\n[[workload]]\ncomand = 'true'\n",
            &["study.toml:3:1", "'comand'", "did you mean 'command'"],
        ),
        ("contenders = ['ext4']\n\n[[workload]]\nname = 'x'\n", &["study.toml:3:", "command"]),
        ("", &["study.toml", "contenders"]),
    ] {
        fs::write(site.work().join("study.toml"), text).unwrap();
        site.run(&["run", "study.toml"]).expect(2).says(says);
    }
    fs::write(site.work().join("study.toml"), b"name = '\xff'").unwrap();
    site.run(&["run", "study.toml"]).expect(2).says(&["study.toml", "UTF-8"]);
    fs::write(
        site.work().join("study.toml"),
        "contenders = ['ext4']\n[[workload]]\ncommand = 'true'\n",
    )
    .unwrap();
    // What is wrong in a flag is not blamed on the file.
    let ran = site.run(&["run", "study.toml", "--budget", "soon"]).expect(2);
    assert!(ran.stderr.contains("--budget: 'soon'"), "{}", ran.stderr);
    site.expect_untouched(&["study.toml"]);
}

#[test]
fn a_device_that_does_not_fit_is_refused_with_both_sizes() {
    if !root() {
        return;
    }
    let site = Site::new();
    let refused = |device: &str, says: &[&str]| {
        let arguments =
            ["compare", "ext4", "--device", device, "--out", "new/result", "--", "true"];
        site.run(&arguments).expect(2).says(says);
        site.expect_untouched(&[]);
    };
    let images = site.images().display().to_string();
    refused(&site.image_device("900000G"), &["878.9 TiB", &images, "free", "@DIR"]);
    refused("mem:900000G", &["mem:900000G", "available", "loop:SIZE"]);
    refused("loop:64M@/dev/shm", &["/dev/shm lies in memory", "mem:64M"]);
    refused("loop:64M@/no/such/place", &["/no/such/place", "@DIR"]);
    refused("loop:64M@/etc/passwd", &["/etc/passwd is a regular file", "@DIR"]);
}

/// A real device is refused before a word is said of the study, and so is one that is too small.
#[test]
fn a_real_device_is_refused_by_name_contents_and_size() {
    if !root() {
        return;
    }
    let site = Site::new();
    let image = site.home().join("disk");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut attach = site.program("losetup");
    let attached = site.finish({
        attach.args(["--find", "--show"]).arg(&image);
        attach
    });
    let device = attached.expect(0).stdout.trim().to_string();
    let name = device.trim_start_matches("/dev/").to_string();
    let refused = |contender: &str, destroy: &str, says: &[&str]| {
        let arguments = ["compare", contender, "--device", &device, "--destroy", destroy];
        let ran = site.run(&[&arguments[..], &["--out", "result", "--", "true"]].concat());
        let ran = ran.expect(2).says(says);
        assert!(!ran.stderr.contains("result:"), "{}", ran.stderr);
        assert!(!site.work().join("result").exists());
    };
    refused("ext4", "sdz", &["it is not called 'sdz'", &format!("--destroy '{name}'")]);
    refused("xfs", &name, &["xfs needs at least 300M", &format!("{device} has 64M")]);
    let mut make = site.program("mkfs.ext4");
    make.args(["-q", &device]);
    site.finish(make).expect(0);
    refused("ext4", &name, &["it carries ext4", &format!("--destroy '{name}:ext4'")]);
    let mut detach = site.program("losetup");
    detach.args(["--detach", &device]);
    site.finish(detach).expect(0);
    fs::remove_file(image).unwrap();
    site.expect_untouched(&[]);
}

/// kurabe as another user than root, in a site of that user's.
fn as_nobody(site: &Site, arguments: &[&str]) -> harness::Ran {
    // The build directory may be closed to other users.
    let program = site.home().join("kurabe");
    if !program.exists() {
        harness::copy_program(harness::KURABE, &program);
        for directory in [site.work(), site.own(), site.temporary(), site.home().to_path_buf()] {
            std::os::unix::fs::chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let number = NOBODY.to_string();
    let mut command = site.program("setpriv");
    command.args([&format!("--reuid={number}"), &format!("--regid={number}"), "--clear-groups"]);
    command.arg(program).args(arguments);
    site.finish(command)
}

#[test]
fn without_root_file_systems_are_refused_with_one_line() {
    if !root() {
        return;
    }
    let site = Site::new();
    let ran = as_nobody(&site, &["compare", "ext4", "ext2", "--out", "result", "--", "true"]);
    let ran = ran.expect(2).says(&["needs root", "sudo", "dir:/path"]);
    assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{}", ran.stderr);
    site.expect_untouched(&[]);
}

#[test]
fn without_root_directories_are_compared_and_reported() {
    if !root() {
        return;
    }
    let site = Site::new();
    as_nobody(&site, &["file-systems"]).expect(0);
    for name in ["one", "two"] {
        fs::create_dir(site.work().join(name)).unwrap();
        std::os::unix::fs::chown(site.work().join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let (one, two) = (site.work().join("one"), site.work().join("two"));
    let (one, two) = (format!("one: dir:{}", one.display()), format!("dir:{}", two.display()));
    let flags = [
        "--runs",
        "3",
        "--out",
        "result",
        "--",
        "pwd > file && cp file ../../../seen && sleep 0.06",
    ];
    let mut arguments = vec!["compare", &one, &two];
    arguments.extend(flags);
    let ran = as_nobody(&site, &arguments).expect(0);
    // What root would have done is said, with the way out.
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("caches were not dropped") && said.contains("--cache warm"));
    // The command had a directory of its own in there, and that is gone.
    let seen = fs::read_to_string(site.work().join("seen")).unwrap();
    let inside = ["one", "two"].map(|name| site.work().join(name).display().to_string());
    assert!(inside.iter().any(|inside| seen.starts_with(inside) && seen.trim_end() != inside));
    for name in ["one", "two"] {
        assert_eq!(fs::read_dir(site.work().join(name)).unwrap().count(), 0, "left in {name}");
    }
    assert_eq!(site.records().len(), 6);
    assert!(site.records().iter().all(|record| record["outcome"]["kind"] == "completed"));
    let again = as_nobody(&site, &["report", "result"]).expect(0);
    assert_eq!(again.stdout, ran.stdout);
    as_nobody(&site, &["clean"]).expect(0);
    site.expect_nothing_left();
    // A place for results that is root's is refused with the way out.
    fs::create_dir(site.work().join("kurabe-results")).unwrap();
    let ran = as_nobody(&site, &["compare", &one, "--runs", "1", "--", "true"]);
    ran.expect(2).says(&["kurabe-results/true-", "Permission denied", "--out DIR"]);
    // A directory that is not one's own is refused before anything begins.
    let foreign = ["compare", "dir:/etc", "--out", "other", "--", "true"];
    as_nobody(&site, &foreign).expect(2).says(&["/etc cannot be written"]);
    assert!(!site.work().join("other").exists());
}

#[test]
fn a_current_directory_that_is_gone_is_refused() {
    let site = Site::new();
    let gone = site.home().join("gone");
    fs::create_dir(&gone).unwrap();
    let script = format!("cd {0}; rmdir {0}; exec {1} layers", gone.display(), harness::KURABE);
    let ran = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("the current directory: "));
}

/// A control group whose processes may have so much memory together; removed when dropped.
struct LimitedGroup(PathBuf);

impl LimitedGroup {
    fn new(bytes: u64) -> Option<LimitedGroup> {
        let name = format!("kurabe-test-{}", std::process::id());
        for (root, limit) in
            [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]
        {
            let path = Path::new(root).join(&name);
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let group = LimitedGroup(path);
            let limit = group.0.join(limit);
            if limit.exists() && fs::write(limit, bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        eprintln!("SKIPPED: no control group with a limit of memory can be made here");
        None
    }
}

impl Drop for LimitedGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The kernel would kill whoever fills more than that.
#[test]
fn memory_is_refused_beyond_the_limit_of_a_control_group() {
    if !root() {
        return;
    }
    let Some(group) = LimitedGroup::new(640 << 20) else { return };
    let facts = fs::read_to_string("/proc/meminfo").unwrap();
    let available = facts.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let kib: u64 = available.trim().trim_end_matches(" kB").parse().unwrap();
    if kib < 2 << 20 {
        eprintln!("SKIPPED: this machine would not have the memory without the group either");
        return;
    }
    let site = Site::new();
    let compare = |device: &str| {
        let mut command = site.program("sh");
        let enter = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
        command.args(["-c", enter]).arg(&group.0).arg(harness::KURABE);
        command.args(["compare", "ext4", "--device", device, "--runs", "1"]);
        command.args(["--idle-wait", "50ms", "--out", "result", "--", "true"]);
        site.finish(command)
    };
    compare("mem:1G").expect(2).says(&["mem:1G does not fit", "of memory are available"]);
    site.expect_untouched(&[]);
    compare("mem:64M").expect(0);
    site.expect_nothing_left();
}
