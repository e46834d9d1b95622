//! The latencies of a result: the histograms that the trials left beside their records, merged
//! over the trials by workload, contender and operation. A percentile is read from the merged
//! histogram and never averaged.
//!
//! Reads `histograms/trial-N.hlog` of a result directory ([`log`]). Knows nothing of what was
//! measured.
//!
//! Invariants: the trials that count are those that the analysis compares; a trial's histograms
//! are merged all or none, and those of a file that is missing, damaged, or of other counts than
//! its record are none and are named; whatever the bytes of a file are, reading them neither
//! panics, nor waits, nor takes more memory than `SUMS_BUCKETS_MAX` says.

use std::fmt;
use std::thread;

use hdrhistogram::Histogram;
use lab::analysis::{Analysis, ContenderAnalysis, completed_trials};
use lab::plan::Plan;
use lab::record::Record;
use lab::result::{HISTOGRAMS_DIRECTORY, histogram_file};
use lab::workload::{Latency, OVERALL_OPERATION};
use trust::Directory;

use log::{LogReader, OperationHistogram, add, empty_histogram};

mod log;

/// Buckets of all sums together, 8 bytes each: those of a result of 500 contenders and kinds have
/// less than 40 000 each.
const SUMS_BUCKETS_MAX: usize = 64 << 20;

/// The merged histograms of a result.
#[derive(Debug, Clone, Default)]
pub struct Histograms {
    merged: Vec<MergedHistogram>,
    damage: Vec<HistogramDamage>,
}

/// The latencies of one kind of operation over the counted, completed trials of one contender
/// under one workload.
#[derive(Debug, Clone)]
pub struct MergedHistogram {
    pub workload: String,
    pub contender: String,
    /// Kind of operation; [`OVERALL_OPERATION`] stands for all kinds together.
    pub operation: String,
    /// Trials that it was merged from.
    pub trials: usize,
    /// Greatest latency, exact: the records keep it beside the histograms.
    pub max_ns: u64,
    histogram: Histogram<u64>,
}

/// Histograms of a trial that are left out, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramDamage {
    pub workload: String,
    pub contender: String,
    pub trial: u32,
    /// The file and what is wrong with it.
    pub problem: String,
}

impl fmt::Display for HistogramDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "latencies of run {}: {}", self.trial, self.problem)
    }
}

/// A bucket of a histogram in which something was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Least latency that falls into it.
    pub low_ns: u64,
    /// Greatest latency that falls into it.
    pub high_ns: u64,
    /// Operations in it.
    pub count: u64,
}

impl MergedHistogram {
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that so great a share of the operations (from 0 to 1) did not exceed: the upper
    /// end of the bucket that holds the operation of rank `ceil(quantile x count)`, at most 0.1 %
    /// above it, and never above the maximum.
    pub fn value_at(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.max_ns)
    }

    /// The buckets in which something was counted, in rising order: from these a density is drawn.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.histogram.iter_recorded().map(|entry| Bucket {
            low_ns: self.histogram.lowest_equivalent(entry.value_iterated_to()),
            high_ns: self.histogram.highest_equivalent(entry.value_iterated_to()),
            count: entry.count_at_value(),
        })
    }
}

impl Histograms {
    /// Reads and merges the histograms of the trials that the analysis compares, on all CPUs.
    pub fn read(directory: &Directory, plan: &Plan, records: &[Record]) -> Histograms {
        let workloads = 0..plan.study.workloads.len();
        let trials: Vec<&Record> = workloads
            .flat_map(|workload| completed_trials(plan, records, workload).into_iter().flatten())
            .filter(|record| latencies_of(record).next().is_some())
            .collect();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let share = trials.len().div_ceil(threads).max(1);
        let mut sums = Sums::default();
        thread::scope(|scope| {
            let room = SUMS_BUCKETS_MAX / threads;
            let parts: Vec<_> = trials
                .chunks(share)
                .map(|part| scope.spawn(move || Sums::read(directory, part, room)))
                .collect();
            for part in parts {
                sums.append(part.join().expect("reading never panics"));
            }
        });
        sums.sum_kinds();
        Histograms { merged: sums.sums, damage: sums.damage }
    }

    /// All of them: by workload and contender in the study's order, then by operation in the order
    /// of their first use.
    pub fn iter(&self) -> impl Iterator<Item = &MergedHistogram> {
        self.merged.iter()
    }

    /// The one of an operation, when the trials have one.
    pub fn get(
        &self,
        workload: &str,
        contender: &str,
        operation: &str,
    ) -> Option<&MergedHistogram> {
        self.merged.iter().find(|merged| merged.is(workload, contender, operation))
    }

    /// What had to be left out.
    pub fn damage(&self) -> &[HistogramDamage] {
        &self.damage
    }

    /// Puts the merged percentiles in the place of the trials' medians, and what was left out among
    /// the findings. Where a contender has no histogram at all, the medians stay and a finding says
    /// so.
    pub fn put_into(&self, analysis: &mut Analysis) {
        for workload in &mut analysis.workloads {
            for contender in &mut workload.contenders {
                self.put_into_contender(&workload.workload, contender);
            }
        }
    }

    fn put_into_contender(&self, workload: &str, contender: &mut ContenderAnalysis) {
        let mut merged_any = false;
        for latency in &mut contender.latencies {
            let Some(merged) = self.get(workload, &contender.label, &latency.operation) else {
                continue;
            };
            merged_any = true;
            for (quantile, value) in &mut latency.quantiles_ns {
                *value = merged.value_at(*quantile);
            }
        }
        let left_out: Vec<String> = self
            .damage
            .iter()
            .filter(|damage| damage.workload == workload && damage.contender == contender.label)
            .map(HistogramDamage::to_string)
            .collect();
        if left_out.is_empty() {
            return;
        }
        let consequence = if merged_any {
            "the percentiles leave it out"
        } else {
            "no histogram is left, so each percentile is the median of the runs' own"
        };
        contender.findings.push(format!("{} ({consequence})", left_out.join("; ")));
    }
}

/// What was read of some trials, in the order of their first use.
#[derive(Default)]
struct Sums {
    sums: Vec<MergedHistogram>,
    damage: Vec<HistogramDamage>,
}

impl Sums {
    /// The kinds of these trials, which have `room` buckets in all; those of all kinds together
    /// have no counts yet.
    fn read(directory: &Directory, trials: &[&Record], room: usize) -> Sums {
        let mut found = Sums::default();
        let mut reader = LogReader::default();
        for record in trials {
            let added = read_trial(&mut reader, directory, record).and_then(|()| {
                let kinds = reader.kinds();
                let filled = found.sums.iter().map(|sum| &sum.histogram);
                let all = filled.chain(kinds.iter().map(|kind| &kind.histogram));
                if all.map(Histogram::distinct_values).sum::<usize>() > room {
                    Err("there are more kinds of operations than can be kept".into())
                } else {
                    found.add_trial(record, kinds);
                    Ok(())
                }
            });
            match added {
                Ok(()) => {}
                Err(problem) => found.damage.push(HistogramDamage {
                    workload: record.workload.clone(),
                    contender: record.contender.label.clone(),
                    trial: record.trial,
                    problem,
                }),
            }
        }
        found
    }

    fn add_trial(&mut self, record: &Record, kinds: &[OperationHistogram]) {
        for kind in kinds {
            let sum = self.of(record, &kind.name);
            add(&mut sum.histogram, &kind.histogram);
            sum.raise_max(record, &kind.histogram);
            // The counts of all kinds together are summed up in the end, out of the kinds' own.
            self.of(record, OVERALL_OPERATION).raise_max(record, &kind.histogram);
        }
        for sum in self.sums.iter_mut().filter(|sum| sum.is_of(record)) {
            let in_trial = |kind: &OperationHistogram| kind.name == sum.operation;
            if sum.operation == OVERALL_OPERATION || kinds.iter().any(in_trial) {
                sum.trials += 1;
            }
        }
    }

    /// The one of an operation of a trial, which is begun where there is none yet.
    fn of(&mut self, record: &Record, operation: &str) -> &mut MergedHistogram {
        let (workload, contender) = (&record.workload, &record.contender.label);
        let known = self.sums.iter().position(|sum| sum.is(workload, contender, operation));
        let place = known.unwrap_or_else(|| {
            self.sums.push(MergedHistogram {
                workload: record.workload.clone(),
                contender: record.contender.label.clone(),
                operation: operation.to_string(),
                trials: 0,
                max_ns: 0,
                histogram: empty_histogram(),
            });
            self.sums.len() - 1
        });
        &mut self.sums[place]
    }

    /// Adds what was read of later trials.
    fn append(&mut self, later: Sums) {
        for part in later.sums {
            let MergedHistogram { workload, contender, operation, .. } = &part;
            match self.sums.iter_mut().find(|sum| sum.is(workload, contender, operation)) {
                None => self.sums.push(part),
                Some(sum) => {
                    sum.trials += part.trials;
                    sum.max_ns = sum.max_ns.max(part.max_ns);
                    add(&mut sum.histogram, &part.histogram);
                }
            }
        }
        self.damage.extend(later.damage);
    }

    fn sum_kinds(&mut self) {
        for place in 0..self.sums.len() {
            if self.sums[place].operation != OVERALL_OPERATION {
                continue;
            }
            let all = &self.sums[place];
            let kinds = self.sums.iter().filter(|sum| {
                sum.workload == all.workload
                    && sum.contender == all.contender
                    && sum.operation != OVERALL_OPERATION
            });
            let mut histogram = empty_histogram();
            kinds.for_each(|kind| add(&mut histogram, &kind.histogram));
            self.sums[place].histogram = histogram;
        }
    }
}

impl MergedHistogram {
    fn is(&self, workload: &str, contender: &str, operation: &str) -> bool {
        self.workload == workload && self.contender == contender && self.operation == operation
    }

    fn is_of(&self, record: &Record) -> bool {
        self.workload == record.workload && self.contender == record.contender.label
    }

    /// Raises the maximum to that which the record keeps, or else to that of the histogram.
    fn raise_max(&mut self, record: &Record, histogram: &Histogram<u64>) {
        let own = latencies_of(record).find(|latency| latency.operation == self.operation);
        let highest = own.map_or_else(|| histogram.max(), |latency| latency.max_ns);
        self.max_ns = self.max_ns.max(highest);
    }
}

/// Reads the log of a trial and holds it against its record.
fn read_trial(
    reader: &mut LogReader,
    directory: &Directory,
    record: &Record,
) -> Result<(), String> {
    let problem = |problem: &dyn fmt::Display| {
        format!("{HISTOGRAMS_DIRECTORY}/{}: {problem}", histogram_file(record.trial))
    };
    reader.read_file(directory, record.trial).map_err(|error| problem(&error))?;
    let kinds = latencies_of(record).filter(|latency| latency.operation != OVERALL_OPERATION);
    // A file that was cut off at the end of a line is whole lines still; the counts tell.
    for latency in kinds {
        let found = reader.kinds().iter().find(|kind| kind.name == latency.operation);
        let count = found.map_or(0, |kind| kind.histogram.len());
        if count != latency.count {
            return Err(problem(&format!(
                "it holds {count} operations of '{}', and the record {}",
                latency.operation, latency.count
            )));
        }
    }
    Ok(())
}

/// The latencies of which the workload kept the distribution.
fn latencies_of(record: &Record) -> impl Iterator<Item = &Latency> {
    let all = record.load.iter().flat_map(|load| &load.latencies);
    all.filter(|latency| !latency.quantiles_ns.is_empty())
}

#[cfg(test)]
mod tests;
