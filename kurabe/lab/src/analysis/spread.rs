//! Contenders whose trials differ by so large a factor that something besides the file system was
//! measured.
//!
//! The rules of drift and outliers need five and more trials to tell a fault from chance, and a
//! ceiling is none of theirs. This one is a plain factor, which two trials are enough for.

use super::{Samples, median};
use crate::warning::{Warning, WarningKind};
use crate::words;
use crate::workload::STATISTIC_AXIS;

/// From this factor between the largest and the smallest value on, a contender is named.
///
/// Three ratios of which one is 2.5 times another have an interval that spans more than a factor of
/// ten, whatever the third is, and are *too wide to tell*: from there on nothing but the scatter
/// decides what is seen. Noise of 30 % has such a factor about once in twenty trials.
const FACTOR_MIN: f64 = 3.0;

/// The warning that names each contender with such trials and its metric that differs most, the worst
/// contender first.
pub(super) fn spread(samples: &Samples<'_>, labels: &[&str]) -> Option<Warning> {
    // Extremes differ from run to run by their nature.
    let figures = samples.figures().into_iter();
    let metrics = figures.filter(|metric| !metric.axes.contains_key(STATISTIC_AXIS));
    let metrics: Vec<String> = metrics.map(|metric| metric.name).collect();
    let mut spreads: Vec<(f64, String)> = Vec::new();
    for (contender, label) in labels.iter().enumerate() {
        let apart = metrics.iter().filter_map(|metric| {
            let values = samples.values(contender, metric);
            let (factor, block) = factor(&values)?;
            (factor >= FACTOR_MIN).then_some((factor, block, metric))
        });
        let mut apart: Vec<(f64, u32, &String)> = apart.collect();
        // Of equal ones (operations and bytes of one job) the first, the more important one, stays in
        // front.
        let rounded = |factor: f64| (factor * 1e6).round();
        apart.sort_by(|one, other| rounded(other.0).total_cmp(&rounded(one.0)));
        if let Some((factor, block, metric)) = apart.first() {
            let metrics = match metrics.len() {
                1 => String::new(),
                all => format!(", '{metric}'; by 3 or more in {} of {all} metrics", apart.len()),
            };
            let (times, block) = (words::factor(*factor), block + 1);
            let said = format!("{label} by a factor of {times} (round {block}{metrics})");
            spreads.push((*factor, said));
        }
    }
    spreads.sort_by(|one, other| other.0.total_cmp(&one.0));
    let each: Vec<String> = spreads.into_iter().map(|(_, said)| said).collect();
    let text = format!(
        "runs vary widely: {}; look for other work on the machine, then measure longer and raise --min-rounds",
        words::list(&each)
    );
    (!each.is_empty()).then(|| Warning::new(WarningKind::Spread, text))
}

/// The largest of the values over the smallest, and the block of the one that lies farther from
/// their median; of two values alone the smaller.
fn factor(values: &[Option<f64>]) -> Option<(f64, u32)> {
    let of_blocks = || values.iter().enumerate().filter_map(|(at, value)| Some((at, (*value)?)));
    let by_value = |one: &(usize, f64), other: &(usize, f64)| one.1.total_cmp(&other.1);
    let (least, most) = (of_blocks().min_by(by_value)?, of_blocks().max_by(by_value)?);
    // Of a zero nothing is a multiple.
    if least.1 == 0.0 {
        return None;
    }
    let middle = median(of_blocks().map(|(_, value)| value.ln()))?.exp();
    let farther = if most.1 / middle > middle / least.1 * (1.0 + 1e-9) { most } else { least };
    Some((most.1 / least.1, farther.0 as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::fixture;
    use crate::statistics::{ComparisonOptions, compare};
    use crate::words::is_telling;
    use crate::workload::{Metric, Unit, WorkloadReport};

    fn found(times_ms: &[&[u64]]) -> Option<String> {
        let plan = fixture::plan(&["ext4", "xfs"], 4);
        let records = fixture::records(&plan, times_ms);
        let warnings = analyse(&plan, &records, None).workloads.remove(0).warnings;
        warnings.into_iter().find(|one| one.kind == WarningKind::Spread).map(|one| one.text)
    }

    #[test]
    fn a_contender_whose_trials_lie_far_apart_is_named_with_the_block() {
        // As it was reported: every drift and outlier rule is silent about these.
        let said = found(&[&[1000, 1010, 43000, 990], &[900, 2900, 950, 1000]]).unwrap();
        let each = "ext4 by a factor of 43 (round 3) and xfs by a factor of 3.2 (round 2);";
        assert!(said.contains(each), "{said}");
        // Two trials are enough, and the slow one of two is a smaller rate and a longer time.
        assert!(found(&[&[100, 299], &[400, 100]]).unwrap().contains("widely: xfs by"));
        assert_eq!(found(&[&[100, 299], &[300, 120]]), None);
    }

    #[test]
    fn of_many_figures_the_worst_is_told_with_their_number() {
        let plan = fixture::plan(&["ext4", "xfs"], 3);
        let mut records = fixture::records(&plan, &[&[1000; 3], &[1000; 3]]);
        for record in &mut records {
            let slow = record.block == 1 && record.contender.label == "xfs";
            let metric = |name: &str, slowed: f64| {
                Metric::new(
                    name,
                    if slow { 1000.0 / slowed } else { 1000.0 },
                    Unit::OperationsPerSecond,
                )
            };
            record.load = Some(WorkloadReport {
                metrics: vec![
                    metric("mean", 2.0),
                    metric("4k", 4.0),
                    metric("8k", 20.0),
                    // A single operation decides it, so that it says nothing.
                    Metric::maximum("longest", if slow { 9000.0 } else { 9.0 }, Unit::Nanoseconds),
                ],
                ..Default::default()
            });
        }
        let warnings = analyse(&plan, &records, None).workloads.remove(0).warnings;
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.is_grave());
        let text = warning.to_string();
        let expected = "xfs by a factor of 20 (round 2, '8k'; by 3 or more in 2 of 3 metrics)";
        assert!(text.contains(expected) && text.contains("raise --min-rounds"), "{text}");
    }

    /// What the threshold is for: beside a steady baseline nothing can be said of such trials.
    #[test]
    fn three_trials_that_earn_the_warning_have_an_interval_too_wide_to_tell() {
        for middle in [1.0, 1.3, 2.0, 2.7, 3.0] {
            let spread = [1.0, middle, FACTOR_MIN];
            let found = compare(&[2.0; 3], &spread, &ComparisonOptions::default()).unwrap();
            let interval = found.interval.unwrap();
            assert!(!is_telling(interval.low, interval.high), "{middle}: {interval:?}");
        }
    }
}
