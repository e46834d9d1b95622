//! What a run yielded: everything that a record keeps, and the table that the users of
//! CannylsBencher know.
//!
//! Must not know: how it was measured.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vocabulary::check::{Check, CheckVerdict};

use super::plan::{Fit, Plan};
use super::store::StoreOptions;
use crate::latency::{Series, Summary};
use vocabulary::report::Latency;

/// What a run yielded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the store.
    pub store: String,
    /// How it was made.
    pub store_options: StoreOptions,
    /// What it said of itself.
    pub store_facts: BTreeMap<String, String>,
    /// The program that ran, scaled, in the language.
    pub program: String,
    /// What it was going to do.
    pub plan: Plan,
    /// Whether that was going to fit.
    pub fit: Fit,
    /// Operations under way at once.
    pub threads: u32,
    /// Whether latencies count from the intended start (an open loop) or from the start of the call
    /// (a closed one).
    pub open_loop: bool,
    /// What time was read from: `tsc` or `clock_monotonic`.
    pub clock: String,
    /// How the run ended.
    pub outcome: Outcome,
    /// Commands that were carried out.
    pub commands: u64,
    /// Statements that were skipped, because no object was live.
    pub skipped: u64,
    /// Making the store, and making it durable.
    pub create_ns: u64,
    /// From the first command's beginning to the last one's end.
    pub elapsed_ns: u64,
    /// The sync after the last command.
    pub sync_ns: u64,
    /// Bytes of the objects that were put.
    pub bytes_written: u64,
    /// Bytes of the objects that were read, without those read to verify.
    pub bytes_read: u64,
    /// Bytes that the store wrote to the file or device that it lies on, during the commands and
    /// the sync: the objects and its own journal. Absent where the store does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_written_bytes: Option<u64>,
    /// Objects that are live at the end.
    pub live_objects: u64,
    /// Latencies of each kind of command and of all together.
    pub latencies: Summary,
    /// The same over time.
    pub series: Option<Series>,
    /// Every histogram, in the standard log format of HdrHistogram.
    pub histogram_log: String,
    /// What was compared, when that was asked for.
    pub verification: Option<Verification>,
    /// Whether the store answered as the program expects: with what was put, when that was asked for,
    /// or else whether what was put is there. Absent of a store that keeps nothing.
    pub check: Option<Check>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every command was carried out.
    Completed,
    /// The program's limit in time was reached.
    TimeLimit,
    /// The caller ended it.
    Cancelled,
    /// A command failed.
    Failed(Failure),
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// One sentence.
    pub message: String,
    /// The command, or the sweep, that failed.
    pub during: String,
    /// Whether the store had no room left.
    pub store_is_full: bool,
}

/// What was looked at while a program ran, and what of it was wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Answers of the store that were looked at.
    pub tried: u64,
    /// Of these, the wrong ones.
    pub violated: u64,
    /// The first of them in words, with when it was found on the run's clock.
    pub first: Option<(u64, String)>,
}

impl Checked {
    /// One more answer was looked at, with what was wrong about it.
    pub fn count(&mut self, at_ns: u64, wrong: Result<(), String>) {
        self.tried += 1;
        if let Err(wrong) = wrong {
            self.violated += 1;
            self.first.get_or_insert((at_ns, wrong));
        }
    }

    /// Adds what another thread looked at.
    pub fn merge(&mut self, other: Checked) {
        self.tried += other.tried;
        self.violated += other.violated;
        self.first = [self.first.take(), other.first].into_iter().flatten().min();
    }

    /// The check of this name.
    pub fn named(self, name: &str) -> Check {
        let Checked { tried, violated, first } = self;
        Check { tried, violated, first: first.map(|(_, words)| words), ..Check::new(name) }
    }
}

/// What was compared with what was put.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// Objects read by the program.
    pub gets: u64,
    /// Objects read before they were deleted.
    pub deletes: u64,
    /// Objects read at the end, after the store was closed and opened again; all that were live.
    pub swept_objects: u64,
    /// Bytes compared in all.
    pub bytes: u64,
    /// Whether the sweep at the end took place.
    pub complete: bool,
}

impl Report {
    /// Whether the run ended well: to its end or limit, without a failure or a wrong answer.
    pub fn is_success(&self) -> bool {
        let is_violated = |check: &Check| check.verdict() == CheckVerdict::Violated;
        matches!(self.outcome, Outcome::Completed | Outcome::TimeLimit)
            && !self.check.as_ref().is_some_and(is_violated)
            && self.verification.as_ref().is_none_or(|verification| verification.complete)
    }

    /// The table: for each kind what CannylsBencher prints, in its words and order, and after that
    /// what it does not print.
    ///
    /// MiB/s of a kind are its bytes over the sum of its latencies (what one thread saw); overall,
    /// over the time that passed.
    pub fn table(&self) -> String {
        let mut table = String::new();
        let mut kinds: Vec<&Latency> = self.latencies.kinds.iter().collect();
        kinds.sort_by_key(|kind| place_of(&kind.operation));
        for kind in kinds {
            let _ = writeln!(
                table,
                "kind = {}, count = {}, {}",
                kind.operation,
                kind.count,
                figures(kind, kind.total_ns)
            );
        }
        let overall = &self.latencies.overall;
        let _ =
            writeln!(table, "[Overall {}] {}", overall.count, figures(overall, self.elapsed_ns));
        let _ = writeln!(
            table,
            "Total Elapsed Time by Commands = {:?}",
            Duration::from_nanos(overall.total_ns)
        );
        let seconds = self.elapsed_ns.max(1) as f64 / 1e9;
        let _ = writeln!(
            table,
            "Elapsed = {:?}, final sync = {:?}, {:.1} commands/s",
            Duration::from_nanos(self.elapsed_ns),
            Duration::from_nanos(self.sync_ns),
            self.commands as f64 / seconds
        );
        table
    }
}

/// Bytes in a MiB.
const MEBIBYTE: f64 = 1_048_576.0;

/// The percentiles that everyone expects, then the others.
fn figures(kind: &Latency, over_ns: u64) -> String {
    let time = |nanoseconds: u64| format!("{:?}", Duration::from_nanos(nanoseconds));
    let mut figures = String::new();
    for quantile in [0.5_f64, 0.9, 0.95, 0.99, 0.05, 0.999, 0.9999] {
        // Rounded: 0.9999 x 100 is a little less than 99.99.
        let percent = (quantile * 1e4).round() / 100.0;
        let _ = write!(figures, "{percent}% = {}, ", time(kind.at(quantile)));
    }
    let _ = write!(figures, "max = {}", time(kind.max_ns));
    if kind.bytes > 0 && over_ns > 0 {
        let rate = kind.bytes as f64 / MEBIBYTE / (over_ns as f64 / 1e9);
        let _ = write!(figures, ", MiB/s = {rate:.1}");
    }
    figures
}

/// Where a kind stands in the table: by what it does, then by size.
fn place_of(kind: &str) -> (usize, u64, String) {
    const ORDER: [&str; 6] = ["Put", "Embed", "Get", "Delete", "DeleteRange", "Sync"];
    let (verb, rest) = kind.split_once('(').unwrap_or((kind, ""));
    let place = ORDER.iter().position(|known| *known == verb).unwrap_or(ORDER.len());
    let size = rest.trim_end_matches(')').parse().unwrap_or(u64::MAX);
    (place, size, kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_in_the_order_of_the_original() {
        let mut kinds =
            ["Get(7)", "Delete", "Put(uniform:1-2)", "Put(1048576)", "Put(4096)", "Embed(5)"];
        kinds.sort_by_key(|kind| place_of(kind));
        assert_eq!(
            kinds,
            ["Put(4096)", "Put(1048576)", "Put(uniform:1-2)", "Embed(5)", "Get(7)", "Delete"]
        );
    }
}
