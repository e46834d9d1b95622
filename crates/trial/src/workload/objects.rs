//! A program of the object language on a store. The time of its commands is compared; latencies
//! are kept by kind of command.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use lab::load::{
    Latency, LoadReport, LoadTask, Metric, ObjectsLoad, Series, StorePlace, Target, Unit,
};
use lab::record::Phase::{Layout, Mount, Unmount, Verify};
use loads::latency::Series as RecordedSeries;
use loads::objects::stream::Stream;
use loads::objects::{
    Fit, Options, Outcome, Phase, Place, Plan, Program, Report, StoreOptions, run as run_program,
    store,
};

use super::aside::AsideBegun;
use super::room::{self, Room};
use super::{latencies, whole_sync};
use crate::stop::Stop;
use crate::sys::extents::{Extent, extents};

mod volume;

/// Reads the program's file into the load, unless the study has its text, and parses it.
pub(super) fn read(load: &mut ObjectsLoad) -> Result<(), String> {
    let origin = load.path.display().to_string();
    let text = match load.program.is_empty() {
        false => std::mem::take(&mut load.program).into_bytes(),
        true => trust::file::read(&load.path, trust::file::TEXT_BYTES_MAX)
            .map_err(|refused| format!("program {refused}"))?,
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

pub(super) fn run(load: &ObjectsLoad, task: &LoadTask, stop: &Stop) -> Result<LoadReport, String> {
    // What comes before the first command is no work of the load: mounting, which for others was a
    // phase of the trial, and making the store's file and the store.
    let mut asides = Vec::new();
    let volume = match &task.target {
        Target::Minfs(device) => {
            let mounting = AsideBegun::now(task);
            let volume = volume::mount(device)?;
            asides.push(mounting.end(Mount));
            Some(volume)
        }
        _ => None,
    };
    let mut making = Some(AsideBegun::now(task));
    let place = match (&task.target, &volume) {
        (_, Some(volume)) => Place::Open(volume::make_file(volume)?),
        (Target::Directory(directory), None) => Place::Directory(empty_place(directory)?),
        (Target::Device(device) | Target::Minfs(device), None) => Place::Device(device.clone()),
    };
    let options = Options {
        store: StoreOptions { whole_sync: whole_sync(task), ..store_options(load) },
        verify: load.verify,
        salt: std::process::id().into(),
        ..Options::default()
    };
    let mut sweep = None;
    let report = run_program(&program(load)?, &options, &place, &load.store, &mut |progress| {
        match progress.phase {
            Phase::Running => asides.extend(making.take().map(|making| making.end(Layout))),
            // The comparison at the end is the laboratory's work and not the store's.
            Phase::Sweeping if load.verify && sweep.is_none() => {
                sweep = Some(AsideBegun::now(task));
            }
            _ => {}
        }
        if stop.raised() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .map_err(|error| error.to_string())?;
    asides.extend(sweep.map(|sweep| sweep.end(Verify)));
    match &report.outcome {
        Outcome::Completed | Outcome::TimeLimit => {
            let mut translated = translate(report);
            if let Place::Directory(directory) = &place {
                translated.store_place = store_place(directory);
                translated.findings.extend(translated.store_place.map(|place| place.to_string()));
            }
            if let Some(volume) = volume {
                let unmounting = AsideBegun::now(task);
                drop(place);
                volume::unmount(volume)?;
                asides.push(unmounting.end(Unmount));
            }
            Ok(LoadReport { asides, ..translated })
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
        written_bytes: report.store_written_bytes,
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
