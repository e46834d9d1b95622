//! The checks of a contender over its trials. Every trial counts, a warm-up and one of a block that
//! was not finished too: what was lost there was lost.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::WorkloadAnalysis;
use super::samples::Samples;
use crate::record::{Check, CheckVerdict};
use crate::statistics;
use crate::words::{list, share_text, thousands};
use crate::workload::Unit;

/// What the trials of one contender say of one check.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckAnalysis {
    /// All tries and violations together, with the first violation in the order of the trials.
    #[serde(flatten)]
    pub check: Check,
    /// Trials that have the check.
    pub trials: usize,
    pub verdict: CheckVerdict,
    /// Where it held each time: the greatest share of violations that is still believable
    /// ([`statistics::none_of`]).
    pub bound: Option<f64>,
}

impl CheckAnalysis {
    /// `3 of 10,000`.
    pub fn count_words(&self) -> String {
        count_words(self.check.violated, self.check.tried)
    }

    /// `contents held (10,000 of 10,000)`, `contents violated (3 of 10,000)`: the verdict, and how often it was so.
    pub fn words(&self) -> String {
        let (name, verdict, tried) = (&self.check.name, self.verdict, self.check.tried);
        match verdict {
            CheckVerdict::NotTried => format!("{name} {verdict}"),
            CheckVerdict::Held => format!("{name} {verdict} ({})", count_words(tried, tried)),
            CheckVerdict::Violated => format!("{name} {verdict} ({})", self.count_words()),
            CheckVerdict::NotPromised => {
                format!("{name} {verdict} ({} did not hold)", self.count_words())
            }
        }
    }

    /// All that there is to say in a line: the count, the bound, the first violation.
    pub fn sentence(&self) -> String {
        let mut said = self.words();
        if let Some(bound) = self.bound {
            let bound = share_text(bound);
            said.push_str(&format!(", so at most {bound} are violated, with 95 % confidence"));
        }
        for (what, words) in [("the first", &self.check.first), ("see", &self.check.evidence)] {
            said.extend(words.iter().map(|words| format!("; {what}: {words}")));
        }
        said
    }
}

fn count_words(violated: u64, tried: u64) -> String {
    format!("{} of {}", thousands(violated), thousands(tried))
}

/// Why the metrics of a contender are not compared: `lost data: 3 of 10,000 checks violated
/// (contents)`. None where no check is violated.
pub fn violation_words(checks: &[CheckAnalysis]) -> Option<String> {
    let violated = || checks.iter().filter(|one| one.verdict == CheckVerdict::Violated);
    let names: Vec<String> = violated().map(|one| one.check.name.clone()).collect();
    let sum =
        |of: fn(&Check) -> u64| violated().map(|one| of(&one.check)).fold(0, u64::saturating_add);
    let count = count_words(sum(|check| check.violated), sum(|check| check.tried));
    (!names.is_empty()).then(|| format!("lost data: {count} checks violated ({})", list(&names)))
}

/// A check of one contender under one workload, as `comparisons.json` has it: beside the fields of
/// a comparison, which are empty, those of the check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckRow<'a> {
    workload: &'a str,
    contender: &'a str,
    baseline: Option<&'a str>,
    metric: String,
    unit: Unit,
    blocks: usize,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    confidence: f64,
    #[serde(flatten)]
    found: &'a CheckAnalysis,
}

/// The checks of one contender, in the order in which they first occur.
pub(super) fn checks(samples: &Samples<'_>, contender: usize) -> Vec<CheckAnalysis> {
    let records = &samples.checked[contender];
    let mut all: Vec<Check> = Vec::new();
    Check::add_all(&mut all, records.iter().flat_map(|record| record.checks.clone()));
    let analysed = all.into_iter().map(|check| {
        let has_it = |one: &&Check| one.name == check.name;
        let trials = records.iter().filter(|r| r.checks.iter().any(|one| has_it(&one))).count();
        let verdict = check.verdict();
        let bound = statistics::none_of(check.tried).filter(|_| verdict == CheckVerdict::Held);
        CheckAnalysis { check, trials, verdict, bound }
    });
    analysed.collect()
}

/// The rows of the checks of all workloads.
pub(super) fn rows(workloads: &[WorkloadAnalysis]) -> impl Iterator<Item = CheckRow<'_>> {
    workloads.iter().flat_map(|workload| {
        workload.contenders.iter().flat_map(|contender| {
            contender.checks.iter().map(|found| CheckRow {
                workload: &workload.workload,
                contender: &contender.label,
                baseline: None,
                metric: format!("check {}", found.check.name),
                unit: Unit::Count,
                blocks: found.trials,
                ratio: None,
                low: None,
                high: None,
                confidence: statistics::NONE_OF_CONFIDENCE,
                found,
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{ComparisonRow, analyse};
    use crate::fixture;
    use crate::plan::Plan;
    use crate::record::Record;
    use crate::statistics::Verdict;
    use crate::workload::{Metric, WorkloadReport};

    fn check(tried: u64, violated: u64) -> Check {
        let first = (violated > 0).then(|| "byte 7 differs".to_string());
        Check { tried, violated, first, ..Check::new("contents") }
    }

    /// Four blocks of ext4, xfs (half as long) and btrfs (a tenth), each checked in every trial.
    fn three(violated: impl Fn(&Record) -> u64) -> (Plan, Vec<Record>) {
        let plan = fixture::plan(&["ext4", "xfs", "btrfs"], 4);
        let times = [[1000, 1010, 1020, 990], [500, 510, 520, 490], [100, 101, 102, 99]];
        let mut records = fixture::records(&plan, &times.each_ref().map(|times| &times[..]));
        for record in &mut records {
            record.checks = vec![check(2500, violated(record))];
        }
        (plan, records)
    }

    #[test]
    fn checks_are_merged_over_the_trials_and_a_violated_one_takes_part_in_no_comparison() {
        let is_third = |record: &Record| record.contender.label == "btrfs" && record.block == 2;
        let (plan, records) = three(|record| u64::from(is_third(record)) * 3);
        let analysis = analyse(&plan, &records, None);
        let [ext4, _, btrfs] = &analysis.workloads[0].contenders[..] else { panic!() };
        assert_eq!(ext4.checks[0].words(), "contents held (10,000 of 10,000)");
        assert!((ext4.checks[0].bound.unwrap() - 0.000_299_5).abs() < 1e-6);
        assert_eq!((ext4.checks[0].trials, ext4.violation()), (4, None));
        assert_eq!(
            (btrfs.checks[0].verdict, btrfs.checks[0].bound),
            (CheckVerdict::Violated, None)
        );
        assert_eq!(
            btrfs.checks[0].sentence(),
            "contents violated (3 of 10,000); the first: byte 7 differs"
        );
        let lost = "lost data: 3 of 10,000 checks violated (contents)";
        assert_eq!(btrfs.violation().as_deref(), Some(lost));
        // The record and its time are kept; the time has no ratio.
        assert_eq!((btrfs.failed, btrfs.metrics[0].summary.count), (0, 4));
        let verdicts: Vec<_> =
            analysis.workloads[0].comparisons.iter().map(|c| c.verdict).collect();
        assert_eq!(verdicts, [Verdict::Faster, Verdict::Inconclusive]);
        assert_eq!(analysis.workloads[0].comparisons[1].ratio, None);
        assert!(analysis.workloads[0].exploratory.iter().all(|one| one.contender != "btrfs"));
        let rows = serde_json::to_value(analysis.rows()).unwrap();
        let row = rows.as_array().unwrap().last().unwrap();
        assert_eq!(
            (&row["contender"], &row["metric"]),
            (&"btrfs".into(), &"check contents".into())
        );
        assert_eq!((&row["violated"], &row["verdict"]), (&3.into(), &"violated".into()));
        assert!(row["ratio"].is_null() && row["first"] == "byte 7 differs", "{row}");
    }

    #[test]
    fn a_violation_in_a_warm_up_or_an_unfinished_block_counts() {
        let (plan, mut records) = three(|_| 0);
        let mut warmup = records.pop().unwrap();
        assert_eq!(analyse(&plan, &records, None).workloads[0].contenders[1].violation(), None);
        (warmup.warmup, warmup.checks) = (true, vec![check(1, 1)]);
        records.push(warmup);
        // Without btrfs's trial of the last block that block is not finished either.
        let last = records.iter_mut().find(|r| r.block == 3 && r.contender.label == "xfs").unwrap();
        last.checks = vec![check(1, 1)];
        let analysis = analyse(&plan, &records, None);
        let violated = analysis.workloads[0].contenders.iter().map(|c| c.violation().is_some());
        assert_eq!(violated.collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn a_trial_that_only_checks_stands_beside_the_timed_one() {
        let (plan, mut records) = three(|_| 0);
        let timed = analyse(&plan, &records, None);
        for contender in 0..3 {
            let mut record = fixture::record(&plan, contender, 0, 0);
            record.phases.clear();
            record.trial += 1000;
            record.checks = vec![Check { name: "durability".into(), ..check(400, 0) }];
            records.push(record);
        }
        let both = analyse(&plan, &records, None);
        assert_eq!(both.workloads[0].comparisons, timed.workloads[0].comparisons);
        let ext4 = &both.workloads[0].contenders[0];
        let words: Vec<String> = ext4.checks.iter().map(CheckAnalysis::words).collect();
        assert_eq!(words, ["contents held (10,000 of 10,000)", "durability held (400 of 400)"]);
        assert_eq!(ext4.trials, 4);
    }

    #[test]
    fn what_is_checked_and_not_timed_has_checks_and_no_ratios() {
        let (plan, mut records) = three(|_| 0);
        for record in &mut records {
            record.load = Some(WorkloadReport::default());
        }
        let analysis = analyse(&plan, &records, None);
        let workload = &analysis.workloads[0];
        assert!(workload.comparisons.is_empty());
        assert!(workload.contenders.iter().all(|c| c.metrics.is_empty() && c.checks.len() == 1));
        assert_eq!(workload.contenders.iter().map(|c| c.trials).sum::<usize>(), 12);
        assert!(matches!(analysis.rows().last(), Some(ComparisonRow::Check(_))));
        assert!(crate::analysis::next_step(&plan, &records, 4).is_over());
    }

    #[test]
    fn a_zero_is_shown_and_decided_where_nothing_varies() {
        let plan = fixture::plan(&["ext4", "xfs", "btrfs"], 4);
        let mut records = fixture::records(&plan, &[&[1000; 4], &[1000; 4], &[1000; 4]]);
        for record in &mut records {
            let value = match (record.contender.label.as_str(), record.block) {
                ("ext4", _) | ("btrfs", 0) => 0.0,
                ("xfs", _) => 3.0,
                (_, block) => f64::from(block),
            };
            let metric = |name: &str, value, unit| Metric::new(name, value, unit);
            record.load = Some(WorkloadReport {
                metrics: vec![
                    metric("lost", value, Unit::Count),
                    metric("kept", value, Unit::OperationsPerSecond),
                ],
                ..Default::default()
            });
        }
        let workload = analyse(&plan, &records, None).workloads.remove(0);
        assert_eq!(workload.contenders[0].metrics[0].summary.median, 0.0);
        let found: Vec<_> = workload.comparisons.iter().map(|c| (c.ratio, c.verdict)).collect();
        let open = (None, Verdict::Inconclusive);
        assert_eq!(found, [(None, Verdict::Slower), open, (None, Verdict::Faster), open]);
        assert_eq!(workload.comparisons[0].blocks, 4);
    }
}
