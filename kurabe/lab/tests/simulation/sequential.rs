//! Whole studies under the stop rule, simulated: balanced orders, comparisons that leave when they
//! are decided, effects of the order taken out, warnings. It draws from a seed and judges nothing.

use lab::contender::Known;
use lab::plan::Plan;
use lab::statistics::{
    ComparisonOptions, CostEstimate, Group, OrderEffects, OrderedRun, Slow, StopRule, TIGHT,
    compare_families, order, serial_correlation,
};
use lab::study::{CommandText, StudyText, WorkloadText};

use super::Laboratory;

/// What makes the trials of a study differ besides the truth; the noise of a trial is 5 % where
/// nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Case {
    /// Normal on logarithms.
    Normal,
    /// All trials of a block share a shock of 50 %.
    BlockEffects,
    /// Student's t with three degrees of freedom.
    HeavyTails,
    /// Now and then two to six trials in a row take half as long again.
    Bursts,
    /// Every trial takes 1 % longer than the one before it.
    Drift,
    /// The others have a long slow side (exponential), the baseline has none; the means of the
    /// logarithms are equal.
    Skew,
    /// Each contender's noise follows its own of the block before by 0.3.
    Follows3,
    /// By 0.6.
    Follows6,
    /// What runs after the first of the others takes 10 % longer.
    CarryOver,
    /// The first trial of a block takes 20 % longer.
    SlowFirst,
    /// Times are read from a clock with steps of 5 %.
    Discretised,
    /// The first of the others scatters four times as much.
    UnequalSpread,
    /// The baseline scatters four times as much, and all ratios share it.
    NoisyBaseline,
    /// The first of the others does not vary at all.
    OneConstant,
}

pub const CASES: [Case; 14] = [
    Case::Normal,
    Case::BlockEffects,
    Case::HeavyTails,
    Case::Bursts,
    Case::Drift,
    Case::Skew,
    Case::Follows3,
    Case::Follows6,
    Case::CarryOver,
    Case::SlowFirst,
    Case::Discretised,
    Case::UnequalSpread,
    Case::NoisyBaseline,
    Case::OneConstant,
];

/// How a simulated study ended.
pub struct Ended {
    /// The comparisons of the others with the baseline.
    pub compared: Vec<CostEstimate>,
    /// Blocks that were run.
    pub blocks: usize,
    /// Whether a warning was earned that casts doubt on the comparisons.
    pub warned: bool,
}

/// Studies of one shape, whose orders come from plans as in earnest.
pub struct Studies {
    plan: Plan,
    truth: Vec<f64>,
    options: ComparisonOptions,
    rule: StopRule,
    /// Whether effects of the order are taken out, as in earnest.
    pub takes_order_out: bool,
}

impl Studies {
    /// Studies of contenders with these true values, the baseline first.
    pub fn new(truth: &[f64], blocks_min: u32, blocks_max: u32, same_within: f64) -> Studies {
        let text = StudyText {
            contenders: (0..truth.len()).map(|label| format!("c{label}: ext4")).collect(),
            min_runs: Some(blocks_min),
            max_runs: Some(blocks_max),
            workloads: vec![WorkloadText {
                command: Some(CommandText::Line("true".into())),
                ..Default::default()
            }],
            ..Default::default()
        };
        let plan = Plan::new(text.resolve(&Known::named(["ext4"])).expect("the study is sound"), 0);
        let rule = plan.stop_rule.clone();
        let options = ComparisonOptions { same_within, ..ComparisonOptions::default() };
        Studies { plan, truth: truth.to_vec(), options, rule, takes_order_out: true }
    }

    /// One study.
    pub fn run(&self, laboratory: &mut Laboratory, case: Case, sigma: f64) -> Ended {
        let count = self.truth.len();
        let seed = (laboratory.uniform() * 1e15) as u64;
        let plan = Plan::new(self.plan.study.clone(), seed);
        let mut source = Source { case, sigma, state: vec![None; count], ..Source::default() };
        let mut samples: Vec<Vec<Option<f64>>> = vec![Vec::new(); count];
        let mut turns: Vec<OrderedRun> = Vec::new();
        let mut open = vec![true; count];
        let mut previous = None;
        let (mut compared, mut warned) = (Vec::new(), false);
        for (block, planned) in plan.blocks.iter().enumerate() {
            samples.iter_mut().for_each(|own| own.push(None));
            let shock = laboratory.normal();
            let mut first = true;
            for trial in planned.trials.iter().filter(|trial| open[trial.contender]) {
                let own = trial.contender;
                let noise = source.next(laboratory, own, shock, first, previous);
                let mut value = self.truth[own] * noise.exp();
                if case == Case::Discretised {
                    value = (value / 0.05).round() * 0.05;
                }
                turns.push(OrderedRun {
                    block,
                    contender: own,
                    first,
                    previous,
                    value: value.ln(),
                });
                samples[own][block] = Some(value);
                (first, previous) = (false, Some(own));
            }
            let blocks = block as u32 + 1;
            if blocks < self.rule.min_blocks {
                continue;
            }
            let found = if self.takes_order_out {
                order(&turns, count, 0)
            } else {
                OrderEffects {
                    values: turns.iter().map(|turn| turn.value).collect(),
                    ..OrderEffects::default()
                }
            };
            let mut adjusted = samples.clone();
            for (turn, value) in turns.iter().zip(&found.values) {
                adjusted[turn.contender][turn.block] = Some(value.exp());
            }
            let corrections = (1..count).map_while(|own| found.corrections.get(own).copied());
            let group = Group {
                baseline: adjusted[0].clone(),
                contenders: adjusted[1..].to_vec(),
                corrections: corrections.collect(),
                ..Group::default()
            };
            let looks = self.rule.looks(blocks, |_| None);
            let options = ComparisonOptions { looks, ..self.options.clone() };
            compared = compare_families(&[group], &options)
                .expect("simulated samples are positive")
                .remove(0);
            let tight = TIGHT.min(self.options.same_within).ln_1p();
            for (own, one) in compared.iter().enumerate() {
                let is_tight = one.interval.is_some_and(|i| (i.high / i.low).ln() / 2.0 <= tight)
                    && !one.slow.iter().any(Slow::is_mode);
                open[own + 1] = !(one.verdict.is_decided() || is_tight);
            }
            warned = !found.effects.is_empty()
                || compared.iter().any(|one| one.rests_on_independence)
                || compared.iter().any(|one| one.slow.iter().any(Slow::is_mode))
                || (1..count).any(|own| {
                    let pairs = lab::statistics::pairs(&adjusted[0], &adjusted[own]);
                    serial_correlation(&pairs.0, &pairs.1).is_some()
                });
            if !open[1..].iter().any(|open| *open) {
                return Ended { compared, blocks: block + 1, warned };
            }
        }
        Ended { compared, blocks: plan.blocks.len(), warned }
    }
}

/// Where the noise of a study comes from.
struct Source {
    case: Case,
    sigma: f64,
    /// Of each contender, its noise in the block before.
    state: Vec<Option<f64>>,
    /// Trials that the burst still lasts.
    burst: usize,
    trials: usize,
}

impl Default for Source {
    fn default() -> Source {
        Source { case: Case::Normal, sigma: 0.05, state: Vec::new(), burst: 0, trials: 0 }
    }
}

impl Source {
    fn next(
        &mut self,
        laboratory: &mut Laboratory,
        own: usize,
        shock: f64,
        first: bool,
        previous: Option<usize>,
    ) -> f64 {
        self.trials += 1;
        let sigma = self.sigma;
        let plain = sigma * laboratory.normal();
        let follows = |share: f64, before: Option<f64>| match before {
            None => plain,
            Some(before) => share * before + (1.0 - share * share).sqrt() * plain,
        };
        match self.case {
            Case::Normal | Case::Discretised => plain,
            Case::BlockEffects => plain + 0.5 * shock,
            Case::HeavyTails => {
                let squares: f64 = (0..3).map(|_| laboratory.normal().powi(2)).sum();
                plain / (squares / 3.0).sqrt()
            }
            Case::Bursts => {
                if self.burst == 0 && laboratory.uniform() < 0.05 {
                    self.burst = 2 + laboratory.index(5);
                }
                let disturbed = if self.burst > 0 { 1.5f64.ln() } else { 0.0 };
                self.burst = self.burst.saturating_sub(1);
                plain + disturbed
            }
            Case::Drift => plain + 0.01 * self.trials as f64,
            Case::Skew if own == 0 => plain,
            Case::Skew => -sigma * (laboratory.uniform().ln() + 1.0),
            Case::Follows3 | Case::Follows6 => {
                let share = if self.case == Case::Follows3 { 0.3 } else { 0.6 };
                let value = follows(share, self.state[own]);
                self.state[own] = Some(value);
                value
            }
            Case::CarryOver => plain + if previous == Some(1) { 1.1f64.ln() } else { 0.0 },
            Case::SlowFirst => plain + if first { 1.2f64.ln() } else { 0.0 },
            Case::UnequalSpread => plain * if own == 1 { 4.0 } else { 1.0 },
            Case::NoisyBaseline => plain * if own == 0 { 4.0 } else { 1.0 },
            Case::OneConstant => plain * if own == 1 { 0.0 } else { 1.0 },
        }
    }
}
