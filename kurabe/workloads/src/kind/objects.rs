//! A program of the object language on a store. The time of its commands is compared; latencies
//! are kept by kind of command.

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use vocabulary::capacity::{self, Capacity};
use vocabulary::cost::Phase::{Layout, Mount, Unmount, Verify};
use vocabulary::kind::{
    Amount, BareTarget, Describe, Description, Durability, Form, FromKeys, KeyError, KeyRole, Keys,
    Needs, Preflight, Run, WorkloadKey, WorkloadKind, Written, options_without,
};
use vocabulary::path::UserPath;
use vocabulary::quantity::parse_size;
use vocabulary::report::{
    Metric, OVERALL_OPERATION, Series, Unit, WorkloadReport, operations_without_syncs,
};
use vocabulary::words::share_text;
use vocabulary::workload::{Loss, WorkloadTarget, WorkloadTask};

use super::{histogram_log, latencies, whole_sync};
use crate::excluded_phase::ExcludedPhaseBegun;
use crate::sys::extents::{FileExtent, extents};
use measure::latency::{LatencySeries, SeriesPoint};
use objects::durable::{self, ObjectAcknowledger};
use objects::program::Parsed;
use objects::stream::Stream;
use objects::{
    CapacityFit, Program, ProgramOutcome, ProgramPhase, ProgramPlan, Report, RunOptions,
    StoreLocation, StoreOptions, check_name, run as run_program, store, volume,
};

/// The store that loses nothing.
const STORE_DEFAULT: &str = "lump";

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<ObjectsWorkload>(
    "objects",
    &[
        WorkloadKey::load(
            "objects",
            Form::Text("FILE"),
            "Run a program of the object language (docs/reference/object-language.md) on a store.",
        ),
        WorkloadKey {
            name: "program",
            help: "The text of such a program itself, with the same options.",
            form: Form::Text("PROGRAM"),
            role: KeyRole::Program,
        },
        WorkloadKey::option(
            "store",
            Form::Text("NAME"),
            "Store: lump, cannyls, files, rocksdb, redb, fjall, null or sequential [default: lump].",
        ),
        WorkloadKey::option(
            "scale",
            Form::Decimal("FACTOR"),
            "Factor on the counts, such as 0.02.",
        ),
        WorkloadKey::option("verify", Form::Switch, "Check the contents of every object."),
        WorkloadKey::option(
            "sync-puts",
            Form::Switch,
            "Make every put durable before it counts as done.",
        ),
        WorkloadKey::option(
            "block-size",
            Form::List("SIZE"),
            "Block size of the stores cannyls and lump: 4096, or 512, which Btrfs refuses [default: 4096].",
        ),
    ],
    &[BareTarget::Raw, BareTarget::Library],
);

/// A program of the object language.
#[derive(Serialize, Deserialize)]
struct ObjectsWorkload {
    /// Where the program was read from, for messages.
    path: PathBuf,
    /// The program's text.
    program: String,
    /// The store: `cannyls`, `files`, `null`, ...
    store: String,
    /// Factor on the counts.
    scale: f64,
    /// Whether contents are checked on every Get and Delete and by a sweep at the end.
    verify: bool,
    /// Size of a block of the `cannyls` store in bytes, 512 or 4096.
    block_size_bytes: u32,
    /// Whether every put is made durable before it counts as done.
    sync_puts: bool,
}

impl FromKeys for ObjectsWorkload {
    fn parse(written: &Written<'_>) -> Result<ObjectsWorkload, KeyError> {
        let scale = written.decimal("scale").unwrap_or(1.0);
        if !(scale > 0.0 && scale <= 1e6) {
            let problem = format!("{scale} is no factor; it must be above 0, such as 0.02");
            return Err(KeyError::new("scale", problem));
        }
        let block_size_bytes = match written.list("block-size").as_slice() {
            // Btrfs takes direct I/O in units of 4096 bytes only, and all contenders must run alike.
            [] => 4096,
            [text] => match parse_size(text) {
                Ok(bytes @ (512 | 4096)) => bytes as u32,
                _ => {
                    let problem = format!("'{text}' is neither 512 nor 4096");
                    return Err(KeyError::new("block-size", problem));
                }
            },
            _ => return Err(KeyError::new("block-size", "must be one size, 512 or 4096")),
        };
        let program = written.text("program");
        if program.is_some_and(|text| text.trim().is_empty()) {
            return Err(KeyError::new("program", "is empty; say what to do"));
        }
        Ok(ObjectsWorkload {
            // A program without a file is known by its workload's name in messages.
            path: match written.text("objects") {
                Some(file) => UserPath::typed(file).into(),
                None => written.name.unwrap_or("program").into(),
            },
            program: program.unwrap_or_default().into(),
            store: written.text("store").unwrap_or(STORE_DEFAULT).into(),
            scale,
            verify: written.is_on("verify"),
            block_size_bytes,
            sync_puts: written.is_on("sync-puts"),
        })
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        let scale = Written { keys, name: None }.decimal("scale").unwrap_or(1.0);
        keys.insert("scale".into(), (scale * factor).into());
        Ok(())
    }
}

impl Describe for ObjectsWorkload {
    fn description(&self) -> Description {
        let share = || format!("{} of the program's counts", share_text(self.scale));
        Description {
            metrics: vec![METRIC.into()],
            operations: self.operations(),
            checks: vec![check_name(self.verify).into()],
            amounts: vec![Amount::new("the program's counts", self.scale, "")],
            amount: (self.scale != 1.0).then(share),
            settings: options_without(self, &["scale"]),
            ..Description::default()
        }
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let parsed = self.parsed()?;
        let warnings: String = parsed.warnings.iter().map(ToString::to_string).collect();
        let plan = ProgramPlan::of(&self.program()?);
        let fit = match capacity {
            None => "the capacity is seen when it begins\n".into(),
            Some(capacity) => match self.fit(&plan, capacity.bytes)? {
                CapacityFit::TooLarge(need) | CapacityFit::Fits(need) => {
                    capacity::verdict(need.needed_bytes, Some(capacity))
                }
                CapacityFit::Tight(need) => format!(
                    "fits tightly: {} would be comfortable, and {} has {}\n",
                    capacity::bytes_text(need.needed_bytes),
                    capacity.holder,
                    capacity::bytes_text(capacity.bytes)
                ),
                CapacityFit::Unknown { .. } => "whether it fits is not known in advance\n".into(),
            },
        };
        Ok(format!("{plan}\n{warnings}{fit}"))
    }
}

impl Preflight for ObjectsWorkload {
    /// Reads the program's file into the workload, unless the study has its text, and parses it.
    fn read(&mut self) -> Result<(), String> {
        let origin = self.path.display().to_string();
        let text = if !self.program.is_empty() {
            std::mem::take(&mut self.program).into_bytes()
        } else {
            trust::file::read(&self.path, trust::file::TEXT_BYTES_MAX)
                .map_err(|refused| format!("program {refused}"))?
        };
        Program::parse(&origin, &text).map_err(|error| error.to_string())?;
        self.program = String::from_utf8_lossy(&text).into_owned();
        Ok(())
    }

    /// The library of the store.
    fn needs(&self) -> Needs {
        let missing = store::kind(&self.store).ok().and_then(|kind| (kind.missing)());
        Needs { missing: missing.into_iter().collect(), ..Needs::default() }
    }

    /// A store that needs a file system.
    fn why_not_on(&self, _: BareTarget) -> Option<String> {
        let kind = store::kind(&self.store).ok()?;
        (!kind.takes_device).then(|| store::needs_file_system(kind.name))
    }

    /// Refuses an unknown store, and a program that is too large for the device.
    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        let kind = store::kind(&self.store).map_err(|error| error.to_string())?;
        if self.verify && !kind.keeps_contents {
            return Err(format!(
                "the store '{}' keeps nothing, so nothing can be verified",
                self.store
            ));
        }
        if !kind.keeps_contents {
            return Ok(());
        }
        let Some(capacity) = capacity else { return Ok(()) };
        let plan = ProgramPlan::of(&self.program()?);
        match self.fit(&plan, capacity.bytes)? {
            CapacityFit::TooLarge(need) => capacity::check(
                "the program and its store take at least",
                need.needed_bytes,
                Some(capacity),
                "scale it down by --scale, or give a larger device",
            ),
            _ => Ok(()),
        }
    }
}

impl Run for ObjectsWorkload {
    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String> {
        // What comes before the first command is no work of the workload: mounting, which for others was a
        // phase of the trial, and making the store's file and the store.
        let mut excluded_phases = Vec::new();
        let volume = match &task.target {
            WorkloadTarget::Library(device) => {
                let mounting = ExcludedPhaseBegun::now(task);
                let volume = volume::mount(device)?;
                excluded_phases.push(mounting.end(Mount));
                Some(volume)
            }
            _ => None,
        };
        let store_options = StoreOptions { whole_sync: whole_sync(task), ..self.store_options() };
        let acknowledgements = task
            .acknowledgements
            .as_deref()
            .map(|pipe| ObjectAcknowledger::new(pipe, &store_options));
        let acknowledgements = acknowledgements
            .transpose()
            .map_err(|error| format!("the pipe for acknowledgements: {error}"))?
            .map(Arc::new);
        let mut making = Some(ExcludedPhaseBegun::now(task));
        let place = match (&task.target, &volume) {
            (_, Some(volume)) => StoreLocation::Open(volume::make_file(volume)?),
            (WorkloadTarget::Directory(directory), None) => {
                StoreLocation::Directory(empty_place(directory)?)
            }
            (WorkloadTarget::Device(device) | WorkloadTarget::Library(device), None) => {
                StoreLocation::Device(device.clone())
            }
        };
        let options = RunOptions {
            store: store_options,
            verify: self.verify,
            salt: salt(task),
            acknowledgements: acknowledgements.clone(),
        };
        let mut sweep = None;
        let report = run_program(&self.program()?, &options, &place, &self.store, &mut |phase| {
            match phase {
                ProgramPhase::Running => {
                    if let (Some(acknowledgements), true) = (&acknowledgements, making.is_some()) {
                        // A pipe that nobody reads is found by the first command.
                        let _ = acknowledgements.made();
                    }
                    excluded_phases.extend(making.take().map(|making| making.end(Layout)));
                }
                // The comparison at the end is the laboratory's work and not the store's.
                ProgramPhase::Sweeping if self.verify && sweep.is_none() => {
                    sweep = Some(ExcludedPhaseBegun::now(task));
                }
                _ => {}
            }
            if stop.load(Ordering::SeqCst) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        excluded_phases.extend(sweep.map(|sweep| sweep.end(Verify)));
        match &report.outcome {
            ProgramOutcome::Completed | ProgramOutcome::TimeLimit => {
                let mut translated = translate(report)?;
                if let StoreLocation::Directory(directory) = &place {
                    let store_place = store_place(directory);
                    translated.findings.extend(store_place.map(|place| place.to_string()));
                    translated.details["store_place"] = serde_json::json!(store_place);
                }
                if let Some(volume) = volume {
                    let unmounting = ExcludedPhaseBegun::now(task);
                    drop(place);
                    volume::unmount(volume)?;
                    excluded_phases.push(unmounting.end(Unmount));
                }
                Ok(WorkloadReport { excluded_phases, ..translated })
            }
            ProgramOutcome::Cancelled => Err("stopped".into()),
            ProgramOutcome::Failed(failure) => {
                Err(format!("{}: {}", failure.during, failure.message))
            }
        }
    }

    fn durability(&self) -> Option<&dyn Durability> {
        let keeps = store::kind(&self.store).is_ok_and(|kind| kind.keeps_contents);
        keeps.then_some(self as &dyn Durability)
    }
}

impl Durability for ObjectsWorkload {
    fn find_loss(&self, task: &WorkloadTask, acknowledged: &str) -> Result<Option<Loss>, String> {
        // Mounted for as long as its file is open. Without acknowledgements it may not be made yet.
        let volume = match &task.target {
            WorkloadTarget::Library(_) if acknowledged.is_empty() => return Ok(None),
            WorkloadTarget::Library(device) => Some(volume::mount(device)),
            _ => None,
        };
        let place = match (&task.target, &volume) {
            (_, Some(Err(words))) => return Ok(Some(Loss::Unusable(words.clone()))),
            (_, Some(Ok(volume))) => match volume::file(volume) {
                Ok(file) => StoreLocation::Open(file),
                Err(words) => return Ok(Some(Loss::Lost(words))),
            },
            (WorkloadTarget::Directory(directory), None) => {
                let below = directory.join(BELOW);
                StoreLocation::Directory(if below.exists() { below } else { directory.clone() })
            }
            (WorkloadTarget::Device(device) | WorkloadTarget::Library(device), None) => {
                StoreLocation::Device(device.clone())
            }
        };
        let kind = store::kind(&self.store).map_err(|error| error.to_string())?;
        durable::find_loss(kind, &place, &self.store_options(), salt(task), acknowledged)
            .map_err(|error| error.to_string())
    }
}

/// Goes into the contents: another one in each run, but where a later process is to know it.
fn salt(task: &WorkloadTask) -> u64 {
    match task.acknowledgements {
        Some(_) => task.order_seed,
        None => std::process::id().into(),
    }
}

impl ObjectsWorkload {
    fn parsed(&self) -> Result<Parsed, String> {
        Program::parse(&self.path.display().to_string(), self.program.as_bytes())
            .map_err(|error| error.to_string())
    }

    fn program(&self) -> Result<Program, String> {
        let Parsed { program, .. } = self.parsed()?;
        Ok(if self.scale == 1.0 { program } else { program.scaled(self.scale) })
    }

    /// The kinds of operation of the program, known once it was read.
    fn operations(&self) -> Vec<String> {
        if self.program.is_empty() {
            return Vec::new();
        }
        let Ok(program) = self.program() else { return Vec::new() };
        let stream = Stream::new(&program);
        let sized = stream.classes().iter().flat_map(|size| {
            ["Put", "Embed", "Get"].map(|verb| format!("{verb}({})", size.label()))
        });
        let others = ["Delete", "DeleteRange", "Sync", OVERALL_OPERATION];
        sized.chain(others.map(String::from)).collect()
    }

    fn store_options(&self) -> StoreOptions {
        StoreOptions {
            block_size_bytes: self.block_size_bytes,
            sync_every_put: self.sync_puts,
            ..StoreOptions::default()
        }
    }

    fn fit(&self, plan: &ProgramPlan, device_bytes: u64) -> Result<CapacityFit, String> {
        let kind = store::kind(&self.store).map_err(|error| error.to_string())?;
        let space = plan
            .demand(self.program()?.settings.threads.unwrap_or(1))
            .map(|demand| (kind.space)(&self.store_options(), &demand));
        Ok(plan.fit(space, device_bytes))
    }
}

/// The metric that is compared.
const METRIC: &str = "commands and sync";

/// Name of the store's directory where the mounted one has something else in it.
const BELOW: &str = "objects";

/// An empty directory for the store: the mounted one when it is empty, since a flat file system
/// has no other; a new one below where mkfs left something (`lost+found`).
fn empty_place(directory: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    if std::fs::read_dir(directory).map_err(failed)?.next().is_none() {
        return Ok(directory.to_path_buf());
    }
    let below = directory.join(BELOW);
    std::fs::create_dir(&below).map_err(|error| format!("{}: {error}", below.display()))?;
    Ok(below)
}

/// Where a store's one file lies on the device: whether an order in the file is an order on the
/// disk. In words it is one of the findings too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct StorePlace {
    /// Pieces of the file that lie apart on the device.
    pieces: u64,
    /// Of these, the ones that lie before the one that they follow in the file.
    pieces_back: u64,
    /// Bytes of all pieces.
    bytes: u64,
    /// Bytes of the device from the first piece to the last.
    span_bytes: u64,
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store's file lies ")?;
        match (self.pieces, self.pieces_back) {
            (1, _) => f.write_str("in one piece")?,
            (pieces, 0) => write!(f, "in {pieces} pieces, in the order of the file")?,
            (pieces, back) => {
                write!(f, "in {pieces} pieces, {back} of them before the one that they follow")?;
            }
        }
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (bytes, span) = (mebibytes(self.bytes), mebibytes(self.span_bytes));
        write!(f, ": {bytes:.0} MiB over {span:.0} MiB of the device")
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
    let is_back = |pair: &&[FileExtent]| pair[1].physical < pair[0].physical;
    Some(StorePlace {
        pieces: pieces.len() as u64,
        pieces_back: pieces.windows(2).filter(is_back).count() as u64,
        bytes: pieces.iter().map(|piece| piece.length).sum(),
        span_bytes: to - from,
    })
}

/// The pieces with those put together that follow each other in the file and on the device; holes
/// between them do not part them.
fn joined(extents: &[FileExtent]) -> Vec<FileExtent> {
    let mut pieces: Vec<FileExtent> = Vec::new();
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

fn translate(report: Report) -> Result<WorkloadReport, String> {
    let mut findings = Vec::new();
    if let Some(checked) = &report.verification {
        findings.push(format!(
            "compared: {} objects on Get, {} on Delete, {} in the sweep at the end",
            checked.gets, checked.deletes, checked.swept_objects
        ));
    }
    if report.skipped > 0 {
        findings
            .push(format!("{} statements were skipped, since no object was live", report.skipped));
    }
    let latencies = latencies(&report.recording.summary());
    Ok(WorkloadReport {
        operations: Some(operations_without_syncs(&latencies)),
        // The publication's figure, and the sync that makes it honest.
        metrics: vec![Metric::new(
            METRIC,
            (report.elapsed_ns + report.sync_ns) as f64,
            Unit::Nanoseconds,
        )],
        checks: report.check.clone().into_iter().collect(),
        latencies,
        series: report.recording.series().map(series).unwrap_or_default(),
        findings,
        written_bytes: report.store_written_bytes,
        details: serde_json::to_value(&report).expect("a report has a JSON form"),
        histogram_log: Some(histogram_log(&report.recording, report.elapsed_ns)?),
        ..WorkloadReport::default()
    })
}

fn series(recorded: LatencySeries) -> Vec<Series> {
    let points = &recorded.points;
    let of = |name: &str, unit, value: &dyn Fn(&SeriesPoint) -> f64| Series {
        name: name.into(),
        unit,
        interval_ns: recorded.interval_ns,
        values: points.iter().map(value).collect(),
        marks: Vec::new(),
    };
    vec![
        of("throughput", Unit::BytesPerSecond, &|point| {
            point.bytes as f64 * 1e9 / point.duration_ns.max(1) as f64
        }),
        of("p99", Unit::Nanoseconds, &|point| point.p99_ns as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pieces_are_joined_where_file_and_device_go_on_together() {
        let extent = |logical, physical, length| FileExtent { logical, physical, length };
        let pieces = joined(&[extent(0, 100, 10), extent(10, 110, 5), extent(15, 50, 5)]);
        assert_eq!(pieces, [extent(0, 100, 15), extent(15, 50, 5)]);
        assert_eq!(joined(&[]), []);
    }

    #[test]
    fn the_help_names_every_store() {
        let help = KIND.key("store").unwrap().help;
        for name in store::names() {
            assert!(help.contains(name), "{name}: {help}");
        }
    }

    #[test]
    fn the_place_of_the_only_file_is_told() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        assert_eq!(store_place(home.path()), None);
        let mut file = std::fs::File::create(home.path().join("store")).unwrap();
        file.write_all(&vec![7; 3 << 20]).unwrap();
        file.sync_all().unwrap();
        if extents(&file).is_err() {
            eprintln!("SKIPPED: the file system of /var/tmp does not tell where files lie");
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
