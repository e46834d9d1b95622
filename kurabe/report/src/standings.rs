//! Where contenders stand under a workload, in words: who beats whom, who is like the baseline, and of whom
//! nothing is known.
//!
//! Two are told apart by the comparison of the two. So are two others whose intervals against the baseline
//! do not touch: all these intervals hold together, so this errs no more often.

use std::collections::{BTreeMap, BTreeSet};

use lab::analysis::WorkloadAnalysis;
use lab::plan::Plan;
use lab::statistics::{BOUND_MAX, Verdict};
use lab::words::{is_telling, percent};

use crate::tables::{has_no_figure, primary_comparisons, verdict_mark};
use crate::text;

/// Where contenders stand under a workload.
#[derive(Clone)]
pub struct ContenderRanking {
    /// The fastest first.
    ranked: Vec<Standing>,
    /// What is known of the cost of one over that of another, by their labels, where neither is the baseline.
    direct: BTreeMap<String, BTreeMap<String, Between>>,
    /// Labels of those whose interval tells nothing.
    unknown: Vec<String>,
    baseline: String,
    /// Labels of the bare device.
    raw: Vec<String>,
    same_within: f64,
    /// Rounds in which all are compared.
    rounds: usize,
    /// Whether the fastest alone are named: of many contenders under several workloads, the table below has
    /// the rest.
    is_brief: bool,
}

/// More contenders than these have their costs in the table of several workloads, and not in sentences as
/// well.
pub const CONTENDERS_TOLD: usize = 5;

/// From so many rounds on it is not their number that keeps a question open.
const MANY_ROUNDS: usize = 10;

/// `Too few rounds to name a winner`, or, after many, `No winner after 30 rounds`.
pub fn few_rounds(rounds: usize, to: &str, none: &str) -> String {
    if rounds < MANY_ROUNDS {
        format!("Too few rounds to {to}")
    } else {
        format!("{none} after {rounds} rounds")
    }
}

/// How the words begin on those of whom nothing is sure.
pub const OPEN: &str = "inconclusive against ";

/// One whose interval tells something.
#[derive(Clone)]
struct Standing {
    label: String,
    /// Its cost over the baseline's, and the ends of its interval; all 1 for the baseline.
    cost: f64,
    ends: (f64, f64),
    /// None for the baseline.
    verdict: Option<Verdict>,
}

/// What is known of the cost of one over that of another.
#[derive(Clone, Copy)]
struct Between {
    ends: (f64, f64),
    /// As [`verdict_mark`] has it.
    mark: &'static str,
}

impl Between {
    /// The cost of the other over that of the one.
    fn turned(self) -> Between {
        let mark = match self.mark {
            "+" => "-",
            "-" => "+",
            mark => mark,
        };
        Between { ends: (self.ends.1.recip(), self.ends.0.recip()), mark }
    }

    /// What holds of both.
    fn joined(self, other: Between) -> Between {
        let ends = (self.ends.0.min(other.ends.0), self.ends.1.max(other.ends.1));
        let mark = match [self.mark, other.mark] {
            [one, other] if one == other => one,
            ["=" | "~", "=" | "~"] => "~",
            _ => "?",
        };
        Between { ends, mark }
    }
}

impl Standing {
    /// `1.900 to 2.10`: the ends of the cost's interval, with the digits of the table.
    fn range(&self) -> String {
        format!("{} to {}", text::ratio(self.ends.0), text::ratio(self.ends.1))
    }

    /// Whether its verdict against the baseline has this mark.
    fn is_marked(&self, mark: &str) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| verdict_mark(verdict) == mark)
    }
}

impl ContenderRanking {
    /// What the primary comparisons of a workload say.
    pub fn of(workload: &WorkloadAnalysis, plan: &Plan) -> ContenderRanking {
        let baseline = plan.baseline_label().to_string();
        let first =
            Standing { label: baseline.clone(), cost: 1.0, ends: (1.0, 1.0), verdict: None };
        let (mut ranked, mut unknown) = (vec![first], Vec::new());
        for one in
            primary_comparisons(workload).filter(|one| !has_no_figure(workload, &one.contender))
        {
            let (label, verdict) = (one.contender.clone(), Some(one.verdict));
            match one.cost_ends().zip(one.cost()) {
                Some((ends, cost)) if is_telling(ends.0, ends.1) => {
                    ranked.push(Standing { label, cost, ends, verdict });
                }
                _ => unknown.push(label),
            }
        }
        ranked.sort_by(|one, other| one.cost.total_cmp(&other.cost));
        let raw = plan.study.contenders.iter().filter(|one| one.is_raw());
        let raw = raw.map(|one| one.label.clone()).collect();
        let mut direct = BTreeMap::<_, BTreeMap<_, _>>::new();
        for one in &workload.direct {
            let Some(ends) = one.cost_ends() else { continue };
            let between = Between { ends, mark: verdict_mark(&one.verdict) };
            direct.entry(one.contender.clone()).or_default().insert(one.baseline.clone(), between);
        }
        let study = &plan.study;
        let is_brief = study.workloads.len() > 1 && study.contenders.len() > CONTENDERS_TOLD;
        let same_within = study.same_within;
        let rounds = primary_comparisons(workload).map(|one| one.blocks).min().unwrap_or(0);
        ContenderRanking { ranked, direct, unknown, baseline, raw, same_within, rounds, is_brief }
    }

    pub fn sentence(&self) -> String {
        format!("{}.", self.said().join("; "))
    }

    /// What holds under two workloads: each interval has room for that of both. None where contenders do not
    /// stand alike in them, a figure of one lies outside of the other's interval, or something is open.
    pub fn joined(&self, other: &ContenderRanking) -> Option<ContenderRanking> {
        let both = |one: &Standing| {
            let with = other.ranked.iter().find(|with| with.label == one.label)?;
            let mark = |one: &Standing| one.verdict.as_ref().map(verdict_mark);
            let ends = (one.ends.0.min(with.ends.0), one.ends.1.max(with.ends.1));
            let cost = (one.cost * with.cost).sqrt();
            // An interval may be a point, which a mean misses by its rounding.
            let lies_in = |one: &Standing, ends: (f64, f64)| {
                (ends.0 * 0.999..=ends.1 * 1.001).contains(&one.cost)
            };
            let is_alike = mark(one) == mark(with)
                && mark(one) != Some("?")
                && lies_in(one, with.ends)
                && lies_in(with, one.ends);
            is_alike.then(|| Standing { cost, ends, ..one.clone() })
        };
        let mut ranked = self.ranked.iter().map(both).collect::<Option<Vec<_>>>()?;
        ranked.sort_by(|one, other| one.cost.total_cmp(&other.cost));
        let mut direct = self.direct.clone();
        for (one, others) in &mut direct {
            let with = other.direct.get(one);
            others.retain(|label, between| {
                let with = with.and_then(|with| with.get(label));
                with.inspect(|with| *between = between.joined(**with)).is_some()
            });
        }
        let rounds = self.rounds.min(other.rounds);
        let joined = ContenderRanking { ranked, direct, rounds, ..self.clone() };
        let is_alike = self.unknown.is_empty()
            && other.unknown.is_empty()
            && self.ranked.len() == other.ranked.len()
            && [self, other].iter().all(|one| one.pairs() == joined.pairs());
        is_alike.then_some(joined)
    }

    /// Who beats whom.
    fn pairs(&self) -> BTreeSet<(&str, &str)> {
        let of = |one| self.ranked.iter().filter(move |other| self.beats(one, other));
        let pairs = self.ranked.iter().flat_map(|one| of(one).map(move |other| (one, other)));
        pairs.map(|(one, other)| (one.label.as_str(), other.label.as_str())).collect()
    }

    /// Whether the first is surely faster than the second.
    fn beats(&self, one: &Standing, other: &Standing) -> bool {
        let margin = 1.0 + self.same_within;
        let is_apart = one.ends.1 < other.ends.0 && one.ends.0 * margin < other.ends.1;
        let both = one.verdict.and(other.verdict).is_some();
        self.between(one, other).mark == "+" || (both && is_apart)
    }

    /// What is known of the cost of one over that of another.
    fn between(&self, one: &Standing, other: &Standing) -> Between {
        let of = |standing: &Standing, verdict: Verdict| Between {
            ends: standing.ends,
            mark: verdict_mark(&verdict),
        };
        let direct = |one: &Standing, other: &Standing| {
            self.direct.get(&one.label)?.get(&other.label).copied()
        };
        match (one.verdict, other.verdict) {
            (Some(verdict), None) => of(one, verdict),
            (None, Some(verdict)) => of(other, verdict).turned(),
            _ => {
                let turned = || direct(other, one).map(Between::turned);
                direct(one, other).or_else(turned).unwrap_or(Between {
                    ends: (one.ends.0 / other.ends.1, one.ends.1 / other.ends.0),
                    mark: "?",
                })
            }
        }
    }

    /// The parts of a sentence: which file system is fastest, how far others are from the baseline, who
    /// else beats whom, and of whom nothing is sure.
    pub fn said(&self) -> Vec<String> {
        let choice = self.choice();
        let is_choice = |label: &String| !self.raw.contains(label);
        let unknown: Vec<String> =
            self.unknown.iter().filter(|label| is_choice(label)).cloned().collect();
        let of = if self.raw.is_empty() { "" } else { " of the file systems" };
        let best = self.unbeaten(&choice);
        let (mut parts, mut told) = (Vec::new(), Vec::new());
        let winner = match best.as_slice() {
            [one] if choice.len() > 1 && unknown.is_empty() => Some(*one),
            _ => None,
        };
        if let Some(winner) = winner {
            let much = match winner.verdict {
                Some(Verdict::Faster) => {
                    format!(", at {} times the cost of {}", winner.range(), self.baseline)
                }
                _ => String::new(),
            };
            parts.push(format!("{} is fastest{of}{much}", winner.label));
        } else if best.len() < choice.len() {
            told = [labels(&best), unknown.clone()].concat();
            let unknown_named = unknown.clone();
            let names = best.iter().map(|one| self.looks(one)).chain(unknown);
            let names: Vec<String> = names.collect();
            let is_open = self.two_by_two(&best).iter().any(|two| two.mark == "?");
            let how = self.how_near(&best);
            let how = how.map_or(String::new(), |how| format!(" ({how})"));
            parts.push(if is_open || !unknown_named.is_empty() {
                let few = few_rounds(self.rounds, "name a winner", "No winner");
                format!("{few} among {}{how}", text::list(&names))
            } else {
                format!("{} is fastest{of}{how}", text::any_of(&names))
            });
        } else if let Some(others) = self.like_baseline(&choice).filter(|_| unknown.is_empty()) {
            told = labels(&choice);
            parts.extend(others);
        }
        parts.extend(self.against_baseline(winner));
        parts.extend(self.others(winner));
        parts.extend(self.runners_up(&choice, &best));
        parts.extend(self.level(&told));
        parts.extend(self.open(&told));
        if self.is_brief {
            parts.truncate(1);
        }
        parts
    }

    /// Labels of those who may be the fastest, where these are several and not the same.
    pub fn rivals(&self) -> Option<Vec<String>> {
        let best = self.unbeaten(&self.choice());
        (best.len() > 1 && !self.are_same(&best)).then(|| labels(&best))
    }

    /// All but the bare device, which nobody can choose.
    fn choice(&self) -> Vec<&Standing> {
        self.ranked.iter().filter(|one| !self.raw.contains(&one.label)).collect()
    }

    /// Those of `standings` whom none of the others surely beats.
    fn unbeaten<'a>(&self, standings: &[&'a Standing]) -> Vec<&'a Standing> {
        let is_beaten = |one: &Standing| standings.iter().any(|other| self.beats(other, one));
        standings.iter().copied().filter(|one| !is_beaten(one)).collect()
    }

    /// How near to each other those are who may be fastest.
    fn how_near(&self, best: &[&Standing]) -> Option<String> {
        let is_near =
            |one: &&Standing| one.verdict.is_none() || one.is_marked("=") || one.is_marked("~");
        let has_baseline = best.iter().any(|one| one.verdict.is_none());
        match () {
            () if !self.unknown.is_empty() => None,
            () if has_baseline && best.len() > 2 && best.iter().all(is_near) => {
                Some(format!("within {} of {}", self.bound(best), self.baseline))
            }
            () => Some(self.apart(best)),
        }
    }

    /// Whether any two of these are surely the same.
    fn are_same(&self, standings: &[&Standing]) -> bool {
        self.two_by_two(standings).iter().all(|between| between.mark == "=")
    }

    fn two_by_two(&self, standings: &[&Standing]) -> Vec<Between> {
        let pairs = standings.iter().enumerate().flat_map(|(place, one)| {
            standings[place + 1..].iter().map(|other| self.between(one, other))
        });
        pairs.collect()
    }

    /// `the same within 5 %`, `at most 26 % apart`, `at most 2.2 times apart`: how much more one of
    /// them may cost than another.
    fn apart(&self, standings: &[&Standing]) -> String {
        let factors = self.two_by_two(standings).into_iter();
        let factors = factors.flat_map(|between| [between.ends.1, between.ends.0.recip()]);
        match factors.fold(1.0, f64::max) {
            _ if self.are_same(standings) => {
                format!("the same within {}", percent(self.same_within))
            }
            most if most < 2.0 => {
                format!("at most {:.0} % apart", (most * 100.0 - 100.0).ceil())
            }
            most => format!("at most {:.1} times apart", (most * 10.0).ceil() / 10.0),
        }
    }

    /// `no clear winner: ext4 and xfs are within 7 % of minfs`, `ext4 and xfs are at most 9 % apart`, where
    /// nobody is surely different; None where there is nobody else, or more may be between them.
    fn like_baseline(&self, choice: &[&Standing]) -> Option<[String; 2]> {
        let others: Vec<&Standing> =
            choice.iter().copied().filter(|one| one.verdict.is_some()).collect();
        let is_near = |one: &&Standing| one.is_marked("~") || one.is_marked("=");
        let is_told = choice.len() > others.len() && others.len() > 1;
        if !is_told || !others.iter().all(is_near) || others.iter().all(|one| one.is_marked("=")) {
            return None;
        }
        let names = text::list(&labels(&others));
        let (bound, baseline) = (self.bound(&others), &self.baseline);
        let near = format!("no clear winner: {names} are within {bound} of {baseline}");
        Some([near, format!("{names} are {}", self.apart(&others))])
    }

    /// How far from the baseline these are at the most.
    fn bound(&self, near: &[&Standing]) -> String {
        let bounds = near.iter().map(|one| (1.0 - one.ends.0).max(one.ends.1 - 1.0));
        percent((bounds.fold(self.same_within, f64::max) * 100.0 - 1e-9).ceil() / 100.0)
    }

    /// Who is surely faster or slower than the baseline, and by how much.
    fn against_baseline(&self, winner: Option<&Standing>) -> Vec<String> {
        let is_best = winner.is_some_and(|winner| winner.verdict.is_none());
        let size = |one: &Standing| {
            let is_winner = winner.is_some_and(|winner| winner.label == one.label);
            match one.verdict {
                Some(Verdict::Faster) if !is_winner => Some(one.range()),
                Some(Verdict::Slower) => Some(one.range()),
                _ => None,
            }
        };
        let sized = self.ranked.iter().filter_map(|one| Some((size(one)?, one.label.clone())));
        let sized = text::grouped(sized).into_iter();
        let said = sized.map(|(how, all)| {
            let verb = if all.len() == 1 { "costs" } else { "cost" };
            format!("{} {verb} {how}", text::list(&all))
        });
        let said: Vec<String> = said.collect();
        let of = if is_best { String::new() } else { format!(" as {}", self.baseline) };
        // What they have in common is said once.
        let all = (!said.is_empty()).then(|| format!("{} times as much{of}", text::list(&said)));
        all.into_iter().collect()
    }

    /// Which two that are not the baseline are told apart, where the sizes of both do not say so.
    fn others(&self, winner: Option<&Standing>) -> Vec<String> {
        let is_told = |one: &Standing, other: &Standing| {
            winner.is_some_and(|winner| winner.label == one.label)
                || [one, other].iter().all(|one| one.verdict.is_some_and(|it| it.is_different()))
        };
        let ahead = |slow: &Standing| {
            let beats = |one: &&Standing| {
                one.verdict.is_some()
                    && !self.raw.contains(&one.label)
                    && self.beats(one, slow)
                    && !is_told(one, slow)
            };
            labels(&self.ranked.iter().filter(beats).collect::<Vec<_>>())
        };
        let slow = self.ranked.iter().filter(|one| one.verdict.is_some());
        let pairs = slow.map(|one| (ahead(one), one.label.clone()));
        let pairs = text::grouped(pairs.filter(|(ahead, _)| !ahead.is_empty())).into_iter();
        let said = pairs.map(|(fast, slow)| {
            format!("{} {} faster than {}", text::list(&fast), verb(&fast), text::list(&slow))
        });
        said.collect()
    }

    /// How near to each other those are who come first when the baseline cannot be had, or else the next
    /// behind the fastest.
    fn runners_up(&self, choice: &[&Standing], best: &[&Standing]) -> Option<String> {
        let is_best = |one: &Standing| best.iter().any(|other| other.label == one.label);
        let first_of = |is_left: &dyn Fn(&Standing) -> bool| {
            let left: Vec<&Standing> = choice.iter().copied().filter(|one| is_left(one)).collect();
            let first = self.unbeaten(&left);
            let all_near = self.two_by_two(&first).iter().all(|two| ["=", "~"].contains(&two.mark));
            let is_new = first.len() > 1 && !first.iter().all(|one| is_best(one));
            (is_new && all_near).then_some(first)
        };
        let others = first_of(&|one| one.verdict.is_some());
        let first = others.or_else(|| first_of(&|one| one.verdict.is_some() && !is_best(one)))?;
        Some(format!("{} are {}", text::list(&labels(&first)), self.apart(&first)))
    }

    /// Who is surely like the baseline, the same or apart by no more than so much, of those who are not
    /// `told` of.
    fn level(&self, told: &[String]) -> Vec<String> {
        let of = |mark: &str| -> Vec<&Standing> {
            let is = |one: &&Standing| one.is_marked(mark) && !told.contains(&one.label);
            self.ranked.iter().filter(is).collect()
        };
        let (same, near) = (of("="), of("~"));
        let mut parts = Vec::new();
        if !same.is_empty() {
            let mut names = vec![self.baseline.clone()];
            names.extend(labels(&same));
            let within = percent(self.same_within);
            parts.push(format!("{} are the same within {within}", text::list(&names)));
        }
        let names = labels(&near);
        parts.extend((!near.is_empty()).then(|| {
            let most = self.bound(&near);
            format!("{} {} within {most} of {}", text::list(&names), verb(&names), self.baseline)
        }));
        parts
    }

    /// Of whom nothing is sure, of those who are not `told` of.
    fn open(&self, told: &[String]) -> Option<String> {
        let open = self.ranked.iter().filter(|one| one.is_marked("?"));
        let open = open.map(|one| (&one.label, self.looks(one)));
        let open = open.chain(self.unknown.iter().map(|label| (label, label.clone())));
        let open = open.filter(|(label, _)| !told.contains(label));
        let open: Vec<String> = open.map(|(_, said)| said).collect();
        let against = &self.baseline;
        (!open.is_empty()).then(|| format!("{OPEN}{against}: {}", text::list(&open)))
    }

    /// The label; where a large difference is likely and not sure, with how it looks.
    fn looks(&self, one: &Standing) -> String {
        let is_far = one.cost.max(one.cost.recip()) > 1.0 + BOUND_MAX;
        if is_far && one.is_marked("?") {
            format!("{} (cost {} so far)", one.label, text::ratio(one.cost))
        } else {
            one.label.clone()
        }
    }
}

fn labels(standings: &[&Standing]) -> Vec<String> {
    standings.iter().map(|one| one.label.clone()).collect()
}

fn verb(labels: &[String]) -> &'static str {
    if labels.len() == 1 { "is" } else { "are" }
}
