//! What a study still has to find out: which contenders the next block needs, and how much longer
//! that will take. A pure function of the plan and the records, which the runner asks before every
//! block and the report at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::options;
use super::primary::{Direct, Primary, others, primary};
use super::samples::{Samples, blocks_reached, reached};
use crate::condition::{self, GateOutcome};
use crate::plan::Plan;
use crate::record::{Outcome, Record};
use crate::statistics::{self, ComparisonOptions, Slow, TIGHT, Verdict};

/// Which trials the next block needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStep {
    /// `[workload][contender]`.
    wanted: Vec<Vec<bool>>,
}

impl NextStep {
    /// Whether the contender is to be tried under the workload.
    pub fn wants(&self, workload: usize, contender: usize) -> bool {
        self.wanted[workload][contender]
    }

    /// Whether nothing is left to be found out.
    pub fn is_over(&self) -> bool {
        !self.wanted.iter().flatten().any(|wanted| *wanted)
    }
}

/// Which trials the block with number `block` needs, from the blocks before it.
///
/// Until the least number of blocks all of them. After that a contender stays as long as its
/// comparison under the workload is open, or it may be the fastest and so may another; the baseline
/// stays as long as any other does.
pub fn next_step(plan: &Plan, records: &[Record], block: u32) -> NextStep {
    let (workloads, contenders) = (plan.study.workloads.len(), plan.study.contenders.len());
    let rule = &plan.stop_rule;
    let all = |wanted: bool| NextStep { wanted: vec![vec![wanted; contenders]; workloads] };
    if block < rule.min_blocks || block >= rule.max_blocks {
        return all(block < rule.min_blocks);
    }
    // A single contender runs until its mean is precise enough. What never succeeds is not waited
    // for.
    if contenders == 1 {
        let goes_on = |workload| {
            let samples = Samples::new(plan, records, workload, block as usize);
            let metric = samples.metrics().into_iter().next();
            let costs = metric.map(|(name, unit)| samples.costs(0, &name, unit));
            let values: Vec<f64> = costs.into_iter().flatten().flatten().collect();
            vec![!values.is_empty() && !statistics::is_tight(&values)]
        };
        return NextStep { wanted: (0..workloads).map(goes_on).collect() };
    }
    // A plan with a fixed number of blocks is judged at its end.
    if rule.first_look.is_none() {
        return all(true);
    }
    let open = open(plan, records, |_| block as usize);
    let mut step = all(false);
    for (workload, comparisons) in open.iter().enumerate() {
        for (contender, state) in others(plan).into_iter().zip(comparisons) {
            if !matches!(state, State::Closed) {
                step.wanted[workload][contender] = true;
                step.wanted[workload][plan.study.baseline] = true;
            }
        }
    }
    step
}

/// The budget ended the study: its last look was at the last whole block. That depends on the time and
/// not on what was measured, so the error that early looks saved is spent there.
pub fn ended_by_budget(plan: &mut Plan, records: &[Record]) {
    let reached = reached(plan, records);
    if reached > 0 && plan.stop_rule.ends.is_empty() {
        plan.stop_rule.ends.push(reached);
    }
}

/// How a comparison stands.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// Its question is answered, or it never will be.
    Closed,
    /// More blocks can answer it; with the blocks so far, the logarithms of the ratio and of its
    /// interval's half width where there are.
    Open { blocks: usize, found: Option<(f64, f64)> },
    /// It is answered, but the contender may be the fastest, and so may another; the same of the ratio
    /// of these two.
    Rivals { blocks: usize, found: (f64, f64) },
}

/// How every primary comparison stands, by workload.
fn open(plan: &Plan, records: &[Record], blocks: impl Fn(usize) -> usize) -> Vec<Vec<State>> {
    let samples: Vec<Samples<'_>> = (0..plan.study.workloads.len())
        .map(|workload| Samples::new(plan, records, workload, blocks(workload)))
        .collect();
    let labels: Vec<&str> =
        others(plan).iter().map(|place| plan.study.contenders[*place].label.as_str()).collect();
    let options = options(plan, records);
    let state = |label: &str, compared: &statistics::CostEstimate| {
        if compared.pairs == 0 || is_answered(plan, label, compared) {
            return State::Closed;
        }
        State::Open { blocks: compared.pairs, found: known_at_end(compared, &options) }
    };
    let of_workload = |primary: &Primary| -> Vec<State> {
        let compared = labels.iter().zip(&primary.compared);
        let mut states: Vec<State> = compared.map(|(label, one)| state(label, one)).collect();
        for (place, found) in rivals(plan, primary, &options) {
            if states[place] == State::Closed {
                states[place] = found;
            }
        }
        states
    };
    primary(plan, records, &samples, &options).iter().map(of_workload).collect()
}

/// The comparisons whose contender may be the fastest while another may be so too, and the baseline is
/// not, with what is known of these two. Such two are told apart by the comparison of their own. Gates ask
/// something else.
fn rivals(plan: &Plan, primary: &Primary, options: &ComparisonOptions) -> Vec<(usize, State)> {
    let others = others(plan);
    let is_choice = !plan.study.contenders[plan.study.baseline].is_raw();
    let is_beaten = primary.compared.iter().any(|one| one.verdict == Verdict::Faster);
    if !plan.study.gates.is_empty() || (is_choice && !is_beaten) {
        return Vec::new();
    }
    let place = |contender: &usize| others.iter().position(|other| other == contender);
    let loser = |direct: &Direct| match direct.compared.verdict {
        Verdict::Faster => Some(direct.places[0]),
        Verdict::Slower => Some(direct.places[1]),
        _ => None,
    };
    let losers: BTreeSet<usize> = primary.direct.iter().filter_map(loser).collect();
    let is_best = |contender: usize| {
        let compared = place(&contender).map(|place| &primary.compared[place]);
        let is_behind = is_choice && compared.is_some_and(|one| one.verdict == Verdict::Slower);
        !is_behind && !losers.contains(&contender)
    };
    let is_open = |direct: &&Direct| {
        direct.places.iter().all(|contender| is_best(*contender))
            && !is_known(plan, &direct.compared)
    };
    let open = primary.direct.iter().filter(is_open).flat_map(|direct| {
        let compared = &direct.compared;
        let state = known_at_end(compared, options)
            .map(|found| State::Rivals { blocks: compared.pairs, found });
        let both = direct.places.iter().filter_map(place);
        both.filter_map(move |place| Some((place, state?)))
    });
    open.collect()
}

/// The same with the half width that it would have at the last planned look.
fn known_at_end(
    compared: &statistics::CostEstimate,
    options: &ComparisonOptions,
) -> Option<(f64, f64)> {
    let (ratio, half_width) = known(compared)?;
    let alpha = 1.0 - compared.interval?.confidence;
    Some((ratio, half_width * statistics::easing(alpha, &options.looks, compared.pairs)))
}

/// The logarithms of a ratio and of its interval's half width.
fn known(compared: &statistics::CostEstimate) -> Option<(f64, f64)> {
    let (ratio, ends) = compared.ratio.zip(compared.interval)?;
    Some((ratio.ln(), (ends.high / ends.low).ln() / 2.0))
}

/// Whether a comparison's question is answered. Where gates ask about the contender, they are the
/// question; else it is which of the two is faster or whether they are the same. A ratio that is
/// known more closely than anybody asked is an answer too.
fn is_answered(plan: &Plan, label: &str, compared: &statistics::CostEstimate) -> bool {
    let gates = plan.study.gates.iter().filter_map(|gate| condition::parse(gate).ok());
    let ends = compared.interval.map(|interval| (interval.low, interval.high));
    let answers: Vec<_> = gates.filter_map(|gate| gate.answer(label, ends)).collect();
    if !answers.is_empty() {
        return !answers.contains(&GateOutcome::Inconclusive);
    }
    is_known(plan, compared)
}

/// Whether it is known which of two is faster, that they are the same, or their ratio closely enough.
fn is_known(plan: &Plan, compared: &statistics::CostEstimate) -> bool {
    let is_tight = known(compared).is_some_and(|(_, half_width)| half_width <= tight(plan));
    compared.verdict.is_decided() || (is_tight && !compared.slow.iter().any(Slow::is_mode))
}

/// The half width at which a ratio is known closely enough whatever it is, as a logarithm.
fn tight(plan: &Plan) -> f64 {
    TIGHT.min(plan.study.same_within).ln_1p()
}

/// What is open, and how much more it is likely to take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EffortForecast {
    /// Primary comparisons that are open.
    pub open: usize,
    pub comparisons: usize,
    /// Workloads under which two that are not the baseline may be the fastest.
    #[serde(default)]
    pub rivals: usize,
    /// From how many to how many more blocks, where the range is worth saying.
    pub blocks: Option<(u32, u32)>,
    /// How long these take, in ns.
    pub time_ns: Option<(u64, u64)>,
}

/// A range that is wider than this says nothing.
const RANGE_FACTOR_MAX: f64 = 6.0;
/// Unless it ends so soon.
const SOON_BLOCKS_MAX: f64 = 20.0;
/// Fewest blocks from which the scatter of the next ones can be guessed.
const FORECAST_BLOCKS_MIN: usize = 4;
/// More blocks than these nobody will wait for.
const FORECAST_BLOCKS_MAX: f64 = 1000.0;
/// Standard errors in the half width of an interval; what a level of one percent asks for.
const ERRORS_PER_HALF_WIDTH: f64 = 2.6;

impl EffortForecast {
    /// What the records say of the blocks to come; None where nothing is compared.
    pub fn of(plan: &Plan, records: &[Record]) -> Option<EffortForecast> {
        let blocks = |workload| blocks_reached(plan, records, workload);
        let states = open(plan, records, blocks);
        let comparisons = states.iter().flatten().count();
        let mut forecast =
            EffortForecast { open: 0, comparisons, rivals: 0, blocks: None, time_ns: None };
        let (mut least, mut most, mut time) = (0.0f64, 0.0f64, (0.0, 0.0));
        for (workload, states) in states.iter().enumerate() {
            let mut of_workload = (0.0f64, 0.0f64);
            let mut turn_ns = trial_ns(plan, records, workload, plan.study.baseline);
            for (contender, state) in others(plan).into_iter().zip(states) {
                let (blocks, found) = match state {
                    State::Closed => continue,
                    State::Open { blocks, found } => (blocks, *found),
                    State::Rivals { blocks, found } => (blocks, Some(*found)),
                };
                forecast.open += usize::from(matches!(state, State::Open { .. }));
                turn_ns += trial_ns(plan, records, workload, contender);
                let (low, high) = found.map_or((0.0, f64::INFINITY), |found| {
                    more_blocks(*blocks, found, plan.study.same_within, tight(plan))
                });
                of_workload = (of_workload.0.max(low), of_workload.1.max(high));
            }
            let has_rivals = states.iter().any(|one| matches!(one, State::Rivals { .. }));
            forecast.rivals += usize::from(has_rivals);
            (least, most) = (least.max(of_workload.0), most.max(of_workload.1));
            time = (time.0 + of_workload.0 * turn_ns, time.1 + of_workload.1 * turn_ns);
        }
        let worth_saying = forecast.is_open()
            && most <= FORECAST_BLOCKS_MAX
            && (most <= RANGE_FACTOR_MAX * least || most <= SOON_BLOCKS_MAX);
        if worth_saying {
            forecast.blocks = Some((least.ceil() as u32, most.ceil() as u32));
            forecast.time_ns = Some((time.0 as u64, time.1 as u64)).filter(|(_, most)| *most > 0);
        }
        (comparisons > 0).then_some(forecast)
    }

    /// Whether more blocks can answer something.
    pub fn is_open(&self) -> bool {
        self.open + self.rivals > 0
    }

    /// The same with what comes before the first trial of another session: the filling of the device.
    pub fn after(self, lead_ns: u64) -> EffortForecast {
        let with = |ns: u64| ns.saturating_add(lead_ns);
        let time_ns = self.time_ns.map(|(least, most)| (with(least), with(most)));
        EffortForecast { time_ns, ..self }
    }

    /// The number of blocks to ask for, where it can be told.
    pub fn more(&self) -> Option<u32> {
        self.blocks.map(|(_, most)| most.next_multiple_of(5))
    }
}

impl fmt::Display for EffortForecast {
    /// `about 12 to 25 more rounds, 6 to 13 min`, or how many comparisons are open.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((least, most)) = self.blocks else {
            return match self.open {
                0 => write!(f, "open: which is the fastest"),
                open => write!(f, "open: {open} of {} comparisons", self.comparisons),
            };
        };
        if least == most {
            write!(f, "about {most} more round{}", if most == 1 { "" } else { "s" })?
        } else {
            write!(f, "about {least} to {most} more rounds")?
        }
        let Some((short, long)) = self.time_ns else { return Ok(()) };
        let (unit_ns, unit) = match long {
            0..120_000_000_000 => (1e9, "s"),
            120_000_000_000..7_200_000_000_000 => (60e9, "min"),
            _ => (3600e9, "h"),
        };
        let (short, long) = ((short as f64 / unit_ns).floor(), (long as f64 / unit_ns).ceil());
        if short == long {
            write!(f, ", {long} {unit}")
        } else {
            write!(f, ", {short} to {long} {unit}")
        }
    }
}

/// From how many to how many blocks more until an interval decides: from one standard deviation
/// of what is known of the scatter, and half a one of the ratio, on the lucky side to the other.
fn more_blocks(blocks: usize, found: (f64, f64), same_within: f64, tight: f64) -> (f64, f64) {
    if blocks < FORECAST_BLOCKS_MIN {
        return (0.0, f64::INFINITY);
    }
    let ((ratio, half_width), margin) = (found, same_within.ln_1p());
    // Half width that suffices if the ratio is what it seems.
    let enough = |ratio: f64| ratio.abs().max(margin - ratio.abs()).max(tight);
    let half_error = half_width / ERRORS_PER_HALF_WIDTH / 2.0;
    let ratios = [ratio - half_error, ratio, ratio + half_error];
    let lucky = ratios.iter().map(|ratio| enough(*ratio)).fold(0.0, f64::max);
    let unlucky = ratios.iter().map(|ratio| enough(*ratio)).fold(f64::INFINITY, f64::min);
    let scatter = (2.0 / (blocks as f64 - 1.0)).sqrt().exp();
    let count = blocks as f64;
    let more = |target: f64, scatter: f64| {
        (count * (half_width / target).powi(2) * scatter - count).max(1.0)
    };
    (more(lucky, scatter.recip()), more(unlucky, scatter))
}

/// How many times as long a study takes as its trials: what passes between them, such as the boot of a guest, is in
/// none of them.
pub fn around_trials(records: &[Record]) -> f64 {
    let mut sessions: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for record in records {
        let (began, ended) =
            (record.started_unix_ns, record.started_unix_ns.saturating_add(record.elapsed_ns));
        let session = sessions.entry(record.session).or_insert((began, ended));
        *session = (session.0.min(began), session.1.max(ended));
    }
    let whole_ns: u64 = sessions.values().map(|(began, ended)| ended - began).sum();
    let own_ns: u64 = records.iter().map(Record::own_elapsed_ns).sum();
    (whole_ns as f64 / own_ns.max(1) as f64).clamp(1.0, AROUND_MAX)
}

/// More than this is a study that somebody stopped and let go on in the same session, or a clock that was set.
const AROUND_MAX: f64 = 10.0;

/// What a contender's trials under a workload take of the study's time, the mean, in ns.
fn trial_ns(plan: &Plan, records: &[Record], workload: usize, contender: usize) -> f64 {
    let name = &plan.study.workloads[workload].name;
    let label = &plan.study.contenders[contender].label;
    let own = records.iter().filter(|record| {
        record.workload == *name
            && record.contender.label == *label
            && record.outcome == Outcome::Completed
    });
    let times: Vec<f64> = own.map(|record| record.own_elapsed_ns() as f64).collect();
    around_trials(records) * times.iter().sum::<f64>() / times.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::spec::SideBySide;

    /// ext4, xfs (twice as slow) and btrfs (the same, noisily) under one workload.
    fn study(blocks: usize) -> (Plan, Vec<Record>) {
        let mut text = fixture::study_text(&["ext4", "xfs", "btrfs"], 5);
        (text.runs, text.min_runs, text.max_runs) = (None, Some(5), Some(20));
        let plan = fixture::plan_of(&text);
        let wobble = |block: usize, step: usize| 1000 + (block * step % 7) as u64 * 20;
        let of = |factor: u64, step| {
            (0..blocks).map(|block| factor * wobble(block, step)).collect::<Vec<u64>>()
        };
        let times = [of(1, 3), of(2, 5), of(1, 2)];
        let records = fixture::records(&plan, &times.each_ref().map(Vec::as_slice));
        (plan, records)
    }

    #[test]
    fn a_decided_contender_leaves_and_the_baseline_stays_for_the_open_one() {
        let (plan, records) = study(6);
        for block in 0..5 {
            let step = next_step(&plan, &records, block);
            assert!((0..3).all(|contender| step.wants(0, contender)), "{block}");
        }
        let step = next_step(&plan, &records, 6);
        let wanted: Vec<bool> = (0..3).map(|contender| step.wants(0, contender)).collect();
        assert_eq!(wanted, [true, false, true]);
        assert!(next_step(&plan, &records, 20).is_over());
        // What lies after the block makes no difference to it.
        assert_eq!(next_step(&plan, &study(9).1, 6), step);
    }

    #[test]
    fn a_study_goes_on_while_two_others_may_be_the_fastest() {
        let labels = ["ext4", "xfs", "btrfs", "b: ext4"];
        let mut text = fixture::study_text(&labels, 5);
        (text.runs, text.min_runs, text.max_runs) = (None, Some(5), Some(20));
        let mut plan = fixture::plan_of(&text);
        let said = |plan: &Plan, btrfs: u64| {
            let of = |base: u64, wobble: u64, step: u64| {
                (0..6).map(|block| base + wobble * (block * step % 3)).collect::<Vec<u64>>()
            };
            let times = [of(2000, 0, 1), of(1000, 30, 1), of(btrfs, 30, 2), of(4000, 5, 1)];
            let records = fixture::records(plan, &times.each_ref().map(Vec::as_slice));
            let (step, forecast) =
                (next_step(plan, &records, 6), EffortForecast::of(plan, &records));
            let wanted: Vec<bool> = (0..4).map(|contender| step.wants(0, contender)).collect();
            let forecast = forecast.unwrap();
            (wanted, forecast.open, forecast.rivals, forecast.to_string())
        };
        // Both are surely faster than the baseline, and which of them is faster is not known.
        let (wanted, open, rivals, words) = said(&plan, 1030);
        assert_eq!((wanted, open, rivals), (vec![true, true, true, false], 0, 1));
        assert!(words.starts_with("about "), "{words}");
        // One is faster beyond doubt.
        assert_eq!(said(&plan, 1500).0, [false; 4]);
        // Two that are the same within the margin.
        plan.study.same_within = 0.3;
        assert_eq!(said(&plan, 1030).0, [false; 4]);
        // Nobody can choose the bare device, and a gate asks something else.
        plan.study.same_within = 0.05;
        plan.study.contenders[1].layers[0].name = "raw".into();
        assert_eq!(said(&plan, 1030).0, [false; 4]);
        plan.study.contenders[1].layers[0].name = "xfs".into();
        plan.study.gates = vec!["xfs <= 1.5".into()];
        assert!(!said(&plan, 1030).0[1]);
    }

    #[test]
    fn a_gate_is_answered_by_its_own_rule() {
        let (mut plan, records) = study(6);
        let wants = |plan: &Plan| next_step(plan, &records, 6).wants(0, 2);
        assert!(wants(&plan));
        plan.study.gates = vec!["btrfs <= 1.5".into()];
        assert!(!wants(&plan), "it holds beyond doubt, whatever the ratio is");
        plan.study.gates = vec!["btrfs <= 1.5".into(), "btrfs <= 1.001".into()];
        assert!(wants(&plan));
    }

    #[test]
    fn the_forecast_is_a_range_of_blocks_and_of_time() {
        let (plan, records) = study(8);
        let forecast = EffortForecast::of(&plan, &records).unwrap();
        assert_eq!((forecast.open, forecast.comparisons), (1, 2));
        let (least, most) = forecast.blocks.unwrap();
        assert!(1 <= least && least <= most && most <= 60, "{forecast:?}");
        // A block of the two that are still tried takes a little over two seconds.
        let (short, long) = forecast.time_ns.unwrap();
        assert!(short >= u64::from(least) * 2_000_000_000 - 1, "{forecast:?}");
        assert!(long <= u64::from(most) * 2_400_000_000, "{forecast:?}");
        assert!(forecast.to_string().starts_with("about "), "{forecast}");
        let none = EffortForecast { blocks: None, ..forecast };
        assert_eq!(none.to_string(), "open: 1 of 2 comparisons");
        let minutes = EffortForecast {
            blocks: Some((12, 25)),
            time_ns: Some((360_000_000_000, 770_000_000_000)),
            ..forecast
        };
        assert_eq!(minutes.to_string(), "about 12 to 25 more rounds, 6 to 13 min");
        assert_eq!(minutes.more(), Some(25));
    }

    /// Between trials a guest boots for as long as each takes, and two that alternate share their time.
    #[test]
    fn the_forecast_has_what_passes_between_trials() {
        let (plan, mut records) = study(8);
        let time =
            |records: &[Record]| EffortForecast::of(&plan, records).unwrap().time_ns.unwrap();
        let plain = time(&records);
        let mut clock_ns = 0;
        for record in &mut records {
            record.started_unix_ns = clock_ns;
            clock_ns += 2 * record.elapsed_ns;
        }
        let (least, most) = time(&records);
        assert!((1.9..=2.0).contains(&(least as f64 / plain.0 as f64)), "{least} {plain:?}");
        assert_eq!(
            EffortForecast::of(&plan, &records).unwrap().after(7).time_ns,
            Some((least + 7, most + 7))
        );
        for record in &mut records {
            record.started_unix_ns = 0;
            record.side_by_side = Some(SideBySide { contenders: 3, part: 0 });
        }
        assert!(time(&records).0 < plain.0, "{:?} {plain:?}", time(&records));
    }

    #[test]
    fn too_few_blocks_and_too_much_noise_have_no_forecast() {
        assert_eq!(more_blocks(3, (0.0, 0.1), 0.05, 0.02).1, f64::INFINITY);
        let (least, most) = more_blocks(10, (0.0, 0.06), 0.05, 0.02);
        assert!(least < most && most < 60.0, "{least} {most}");
    }
}
