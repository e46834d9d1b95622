//! Text of strangers, made safe to show: for a terminal, Markdown, HTML (and SVG) and CSV.
//!
//! Labels, names, findings, a disk's own label and what a failed command said may hold anything.
//! Here is the one place that makes it text that commands no terminal, becomes no markup and is no
//! formula. It must not know what the text is about, nor where it goes.
//!
//! Invariants: what nobody can see or what moves other text (control, format and bidirectional
//! characters) is shown by its number, as in `\u{1b}`, and is never dropped; text without any is
//! borrowed as it is.

use std::borrow::Cow;
use std::fmt::Write;

/// The invisible characters beside the control characters: first and last of each range.
///
/// They are Unicode's format characters (Cf, with the bidirectional controls), its separators of
/// lines and paragraphs, letters that are drawn as nothing, and what no XML document may hold.
const INVISIBLE: [(char, char); 29] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fdd0}', '\u{fdef}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{fffe}', '\u{ffff}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{1fffe}', '\u{1ffff}'),
    ('\u{e0000}', '\u{e00ff}'),
    ('\u{10fffe}', '\u{10ffff}'),
];

fn is_hidden(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    let within = |(first, last): &(char, char)| (*first..=*last).contains(&character);
    character.is_control() || INVISIBLE.iter().any(within)
}

/// Replaces the characters for which `replace` writes something else, and borrows a text of which
/// none is replaced. `replace` says whether it wrote.
fn replaced(text: &str, mut replace: impl FnMut(&mut String, usize, char) -> bool) -> Cow<'_, str> {
    let mut out = String::new();
    let mut kept_to = 0;
    let mut written = String::new();
    for (at, character) in text.char_indices() {
        if replace(&mut written, at, character) {
            out.push_str(&text[kept_to..at]);
            out.push_str(&written);
            written.clear();
            kept_to = at + character.len_utf8();
        }
    }
    if kept_to == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[kept_to..]);
    Cow::Owned(out)
}

fn write_number(out: &mut String, character: char) -> bool {
    write!(out, "{}", character.escape_unicode()).is_ok()
}

fn visible<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    replaced(text, |out, _, character| {
        is_hidden(character) && !kept.contains(&character) && write_number(out, character)
    })
}

/// Text of several lines for a terminal: all that is hidden is shown by its number but newlines.
pub fn terminal(text: &str) -> Cow<'_, str> {
    visible(text, &['\n'])
}

/// One line for a terminal: a newline and a tab are shown by their numbers too.
pub fn line(text: &str) -> Cow<'_, str> {
    visible(text, &[])
}

/// One piece of Markdown that shows the text and is neither markup, link nor raw HTML, wherever in
/// a line or a cell it stands. What ends a line becomes a space, so that no block begins in it.
pub fn markdown(text: &str) -> String {
    let one_line = text.split(['\n', '\r', '\t', '\u{2028}', '\u{2029}']).collect::<Vec<_>>();
    let one_line = one_line.join(" ");
    let shown = line(one_line.trim());
    let mut out = String::with_capacity(shown.len() + 16);
    for (at, character) in shown.char_indices() {
        let (before, after) = (&shown[..at], &shown[at + character.len_utf8()..]);
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            // Renderers disagree on how a backslash and a bar make a cell, not on this.
            '|' => out.push_str("&#124;"),
            '\\' | '`' | '*' | '_' | '~' | '#' | '!' | '$' => out.extend(['\\', character]),
            // Brackets mean something before these only; intervals are full of the others.
            ']' if after.starts_with(['(', '[', ':']) => out.push_str("\\]"),
            // Addresses become links without any markup on some sites: http://, www., a@b.
            ':' if after.starts_with("//") => out.push_str("&#58;"),
            '.' if is_www(before) => out.push_str("&#46;"),
            '@' => out.push_str("&#64;"),
            // A list, a rule or a heading's underline begins so.
            '-' | '+' | '='
                if before.is_empty()
                    && !after.starts_with(|next: char| next.is_ascii_alphanumeric())
                    && !after.is_empty() =>
            {
                out.extend(['\\', character]);
            }
            '.' | ')' if is_number(before) && (after.is_empty() || after.starts_with(' ')) => {
                out.extend(['\\', character]);
            }
            other => out.push(other),
        }
    }
    out
}

fn is_www(before: &str) -> bool {
    before.len() >= 3 && before.as_bytes()[before.len() - 3..].eq_ignore_ascii_case(b"www")
}

fn is_number(before: &str) -> bool {
    !before.is_empty() && before.bytes().all(|byte| byte.is_ascii_digit())
}

/// Text that is safe between tags and inside quoted attributes, of HTML and of SVG. Newlines and
/// tabs stay.
pub fn html(text: &str) -> Cow<'_, str> {
    replaced(text, |out, _, character| {
        out.push_str(match character {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '"' => "&quot;",
            '\'' => "&#39;",
            '\n' | '\t' | '\r' => return false,
            hidden if is_hidden(hidden) => return write_number(out, hidden),
            _ => return false,
        });
        true
    })
}

/// One field of CSV (RFC 4180: quotes where they are needed, doubled inside; a semicolon needs them too, which
/// separates fields in many countries). A field that a spreadsheet would compute gets an apostrophe before it,
/// unless it is a plain number; in East Asia full-width signs begin a formula too. What is
/// hidden is shown by its number, since such files are looked at in terminals too.
pub fn csv(field: &str) -> Cow<'_, str> {
    let shown = visible(field, &['\n', '\r', '\t']);
    let field = shown.as_ref();
    let begins = ['=', '+', '-', '@', '\t', '\r', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];
    let computed = field.starts_with(begins) && !is_plain_number(field);
    let quoted = field.contains(['"', ',', ';', '\n', '\r']);
    match (computed, quoted) {
        (false, false) => shown,
        (true, false) => Cow::Owned(format!("'{field}")),
        (_, true) => {
            let apostrophe = if computed { "'" } else { "" };
            Cow::Owned(format!("\"{apostrophe}{}\"", field.replace('"', "\"\"")))
        }
    }
}

fn is_plain_number(field: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    field.bytes().all(allowed) && field.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_or_moves_other_text_is_shown_by_its_number() {
        let hostile = "a\u{1b}[31mb\u{9b}c\u{202e}d\u{2066}\u{200e}\u{61c}\u{200b}\u{7f}\0\te\nf\r";
        let shown = "a\\u{1b}[31mb\\u{9b}c\\u{202e}d\\u{2066}\\u{200e}\\u{61c}\\u{200b}\\u{7f}\\u{0}\\u{9}e";
        assert_eq!(terminal(hostile), format!("{shown}\nf\\u{{d}}"));
        assert_eq!(line(hostile), format!("{shown}\\u{{a}}f\\u{{d}}"));
        assert_eq!(
            line("\u{2028}\u{2029}\u{feff}\u{e0041}"),
            "\\u{2028}\\u{2029}\\u{feff}\\u{e0041}"
        );
        for harmless in ["比べ µ ± 12 × “a”", "e\u{301}", "", "\u{a0}|<\\"] {
            assert!(matches!(line(harmless), Cow::Borrowed(text) if text == harmless));
        }
    }

    /// The standard library knows for debugging what cannot be printed; the list must not name
    /// anything that can, and no control character may be missing.
    #[test]
    fn nothing_that_can_be_seen_is_on_the_list() {
        // Letters that are drawn as nothing.
        let blank =
            ['\u{115f}', '\u{1160}', '\u{17b4}', '\u{17b5}', '\u{2800}', '\u{3164}', '\u{ffa0}'];
        for character in ('\0'..=char::MAX).filter(|one| !blank.contains(one)) {
            let is_printed = character.escape_debug().len() == 1;
            assert!(!is_hidden(character) || !is_printed, "{}", character.escape_unicode());
            assert!(
                !character.is_control() || is_hidden(character),
                "{}",
                character.escape_unicode()
            );
        }
    }

    #[test]
    fn markdown_holds_no_markup() {
        assert_eq!(
            markdown("a|b\n# c\r\n<i> &amp; \\|"),
            "a&#124;b \\# c  &lt;i&gt; &amp;amp; \\\\&#124;"
        );
        assert_eq!(
            markdown("![x](y) `z` *a* _b_ ~c~"),
            "\\![x\\](y) \\`z\\` \\*a\\* \\_b\\_ \\~c\\~"
        );
        assert_eq!(markdown("[1.2, 3.4] [x][y] [^1]: z"), "[1.2, 3.4] [x\\][y] [^1\\]: z");
        assert_eq!(markdown("http://x www.y a@b"), "http&#58;//x www&#46;y a&#64;b");
        let begun =
            ["- a", "--- ", "+ a", "12. a", "3)", "==", "    code", "-", "-5 %", "1.932 s", "+a"];
        let kept = [
            "\\- a", "\\---", "\\+ a", "12\\. a", "3\\)", "\\==", "code", "-", "-5 %", "1.932 s",
            "+a",
        ];
        assert_eq!(begun.map(markdown), kept);
        assert_eq!(markdown("\u{202e}x\u{1b}"), "\\\\u{202e}x\\\\u{1b}");
    }

    #[test]
    fn html_holds_no_element_and_ends_no_attribute() {
        assert_eq!(html("<b a='\"&"), "&lt;b a=&#39;&quot;&amp;");
        assert_eq!(html("a\u{1}b\nc\t\u{202e}\u{ffff}"), "a\\u{1}b\nc\t\\u{202e}\\u{ffff}");
        assert!(matches!(html("plain\ntext"), Cow::Borrowed(_)));
    }

    #[test]
    fn csv_holds_no_formula() {
        for (field, written) in [
            ("a b", "a b"),
            ("b, \"c\"", "\"b, \"\"c\"\"\""),
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("-2+3", "'-2+3"),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\""),
            ("\t=1", "'\t=1"),
            ("\r=1", "\"'\r=1\""),
            ("a;=1+1", "\"a;=1+1\""),
            ("\u{ff1d}cmd", "'\u{ff1d}cmd"),
            ("-3.5e-7", "-3.5e-7"),
            ("+12", "+12"),
            ("-inf", "'-inf"),
            ("", ""),
        ] {
            assert_eq!(csv(field), written, "{field:?}");
        }
    }
}
