//! `--user`: the workload without root, and what it leaves running. Each test tries what a workload that is
//! not trusted would try. Needs root; control groups where the machine has them.

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{KURABE, NOBODY, Site, failure, root, signal, wait_until};
use rustix::process::Signal;

const USER: [&str; 2] = ["--user", "nobody"];

/// A directory of root's that everybody can pass, with one that only root can look into.
fn directory(site: &Site) -> String {
    let directory = site.home().join("given");
    fs::create_dir(&directory).unwrap();
    format!("dir:{}", directory.display())
}

/// Runs `script` as nobody on this contender and gives what it printed.
fn printed(site: &Site, contender: &str, flags: &[&str], script: &str) -> String {
    let output = site.home().join("output");
    let mut all = vec!["--output", output.to_str().unwrap()];
    all.extend(USER);
    all.extend(flags);
    site.compare(&[contender], &all, &[script]).expect(0);
    site.expect_nothing_left();
    fs::read_to_string(output).unwrap()
}

/// The lines of a text that begin with a word, without it.
fn after<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(word)).map(str::trim).collect()
}

#[test]
fn everything_of_the_workload_is_the_users_and_nothing_else_is() {
    if !root() {
        return;
    }
    for is_mounted in [true, false] {
        let site = Site::new();
        let precious = site.home().join("precious");
        fs::write(&precious, "secret").unwrap();
        fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).unwrap();
        let script = format!(
            "echo user $(id -u) group $(id -g) groups $(id -G); touch mine && stat -c 'root %u %g' .
             echo read $(cat {precious} 2>&1); echo ledger $(ls {ledger} 2>&1)
             echo scratch $(ls .. 2>&1); env | sed 's/^/env /'
             grep -E 'NoNewPrivs|Cap(Inh|Prm|Eff|Amb)' /proc/self/status | sed 's/^/status /'",
            precious = precious.display(),
            ledger = site.ledger().display(),
        );
        let contender = if is_mounted { "ext4".into() } else { directory(&site) };
        let who = "echo step $(id -u)";
        let flags = ["--setup", who, "--prepare", who, "--cleanup", who];
        let output = site.home().join("output");
        let mut all = vec!["--output", output.to_str().unwrap()];
        all.extend(USER);
        all.extend(flags);
        let mut command = site.compare_command(&[&contender], &all, &[&script]);
        command.env("SECRET_OF_ROOT", "1").env("LC_ALL", "C").env("XDG_RUNTIME_DIR", "/run/user/0");
        let ran = site.finish(command).expect(0).says(&["as user nobody"]);
        site.expect_nothing_left();
        let text = fs::read_to_string(output).unwrap();
        let number = NOBODY.to_string();
        assert_eq!(after(&text, "step"), vec![number.as_str(); 3], "{text}");
        let ids = format!("{number} group {number} groups {number}");
        assert_eq!(after(&text, "user"), [ids], "{text}");
        assert_eq!(after(&text, "root"), [format!("{number} {number}")], "{text}");
        assert!(after(&text, "read")[0].contains("Permission denied"), "{text}");
        // Where the trial has a mount namespace of its own, it is not even there.
        let refused = if is_mounted { "No such file" } else { "Permission denied" };
        assert!(after(&text, "ledger")[0].contains(refused), "{text}");
        if is_mounted {
            assert!(after(&text, "scratch")[0].contains("Permission denied"), "{text}");
        }
        let environment = after(&text, "env");
        let has = |name: &str| environment.iter().any(|line| line.starts_with(name));
        for name in ["PATH=", "HOME=/nonexistent", "USER=nobody", "LOGNAME=nobody", "LC_ALL=C"] {
            assert!(has(name), "no {name}: {environment:?}");
        }
        assert!(has("SHELL=") && has("KURABE_DIR=") && has("KURABE_CONTENDER="));
        for name in ["SECRET_OF_ROOT", "XDG_RUNTIME_DIR", "SUDO_", "TMPDIR"] {
            assert!(!has(name), "{name} was handed on: {environment:?}");
        }
        let status = after(&text, "status");
        assert!(status.contains(&"NoNewPrivs:\t1"), "{status:?}");
        let capabilities: Vec<_> = status.iter().filter(|line| line.starts_with("Cap")).collect();
        assert_eq!(capabilities.len(), 4, "{status:?}");
        assert!(capabilities.iter().all(|line| line.ends_with("\t0000000000000000")), "{status:?}");
        let records = site.records();
        assert_eq!(records[0]["user"], "nobody", "{ran:?}");
        assert_eq!(site.json("facts.json")["load"]["user"], "nobody");
        let page = fs::read_to_string(site.work().join("result/report.html")).unwrap();
        assert!(page.contains("nobody"), "the report names the user");
    }
}

/// The user is asked before anything is made: its workload would fail only after mkfs.
#[test]
fn a_user_without_rights_to_the_loads_files_is_refused_before_anything_is_made() {
    if !root() {
        return;
    }
    let site = Site::new();
    let hidden = site.home().join("hidden");
    fs::create_dir(&hidden).unwrap();
    let (script, list) = (hidden.join("load.sh"), hidden.join("list.tar"));
    fs::write(&script, "#!/bin/sh\n: > made\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let packed = Command::new("tar").arg("cf").args([&list, &script]).status().unwrap();
    assert!(packed.success());
    let mode = |mode| fs::set_permissions(&hidden, fs::Permissions::from_mode(mode)).unwrap();
    let (script, list) = (script.to_str().unwrap(), list.to_str().unwrap());
    let run =
        |flags: &[&str], load: &[&str]| site.compare(&["ext4"], &[&USER[..], flags].concat(), load);
    mode(0o700);
    let cannot_execute = format!("--user nobody cannot execute {script} (command); let everybody");
    run(&[], &[script]).expect(2).says(&[&cannot_execute]);
    let cannot_read = format!("--user nobody cannot read {list}; let everybody read it");
    run(&["--tree", list], &[]).expect(2).says(&[&cannot_read]);
    let in_setup = format!("cannot execute {script} (setup)");
    run(&["--setup", script], &["true"]).expect(2).says(&[&in_setup]);
    site.expect_nothing_left();
    mode(0o755);
    run(&[], &[script]).expect(0);
    // A script that can be executed and not read, the interpreter cannot run.
    fs::set_permissions(script, fs::Permissions::from_mode(0o711)).unwrap();
    run(&[], &[script]).expect(2).says(&[&cannot_execute]);
}

#[test]
fn a_setuid_program_gains_nothing() {
    if !root() {
        return;
    }
    let site = Site::new();
    let program = site.home().join("identity");
    harness::copy_program("/usr/bin/id", &program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let asked = Command::new(&program).arg("-u").uid(NOBODY).gid(NOBODY).output().unwrap();
    if asked.stdout != b"0\n" {
        eprintln!("SKIPPED: setuid programs mean nothing in {}", site.home().display());
        return;
    }
    let script = format!("{} -u", program.display());
    assert_eq!(printed(&site, "ext4", &[], &script), format!("{NOBODY}\n"));
}

#[test]
fn no_descriptor_of_the_caller_is_inherited() {
    if !root() {
        return;
    }
    let site = Site::new();
    let precious = site.home().join("precious");
    fs::write(&precious, "secret").unwrap();
    fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).unwrap();
    let output = site.home().join("output");
    let mut flags = vec!["--output", output.to_str().unwrap()];
    flags.extend(USER);
    // The shell itself has one open on the directory that it lists.
    let script = "cat <&7; ls -l /proc/self/fd | grep -c precious; true";
    let inner = site.compare_command(&["ext4"], &flags, &[script]);
    let mut command = site.program("sh");
    let opened = format!("exec 7<{}; exec \"$@\"", precious.display());
    command.args(["-c", &opened, "sh", KURABE]).args(inner.get_args());
    site.finish(command).expect(0);
    let text = fs::read_to_string(output).unwrap();
    assert!(text.ends_with("0\n") && !text.contains("secret"), "{text}");
}

#[test]
fn the_workload_has_no_terminal() {
    let site = Site::new();
    let output = site.home().join("output");
    let flags = ["--output", output.to_str().unwrap()];
    let place = directory(&site);
    let script = "if (: </dev/tty) 2>/dev/null; then echo terminal; else echo none; fi";
    let inner = site.compare_command(&[&place], &flags, &[script]);
    let words = std::iter::once(KURABE.into())
        .chain(inner.get_args().map(|word| word.to_str().unwrap().to_string()));
    let line = shlex_join(words);
    let mut terminal = site.program("script");
    terminal.args(["-qec", &line, "/dev/null"]);
    if terminal.output().is_err() {
        eprintln!("SKIPPED: script(1) is not installed");
        return;
    }
    // That the program gives a terminal at all, or the test would prove nothing.
    let mut control = site.program("script");
    control.args(["-qec", script, "/dev/null"]);
    let control = String::from_utf8(control.output().unwrap().stdout).unwrap();
    assert_eq!(control.trim(), "terminal");
    assert_eq!(fs::read_to_string(output).unwrap(), "none\n");
}

/// Words for a shell.
fn shlex_join(words: impl Iterator<Item = String>) -> String {
    let quoted = words.map(|word| format!("'{}'", word.replace('\'', "'\\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

#[test]
fn what_cannot_work_is_refused_with_words_and_nothing_is_touched() {
    if !root() {
        return;
    }
    let site = Site::new();
    let refused = |contender: &str, user: &str, texts: &[&str]| {
        let flags = ["--user", user, "--fio", "rw=randread size=1m"];
        let mut arguments = vec!["compare", contender, "--device", "mem:64M"];
        arguments.extend(flags);
        site.run(&arguments).expect(2).says(texts);
        site.expect_untouched(&[]);
    };
    refused("raw", "nobody", &["raw", "--user nobody", "the device itself"]);
    refused("ext4", "no-such-user", &["--user no-such-user", "there is no such user"]);
    let closed = site.home().join("closed");
    fs::create_dir_all(closed.join("inner")).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let contender = format!("dir:{}/inner", closed.display());
    refused(&contender, "nobody", &["nobody cannot get to", "chmod o+x"]);
    let flags = ["--device", "mem:64M", "--user", "nobody", "--durability=4", "--check", "true"];
    site.run(&[&["compare", "ext4"], &flags[..], &["--", "true"]].concat())
        .expect(2)
        .says(&["--durability: where the power is cut, the workload does not run as another user"]);

    // Without root only oneself.
    let given = site.home().join("free");
    fs::create_dir(&given).unwrap();
    std::os::unix::fs::chown(&given, Some(NOBODY), Some(NOBODY)).unwrap();
    for name in [site.own(), site.work()] {
        let _ = fs::create_dir(&name);
        std::os::unix::fs::chown(&name, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let contender = format!("dir:{}", given.display());
    for (user, code) in [("root", 2), ("nobody", 0)] {
        let asked = site.compare_command(&[&contender], &["--user", user], &["true"]);
        let mut command = site.program(site.public_kurabe());
        command.args(asked.get_args()).uid(NOBODY).gid(NOBODY);
        let ran = site.finish(command).expect(code);
        assert!(code == 0 || ran.stderr.contains("only root can"), "{}", ran.stderr);
    }
}

#[test]
fn root_as_the_user_changes_nothing() {
    if !root() {
        return;
    }
    let site = Site::new();
    let output = site.home().join("output");
    let flags = ["--user", "root", "--output", output.to_str().unwrap()];
    let script = "id -u; grep NoNewPrivs /proc/self/status; echo $KEPT";
    let mut command = site.compare_command(&["ext4"], &flags, &[script]);
    command.env("KEPT", "kept");
    site.finish(command).expect(0);
    assert_eq!(fs::read_to_string(output).unwrap(), "0\nNoNewPrivs:\t0\nkept\n");
    assert_eq!(site.record_of("ext4")["user"], "root");
}

#[test]
fn workloads_of_kurabes_own_run_as_the_user() {
    if !root() {
        return;
    }
    let program = "Command { 5.times { New(64K); }; Get; }";
    let contenders = |site: &Site| ["ext4".to_string(), format!("d: {}", directory(site))];
    for (name, load) in [
        ("fio", vec!["--fio", "rw=randwrite bs=4k size=1m"]),
        ("tree", vec!["--tree", "synthetic:20"]),
        ("objects", vec!["--objects", "program"]),
    ] {
        let site = Site::new();
        fs::write(site.work().join("program"), program).unwrap();
        let contenders = contenders(&site);
        let mut arguments = vec!["compare"];
        arguments.extend(contenders.iter().map(String::as_str));
        arguments.extend(["--device", "mem:64M", "--runs", "1", "--idle-wait", "200ms"]);
        arguments.extend(["--out", "result"]);
        arguments.extend(USER);
        arguments.extend(&load);
        if name == "fio" && Command::new("fio").arg("--version").output().is_err() {
            eprintln!("SKIPPED: fio is not installed");
            continue;
        }
        site.run(&arguments).expect(0);
        site.expect_nothing_left();
        for label in ["ext4", "d"] {
            let record = site.record_of(label);
            assert_eq!(record["outcome"]["kind"], "completed", "{name}: {record:#}");
            assert!(!record["load"]["metrics"].as_array().unwrap().is_empty(), "{name}");
            assert_eq!(record["user"], "nobody");
        }
    }
}

/// A kurabe in a directory that only root can pass, as in root's home, and one that only root may
/// execute, as it is built under umask 077.
#[test]
fn a_workload_of_kurabes_own_runs_as_a_user_who_cannot_reach_kurabe() {
    if !root() {
        return;
    }
    let site = Site::new();
    let home = site.home().join("root");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    let program = home.join("kurabe");
    harness::copy_program(KURABE, &program);
    let contenders = ["ext4".to_string(), format!("d: {}", directory(&site))];
    let [made, own] = contenders.each_ref().map(String::as_str);
    for mode in [0o755, 0o700] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        assert!(!harness::nobody_runs(&program));
        let mut loads = vec![["--tree", "synthetic:20"]];
        if Command::new("fio").arg("--version").output().is_ok() {
            loads.push(["--fio", "rw=randwrite bs=4k size=1m"]);
        }
        for (number, load) in loads.iter().enumerate() {
            let mut command = site.program(&program);
            let out = format!("{mode:o}-{number}");
            command.args(["compare", made, own, "--out", &out, "--device", "mem:64M"]);
            command.args(["--runs", "1", "--idle-wait", "200ms"]).args(USER).args(load);
            site.finish(command).expect(0);
        }
    }
    site.expect_nothing_left();
}

/// The runner, the trial in its namespaces and the workload as another user are three processes.
#[test]
fn who_is_believed_by_the_runner_is_believed_by_the_trial_and_its_workload() {
    if !root() {
        return;
    }
    let site = Site::new();
    let archive = site.home().join("x.tar");
    let made = Command::new("tar").arg("-cf").arg(&archive).arg("/etc/passwd").status().unwrap();
    assert!(made.success());
    std::os::unix::fs::chown(&archive, Some(54_321), None).unwrap();
    let archive = archive.display().to_string();
    let contenders = ["ext4".to_string(), format!("d: {}", directory(&site))];
    let [made, own] = contenders.each_ref().map(String::as_str);
    let all = ["--device", "mem:64M", "--runs", "1", "--idle-wait", "200ms", "--tree", &archive];
    for (name, flags, caller) in [
        ("named", vec!["--trust", "54321"], None),
        ("named-for-nobody", vec!["--trust", "54321", "--user", "nobody"], None),
        ("caller", vec!["--user", "nobody"], Some("54321")),
    ] {
        let mut command = site.kurabe(&["compare", made, own, "--out", name]);
        command.args(all).args(flags).envs(caller.map(|user| ("SUDO_UID", user)));
        site.finish(command).expect(0);
    }
}

#[test]
fn a_workload_cannot_write_what_is_not_given_to_it() {
    if !root() {
        return;
    }
    let site = Site::new();
    let script = format!("echo x >{}/x", site.work().display());
    site.compare(&["ext4"], &USER, &[&script]).expect(1);
    let (phase, _, output) = failure(&site.record_of("ext4"));
    assert_eq!(phase, "run");
    assert!(output.contains("Permission denied"), "{output}");
}

/// The directory of a turn lies in one of root's, so that no command of root's or of a later turn can be
/// led elsewhere.
#[test]
fn a_workload_cannot_exchange_the_directory_of_its_turn() {
    if !root() {
        return;
    }
    let site = Site::new();
    let output = site.home().join("output");
    let exchange = "name=$(basename \"$PWD\"); touch own; cd ..; mv $name away && ln -s /root $name && echo exchanged; true";
    let mut flags = vec!["--side-by-side", "--output", output.to_str().unwrap()];
    flags.extend(USER);
    flags.extend(["--setup", exchange]);
    site.compare(&["a: ext4", "b: ext4"], &flags, &["ls own; pwd -P"]).expect(0);
    site.expect_nothing_left();
    let text = fs::read_to_string(output).unwrap();
    assert!(text.contains("own\n") && text.contains("slice-0"), "{text}");
    assert!(!text.contains("exchanged"), "{text}");
}

/// What a workload's programs are is found out with the workload's rights.
#[test]
fn programs_are_warmed_by_the_user() {
    if !root() {
        return;
    }
    let site = Site::new();
    let precious = site.home().join("precious");
    fs::write(&precious, vec![1; 64 << 20]).unwrap();
    fs::set_permissions(&precious, fs::Permissions::from_mode(0o700)).unwrap();
    let line = format!("true || {}", precious.display());
    site.compare(&["ext4"], &[&["--cache", "cold"], &USER[..]].concat(), &[&line]).expect(0);
    let bytes = site.record_of("ext4")["programs_bytes"].as_u64().unwrap();
    assert!((100_000..64 << 20).contains(&bytes), "{bytes}");
}

/// What is shown or kept of another user's workload comes through a pipe.
#[test]
fn a_workload_holds_no_file_of_roots() {
    if !root() {
        return;
    }
    let site = Site::new();
    let text = printed(&site, "ext4", &[], "readlink /proc/self/fd/1 /proc/self/fd/2");
    assert_eq!(text.lines().filter(|line| line.starts_with("pipe:")).count(), 2, "{text}");
}

/// The processes that sleep so many seconds.
fn sleepers(seconds: &str) -> Vec<i32> {
    let line = format!("sleep\0{seconds}\0").into_bytes();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let sleeps = |path: &Path| fs::read(path.join("cmdline")).is_ok_and(|text| text == line);
    entries
        .filter(|entry| sleeps(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Seconds that nobody else sleeps.
fn own_seconds(number: u32) -> String {
    format!("{}.{number}", 100_000 + std::process::id())
}

/// A line that leaves a process behind which nothing of its environment, session or group betrays,
/// and waits until it runs.
fn daemonise(seconds: &str) -> String {
    format!(
        "cd /; env -i PATH=\"$PATH\" setsid -f sleep {seconds} <&- >&- 2>&-
         until grep -qs {seconds} /proc/[0-9]*/cmdline; do sleep 0.01; done"
    )
}

#[test]
fn what_a_workload_leaves_running_ends_with_its_trial() {
    if !root() {
        return;
    }
    for (number, is_mounted) in [(1, true), (2, false)] {
        for user in [&[][..], &USER] {
            let site = Site::new();
            let contender = if is_mounted { "ext4".into() } else { directory(&site) };
            let seconds = own_seconds(number);
            site.compare(&[&contender], user, &[&daemonise(&seconds)]).expect(0);
            let record = &site.records()[0];
            let left = sleepers(&seconds);
            left.iter().for_each(|process| signal(*process, Signal::KILL));
            if !is_mounted && record["control_group"].is_null() {
                eprintln!("SKIPPED: no control group of version 2 can be made here");
                continue;
            }
            assert_eq!(left, [0; 0], "{record:#}");
            if !record["control_group"].is_null() {
                let notes = record["notes"].to_string();
                assert!(notes.contains("killed what the command had left running"), "{notes}");
            }
            site.expect_nothing_left();
        }
    }
}

#[test]
fn what_a_killed_kurabe_left_running_is_ended_by_the_ledger() {
    let site = Site::new();
    let output = site.home().join("output");
    let contender = directory(&site);
    let seconds = own_seconds(3);
    let script = format!("grep ^0:: /proc/self/cgroup; {}; sleep 600", daemonise(&seconds));
    let flags = ["--output", output.to_str().unwrap()];
    let running = site.start(site.compare_command(&[&contender], &flags, &[&script]));
    wait_until("it was left behind", || !sleepers(&seconds).is_empty());
    let group = fs::read_to_string(&output).unwrap();
    signal(running.number(), Signal::KILL);
    running.reap();
    let cleaned = site.run(&["clean"]);
    let left = sleepers(&seconds);
    left.iter().for_each(|process| signal(*process, Signal::KILL));
    if !group.contains("/kurabe-") {
        eprintln!("SKIPPED: no control group of version 2 can be made here");
        return;
    }
    assert_eq!(left, [0; 0], "{cleaned:?}");
    assert!(cleaned.stdout.contains("control group"), "{}", cleaned.stdout);
    site.expect_nothing_left();
    let name = group.trim().rsplit('/').next().unwrap();
    assert_eq!(groups_named(Path::new("/sys/fs/cgroup"), name), [""; 0].map(PathBuf::from));
}

/// Where a run has no process namespace of its own, the kernel ends the command all the same, also when it
/// became another user.
#[test]
fn a_command_ends_with_a_killed_kurabe_before_any_cleaning() {
    if !root() {
        return;
    }
    for (number, user) in [(4, &[][..]), (5, &USER)] {
        let site = Site::new();
        let seconds = own_seconds(number);
        let running =
            site.start(site.compare_command(&[&directory(&site)], user, &["sleep", &seconds]));
        wait_until("the command runs", || !sleepers(&seconds).is_empty());
        signal(running.number(), Signal::KILL);
        running.reap();
        wait_until("the command has ended", || sleepers(&seconds).is_empty());
        site.run(&["clean"]).expect(0);
        site.expect_nothing_left();
    }
}

/// The control groups of this name.
fn groups_named(directory: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below
        .flat_map(|entry| {
            if entry.file_name() == name {
                vec![entry.path()]
            } else {
                groups_named(&entry.path(), name)
            }
        })
        .collect()
}
