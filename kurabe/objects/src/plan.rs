//! What a program will do, before it does it: commands of each kind, bytes, the greatest live set,
//! and whether that fits.
//!
//! A program of at most [`PLANNED_COMMANDS_MAX`] statements is generated whole and counted. A section
//! that lasts for a time counts as if it lasted for none, and what that leaves open is told.
//!
//! Must not know: stores, beyond the space they ask for ([`super::store::StoreSpace`]).

use std::fmt;

use serde::Serialize;
use vocabulary::quantity::about_text;

use super::program::{ObjectSize, Program, ProgramSection, SectionLength, Statement, has, share};
use super::store::{Demand, StoreSpace};
use super::stream::{Stream, StreamStep, Verb};

/// So many statements are generated to count them: a few seconds' work at the most.
pub const PLANNED_COMMANDS_MAX: u128 = 20_000_000;

/// What a program will do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramPlan {
    /// The figures; none of a program that is too long to count.
    pub counted: Option<PlanFigures>,
    /// Whether a limit in time can end the run sooner.
    pub may_end_sooner: bool,
    /// Whether a section lasts for a time, whose commands are not counted.
    pub lasts_for_time: bool,
    /// Whether such a section changes what is live.
    pub changes_for_time: bool,
    /// Size of the largest object that can come up.
    pub largest_object_bytes: u64,
    /// What the reader should know besides.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanFigures {
    /// Commands of each kind that the program has, by the verb of the language.
    pub counts: Vec<(&'static str, u64)>,
    pub commands: u64,
    /// Bytes of the objects put.
    pub bytes_written: u64,
    /// Bytes of the objects read.
    pub bytes_read: u64,
    /// Objects that are live at once, at the most.
    pub peak_live_objects: u64,
    /// Bytes that are live at once, at the most.
    pub peak_live_bytes: u64,
    /// The same before the first section that lasts for a time.
    pub sure_live_bytes: u64,
    /// Embedded bytes that are live at once, at the most: not less than they are.
    pub peak_embedded_bytes: u64,
    /// Objects that are live at the end.
    pub final_live_objects: u64,
    /// Bytes that are live at the end.
    pub final_live_bytes: u64,
}

/// Whether a program fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CapacityFit {
    /// With room to spare.
    Fits(CapacityNeed),
    /// The objects fit, but perhaps not with what the store adds to them; what is needed would be
    /// comfortable.
    Tight(CapacityNeed),
    /// The objects alone do not fit.
    TooLarge(CapacityNeed),
    /// Nothing bounds what the program puts.
    Unknown { available_bytes: u64 },
}

/// What is asked for and what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CapacityNeed {
    pub needed_bytes: u64,
    pub available_bytes: u64,
}

impl ProgramPlan {
    pub fn of(program: &Program) -> ProgramPlan {
        let timed = program.sections.iter().filter_map(|section| match section {
            ProgramSection::Unordered { extent: SectionLength::Time(_), branches } => {
                Some(branches)
            }
            _ => None,
        });
        let mut notes = idle_branches(program);
        if let Some(duration_ns) = program.settings.duration_ns {
            notes.push(format!("the run may end sooner, after {} s", duration_ns as f64 / 1e9));
        }
        let sizes = Stream::new(program);
        ProgramPlan {
            counted: (program.statements() <= PLANNED_COMMANDS_MAX).then(|| counted(program)),
            may_end_sooner: program.settings.duration_ns.is_some(),
            lasts_for_time: timed.clone().next().is_some(),
            changes_for_time: timed.flatten().any(|branch| has(&branch.body, changes)),
            largest_object_bytes: sizes.classes().iter().map(ObjectSize::max).max().unwrap_or(0),
            notes,
        }
    }

    /// What the program asks of a store at the most, where that is known. Each thread may put an
    /// object before an earlier deletion has ended, so that a store holds more than the program does.
    pub fn demand(&self, threads: u32) -> Option<Demand> {
        let figures = self.counted.as_ref().filter(|_| !self.changes_for_time)?;
        let ahead = u64::from(threads);
        let ahead_bytes = ahead.saturating_mul(self.largest_object_bytes);
        Some(Demand {
            objects: figures.peak_live_objects.saturating_add(ahead),
            bytes: figures.peak_live_bytes.saturating_add(ahead_bytes),
            embedded_bytes: figures.peak_embedded_bytes,
        })
    }

    /// Whether the program fits into this much space, by what the store asks for at the most
    /// ([`ProgramPlan::demand`]).
    pub fn fit(&self, space: Option<StoreSpace>, available_bytes: u64) -> CapacityFit {
        let sure = self.counted.as_ref().filter(|_| !self.may_end_sooner);
        let least_bytes = space.map_or(0, |space| space.least_bytes);
        let needed_bytes = sure.map_or(0, |figures| figures.sure_live_bytes).max(least_bytes);
        let need = |needed_bytes| CapacityNeed { needed_bytes, available_bytes };
        match space.map(|space| space.comfortable_bytes) {
            _ if needed_bytes > available_bytes => CapacityFit::TooLarge(need(needed_bytes)),
            None => CapacityFit::Unknown { available_bytes },
            Some(wanted) if wanted <= available_bytes => CapacityFit::Fits(need(wanted)),
            Some(wanted) => CapacityFit::Tight(need(wanted)),
        }
    }
}

/// The verbs, as the language writes them, in the order of tables.
const VERBS: [(Verb, &str); 7] = [
    (Verb::Put, "New"),
    (Verb::Embed, "Embed"),
    (Verb::OverWrite, "OverWrite"),
    (Verb::Get, "Get"),
    (Verb::Delete, "Delete"),
    (Verb::DeleteRange, "DeleteRange"),
    (Verb::Sync, "Sync"),
];

/// Whether a statement changes what is live.
fn changes(statement: &Statement) -> bool {
    !matches!(statement, Statement::Get(_) | Statement::Sync)
}

/// Branches of a percentage that never run, because their share of the count is less than one.
fn idle_branches(program: &Program) -> Vec<String> {
    let mut notes = Vec::new();
    for section in &program.sections {
        let (ProgramSection::Ordered { count, branches }
        | ProgramSection::Unordered { extent: SectionLength::Count(count), branches }) = section
        else {
            continue;
        };
        for branch in branches {
            if branch.percent > 0 && *count > 0 && share(*count, branch.percent) == 0 {
                let percent = branch.percent;
                notes.push(format!(
                    "<{percent}%> never runs: {percent} % of {count} is less than 1"
                ));
            }
        }
    }
    notes
}

/// Generates the whole program and counts.
fn counted(program: &Program) -> PlanFigures {
    let mut stream = Stream::new(program);
    let mut counts = [0u64; VERBS.len()];
    let mut figures = PlanFigures::default();
    let (mut objects, mut bytes, mut embedded) = (0u64, 0u64, 0u64);
    let mut sure_live_bytes = None;
    loop {
        let command = match stream.next_step() {
            StreamStep::Command(command) => command,
            StreamStep::Timed(_) => {
                sure_live_bytes.get_or_insert(figures.peak_live_bytes);
                stream.end_timed_section();
                continue;
            }
            StreamStep::End => break,
        };
        counts[command.verb as usize] += 1;
        match command.verb {
            Verb::Put | Verb::Embed => {
                objects += 1;
                bytes = bytes.saturating_add(command.size);
                figures.bytes_written = figures.bytes_written.saturating_add(command.size);
                if command.verb == Verb::Embed {
                    embedded += command.size;
                }
            }
            Verb::OverWrite => {
                bytes = bytes.saturating_sub(command.before).saturating_add(command.size);
                figures.bytes_written = figures.bytes_written.saturating_add(command.size);
            }
            Verb::Get => figures.bytes_read = figures.bytes_read.saturating_add(command.size),
            Verb::Delete => {
                objects -= 1;
                bytes = bytes.saturating_sub(command.size);
                if command.embedded {
                    embedded -= command.size;
                }
            }
            // Ranges and overwriting also take embedded objects away: what is left is a bound.
            Verb::DeleteRange => {
                objects -= command.before;
                bytes = bytes.saturating_sub(command.size);
            }
            Verb::Sync => {}
        }
        figures.peak_live_objects = figures.peak_live_objects.max(objects);
        figures.peak_live_bytes = figures.peak_live_bytes.max(bytes);
        figures.peak_embedded_bytes = figures.peak_embedded_bytes.max(embedded);
    }
    let counts = VERBS.iter().map(|(verb, name)| (*name, counts[*verb as usize]));
    figures.counts = counts.filter(|(_, count)| *count > 0).collect();
    figures.commands = figures.counts.iter().map(|(_, count)| count).sum();
    figures.sure_live_bytes = sure_live_bytes.unwrap_or(figures.peak_live_bytes);
    (figures.final_live_objects, figures.final_live_bytes) = (objects, bytes);
    figures
}

impl fmt::Display for ProgramPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(figures) = &self.counted {
            let mut line = |name: &str, number: u64, is_bytes: bool, is_done: bool| {
                let words = match (self.may_end_sooner, self.lasts_for_time) {
                    _ if !is_done && self.changes_for_time => "as the time allows".into(),
                    (false, lasts) if !(is_done && lasts) => number.to_string(),
                    (false, _) => format!("{number} or more"),
                    (true, lasts) if !(is_done && lasts) => format!("at most {number}"),
                    (true, _) => "as many as the time allows".into(),
                };
                let is_exact = words.bytes().all(|byte| byte.is_ascii_digit());
                let size = if is_exact && is_bytes && number >= 1024 {
                    format!("  ({})", about_text(number))
                } else {
                    String::new()
                };
                writeln!(formatter, "{name:<22}{words:>24}{size}")
            };
            for (verb, count) in &figures.counts {
                line(verb, *count, false, true)?;
            }
            line("commands", figures.commands, false, true)?;
            line("bytes written", figures.bytes_written, true, true)?;
            line("bytes read", figures.bytes_read, true, true)?;
            line("peak live objects", figures.peak_live_objects, false, false)?;
            line("peak live bytes", figures.peak_live_bytes, true, false)?;
            line("live objects at end", figures.final_live_objects, false, false)?;
            line("live bytes at end", figures.final_live_bytes, true, false)?;
        } else {
            let millions = PLANNED_COMMANDS_MAX / 1_000_000;
            writeln!(formatter, "more than {millions} million statements are not counted")?;
        }
        for note in &self.notes {
            writeln!(formatter, "note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
