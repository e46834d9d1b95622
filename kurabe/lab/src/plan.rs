//! The plan: the ordered list of trials that a study expands to. Pure data, seeded: the same
//! study and seed give the same order on every machine.
//!
//! Invariant: every block holds each pair of workload and contender exactly once.

use std::collections::BTreeSet;

use rand::seq::SliceRandom;
use rand::{Rng as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::condition;
use crate::record::Record;
use crate::spec::{Device, OutputTarget, SCHEMA_VERSION, SideBySide, Tracing, TrialSpec};
use crate::statistics::{BLOCKS_MIN_FOR_INTERVAL, ComparisonOptions, StopRule};
use crate::study::Study;

/// A study with its seed, its stop rule and the order of its trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    pub study: Study,
    /// Seed of the order.
    pub seed: u64,
    /// When a workload has enough blocks.
    pub stop_rule: StopRule,
    /// The trials, block by block; the warm-up blocks come first.
    pub blocks: Vec<PlannedBlock>,
    /// Names of the workloads under which the contenders of a block stand side by side and take
    /// turns; under the others they come one at a time, as in all plans that name none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub side_by_side: BTreeSet<String>,
    /// Which share of a study on several machines this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// Most shards of one study, and of the states of one recording.
pub const SHARDS_MAX: u32 = 10_000;

/// Contenders of a study at most: each is compared with each.
const CONTENDERS_MAX: usize = 256;

/// A share of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Its number, from 1.
    pub number: u32,
    pub of: u32,
    /// Seed of the whole study, from which that of each share was drawn.
    pub seed: u64,
}

/// One trial of every contender under every workload, in random order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedBlock {
    /// Number of the block among those of its kind, from 0.
    pub block: u32,
    /// Whether it is a warm-up block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warmup: bool,
    /// Its trials in order.
    pub trials: Vec<PlannedTrial>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTrial {
    /// Number of the trial, from 0 over the whole plan.
    pub trial: u32,
    /// Index of the workload in the study.
    pub workload: usize,
    /// Index of the contender in the study.
    pub contender: usize,
}

/// Why a shard names no file for the output of its commands.
pub const NO_FILE_OF_SHARDS: &str =
    "--output: a shard names no file of the machine that runs it; leave --output FILE out";

impl Plan {
    /// Expands a study. The order depends on nothing but the study's shape and the seed.
    pub fn new(study: Study, seed: u64) -> Plan {
        let stop_rule = StopRule::deciding(study.blocks_min, study.blocks_max);
        let warmups = (0..study.warmup_blocks).map(|block| (block, true));
        let counted = (0..study.blocks_max).map(|block| (block, false));
        let numbers: Vec<(u32, bool)> = warmups.chain(counted).collect();
        let mut plan = Plan {
            schema: SCHEMA_VERSION,
            study,
            seed,
            stop_rule,
            blocks: Vec::new(),
            side_by_side: BTreeSet::new(),
            shard: None,
        };
        plan.append(numbers);
        plan
    }

    /// Divides the rounds of a study into `of` shares, each a plan of its own with a seed of its own. A
    /// share has a fixed number of rounds, rounded up, and never fewer than tell a cost from noise.
    pub fn shards(mut study: Study, seed: u64, of: u32) -> Vec<Plan> {
        let rounds = study.blocks_max.div_ceil(of).max(BLOCKS_MIN_FOR_INTERVAL as u32);
        (study.blocks_min, study.blocks_max) = (rounds, rounds);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let shards = (1..=of).map(|number| Shard { number, of, seed });
        let plans = shards.map(|shard| Plan {
            shard: Some(shard),
            ..Plan::new(study.clone(), u64::from(random.next_u32()))
        });
        plans.collect()
    }

    /// Lets the study go on for `more` counted blocks after those that the records reach, whatever
    /// its budget was. The error that is left is spent on them, and none anew.
    pub fn go_on(&mut self, records: &[Record], more: u32) {
        let counted = |block: &&PlannedBlock| !block.warmup;
        let planned = self.blocks.iter().filter(counted).count() as u32;
        let reached = records.iter().filter(|record| !record.warmup && record.has_ended());
        let reached = reached.map(|record| record.block + 1).max().unwrap_or(0);
        let most = reached.saturating_add(more);
        self.append((planned..most).map(|block| (block, false)).collect());
        self.stop_rule = self.stop_rule.up_to(most);
        if let Some(runs) = &mut self.study.runs {
            *runs = runs.div_ceil(self.study.blocks_max) * most;
        }
        self.study.blocks_max = most;
        self.study.blocks_min = self.study.blocks_min.min(most);
        let budget_ns = self.study.budget_ns.take();
        self.stop_rule.budget_ns = self.stop_rule.budget_ns.or(budget_ns);
    }

    /// Adds blocks, each in an order of its own that is balanced with those before.
    ///
    /// The trials of one workload stay together, so that its contenders are compared close in time.
    /// Each begins with the contender that the one before ended with, so that what a trial leaves
    /// behind falls on its own contender as often as on any other; of such orders one is drawn in
    /// which each contender has stood in each place, and after each other, as equally often as can
    /// be.
    fn append(&mut self, numbers: Vec<(u32, bool)>) {
        let (workloads, contenders) = (self.study.workloads.len(), self.study.contenders.len());
        let mut balance = Balance::new(workloads, contenders);
        for trial in self.blocks.iter().flat_map(|block| &block.trials) {
            balance.count(trial.workload, trial.contender);
        }
        let last = self.blocks.last().and_then(|block| block.trials.last());
        let mut next = last.map_or(0, |trial| trial.trial + 1);
        for (block, warmup) in numbers {
            let mut random = ChaCha8Rng::seed_from_u64(self.seed);
            // Streams from the end: those from the beginning belong to the trials.
            random.set_stream(u64::MAX - self.blocks.len() as u64);
            let mut trials = Vec::new();
            let mut order: Vec<usize> = (0..workloads).collect();
            order.shuffle(&mut random);
            for workload in order {
                for contender in balance.draw(workload, &mut random) {
                    balance.count(workload, contender);
                    trials.push(PlannedTrial { trial: next, workload, contender });
                    next += 1;
                }
            }
            self.blocks.push(PlannedBlock { block, warmup, trials });
        }
    }

    /// The spec of one planned trial on a device that the runner has prepared.
    pub fn spec(
        &self,
        block: &PlannedBlock,
        trial: PlannedTrial,
        device: Option<&Device>,
        scratch: std::path::PathBuf,
    ) -> TrialSpec {
        let study = &self.study;
        let contender = study.contenders[trial.contender].clone();
        let device = device.filter(|_| contender.needs_device()).cloned().map(|mut device| {
            for one in std::iter::once(&mut device.layers)
                .chain(device.others.iter_mut().map(|other| &mut other.layers))
            {
                one.splice(0..0, contender.below_texts());
            }
            device
        });
        let side_by_side = self.side_by_side(block, trial);
        TrialSpec {
            schema: SCHEMA_VERSION,
            trial: trial.trial,
            order_seed: self.order_seed(trial.trial),
            block: block.block,
            warmup: block.warmup,
            workload: study.workloads[trial.workload].on(&contender),
            contender,
            directory_identity: None,
            device,
            aged: None,
            measure_layout: block.block == 0
                && !block.warmup
                && study.contenders.iter().any(|one| one.aged.is_some()),
            side_by_side,
            node: None,
            power_cuts: None,
            node_death: None,
            cache: study.cache,
            timeout_ns: study.timeout_ns,
            idle_wait_ns_max: study.idle_wait_ns_max,
            discard: study.discard,
            trace: study.trace.then(Tracing::default),
            user: study.user.clone(),
            scratch,
            output: study.output.clone(),
        }
    }

    /// Whether the contenders of a block take turns under the workload with this index.
    pub fn takes_turns(&self, workload: usize) -> bool {
        self.side_by_side.contains(&self.study.workloads[workload].name)
    }

    /// Whether a workload's contenders take turns, and on which part of the device one of them
    /// stands in a block: that is drawn anew for each block, so that a place that is faster than
    /// another favours nobody.
    fn side_by_side(&self, block: &PlannedBlock, trial: PlannedTrial) -> Option<SideBySide> {
        if !self.takes_turns(trial.workload) {
            return None;
        }
        let mut parts: Vec<u32> = (0..self.study.contenders.len() as u32).collect();
        let first = block.trials.iter().find(|other| other.workload == trial.workload)?;
        parts.shuffle(&mut self.random_of(first.trial));
        Some(SideBySide { contenders: parts.len() as u32, part: parts[trial.contender] })
    }

    /// The seed of the order within a trial: another one for each trial of the study.
    fn order_seed(&self, trial: u32) -> u64 {
        self.random_of(trial).next_u64()
    }

    /// What is drawn within a trial. The plan's own order is drawn from stream 0.
    fn random_of(&self, trial: u32) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(1 + u64::from(trial));
        random
    }

    /// Refuses what [`Plan::new`] never makes, so that whoever uses a plan that was read from a
    /// file can rely on its indices and bounds.
    pub fn check(&self) -> Result<(), String> {
        let study = &self.study;
        if study.contenders.is_empty() || study.workloads.is_empty() {
            return Err("the plan has no contender or no workload".into());
        }
        if study.baseline >= study.contenders.len() {
            return Err(format!(
                "the baseline is contender {}, which does not exist",
                study.baseline
            ));
        }
        if let Some(Shard { number, of, .. }) = self.shard
            && (!(1..=of).contains(&number) || of > SHARDS_MAX)
        {
            return Err(format!(
                "it is shard {number} of {of}, and there are at most {SHARDS_MAX}"
            ));
        }
        if self.shard.is_some() && matches!(study.output, OutputTarget::File(_)) {
            return Err(NO_FILE_OF_SHARDS.into());
        }
        if study.contenders.len() > CONTENDERS_MAX {
            let count = study.contenders.len();
            return Err(format!("{count} contenders; a study has at most {CONTENDERS_MAX}"));
        }
        self.stop_rule.check().map_err(|error| format!("the stop rule: {error}"))?;
        ComparisonOptions { same_within: study.same_within, ..Default::default() }
            .check()
            .map_err(|error| format!("the margin: {error}"))?;
        for gate in &study.gates {
            condition::parse(gate).map_err(|error| format!("gate {error}"))?;
        }
        // An analysis makes room for every contender in every block up to the greatest number.
        let pairs = study.contenders.len().saturating_mul(study.workloads.len());
        for block in &self.blocks {
            if block.block as usize >= self.blocks.len() || block.trials.len() != pairs {
                let round = u64::from(block.block) + 1;
                return Err(format!("round {round} is not whole or beyond their number"));
            }
        }
        let trials = self.blocks.iter().flat_map(|block| &block.trials);
        for (number, trial) in trials.enumerate() {
            if trial.trial as usize != number
                || trial.workload >= study.workloads.len()
                || trial.contender >= study.contenders.len()
            {
                return Err(format!("run {number} is of no contender or out of its order"));
            }
        }
        Ok(())
    }

    /// Refuses a record that is of no trial of this plan.
    pub fn check_record(&self, record: &Record) -> Result<(), String> {
        // The trials are in the order of their numbers, as [`Plan::check`] found.
        let after = self.blocks.partition_point(|block| block.trials[0].trial <= record.trial);
        let found = after.checked_sub(1).and_then(|place| {
            let block = &self.blocks[place];
            let trial = block.trials.iter().find(|trial| trial.trial == record.trial)?;
            Some((block, trial))
        });
        let Some((block, trial)) = found else {
            return Err(format!("the plan has no run {}", record.trial));
        };
        let label = &self.study.contenders[trial.contender].label;
        let workload = &self.study.workloads[trial.workload].name;
        if (block.block, block.warmup) != (record.block, record.warmup)
            || *label != record.contender.label
            || *workload != record.workload
        {
            return Err(format!(
                "run {} is of '{label}' under '{workload}' in round {} of the plan, and the record says otherwise",
                record.trial,
                u64::from(block.block) + 1
            ));
        }
        Ok(())
    }

    pub fn baseline_label(&self) -> &str {
        &self.study.contenders[self.study.baseline].label
    }
}

/// How many orders are drawn, of which the most balanced one is taken.
const ORDERS_DRAWN: usize = 60;

/// How often each contender stood where, so far.
#[derive(Debug)]
struct Balance {
    contenders: usize,
    /// `[workload][contender][place]`.
    places: Vec<Vec<Vec<u32>>>,
    /// `[workload][contender before][contender]`.
    pairs: Vec<Vec<Vec<u32>>>,
    /// The contender of the last trial.
    last: Option<usize>,
    /// The workload of the last trial, and its place in its unit.
    at: Option<(usize, usize)>,
}

impl Balance {
    fn new(workloads: usize, contenders: usize) -> Balance {
        let square = vec![vec![0; contenders]; contenders];
        Balance {
            contenders,
            places: vec![square.clone(); workloads],
            pairs: vec![square; workloads],
            last: None,
            at: None,
        }
    }

    /// Counts a trial that follows those that were counted.
    fn count(&mut self, workload: usize, contender: usize) {
        let place = match self.at {
            Some((same, place)) if same == workload => (place + 1) % self.contenders,
            _ => 0,
        };
        self.places[workload][contender][place] += 1;
        if let Some(last) = self.last {
            self.pairs[workload][last][contender] += 1;
        }
        (self.last, self.at) = (Some(contender), Some((workload, place)));
    }

    /// An order of the contenders that evens out what is uneven.
    fn draw(&self, workload: usize, random: &mut ChaCha8Rng) -> Vec<usize> {
        let mut best: Option<(u64, Vec<usize>)> = None;
        for _ in 0..ORDERS_DRAWN {
            let mut order: Vec<usize> = (0..self.contenders).collect();
            order.shuffle(random);
            if let Some(last) = self.last {
                // Two trials of one contender in a row are what balances carry-over.
                let place = order.iter().position(|own| *own == last);
                order.swap(0, place.expect("every contender is in the order"));
            }
            let cost = self.unevenness(workload, &order);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, order));
            }
        }
        best.expect("at least one order was drawn").1
    }

    /// How often what the order holds was there before.
    fn unevenness(&self, workload: usize, order: &[usize]) -> u64 {
        let places = order.iter().enumerate();
        let places = places.map(|(place, own)| self.places[workload][*own][place]);
        let before = self.last.into_iter().chain(order.iter().copied());
        let pairs = before.zip(order.iter().skip(usize::from(self.last.is_none())));
        let pairs = pairs.map(|(before, own)| self.pairs[workload][before][*own]);
        places.chain(pairs).map(u64::from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Known;
    use crate::fixture;
    use crate::study::{CommandText, StudyText, WorkloadText};

    fn study() -> Study {
        StudyText {
            contenders: vec!["ext4".into(), "xfs".into(), "btrfs".into()],
            warmup: Some(1),
            max_runs: Some(8),
            workloads: ["true", "false"]
                .map(|line| WorkloadText {
                    command: Some(CommandText::Line(line.into())),
                    ..Default::default()
                })
                .into(),
            ..Default::default()
        }
        .resolve(&Known::named(["ext4", "xfs", "btrfs"]))
        .unwrap()
    }

    #[test]
    fn blocks_that_would_take_room_without_end_are_refused() {
        let plan = Plan::new(study(), 1);
        assert_eq!(plan.check(), Ok(()));
        let mut far = plan.clone();
        far.blocks.last_mut().unwrap().block = u32::MAX;
        assert!(far.check().unwrap_err().contains("beyond their number"));
        let mut part = plan;
        part.blocks.last_mut().unwrap().trials.pop();
        assert!(part.check().unwrap_err().contains("not whole"));
    }

    #[test]
    fn every_block_is_complete_and_the_numbers_run_on() {
        let plan = Plan::new(study(), 1);
        assert_eq!(plan.blocks.len(), 9);
        let mut next = 0;
        for block in &plan.blocks {
            let mut pairs: Vec<_> =
                block.trials.iter().map(|trial| (trial.workload, trial.contender)).collect();
            pairs.sort_unstable();
            assert_eq!(pairs, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
            for trial in &block.trials {
                assert_eq!(trial.trial, next);
                next += 1;
            }
        }
        assert!(plan.blocks[0].warmup && !plan.blocks[1].warmup);
        assert_eq!(plan.blocks[1].block, 0);
    }

    #[test]
    fn each_trial_has_an_order_of_its_own_that_the_seed_decides() {
        let seeds = |seed: u64| {
            let mut plan = fixture::plan(&["ext4", "xfs"], 3);
            plan.seed = seed;
            (0..6).map(|trial| plan.order_seed(trial)).collect::<Vec<u64>>()
        };
        let (found, distinct) = (seeds(1), seeds(1).into_iter().collect::<BTreeSet<u64>>());
        assert_eq!((distinct.len(), &found), (6, &seeds(1)));
        assert!(seeds(2).iter().all(|seed| !distinct.contains(seed)));
    }

    #[test]
    fn the_seed_alone_decides_the_order() {
        assert_eq!(Plan::new(study(), 7), Plan::new(study(), 7));
        assert_ne!(Plan::new(study(), 7).blocks, Plan::new(study(), 8).blocks);
        // A frozen order: a change of the generator would silently break `resume`.
        let first: Vec<_> = Plan::new(study(), 7).blocks[0]
            .trials
            .iter()
            .map(|trial| (trial.workload, trial.contender))
            .collect();
        assert_eq!(first, FROZEN);
    }

    /// Of any number of blocks from the first on, each contender stood in each place, and after each
    /// contender, itself included, nearly as often as any other.
    #[test]
    fn orders_are_balanced_from_the_beginning_and_stay_so() {
        for contenders in [2, 3, 4, 6] {
            for seed in 0..20 {
                let mut balance = Balance::new(1, contenders);
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                for blocks in 1..=24u32 {
                    for contender in balance.draw(0, &mut random) {
                        balance.count(0, contender);
                    }
                    let apart = |counts: &Vec<Vec<u32>>| {
                        let all = || counts.iter().flatten().copied();
                        all().max().unwrap() - all().min().unwrap()
                    };
                    let (places, pairs) = (apart(&balance.places[0]), apart(&balance.pairs[0]));
                    assert!(
                        places <= 3 && pairs <= 3,
                        "{contenders} contenders, seed {seed}, {blocks} blocks: {balance:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn shards_have_all_rounds_between_them_and_seeds_of_their_own() {
        let shards = Plan::shards(study(), 7, 2);
        assert_eq!(shards, Plan::shards(study(), 7, 2));
        let (first, second) = (&shards[0], &shards[1]);
        assert_eq!((first.study.blocks_min, first.study.blocks_max), (4, 4));
        assert_eq!(second.shard, Some(Shard { number: 2, of: 2, seed: 7 }));
        assert!(first.seed != second.seed && first.blocks != second.blocks);
        assert!(shards.iter().all(|shard| shard.check() == Ok(()) && shard.stop_rule.fixed));
        // A share of one round tells nothing.
        assert_eq!(Plan::shards(study(), 7, 20)[19].study.blocks_max, 3);
        let mut far = first.clone();
        far.shard = Some(Shard { number: 3, of: 2, seed: 7 });
        assert!(far.check().unwrap_err().contains("shard 3 of 2"));
        far.shard = Some(Shard { number: 3, of: u32::MAX, seed: 7 });
        assert!(far.check().unwrap_err().contains("at most 10000"));
        let mut far = first.clone();
        far.stop_rule.max_blocks = u32::MAX;
        assert!(far.check().unwrap_err().contains("at most 1000000"));
        far.stop_rule = first.stop_rule.clone();
        let contender = far.study.contenders[0].clone();
        far.study.contenders.resize(300, contender);
        assert!(far.check().unwrap_err().contains("at most 256"));
    }

    #[test]
    fn a_study_that_goes_on_keeps_its_order_and_its_budget_of_error() {
        let mut plan = Plan::new(study(), 7);
        let first = plan.clone();
        assert_eq!(plan.stop_rule.first_look, Some(5));
        let mut records = vec![fixture::record(&fixture::plan(&["ext4"], 8), 0, 7, 1)];
        records[0].workload = "true".into();
        plan.go_on(&records, 20);
        assert_eq!((plan.blocks.len(), plan.stop_rule.max_blocks), (29, 28));
        assert_eq!(plan.blocks[..first.blocks.len()], first.blocks);
        assert_eq!((plan.stop_rule.first_look, plan.check()), (Some(5), Ok(())));
        // As if it had been planned so from the beginning.
        let mut longer = study();
        longer.blocks_max = 28;
        assert_eq!(plan.blocks, Plan::new(longer, 7).blocks);
        // A number of blocks that was fixed was a look, too.
        let mut fixed = fixture::plan(&["ext4", "xfs"], 6);
        assert_eq!(fixed.stop_rule.first_look, None);
        fixed.go_on(&[], 20);
        assert_eq!((fixed.stop_rule.first_look, fixed.stop_rule.max_blocks), (Some(6), 20));
        assert!(fixed.stop_rule.fixed && !plan.stop_rule.fixed);
    }

    const FROZEN: [(usize, usize); 6] = [(1, 2), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)];
}
