//! The reports of several slices as one: distributions of latencies merged, everything else as the
//! last slice has it. Means are the laboratory's business.

use vocabulary::report::{Latency, OVERALL_OPERATION, WorkloadReport};

use super::{histogram_log, latencies};
use measure::latency::LatencyRecording;

/// One report of several; none where there is none.
pub fn merged(reports: &[&WorkloadReport]) -> Result<Option<WorkloadReport>, String> {
    let Some(last) = reports.last() else { return Ok(None) };
    let mut whole = WorkloadReport::clone(last);
    // What only some of the slices found is no finding about all of them.
    whole.findings.retain(|words| reports.iter().all(|report| report.findings.contains(words)));
    // Slices that did not do the same work are told apart by the first that differs.
    if let Some(other) = reports.iter().find(|report| report.proof != whole.proof) {
        whole.proof = other.proof.clone();
    }
    let all = reports.iter().flat_map(|report| &report.latencies);
    let kinds = all.filter(|latency| latency.operation != OVERALL_OPERATION);
    let elapsed_ns = kinds.map(|latency| latency.total_ns).sum();
    (whole.latencies, whole.histogram_log) = distributions(reports, elapsed_ns)?;
    Ok(Some(whole))
}

/// The latencies of all reports together, and their histograms; none unless all have some.
pub(super) fn distributions(
    reports: &[&WorkloadReport],
    elapsed_ns: u64,
) -> Result<(Vec<Latency>, Option<String>), String> {
    let logs: Vec<&str> =
        reports.iter().filter_map(|report| report.histogram_log.as_deref()).collect();
    if logs.len() != reports.len() || logs.is_empty() {
        return Ok((Vec::new(), None));
    }
    let recordings: Vec<LatencyRecording> = logs
        .iter()
        .map(|log| {
            LatencyRecording::read_log(log).map_err(|error| format!("a run's latencies: {error}"))
        })
        .collect::<Result<_, _>>()?;
    let recording = LatencyRecording::merged(recordings);
    let mut latencies = latencies(&recording.summary());
    // Where those of all kinds together mean nothing, the slices have none.
    let has_any = |operation: &str| {
        let mut all = reports.iter().flat_map(|report| &report.latencies);
        all.any(|latency| latency.operation == operation)
    };
    latencies.retain(|latency| has_any(&latency.operation));
    for latency in &mut latencies {
        exact(latency, reports);
    }
    Ok((latencies, Some(histogram_log(&recording, elapsed_ns)?)))
}

/// Puts in what the histograms know to a thousandth, and the slices exactly.
fn exact(latency: &mut Latency, reports: &[&WorkloadReport]) {
    let same = || {
        let all = reports.iter().flat_map(|report| &report.latencies);
        all.filter(|other| other.operation == latency.operation)
    };
    let (bytes, total_ns) =
        (same().map(|one| one.bytes).sum(), same().map(|one| one.total_ns).sum());
    if let Some(max_ns) = same().map(|one| one.max_ns).max() {
        (latency.bytes, latency.total_ns, latency.max_ns) = (bytes, total_ns, max_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::latency::LatencyRecorder;

    fn report(latencies_ns: &[u64], proof: &str) -> WorkloadReport {
        let mut recorder = LatencyRecorder::new();
        let kind = recorder.kind("Put");
        for latency_ns in latencies_ns {
            recorder.record_many(kind, *latency_ns, 1, 10);
        }
        let recording = recorder.finish();
        WorkloadReport {
            latencies: latencies(&recording.summary()),
            histogram_log: Some(histogram_log(&recording, 1_000_000).unwrap()),
            findings: vec!["of all".into(), format!("of {proof}")],
            proof: Some(proof.into()),
            ..WorkloadReport::default()
        }
    }

    #[test]
    fn distributions_are_merged_and_sums_stay_exact() {
        let (one, other) = (report(&[1_000_001, 2_000_003], "a"), report(&[9_000_007], "a"));
        let whole = merged(&[&one, &other]).unwrap().unwrap();
        let put = &whole.latencies[0];
        assert_eq!((put.operation.as_str(), put.count, put.bytes), ("Put", 3, 30));
        assert_eq!((put.total_ns, put.max_ns), (12_000_011, 9_000_007));
        assert!(put.at(0.5).abs_diff(2_000_003) < 2_100, "{put:?}");
        assert_eq!(whole.latencies.last().unwrap().count, 3);
        assert_eq!(whole.findings, ["of all", "of a"]);
        let again = LatencyRecording::read_log(&whole.histogram_log.unwrap()).unwrap();
        assert_eq!(again.summary().overall.count, 3);
    }

    #[test]
    fn slices_without_latencies_of_all_kinds_together_have_none_together() {
        let mut reports = [report(&[1_000], "a"), report(&[2_000], "a")];
        for report in &mut reports {
            report.latencies.retain(|latency| latency.operation != OVERALL_OPERATION);
        }
        let whole = merged(&reports.iter().collect::<Vec<_>>()).unwrap().unwrap();
        let kinds: Vec<_> = whole.latencies.iter().map(|one| one.operation.as_str()).collect();
        assert_eq!(kinds, ["Put"]);
    }

    #[test]
    fn slices_that_did_other_work_do_not_hide_behind_the_last() {
        let reports = [report(&[1], "a"), report(&[1], "b"), report(&[1], "b")];
        let whole = merged(&reports.iter().collect::<Vec<_>>()).unwrap().unwrap();
        assert_eq!(whole.proof.as_deref(), Some("a"));
        assert_eq!(whole.findings, ["of all"]);
    }
}
