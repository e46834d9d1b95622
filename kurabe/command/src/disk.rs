//! `kurabe disk`: the disks that can be modelled, one of them as a device for any program, and traces.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::claim::Use;
use block::{BlockDevice, DirectAccess, FileDevice, FileDeviceOptions};
use disks::fit::{FitError, FitFigure, Fitted, OnDevice};
use disks::profile::{self, DiskProfile};
use disks::replay::replay;
use disks::trace::Trace;
use lab::quantity::size_text;
use lab::record::ModelledDisk;
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal};
use trial::device::{AttachSite, Attached, DeviceRequest, attach};
use trial::host_proc::HostProc;
use trial::ledger::{self, Ledger};
use trial::scratch::{Occupied, Scratch};
use trial::stop::StopFlag;
use trust::Directory;

use crate::exit::{self, Failure, broken, refused};
use crate::request::flags::DiskAction;
use crate::terminal::{note, print};

pub fn disk(action: &DiskAction) -> Result<u8, Failure> {
    match action {
        DiskAction::Profiles { name: None } => list(),
        DiskAction::Profiles { name: Some(name) } => parameters(name),
        DiskAction::Attach { disk, trace } => serve(disk, trace.as_deref()),
        DiskAction::Detach { device } => detach(device),
        DiskAction::Replay { trace, profile, output } => {
            replay_on(trace, profile, output.as_deref())
        }
        DiskAction::Fit { device, destroy, output } => fit(device, destroy, output),
        DiskAction::Export { trace, csv, blktrace } => {
            let read = read(trace)?;
            write(csv.as_deref(), |out| read.write_csv(out))?;
            write(blktrace.as_deref(), |out| read.write_blktrace(out))?;
            Ok(exit::OK)
        }
    }
}

fn list() -> Result<u8, Failure> {
    let profiles: Vec<DiskProfile> = profile::bundled().collect();
    let name = |one: &DiskProfile| format!("{}:{}", one.kind.layer(), one.name);
    let width = profiles.iter().map(|one| name(one).len()).max().unwrap_or(0);
    for one in &profiles {
        print(&format!("{:width$}  {}\n", name(one), one.title));
    }
    print("\n'kurabe disk profiles NAME' shows the parameters and their sources.\n");
    Ok(exit::OK)
}

/// The profile that a person means by `NAME[,WORDS]`, with its layer in front or not.
fn named(words: &str) -> Result<DiskProfile, Failure> {
    let known: Vec<DiskProfile> = profile::bundled().collect();
    let mut layers = known.iter().map(|one| one.kind.layer());
    let bare = layers.find_map(|layer| words.strip_prefix(layer)?.strip_prefix(':'));
    let bare = bare.unwrap_or(words);
    let (name, changes) = bare.split_once(',').unwrap_or((bare, ""));
    if name.ends_with(".toml") {
        let refused = |problem: &dyn fmt::Display| Failure::refused(format!("{name}: {problem}"));
        let text = trust::file::read_text(Path::new(name))
            .map_err(|problem| Failure::refused(problem.to_string()))?;
        let profile = DiskProfile::parse(&text, name).map_err(Failure::refused)?;
        return profile.changed(changes).map_err(|problem| refused(&problem));
    }
    let Some(found) = known.iter().find(|one| one.name == name) else {
        let names: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
        let names = names.join(", ");
        return Err(Failure::refused(format!("there is no profile '{name}'; there are {names}")));
    };
    DiskProfile::read(found.kind, bare).map_err(refused(format_args!("'{words}'")))
}

fn parameters(words: &str) -> Result<u8, Failure> {
    let profile = named(words)?;
    print(&format!("{}\n", profile.title));
    for [name, value, meaning, source] in profile.listing() {
        print(&format!("{name} = {value}  ({meaning})\n    {source}\n"));
    }
    Ok(exit::OK)
}

fn fit(device: &Path, destroy: &str, output: &Path) -> Result<u8, Failure> {
    let Some(name) = output.file_stem().and_then(|name| name.to_str()) else {
        return Err(Failure::refused(format!("{}: not a file's name", output.display())));
    };
    let is_named = device.file_name().is_some_and(|name| name == destroy);
    // A modelled disk has nothing to lose, and who serves it has it open. It may still be mounted.
    let (granted, file) = if is_named && let Ok(Some((server, _))) = server_of(device) {
        let findings = block::claim::examine(device).map_err(Failure::broken)?;
        if let Some(used) = findings.uses.iter().find(|used| !is_use_by(used, server)) {
            return Err(Failure::refused(format!("{}: {used}", device.display())));
        }
        let exclusively = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = rustix::fs::open(device, exclusively, rustix::fs::Mode::empty());
        let refused = |error| Failure::refused(format!("{}: {error}; umount it", device.display()));
        let file = File::from(opened.map_err(refused)?);
        let number = file.metadata().map_err(Failure::broken)?.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let kernels = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
        // Not another device under its name.
        if kernels.map_err(Failure::broken)?.file_name() != device.file_name() {
            return Err(Failure::refused(format!("{} is not that device", device.display())));
        }
        (None, file)
    } else {
        let granted = block::claim::claim(device, destroy).map_err(Failure::refused)?;
        let file = granted.file().try_clone().map_err(Failure::broken)?;
        (Some(granted), file)
    };
    // Found out before anything is destroyed.
    let mut profile = create(output)?;
    let fitted = measured(&file, device, name).and_then(|fitted| {
        let written = profile.write_all(fitted.text.as_bytes()).and_then(|()| profile.sync_all());
        let broken = |error| Failure::broken(format!("{}: {error}", output.display()));
        written.map(|()| fitted).map_err(broken)
    });
    let fitted = fitted.inspect_err(|_| drop(std::fs::remove_file(output)))?;
    drop(granted);
    /// From here on a profile is called a bad one.
    const OFF_MAX: f64 = 0.15;
    let is_bad = fitted.figures.iter().any(|figure| figure.off() > OFF_MAX);
    for FitFigure { name, measured, modelled } in &fitted.figures {
        print(&format!("{name}: {measured:.2}; with the profile: {modelled:.2}\n"));
    }
    let shown = output.display();
    print(&format!(
        "\n'kurabe disk attach {shown}:8G' serves such a disk, 'kurabe disk replay TRACE {shown}' replays a run on it.\n"
    ));
    if let Ok(words) = fitted.profile.as_words() {
        print(&format!("As a layer: hdd:{words}\n"));
    }
    if is_bad {
        note(
            "the profile does not answer as the disk did: a figure is more than 15 % off; measure again on an idle machine",
        );
        return Ok(exit::TRIAL_FAILED);
    }
    Ok(exit::OK)
}

fn measured(file: &File, shown: &Path, name: &str) -> Result<Fitted, Failure> {
    let broken = |error: io::Error| Failure::broken(format!("{}: {error}", shown.display()));
    let options = FileDeviceOptions { direct: DirectAccess::Require, ..Default::default() };
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    let device = FileDevice::open(opened, &options).map_err(broken)?;
    let number = file.metadata().map_err(broken)?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    // A partition has its disk's.
    let queue = ["queue", "../queue"].iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/physical_block_size");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    });
    let sector_bytes: u32 = queue.unwrap_or_else(|| device.block_size());
    let mut target = OnDevice::new(device);
    let mut report = |what: &str| note(&format!("measuring {what} ..."));
    disks::fit::fit(&mut target, name, sector_bytes, &mut report).map_err(|error| match error {
        FitError::Device(error) => broken(error),
        FitError::NoHardDisk(why) => Failure::refused(format!("{}: {why}", shown.display())),
    })
}

/// `PROFILE:SIZE[@DIR]` as a device is written.
fn device_text(disk: &str) -> Result<String, Failure> {
    let (before, place) = match disk.split_once('@') {
        Some((before, place)) => (before, format!("@{place}")),
        None => (disk, String::new()),
    };
    let Some((words, size)) = before.rsplit_once(':') else {
        return Err(Failure::refused(format!(
            "'{disk}' has no size; write PROFILE:SIZE such as st1000dm003:8G"
        )));
    };
    let profile = named(words)?;
    let (name, changes) = words.split_once(',').unwrap_or((words, ""));
    if name.ends_with(".toml") {
        // What serves it has no files of the user's.
        let whole = profile.as_words().map_err(Failure::refused)?;
        let changes = if changes.is_empty() { String::new() } else { format!(",{changes}") };
        return Ok(format!("{}:{whole}{changes}:{size}{place}", profile.kind.layer()));
    }
    Ok(format!("{}:{}:{size}{place}", profile.kind.layer(), profile.words))
}

fn serve(disk: &str, trace: Option<&Path>) -> Result<u8, Failure> {
    let text = device_text(disk)?;
    let request = DeviceRequest::parse(&text, None).map_err(Failure::refused)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::refused("a block device needs root; run it with sudo"));
    }
    // Found out before anything is made, not when the trace is complete.
    let mut output = trace.map(create).transpose()?;
    let stop = StopFlag::on_signals().map_err(Failure::broken)?;
    let own = Directory::own().map_err(refused("kurabe's own directory"))?;
    let left = ledger::clean(&own).map_err(Failure::broken)?;
    left.left.iter().for_each(|line| note(&format!("left by an earlier session: {line}")));
    let own = Arc::new(own);
    let ledger = Arc::new(Ledger::start(&own).map_err(Failure::refused)?);
    note(&format!("filling {text} ..."));
    let prepared =
        request.prepare(&own, &stop, &mut |_| {}).map_err(|error| match stop.signal() {
            Some(signal) => stopped(signal),
            None => Failure::refused(error),
        })?;
    let scratch = Scratch::make(&own, &ledger).map_err(Failure::broken)?;
    let served = served(&scratch, prepared.device(), &stop, output.as_mut());
    let report = scratch.give_back();
    report.left.iter().for_each(|line| note(&format!("still there: {line}")));
    let code = served?;
    Ok(if report.left.is_empty() { code } else { exit::TRIAL_FAILED })
}

fn stopped(signal: i32) -> Failure {
    Failure { code: exit::SIGNAL_BASE + signal as u8, message: "stopped".into() }
}

/// How often what serves is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a disk may still be mounted after it was to go.
const PATIENCE: Duration = Duration::from_secs(10);

fn served(
    scratch: &Scratch,
    device: &lab::spec::Device,
    stop: &StopFlag,
    trace: Option<&mut File>,
) -> Result<u8, Failure> {
    let occupied = Occupied::enter(&scratch.path()).map_err(Failure::broken)?;
    let host = HostProc::open().map_err(Failure::broken)?;
    let site = AttachSite { scratch: &occupied, host: &host, stop };
    let mut attached = attach(device, true, &site).map_err(Failure::broken)?;
    if trace.is_some() {
        attached.keep_trace().map_err(Failure::broken)?;
    }
    print(&format!("{}\n", attached.node().shown()));
    let _ = io::stdout().flush();
    while !stop.raised() {
        std::thread::sleep(LOOK);
        if let Some(status) = attached.has_ended().map_err(Failure::broken)? {
            return Err(Failure::broken(format!("what serves the disk has ended ({status})")));
        }
    }
    wait_for_users(&attached);
    if let Some(output) = trace
        && let Some((mut kept, lost)) = attached.trace().map_err(Failure::broken)?
    {
        let copied = io::copy(&mut kept, output).and_then(|_| output.sync_all());
        copied.map_err(broken("the trace"))?;
        if lost > 0 {
            note(&format!("the trace is not whole: {lost} requests found no room"));
        }
    }
    let said = attached.detach().map_err(Failure::broken)?;
    for disk in said.disks {
        if let Ok(disk) = serde_json::from_value::<ModelledDisk>(disk) {
            let late = disk.lateness;
            note(&format!(
                "{} requests; replies were late by {} µs in the median, {} µs at p99{}; the model took {} ns for each",
                late.replies,
                late.p50_ns / 1000,
                late.p99_ns / 1000,
                if late.is_late() { " (too late for its times to be the disk's)" } else { "" },
                disk.model_ns_per_request
            ));
        }
    }
    Ok(exit::OK)
}

/// Waits until nobody has the device mounted any more.
fn wait_for_users(attached: &Attached) {
    let (until, mut told) = (Instant::now() + PATIENCE, false);
    let is_free = || {
        let flags = OFlags::RDONLY | OFlags::EXCL;
        rustix::fs::open(attached.node().path(), flags, rustix::fs::Mode::empty()).is_ok()
    };
    while !is_free() && Instant::now() < until {
        if !told {
            note(&format!("waiting for {} to be unmounted", attached.node().shown()));
            told = true;
        }
        std::thread::sleep(LOOK);
    }
}

/// What would lose the disk below it. What is about to end is waited for; so is, by who serves the disk, a process that
/// only has it open.
fn use_that_stays(device: &Path) -> Result<Option<Use>, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let stays = |used: &Use| {
            matches!(
                used,
                Use::Mounted { .. }
                    | Use::Swap { .. }
                    | Use::Holder { .. }
                    | Use::BtrfsMember { .. }
            )
        };
        let findings = block::claim::examine(device).map_err(Failure::broken)?;
        let used = findings.uses.into_iter().find(stays);
        if used.is_none() || Instant::now() >= until {
            return Ok(used);
        }
        std::thread::sleep(10 * LOOK);
    }
}

/// Whether a use of a device is that of the process that serves it, or of a child of that.
fn is_use_by(used: &Use, server: Pid) -> bool {
    let server = server.as_raw_nonzero().get() as u32;
    let parent = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    matches!(*used, Use::OpenBy { pid, .. } | Use::OtherKurabe { pid } if pid == server || parent(pid) == Some(server))
}

/// The process of 'kurabe disk attach' that serves a device, if one does.
fn server_of(device: &Path) -> Result<Option<(Pid, OwnedFd)>, Failure> {
    let name = device.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(index) = name.strip_prefix("loop").and_then(|index| index.parse().ok()) else {
        return Err(Failure::refused(format!(
            "{}: not a device of 'kurabe disk attach'; give the path that it printed, such as /dev/loop7",
            device.display()
        )));
    };
    let own = Directory::own().map_err(refused("kurabe's own directory"))?;
    let holder = ledger::holder_of_loop(&own, index).map_err(Failure::broken)?;
    let Some(holder) = holder.and_then(|pid| Pid::from_raw(pid as i32)) else { return Ok(None) };
    let Ok(process) = rustix::process::pidfd_open(holder, PidfdFlags::empty()) else {
        return Ok(None);
    };
    // A trial has loop devices too, and ends with its study.
    let words = std::fs::read(format!("/proc/{}/cmdline", holder.as_raw_nonzero()));
    let words = words.unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    let serves = words.contains(&b"disk".as_slice()) && words.contains(&b"attach".as_slice());
    Ok(Some((holder, process)).filter(|_| serves))
}

fn detach(device: &Path) -> Result<u8, Failure> {
    let shown = device.display();
    let (_, process) = server_of(device)?.ok_or_else(|| {
        Failure::refused(format!(
            "{shown}: no 'kurabe disk attach' serves it; 'kurabe clean' removes what a killed one left"
        ))
    })?;
    if let Some(used) = use_that_stays(device)? {
        return Err(Failure::refused(format!("{shown}: {used}")));
    }
    rustix::process::pidfd_send_signal(&process, Signal::TERM).map_err(Failure::broken)?;
    let mut ended =
        [rustix::event::PollFd::from_borrowed_fd(process.as_fd(), rustix::event::PollFlags::IN)];
    let limit = rustix::time::Timespec { tv_sec: 30, tv_nsec: 0 };
    match rustix::event::poll(&mut ended, Some(&limit)) {
        Ok(1..) => Ok(exit::OK),
        _ => Err(Failure::broken(format!("{shown} is still in use; unmount it first"))),
    }
}

fn create(path: &Path) -> Result<File, Failure> {
    trust::file::check_target(path).map_err(Failure::refused)?;
    File::create_new(path).map_err(|error| {
        let next = match error.kind() {
            io::ErrorKind::AlreadyExists => "; remove it, or name another",
            _ => "",
        };
        Failure::refused(format!("{}: {error}{next}", path.display()))
    })
}

fn read(path: &Path) -> Result<Trace, Failure> {
    let refused = |error: io::Error| Failure::refused(format!("{}: {error}", path.display()));
    let file = trust::file::open(path).map_err(|problem| Failure::refused(problem.to_string()))?;
    Trace::read(&mut BufReader::new(file)).map_err(refused)
}

fn write(
    path: Option<&Path>,
    act: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let mut file = BufWriter::new(create(path)?);
    let written = act(&mut file).and_then(|()| file.flush());
    written.map_err(broken(path.display()))
}

fn replay_on(path: &Path, words: &str, output: Option<&Path>) -> Result<u8, Failure> {
    let profile = named(words)?;
    let trace = read(path)?;
    let begun = Instant::now();
    let replayed = replay(&trace, &profile).map_err(Failure::refused)?;
    let took = begun.elapsed();
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    print(&format!(
        "recorded: {} requests in {} on a device of {}\n",
        trace.entries.len(),
        seconds(replayed.recorded_ns),
        size_text(trace.device_bytes)
    ));
    print(&format!("modelled on {}: {}\n", profile.words, seconds(replayed.replayed_ns)));
    let names = ["read", "write", "flush"];
    for (name, latencies) in
        names.iter().zip(&replayed.latencies).filter(|(_, one)| !one.is_empty())
    {
        let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
        print(&format!(
            "  {name}: {} requests, median {} ms, p90 {} ms, p99 {} ms, at most {} ms\n",
            latencies.len(),
            ms(latencies.value_at_quantile(0.5)),
            ms(latencies.value_at_quantile(0.9)),
            ms(latencies.value_at_quantile(0.99)),
            ms(latencies.max())
        ));
    }
    for (name, count) in replayed.counters.iter().filter(|(_, count)| *count > 0) {
        print(&format!("  {name}: {count}\n"));
    }
    let rate = trace.entries.len() as f64 / took.as_secs_f64().max(1e-9);
    note(&format!("replayed {rate:.0} requests per second"));
    if let Some(doubt) = replayed.validity.doubt() {
        note(&format!("not valid: {doubt}"));
    }
    write(output, |out| {
        Trace { device_bytes: trace.device_bytes, entries: replayed.entries }.write_to(out)
    })?;
    Ok(exit::OK)
}
