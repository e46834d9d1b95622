//! Runs a trial in a guest that is booted for it: the same spec goes in, the same events and record
//! come out, by pipes.
//!
//! The first guest boots while its disk is being filled; it hears of its trial when that is done.
//!
//! Invariants: one guest at a time; the runner has claimed what the guest's disk stands on; whatever
//! becomes of the guest, a record is yielded, and nothing of the guest is left.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use guest::{Guest, GuestDisk, GuestEnd, GuestExit, Link};
use lab::device::{DEVICES_MAX, MEMORY};
use lab::event::Event;
use lab::record::{GuestFacts, Outcome, Record};
use lab::reported::Reported;
use lab::spec::{Device, TrialSpec};
use lab::study::Study;
use trial::device::{Left, in_guest};
use trial::lower;
use trial::stop::StopFlag;

use super::images::{GuestImages, layer_modules_of, module_of, modules_of_nodes};
use super::lines::{self, StreamEvent};
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
    stop: StopFlag,
    images: Option<GuestImages>,
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
    disks: Vec<GuestDisk>,
    modules: Vec<&'static str>,
}

impl Boot {
    pub fn of(spec: &TrialSpec, device: &Device) -> Result<Boot, String> {
        let each = device.all().map(|one| disk_of(spec, one)).collect::<Result<Vec<_>, _>>()?;
        let disks = match (&each[..], parts_of(spec, device)) {
            ([one], Some(parts)) => {
                let part = |part| GuestDisk { part: Some(part), ..one.clone() };
                parts.into_iter().map(part).collect()
            }
            _ => each,
        };
        let in_user_space = module_of(&spec.contender).is_none() || !layers_of(spec).is_empty();
        Ok(Boot::with(spec, disks, in_user_space))
    }

    fn with(spec: &TrialSpec, disks: Vec<GuestDisk>, in_user_space: bool) -> Boot {
        let mut modules: Vec<&str> = module_of(&spec.contender).into_iter().collect();
        if in_user_space {
            modules.extend(USER_SPACE_MODULES);
        }
        modules.extend(layer_modules_of(&spec.contender));
        modules.extend(modules_of_nodes(&spec.contender));
        modules.extend(trial::upper::modules(&spec.contender));
        Boot { place: place_of(spec).into(), disks, modules }
    }

    /// What a trial is told of its disks.
    fn devices(&self, spec: &TrialSpec) -> Device {
        let device = spec.device.clone().unwrap_or_default();
        let layers = device.all().map(|one| &one.layers[..]);
        // Parts of one have what that has.
        let layers = layers.chain(std::iter::repeat(&device.layers[..]));
        let disks = (0..).zip(layers).take(self.disks.len());
        let mut all: Vec<Device> =
            disks.map(|(number, layers)| in_guest(&guest::inside::disk(number), layers)).collect();
        let others = all.split_off(1);
        Device { others, ..all.remove(0) }
    }

    /// What nodes need of which one is killed, on a disk of kurabe's own.
    pub fn of_nodes(spec: &TrialSpec, path: PathBuf) -> Boot {
        let disk = GuestDisk { path, part: None, direct: false, discard: false, shared: true };
        Boot::with(spec, vec![disk], false)
    }

    pub fn begin(&self, images: &GuestImages, link: Option<Link>) -> Result<Guest, String> {
        let trusted = trust::owner::words();
        let mut words = vec!["trial", "--parent", "1"];
        words.extend(trusted.iter().map(String::as_str));
        images
            .image(&self.place)
            .boot(&images.machine, &self.disks, link, &self.modules, &words)
            .map_err(|error| error.to_string())
    }
}

impl Early {
    /// Starts the guest of a trial. Where that fails, the trial itself will say why.
    fn begin(images: &GuestImages, spec: &TrialSpec, device: &Device) -> Option<Early> {
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
        let images = self.images.insert(GuestImages::of(&preparation.study.contenders, own)?);
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
        let disks = boot.as_ref().ok().map(|boot| boot.devices(spec));
        let inside = TrialSpec { device: disks, ..spec.clone() };
        let mut record = live(images, spec, inside, booted, &again, &self.stop, on_event);
        if parts_of(spec, device.device()).is_some() {
            record.notes.extend(lower::note_of_parts(&spec.contender));
        }
        if let (Ok(_claimed), true) = (claimed, record.outcome != Outcome::Completed) {
            device.note_left(Left::Everything);
        }
        record
    }
}

/// Carries out a trial of power failures in a guest that is booted for it. Its disk is the file of the
/// recording, `data`, to which the guest writes; nothing else of the trial is on a disk.
pub fn cut_power(
    images: &GuestImages,
    spec: &TrialSpec,
    data: PathBuf,
    stop: &StopFlag,
    on_event: &mut dyn FnMut(&Event),
) -> Record {
    let disk = GuestDisk { path: data, part: None, direct: false, discard: false, shared: false };
    let boot = Boot::with(spec, vec![disk], true);
    let begin = || boot.begin(images, None);
    let mut inside = spec.clone();
    if let Some(cuts) = &mut inside.power_cuts {
        cuts.data = guest::inside::DISK.into();
    }
    live(images, spec, inside, begin(), &begin, stop, on_event)
}

/// Follows a guest that was started until its end. It hears of the trial as `inside` says.
fn live(
    images: &GuestImages,
    spec: &TrialSpec,
    inside: TrialSpec,
    booted: Result<Guest, String>,
    again: &dyn Fn() -> Result<Guest, String>,
    stop: &StopFlag,
    on_event: &mut dyn FnMut(&Event),
) -> Record {
    let started = Instant::now();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let host_load = host_load();
    let mut heard = Heard::new();
    let mut timed_out = None;
    let place = place_of(spec);
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
            facts = Some(facts_of(images, place, &ended, host_load));
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

/// What is known of a guest that has ended.
pub(super) fn facts_of(
    images: &GuestImages,
    place: &str,
    ended: &GuestExit,
    host_load: Option<f64>,
) -> GuestFacts {
    let image = images.image(place).lock();
    let is_done = ended.end == GuestEnd::Completed;
    GuestFacts {
        kernel: image.kernel.release.to_string(),
        image: image.id.clone(),
        acceleration: images.machine.acceleration.to_string(),
        boot_ns: ended.boot.map(|boot| boot.as_nanos() as u64),
        host_load,
        end: ended.end.to_string(),
        console: if is_done { String::new() } else { ended.console.clone() },
    }
}

/// Hears the trial until its record is there or the guest is gone. Gives the bound in ns, where that
/// came first.
fn converse(
    guest: &mut Guest,
    inside: TrialSpec,
    heard: &mut Heard,
    stop: &StopFlag,
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
    let line_writer = lines::LineWriter::new(input);
    line_writer.say(text);
    loop {
        match lines.recv_timeout(LOOK_INTERVAL) {
            Ok((_, StreamEvent::Line(line))) => {
                if let Some(event) = heard.hear(&line) {
                    on_event(&event);
                }
                if heard.record.is_some() {
                    return None;
                }
            }
            Ok((_, StreamEvent::End(Some(why)))) => {
                heard.reason = format!(": {why}");
                guest.kill();
                return None;
            }
            Ok((_, StreamEvent::End(None))) | Err(RecvTimeoutError::Disconnected) => return None,
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
fn begin(early: &mut Option<Early>, images: &GuestImages, boot: &Boot) -> Result<Guest, String> {
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

/// The disk that a device is in a guest.
fn disk_of(spec: &TrialSpec, device: &Device) -> Result<GuestDisk, String> {
    let path = device.prepared.get("path").and_then(|path| path.as_str());
    let path = path
        .ok_or_else(|| format!("a guest's disk cannot be on a device of kind {}", device.kind))?;
    Ok(GuestDisk {
        path: path.into(),
        part: None,
        // Memory has no way past the page cache: it lies there.
        direct: device.kind != MEMORY,
        discard: spec.discard,
        shared: spec.contender.environment.nodes() > 1,
    })
}

/// Where a contender's only device is divided: each part is a disk of the guest. None where kurabe's own layers lie
/// between or a trace is wanted, which see the whole, or where there are more parts than a guest has disks.
fn parts_of(spec: &TrialSpec, device: &Device) -> Option<Vec<Range<u64>>> {
    let prepared = &device.prepared;
    let size = prepared.get("size_bytes").or_else(|| prepared.get("identity")?.get("size_bytes"));
    let is_bare = layers_of(spec).iter().all(|layer| lower::is_one(layer));
    let sizes = lower::parts(&spec.contender, size?.as_u64()?)?;
    let is_one = device.others.is_empty() && spec.contender.environment.nodes() == 1;
    let has_room = sizes.len() <= DEVICES_MAX && spec.trace.is_none();
    let mut end = 0;
    let part = |bytes: u64| {
        end += bytes;
        end - bytes..end
    };
    (is_bare && is_one && has_room).then(|| sizes.into_iter().map(part).collect())
}

/// The layers under a contender, which stand in its guest.
fn layers_of(spec: &TrialSpec) -> &[String] {
    spec.device.as_ref().map_or(&[], |device| &device.layers)
}

/// The load of this machine over the last minute.
pub(super) fn host_load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use lab::contender::Contender;
    use lab::spec::WorkloadSpec;
    use serde_json::json;

    use super::*;
    use crate::power_failures::crash::{spec, workload};

    #[test]
    fn a_guest_has_a_disk_for_each_device_or_each_part_of_the_only_one() {
        let device = |path: &str| Device {
            kind: "loop".into(),
            prepared: json!({ "path": path, "size_bytes": 100_u64 << 20 }),
            ..Device::default()
        };
        let booted = |contender: &str, device: &Device| {
            let known = trial::filesystem::known();
            let contender = Contender::parse(&format!("{contender} on debian"), &known).unwrap();
            let load = WorkloadSpec::of_command(lab::spec::CommandLine::Words(Vec::new()));
            let mut spec = spec(contender.clone(), None, workload(load, None, None), 0);
            let mut device = device.clone();
            device.layers.splice(0..0, contender.below_texts());
            spec.device = Some(device.clone());
            let boot = Boot::of(&spec, &device).unwrap();
            let told = boot.devices(&spec);
            let told = told.all().map(|one| one.prepared["path"].as_str().unwrap().to_string());
            let path = |disk: &GuestDisk| disk.path.display().to_string();
            let disks = boot.disks.iter().map(|disk| (path(disk), disk.part.clone()));
            (disks.collect::<Vec<_>>(), told.collect::<Vec<_>>())
        };
        let one = device("/a");
        let whole = |path: &str| (path.to_string(), None);
        let part = |from: u64, to: u64| ("/a".to_string(), Some(from << 20..to << 20));
        assert_eq!(booted("ext4", &one), (vec![whole("/a")], vec!["/dev/vda".to_string()]));
        let (disks, told) = booted("ext4 over luks over raid1:2", &one);
        assert_eq!(disks, [part(0, 50), part(50, 100)]);
        assert_eq!(told, ["/dev/vda", "/dev/vdb"]);
        // What lies on other layers of kurabe's own, or in too many parts, is divided in the guest.
        for text in ["ext4 over raid1:2 over delay:1ms", "ext4 over raid0:40"] {
            assert_eq!(booted(text, &one).0, [whole("/a")], "{text}");
        }
        let two = Device { others: vec![device("/b")], ..one };
        let (disks, told) = booted("ext4 over bcache", &two);
        assert_eq!(disks, [whole("/a"), whole("/b")]);
        assert_eq!(told, ["/dev/vda", "/dev/vdb"]);
    }
}
