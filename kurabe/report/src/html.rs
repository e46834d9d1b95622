//! A document as HTML, whose cells carry their exact values, JSON that can stand in a page, and names
//! of elements. Text is escaped by [`trust::text`]. It knows nothing of results.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Serialize;

use crate::chart::Chart;
use crate::document::Block;
use crate::heat::HeatMap;
use crate::svg::{self, Place};
use crate::table::{Table, Tone};
use crate::text::escape;

/// A document as the body of a page.
#[derive(Debug, Default)]
pub struct Rendered<'a> {
    /// The body.
    pub body: String,
    /// The charts that it holds figures of, in order: the script of the page draws them.
    pub charts: Vec<&'a Chart>,
    /// The sentences of its captions: charts of a kind are read alike, and that is said once.
    said: BTreeSet<&'a str>,
}

/// Renders a document.
pub fn render(blocks: &[Block]) -> Rendered<'_> {
    let mut rendered = Rendered::default();
    write_blocks(&mut rendered, blocks);
    rendered
}

/// Appends a document.
pub(crate) fn write_blocks<'a>(out: &mut Rendered<'a>, blocks: &'a [Block]) {
    for block in blocks {
        let _ = match block {
            Block::Heading { level, id, text } => {
                let id = match id.as_str() {
                    "" => String::new(),
                    id => format!(" id=\"{}\"", escape(id)),
                };
                writeln!(out.body, "<h{level}{id}>{}</h{level}>", escape(text))
            }
            Block::Answer(text) => writeln!(out.body, "<p class=\"answer\">{}</p>", escape(text)),
            Block::Text(text) => writeln!(out.body, "<p>{}</p>", escape(text)),
            Block::Table { caption, table } => {
                out.body.push_str(&self::table(table, caption));
                Ok(())
            }
            Block::Chart(chart) => {
                let sentences = chart.says.split_inclusive(". ");
                let caption: String =
                    sentences.filter(|sentence| out.said.insert(sentence.trim_end())).collect();
                out.body.push_str(&figure(chart, &caption, out.charts.len()));
                out.charts.push(chart);
                Ok(())
            }
            Block::Map(map) => {
                out.body.push_str(&figure_of_map(map));
                Ok(())
            }
            Block::Warning(text) => writeln!(
                out.body,
                "<p class=\"aside warning\"><b>Warning:</b> {}</p>",
                escape(text)
            ),
            Block::Note(text) => {
                writeln!(out.body, "<p class=\"aside\"><b>Note:</b> {}</p>", escape(text))
            }
            Block::Code(lines) => writeln!(out.body, "<pre>{}</pre>", escape(lines)),
            Block::Fold { summary, open, blocks } => {
                let open = if *open { " open" } else { "" };
                let summary = escape(summary);
                let _ = writeln!(out.body, "<details{open}><summary>{summary}</summary>");
                write_blocks(out, blocks);
                writeln!(out.body, "</details>")
            }
        };
    }
}

/// A chart with its words, its legend, its still picture and its numbers.
fn figure(chart: &Chart, caption: &str, index: usize) -> String {
    let id = &chart.id;
    let mut out = format!(
        "<figure id=\"{id}\" data-chart=\"{index}\" aria-labelledby=\"{id}-title\">\n<figcaption><h4 id=\"{id}-title\">{}</h4><p>{}</p></figcaption>\n",
        escape(&chart.title),
        escape(caption)
    );
    if chart.legend {
        out.push_str("<div class=\"legend\" role=\"group\" aria-label=\"Legend\">");
        for place in chart.keys_drawn() {
            let key = &chart.keys[place];
            let _ = write!(
                out,
                "<span class=\"key\" data-key=\"{place}\"><svg viewBox=\"0 0 28 12\" aria-hidden=\"true\">{}</svg>{}</span>",
                svg::swatch(chart, place, Place::Page, 0.0, 6.0),
                escape(&key.name)
            );
        }
        for sign in &chart.signs {
            let _ = write!(
                out,
                "<span class=\"key\"><svg viewBox=\"0 0 28 12\" aria-hidden=\"true\">{}</svg>{}</span>",
                svg::sign(sign.mark, Place::Page, 0.0, 6.0),
                escape(&sign.text)
            );
        }
        out.push_str("</div>\n");
    }
    let _ = writeln!(
        out,
        "<div class=\"still\">{}</div>\n<div class=\"live\" aria-hidden=\"true\" hidden></div>\n<details><summary>The numbers</summary>\n{}</details>\n</figure>",
        svg::draw(chart, Place::Page),
        table(&chart.numbers, &chart.title)
    );
    out
}

/// A heat map with its words and numbers.
pub(crate) fn figure_of_map(map: &HeatMap) -> String {
    let (id, title) = (&map.id, escape(&map.title));
    format!(
        "<figure id=\"{id}\" aria-labelledby=\"{id}-title\">\n<figcaption><h4 id=\"{id}-title\">{title}</h4><p>{}</p></figcaption>\n<div class=\"scroll map\" tabindex=\"0\" role=\"region\" aria-labelledby=\"{id}-title\">{}</div>\n<details><summary>The numbers</summary>\n{}</details>\n</figure>\n",
        escape(&map.says),
        map.draw(Place::Page),
        table(&map.numbers, &map.title)
    )
}

/// JSON that can stand in a script element: without `<`, nothing in it ends the element or opens
/// a comment.
pub fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("the value has a JSON form");
    text.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// A name as an identifier of elements and a name of files: letters, digits and dashes.
pub fn slug(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if character.is_ascii_alphanumeric() {
            out.push(character.to_ascii_lowercase());
        } else if !out.ends_with('-') && !out.is_empty() {
            out.push('-');
        }
        if out.len() >= 40 {
            break;
        }
    }
    out.trim_end_matches('-').to_string()
}

fn class_of(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Plain => None,
        Tone::Good => Some("good"),
        Tone::Bad => Some("bad"),
        Tone::Uncertain => Some("uncertain"),
        Tone::Strong => Some("strong"),
        Tone::Faint => Some("faint"),
    }
}

/// A table as HTML. `caption` tells a reader who does not see it what it holds. A cell with a value
/// becomes `<data value="...">`, so that scripts and tests read the number as it was computed.
pub fn table(table: &Table, caption: &str) -> String {
    let class = if table.is_pairs() { " class=\"words\"" } else { "" };
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">\n<table{class}>\n<caption>{caption}</caption>\n",
        caption = escape(caption)
    );
    if !table.is_pairs() {
        out.push_str("<thead><tr>");
        for head in &table.heads {
            let _ = write!(out, "<th scope=\"col\">{}</th>", escape(head));
        }
        out.push_str("</tr></thead>\n");
    }
    out.push_str("<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class =
                class_of(cell.tone).map(|name| format!(" class=\"{name}\"")).unwrap_or_default();
            let text = escape(&cell.text);
            let content = match cell.value {
                Some(value) => {
                    let two = in_two_lines(&text);
                    let class = if two == text { "" } else { " class=\"two\"" };
                    format!("<data{class} value=\"{value}\">{two}</data>")
                }
                None if text.contains('\n') => format!("<pre>{}</pre>", text.trim_end()),
                None => text,
            };
            let _ = match column {
                0 => write!(out, "<th scope=\"row\"{class}>{content}</th>"),
                _ => write!(out, "<td{class}>{content}</td>"),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    out
}

/// A figure and its interval, which may break between the two and nowhere else.
fn in_two_lines(text: &str) -> String {
    match text.split_once(" (") {
        Some((figure, ends)) if ends.contains(" to ") => {
            [figure, ends].map(|part| part.replace(' ', "\u{a0}")).join(" (")
        }
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Cell;

    #[test]
    fn nothing_that_a_label_holds_becomes_markup() {
        let hostile = "</script><!--\u{2028}";
        let text = json(&hostile);
        assert!(!text.contains('<') && !text.contains('\u{2028}'), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), hostile);
        let mut cells = Table::new(&["<i>"]);
        cells.rows.push(vec![Cell::number(0.1 + 0.2, "<u>")]);
        let text = table(&cells, "\"x\"");
        assert!(
            !text.contains("<i>") && !text.contains("<u>") && !text.contains("\"\"x"),
            "{text}"
        );
        assert!(text.contains("<data value=\"0.30000000000000004\">&lt;u&gt;</data>"), "{text}");
    }

    #[test]
    fn slugs_name_files() {
        assert_eq!(slug("tar xf /a/B.tar; rm -r *"), "tar-xf-a-b-tar-rm-r");
        assert_eq!(slug("比べ"), "");
        assert!(slug(&"x".repeat(99)).len() <= 40);
    }
}
