//! What the machine did beside a run: time that a hypervisor took, waiting for processors, throttling,
//! others on the disk that holds the image. A trial writes down what it saw; whether that disturbed the
//! run is decided here, so that an old result can be judged anew.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::statistics::summarize;

/// What was seen of the machine over one run and its sync. What the machine does not tell is absent.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Watched {
    /// How long was watched, in ns.
    pub elapsed_ns: u64,
    /// CPU time in ns that the hypervisor gave to others (steal), of all processors together.
    pub stolen_ns: Option<u64>,
    /// Time in ns in which some task waited for a processor (PSI, `some`); the load's own are among
    /// them.
    pub cpu_wait_ns: Option<u64>,
    /// The same of I/O.
    pub io_wait_ns: Option<u64>,
    /// The same of memory.
    pub memory_wait_ns: Option<u64>,
    /// Times that a processor was throttled for heat.
    pub throttled: Option<u64>,
    /// Bytes that the trial itself moved on its device.
    pub own_bytes: Option<u64>,
    /// Bytes that others moved on the disk that holds the device's image.
    pub others_bytes: Option<u64>,
}

/// How fast the processors were when a trial's runs were over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processors {
    /// Their frequency governors, each once.
    pub governors: Vec<String>,
    /// The lowest of their frequencies, in kHz.
    pub frequency_khz_min: u64,
    /// The highest.
    pub frequency_khz_max: u64,
}

/// What disturbed a run, in the order in which causes are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The hypervisor gave processor time to others.
    Steal,
    /// A processor was throttled.
    Throttling,
    /// Others used the disk that holds the image.
    OthersOnDisk,
    /// Tasks waited for a processor more than in the contender's other runs.
    CpuPressure,
}

impl Cause {
    /// In words, for a list of causes.
    pub fn words(self) -> &'static str {
        match self {
            Cause::Steal => "steal",
            Cause::Throttling => "throttling",
            Cause::OthersOnDisk => "others on the image's disk",
            Cause::CpuPressure => "CPU pressure",
        }
    }
}

/// How many runs of a contender (its slices; its trials where it took no turns) were disturbed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Disturbed {
    /// By cause, the most frequent first.
    pub causes: Vec<(Cause, usize)>,
    /// Of how many.
    pub of: usize,
}

impl Disturbed {
    /// All of them.
    pub fn runs(&self) -> usize {
        self.causes.iter().map(|(_, runs)| runs).sum()
    }

    /// Whether that is the exception. What disturbs most runs is how the machine is, and without them
    /// there is nothing to compare.
    pub fn is_exception(&self) -> bool {
        self.runs() * 2 < self.of
    }
}

impl fmt::Display for Disturbed {
    /// `14 of 300 runs (steal: 12, CPU pressure: 2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes = self.causes.iter().map(|(cause, runs)| format!("{}: {runs}", cause.words()));
        let causes: Vec<String> = causes.collect();
        write!(f, "{} of {} runs ({})", self.runs(), self.of, causes.join(", "))
    }
}

/// Stolen time above this share of a run disturbs it.
const STOLEN_SHARE_MAX: f64 = 0.02;
/// Others on the disk disturb a run by more than this share of what it moves itself.
const OTHERS_SHARE_MAX: f64 = 0.1;
/// Below this the others are a journal's commit now and then.
const OTHERS_BYTES_MIN: u64 = 64 << 10;
/// Waiting for processors has to exceed the median of the contender's runs by this share of the time,
/// and by so many times their median absolute deviation (three standard deviations of a normal
/// distribution).
const WAIT_SHARE_MIN: f64 = 0.1;
const WAIT_DEVIATIONS_MIN: f64 = 3.0 * 1.4826;

impl Watched {
    /// Share of the time in which some task waited for a processor.
    fn wait_share(&self) -> Option<f64> {
        Some(self.cpu_wait_ns? as f64 / self.elapsed_ns.max(1) as f64)
    }
}

/// What disturbed each of a contender's runs; `None` for one that was left alone.
pub fn causes(runs: &[Option<Watched>]) -> Vec<Option<Cause>> {
    let shares: Vec<f64> = runs.iter().flatten().filter_map(Watched::wait_share).collect();
    let wait_max = summarize(&shares).ok().map(|usual| {
        let deviation = usual.median_absolute_deviation;
        usual.median + WAIT_SHARE_MIN.max(WAIT_DEVIATIONS_MIN * deviation)
    });
    let cause = |run: &Watched| {
        let stolen = run.stolen_ns.unwrap_or(0) as f64;
        let others = run.others_bytes.unwrap_or(0);
        let own = run.own_bytes.unwrap_or(0) as f64;
        let is_waiting = run.wait_share().zip(wait_max).is_some_and(|(share, most)| share > most);
        let is_found = [
            (stolen > STOLEN_SHARE_MAX * run.elapsed_ns as f64, Cause::Steal),
            (run.throttled.unwrap_or(0) > 0, Cause::Throttling),
            (
                others >= OTHERS_BYTES_MIN && others as f64 > OTHERS_SHARE_MAX * own,
                Cause::OthersOnDisk,
            ),
            (is_waiting, Cause::CpuPressure),
        ];
        is_found.into_iter().find_map(|(found, cause)| found.then_some(cause))
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
    };

    #[test]
    fn a_run_is_disturbed_by_what_it_does_not_do_itself() {
        let mut runs = vec![Some(QUIET); 20];
        let disturbed = [
            (Watched { stolen_ns: Some(310_000), ..QUIET }, Some(Cause::Steal)),
            (Watched { stolen_ns: Some(290_000), ..QUIET }, None),
            (Watched { throttled: Some(1), ..QUIET }, Some(Cause::Throttling)),
            (Watched { others_bytes: Some(600 << 10), ..QUIET }, Some(Cause::OthersOnDisk)),
            (Watched { others_bytes: Some(500 << 10), ..QUIET }, None),
            (Watched { cpu_wait_ns: Some(4_600_000), ..QUIET }, Some(Cause::CpuPressure)),
            (Watched { cpu_wait_ns: Some(4_400_000), ..QUIET }, None),
            // A load that moves nothing is not disturbed by a journal's commit.
            (Watched { own_bytes: Some(0), others_bytes: Some(20 << 10), ..QUIET }, None),
        ];
        runs.extend(disturbed.iter().map(|(run, _)| Some(*run)));
        runs.push(None);
        let found = causes(&runs);
        assert_eq!(found[..20], [None; 20]);
        let expected: Vec<_> = disturbed.iter().map(|(_, cause)| *cause).chain([None]).collect();
        assert_eq!(found[20..], expected);
    }

    #[test]
    fn waiting_is_judged_by_the_contenders_own_habit() {
        // A load of many threads that waits by its nature, a little more or less each time.
        let habit = |wait_ns: u64| Some(Watched { cpu_wait_ns: Some(wait_ns), ..QUIET });
        let mut runs: Vec<_> = (0..20).map(|i| habit(9_000_000 + i * 100_000)).collect();
        runs.push(habit(14_500_000));
        let found = causes(&runs);
        assert_eq!(found[..20], [None; 20]);
        assert_eq!(found[20], Some(Cause::CpuPressure));
        assert_eq!(causes(&[Some(Watched::default()), None]), [None, None]);
    }
}
