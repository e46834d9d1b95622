//! The HTML report: one self-contained page of a result. The answer comes first with its pictures,
//! then each load, then all that is needed to repeat it.
//!
//! The page asks nothing of any other file or host, which its content policy enforces. Without its
//! script it is complete: the script only makes the pictures interactive. Blocks become HTML in
//! [`crate::html`].

use std::fmt::Write;

use crate::answer::answer;
use crate::chart::Chart;
use crate::charts::{self, View};
use crate::details::details;
use crate::document::Block;
use crate::environment::environment;
use crate::html::{self, Rendered};
use crate::sessions::{kernels, sessions};
use crate::source::Source;
use crate::svg::{self, Place};
use crate::text::{self, escape};

const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");
/// plotly.js, whose licence notice stands in its first and last lines.
const PLOTLY: &str = include_str!("../assets/plotly-basic.min.js");

/// The page of one result. `beside` is what stands after its answer: a publication.
pub fn page(source: &Source, beside: &[Block]) -> String {
    let mut head = masthead(source);
    head.extend(answer(source));
    let mut rest = vec![Block::heading(2, "loads-in-detail", "Details")];
    rest.extend(details(source));
    rest.extend(environment(source));
    let mut out = Rendered::default();
    html::write_blocks(&mut out, &head);
    out.body.push_str(&navigation(beside));
    html::write_blocks(&mut out, beside);
    html::write_blocks(&mut out, &rest);
    document(&source.plan.study.name, &out)
}

/// The way to the parts of a document; empty where it has none.
fn navigation(blocks: &[Block]) -> String {
    let mut links = String::new();
    for block in blocks {
        if let Block::Heading { id, text, .. } = block
            && !id.is_empty()
        {
            let _ = writeln!(links, "<li><a href=\"#{}\">{}</a></li>", escape(id), escape(text));
        }
    }
    match links.is_empty() {
        true => links,
        false => format!(
            "<nav class=\"published\" aria-label=\"Publication\">\n<ol>\n{links}</ol>\n</nav>\n"
        ),
    }
}

/// Every chart of a result as a picture: the name of its file, and the SVG. `beside` as in [`page`].
pub fn pictures(source: &Source, beside: &[Block]) -> Vec<(String, String)> {
    let drawn = |chart: &Chart| (format!("{}.svg", chart.id), svg::draw(chart, Place::File));
    let mut pictures: Vec<(String, String)> =
        html::render(beside).charts.into_iter().map(drawn).collect();
    let views = View::all(source);
    if views.len() > 1 {
        pictures.extend(charts::ratio::overview(source).as_ref().map(drawn));
    }
    for view in &views {
        let ratios = charts::ratio::against_baseline(view);
        pictures.extend(ratios.iter().chain(&charts::of_workload(view)).map(drawn));
        pictures.extend(charts::matrix::pictures(view));
    }
    pictures
}

/// A page of blocks without a result of a study.
pub fn of_blocks(title: &str, blocks: &[Block]) -> String {
    document(title, &html::render(blocks))
}

/// A page around a body. The charts are those that the body holds figures of, in order.
pub(crate) fn document(title: &str, rendered: &Rendered<'_>) -> String {
    let Rendered { body, charts, .. } = rendered;
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

/// What the result is, and what of it could not be read.
fn masthead(source: &Source) -> Vec<Block> {
    let study = &source.plan.study;
    let mut under = vec![text::counted(source.records.len(), "trial")];
    under.extend(kernels(&sessions(source)));
    under.extend(source.records.first().map(|record| text::date(record.started_unix_ns)));
    let mut blocks = vec![Block::heading(1, "", study.name.clone())];
    blocks.extend(study.why.clone().map(Block::Text));
    blocks.push(Block::Text(under.join(" · ")));
    let damage = source.damage.iter();
    blocks.extend(damage.map(|damage| Block::Warning(format!("could not be read: {damage}"))));
    blocks
}

/// Where a result came from, in one line.
pub(crate) fn origin(source: &Source) -> String {
    let mut parts = vec![source.name.clone()];
    parts.extend(kernels(&sessions(source)));
    parts.extend(source.records.first().map(|record| text::date(record.started_unix_ns)));
    parts.join(", ")
}
