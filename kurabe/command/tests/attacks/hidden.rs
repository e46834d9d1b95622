//! What a job can reach of the host: sockets and FIFOs, mounts that are made while it runs, another `/proc`, an
//! automount, the host's memory of temporary files. And fio itself, which reads a job and runs what it names.

use std::fs;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{KURABE, Ran, Site, root};
use crate::{done, expect_unharmed, ground, proof};

/// An option by which fio runs a script before a job; the script need not be where the job can read it.
pub fn prerun(script: &str) -> String {
    let mut pack = Command::new("sh")
        .args(["-c", "gzip -9 -c | base64 -w0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    pack.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let packed = pack.wait_with_output().unwrap().stdout;
    let packed = String::from_utf8(packed).unwrap();
    let option = format!("exec_prerun=echo {packed} | base64 -d | gunzip | sh");
    assert!(option.len() < 4000, "fio takes no line of {} bytes", option.len());
    option
}

fn has_fio() -> bool {
    let found = Command::new("fio").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: fio is not installed");
    }
    found
}

/// A directory of a contender's, and the arguments that run a job in it.
fn arguments(site: &Site, options: &str) -> Vec<String> {
    let place = site.home().join("place");
    fs::create_dir_all(&place).unwrap();
    fs::write(site.work().join("job.fio"), format!("[a]\nsize=64k\nrw=write\n{options}\n"))
        .unwrap();
    let contender = format!("dir:{}", place.display());
    let flags = ["--cache", "warm", "--runs", "1", "--timeout", "60s", "--idle-wait", "100ms"];
    let all = ["compare", &contender].into_iter().chain(flags).chain(["--fio", "job.fio"]);
    all.map(str::to_string).collect()
}

fn run(site: &Site, options: &str) -> Ran {
    let arguments = arguments(site, options);
    site.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Runs a shell script as root in a mount namespace whose mounts are shared, as systemd shares them. In it
/// `run` is kurabe with the job.
fn run_with_shared_mounts(site: &Site, options: &str, script: &str) -> Ran {
    let arguments = arguments(site, options);
    let mut command = site.program("unshare");
    let whole = format!("run() {{ \"$@\"; }}\n{script}");
    command.args(["--mount", "--propagation", "shared", "sh", "-uc", &whole, "sh", KURABE]);
    command.args(arguments);
    site.finish(command)
}

#[test]
fn no_socket_and_no_fifo_of_the_host_is_reached() {
    let Some(site) = ground() else { return };
    if !has_fio() {
        return;
    }
    let only_root = fs::Permissions::from_mode(0o600);
    let path = site.home().join("root.sock");
    let socket = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, only_root).unwrap();
    let name = site.home().display().to_string();
    let abstract_ = SocketAddr::from_abstract_name(&name).unwrap();
    let abstract_ = UnixListener::bind_addr(&abstract_).unwrap();
    let fifo = site.home().join("root.fifo");
    done(Command::new("mkfifo").args(["-m", "600"]).arg(&fifo));
    // Open for both, so that whoever writes does not wait.
    let kept = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&fifo)
        .unwrap();
    for listener in [&socket, &abstract_] {
        listener.set_nonblocking(true).unwrap();
    }
    let script = format!(
        "exec 2>/dev/null\necho evil >{}\n\
         perl -e 'use Socket; for (@ARGV) {{ socket(S,PF_UNIX,SOCK_STREAM,0); \
         connect(S,sockaddr_un($_)); connect(S,sockaddr_un(\"\\0$_\")) }}' {} {name}\ntrue\n",
        fifo.display(),
        path.display()
    );
    // The trap works: from outside all three are reached.
    done(Command::new("sh").args(["-c", &script]));
    assert!(socket.accept().is_ok() && abstract_.accept().is_ok(), "perl reaches no socket");
    let mut buffer = [0; 16];
    assert_eq!(std::io::Read::read(&mut &kept, &mut buffer).unwrap(), 5);

    let ran = run(&site, &prerun(&script)).expect(0);
    assert!(socket.accept().is_err(), "the socket was reached: {ran:#?}");
    assert!(abstract_.accept().is_err(), "the abstract socket was reached: {ran:#?}");
    assert!(
        std::io::Read::read(&mut &kept, &mut buffer).is_err(),
        "the FIFO was reached: {ran:#?}"
    );
}

#[test]
fn what_is_mounted_during_the_run_does_not_appear() {
    let Some(site) = ground() else { return };
    if !has_fio() {
        return;
    }
    let (home, later) = (site.home().display().to_string(), site.home().join("later"));
    fs::create_dir(&later).unwrap();
    let later = later.display();
    // The job says that it has begun, and tries until the host has looked, or for a minute.
    let job = format!(
        "exec 2>/dev/null\ntouch $KURABE_DIR/begun; i=0\n\
         until [ -e $KURABE_DIR/seen ] || [ $((i += 1)) -gt 600 ]\n\
         do touch {later}/evil /usr/local/evil /opt/evil $KURABE_DIR/in/evil; sleep 0.1; done; true\n"
    );
    let host = |command: &str| {
        format!(
            "{command} & i=0\n\
             until begun=$(ls -d {home}/place/*/*/begun 2>/dev/null) || [ $((i += 1)) -gt 1000 ]\n\
             do sleep 0.05; done\n\
             place=${{begun%/begun}}; mkdir $place/in\n\
             for at in $place/in {later} /usr/local /opt; do mount -t tmpfs x $at; done\n\
             sleep 1\n\
             for at in $place/in {later} /usr/local /opt; do [ ! -e $at/evil ] || echo EVIL; done\n\
             umount -l $place/in; touch $place/seen\n\
             wait $!\n"
        )
    };
    // The trap works: without kurabe all four are reached.
    let (script, place) = (site.home().join("job"), site.home().join("place/a/b"));
    fs::write(&script, &job).unwrap();
    fs::create_dir_all(&place).unwrap();
    let plain = format!("KURABE_DIR={} sh {}", place.display(), script.display());
    let ran = run_with_shared_mounts(&site, "", &host(&plain)).expect(0);
    assert_eq!(ran.stdout.matches("EVIL").count(), 4, "the trap does not work: {ran:#?}");
    fs::remove_dir_all(site.home().join("place")).unwrap();

    let ran = run_with_shared_mounts(&site, &prerun(&job), &host("run \"$@\"")).expect(0);
    assert!(!ran.stdout.contains("EVIL"), "a mount appeared and can be written: {ran:#?}");
    expect_unharmed(&site, &ran);
}

#[test]
fn no_other_proc_is_reached() {
    let Some(site) = ground() else { return };
    if !has_fio() {
        return;
    }
    let (proof, chroot) = (proof(&site).display().to_string(), site.home().join("chroot/proc"));
    fs::create_dir_all(&chroot).unwrap();
    let chroot = chroot.display();
    let places = [chroot.to_string(), "/usr/local/chroot/proc".into(), "/usr/local".into()];
    let [one, two, three] = &places;
    let job = format!(
        "exec 2>/dev/null\nfor proc in {one} {two} {three} /proc; do\n\
         for root in $proc/[0-9]*/root $proc/[0-9]*/cwd; do touch $root{proof}; done\n\
         echo evil >$proc/sys/kernel/domainname; done; true\n"
    );
    // A process of root's that has no capability is one into which any of root's may look.
    let weak = "setpriv --inh-caps=-all --bounding-set=-all sleep 60 & weak=$!;";
    let run = "run \"$@\"; code=$?; kill $weak; exit $code";
    let before = fs::read_to_string("/proc/sys/kernel/domainname").unwrap();
    for host in [
        format!("{weak} mount -t proc proc {one}; {run}"),
        format!(
            "{weak} mount -t tmpfs x /usr/local; mkdir -p {two}; mount -t proc proc {two}; {run}"
        ),
        format!("{weak} mount -t proc proc {three}; {run}"),
    ] {
        let ran = run_with_shared_mounts(&site, &prerun(&job), &host).expect(0);
        expect_unharmed(&site, &ran);
        let name = fs::read_to_string("/proc/sys/kernel/domainname").unwrap();
        if name.trim() == "evil" {
            fs::write("/proc/sys/kernel/domainname", &before).unwrap();
        }
        assert_ne!(name.trim(), "evil", "{ran:#?}");
    }
}

#[test]
fn what_proc_tells_root_about_the_host_is_covered() {
    let Some(site) = ground() else { return };
    if !has_fio() {
        return;
    }
    if fs::read("/proc/key-users").unwrap_or_default().is_empty() {
        eprintln!("SKIPPED: this kernel tells no keys");
        return;
    }
    let covered = "/proc/keys /proc/key-users /proc/kallsyms /proc/timer_list";
    let job = format!("test -e /proc/self/stat && test -z \"$(cat {covered} | head -c 1)\"");
    let ran = run_with_shared_mounts(&site, &prerun(&job), "run \"$@\"");
    expect_unharmed(&site, &ran.expect(0));
}

#[test]
fn no_automount_is_triggered() {
    let Some(site) = ground() else { return };
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    if !has_fio() || !known.contains("autofs") {
        eprintln!("SKIPPED: the kernel has no autofs");
        return;
    }
    let at = site.home().join("auto");
    fs::create_dir(&at).unwrap();
    let at = at.display();
    // Whoever looks into an automount makes the kernel write to the daemon's pipe and waits. The daemon
    // here counts what it is asked, and is not in the group of those whom autofs lets pass.
    let daemon = "pipe(R, W); $^F = 255; pipe(R, W); setpgrp(0, 0);\n\
        my ($at, $told) = (shift, shift);\n\
        system('mount', '-t', 'autofs', '-o', 'fd='.fileno(W).',pgrp='.getpgrp().\
            ',minproto=5,maxproto=5,direct', 'x', $at) == 0 or die 'no autofs';\n\
        close W; my $pid = fork; if (!$pid) { setpgrp(0, 0); close R; exec @ARGV; die }\n\
        my $asked = 0; my $seen = ''; vec($seen, fileno(R), 1) = 1;\n\
        use POSIX ':sys_wait_h';\n\
        while (waitpid($pid, WNOHANG) == 0) {\n\
            if (select(my $ready = $seen, undef, undef, 0.05)) {\n\
                sysread(R, my $packet, 304); $asked++; kill 'KILL', -$pid; last } }\n\
        my $code = $? >> 8;\n\
        system('umount', '-l', $at); close R; waitpid($pid, 0);\n\
        open(my $out, '>', $told); print $out \"$asked\\n\"; close $out; exit $code;\n";
    let told = site.home().join("told");
    let host = |command: &str| format!("perl -e \"$DAEMON\" {at} {} {command}", told.display());
    let asked = |ran: Ran| -> u32 {
        let text = fs::read_to_string(&told).unwrap_or_else(|_| panic!("{ran:#?}"));
        fs::remove_file(&told).unwrap();
        text.trim().parse().unwrap()
    };
    let run_on = |options: &str, command: &str| {
        let arguments = arguments(&site, options);
        let mut program = site.program("unshare");
        program.args([
            "--mount",
            "--propagation",
            "shared",
            "sh",
            "-uc",
            &host(command),
            "sh",
            KURABE,
        ]);
        program.args(arguments).env("DAEMON", daemon);
        site.finish(program)
    };
    assert_eq!(asked(run_on("", &format!("ls {at}/x"))), 1, "the trap does not work");
    let job = format!("exec 2>/dev/null\nls {at}/x; touch {at}/evil {at}/x/evil; true\n");
    assert_eq!(asked(run_on(&prerun(&job), "\"$@\"")), 0);
}

/// The directories that a job can write besides its contender are memory of a limited size.
#[test]
fn a_job_does_not_fill_the_hosts_disk_or_memory() {
    let Some(site) = ground() else { return };
    if !has_fio() {
        return;
    }
    let written = site.home().join("written");
    // fio's directory, TMPDIR and every place that a job could think of.
    let script = "exec 2>/dev/null\nrm -f $KURABE_DIR/written\n\
         for at in . $TMPDIR /tmp /var/tmp /dev/shm /dev /run / /usr /proc /sys; do\n\
         head -c 400M /dev/zero >$at/fill; stat -c \"$at %s\" $at/fill >>$KURABE_DIR/written; rm -f $at/fill\n\
         done; true\n";
    let mut arguments = arguments(&site, &prerun(script));
    arguments.extend(["--cleanup".into(), format!("cp $KURABE_DIR/written {}", written.display())]);
    site.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).expect(0);
    let text = fs::read_to_string(written).unwrap();
    let bytes = text.lines().map(|line| line.split_once(' ').unwrap().1.parse::<u64>().unwrap());
    let bytes: Vec<u64> = bytes.collect();
    assert!(bytes.len() >= 2 && bytes.iter().all(|bytes| *bytes <= 256 << 20), "{text}");
}

/// A library that leaves a file as soon as it is loaded, at a place that root alone can write.
fn planted_engine(site: &Site) -> Option<PathBuf> {
    let source = site.home().join("engine.c");
    let text = format!(
        "#include <fcntl.h>\n#include <unistd.h>\n__attribute__((constructor)) static void begin(void) \
         {{ close(open(\"{}\", O_CREAT | O_WRONLY, 0600)); }}\n",
        proof(site).display()
    );
    fs::write(&source, text).unwrap();
    let engine = site.home().join("engine.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&engine).arg(&source);
    if !compile.output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: there is no C compiler");
        return None;
    }
    Some(engine)
}

#[test]
fn reading_a_job_runs_none_of_its_code() {
    let Some(site) = ground() else { return };
    if !has_fio() {
        return;
    }
    let Some(engine) = planted_engine(&site) else { return };
    // The trap works where fio runs as it is.
    let load = |program: &Path| {
        // fio asks the engine for an option that it does not know itself.
        let job = format!("[a]\nioengine=external:{}\nno_such_option=1\n", engine.display());
        fs::write(site.work().join("trap.fio"), job).unwrap();
        let mut command = site.program(program);
        command.args(["--parse-only", "trap.fio"]);
        site.finish(command)
    };
    let ran = load(Path::new("fio"));
    if !proof(&site).exists() {
        eprintln!("SKIPPED: this fio loads no engine while it reads a job: {ran:?}");
        return;
    }
    let _ = fs::remove_file(proof(&site));

    let engine = engine.display();
    for options in [
        format!("ioengine=external:{engine}"),
        format!("ioengine={engine}"),
        // fio expands the value of a variable again.
        "ioengine=${KURABE_TEST_NESTED}\nno_such_option=1".into(),
        "${KURABE_TEST_NAME}=${KURABE_TEST_NESTED}\nno_such_option=1".into(),
        format!("ioengine=libaio\nunknown_option={engine}"),
        format!(
            "unknown=1\nioengine=exec\nprogram=/bin/touch\narguments={}",
            proof(&site).display()
        ),
        format!("size=$ncpus*1'`touch {}`'", proof(&site).display()),
    ] {
        for plan in [true, false] {
            let mut arguments = arguments(&site, &options);
            arguments.extend(plan.then(|| "--print-plan".into()));
            let mut command =
                site.kurabe(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
            command.args(["--fio-variables", "KURABE_TEST_NESTED,KURABE_TEST_NAME"]);
            command.env("KURABE_TEST_NESTED", "${KURABE_TEST_INNER}");
            command.env("KURABE_TEST_INNER", format!("external:{engine}"));
            command.env("KURABE_TEST_NAME", "ioengine");
            let ran = site.finish(command);
            expect_unharmed(&site, &ran);
        }
    }
}

#[test]
fn a_dollar_that_remains_is_told_with_its_line() {
    if !root() {
        return;
    }
    let site = Site::new();
    let mut command = site.kurabe(
        &arguments(&site, "bs=${KURABE_TEST_NESTED}")
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    command
        .args(["--fio-variables", "KURABE_TEST_NESTED", "--print-plan"])
        .env("KURABE_TEST_NESTED", "${HOME}k");
    let ran = site.finish(command).expect(2);
    assert!(ran.stderr.contains("job.fio:4:4: `bs=${HOME}k` has a `$`"), "{}", ran.stderr);
}
