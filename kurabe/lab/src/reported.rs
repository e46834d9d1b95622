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
    /// # Errors
    ///
    /// It says that it is of something else, or lists more than a result may hold; the text names the
    /// field, with both values where they are short.
    pub fn of(self, spec: &TrialSpec) -> Result<Record, String> {
        let Reported(record) = self;
        let asked = Record::begun(spec, record.started_unix_ns);
        let differs = |field: &str, reported: &dyn std::fmt::Debug, asked: &dyn std::fmt::Debug| {
            Err(format!(
                "it sent a record of another trial: {field} {reported:?} instead of {asked:?}"
            ))
        };
        if record.trial != asked.trial {
            return differs("trial", &record.trial, &asked.trial);
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
        if record.block_trials.is_some() || record.guest.is_some() {
            return Err("it sent facts that only the runner knows".into());
        }
        if record.power_cuts.is_some() && spec.power_cuts.is_none() {
            return Err("it sent power cuts, which it was not asked for".into());
        }
        record.check_bounds()?;
        Ok(*record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
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
            ("trial", |record| record.trial += 1),
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
        for (word, change) in changes {
            let mut other = own.clone();
            change(&mut other);
            let problem = Reported::from(other).of(&spec).unwrap_err();
            assert!(problem.contains(word), "{word}: {problem}");
        }
    }
}
