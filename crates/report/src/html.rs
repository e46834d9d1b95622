//! Tables as HTML, whose cells carry their exact values, JSON that can stand in a page, and names of
//! elements. Text is escaped by [`trust::text`]. It knows nothing of results.

use std::fmt::Write;

use serde::Serialize;

use crate::table::{Table, Tone};

/// Text that is safe between tags and inside quoted attributes.
pub fn escape(text: &str) -> String {
    trust::text::html(text).into_owned()
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
        Tone::Doubtful => Some("doubtful"),
        Tone::Strong => Some("strong"),
        Tone::Faint => Some("faint"),
    }
}

/// A table as HTML. `caption` tells a reader who does not see it what it holds. A cell with a value
/// becomes `<data value="...">`, so that scripts and tests read the number as it was computed.
pub fn table(table: &Table, caption: &str) -> String {
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">\n<table>\n<caption>{caption}</caption>\n<thead><tr>",
        caption = escape(caption)
    );
    for head in &table.heads {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(head));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class =
                class_of(cell.tone).map(|name| format!(" class=\"{name}\"")).unwrap_or_default();
            let text = escape(&cell.text);
            let content = match cell.value {
                Some(value) => format!("<data value=\"{value}\">{text}</data>"),
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
