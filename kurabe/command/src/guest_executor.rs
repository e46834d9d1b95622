//! Runs a trial in a guest that is booted for it: the same spec goes in, the same events and record
//! come out, by pipes.
//!
//! The first guest boots while its disk is being filled; it hears of its trial when that is done.
//!
//! Invariants: one guest at a time; the runner has claimed what the guest's disk stands on; whatever
//! becomes of the guest, a record is yielded, and nothing of the guest is left.

use std::io::Write;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use guest::{Disk, End, Guest};
use lab::event::Event;
use lab::record::{GuestFacts, Outcome, Record};
use lab::reported::Reported;
use lab::spec::{Device, TrialSpec};
use trial::device::{Left, Prepared, in_guest};

use crate::executor::{Heard, LOOK_INTERVAL};
use crate::guests::{Guests, module_of};
use crate::lines::{self, Said};
use crate::runner::{Executor, Schedule};

/// How long past its own bound a trial may take to give everything back, in a guest that lives.
const GRACE: Duration = Duration::from_secs(120);

/// What the layers of a device, and file systems in user space, are served by.
const USER_SPACE_MODULES: [&str; 2] = ["fuse", "loop"];

/// Runs trials in guests.
pub struct GuestExecutor<'a> {
    /// Those in which the contenders live.
    pub guests: &'a Guests,
    /// The device below their disks.
    pub device: &'a dyn Prepared,
    /// Whether the user wants to stop.
    pub stopped: &'a dyn Fn() -> bool,
    /// A guest that was started for the trial that comes first.
    pub early: Option<Early>,
}

/// A guest that was started before its disk was filled.
pub struct Early {
    boot: Boot,
    guest: Guest,
}

/// What a guest is booted with.
#[derive(PartialEq, Eq)]
struct Boot {
    place: String,
    disk: Disk,
    modules: Vec<&'static str>,
}

impl Boot {
    /// What a trial needs.
    fn of(spec: &TrialSpec, device: &Device) -> Result<Boot, String> {
        let path = device.prepared.get("path").and_then(|path| path.as_str());
        let Some(path) = path else {
            return Err(format!("a guest's disk cannot stand on a device of kind {}", device.kind));
        };
        // Memory has no way past the page cache: it lies there.
        let disk = Disk { path: path.into(), direct: device.kind != "mem", discard: spec.discard };
        let module = module_of(&spec.contender);
        let mut modules: Vec<&str> = module.into_iter().collect();
        if module.is_none() || !layers_of(spec).is_empty() {
            modules.extend(USER_SPACE_MODULES);
        }
        Ok(Boot { place: place_of(spec).into(), disk, modules })
    }

    fn begin(&self, guests: &Guests) -> Result<Guest, String> {
        let trusted = trust::owner::words();
        let mut words = vec!["trial", "--parent", "1"];
        words.extend(trusted.iter().map(String::as_str));
        guests
            .image(&self.place)
            .boot(&guests.machine, Some(&self.disk), &self.modules, &words)
            .map_err(|error| error.to_string())
    }
}

impl Early {
    /// Starts the guest of a trial. Where that fails, the trial itself will say why.
    pub fn begin(guests: &Guests, spec: &TrialSpec, device: &Device) -> Option<Early> {
        let boot = Boot::of(spec, device).ok()?;
        let guest = boot.begin(guests).ok()?;
        Some(Early { boot, guest })
    }
}

impl Executor for GuestExecutor<'_> {
    /// One after the other: no plan of ours has guests take turns.
    fn carry_out(
        &mut self,
        specs: &[TrialSpec],
        _: Option<&mut Schedule<'_>>,
        on_event: &mut dyn FnMut(&Event),
    ) -> Vec<Record> {
        let alone = specs.iter().map(|spec| TrialSpec { side_by_side: None, ..spec.clone() });
        alone.map(|spec| self.run(&spec, on_event)).collect()
    }
}

impl GuestExecutor<'_> {
    fn run(&mut self, spec: &TrialSpec, on_event: &mut dyn FnMut(&Event)) -> Record {
        let started = Instant::now();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host_load = host_load();
        let mut heard = Heard::new();
        let mut timed_out = None;
        let place = place_of(spec);
        let image = self.guests.image(place);
        // Held until the guest is gone: it takes nothing exclusively, and so nobody else can make
        // anything on its disk meanwhile.
        let claimed = self.device.claim_again().map_err(|error| error.to_string());
        let booted = match &claimed {
            Ok(_) => self.boot(spec),
            Err(refused) => Err(refused.clone()),
        };
        let failure;
        let mut facts = None;
        match booted {
            Err(problem) => failure = problem,
            Ok(mut guest) => {
                on_event(&Event::Status { text: format!("booting {place}") });
                if guest.wait_ready(self.stopped) {
                    timed_out = self.converse(&mut guest, spec, &mut heard, on_event);
                }
                let is_done = heard.record.as_ref().is_some_and(Reported::is_completed);
                let ended = guest.end(!is_done);
                failure = format!("the guest ended: {}{}", ended.end, heard.reason);
                facts = Some(GuestFacts {
                    kernel: image.lock().kernel.release.to_string(),
                    image: image.lock().id.clone(),
                    acceleration: self.guests.machine.acceleration.to_string(),
                    boot_ns: ended.boot.map(|boot| boot.as_nanos() as u64),
                    host_load,
                    end: ended.end.to_string(),
                    console: if ended.end == End::Completed {
                        String::new()
                    } else {
                        ended.console
                    },
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
            record.outcome = match ((self.stopped)(), timed_out) {
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
        if let (Ok(_claimed), true) = (claimed, record.outcome != Outcome::Completed) {
            self.device.note_left(Left::Everything);
        }
        record
    }

    fn boot(&mut self, spec: &TrialSpec) -> Result<Guest, String> {
        let boot = Boot::of(spec, self.device.device())?;
        match self.early.take() {
            Some(early) if early.boot == boot => Ok(early.guest),
            // Killed before another one is started.
            early => {
                drop(early);
                boot.begin(self.guests)
            }
        }
    }

    /// Hears the trial until its record is there or the guest is gone. Gives the bound in ns, where that
    /// came first.
    fn converse(
        &self,
        guest: &mut Guest,
        spec: &TrialSpec,
        heard: &mut Heard,
        on_event: &mut dyn FnMut(&Event),
    ) -> Option<u64> {
        let spec = TrialSpec {
            device: Some(in_guest(guest::inside::DISK.as_ref(), layers_of(spec))),
            scratch: guest::inside::SCRATCH.into(),
            ..spec.clone()
        };
        let until = spec.timeout_ns.map(|ns| Instant::now() + Duration::from_nanos(ns) + GRACE);
        let (mut input, output) = guest.take_pipes();
        let (sender, lines) = lines::channel();
        lines::read(output, lines::FOREIGN, 0, &sender);
        let text = serde_json::to_string(&spec).expect("a spec has a JSON form");
        // A guest that takes nothing any more says so by its end.
        let _ = writeln!(input, "{text}").and_then(|()| input.flush());
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
            let timed_out =
                spec.timeout_ns.filter(|_| until.is_some_and(|until| Instant::now() >= until));
            if guest.is_silent() || timed_out.is_some() {
                guest.kill_silent();
                return timed_out;
            }
            if (self.stopped)() {
                guest.kill();
                return None;
            }
        }
    }
}

fn place_of(spec: &TrialSpec) -> &str {
    spec.contender.place.guest().expect("it lives in a guest")
}

/// The layers under a contender, which stand in its guest.
fn layers_of(spec: &TrialSpec) -> &[String] {
    spec.device.as_ref().map_or(&[], |device| &device.layers)
}

/// The load of this machine over the last minute.
fn host_load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
