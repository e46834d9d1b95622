//! Another machine: a study over ssh, what is refused, and the ways in which a connection ends.
//!
//! The other machine is this one, behind an sshd of the test's own on a port of the loopback
//! interface, with a `KURABE_HOME` of its own. Where ssh or sshd is missing the tests skip and say so.

mod harness;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use harness::{Ran, Running, Site, failure, kinds, root, signal, tool, wait_until};
use rustix::process::Signal;

/// Another machine, called `box`.
struct There {
    site: Site,
    sshd: Child,
}

impl There {
    /// `path` goes before that machine's PATH, and `prepared` is done first, in a shell, where nobody
    /// else sees what it mounts. The machine knows itself where its things lie, as `$own`.
    fn start(path: &str, prepared: &str) -> Option<There> {
        There::start_at("127.0.0.1", path, prepared)
    }

    /// The same, at another address of the loopback interface.
    fn start_at(address: &str, path: &str, prepared: &str) -> Option<There> {
        let (true, Some(ssh), Some(sshd)) = (root(), tool("ssh"), tool("sshd")) else {
            return None;
        };
        let site = Site::new();
        let file = |name: &str| site.home().join(name);
        for key in ["host", "key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(file(key))
                .status();
            assert!(made.unwrap().success());
        }
        // Free a moment ago, and nobody else's but by chance.
        let free = TcpListener::bind((address, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let (home, own) = (site.home().display(), site.own());
        let write = |name: &str, text: String| fs::write(file(name), text).unwrap();
        write(
            "sshd_config",
            format!(
                "ListenAddress {address}\nPort {port}\nHostKey {home}/host\nPidFile none\n\
                 AuthorizedKeysFile {home}/key.pub\nStrictModes no\nPermitRootLogin yes\n\
                 PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\n\
                 SetEnv KURABE_HOME={} KURABE_TEST_SITE={home} PATH={path}/usr/bin:/bin:/usr/sbin:/sbin\n",
                own.display(),
            ),
        );
        let key = fs::read_to_string(file("host.pub")).unwrap();
        write("known", format!("[{address}]:{port} {key}"));
        write(
            "ssh_config",
            format!(
                "Host box\nHostName {address}\nPort {port}\nUser root\nIdentityFile {home}/key\n\
                 IdentitiesOnly yes\nUserKnownHostsFile {home}/known\n"
            ),
        );
        // As whoever has set up an alias in a configuration of their own.
        let ssh = ssh.display();
        program(&file("bin"), "ssh", &format!("exec {ssh} -F {home}/ssh_config \"$@\""));
        // Its directory of /run may not be there, and is not to be left.
        let script = format!(
            "own={}; mount -t tmpfs -o mode=755 run /run && mkdir /run/sshd && {prepared}exec {} -D -f {home}/sshd_config",
            own.display(),
            sshd.display()
        );
        let sshd = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let there = There { site, sshd };
        let login = || there.near(Command::new("ssh")).args(["box", "true"]).output().unwrap();
        for _ in 0..100 {
            if login().status.success() {
                return Some(there);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let why = String::from_utf8_lossy(&login().stderr).into_owned();
        eprintln!("SKIPPED: an sshd of the test's own lets nobody in: {why}");
        None
    }

    /// A command that finds `box`.
    fn near(&self, mut command: Command) -> Command {
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.site.home().join("bin").display()));
        command
    }

    /// A comparison of this site's on the machine.
    fn compare(&self, near: &Site, contenders: &[&str], flags: &[&str], command: &[&str]) -> Ran {
        let flags = [&["--on", "ssh:box"], flags].concat();
        near.finish(self.near(near.compare_command(contenders, &flags, command)))
    }

    /// Starts a comparison, and waits until its workload runs there.
    fn start_long(&self, near: &Site) -> Running {
        let file = self.site.home().join("begun");
        let _ = fs::remove_file(&file);
        let load = format!("head -c 1000000 /dev/urandom >x; touch {}; sleep 1000", file.display());
        let flags = ["--on", "ssh:box", "--runs", "3", "--device", &self.site.image_device("64M")];
        let command = near.compare_command(&["ext4", "ext2"], &flags, &[&load]);
        let running = near.start(self.near(command));
        wait_until("the load runs there", || file.exists());
        running
    }

    /// What is taken there, besides the copy of kurabe.
    fn taken(&self) -> Vec<String> {
        self.site.taken().into_iter().filter(|line| line != "scratch bin").collect()
    }

    #[track_caller]
    fn expect_nothing_left(&self) {
        wait_until("everything is given back there", || self.taken().is_empty());
    }

    /// Ends the connections, and nothing else.
    fn cut(&self) {
        let parent = format!("PPid:\t{}\n", self.sshd.id());
        let mut cut = 0;
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            if status.contains(&parent) {
                signal(entry.file_name().to_str().unwrap().parse().unwrap(), Signal::KILL);
                cut += 1;
            }
        }
        assert!(cut > 0, "nobody is connected");
    }

    /// The copies of kurabe there.
    fn copies(&self) -> Vec<PathBuf> {
        let copies = fs::read_dir(self.site.own().join("bin")).into_iter().flatten().flatten();
        copies.map(|entry| entry.path()).collect()
    }
}

impl Drop for There {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

/// Makes a program of a script.
fn program(directory: &Path, name: &str, script: &str) {
    fs::create_dir_all(directory).unwrap();
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_study_is_carried_out_on_another_machine_and_leaves_there_one_copy_of_kurabe() {
    let Some(there) = There::start("", "") else { return };
    let near = Site::new();
    let runs = |flags: &[&str]| {
        let flags = [&["--runs", "2", "--device", "mem:128M"], flags].concat();
        let _ = fs::remove_dir_all(near.work().join("result"));
        let load = "test \"$PWD\" != / && head -c 3000000 /dev/urandom >x";
        there.compare(&near, &["ext4", "j: ext4 -O ^has_journal"], &flags, &[load]).expect(0)
    };
    let ran = runs(&["--side-by-side"]).says(&["copying kurabe to box", " on mem:128M of box"]);
    assert!(ran.stdout.contains("not a disk (mem:128M) of box"), "{}", ran.stdout);
    let records = near.records();
    assert_eq!(kinds(&records), ["completed"; 4]);
    for record in &records {
        assert_eq!(record["contender"]["environment"]["ssh"], "box");
        assert!(!record["slices"].as_array().unwrap().is_empty(), "they took turns");
    }
    let facts = near.json("facts.json");
    assert_eq!(facts["ssh"]["host"], "box");
    assert_eq!(facts["device"]["size_bytes"], 128 << 20);
    assert_eq!(facts["machine"]["root"], true);
    there.expect_nothing_left();
    near.expect_nothing_left();

    let copies = there.copies();
    assert_eq!(copies.len(), 1);
    assert_eq!(fs::metadata(&copies[0]).unwrap().permissions().mode() & 0o777, 0o700);
    let ran = runs(&["--one-at-a-time"]);
    assert!(!ran.stderr.contains("copying"), "{}", ran.stderr);
    // A copy that is damaged is not run.
    fs::write(&copies[0], "#!/bin/sh\necho it ran >&2\n").unwrap();
    let ran = runs(&["--one-at-a-time"]).says(&["copying kurabe to box"]);
    assert!(!ran.stderr.contains("it ran"), "{}", ran.stderr);
    assert_eq!(there.copies(), copies);
    let on = there.near(near.kurabe(&["resume", "result", "--more", "1"]));
    near.finish(on).expect(0);
    assert_eq!(near.records().len(), 6);

    // What is another user's there by now is not run again.
    let setup = near.home().join("setup.sh");
    fs::write(&setup, "true\n").unwrap();
    runs(&["--setup", &format!("sh {}", setup.display())]);
    std::os::unix::fs::chown(&setup, Some(65_534), None).unwrap();
    let on = there.near(near.kurabe(&["resume", "result", "--more", "1"]));
    near.finish(on).expect(2).says(&["box: ", "its setup is not run again", "setup.sh"]);
    there.expect_nothing_left();
}

#[test]
fn what_cannot_be_done_there_is_refused_and_leaves_nothing() {
    let Some(there) = There::start("", "") else { return };
    let near = Site::new();
    let refused = |contenders: &[&str], flags: &[&str], says: &[&str]| {
        there.compare(&near, contenders, flags, &["true"]).expect(2).says(says);
        near.expect_untouched(&[]);
        there.expect_nothing_left();
    };
    refused(
        &["ext4"],
        &["--device", "/dev/no-such", "--destroy", "x"],
        &["box: --device /dev/no-such: ", "No such file"],
    );
    refused(&["ext4"], &["--device", "mem:100000G"], &["box: ", "does not fit"]);
    refused(&["ext4"], &["--user", "nobody-there"], &["box: --user nobody-there"]);
    refused(&["ext4"], &["--output", "inherit"], &["--output", "box"]);
    refused(&["dir:/tmp"], &[], &["--on: 'dir:/tmp' is a directory of this machine"]);
    there
        .compare(&near, &["ext4"], &[], &["no-such-program"])
        .expect(2)
        .says(&["box: workload", "'no-such-program' is not found"]);
    let known = there.site.home().join("known");
    fs::rename(&known, there.site.home().join("hidden")).unwrap();
    refused(&["ext4"], &[], &["box cannot be reached", "Host key verification failed", "ssh box"]);
    fs::rename(there.site.home().join("hidden"), &known).unwrap();
    fs::remove_file(there.site.home().join("key")).unwrap();
    refused(&["ext4"], &[], &["box cannot be reached", "Permission denied", "without a question"]);
}

#[test]
fn machines_that_are_none_and_machines_that_do_not_fit_are_named() {
    let near = Site::new();
    let refused = |contenders: &[&str], flags: &[&str], says: &[&str]| {
        near.compare(contenders, flags, &["true"]).expect(2).says(says);
        near.expect_untouched(&["bin"]);
    };
    let bin = near.work().join("bin");
    let mark = near.home().join("mark");
    fs::create_dir(&bin).unwrap();
    for host in ["-oProxyCommand=touch", "", "root@-x", "a;b", "//u%0aMatch%20exec%20x@far"] {
        let contender = format!("'ssh:{host}'");
        refused(&["ext4"], &["--on", &format!("ssh:{host}")], &[&contender, "names no machine"]);
        refused(&[&format!("ext4 on 'ssh:{host}'")], &[], &["names no machine"]);
    }
    refused(&["ext4 on ssh:a", "xfs"], &[], &["lives on a and 'xfs' on this machine"]);
    refused(&["ext4 on ssh:a", "xfs on ssh:b"], &[], &["lives on a and", "on b"]);
    refused(&["ext4 on ssh:a", "xfs on debian"], &[], &["lives on a and", "in a guest"]);
    // An ssh that says what a machine would.
    let said = |script: &str, says: &[&str]| {
        program(&bin, "ssh", &format!("touch {}\n{script}", mark.display()));
        let mut command = near.compare_command(&["ext4"], &["--on", "ssh:x@far"], &["true"]);
        command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
        near.finish(command).expect(2).says(says);
        fs::remove_file(&mark).expect("ssh was started");
        near.expect_untouched(&["bin"]);
    };
    said("echo 'kurabe: user joe'", &["x@far lets in joe", "write ssh:root@far"]);
    said("echo kurabe: open /x", &["/x is no directory that root alone can change"]);
    said("echo motd; exit 3", &["kurabe cannot be started on x@far"]);
    let old = "echo 'kurabe: start'; echo \"libc.so.6: version GLIBC_2.99 not found\" >&2";
    said(old, &["kurabe does not start on x@far", "its C library is older"]);
    said("echo 'kurabe: start'; echo '{'; cat", &["x@far", "something unexpected"]);
    // What it sends is bounded before it is understood, by bytes and by values.
    let long =
        "echo 'kurabe: start'; read -r ask; head -c 70000000 /dev/zero | tr '\\0' x; echo; cat";
    said(long, &["x@far", "it sent a line of more than 64 MiB"]);
    let many =
        "echo 'kurabe: start'; read -r ask; head -c 3000000 /dev/zero | tr '\\0' [; echo; cat";
    said(many, &["x@far", "it sent a line of more than 1048576 values"]);
    said("head -c 70000000 /dev/zero | tr '\\0' x; echo; cat", &["x@far", "more than 64 MiB"]);
    // It may not have another study carried out when this one is gone on with here.
    let study = "read -r ask; study=${ask#*study\\\":}; study=${study%,\\\"destroy*}";
    let examined =
        r#"printf '{"reply":"examined","examined":{"study":%s,"side_by_side":[],"notes":[]}}\n'"#;
    let other = r#"$(echo "$study" | sed 's/{"ssh":"x@far"}/"this-machine"/')"#;
    let answer = format!("echo 'kurabe: start'; {study}; {examined} \"{other}\"");
    said(&answer, &["x@far answered with another study"]);
    let same = answer.replace(other, "$study");
    program(&bin, "ssh", &same);
    let mut command = near.compare_command(&["ext4"], &["--on", "ssh:x@far"], &["true"]);
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    near.finish(command).expect(1).says(&["the connection to x@far was lost"]);
    said("printf '\\033[31mno\\n' >&2; exit 255", &["\\u{1b}[31mno"]);
}

#[test]
fn what_a_hostile_machine_says_is_short_and_cannot_pass_for_kurabes_own_words() {
    let near = Site::new();
    let bin = near.work().join("bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let run = |script: &str| {
        program(&bin, "ssh", script);
        let mut command = near.compare_command(&["ext4"], &["--on", "ssh:x@far"], &["true"]);
        command.env("PATH", &path);
        near.finish(command)
    };
    let long = "printf 'kurabe: machine '; head -c 1000000 /dev/zero | tr '\\0' Z; echo; cat";
    let ran = run(long).expect(2).says(&["ZZZ [shortened]"]);
    assert!(ran.stderr.len() < 2000, "{} bytes", ran.stderr.len());
    let failed = r#"echo 'kurabe: start'; read -r ask; printf '{"reply":"failed","is_refused":true,"message":"a\\nresult: /x"}\n'; cat"#;
    let ran = run(failed).expect(2);
    assert!(!ran.stderr.lines().any(|line| line.starts_with("result:")), "{}", ran.stderr);

    // A login that never ends goes with kurabe, however that ends.
    let pids = near.home().join("pid");
    program(
        &bin,
        "ssh",
        &format!("echo $$ >{}.new; mv {0}.new {0}; exec sleep 1000", pids.display()),
    );
    let mut command = near.compare_command(&["ext4"], &["--on", "ssh:x@far"], &["true"]);
    command.env("PATH", &path);
    let running = near.start(command);
    wait_until("ssh has started", || pids.exists());
    let ssh: i32 = fs::read_to_string(&pids).unwrap().trim().parse().unwrap();
    signal(running.number(), Signal::KILL);
    running.finish();
    let is_gone = || !Path::new(&format!("/proc/{ssh}")).exists();
    wait_until("ssh is gone", is_gone);
}

#[test]
fn a_machine_that_falls_silent_is_left_when_the_user_stops() {
    let near = Site::new();
    let bin = near.work().join("bin");
    let begun = near.home().join("begun");
    let study = "read -r ask; study=${ask#*study\\\":}; study=${study%,\\\"destroy*}";
    let examined = r#"printf '{"reply":"examined","examined":{"study":%s,"side_by_side":[],"notes":[]}}\n' "$study""#;
    let script = format!(
        "echo 'kurabe: start'; {study}; {examined}; touch {}; exec sleep 1000",
        begun.display()
    );
    program(&bin, "ssh", &script);
    let mut command = near.compare_command(&["ext4"], &["--on", "ssh:x@far"], &["true"]);
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let running = near.start(command);
    wait_until("it is asked to prepare", || begun.exists());
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(running.number(), Signal::INT);
    running.finish().expect(130).says(&["it said nothing for 30 s"]);
}

#[test]
fn the_other_machine_says_itself_why_kurabe_cannot_run_there() {
    let fakes = Site::new();
    let path = format!("{}:", fakes.work().display());
    let near = Site::new();
    program(&fakes.work(), "uname", "echo Linux riscv64");
    let Some(there) = There::start(&path, "") else { return };
    let is_refused = |there: &There, says: &[&str]| {
        there.compare(&near, &["ext4"], &[], &["true"]).expect(2).says(says);
        near.expect_untouched(&[]);
        assert_eq!(there.copies(), [] as [PathBuf; 0]);
    };
    is_refused(&there, &["box is a Linux riscv64", "this kurabe is for Linux"]);
    fs::remove_file(fakes.work().join("uname")).unwrap();
    program(&fakes.work(), "id", "[ \"$1\" = -u ] && echo 1000 || echo joe");
    program(&fakes.work(), "sudo", "exit 1");
    is_refused(&there, &["box lets in joe, who is not root"]);
    program(&fakes.work(), "sudo", "[ \"$1\" = -n ] && shift && exec \"$@\"");
    let flags = ["--device", "/dev/no-such", "--destroy", "x"];
    there.compare(&near, &["ext4"], &flags, &["true"]).expect(2).says(&["box: --device /dev/no"]);
    assert_eq!(there.copies().len(), 1, "it ran as root, by sudo");
    // Whoever may write there could put another kurabe in its place.
    fs::set_permissions(there.site.own(), fs::Permissions::from_mode(0o770)).unwrap();
    there.compare(&near, &["ext4"], &[], &["true"]).expect(2).says(&["that root alone can change"]);
    let full = "mkdir $own/bin && mount -t tmpfs -o size=1m,mode=700 bin $own/bin && ";
    let Some(there) = There::start("", full) else { return };
    is_refused(&there, &["kurabe cannot be started on box", "No space left on device"]);
}

#[test]
fn whatever_ends_the_connection_everything_is_given_back_on_both_sides() {
    let Some(there) = There::start("", "") else { return };
    let near = Site::new();
    let again = || fs::remove_dir_all(near.work().join("result")).unwrap();

    let running = there.start_long(&near);
    let held = there.taken().join("\n");
    for kind in ["loop device", "mount", "process sleep", "scratch", "ledger"] {
        assert!(held.contains(kind), "no {kind} in:\n{held}");
    }
    there.cut();
    let lost = "the connection to box was lost";
    let ran = running.finish().expect(1).says(&[lost, "To continue", "kurabe gives back there"]);
    assert!(!ran.stderr.contains("everything was given back"), "{}", ran.stderr);
    let (phase, message, _) = failure(&near.records()[0]);
    assert!(phase == "run" && message.starts_with(lost), "{phase}: {message}");
    assert_eq!(near.records().len(), 2, "the block that went on is the last one");
    there.expect_nothing_left();
    near.expect_nothing_left();
    again();

    let running = there.start_long(&near);
    signal(running.number(), Signal::INT);
    running.finish().expect(130).says(&["everything was given back"]);
    assert_eq!(kinds(&near.records()), ["interrupted"; 2]);
    assert_eq!(there.taken(), [] as [String; 0], "before kurabe ended here");
    near.expect_nothing_left();
    again();

    let running = there.start_long(&near);
    signal(running.number(), Signal::KILL);
    running.reap();
    there.expect_nothing_left();
    near.run(&["clean"]).expect(0);
}

/// Two machines, `a` and `b`, and a directory that both have mounted.
struct Two {
    both: [There; 2],
    near: Site,
    common: PathBuf,
}

impl Two {
    fn start() -> Option<Two> {
        let both = [There::start_at("127.0.0.1", "", "")?, There::start_at("127.0.0.2", "", "")?];
        let near = Site::new();
        let homes = both.each_ref().map(|there| there.site.home().display().to_string());
        let script = format!(
            "case \"$*\" in *' a '*) home={}; name=a;; *) home={}; name=b;; esac\n\
             sed \"s/^Host box/Host $name/\" <$home/ssh_config >$home/config-$name\n\
             exec /usr/bin/ssh -F $home/config-$name \"$@\"",
            homes[0], homes[1]
        );
        program(&near.home().join("bin"), "ssh", &script);
        let common = near.home().join("common");
        fs::create_dir(&common).unwrap();
        Some(Two { both, near, common })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.near.kurabe(words);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.near.home().join("bin").display()));
        command
    }

    fn contender(&self) -> String {
        format!("d: dir:{} on ssh:a,ssh:b", self.common.display())
    }

    #[track_caller]
    fn expect_nothing_left(&self) {
        self.both.iter().for_each(There::expect_nothing_left);
        self.near.expect_nothing_left();
        assert_eq!(fs::read_dir(&self.common).unwrap().count(), 0);
    }
}

#[test]
fn two_machines_that_have_one_directory_are_two_nodes() {
    let Some(two) = Two::start() else { return };
    let result = || drop(fs::remove_dir_all(two.near.work().join("result")));
    // Each waits for what the other one writes, so both run at the same time.
    let load = "echo $KURABE_NODE of $KURABE_NODES >x; other=../node$((3 - KURABE_NODE))/x; \
        while ! [ -s $other ]; do sleep 0.01; done; read number rest <$other; \
        [ $number = $((3 - KURABE_NODE)) ] && [ \"$rest\" = 'of 2' ] && [ $KURABE_ADDRESSES = 127.0.0.1,127.0.0.2 ]";
    let words =
        ["compare", &*two.contender(), "--runs", "2", "--out", "result", "--", "sh", "-c", load];
    two.near.finish(two.command(&words)).expect(0);
    let records = two.near.records();
    assert_eq!(kinds(&records), ["completed"; 2]);
    for record in &records {
        assert_eq!(record["nodes"].as_array().unwrap().len(), 2);
        assert!(record["nodes"][1]["run_ns"].as_u64().unwrap() > 0);
    }
    assert_eq!(two.near.json("facts.json")["ssh"]["hosts"], serde_json::json!(["a", "b"]));
    two.expect_nothing_left();
    result();

    let words = ["coherence", &*two.contender(), "--questions", "45", "--out", "result"];
    let ran = two.near.finish(two.command(&words)).expect(0);
    assert!(ran.stdout.contains("No control was asked"), "{}", ran.stdout);
    let records = two.near.records();
    let checks = records[0]["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 15);
    for check in checks {
        assert_eq!((&check["tried"], &check["violated"]), (&3.into(), &0.into()), "{check}");
    }
    two.expect_nothing_left();
    result();

    // A node whose workload fails is named, and the other one stops.
    let load = "test $KURABE_NODE = 1 || exit 7; sleep 1000";
    let words =
        ["compare", &*two.contender(), "--runs", "1", "--out", "result", "--", "sh", "-c", load];
    two.near.finish(two.command(&words)).expect(1).says(&["node 2 (b): "]);
    two.expect_nothing_left();
    result();

    // So is one that disappears.
    let begun = two.near.home().join("begun");
    let load = format!("touch {}-$KURABE_NODE; sleep 1000", begun.display());
    let words =
        ["compare", &*two.contender(), "--runs", "2", "--out", "result", "--", "sh", "-c", &load];
    let running = two.near.start(two.command(&words));
    let file = |node| PathBuf::from(format!("{}-{node}", begun.display()));
    wait_until("both run", || file(1).exists() && file(2).exists());
    two.both[1].cut();
    running.finish().expect(1).says(&["node 2 (b): the connection to b was lost", "To continue"]);
    assert_eq!(two.near.records().len(), 1);
    two.expect_nothing_left();
}
