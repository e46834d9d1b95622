//! A document as HTML, whose cells carry their exact values, and names of elements. Text is escaped by [`trust::text`]. It knows nothing of results.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::chart::Chart;
use crate::document::Block;
use crate::heat::HeatMap;
use crate::svg::{self, SvgDestination};
use crate::table::{Table, Tone};
use crate::text::escape;

/// A document as the body of a page.
#[derive(Debug, Default)]
pub struct Rendered<'a> {
    pub body: String,
    /// Whether it has pictures of charts.
    pub has_charts: bool,
    /// The sentences of its captions: charts of a kind are read alike, and that is said once.
    said: BTreeSet<&'a str>,
}

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
                out.body.push_str(&figure(chart, &caption));
                out.has_charts = true;
                Ok(())
            }
            Block::Map(map) => {
                out.body.push_str(&figure_of_map(map));
                Ok(())
            }
            Block::Warning(text) => writeln!(
                out.body,
                "<p class=\"remark warning\"><b>Warning:</b> {}</p>",
                escape(text)
            ),
            Block::Note(text) => {
                writeln!(out.body, "<p class=\"remark\"><b>Note:</b> {}</p>", escape(text))
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

/// A chart with its words, its legend, its picture and its numbers.
fn figure(chart: &Chart, caption: &str) -> String {
    let id = &chart.id;
    let mut out = format!(
        "<figure id=\"{id}\" aria-labelledby=\"{id}-title\">\n<figcaption><h4 id=\"{id}-title\">{}</h4><p id=\"{id}-says\">{}</p></figcaption>\n",
        escape(&chart.title),
        escape(caption)
    );
    if chart.legend {
        out.push_str(&legend(chart));
    }
    out.push_str(&svg::draw(chart, SvgDestination::Page));
    out.push_str(&numbers(&chart.numbers, &chart.title));
    out + "</figure>\n"
}

fn legend(chart: &Chart) -> String {
    let mut out = String::from("<div class=\"legend\" role=\"group\" aria-label=\"Legend\">");
    let mut entry = |attributes: &str, mark: &str, name: &str| {
        let name = escape(name);
        let _ = write!(
            out,
            "<span class=\"key\"{attributes}><svg viewBox=\"0 0 28 12\" aria-hidden=\"true\">{mark}</svg>{name}</span>"
        );
    };
    for place in chart.keys_drawn() {
        let key = &chart.keys[place];
        let attributes = format!(" data-key=\"{place}\" data-group=\"{}\"", key.group);
        entry(&attributes, &svg::swatch(chart, place, SvgDestination::Page, 0.0, 6.0), &key.name);
    }
    for sign in &chart.signs {
        entry("", &svg::sign(sign.mark, SvgDestination::Page, 0.0, 6.0), &sign.text);
    }
    out + "</div>\n"
}

/// The numbers of a picture, folded; nothing where they stand in a table beside it.
fn numbers(numbers: &Table, caption: &str) -> String {
    if numbers.rows.is_empty() {
        String::new()
    } else {
        format!("<details><summary>The numbers</summary>\n{}</details>\n", table(numbers, caption))
    }
}

/// A heat map with its words and numbers.
pub(crate) fn figure_of_map(map: &HeatMap) -> String {
    let (id, title) = (&map.id, escape(&map.title));
    format!(
        "<figure id=\"{id}\" aria-labelledby=\"{id}-title\">\n<figcaption><h4 id=\"{id}-title\">{title}</h4><p>{}</p></figcaption>\n<div class=\"scroll map\" tabindex=\"0\" role=\"region\" aria-labelledby=\"{id}-title\">{}</div>\n{}</figure>\n",
        escape(&map.says),
        map.draw(SvgDestination::Page),
        numbers(&map.numbers, &map.title)
    )
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

/// Tables of so many columns are too wide for a phone.
const STACKED_COLUMNS_MIN: usize = 4;
/// Words of more characters than these are broken into lines.
const ONE_LINE_MAX: usize = 28;
/// Tables of more cells than these are scrolled there instead.
const STACKED_CELLS_MAX: usize = 150;

/// A table as HTML. `caption` tells a reader who does not see it what it holds. A cell with a value
/// becomes `<data value="...">`, so that scripts and tests read the number as it was computed.
pub fn table(table: &Table, caption: &str) -> String {
    // On a narrow screen a table that is not too long has its cells below one another.
    let cells = table.rows.len() * table.heads.len();
    let is_stacked = table.heads.len() >= STACKED_COLUMNS_MIN && cells <= STACKED_CELLS_MAX;
    let class = match (table.is_pairs(), is_stacked) {
        (true, _) => " class=\"words\"",
        (false, true) => " class=\"stack\"",
        (false, false) => "",
    };
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
            let is_long = cell.value.is_none() && cell.text.chars().count() > ONE_LINE_MAX;
            let names = [class_of(cell.tone), is_long.then_some("long")];
            let names: Vec<&str> = names.into_iter().flatten().collect();
            let class = if names.is_empty() {
                String::new()
            } else {
                format!(" class=\"{}\"", names.join(" "))
            };
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
                _ if is_stacked => {
                    let head = escape(&table.heads[column]);
                    write!(out, "<td{class} data-head=\"{head}\">{content}</td>")
                }
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
