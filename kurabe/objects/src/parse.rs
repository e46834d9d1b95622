//! From text to a [`Program`], by recursive descent; the grammar is in `docs/reference/object-language.md`,
//! and stands here in its order. Its words and numbers are in `parse/reading.rs`.
//!
//! Must not know: how a program runs. Accepts every program that CannylsBencher's parser accepts
//! (a test reads its published workloads), with comments and white space anywhere.
//!
//! Invariants: no input makes it panic or recurse without bound; every error has a place; a text
//! that is read has no error. A mistake in the grammar ends the reading; a mistake in a value does
//! not, so that all of those are reported together.

mod reading;

use std::ops::Range;

use self::reading::shortened;
use super::diagnostic::{Diagnostic, SourceText};
use super::program::{
    Branch, Choice, EMBEDDED_BYTES_MAX, OBJECT_BYTES_MAX, OPERATIONS_MAX, ObjectSize, Parsed,
    Percents, Popularity, Program, ProgramError, ProgramSection, ProgramSettings, Rate,
    SectionLength, Statement,
};
use super::token::{Token, TokenKind, tokens};

const SETTINGS: [&str; 5] = ["Seed", "Threads", "Depth", "Rate", "Duration"];
const SECTIONS: [&str; 3] = ["Ordered", "Unordered", "Command"];
const STATEMENTS: [&str; 7] = ["New", "OverWrite", "Embed", "Get", "Delete", "DeleteRange", "Sync"];
const SIZES: [&str; 3] = ["uniform", "lognormal", "zipf"];
const POPULARITIES: [Popularity; 3] =
    [Popularity::Oldest, Popularity::Newest, Popularity::Scattered];

/// How deep `times` may be nested: far deeper than anyone writes, far shallower than the stack.
const NESTING_MAX: usize = 100;

/// Greatest number of threads: each one is a thread of the operating system.
const THREADS_MAX: u64 = 1024;

/// Greatest number of statements in a text: each may name a size of its own, and an object
/// remembers its size in 16 bits.
const STATEMENTS_MAX: usize = 1 << 16;

/// Percentages above this do not fit the original's numbers either.
const PERCENT_MAX: u64 = 255;

impl Program {
    /// Reads a program. `origin` is what diagnostics call the text: usually its path.
    ///
    /// Errors: every mistake that could be found, with its place; bytes that are no text are one.
    pub fn parse(origin: &str, text: &[u8]) -> Result<Parsed, ProgramError> {
        parse(origin, text)
    }
}

fn parse(origin: &str, bytes: &[u8]) -> Result<Parsed, ProgramError> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            // The valid part is shown up to the byte that is none.
            let valid = &bytes[..error.valid_up_to()];
            let text = std::str::from_utf8(valid).unwrap_or_default();
            let place = text.len()..text.len();
            let source = SourceText { origin, text };
            let diagnostic = source.error(
                place,
                "the program is not UTF-8 text",
                format!("byte {:#04x} follows here", bytes[error.valid_up_to()]),
            );
            return Err(ProgramError { diagnostics: vec![diagnostic] });
        }
    };
    let source = SourceText { origin, text };
    let mut parser = Parser {
        source,
        tokens: tokens(text),
        at: 0,
        statements: 0,
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    match parser.program() {
        Ok(program) if parser.errors.is_empty() => {
            Ok(Parsed { program, warnings: parser.warnings })
        }
        Ok(_) => Err(ProgramError { diagnostics: parser.errors }),
        Err(syntax) => {
            parser.errors.push(*syntax);
            Err(ProgramError { diagnostics: parser.errors })
        }
    }
}

/// A mistake in the grammar; boxed, because it is the rare case of every result here.
type Parse<T> = Result<T, Box<Diagnostic>>;

struct Parser<'a> {
    source: SourceText<'a>,
    tokens: Vec<Token>,
    at: usize,
    statements: usize,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

impl<'a> Parser<'a> {
    /// `program = { setting } section { section }`
    fn program(&mut self) -> Parse<Program> {
        let settings = self.settings()?;
        let mut sections = Vec::new();
        loop {
            if self.peek().kind == TokenKind::End && !sections.is_empty() {
                break;
            }
            if self.is_mark(';') && !sections.is_empty() {
                let span = self.take().span;
                self.warn(
                    span,
                    "a `;` after a section",
                    "not needed",
                    "CannylsBencher stops reading here and ignores what follows; kurabe reads on",
                );
                continue;
            }
            if SETTINGS.iter().any(|setting| self.is_word(setting)) {
                let message = format!("the setting `{}` comes too late", self.text());
                return Err(Box::new(
                    self.source
                        .error(self.peek().span.clone(), message, "not after a section")
                        .with_help("settings come before the first section"),
                ));
            }
            sections.push(self.section(sections.is_empty())?);
        }
        let program = Program { settings, sections };
        if program.statements() > OPERATIONS_MAX {
            self.error(
                0..0,
                "the program repeats its statements more than 2^62 times in all",
                "this would never end",
            );
        }
        Ok(program)
    }

    fn settings(&mut self) -> Parse<ProgramSettings> {
        let mut settings = ProgramSettings::default();
        let mut seen: Vec<&str> = Vec::new();
        while let Some(&name) = SETTINGS.iter().find(|name| self.is_word(name)) {
            let span = self.take().span;
            // Depth and Threads are two words for one thing.
            let canonical = if name == "Depth" { "Threads" } else { name };
            if seen.contains(&canonical) {
                self.error(
                    span,
                    format!("the setting `{canonical}` is there twice"),
                    "the second one",
                );
            }
            seen.push(canonical);
            self.expect_mark(':', &format!("after `{name}`"))?;
            match canonical {
                "Seed" => settings.seed = self.number("a seed", u64::MAX)?.0,
                "Threads" => {
                    let (threads, span) = self.number("a number of threads", THREADS_MAX)?;
                    if threads == 0 {
                        self.error(span, "a run needs a thread", "at least 1");
                    }
                    settings.threads = Some(threads as u32);
                }
                "Rate" => {
                    let per_second = self.decimal("a rate in operations a second", 1e9)?;
                    let poisson = self.is_word("poisson");
                    if poisson {
                        self.take();
                    } else if self.peek().kind == TokenKind::Word {
                        return Err(self.unexpected("`poisson` or `;`", &["poisson"]));
                    }
                    settings.rate = Some(Rate { per_second, poisson });
                }
                _ => settings.duration_ns = Some(self.time()?),
            }
            self.expect_mark(';', &format!("after the setting `{name}`"))?;
        }
        Ok(settings)
    }

    /// `section = "Ordered" "[" count "]" branches | "Unordered" "[" extent "]" branches
    /// | "Command" body`
    fn section(&mut self, is_first: bool) -> Parse<ProgramSection> {
        if self.is_word("Command") {
            self.take();
            let body = self.body("`Command`", 0)?;
            return Ok(ProgramSection::Command { body });
        }
        let ordered = self.is_word("Ordered");
        if !ordered && !self.is_word("Unordered") {
            let words: Vec<&str> = if is_first {
                SECTIONS.into_iter().chain(SETTINGS).collect()
            } else {
                SECTIONS.to_vec()
            };
            let expected = "a section: `Ordered[N]`, `Unordered[N]` or `Command`";
            let mut diagnostic = self.unexpected(expected, &words);
            if STATEMENTS.contains(&self.text()) {
                diagnostic.help = Some("statements belong in the braces of a section".to_owned());
            }
            return Err(diagnostic);
        }
        let word = if ordered { "`Ordered`" } else { "`Unordered`" };
        self.take();
        self.expect_mark('[', &format!("after {word}"))?;
        let extent = self.extent()?;
        self.expect_mark(']', "after the count")?;
        let branches = self.branches(word)?;
        match (ordered, extent) {
            (true, (SectionLength::Count(count), _)) => {
                Ok(ProgramSection::Ordered { count, branches })
            }
            (true, (SectionLength::Time(_), span)) => {
                self.error(span, "an ordered section cannot last for a time", "expected a count");
                Ok(ProgramSection::Ordered { count: 0, branches })
            }
            (false, (extent, _)) => Ok(ProgramSection::Unordered { extent, branches }),
        }
    }

    /// A count, or a length of time: what tells them apart is whether a unit or a fraction follows.
    fn extent(&mut self) -> Parse<(SectionLength, Range<usize>)> {
        let span = self.peek().span.clone();
        let next = &self.tokens[(self.at + 1).min(self.tokens.len() - 1)];
        let is_time = self.peek().kind == TokenKind::Digits
            && matches!(next.kind, TokenKind::Word | TokenKind::Mark('.'));
        if is_time {
            Ok((SectionLength::Time(self.time()?), span))
        } else {
            let (count, span) = self.number("a count", u64::MAX)?;
            Ok((SectionLength::Count(count), span))
        }
    }

    /// `branches = "{" { "<" percent "%" ">" ( statement | body ) ";" } "}"`
    fn branches(&mut self, word: &str) -> Parse<Vec<Branch>> {
        let open = self.peek().span.clone();
        self.expect_mark('{', &format!("after {word}"))?;
        let mut branches = Vec::new();
        while !self.take_mark('}') {
            if !self.is_mark('<') {
                let mut diagnostic = self.unexpected("a percentage like `<50%>`, or `}`", &[]);
                if self.peek().kind == TokenKind::End {
                    diagnostic.help = Some(self.unclosed(&open));
                } else {
                    diagnostic.help = Some(format!(
                        "in {word} every statement has its share: `<100%> {};`",
                        if self.peek().kind == TokenKind::Word {
                            shortened(self.text())
                        } else {
                            "Get".to_owned()
                        }
                    ));
                }
                return Err(diagnostic);
            }
            self.take();
            let (percent, span) = self.number("a percentage", PERCENT_MAX)?;
            self.expect_mark('%', "after the percentage")?;
            self.expect_mark('>', "after `%`")?;
            if percent > 100 {
                self.warn(
                    span,
                    format!("{percent} % is more than the whole section"),
                    "more than 100",
                    "CannylsBencher and kurabe take it as it is written",
                );
            }
            let body = if self.is_mark('{') {
                let body = self.body("the percentage", 0)?;
                self.expect_mark(';', "after `}`")?;
                body
            } else {
                let statement = self.statement(0)?;
                self.expect_mark(';', "after the statement")?;
                vec![statement]
            };
            branches.push(Branch { percent: percent as u32, body });
        }
        let sum: u32 = branches.iter().map(|branch| branch.percent).sum();
        if sum != 100 {
            self.warn(
                open,
                format!("the shares of this section add up to {sum} %"),
                "not 100 %",
                "every statement runs its share of the count, whatever the sum",
            );
        }
        Ok(branches)
    }

    /// `body = "{" { statement ";" } "}"`
    fn body(&mut self, after: &str, depth: usize) -> Parse<Vec<Statement>> {
        let open = self.peek().span.clone();
        self.expect_mark('{', &format!("after {after}"))?;
        let mut statements = Vec::new();
        while !self.take_mark('}') {
            if self.peek().kind == TokenKind::End {
                let mut diagnostic = self.unexpected("a statement or `}`", &[]);
                diagnostic.help = Some(self.unclosed(&open));
                return Err(diagnostic);
            }
            let statement = self.statement(depth)?;
            let where_ = match statement {
                Statement::Times(..) => "after `}`",
                _ => "after the statement",
            };
            self.expect_mark(';', where_)?;
            statements.push(statement);
        }
        Ok(statements)
    }

    fn unclosed(&self, open: &Range<usize>) -> String {
        let place = self.source.error(open.clone(), "", "");
        format!("the `{{` at line {}, column {} is not closed", place.line, place.column)
    }

    fn statement(&mut self, depth: usize) -> Parse<Statement> {
        if self.peek().kind == TokenKind::Digits {
            return self.times(depth);
        }
        let expected = "a statement";
        if self.peek().kind != TokenKind::Word {
            return Err(self.unexpected(expected, &[]));
        }
        let word = self.text();
        if !STATEMENTS.contains(&word) {
            return Err(self.unexpected(expected, &STATEMENTS));
        }
        let span = self.take().span;
        self.statements += 1;
        if self.statements > STATEMENTS_MAX {
            return Err(Box::new(self.source.error(
                span,
                format!("more than {STATEMENTS_MAX} statements"),
                "one too many",
            )));
        }
        match word {
            "New" => Ok(Statement::New(self.size_in_brackets(word, OBJECT_BYTES_MAX)?)),
            "Embed" => Ok(Statement::Embed(self.size_in_brackets(word, EMBEDDED_BYTES_MAX)?)),
            "OverWrite" => {
                self.expect_mark('(', "after `OverWrite`")?;
                let size = self.size(OBJECT_BYTES_MAX)?;
                let choice = if self.take_mark(',') { self.choice()? } else { Choice::Any };
                self.expect_mark(')', "after the size")?;
                Ok(Statement::OverWrite(size, choice))
            }
            "Get" => Ok(Statement::Get(self.optional_choice()?)),
            "Delete" => Ok(Statement::Delete(self.optional_choice()?)),
            "DeleteRange" => {
                self.expect_mark('(', "after `DeleteRange`")?;
                let percents = self.percents()?;
                self.expect_mark(')', "after the range")?;
                Ok(Statement::DeleteRange(percents))
            }
            _ => Ok(Statement::Sync),
        }
    }

    fn size_in_brackets(&mut self, word: &str, max_bytes: u64) -> Parse<ObjectSize> {
        self.expect_mark('(', &format!("after `{word}`"))?;
        let size = self.size(max_bytes)?;
        self.expect_mark(')', "after the size")?;
        Ok(size)
    }

    /// `times = count "." "times" body`
    fn times(&mut self, depth: usize) -> Parse<Statement> {
        let (count, span) = self.number("a count", u64::MAX)?;
        self.expect_mark('.', "after the count, as in `10.times`")?;
        if !self.is_word("times") {
            return Err(self.unexpected("`times`", &["times"]));
        }
        self.take();
        if depth >= NESTING_MAX {
            return Err(Box::new(self.source.error(
                span,
                format!("`times` is nested more than {NESTING_MAX} deep"),
                "too deep",
            )));
        }
        let body = self.body("`times`", depth + 1)?;
        Ok(Statement::Times(count, body))
    }

    fn optional_choice(&mut self) -> Parse<Choice> {
        if !self.take_mark('(') {
            return Ok(Choice::Any);
        }
        let choice = self.choice()?;
        self.expect_mark(')', "after the range")?;
        Ok(choice)
    }

    /// `choice = percent "," percent | "zipf" "(" exponent [ "," popularity ] ")"`
    fn choice(&mut self) -> Parse<Choice> {
        if self.peek().kind == TokenKind::Digits {
            return Ok(match self.percents()? {
                Percents { from: 0, to: 100 } => Choice::Any,
                percents => Choice::Range(percents),
            });
        }
        if !self.is_word("zipf") {
            return Err(self.unexpected("a range of percentages, or `zipf(...)`", &["zipf"]));
        }
        self.take();
        self.expect_mark('(', "after `zipf`")?;
        let exponent = self.decimal("an exponent", 20.0)?;
        let mut order = Popularity::default();
        if self.take_mark(',') {
            match POPULARITIES.into_iter().find(|popularity| self.is_word(popularity.word())) {
                Some(found) => {
                    self.take();
                    order = found;
                }
                None => {
                    let words = POPULARITIES.map(Popularity::word);
                    return Err(self.unexpected("`oldest`, `newest` or `scattered`", &words));
                }
            }
        }
        self.expect_mark(')', "after the exponent")?;
        Ok(Choice::Zipf { exponent, order })
    }

    /// `percents = percent "," percent`
    fn percents(&mut self) -> Parse<Percents> {
        let (mut from, start) = self.number("a percentage", PERCENT_MAX)?;
        self.expect_mark(',', "between the percentages")?;
        let (mut to, end) = self.number("a percentage", PERCENT_MAX)?;
        let span = start.start..end.end;
        if from.max(to) > 100 {
            (from, to) = (from.min(100), to.min(100));
            self.warn(
                span.clone(),
                "a percentage of the live objects above 100",
                "taken as 100",
                "CannylsBencher fails on it, unless the random choice happens to fall below 100",
            );
        }
        if from > to {
            (from, to) = (to, from);
            self.warn(
                span,
                "the range begins above its end",
                format!("taken as {from}, {to}"),
                "CannylsBencher fails on it, unless both ends round to the same object",
            );
        }
        Ok(Percents { from: from as u32, to: to as u32 })
    }

    /// `size = bytes | "uniform" "(" bytes "," bytes ")" | "lognormal" "(" bytes "," sigma
    /// [ "," bytes ] ")" | "zipf" "(" bytes "," bytes "," exponent ")"`
    fn size(&mut self, max_bytes: u64) -> Parse<ObjectSize> {
        if self.peek().kind == TokenKind::Digits {
            return Ok(ObjectSize::Fixed(self.bytes(max_bytes)?.0));
        }
        let word = self.text();
        if self.peek().kind != TokenKind::Word || !SIZES.contains(&word) {
            return Err(self.unexpected("a size like `256K`, or a distribution of sizes", &SIZES));
        }
        self.take();
        self.expect_mark('(', &format!("after `{word}`"))?;
        let (first, first_span) = self.bytes(max_bytes)?;
        if first == 0 && word != "uniform" {
            self.error(first_span.clone(), "the size must not be 0", "at least 1");
        }
        self.expect_mark(',', "after the size")?;
        let size = match word {
            "uniform" => {
                let (max, span) = self.bytes(max_bytes)?;
                self.check_order(first, max, first_span.start..span.end);
                ObjectSize::Uniform(first, max)
            }
            "lognormal" => {
                let sigma = self.decimal("a standard deviation", 20.0)?;
                let mut max = max_bytes;
                if self.take_mark(',') {
                    let (cut, span) = self.bytes(max_bytes)?;
                    self.check_order(first, cut, first_span.start..span.end);
                    max = cut;
                }
                ObjectSize::LogNormal { median: first, sigma, max }
            }
            _ => {
                let (max, span) = self.bytes(max_bytes)?;
                self.check_order(first, max, first_span.start..span.end);
                self.expect_mark(',', "after the greatest size")?;
                let exponent = self.decimal("an exponent", 20.0)?;
                ObjectSize::Zipf { unit: first, max, exponent }
            }
        };
        self.expect_mark(')', "after the distribution")?;
        Ok(size)
    }

    fn check_order(&mut self, min: u64, max: u64, span: Range<usize>) {
        if min > max {
            self.error(
                span,
                "the least size is greater than the greatest",
                "expected the smaller one first",
            );
        }
    }
}

#[cfg(test)]
mod tests;
