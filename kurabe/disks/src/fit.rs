//! Fits a profile to a hard disk: measures the disk, and finds the parameters with which the model answers alike.
//!
//! What is measured is a [`FitTarget`]: a real disk ([`OnDevice`]), or a model in virtual time ([`VirtualHost`]), of which the
//! parameters are known. Everything is done twice where no equation leads back to a parameter: with the disk, and with the
//! model for each value that the parameter may have. What nothing here shows (how the cache is written out when nobody asks
//! for it, shingles) is assumed, and the profile's sources say so.

mod device;
mod draft;

use std::io;

use crate::hard::geometry::Geometry;
use crate::random::Random;
use crate::virtual_host::{RequestTimes, VirtualHost};
use crate::{DiskProfile, ModelRequest, ProfileError, transfer_ns};

use draft::Draft;

pub use device::OnDevice;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Bytes of a small request.
const SMALL: u64 = 4 * KIB;
/// Of seeks that are measured: distances as shares of all tracks.
const DISTANCES: [f64; 12] =
    [0.0005, 0.002, 0.006, 0.015, 0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.65, 0.9];
/// Pairs of reads for each distance.
const PAIRS: usize = 100;
/// Writes, each with a flush.
const FLUSHED: usize = 200;
/// Scattered writes before a flush, and how often that is done.
const SCATTERED: [(usize, usize); 2] = [(8, 24), (64, 8)];
/// Random requests of a kind.
const RANDOM: usize = 400;
/// What the host needs between a reply and the next request, where the model takes the disk's place.
const HOST_NS: u64 = 10_000;
/// A quicker small random read is not a hard disk's.
const READ_NS_MIN: f64 = 1.5e6;
/// Of disks with 16,000 to 3,500 revolutions per minute.
const REVOLUTION_NS: std::ops::Range<f64> = 3.75e6..17.2e6;
/// Revolutions per minute that disks are made with.
const USUAL_RPM: [f64; 7] = [4200.0, 5400.0, 5700.0, 5900.0, 7200.0, 10_000.0, 15_000.0];

pub trait FitTarget {
    fn size_bytes(&self) -> u64;

    /// Carries requests out, `depth` at a time, and says when each was asked and answered, in ns.
    fn run(&mut self, depth: usize, requests: Vec<ModelRequest>) -> io::Result<Vec<RequestTimes>>;

    /// Asks for nothing.
    fn rest(&mut self, ns: u64);
}

/// A slice of a model's disk and its size.
impl FitTarget for (VirtualHost, u64) {
    fn size_bytes(&self) -> u64 {
        self.1
    }

    fn run(&mut self, depth: usize, requests: Vec<ModelRequest>) -> io::Result<Vec<RequestTimes>> {
        Ok(self.0.run(depth, HOST_NS, requests))
    }

    fn rest(&mut self, ns: u64) {
        self.0.now_ns += ns;
    }
}

/// Why there is no profile.
#[derive(Debug)]
pub enum FitError {
    Device(io::Error),
    /// What was measured is not a hard disk's.
    NoHardDisk(String),
}

impl From<io::Error> for FitError {
    fn from(error: io::Error) -> FitError {
        FitError::Device(error)
    }
}

impl From<ProfileError> for FitError {
    fn from(error: ProfileError) -> FitError {
        FitError::NoHardDisk(format!(
            "no model of a hard disk answers as this device does: {error}"
        ))
    }
}

/// A profile, and how good it is.
#[derive(Debug)]
pub struct Fitted {
    pub text: String,
    pub profile: DiskProfile,
    /// What was measured of the disk, and what the profile gives for it.
    pub figures: Vec<FitFigure>,
}

impl FitFigure {
    /// How far the model is off, as a share of what was measured.
    pub fn off(&self) -> f64 {
        (self.modelled / self.measured - 1.0).abs()
    }
}

/// Something that was measured.
#[derive(Debug, Clone)]
pub struct FitFigure {
    /// What it is, with its unit.
    pub name: &'static str,
    pub measured: f64,
    /// Of the profile, in virtual time.
    pub modelled: f64,
}

/// Measures a disk, which loses its contents, and fits a profile of this name. `report` is told what comes next.
///
/// Errors: the device fails, or is no hard disk.
pub fn fit(
    target: &mut dyn FitTarget,
    name: &str,
    sector_bytes: u32,
    report: &mut dyn FnMut(&str),
) -> Result<Fitted, FitError> {
    let mut draft = Draft::new(name, target.size_bytes(), sector_bytes);
    let mut bench = Bench::new(target);
    let mut next = |what: &str| report(what);
    next("random reads");
    let before = bench.random(1, SMALL)?;
    if before < READ_NS_MIN {
        return Err(FitError::NoHardDisk(format!(
            "random reads of 4 KiB take {:.3} ms, too little for a hard disk; for flash, change what differs of a profile \
             that is listed, such as 'ssd:nvme,read_ms=0.05'",
            before / 1e6
        )));
    }
    next("rates");
    draft.rates = bench.rates()?;
    next("seeks");
    let geometry = draft.geometry();
    let seeks = bench.seeks(&geometry)?;
    if !REVOLUTION_NS.contains(&seeks.revolution_ns) {
        return Err(FitError::NoHardDisk(format!(
            "reads over one distance take times that are up to {:.1} ms apart, which is no disk's revolution; the machine must \
             be idle",
            seeks.revolution_ns / 1e6
        )));
    }
    draft.rpm(seeks.revolution_ns);
    let geometry = draft.geometry();
    let turn_ns = geometry.revolution_ns;
    let command_read_ns = bench.command_read_ns()?;
    let (read_ahead, command_read_ns) = match command_read_ns {
        Some(ns) => (bench.read_ahead(&geometry)?, ns),
        None => (0, 0.1e6),
    };
    draft.set("command_read_ms", command_read_ns / 1e6, "measured: reads of what was read ahead");
    draft.set(
        "read_ahead_mib",
        read_ahead as f64 / MIB as f64,
        "measured: the farthest read without the head",
    );
    let still_ns = bench.on_one_track(&geometry)?;
    let access_ns = (still_ns - command_read_ns).max(0.0);
    draft.set("access_ms", access_ns / 1e6, "measured: reads that wait for their angle only");
    draft.arm(&seeks.least_ns(turn_ns), still_ns);
    next("reads of 1 MiB, and many at a time");
    let small_ns = bench.random(1, SMALL)?;
    let large_ns = bench.random(1, MIB)?;
    let deep_ns = bench.random(32, SMALL)?;
    draft.choose(
        "queue_depth",
        &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        "fitted to random reads, 32 at a time",
        |model| off(small_ns / deep_ns, model.random(1, SMALL)? / model.random(32, SMALL)?),
    )?;
    draft.set(
        "miss_chance",
        bench.missed_reads(&geometry)?,
        "measured: reads of 1 MiB that took a revolution longer than others",
    );
    next("writes");
    let cache = bench.cache()?;
    draft.cache(&cache);
    let written = bench.flushed(&geometry)?;
    draft.set("flush_ms", written.flush_ns / 1e6, "measured: flushes with nothing to write");
    let least_ns = least(&written.times, turn_ns);
    draft.set(
        "write_miss_chance",
        percent(missed(&written.times, turn_ns)),
        "measured: writes that took a revolution longer than others",
    );
    // A write has this much more than a seek, before it or after it; which of them shows where many are flushed at once.
    let more_ns = least_ns - access_ns - draft.seek_ns(Bench::WRITE_DISTANCE) - written.flush_ns;
    let more_ns = more_ns.max(0.0);
    next("flushes");
    let mut flushes = [0.0; 2];
    for ((count, times), ns) in SCATTERED.into_iter().zip(&mut flushes) {
        *ns = bench.flush_after(count, times)?;
    }
    let [few_ns, many_ns] = flushes;
    draft.writes(more_ns, |model| {
        let [few, many] = SCATTERED.map(|(count, _)| model.flush_after(count, 24));
        Ok(off(few_ns, few?)? + off(many_ns, many?)?)
    })?;
    next("writes in order");
    let write_ns = bench.in_order(true)?;
    let read_ns = bench.in_order(false)?;
    let slip = (write_ns / read_ns - 1.0).clamp(0.0, 4.0);
    draft.set(
        "write_slip",
        (slip * 1000.0).round() / 1000.0,
        "measured: writes in order against reads in order",
    );
    let (text, profile) = draft.profile()?;
    let model = &mut draft.model()?;
    let model = &mut Bench::new(model);
    let rate = |ns: f64| MIB as f64 * 1e3 / ns;
    let ms = |ns: f64| ns / 1e6;
    let figure = |name, measured, modelled| FitFigure { name, measured, modelled };
    let figures = vec![
        figure(
            "reads in order at the outer edge, MB/s",
            rate(read_ns),
            rate(model.in_order(false)?),
        ),
        figure(
            "writes in order at the outer edge, MB/s",
            rate(write_ns),
            rate(model.in_order(true)?),
        ),
        figure("random read of 4 KiB, ms", ms(small_ns), ms(model.random(1, SMALL)?)),
        figure("random read of 1 MiB, ms", ms(large_ns), ms(model.random(1, MIB)?)),
        figure(
            "random read of 4 KiB, 32 at a time, ms each",
            ms(deep_ns),
            ms(model.random(32, SMALL)?),
        ),
        figure(
            "write of 4 KiB and flush, ms",
            ms(average(&written.times)),
            ms(average(&model.flushed(&geometry)?.times)),
        ),
        figure("flush after 8 scattered writes, ms", ms(few_ns), ms(model.flush_after(8, 24)?)),
        figure("flush after 64 scattered writes, ms", ms(many_ns), ms(model.flush_after(64, 24)?)),
    ];
    Ok(Fitted { text, profile, figures })
}

/// How far two figures are apart, whichever is larger.
fn off(one: f64, other: f64) -> io::Result<f64> {
    Ok((one / other).ln().abs())
}

fn average(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// What times begin with that are spread evenly over one revolution: the least of so many is some way in.
fn least(times: &[f64], turn_ns: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let step = turn_ns / (times.len() + 1) as f64;
    (times[0] - step + times[1] - 2.0 * step) / 2.0
}

/// The share of times that lie a revolution beyond those of which the least is known.
fn missed(times: &[f64], turn_ns: f64) -> f64 {
    let limit = least(times, turn_ns) + turn_ns;
    times.iter().filter(|ns| **ns > limit).count() as f64 / times.len() as f64
}

fn percent(share: f64) -> f64 {
    (share * 100.0).round() / 100.0
}

fn took(times: &RequestTimes) -> f64 {
    (times.end - times.start) as f64
}

/// The byte before which so large a share of all tracks lies.
fn byte_at(geometry: &Geometry, share: f64, size: u64) -> u64 {
    let (mut low, mut high) = (0, size / SMALL);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if geometry.position(middle * SMALL) <= share * geometry.tracks() {
            low = middle;
        } else {
            high = middle;
        }
    }
    low * SMALL
}

/// Times of reads after a seek, for each distance.
struct Seeks {
    times: Vec<Vec<f64>>,
    revolution_ns: f64,
}

impl Seeks {
    /// What a read takes at least, for each distance.
    fn least_ns(&self, turn_ns: f64) -> Vec<(f64, f64)> {
        DISTANCES.into_iter().zip(self.times.iter().map(|times| least(times, turn_ns))).collect()
    }
}

/// Single writes, each with its flush.
struct Flushed {
    times: Vec<f64>,
    flush_ns: f64,
}

/// What the write cache does.
struct Cache {
    command_ns: f64,
    interface_mb_s: f64,
    /// 0 where writes wait for the head.
    bytes: u64,
}

/// What is measured, of the disk or of a model.
struct Bench<'a> {
    target: &'a mut dyn FitTarget,
    size: u64,
    random: Random,
}

impl<'a> Bench<'a> {
    /// Of writes with a flush: how far the head moves, as a share of all tracks.
    const WRITE_DISTANCE: f64 = 0.1;

    fn new(target: &'a mut dyn FitTarget) -> Bench<'a> {
        let size = target.size_bytes() / MIB * MIB;
        Bench { target, size, random: Random::new(1) }
    }

    fn place(&mut self, length: u64) -> u64 {
        ((self.size - length) as f64 * self.random.share()) as u64 / SMALL * SMALL
    }

    /// Two places with so large a share of all tracks between them, at any angle to each other.
    fn pair(&mut self, geometry: &Geometry, distance: f64) -> [u64; 2] {
        let from = self.random.share() * (1.0 - distance);
        let [here, there] = [from, from + distance].map(|at| byte_at(geometry, at, self.size));
        let few_tracks = (self.random.share() * (4 * MIB) as f64) as u64 / SMALL * SMALL;
        [here, (there + few_tracks).min(self.size - SMALL)]
    }

    fn one(&mut self, request: ModelRequest) -> io::Result<f64> {
        Ok(took(&self.target.run(1, vec![request])?[0]))
    }

    fn read(&mut self, offset: u64) -> io::Result<f64> {
        self.one(ModelRequest::read(offset, SMALL))
    }

    /// The time of a MiB from there on, in order.
    fn run_of(&mut self, offset: u64, count: u64, is_write: bool) -> io::Result<f64> {
        let request = if is_write { ModelRequest::write } else { ModelRequest::read };
        let requests = (0..count).map(|at| request(offset + at * MIB, MIB)).collect();
        let mut ends: Vec<u64> =
            self.target.run(4, requests)?.into_iter().map(|times| times.end).collect();
        ends.sort_unstable();
        // At first a cache helps.
        let from = ends.len() / 2;
        Ok((ends[ends.len() - 1] - ends[from]) as f64 / (ends.len() - 1 - from) as f64)
    }

    fn in_order(&mut self, is_write: bool) -> io::Result<f64> {
        let count = (self.size / MIB / 2).min(512);
        let ns = self.run_of(0, count, is_write)?;
        if is_write {
            self.one(ModelRequest::flush())?;
        }
        Ok(ns)
    }

    fn rates(&mut self) -> io::Result<Vec<(f64, f64)>> {
        const POINTS: u32 = 8;
        let count = (self.size / MIB / 16).min(128);
        let zones = (0..=POINTS).map(|point| {
            let at = f64::from(point) / f64::from(POINTS);
            let offset = ((self.size - count * MIB) as f64 * at) as u64 / MIB * MIB;
            let rate = MIB as f64 * 1e3 / self.run_of(offset, count, false)?;
            Ok((at, (rate * 10.0).round() / 10.0))
        });
        zones.collect()
    }

    /// The mean time of a random read; of many at a time, each one's share of the time.
    fn random(&mut self, depth: usize, length: u64) -> io::Result<f64> {
        let requests: Vec<_> =
            (0..RANDOM).map(|_| ModelRequest::read(self.place(length), length)).collect();
        let times = self.target.run(depth, requests)?;
        let (Some(start), Some(end)) =
            (times.iter().map(|one| one.start).min(), times.iter().map(|one| one.end).max())
        else {
            unreachable!("there are requests")
        };
        match depth {
            1 => Ok(times.iter().map(took).sum::<f64>() / times.len() as f64),
            _ => Ok((end - start) as f64 / times.len() as f64),
        }
    }

    fn seeks(&mut self, geometry: &Geometry) -> io::Result<Seeks> {
        let (mut times, mut turns) = (Vec::new(), Vec::new());
        for distance in DISTANCES {
            let mut of_distance = Vec::new();
            for _ in 0..PAIRS {
                let [here, there] = self.pair(geometry, distance);
                self.read(here)?;
                of_distance.push(self.read(there)?);
            }
            // The angles are random, so the times are spread evenly over a revolution. The longest
            // may have another cause.
            let mut sorted = of_distance.clone();
            sorted.sort_by(f64::total_cmp);
            let (low, high) = (PAIRS / 20, PAIRS - PAIRS / 20);
            let share = (high - low) as f64 / (PAIRS + 1) as f64;
            turns.push((sorted[high] - sorted[low]) / share);
            times.push(of_distance);
        }
        turns.sort_by(f64::total_cmp);
        let middle = &turns[turns.len() / 4..turns.len() * 3 / 4];
        Ok(Seeks { times, revolution_ns: average(middle) })
    }

    /// Reads of what the disk has read on to; none where it reads no farther.
    fn command_read_ns(&mut self) -> io::Result<Option<f64>> {
        let mut times = Vec::new();
        for _ in 0..20 {
            let place = self.place(MIB);
            self.read(place)?;
            self.target.rest(30_000_000);
            times.push(self.read(place + SMALL)?);
        }
        times.sort_by(f64::total_cmp);
        Ok(Some(times[times.len() / 2]).filter(|ns| *ns < READ_NS_MIN))
    }

    /// How far the disk reads on.
    fn read_ahead(&mut self, geometry: &Geometry) -> io::Result<u64> {
        let mut farthest = 0;
        let mut ahead = 128 * KIB;
        while ahead <= 64 * MIB && ahead < self.size / 4 {
            let mut quick = 0;
            for _ in 0..5 {
                let place = self.place(2 * ahead);
                self.read(place)?;
                // Until it has come there, and a revolution.
                let passing = transfer_ns(ahead, geometry.rate(place + ahead));
                self.target.rest(passing * 5 / 4 + geometry.revolution_ns as u64);
                quick += u32::from(self.read(place + ahead)? < READ_NS_MIN);
            }
            if quick < 3 {
                break;
            }
            farthest = ahead;
            ahead *= 2;
        }
        Ok(farthest)
    }

    /// What a read takes at least after one of the same track.
    fn on_one_track(&mut self, geometry: &Geometry) -> io::Result<f64> {
        let mut times = Vec::new();
        for _ in 0..PAIRS {
            let place = self.place(SMALL).max(16 * MIB);
            let track = geometry.rate(place) * geometry.revolution_ns / 1e3;
            // Before it, where the disk does not read on.
            let back = (track * (0.05 + 0.95 * self.random.share())) as u64 / SMALL * SMALL;
            self.read(place)?;
            times.push(self.read(place.saturating_sub(back))?);
        }
        Ok(least(&times, geometry.revolution_ns))
    }

    /// The chance that a read that goes on to another track misses it.
    fn missed_reads(&mut self, geometry: &Geometry) -> io::Result<f64> {
        let (mut times, mut crossing) = (Vec::new(), 0.0);
        for _ in 0..FLUSHED {
            let [here, there] = self.pair(geometry, Bench::WRITE_DISTANCE);
            let there = there.min(self.size - MIB);
            self.read(here)?;
            let rate = geometry.rate(there);
            let passing = transfer_ns(MIB, rate) as f64;
            times.push(self.one(ModelRequest::read(there, MIB))? - passing);
            crossing += (passing / geometry.revolution_ns).min(1.0) / FLUSHED as f64;
        }
        Ok(percent((missed(&times, geometry.revolution_ns) / crossing).min(1.0)))
    }

    fn cache(&mut self) -> io::Result<Cache> {
        const LARGE: u64 = 256 * KIB;
        let mut middle = |length: u64| {
            let mut times = Vec::new();
            for _ in 0..12 {
                self.one(ModelRequest::flush())?;
                let place = self.place(length);
                times.push(self.one(ModelRequest::write(place, length))?);
            }
            times.sort_by(f64::total_cmp);
            io::Result::Ok(times[times.len() / 2])
        };
        let (small, large) = (middle(SMALL)?, middle(LARGE)?);
        let per_byte = ((large - small) / (LARGE - SMALL) as f64).max(1e-3);
        let interface_mb_s = 1e3 / per_byte;
        let command_ns = (small - SMALL as f64 * per_byte).max(0.0);
        if small > READ_NS_MIN {
            return Ok(Cache { command_ns: 0.2e6, interface_mb_s: 500.0, bytes: 0 });
        }
        self.one(ModelRequest::flush())?;
        let mut bytes = 0;
        while bytes < 2048 * MIB {
            let place = self.place(LARGE);
            if self.one(ModelRequest::write(place, LARGE))? > large + READ_NS_MIN {
                break;
            }
            bytes += LARGE;
        }
        self.one(ModelRequest::flush())?;
        Ok(Cache { command_ns, interface_mb_s, bytes })
    }

    fn flushed(&mut self, geometry: &Geometry) -> io::Result<Flushed> {
        self.one(ModelRequest::flush())?;
        let mut clean = Vec::new();
        for _ in 0..10 {
            clean.push(self.one(ModelRequest::flush())?);
        }
        clean.sort_by(f64::total_cmp);
        let flush_ns = clean[clean.len() / 2];
        let mut times = Vec::new();
        for _ in 0..FLUSHED {
            let [here, there] = self.pair(geometry, Bench::WRITE_DISTANCE);
            self.read(here)?;
            let write = self.one(ModelRequest::write(there, SMALL))?;
            // Without a cache the write is what takes long.
            let waited = if write > READ_NS_MIN { write } else { 0.0 };
            times.push(waited + self.one(ModelRequest::flush())?);
        }
        Ok(Flushed { times, flush_ns })
    }

    /// A flush after so many scattered writes, the mean of several.
    fn flush_after(&mut self, count: usize, times: usize) -> io::Result<f64> {
        let mut all = Vec::new();
        for _ in 0..times {
            let writes =
                (0..count).map(|_| ModelRequest::write(self.place(SMALL), SMALL)).collect();
            self.target.run(1, writes)?;
            all.push(self.one(ModelRequest::flush())?);
        }
        Ok(average(&all))
    }
}
