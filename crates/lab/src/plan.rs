//! The plan: the ordered list of trials that a study expands to. Pure data, seeded: the same
//! study and seed give the same order on every machine.
//!
//! Invariant: every block holds each pair of workload and contender exactly once.

use rand::seq::SliceRandom;
use rand::{Rng as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::record::Record;
use crate::spec::{Device, SCHEMA_VERSION, TrialSpec};
use crate::statistics::{ComparisonOptions, StopRule, parse_gate};
use crate::study::Study;

/// A study with its seed, its stop rule and the order of its trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// The study.
    pub study: Study,
    /// Seed of the order.
    pub seed: u64,
    /// When a workload has enough blocks.
    pub stop_rule: StopRule,
    /// The trials, block by block; the warm-up blocks come first.
    pub blocks: Vec<PlannedBlock>,
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

/// One trial of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTrial {
    /// Number of the trial, from 0 over the whole plan.
    pub trial: u32,
    /// Index of the workload in the study.
    pub workload: usize,
    /// Index of the contender in the study.
    pub contender: usize,
}

impl Plan {
    /// Expands a study. The order depends on nothing but the study's shape and the seed.
    pub fn new(study: Study, seed: u64) -> Plan {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut next = 0;
        let total = study.warmup_blocks + study.blocks_max;
        let blocks = (0..total)
            .map(|index| {
                let warmup = index < study.warmup_blocks;
                let block = if warmup { index } else { index - study.warmup_blocks };
                let mut trials = Vec::new();
                // The trials of one workload stay together, so that its contenders are compared
                // close in time; the workloads and the contenders are both shuffled.
                let mut workloads: Vec<usize> = (0..study.workloads.len()).collect();
                workloads.shuffle(&mut random);
                for workload in workloads {
                    let mut contenders: Vec<usize> = (0..study.contenders.len()).collect();
                    contenders.shuffle(&mut random);
                    for contender in contenders {
                        trials.push(PlannedTrial { trial: next, workload, contender });
                        next += 1;
                    }
                }
                PlannedBlock { block, warmup, trials }
            })
            .collect();
        let stop_rule = StopRule::between(study.blocks_min, study.blocks_max);
        Plan { schema: SCHEMA_VERSION, study, seed, stop_rule, blocks }
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
        let device = device.filter(|_| contender.directory.is_none()).cloned();
        TrialSpec {
            schema: SCHEMA_VERSION,
            trial: trial.trial,
            order_seed: self.order_seed(trial.trial),
            block: block.block,
            warmup: block.warmup,
            contender,
            directory_identity: None,
            device,
            workload: study.workloads[trial.workload].clone(),
            cache: study.cache,
            timeout_ns: study.timeout_ns,
            idle_wait_ns_max: study.idle_wait_ns_max,
            discard: study.discard,
            user: study.user.clone(),
            scratch,
            output: study.output.clone(),
        }
    }

    /// The seed of the order within a trial: another one for each trial of the study.
    fn order_seed(&self, trial: u32) -> u64 {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        // The plan's own order is drawn from stream 0.
        random.set_stream(1 + u64::from(trial));
        random.next_u64()
    }

    /// Refuses what [`Plan::new`] never makes, so that whoever uses a plan that was read from a
    /// file can rely on its indices and bounds.
    pub fn check(&self) -> Result<(), String> {
        let study = &self.study;
        if study.contenders.is_empty() || study.workloads.is_empty() {
            return Err("the plan has no contender or no workload".into());
        }
        if study.baseline >= study.contenders.len() {
            return Err(format!("the baseline is contender {}, which is none", study.baseline));
        }
        self.stop_rule.check().map_err(|error| format!("the stop rule: {error}"))?;
        ComparisonOptions { same_within: study.same_within, ..Default::default() }
            .check()
            .map_err(|error| format!("the margin: {error}"))?;
        for gate in &study.gates {
            parse_gate(gate).map_err(|error| error.to_string())?;
        }
        for contender in &study.contenders {
            crate::contender::outside::check(contender)
                .map_err(|problem| format!("contender '{}': {problem}", contender.label))?;
        }
        // An analysis makes room for every contender in every block up to the greatest number.
        let pairs = study.contenders.len().saturating_mul(study.workloads.len());
        for block in &self.blocks {
            if block.block as usize >= self.blocks.len() || block.trials.len() != pairs {
                return Err(format!("block {} is not whole or beyond their number", block.block));
            }
        }
        let trials = self.blocks.iter().flat_map(|block| &block.trials);
        for (number, trial) in trials.enumerate() {
            if trial.trial as usize != number
                || trial.workload >= study.workloads.len()
                || trial.contender >= study.contenders.len()
            {
                return Err(format!("trial {number} is of no contender or out of its order"));
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
            return Err(format!("the plan has no trial {}", record.trial));
        };
        let label = &self.study.contenders[trial.contender].label;
        let workload = &self.study.workloads[trial.workload].name;
        if (block.block, block.warmup) != (record.block, record.warmup)
            || *label != record.contender.label
            || *workload != record.workload
        {
            return Err(format!(
                "trial {} is of '{label}' under '{workload}' in block {} of the plan, and the record says otherwise",
                record.trial, block.block
            ));
        }
        Ok(())
    }

    /// Label of the baseline contender.
    pub fn baseline_label(&self) -> &str {
        &self.study.contenders[self.study.baseline].label
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
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
        .resolve(&["ext4", "xfs", "btrfs"])
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

    const FROZEN: [(usize, usize); 6] = [(0, 1), (0, 2), (0, 0), (1, 0), (1, 2), (1, 1)];
}
