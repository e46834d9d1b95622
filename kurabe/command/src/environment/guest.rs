//! Runs a trial in a guest that is booted for it: the same spec goes in, the same events and record
//! come out, by pipes.
//!
//! The first guest boots while its disk is being filled; it hears of its trial when that is done.
//!
//! Invariants: one guest at a time; the runner has claimed what the guest's disk stands on; whatever
//! becomes of the guest, a record is yielded, and nothing of the guest is left.

use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use guest::{Disk, End, Guest, Link};
use lab::device::MEMORY;
use lab::event::Event;
use lab::record::{GuestFacts, Outcome, Record};
use lab::reported::Reported;
use lab::spec::{Device, TrialSpec};
use lab::study::Study;
use trial::device::{Left, in_guest};
use trial::stop::Stop;

use super::images::{Images, layer_modules_of, module_of, modules_of_nodes};
use super::lines::{self, Said};
use super::nodes;
use super::processes::{Heard, LOOK_INTERVAL};
use super::this_machine::ThisMachine;
use super::{Ended, Environment, Examined, Preparation, Ready};
use crate::exit::Failure;
use crate::runner::{Executor, Schedule};

/// How long past its own bound a trial may take to give everything back, in a guest that lives.
pub(super) const GRACE: Duration = Duration::from_secs(120);

/// What the layers of a device, and file systems in user space, are served by.
const USER_SPACE_MODULES: [&str; 2] = ["fuse", "loop"];

/// Guests, each booted for one trial, on a device of this machine.
#[derive(Default)]
pub struct Guests {
    host: ThisMachine,
    stop: Stop,
    images: Option<Images>,
    /// A guest that was started for the trial that comes first.
    early: Option<Early>,
}

/// A guest that was started before its disk was filled.
struct Early {
    boot: Boot,
    guest: Guest,
}

/// What a guest is booted with.
#[derive(PartialEq, Eq)]
pub(super) struct Boot {
    place: String,
    disk: Disk,
    modules: Vec<&'static str>,
}

impl Boot {
    /// What a trial needs.
    pub fn of(spec: &TrialSpec, device: &Device) -> Result<Boot, String> {
        let path = device.prepared.get("path").and_then(|path| path.as_str());
        let Some(path) = path else {
            return Err(format!("a guest's disk cannot be on a device of kind {}", device.kind));
        };
        // Memory has no way past the page cache: it lies there.
        let disk = Disk {
            path: path.into(),
            direct: device.kind != MEMORY,
            discard: spec.discard,
            shared: spec.contender.environment.nodes() > 1,
        };
        let module = module_of(&spec.contender);
        let mut modules: Vec<&str> = module.into_iter().collect();
        if module.is_none() || !layers_of(spec).is_empty() {
            modules.extend(USER_SPACE_MODULES);
        }
        modules.extend(layer_modules_of(&spec.contender));
        modules.extend(modules_of_nodes(&spec.contender));
        modules.extend(trial::upper::modules(&spec.contender));
        Ok(Boot { place: place_of(spec).into(), disk, modules })
    }

    /// What nodes need of which one is killed, on a disk of kurabe's own.
    pub fn of_nodes(spec: &TrialSpec, path: PathBuf) -> Boot {
        let mut modules: Vec<&str> = module_of(&spec.contender).into_iter().collect();
        modules.extend(modules_of_nodes(&spec.contender));
        modules.extend(trial::upper::modules(&spec.contender));
        let disk = Disk { path, direct: false, discard: false, shared: true };
        Boot { place: place_of(spec).into(), disk, modules }
    }

    pub fn begin(&self, images: &Images, link: Option<Link>) -> Result<Guest, String> {
        let trusted = trust::owner::words();
        let mut words = vec!["trial", "--parent", "1"];
        words.extend(trusted.iter().map(String::as_str));
        images
            .image(&self.place)
            .boot(&images.machine, Some(&self.disk), link, &self.modules, &words)
            .map_err(|error| error.to_string())
    }
}

impl Early {
    /// Starts the guest of a trial. Where that fails, the trial itself will say why.
    fn begin(images: &Images, spec: &TrialSpec, device: &Device) -> Option<Early> {
        if spec.contender.environment.nodes() > 1 {
            return None;
        }
        let boot = Boot::of(spec, device).ok()?;
        let guest = boot.begin(images, None).ok()?;
        Some(Early { boot, guest })
    }
}

impl Environment for Guests {
    fn examine(&mut self, study: &Study, destroy: Option<&str>) -> Result<Examined, Failure> {
        self.host.examine(study, destroy)
    }

    fn prepare(&mut self, preparation: Preparation<'_>) -> Result<Ready, Failure> {
        self.stop = preparation.stop.clone();
        let own = self.host.begin(preparation.stop, preparation.say)?;
        // Before the device is touched: a kernel may be missing.
        let images = self.images.insert(Images::of(&preparation.study.contenders, own)?);
        let (early, first) = (&mut self.early, preparation.first);
        let mut made = |device: &Device| {
            *early = first(device).and_then(|spec| Early::begin(images, &spec, device));
        };
        let mut ready = self.host.make_device(preparation, &mut made)?;
        ready.facts.insert("guests".into(), images.facts());
        Ok(ready)
    }

    fn end(&mut self) -> Ended {
        self.early = None;
        self.host.end()
    }
}

impl Executor for Guests {
    /// One after the other: no plan of ours has guests take turns.
    fn run(
        &mut self,
        specs: &[TrialSpec],
        _: Option<&mut Schedule<'_>>,
        on_event: &mut dyn FnMut(&Event),
    ) -> Vec<Record> {
        let alone = specs.iter().map(|spec| TrialSpec { side_by_side: None, ..spec.clone() });
        alone.map(|spec| self.run_one(&spec, on_event)).collect()
    }
}

impl Guests {
    fn run_one(&mut self, spec: &TrialSpec, on_event: &mut dyn FnMut(&Event)) -> Record {
        if spec.contender.environment.nodes() > 1 {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let images = self.images.as_ref().expect("they are there once it is prepared");
            let device = self.host.device().expect("a guest's disk is on a device");
            let begun = Record::begun(spec, unix.as_nanos() as u64);
            return nodes::run(begun, spec, images, device, &self.stop, on_event);
        }
        let device = self.host.device().expect("a guest's disk is on a device");
        let images = self.images.as_ref().expect("they are there once it is prepared");
        // Held until the guest is gone: it takes nothing exclusively, and so nobody else can make
        // anything on its disk meanwhile.
        let claimed = device.claim_again().map_err(|error| error.to_string());
        let boot = Boot::of(spec, device.device());
        let booted = match (&claimed, &boot) {
            (Ok(_), Ok(boot)) => begin(&mut self.early, images, boot),
            (Err(refused), _) | (_, Err(refused)) => Err(refused.clone()),
        };
        let again = || boot.as_ref().map_err(Clone::clone)?.begin(images, None);
        let disk = in_guest(guest::inside::DISK.as_ref(), layers_of(spec));
        let inside = TrialSpec { device: Some(disk), ..spec.clone() };
        let record = live(images, spec, inside, booted, &again, &self.stop, on_event);
        if let (Ok(_claimed), true) = (claimed, record.outcome != Outcome::Completed) {
            device.note_left(Left::Everything);
        }
        record
    }
}

/// Carries out a trial of power failures in a guest that is booted for it. Its disk is the file of the
/// recording, `data`, to which the guest writes; nothing else of the trial is on a disk.
pub fn cut_power(
    images: &Images,
    spec: &TrialSpec,
    data: PathBuf,
    stop: &Stop,
    on_event: &mut dyn FnMut(&Event),
) -> Record {
    let mut modules: Vec<&str> = module_of(&spec.contender).into_iter().collect();
    modules.extend(USER_SPACE_MODULES);
    modules.extend(layer_modules_of(&spec.contender));
    modules.extend(trial::upper::modules(&spec.contender));
    let disk = Disk { path: data, direct: false, discard: false, shared: false };
    let boot = Boot { place: place_of(spec).into(), disk, modules };
    let begin = || boot.begin(images, None);
    let mut inside = spec.clone();
    if let Some(cuts) = &mut inside.power_cuts {
        cuts.data = guest::inside::DISK.into();
    }
    live(images, spec, inside, begin(), &begin, stop, on_event)
}

/// Follows a guest that was started until its end. It hears of the trial as `inside` says.
fn live(
    images: &Images,
    spec: &TrialSpec,
    inside: TrialSpec,
    booted: Result<Guest, String>,
    again: &dyn Fn() -> Result<Guest, String>,
    stop: &Stop,
    on_event: &mut dyn FnMut(&Event),
) -> Record {
    let started = Instant::now();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let host_load = host_load();
    let mut heard = Heard::new();
    let mut timed_out = None;
    let place = place_of(spec);
    let image = images.image(place);
    let failure;
    let mut facts = None;
    match booted {
        Err(problem) => failure = problem,
        Ok(mut guest) => {
            on_event(&Event::Status { text: format!("booting {place}") });
            let stopped = || stop.raised();
            let mut is_ready = guest.wait_ready(&stopped);
            // An emulated kernel gives up now and then before it runs anything, and so the disk is as it was.
            if !is_ready && !stopped() && guest.has_given_up() {
                on_event(&Event::Status { text: format!("booting {place} once more") });
                if let Ok(another) = again() {
                    guest = another;
                    is_ready = guest.wait_ready(&stopped);
                }
            }
            if is_ready {
                timed_out = converse(&mut guest, inside, &mut heard, stop, on_event);
            }
            let is_done = heard.record.as_ref().is_some_and(Reported::is_completed);
            let ended = guest.end(!is_done);
            failure = format!("the guest ended: {}{}", ended.end, heard.reason);
            facts = Some(GuestFacts {
                kernel: image.lock().kernel.release.to_string(),
                image: image.lock().id.clone(),
                acceleration: images.machine.acceleration.to_string(),
                boot_ns: ended.boot.map(|boot| boot.as_nanos() as u64),
                host_load,
                end: ended.end.to_string(),
                console: if ended.end == End::Completed { String::new() } else { ended.console },
            });
        }
    }
    let (record, failure) = match heard.record.map(|record| record.of(spec)) {
        Some(Ok(record)) => (Some(record), failure),
        Some(Err(other)) => (None, other),
        None => (None, failure),
    };
    let mut record = record.unwrap_or_else(|| {
        let mut record = Record::begun(spec, unix.as_nanos() as u64);
        record.elapsed_ns = started.elapsed().as_nanos() as u64;
        let phase = heard.phase;
        record.outcome = match (stop.raised(), timed_out) {
            (true, _) => Outcome::Interrupted { phase },
            (false, Some(limit_ns)) => Outcome::TimedOut { phase, limit_ns },
            (false, None) => Outcome::Failed {
                phase,
                message: failure,
                output: facts.as_ref().map_or(String::new(), |facts| facts.console.clone()),
            },
        };
        record
    });
    record.guest = facts;
    record
}

/// Hears the trial until its record is there or the guest is gone. Gives the bound in ns, where that
/// came first.
fn converse(
    guest: &mut Guest,
    inside: TrialSpec,
    heard: &mut Heard,
    stop: &Stop,
    on_event: &mut dyn FnMut(&Event),
) -> Option<u64> {
    let spec = TrialSpec { scratch: guest::inside::SCRATCH.into(), ..inside };
    // Where power is cut the bound is the workload's, which the trial itself ends.
    let limit_ns = spec.timeout_ns.filter(|_| spec.power_cuts.is_none());
    let until = limit_ns.map(|ns| Instant::now() + Duration::from_nanos(ns) + GRACE);
    let (input, output) = guest.take_pipes();
    let (sender, lines) = lines::channel();
    lines::read(output, lines::FOREIGN, 0, &sender);
    let text = serde_json::to_string(&spec).expect("a spec has a JSON form");
    let speech = lines::Speech::new(input);
    speech.say(text);
    loop {
        match lines.recv_timeout(LOOK_INTERVAL) {
            Ok((_, Said::Line(line))) => {
                if let Some(event) = heard.hear(&line) {
                    on_event(&event);
                }
                if heard.record.is_some() {
                    return None;
                }
            }
            Ok((_, Said::End(Some(why)))) => {
                heard.reason = format!(": {why}");
                guest.kill();
                return None;
            }
            Ok((_, Said::End(None))) | Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let timed_out = limit_ns.filter(|_| until.is_some_and(|until| Instant::now() >= until));
        if guest.is_silent() || timed_out.is_some() {
            guest.kill_silent();
            return timed_out;
        }
        if stop.raised() {
            guest.kill();
            return None;
        }
    }
}

/// Takes the guest that was started early, where it is the one that the trial needs.
fn begin(early: &mut Option<Early>, images: &Images, boot: &Boot) -> Result<Guest, String> {
    match early.take() {
        Some(early) if early.boot == *boot => Ok(early.guest),
        // Killed before another one is started.
        early => {
            drop(early);
            boot.begin(images, None)
        }
    }
}

pub(super) fn place_of(spec: &TrialSpec) -> &str {
    spec.contender.environment.guest().expect("it lives in a guest")
}

/// The layers under a contender, which stand in its guest.
fn layers_of(spec: &TrialSpec) -> &[String] {
    spec.device.as_ref().map_or(&[], |device| &device.layers)
}

/// The load of this machine over the last minute.
pub(super) fn host_load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
