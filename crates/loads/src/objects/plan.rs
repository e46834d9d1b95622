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

use super::program::{Branch, Extent, Program, Section, Size, Statement, share};
use super::store::{Demand, Space};
use super::stream::{Step, Stream, Verb};

/// So many statements are generated to count them: about a second's work.
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

    fn between(low: u128, high: Option<u128>) -> Bound {
        let narrow = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        Bound { low: narrow(low), high: high.map(narrow) }
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

// ---------------------------------------------------------------------------------------------
// Bounds
// ---------------------------------------------------------------------------------------------

/// A sum of which both ends are kept.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    low: u128,
    /// `None` when nothing bounds it.
    high: Option<u128>,
}

impl Tally {
    const ZERO: Tally = Tally { low: 0, high: Some(0) };

    fn add(&mut self, low: u128, high: Option<u128>) {
        self.low = self.low.saturating_add(low);
        self.high = self.high.zip(high).map(|(sum, more)| sum.saturating_add(more));
    }

    fn bound(self) -> Bound {
        Bound::between(self.low, self.high)
    }
}

/// How often something runs.
#[derive(Clone, Copy)]
struct Times {
    low: u128,
    high: Option<u128>,
}

impl Times {
    fn exactly(count: u128) -> Times {
        Times { low: count, high: Some(count) }
    }

    fn scaled(self, count: u64) -> Times {
        let count = u128::from(count);
        Times {
            low: self.low.saturating_mul(count),
            high: self.high.map(|high| high.saturating_mul(count)),
        }
    }
}

/// What the text alone says of the figures.
struct Bounds {
    counts: [Tally; VERBS.len()],
    written: Tally,
    created_bytes: Tally,
    embedded_bytes: Tally,
    /// Least and greatest size of any object.
    sizes: Option<(u64, u64)>,
    /// Whether an object is live for sure where the walk stands.
    is_live: bool,
    /// Whether an object can be live where the walk stands.
    may_be_live: bool,
    /// Whether the program deletes anything anywhere.
    deletes: bool,
}

impl Bounds {
    fn of(program: &Program) -> Bounds {
        let mut bounds = Bounds {
            counts: [Tally::ZERO; VERBS.len()],
            written: Tally::ZERO,
            created_bytes: Tally::ZERO,
            embedded_bytes: Tally::ZERO,
            sizes: None,
            is_live: false,
            may_be_live: false,
            deletes: program.sections.iter().any(|section| match section {
                Section::Ordered { branches, .. } | Section::Unordered { branches, .. } => {
                    branches.iter().any(|branch| has_delete(&branch.body))
                }
                Section::Command { body } => has_delete(body),
            }),
        };
        let rate = program.settings.rate.map(|rate| rate.per_second);
        for section in &program.sections {
            bounds.section(section, rate);
        }
        bounds
    }

    fn section(&mut self, section: &Section, rate: Option<f64>) {
        match section {
            Section::Command { body } => self.body(body, Times::exactly(1)),
            Section::Ordered { count, branches } => {
                for Branch { percent, body } in branches {
                    self.repeated(body, share(*count, *percent), Times::exactly(1));
                }
            }
            Section::Unordered { extent: Extent::Count(count), branches } => {
                let was_live = self.is_live;
                let mut becomes_live = was_live;
                self.may_be_live |= branches
                    .iter()
                    .any(|branch| share(*count, branch.percent) > 0 && has_creation(&branch.body));
                for Branch { percent, body } in branches {
                    // What another branch makes live may come later.
                    self.is_live = was_live;
                    self.repeated(body, share(*count, *percent), Times::exactly(1));
                    becomes_live |= self.is_live;
                }
                self.is_live = becomes_live;
            }
            Section::Unordered { extent: Extent::Time(length_ns), branches } => {
                // An open loop begins at most so many commands; each may be of any branch.
                let high = rate.map(|rate| (rate * *length_ns as f64 / 1e9) as u128 + 2);
                let was_live = self.is_live;
                self.may_be_live |=
                    branches.iter().any(|branch| branch.percent > 0 && has_creation(&branch.body));
                for Branch { percent, body } in branches {
                    if *percent > 0 {
                        self.is_live = was_live;
                        self.body(body, Times { low: 0, high });
                    }
                }
                self.is_live = was_live;
            }
        }
    }

    /// A body that runs `count` times for each of `times`.
    fn repeated(&mut self, body: &[Statement], count: u64, times: Times) {
        if count == 0 {
            return;
        }
        // The first turn may skip statements that later turns find an object for. Looking twice is
        // only worth it, and only ends soon in nested repetitions, when this turn can change that.
        if count > 1 && !self.is_live && times.low > 0 && has_creation(body) {
            // For each of `times` only the very first turn of all begins without an object.
            self.body(body, Times::exactly(1));
            let rest = times.scaled(count);
            self.body(
                body,
                Times { low: rest.low - 1, high: rest.high.map(|high| high.saturating_sub(1)) },
            );
        } else {
            self.body(body, times.scaled(count));
        }
    }

    fn body(&mut self, body: &[Statement], times: Times) {
        for statement in body {
            match statement {
                Statement::New(size) => self.create(Verb::Put, size, times),
                Statement::Embed(size) => self.create(Verb::Embed, size, times),
                Statement::OverWrite(size, _) => {
                    let sure = self.needing(Verb::OverWrite, times);
                    let low = sure.saturating_mul(u128::from(size.min()));
                    self.written.add(low, product(times.high, size.max()));
                    self.note_size(size);
                }
                Statement::Get(_) => {
                    self.needing(Verb::Get, times);
                }
                Statement::Delete(_) => {
                    self.needing(Verb::Delete, times);
                }
                Statement::DeleteRange(_) => {
                    self.needing(Verb::DeleteRange, times);
                }
                Statement::Sync => self.counts[Verb::Sync as usize].add(times.low, times.high),
                Statement::Times(count, body) => self.repeated(body, *count, times),
            }
        }
    }

    fn create(&mut self, verb: Verb, size: &Size, times: Times) {
        self.counts[verb as usize].add(times.low, times.high);
        let low = times.low.saturating_mul(u128::from(size.min()));
        let high = product(times.high, size.max());
        self.written.add(low, high);
        self.created_bytes.add(low, high);
        if verb == Verb::Embed {
            self.embedded_bytes.add(low, high);
        }
        self.note_size(size);
        self.is_live |= times.low > 0;
        self.may_be_live = true;
    }

    /// Counts a statement that needs a live object; returns how often it runs for sure.
    fn needing(&mut self, verb: Verb, times: Times) -> u128 {
        if !self.may_be_live {
            return 0;
        }
        let sure = if self.is_live && !self.deletes { times.low } else { 0 };
        self.counts[verb as usize].add(sure, times.high);
        sure
    }

    fn note_size(&mut self, size: &Size) {
        let (min, max) = self.sizes.unwrap_or((u64::MAX, 0));
        self.sizes = Some((min.min(size.min()), max.max(size.max())));
    }

    fn plan(&self) -> Plan {
        let count = |verb: Verb| self.counts[verb as usize];
        let mut commands = Tally::ZERO;
        self.counts.iter().for_each(|tally| commands.add(tally.low, tally.high));
        let (size_min, size_max) = self.sizes.unwrap_or((0, 0));
        let gets = count(Verb::Get);
        let read = Tally {
            low: gets.low.saturating_mul(u128::from(size_min)),
            high: product(gets.high, size_max),
        };
        let mut created = Tally::ZERO;
        for verb in [Verb::Put, Verb::Embed] {
            created.add(count(verb).low, count(verb).high);
        }
        let overwrites = count(Verb::OverWrite).high != Some(0);
        let live_objects = Tally { low: if self.deletes { 0 } else { created.low }, ..created };
        let live_bytes = Tally {
            low: if self.deletes || overwrites { 0 } else { self.created_bytes.low },
            // Overwriting adds at most what it writes.
            high: self.written.high,
        };
        let mut plan = Plan {
            exact: false,
            method: "bounded from the text; the program is too long to count".to_owned(),
            commands: commands.bound(),
            counts: VERBS
                .iter()
                .filter(|(verb, _)| count(*verb).high != Some(0))
                .map(|(verb, name)| Count {
                    verb: (*name).to_owned(),
                    commands: count(*verb).bound(),
                })
                .collect(),
            bytes_written: self.written.bound(),
            bytes_read: read.bound(),
            peak_live_objects: live_objects.bound(),
            peak_live_bytes: live_bytes.bound(),
            peak_embedded_bytes: Bound { low: 0, ..self.embedded_bytes.bound() },
            final_live_objects: live_objects.bound(),
            final_live_bytes: live_bytes.bound(),
            largest_object_bytes: size_max,
            notes: Vec::new(),
        };
        plan.exact = [
            plan.commands,
            plan.bytes_written,
            plan.bytes_read,
            plan.peak_live_objects,
            plan.peak_live_bytes,
        ]
        .iter()
        .all(|bound| bound.exact().is_some())
            && plan.counts.iter().all(|count| count.commands.exact().is_some());
        if plan.exact {
            plan.method = "calculated from the text".to_owned();
        }
        plan
    }
}

fn product(times: Option<u128>, size: u64) -> Option<u128> {
    times.map(|times| times.saturating_mul(u128::from(size)))
}

fn has_creation(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::New(_) | Statement::Embed(_) => true,
        Statement::Times(count, body) => *count > 0 && has_creation(body),
        _ => false,
    })
}

fn has_delete(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Delete(_) | Statement::DeleteRange(_) => true,
        Statement::Times(count, body) => *count > 0 && has_delete(body),
        _ => false,
    })
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::objects::arbitrary::programs;
    use crate::objects::store;

    fn program(text: &str) -> Program {
        match Program::parse("load.txt", text.as_bytes()) {
            Ok(parsed) => parsed.program,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_published_load_is_counted_exactly() {
        let plan = Plan::of(&program(
            "Command { 5000.times { New(1M); }; } Unordered[40000] { <50%> New(1M); <50%> Get; }",
        ));
        assert!(plan.exact);
        assert_eq!(plan.method, "calculated from the text");
        assert_eq!(plan.commands, Bound::exactly(45_000));
        assert_eq!(plan.bytes_written, Bound::exactly(25_000 << 20));
        assert_eq!(plan.bytes_read, Bound::exactly(20_000 << 20));
        assert_eq!(plan.peak_live_bytes, Bound::exactly(25_000 << 20));
        let shown = plan.to_string();
        assert!(shown.contains("(24.4 GiB)"), "{shown}");
    }

    #[test]
    fn what_depends_on_deleting_is_counted_by_generating() {
        let text = "Ordered[100] { <50%> { New(1K); Get; New(2K); Delete; }; }";
        let plan = Plan::of(&program(text));
        assert!(plan.exact && plan.method.contains("generating"));
        assert_eq!(plan.commands, Bound::exactly(200));
        assert_eq!(plan.peak_live_objects, Bound::exactly(51));
        assert_eq!(plan.final_live_objects, Bound::exactly(50));
    }

    #[test]
    fn long_programs_are_calculated_where_they_can_be_and_bounded_elsewhere() {
        let plan = Plan::of(&program("Command { 1000000000.times { Get; New(4K); }; }"));
        assert!(plan.exact, "{plan:?}");
        assert_eq!(plan.commands, Bound::exactly(1_999_999_999));
        assert_eq!(plan.peak_live_bytes, Bound::exactly(4_096_000_000_000));

        let plan = Plan::of(&program("Command { 1000000000.times { New(4K); Delete; Get; }; }"));
        assert!(!plan.exact);
        assert_eq!(plan.bytes_written, Bound::exactly(4_096_000_000_000));
        assert_eq!(plan.commands, Bound { low: 1_000_000_000, high: Some(3_000_000_000) });
        assert_eq!(plan.peak_live_objects, Bound { low: 0, high: Some(1_000_000_000) });
        assert!(plan.to_string().contains("1000000000 to 3000000000"));
    }

    #[test]
    fn sections_of_a_time_are_bounded_by_the_rate_or_not_at_all() {
        let text = "Command { 10.times { New(1K); }; } Unordered[2s] { <50%> New(1K); <50%> Get; }";
        let plan = Plan::of(&program(text));
        assert_eq!(plan.bytes_written, Bound { low: 10 << 10, high: None });
        assert!(plan.demand(1).is_none());
        let plan = Plan::of(&program(&format!("Rate: 100; {text}")));
        assert_eq!(plan.bytes_written, Bound { low: 10 << 10, high: Some(212 << 10) });
        let plan = Plan::of(&program("Duration: 1s; Command { New(1K); }"));
        assert_eq!(plan.commands, Bound { low: 0, high: Some(1) });
    }

    #[test]
    fn shares_below_one_are_pointed_out() {
        let plan = Plan::of(&program("Ordered[50] { <99%> New(1); <1%> DeleteRange(1, 2); }"));
        assert_eq!(plan.notes, ["<1%> DeleteRange(1, 2) never runs: 1 % of 50 is less than 1"]);
    }

    #[test]
    fn whether_it_fits_takes_the_store_into_account() {
        let plan = Plan::of(&program("Command { 1000.times { New(10K); }; }"));
        let kind = store::kind("files").unwrap();
        let space = (kind.space)(&Default::default(), &plan.demand(1).unwrap());
        let fit = |available| plan.fit(Some(space), available);
        assert!(matches!(fit(10_239_999), Fit::TooLarge { needed_bytes: 10_240_000, .. }));
        assert!(matches!(fit(10_240_000), Fit::Tight { .. }));
        assert!(matches!(fit(20_000_000), Fit::Fits { .. }));
        assert!(matches!(plan.fit(None, 20_000_000), Fit::Unknown { .. }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// What is counted lies within what is calculated, for every figure of any program.
        #[test]
        fn bounds_hold(program in programs()) {
            let mut program = program;
            program.settings.duration_ns = None;
            program.sections.retain(|section| {
                !matches!(section, Section::Unordered { extent: Extent::Time(_), .. })
            });
            let bounded = Bounds::of(&program).plan();
            let counted = counted(&program);
            let within = |name: &str, bound: Bound, number: Bound| {
                let number = number.high.unwrap();
                prop_assert!(
                    bound.low <= number && bound.high.is_some_and(|high| number <= high),
                    "{name}: {number} is not within {bound:?}"
                );
                Ok(())
            };
            within("commands", bounded.commands, counted.commands)?;
            within("written", bounded.bytes_written, counted.bytes_written)?;
            within("read", bounded.bytes_read, counted.bytes_read)?;
            within("objects", bounded.peak_live_objects, counted.peak_live_objects)?;
            within("bytes", bounded.peak_live_bytes, counted.peak_live_bytes)?;
            within("embedded", bounded.peak_embedded_bytes, counted.peak_embedded_bytes)?;
            within("objects left", bounded.final_live_objects, counted.final_live_objects)?;
            within("bytes left", bounded.final_live_bytes, counted.final_live_bytes)?;
            for Count { verb, commands } in &counted.counts {
                let bound = bounded.counts.iter().find(|count| count.verb == *verb).unwrap();
                within(verb, bound.commands, *commands)?;
            }
        }
    }
}
