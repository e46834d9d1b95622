//! Everything that concerns the publication as text for a terminal, as Markdown and as a section of
//! the page.

use std::fmt::Write;

use lab::analysis::Analysis;
use lab::claim::{self, Judgement, Outcome};
use lab::plan::Plan;
use lab::record::Record;
use trust::text::markdown as markdown_text;

use super::{Beside, picture, tables};
use crate::chart::Chart;
use crate::html::{self, escape};
use crate::table::{Screen, Table, Tone};
use crate::text::prose;
use crate::{page, profile};

/// What was left out of the study on this machine, a line each.
pub fn left_out(plan: &Plan) -> Vec<String> {
    let left = plan.study.left_out.iter();
    left.map(|left| format!("{} {}: {}", left.what, left.name, left.missing.join("; "))).collect()
}

/// The heading of everything that concerns the publication.
const HEADING: &str = "Beside the published figures";
/// The heading of the conclusions.
const CLAIMS_HEADING: &str = "What the publication concluded, and what it left open";
/// The heading of what differs.
const DIFFERS_HEADING: &str = "What differs here";

/// The name of a source where it is not the study's own.
fn own_source<'a>(plan: &Plan, source: &'a Option<String>) -> Option<&'a str> {
    source.as_deref().filter(|text| plan.study.source.as_deref() != Some(text))
}

/// Everything as text for a terminal; empty for a study without a publication that left nothing
/// out.
///
/// The pictures are for the page.
pub fn terminal(plan: &Plan, records: &[Record], analysis: &Analysis, colour: bool) -> Screen {
    let mut out = Screen::new(colour);
    for line in left_out(plan) {
        let _ = write!(out, "{}", prose("  ", &format!("Left out: {line}")));
    }
    let study = &plan.study;
    if study.published.is_empty() && study.claims.is_empty() {
        return out;
    }
    heading(&mut out, "", HEADING);
    if let Some(source) = &study.source {
        let _ = write!(out, "{}", prose("  ", source));
    }
    let differs = profile::differs(plan);
    if !differs.is_empty() {
        let _ = writeln!(out, "\n  {DIFFERS_HEADING}:");
        for line in &differs {
            let _ = write!(out, "{}", prose("  - ", line));
        }
    }
    for beside in tables(plan, records, analysis) {
        heading(&mut out, "  ", &beside.title);
        if let Some(source) = own_source(plan, &beside.source) {
            let _ = write!(out, "{}", prose("  ", source));
        }
        out.append(&beside.table.terminal(colour));
        for note in beside.notes.iter().chain(&see_words(&beside)) {
            let _ = write!(out, "{}", prose("    ", note));
        }
    }
    let judgements = claim::judge(plan, records, analysis);
    if !judgements.is_empty() {
        heading(&mut out, "", CLAIMS_HEADING);
    }
    for judged in &judgements {
        let claimed = format!("“{}”{}", judged.claim.text, cited(plan, judged));
        let _ = write!(out, "{}    ", prose("  ", &claimed));
        out.paint(judged.outcome.words(), tone_of(judged.outcome));
        let _ = writeln!(out);
        for line in judged.evidence.iter().chain(&judged.claim.note) {
            let _ = write!(out, "{}", prose("    ", line));
        }
    }
    out
}

/// A heading after an empty line.
fn heading(out: &mut Screen, lead: &str, text: &str) {
    let _ = write!(out, "\n{lead}");
    out.paint(&trust::text::line(text), Tone::Strong);
    let _ = writeln!(out);
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

/// Everything as Markdown; empty for a study without a publication that left nothing out.
pub fn markdown(plan: &Plan, records: &[Record], analysis: &Analysis) -> String {
    let mut out = String::new();
    for line in left_out(plan) {
        let _ = writeln!(out, "- Left out: {}", markdown_text(&line));
    }
    let study = &plan.study;
    if study.published.is_empty() && study.claims.is_empty() {
        return out;
    }
    let _ = writeln!(out, "\n## {HEADING}\n");
    if let Some(source) = &study.source {
        let _ = writeln!(out, "{}\n", markdown_text(source));
    }
    let differs = profile::differs(plan);
    if !differs.is_empty() {
        let _ = writeln!(out, "{DIFFERS_HEADING}:\n");
        for line in &differs {
            let _ = writeln!(out, "- {}", markdown_text(line));
        }
    }
    for beside in tables(plan, records, analysis) {
        let _ =
            writeln!(out, "\n### {}\n\n{}", markdown_text(&beside.title), beside.table.markdown());
        for note in own_source(plan, &beside.source)
            .into_iter()
            .chain(beside.notes.iter().chain(&see_words(&beside)).map(String::as_str))
        {
            let _ = writeln!(out, "- {}", markdown_text(note));
        }
    }
    let _ = writeln!(out, "\n### {CLAIMS_HEADING}\n");
    for judged in claim::judge(plan, records, analysis) {
        let _ = writeln!(
            out,
            "- {}: **{}**",
            markdown_text(&format!("“{}”{}", judged.claim.text, cited(plan, &judged))),
            judged.outcome.words()
        );
        for line in judged.evidence.iter().chain(&judged.claim.note) {
            let _ = writeln!(out, "  - {}", markdown_text(line));
        }
    }
    out
}

/// A chart over time that the page holds elsewhere.
#[derive(Debug, Clone)]
pub struct OverTime {
    /// Name of the workload.
    pub workload: String,
    /// Name of the series.
    pub series: String,
    /// Identifier of the figure.
    pub id: String,
}

/// What a page gets.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The section; empty for a study without a publication that left nothing out.
    pub html: String,
    /// The way to each table and each picture; empty where there is none.
    pub navigation: String,
    /// The charts that the section holds figures of, in order.
    pub charts: Vec<Chart>,
}

/// Everything as a section of a page, whose charts are the page's first. `over_time` are charts of
/// other sections, which tables point at.
pub fn section(
    plan: &Plan,
    records: &[Record],
    analysis: &Analysis,
    over_time: &[OverTime],
) -> Section {
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
        return Section { html: out, ..Section::default() };
    }
    let _ = writeln!(
        out,
        "<section aria-labelledby=\"published\">\n<h2 id=\"published\">{HEADING}</h2>"
    );
    if let Some(source) = &study.source {
        let _ = writeln!(out, "<p>{}</p>", escape(source));
    }
    let differs = profile::differs(plan);
    if !differs.is_empty() {
        let _ = writeln!(out, "<details><summary>{DIFFERS_HEADING}</summary>\n<ul>");
        for line in &differs {
            let _ = writeln!(out, "<li>{}</li>", escape(line));
        }
        out.push_str("</ul>\n</details>\n");
    }
    let judgements = claim::judge(plan, records, analysis);
    out.push_str(&conclusions(plan, &judgements));
    let mut charts = Vec::new();
    let mut links = String::new();
    for beside in tables(plan, records, analysis) {
        let _ = write!(links, "<li><a href=\"#{}\">{}</a>", beside.id, escape(&beside.title));
        for chart in &beside.charts {
            let name = picture::name(chart, &beside.title).filter(|_| beside.charts.len() > 1);
            let name = name.map_or("picture".to_string(), |name| format!("picture: {name}"));
            let _ =
                write!(links, " <a class=\"picture\" href=\"#{}\">{}</a>", chart.id, escape(&name));
        }
        links.push_str("</li>\n");
        out.push_str(&beside_html(plan, &beside, charts.len(), over_time));
        charts.extend(beside.charts);
    }
    out.push_str("</section>\n");
    let conclusions = match judgements.is_empty() {
        true => String::new(),
        false => format!("<li><a href=\"#conclusions\">{CLAIMS_HEADING}</a></li>\n"),
    };
    let navigation = format!(
        "<nav class=\"published\" aria-label=\"{HEADING}\">\n<p><a href=\"#published\">{HEADING}</a></p>\n<ol>\n{conclusions}{links}</ol>\n</nav>\n"
    );
    Section { html: out, navigation, charts }
}

/// Most lines of evidence that are shown unasked.
const EVIDENCE_OPEN_MAX: usize = 5;

/// The conclusions, each with what was found here. The study's note is never folded: it says what
/// the reader can do.
pub(super) fn conclusions(plan: &Plan, judgements: &[Judgement]) -> String {
    if judgements.is_empty() {
        return String::new();
    }
    let mut out = format!("<h3 id=\"conclusions\">{CLAIMS_HEADING}</h3>\n<dl class=\"claims\">\n");
    for judged in judgements {
        let _ = writeln!(
            out,
            "<dt>“{}”{}</dt>\n<dd><b>{}</b>",
            escape(&judged.claim.text),
            escape(&cited(plan, judged)),
            judged.outcome.words()
        );
        let list = |lines: &[&String]| {
            let items = lines.iter().map(|line| format!("<li>{}</li>\n", escape(line)));
            format!("<ul class=\"small\">\n{}</ul>\n", items.collect::<String>())
        };
        let lines: Vec<&String> = judged.evidence.iter().collect();
        let (found, folded) = match lines.len() <= EVIDENCE_OPEN_MAX {
            true => (lines.as_slice(), [].as_slice()),
            false => lines.split_at(EVIDENCE_OPEN_MAX - 1),
        };
        let open: Vec<&String> = found.iter().copied().chain(&judged.claim.note).collect();
        if !open.is_empty() {
            out.push_str(&list(&open));
        }
        if !folded.is_empty() {
            let _ = writeln!(
                out,
                "<details><summary>{} more of what was found here</summary>\n{}</details>",
                lab::words::counted(folded.len(), "line"),
                list(folded)
            );
        }
        out.push_str("</dd>\n");
    }
    out.push_str("</dl>\n");
    out
}

/// One table with its pictures and notes.
fn beside_html(plan: &Plan, beside: &Beside, first_chart: usize, over_time: &[OverTime]) -> String {
    let mut out = format!("<h3 id=\"{}\">{}</h3>\n", beside.id, escape(&beside.title));
    if !beside.table.rows.is_empty() {
        out.push_str("<div class=\"beside\">\n");
        out.push_str(&html::table(&breakable(&beside.table), &beside.title));
        out.push_str("</div>\n");
    }
    let source = own_source(plan, &beside.source);
    for note in source.into_iter().chain(beside.notes.iter().map(String::as_str)) {
        let _ = writeln!(out, "<p class=\"small\">{}</p>", escape(note));
    }
    let see: Vec<String> = beside
        .see
        .iter()
        .filter_map(|(workload, series)| {
            let mut known = over_time.iter();
            let found = known.find(|one| one.workload == *workload && one.series == *series)?;
            let words = escape(&format!("{series} of {workload} over time"));
            Some(format!("<a href=\"#{}\">{words}</a>", found.id))
        })
        .collect();
    if !see.is_empty() {
        let _ = writeln!(out, "<p class=\"small\">{SEE_INSTEAD} {}</p>", see.join(", "));
    }
    out.push_str(&page::all_figures(&beside.charts, first_chart));
    out
}

/// The table with cells that break before their interval and not in it.
fn breakable(table: &Table) -> Table {
    let mut table = table.clone();
    for cell in table.rows.iter_mut().flatten().filter(|cell| cell.value.is_some()) {
        cell.text = cell.text.replace(", ", ",\u{a0}").replace(" †", "\u{a0}†");
    }
    table
}

/// What leads to a chart over time.
const SEE_INSTEAD: &str = "What has no counterpart in the table is to be seen second by second:";

/// The same for a reader who has no page.
fn see_words(beside: &Beside) -> Vec<String> {
    let see = beside.see.iter();
    let see: Vec<String> =
        see.map(|(workload, series)| format!("{series} of {workload} over time")).collect();
    match see.is_empty() {
        true => Vec::new(),
        false => vec![format!("{SEE_INSTEAD} {}, in the page", see.join(", "))],
    }
}
