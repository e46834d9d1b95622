//! Gates over results side by side: of a ratio, the same contender in a later result against the
//! first; of anything else, each later result by itself.

use lab::condition::{self, Condition, Gate, GateOutcome};
use lab::judgement;
use lab::suggestion::unknown;
use lab::words::ratio_with_interval;

use super::{Across, AcrossWorkload, notes};

/// Why gates cannot be judged: which one, and what is wrong with it.
pub type Refusal = String;

/// Judges the gates under each workload of the first result; of each later result by itself. Where a later
/// result lacks the workload, or measured something else under its name, a gate was not tested.
///
/// Errors: a gate that cannot be read, or that names a contender or a workload that the first result has not.
pub fn judge(across: &Across<'_>, gates: &[String]) -> Result<Vec<Gate>, Refusal> {
    let study = &across.sources[0].plan.study;
    let labels: Vec<&str> = study.contenders.iter().map(|one| one.label.as_str()).collect();
    let names: Vec<&str> = study.workloads.iter().map(|one| one.name.as_str()).collect();
    let mut judged = Vec::new();
    for text in gates {
        let refused = |problem: String| format!("gate '{text}': {problem}");
        let condition = condition::parse(text).map_err(|error| refused(error.to_string()))?;
        // A contender is compared with itself, so the baseline has a ratio too.
        condition.check(&labels, "", &names).map_err(refused)?;
        let own = condition.workloads();
        for name in names.iter().filter(|name| own.first().is_none_or(|own| own == *name)) {
            for place in 1..across.sources.len() {
                judged.push(Gate {
                    gate: text.clone(),
                    workload: format!("{name} in {}", across.names[place]),
                    ..judge_one(across, name, place, &condition)
                });
            }
        }
    }
    Ok(judged)
}

fn judge_one(across: &Across<'_>, name: &str, place: usize, condition: &Condition) -> Gate {
    let source = &across.sources[place];
    let judgement = match (not_comparable(across, name, place), condition) {
        (Some(why), _) => {
            judgement::Judgement { outcome: GateOutcome::NotTested, evidence: vec![why] }
        }
        (None, Condition::Ratio { label, metric, operator, bound, cells: None }) => {
            let workload = across.workloads.iter().find(|one| one.name == name);
            let workload = workload.expect("both have it");
            let is_met = |cost: f64| operator.is_met(cost, *bound);
            ratio(across, workload, place, (label, metric.as_deref()), &is_met)
        }
        (None, _) => {
            let (plan, records, analysis) = (&source.plan, &source.records, &source.analysis);
            judgement::Measurements { plan, records, analysis }.judge(condition, &[name], None)
        }
    };
    let judgement::Judgement { outcome, evidence } = judgement;
    Gate { gate: String::new(), workload: String::new(), outcome, evidence }
}

/// Why a workload of the first result cannot be compared with that of a later one.
fn not_comparable(across: &Across<'_>, name: &str, place: usize) -> Option<String> {
    let of = |place: usize| {
        across.sources[place].plan.study.workloads.iter().find(|one| one.name == name)
    };
    let (first, later) = (&across.names[0], &across.names[place]);
    let Some(other) = of(place) else {
        return Some(format!("{later} does not have the workload '{name}'"));
    };
    let difference = notes::difference(&of(0)?.load, &other.load)?;
    Some(format!("{later} measured something else than {first} ({difference})"))
}

/// The cost of a contender in a later result over that in the first, by the metric that is named or by the most
/// important one.
fn ratio(
    across: &Across<'_>,
    workload: &AcrossWorkload,
    place: usize,
    (label, named): (&str, Option<&str>),
    is_met: &dyn Fn(f64) -> bool,
) -> judgement::Judgement {
    let (name, first) = (&across.names[place], &across.names[0]);
    let answer = |outcome, said: String| judgement::Judgement { outcome, evidence: vec![said] };
    let lost = [place, 0].into_iter().find_map(|place| {
        let why = super::violation(&across.sources[place], &workload.name, label)?;
        Some((place, format!("{label} in {} {why}", across.names[place])))
    });
    match lost {
        Some((0, said)) => return answer(GateOutcome::NotTested, said),
        Some((_, said)) => return answer(GateOutcome::Fails, said),
        None => {}
    }
    let mut metrics = workload.metrics.iter();
    let metric = metrics.find(|one| named.is_none_or(|named| one.name == named));
    if let (None, Some(named)) = (metric, named) {
        let known: Vec<&str> = workload.metrics.iter().map(|one| one.name.as_str()).collect();
        let why = unknown("metric of two results is called", named, &known);
        return answer(GateOutcome::NotTested, why);
    }
    let comparison = metric.and_then(|metric| {
        let contender = metric.contenders.iter().find(|one| one.label == label)?;
        let comparison = &contender.comparisons[place - 1];
        Some((metric, comparison, comparison.ratio?))
    });
    let Some((metric, comparison, cost)) = comparison else {
        let said = format!("{label} has no completed run in both {first} and {name}");
        return answer(GateOutcome::NotTested, said);
    };
    let ends = comparison.interval.map(|interval| (interval.low, interval.high));
    let outcome = match ends.map(|(low, high)| (is_met(low), is_met(high))) {
        Some((true, true)) => GateOutcome::Holds,
        Some((false, false)) => GateOutcome::Fails,
        _ => GateOutcome::Inconclusive,
    };
    let words = ratio_with_interval(cost, ends);
    answer(outcome, format!("{label}: cost {words} by {}", metric.name))
}
