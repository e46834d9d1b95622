//! The conclusions of a publication: sentences, of which those that can be tested have a condition.

use lab::analysis::COUNTED;
use lab::condition::{self, Condition, GateOutcome};
use lab::judgement::{Judgement, Measurements};
use lab::study::Study;
use report::document::Block;
use report::table::{Cell, Table, Tone};
use serde::Deserialize;
use serde_json::Value;

use crate::table::read;
use crate::{Error, Known, Names, error};

#[derive(Debug, Clone)]
pub struct Conclusion {
    pub text: String,
    /// Where, if not where everything else was published.
    pub source: Option<String>,
    /// What a reader must know besides; of a claim without a condition, why it is not tested.
    pub note: Option<String>,
    /// When it holds; none for one that is not tested.
    pub condition: Option<Condition>,
    /// Names of the workloads that it is about.
    pub workloads: Vec<String>,
    /// The metric; the workload's most important one by default.
    pub metric: Option<String>,
}

/// A conclusion with what the measurements say of it.
#[derive(Debug, Clone)]
pub struct JudgedConclusion {
    pub text: String,
    pub source: Option<String>,
    pub outcome: GateOutcome,
    /// The numbers, and what a reader must know.
    pub said: Vec<String>,
}

/// A conclusion as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimText {
    #[serde(default)]
    text: String,
    source: Option<String>,
    note: Option<String>,
    condition: Option<String>,
    workload: Option<Names>,
    metric: Option<String>,
}

/// Reads a conclusion. `known` are the names of the study; without them none is checked.
pub fn read_claim(
    value: &Value,
    field: &str,
    known: Option<&Known<'_>>,
) -> Result<Conclusion, Error> {
    // An earlier kurabe had rules of its own for conclusions.
    if known.is_none() && value.get("workloads").or(value.get("rule")).is_some() {
        return Ok(of_earlier(value));
    }
    let claim: ClaimText = read(value, field)?;
    if claim.text.trim().is_empty() {
        return Err(error(format!("{field}.text"), "is missing; say what was concluded"));
    }
    let at = |key: &str| format!("{field}.{key}");
    let condition = match &claim.condition {
        None => None,
        Some(text) => {
            Some(condition::parse(text).map_err(|problem| error(at("condition"), problem))?)
        }
    };
    let own = condition.iter().flat_map(Condition::workloads).map(String::from).collect();
    let workloads: Vec<String> = match &claim.workload {
        None => own,
        Some(names) => names.all().to_vec(),
    };
    if condition.is_some() && workloads.is_empty() {
        return Err(error(field, "has a condition and no workload; name one"));
    }
    if let Some(known) = known {
        for name in &workloads {
            known.check_workload(name, &at("workload"))?;
            let metric = claim.metric.as_ref();
            if let Some(metric) = metric.filter(|name| !COUNTED.contains(&name.as_str())) {
                known.check_metric(metric, name, &at("metric"))?;
            }
        }
        if let Some(condition) = &condition {
            condition
                .check(&known.labels, known.baseline, &known.workloads())
                .map_err(|problem| error(at("condition"), problem))?;
        }
    }
    let ClaimText { text, source, note, metric, .. } = claim;
    Ok(Conclusion { text, source, note, condition, workloads, metric })
}

/// A conclusion of a result that an earlier kurabe wrote, whose rule is no condition.
fn of_earlier(value: &Value) -> Conclusion {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(String::from);
    let rule = text("rule").map(|rule| {
        format!("an earlier version wrote this result and used a rule of its own, '{rule}'")
    });
    Conclusion {
        text: text("text").unwrap_or_default(),
        source: text("source"),
        note: rule.into_iter().chain(text("note")).reduce(|one, other| format!("{one}; {other}")),
        condition: None,
        workloads: Vec::new(),
        metric: None,
    }
}

impl Conclusion {
    pub(crate) fn judge(&self, result: Measurements<'_>) -> JudgedConclusion {
        let names: Vec<&str> = self.workloads.iter().map(String::as_str).collect();
        let Judgement { outcome, mut evidence } = match &self.condition {
            None => Judgement { outcome: GateOutcome::NotTested, evidence: Vec::new() },
            Some(condition) => result.judge(condition, &names, self.metric.as_deref()),
        };
        evidence.extend(self.note.clone());
        let (text, source) = (self.text.clone(), self.source.clone());
        JudgedConclusion { text, source, outcome, said: evidence }
    }
}

/// The conclusions: a table of the outcomes, and the numbers behind them.
pub fn blocks(judged: &[JudgedConclusion], study: &Study) -> Vec<Block> {
    if judged.is_empty() {
        return Vec::new();
    }
    let heading = match study.source {
        Some(_) => "What the publication concluded, and what is so here",
        None => "What holds here",
    };
    let mut table = Table::new(&["here", "conclusion"]);
    let mut said = Vec::new();
    for one in judged {
        let own = one.source.as_ref().filter(|source| study.source.as_ref() != Some(source));
        let source = own.map(|source| format!(" ({source})")).unwrap_or_default();
        let tone = match one.outcome {
            GateOutcome::Holds => Tone::Good,
            GateOutcome::Fails => Tone::Bad,
            GateOutcome::Inconclusive => Tone::Uncertain,
            GateOutcome::NotTested => Tone::Faint,
        };
        let text = format!("“{}”{source}", one.text);
        table.rows.push(vec![Cell::toned(one.outcome.words(), tone), text.clone().into()]);
        if !one.said.is_empty() {
            said.push(Block::Text(format!("{text}: {}", one.outcome.words())));
            said.extend(one.said.iter().cloned().map(Block::Note));
        }
    }
    let mut blocks = vec![
        Block::heading(3, "conclusions", heading),
        Block::table("Conclusions of the publication", table),
    ];
    if !said.is_empty() {
        blocks.push(Block::fold("The numbers behind the conclusions, and what to know", said));
    }
    blocks
}
