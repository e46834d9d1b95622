//! Whether the contenders made the device do the same work under the same program.

use super::{Finding, Outcome};
use crate::analysis::{self, WorkloadAnalysis};
use crate::load::STORE_PLACE;
use crate::plan::Plan;
use crate::record::{DeviceDelta, Outcome as TrialOutcome, Record};

/// What a contender's device did under a workload, in the median trial.
struct Work {
    label: String,
    reads: f64,
    read_bytes: f64,
    writes: f64,
    written_bytes: f64,
}

/// Bytes and requests of the device by contender, and where each file system put the store.
pub(super) fn same_access(
    workloads: &[&WorkloadAnalysis],
    plan: &Plan,
    records: &[Record],
) -> Finding {
    let mut evidence = Vec::new();
    for workload in workloads {
        let all: Vec<Work> = plan
            .study
            .contenders
            .iter()
            .filter_map(|contender| work(&workload.workload, &contender.label, records))
            .collect();
        if all.is_empty() {
            continue;
        }
        let words: Vec<String> = all.iter().map(words).collect();
        evidence.push(format!(
            "{}: {}; {} and {}",
            workload.workload,
            words.join(", "),
            apart("bytes read", all.iter().map(|work| work.read_bytes)),
            apart("bytes written", all.iter().map(|work| work.written_bytes)),
        ));
        for contender in &workload.contenders {
            let places = contender.findings.iter().filter(|text| text.starts_with(STORE_PLACE));
            evidence.extend(
                places.map(|place| format!("{}: {}: {place}", workload.workload, contender.label)),
            );
        }
    }
    if evidence.is_empty() {
        return Finding::untested("the device's requests were not counted");
    }
    Finding::new(Outcome::Answered, evidence)
}

fn work(workload: &str, label: &str, records: &[Record]) -> Option<Work> {
    let deltas: Vec<DeviceDelta> = records
        .iter()
        .filter(|record| !record.warmup && record.outcome == TrialOutcome::Completed)
        .filter(|record| record.workload == workload && record.contender.label == label)
        .filter_map(Record::run_device)
        .collect();
    // The same median as that of the costs in the tables, so that no page has two.
    let median = |figure: fn(&DeviceDelta) -> u64| {
        analysis::median(deltas.iter().map(|delta| figure(delta) as f64))
    };
    Some(Work {
        label: label.to_string(),
        reads: median(|delta| delta.reads)?,
        read_bytes: median(|delta| delta.read_bytes)?,
        writes: median(|delta| delta.writes)?,
        written_bytes: median(|delta| delta.written_bytes)?,
    })
}

fn words(work: &Work) -> String {
    let requests = |count: f64, bytes: f64, word: &str| {
        let each_kib = if count > 0.0 { bytes / count / 1024.0 } else { 0.0 };
        format!("{count:.0} {word} of {each_kib:.0} KiB")
    };
    match work.reads > 0.0 {
        true => format!(
            "{} {} and {}",
            work.label,
            requests(work.reads, work.read_bytes, "reads"),
            requests(work.writes, work.written_bytes, "writes")
        ),
        false => {
            format!("{} {}", work.label, requests(work.writes, work.written_bytes, "writes"))
        }
    }
}

/// `bytes read differ by up to 3 %`: the greatest over the least.
fn apart(what: &str, values: impl Iterator<Item = f64> + Clone) -> String {
    let greatest = values.clone().fold(0.0, f64::max);
    let least = values.fold(f64::INFINITY, f64::min);
    match greatest > 0.0 {
        false => format!("no {what}"),
        true if least <= 0.0 => format!("{what} up to {:.0} MiB", greatest / 1_048_576.0),
        true => format!("{what} differ by up to {:.0} %", (greatest / least - 1.0) * 100.0),
    }
}
