//! One study on several machines: what a contender costs on machines like these, and on the next one.
//!
//! Every machine counts the same, whatever its scatter: its cost, as a logarithm, is one sample of a
//! random effect, and Student's interval over the machines is that of a random-effects model with the
//! correction of Hartung and Knapp (2001) for equal weights. It holds for few machines, and where they
//! scatter differently, it errs less often than it says (Bakirov and Székely 2006). Weighing
//! machines by their own errors would need errors that a handful of rounds does not tell.
//!
//! It knows numbers only. `lab/tests/machines.rs` simulates how often the intervals cover the truth.

use serde::{Deserialize, Serialize};

use super::compare::{ComparisonOptions, Interval, Test, Verdict, holm, verdict};
use super::distribution::Student;
use super::{StatisticsError, check_samples};

/// Fewest machines for which an interval is given.
pub const MACHINES_MIN: usize = 2;

/// What several machines say together of one contender against the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AcrossMachines {
    pub machines: usize,
    /// Geometric mean of their costs; absent where no machine has one.
    pub cost: Option<f64>,
    /// Interval of the mean cost of machines like these, corrected as [`super::compare_families`] does;
    /// absent below [`MACHINES_MIN`].
    pub interval: Option<Interval>,
    /// Where the cost that one more such machine measures is expected, with the confidence of the
    /// options, uncorrected.
    pub next: Option<Interval>,
    /// What the interval says.
    pub verdict: Verdict,
}

/// Pools the costs of each comparison over machines; the comparisons are one family.
///
/// Errors: costs that are not positive and finite, options out of range.
pub fn across_machines<S: AsRef<[f64]>>(
    family: &[S],
    options: &ComparisonOptions,
) -> Result<Vec<AcrossMachines>, StatisticsError> {
    options.check()?;
    let mut located = Vec::new();
    for costs in family {
        check_samples(costs.as_ref())?;
        located.push(Located::of(costs.as_ref()));
    }
    let alpha = 1.0 - options.confidence;
    let tests: Vec<Option<Test>> = located.iter().map(Located::test).collect();
    // The machines are looked at once, when all are there.
    let options = ComparisonOptions { looks: Vec::new(), ..options.clone() };
    let corrected = holm(&tests, alpha, &options);
    let each = located.iter().zip(corrected).map(|(found, corrected)| {
        let interval = corrected
            .map(|corrected| corrected.around(found.mean, found.half_width(corrected.level, 0.0)));
        let next = (found.count >= MACHINES_MIN).then(|| {
            let half = found.half_width(alpha, 1.0);
            Interval {
                low: (found.mean - half).exp(),
                high: (found.mean + half).exp(),
                confidence: options.confidence,
            }
        });
        AcrossMachines {
            machines: found.count,
            cost: (found.count > 0).then(|| found.mean.exp()),
            interval,
            next,
            verdict: verdict(interval.as_ref(), &options),
        }
    });
    Ok(each.collect())
}

/// The logarithms of costs.
struct Located {
    count: usize,
    mean: f64,
    variance: f64,
}

impl Located {
    fn of(costs: &[f64]) -> Located {
        let count = costs.len();
        let mean = costs.iter().map(|cost| cost.ln()).sum::<f64>() / count.max(1) as f64;
        let squares: f64 = costs.iter().map(|cost| (cost.ln() - mean).powi(2)).sum();
        Located { count, mean, variance: squares / count.saturating_sub(1).max(1) as f64 }
    }

    fn student(&self) -> Student {
        Student::new((self.count - 1) as f64)
    }

    fn test(&self) -> Option<Test> {
        (self.count >= MACHINES_MIN).then(|| {
            let error = (self.variance / self.count as f64).sqrt();
            // Machines that agree exactly differ from 1 for certain, or not at all.
            let t = if self.mean == 0.0 { 0.0 } else { self.mean.abs() / error };
            Test { p_value: self.student().two_sided(t), blocks: self.count }
        })
    }

    /// Half the width of the interval of the mean of the machines and `more` further ones, of one alone
    /// with 1.
    fn half_width(&self, alpha: f64, more: f64) -> f64 {
        let error = (self.variance * (more + 1.0 / self.count as f64)).sqrt();
        if error == 0.0 { 0.0 } else { self.student().quantile(alpha) * error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn across(family: &[&[f64]]) -> Vec<AcrossMachines> {
        across_machines(family, &ComparisonOptions::default()).unwrap()
    }

    #[test]
    fn a_case_worked_by_hand() {
        // Logarithms -0.1, 0.1 and 0.3: mean 0.1, deviation 0.2; t of 2 degrees is 4.302653.
        let costs = [-0.1f64, 0.1, 0.3].map(f64::exp);
        let found = across(&[&costs])[0];
        let interval = found.interval.unwrap();
        let half = 4.302_652_73 * 0.2 / 3f64.sqrt();
        assert!((interval.high.ln() - 0.1 - half).abs() < 1e-6, "{interval:?}");
        let next = found.next.unwrap();
        let half = 4.302_652_73 * 0.2 * (4.0f64 / 3.0).sqrt();
        assert!((next.low.ln() - 0.1 + half).abs() < 1e-6, "{next:?}");
        assert_eq!((found.machines, found.verdict), (3, Verdict::Inconclusive));
        assert!((found.cost.unwrap().ln() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn one_machine_says_nothing_of_others_and_a_family_is_corrected() {
        let found = across(&[&[1.3], &[], &[1.30, 1.31, 1.29, 1.3]]);
        assert_eq!((found[0].cost, found[0].interval, found[0].next), (Some(1.3), None, None));
        assert_eq!((found[1].cost, found[1].verdict), (None, Verdict::Inconclusive));
        assert_eq!(found[2].verdict, Verdict::Slower);
        let alone = across(&[&[1.0, 1.2, 1.1]])[0].interval.unwrap();
        let of_two = across(&[&[1.0, 1.2, 1.1], &[1.0, 1.1, 0.9]])[0].interval.unwrap();
        assert!(of_two.low < alone.low && of_two.confidence > alone.confidence);
    }

    #[test]
    fn machines_that_agree_exactly_and_costs_that_are_none() {
        let found = across(&[&[1.5, 1.5], &[1.0, 1.0]]);
        assert_eq!((found[0].interval.unwrap().low, found[0].verdict), (1.5, Verdict::Slower));
        assert_eq!(found[1].verdict, Verdict::Same { within: 0.05 });
        assert!(across_machines(&[[1.0, 0.0]], &ComparisonOptions::default()).is_err());
    }
}
