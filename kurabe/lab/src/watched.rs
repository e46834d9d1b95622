//! What the machine did beside a run: time that a hypervisor took, throttling, others on the disk that
//! holds the image. A trial writes down what it saw; whether that disturbed the run is decided here, so
//! that an old result can be judged anew.
//!
//! Waiting for processors, I/O and memory is written down and disturbs nothing: most of it is the
//! contender's own doing, and whoever works more in the background would lose its slow runs.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// What was seen of the machine over one run and its sync. What the machine does not tell is absent.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Watched {
    /// How long was watched, in ns.
    pub elapsed_ns: u64,
    /// Time in ns that the hypervisor gave to others (steal), the mean of all processors; in steps of a
    /// clock tick.
    pub stolen_ns: Option<u64>,
    /// Time in ns in which some task waited for a processor (PSI, `some`); the workload's own are among
    /// them.
    pub cpu_wait_ns: Option<u64>,
    /// The same of I/O.
    pub io_wait_ns: Option<u64>,
    pub memory_wait_ns: Option<u64>,
    /// Times that a processor was throttled for heat.
    pub throttled: Option<u64>,
    /// Bytes that the trial itself moved on its device.
    pub own_bytes: Option<u64>,
    /// Bytes that others moved on the disk that holds the device's image, less what the host writes of
    /// its own for each flush of the trial.
    pub others_bytes: Option<u64>,
    /// Time in ns that other processes than the trial's spent in user mode, the mean of all processors. What the
    /// kernel does may be the contender's own work.
    #[serde(default)]
    pub others_cpu_ns: Option<u64>,
}

/// The processors over one trial, as far as the machine tells.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Processors {
    /// The governors of all of them, each once.
    pub governors: Vec<String>,
    /// Whether the governor of one changed meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub governor_changed: bool,
    /// The lowest frequency that any was seen at, in kHz.
    pub frequency_khz_min: Option<u64>,
    pub frequency_khz_max: Option<u64>,
}

impl Processors {
    /// What they did to a trial of a contender whose trials usually have this highest frequency. Its
    /// own trials, since a workload that waits for its device keeps processors slow by itself.
    pub fn cause(&self, usual_khz: Option<f64>) -> Option<DisturbanceCause> {
        let share = |usual: f64| Some(self.frequency_khz_max? as f64 / usual);
        let is_slow = usual_khz.and_then(share).is_some_and(|share| share < FREQUENCY_SHARE_MIN);
        match () {
            () if self.governor_changed => Some(DisturbanceCause::Governor),
            () if is_slow => Some(DisturbanceCause::Frequency),
            () => None,
        }
    }
}

/// A trial whose fastest processor stays below this share of what is usual was slowed.
const FREQUENCY_SHARE_MIN: f64 = 0.8;

/// What disturbed a run, in the order in which causes are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DisturbanceCause {
    /// The hypervisor gave processor time to others.
    Steal,
    /// Other processes took the processors.
    OthersOnCpu,
    /// A processor was throttled.
    Throttling,
    /// Others used the disk that holds the image.
    OthersOnDisk,
    /// The governor of a processor was changed during the trial.
    Governor,
    /// The processors were slower than in the contender's other trials.
    Frequency,
}

impl DisturbanceCause {
    /// In words, for a list of causes.
    pub fn words(self) -> &'static str {
        match self {
            DisturbanceCause::Steal => "steal",
            DisturbanceCause::OthersOnCpu => "others on the CPU",
            DisturbanceCause::Throttling => "throttling",
            DisturbanceCause::OthersOnDisk => "others on the image's disk",
            DisturbanceCause::Governor => "governor changed",
            DisturbanceCause::Frequency => "slower processors",
        }
    }
}

/// How many runs of a contender (its slices; its trials where it took no turns) were disturbed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Disturbed {
    /// By cause, the most frequent first.
    pub causes: Vec<(DisturbanceCause, usize)>,
    pub of: usize,
}

impl Disturbed {
    pub fn runs(&self) -> usize {
        self.causes.iter().map(|(_, runs)| runs).sum()
    }

    /// Those of several contenders together.
    pub fn of_all<'a>(each: impl IntoIterator<Item = &'a Disturbed>) -> Disturbed {
        let mut all = Disturbed::default();
        for one in each {
            one.causes.iter().for_each(|(cause, runs)| all.add(*cause, *runs));
            all.of += one.of;
        }
        all
    }

    /// `steal: 12, throttling: 2`; a single cause without its number, which is that of all.
    pub fn causes_text(&self) -> String {
        if let [(cause, _)] = self.causes.as_slice() {
            return cause.words().into();
        }
        let causes = self.causes.iter().map(|(cause, runs)| format!("{}: {runs}", cause.words()));
        causes.collect::<Vec<_>>().join(", ")
    }

    pub fn add(&mut self, cause: DisturbanceCause, runs: usize) {
        match self.causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, count)) => *count += runs,
            None => self.causes.push((cause, runs)),
        }
        self.causes.sort_by_key(|(cause, count)| (std::cmp::Reverse(*count), *cause));
    }

    /// Whether that is the exception. What disturbs most runs is how the machine is, and without them
    /// there is nothing to compare.
    pub fn is_exception(&self) -> bool {
        self.runs() * 2 < self.of
    }
}

impl fmt::Display for Disturbed {
    /// `14 of 300 runs, steal: 12, throttling: 2`, `1 of 3 runs, steal`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} runs, {}", self.runs(), self.of, self.causes_text())
    }
}

/// Stolen time above this share of a trial disturbs it.
const STOLEN_SHARE_MAX: f64 = 0.02;
/// Other processes that take more than this share of the processors' time disturb a trial.
const OTHERS_CPU_SHARE_MAX: f64 = 0.25;
/// Others on the disk disturb a run by more than this share of what it moves itself.
const OTHERS_SHARE_MAX: f64 = 0.1;
/// Below this the others are a journal's commit now and then.
const OTHERS_BYTES_MIN: u64 = 64 << 10;

/// What disturbed each run of one trial; `None` for one that was left alone. Time of processors is that of the
/// whole trial: a run may be shorter than the tick in which it is counted.
pub fn causes(runs: &[Option<Watched>]) -> Vec<Option<DisturbanceCause>> {
    let sum = |of: fn(&Watched) -> u64| runs.iter().flatten().map(of).sum::<u64>() as f64;
    let elapsed_ns = sum(|run| run.elapsed_ns);
    let is_stolen = sum(|run| run.stolen_ns.unwrap_or(0)) > STOLEN_SHARE_MAX * elapsed_ns;
    let others_ns = sum(|run| run.others_cpu_ns.unwrap_or(0));
    let is_crowded = others_ns > OTHERS_CPU_SHARE_MAX * elapsed_ns;
    let cause = |run: &Watched| {
        let others = run.others_bytes.unwrap_or(0);
        let own = run.own_bytes.unwrap_or(0) as f64;
        let has_others = others >= OTHERS_BYTES_MIN && others as f64 > OTHERS_SHARE_MAX * own;
        match () {
            () if is_stolen => Some(DisturbanceCause::Steal),
            () if is_crowded => Some(DisturbanceCause::OthersOnCpu),
            () if run.throttled.unwrap_or(0) > 0 => Some(DisturbanceCause::Throttling),
            () if has_others => Some(DisturbanceCause::OthersOnDisk),
            () => None,
        }
    };
    runs.iter().map(|run| run.as_ref().and_then(cause)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Watched = Watched {
        elapsed_ns: 15_000_000,
        stolen_ns: Some(0),
        cpu_wait_ns: Some(3_000_000),
        io_wait_ns: Some(9_000_000),
        memory_wait_ns: Some(0),
        throttled: None,
        own_bytes: Some(5 << 20),
        others_bytes: Some(8192),
        others_cpu_ns: Some(2_000_000),
    };

    #[test]
    fn a_run_is_disturbed_by_what_it_does_not_do_itself() {
        let mut runs = vec![Some(QUIET); 20];
        let disturbed = [
            (Watched { throttled: Some(1), ..QUIET }, Some(DisturbanceCause::Throttling)),
            (
                Watched { others_bytes: Some(600 << 10), ..QUIET },
                Some(DisturbanceCause::OthersOnDisk),
            ),
            (Watched { others_bytes: Some(500 << 10), ..QUIET }, None),
            // A workload that moves nothing is not disturbed by a journal's commit.
            (Watched { own_bytes: Some(0), others_bytes: Some(20 << 10), ..QUIET }, None),
            // It waits for processors, as its own threads can make it.
            (Watched { cpu_wait_ns: Some(15_000_000), ..QUIET }, None),
        ];
        runs.extend(disturbed.iter().map(|(run, _)| Some(*run)));
        runs.push(None);
        let found = causes(&runs);
        assert_eq!(found[..20], [None; 20]);
        let expected: Vec<_> = disturbed.iter().map(|(_, cause)| *cause).chain([None]).collect();
        assert_eq!(found[20..], expected);
        assert_eq!(causes(&[Some(Watched::default()), None]), [None, None]);
    }

    #[test]
    fn time_of_processors_is_judged_over_the_whole_trial() {
        // A tick of 10 ms, the mean of two processors, falls into one of so many runs of 15 ms.
        let trial = |runs: usize| {
            let mut runs = vec![Some(QUIET); runs];
            runs[0] = Some(Watched { stolen_ns: Some(5_000_000), ..QUIET });
            causes(&runs)
        };
        assert_eq!(trial(17), [None; 17]);
        assert_eq!(trial(16), [Some(DisturbanceCause::Steal); 16]);
        // So are other processes: for half of the time of one of two processors, and for less.
        let beside = |others_cpu_ns: u64| {
            causes(&[Some(Watched { others_cpu_ns: Some(others_cpu_ns), ..QUIET }), Some(QUIET)])
        };
        assert_eq!(beside(5_500_000), [None; 2]);
        assert_eq!(beside(5_500_001), [Some(DisturbanceCause::OthersOnCpu); 2]);
    }
}
