//! Which of fio's figures belong together, and under what name: its groups and sections.
//!
//! fio starts the jobs of a group together and each group after the one before it (`stonewall`,
//! `new_group`). A figure is of one section, of a group that fio was told to report as one
//! (`group_reporting`), or of all sections of a group where they run at the same time: never of stages
//! that ran one after another. Latencies are of sections of one block size. Knows the text of jobs and
//! fio's figures; runs nothing.

use std::collections::BTreeSet;

use vocabulary::report::{Axes, GROUP_AXIS, Metric, OPERATION_AXIS, Unit, differ_by_operation};

use super::jobfile::JobFile;
use super::output::{Direction, FioJob};
use super::run::{pattern, writes};
use super::size::parse_bytes;
use super::verify::verifies;
use measure::latency::{LatencyRecorder, LatencyRecording};

/// What belongs together in a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    entries: Vec<Entry>,
    parts: Vec<Part>,
}

/// The jobs that fio reports under one name in one group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    group: u64,
    name: String,
    sections: Vec<JobSection>,
}

/// A section, as far as its figures ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct JobSection {
    index: usize,
    name: String,
    /// The options that say the block size.
    block_size: Vec<String>,
    /// Whether every block has [`LARGE_BLOCK_BYTES`] or more.
    has_large_blocks: bool,
    /// What its reads are called.
    reads: Reads,
    writes: bool,
    /// Whether it reads, be it to verify.
    reads_any: bool,
    /// Whether fio counts operations of its engine.
    is_counted: bool,
    /// Whether it trims.
    trims: bool,
    /// Whether it syncs as it goes, which fio counts.
    syncs: bool,
    /// Whether fio puts its operations together.
    is_unified: bool,
    /// Whether it begins when another has ended.
    waits: bool,
}

/// What fio counts as reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Read,
    /// Of a job that writes: what it reads to compare.
    Verify,
    /// Both, which fio does not count apart.
    Both,
    /// Operations on files of an engine that moves no data.
    Files(&'static str),
}

impl Reads {
    fn name(self) -> &'static str {
        match self {
            Reads::Read => "read",
            Reads::Verify => "verify",
            Reads::Both => "read and verify",
            Reads::Files(name) => name,
        }
    }
}

/// What has figures of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// Its name; none where it is the whole job.
    label: Option<String>,
    /// The entries that it is made of.
    entries: Vec<usize>,
}

/// What fio's figures come to.
#[derive(Clone, Debug)]
pub struct FioFigures {
    /// Operations and bytes a second of each part, those that rank first.
    pub metrics: Vec<Metric>,
    /// The latencies by part and operation.
    pub recording: LatencyRecording,
    /// Whether the latencies of all operations together mean something: one part that verifies nothing.
    pub has_overall: bool,
    /// Reads, writes and trims of all parts; reads that only verify are not among them, nor are syncs.
    pub operations: u64,
    /// How long fio counted for what ranks, in ns; fio's clock has 1 ms.
    pub counted_ns: Option<u64>,
    /// What must be told next to the figures.
    pub remarks: Vec<String>,
}

/// A figure of a distribution of latencies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LatencyFigure {
    Quantile(f64),
    Average,
    Max,
}

/// The figures of latencies by which a job can be ranked.
const LATENCY_FIGURES: [(&str, LatencyFigure); 8] = [
    ("p50", LatencyFigure::Quantile(0.5)),
    ("p90", LatencyFigure::Quantile(0.9)),
    ("p95", LatencyFigure::Quantile(0.95)),
    ("p99", LatencyFigure::Quantile(0.99)),
    ("p99.9", LatencyFigure::Quantile(0.999)),
    ("p99.99", LatencyFigure::Quantile(0.9999)),
    ("average", LatencyFigure::Average),
    ("max", LatencyFigure::Max),
];

/// What an idle job may come from.
const IDLE_HINT: &str = "give it something to read or write, and try the command of its exec_prerun, which ends a job without a word where it fails";

/// Operations a second, as a figure's name has it.
const OPERATIONS: &str = "operations";
/// The mean time until the kernel had taken an operation, as a figure's name has it.
const SUBMISSION: &str = "submission latency";
/// Bytes a second, as a figure's name has it.
const BANDWIDTH: &str = "bandwidth";

/// From this block size on a job is compared by its bytes a second, as vendors and reviews do.
const LARGE_BLOCK_BYTES: u64 = 128 << 10;

/// Most names that a sentence lists.
const NAMES_MAX: usize = 8;

/// Engines that work on files and move no data, with the name of their operation; fio counts it as a
/// read.
const FILE_ENGINES: [(&str, &str); 3] =
    [("filecreate", "create"), ("filestat", "stat"), ("filedelete", "delete")];

/// Engines that run something, and do no operation.
const UNCOUNTED_ENGINES: [&str; 2] = ["cpuio", "exec"];

impl Groups {
    /// The groups of a job file, numbered as fio numbers them.
    pub fn of(job: &JobFile) -> Groups {
        let entries = entries(job, true);
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let is_only = |entry: &Entry| names.iter().filter(|name| **name == entry.name).count() == 1;
        let groups: BTreeSet<u64> = entries.iter().map(|entry| entry.group).collect();
        let mut parts = Vec::new();
        for group in &groups {
            let all = || entries.iter().enumerate().filter(|(_, entry)| entry.group == *group);
            let places: Vec<usize> = all().map(|(place, _)| place).collect();
            let waits = all().flat_map(|(_, entry)| &entry.sections).any(|section| section.waits);
            if places.len() > 1 && !waits {
                let label = (groups.len() > 1).then(|| format!("group {group}"));
                parts.push(Part { label, entries: places });
            }
            parts.extend(all().map(|(place, entry)| {
                let label = if is_only(entry) {
                    entry.name.clone()
                } else {
                    format!("{} (group {group})", entry.name)
                };
                let label = (entries.len() > 1).then_some(label);
                Part { label, entries: vec![place] }
            }));
        }
        Groups { entries, parts }
    }

    /// The names that a figure can be ranked by: those of groups and sections.
    pub fn labels(&self) -> Vec<&str> {
        self.parts.iter().filter_map(|part| part.label.as_deref()).collect()
    }

    /// Refuses a rank that names no part, no metric and no latency.
    ///
    /// Errors: the names that there are.
    pub fn check_rank(&self, rank: &str) -> Result<(), String> {
        let metrics = self.metrics();
        if self.labels().contains(&rank)
            || metrics.iter().any(|name| name == rank)
            || self.latency_of_rank(rank).is_some()
        {
            return Ok(());
        }
        let known = match self.labels() {
            labels if labels.is_empty() => metrics,
            labels => labels.into_iter().map(str::to_owned).collect(),
        };
        let latencies = match self.operations() {
            operations if operations.is_empty() => String::new(),
            operations => format!(
                ", and the latencies of {}, each with {} (as in '{} p99')",
                listed(operations.iter().map(String::as_str)),
                listed(LATENCY_FIGURES.iter().map(|(name, _)| *name)),
                operations[operations.len() - 1]
            ),
        };
        Err(format!(
            "the job has no group, section, metric or latency '{rank}'; it has {}{latencies}",
            listed(known.iter().map(String::as_str))
        ))
    }

    /// The names of the metrics that the jobs can have.
    pub fn metrics(&self) -> Vec<String> {
        let of_part = |part: &Part| {
            let mut operations = self.operations_of(part);
            operations.retain(|operation| self.does(part, operation));
            let names = operations.into_iter().flat_map(|operation| {
                let figures = self.figures_by_use(part).into_iter().chain([SUBMISSION]);
                figures.map(move |figure| named(part, &format!("{operation} {figure}")))
            });
            names.collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of_part).collect()
    }

    /// The kinds of operation whose latencies the jobs can have.
    pub fn operations(&self) -> Vec<String> {
        self.timed().into_iter().map(|(part, operation)| named(part, operation)).collect()
    }

    /// The operations whose latencies the jobs can have, each of its part.
    fn timed(&self) -> Vec<(&Part, &'static str)> {
        let single = self.parts.iter().filter(|part| part.entries.len() == 1);
        let timed = single.filter(|part| !self.entries[part.entries[0]].is_mixed());
        let of_part = |part| {
            let operations = self.operations_of(part).into_iter().chain(["sync"]);
            operations.filter(|name| self.does(part, name)).map(move |name| (part, name))
        };
        timed.flat_map(of_part).collect()
    }

    /// Whether a part may do an operation of this name.
    fn does(&self, part: &Part, operation: &str) -> bool {
        part.entries.iter().any(|place| self.entries[*place].does(operation))
    }

    /// The latency that a rank names, such as `sync p99`: its part, operation and figure.
    fn latency_of_rank(&self, rank: &str) -> Option<(&Part, &'static str, LatencyFigure)> {
        self.timed().into_iter().find_map(|(part, operation)| {
            let figure = rank.strip_prefix(&named(part, operation))?.strip_prefix(' ')?;
            let figure = LATENCY_FIGURES.iter().find(|(name, _)| *name == figure)?;
            Some((part, operation, figure.1))
        })
    }

    /// The metric that a rank adds to those of the jobs: a figure of a latency. None where it names another.
    pub fn added_metric(&self, rank: &str) -> Option<String> {
        self.latency_of_rank(rank).map(|_| rank.to_owned())
    }

    fn operations_of(&self, part: &Part) -> Vec<&'static str> {
        let mut operations: Vec<&'static str> = Vec::new();
        for entry in part.entries.iter().map(|place| &self.entries[*place]) {
            for operation in [entry.reads().name(), "write", "trim", "mixed"] {
                if !operations.contains(&operation) {
                    operations.push(operation);
                }
            }
        }
        sorted(operations)
    }

    /// Puts fio's figures together. `rank` names the part or the metric that comes first; without it, that
    /// is the first part which has figures.
    ///
    /// Errors: a job that the text does not have; a part to rank by that has no figures.
    pub fn figures(&self, jobs: &[FioJob], rank: Option<&str>) -> Result<FioFigures, String> {
        let mut by_entry: Vec<Vec<&FioJob>> = vec![Vec::new(); self.entries.len()];
        for job in jobs {
            by_entry[self.entry_of(job)?].push(job);
        }
        let entries: Vec<FioJob> = by_entry.iter().map(|jobs| FioJob::together(jobs)).collect();
        let of_parts: Vec<(&Part, Vec<Metric>)> =
            self.parts.iter().map(|part| (part, self.metrics_of(part, &entries))).collect();
        let recording = self.recording(&entries);
        let latency = rank.and_then(|rank| self.latency_of_rank(rank));
        let added = latency.and_then(|(part, operation, figure)| {
            latency_metric(rank?, part, operation, figure, &recording)
        });
        let has_any = |(_, metrics): &&(&Part, Vec<Metric>)| !metrics.is_empty();
        let is_ranked = |(part, metrics): &&(&Part, Vec<Metric>)| match (rank, latency) {
            (None, _) => true,
            (Some(_), Some((timed, ..))) => *part == timed && added.is_some(),
            (Some(rank), None) => {
                part.label.as_deref() == Some(rank) || metrics.iter().any(|one| one.name == rank)
            }
        };
        let ranked = of_parts.iter().filter(has_any).find(is_ranked).map(|(part, _)| *part);
        let idle = self.idle(&entries);
        if of_parts.iter().all(|(_, metrics)| metrics.is_empty()) && !idle.is_empty() {
            return Err(format!(
                "fio counted no operation, so there is nothing to compare: {IDLE_HINT}"
            ));
        }
        if let (Some(rank), None) = (rank, ranked) {
            return Err(format!(
                "fio counted no operation of '{rank}'; rank by another with --fio-rank"
            ));
        }
        let (first, rest): (Vec<_>, Vec<_>) =
            of_parts.iter().partition(|(part, _)| Some(*part) == ranked);
        let metrics = first.into_iter().chain(rest).flat_map(|(_, metrics)| metrics.clone());
        let mut metrics: Vec<Metric> = added.clone().into_iter().chain(metrics).collect();
        metrics.sort_by_key(|metric| Some(metric.name.as_str()) != rank);
        let remarks = ranked.and_then(|part| self.ranking(part, rank, &metrics)).into_iter();
        let unread = self.without_latencies(&entries);
        let idle = listed(self.idle(&entries).into_iter());
        let idle =
            (!idle.is_empty()).then(|| format!("fio counted no operation of {idle}: {IDLE_HINT}."));
        let counted_ms = ranked.and_then(|part| self.counted_ms(part, &entries));
        Ok(FioFigures {
            counted_ns: counted_ms.map(|ms| ms * 1_000_000),
            recording,
            has_overall: self.entries.iter().all(|entry| !entry.is_mixed() && !entry.verifies())
                && self.entries.len() == 1,
            operations: self
                .entries
                .iter()
                .zip(&entries)
                .flat_map(|(entry, job)| entry.sides(job))
                .filter(|(name, _)| *name != Reads::Verify.name())
                .map(|(_, side)| side.total_ios)
                .sum(),
            remarks: remarks.chain(unread).chain(idle).collect(),
            metrics,
        })
    }

    /// The longest time that fio counted for a part.
    fn counted_ms(&self, part: &Part, entries: &[FioJob]) -> Option<u64> {
        let sides =
            part.entries.iter().flat_map(|place| self.entries[*place].sides(&entries[*place]));
        sides.map(|(_, side)| side.runtime).max()
    }

    fn entry_of(&self, job: &FioJob) -> Result<usize, String> {
        let is_named = |entry: &Entry| entry.name == job.jobname;
        let exact = |entry: &Entry| is_named(entry) && entry.group == job.groupid;
        let found = self.entries.iter().position(exact);
        found.or_else(|| self.entries.iter().position(is_named)).ok_or_else(|| {
            let (name, group) = (&job.jobname, job.groupid);
            format!(
                "fio reports the job `{name}` in group {group}, which the job file does not have"
            )
        })
    }

    /// Operations and bytes a second of a part, by operation. The length is that of the job which took
    /// longest, as fio has it for a group.
    fn metrics_of(&self, part: &Part, entries: &[FioJob]) -> Vec<Metric> {
        let mut metrics = Vec::new();
        for operation in self.operations_of(part) {
            let sides = part.entries.iter().flat_map(|place| {
                let sides = self.entries[*place].sides(&entries[*place]).into_iter();
                sides.filter(|(name, side)| *name == operation && side.total_ios > 0)
            });
            let sides: Vec<&Direction> = sides.map(|(_, side)| side).collect();
            let all = Direction::together(&sides);
            if all.iops <= 0.0 {
                continue;
            }
            let all_entries = part.entries.iter().map(|place| &self.entries[*place]);
            let doing = all_entries.filter(|entry| entry.does(operation));
            let is_of_files = FILE_ENGINES.iter().any(|(_, name)| *name == operation);
            let counts_operations = have_one_size(doing);
            let figures = self.figures_by_use(part).map(|figure| match figure {
                OPERATIONS => (figure, all.iops, Unit::OperationsPerSecond, counts_operations),
                _ => (figure, all.bw_bytes, Unit::BytesPerSecond, !is_of_files),
            });
            for (figure, value, unit, _) in figures.into_iter().filter(|(.., has_it)| *has_it) {
                let name = named(part, &format!("{operation} {figure}"));
                metrics
                    .push(Metric { axes: axes(part, operation), ..Metric::new(name, value, unit) });
            }
            if all.slat_ns.count > 0 {
                let name = named(part, &format!("{operation} {SUBMISSION}"));
                metrics.push(Metric::new(name, all.slat_ns.mean, Unit::Nanoseconds));
            }
        }
        metrics
    }

    /// The figures of a part's operations, first the one by which people compare jobs of its block size: bytes a second
    /// where every block is large.
    fn figures_by_use(&self, part: &Part) -> [&'static str; 2] {
        let mut sections = part.entries.iter().flat_map(|place| &self.entries[*place].sections);
        if sections.all(|section| section.has_large_blocks) {
            [BANDWIDTH, OPERATIONS]
        } else {
            [OPERATIONS, BANDWIDTH]
        }
    }

    fn recording(&self, entries: &[FioJob]) -> LatencyRecording {
        let mut recorder = LatencyRecorder::new();
        for part in self.parts.iter().filter(|part| part.entries.len() == 1) {
            let place = part.entries[0];
            let (entry, job) = (&self.entries[place], &entries[place]);
            if entry.is_mixed() {
                continue;
            }
            for (operation, side) in entry.sides(job).into_iter().chain([("sync", &job.sync)]) {
                side.record(&mut recorder, &named(part, operation));
            }
        }
        recorder.finish()
    }

    /// What ranks and what else could, where there is anything else: another part, or in a job that mixes reads
    /// and writes the other operation.
    fn ranking(&self, ranked: &Part, rank: Option<&str>, metrics: &[Metric]) -> Option<String> {
        if self.entries.len() < 2 {
            let first = metrics.first()?;
            let mut others = metrics.iter().filter(|one| one.unit == first.unit);
            let other = others.find(|one| differ_by_operation(&first.axes, &one.axes))?;
            let (first, other) = (&first.name, &other.name);
            return Some(format!("Ranked by {first}; --fio-rank '{other}' ranks by the other."));
        }
        let groups: BTreeSet<u64> = self.entries.iter().map(|entry| entry.group).collect();
        let names = listed(self.entries.iter().map(|entry| entry.name.as_str()));
        Some(match (rank.or(ranked.label.as_deref()), groups.len()) {
            (None, _) => {
                format!(
                    "Ranked by {names} together, which run at the same time; --fio-rank names one of them."
                )
            }
            (Some(label), 1) => {
                format!("Ranked by '{label}', one of the jobs {names}; --fio-rank names another.")
            }
            (Some(label), count) => {
                let labels = listed(self.labels().into_iter());
                format!(
                    "Ranked by '{label}'; the {count} groups of the job run one after another: {labels}. --fio-rank names another."
                )
            }
        })
    }

    /// Sections that were to do operations and did none. fio says nothing of it and exits with 0, as where the
    /// command of an `exec_prerun` failed.
    fn idle(&self, jobs: &[FioJob]) -> Vec<&str> {
        let both = self.entries.iter().zip(jobs);
        let idle = both.filter(|(entry, job)| {
            entry.sections.iter().any(|section| section.is_counted) && !job.has_done_any()
        });
        idle.map(|(entry, _)| entry.name.as_str()).collect()
    }

    fn without_latencies(&self, jobs: &[FioJob]) -> Option<String> {
        let both = self.entries.iter().zip(jobs);
        let mixed = both.filter(|(entry, job)| entry.is_mixed() && job.has_done_any());
        let names: Vec<&str> = mixed.map(|(entry, _)| entry.name.as_str()).collect();
        (!names.is_empty()).then(|| {
            format!(
                "fio reports several block sizes of {} as one, so there are no latencies of it.",
                listed(names.into_iter())
            )
        })
    }
}

impl Entry {
    fn reads(&self) -> Reads {
        let reads = self.sections.iter().map(|section| section.reads);
        let reads = reads.reduce(|one, other| if one == other { one } else { Reads::Both });
        reads.unwrap_or(Reads::Read)
    }

    /// The directions of a job, each with the name of its operation.
    fn sides<'a>(&self, job: &'a FioJob) -> Vec<(&'static str, &'a Direction)> {
        let reads = self.reads().name();
        let sides = vec![(reads, &job.read), ("write", &job.write), ("trim", &job.trim)];
        // With `unified_rw_reporting=both` fio tells of both.
        if sides.iter().all(|(_, side)| side.total_ios == 0) {
            vec![("mixed", &job.mixed)]
        } else {
            sides
        }
    }

    /// Whether fio puts sections of several block sizes into one.
    fn is_mixed(&self) -> bool {
        !have_one_size([self].into_iter())
    }

    fn verifies(&self) -> bool {
        matches!(self.reads(), Reads::Verify | Reads::Both)
    }

    /// Whether it may do an operation of this name.
    fn does(&self, operation: &str) -> bool {
        match operation {
            "write" => self.sections.iter().any(|section| section.writes),
            "trim" => self.sections.iter().any(|section| section.trims),
            "mixed" => self.sections.iter().any(|section| section.is_unified),
            "sync" => self.sections.iter().any(|section| section.syncs),
            reads => self.reads().name() == reads && self.sections.iter().any(|one| one.reads_any),
        }
    }
}

/// A figure of a latency as a metric of the name `rank`; none where fio counted no such operation.
fn latency_metric(
    rank: &str,
    part: &Part,
    operation: &str,
    figure: LatencyFigure,
    recording: &LatencyRecording,
) -> Option<Metric> {
    let kinds = recording.summary().kinds.into_iter();
    let latency = kinds
        .filter(|kind| kind.count > 0)
        .find(|kind| kind.operation == named(part, operation))?;
    let value = match figure {
        LatencyFigure::Quantile(quantile) => latency.at(quantile) as f64,
        LatencyFigure::Average => latency.total_ns as f64 / latency.count as f64,
        LatencyFigure::Max => latency.max_ns as f64,
    };
    Some(Metric { axes: axes(part, operation), ..Metric::new(rank, value, Unit::Nanoseconds) })
}

/// Where the figures of a part's operation lie.
fn axes(part: &Part, operation: &str) -> Axes {
    let mut axes = Axes::new();
    if let Some(label) = &part.label {
        axes.insert(GROUP_AXIS.into(), label.clone());
    }
    axes.insert(OPERATION_AXIS.into(), operation.into());
    axes
}

/// Whether the sections of entries are of one block size.
fn have_one_size<'a>(entries: impl Iterator<Item = &'a Entry>) -> bool {
    let sizes: BTreeSet<&Vec<String>> =
        entries.flat_map(|entry| &entry.sections).map(|section| &section.block_size).collect();
    sizes.len() <= 1
}

/// What fio reports under names of their own; `merge`: whether it puts the sections of a group together
/// where they say so.
fn entries(job: &JobFile, merge: bool) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut group, mut is_first) = (0, true);
    let splits = if merge { several_sizes(job) } else { BTreeSet::new() };
    for (index, section) in job.jobs() {
        let is_on = |name: &str| is_on(job, index, name);
        let begins = ["stonewall", "wait_for_previous", "new_group"].into_iter().any(is_on);
        if begins && !is_first {
            group += 1;
        }
        is_first = false;
        // A `name` of the global section is not the job's: fio has the section's in its place.
        let own = section.options.iter().rev().find(|option| option.name == "name");
        let name = own.and_then(|option| option.value.as_ref()).unwrap_or(&section.name).clone();
        let is_merged = merge && is_on("group_reporting") && !splits.contains(&index);
        let found = match entries.last().filter(|last| last.group == group) {
            Some(_) if is_merged => Some(entries.len() - 1),
            _ => entries.iter().position(|entry| entry.group == group && entry.name == name),
        };
        let place = found.unwrap_or_else(|| {
            entries.push(Entry { group, name: name.clone(), sections: Vec::new() });
            entries.len() - 1
        });
        entries[place].sections.push(section_of(job, index, name));
    }
    entries
}

fn section_of(job: &JobFile, index: usize, name: String) -> JobSection {
    let given = |name: &str| job.effective(index, name).map(str::to_owned);
    let engine = given("ioengine").unwrap_or_default();
    let of_files = FILE_ENGINES.iter().find(|(known, _)| *known == engine);
    let pattern = pattern(job, index);
    let reads_data = !pattern.contains("write");
    let writes = writes(job, index);
    let sizes = ["bs", "blocksize", "bsrange", "blocksize_range", "bssplit"];
    JobSection {
        index,
        name,
        block_size: sizes.iter().map(|name| given(name).unwrap_or_default()).collect(),
        has_large_blocks: sizes[2..].iter().all(|name| given(name).is_none())
            && sizes[..2].iter().find_map(|name| given(name)).is_some_and(|text| are_large(&text)),
        reads: match of_files {
            Some((_, operation)) => Reads::Files(operation),
            None if !(verifies(job, index) && writes) => Reads::Read,
            None if reads_data => Reads::Both,
            None => Reads::Verify,
        },
        writes,
        reads_any: pattern.contains("read") || pattern.contains("rw") || verifies(job, index),
        is_counted: !UNCOUNTED_ENGINES.contains(&engine.as_str()),
        trims: pattern.contains("trim") || given("trim_percentage").is_some(),
        syncs: ["fsync", "fdatasync", "sync_file_range"]
            .into_iter()
            .any(|name| is_on(job, index, name)),
        is_unified: given("unified_rw_reporting").is_some(),
        waits: given("wait_for").is_some(),
    }
}

/// Whether the sizes of a `bs`, for reads, writes and trims, are all large.
fn are_large(text: &str) -> bool {
    let is_large = |one: &str| parse_bytes(one, false).is_some_and(|b| b >= LARGE_BLOCK_BYTES);
    text.split(',').filter(|one| !one.is_empty()).all(is_large)
}

/// Whether a switch of fio's is on.
fn is_on(job: &JobFile, index: usize, name: &str) -> bool {
    job.effective(index, name).is_some_and(|value| value != "0")
}

/// The sections that are reported together with others of another block size, or with others whose reads
/// mean something else: fio is not to put those together, since nobody could take them apart again.
pub fn several_sizes(job: &JobFile) -> BTreeSet<usize> {
    let apart = entries(job, false);
    let mut found = BTreeSet::new();
    for group in apart.iter().map(|entry| entry.group).collect::<BTreeSet<_>>() {
        let sections =
            || apart.iter().filter(|entry| entry.group == group).flat_map(|e| &e.sections);
        let reported = || sections().filter(|section| is_on(job, section.index, "group_reporting"));
        let kinds: BTreeSet<_> =
            sections().map(|section| (&section.block_size, section.reads.name())).collect();
        if kinds.len() > 1 {
            found.extend(reported().map(|section| section.index));
        }
    }
    found
}

/// Writes are what a job that verifies is for.
fn sorted(mut operations: Vec<&'static str>) -> Vec<&'static str> {
    operations.sort_by_key(|operation| match *operation {
        "write" => 1,
        "trim" => 2,
        "mixed" => 3,
        "verify" | "read and verify" => 4,
        _ => 0,
    });
    operations
}

fn named(part: &Part, what: &str) -> String {
    part.label.as_ref().map_or(what.to_owned(), |label| format!("{label}: {what}"))
}

/// `a, b, c`; of many the first, with the number of the others.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len().checked_sub(NAMES_MAX) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMES_MAX].join(", ")),
    }
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
