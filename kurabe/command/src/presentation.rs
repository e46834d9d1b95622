//! How a result is shown and written: style, colour, and the files that the user wants besides the
//! result directory.

use std::path::{Path, PathBuf};

use report::document::{self, Block};
use report::source::ResultSource;
use report::table::Screen;
use serde_json::Value;
use trust::Refused;
use trust::file::{is_stream, write};

use crate::exit::Failure;
use crate::request::flags::{ShowArgs, Style};

pub mod page;
pub mod progress;

use progress::TerminalStyle;

/// What to write and how to look.
pub struct Presentation {
    /// What the terminal can show.
    pub look: TerminalStyle,
    pub exports: Exports,
    /// Whether the terminal shows the details too.
    verbose: bool,
    /// An answer of its own, with its exit code, in the place of costs.
    pub own: Option<OwnAnswer>,
}

/// What a command that is a study says of its result, and with which code it exits where every run was completed.
pub type OwnAnswer = fn(&ResultSource) -> (Vec<Block>, u8);

impl Presentation {
    /// What the flags ask for; `style` is what a study file asks for.
    pub fn new(args: &ShowArgs, style: Option<&str>) -> Result<Presentation, Failure> {
        use clap::ValueEnum;
        let style = match (args.style, style) {
            (Some(style), _) => Some(style),
            (None, Some(text)) => Some(Style::from_str(text, false).map_err(|_| {
                let known: Vec<_> = Style::value_variants()
                    .iter()
                    .filter_map(|style| Some(style.to_possible_value()?.get_name().to_string()))
                    .collect();
                Failure::refused(format!(
                    "style: '{text}' is unknown; choose from {}",
                    known.join(", ")
                ))
            })?),
            (None, None) => None,
        };
        let exports = Exports {
            json: args.export_json.clone(),
            csv: args.export_csv.clone(),
            markdown: args.export_markdown.clone(),
        };
        exports.check()?;
        Ok(Presentation {
            look: TerminalStyle::of(style),
            exports,
            verbose: args.verbose,
            own: None,
        })
    }

    /// A result as the terminal shows it: the answer, or all that there is.
    pub fn screen(&self, source: &ResultSource) -> Screen {
        // Who runs somebody else's study sees what it asks.
        let study = &source.plan.study;
        let why = study.why.clone().filter(|_| study.source.is_some());
        let mut blocks: Vec<Block> = why.map(Block::Text).into_iter().collect();
        match self.own {
            Some(own) => blocks.extend(own(source).0),
            None => blocks.extend(report::answer::answer(source)),
        }
        if self.verbose {
            blocks.extend(report::details::details(source));
            blocks.extend(page::publication(source));
        } else {
            let ResultSource { plan, records, analysis, .. } = source;
            blocks.extend(publications::summary(plan, records, analysis));
            let name = trust::words::pasted(&source.name);
            blocks.push(Block::Text(format!("Details: kurabe report {name} --verbose.")));
        }
        document::terminal(&blocks, self.look.colour)
    }
}

/// Refuses a file that cannot be made where it is wanted.
pub fn check_target(path: &Path) -> Result<(), Failure> {
    trust::file::check_target(path).map_err(|refused| {
        let next = if refused.is_missing() { "; make the directory first" } else { "" };
        Failure::refused(format!("export file {}: {refused}{next}", path.display()))
    })
}

/// Files that the user wants besides the result directory.
pub struct Exports {
    json: Option<PathBuf>,
    csv: Option<PathBuf>,
    markdown: Option<PathBuf>,
}

impl Exports {
    /// Whether there is one.
    pub fn any(&self) -> bool {
        [&self.json, &self.csv, &self.markdown].into_iter().any(Option::is_some)
    }

    /// Refuses a file in a directory that does not exist, now rather than after the first block.
    fn check(&self) -> Result<(), Failure> {
        [&self.json, &self.csv, &self.markdown]
            .into_iter()
            .flatten()
            .try_for_each(|path| check_target(path))
    }

    /// Those that are files: a stream is written once, at the end.
    pub fn files(&self) -> Exports {
        let file = |path: &Option<PathBuf>| path.clone().filter(|path| !is_stream(path));
        Exports { json: file(&self.json), csv: file(&self.csv), markdown: file(&self.markdown) }
    }

    pub fn write(&self, source: &ResultSource) -> Result<(), Refused> {
        let ResultSource { plan, records, analysis, facts, .. } = source;
        if let Some(path) = &self.json {
            let facts = facts.as_ref().unwrap_or(&Value::Null);
            let json = report::export::json(plan, records, analysis, facts);
            write(path, format!("{json:#}\n").as_bytes())?;
        }
        if let Some(path) = &self.csv {
            write(path, report::export::csv(records).as_bytes())?;
            for (name, text) in [
                ("costs", report::export::costs_csv(analysis)),
                ("latencies", report::export::latencies_csv(analysis)),
                ("overhead", report::export::overhead_csv(analysis)),
            ] {
                // Beside a stream there is no place.
                if let (Some(text), false) = (text, is_stream(path)) {
                    write(&beside(path, name), text.as_bytes())?;
                }
            }
        }
        if let Some(path) = &self.markdown {
            let mut text = report::export::markdown(source);
            text.push('\n');
            text.push_str(&document::markdown(&page::publication(source)));
            write(path, text.as_bytes())?;
        }
        Ok(())
    }
}

/// `trials.latencies.csv` of `trials.csv`.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.with_extension(match path.extension() {
        Some(extension) => format!("{name}.{}", extension.display()),
        None => name.to_string(),
    })
}
