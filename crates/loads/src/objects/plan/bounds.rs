//! What the text of a program alone says of its figures: for programs that are too long to count.
//!
//! Must not know: the stream. A property test holds what is said here against what the stream does.

use super::{Bound, Count, Plan, VERBS};
use crate::objects::program::{Branch, Extent, Program, Section, Size, Statement, share};
use crate::objects::stream::Verb;

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
pub(super) struct Bounds {
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
    pub(super) fn of(program: &Program) -> Bounds {
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

    pub(super) fn plan(&self) -> Plan {
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
