//! Who of a block's contenders is next, and when there are enough rounds: pure but for the clock
//! that it is given.
//!
//! In each round every contender that is still there has one turn, in an order drawn from the
//! study's seed. Who ended a round begins the next one: so each contender follows each, itself
//! included, equally often, and what a turn leaves behind burdens all alike. The block is the replicate of the statistics and its set-up is time in which
//! nothing is measured, so by default rounds go on until [`MEASURED_SHARE`] of the block's time was
//! measured; not longer than the budget leaves for each of the blocks that are wanted. Where a
//! run of the workload is carried out in parts, a round is a part, and the block ends with a whole run.

use std::time::Duration;

use lab::event::TrialCommand;
use lab::slice::RunRecord;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// The share of a block's time that is to be measured: run and sync of its slices.
pub const MEASURED_SHARE: f64 = 0.75;

/// Turns that cost much besides the run would never come to that share; then rounds end when they
/// have taken so many times as long as everything around them.
const ROUNDS_TO_SETUP_MAX: f64 = 6.0;

/// What unmounting and checking takes, as a share of what came before the first round.
const TEARDOWN_TO_SETUP: f64 = 0.5;

/// What a schedule comes from, wherever it is followed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Terms {
    /// Seed of the order.
    pub seed: u64,
    /// How long the block goes on.
    pub length: Length,
    /// In how many parts a run of the workload is carried out.
    pub parts: u32,
}

/// How long a block goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Length {
    /// Runs of each contender, when the study fixes their number; nothing else but the limit counts then.
    pub runs: Option<u32>,
    /// Time of its rounds, when the study names one.
    pub rounds: Option<Duration>,
    /// Bounds on the whole block, which the rounds keep to if they can.
    pub share: Option<BudgetShare>,
    /// Bound on the whole block, at which it is broken off.
    pub limit: Option<Duration>,
    /// What a whole run of every contender takes, where that is known before the first one.
    pub round: Option<Duration>,
}

/// What the budget leaves for a block.
///
/// Few blocks know their own scatter badly, and what differs from block to block is only averaged by more
/// of them. So there are more blocks, until their set-up takes the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetShare {
    /// With the least number of blocks.
    pub least: Duration,
    pub twice: Duration,
}

/// A block that lasts so many times as long as its set-up and its end is long enough. With runs that
/// scatter by 10 % and blocks by 4 %, more runs in a block gain less than more blocks.
const SETUPS_PER_BLOCK: f64 = 2.5;

/// The course of one block.
pub struct Schedule<'a> {
    clock: &'a dyn Fn() -> Duration,
    random: ChaCha8Rng,
    terms: Terms,
    begun: Duration,
    ready: Option<Duration>,
    measured: Duration,
    rounds: u32,
    /// Whether the round that goes on is the last one.
    is_last: bool,
    /// The parts of a run of the workload, in the order of the run that goes on: in each round all carry
    /// the same one out.
    parts: Vec<u32>,
    /// Who is still to come in this round, the next one last.
    to_come: Vec<usize>,
    position: u32,
    /// Who had the turn before.
    previous: Option<usize>,
}

impl<'a> Schedule<'a> {
    /// A block that begins now.
    pub fn new(terms: Terms, clock: &'a dyn Fn() -> Duration) -> Schedule<'a> {
        Schedule {
            clock,
            random: ChaCha8Rng::seed_from_u64(terms.seed),
            terms,
            begun: clock(),
            ready: None,
            measured: Duration::ZERO,
            rounds: 0,
            is_last: false,
            parts: (0..terms.parts.max(1)).collect(),
            to_come: Vec::new(),
            position: 0,
            previous: None,
        }
    }

    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Whose turn is next among the contenders that still take turns; nobody's when there were
    /// enough rounds, or when nobody is left.
    pub fn next(&mut self, live: &[usize]) -> Option<(usize, TrialCommand)> {
        let now = (self.clock)();
        let ready = *self.ready.get_or_insert(now);
        self.to_come.retain(|contender| live.contains(contender));
        if self.to_come.is_empty() {
            if self.position > 0 {
                self.rounds += 1;
            }
            if self.is_last || live.is_empty() {
                return None;
            }
            let spent = now.saturating_sub(ready);
            // What the first run costs nobody knew before it was over, unless somebody had told.
            let is_known = self.terms.length.round.is_some() || self.terms.length.runs.is_some();
            if self.rounds == self.terms.parts.max(1) && !is_known && self.is_enough(spent, 0.0) {
                return None;
            }
            self.position = 0;
            self.to_come = live.to_vec();
            self.to_come.shuffle(&mut self.random);
            if let Some(place) = self.to_come.iter().position(|own| Some(*own) == self.previous) {
                let own = self.to_come.remove(place);
                self.to_come.push(own);
            }
            if self.place() == 0 && self.parts.len() > 1 {
                self.parts.shuffle(&mut self.random);
            }
            // A run is not broken off between its parts.
            let ends_run = self.place() + 1 == self.parts.len();
            let runs = (self.rounds + 1) / self.parts.len() as u32;
            self.is_last = ends_run
                && match self.terms.length.runs {
                    Some(wanted) => runs >= wanted,
                    None => self.is_enough(spent, 1.0),
                };
        }
        let contender = self.to_come.pop()?;
        self.previous = Some(contender);
        let (round, position) = (self.rounds, self.position);
        self.position += 1;
        let part = self.parts[self.place()];
        Some((contender, TrialCommand::Slice { round, position, part, last: self.is_last }))
    }

    /// Which part of a run this round is.
    fn place(&self) -> usize {
        self.rounds as usize % self.parts.len()
    }

    /// A turn is over.
    pub fn took(&mut self, slice: &RunRecord) {
        self.measured += Duration::from_nanos(slice.time_ns());
    }

    /// Whether the block has to be broken off.
    pub fn is_over(&self) -> bool {
        let spent = (self.clock)().saturating_sub(self.begun);
        self.terms.length.limit.is_some_and(|limit| spent >= limit)
    }

    /// Whether the block is long enough after so many rounds more, at the end of a run.
    fn is_enough(&self, spent: Duration, rounds_more: f64) -> bool {
        let spent = spent.as_secs_f64();
        let round = match self.rounds {
            0 => {
                let run = self.terms.length.round.unwrap_or_default();
                run.as_secs_f64() / self.parts.len() as f64
            }
            rounds => spent / f64::from(rounds),
        };
        let setup = (self.ready.unwrap_or_default().saturating_sub(self.begun)).as_secs_f64();
        let around = setup * (1.0 + TEARDOWN_TO_SETUP);
        let share = self.measured.as_secs_f64() / spent.max(1e-9);
        let wanted = match self.terms.length.rounds {
            Some(rounds) => rounds.as_secs_f64(),
            None if self.rounds == 0 => f64::INFINITY,
            // measured / (around + rounds) is the share wanted when rounds are
            None => {
                let needed = MEASURED_SHARE * around / (share - MEASURED_SHARE);
                let most = ROUNDS_TO_SETUP_MAX * around;
                if share > MEASURED_SHARE { needed.min(most) } else { most }
            }
        };
        let allowed = self.terms.length.share.map_or(f64::INFINITY, |share| {
            let enough = share.twice.as_secs_f64().max(SETUPS_PER_BLOCK * around);
            let least = share.least.as_secs_f64();
            // Who names a time for the turns gets it as long as it can be.
            self.terms.length.rounds.map_or(enough.min(least), |_| least) - around
        });
        // With the half of another run, on average as often above as below.
        spent + round * (rounds_more + 0.5 * self.parts.len() as f64) >= wanted.min(allowed)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// A block of contenders whose turns take so long; `besides` comes on top of each. Gives the
    /// order of all turns and the share that was measured of the whole block.
    fn block(
        length: Length,
        setup: Duration,
        turns: &[Duration],
        besides: Duration,
    ) -> (Vec<(usize, u32, bool)>, f64) {
        let time = Cell::new(Duration::ZERO);
        let clock = || time.get();
        let pass = |by: Duration| time.set(time.get() + by);
        let mut schedule = Schedule::new(Terms { seed: 7, length, parts: 1 }, &clock);
        pass(setup);
        let live: Vec<usize> = (0..turns.len()).collect();
        let (mut order, mut measured) = (Vec::new(), Duration::ZERO);
        while let Some((contender, turn)) = schedule.next(&live) {
            let TrialCommand::Slice { round, position, last, .. } = turn else {
                panic!("{turn:?}")
            };
            assert_eq!(position as usize, order.len() % turns.len());
            order.push((contender, round, last));
            let run_ns = turns[contender].as_nanos() as u64;
            pass(turns[contender] + besides);
            measured += turns[contender];
            schedule.took(&RunRecord {
                round,
                position,
                run_ns,
                sync_ns: 0,
                device: None,
                idle_device: None,
                metrics: Vec::new(),
                watched: None,
            });
            if schedule.is_over() {
                break;
            }
        }
        pass(setup.mul_f64(TEARDOWN_TO_SETUP));
        (order, measured.as_secs_f64() / time.get().as_secs_f64())
    }

    #[test]
    fn in_each_round_everybody_has_one_turn_in_an_order_of_its_own() {
        let length = Length { rounds: Some(30 * MILLISECOND * 100), ..Length::default() };
        let (order, _) = block(length, MILLISECOND, &[10 * MILLISECOND; 3], Duration::ZERO);
        assert_eq!(order.len(), 300);
        let mut orders = BTreeSet::new();
        for (number, round) in order.chunks(3).enumerate() {
            let contenders: Vec<usize> = round.iter().map(|turn| turn.0).collect();
            assert!(round.iter().all(|turn| turn.1 == number as u32));
            assert_eq!(contenders.iter().collect::<BTreeSet<_>>().len(), 3, "{contenders:?}");
            orders.insert(contenders);
        }
        assert_eq!(orders.len(), 6, "every order occurs");
        let mut followed = [[0; 3]; 3];
        order.windows(2).for_each(|pair| followed[pair[0].0][pair[1].0] += 1);
        assert!(followed.iter().flatten().all(|count| (20..=46).contains(count)), "{followed:?}");
        let firsts = order.iter().step_by(3).fold([0; 3], |mut firsts, turn| {
            firsts[turn.0] += 1;
            firsts
        });
        assert!(firsts.iter().all(|count| (20..=46).contains(count)), "{firsts:?}");
        assert!(order[297..].iter().all(|turn| turn.2) && !order[296].2, "the last is told so");
    }

    #[test]
    fn a_block_measures_most_of_its_time_and_is_no_longer_than_that() {
        for (setup, besides) in [(1000, 0), (1000, 2), (3000, 1)] {
            let (setup, besides) = (setup * MILLISECOND, besides * MILLISECOND);
            let (order, share) = block(Length::default(), setup, &[15 * MILLISECOND; 3], besides);
            assert!(
                (MEASURED_SHARE - 0.01..MEASURED_SHARE + 0.05).contains(&share),
                "{share}, {} turns",
                order.len()
            );
        }
        // What costs as much as the run itself comes to no such share.
        let setup = 1000 * MILLISECOND;
        let (order, _) = block(Length::default(), setup, &[15 * MILLISECOND; 3], 15 * MILLISECOND);
        let rounds = 30 * MILLISECOND * order.len() as u32;
        assert!(rounds.abs_diff(9000 * MILLISECOND) <= 90 * MILLISECOND, "{rounds:?}");
    }

    #[test]
    fn the_budget_leaves_time_for_other_blocks() {
        let rounds = |least_ms: u32, twice_ms: u32| {
            let share =
                BudgetShare { least: least_ms * MILLISECOND, twice: twice_ms * MILLISECOND };
            let length = Length { share: Some(share), ..Length::default() };
            let setup = 1000 * MILLISECOND;
            let (order, _) = block(length, setup, &[15 * MILLISECOND; 3], 3 * MILLISECOND);
            18 * MILLISECOND * order.len() as u32
        };
        for (least_ms, twice_ms, expected_ms) in [
            // The set-up and the end of a block take 1.5 s.
            (12_000, 9000, 7500),
            // More blocks would do little but set up.
            (8000, 3000, 2250),
            // There have to be so many.
            (3000, 2000, 1500),
        ] {
            let rounds = rounds(least_ms, twice_ms);
            assert!(rounds.abs_diff(expected_ms * MILLISECOND) <= 54 * MILLISECOND, "{rounds:?}");
        }
        let share = BudgetShare { least: 10_000 * MILLISECOND, twice: 5000 * MILLISECOND };
        let length =
            Length { rounds: Some(6000 * MILLISECOND), share: Some(share), ..Length::default() };
        let setup = 1000 * MILLISECOND;
        let (order, _) = block(length, setup, &[15 * MILLISECOND; 3], MILLISECOND);
        let wanted = 16 * MILLISECOND * order.len() as u32;
        assert!(wanted.abs_diff(6000 * MILLISECOND) <= 48 * MILLISECOND, "{wanted:?}");
        // One round there is in any case.
        assert_eq!(rounds(1, 1), 54 * MILLISECOND);
    }

    #[test]
    fn one_round_is_enough_for_a_budget_that_has_no_time_for_two() {
        let second = 1000 * MILLISECOND;
        for round in [None, Some(8 * second)] {
            let share = BudgetShare { least: 11 * second, twice: 5 * second };
            let length = Length { share: Some(share), round, ..Length::default() };
            let (order, _) = block(length, second, &[2 * second; 4], Duration::ZERO);
            assert_eq!(order.len(), 4, "with {round:?} known");
        }
    }

    #[test]
    fn a_fixed_number_of_runs_is_carried_out_and_no_more() {
        for (runs, parts) in [(1, 1), (4, 1), (2, 3)] {
            let time = Cell::new(Duration::ZERO);
            let clock = || time.get();
            let length = Length { runs: Some(runs), ..Length::default() };
            let mut schedule = Schedule::new(Terms { seed: 3, length, parts }, &clock);
            let mut turns = 0;
            while let Some((_, TrialCommand::Slice { last, .. })) = schedule.next(&[0, 1]) {
                turns += 1;
                assert_eq!(last, turns > (runs * parts - 1) * 2, "turn {turns} of {runs} runs");
                time.set(time.get() + MILLISECOND);
            }
            assert_eq!(turns, runs * parts * 2);
        }
    }

    #[test]
    fn a_run_in_parts_is_carried_out_whole_and_by_all_alike() {
        for (rounds_ms, runs) in [(1, 1), (170, 2), (230, 3)] {
            let time = Cell::new(Duration::ZERO);
            let clock = || time.get();
            let length = Length { rounds: Some(rounds_ms * MILLISECOND), ..Length::default() };
            let mut schedule = Schedule::new(Terms { seed: 5, length, parts: 4 }, &clock);
            let mut turns = Vec::new();
            while let Some((contender, turn)) = schedule.next(&[0, 1]) {
                let TrialCommand::Slice { round, part, last, .. } = turn else {
                    panic!("{turn:?}")
                };
                turns.push((round, part, last, contender));
                time.set(time.get() + 10 * MILLISECOND);
            }
            assert_eq!(turns.len(), runs * 4 * 2, "{turns:?}");
            let (before, end) = turns.split_at(turns.len() - 2);
            assert!(before.iter().all(|turn| !turn.2) && end.iter().all(|turn| turn.2));
            let mut orders = BTreeSet::new();
            for run in turns.chunks(8) {
                assert!(run.chunks(2).all(|round| round[0].1 == round[1].1), "{run:?}");
                let order: Vec<u32> = run.chunks(2).map(|round| round[0].1).collect();
                assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 4, "{order:?}");
                orders.insert(order);
            }
            assert_eq!(orders.len(), runs, "each run has an order of its own");
        }
    }

    #[test]
    fn who_is_gone_has_no_turn_and_the_others_go_on() {
        let time = Cell::new(Duration::ZERO);
        let clock = || time.get();
        let length = Length { rounds: Some(100 * MILLISECOND), ..Length::default() };
        let mut schedule = Schedule::new(Terms { seed: 1, length, parts: 1 }, &clock);
        let (first, _) = schedule.next(&[0, 1, 2]).unwrap();
        let left: Vec<usize> = (0..3).filter(|contender| *contender != first).collect();
        let mut seen = Vec::new();
        while let Some((contender, _)) = schedule.next(&left) {
            seen.push(contender);
            time.set(time.get() + 10 * MILLISECOND);
        }
        assert!(!seen.contains(&first) && seen.len() >= 8, "{seen:?}");
        assert!(schedule.next(&[]).is_none());
        assert!(!schedule.is_over(), "no limit was given");
    }
}
