//! Several results beside each other as one HTML page.

use std::fmt::Write;

use super::{
    Across, AcrossFigure, AcrossWorkload, NOT_INTERLEAVED, cost_table, figure_table, ratio_text,
    sentence,
};
use crate::chart::{Axis, Chart, Guide, Key, Mark, Point, Series};
use crate::charts::{better, scale_of};
use crate::html::{self, escape, slug};
use crate::page::{all_figures, document};
use crate::svg::{self, Place};
use crate::table::{Cell, Table};
use crate::text;

/// Most figures of a load that have charts of their own.
const FIGURES_WITH_CHARTS_MAX: usize = 4;

/// The page.
pub fn page(across: &Across<'_>) -> String {
    let title = format!("{} against {}", across.names[1..].join(", "), across.names[0]);
    let mut body = format!(
        "<header>\n<p class=\"kicker\">kurabe · results side by side</p>\n<h1>{}</h1>\n<p class=\"under\">",
        escape(&title)
    );
    for (name, origin) in across.names.iter().zip(&across.origins) {
        let _ = writeln!(body, "<b>{name}</b>: {}<br>", escape(origin));
    }
    body.push_str("</p>\n<ul class=\"remarks\">\n");
    let mut remark = |word: &str, class: &str, text: &str| {
        let text = escape(text);
        let _ = writeln!(body, "<li class=\"{class}\"><b>{word}:</b> {text}</li>");
    };
    remark("Warning", "warning", NOT_INTERLEAVED);
    for text in across.remarks.iter().chain(&across.doubts) {
        remark("Warning", "warning", text);
    }
    for damage in across.sources.iter().flat_map(|source| &source.damage) {
        remark("Could not be read", "damage", damage);
    }
    body.push_str("</ul>\n</header>\n");
    let mut all = Vec::new();
    for (index, workload) in across.workloads.iter().enumerate() {
        let charts = charts(across, workload, index);
        body.push_str(&section(across, workload, index, &charts, all.len()));
        all.extend(charts);
    }
    body.push_str("<section>\n<h2 id=\"environment\">What differs between the machines</h2>\n");
    if across.differences.rows.is_empty() {
        body.push_str("<p>Nothing, as far as their facts tell.</p>\n");
    } else {
        body.push_str(&html::table(&across.differences, "What differs between the machines"));
    }
    body.push_str("</section>\n");
    document(&title, &body, &all)
}

/// Every chart as a picture: the name of its file, and the SVG.
pub fn pictures(across: &Across<'_>) -> Vec<(String, String)> {
    let workloads = across.workloads.iter().enumerate();
    let charts = workloads.flat_map(|(index, workload)| charts(across, workload, index));
    charts.map(|chart| (format!("{}.svg", chart.id), svg::draw(&chart, Place::File))).collect()
}

fn section(
    across: &Across<'_>,
    workload: &AcrossWorkload,
    index: usize,
    charts: &[Chart],
    first_chart: usize,
) -> String {
    let id = format!("a{}-answer", index + 1);
    let mut out = format!(
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n<p class=\"answer\">{}</p>\n",
        escape(&workload.name),
        escape(&sentence(across, workload))
    );
    for figure in &workload.figures {
        let caption = format!("{} in each result", figure.name);
        out.push_str(&html::table(&figure_table(across, figure), &caption));
    }
    out.push_str("<p class=\"small\">The ratio's interval is the wider of Welch's and Student's on logarithms, corrected by Holm over contenders and results.</p>\n<h3>What it cost</h3>\n");
    out.push_str(&html::table(&cost_table(across, &workload.name), "What it cost"));
    out.push_str(&all_figures(charts, first_chart));
    out.push_str("</section>\n");
    out
}

fn charts(across: &Across<'_>, workload: &AcrossWorkload, index: usize) -> Vec<Chart> {
    let mut charts = Vec::new();
    let figures = workload.figures.iter().take(FIGURES_WITH_CHARTS_MAX);
    for (place, figure) in figures.enumerate() {
        let id = |what: &str| {
            format!("a{}-{}-{what}-{place}", index + 1, slug(&workload.name)).replace("--", "-")
        };
        charts.extend(ratios(across, figure, id("ratio")));
        charts.extend(trials(across, figure, id("trials")));
    }
    charts
}

/// One key a result.
fn keys(across: &Across<'_>) -> Vec<Key> {
    let names = across.names.iter().enumerate();
    names
        .map(|(style, name)| Key { name: name.clone(), style, hidden: false, group: "result" })
        .collect()
}

fn ratios(across: &Across<'_>, figure: &AcrossFigure, id: String) -> Option<Chart> {
    let mut rows: Vec<String> = Vec::new();
    let mut series = Vec::new();
    let mut numbers = Table::new(&["contender", "result", "ratio", "from", "to"]);
    for contender in &figure.contenders {
        for (place, comparison) in contender.comparisons.iter().enumerate() {
            let Some(ratio) = comparison.ratio else { continue };
            let name = &across.names[place + 1];
            let interval = comparison.interval;
            let words = format!("{} in {name}: {}", contender.label, ratio_text(comparison));
            let point = Point {
                low: interval.map(|interval| interval.low),
                high: interval.map(|interval| interval.high),
                ..Point::at(ratio, rows.len() as f64, words)
            };
            series.push(Series { key: place + 1, mark: Mark::Interval, points: vec![point] });
            rows.push(match across.names.len() {
                2 => contender.label.clone(),
                _ => format!("{} · {name}", contender.label),
            });
            let number = |value: Option<f64>| {
                value.map_or("-".into(), |value| Cell::number(value, text::ratio(value)))
            };
            numbers.rows.push(vec![
                contender.label.as_str().into(),
                name.as_str().into(),
                number(Some(ratio)),
                number(interval.map(|interval| interval.low)),
                number(interval.map(|interval| interval.high)),
            ]);
        }
    }
    let points = series.iter().flat_map(|series: &Series| &series.points);
    let values = points.flat_map(|point| [Some(point.x), point.low, point.high]).flatten();
    let before = &across.names[0];
    let x = Axis::logarithmic(
        format!("{}, as a ratio to {before} ({})", figure.name, better(figure.unit)),
        values.chain([1.0]),
        text::plain,
    )?;
    let margin = 1.0 + across.sources[0].plan.study.same_within;
    let labels: Vec<&str> = rows.iter().map(String::as_str).collect();
    Some(Chart {
        id,
        title: format!("{}: ratio to {before}", figure.name),
        says: format!(
            "Each contender against itself in {before}, with its interval; not interleaved, so a change of the machine is in it."
        ),
        x,
        y: Axis::rows(&labels),
        height: 84 + 34 * rows.len() as u32,
        keys: keys(across),
        legend: across.names.len() > 2,
        folded: false,
        series,
        guides: vec![
            Guide::Band { from: margin.recip(), to: margin },
            Guide::Line { x: 1.0, text: format!("{before} = 1") },
        ],
        signs: Vec::new(),
        numbers,
    })
}

fn trials(across: &Across<'_>, figure: &AcrossFigure, id: String) -> Option<Chart> {
    let all = figure.contenders.iter().flat_map(|c| c.samples.iter().flatten()).copied();
    let (unit_name, size) = scale_of(figure.unit, all.clone().fold(0.0, f64::max));
    let mut rows = Vec::new();
    let mut series = Vec::new();
    let mut numbers = Table::new(&["contender", "result", "trial", &figure.name]);
    for contender in &figure.contenders {
        for (key, samples) in contender.samples.iter().enumerate() {
            let name = &across.names[key];
            let row = rows.len() as f64;
            rows.push(format!("{} · {name}", contender.label));
            let mut points = Vec::new();
            for (place, value) in samples.iter().enumerate() {
                let words = text::figure(*value, figure.unit);
                let aside = ((place * 7 % 11) as f64 - 5.0) * 0.022;
                points.push(Point::at(
                    value / size,
                    row + aside + 0.15,
                    format!("{} in {name}: {words}", contender.label),
                ));
                numbers.rows.push(vec![
                    contender.label.as_str().into(),
                    name.as_str().into(),
                    Cell::number(place as f64 + 1.0, (place + 1).to_string()),
                    Cell::number(*value, words),
                ]);
            }
            series.push(Series { key, mark: Mark::Dots, points });
            if let Some(summary) = &contender.summaries[key] {
                let interval = summary.median_interval;
                let median = text::figure(summary.median, figure.unit);
                series.push(Series {
                    key,
                    mark: Mark::Interval,
                    points: vec![Point {
                        low: interval.map(|interval| interval.low / size),
                        high: interval.map(|interval| interval.high / size),
                        ..Point::at(
                            summary.median / size,
                            row - 0.15,
                            format!("{} in {name}: median {median}", contender.label),
                        )
                    }],
                });
            }
        }
    }
    let labels: Vec<&str> = rows.iter().map(String::as_str).collect();
    (!rows.is_empty()).then(|| Chart {
        id,
        title: format!("{}: every trial", figure.name),
        says: "Every completed trial a dot, with the median and its interval.".into(),
        x: Axis::from_zero(
            format!("{}, {unit_name} ({})", figure.name, better(figure.unit)),
            all.map(|value| value / size),
        ),
        y: Axis::rows(&labels),
        height: 84 + 40 * rows.len() as u32,
        keys: keys(across),
        legend: true,
        folded: false,
        series,
        guides: Vec::new(),
        signs: Vec::new(),
        numbers,
    })
}
