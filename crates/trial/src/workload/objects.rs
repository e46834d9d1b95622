//! A program of the object language on a store. The time of its commands is compared; latencies
//! are kept by kind of command.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{BlockDevice, FileDevice, FileDeviceOptions};
use lab::load::{
    Latency, LoadReport, LoadTask, Metric, ObjectsLoad, Series, StorePlace, Target, Unit,
};
use lab::record::Phase::Verify;
use loads::latency::Series as RecordedSeries;
use loads::objects::stream::Stream;
use loads::objects::{
    Fit, Options, Outcome, Phase, Place, Plan, Program, Report, StoreOptions, run as run_program,
    store,
};

use minfs::{MountOptions, Volume};

use super::aside::AsideBegun;
use super::latencies;
use super::room::{self, Room};
use crate::stop::Stop;
use crate::sys::extents::{Extent, extents};

/// Reads the program's file into the load, unless the study has its text, and parses it.
pub(super) fn read(load: &mut ObjectsLoad) -> Result<(), String> {
    let origin = load.path.display().to_string();
    let text = match load.program.is_empty() {
        false => std::mem::take(&mut load.program).into_bytes(),
        true => std::fs::read(&load.path).map_err(|error| format!("program {origin}: {error}"))?,
    };
    Program::parse(&origin, &text).map_err(|error| error.to_string())?;
    load.program = String::from_utf8_lossy(&text).into_owned();
    Ok(())
}

fn program(load: &ObjectsLoad) -> Result<Program, String> {
    let parsed = Program::parse(&load.path.display().to_string(), load.program.as_bytes())
        .map_err(|error| error.to_string())?;
    Ok(if load.scale == 1.0 { parsed.program } else { parsed.program.scaled(load.scale) })
}

/// What the program will do, in words, and whether it fits a device of this size.
pub(super) fn plan_text(load: &ObjectsLoad, room: Option<&Room>) -> Result<String, String> {
    let plan = Plan::of(&program(load)?);
    let fit = match room {
        None => "how much room there is is seen when it begins\n".into(),
        Some(room) => match fit(load, &plan, room.bytes)? {
            Fit::TooLarge { needed_bytes, .. } | Fit::Fits { needed_bytes, .. } => {
                room::verdict(needed_bytes, Some(room))
            }
            Fit::Tight { needed_bytes, .. } => format!(
                "fits tightly: {} would be comfortable, and {} has {}\n",
                room::bytes_text(needed_bytes),
                room.holder,
                room::bytes_text(room.bytes)
            ),
            Fit::Unknown { .. } => "whether it fits cannot be told in advance\n".into(),
        },
    };
    Ok(format!("{plan}\n{fit}"))
}

fn store_options(load: &ObjectsLoad) -> StoreOptions {
    StoreOptions {
        block_size_bytes: load.block_size_bytes,
        sync_every_put: load.sync_puts,
        ..StoreOptions::default()
    }
}

fn fit(load: &ObjectsLoad, plan: &Plan, device_bytes: u64) -> Result<Fit, String> {
    let kind = store::kind(&load.store).map_err(|error| error.to_string())?;
    let space = plan
        .demand(program(load)?.settings.threads.unwrap_or(1))
        .map(|demand| (kind.space)(&store_options(load), &demand));
    Ok(plan.fit(space, device_bytes))
}

/// Refuses an unknown store and a program that is too large for the device.
pub(super) fn check(load: &ObjectsLoad, room: Option<&Room>) -> Result<(), String> {
    let kind = store::kind(&load.store).map_err(|error| error.to_string())?;
    if load.verify && !kind.keeps_contents {
        return Err(format!(
            "the store '{}' keeps nothing, so nothing can be verified",
            load.store
        ));
    }
    if !kind.keeps_contents {
        return Ok(());
    }
    let Some(room) = room else { return Ok(()) };
    let plan = Plan::of(&program(load)?);
    match fit(load, &plan, room.bytes)? {
        Fit::TooLarge { needed_bytes, .. } => room::check(
            "the program's objects take at once",
            needed_bytes,
            Some(room),
            "scale it down by --scale, or give a larger device",
        ),
        _ => Ok(()),
    }
}

/// An empty directory for the store: the mounted one when it is empty, since a flat file system
/// has no other; a new one below where mkfs left something (`lost+found`).
fn empty_place(directory: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    if std::fs::read_dir(directory).map_err(failed)?.next().is_none() {
        return Ok(directory.to_path_buf());
    }
    let below = directory.join("objects");
    std::fs::create_dir(&below).map_err(|error| format!("{}: {error}", below.display()))?;
    Ok(below)
}

/// The file and the volume that it lies on, which must outlive it.
struct MinfsFile {
    file: minfs::File,
    _volume: Volume,
}

impl BlockDevice for MinfsFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn block_size(&self) -> u32 {
        self.file.block_size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        self.file.write_at(buffer, offset)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.file.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> std::io::Result<()> {
        self.file.discard(offset, length)
    }

    fn zero_range(&self, offset: u64, length: u64) -> std::io::Result<()> {
        BlockDevice::zero_range(&self.file, offset, length)
    }

    fn is_read_only(&self) -> bool {
        self.file.is_read_only()
    }
}

/// Share of a fresh volume's free space that its one file takes; the rest is for its records.
const FILE_SHARE_PERCENT: u64 = 95;

/// One file over a fresh volume of minfs, its space reserved, as a block device.
fn minfs_file(device: &Path) -> Result<Arc<dyn BlockDevice>, String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("{what} on {}: {error}", device.display())
    };
    let opened = FileDevice::open(device, &FileDeviceOptions::default())
        .map_err(|error| failed("opening the device", &error))?;
    let volume = Volume::mount(Arc::new(opened), &MountOptions::default())
        .map_err(|error| failed("mounting minfs", &error))?;
    let size = volume.space().free_bytes / 100 * FILE_SHARE_PERCENT;
    let size = size / FILE_UNIT_BYTES * FILE_UNIT_BYTES;
    let file =
        volume.create(b"store", 0o600).map_err(|error| failed("creating the file", &error))?;
    file.preallocate(0, size, false, false)
        .map_err(|error| failed("reserving the file's space", &error))?;
    Ok(Arc::new(MinfsFile { file, _volume: volume }))
}

/// The file's size is a multiple of this.
const FILE_UNIT_BYTES: u64 = 1 << 20;

pub(super) fn run(load: &ObjectsLoad, task: &LoadTask, stop: &Stop) -> Result<LoadReport, String> {
    let place = match &task.target {
        Target::Directory(directory) => Place::Directory(empty_place(directory)?),
        Target::Device(device) => Place::Device(device.clone()),
        Target::Minfs(device) => Place::Open(minfs_file(device)?),
    };
    let options = Options {
        store: store_options(load),
        verify: load.verify,
        salt: std::process::id().into(),
        ..Options::default()
    };
    let mut sweep = None;
    let report = run_program(&program(load)?, &options, &place, &load.store, &mut |progress| {
        // The comparison at the end is the laboratory's work and not the store's.
        if load.verify && progress.phase == Phase::Sweeping && sweep.is_none() {
            sweep = Some(AsideBegun::now(task));
        }
        if stop.raised() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .map_err(|error| error.to_string())?;
    let aside = sweep.map(|sweep| sweep.end(Verify));
    match &report.outcome {
        Outcome::Completed | Outcome::TimeLimit => {
            let mut translated = LoadReport { aside, ..translate(report) };
            if let Place::Directory(directory) = &place {
                translated.store_place = store_place(directory);
                translated.findings.extend(translated.store_place.map(|place| place.to_string()));
            }
            Ok(translated)
        }
        Outcome::Cancelled => Err("stopped".into()),
        Outcome::Failed(failure) => {
            let difference = failure
                .difference
                .as_ref()
                .map(|difference| format!("\n{difference}"))
                .unwrap_or_default();
            Err(format!("{}: {}{difference}", failure.during, failure.message))
        }
    }
}

/// Where the store's one file lies on the device. Nothing for a store of many files, or where the
/// file system does not tell.
fn store_place(directory: &Path) -> Option<StorePlace> {
    let mut files = std::fs::read_dir(directory).ok()?.flatten();
    let only = files.next().filter(|_| files.next().is_none())?;
    let pieces = joined(&extents(&std::fs::File::open(only.path()).ok()?).ok()?);
    let from = pieces.iter().map(|piece| piece.physical).min()?;
    let to = pieces.iter().map(|piece| piece.physical + piece.length).max()?;
    let is_back = |pair: &&[Extent]| pair[1].physical < pair[0].physical;
    Some(StorePlace {
        pieces: pieces.len() as u64,
        pieces_back: pieces.windows(2).filter(is_back).count() as u64,
        bytes: pieces.iter().map(|piece| piece.length).sum(),
        span_bytes: to - from,
    })
}

/// The pieces with those put together that follow each other in the file and on the device; holes
/// between them do not part them.
fn joined(extents: &[Extent]) -> Vec<Extent> {
    let mut pieces: Vec<Extent> = Vec::new();
    for extent in extents {
        match pieces.last_mut() {
            Some(last) if last.physical + last.length == extent.physical => {
                last.length += extent.length;
            }
            _ => pieces.push(*extent),
        }
    }
    pieces
}

/// The figure that is compared.
const METRIC: &str = "commands and sync";

pub(super) fn metric_names() -> Vec<String> {
    vec![METRIC.into()]
}

/// The kinds of operation of a program, as its report names them.
pub(super) fn operation_names(load: &ObjectsLoad) -> Vec<String> {
    let Ok(program) = program(load) else { return Vec::new() };
    let stream = Stream::new(&program);
    let sized = stream
        .classes()
        .iter()
        .flat_map(|size| ["Put", "Embed", "Get"].map(|verb| format!("{verb}({})", size.label())));
    sized.chain(["Delete", "DeleteRange", "Sync"].map(str::to_string)).collect()
}

fn translate(mut report: Report) -> LoadReport {
    let mut findings = Vec::new();
    if let Some(checked) = &report.verification {
        findings.push(format!(
            "verified: {} objects on Get, {} on Delete, {} in the sweep at the end; no mismatch",
            checked.gets, checked.deletes, checked.swept_objects
        ));
    }
    if report.skipped > 0 {
        findings
            .push(format!("{} statements were skipped, since no object was live", report.skipped));
    }
    let all: Vec<Latency> = latencies(&report.latencies);
    let histogram_log = Some(std::mem::take(&mut report.histogram_log));
    let series = report.series.take().map(series).unwrap_or_default();
    LoadReport {
        metrics: vec![Metric {
            // The publication's figure, and the sync that makes it honest.
            name: METRIC.into(),
            value: (report.elapsed_ns + report.sync_ns) as f64,
            unit: Unit::Nanoseconds,
        }],
        latencies: all,
        series,
        findings,
        details: serde_json::to_value(&report).expect("a report has a JSON form"),
        histogram_log,
        ..LoadReport::default()
    }
}

fn series(recorded: RecordedSeries) -> Vec<Series> {
    let points = &recorded.points;
    let of = |name: &str, unit, value: &dyn Fn(&loads::latency::Point) -> f64| Series {
        name: name.into(),
        unit,
        interval_ns: recorded.interval_ns,
        values: points.iter().map(value).collect(),
    };
    vec![
        of("throughput", Unit::BytesPerSecond, &|point| {
            point.overall.bytes as f64 * 1e9 / point.duration_ns.max(1) as f64
        }),
        of("p99", Unit::Nanoseconds, &|point| point.overall.p99_ns as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pieces_are_joined_where_file_and_device_go_on_together() {
        let extent = |logical, physical, length| Extent { logical, physical, length };
        let pieces = joined(&[extent(0, 100, 10), extent(10, 110, 5), extent(15, 50, 5)]);
        assert_eq!(pieces, [extent(0, 100, 15), extent(15, 50, 5)]);
        assert_eq!(joined(&[]), []);
    }

    #[test]
    fn the_place_of_the_only_file_is_told() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        assert_eq!(store_place(home.path()), None);
        let mut file = std::fs::File::create(home.path().join("store")).unwrap();
        file.write_all(&vec![7; 3 << 20]).unwrap();
        file.sync_all().unwrap();
        if extents(&file).is_err() {
            eprintln!("skipped: the file system of /var/tmp does not tell where files lie");
            return;
        }
        let place = store_place(home.path()).unwrap();
        assert_eq!(place.bytes, 3 << 20);
        assert!(place.pieces > place.pieces_back && place.span_bytes >= place.bytes, "{place:?}");
        assert!(place.to_string().contains(": 3 MiB over"), "{place}");
        std::fs::write(home.path().join("other"), "x").unwrap();
        assert_eq!(store_place(home.path()), None);
    }
}
