//! What a program will do, before it does it: commands of each kind, bytes, the greatest live set,
//! and whether that fits.
//!
//! A program of at most [`PLANNED_COMMANDS_MAX`] statements and without sections that last for a
//! time is generated whole and counted: every figure is exact. Others are bounded from their text,
//! and the figures that the bounds meet in are exact all the same (a program that deletes nothing
//! is counted exactly at any length).
//!
//! Must not know: stores, beyond the space they ask for ([`super::store::Space`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::program::{Extent, Program, Section, Size, share};
use super::store::{Demand, Space};
use super::stream::{Step, Stream, Verb};

mod bounds;

use bounds::Bounds;

/// So many statements are generated to count them: a few seconds' work at the most.
pub const PLANNED_COMMANDS_MAX: u128 = 20_000_000;

/// A number that is known, or known to lie between two numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// It is not less.
    pub low: u64,
    /// It is not more; `None` when nothing bounds it.
    pub high: Option<u64>,
}

impl Bound {
    /// A known number.
    pub fn exactly(number: u64) -> Bound {
        Bound { low: number, high: Some(number) }
    }

    /// The bound of the sum.
    fn plus(self, other: Bound) -> Bound {
        Bound {
            low: self.low.saturating_add(other.low),
            high: self.high.zip(other.high).map(|(one, other)| one.saturating_add(other)),
        }
    }

    /// The bound of the product with a number between `low` and `high`.
    fn times(self, low: u64, high: u64) -> Bound {
        Bound {
            low: self.low.saturating_mul(low),
            high: self.high.map(|number| number.saturating_mul(high)),
        }
    }

    /// The number, when it is known.
    pub fn exact(&self) -> Option<u64> {
        self.high.filter(|high| *high == self.low)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.low, self.high) {
            (low, Some(high)) if low == high => formatter.pad(&low.to_string()),
            (0, Some(high)) => formatter.pad(&format!("at most {high}")),
            (low, Some(high)) => formatter.pad(&format!("{low} to {high}")),
            (0, None) => formatter.pad("as many as the time allows"),
            (low, None) => formatter.pad(&format!("{low} or more")),
        }
    }
}

/// Commands of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The verb of the language.
    pub verb: String,
    /// How many.
    pub commands: Bound,
}

/// What a program will do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Whether every figure is exact, but for the embedded bytes.
    pub exact: bool,
    /// How the figures came about.
    pub method: String,
    /// Commands of all kinds.
    pub commands: Bound,
    /// Commands of each kind that the program has.
    pub counts: Vec<Count>,
    /// Bytes of the objects put.
    pub bytes_written: Bound,
    /// Bytes of the objects read.
    pub bytes_read: Bound,
    /// Objects that are live at once, at the most.
    pub peak_live_objects: Bound,
    /// Bytes that are live at once, at the most.
    pub peak_live_bytes: Bound,
    /// Embedded bytes that are live at once, at the most; never more than a bound.
    pub peak_embedded_bytes: Bound,
    /// Objects that are live at the end.
    pub final_live_objects: Bound,
    /// Bytes that are live at the end.
    pub final_live_bytes: Bound,
    /// Size of the largest object that can come up.
    pub largest_object_bytes: u64,
    /// What the reader should know besides.
    pub notes: Vec<String>,
}

/// Whether a program fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// With room to spare.
    Fits {
        /// What it asks for.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// The objects fit, but perhaps not with what the store adds to them.
    Tight {
        /// What would be comfortable.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// The objects alone do not fit.
    TooLarge {
        /// What the objects take.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// Nothing bounds what the program puts.
    Unknown {
        /// What there is.
        available_bytes: u64,
    },
}

impl fmt::Display for Fit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fit::Fits { needed_bytes, available_bytes } => {
                write!(formatter, "fits: {needed_bytes} of {available_bytes} bytes")
            }
            Fit::Tight { needed_bytes, available_bytes } => write!(
                formatter,
                "may not fit: {needed_bytes} bytes would be comfortable, there are {available_bytes}"
            ),
            Fit::TooLarge { needed_bytes, available_bytes } => write!(
                formatter,
                "does not fit: {needed_bytes} bytes of objects are live at once, there are \
                 {available_bytes}"
            ),
            Fit::Unknown { available_bytes } => write!(
                formatter,
                "unknown whether it fits into {available_bytes} bytes: a section lasts for a time"
            ),
        }
    }
}

impl Plan {
    /// The plan of a program.
    pub fn of(program: &Program) -> Plan {
        Plan::within(program, PLANNED_COMMANDS_MAX)
    }

    /// The plan of a program, of which at most `statements_max` statements are generated.
    pub fn within(program: &Program, statements_max: u128) -> Plan {
        let bounds = Bounds::of(program);
        let mut plan = bounds.plan();
        if !plan.exact && program.statements().is_some_and(|count| count <= statements_max) {
            plan = counted(program);
        }
        plan.notes = idle_branches(program);
        if let Some(duration_ns) = program.settings.duration_ns {
            // A limit in time can end everything sooner.
            let seconds = duration_ns as f64 / 1e9;
            plan.notes.push(format!("the run may end sooner, after {seconds} s"));
            plan.loosen();
        }
        plan
    }

    /// Whether nothing puts an object.
    pub fn puts_nothing(&self) -> bool {
        self.peak_live_objects.exact() == Some(0)
    }

    /// What the program asks of a store, where that is bounded. Each thread may put an object
    /// before an earlier deletion has ended, so that a store holds more than the program does.
    pub fn demand(&self, threads: u32) -> Option<Demand> {
        let ahead = u64::from(threads);
        let ahead_bytes = ahead.saturating_mul(self.largest_object_bytes);
        Some(Demand {
            objects: self.peak_live_objects.high?.saturating_add(ahead),
            bytes: self.peak_live_bytes.high?.saturating_add(ahead_bytes),
            embedded_bytes: self.peak_embedded_bytes.high?,
        })
    }

    /// Whether the program fits into this much space, by what the store asks for at the most
    /// ([`Plan::demand`]).
    pub fn fit(&self, space: Option<Space>, available_bytes: u64) -> Fit {
        let needed_bytes = self.peak_live_bytes.low;
        match space {
            _ if needed_bytes > available_bytes => Fit::TooLarge { needed_bytes, available_bytes },
            None => Fit::Unknown { available_bytes },
            Some(space) if space.comfortable_bytes <= available_bytes => {
                Fit::Fits { needed_bytes: space.comfortable_bytes, available_bytes }
            }
            Some(space) => Fit::Tight { needed_bytes: space.comfortable_bytes, available_bytes },
        }
    }

    /// Takes back every lower bound.
    fn loosen(&mut self) {
        self.exact = false;
        let counts = self.counts.iter_mut().map(|count| &mut count.commands);
        let figures = [
            &mut self.commands,
            &mut self.bytes_written,
            &mut self.bytes_read,
            &mut self.peak_live_objects,
            &mut self.peak_live_bytes,
            &mut self.peak_embedded_bytes,
            &mut self.final_live_objects,
            &mut self.final_live_bytes,
        ];
        for bound in counts.chain(figures) {
            bound.low = 0;
        }
        // What is live at the end is live at the most, whenever that end comes.
        self.final_live_objects.high = self.peak_live_objects.high;
        self.final_live_bytes.high = self.peak_live_bytes.high;
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

/// Branches of a percentage that never run, because their share of the count is less than one.
fn idle_branches(program: &Program) -> Vec<String> {
    let mut notes = Vec::new();
    for section in &program.sections {
        let (Section::Ordered { count, branches }
        | Section::Unordered { extent: Extent::Count(count), branches }) = section
        else {
            continue;
        };
        for branch in branches {
            if branch.percent > 0 && *count > 0 && share(*count, branch.percent) == 0 {
                let what = branch.body.first().map_or("{ }".to_owned(), ToString::to_string);
                notes.push(format!(
                    "<{}%> {what} never runs: {} % of {count} is less than 1",
                    branch.percent, branch.percent
                ));
            }
        }
    }
    notes
}

/// Generates the whole program and counts.
fn counted(program: &Program) -> Plan {
    let mut stream = Stream::new(program);
    let mut counts = [0u64; VERBS.len()];
    let (mut written, mut read) = (0u64, 0u64);
    let (mut objects, mut objects_peak) = (0u64, 0u64);
    let (mut bytes, mut bytes_peak) = (0u64, 0u64);
    let (mut embedded, mut embedded_peak) = (0u64, 0u64);
    while let Step::Command(command) = stream.next_step() {
        counts[command.verb as usize] += 1;
        match command.verb {
            Verb::Put | Verb::Embed => {
                objects += 1;
                bytes = bytes.saturating_add(command.size);
                written = written.saturating_add(command.size);
                if command.verb == Verb::Embed {
                    embedded += command.size;
                }
            }
            Verb::OverWrite => {
                bytes = bytes.saturating_sub(command.before).saturating_add(command.size);
                written = written.saturating_add(command.size);
            }
            Verb::Get => read = read.saturating_add(command.size),
            Verb::Delete => {
                objects -= 1;
                bytes = bytes.saturating_sub(command.size);
                if command.embedded {
                    embedded -= command.size;
                }
            }
            Verb::DeleteRange => {
                objects -= command.before;
                bytes = bytes.saturating_sub(command.size);
            }
            Verb::Sync => {}
        }
        objects_peak = objects_peak.max(objects);
        bytes_peak = bytes_peak.max(bytes);
        embedded_peak = embedded_peak.max(embedded);
    }
    let exactly = Bound::exactly;
    Plan {
        exact: true,
        method: "counted by generating every command".to_owned(),
        commands: exactly(counts.iter().sum()),
        counts: VERBS
            .iter()
            .filter(|(verb, _)| counts[*verb as usize] > 0)
            .map(|(verb, name)| Count {
                verb: (*name).to_owned(),
                commands: exactly(counts[*verb as usize]),
            })
            .collect(),
        bytes_written: exactly(written),
        bytes_read: exactly(read),
        peak_live_objects: exactly(objects_peak),
        peak_live_bytes: exactly(bytes_peak),
        // Ranges and overwriting also take embedded objects away: what is left is a bound.
        peak_embedded_bytes: Bound { low: 0, high: Some(embedded_peak) },
        final_live_objects: exactly(objects),
        final_live_bytes: exactly(bytes),
        largest_object_bytes: stream.classes().iter().map(Size::max).max().unwrap_or(0),
        notes: Vec::new(),
    }
}

/// A number of bytes to one decimal of the greatest unit that it reaches.
fn readable(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, bound: &Bound, bytes: bool| {
            let size = match bound.exact() {
                Some(exact) if bytes && exact >= 1024 => format!("  ({})", readable(exact)),
                _ => String::new(),
            };
            writeln!(formatter, "{name:<22}{bound:>24}{size}")
        };
        for count in &self.counts {
            line(&count.verb, &count.commands, false)?;
        }
        line("commands", &self.commands, false)?;
        line("bytes written", &self.bytes_written, true)?;
        line("bytes read", &self.bytes_read, true)?;
        line("peak live objects", &self.peak_live_objects, false)?;
        line("peak live bytes", &self.peak_live_bytes, true)?;
        line("live objects at end", &self.final_live_objects, false)?;
        line("live bytes at end", &self.final_live_bytes, true)?;
        writeln!(formatter, "({})", self.method)?;
        for note in &self.notes {
            writeln!(formatter, "note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
