//! What is wrong with a program's text, shown the way a compiler shows it.
//!
//! Must not know: the grammar. A diagnostic is a place in a text, a sentence, and advice.

use std::fmt;
use std::ops::Range;

use unicode_width::UnicodeWidthChar as _;

/// Whether a diagnostic refuses the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The program cannot be run.
    Error,
    /// The program runs, but probably not as its author thinks.
    Warning,
}

/// One thing that is wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether it refuses the program.
    pub severity: Severity,
    /// What is wrong, one sentence without a full stop.
    pub message: String,
    /// What the text is called: usually a path.
    pub origin: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Place in the text, in bytes.
    pub span: Range<usize>,
    /// The line itself, without its end.
    pub source_line: String,
    /// What is said beside the caret; usually what was expected.
    pub label: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// A text and its name, to make diagnostics of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceText<'a> {
    pub origin: &'a str,
    pub text: &'a str,
}

impl SourceText<'_> {
    /// A diagnostic at this span, which may be empty and may lie at the end of the text.
    pub fn diagnostic(
        &self,
        severity: Severity,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Diagnostic {
        let (line, line_start, line_end) = self.line_of(span.start);
        Diagnostic {
            severity,
            message: message.into(),
            origin: self.origin.to_owned(),
            line,
            column: self.text[line_start..span.start].chars().count() + 1,
            source_line: self.text[line_start..line_end].trim_end_matches('\r').to_owned(),
            span,
            label: label.into(),
            help: None,
        }
    }

    pub fn error(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Diagnostic {
        self.diagnostic(Severity::Error, span, message, label)
    }

    /// Number of the line that holds this byte, and where the line begins and ends.
    fn line_of(&self, offset: usize) -> (usize, usize, usize) {
        let before = &self.text[..offset];
        let start = before.rfind('\n').map_or(0, |place| place + 1);
        let end = self.text[offset..].find('\n').map_or(self.text.len(), |place| offset + place);
        (before.matches('\n').count() + 1, start, end)
    }
}

impl Diagnostic {
    /// Adds what to do about it.
    pub fn with_help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(formatter, "{word}: {}", self.message)?;
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        writeln!(formatter, "{margin}--> {}:{}:{}", self.origin, self.line, self.column)?;
        writeln!(formatter, "{margin} |")?;
        writeln!(formatter, "{number} | {}", self.source_line)?;
        let indent: String = self
            .source_line
            .chars()
            .take(self.column - 1)
            .map(|character| match (character, display_width(character)) {
                ('\t', _) => "\t",
                (_, 2) => "  ",
                _ => " ",
            })
            .collect();
        let line_start = self.span.start - self.bytes_before_column();
        let within_line = self.span.end.min(line_start + self.source_line.len());
        let marked: usize = self
            .source_line
            .get(self.bytes_before_column()..within_line.saturating_sub(line_start))
            .map_or(0, |marked| marked.chars().map(display_width).sum());
        writeln!(formatter, "{margin} | {indent}{} {}", "^".repeat(marked.max(1)), self.label)?;
        if let Some(help) = &self.help {
            writeln!(formatter, "{margin} = help: {help}")?;
        }
        Ok(())
    }
}

impl Diagnostic {
    /// Bytes of the line that lie before the column.
    fn bytes_before_column(&self) -> usize {
        self.source_line.chars().take(self.column - 1).map(char::len_utf8).sum()
    }
}

/// Columns of a terminal that a character takes: comments in East Asian scripts, whose characters take
/// two, are common in programs of this language.
fn display_width(character: char) -> usize {
    character.width().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_word_in_any_script() {
        let text = "# 一行目\r\nあ\tGte;\r\n";
        let source = SourceText { origin: "load.txt", text };
        let start = text.find("Gte").unwrap();
        let shown = source
            .error(start..start + 3, "unknown statement `Gte`", "not a statement")
            .with_help("did you mean 'Get'?")
            .to_string();
        assert_eq!(
            shown,
            "error: unknown statement `Gte`\n --> load.txt:2:3\n  |\n2 | あ\tGte;\n  |   \t^^^ \
             not a statement\n  = help: did you mean 'Get'?\n"
        );
    }

    #[test]
    fn the_end_of_the_text_is_a_place_too() {
        for text in ["", "Command {", "Command {\n"] {
            let source = SourceText { origin: "x", text };
            let shown =
                source.error(text.len()..text.len(), "unexpected end", "expected `}`").to_string();
            assert!(shown.contains("^ expected `}`"), "{shown}");
        }
    }
}
