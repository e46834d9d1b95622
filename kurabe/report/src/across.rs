//! Several results side by side, such as before and after a kernel upgrade: the same contender under
//! the same workload, in one result and in another.
//!
//! The results were not interleaved, so nothing is paired, and whatever else changed between them is
//! part of every ratio; all that is printed says so. What has no counterpart is named, and so is what
//! has one of another definition.

use lab::condition::Gate;
use lab::statistics::{
    ComparisonOptions, SampleSummary, UnpairedComparison, Verdict, compare_unpaired_family,
    summarize,
};
use lab::workload::Unit;

use lab::words::ratio_with_interval;
use serde::Serialize;
use serde_json::{Value, json};

use crate::document::Block;
use crate::sessions::{Fact, facts, sessions};
use crate::source::{ResultSource, value_of};
use crate::svg::{self, SvgDestination};
use crate::table::{Cell, Table, Tone};
use crate::tables::{self, gate_text, tone_of, verdict_text};
use crate::{export, html, quotient, text};

mod charts;
pub mod gates;
mod notes;

/// The warning that stands above everything else.
pub const NOT_INTERLEAVED: &str = "these results were not interleaved: whatever else changed between them (temperature, other work, age of the device) is part of every cost. If all contenders changed by one factor, suspect the machine.";

/// Results beside each other; the first is what the others are compared with.
#[derive(Debug)]
pub struct Across<'a> {
    pub sources: &'a [ResultSource],
    /// What each is called in tables: A, B and so on.
    pub names: Vec<String>,
    /// Where each came from, in the same order: path, kernel, day.
    pub origins: Vec<String>,
    /// The workloads that at least two of them have.
    pub workloads: Vec<AcrossWorkload>,
    /// What has no counterpart, one of another definition, or one that did other work, in words.
    pub notes: Vec<String>,
    /// What casts doubt on the numbers of one of the results by itself, in words that name it.
    pub warnings: Vec<String>,
    /// What differs between the machines.
    pub differences: Table,
    /// What became of the gates that were asked for ([`gates::judge`]).
    pub gates: Vec<Gate>,
}

/// One load in all results.
#[derive(Debug)]
pub struct AcrossWorkload {
    pub name: String,
    /// Its metrics, the most important first.
    pub metrics: Vec<AcrossMetric>,
}

/// One metric of a workload in all results.
#[derive(Debug)]
pub struct AcrossMetric {
    pub name: String,
    pub unit: Unit,
    /// The contenders that the first result and another one have, in the first one's order.
    pub contenders: Vec<AcrossContender>,
}

/// One contender's metric in all results.
#[derive(Debug)]
pub struct AcrossContender {
    pub label: String,
    /// Its samples in each result.
    pub samples: Vec<Vec<f64>>,
    pub summaries: Vec<Option<SampleSummary>>,
    /// Each result after the first, compared with it, as costs: above 1 is worse, of a throughput too.
    pub comparisons: Vec<UnpairedComparison>,
}

impl<'a> Across<'a> {
    /// Sets results beside each other; at least two.
    pub fn new(sources: &'a [ResultSource]) -> Across<'a> {
        let names: Vec<String> = (0..sources.len()).map(letter).collect();
        let first = &sources[0];
        let study = &first.plan.study;
        let options =
            ComparisonOptions { same_within: study.same_within, ..ComparisonOptions::default() };
        let shared = |name: &str| {
            sources[1..]
                .iter()
                .any(|source| source.plan.study.workloads.iter().any(|other| other.name == name))
        };
        let workloads = study.workloads.iter().map(|workload| workload.name.as_str());
        let workloads: Vec<&str> = workloads.filter(|name| shared(name)).collect();
        Across {
            notes: notes::of_all(sources, &names, &workloads),
            warnings: notes::of_each(sources, &names, &workloads),
            sources,
            workloads: workloads.iter().map(|name| workload(sources, name, &options)).collect(),
            differences: differences(sources, &names),
            gates: Vec::new(),
            names,
            origins: sources.iter().map(crate::page::origin).collect(),
        }
    }
}

impl Across<'_> {
    /// Why nothing of these results can be compared; None where something can.
    pub fn nothing_in_common(&self) -> Option<String> {
        let metrics = || self.workloads.iter().flat_map(|workload| &workload.metrics);
        if metrics().any(|metric| !metric.contenders.is_empty()) {
            return None;
        }
        let of_each = |of: &dyn Fn(&ResultSource) -> Vec<String>| {
            let each = self.sources.iter().zip(&self.names);
            let words =
                each.map(|(source, name)| format!("{name} has {}", text::list(&of(source))));
            words.collect::<Vec<_>>().join("; ")
        };
        let loads = |source: &ResultSource| -> Vec<String> {
            source.plan.study.workloads.iter().map(|load| load.name.clone()).collect()
        };
        let contenders = |source: &ResultSource| -> Vec<String> {
            source.plan.study.contenders.iter().map(|entry| entry.label.clone()).collect()
        };
        let why = if self.workloads.is_empty() {
            format!("no workload of {} is in another ({})", self.names[0], of_each(&loads))
        } else if !self.sources[1..]
            .iter()
            .flat_map(contenders)
            .any(|label: String| contenders(&self.sources[0]).contains(&label))
        {
            format!("no contender of {} is in another ({})", self.names[0], of_each(&contenders))
        } else {
            "no contender completed a run of the same workload in two of them".to_string()
        };
        let names: Vec<String> = self
            .names
            .iter()
            .zip(self.sources)
            .map(|(name, source)| format!("{name}, {}", source.name))
            .collect();
        Some(format!(
            "nothing of these results can be compared ({}): {why}; name results that share the names of a workload and of a contender",
            names.join("; ")
        ))
    }
}

/// A, B, ..., Z, and numbers beyond.
fn letter(place: usize) -> String {
    match u8::try_from(place) {
        Ok(place) if place < 26 => char::from(b'A' + place).to_string(),
        _ => (place + 1).to_string(),
    }
}

fn workload(sources: &[ResultSource], name: &str, options: &ComparisonOptions) -> AcrossWorkload {
    let all = sources.iter().flat_map(|source| &source.analysis.workloads);
    let all = all.filter(|workload| workload.workload == name);
    let metrics = all.flat_map(|workload| &workload.contenders).flat_map(|one| &one.metrics);
    let metrics = text::distinct(metrics.map(|metric| (metric.name.clone(), metric.unit)));
    let metrics = metrics.into_iter().map(|(metric, unit)| {
        let contenders = contenders(sources, name, &metric, unit, options);
        AcrossMetric { name: metric, unit, contenders }
    });
    AcrossWorkload { name: name.into(), metrics: metrics.collect() }
}

/// Why a contender of a result is not compared under a workload, where it is not.
fn violation(source: &ResultSource, workload: &str, label: &str) -> Option<String> {
    source.analysis.workload(workload)?.contender(label)?.violation()
}

/// All contenders and all later results are one family.
fn contenders(
    sources: &[ResultSource],
    workload: &str,
    metric: &str,
    unit: Unit,
    options: &ComparisonOptions,
) -> Vec<AcrossContender> {
    let samples_of = |source: &ResultSource, label: &str| -> Vec<f64> {
        let contenders = &source.plan.study.contenders;
        let Some(place) = contenders.iter().position(|other| other.label == label) else {
            return Vec::new();
        };
        let records = &source.completed(workload)[place];
        records.iter().filter_map(|record| value_of(record, metric)).collect()
    };
    let mut found: Vec<AcrossContender> = Vec::new();
    for contender in &sources[0].plan.study.contenders {
        let samples: Vec<Vec<f64>> =
            sources.iter().map(|source| samples_of(source, &contender.label)).collect();
        if samples.iter().filter(|samples| !samples.is_empty()).count() < 2 {
            continue;
        }
        found.push(AcrossContender {
            label: contender.label.clone(),
            summaries: samples.iter().map(|samples| summarize(samples).ok()).collect(),
            samples,
            comparisons: Vec::new(),
        });
    }
    let cost = |value: &f64| if unit.more_is_better() { value.recip() } else { *value };
    let costs = |samples: &[f64]| -> Vec<f64> { samples.iter().map(cost).collect() };
    // Who lost data is compared with nobody, and a zero has no ratio.
    let comparable =
        |source: &ResultSource, contender: &AcrossContender, samples: &[f64]| -> Vec<f64> {
            let is_lost = violation(source, workload, &contender.label).is_some();
            if is_lost || samples.contains(&0.0) { Vec::new() } else { costs(samples) }
        };
    let pairs: Vec<(Vec<f64>, Vec<f64>)> = found
        .iter()
        .flat_map(|contender| {
            let each = sources.iter().zip(&contender.samples);
            let mut each = each.map(|(source, samples)| comparable(source, contender, samples));
            let before = each.next().unwrap_or_default();
            each.map(|after| (before.clone(), after)).collect::<Vec<_>>()
        })
        .collect();
    let compared = compare_unpaired_family(&pairs, options)
        .expect("values are positive, and the margin was checked with the study");
    let mut compared = compared.into_iter();
    for contender in &mut found {
        contender.comparisons = compared.by_ref().take(sources.len() - 1).collect();
    }
    found
}

/// The facts that are not the same in all results, or not in all sessions of one.
fn differences(sources: &[ResultSource], names: &[String]) -> Table {
    facts_that_differ(&sources.iter().collect::<Vec<_>>(), names)
}

/// The same of results that are named one by one.
pub(crate) fn facts_that_differ(sources: &[&ResultSource], names: &[String]) -> Table {
    let facts_of = |source: &&ResultSource| facts(&sessions(source));
    let facts: Vec<Vec<Fact>> = sources.iter().map(facts_of).collect();
    let heads = std::iter::once("fact".to_string()).chain(names.iter().cloned());
    let mut table = Table { heads: heads.collect(), rows: Vec::new() };
    for name in text::distinct(facts.iter().flatten().map(|fact| fact.name.as_str())) {
        let same_name = |facts: &'_ Vec<Fact>| facts.iter().position(|fact| fact.name == name);
        let found: Vec<Option<&Fact>> =
            facts.iter().map(|facts| same_name(facts).map(|place| &facts[place])).collect();
        let words: Vec<String> = found.iter().map(|fact| fact.map_or("-".into(), shown)).collect();
        let constant = found.iter().flatten().all(|fact| fact.is_constant());
        if !constant || words.windows(2).any(|pair| pair[0] != pair[1]) {
            let cells = words.iter().map(|words| Cell::from(words.as_str()));
            table.rows.push(std::iter::once(Cell::from(name)).chain(cells).collect());
        }
    }
    table
}

/// A fact of one result: its values in the order of the sessions, where it changed between them.
fn shown(fact: &Fact) -> String {
    let mut values: Vec<&str> =
        fact.values.iter().map(|value| value.as_deref().unwrap_or("-")).collect();
    values.dedup();
    values.join(", later ")
}

/// The metrics of a workload: one row for each contender and result.
pub fn figure_table(across: &Across<'_>, workload: &str, metric: &AcrossMetric) -> Table {
    let summaries = metric.contenders.iter().flat_map(|one| one.summaries.iter().flatten());
    let brackets = tables::brackets(summaries);
    let head = format!("{} ({brackets})", metric.name);
    let ratio = format!("cost relative to {} (95 % confidence)", across.names[0]);
    let mut table =
        Table::new(&["contender", "result", "rounds", &head, &ratio, "verdict", "notes"]);
    for contender in &metric.contenders {
        for (place, name) in across.names.iter().enumerate() {
            let summary = contender.summaries[place].as_ref();
            let shown = summary.map_or("-".into(), |summary| {
                let ends = tables::bracketed(summary, brackets);
                let words = text::figure_with_interval(summary.median, ends, metric.unit);
                Cell::number(summary.median, words)
            });
            let count = contender.samples[place].len();
            let [ratio, verdict] = match place.checked_sub(1).map(|p| &contender.comparisons[p]) {
                None => ["1".into(), Cell::toned("baseline", Tone::Faint)],
                Some(comparison) => [
                    Cell::from(ratio_text(comparison)).valued(comparison.ratio),
                    Cell::toned(verdict_text(&comparison.verdict), tone_of(&comparison.verdict)),
                ],
            };
            let found = across.sources[place].analysis.workload(workload);
            let own = found.and_then(|found| Some((found, found.contender(&contender.label)?)));
            table.rows.push(vec![
                contender.label.as_str().into(),
                name.as_str().into(),
                Cell::whole(count as u64),
                shown,
                ratio,
                verdict,
                own.map_or("-".into(), |(found, own)| tables::notes_cell(found, own)),
            ]);
        }
    }
    table.without_empty_columns()
}

/// What each contender cost in each result.
pub fn cost_table(across: &Across<'_>, workload: &str) -> Table {
    let mut table = Table::new(&[
        "contender",
        "result",
        "CPU",
        "memory",
        "written",
        "flushes",
        "amplification",
    ]);
    for contender in &across.sources[0].plan.study.contenders {
        for (place, source) in across.sources.iter().enumerate() {
            let found = source.analysis.workload(workload);
            let Some(found) = found.and_then(|found| found.contender(&contender.label)) else {
                continue;
            };
            table.rows.push(vec![
                contender.label.as_str().into(),
                across.names[place].as_str().into(),
                Cell::maybe(found.cost.command_cpu_ns, text::time),
                Cell::maybe(found.cost.memory_bytes_max, text::bytes),
                Cell::maybe(found.cost.device_written_bytes, text::bytes),
                Cell::maybe(found.cost.device_flushes, text::count),
                Cell::maybe(found.cost.write_amplification, |value| format!("{value:.2}")),
            ]);
        }
    }
    table.without_empty_columns()
}

fn ratio_text(comparison: &UnpairedComparison) -> String {
    let ends = comparison.interval.map(|interval| (interval.low, interval.high));
    comparison.ratio.map_or("-".into(), |ratio| ratio_with_interval(ratio, ends))
}

/// What each contender costs in each later result, relative to the same contender in the first: a sentence each.
pub fn sentences(across: &Across<'_>, workload: &AcrossWorkload) -> Vec<String> {
    let Some(metric) = workload.metrics.first().filter(|metric| !metric.contenders.is_empty())
    else {
        return vec!["No contender completed a run in two of the results.".into()];
    };
    let first = &across.names[0];
    let said = metric.contenders.iter().flat_map(|contender| {
        let later = across.names[1..].iter().zip(&contender.comparisons);
        later.map(move |(name, comparison)| {
            let (label, cost) = (&contender.label, ratio_text(comparison));
            let said = match (comparison.ratio, metric.unit) {
                (None, _) => {
                    return format!("{label} cannot be compared between {name} and {first}.");
                }
                (_, Unit::Nanoseconds) => {
                    format!("{label} in {name} took {cost} times as long as in {first}")
                }
                _ => {
                    let by = &metric.name;
                    format!("{label} in {name} cost {cost} times as much as in {first}, by {by}")
                }
            };
            format!("{said} ({}).", verdict_text(&comparison.verdict))
        })
    });
    said.collect()
}

/// `Within each result: xfs cost 1.200 (1.150 to 1.260) times as much as ext4 in A, and 1.010 (0.970 to 1.050) in
/// B.`: what a change of the machine does not touch. None where no two results have such a pair.
fn within_each(across: &Across<'_>, workload: &AcrossWorkload) -> Option<String> {
    let plan = &across.sources[0].plan;
    let baseline = plan.baseline_label();
    let cost_in = |source: &ResultSource, label: &str| {
        let found = source.analysis.workload(&workload.name)?;
        let mut compared = tables::primary_comparisons(found);
        let one = compared.find(|one| one.contender == label && one.baseline == baseline)?;
        quotient::cost_text(one)
    };
    let of = |label: &str| {
        let each = across.sources.iter().zip(&across.names);
        let costs: Vec<String> = each
            .filter_map(|(source, name)| Some(format!("{} in {name}", cost_in(source, label)?)))
            .collect();
        (costs.len() > 1).then(|| format!("{label} {}", text::list(&costs)))
    };
    let all: Vec<String> =
        plan.study.contenders.iter().filter_map(|contender| of(&contender.label)).collect();
    (!all.is_empty())
        .then(|| format!("Cost relative to {baseline} within each result: {}.", all.join("; ")))
}

/// All that is said of results side by side.
pub fn document(across: &Across<'_>) -> Vec<Block> {
    let names = || across.names.iter().zip(&across.origins);
    let mut blocks: Vec<Block> =
        names().map(|(name, origin)| Block::Text(format!("{name}: {origin}"))).collect();
    if let Some(why) = across.nothing_in_common() {
        return vec![Block::Text(why)];
    }
    for (index, workload) in across.workloads.iter().enumerate() {
        let id = format!("a{}-answer", index + 1);
        blocks.push(Block::heading(2, id, workload.name.clone()));
        blocks.extend(sentences(across, workload).into_iter().map(Block::Answer));
        let own = across.sources[0].analysis.workload(&workload.name);
        let is_said =
            |metric: &&AcrossMetric| own.is_some_and(|own| tables::is_said(own, &metric.name));
        for metric in workload.metrics.iter().filter(|metric| !is_said(metric)) {
            let caption = format!("{} in each result", metric.name);
            blocks.push(Block::table(caption, figure_table(across, &workload.name, metric)));
        }
        blocks.extend(within_each(across, workload).map(Block::Text));
        let charts = charts::charts(across, workload, index);
        blocks.extend(charts.into_iter().map(Block::Chart));
        let costs = Block::table("What it cost", cost_table(across, &workload.name));
        blocks.push(Block::fold("What it cost", vec![costs]));
    }
    blocks.extend(across.gates.iter().map(|gate| Block::Text(gate_text(gate))));
    blocks.push(Block::Text(
        "95 % confidence, corrected for multiple comparisons within each workload.".into(),
    ));
    let notes = across.notes.iter().chain(&across.warnings).map(String::as_str);
    let notes = std::iter::once(NOT_INTERLEAVED).chain(notes);
    blocks.extend(notes.map(|note| Block::Warning(note.into())));
    let damage = across.sources.iter().flat_map(|source| &source.damage);
    blocks.extend(damage.map(|damage| Block::Warning(format!("could not be read: {damage}"))));
    if !across.differences.rows.is_empty() {
        const TITLE: &str = "What differs between the machines";
        blocks.push(Block::heading(2, "environment", TITLE));
        blocks.push(Block::table(TITLE, across.differences.clone()));
    }
    blocks
}

/// What an export has of one metric, contender and result.
#[derive(Serialize)]
struct Row<'a> {
    workload: &'a str,
    metric: &'a str,
    unit: Unit,
    contender: &'a str,
    result: &'a str,
    rounds: usize,
    median: Option<f64>,
    /// Relative to the first result; above 1 is worse.
    cost: Option<f64>,
    cost_low: Option<f64>,
    cost_high: Option<f64>,
    confidence: Option<f64>,
    verdict: Option<Verdict>,
}

fn rows<'a>(across: &'a Across<'_>) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for workload in &across.workloads {
        for metric in &workload.metrics {
            for contender in &metric.contenders {
                for (place, result) in across.names.iter().enumerate() {
                    let found = place.checked_sub(1).map(|place| &contender.comparisons[place]);
                    let ends = found.and_then(|cost| cost.interval);
                    rows.push(Row {
                        workload: &workload.name,
                        metric: &metric.name,
                        unit: metric.unit,
                        contender: &contender.label,
                        result: result.as_str(),
                        rounds: contender.samples[place].len(),
                        median: contender.summaries[place].as_ref().map(|summary| summary.median),
                        cost: found.and_then(|cost| cost.ratio),
                        cost_low: ends.map(|ends| ends.low),
                        cost_high: ends.map(|ends| ends.high),
                        confidence: ends.map(|ends| ends.confidence),
                        verdict: found.map(|found| found.verdict),
                    });
                }
            }
        }
    }
    rows
}

/// One line for each metric, contender and result: the median, and the cost against the first result, where above 1
/// is worse.
pub fn csv(across: &Across<'_>) -> String {
    let heads = "workload,metric,unit,contender,result,rounds,median,cost,cost_low,cost_high,verdict,confidence\n";
    let mut text = heads.to_string();
    for row in rows(across) {
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        text.push_str(&export::line([
            row.workload.to_string(),
            row.metric.to_string(),
            format!("{:?}", row.unit).to_lowercase(),
            row.contender.to_string(),
            row.result.to_string(),
            row.rounds.to_string(),
            number(row.median),
            number(row.cost),
            number(row.cost_low),
            number(row.cost_high),
            row.verdict.map_or(String::new(), |verdict| verdict_text(&verdict)),
            number(row.confidence),
        ]));
    }
    text
}

/// The same for programs, with what is said besides.
pub fn json(across: &Across<'_>) -> Value {
    let results = across.names.iter().zip(&across.origins);
    let results: Vec<Value> =
        results.map(|(name, origin)| json!({"name": name, "origin": origin})).collect();
    json!({
        "results": results,
        "comparisons": rows(across),
        "gates": across.gates,
        "notes": across.notes,
        "warnings": across.warnings,
    })
}

pub fn page(across: &Across<'_>) -> String {
    let title = format!("{} against {}", across.names[1..].join(", "), across.names[0]);
    let mut blocks = vec![Block::heading(1, "", title.clone())];
    blocks.extend(document(across));
    crate::page::whole(&title, &html::render(&blocks))
}

/// Every chart as a picture: the name of its file, and the SVG.
pub fn pictures(across: &Across<'_>) -> Vec<(String, String)> {
    let workloads = across.workloads.iter().enumerate();
    let charts = workloads.flat_map(|(index, one)| charts::charts(across, one, index));
    charts
        .map(|chart| (format!("{}.svg", chart.id), svg::draw(&chart, SvgDestination::File)))
        .collect()
}
