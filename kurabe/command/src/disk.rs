//! `kurabe disk`: the disks that can be modelled, one of them as a device for any program, and traces.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disks::profile::{self, Profile};
use disks::replay::replay;
use disks::trace::Trace;
use lab::quantity::size_text;
use lab::record::ModelledDisk;
use rustix::process::{Pid, PidfdFlags, Signal};
use trial::device::{Attached, DeviceRequest, Site, attach};
use trial::host_proc::HostProc;
use trial::ledger::{self, Ledger};
use trial::scratch::{Occupied, Scratch};
use trial::stop::Stop;
use trust::Directory;

use crate::exit::{self, Failure};
use crate::request::flags::DiskAction;
use crate::terminal::{note, print};

/// `kurabe disk`.
pub fn disk(action: &DiskAction) -> Result<u8, Failure> {
    match action {
        DiskAction::Profiles { name: None } => list(),
        DiskAction::Profiles { name: Some(name) } => parameters(name),
        DiskAction::Attach { disk, trace } => serve(disk, trace.as_deref()),
        DiskAction::Detach { device } => detach(device),
        DiskAction::Replay { trace, profile, output } => {
            replay_on(trace, profile, output.as_deref())
        }
        DiskAction::Export { trace, csv, blktrace } => {
            let read = read(trace)?;
            write(csv.as_deref(), |out| read.write_csv(out))?;
            write(blktrace.as_deref(), |out| read.write_blktrace(out))?;
            Ok(exit::OK)
        }
    }
}

fn list() -> Result<u8, Failure> {
    let profiles: Vec<Profile> = profile::bundled().collect();
    let name = |one: &Profile| format!("{}:{}", one.kind.layer(), one.name);
    let width = profiles.iter().map(|one| name(one).len()).max().unwrap_or(0);
    for one in &profiles {
        print(&format!("{:width$}  {}\n", name(one), one.title));
    }
    print("\n'kurabe disk profiles NAME' shows the parameters and their sources.\n");
    Ok(exit::OK)
}

/// The profile that a person means by `NAME[,WORDS]`, with its layer in front or not.
fn named(words: &str) -> Result<Profile, Failure> {
    let bare = ["hdd:", "ssd:", "cloud:"].iter().find_map(|layer| words.strip_prefix(layer));
    let bare = bare.unwrap_or(words);
    let (name, changes) = bare.split_once(',').unwrap_or((bare, ""));
    if name.ends_with(".toml") {
        let refused = |problem: &dyn fmt::Display| Failure::refused(format!("{name}: {problem}"));
        let text = trust::file::read_text(Path::new(name))
            .map_err(|problem| Failure::refused(problem.to_string()))?;
        let profile = Profile::parse(&text, name).map_err(Failure::refused)?;
        return profile.changed(changes).map_err(|problem| refused(&problem));
    }
    let known: Vec<Profile> = profile::bundled().collect();
    let Some(found) = known.iter().find(|one| one.name == name) else {
        let names: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
        let names = names.join(", ");
        return Err(Failure::refused(format!("there is no profile '{name}'; there are {names}")));
    };
    Profile::read(found.kind, bare)
        .map_err(|problem| Failure::refused(format!("'{words}': {problem}")))
}

fn parameters(words: &str) -> Result<u8, Failure> {
    let profile = named(words)?;
    print(&format!("{}\n", profile.title));
    for [name, value, meaning, source] in profile.listing() {
        print(&format!("{name} = {value}  ({meaning})\n    {source}\n"));
    }
    Ok(exit::OK)
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
    if words.contains(".toml") {
        return Err(Failure::refused(format!(
            "'{words}': a device needs a profile of kurabe's; give one with what differs, such as \
             7200rpm,rpm=5900:{size}. 'kurabe disk replay' takes a file"
        )));
    }
    let profile = named(words)?;
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
    let stop = Stop::on_signals().map_err(Failure::broken)?;
    let own = Directory::own()
        .map_err(|refused| Failure::refused(format!("kurabe's own directory: {refused}")))?;
    let left = ledger::clean(&own).map_err(Failure::broken)?;
    left.left.iter().for_each(|line| note(&format!("left by an earlier run: {line}")));
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
    stop: &Stop,
    trace: Option<&mut File>,
) -> Result<u8, Failure> {
    let occupied = Occupied::enter(&scratch.path()).map_err(Failure::broken)?;
    let host = HostProc::open().map_err(Failure::broken)?;
    let site = Site { scratch: &occupied, host: &host, stop };
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
        copied.map_err(|error| Failure::broken(format!("the trace: {error}")))?;
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
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
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

fn detach(device: &Path) -> Result<u8, Failure> {
    let shown = device.display();
    let name = device.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(index) = name.strip_prefix("loop").and_then(|index| index.parse().ok()) else {
        return Err(Failure::refused(format!(
            "{shown}: not a device of 'kurabe disk attach'; give the path that it printed, such as /dev/loop7"
        )));
    };
    let own = Directory::own()
        .map_err(|refused| Failure::refused(format!("kurabe's own directory: {refused}")))?;
    let holder = ledger::holder_of_loop(&own, index).map_err(Failure::broken)?;
    let refused = || {
        Failure::refused(format!(
            "{shown}: no 'kurabe disk attach' serves it; 'kurabe clean' removes what a killed one left"
        ))
    };
    let holder = holder.and_then(|pid| Pid::from_raw(pid as i32)).ok_or_else(refused)?;
    let process =
        rustix::process::pidfd_open(holder, PidfdFlags::empty()).map_err(|_| refused())?;
    // A trial has loop devices too, and ends with its study.
    let words = std::fs::read(format!("/proc/{}/cmdline", holder.as_raw_nonzero()));
    let words = words.unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    if !words.contains(&b"disk".as_slice()) || !words.contains(&b"attach".as_slice()) {
        return Err(refused());
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
    written.map_err(|error| Failure::broken(format!("{}: {error}", path.display())))
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
