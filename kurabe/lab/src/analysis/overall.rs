//! All workloads of a study in one number for each contender: the geometric mean of its costs under each.
//!
//! It is computed within each round, as every cost is: in a round the logarithms of the costs under all workloads
//! are averaged, and the averages of the rounds are compared as those of one workload are. Each workload counts
//! alike, however long it takes.

use super::primary::{Primary, others};
use super::{Comparison, Unit};
use crate::plan::Plan;
use crate::statistics::{self, ComparisonOptions, Correction, Group, Runs};

/// What stands in the place of a workload's name.
pub(super) const ALL_WORKLOADS: &str = "all workloads";
/// What stands in the place of a metric's name.
pub(super) const MEAN_OF_COSTS: &str = "geometric mean of the costs";

/// The contenders that have a cost under every workload that was timed, against the baseline; nothing for a
/// single workload. A family of its own.
pub(super) fn overall(
    plan: &Plan,
    primary: &[Primary],
    options: &ComparisonOptions,
) -> Vec<Comparison> {
    let timed: Vec<&Group> = primary.iter().map(|one| &one.group).filter(|g| is_timed(g)).collect();
    if timed.len() < 2 {
        return Vec::new();
    }
    let others = others(plan);
    let group = together(&timed, others.len());
    let compared = statistics::compare_families(std::slice::from_ref(&group), options)
        .expect("costs are positive, and the margin was checked with the study");
    let metric = (MEAN_OF_COSTS.to_string(), Unit::Count);
    let both = others.iter().zip(&compared[0]).filter(|(_, compared)| compared.pairs > 0);
    both.map(|(other, compared)| Comparison {
        workload: ALL_WORKLOADS.into(),
        ..Comparison::of(plan, 0, [plan.study.baseline, *other], &metric, compared, false)
    })
    .collect()
}

/// The groups as one, each with so many contenders: of each round the geometric mean of all of them.
pub(super) fn together(groups: &[&Group], contenders: usize) -> Group {
    let places = 0..contenders;
    let of_place = |place| mean(groups.iter().map(|group| &group.contenders[place]));
    Group {
        baseline: mean(groups.iter().map(|group| &group.baseline)),
        contenders: places.clone().map(of_place).collect(),
        corrections: places.clone().map(|place| correction(groups, place)).collect(),
        slow_turns: Vec::new(),
        runs: places.map(|place| runs(groups, place)).collect(),
    }
}

/// Whether any contender has a figure: a workload that only checks has none.
fn is_timed(group: &Group) -> bool {
    std::iter::once(&group.baseline).chain(&group.contenders).flatten().any(Option::is_some)
}

/// Of each round the geometric mean of the costs under all workloads, where all have one.
fn mean<'a>(workloads: impl Iterator<Item = &'a Vec<Option<f64>>>) -> Vec<Option<f64>> {
    let workloads: Vec<&Vec<Option<f64>>> = workloads.collect();
    let rounds = workloads.iter().map(|costs| costs.len()).max().unwrap_or(0);
    (0..rounds)
        .map(|round| {
            let logs = workloads.iter().map(|costs| Some(costs.get(round).copied()??.ln()));
            let sum: f64 = logs.sum::<Option<f64>>()?;
            Some((sum / workloads.len() as f64).exp())
        })
        .collect()
}

/// What the estimated effects of the order cost in certainty: they are estimated for each workload apart.
fn correction(timed: &[&Group], place: usize) -> Correction {
    let all = || timed.iter().filter_map(|group| group.corrections.get(place));
    Correction {
        freedom: all().map(|one| one.freedom).fold(0.0, f64::max),
        variance: all().map(|one| one.variance).sum::<f64>() / (timed.len() as f64).powi(2),
    }
}

/// How far the mean of the workloads scatters for its runs, where all workloads have several runs a round. Their
/// degrees of freedom are combined as by Satterthwaite (1946).
fn runs(timed: &[&Group], place: usize) -> Option<Runs> {
    let all: Vec<Runs> =
        timed.iter().map(|group| *group.runs.get(place)?).collect::<Option<_>>()?;
    let sum: f64 = all.iter().map(|one| one.variance).sum();
    let parts: f64 = all.iter().map(|one| one.variance.powi(2) / one.freedom).sum();
    let freedom = if parts > 0.0 { sum * sum / parts } else { all[0].freedom };
    Some(Runs { variance: sum / (all.len() as f64).powi(2), freedom })
}

#[cfg(test)]
mod tests {
    use super::super::tests::STEADY;
    use super::*;
    use crate::analysis::analyse;
    use crate::fixture::{self, MILLISECOND_NS, plan_of, record_of};
    use crate::record::Record;
    use crate::statistics::Verdict;
    use crate::study::{CommandText, WorkloadText};

    /// Under the first workload as in [`STEADY`]: xfs takes twice as long. Under the second its times are those, by
    /// `factor`.
    fn records(plan: &Plan, factor: f64) -> Vec<Record> {
        let mut records = Vec::new();
        for (contender, times) in STEADY.iter().enumerate() {
            for (block, time) in times.iter().enumerate() {
                let time = *time as f64;
                let other = if contender == 1 { time * factor } else { time };
                for (workload, time) in [time, other].into_iter().enumerate() {
                    let ns = (time * MILLISECOND_NS as f64) as u64;
                    records.push(record_of(plan, workload, contender, block as u32, ns));
                }
            }
        }
        records
    }

    fn two_workloads() -> Plan {
        let mut text = fixture::study_text(&["ext4", "xfs"], 6);
        text.workloads.push(WorkloadText {
            command: Some(CommandText::Line("false".into())),
            ..Default::default()
        });
        plan_of(&text)
    }

    #[test]
    fn costs_of_2_and_of_one_half_are_1_together() {
        let plan = two_workloads();
        let found = analyse(&plan, &records(&plan, 0.25), None);
        let costs: Vec<f64> =
            found.workloads.iter().filter_map(|one| one.comparisons[0].cost()).collect();
        assert!(costs[0] > 1.9 && costs[1] < 0.55, "{costs:?}");
        let [one] = found.overall.as_slice() else { panic!("{:?}", found.overall) };
        let geometric = costs.iter().map(|cost| cost.ln()).sum::<f64>() / 2.0;
        assert!((one.cost().unwrap().ln() - geometric).abs() < 1e-9, "{one:?}");
        assert_eq!((one.contender.as_str(), one.baseline.as_str()), ("xfs", "ext4"));
        assert_eq!((one.blocks, one.primary), (6, false));
        assert_eq!(one.verdict, Verdict::Same { within: 0.05 });
        // Both a time twice as long: so is their mean.
        let found = analyse(&plan, &records(&plan, 1.0), None);
        assert_eq!(found.overall[0].verdict, Verdict::Slower);
    }

    #[test]
    fn who_lacks_a_workload_and_a_study_of_one_have_no_mean() {
        let plan = two_workloads();
        let mut all = records(&plan, 1.0);
        all.retain(|record| record.contender.label != "xfs" || record.workload != "false");
        assert_eq!(analyse(&plan, &all, None).overall, []);
        let (plan, records) = super::super::tests::steady();
        assert_eq!(analyse(&plan, &records, None).overall, []);
    }

    #[test]
    fn runs_that_scatter_widen_the_mean() {
        let group = |variance: f64| Group {
            runs: vec![Some(Runs { variance, freedom: 4.0 })],
            ..Group::default()
        };
        let (one, other) = (group(0.02), group(0.02));
        let found = runs(&[&one, &other], 0).unwrap();
        assert!((found.variance - 0.01).abs() < 1e-12 && (found.freedom - 8.0).abs() < 1e-9);
        let none = Group { runs: vec![None], ..Group::default() };
        assert_eq!(runs(&[&one, &none], 0), None);
    }
}
