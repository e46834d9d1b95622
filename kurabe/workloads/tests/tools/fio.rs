//! Tests of whole fio runs, in a temporary directory with the installed fio.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use workloads::fio::{Fio, FioReport, FioTarget, JobFile, fio, lay_out, output, understood};
use workloads::tool::WorkloadTool;

use super::installed;

struct Places {
    _keep: tempfile::TempDir,
    target: FioTarget,
    scratch: PathBuf,
}

fn places() -> Places {
    let keep = tempfile::tempdir().unwrap();
    let target = keep.path().join("target");
    let scratch = keep.path().join("scratch");
    fs::create_dir(&target).unwrap();
    fs::create_dir(&scratch).unwrap();
    Places { target: FioTarget::Directory(target), scratch, _keep: keep }
}

fn run_text(text: &str, places: &Places) -> Result<FioReport, String> {
    let job = JobFile::parse(text.as_bytes(), Path::new("job.fio")).unwrap();
    let plan = Fio {
        job: &job,
        target: &places.target,
        device_bytes: None,
        scratch: &places.scratch,
        as_written: false,
    };
    let going = AtomicBool::new(false);
    fio(&plan, &lay_out(&plan, &going)?, &going)
}

#[test]
fn what_verify_finds_is_a_check_and_ends_no_run() {
    if !installed(WorkloadTool::Fio) {
        return;
    }
    let kept = run_text("[a]\nrw=write\nbs=64k\nsize=1m\nverify=crc32c\n", &places()).unwrap();
    let check = kept.check.unwrap();
    assert_eq!((&*check.name, check.tried, check.violated), ("contents", 16, 0));
    // The second job writes another checksum over a quarter of what the third looks for.
    let text = "\
[global]
bs=64k
size=1m
filename=f
[a]
rw=write
verify=crc32c
do_verify=0
[b]
stonewall
rw=write
size=256k
[c]
stonewall
rw=read
verify=crc32c
";
    let lost = run_text(text, &places()).unwrap();
    let check = lost.check.unwrap();
    assert_eq!((check.tried, check.violated), (16, 4), "{check:?}");
    assert!(check.first.as_ref().unwrap().contains("at file"), "{check:?}");
    assert_eq!(lost.jobs.len(), 3);
}

#[test]
fn a_job_file_is_laid_out_run_and_read() {
    if !installed(WorkloadTool::Fio) {
        return;
    }
    let places = places();
    let text = "\
[global]
bs=4k
size=4m
[write it]
rw=randwrite
numjobs=2
fsync=100
[read it]
stonewall
rw=randread
directory=sub
filename=deep/file
unlink=1
";
    let report = run_text(text, &places).unwrap();
    assert_eq!(report.laid_out_in_run, 0, "{:?}", report.notes);
    let layout = report.layout;
    assert_eq!((layout.files, layout.bytes), (3, 12 << 20));
    assert!(layout.allocated_bytes >= layout.bytes);
    assert_eq!(report.needed_bytes, 12 << 20);
    assert_eq!(report.jobs.len(), 3);
    let written = &report.jobs[0].write;
    assert_eq!((written.total_ios, written.io_bytes), (1024, 4 << 20));
    let latencies = output::latencies(&report.jobs);
    assert_eq!(latencies.histogram("write").unwrap().len(), 2048);
    assert_eq!(latencies.histogram("read").unwrap().len(), 1024);
    assert!(latencies.histogram("sync").unwrap().len() >= 20);
    assert!(report.job_text.contains("fallocate=none"));
    let series: Vec<&str> = report.series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(series, ["write it", "read it"]);
    let FioTarget::Directory(target) = &places.target else { unreachable!() };
    assert!(target.join("write it.1.0").exists());
    assert!(!target.join("sub/deep/file").exists(), "the job unlinks it after the run");
}

#[test]
fn files_that_were_laid_out_before_are_used_as_they_are() {
    if !installed(WorkloadTool::Fio) {
        return;
    }
    let places = places();
    // Without a size: the free space that it is a share of changes with the layout.
    let job = JobFile::from_options(
        "rw=randwrite bs=4k number_ios=10 nrfiles=2",
        "a",
        &Default::default(),
    );
    let job = job.unwrap();
    let plan = Fio {
        job: &job,
        target: &places.target,
        device_bytes: None,
        scratch: &places.scratch,
        as_written: false,
    };
    let stop = AtomicBool::new(false);
    let prepared = lay_out(&plan, &stop).unwrap();
    assert_eq!(prepared.layout.files, 2);
    assert_eq!(Some(prepared.layout.bytes), prepared.default_size_bytes);
    let report = fio(&plan, &prepared, &stop).unwrap();
    assert_eq!((report.laid_out_in_run, report.layout), (0, prepared.layout));
    assert_eq!(report.default_size_bytes, prepared.default_size_bytes);
    assert_eq!(report.jobs[0].write.total_ios, 10);
}

#[test]
fn a_series_holds_what_was_done() {
    if !installed(WorkloadTool::Fio) {
        return;
    }
    let places = places();
    let text = "[a]\nrw=randrw\nbs=4k\nsize=1m\nrate_iops=400,400\ntime_based\nruntime=3\n";
    let report = run_text(text, &places).unwrap();
    let job = &report.jobs[0];
    let intervals = &report.series[0].bytes;
    assert!(intervals.len() >= 2, "{intervals:?}");
    let logged: u64 = intervals.iter().sum();
    let moved = job.read.io_bytes + job.write.io_bytes;
    // The logs' means are whole numbers, and the last interval of a thread may be missing.
    assert!(logged <= moved + (64 << 10) && logged * 2 > moved, "{logged} of {moved}");
}

#[test]
fn a_workload_that_does_not_fit_is_refused_with_both_sizes() {
    if !installed(WorkloadTool::Fio) {
        return;
    }
    let places = places();
    let error = run_text("[a]\nrw=write\nsize=900t\n", &places).unwrap_err();
    assert!(error.contains(&format!("the jobs need {} bytes", 900_u64 << 40)), "{error}");
    assert!(error.contains("/target has "), "{error}");
    assert_eq!(fs::read_dir(places.target.path()).unwrap().count(), 0);
}

#[test]
fn fios_own_errors_are_shown() {
    if !installed(WorkloadTool::Fio) {
        return;
    }
    let places = places();
    let error = run_text("[a]\nrw=sideways\nsize=1m\n", &places).unwrap_err();
    assert!(error.contains("exit code 1: failed parsing rw=sideways"), "{error}");
}

#[test]
fn a_job_that_leaves_its_directory_is_refused_before_anything_is_made() {
    let places = places();
    let error = run_text("[a]\nrw=write\nsize=1m\nfilename=../victim\n", &places).unwrap_err();
    let expected = ["is refused: it leads out", "is not installed"];
    assert!(expected.iter().any(|words| error.contains(words)), "{error}");
    assert_eq!(fs::read_dir(&places.scratch).unwrap().count(), 0);
}

#[test]
fn a_file_of_another_place_is_one_of_the_target() {
    if !installed(WorkloadTool::Fio) {
        return;
    }
    let places = places();
    let victim = tempfile::NamedTempFile::new().unwrap();
    fs::write(victim.path(), "precious").unwrap();
    let text = format!("[a]\nrw=write\nsize=1m\nfilename={}\n", victim.path().display());
    run_text(&text, &places).unwrap();
    assert_eq!(fs::read_to_string(victim.path()).unwrap(), "precious");
    let inside = places.target.path().join(victim.path().strip_prefix("/").unwrap());
    assert_eq!(fs::metadata(inside).unwrap().len(), 1 << 20);
}

#[test]
fn a_raised_stop_ends_fio() {
    if !installed(WorkloadTool::Fio) {
        return;
    }
    let places = places();
    let text = "[a]\nrw=randread\nsize=1m\ntime_based\nruntime=600\nnumjobs=2\n";
    let job = JobFile::parse(text.as_bytes(), Path::new("job.fio")).unwrap();
    let stop = AtomicBool::new(false);
    let plan = Fio {
        job: &job,
        target: &places.target,
        device_bytes: None,
        scratch: &places.scratch,
        as_written: false,
    };
    let prepared = lay_out(&plan, &stop).unwrap();
    let started = Instant::now();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1500));
            stop.store(true, Ordering::Relaxed);
        });
        fio(&plan, &prepared, &stop).unwrap_err()
    });
    assert!(error.contains("`fio` was stopped"), "{error}");
    assert!(started.elapsed().as_secs() < 60);
}

#[test]
fn a_file_stands_for_a_device() {
    if !installed(WorkloadTool::Fio) {
        return;
    }
    let places = places();
    let image = places.scratch.join("image");
    fs::write(&image, vec![0_u8; 1 << 20]).unwrap();
    let places = Places { target: FioTarget::Device(image.clone()), ..places };
    let report = run_text("[a]\nrw=randread\nbs=4k\nsize=512k\n", &places).unwrap();
    assert_eq!(report.layout.bytes, 512 << 10);
    assert_eq!(report.jobs[0].read.io_bytes, 512 << 10);
    let image = fs::read(image).unwrap();
    assert!(image[..512 << 10].chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)));
    assert!(image[512 << 10..].iter().all(|byte| *byte == 0));
    let error = run_text("[a]\nrw=read\nsize=2m\n", &places).unwrap_err();
    assert!(error.contains("image has 1048576 bytes"), "{error}");
}

#[test]
fn what_fio_does_not_take_is_told_with_its_place_and_touches_nothing() {
    if !installed(WorkloadTool::Fio) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file").display().to_string();
    let told = |text: &str| {
        let text = format!("[global]\nfilename={file}\nsize=1m\n[a]\n{text}\n");
        let job = JobFile::parse(text.as_bytes(), Path::new("job.fio")).unwrap();
        let result = understood(&job);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "{text}");
        result
    };
    for good in [
        "rw=randrw\nbs=4k,8k\ndirect=1\nruntime=5\ntime_based",
        "rw=write\nbssplit=4k/60:8k/40\nverify=crc32c\nwrite_iolog=log",
        "rw=read\nsize=20%\nbs=16KiB",
    ] {
        assert_eq!(told(good), Ok(()), "{good}");
    }
    for (bad, says) in [
        ("bs=4k\nrw=randreed", &["job.fio:6:4: ", "`rw=randreed`", "randread", "randwrite"][..]),
        ("iodepth=many", &["job.fio:5:9: ", "`iodepth=many`", "fio --cmdhelp=iodepth"]),
        (
            "runtime=abc",
            &["job.fio:5:9: ", "`runtime=abc`", "with time postfix; write it like `runtime=10s`"],
        ),
        ("direct=2", &["job.fio:5:8: ", "max value out of range: 2 (1 max)"]),
        ("direct", &["job.fio:5:", "Option direct requires an argument"]),
        ("verify = crc99", &["job.fio:5:10: ", "`verify=crc99`", "crc32c"]),
        ("bz=4k", &["job.fio:5:1: ", "`bz=4k`", "no option of this name"]),
        ("uid=1", &["job.fio:5:1: ", "`uid=1`: a job stays the user", "--user"]),
        ("bs=4q", &["job.fio:5:4: ", "`bs=4q` is no size", "4k"]),
    ] {
        let error = told(bad).expect_err(bad);
        for text in says {
            assert!(error.contains(text), "no '{text}' in {bad}: {error}");
        }
    }
}

#[test]
fn a_job_that_has_the_network_reaches_no_local_socket() {
    use std::net::TcpListener;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    if !installed(WorkloadTool::Fio) {
        return;
    }
    if workloads::enclosure::refusal().is_some() {
        eprintln!("SKIPPED: the kernel grants no namespaces");
        return;
    }
    let places = places();
    let FioTarget::Directory(target) = &places.target else { unreachable!() };
    let name = target.display().to_string();
    let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    hidden.set_nonblocking(true).unwrap();
    open.set_nonblocking(true).unwrap();
    let script = "use Socket; my ($name, $port) = @ARGV;\n\
        socket(S, PF_UNIX, SOCK_STREAM, 0) and connect(S, sockaddr_un(\"\\0$name\"));\n\
        socket(S, PF_INET, SOCK_STREAM, 0) and connect(S, sockaddr_in($port, inet_aton('127.0.0.1')));\n";
    let file = places.scratch.join("reach.pl");
    fs::write(&file, script).unwrap();
    let port = open.local_addr().unwrap().port();
    let line = format!("perl {} {name} {port}", file.display());
    assert!(std::process::Command::new("sh").args(["-c", &line]).status().unwrap().success());
    assert!(hidden.accept().is_ok() && open.accept().is_ok(), "perl reaches neither");
    let reach = workloads::enclosure::Enclosure {
        directories: vec![target.clone(), places.scratch.clone()],
        // By itself it has no shell.
        files: vec!["/usr".into(), "/bin".into()],
        is_online: true,
        ..Default::default()
    };
    let fill = |command: &mut std::process::Command| {
        command.current_dir(&places.scratch).args(["--name=a", "--size=4k", "--rw=write"]);
        command.arg(format!("--directory={name}")).arg(format!("--exec_prerun={line}"));
    };
    workloads::tool::run_kept_in(WorkloadTool::Fio, &reach, fill, &AtomicBool::new(false)).unwrap();
    assert!(open.accept().is_ok(), "it is to have the network");
    assert!(hidden.accept().is_err(), "the abstract socket was reached");
}
