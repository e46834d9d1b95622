//! Publications: the tables, pictures and conclusions of a published study, beside what a study that
//! repeats it measured.
//!
//! The laboratory keeps what a study file says of them and does not read it; here it is read and
//! checked, measured figures are put below the published ones, and conclusions are judged: each is a
//! condition ([`lab::condition`]) with a sentence. Published and measured numbers share a table,
//! never a row.

use lab::analysis::Analysis;
use lab::condition::GateOutcome;
use lab::device::{DeviceName, IMAGE, MEMORY};
use lab::judgement::Measurements;
use lab::plan::Plan;
use lab::record::Record;
use lab::study::{Study, StudyError};
use lab::suggestion::unknown;
use lab::words::{counted, list};
use report::document::Block;
use report::tables;
use serde::Deserialize;

mod beside;
mod claim;
mod measured;
mod picture;
mod table;

pub use claim::JudgedConclusion;
pub use measured::{MeasuredFigure, Quantity, measure};
pub use table::{
    Figure, Published, PublishedCell, PublishedRow, PublishedUnit, Reference, Statistic,
};

type Error = StudyError;

fn error(field: impl Into<String>, problem: impl std::fmt::Display) -> Error {
    StudyError { field: field.into(), problem: problem.to_string() }
}

/// What a study file says of its publication.
#[derive(Debug, Clone, Default)]
pub struct Publication {
    pub tables: Vec<Published>,
    pub claims: Vec<claim::Conclusion>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a name or a list of names is expected")]
enum Names {
    One(String),
    Many(Vec<String>),
}

impl Names {
    fn all(&self) -> &[String] {
        match self {
            Names::One(name) => std::slice::from_ref(name),
            Names::Many(names) => names,
        }
    }
}

/// What a workload reports.
#[derive(Debug, Clone)]
pub struct ReportedMetrics {
    pub workload: String,
    pub metrics: Vec<String>,
    /// Names of its kinds of operation; none where they are not known before it ran.
    pub operations: Vec<String>,
}

/// The names that a publication may use.
struct Known<'a> {
    labels: Vec<&'a str>,
    baseline: &'a str,
    reported: &'a [ReportedMetrics],
}

impl Known<'_> {
    fn workloads(&self) -> Vec<&str> {
        self.reported.iter().map(|one| one.workload.as_str()).collect()
    }

    fn check_workload(&self, name: &str, field: &str) -> Result<(), Error> {
        let known = self.workloads();
        if known.contains(&name) {
            Ok(())
        } else {
            Err(error(field, unknown("workload is called", name, &known)))
        }
    }

    fn check_label(&self, label: &str, field: &str) -> Result<(), Error> {
        if self.labels.contains(&label) {
            Ok(())
        } else {
            Err(error(field, unknown("contender is labelled", label, &self.labels)))
        }
    }

    /// Refuses a metric that a workload never reports.
    fn check_metric(&self, name: &str, workload: &str, field: &str) -> Result<(), Error> {
        let of = self.reported.iter().find(|one| one.workload == workload);
        of.map_or(Ok(()), |of| one_of(name, &of.metrics, "metric", field))
    }

    fn check_figure(&self, reference: &Reference, field: &str) -> Result<(), Error> {
        let of = self.reported.iter().find(|one| one.workload == reference.workload);
        match (&reference.figure, of) {
            (Figure::Metric(name), _) => self.check_metric(name, &reference.workload, field),
            (Figure::Operation(name), Some(of)) if !of.operations.is_empty() => {
                one_of(name, &of.operations, "operation", field)
            }
            _ => Ok(()),
        }
    }
}

fn one_of(name: &str, known: &[String], what: &str, field: &str) -> Result<(), Error> {
    if known.iter().any(|one| one == name) {
        return Ok(());
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    Err(error(field, unknown(&format!("{what} of this workload is called"), name, &known)))
}

/// Reads what a study says of its publication.
pub fn read(study: &Study) -> Result<Publication, StudyError> {
    read_with(study, None)
}

/// Reads what a study says of its publication and refuses names that the study has not. The places
/// in the errors are those in the study file.
pub fn check(study: &Study, reported: &[ReportedMetrics]) -> Result<Publication, StudyError> {
    let labels: Vec<&str> = study.contenders.iter().map(|one| one.label.as_str()).collect();
    let baseline = labels[study.baseline];
    read_with(study, Some(&Known { labels, baseline, reported }))
}

fn read_with(study: &Study, known: Option<&Known<'_>>) -> Result<Publication, Error> {
    let tables = study
        .published
        .iter()
        .enumerate()
        .map(|(index, value)| table::read_table(value, &format!("published[{index}]"), known));
    let claims = study
        .claims
        .iter()
        .enumerate()
        .map(|(index, value)| claim::read_claim(value, &format!("claim[{index}]"), known));
    Ok(Publication {
        tables: tables.collect::<Result<_, _>>()?,
        claims: claims.collect::<Result<_, _>>()?,
    })
}

/// The heading of everything that concerns a publication.
const HEADING: &str = "Next to the published figures";
/// The heading where a study has conclusions of its own and nothing was published.
const HEADING_OF_CLAIMS: &str = "Conclusions";

fn heading_of(study: &Study) -> &'static str {
    if study.published.is_empty() { HEADING_OF_CLAIMS } else { HEADING }
}

/// What a result says of its publication: conclusions, then tables with their pictures. Empty for a
/// study without one.
pub fn section(plan: &Plan, records: &[Record], analysis: &Analysis) -> Vec<Block> {
    let study = &plan.study;
    if study.published.is_empty() && study.claims.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![Block::heading(2, "published", heading_of(study))];
    blocks.extend(study.source.clone().map(Block::Text));
    let publication = match read(study) {
        Ok(publication) => publication,
        Err(error) => {
            let said = format!("what this result says of its publication cannot be read: {error}");
            blocks.push(Block::Warning(said));
            return blocks;
        }
    };
    let differs = differs(study);
    if !differs.is_empty() {
        let lines = differs.into_iter().map(Block::Note).collect();
        blocks.push(Block::fold("What differs here", lines));
    }
    let result = Measurements { plan, records, analysis };
    blocks.extend(claim::blocks(&publication.judge(plan, records, analysis), study));
    for (index, table) in publication.tables.iter().enumerate() {
        blocks.extend(beside::blocks(result, table, index, study));
    }
    if !publication.tables.is_empty() {
        blocks.push(Block::Note(here(result)));
        blocks.push(Block::Note("Counts are of one run (the mean of all); latencies are of all runs together. ?: too few rounds for a comparison.".into()));
    }
    blocks
}

/// The few lines of a terminal: where the tables are, and what becomes of the conclusions.
pub fn summary(plan: &Plan, records: &[Record], analysis: &Analysis) -> Vec<Block> {
    let study = &plan.study;
    if study.published.is_empty() && study.claims.is_empty() {
        return Vec::new();
    }
    let publication = match read(study) {
        Ok(publication) => publication,
        // The section says what is wrong.
        Err(_) => return section(plan, records, analysis),
    };
    let judged = publication.judge(plan, records, analysis);
    let mut said = Vec::new();
    if !publication.tables.is_empty() {
        said.push(format!(
            "{} next to what was measured: in the page, and with --verbose.",
            counted(publication.tables.len(), "published table")
        ));
    }
    let of = |outcome| judged.iter().filter(move |one| one.outcome == outcome);
    for (outcome, words) in [(GateOutcome::Holds, "Holds"), (GateOutcome::Fails, "Fails")] {
        let texts: Vec<String> = of(outcome).map(|one| format!("“{}”", one.text)).collect();
        if !texts.is_empty() {
            said.push(format!("{words} here: {}.", list(&texts)));
        }
    }
    let open = of(GateOutcome::Inconclusive).count();
    if open > 0 {
        said.push(format!("Inconclusive here: {}.", counted(open, "conclusion")));
    }
    vec![Block::heading(2, "", heading_of(study)), Block::Text(said.join(" "))]
}

impl Publication {
    pub fn judge(
        &self,
        plan: &Plan,
        records: &[Record],
        analysis: &Analysis,
    ) -> Vec<JudgedConclusion> {
        let result = Measurements { plan, records, analysis };
        self.claims.iter().map(|claim| claim.judge(result)).collect()
    }
}

/// What "here" is: the device, the trials, and how much of each workload.
fn here(result: Measurements<'_>) -> String {
    let amounts = result
        .plan
        .study
        .workloads
        .iter()
        .filter_map(|entry| Some(format!("; {}: {}", entry.name, entry.amount.as_ref()?)));
    format!(
        "Here: {}, {}{}",
        tables::device_text(result.plan),
        tables::trials_text(&result.analysis.workloads, result.plan, result.records),
        amounts.collect::<String>()
    )
}

/// What differs from the publication: what follows from the device that was used, then what the
/// study's author says.
fn differs(study: &Study) -> Vec<String> {
    let on_directories = study.contenders.iter().all(|contender| !contender.needs_device());
    let name = DeviceName::parse(&study.device);
    let device = match name.as_ref().map(DeviceName::kind) {
        _ if on_directories => None,
        Ok(Some(IMAGE)) => Some(format!(
            "the device was an image file ({}) on the host's file system: that file system, its disk and whatever else uses them are part of every number",
            study.device
        )),
        Ok(Some(MEMORY)) => Some(format!(
            "the device lay in memory ({}): nothing here says anything about a disk",
            study.device
        )),
        _ => None,
    };
    device.into_iter().chain(study.differs.iter().cloned()).collect()
}

#[cfg(test)]
mod tests;
