//! The HTML report: one self-contained page of a result. What was measured comes first, then the answer with its
//! warnings, its table and its pictures; then, folded, each workload and all that is needed to repeat it.
//!
//! The page asks nothing of any other file or host, which its content policy enforces. Without its
//! script it is complete: the script says what is pointed at, and enlarges parts of pictures. Blocks become HTML in
//! [`crate::html`].

use std::collections::BTreeSet;

use lab::record::Record;

use crate::answer::answer;
use crate::chart::Chart;
use crate::charts::{self, WorkloadView};
use crate::details::details;
use crate::document::{self, Block};
use crate::environment::{self, environment};
use crate::html::{self, Rendered};
use crate::sessions::{kernels, sessions};
use crate::source::ResultSource;
use crate::svg::{self, SvgDestination};
use crate::table::Table;
use crate::tables::device_text;
use crate::text::{self, escape};

const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");

/// The page of one result. `beside` is what stands after its answer: a publication.
pub fn page(source: &ResultSource, beside: &[Block]) -> String {
    let mut head = masthead(source);
    head.extend(warnings_first(answer(source)));
    let mut rest = vec![Block::heading(2, "loads-in-detail", "Details")];
    rest.extend(details(source));
    rest.extend(environment(source));
    let mut out = Rendered::default();
    for part in [&head, beside, &rest] {
        html::write_blocks(&mut out, part);
    }
    whole(&source.plan.study.name, &out)
}

/// A page has room for the warnings before its table, so that nobody reads a figure without them.
fn warnings_first(blocks: Vec<Block>) -> Vec<Block> {
    let table = blocks.iter().position(|block| matches!(block, Block::Table { .. }));
    let Some(table) = table else { return blocks };
    let mut head = blocks;
    let rest = head.split_off(table);
    let is_warning = |block: &Block| matches!(block, Block::Warning(_));
    let (warnings, rest): (Vec<Block>, Vec<Block>) = rest.into_iter().partition(is_warning);
    head.extend(warnings.into_iter().chain(rest));
    head
}

/// Every chart of a result as a picture: the name of its file, and the SVG. `beside` as in [`page`].
pub fn pictures(source: &ResultSource, beside: &[Block]) -> Vec<(String, String)> {
    let drawn =
        |chart: &Chart| (format!("{}.svg", chart.id), svg::draw(chart, SvgDestination::File));
    let mut pictures: Vec<(String, String)> =
        document::charts_of(beside).into_iter().map(drawn).collect();
    let views = WorkloadView::all(source);
    if views.len() > 1 {
        let all = charts::scan::charts(source).into_iter().chain(charts::runs::every(source));
        let all = all.chain(charts::benefit::of_workloads(source));
        let all = all.chain(charts::ratio::overview(source));
        pictures.extend(all.collect::<Vec<_>>().iter().map(drawn));
    }
    for view in &views {
        pictures.extend(charts::of_workload(view).iter().map(drawn));
        pictures.extend(charts::matrix::pictures(view));
    }
    pictures
}

/// A page of blocks without a result of a study.
pub fn of_blocks(title: &str, blocks: &[Block]) -> String {
    whole(title, &html::render(blocks))
}

/// A page around a body.
pub(crate) fn whole(title: &str, rendered: &Rendered<'_>) -> String {
    let Rendered { body, has_charts, .. } = rendered;
    let (shapes, script) = if *has_charts {
        (svg::sprite(), format!("<script>{SCRIPT}</script>\n"))
    } else {
        (String::new(), String::new())
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:\">\n<meta name=\"generator\" content=\"kurabe {version}\">\n<title>{title} · kurabe</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{shapes}{body}{footer}</main>\n{script}</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
        title = escape(title),
        footer = footer(*has_charts),
    )
}

fn footer(has_charts: bool) -> String {
    let drawn = if has_charts {
        " Point at a mark of a chart for its numbers, drag over a part or turn the wheel with Ctrl to enlarge it. With the keyboard: arrow keys, + and -, Escape for the whole picture."
    } else {
        ""
    };
    format!(
        "<footer>Made by kurabe {} from the result directory alone; this file needs no network.{drawn}</footer>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// What the result is: by which command, on what, when; and what of it could not be read.
fn masthead(source: &ResultSource) -> Vec<Block> {
    let study = &source.plan.study;
    let mut rows = Vec::new();
    let mut row = |name: &str, text: Option<String>| {
        rows.extend(text.map(|text| (name.to_string(), text)));
    };
    row("Command", environment::first_command(source).map(|line| without_place(&line)));
    row("Device", Some(device_text(&source.plan)));
    row("Kernel", kernels(&sessions(source)));
    row("Guest", guests(source));
    let first = source.records.first().map(|record| text::date(record.started_unix_ns));
    let last = source.records.last().map(|record| text::date(record.started_unix_ns));
    let days = [first, last].into_iter().flatten();
    let blocks = source.records.iter().filter(|record| !record.warmup).map(|record| record.block);
    let rounds = text::counted(blocks.collect::<BTreeSet<_>>().len(), "round");
    row(
        "Date",
        Some(text::distinct(days).into_iter().chain([rounds]).collect::<Vec<_>>().join(", ")),
    );
    let mut blocks = vec![Block::heading(1, "", study.name.clone())];
    blocks.extend(study.why.clone().map(Block::Text));
    blocks.push(Block::table("What was measured, and when", Table::pairs(rows)));
    let damage = source.damage.iter();
    blocks.extend(damage.map(|damage| Block::Warning(format!("could not be read: {damage}"))));
    blocks
}

/// A command line whose program is named without its directories, which tell a reader nothing.
fn without_place(line: &str) -> String {
    let (program, rest) =
        line.split_once(' ').map_or((line, None), |(one, rest)| (one, Some(rest)));
    let name = match program.rsplit_once('/') {
        Some((_, name)) if !program.contains(['\'', '"']) => name,
        _ => program,
    };
    rest.map_or(name.into(), |rest| format!("{name} {rest}"))
}

/// The guests that trials ran in, each with its kernel and whether its processor was emulated.
fn guests(source: &ResultSource) -> Option<String> {
    let of = |record: &Record| {
        let guest = record.guest.as_ref()?;
        let name = record.contender.environment.guest().unwrap_or(&guest.image);
        let processor = if guest.is_emulated() { ", emulated CPU" } else { "" };
        Some(format!("{name}, Linux {}{processor}", guest.kernel))
    };
    let found = text::distinct(source.records.iter().filter_map(of));
    (!found.is_empty()).then(|| found.join("; "))
}

/// Where a result came from, in one line.
pub(crate) fn origin(source: &ResultSource) -> String {
    let mut parts = vec![source.name.clone()];
    parts.extend(kernels(&sessions(source)));
    parts.extend(source.records.first().map(|record| text::date(record.started_unix_ns)));
    parts.join(", ")
}
