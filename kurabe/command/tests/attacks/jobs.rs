//! Jobs of fio's that reach for what is not their contender's: by names, by logs, by programs that
//! they start as root.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::harness::{KURABE, Ran, Site};
use crate::hidden::prerun;
use crate::{Disk, PRECIOUS, expect_unharmed, ground, ground_of_disks, precious, proof};

/// What is attacked.
struct Victims {
    file: PathBuf,
    proof: PathBuf,
    listener: TcpListener,
    disk: Disk,
    sleeper: std::process::Child,
}

impl Victims {
    fn new(site: &Site) -> Victims {
        let sleeper = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let disk = Disk::new(site, "disk");
        Victims { file: precious(site), proof: proof(site), listener, disk, sleeper }
    }

    /// A program that root's job starts: it tries every way out, and says where it found one.
    fn script(&self) -> String {
        let number = fs::metadata(&self.disk.node).unwrap().rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        format!(
            "exec 2>/dev/null\n\
             touch {proof}; echo evil >>{file}; rm -f {file}\n\
             echo evil >{node}; mknod d b {major} {minor}; echo evil >d; echo evil >/tmp/d\n\
             mknod /tmp/d b {major} {minor}; echo evil >/tmp/d\n\
             for outside in / /var /var/tmp; do mount -o remount,bind,rw $outside; done\n\
             unshare -m sh -c 'umount -l /dev; echo evil >{node}; umount -l /var; touch {proof}'\n\
             touch {proof}; nsenter -t 1 -m touch {proof}; unshare -rm mount -o remount,bind,rw /\n\
             unshare -rm sh -c 'mount -o remount,bind,rw / && touch {proof}'\n\
             for root in /proc/[0-9]*/root; do touch $root{proof}; done\n\
             kill -9 {sleeper}; bash -c 'echo evil >/dev/tcp/127.0.0.1/{port}'\n\
             echo evil >/proc/sys/kernel/domainname; true\n",
            proof = self.proof.display(),
            file = self.file.display(),
            node = self.disk.node.display(),
            sleeper = self.sleeper.id(),
            port = self.listener.local_addr().unwrap().port(),
        )
    }

    #[track_caller]
    fn expect_unharmed(&mut self, site: &Site, job: &str, ran: &Ran) {
        expect_unharmed(site, ran);
        let said = format!("{job}\n{ran:#?}");
        assert_eq!(fs::read_to_string(&self.file).ok().as_deref(), Some(PRECIOUS), "{said}");
        assert!(self.disk.bytes().iter().all(|byte| *byte == 0), "the disk was written: {said}");
        assert!(self.listener.accept().is_err(), "there is a network: {said}");
        assert!(self.sleeper.try_wait().unwrap().is_none(), "a process was killed: {said}");
        let name = fs::read_to_string("/proc/sys/kernel/domainname").unwrap();
        assert_ne!(name.trim(), "evil", "a setting was changed: {said}");
        let left: Vec<_> = fs::read_dir(site.home()).unwrap().flatten().collect();
        assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().contains("proof")));
    }
}

impl Drop for Victims {
    fn drop(&mut self) {
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
        if fs::read_to_string("/proc/sys/kernel/domainname").is_ok_and(|name| name.trim() == "evil")
        {
            let _ = fs::write("/proc/sys/kernel/domainname", "(none)");
        }
    }
}

fn has_fio() -> bool {
    let found = Command::new("fio").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: fio is not installed");
    }
    found
}

fn run(site: &Site, contender: &str, options: &str) -> Ran {
    let job = format!("[a]\nsize=64k\nrw=write\nbs=4k\n{options}\n");
    fs::write(site.work().join("job.fio"), job).unwrap();
    let flags = ["--cache", "warm", "--runs", "1", "--timeout", "20s", "--idle-wait", "100ms"];
    let device: &[&str] =
        if contender.starts_with("dir:") { &[] } else { &["--device", "mem:64M"] };
    let all = [&["compare", contender], &flags[..], device, &["--fio", "job.fio"]].concat();
    site.run(&all)
}

/// What jobs can say that leads out.
fn reaching(victims: &Victims, script: &str, site: &Site) -> Vec<String> {
    let (file, proof) = (victims.file.display(), victims.proof.display());
    let log = site.work().join("evil.log");
    let text = format!(
        "fio version 2 iolog\n{file} add\n{file} open\n{file} write 0 4096\n{file} close\n"
    );
    fs::write(&log, text).unwrap();
    vec![
        prerun(script),
        prerun(script).replace("exec_prerun", "exec_postrun"),
        format!("read_iolog={}", log.display()),
        format!("read_iolog={}\nmerge_blktrace_file={proof}", log.display()),
        format!("write_iolog={proof}"),
        format!("write_bw_log={proof}\nwrite_iops_log={proof}\nwrite_lat_log={proof}"),
        format!("write_hist_log={proof}\nlog_hist_msec=10"),
        format!("filename_format={proof}"),
        format!("filename_format=../../../../../../..{proof}"),
        format!("name=../../../../../../../..{proof}"),
        format!("mem=mmapshared:{file}"),
        format!("filename={proof}"),
        format!("directory={}", site.home().display()),
        format!("opendir={}", victims.file.parent().unwrap().display()),
        format!("ioengine=filedelete\nopendir={}", victims.file.parent().unwrap().display()),
        format!("ioengine=external:{proof}"),
        format!("include {file}"),
    ]
}

#[test]
fn no_job_leaves_its_contender() {
    let Some(site) = ground_of_disks() else { return };
    if !has_fio() {
        return;
    }
    let mut victims = Victims::new(&site);
    let script = victims.script();
    let place = site.home().join("place");
    fs::create_dir(&place).unwrap();
    let contender = format!("dir:{}", place.display());
    // What keeps a job in lets it work.
    run(&site, &contender, "verify=crc32c\nverify_state_save=1\nlockfile=exclusive").expect(0);
    for options in reaching(&victims, &script, &site) {
        let ran = run(&site, &contender, &options);
        victims.expect_unharmed(&site, &options, &ran);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{options}\n{ran:#?}");
    }
    for contender in ["ext4", "raw"] {
        for options in &reaching(&victims, &script, &site)[..3] {
            let ran = run(&site, contender, options);
            victims.expect_unharmed(&site, options, &ran);
        }
    }
}

/// Nothing that the host also has can be given another owner, mode or time, devices least of all; and what a job
/// prints goes through a pipe: a file or terminal could be opened again, to read, or to cut it off.
#[test]
fn a_job_changes_no_device_and_holds_no_file_of_the_host() {
    let Some(site) = ground() else { return };
    if !has_fio() {
        return;
    }
    let place = site.home().join("place");
    fs::create_dir(&place).unwrap();
    let contender = format!("dir:{}", place.display());
    // A job whose command before it fails counts nothing, and so its run fails.
    let succeeds = |command: &str| {
        let job = format!("[a]\nsize=64k\nrw=write\nexec_prerun={command}\n");
        fs::write(site.work().join("job.fio"), job).unwrap();
        let output = site.home().join("output");
        let flags = ["--cache", "warm", "--runs", "1", "--output", output.to_str().unwrap()];
        let mut command = site.program(KURABE);
        command.args(["compare", &contender]).args(flags).args(["--fio", "job.fio"]);
        command.env("SECRET_OF_ROOT", "x");
        site.finish(command).code == Some(0)
    };
    assert!(succeeds("true") && !succeeds("false"), "the test sees what it asks");
    assert!(succeeds("echo written >/dev/null"));
    assert!(succeeds("env | grep PATH=") && !succeeds("env | grep SECRET_OF_ROOT"));
    // The owner that it has already: a test that fails changes nothing.
    for change in ["chown 0:0", "chmod 666", "touch -c -r /dev/null"] {
        assert!(!succeeds(&format!("{change} /dev/null")), "{change}");
    }
    // Nor does it become a user of the host, who could take what it has open, or look at its keeper.
    assert!(
        succeeds("setpriv --version") && !succeeds("setpriv --reuid 65534 --clear-groups true")
    );
    assert!(succeeds("readlink /proc/self/fd/0") && !succeeds("readlink /proc/1/fd/0"));
}

#[test]
fn a_job_that_fails_outside_names_its_line() {
    let Some(site) = ground() else { return };
    if !has_fio() {
        return;
    }
    let out = proof(&site).display().to_string();
    let ran = run(&site, "ext4", &format!("write_iolog={out}")).expect(1);
    let line = format!("job.fio:5:13: `write_iolog={out}` leads out of the contender");
    assert!(ran.stderr.contains(&line), "{}", ran.stderr);
    assert!(ran.stderr.contains("Read-only file system"), "{}", ran.stderr);
}

/// The user's own files, where there is no root to part namespaces.
#[test]
fn a_job_of_a_user_without_rights_leaves_its_directory_neither() {
    let Some(site) = ground() else { return };
    if !has_fio() {
        return;
    }
    let own = crate::theirs(&site);
    fs::write(
        own.join("job.fio"),
        format!(
            "[a]\nsize=64k\nrw=write\nexec_prerun=touch {0}\nwrite_iolog={0}\n",
            own.join("evil").display()
        ),
    )
    .unwrap();
    fs::create_dir(own.join("place")).unwrap();
    crate::give_to_stranger(&own);
    let script = "cd $1 && KURABE_HOME=$1/home exec $2 compare dir:$1/place --cache warm --runs 1 --fio job.fio";
    let mut command = crate::stranger(script);
    command.arg("sh").arg(&own).arg(site.public_kurabe()).env_remove("TMPDIR");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("the workload could write wherever you can") {
        eprintln!("SKIPPED: the kernel grants users no namespaces");
        return;
    }
    assert!(!own.join("evil").exists(), "{said}");
    assert!(said.contains("job.fio:5:13: `write_iolog=") && said.contains("leads out"), "{said}");
}
