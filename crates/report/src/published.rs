//! A publication's tables with, below each of its rows, what was measured here; its pictures; its
//! conclusions, with what the measurements say of them; and what was left out on this machine.
//!
//! The published numbers are data of the study (`lab::published`); this room only lays them out: the
//! tables in this file and `row`, the pictures in `picture`, everything as text or page in `write`.
//! Published and measured numbers share a table, never a row.

use lab::analysis::Analysis;
use lab::plan::Plan;
use lab::published::{
    Figure, Measured, PublishedCell, PublishedRow, PublishedTable, PublishedUnit, Reference,
    Statistic, is_withheld, measure,
};
use lab::record::Record;

use crate::chart::Chart;
use crate::table::{Cell, Table};
use crate::{charts, profile, quotient, tables, text};

mod picture;
mod row;
mod write;

use row::{Shown, common_unit, layer_name, layers, published_row};
pub use write::{OverTime, Section, left_out, markdown, section, terminal};

/// A published table beside what was measured here.
#[derive(Debug, Clone)]
pub struct Beside {
    /// Identifier, unique in a page.
    pub id: String,
    /// What the publication calls it, or what it shows.
    pub title: String,
    /// Where it was published.
    pub source: Option<String>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Published rows, each followed by the measured ones.
    pub table: Table,
    /// Its pictures.
    pub charts: Vec<Chart>,
    /// Workload and name of each series whose chart over time shows what the table has not.
    pub see: Vec<(String, String)>,
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
    let tables = plan.study.published.iter().enumerate();
    tables.map(|(index, table)| measurements.beside(table, index)).collect()
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

fn is_comparison(reference: &Reference) -> bool {
    matches!(reference.statistic, Statistic::Ratio | Statistic::Loss)
}

/// How what stands together was compared: the statistics pair the plan's baseline with each other
/// contender, and nothing else.
struct Compared {
    /// Whether anything was paired within blocks.
    paired: bool,
    /// Labels of the contenders of which there is the quotient of the medians.
    quotients: Vec<String>,
}

impl Measurements<'_> {
    fn beside(self, published: &PublishedTable, index: usize) -> Beside {
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
        let mut quotients = Vec::new();
        let with_medians = published.rows.iter().flat_map(|row| &row.cells).flat_map(|c| &c.here);
        let with_medians: Vec<&Reference> =
            with_medians.filter(|cell| cell.statistic == Statistic::Value).collect();
        let has_counterparts =
            published.rows.iter().flat_map(|row| &row.cells).any(|cell| !cell.here.is_empty());
        for row in &published.rows {
            // A row of which nothing was published has a head, and nothing to say.
            let is_published = row.cells.iter().any(|cell| !cell.text.is_empty());
            if is_published {
                let width = table.heads.len();
                table.rows.push(published_row(row, shared.is_some(), has_counterparts, width));
            }
            let more = if along == Along::Columns { others.as_slice() } else { &[] };
            let head = if is_published { "  here".into() } else { format!("{}, here", row.head) };
            let here = self.here_rows(row, &head, more, &with_medians, &mut quotients);
            measured |= !here.is_empty();
            table.rows.extend(here);
        }
        if along == Along::Rows {
            let rows = self.rows_of_others(published, &others);
            measured |= !rows.is_empty();
            table.rows.extend(rows);
        }
        let mut notes: Vec<String> = published.note.iter().cloned().collect();
        notes.extend(row::quotients_explained(&quotients));
        notes.push(self.explanation(published, &others, measured));
        notes.extend(profile::pooled(published).filter(|_| measured));
        let id = format!("published-{}", index + 1);
        Beside {
            charts: self.charts(published, &id),
            id,
            title: published.title.clone(),
            source: published.source.clone(),
            notes,
            table: table.without_empty_columns(),
            see: self.see(published),
        }
    }

    /// The series that the table points at, where it has a cell that was published and not measured.
    fn see(self, published: &PublishedTable) -> Vec<(String, String)> {
        let missing = |cell: &PublishedCell| {
            !cell.text.is_empty() && cell.here.iter().all(|here| self.measure(here).is_none())
        };
        let mut cells = published.rows.iter().flat_map(|row| &row.cells);
        match cells.any(missing) {
            true => {
                let drawn = published.see.iter().filter(|s| self.is_drawn(&s.workload, &s.series));
                drawn.map(|s| (s.workload.clone(), s.series.clone())).collect()
            }
            false => Vec::new(),
        }
    }

    /// Whether a series of the workload is long enough for a chart.
    fn is_drawn(self, workload: &str, series: &str) -> bool {
        let records = self.records.iter().filter(|record| record.workload == workload);
        let mut all = records.filter_map(|record| record.load.as_ref()).flat_map(|l| &l.series);
        all.any(|one| one.name == series && one.values.len() >= charts::series::INTERVALS_MIN)
    }

    /// The measured rows that belong under a published one: as many as its cells have counterparts,
    /// which are one a workload. `quotients` gets what must be said of ratios.
    fn here_rows(
        self,
        row: &PublishedRow,
        head: &str,
        others: &[&str],
        with_medians: &[&Reference],
        quotients: &mut Vec<row::Quotient>,
    ) -> Vec<Vec<Cell>> {
        let mut rows = Vec::new();
        for layer in 0..layers(row) {
            let references = row.cells.iter().map(|cell| Some((cell.here.get(layer)?, cell.unit)));
            let mut wanted: Vec<Option<(Reference, _)>> = references
                .map(|found| found.map(|(reference, unit)| (reference.clone(), unit)))
                .collect();
            let first = wanted.iter().flatten().next().cloned();
            for label in others {
                let other = first.as_ref().map(|(one, unit)| (of_contender(one, label), *unit));
                wanted.push(other.filter(|(other, _)| !self.is_to_itself(other)));
            }
            let mut cells: Vec<Option<Shown>> = Vec::new();
            for wanted in &wanted {
                cells.push(wanted.as_ref().and_then(|(reference, unit)| {
                    let Some(measured) = self.measure(reference) else {
                        return self.withheld(reference);
                    };
                    let quotient = self.quotient_aside(reference, &measured, with_medians);
                    let marked = quotient.is_some();
                    quotients.extend(quotient);
                    Some(Shown::Figure { measured, unit: *unit, marked })
                }));
            }
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let measured = wanted.iter().zip(&cells).filter(|(_, cell)| cell.is_some());
            let ratios = measured.filter_map(|(wanted, _)| Some(&wanted.as_ref()?.0));
            let ratios = ratios.filter(|reference| reference.statistic == Statistic::Ratio);
            let how = match self.how_compared(ratios) {
                None => String::new(),
                Some(Compared { paired: true, quotients }) if quotients.is_empty() => {
                    ": ratio, paired within blocks".into()
                }
                Some(Compared { paired: true, quotients }) => format!(
                    ": ratio, paired within blocks; of {} the quotient of the medians",
                    text::list(&quotients)
                ),
                Some(Compared { paired: false, .. }) => ": ratio, quotient of the medians".into(),
            };
            let workload = layer_name(row, layer).map(|name| format!(", {name}"));
            let head = format!("{head}{}{how}", workload.unwrap_or_default());
            rows.push(row::measured_row(head, &cells));
        }
        rows
    }

    /// The quotient of the medians in the same table, where it disagrees with the paired ratio.
    fn quotient_aside(
        self,
        reference: &Reference,
        ratio: &Measured,
        with_medians: &[&Reference],
    ) -> Option<row::Quotient> {
        let same = |cell: &&Reference| {
            cell.workload == reference.workload && cell.figure == reference.figure
        };
        if reference.statistic != Statistic::Ratio || !with_medians.iter().any(same) {
            return None;
        }
        let baseline = reference.baseline.as_deref().unwrap_or(self.plan.baseline_label());
        let median = |label: &str| {
            let value = Reference { statistic: Statistic::Value, ..of_contender(reference, label) };
            self.measure(&value).map(|measured| measured.value)
        };
        let quotient = median(&reference.contender)? / median(baseline)?;
        let label = reference.contender.clone();
        let ends = ratio.low.zip(ratio.high);
        quotient::is_aside(quotient, ratio.value, ends).then_some(row::Quotient { label, quotient })
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
                        .map(|cell| self.shown_of_other(cell.here.get(layer)?, label, cell.unit))
                        .collect();
                    if cells.iter().all(Option::is_none) {
                        continue;
                    }
                    let operation = row.cells.iter().flat_map(|cell| &cell.here).find_map(|r| {
                        match &r.figure {
                            Figure::Operation(name) => Some(format!(" {name}")),
                            Figure::Detail(_) => row.head.split_once(',').map(|(_, what)| {
                                // What tells the rows of one contender apart stands in their heads.
                                format!(",{what}")
                            }),
                            _ => None,
                        }
                    });
                    let workload = layer_name(row, layer).map(|name| format!(", {name}"));
                    let head = format!(
                        "  here: {label}{}{}",
                        operation.unwrap_or_default(),
                        workload.unwrap_or_default()
                    );
                    rows.push(row::measured_row(head, &cells));
                }
            }
        }
        rows
    }

    /// Whether a comparison is of the baseline with itself.
    fn is_to_itself(self, reference: &Reference) -> bool {
        let baseline = reference.baseline.as_deref().unwrap_or(self.plan.baseline_label());
        is_comparison(reference) && reference.contender == baseline
    }

    /// How these were compared; None where nothing was, or only something with itself.
    fn how_compared<'a>(self, all: impl Iterator<Item = &'a Reference>) -> Option<Compared> {
        let plans = self.plan.baseline_label();
        let mut how = Compared { paired: false, quotients: Vec::new() };
        for one in all.filter(|one| !self.is_to_itself(one)) {
            let baseline = one.baseline.as_deref().unwrap_or(plans);
            if [baseline, one.contender.as_str()].contains(&plans) {
                how.paired = true;
            } else if !how.quotients.contains(&one.contender) {
                how.quotients.push(one.contender.clone());
            }
        }
        (how.paired || !how.quotients.is_empty()).then_some(how)
    }

    /// The same figure of another contender; not what the baseline is to itself.
    fn shown_of_other(
        self,
        reference: &Reference,
        label: &str,
        unit: Option<PublishedUnit>,
    ) -> Option<Shown> {
        let other = of_contender(reference, label);
        if self.is_to_itself(&other) {
            return None;
        }
        let figure = |measured| Shown::Figure { measured, unit, marked: false };
        self.measure(&other).map(figure).or_else(|| self.withheld(&other))
    }

    /// What stands in the place of a comparison of too few blocks.
    fn withheld(self, reference: &Reference) -> Option<Shown> {
        let Measurements { plan, records, analysis } = self;
        is_withheld(plan, records, analysis, reference).then_some(Shown::Withheld)
    }

    fn measure(self, reference: &Reference) -> Option<Measured> {
        measure(self.plan, self.records, self.analysis, reference)
    }

    /// What "here" is: the device, the blocks, and how much of each load; or why there is nothing.
    fn explanation(self, published: &PublishedTable, others: &[&str], measured: bool) -> String {
        let cells = || published.rows.iter().flat_map(|row| &row.cells).flat_map(|c| &c.here);
        if cells().next().is_none() {
            return "published only: nothing stands for it here".into();
        }
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
            return match left {
                Some(left) => format!("not measured here: {} was left out", left.name),
                None => "not measured here".into(),
            };
        }
        let amounts: Vec<String> = workloads
            .iter()
            .filter_map(|name| self.plan.study.workloads.iter().find(|entry| entry.name == *name))
            .filter_map(|entry| Some(format!("{}: {}", entry.name, entry.amount.as_ref()?)))
            .collect();
        let entries = self.analysis.workloads.iter();
        let of_table = entries.filter(|entry| workloads.contains(&entry.workload.as_str()));
        let blocks = tables::all_blocks_text(of_table);
        let amounts = match amounts.is_empty() {
            true => String::new(),
            false => format!("; {}", amounts.join("; ")),
        };
        let of_others =
            cells().flat_map(|cell| others.iter().map(|label| of_contender(cell, label)));
        let all: Vec<Reference> = cells().cloned().chain(of_others).collect();
        let compared = all.iter().filter(|one| is_comparison(one) && self.measure(one).is_some());
        let withheld = match all.iter().any(|one| self.withheld(one).is_some()) {
            true => format!("; {}: {}", quotient::UNKNOWN, quotient::too_few_explained()),
            false => String::new(),
        };
        let only = || {
            let baseline = self.plan.baseline_label();
            format!("since only pairs with {baseline}, the baseline of this run, are paired")
        };
        let how = match self.how_compared(compared) {
            None => String::new(),
            Some(Compared { paired: false, .. }) => {
                format!("; what is compared is the quotient of the medians, {}", only())
            }
            Some(Compared { quotients, .. }) => {
                let of_these = match quotients.is_empty() {
                    true => String::new(),
                    false => format!(
                        "; of {} it is the quotient of the medians, {}",
                        text::list(&quotients),
                        only()
                    ),
                };
                format!(
                    "; what is compared is paired within each block, so that it need not be the quotient of the medians beside it{of_these}"
                )
            }
        };
        format!("here: {}, {blocks}{amounts}{how}{withheld}", tables::device_text(self.plan))
    }
}

#[cfg(test)]
mod tests;
