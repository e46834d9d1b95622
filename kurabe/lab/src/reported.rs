//! A record as it came from a trial's process, from a guest or from another machine.
//!
//! Invariant: it is not a [`Record`] before it was compared with the spec of its trial, and
//! [`Reported::of`] is the only way to get one. So no executor can pass on the record of another
//! trial, which would replace that trial's histograms and results.

use serde::{Deserialize, Serialize};

use crate::record::{Outcome, Record};
use crate::spec::TrialSpec;

/// A record that was not compared with its spec yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reported(Box<Record>);

impl From<Record> for Reported {
    fn from(record: Record) -> Reported {
        Reported(Box::new(record))
    }
}

impl Reported {
    /// Whether it says that the trial was carried out.
    pub fn is_completed(&self) -> bool {
        self.0.outcome == Outcome::Completed
    }

    /// The record, when it is of the trial that `spec` describes.
    ///
    /// Errors: it says that it is of something else, or lists more than a result may hold; the text names the
    /// field, with both values where they are short.
    pub fn of(self, spec: &TrialSpec) -> Result<Record, String> {
        let Reported(record) = self;
        let asked = Record::begun(spec, record.started_unix_ns);
        let differs = |field: &str, reported: &dyn std::fmt::Debug, asked: &dyn std::fmt::Debug| {
            Err(format!(
                "it sent a record of another run: {field} {reported:?} instead of {asked:?}"
            ))
        };
        if record.trial != asked.trial {
            return differs("number", &record.trial, &asked.trial);
        }
        if (record.block, record.warmup) != (asked.block, asked.warmup) {
            let warmup = |of: &Record| (of.block, if of.warmup { "warm-up" } else { "measured" });
            return differs("round", &warmup(&record), &warmup(&asked));
        }
        if record.workload != asked.workload {
            return differs("workload", &record.workload, &asked.workload);
        }
        if record.contender != asked.contender {
            return differs("contender", &record.contender.label, &asked.contender.label);
        }
        if record.user != asked.user {
            return differs("user", &record.user, &asked.user);
        }
        if record.side_by_side != asked.side_by_side {
            return differs("part of the device", &record.side_by_side, &asked.side_by_side);
        }
        if (record.schema, record.session) != (asked.schema, asked.session) {
            let of = |of: &Record| (of.schema, of.session);
            return differs("schema and session", &of(&record), &of(&asked));
        }
        // These are the runner's to fill in, or only sent when they were asked for.
        if record.block_trials.is_some() || record.guest.is_some() || !record.nodes.is_empty() {
            return Err("it sent facts that only the runner knows".into());
        }
        if record.power_cuts.is_some() && spec.power_cuts.is_none() {
            return Err("it sent power cuts, which it was not asked for".into());
        }
        record.check_bounds()?;
        let mut record = *record;
        cut_texts(&mut record);
        match text_bytes(&record) {
            bytes if bytes <= TEXT_BYTES_MAX => Ok(record),
            bytes => Err(format!(
                "it sent {} KiB of text, and a record has at most {}",
                bytes >> 10,
                TEXT_BYTES_MAX >> 10
            )),
        }
    }
}

/// Bytes of a message or a note that are kept, and of a tool's output.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// Bytes of all texts of a record but its histograms: whoever reports a study holds those of all its trials in
/// memory.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Shortens what is shown to the user as it came.
fn cut_texts(record: &mut Record) {
    let cut = |text: &mut String, bytes_max: usize| {
        if text.len() > bytes_max {
            text.truncate(text.floor_char_boundary(bytes_max));
            text.push_str(" [shortened]");
        }
    };
    if let Outcome::Failed { message, output, .. } = &mut record.outcome {
        cut(message, MESSAGE_BYTES_MAX);
        cut(output, OUTPUT_BYTES_MAX);
    }
    let notes = record.notes.iter_mut().chain(&mut record.caution);
    notes.for_each(|note| cut(note, MESSAGE_BYTES_MAX));
    if let Some(load) = &mut record.load {
        load.findings.iter_mut().for_each(|finding| cut(finding, MESSAGE_BYTES_MAX));
    }
}

/// Bytes of all texts of a record, keys included, but its histograms and what power cuts left, which have bounds of
/// their own.
fn text_bytes(record: &Record) -> usize {
    fn of(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::String(text) => text.len(),
            serde_json::Value::Array(all) => all.iter().map(of).sum(),
            serde_json::Value::Object(all) => all
                .iter()
                .filter(|(key, _)| !["histogram_log", "power_cuts"].contains(&key.as_str()))
                .map(|(key, value)| key.len() + of(value))
                .sum(),
            _ => 0,
        }
    }
    serde_json::to_value(record).map_or(usize::MAX, |record| of(&record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::record::Phase;
    use crate::spec::SideBySide;

    #[test]
    fn only_the_record_of_its_own_trial_is_taken() {
        let plan = fixture::plan(&["ext4", "xfs"], 3);
        let block = &plan.blocks[1];
        let spec = plan.spec(block, block.trials[1], None, "/nowhere".into());
        let own = Record::begun(&spec, 7);
        assert_eq!(Reported::from(own.clone()).of(&spec).as_ref(), Ok(&own));
        type Change = fn(&mut Record);
        let changes: [(&str, Change); 12] = [
            ("number", |record| record.trial += 1),
            ("round", |record| record.block += 1),
            ("round", |record| record.warmup = !record.warmup),
            ("workload", |record| record.workload.push('x')),
            ("contender", |record| record.contender.label.push('x')),
            ("contender", |record| record.contender.layers[0].options.push("x".into())),
            ("user", |record| record.user = Some("root".into())),
            ("part", |record| {
                record.side_by_side = Some(SideBySide { contenders: 9, part: 8 });
            }),
            ("schema", |record| record.schema += 1),
            ("session", |record| record.session += 1),
            ("runner", |record| record.block_trials = Some(1)),
            ("power cuts", |record| record.power_cuts = Some(serde_json::Value::Null)),
        ];
        let mut long = own.clone();
        long.notes = vec![String::new(); 2001];
        let problem = Reported::from(long).of(&spec).unwrap_err();
        assert!(problem.contains("2001 notes") && problem.contains("at most 2000"), "{problem}");
        let mut failed = own.clone();
        let (message, output) = ("é".repeat(5000), "x".repeat(1 << 20));
        failed.outcome = Outcome::Failed { phase: Phase::Mkfs, message, output };
        failed.notes = vec!["n".repeat(1 << 20)];
        let kept = Reported::from(failed).of(&spec).unwrap();
        let Outcome::Failed { message, output, .. } = &kept.outcome else { panic!() };
        assert!(message.len() < 4200 && output.len() < 17_000 && kept.notes[0].len() < 4200);
        assert!(message.ends_with("é [shortened]"));
        let mut wordy = own.clone();
        wordy.notes = vec!["n".repeat(4000); 300];
        let problem = Reported::from(wordy).of(&spec).unwrap_err();
        assert!(problem.contains("KiB of text"), "{problem}");
        for (word, change) in changes {
            let mut other = own.clone();
            change(&mut other);
            let problem = Reported::from(other).of(&spec).unwrap_err();
            assert!(problem.contains(word), "{word}: {problem}");
        }
    }
}
