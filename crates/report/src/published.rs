//! A publication's tables with, below each of its rows, what was measured here; its conclusions,
//! with what the measurements say of them; and what was left out on this machine.
//!
//! The published numbers are data of the study (`lab::published`); this file only lays them out.
//! Published and measured numbers share a table, never a row.

use std::fmt::Write;

use lab::analysis::Analysis;
use lab::claim::{self, Judgement, Outcome};
use lab::load::{Load, TreeSource};
use lab::plan::Plan;
use lab::published::{
    Figure, Measured, PublishedCell, PublishedRow, PublishedTable, PublishedUnit, Quantity,
    Reference, Statistic, measure,
};
use lab::quantity::size_text;
use lab::record::Record;
use lab::spec::Workload;

use crate::html::{self, escape};
use crate::table::{Cell, Table, Tone, paint};
use crate::{tables, text};

/// A published table beside what was measured here.
#[derive(Debug, Clone)]
pub struct Beside {
    /// What the publication calls it, or what it shows.
    pub title: String,
    /// Where it was published.
    pub source: Option<String>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Published rows, each followed by the measured ones.
    pub table: Table,
}

/// What everything here is made from.
#[derive(Clone, Copy)]
struct Measurements<'a> {
    plan: &'a Plan,
    records: &'a [Record],
    analysis: &'a Analysis,
}

/// The study's published tables, in its order.
pub fn tables(plan: &Plan, records: &[Record], analysis: &Analysis) -> Vec<Beside> {
    let measurements = Measurements { plan, records, analysis };
    plan.study.published.iter().map(|table| measurements.beside(table)).collect()
}

/// What was left out of the study on this machine, a line each.
pub fn left_out(plan: &Plan) -> Vec<String> {
    let left = plan.study.left_out.iter();
    left.map(|left| format!("{} {}: {}", left.what, left.name, left.missing.join("; "))).collect()
}

/// Along what the contenders of a table lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Along {
    Columns,
    Rows,
    /// The whole table is of one contender, or they are mixed.
    Neither,
}

/// Along what the contenders of a table lie: where every line has one contender of its own, and
/// the lines have several, or some line has none.
fn along(table: &PublishedTable) -> Along {
    let contenders = |cells: &mut dyn Iterator<Item = &PublishedCell>| {
        let mut labels: Vec<String> = Vec::new();
        for reference in cells.flat_map(|cell| &cell.here) {
            if !labels.contains(&reference.contender) {
                labels.push(reference.contender.clone());
            }
        }
        labels
    };
    let columns: Vec<Vec<String>> = (0..table.columns.len())
        .map(|column| contenders(&mut table.rows.iter().map(|row| &row.cells[column])))
        .collect();
    let rows: Vec<Vec<String>> =
        table.rows.iter().map(|row| contenders(&mut row.cells.iter())).collect();
    let told_apart = |lines: &[Vec<String>]| {
        let named: Vec<&Vec<String>> = lines.iter().filter(|line| !line.is_empty()).collect();
        let single = named.iter().all(|line| line.len() == 1);
        let several = named.iter().any(|line| *line != named[0]) || named.len() < lines.len();
        !named.is_empty() && single && several
    };
    match (told_apart(&columns), told_apart(&rows)) {
        (true, _) => Along::Columns,
        (_, true) => Along::Rows,
        _ => Along::Neither,
    }
}

/// Labels of the contenders that no cell of the table names.
fn unnamed<'a>(table: &PublishedTable, plan: &'a Plan) -> Vec<&'a str> {
    let cells = || table.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| &cell.here);
    let labels = plan.study.contenders.iter().map(|contender| contender.label.as_str());
    labels.filter(|label| !cells().any(|reference| reference.contender == *label)).collect()
}

fn of_contender(reference: &Reference, label: &str) -> Reference {
    Reference { contender: label.to_string(), ..reference.clone() }
}

/// The unit that all numbered cells share, when they do.
fn common_unit<'a>(cells: impl Iterator<Item = &'a PublishedCell>) -> Option<PublishedUnit> {
    let mut units = cells.filter(|c| !(c.text.is_empty() && c.here.is_empty())).map(|c| c.unit);
    let first = units.next()??;
    units.all(|unit| unit == Some(first)).then_some(first)
}

impl Measurements<'_> {
    fn beside(self, published: &PublishedTable) -> Beside {
        let along = along(published);
        let others = match along {
            Along::Neither => Vec::new(),
            _ => unnamed(published, self.plan),
        };
        let shared = common_unit(published.rows.iter().flat_map(|row| &row.cells));
        let heads = std::iter::once(match shared {
            Some(unit) => format!("in {}", unit.name()),
            None => String::new(),
        })
        .chain(published.columns.iter().cloned())
        .chain(others.iter().filter(|_| along == Along::Columns).map(|label| label.to_string()));
        let mut table = Table { heads: heads.collect(), rows: Vec::new() };
        let mut measured = false;
        for row in &published.rows {
            table.rows.push(published_row(row, shared.is_some(), table.heads.len()));
            let more = if along == Along::Columns { others.as_slice() } else { &[] };
            let here = self.here_rows(row, more);
            measured |= !here.is_empty();
            table.rows.extend(here);
        }
        if along == Along::Rows {
            let rows = self.rows_of_others(published, &others);
            measured |= !rows.is_empty();
            table.rows.extend(rows);
        }
        let mut notes: Vec<String> = published.note.iter().cloned().collect();
        notes.extend(self.explanation(published, measured));
        Beside {
            title: published.title.clone(),
            source: published.source.clone(),
            notes,
            table: table.without_empty_columns(),
        }
    }

    /// The measured rows that belong under a published one: as many as its cells have counterparts,
    /// which are one a workload.
    fn here_rows(self, row: &PublishedRow, others: &[&str]) -> Vec<Vec<Cell>> {
        let mut rows = Vec::new();
        for layer in 0..layers(row) {
            let mut cells: Vec<Option<Shown>> = row
                .cells
                .iter()
                .map(|cell| Some((self.measure(cell.here.get(layer)?)?, cell.unit)))
                .collect();
            let first = row.cells.iter().find_map(|cell| Some((cell.here.get(layer)?, cell.unit)));
            for label in others {
                cells.push(first.and_then(|(reference, unit)| {
                    Some((self.measure_other(reference, label)?, unit))
                }));
            }
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let head = match layer_name(row, layer) {
                Some(workload) => format!("  here, {workload}"),
                None => "  here".to_string(),
            };
            rows.push(measured_row(head, &cells));
        }
        rows
    }

    /// Rows of the contenders that the publication has not: as many for each as its first
    /// contender with a counterpart has.
    fn rows_of_others(self, published: &PublishedTable, others: &[&str]) -> Vec<Vec<Cell>> {
        let contender = |row: &PublishedRow| {
            row.cells.iter().flat_map(|cell| &cell.here).map(|r| r.contender.clone()).next()
        };
        let Some(first) = published.rows.iter().find_map(contender) else { return Vec::new() };
        let pattern: Vec<&PublishedRow> =
            published.rows.iter().filter(|row| contender(row).as_ref() == Some(&first)).collect();
        let mut rows = Vec::new();
        for label in others {
            for row in &pattern {
                for layer in 0..layers(row) {
                    let cells: Vec<Option<Shown>> = row
                        .cells
                        .iter()
                        .map(|cell| {
                            let reference = cell.here.get(layer)?;
                            Some((self.measure_other(reference, label)?, cell.unit))
                        })
                        .collect();
                    if cells.iter().all(Option::is_none) {
                        continue;
                    }
                    let operation = row.cells.iter().flat_map(|cell| &cell.here).find_map(|r| {
                        match &r.figure {
                            Figure::Operation(name) => Some(format!(" {name}")),
                            _ => None,
                        }
                    });
                    let workload = layer_name(row, layer).map(|name| format!(", {name}"));
                    let head = format!(
                        "  here: {label}{}{}",
                        operation.unwrap_or_default(),
                        workload.unwrap_or_default()
                    );
                    rows.push(measured_row(head, &cells));
                }
            }
        }
        rows
    }

    /// The same figure of another contender; not what the baseline is to itself.
    fn measure_other(self, reference: &Reference, label: &str) -> Option<Measured> {
        let baseline = reference.baseline.as_deref().unwrap_or(self.plan.baseline_label());
        let compares = matches!(reference.statistic, Statistic::Ratio | Statistic::Loss);
        if compares && label == baseline {
            return None;
        }
        self.measure(&of_contender(reference, label))
    }

    fn measure(self, reference: &Reference) -> Option<Measured> {
        measure(self.plan, self.records, self.analysis, reference)
    }

    /// What "here" is: the device, the blocks, and how much of each load; or why there is nothing.
    fn explanation(self, published: &PublishedTable, measured: bool) -> Option<String> {
        let cells = || published.rows.iter().flat_map(|row| &row.cells).flat_map(|c| &c.here);
        cells().next()?;
        let mut workloads: Vec<&str> = Vec::new();
        for reference in cells() {
            if !workloads.contains(&reference.workload.as_str()) {
                workloads.push(&reference.workload);
            }
        }
        if !measured {
            let left =
                self.plan.study.left_out.iter().find(|left| {
                    cells().all(|r| r.contender == left.name || r.workload == left.name)
                });
            return Some(match left {
                Some(left) => format!("not measured here: {} was left out", left.name),
                None => "not measured here".into(),
            });
        }
        let amounts: Vec<String> = workloads
            .iter()
            .filter_map(|name| self.plan.study.workloads.iter().find(|entry| entry.name == *name))
            .filter_map(amount)
            .collect();
        let entries = self.analysis.workloads.iter();
        let of_table = entries.filter(|entry| workloads.contains(&entry.workload.as_str()));
        let blocks = of_table.map(|entry| entry.blocks).max().unwrap_or(0);
        let amounts = match amounts.is_empty() {
            true => String::new(),
            false => format!("; {}", amounts.join("; ")),
        };
        let compares =
            cells().any(|cell| matches!(cell.statistic, Statistic::Ratio | Statistic::Loss));
        let paired = match compares {
            true => {
                "; what is compared is paired within each block, so that it need not be the quotient of the medians beside it"
            }
            false => "",
        };
        Some(format!(
            "here: {}, {blocks} block{}{amounts}{paired}",
            tables::device_text(self.plan),
            if blocks == 1 { "" } else { "s" }
        ))
    }
}

/// How much of a load was done here, in words.
fn amount(workload: &Workload) -> Option<String> {
    let name = &workload.name;
    let words = match &workload.load {
        Load::Objects(load) if load.scale != 1.0 => {
            format!("{} of the program's counts", load.scale)
        }
        Load::Tree(load) => match &load.source {
            TreeSource::Synthetic { files, .. } => format!("a tree of {files} files"),
            TreeSource::Tarball(path) => path.display().to_string(),
        },
        Load::Fio(load) if load.path.is_none() => load.text.clone(),
        Load::FioMatrix(load) => format!(
            "cells of {} over {}",
            text::time(load.cell_ns as f64),
            size_text(load.size_bytes)
        ),
        Load::Dbench(load) => format!("{} clients, {} s counted", load.clients, load.seconds),
        Load::DbenchReplay(load) => {
            format!("{} clients, {} s counted", load.clients, load.seconds)
        }
        Load::Objects(_) | Load::Fio(_) | Load::Command { .. } | Load::Bonnie(_) => return None,
    };
    Some(format!("{name}: {words}"))
}

/// A measured figure with the unit that it is shown in.
type Shown = (Measured, Option<PublishedUnit>);

/// How many counterparts a cell of the row has at most.
fn layers(row: &PublishedRow) -> usize {
    row.cells.iter().map(|cell| cell.here.len()).max().unwrap_or(0)
}

/// The workload of a layer, where cells have several counterparts.
fn layer_name(row: &PublishedRow, layer: usize) -> Option<&str> {
    let several = row.cells.iter().find(|cell| cell.here.len() > 1)?;
    several.here.get(layer).map(|reference| reference.workload.as_str())
}

fn published_row(row: &PublishedRow, unit_is_told: bool, width: usize) -> Vec<Cell> {
    let mut head = row.head.clone();
    if let (false, Some(unit)) = (unit_is_told, common_unit(row.cells.iter())) {
        let _ = write!(head, ", {}", unit.name());
    }
    if row.cells.iter().all(|cell| cell.here.is_empty()) {
        head.push_str(" (published only)");
    }
    let mut cells: Vec<Cell> = vec![head.into()];
    cells.extend(row.cells.iter().map(|cell| match cell.text.as_str() {
        "" => Cell::from("-"),
        // Text that is no number stays text.
        text => Cell::from(text).valued(text.parse().ok()),
    }));
    cells.resize(width, "-".into());
    cells
}

fn measured_row(head: String, cells: &[Option<(Measured, Option<PublishedUnit>)>]) -> Vec<Cell> {
    let mut row = vec![Cell::toned(head, Tone::Strong)];
    row.extend(cells.iter().map(|cell| match cell {
        Some((measured, unit)) => shown(*measured, *unit),
        None => "-".into(),
    }));
    row
}

/// A measured figure in the unit of the published one; in its own where the two do not go
/// together.
fn shown(measured: Measured, unit: Option<PublishedUnit>) -> Cell {
    let (figure, words): (Measured, fn(f64) -> String) =
        match (measured.in_unit(unit), measured.quantity) {
            (Some(converted), _) => (converted, digits),
            (None, Quantity::Ratio) => (measured, text::ratio),
            (None, Quantity::Percent) => (measured, digits),
            (None, Quantity::Count) => {
                return Cell::from(format!("{:.0}", measured.value)).valued(Some(measured.value));
            }
            (None, Quantity::Of(unit)) => {
                let interval = measured.low.zip(measured.high);
                let words = text::figure_with_interval(measured.value, interval, unit);
                return Cell::from(words).valued(Some(measured.value));
            }
        };
    let text = match figure.low.zip(figure.high) {
        Some((low, high)) => {
            format!("{} [{}, {}]", words(figure.value), words(low), words(high))
        }
        None => words(figure.value),
    };
    Cell::from(text).valued(Some(figure.value))
}

/// Four significant digits, at most four behind the point.
fn digits(value: f64) -> String {
    let magnitude = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    let behind = (3.0 - magnitude).clamp(0.0, 4.0) as usize;
    format!("{value:.behind$}")
}

/// The heading of everything that concerns the publication.
const HEADING: &str = "Beside the published figures";
/// The heading of the conclusions.
const CLAIMS_HEADING: &str = "What the publication concluded, and what it left open";
/// The heading of what differs.
const DIFFERS_HEADING: &str = "What differs here";
/// Width of prose in a terminal.
const PROSE_COLUMNS: usize = 100;

/// The name of a source where it is not the study's own.
fn own_source<'a>(plan: &Plan, source: &'a Option<String>) -> Option<&'a str> {
    source.as_deref().filter(|text| plan.study.source.as_deref() != Some(text))
}

/// Everything as text for a terminal; empty for a study without a publication that left nothing
/// out.
pub fn terminal(plan: &Plan, records: &[Record], analysis: &Analysis, colour: bool) -> String {
    let mut out = String::new();
    for line in left_out(plan) {
        out.push_str(&prose("  ", &format!("Left out: {line}")));
    }
    let study = &plan.study;
    if study.published.is_empty() && study.claims.is_empty() {
        return out;
    }
    let _ = writeln!(out, "\n{}", paint(HEADING, Tone::Strong, colour));
    if let Some(source) = &study.source {
        out.push_str(&prose("  ", source));
    }
    if !study.differs.is_empty() {
        let _ = writeln!(out, "\n  {DIFFERS_HEADING}:");
        for line in &study.differs {
            out.push_str(&prose("  - ", line));
        }
    }
    for beside in tables(plan, records, analysis) {
        let _ = writeln!(out, "\n  {}", paint(&beside.title, Tone::Strong, colour));
        if let Some(source) = own_source(plan, &beside.source) {
            out.push_str(&prose("  ", source));
        }
        let _ = write!(out, "{}", beside.table.terminal(colour));
        for note in &beside.notes {
            out.push_str(&prose("    ", note));
        }
    }
    let judgements = claim::judge(plan, records, analysis);
    if !judgements.is_empty() {
        let _ = writeln!(out, "\n{}", paint(CLAIMS_HEADING, Tone::Strong, colour));
    }
    for judged in &judgements {
        let words = paint(judged.outcome.words(), tone_of(judged.outcome), colour);
        out.push_str(&prose("  ", &format!("“{}”{}", judged.claim.text, cited(plan, judged))));
        let _ = writeln!(out, "    {words}");
        for line in judged.evidence.iter().chain(&judged.claim.note) {
            out.push_str(&prose("    ", line));
        }
    }
    out
}

/// ` (conclusion 1)` where the claim has a source of its own.
fn cited(plan: &Plan, judged: &Judgement) -> String {
    own_source(plan, &judged.claim.source).map(|text| format!(" ({text})")).unwrap_or_default()
}

fn tone_of(outcome: Outcome) -> Tone {
    match outcome {
        Outcome::Holds | Outcome::Answered => Tone::Good,
        Outcome::Fails => Tone::Bad,
        Outcome::Inconclusive => Tone::Doubtful,
        Outcome::Untested => Tone::Faint,
    }
}

/// A paragraph of at most [`PROSE_COLUMNS`], its first line after `lead`, the others below it.
fn prose(lead: &str, text: &str) -> String {
    let indent = " ".repeat(lead.chars().count());
    let mut out = String::new();
    let mut line = lead.to_string();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > PROSE_COLUMNS {
            let _ = writeln!(out, "{line}");
            line.clone_from(&indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{line}");
    out
}

/// Everything as Markdown; empty for a study without a publication that left nothing out.
pub fn markdown(plan: &Plan, records: &[Record], analysis: &Analysis) -> String {
    let mut out = String::new();
    for line in left_out(plan) {
        let _ = writeln!(out, "- Left out: {line}");
    }
    let study = &plan.study;
    if study.published.is_empty() && study.claims.is_empty() {
        return out;
    }
    let _ = writeln!(out, "\n## {HEADING}\n");
    if let Some(source) = &study.source {
        let _ = writeln!(out, "{source}\n");
    }
    if !study.differs.is_empty() {
        let _ = writeln!(out, "{DIFFERS_HEADING}:\n");
        for line in &study.differs {
            let _ = writeln!(out, "- {line}");
        }
    }
    for beside in tables(plan, records, analysis) {
        let _ = writeln!(out, "\n### {}\n\n{}", beside.title, beside.table.markdown());
        for note in own_source(plan, &beside.source)
            .into_iter()
            .chain(beside.notes.iter().map(String::as_str))
        {
            let _ = writeln!(out, "- {note}");
        }
    }
    let _ = writeln!(out, "\n### {CLAIMS_HEADING}\n");
    for judged in claim::judge(plan, records, analysis) {
        let _ = writeln!(
            out,
            "- “{}”{}: **{}**",
            judged.claim.text,
            cited(plan, &judged),
            judged.outcome.words()
        );
        for line in judged.evidence.iter().chain(&judged.claim.note) {
            let _ = writeln!(out, "  - {line}");
        }
    }
    out
}

/// Everything as a section of a page; empty for a study without a publication that left nothing
/// out.
pub fn section(plan: &Plan, records: &[Record], analysis: &Analysis) -> String {
    let mut out = String::new();
    let left = left_out(plan);
    if !left.is_empty() {
        out.push_str("<ul class=\"remarks\" aria-label=\"What was left out\">\n");
        for line in left {
            let _ = writeln!(out, "<li><b>Left out:</b> {}</li>", escape(&line));
        }
        out.push_str("</ul>\n");
    }
    let study = &plan.study;
    if study.published.is_empty() && study.claims.is_empty() {
        return out;
    }
    let _ = writeln!(
        out,
        "<section aria-labelledby=\"published\">\n<h2 id=\"published\">{HEADING}</h2>"
    );
    if let Some(source) = &study.source {
        let _ = writeln!(out, "<p>{}</p>", escape(source));
    }
    if !study.differs.is_empty() {
        let _ = writeln!(out, "<details><summary>{DIFFERS_HEADING}</summary>\n<ul>");
        for line in &study.differs {
            let _ = writeln!(out, "<li>{}</li>", escape(line));
        }
        out.push_str("</ul>\n</details>\n");
    }
    let judgements = claim::judge(plan, records, analysis);
    if !judgements.is_empty() {
        let _ = writeln!(out, "<h3>{CLAIMS_HEADING}</h3>\n<dl class=\"claims\">");
        for judged in &judgements {
            let _ = writeln!(
                out,
                "<dt>“{}”{}</dt>\n<dd><b>{}</b>",
                escape(&judged.claim.text),
                escape(&cited(plan, judged)),
                judged.outcome.words()
            );
            let lines: Vec<&String> = judged.evidence.iter().chain(&judged.claim.note).collect();
            if !lines.is_empty() {
                out.push_str("<ul class=\"small\">\n");
                for line in lines {
                    let _ = writeln!(out, "<li>{}</li>", escape(line));
                }
                out.push_str("</ul>\n");
            }
            out.push_str("</dd>\n");
        }
        out.push_str("</dl>\n");
    }
    for beside in tables(plan, records, analysis) {
        let _ = writeln!(out, "<h3>{}</h3>", escape(&beside.title));
        out.push_str(&html::table(&beside.table, &beside.title));
        let source = own_source(plan, &beside.source);
        for note in source.into_iter().chain(beside.notes.iter().map(String::as_str)) {
            let _ = writeln!(out, "<p class=\"small\">{}</p>", escape(note));
        }
    }
    out.push_str("</section>\n");
    out
}

#[cfg(test)]
mod tests;
