//! What a result says of a condition, with the numbers.
//!
//! An answer follows from intervals: where they do not exclude the contrary, the condition is
//! *inconclusive*. A condition about many (rivals, workloads, cells) holds when it holds of each, by
//! the interval of each, which needs no correction; it fails when one is surely otherwise, also by
//! the interval that is corrected for their number. A comparison that the analysis has is taken from
//! it. What was not measured keeps a condition from holding, and is named.

use crate::analysis::{self, Analysis, CheckAnalysis, Comparison, WorkloadAnalysis};
use crate::condition::{self, Cells, Condition, Gate, GateOutcome, Operator};
use crate::plan::Plan;
use crate::record::{CheckVerdict, DeviceDelta, Record, counted_trials};
use crate::statistics::{self, ComparisonOptions, Verdict};
use crate::suggestion::unknown;
use crate::words::{self, list, ratio_with_interval};
use crate::workload::{Unit, WorkloadReport};

/// The answer to a condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub outcome: GateOutcome,
    /// The numbers, a sentence each.
    pub evidence: Vec<String>,
}

#[derive(Clone, Copy)]
pub struct Measurements<'a> {
    pub plan: &'a Plan,
    pub records: &'a [Record],
    pub analysis: &'a Analysis,
}

/// Analyses the records of a plan and judges its gates.
pub fn analyse(plan: &Plan, records: &[Record], memory_bytes: Option<u64>) -> Analysis {
    let mut analysis = analysis::analyse(plan, records, memory_bytes);
    analysis.gates = judge_gates(&plan.study.gates, plan, records, &analysis);
    analysis
}

/// Judges gates, each of which can be read, under each workload of a plan.
pub fn judge_gates(
    gates: &[String],
    plan: &Plan,
    records: &[Record],
    analysis: &Analysis,
) -> Vec<Gate> {
    let result = Measurements { plan, records, analysis };
    let mut judged = Vec::new();
    for gate in gates {
        let condition = condition::parse(gate).expect("gates were checked with the study");
        let own = condition.workloads().first().map(|name| name.to_string());
        for workload in &plan.study.workloads {
            if own.as_ref().is_some_and(|own| *own != workload.name) {
                continue;
            }
            if is_of_others(&condition, analysis, &workload.name) {
                continue;
            }
            let Judgement { outcome, evidence } =
                result.judge(&condition, &[workload.name.as_str()], None);
            judged.push(Gate {
                gate: gate.clone(),
                workload: workload.name.clone(),
                outcome,
                evidence,
            });
        }
    }
    judged
}

/// Whether a check or a metric that a condition names is none of this workload's, and is one of another's.
fn is_of_others(condition: &Condition, analysis: &Analysis, workload: &str) -> bool {
    let has_it = |entry: &&WorkloadAnalysis| {
        entry.contenders.iter().any(|contender| match condition {
            Condition::Check { check, .. } => {
                contender.checks.iter().any(|found| found.check.name == *check)
            }
            Condition::Time { metric, .. } => {
                contender.metrics.iter().any(|found| found.name == *metric)
            }
            Condition::Ratio { metric: Some(metric), .. } => known(entry).contains(&&**metric),
            _ => false,
        })
    };
    let mut having = analysis.workloads.iter().filter(has_it).peekable();
    having.peek().is_some() && having.all(|entry| entry.workload != workload)
}

/// The metrics by which a workload's contenders are compared.
fn known(workload: &WorkloadAnalysis) -> Vec<&str> {
    let compared = workload.comparisons.iter().chain(&workload.exploratory);
    words::distinct(compared.map(|one| one.metric.as_str()))
}

/// A change of less than this counts for nothing in a comparison of the device's work.
const SHARE_MIN: f64 = 0.01;
/// Shortest series of which a beginning and an end are told apart.
const INTERVALS_MIN: usize = 6;

/// A ratio, one of several that a condition is about.
#[derive(Debug, Clone)]
struct Ratio {
    ratio: f64,
    /// The interval that is printed.
    own: Option<(f64, f64)>,
    /// The interval that is corrected for the number of ratios.
    wide: Option<(f64, f64)>,
}

/// Samples of two sides, by block.
type Pairs = (Vec<f64>, Vec<f64>);

impl Ratio {
    /// The cost that the analysis has, with the interval that every table shows.
    fn of(entry: &Comparison) -> Option<Ratio> {
        let ratio = entry.cost()?;
        // A count that never varies has no interval, and is decided.
        let is_constant = entry.low.is_none() && entry.verdict.is_decided();
        let exact = is_constant.then_some((ratio, ratio));
        Some(Ratio { ratio, own: entry.cost_ends().or(exact), wide: exact })
    }

    /// Of every pair of samples the second over the first; none without a common block.
    fn of_each(samples: &[Pairs], plain: ComparisonOptions) -> Vec<Option<Ratio>> {
        let count = samples.iter().filter(|(under, _)| !under.is_empty()).count().max(1);
        let confidence = 1.0 - (1.0 - plain.confidence) / count as f64;
        let corrected = ComparisonOptions { confidence, ..plain.clone() };
        let of_one = |(under, over): &Pairs| {
            let compare = |options| statistics::compare(under, over, options).ok();
            let ends = |compared: statistics::CostEstimate| {
                compared.interval.map(|interval| (interval.low, interval.high))
            };
            let own = compare(&plain)?;
            let wide = compare(&corrected).and_then(ends);
            Some(Ratio { ratio: own.ratio?, own: ends(own), wide })
        };
        samples.iter().map(of_one).collect()
    }

    /// What becomes of "it is met by the ratio"; `is_met` changes once along the line.
    fn judge(&self, is_met: &dyn Fn(f64) -> bool) -> GateOutcome {
        match (self.own, self.wide) {
            (Some((low, high)), _) if is_met(low) && is_met(high) => GateOutcome::Holds,
            (Some(_), Some((low, high)))
                if !is_met(low) && !is_met(high) && self.contradicts(is_met) =>
            {
                GateOutcome::Fails
            }
            _ => GateOutcome::Inconclusive,
        }
    }

    /// Whether the interval that is printed excludes it.
    fn contradicts(&self, is_met: &dyn Fn(f64) -> bool) -> bool {
        self.own.is_some_and(|(low, high)| !is_met(low) && !is_met(high))
    }

    fn words(&self) -> String {
        ratio_with_interval(self.ratio, self.own)
    }

    /// The same, seen from the other side.
    fn turned(&self) -> Ratio {
        let turn = |ends: Option<(f64, f64)>| ends.map(|(low, high)| (high.recip(), low.recip()));
        Ratio { ratio: self.ratio.recip(), own: turn(self.own), wide: turn(self.wide) }
    }
}

/// What becomes of a condition about many from what becomes of each.
fn of_all(outcomes: &[GateOutcome]) -> GateOutcome {
    if outcomes.contains(&GateOutcome::Fails) {
        GateOutcome::Fails
    } else if outcomes.is_empty() {
        GateOutcome::NotTested
    } else if outcomes.iter().all(|outcome| *outcome == GateOutcome::Holds) {
        GateOutcome::Holds
    } else {
        GateOutcome::Inconclusive
    }
}

/// Why a contender is not ranked under a workload, where it is not.
fn violation(workload: &WorkloadAnalysis, label: &str) -> Option<String> {
    workload.contender(label)?.violation()
}

fn outcome_of(verdict: CheckVerdict) -> GateOutcome {
    match verdict {
        CheckVerdict::Held => GateOutcome::Holds,
        CheckVerdict::Violated | CheckVerdict::NotPromised => GateOutcome::Fails,
        CheckVerdict::NotTried => GateOutcome::Inconclusive,
    }
}

/// The message for a check that a contender's records have not.
fn no_check(name: &str, known: &[CheckAnalysis]) -> String {
    let known: Vec<&str> = known.iter().map(|found| found.check.name.as_str()).collect();
    if known.is_empty() {
        format!("no check is called '{name}'; nothing was checked")
    } else {
        unknown("check is called", name, &known)
    }
}

fn not_tested(why: impl Into<String>) -> Judgement {
    Judgement { outcome: GateOutcome::NotTested, evidence: vec![why.into()] }
}

impl Judgement {
    /// Names what was not measured. Then the condition is not known to hold; what was measured can
    /// still contradict it.
    fn without(mut self, absent: &[String]) -> Judgement {
        if !absent.is_empty() {
            if self.outcome == GateOutcome::Holds {
                self.outcome = GateOutcome::Inconclusive;
            }
            self.evidence.push(format!("not measured here: {}", list(absent)));
        }
        self
    }
}

/// Workload, rival and metric, with the ratio and whether the analysis calls the two the same.
type CostRatio<'w> = (&'w WorkloadAnalysis, &'w str, String, Option<(Ratio, bool)>);

/// Ratios that decide together, each with its place in words.
#[derive(Default)]
struct Several {
    outcomes: Vec<GateOutcome>,
    evidence: Vec<String>,
    absent: Vec<String>,
}

impl Several {
    /// Takes in a ratio, one of `count`: it decides by all of `is_met`, and `said` tells it.
    fn add(&mut self, ratio: &Ratio, is_met: &[&dyn Fn(f64) -> bool], count: usize, said: String) {
        let outcomes: Vec<GateOutcome> = is_met.iter().map(|is_met| ratio.judge(is_met)).collect();
        let outcome = of_all(&outcomes);
        let contradicts = is_met.iter().any(|is_met| ratio.contradicts(is_met));
        // By its own interval alone.
        let alone = if outcome == GateOutcome::Inconclusive && contradicts {
            format!(" (contradicts alone, but not with {count} comparisons together)")
        } else {
            String::new()
        };
        self.outcomes.push(outcome);
        self.evidence.push(said + &alone);
    }

    fn lacks(&mut self, what: String) {
        self.absent.push(what);
    }

    fn judgement(self) -> Judgement {
        let outcome = of_all(&self.outcomes);
        Judgement { outcome, evidence: self.evidence }.without(&self.absent)
    }
}

impl<'a> Measurements<'a> {
    /// Judges a condition under some workloads, by a metric or by the most important one.
    pub fn judge(
        self,
        condition: &Condition,
        workloads: &[&str],
        metric: Option<&str>,
    ) -> Judgement {
        let own = condition.workloads();
        let names = if own.is_empty() { workloads } else { own.as_slice() };
        if let Condition::Check { labels, check } = condition {
            return self.check(names, labels, check);
        }
        let (mut found, mut absent) = (Vec::<&WorkloadAnalysis>::new(), Vec::new());
        for name in names {
            let entry = self.analysis.workload(name);
            let has_any = |entry: &&WorkloadAnalysis| {
                entry.contenders.iter().any(|contender| !contender.metrics.is_empty())
            };
            match entry.filter(has_any) {
                Some(workload) => found.push(workload),
                None => absent.push(format!("the workload {name}")),
            }
        }
        if found.is_empty() {
            return not_tested("nothing was measured of it here");
        }
        if let Some(lost) = self.lost(&found, condition) {
            return lost;
        }
        let judgement = match condition {
            Condition::Check { .. } => unreachable!("a check was decided above"),
            Condition::Ratio { label, metric: own, operator, bound, cells } => {
                let is_met = |ratio: f64| operator.is_met(ratio, *bound);
                match cells {
                    Some(cells) => self.cells(found[0], label, *cells, &is_met),
                    None => self.ratio(&found, label, own.as_deref().or(metric), &is_met),
                }
            }
            Condition::Time { label, metric, operator, bound_ns } => {
                let bound = *bound_ns as f64;
                self.time(&found, label, metric, &|value| operator.is_met(value, bound))
            }
            Condition::Extreme { label, fastest, rivals, margin } => {
                self.extreme(&found, label, *fastest, rivals, *margin, metric)
            }
            Condition::Agreement { margin, .. } => match found.as_slice() {
                [one, other] => self.agreement([one, other], *margin, metric),
                _ => return not_tested("it takes two workloads").without(&absent),
            },
            Condition::Drift { labels, share } => self.drift(&found, labels, *share),
            Condition::Access { labels, margin } => self.access(&found, labels, *margin),
        };
        judgement.without(&absent)
    }

    /// Whether a check of every contender held under each of these workloads.
    fn check(self, workloads: &[&str], labels: &[String], check: &str) -> Judgement {
        let mut judged: Option<GateOutcome> = None;
        let mut evidence = Vec::new();
        for workload in self.analysis.workloads.iter().filter(|w| workloads.contains(&&*w.workload))
        {
            for label in labels {
                let checks = workload
                    .contender(label)
                    .map(|entry| entry.checks.as_slice())
                    .unwrap_or_default();
                let (outcome, said) = match checks.iter().find(|one| one.check.name == check) {
                    Some(found) => (outcome_of(found.verdict), found.sentence()),
                    None => (GateOutcome::Inconclusive, no_check(check, checks)),
                };
                let both = [Some(outcome), judged].into_iter().flatten().collect::<Vec<_>>();
                judged = Some(of_all(&both));
                evidence.push(format!("{}: {label}: {said}", workload.workload));
            }
        }
        Judgement { outcome: judged.unwrap_or(GateOutcome::Inconclusive), evidence }
    }

    /// What becomes of a condition that says that a contender is fast, when it lost data.
    fn lost(self, workloads: &[&WorkloadAnalysis], condition: &Condition) -> Option<Judgement> {
        let label = match condition {
            Condition::Ratio { label, operator: Operator::AtMost | Operator::Below, .. }
            | Condition::Time { label, operator: Operator::AtMost | Operator::Below, .. }
            | Condition::Extreme { label, fastest: true, .. } => label,
            _ => return None,
        };
        let lost = workloads.iter().filter_map(|workload| {
            Some(format!("{}: {label} {}", workload.workload, violation(workload, label)?))
        });
        let evidence: Vec<String> = lost.collect();
        (!evidence.is_empty()).then_some(Judgement { outcome: GateOutcome::Fails, evidence })
    }

    /// Costs of a figure by contender of the study and block: less is better.
    fn costs(self, workload: &WorkloadAnalysis, metric: Option<&str>) -> analysis::Costs {
        analysis::costs(self.plan, self.records, &workload.workload, metric)
    }

    fn place(self, label: &str) -> Option<usize> {
        self.plan.study.contenders.iter().position(|contender| contender.label == label)
    }

    /// The cost of one contender over that of another as the analysis has it, in either direction.
    fn in_analysis(
        self,
        workload: &WorkloadAnalysis,
        metric: &str,
        over: &str,
        under: &str,
    ) -> Option<(Ratio, bool)> {
        let entry = workload.comparisons.iter().chain(&workload.exploratory).find(|entry| {
            let pair = (entry.contender.as_str(), entry.baseline.as_str());
            entry.metric == metric && (pair == (over, under) || pair == (under, over))
        })?;
        let ratio = Ratio::of(entry)?;
        let ratio = if entry.contender == over { ratio } else { ratio.turned() };
        Some((ratio, matches!(entry.verdict, Verdict::Same { .. })))
    }

    /// Costs of `over` relative to each of `under`, under each workload, all of one family.
    fn cost_ratios<'w>(
        self,
        workloads: &[&'w WorkloadAnalysis],
        over: &str,
        under: &[&'w str],
        metric: Option<&str>,
    ) -> Vec<CostRatio<'w>> {
        let (mut places, mut samples) = (Vec::new(), Vec::new());
        for workload in workloads {
            let costs = self.costs(workload, metric);
            let of = |label: &str| self.place(label).and_then(|place| costs.values.get(place));
            for label in under {
                let pair = of(label).zip(of(over));
                samples.push(pair.map(|(u, o)| statistics::pairs(u, o)).unwrap_or_default());
                places.push((*workload, *label, costs.metric.0.clone()));
            }
        }
        let options = analysis::options(self.plan, self.records);
        let ratios = Ratio::of_each(&samples, options);
        let alone = ratios.iter().flatten().count() == 1;
        let ratios = places.into_iter().zip(ratios).map(|((workload, label, name), computed)| {
            let known = self.in_analysis(workload, &name, over, label);
            let ratio = match (known, computed) {
                (Some((known, same)), computed) => {
                    let wide = computed.and_then(|computed| computed.wide).or(known.wide);
                    let wide = if alone { known.own } else { wide };
                    Some((Ratio { wide, ..known }, same))
                }
                (None, Some(computed)) => Some((computed, false)),
                (None, None) => None,
            };
            (workload, label, name, ratio)
        });
        ratios.collect()
    }

    /// A metric that is a time, by the interval of its median; of runs too few for one, by the least and the
    /// greatest.
    fn time(
        self,
        workloads: &[&WorkloadAnalysis],
        label: &str,
        metric: &str,
        is_met: &dyn Fn(f64) -> bool,
    ) -> Judgement {
        let mut several = Several::default();
        for workload in workloads {
            let metrics = workload.contender(label).map(|found| found.metrics.as_slice());
            let found = metrics.into_iter().flatten().find(|found| found.name == metric);
            let Some(found) = found.filter(|found| found.unit == Unit::Nanoseconds) else {
                several.lacks(format!("a time {metric} of {label} under {}", workload.workload));
                continue;
            };
            let summary = &found.summary;
            let interval = summary.median_interval.map(|interval| (interval.low, interval.high));
            let (low, high) = interval.unwrap_or((summary.min, summary.max));
            several.outcomes.push(match (is_met(low), is_met(high)) {
                (true, true) => GateOutcome::Holds,
                (false, false) => GateOutcome::Fails,
                _ => GateOutcome::Inconclusive,
            });
            let milliseconds = |value: f64| words::ratio(value / 1e6);
            several.evidence.push(format!(
                "{}: {label}: {metric} {} ms ({} to {} ms)",
                workload.workload,
                milliseconds(summary.median),
                milliseconds(low),
                milliseconds(high)
            ));
        }
        several.judgement()
    }

    /// The contender's cost over the baseline's.
    fn ratio(
        self,
        workloads: &[&WorkloadAnalysis],
        label: &str,
        metric: Option<&str>,
        is_met: &dyn Fn(f64) -> bool,
    ) -> Judgement {
        let baseline = self.plan.baseline_label();
        let ratios = self.cost_ratios(workloads, label, &[baseline], metric);
        let count = ratios.len();
        let mut several = Several::default();
        for (workload, _, name, ratio) in ratios {
            let Some((ratio, _)) = ratio else {
                let known = known(workload);
                several.lacks(match metric.filter(|metric| !known.contains(metric)) {
                    Some(metric) => unknown("metric is called", metric, &known),
                    None => format!("{label} against {baseline} under {}", workload.workload),
                });
                continue;
            };
            let (workload, words) = (&workload.workload, ratio.words());
            let said = format!("{workload}: {label}: cost {words} by {name}");
            several.add(&ratio, &[is_met], count, said);
        }
        several.judgement()
    }

    /// A contender's cost over the raw device's in the cells of a fio matrix. That some cell meets a
    /// bound is the contrary of "every cell misses it".
    fn cells(
        self,
        workload: &WorkloadAnalysis,
        label: &str,
        cells: Cells,
        is_met: &dyn Fn(f64) -> bool,
    ) -> Judgement {
        let of = |all: &[Comparison]| -> Vec<Comparison> {
            let told = |one: &&Comparison| one.contender == label && one.low.is_some();
            all.iter().filter(told).cloned().collect()
        };
        let own = of(&workload.overhead);
        let cost = |one: &Comparison| Some((one.cost()?, one.cost_ends()?, one.metric.clone()));
        let costs: Vec<(f64, (f64, f64), String)> = own.iter().filter_map(cost).collect();
        let worst = costs.iter().max_by(|one, other| one.0.total_cmp(&other.0));
        let Some((highest, ends, cell)) = worst else {
            return not_tested(format!(
                "no cell of a fio matrix was compared between {label} and the raw device"
            ));
        };
        let wide = of(&analysis::overhead_among(self.plan, self.records, &workload.workload));
        let is_wanted = |cost: f64| is_met(cost) == (cells == Cells::Every);
        let outcomes: Vec<GateOutcome> = own
            .iter()
            .zip(&wide)
            .filter_map(|(own, wide)| {
                Some(Ratio { wide: Ratio::of(wide)?.own, ..Ratio::of(own)? }.judge(&is_wanted))
            })
            .collect();
        let outcome = match (cells, of_all(&outcomes)) {
            (Cells::Some, GateOutcome::Holds) => GateOutcome::Fails,
            (Cells::Some, GateOutcome::Fails) => GateOutcome::Holds,
            (_, outcome) => outcome,
        };
        let slower = costs.iter().filter(|(_, (low, _), _)| *low > 1.0).count();
        let faster = costs.iter().filter(|(_, (_, high), _)| *high < 1.0).count();
        let differing = match (slower, faster) {
            (0, 0) => "no cell differs significantly from the raw device".to_string(),
            _ => format!(
                "significantly slower than the raw device in {slower} of {} cells, faster in {faster}",
                costs.len()
            ),
        };
        let evidence = vec![format!(
            "{label}: {differing}; the highest cost is {} in {cell}",
            ratio_with_interval(*highest, Some(*ends))
        )];
        Judgement { outcome, evidence }
    }

    /// Labels of all contenders of the study, those too that were left out.
    fn all_labels(self) -> Vec<&'a str> {
        let study = &self.plan.study;
        let present = study.contenders.iter().map(|contender| contender.label.as_str());
        let left_out = study.left_out.iter().filter(|left| left.what == "contender");
        present.chain(left_out.map(|left| left.name.as_str())).collect()
    }

    /// Whether a contender is ahead of (or behind) each rival under each workload.
    fn extreme(
        self,
        workloads: &[&WorkloadAnalysis],
        label: &str,
        fastest: bool,
        rivals: &[String],
        margin: f64,
        metric: Option<&str>,
    ) -> Judgement {
        let rivals: Vec<&str> = if rivals.is_empty() {
            self.all_labels().into_iter().filter(|rival| *rival != label).collect()
        } else {
            rivals.iter().map(String::as_str).collect()
        };
        let bar = 1.0 + margin;
        let is_met = |cost: f64| if fastest { cost < bar.recip() } else { cost > bar };
        let ratios = self.cost_ratios(workloads, label, &rivals, metric);
        let count = ratios.iter().filter(|(.., ratio)| ratio.is_some()).count();
        let mut several = Several::default();
        let mut lead = None;
        for (workload, rival, name, ratio) in ratios {
            let Some((ratio, same)) = ratio else {
                match violation(workload, rival).filter(|_| fastest) {
                    // Whoever lost data is ahead of nobody.
                    Some(lost) => {
                        lead = None;
                        several.outcomes.push(GateOutcome::Holds);
                        several.evidence.push(format!("{}: {rival} {lost}", workload.workload));
                    }
                    None => several
                        .lacks(format!("{label} against {rival} under {}", workload.workload)),
                }
                continue;
            };
            let words = ratio.words();
            if same && margin == 0.0 {
                let within = self.plan.study.same_within * 100.0;
                several.outcomes.push(GateOutcome::Inconclusive);
                several
                    .evidence
                    .push(format!("{words} against {rival} (the same within {within:.0} %)"));
            } else {
                several.add(&ratio, &[&is_met], count, format!("{words} against {rival}"));
            }
            // A sentence for each workload.
            let said = several.evidence.pop().unwrap_or_default();
            match several.evidence.last_mut().filter(|_| lead == Some(&workload.workload)) {
                Some(line) => line.push_str(&format!(", {said}")),
                None => several
                    .evidence
                    .push(format!("{}: cost of {label} by {name}: {said}", workload.workload)),
            }
            lead = Some(&workload.workload);
        }
        several.judgement()
    }

    /// Whether every contender's ratio to the baseline is the same under two workloads.
    fn agreement(
        self,
        both: [&WorkloadAnalysis; 2],
        margin: f64,
        metric: Option<&str>,
    ) -> Judgement {
        let baseline = self.plan.baseline_label();
        let costs = both.map(|workload| self.costs(workload, metric));
        let cost = |side: usize, label: &str, block: usize| {
            let values = costs[side].values.get(self.place(label)?)?;
            values.get(block).copied().flatten()
        };
        let labels: Vec<&str> =
            self.all_labels().into_iter().filter(|label| *label != baseline).collect();
        let samples: Vec<Pairs> = labels
            .iter()
            .map(|label| {
                let in_block = |block: usize| {
                    let of = |side| Some(cost(side, label, block)? / cost(side, baseline, block)?);
                    of(0).zip(of(1))
                };
                (0..self.plan.blocks.len()).filter_map(in_block).unzip()
            })
            .collect();
        let bar = 1.0 + margin;
        let (below, above) = (|ratio: f64| ratio < bar, |ratio: f64| ratio > bar.recip());
        let mut several = Several::default();
        for (label, ratio) in
            labels.iter().zip(Ratio::of_each(&samples, ComparisonOptions::default()))
        {
            let Some(ratio) = ratio else {
                several.lacks(format!("{label} under both"));
                continue;
            };
            let of = |side: usize| {
                let name = &costs[side].metric.0;
                let known = self.in_analysis(both[side], name, label, baseline);
                let words = known.map_or("no ratio".into(), |(ratio, _)| ratio.words());
                format!("{words} under {}", both[side].workload)
            };
            let said = format!(
                "cost of {label} to {baseline}: {}, {}; the second over the first, round by round: {}",
                of(0),
                of(1),
                ratio.words()
            );
            several.add(&ratio, &[&below, &above], labels.len(), said);
        }
        several.judgement()
    }

    /// Whether throughput in the last third of each run is below that of the first.
    fn drift(self, workloads: &[&WorkloadAnalysis], labels: &[String], share: f64) -> Judgement {
        let (mut places, mut samples) = (Vec::new(), Vec::new());
        for workload in workloads {
            for label in labels {
                places.push((workload.workload.as_str(), label));
                let trials = counted_trials(self.records, &workload.workload, label);
                samples.push(trials.filter_map(|record| ends(record.load.as_ref()?)).unzip());
            }
        }
        let ratios = Ratio::of_each(&samples, ComparisonOptions::default());
        let count = ratios.iter().flatten().count();
        let is_met = |ratio: f64| ratio < 1.0 - share;
        let mut several = Several::default();
        for ((workload, label), ratio) in places.into_iter().zip(ratios) {
            let Some(ratio) = ratio else {
                several.lacks(format!("{label} under {workload}"));
                continue;
            };
            let words = ratio.words();
            let said = format!(
                "{workload}: throughput of {label}, last third of the run to the first: {words}"
            );
            several.add(&ratio, &[&is_met], count, said);
        }
        if several.outcomes.is_empty() {
            return not_tested(format!(
                "no run has the {INTERVALS_MIN} intervals of throughput that a beginning and an end take; give more time, by --full or --scale"
            ));
        }
        several.judgement()
    }

    /// Whether the device was asked for the same by each contender. By the ranges of the trials:
    /// counts have no intervals.
    fn access(self, workloads: &[&WorkloadAnalysis], labels: &[String], margin: f64) -> Judgement {
        let mut several = Several::default();
        for workload in workloads {
            let name = &workload.workload;
            let mut work: Vec<(&str, Vec<DeviceDelta>)> = Vec::new();
            for label in labels {
                let trials = counted_trials(self.records, name, label);
                let deltas: Vec<DeviceDelta> = trials.filter_map(Record::run_device).collect();
                if deltas.is_empty() {
                    several.lacks(format!("the device's requests of {label} under {name}"))
                } else {
                    work.push((label, deltas))
                }
            }
            if work.len() < 2 {
                continue;
            }
            let said: Vec<String> =
                work.iter().map(|(label, deltas)| requests(label, deltas)).collect();
            several.evidence.push(format!("{name}: {}", said.join("; ")));
            several.outcomes.push(alike(&work, margin));
        }
        several.judgement()
    }
}

/// Mean throughput of the first and of the last third of a trial's series.
fn ends(load: &WorkloadReport) -> Option<(f64, f64)> {
    let values = &load.series.iter().find(|one| one.name.starts_with("throughput"))?.values;
    if values.len() < INTERVALS_MIN {
        return None;
    }
    let third = values.len() / 3;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (early, late) = (mean(&values[..third]), mean(&values[values.len() - third..]));
    (early > 0.0 && late > 0.0).then_some((early, late))
}

/// Median of a count over the trials.
fn median(deltas: &[DeviceDelta], count: fn(&DeviceDelta) -> u64) -> f64 {
    analysis::median(deltas.iter().map(|delta| count(delta) as f64)).unwrap_or(0.0)
}

/// Whether counts agree within a margin; they surely do not where the trials of two lie apart by more.
fn alike(work: &[(&str, Vec<DeviceDelta>)], margin: f64) -> GateOutcome {
    type Count = fn(&DeviceDelta) -> u64;
    let bytes = |delta: &DeviceDelta| delta.read_bytes + delta.written_bytes;
    let bytes_max = work.iter().map(|(_, deltas)| median(deltas, bytes)).fold(0.0, f64::max);
    // Few bytes are the file systems' own records and say nothing of the workload.
    let counts: [(Count, f64); 3] = [
        (|delta| delta.read_bytes, bytes_max * SHARE_MIN),
        (|delta| delta.written_bytes, bytes_max * SHARE_MIN),
        (|delta| delta.reads + delta.writes, 0.0),
    ];
    let mut outcome = GateOutcome::Holds;
    for (count, counts_from) in counts {
        let medians: Vec<f64> = work.iter().map(|(_, deltas)| median(deltas, count)).collect();
        let most = medians.iter().copied().fold(0.0, f64::max);
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        if most <= counts_from || most <= least * (1.0 + margin) {
            continue;
        }
        let range = |deltas: &[DeviceDelta]| {
            let values = || deltas.iter().map(|delta| count(delta) as f64);
            (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
        };
        let ranges: Vec<(f64, f64)> = work.iter().map(|(_, deltas)| range(deltas)).collect();
        let lie_apart = ranges
            .iter()
            .any(|(low, _)| ranges.iter().any(|(_, high)| *low > high * (1.0 + margin)));
        if lie_apart {
            return GateOutcome::Fails;
        }
        outcome = GateOutcome::Inconclusive;
    }
    outcome
}

/// `xfs 120 reads of 4 KiB and 340 writes of 256 KiB`.
fn requests(label: &str, deltas: &[DeviceDelta]) -> String {
    let of = |count, bytes, word| {
        let (count, bytes) = (median(deltas, count), median(deltas, bytes));
        let each_kib = if count > 0.0 { bytes / count / 1024.0 } else { 0.0 };
        format!("{count:.0} {word} of {each_kib:.0} KiB")
    };
    let reads = of(|delta| delta.reads, |delta| delta.read_bytes, "reads");
    let writes = of(|delta| delta.writes, |delta| delta.written_bytes, "writes");
    format!("{label} {reads} and {writes}")
}

#[cfg(test)]
mod tests;
