//! All that a report is made from, read from a result directory and from nothing else.
//!
//! What cannot be read is named in `damage` and left out; only a result without a readable plan is
//! refused.

use std::path::Path;

use lab::analysis::{Analysis, completed_trials};
use lab::judgement::analyse;
use lab::plan::Plan;
use lab::record::Record;
use lab::result::{ResultError, STUDY_FILE, StoredResult};
use serde_json::Value;
use trust::Directory;

use crate::histograms::Histograms;

/// A result, read and analysed.
#[derive(Debug)]
pub struct ResultSource {
    /// The directory's name as it was given, for headings and commands.
    pub name: String,
    pub plan: Plan,
    /// The records that stand, in the order in which the trials ended.
    pub records: Vec<Record>,
    /// The machine's facts of the last session.
    pub facts: Option<Value>,
    /// Those of the sessions before, the first one's first; null where they could not be read.
    pub earlier_facts: Vec<Value>,
    /// Text of the study file.
    pub study_file: Option<String>,
    /// What the records say.
    pub analysis: Analysis,
    /// The latencies of all trials, merged.
    pub histograms: Histograms,
    /// What could not be read, in words.
    pub damage: Vec<String>,
}

impl ResultSource {
    /// Reads a result directory. Errors: no plan, or one that cannot be understood.
    pub fn read(directory: &Path) -> Result<ResultSource, ResultError> {
        Ok(ResultSource::of(StoredResult::read(directory)?))
    }

    /// Reads what belongs to a result whose plan and records were read already.
    pub fn of(stored: StoredResult) -> ResultSource {
        let StoredResult { directory, plan, records, facts, earlier_facts, mut damage, .. } =
            stored;
        let study_file = directory
            .read_text(STUDY_FILE)
            .map_err(|refused| damage.push(refused.to_string()))
            .ok();
        let known = facts.as_ref().unwrap_or(&Value::Null);
        let (analysis, histograms) = analysed(&directory, &plan, &records, known);
        ResultSource {
            name: directory.path().display().to_string(),
            plan,
            records,
            facts,
            earlier_facts,
            study_file,
            analysis,
            histograms,
            damage,
        }
    }

    /// The trials of a workload whose figures are compared: their records by contender, in the
    /// study's order, and by block.
    pub fn completed(&self, workload: &str) -> Vec<Vec<&Record>> {
        let place = self.plan.study.workloads.iter().position(|entry| entry.name == workload);
        match place {
            Some(place) => completed_trials(&self.plan, &self.records, place),
            None => vec![Vec::new(); self.plan.study.contenders.len()],
        }
    }
}

/// The analysis of the records of a result directory, with the percentiles of the merged
/// histograms, and these.
pub fn analysed(
    directory: &Directory,
    plan: &Plan,
    records: &[Record],
    facts: &Value,
) -> (Analysis, Histograms) {
    let mut analysis = analyse(plan, records, memory_bytes(facts));
    let histograms = Histograms::read(directory, plan, records);
    histograms.put_into(&mut analysis);
    (analysis, histograms)
}

/// Memory of the machine, by its facts.
pub fn memory_bytes(facts: &Value) -> Option<u64> {
    facts.pointer("/machine/memory_bytes")?.as_u64()
}

/// The value of a figure of a trial, zero too.
pub fn value_of(record: &Record, metric: &str) -> Option<f64> {
    let value = record.metric(metric)?;
    (value.is_finite() && value >= 0.0).then_some(value)
}
