//! Where contenders stand under a load, in words: who beats whom, who is like the baseline, and of whom
//! nothing is known.
//!
//! Two are told apart by the comparison of the two. So are two others whose intervals against the baseline
//! do not touch: all these intervals hold together, so this errs no more often.

use std::collections::{BTreeMap, BTreeSet};

use lab::analysis::WorkloadAnalysis;
use lab::plan::Plan;
use lab::statistics::{BOUND_MAX, Verdict};
use lab::words::{is_telling, percent};

use crate::quotient::{speed_of, speeds};
use crate::tables::{has_no_figure, primary_comparisons, verdict_mark};
use crate::text;

/// Where contenders stand under a load.
#[derive(Clone)]
pub struct Standings {
    /// The fastest first.
    ranked: Vec<Standing>,
    /// What is known of the speed of one over that of another, by their labels, where neither is the baseline.
    direct: BTreeMap<String, BTreeMap<String, Between>>,
    /// Labels of those whose interval tells nothing.
    unknown: Vec<String>,
    baseline: String,
    /// Labels of the bare device.
    raw: Vec<String>,
    same_within: f64,
}

/// One whose interval tells something.
#[derive(Clone)]
struct Standing {
    label: String,
    /// Its speed over the baseline's, and the ends of its interval; all 1 for the baseline.
    speed: f64,
    ends: (f64, f64),
    /// None for the baseline.
    verdict: Option<Verdict>,
}

/// What is known of the speed of one over that of another.
#[derive(Clone, Copy)]
struct Between {
    ends: (f64, f64),
    /// As [`verdict_mark`] has it.
    mark: &'static str,
}

impl Between {
    /// The speed of the other over that of the one.
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
    /// `3 to 18 % slower than ext4`, `1.9 to 4 times as slow as ext4`, rounded outwards; of whom is
    /// left out for `baseline` None.
    fn loss(&self, baseline: Option<&str>) -> String {
        let (low, high) = self.ends;
        let (how, of) = match low {
            // More percent are easily taken for those of the time.
            low if low < 1.0 - BOUND_MAX => {
                let most = match low.recip() {
                    most if most > 100.0 => "over 100".into(),
                    most if most > 10.0 => format!("{:.0}", most.ceil()),
                    most => format!("{:.1}", (most * 10.0).ceil() / 10.0),
                };
                // As many digits as show that it is slower.
                let least = high.recip();
                let digits = if least >= 1.1 {
                    1
                } else if least >= 1.01 {
                    2
                } else {
                    3
                };
                let scale = 10f64.powi(digits as i32);
                let least = (least * scale).floor() / scale;
                (format!("{least:.digits$} to {most} times as slow"), "as")
            }
            low => {
                let most = (100.0 - low * 100.0).ceil();
                (format!("{} to {most:.0} % slower", percent_down(1.0 - high)), "than")
            }
        };
        match baseline {
            Some(baseline) => format!("{how} {of} {baseline}"),
            None => how,
        }
    }

    /// `3 to 78 % faster than ext4`, `2.1 to 3.4 times as fast as ext4`, rounded outwards.
    fn gain(&self, baseline: &str) -> String {
        let (low, high) = self.ends;
        if high < 2.0 {
            let (least, most) = (percent_down(low - 1.0), (high * 100.0 - 100.0).ceil());
            return format!("{least} to {most:.0} % faster than {baseline}");
        }
        let (least, most) = ((low * 10.0).floor() / 10.0, (high * 10.0).ceil() / 10.0);
        format!("{least:.1} to {most:.1} times as fast as {baseline}")
    }

    /// Whether its verdict against the baseline has this mark.
    fn is_marked(&self, mark: &str) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| verdict_mark(verdict) == mark)
    }
}

/// A share in percent, rounded down: `3`, `0.4`.
fn percent_down(share: f64) -> f64 {
    let digits = if share < 0.01 { 10.0 } else { 1.0 };
    (share * 100.0 * digits).floor() / digits
}

impl Standings {
    /// What the primary comparisons of a load say.
    pub fn of(workload: &WorkloadAnalysis, plan: &Plan) -> Standings {
        let baseline = plan.baseline_label().to_string();
        let first =
            Standing { label: baseline.clone(), speed: 1.0, ends: (1.0, 1.0), verdict: None };
        let (mut ranked, mut unknown) = (vec![first], Vec::new());
        for one in
            primary_comparisons(workload).filter(|one| !has_no_figure(workload, &one.contender))
        {
            let (label, verdict) = (one.contender.clone(), Some(one.verdict));
            match speeds(one).zip(one.ratio) {
                Some((ends, ratio)) if is_telling(ends.0, ends.1) => {
                    ranked.push(Standing { label, speed: speed_of(one, ratio), ends, verdict });
                }
                _ => unknown.push(label),
            }
        }
        ranked.sort_by(|one, other| other.speed.total_cmp(&one.speed));
        let raw = plan.study.contenders.iter().filter(|one| one.is_raw());
        let raw = raw.map(|one| one.label.clone()).collect();
        let mut direct = BTreeMap::<_, BTreeMap<_, _>>::new();
        for one in &workload.direct {
            let Some(ends) = speeds(one) else { continue };
            let between = Between { ends, mark: verdict_mark(&one.verdict) };
            direct.entry(one.contender.clone()).or_default().insert(one.baseline.clone(), between);
        }
        Standings { ranked, direct, unknown, baseline, raw, same_within: plan.study.same_within }
    }

    /// The same as a sentence.
    pub fn sentence(&self) -> String {
        format!("{}.", self.said().join("; "))
    }

    /// What holds under two loads: each interval has room for that of both. None where contenders do not
    /// stand alike in them, a figure of one lies outside of the other's interval, or something is open.
    pub fn joined(&self, other: &Standings) -> Option<Standings> {
        let both = |one: &Standing| {
            let with = other.ranked.iter().find(|with| with.label == one.label)?;
            let mark = |one: &Standing| one.verdict.as_ref().map(verdict_mark);
            let ends = (one.ends.0.min(with.ends.0), one.ends.1.max(with.ends.1));
            let speed = (one.speed * with.speed).sqrt();
            // An interval may be a point, which a mean misses by its rounding.
            let lies_in = |one: &Standing, ends: (f64, f64)| {
                (ends.0 * 0.999..=ends.1 * 1.001).contains(&one.speed)
            };
            let is_alike = mark(one) == mark(with)
                && mark(one) != Some("?")
                && lies_in(one, with.ends)
                && lies_in(with, one.ends);
            is_alike.then(|| Standing { speed, ends, ..one.clone() })
        };
        let mut ranked = self.ranked.iter().map(both).collect::<Option<Vec<_>>>()?;
        ranked.sort_by(|one, other| other.speed.total_cmp(&one.speed));
        let mut direct = self.direct.clone();
        for (one, others) in &mut direct {
            let with = other.direct.get(one);
            others.retain(|label, between| {
                let with = with.and_then(|with| with.get(label));
                with.inspect(|with| *between = between.joined(**with)).is_some()
            });
        }
        let joined = Standings { ranked, direct, ..self.clone() };
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
        let is_apart = one.ends.0 > other.ends.1 && one.ends.1 > other.ends.0 * margin;
        let both = one.verdict.and(other.verdict).is_some();
        self.between(one, other).mark == "+" || (both && is_apart)
    }

    /// What is known of the speed of one over that of another.
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
                Some(Verdict::Faster) => format!(", {}", winner.gain(&self.baseline)),
                _ => String::new(),
            };
            parts.push(format!("{} is fastest{of}{much}", winner.label));
        } else if best.len() < choice.len() {
            told = [labels(&best), unknown.clone()].concat();
            let names = best.iter().map(|one| self.looks(one)).chain(unknown);
            let names: Vec<String> = names.collect();
            let is_open = self.two_by_two(&best).iter().any(|two| two.mark == "?");
            let open = if is_open { "not decided: " } else { "" };
            let how = self.how_near(&best);
            parts.push(format!("{open}{} is fastest{of} ({how})", text::any_of(&names)));
        } else if let Some(others) = self.like_baseline(&choice).filter(|_| unknown.is_empty()) {
            told = labels(&choice);
            parts.extend(others);
        }
        parts.extend(self.against_baseline(winner));
        parts.extend(self.others(winner));
        parts.extend(self.runners_up(&choice, &best));
        parts.extend(self.level(&told));
        parts.extend(self.open(&told));
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
    fn how_near(&self, best: &[&Standing]) -> String {
        let is_near =
            |one: &&Standing| one.verdict.is_none() || one.is_marked("=") || one.is_marked("~");
        let has_baseline = best.iter().any(|one| one.verdict.is_none());
        match () {
            () if !self.unknown.is_empty() => "which is open".into(),
            () if has_baseline && best.len() > 2 && best.iter().all(is_near) => {
                format!("within {} of {}", self.bound(best), self.baseline)
            }
            () => self.apart(best),
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

    /// `the same within 5 %`, `at most 26 % apart`, `at most 2.2 times apart`: how many times as fast one
    /// of them may be as another.
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
        let than = (!is_best).then_some(self.baseline.as_str());
        let size = |one: &Standing| match one.verdict {
            Some(Verdict::Faster) if winner.is_none_or(|winner| winner.label != one.label) => {
                Some(one.gain(&self.baseline))
            }
            Some(Verdict::Slower) => Some(one.loss(than)),
            _ => None,
        };
        let sized = self.ranked.iter().filter_map(|one| Some((size(one)?, one.label.clone())));
        let sized = text::grouped(sized).into_iter();
        let said = sized.map(|(how, all)| format!("{} {} {how}", text::list(&all), verb(&all)));
        // What several have in common is said once.
        let times = format!(" times as fast as {}", self.baseline);
        let (factors, mut others): (Vec<_>, Vec<_>) = said.partition(|said| said.ends_with(&times));
        if !factors.is_empty() {
            let figures: Vec<String> =
                factors.iter().map(|said| said[..said.len() - times.len()].into()).collect();
            others.insert(0, text::list(&figures) + &times);
        }
        others
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
        (!open.is_empty()).then(|| format!("inconclusive against {against}: {}", text::list(&open)))
    }

    /// The label; where a large difference is likely and not sure, with how it looks.
    fn looks(&self, one: &Standing) -> String {
        let is_far = one.speed.max(one.speed.recip()) > 1.0 + BOUND_MAX;
        if is_far && one.is_marked("?") {
            format!("{} (looks {} times as fast)", one.label, text::ratio(one.speed))
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
