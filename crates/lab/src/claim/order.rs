//! Whether a contender is the best or the worst of all.
//!
//! Where the pair stands in the ranking, its comparison there is quoted, in the same direction and
//! with the same interval. Whether one of many rivals contradicts the claim is a matter of the
//! claim's own family; where that asks for more than the ranking does, both are told.

use super::{Claim, Finding, Outcome, Ratio, all_labels, list, of_all};
use crate::analysis::{self, Comparison, WorkloadAnalysis};
use crate::load::Unit;
use crate::plan::Plan;
use crate::record::Record;
use crate::statistics::{self, ComparisonOptions, Verdict};
use crate::words::{interval, ratio_with_interval};

/// A rival of the contender under one workload, compared with it.
struct Rival<'a> {
    label: &'a str,
    /// The rival's performance over the contender's.
    ratio: Ratio,
    /// Whether the two are the same within the study's margin.
    same: bool,
    /// The comparison as it is printed.
    shown: Shown<'a>,
}

/// How a pair is printed: the figure of `over` over that of `under`.
struct Shown<'a> {
    over: &'a str,
    under: &'a str,
    in_ranking: bool,
    /// Whether that is the reciprocal of the rival's performance over the contender's.
    is_inverse: bool,
}

impl Shown<'_> {
    fn value(&self, ratio: f64) -> f64 {
        if self.is_inverse { ratio.recip() } else { ratio }
    }

    fn ends(&self, (low, high): (f64, f64)) -> (f64, f64) {
        if self.is_inverse { (high.recip(), low.recip()) } else { (low, high) }
    }
}

/// The rivals under one workload.
struct Field<'a> {
    workload: &'a WorkloadAnalysis,
    metric: String,
    rivals: Vec<Rival<'a>>,
    /// Those without a common block.
    absent: Vec<&'a str>,
}

/// Whether the claim's contender is the best (or the worst) in every one of the workloads, by the
/// claim's margin at least.
///
/// It holds when it is so beyond doubt against each rival by the interval that is printed, which
/// is corrected for no fewer comparisons than that needs. It fails when one rival is beyond doubt
/// otherwise by that interval and by the one of the claim's family: all rivals in all workloads.
pub(super) fn extreme(
    workloads: &[&WorkloadAnalysis],
    plan: &Plan,
    records: &[Record],
    claim: &Claim,
    best: bool,
) -> Finding {
    let contender = claim.contender.as_deref().unwrap_or_default();
    let labels = rivals_of(plan, claim);
    let count = workloads.len() * labels.len();
    let levels = Levels { workloads: workloads.len(), count, is_plain: claim.by.is_none_or(zero) };
    let bar = 1.0 + claim.by.unwrap_or(0.0);
    let (mut outcomes, mut evidence, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    for workload in workloads {
        let mut field = field(workload, plan, records, claim, &labels, &levels);
        absent.extend(
            field
                .absent
                .iter()
                .map(|label| format!("{label} beside {contender} under {}", workload.workload)),
        );
        field.rivals.sort_by(|one, other| other.ratio.ratio.total_cmp(&one.ratio.ratio));
        let judged: Vec<(&Rival<'_>, Outcome)> = field
            .rivals
            .iter()
            .map(|rival| {
                let outcome = match rival.same && levels.is_plain {
                    true => Outcome::Inconclusive,
                    false if best => rival.ratio.below(bar.recip()),
                    false => rival.ratio.above(bar),
                };
                (rival, outcome)
            })
            .collect();
        outcomes.extend(judged.iter().map(|(_, outcome)| *outcome));
        if !judged.is_empty() {
            evidence.push(sentence(&field, plan, claim, &judged, best, count));
        }
    }
    let mut finding = Finding::new(of_all(&outcomes), evidence);
    if !claim.except.is_empty() {
        let excepted = list(&claim.except);
        finding.evidence.push(format!("not among the rivals, as the claim has it: {excepted}"));
    }
    finding.without(&absent)
}

fn zero(by: f64) -> bool {
    by <= 0.0
}

/// Labels of those that the claim's contender is compared with.
fn rivals_of<'a>(plan: &'a Plan, claim: &'a Claim) -> Vec<&'a str> {
    let mut labels: Vec<&str> = match claim.than.is_empty() {
        true => all_labels(plan),
        false => claim.than.iter().map(String::as_str).collect(),
    };
    let contender = claim.contender.as_deref();
    labels.retain(|label| {
        Some(*label) != contender && !claim.except.iter().any(|named| named == label)
    });
    labels
}

/// How many comparisons of a claim decide together.
struct Levels {
    workloads: usize,
    count: usize,
    /// Whether the claim is about a difference, without a margin.
    is_plain: bool,
}

impl Levels {
    /// The comparisons of the contender (`own`) with its rivals by the claim's family. Of a
    /// difference: Holm's procedure over the rivals, at a level that is shared by the workloads. Of
    /// a margin, for which Holm's steps are not made: Bonferroni over all.
    fn compare(
        &self,
        own: &[Option<f64>],
        rivals: &[Vec<Option<f64>>],
        plain: &ComparisonOptions,
    ) -> Vec<statistics::Comparison> {
        let shared_by = |count: usize| ComparisonOptions {
            confidence: 1.0 - (1.0 - plain.confidence) / count.max(1) as f64,
            ..*plain
        };
        const CHECKED: &str = "costs are positive, and the margin was checked with the study";
        match self.is_plain {
            true => statistics::compare_family(own, rivals, &shared_by(self.workloads)),
            false => rivals
                .iter()
                .map(|rival| {
                    let (own, rival) = statistics::pairs(own, rival);
                    statistics::compare(&own, &rival, &shared_by(self.count))
                })
                .collect(),
        }
        .expect(CHECKED)
    }
}

fn field<'a>(
    workload: &'a WorkloadAnalysis,
    plan: &'a Plan,
    records: &[Record],
    claim: &'a Claim,
    labels: &[&'a str],
    levels: &Levels,
) -> Field<'a> {
    let contender = claim.contender.as_deref().unwrap_or_default();
    let costs = analysis::costs(plan, records, &workload.workload, claim.metric.as_deref());
    let (metric, unit) = costs.metric;
    let of = |label: &str| {
        let place = plan.study.contenders.iter().position(|contender| contender.label == label);
        place.and_then(|place| costs.values.get(place)).cloned().unwrap_or_default()
    };
    let others: Vec<Vec<Option<f64>>> = labels.iter().map(|label| of(label)).collect();
    let compared = levels.compare(&of(contender), &others, &analysis::options(plan));
    let (mut rivals, mut absent) = (Vec::new(), Vec::new());
    for (label, compared) in labels.iter().zip(compared) {
        let quoted = workload.comparisons.iter().find(|entry| {
            let pair = (entry.contender.as_str(), entry.baseline.as_str());
            entry.metric == metric && (pair == (*label, contender) || pair == (contender, *label))
        });
        match rival(label, contender, unit, compared, quoted) {
            Some(rival) => rivals.push(rival),
            None => absent.push(*label),
        }
    }
    Field { workload, metric, rivals, absent }
}

/// A pair by the claim's own comparison, of the rival's cost over the contender's, and by the one
/// of the ranking, where it has the pair. None without a common block.
fn rival<'a>(
    label: &'a str,
    contender: &'a str,
    unit: Unit,
    compared: statistics::Comparison,
    quoted: Option<&'a Comparison>,
) -> Option<Rival<'a>> {
    let more_is_better = unit.more_is_better();
    let ends = compared.interval.map(|found| (found.high.recip(), found.low.recip()));
    let shown = match quoted {
        Some(quoted) => Shown {
            over: &quoted.contender,
            under: &quoted.baseline,
            in_ranking: true,
            is_inverse: (quoted.contender == label) != more_is_better,
        },
        None => {
            Shown { over: contender, under: label, in_ranking: false, is_inverse: more_is_better }
        }
    };
    let (ratio, own, same) = match quoted {
        // Turning it round twice gives it back.
        Some(quoted) => (
            shown.value(quoted.ratio?),
            quoted.low.zip(quoted.high).map(|ends| shown.ends(ends)),
            matches!(quoted.verdict, Verdict::Same { .. }),
        ),
        None => (compared.ratio?.recip(), ends, matches!(compared.verdict, Verdict::Same { .. })),
    };
    Some(Rival { label, ratio: Ratio { ratio, alone: own, among_all: ends }, same, shown })
}

fn sentence(
    field: &Field<'_>,
    plan: &Plan,
    claim: &Claim,
    judged: &[(&Rival<'_>, Outcome)],
    best: bool,
    count: usize,
) -> String {
    let words = |rival: &Rival<'_>| {
        let Shown { over, under, in_ranking, .. } = rival.shown;
        let value = rival.shown.value(rival.ratio.ratio);
        let ends = rival.ratio.alone.map(|ends| rival.shown.ends(ends));
        let foreign = if in_ranking { "" } else { " (a pair that the ranking has not)" };
        format!("{over} to {under} {}{foreign}", ratio_with_interval(value, ends))
    };
    let shown: Vec<String> = judged.iter().map(|(rival, _)| words(rival)).collect();
    let source = match judged.iter().any(|(rival, _)| rival.shown.in_ranking) {
        true => " as in the ranking",
        false => "",
    };
    let mut text = format!(
        "{}: ratio of {}{source}: {}",
        field.workload.workload,
        field.metric,
        shown.join(", ")
    );
    let those = |wanted: &dyn Fn(&Rival<'_>, Outcome) -> bool| -> Vec<String> {
        let found = judged.iter().filter(|(rival, outcome)| wanted(rival, *outcome));
        found.map(|(rival, _)| rival.label.to_string()).collect()
    };
    let margin = claim.by.filter(|by| *by > 0.0).map(|by| format!("by {:.0} %", by * 100.0));
    let is_plain = margin.is_none();
    let ahead = those(&|_, outcome| outcome == Outcome::Fails);
    let same = those(&|rival, _| rival.same && is_plain);
    let open =
        those(&|rival, outcome| outcome == Outcome::Inconclusive && !(rival.same && is_plain));
    if !ahead.is_empty() {
        let word = match (&margin, best) {
            (None, true) => "better".to_string(),
            (None, false) => "worse".to_string(),
            (Some(margin), true) => format!("surely not behind {margin}"),
            (Some(margin), false) => format!("surely not ahead {margin}"),
        };
        text.push_str(&format!("; {word}: {}", list(&ahead)));
    }
    if !same.is_empty() {
        let within = plan.study.same_within * 100.0;
        text.push_str(&format!("; the same within {within:.0} %: {}", list(&same)));
    }
    if !open.is_empty() {
        let apart = margin.map(|margin| format!(" {margin}")).unwrap_or_default();
        text.push_str(&format!("; not told apart{apart}: {}", list(&open)));
    }
    let bar = 1.0 + claim.by.unwrap_or(0.0);
    for (rival, outcome) in judged {
        let contradicts_alone = match best {
            true => rival.ratio.contradicts_below(bar.recip()),
            false => rival.ratio.contradicts_above(bar),
        };
        let Some(wider) = rival.ratio.among_all.filter(|_| contradicts_alone) else { continue };
        if *outcome == Outcome::Inconclusive && !(rival.same && is_plain) {
            text.push_str(&format!(
                "; {} contradicts by that interval, and not by {}, which is wider than in the ranking because {count} comparisons decide together",
                rival.label,
                interval(rival.shown.ends(wider))
            ));
        }
    }
    if judged.iter().any(|(rival, _)| rival.ratio.alone.is_none()) {
        text.push_str(" (fewer than three common blocks have no interval)");
    }
    text
}
