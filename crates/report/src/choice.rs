//! Which contender to choose under which load, in sentences: who beats whom, who is like the baseline,
//! and of whom nothing is known.
//!
//! The baseline is told apart from another by the verdict on the two. Two others are told apart where
//! their intervals do not touch: all intervals of a study hold together, so this errs no more often.

use lab::analysis::{Comparison, Cost, RAW, WorkloadAnalysis};
use lab::load::ALL_CELLS;
use lab::plan::Plan;
use lab::statistics::{BLOCKS_MIN_FOR_INTERVAL, BOUND_MAX, Verdict};
use lab::words::{TOO_WIDE, is_telling, percent};

use crate::quotient::{ends_text, speed_of, speeds};
use crate::tables::{
    has_no_figure, primary_comparisons, primary_metric, verdict_mark, verdict_text,
};
use crate::{checks, text};

/// What to choose: a sentence for each load, loads of which the same is said together.
pub fn sentences(workloads: &[WorkloadAnalysis], plan: &Plan) -> Vec<String> {
    if let [workload] = workloads {
        return vec![sentence(workload, plan)];
    }
    let said = workloads.iter().map(|one| (sentence(one, plan), one.workload.clone()));
    let said = text::grouped(said).into_iter();
    said.map(|(said, names)| format!("{}: {said}", text::list(&names))).collect()
}

/// What the counts of each load say, which an emulated processor does not change: who surely writes and
/// flushes less than the baseline, and who more.
pub fn of_counts(workloads: &[WorkloadAnalysis], plan: &Plan) -> Vec<String> {
    counts(workloads, plan, |_| true)
}

/// The same of loads whose times decide nothing, where a count does.
pub fn of_sure_counts(workloads: &[WorkloadAnalysis], plan: &Plan) -> Vec<String> {
    let differs =
        |one: &Comparison| COUNTED.contains(&one.metric.as_str()) && one.verdict.is_different();
    counts(workloads, plan, |one| !is_decided(one) && one.exploratory.iter().any(differs))
}

/// The counts of the device that are told of.
const COUNTED: [&str; 2] = ["bytes written", "flushes"];

fn counts(
    workloads: &[WorkloadAnalysis],
    plan: &Plan,
    is_told: impl Fn(&WorkloadAnalysis) -> bool,
) -> Vec<String> {
    let said = |workload: &WorkloadAnalysis| {
        let [written, flushes] = COUNTED;
        let bytes = |cost: &Cost| cost.device_written_bytes.map(text::bytes);
        let count = |cost: &Cost| cost.device_flushes.map(text::count);
        let parts = [
            (apart(workload, plan, written, bytes), "written".to_string()),
            (apart(workload, plan, flushes, count), flushes.to_string()),
        ];
        let parts = parts.into_iter().filter_map(|(said, what)| Some((said?, what)));
        let parts = text::grouped(parts).into_iter();
        let parts: Vec<String> =
            parts.map(|(said, whats)| format!("{}: {said}", text::list(&whats))).collect();
        (!parts.is_empty()).then(|| (parts.join("; "), workload.workload.clone()))
    };
    let told = workloads.iter().filter(|one| is_told(one));
    let said = text::grouped(told.filter_map(said)).into_iter();
    let of_one = workloads.len() == 1;
    said.map(|(said, names)| match of_one {
        true => format!("{said}."),
        false => format!("{}: {said}.", text::list(&names)),
    })
    .collect()
}

/// `xfs less (4 MiB), zfs more (42 MiB) than ext4 (16 MiB)`: who surely has less or more of something than the
/// baseline. None where it was not counted.
fn apart(
    workload: &WorkloadAnalysis,
    plan: &Plan,
    metric: &str,
    value: impl Fn(&Cost) -> Option<String>,
) -> Option<String> {
    let value = |label: &str| value(&workload.contender(label)?.cost);
    let all = || workload.exploratory.iter().filter(|one| one.metric == metric);
    all().next()?;
    let with = |verdict: Verdict, how: &str| -> Vec<String> {
        let found = all().filter(|one| one.verdict == verdict);
        let found = found.filter_map(|one| Some((value(&one.contender)?, one.contender.clone())));
        let found = text::grouped(found).into_iter();
        found.map(|(value, who)| format!("{} {how} ({value})", text::list(&who))).collect()
    };
    let parts = [with(Verdict::Faster, "less"), with(Verdict::Slower, "more")].concat();
    let baseline = plan.baseline_label();
    let is_same = all().all(|one| matches!(one.verdict, Verdict::Same { .. }));
    Some(match parts.is_empty() {
        true if is_same => "the same".into(),
        true => "no sure difference".into(),
        false => format!("{} than {baseline} ({})", parts.join(", "), value(baseline)?),
    })
}

/// Whether any two contenders are told apart, or surely the same, under a load.
pub fn is_decided(workload: &WorkloadAnalysis) -> bool {
    primary_comparisons(workload).any(|one| one.verdict.is_decided())
}

/// Who is fastest under a load, who is slower, and what is not known; of two contenders the ratio.
pub fn sentence(workload: &WorkloadAnalysis, plan: &Plan) -> String {
    with_checks(workload, plan, || {
        let mut parts = match primary_comparisons(workload).collect::<Vec<_>>().as_slice() {
            [one] if has_no_figure(workload, &one.contender) => Vec::new(),
            [one] => vec![against(one)],
            _ => standings(workload, plan).said(),
        };
        if let Some(first) = parts.first_mut()
            && primary_metric(workload) == ALL_CELLS
        {
            first.push_str(", on average over all cells");
        }
        parts
    })
}

/// Who lost data is said first: whoever is fast without keeping what was written has won nothing. Then
/// the parts of the sentence, and last who completed no trial.
fn with_checks(
    workload: &WorkloadAnalysis,
    plan: &Plan,
    parts: impl Fn() -> Vec<String>,
) -> String {
    let mut sentences = checks::lost(workload);
    if let Some(why) = nothing_to_compare(workload, plan) {
        sentences.extend(why);
        return sentences.join(" ");
    }
    let parts: Vec<String> = parts().into_iter().chain(without_figure(workload)).collect();
    sentences.extend((!parts.is_empty()).then(|| format!("{}.", parts.join("; "))));
    sentences.join(" ")
}

/// Where contenders stand under a load.
struct Standings {
    /// The fastest first.
    ranked: Vec<Standing>,
    /// Labels of those whose interval tells nothing.
    unknown: Vec<String>,
    baseline: String,
    /// Labels of the bare device.
    raw: Vec<String>,
    same_within: f64,
}

/// One whose interval tells something.
struct Standing {
    label: String,
    /// Its speed over the baseline's, and the ends of its interval; all 1 for the baseline.
    speed: f64,
    ends: (f64, f64),
    /// None for the baseline.
    verdict: Option<Verdict>,
}

fn standings(workload: &WorkloadAnalysis, plan: &Plan) -> Standings {
    let baseline = plan.baseline_label().to_string();
    let first = Standing { label: baseline.clone(), speed: 1.0, ends: (1.0, 1.0), verdict: None };
    let (mut ranked, mut unknown) = (vec![first], Vec::new());
    for one in primary_comparisons(workload).filter(|one| !has_no_figure(workload, &one.contender))
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
    let raw = plan.study.contenders.iter().filter(|one| one.file_system == RAW);
    let raw = raw.map(|one| one.label.clone()).collect();
    Standings { ranked, unknown, baseline, raw, same_within: plan.study.same_within }
}

impl Standing {
    /// `3 to 78 % slower`: how much less it does than the baseline, rounded outwards.
    fn loss(&self) -> String {
        let (low, high) = self.ends;
        format!("{} to {:.0} % slower", percent_down(1.0 - high), (100.0 - low * 100.0).ceil())
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
    /// Whether the first is surely faster than the second, by more than the margin.
    fn beats(&self, one: &Standing, other: &Standing) -> bool {
        match (one.verdict, other.verdict) {
            (None, Some(verdict)) => verdict == Verdict::Slower,
            (Some(verdict), None) => verdict == Verdict::Faster,
            _ => {
                let margin = 1.0 + self.same_within;
                one.ends.0 > other.ends.1 && one.ends.1 > other.ends.0 * margin
            }
        }
    }

    /// The parts of a sentence: which file system is fastest, how far others are from the baseline, who
    /// else beats whom, and of whom nothing is sure.
    fn said(&self) -> Vec<String> {
        // Nobody can choose the bare device.
        let is_choice = |label: &String| !self.raw.contains(label);
        let choice: Vec<&Standing> =
            self.ranked.iter().filter(|one| is_choice(&one.label)).collect();
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
            let how = self.how_near(&best);
            parts.push(format!("{} is fastest{of} ({how})", text::any_of(&names)));
        }
        parts.extend(self.against_baseline(winner));
        parts.extend(self.others(winner));
        parts.extend(self.level(&told));
        parts.extend(self.open(&told));
        parts
    }

    /// Those of `standings` whom none of the others surely beats.
    fn unbeaten<'a>(&self, standings: &[&'a Standing]) -> Vec<&'a Standing> {
        let is_beaten = |one: &Standing| standings.iter().any(|other| self.beats(other, one));
        standings.iter().copied().filter(|one| !is_beaten(one)).collect()
    }

    /// How near to each other those are who may be fastest.
    fn how_near(&self, best: &[&Standing]) -> String {
        let all = |marks: &[&str]| {
            let is = |one: &&Standing| {
                one.verdict.is_none() || marks.iter().any(|mark| one.is_marked(mark))
            };
            self.unknown.is_empty()
                && best.iter().all(is)
                && best.iter().any(|one| one.verdict.is_none())
        };
        match () {
            () if all(&["="]) => format!("the same within {}", percent(self.same_within)),
            () if !all(&["=", "~"]) => "not told apart".into(),
            () if best.len() == 2 => format!("at most {} apart", self.bound(best)),
            () => format!("within {} of {}", self.bound(best), self.baseline),
        }
    }

    /// How far from the baseline these are at the most.
    fn bound(&self, near: &[&Standing]) -> String {
        let bounds = near.iter().map(|one| (1.0 - one.ends.0).max(one.ends.1 - 1.0));
        percent((bounds.fold(self.same_within, f64::max) * 100.0 - 1e-9).ceil() / 100.0)
    }

    /// Who is surely faster or slower than the baseline, and by how much.
    fn against_baseline(&self, winner: Option<&Standing>) -> Vec<String> {
        let is_best = winner.is_some_and(|winner| winner.verdict.is_none());
        let than = if is_best { String::new() } else { format!(" than {}", self.baseline) };
        let size = |one: &Standing| match one.verdict {
            Some(Verdict::Faster) if winner.is_none_or(|winner| winner.label != one.label) => {
                Some(one.gain(&self.baseline))
            }
            Some(Verdict::Slower) => Some(format!("{}{than}", one.loss())),
            _ => None,
        };
        let sized = self.ranked.iter().filter_map(|one| Some((size(one)?, one.label.clone())));
        let sized = text::grouped(sized).into_iter();
        sized.map(|(how, all)| format!("{} {} {how}", text::list(&all), verb(&all))).collect()
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
            let verb = if names.len() == 1 { "differs" } else { "differ" };
            let most = self.bound(&near);
            format!("{} {verb} from {} by at most {most}", text::list(&names), self.baseline)
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
        match is_far && one.is_marked("?") {
            true => format!("{} (looks {} times as fast)", one.label, text::ratio(one.speed)),
            false => one.label.clone(),
        }
    }
}

fn labels(standings: &[&Standing]) -> Vec<String> {
    standings.iter().map(|one| one.label.clone()).collect()
}

fn verb(labels: &[String]) -> &'static str {
    if labels.len() == 1 { "is" } else { "are" }
}

/// Why there is no comparison, which may have been said; None where there is one.
fn nothing_to_compare(workload: &WorkloadAnalysis, plan: &Plan) -> Option<Option<String>> {
    let baseline = plan.baseline_label();
    if workload.contenders.iter().all(|contender| contender.metrics.is_empty()) {
        return Some(match checks::any(workload) {
            true => checks::sentence(workload),
            false => Some("No contender completed a trial.".into()),
        });
    }
    if workload.contenders.len() > 1
        && workload.contender(baseline).is_some_and(|c| c.violation().is_some())
    {
        let next = format!("{baseline} is the baseline: choose another with --baseline.");
        return Some(Some(next));
    }
    if workload.contenders.len() == 1 {
        return Some(Some(format!(
            "{baseline} is alone: name a second contender to compare it with."
        )));
    }
    if !has_no_figure(workload, baseline) {
        return None;
    }
    let advice = match workload.contender(baseline).is_some_and(|one| one.failed > 0) {
        true => ": choose another with --baseline",
        false => "",
    };
    Some(Some(format!("{baseline}, the baseline, completed no trial{advice}.")))
}

/// What is said of the contenders that completed no trial.
fn without_figure(workload: &WorkloadAnalysis) -> Vec<String> {
    let of = workload.contenders.iter().filter(|contender| contender.metrics.is_empty());
    of.filter(|contender| contender.checks.is_empty() || contender.failed > 0)
        .map(|contender| match contender.failed {
            0 => format!("{} was not tried", contender.label),
            _ => format!("{} failed in every trial", contender.label),
        })
        .collect()
}

/// What is said of one contender against the baseline: its ratio and interval as in the table.
fn against(comparison: &Comparison) -> String {
    let Comparison { contender, baseline, ratio, blocks, .. } = comparison;
    let verdict = verdict_text(&comparison.verdict);
    match (&comparison.verdict, ratio, speeds(comparison)) {
        (Verdict::Faster | Verdict::Slower, Some(ratio), Some((low, high))) => format!(
            "{contender} is {verdict}: {} times as fast as {baseline} ({})",
            text::ratio(speed_of(comparison, *ratio)),
            ends_text(low, high)
        ),
        (Verdict::Same { .. }, ..) => format!("{contender} and {baseline} are the {verdict}"),
        (bounded, ..) if bounded.bound().is_some() => {
            format!("{contender} is {verdict} than {baseline}")
        }
        (_, _, Some((low, high))) if is_telling(low, high) => format!(
            "{contender} against {baseline}: {verdict} ({} times as fast)",
            ends_text(low, high)
        ),
        (_, _, Some(_)) => {
            format!("{contender} against {baseline}: {verdict} (interval {TOO_WIDE})")
        }
        _ => format!(
            "{contender} against {baseline}: {verdict} (both completed {}, {BLOCKS_MIN_FOR_INTERVAL} are needed)",
            text::counted(*blocks, "block")
        ),
    }
}
