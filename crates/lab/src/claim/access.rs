//! Whether the contenders made the device do the same work under the same program.
//!
//! The answer is a sentence by thresholds on medians over the trials (`docs/statistics.md`), then
//! the numbers. A difference counts only where the trials of the two lie apart: bytes hardly scatter,
//! but the kernel splits a request by how the load's memory lies in pieces.

use super::{Claim, Finding, Outcome, all_labels};
use crate::analysis::{self, WorkloadAnalysis};
use crate::load::StorePlace;
use crate::plan::Plan;
use crate::record::{DeviceDelta, Record, counted_trials};
use crate::words;

/// Up to this factor between the greatest and the least the device had the same work.
const FAIR_FACTOR_MAX: f64 = 1.1;
/// From this factor on it had other work.
const UNFAIR_FACTOR_MIN: f64 = 2.0;
/// Bytes read or written below this share of all bytes are the file systems' own records, which
/// say nothing of the store.
const SHARE_MIN: f64 = 0.01;
/// A file that is spread over more than so many times its bytes makes a disk seek further.
const SPREAD_FACTOR_MAX: f64 = 2.0;
/// Share of pieces before the one that they follow from which an order in the file is none on the
/// device.
const OUT_OF_ORDER_SHARE_MIN: f64 = 0.1;
/// File systems that put the store in one piece by their nature: the device itself, and minfs, of
/// which the store gets the whole space.
const ONE_PIECE: [&str; 2] = ["raw", "minfs"];

/// What a contender's device did under a workload.
struct Work {
    label: String,
    reads: Figure,
    read_bytes: Figure,
    writes: Figure,
    written_bytes: Figure,
    requests: Figure,
}

/// One of the device's counters over the trials.
#[derive(Clone, Copy)]
struct Figure {
    median: f64,
    least: f64,
    most: f64,
}

impl Figure {
    fn over(deltas: &[DeviceDelta], figure: fn(&DeviceDelta) -> u64) -> Option<Figure> {
        let values = || deltas.iter().map(|delta| figure(delta) as f64);
        Some(Figure {
            // The same median as that of the costs in the tables, so that no page has two.
            median: analysis::median(values())?,
            least: values().fold(f64::INFINITY, f64::min),
            most: values().fold(0.0, f64::max),
        })
    }
}

/// What speaks against calling the patterns fair.
#[derive(Default)]
struct Doubts {
    unfair: Vec<String>,
    open: Vec<String>,
    /// Differences that are no greater than those between the trials of one contender; they speak
    /// against nothing, and are told.
    scatter: Vec<String>,
    /// What differs by no more than what counts as fair.
    alike: Vec<String>,
    /// Bytes of the largest store's file.
    store_bytes: u64,
}

/// Whether the access patterns were the same, with the bytes and requests of the device by
/// contender, and where each file system put the store.
pub(super) fn same_access(
    workloads: &[&WorkloadAnalysis],
    plan: &Plan,
    records: &[Record],
    claim: &Claim,
) -> Finding {
    let (mut answers, mut evidence) = (Vec::new(), Vec::new());
    for workload in workloads {
        let name = &workload.workload;
        let contenders = &plan.study.contenders;
        let all: Vec<Work> =
            contenders.iter().filter_map(|entry| work(name, &entry.label, records)).collect();
        if all.is_empty() {
            continue;
        }
        let is_judged = |label: &str| !claim.except.iter().any(|named| named == label);
        let judged: Vec<&Work> = all.iter().filter(|work| is_judged(&work.label)).collect();
        let mut doubts = Doubts::default();
        let is_absent = |label: &&str| all.iter().all(|work| work.label != *label);
        for label in all_labels(plan).into_iter().filter(|label| is_judged(label)).filter(is_absent)
        {
            doubts.open.push(format!("{label} was not measured"));
        }
        compare_work(&judged, &mut doubts);
        let mut places = Vec::new();
        for entry in contenders {
            let place = worst_place(name, &entry.label, records);
            places.extend(place.map(|place| format!("{name}: {}: {place}", entry.label)));
            let store_bytes = place.map_or(0, |place| place.bytes);
            doubts.store_bytes = doubts.store_bytes.max(store_bytes);
            let took_part = judged.iter().any(|work| work.label == entry.label);
            if took_part && !ONE_PIECE.contains(&entry.file_system.as_str()) {
                judge_place(&entry.label, place, &mut doubts);
            }
        }
        answers.push(format!("{name}: {}", verdict(judged.len(), &doubts)));
        let words: Vec<String> = all.iter().map(work_words).collect();
        evidence.push(format!("{name}: {}", words.join(", ")));
        evidence.extend(places);
    }
    if answers.is_empty() {
        return Finding::untested("the device's requests were not counted");
    }
    if !claim.except.is_empty() {
        evidence.push(format!("not judged, as the claim has it: {}", claim.except.join(", ")));
    }
    answers.extend(evidence);
    Finding::new(Outcome::Answered, answers)
}

/// The answer in a sentence.
fn verdict(count: usize, doubts: &Doubts) -> String {
    let fair = (FAIR_FACTOR_MAX - 1.0) * 100.0;
    match (doubts.unfair.as_slice(), doubts.open.as_slice()) {
        _ if count < 2 => {
            "whether the access patterns were fair cannot be told: the device's requests of two contenders at least are needed".into()
        }
        ([], []) => {
            let size = match doubts.store_bytes {
                0 => String::new(),
                bytes => format!(" at this size (a store of {} MiB)", bytes >> 20),
            };
            let alike = match doubts.alike.as_slice() {
                [] => String::new(),
                alike => format!(" {} differ by at most {fair:.0} %;", words::list(alike)),
            };
            let scatter: String =
                doubts.scatter.iter().map(|difference| format!(" {difference};")).collect();
            format!(
                "the access patterns were fair{size}:{alike}{scatter} every store's file lies in its order on the device"
            )
        }
        ([], open) => format!(
            "whether the access patterns were fair cannot be told: {} (fair is within {fair:.0} %, unfair from a factor of {UNFAIR_FACTOR_MIN} on)",
            open.join("; ")
        ),
        (unfair, _) => format!(
            "the access patterns were unfair: {} (a factor of {UNFAIR_FACTOR_MIN} or more counts as unfair)",
            unfair.join("; ")
        ),
    }
}

/// Compares the device's requests and bytes.
fn compare_work(all: &[&Work], doubts: &mut Doubts) {
    let bytes = |work: &&Work| work.read_bytes.median + work.written_bytes.median;
    let bytes_max = all.iter().map(bytes).fold(0.0, f64::max);
    type Of = fn(&Work) -> Figure;
    let figures: [(&str, Of, f64); 3] = [
        ("bytes read", |work| work.read_bytes, bytes_max * SHARE_MIN),
        ("bytes written", |work| work.written_bytes, bytes_max * SHARE_MIN),
        ("requests", |work| work.requests, 0.0),
    ];
    for (what, of, counts_from) in figures {
        let by = |one: &&&Work, other: &&&Work| of(one).median.total_cmp(&of(other).median);
        let Some(most) = all.iter().max_by(by).filter(|work| of(work).median > counts_from) else {
            continue;
        };
        let factor = |(more, less): (&Work, &Work)| of(more).median / of(less).median;
        // Of all pairs whose trials lie apart, the one that differs most.
        let pairs = all.iter().flat_map(|more| all.iter().map(move |less| (*more, *less)));
        let apart = pairs.filter(|(more, less)| of(more).least > of(less).most);
        let apart = apart.max_by(|one, other| factor(*one).total_cmp(&factor(*other)));
        match apart.filter(|pair| factor(*pair) > FAIR_FACTOR_MAX) {
            Some(pair) => doubt(what, pair, factor(pair), doubts),
            None if all.iter().any(|less| factor((most, less)) > FAIR_FACTOR_MAX) => {
                let less = all.iter().min_by(by).expect("there is the one that has the most");
                let Figure { median, least, most: greatest } = of(most);
                let share = (factor((most, less)) - 1.0) * 100.0;
                let share = share.is_finite().then(|| format!(" by {share:.0} %"));
                let words = format!(
                    "{what} differ{} in the middle ({} {:.0}, {} {median:.0}), but not by more than from trial to trial ({} {least:.0} to {greatest:.0})",
                    share.unwrap_or_default(),
                    less.label,
                    of(less).median,
                    most.label,
                    most.label
                );
                doubts.scatter.push(words);
            }
            None => doubts.alike.push(what.into()),
        }
    }
}

/// A difference that counts, in words.
fn doubt(what: &str, (more, less): (&Work, &Work), factor: f64, doubts: &mut Doubts) {
    let words = match factor {
        factor if factor < UNFAIR_FACTOR_MIN => format!(
            "{what} differ by {:.0} % ({} the most, {} the least)",
            (factor - 1.0) * 100.0,
            more.label,
            less.label
        ),
        factor if factor.is_finite() => {
            format!("{} had {factor:.1} times the {what} of {}", more.label, less.label)
        }
        _ => format!("{} had {what} and {} had none", more.label, less.label),
    };
    let list = if factor >= UNFAIR_FACTOR_MIN { &mut doubts.unfair } else { &mut doubts.open };
    list.push(words);
}

/// Judges where a file system put the store.
fn judge_place(label: &str, place: Option<StorePlace>, doubts: &mut Doubts) {
    let Some(place) = place else {
        doubts.open.push(format!("where the store's file lies on {label} is not known"));
        return;
    };
    let back = place.pieces_back as f64 / place.pieces.max(1) as f64;
    let spread = place.span_bytes as f64 / place.bytes.max(1) as f64;
    if back >= OUT_OF_ORDER_SHARE_MIN {
        doubts.unfair.push(format!(
            "on {label} {} of {} pieces of the store's file lie before the one that they follow",
            place.pieces_back, place.pieces
        ));
    } else if place.pieces_back > 0 {
        doubts.open.push(format!("on {label} the store's file lies in its order but for some"));
    }
    if spread > SPREAD_FACTOR_MAX {
        doubts.open.push(format!(
            "on {label} the store's file is spread over {spread:.1} times its bytes, so that a disk seeks further"
        ));
    }
}

/// The store's place in the trial in which the most of its pieces lay out of order.
fn worst_place(workload: &str, label: &str, records: &[Record]) -> Option<StorePlace> {
    let places = counted_trials(records, workload, label)
        .filter_map(|record| record.load.as_ref()?.store_place);
    places.max_by_key(|place| (place.pieces_back, place.span_bytes))
}

fn work(workload: &str, label: &str, records: &[Record]) -> Option<Work> {
    let deltas: Vec<DeviceDelta> =
        counted_trials(records, workload, label).filter_map(Record::run_device).collect();
    let of = |figure| Figure::over(&deltas, figure);
    Some(Work {
        label: label.to_string(),
        reads: of(|delta| delta.reads)?,
        read_bytes: of(|delta| delta.read_bytes)?,
        writes: of(|delta| delta.writes)?,
        written_bytes: of(|delta| delta.written_bytes)?,
        requests: of(|delta| delta.reads + delta.writes)?,
    })
}

fn work_words(work: &Work) -> String {
    let requests = |count: Figure, bytes: Figure, word: &str| {
        let (count, bytes) = (count.median, bytes.median);
        let each_kib = if count > 0.0 { bytes / count / 1024.0 } else { 0.0 };
        format!("{count:.0} {word} of {each_kib:.0} KiB")
    };
    let writes = requests(work.writes, work.written_bytes, "writes");
    match work.reads.median > 0.0 {
        true => {
            let reads = requests(work.reads, work.read_bytes, "reads");
            format!("{} {reads} and {writes}", work.label)
        }
        false => format!("{} {writes}", work.label),
    }
}
