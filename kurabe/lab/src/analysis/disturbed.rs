//! What becomes of the verdicts without the runs that the machine disturbed. Nothing is left out of any
//! figure for that: a caveat is worth saying where a verdict would be another one, and counted where not.

use std::collections::{BTreeMap, BTreeSet};

use super::primary::{Primary, others, primary};
use super::samples::{Samples, blocks_reached};
use super::{WorkloadAnalysis, median};
use crate::plan::Plan;
use crate::record::{Outcome, Phase, Record};
use crate::slice::RunRecord;
use crate::statistics::{ComparisonOptions, Verdict};
use crate::warning::{Warning, WarningKind};
use crate::watched::{DisturbanceCause, Disturbed, Watched, causes};
use crate::words;
use crate::workload::{ALL_CELLS, mean_of_cells};

/// Of each run of a record, its slices' or its own, what disturbed it.
type Marks = Vec<Option<DisturbanceCause>>;

/// The marks of the runs of every record, in their order, and the counts by workload and contender.
fn marks(plan: &Plan, records: &[Record]) -> (Vec<Marks>, BTreeMap<(usize, usize), Disturbed>) {
    let runs = |record: &Record| -> Vec<Option<Watched>> {
        if record.slices.is_empty() {
            vec![record.watched]
        } else {
            record.slices.iter().map(|slice| slice.watched).collect()
        }
    };
    let mut marks = vec![Marks::new(); records.len()];
    let mut counts = BTreeMap::new();
    for (workload, its) in plan.study.workloads.iter().enumerate() {
        for (contender, one) in plan.study.contenders.iter().enumerate() {
            let is_own = |record: &Record| {
                let is_counted = !record.warmup && record.outcome == Outcome::Completed;
                is_counted && record.workload == its.name && record.contender.label == one.label
            };
            let own: Vec<usize> =
                (0..records.len()).filter(|place| is_own(&records[*place])).collect();
            let processors = |place: &usize| records[*place].processors.as_ref();
            let highest = own.iter().filter_map(|place| processors(place)?.frequency_khz_max);
            let usual_khz = median(highest.map(|khz| khz as f64));
            for place in &own {
                let of_trial = processors(place).and_then(|one| one.cause(usual_khz));
                let found = causes(&runs(&records[*place])).into_iter();
                marks[*place] = found.map(|mark| mark.or(of_trial)).collect();
            }
            let found = || own.iter().flat_map(|place| &marks[*place]);
            let mut disturbed = Disturbed { of: found().count(), ..Disturbed::default() };
            found().flatten().for_each(|cause| disturbed.add(*cause, 1));
            if !disturbed.is_exception() {
                own.iter().for_each(|place| marks[*place].fill(None));
            }
            if disturbed.runs() > 0 {
                counts.insert((workload, contender), disturbed);
            }
        }
    }
    (marks, counts)
}

/// Puts the disturbed runs of every contender that has some into the workloads' analyses, and warnings
/// where a verdict of `compared` would be another one without them.
pub(super) fn tell(
    plan: &Plan,
    records: &[Record],
    (compared, options): (&[Primary], &ComparisonOptions),
    workloads: &mut [WorkloadAnalysis],
) {
    let (marks, counts) = marks(plan, records);
    for ((workload, contender), runs) in &counts {
        workloads[*workload].contenders[*contender].disturbed = Some(runs.clone());
    }
    if !counts.values().any(Disturbed::is_exception) {
        return;
    }
    let kept = without(records, &marks);
    let samples: Vec<Samples<'_>> = (0..plan.study.workloads.len())
        .map(|workload| Samples::new(plan, &kept, workload, blocks_reached(plan, &kept, workload)))
        .collect();
    let again = primary(plan, &kept, &samples, options);
    for (workload, (with, without)) in compared.iter().zip(&again).enumerate() {
        let both = with.compared.iter().zip(&without.compared);
        for (place, (one, other)) in others(plan).into_iter().zip(both) {
            // Fewer blocks alone make no verdict another one.
            if other.interval.is_none() || !is_changed(one.verdict, other.verdict) {
                continue;
            }
            let labels = |place: usize| &plan.study.contenders[place].label;
            let told = [place, plan.study.baseline].into_iter().filter_map(|place| {
                let its = counts.get(&(workload, place)).filter(|its| its.is_exception())?;
                Some(format!("{}: {its}", labels(place)))
            });
            let told: Vec<String> = told.collect();
            // What disturbed others changed no more than what all know of their scatter.
            if told.is_empty() {
                continue;
            }
            let runs = words::list(&told);
            let (contender, baseline) = (labels(place), plan.baseline_label());
            let (verdict, without) = (one.verdict, other.verdict);
            let warning = Warning::new(
                WarningKind::Disturbed,
                format!(
                    "{contender} against {baseline} is {verdict}; without the disturbed runs: {without} ({runs}); repeat it on a quiet machine"
                ),
            );
            workloads[workload].warnings.push(warning);
        }
    }
}

/// Whether a decision is another one, or none any more. How large a bound is decides nothing.
fn is_changed(one: Verdict, other: Verdict) -> bool {
    (one.is_decided() || other.is_decided())
        && std::mem::discriminant(&one) != std::mem::discriminant(&other)
}

/// The records as they would be without the marked runs: the means of the slices that are left; a
/// trial of which nothing is left has no figures.
///
/// A cell of a matrix of which one record lost all slices is left out of the mean of all cells in every
/// record of that block, so that all are compared over the same cells.
fn without(records: &[Record], marks: &[Marks]) -> Vec<Record> {
    fn unit(record: &Record) -> (&str, bool, u32) {
        (&record.workload, record.warmup, record.block)
    }
    // By block: the cells that some record lost.
    let mut lost: BTreeMap<(&str, bool, u32), BTreeSet<&str>> = BTreeMap::new();
    let is_marked = |marks: &Marks| marks.iter().any(Option::is_some);
    for (record, marks) in records.iter().zip(marks).filter(|(_, marks)| is_marked(marks)) {
        let left: BTreeSet<&str> = names(left(record, marks)).collect();
        let gone = names(record.slices.iter()).filter(|name| !left.contains(name));
        lost.entry(unit(record)).or_default().extend(gone);
    }
    let of_record = |(record, marks): (&Record, &Marks)| {
        let mut kept = record.clone();
        // In a block of which anything is left out, all figures are means of what is left.
        let Some(lost) = lost.get(&unit(record)) else { return kept };
        let left: Vec<_> = left(record, marks).collect();
        if is_marked(marks) && left.is_empty() {
            let message = "the machine disturbed all of it".into();
            kept.outcome = Outcome::Failed { phase: Phase::Run, message, output: String::new() };
        } else if !left.is_empty() {
            take_means(&mut kept, &left, lost);
            kept.slices = left.into_iter().cloned().collect();
        }
        kept
    };
    records.iter().zip(marks).map(of_record).collect()
}

/// The slices that nothing disturbed.
fn left<'a>(record: &'a Record, marks: &'a Marks) -> impl Iterator<Item = &'a RunRecord> {
    let slices = record.slices.iter().zip(marks);
    slices.filter(|(_, mark)| mark.is_none()).map(|(slice, _)| slice)
}

fn names<'a>(slices: impl Iterator<Item = &'a RunRecord>) -> impl Iterator<Item = &'a str> {
    slices.flat_map(|slice| &slice.metrics).map(|metric| metric.name.as_str())
}

/// Puts the means of these slices where the record has those of all.
fn take_means(record: &mut Record, slices: &[&RunRecord], lost: &BTreeSet<&str>) {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let time_ns = |of: fn(&RunRecord) -> u64| {
        mean(&slices.iter().map(|slice| of(slice) as f64).collect::<Vec<_>>()).round() as u64
    };
    let metrics = record.load.as_mut().map_or(&mut [][..], |load| &mut load.metrics);
    if metrics.is_empty() {
        for entry in &mut record.phases {
            match entry.phase {
                Phase::Run => entry.elapsed_ns = time_ns(|slice| slice.run_ns),
                Phase::Sync => entry.elapsed_ns = time_ns(|slice| slice.sync_ns),
                _ => {}
            }
        }
        return;
    }
    for metric in metrics.iter_mut() {
        let same = slices.iter().flat_map(|slice| &slice.metrics);
        let same = same.filter(|other| other.name == metric.name);
        let values: Vec<f64> = same.map(|other| other.value).collect();
        if !values.is_empty() {
            metric.value = mean(&values);
        }
    }
    let cells = metrics.iter().filter(|metric| !lost.contains(metric.name.as_str()));
    if let Some(of_all) = mean_of_cells(cells)
        && let Some(metric) = metrics.iter_mut().find(|metric| metric.name == ALL_CELLS)
    {
        metric.value = of_all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Analysis, analyse};
    use crate::fixture;
    use crate::watched::Processors;
    use crate::workload::{Metric, Unit, WorkloadReport};

    const BLOCKS: u32 = 8;
    const HIT: Watched = Watched {
        elapsed_ns: 15_000_000,
        stolen_ns: Some(0),
        cpu_wait_ns: None,
        io_wait_ns: None,
        memory_wait_ns: None,
        throttled: Some(1),
        own_bytes: None,
        others_bytes: None,
        others_cpu_ns: None,
    };
    const QUIET: Watched = Watched { throttled: Some(0), ..HIT };

    fn slice(time_ns: u64, watched: Watched) -> RunRecord {
        RunRecord {
            round: 0,
            position: 0,
            run_ns: time_ns,
            sync_ns: 0,
            device: None,
            idle_device: None,
            metrics: Vec::new(),
            watched: Some(watched),
        }
    }

    /// Ten slices a block of two contenders that are alike, of whom the second one has `hit` slices
    /// that take `factor` times as long.
    fn study(hit: usize, factor: f64) -> Analysis {
        let plan = fixture::plan(&["ext4", "xfs"], BLOCKS);
        let mut records = Vec::new();
        for block in 0..BLOCKS {
            for contender in 0..2 {
                let time_ns = 15_000_000 + u64::from(block * 7 % 5) * 20_000 + contender * 10_000;
                let of_slice = |number: usize| {
                    let (time_ns, watched) = if contender == 1 && number < hit {
                        ((time_ns as f64 * factor) as u64, HIT)
                    } else {
                        (time_ns, QUIET)
                    };
                    RunRecord { round: number as u32, ..slice(time_ns, watched) }
                };
                let slices: Vec<RunRecord> = (0..10).map(of_slice).collect();
                let mean_ns = slices.iter().map(RunRecord::time_ns).sum::<u64>() / 10;
                let mut record = fixture::record(&plan, contender as usize, block, mean_ns);
                record.slices = slices;
                records.push(record);
            }
        }
        analyse(&plan, &records, None)
    }

    fn told(analysis: &Analysis) -> Vec<String> {
        let all = analysis.workloads.iter().flat_map(|workload| &workload.warnings);
        let of = all.filter(|warning| warning.kind == WarningKind::Disturbed);
        of.map(Warning::to_string).collect()
    }

    #[test]
    fn a_verdict_that_rests_on_disturbed_slices_is_told() {
        let analysis = study(2, 3.0);
        assert_eq!(analysis.workloads[0].comparisons[0].verdict, Verdict::Slower);
        let found = analysis.workloads[0].contenders[1].disturbed.as_ref().unwrap();
        assert_eq!((found.runs(), found.of), (16, 80));
        assert_eq!(analysis.workloads[0].contenders[0].disturbed, None);
        let told = told(&analysis);
        let expected = "xfs against ext4 is slower; without the disturbed runs: same within 5 % \
            (xfs: 16 of 80 runs, throttling)";
        assert!(told.len() == 1 && told[0].contains(expected), "{told:?}");
    }

    #[test]
    fn what_changes_no_verdict_is_counted_and_not_told() {
        for analysis in [study(2, 1.01), study(0, 1.0)] {
            assert!(matches!(analysis.workloads[0].comparisons[0].verdict, Verdict::Same { .. }));
            assert_eq!(told(&analysis), [""; 0]);
        }
        assert!(study(2, 1.01).workloads[0].contenders[1].disturbed.is_some());
        assert!(study(0, 1.0).workloads[0].contenders[1].disturbed.is_none());
        // What disturbs most of them is how this machine is.
        assert_eq!(told(&study(8, 3.0)), [""; 0]);
    }

    #[test]
    fn a_disturbed_trial_that_took_no_turns_is_left_out_whole() {
        let plan = fixture::plan(&["ext4", "xfs"], BLOCKS);
        let mut times = [1003, 997, 1001, 999, 1002, 998, 1000, 1000];
        let mut records = fixture::records(&plan, &[&times, &times]);
        assert_eq!(told(&analyse(&plan, &records, None)), [""; 0]);
        (times[2], times[5]) = (1900, 1700);
        let is_hit =
            |record: &Record| record.contender.label == "xfs" && [2, 5].contains(&record.block);
        for record in &mut records {
            record.watched = Some(QUIET);
            if is_hit(record) {
                record.watched = Some(HIT);
                fixture::run_of(record).elapsed_ns = times[record.block as usize] * 1_000_000;
            }
        }
        let told = told(&analyse(&plan, &records, None));
        assert!(told.len() == 1 && told[0].contains("2 of 8 runs"), "{told:?}");
        assert!(told[0].contains("runs: same within 5 %"), "{told:?}");
    }

    #[test]
    fn a_trial_under_slower_processors_or_another_governor_is_disturbed() {
        let plan = fixture::plan(&["ext4", "xfs"], BLOCKS);
        let times = [1003, 997, 1001, 999, 1002, 998, 1000, 1000];
        let mut records = fixture::records(&plan, &[&times, &times]);
        let of = |khz: u64, governor_changed: bool| Processors {
            governors: vec!["powersave".into()],
            governor_changed,
            frequency_khz_min: Some(800_000),
            frequency_khz_max: Some(khz),
        };
        let found = |records: &[Record]| {
            let found = analyse(&plan, records, None).workloads.remove(0).contenders;
            found.into_iter().map(|one| one.disturbed).collect::<Vec<_>>()
        };
        for record in &mut records {
            // Whoever waits for its device keeps processors slow by itself, in all of its trials.
            let usual_khz = if record.contender.label == "xfs" { 1_500_000 } else { 3_000_000 };
            record.processors = Some(of(usual_khz, false));
        }
        assert_eq!(found(&records), [None, None]);
        let is_hit = |record: &&mut Record| record.contender.label == "xfs" && record.block < 3;
        for record in records.iter_mut().filter(is_hit) {
            let is_first = record.block == 0;
            record.processors = Some(of(if is_first { 1_500_000 } else { 1_100_000 }, is_first));
        }
        let causes = vec![(DisturbanceCause::Frequency, 2), (DisturbanceCause::Governor, 1)];
        assert_eq!(found(&records), [None, Some(Disturbed { causes, of: 8 })]);
    }

    #[test]
    fn a_cell_that_is_lost_in_one_record_counts_in_none_of_its_block() {
        let plan = fixture::plan(&["ext4", "xfs"], 2);
        let metric = |name: &str, value: f64| Metric::new(name, value, Unit::OperationsPerSecond);
        let names = ["randread-psync-1-4k", "randread-psync-1-64k"];
        let mut records = Vec::new();
        for block in 0..2 {
            for contender in 0..2 {
                let mut record = fixture::record(&plan, contender, block, 1_000_000);
                let values = [400.0, 100.0 + contender as f64];
                let watched = |name| match (contender, block, name) {
                    (1, 0, 0) => HIT,
                    _ => QUIET,
                };
                record.slices = (0..2)
                    .map(|name| RunRecord {
                        metrics: vec![metric(names[name], values[name])],
                        ..slice(1_000_000, watched(name))
                    })
                    .collect();
                let cells = [0, 1].map(|name| fixture::cell(names[name], values[name]));
                let mean = metric(ALL_CELLS, mean_of_cells(cells.iter()).unwrap());
                let metrics = std::iter::once(mean).chain(cells).collect();
                record.load = Some(WorkloadReport { metrics, ..WorkloadReport::default() });
                records.push(record);
            }
        }
        let (marks, counts) = marks(&plan, &records);
        assert_eq!(counts[&(0, 1)].runs(), 1);
        let of_all = |record: &Record| record.metrics()[0].value;
        let kept: Vec<f64> = without(&records, &marks).iter().map(of_all).collect();
        for (kept, expected) in kept.iter().zip([100.0, 101.0, 200.0, (400.0 * 101.0_f64).sqrt()]) {
            assert!((kept - expected).abs() < 1e-9, "{kept} {expected}");
        }
    }
}
