//! The words and numbers that the grammar is made of: what stands here, whether it is what is
//! expected, and the error that says so at its place.
//!
//! Must not know: statements, sections or settings.

use std::ops::Range;

use vocabulary::suggestion::did_you_mean;

use super::{Parse, Parser};
use crate::diagnostic::{Diagnostic, Severity};
use crate::program::TIME_UNITS;
use crate::token::{Token, TokenKind};

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.at]
    }

    pub(super) fn text(&self) -> &'a str {
        &self.source.text[self.peek().span.clone()]
    }

    /// Takes the current token; the end of the text is never passed.
    pub(super) fn take(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        token
    }

    pub(super) fn is_mark(&self, mark: char) -> bool {
        self.peek().kind == TokenKind::Mark(mark)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.peek().kind == TokenKind::Word && self.text() == word
    }

    pub(super) fn take_mark(&mut self, mark: char) -> bool {
        let found = self.is_mark(mark);
        if found {
            self.take();
        }
        found
    }

    /// Takes the mark or says that it is missing `where_`. A missing mark is shown right behind
    /// what stands before it, where it has to be written.
    pub(super) fn expect_mark(&mut self, mark: char, where_: &str) -> Parse<()> {
        if self.take_mark(mark) {
            return Ok(());
        }
        let found = self.found();
        let behind = self.at.checked_sub(1).map_or(0, |before| self.tokens[before].span.end);
        let same_line = !self.source.text[behind..self.peek().span.start].contains('\n');
        let place = if same_line && self.peek().kind != TokenKind::End {
            self.peek().span.clone()
        } else {
            behind..behind
        };
        Err(Box::new(self.source.error(
            place,
            format!("expected `{mark}` {where_}, found {found}"),
            format!("expected `{mark}`"),
        )))
    }

    /// What stands here, for a sentence.
    fn found(&self) -> String {
        match self.peek().kind {
            TokenKind::End => "the end of the text".to_owned(),
            TokenKind::Word => format!("`{}`", shortened(self.text())),
            TokenKind::Digits => format!("the number `{}`", shortened(self.text())),
            TokenKind::Mark(mark) => format!("`{}`", mark.escape_debug()),
        }
    }

    /// An error at the current token that says what was expected, with the nearest of the words
    /// that could stand here.
    pub(super) fn unexpected(&self, expected: &str, words: &[&str]) -> Box<Diagnostic> {
        let mut diagnostic = self.source.error(
            self.peek().span.clone(),
            format!("expected {expected}, found {}", self.found()),
            format!("expected {expected}"),
        );
        if self.peek().kind == TokenKind::Word {
            diagnostic.help = did_you_mean(self.text(), words).or_else(|| {
                (!words.is_empty()).then(|| format!("the words known here are {}", listed(words)))
            });
        }
        Box::new(diagnostic)
    }

    pub(super) fn error(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) {
        let diagnostic = self.source.error(span, message, label);
        self.errors.push(diagnostic);
    }

    pub(super) fn warn(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        help: &str,
    ) {
        let warning =
            self.source.diagnostic(Severity::Warning, span, message, label).with_help(help);
        self.warnings.push(warning);
    }

    /// Digits as a number of at most `max`; a greater one is an error of value.
    pub(super) fn number(&mut self, what: &str, max: u64) -> Parse<(u64, Range<usize>)> {
        if self.peek().kind != TokenKind::Digits {
            return Err(self.unexpected(what, &[]));
        }
        let digits = self.text();
        let span = self.take().span;
        match digits.parse::<u64>() {
            Ok(number) if number <= max => Ok((number, span)),
            _ => {
                self.error(span.clone(), format!("{what} is too large"), format!("at most {max}"));
                Ok((max, span))
            }
        }
    }

    /// A number with an optional fraction, greater than zero and at most `max`.
    pub(super) fn decimal(&mut self, what: &str, max: f64) -> Parse<f64> {
        if self.peek().kind != TokenKind::Digits {
            return Err(self.unexpected(what, &[]));
        }
        let start = self.peek().span.start;
        let mut end = self.take().span.end;
        if self.is_mark('.') {
            self.take();
            if self.peek().kind != TokenKind::Digits {
                return Err(self.unexpected("digits after the decimal point", &[]));
            }
            end = self.take().span.end;
        }
        // Spaces within a number would be digits lost to the reader's eye.
        let text: String = self.source.text[start..end]
            .chars()
            .filter(|character| !character.is_whitespace())
            .collect();
        match text.parse::<f64>() {
            Ok(number) if number > 0.0 && number <= max => Ok(number),
            _ => {
                self.error(
                    start..end,
                    format!("{what} is out of range"),
                    format!("greater than 0 and at most {max}"),
                );
                Ok(1.0)
            }
        }
    }

    /// A number of bytes with an optional suffix.
    pub(super) fn bytes(&mut self, max: u64) -> Parse<(u64, Range<usize>)> {
        if self.peek().kind != TokenKind::Digits {
            return Err(self.unexpected("a size in bytes", &[]));
        }
        let number = self.text().parse::<u64>().ok();
        let mut span = self.take().span;
        let mut shift = 0;
        if self.peek().kind == TokenKind::Word {
            let suffixes = ["K", "M", "G", "T"];
            match suffixes.iter().position(|suffix| self.is_word(suffix)) {
                Some(place) => {
                    shift = 10 * (place as u32 + 1);
                    span.end = self.take().span.end;
                }
                None => return Err(self.unexpected("a suffix of K, M, G or T", &suffixes)),
            }
        }
        match number.and_then(|number| number.checked_mul(1 << shift)) {
            Some(bytes) if bytes <= max => Ok((bytes, span)),
            _ => {
                self.error(
                    span.clone(),
                    "the size is too large",
                    format!("at most {max} bytes here"),
                );
                Ok((max, span))
            }
        }
    }

    /// A length of time with its unit, in nanoseconds, when a unit follows the number.
    pub(super) fn time(&mut self) -> Parse<u64> {
        let start = self.peek().span.start;
        let number = self.decimal("a length of time", 9e18)?;
        let unit = TIME_UNITS.iter().find(|(unit, _)| self.is_word(unit));
        let Some((_, unit_ns)) = unit else {
            let units: Vec<&str> = TIME_UNITS.iter().map(|(unit, _)| *unit).collect();
            return Err(self.unexpected("a unit of time: ms, s, m or h", &units));
        };
        let end = self.take().span.end;
        let length_ns = number * *unit_ns as f64;
        if !(1.0..=9e18).contains(&length_ns) {
            self.error(start..end, "the length of time is out of range", "from 1 ns to 285 years");
            return Ok(1);
        }
        Ok(length_ns as u64)
    }
}

/// A word of the text cut to a length that fits into a message.
pub(super) fn shortened(text: &str) -> String {
    const LENGTH_MAX: usize = 40;
    match text.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// `a`, `b` and `c`.
fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
