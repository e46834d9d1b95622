//! What the nodes of a contender see of each other's files: [`crate::coherence`], as a workload of several nodes.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use vocabulary::capacity::{self, Capacity};
use vocabulary::kind::{
    Amount, Describe, Description, Form, FromKeys, KeyError, Keys, Preflight, Run, WorkloadKey,
    WorkloadKind, Written, directory_of, options_without,
};
use vocabulary::report::{Metric, Unit, WorkloadReport};
use vocabulary::workload::WorkloadTask;

use crate::coherence::channel::{Channel, PORT, SECRET_VARIABLE};
use crate::coherence::{Answers, QUESTIONS, QuestionNode, QuestionSet, Sort, WAIT_MAX, ask};

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<CoherenceWorkload>(
    "coherence",
    &[WorkloadKey::load(
        "coherence",
        Form::Whole("QUESTIONS"),
        "Ask what each of several nodes sees of another one's changes: 'gfs2 on 2 debian same-files' (docs/reference/coherence.md).",
    )],
    &[],
);

#[derive(Serialize, Deserialize)]
struct CoherenceWorkload {
    questions: u32,
}

/// The longest time until any answer was right.
const LATE: &str = "longest staleness";

/// The figure of one kind of question, of which the longest of all nodes counts.
pub fn late_metric(question: &str) -> String {
    format!("{LATE} of {question}")
}

impl FromKeys for CoherenceWorkload {
    fn parse(written: &Written<'_>) -> Result<CoherenceWorkload, KeyError> {
        match written.whole("coherence").unwrap_or_default() {
            0 => Err(KeyError::new("coherence", "0 questions have no answers; ask 1 or more")),
            questions => Ok(CoherenceWorkload { questions }),
        }
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        let questions = Written { keys, name: None }.whole("coherence").unwrap_or_default();
        keys.insert("coherence".into(), ((f64::from(questions) * factor).ceil() as u32).into());
        Ok(())
    }
}

impl Describe for CoherenceWorkload {
    fn description(&self) -> Description {
        let questions = self.questions;
        let each = QUESTIONS.iter().map(|question| late_metric(question.name));
        Description {
            metrics: std::iter::once(LATE.to_string()).chain(each).collect(),
            checks: QUESTIONS.iter().map(|question| question.name.into()).collect(),
            amounts: vec![Amount::new("the questions", questions.into(), questions.to_string())],
            amount: Some(format!("{questions} questions")),
            settings: options_without(self, &["questions"]),
            lasts_long: true,
            ..Description::default()
        }
    }

    fn plan(&self, _: Option<&Capacity>) -> Result<String, String> {
        let names: Vec<&str> = QUESTIONS.iter().map(|question| question.name).collect();
        Ok(capacity::lines(&[
            ("questions", self.questions.to_string()),
            ("each in turn", names.join(", ")),
        ]))
    }
}

impl Preflight for CoherenceWorkload {}

impl Run for CoherenceWorkload {
    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String> {
        let directory = directory_of(&task.target)?;
        let (member, first) = surroundings()?;
        if directory.ends_with(format!("node{}", member.number)) {
            return Err(
                "each node has a directory of its own; write same-files behind the guest".into()
            );
        }
        let secret = std::env::var(SECRET_VARIABLE).unwrap_or_default();
        let mut channel = Channel::open(member, first, PORT, &secret)?;
        let sort = Sort::of(directory).map_err(|error| format!("the file system: {error}"))?;
        let asked = QuestionSet { questions: self.questions, member, sort, wait_max: WAIT_MAX };
        let answers = ask(asked, directory, &mut channel, stop)?;
        let late = |ns: u64, name| Metric::new(name, ns as f64, Unit::Nanoseconds);
        let longest_ns = answers.iter().map(|one| one.late_ns).max().unwrap_or(0);
        let each = answers.iter().map(|one| late(one.late_ns, late_metric(&one.check.name)));
        let metrics = std::iter::once(late(longest_ns, LATE.into())).chain(each).collect();
        let checks = answers.into_iter().map(|Answers { check, .. }| check).collect();
        Ok(WorkloadReport { metrics, checks, ..WorkloadReport::default() })
    }
}

/// Which node this is, and the first one's address.
fn surroundings() -> Result<(QuestionNode, IpAddr), String> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let addresses = std::env::var("KURABE_ADDRESSES").unwrap_or_default();
    let first = addresses.split(',').next().and_then(|text| text.parse().ok());
    match (number("KURABE_NODE"), number("KURABE_NODES"), first) {
        (Some(number), Some(nodes @ 2..), Some(first)) => {
            Ok((QuestionNode { number, nodes }, first))
        }
        _ => Err("there is one node; write 'gfs2 on 2 debian same-files'".into()),
    }
}
