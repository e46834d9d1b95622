//! The HTML report: one self-contained page of a result. The answer comes first, then what it
//! cost, then how sure it is, then the charts, then all that is needed to repeat it.
//!
//! The page asks nothing of any other file or host, which its content policy enforces. Without its
//! script it is complete: the script only makes the pictures interactive. Whatever comes from a
//! result goes through [`crate::html::escape`].

use std::fmt::Write;

use lab::record::{Outcome, Phase, Record, unfinished_block};
use lab::statistics::Verdict;
use lab::words::{TOO_WIDE, too_wide_explained};

use crate::chart::Chart;
use crate::charts::{self, View};
use crate::html::{self, escape};
use crate::sittings::{self, kernels, sittings};
use crate::source::Source;
use crate::svg::{self, Place};
use crate::table::{Cell, Table, Tone};
use crate::{costs, profile, published, sentence, tables, text};

mod environment;

pub(crate) use environment::flatten;

const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");
/// plotly.js, whose licence notice stands in its first and last lines.
const PLOTLY: &str = include_str!("../assets/plotly-basic.min.js");

/// How the titles of charts of series begin.
const OVER_TIME: &str = "Over time: ";

/// Most figures that are shown unasked.
const FIGURES_OPEN_MAX: usize = 14;

/// The page of one result.
pub fn page(source: &Source) -> String {
    let head = masthead(source);
    let mut body = String::new();
    let views = View::all(source);
    let of_views: Vec<Vec<Chart>> = views.iter().map(charts::of_workload).collect();
    let over_time: Vec<published::OverTime> =
        views.iter().zip(&of_views).flat_map(|(view, charts)| over_time(view, charts)).collect();
    let published = published::section(&source.plan, &source.records, &source.analysis, &over_time);
    // Where a publication's figures come between, the answer is told before them.
    if views.len() > 1 || !published.navigation.is_empty() {
        body.push_str(&overview(source, &views));
    }
    body.push_str(&published.navigation);
    body.push_str(&published.html);
    let mut all = published.charts;
    for (view, charts) in views.iter().zip(of_views) {
        body.push_str(&workload(view, &charts, all.len(), views.len() > 1));
        all.extend(charts);
    }
    body.push_str(&environment::section(source));
    let explained = match body.contains(TOO_WIDE) {
        true => format!("<p class=\"small\">{}.</p>\n", escape(&too_wide_explained())),
        false => String::new(),
    };
    let body = head + &explained + &body;
    document(&source.plan.study.name, &body, &all)
}

/// Every chart of a result as a picture: the name of its file, and the SVG.
pub fn pictures(source: &Source) -> Vec<(String, String)> {
    let drawn = |chart: &Chart| (format!("{}.svg", chart.id), svg::draw(chart, Place::File));
    let published = published::tables(&source.plan, &source.records, &source.analysis);
    let mut pictures: Vec<(String, String)> =
        published.iter().flat_map(|beside| &beside.charts).map(drawn).collect();
    for view in &View::all(source) {
        for chart in charts::of_workload(view) {
            pictures.push(drawn(&chart));
        }
        pictures.extend(charts::matrix::pictures(view));
    }
    pictures
}

/// The charts of a workload's series.
fn over_time(view: &View<'_>, charts: &[Chart]) -> Vec<published::OverTime> {
    let workload = &view.analysis.workload;
    let charts = charts.iter().filter_map(|chart| {
        let series = chart.title.strip_prefix(OVER_TIME)?;
        Some(published::OverTime {
            workload: workload.clone(),
            series: series.into(),
            id: chart.id.clone(),
        })
    });
    charts.collect()
}

/// A page around a body. The charts are those that the body holds figures of, in order.
pub(crate) fn document(title: &str, body: &str, charts: &[Chart]) -> String {
    let scripts = if charts.is_empty() {
        String::new()
    } else {
        format!(
            "<script type=\"application/json\" id=\"kurabe-charts\">{}</script>\n<script>{PLOTLY}</script>\n<script>{SCRIPT}</script>\n",
            html::json(&charts)
        )
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:\">\n<meta name=\"generator\" content=\"kurabe {version}\">\n<title>{title} · kurabe</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}{footer}</main>\n{scripts}</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
        title = escape(title),
        footer = footer(!charts.is_empty()),
    )
}

fn footer(with_charts: bool) -> String {
    let drawn = if with_charts {
        " The interactive charts are drawn by plotly.js (MIT, © Plotly, Inc.), whose script and notice stand in this file. Drag to zoom, double-click to go back, point at a mark for its numbers."
    } else {
        ""
    };
    format!(
        "<footer>Made by kurabe {} from the result directory alone; this file needs no network.{drawn}</footer>\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn masthead(source: &Source) -> String {
    let study = &source.plan.study;
    let labels: Vec<String> = study.contenders.iter().map(|c| c.label.clone()).collect();
    let mut under = vec![
        text::list(&labels),
        tables::device_text(&source.plan),
        tables::all_blocks_text(source.analysis.workloads.iter()),
        text::counted(source.records.len(), "trial"),
    ];
    let sittings = sittings(source);
    under.extend(kernels(&sittings));
    under.extend(source.records.first().map(|record| environment::date(record.started_unix_ns)));
    let mut out = format!(
        "<header>\n<p class=\"kicker\">kurabe · comparing file systems</p>\n<h1>{}</h1>\n<p class=\"under\">{}</p>\n",
        escape(&study.name),
        escape(&under.join(" · "))
    );
    if let Some(line) = profile::line(&source.plan, &source.analysis) {
        let _ = writeln!(out, "<p class=\"answer\">{}</p>", escape(&line));
    }
    if let Some(why) = &study.why {
        let _ = writeln!(out, "<p class=\"why\">{}</p>", escape(why));
    }
    if let Some(said) = sittings::sentence(&sittings) {
        let _ = writeln!(
            out,
            "<ul class=\"remarks\">\n<li class=\"note\"><b>Note:</b> {}</li>\n</ul>",
            escape(&said)
        );
    }
    if !source.damage.is_empty() {
        out.push_str("<ul class=\"remarks\" aria-label=\"What could not be read\">\n");
        for damage in &source.damage {
            let _ = writeln!(
                out,
                "<li class=\"damage\"><b>Could not be read:</b> {}</li>",
                escape(damage)
            );
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</header>\n");
    out
}

/// Where a result came from, in one line.
pub(crate) fn origin(source: &Source) -> String {
    let mut parts = vec![source.name.clone()];
    parts.extend(kernels(&sittings(source)));
    parts.extend(source.records.first().map(|record| environment::date(record.started_unix_ns)));
    parts.join(", ")
}

/// The answers of all workloads at a glance.
fn overview(source: &Source, views: &[View<'_>]) -> String {
    let mut out = String::from("<nav aria-label=\"The answers\">\n<ol>\n");
    for view in views {
        let _ = writeln!(
            out,
            "<li><a href=\"#{}\">{}</a><p>{}</p></li>",
            view.id("answer"),
            escape(&view.analysis.workload),
            escape(&sentence::sentence(view.analysis, &source.plan))
        );
    }
    out.push_str("</ol>\n</nav>\n");
    out
}

/// One workload: answer, cost, certainty, charts, numbers.
fn workload(view: &View<'_>, charts: &[Chart], first_chart: usize, several: bool) -> String {
    let (source, workload) = (view.source, view.analysis);
    let id = view.id("answer");
    let mut out = format!("<section aria-labelledby=\"{id}\">\n");
    let heading = if several { workload.workload.as_str() } else { "The answer" };
    let _ = writeln!(out, "<h2 id=\"{id}\">{}</h2>", escape(heading));
    let study = &source.plan.study.workloads[view.index];
    if !several {
        let _ = writeln!(out, "<p class=\"under\">Load: {}</p>", escape(&workload.workload));
    }
    if let Some(why) = &study.why {
        let _ = writeln!(out, "<p class=\"why\">{}</p>", escape(why));
    }
    if let Some(amount) = &study.amount {
        let _ = writeln!(out, "<p class=\"under\">What ran: {}</p>", escape(amount));
    }
    let sentence = sentence::sentence(workload, &source.plan);
    let _ = writeln!(out, "<p class=\"answer\">{}</p>", escape(&sentence));
    out.push_str(&html::table(&ranking(view), &format!("Ranking under {}", workload.workload)));
    for note in tables::contenders_explained(workload) {
        let _ = writeln!(out, "<p class=\"small\">{}.</p>", escape(&note));
    }
    for gate in source.analysis.gates.iter().filter(|gate| gate.workload == workload.workload) {
        let _ = writeln!(
            out,
            "<p class=\"small\">Gate <code>{}</code>: {}.</p>",
            escape(&gate.gate),
            tables::gate_text(&gate.outcome)
        );
    }
    let figures = tables::metrics(workload, &source.plan);
    if !figures.rows.is_empty() {
        let table = html::table(&figures, "Every figure of the load");
        let marks = escape(&tables::metrics_explained(workload));
        let many = figures.rows.len() > FIGURES_OPEN_MAX;
        let _ = match many {
            true => writeln!(
                out,
                "<details class=\"more\"><summary>All {} figures</summary>\n<p class=\"small\">{marks}.</p>\n{table}</details>",
                figures.rows.len()
            ),
            false => {
                writeln!(out, "<h3>Every figure</h3>\n<p class=\"small\">{marks}.</p>\n{table}")
            }
        };
    }
    out.push_str("<h3>What it cost</h3>\n");
    out.push_str("<p class=\"small\">In the run and the sync after it.</p>\n");
    out.push_str(&html::table(&costs::table(source, workload), "What it cost"));
    let phases = costs::phases(workload);
    if phases.heads.len() > 1 {
        let _ = writeln!(
            out,
            "<details class=\"more\"><summary>What the device did in each phase</summary>\n<p class=\"small\">Medians of the trials. What comes before the run is in no other cost.</p>\n{}</details>",
            html::table(&phases, "What the device did in each phase")
        );
    }
    out.push_str(&certainty(view));
    out.push_str(&charts::matrix::section(view));
    out.push_str(&all_figures(charts, first_chart));
    let latencies = tables::latencies(workload, &source.plan);
    if !latencies.rows.is_empty() {
        out.push_str("<h3>Latencies</h3>\n");
        let _ = writeln!(out, "<p class=\"small\">{}.</p>", escape(tables::LATENCIES_EXPLAINED));
        out.push_str(&html::table(&latencies, "Latencies by kind of operation"));
    }
    let _ = writeln!(
        out,
        "<details class=\"more\"><summary>All {} of this load</summary>\n{}</details>",
        text::counted(trials_of(view).count(), "trial"),
        html::table(&trials(view), "All trials")
    );
    out.push_str("</section>\n");
    out
}

/// Who is first, second and so on, with intervals.
fn ranking(view: &View<'_>) -> Table {
    let plan = &view.source.plan;
    let baseline = plan.baseline_label();
    let figure = format!("{} [interval]", tables::primary_metric(view.analysis));
    let ratio = format!("ratio to {baseline} [interval]");
    let mut table = Table::new(&["contender", &figure, &ratio, "verdict", "trials"]);
    for contender in tables::ranked(view.analysis) {
        let trials = contender.trials - contender.failed.min(contender.trials);
        let [figure, ratio, verdict] = tables::answer_cells(view.analysis, contender, baseline);
        table.rows.push(vec![
            contender.label.as_str().into(),
            figure,
            ratio,
            verdict,
            Cell::number(trials as f64, trials.to_string()),
        ]);
    }
    table
}

/// Every warning, every failure, every finding.
fn certainty(view: &View<'_>) -> String {
    let workload = view.analysis;
    let mut out = String::from("<h3>How sure that is</h3>\n");
    let mut remarks = String::new();
    for warning in &workload.warnings {
        let (class, word) = match warning.is_grave() {
            true => ("warning", "Warning"),
            false => ("note", "Note"),
        };
        let text = escape(&warning.to_string());
        let _ = writeln!(remarks, "<li class=\"{class}\"><b>{word}:</b> {text}</li>");
    }
    remarks.push_str(&failures(view));
    for finding in tables::findings(workload).into_iter().chain(tables::footnotes(workload)) {
        let _ = writeln!(remarks, "<li>{}</li>", escape(&finding));
    }
    let _ = writeln!(out, "<p>{}</p>", method(view, remarks.is_empty()));
    if !remarks.is_empty() {
        let _ = writeln!(out, "<ul class=\"remarks\">\n{remarks}</ul>");
    }
    out
}

/// Fewest blocks from which a ratio gets an interval.
const INTERVAL_BLOCKS_MIN: u32 = 3;

/// How the numbers of a workload came about, and whether anything speaks against them.
fn method(view: &View<'_>, is_without_remark: bool) -> String {
    let workload = view.analysis;
    let study = &view.source.plan.study;
    let fresh = match study.contenders.iter().filter(|c| c.directory.is_some()).count() {
        0 => "every trial from a fresh mkfs",
        all if all == study.contenders.len() => "in directories that are there already",
        _ => "every trial from a fresh mkfs but those of directories",
    };
    let few = match workload.blocks < INTERVAL_BLOCKS_MIN {
        true => format!(" They are too few for an interval: it takes {INTERVAL_BLOCKS_MIN}."),
        false => String::new(),
    };
    // A first block that was not finished is all that there is.
    let left_over = match (1..workload.blocks).contains(&workload.blocks_whole) {
        true => " Nothing of the part is in a figure; its trials stand below All trials.",
        false => "",
    };
    let decided = workload.comparisons.iter().any(|one| one.verdict != Verdict::Inconclusive);
    let found = match workload.comparisons.is_empty() || decided {
        _ if !few.is_empty() => "",
        false => {
            " No comparison is decided: for that the trials scatter too much, or the blocks are too few."
        }
        true if is_without_remark => {
            " No trial failed, and none of the checks (spread, drift, outliers, first block, a busy or shared device) found anything."
        }
        true => "",
    };
    format!(
        "{}, each with the contenders in random order, {fresh}.{few}{left_over} Intervals of ratios are of {}; within {} % two count as the same.{found}",
        tables::blocks_text(workload),
        sentence::confidence(&view.source.plan),
        text::plain(study.same_within * 100.0),
    )
}

/// The trials that failed, those that failed alike together.
fn failures(view: &View<'_>) -> String {
    let mut alike: Vec<(&str, String, Vec<String>)> = Vec::new();
    for record in trials_of(view) {
        let Some(words) = failure_text(record) else { continue };
        let label = record.contender.label.as_str();
        let trial = format!("{} (block {})", record.trial, record.block + 1);
        match alike.iter_mut().find(|(known, text, _)| *known == label && *text == words) {
            Some((.., trials)) => trials.push(trial),
            None => alike.push((label, words, vec![trial])),
        }
    }
    let mut out = String::new();
    for (label, words, trials) in alike {
        let noun = if trials.len() == 1 { "trial" } else { "trials" };
        let _ = writeln!(
            out,
            "<li class=\"damage\"><b>Failed:</b> {}, {noun} {}: {words}</li>",
            escape(label),
            text::list(&trials)
        );
    }
    out
}

/// Why a trial has no figures, as HTML; None for one that was completed.
fn failure_text(record: &Record) -> Option<String> {
    match &record.outcome {
        Outcome::Completed => None,
        Outcome::Failed { phase, message, output } => {
            let shown = format!("{} failed: {}", phase.name(), message);
            let output = match output.trim() {
                "" => String::new(),
                lines => format!("<pre>{}</pre>", escape(lines)),
            };
            Some(format!("{}{output}", escape(&shown)))
        }
        Outcome::TimedOut { phase, limit_ns } => Some(format!(
            "the bound of {} on a trial was reached in {}",
            text::time(*limit_ns as f64),
            phase.name()
        )),
        Outcome::Interrupted { phase } => Some(format!("interrupted in {}", phase.name())),
    }
}

fn trials_of<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Record> {
    let name = view.analysis.workload.as_str();
    view.source.records.iter().filter(move |record| record.workload == name)
}

/// Every trial of the workload, in the order in which they ended.
fn trials(view: &View<'_>) -> Table {
    let primary = view.primary();
    let figure_head = primary.map_or("figure", |(name, _)| name);
    let unfinished = unfinished_block(&view.source.records, &view.analysis.workload);
    let mut table = Table::new(&[
        "trial",
        "block",
        "contender",
        "outcome",
        figure_head,
        "run",
        "sync",
        "CPU",
        "written",
        "flushes",
        "began",
    ]);
    for record in trials_of(view) {
        let cell = |value: Option<f64>, text: fn(f64) -> String| match value {
            Some(value) => Cell::number(value, text(value)),
            None => "-".into(),
        };
        let phase = |phase| record.phase(phase).map(|entry| entry.elapsed_ns as f64);
        let device = record.run_device();
        let (outcome, tone) = match &record.outcome {
            Outcome::Completed if record.warmup => ("warm-up", Tone::Faint),
            Outcome::Completed if unfinished == Some(record.block) => {
                ("completed; its block was not", Tone::Faint)
            }
            Outcome::Completed => ("completed", Tone::Plain),
            Outcome::Failed { .. } => ("failed", Tone::Bad),
            Outcome::TimedOut { .. } => ("timed out", Tone::Bad),
            Outcome::Interrupted { .. } => ("interrupted", Tone::Faint),
        };
        let figure = primary.and_then(|(name, unit)| {
            let value = crate::source::value_of(record, name)?;
            Some(Cell::number(value, text::figure(value, unit)))
        });
        table.rows.push(vec![
            Cell::number(f64::from(record.trial), record.trial.to_string()),
            Cell::number(f64::from(record.block + 1), (record.block + 1).to_string()),
            record.contender.label.as_str().into(),
            Cell::toned(outcome, tone),
            figure.unwrap_or_else(|| "-".into()),
            cell(phase(Phase::Run), text::time),
            cell(phase(Phase::Sync), text::time),
            cell(
                record
                    .command
                    .as_ref()
                    .map(|usage| usage.user_ns.saturating_add(usage.system_ns) as f64),
                text::time,
            ),
            cell(device.map(|device| device.written_bytes as f64), text::bytes),
            cell(
                device.filter(|_| !record.flushes_uncounted).map(|device| device.flushes as f64),
                text::count,
            ),
            environment::clock(record.started_unix_ns).into(),
        ]);
    }
    table
}

/// The charts; a run of those of less weight folds away together.
pub(crate) fn all_figures(charts: &[Chart], first: usize) -> String {
    let mut out = String::new();
    let mut folding = false;
    for (place, chart) in charts.iter().enumerate() {
        if chart.folded != folding {
            out.push_str(match chart.folded {
                true => "<details class=\"more\"><summary>More charts of this kind</summary>\n",
                false => "</details>\n",
            });
            folding = chart.folded;
        }
        out.push_str(&html::figure(chart, first + place));
    }
    if folding {
        out.push_str("</details>\n");
    }
    out
}
