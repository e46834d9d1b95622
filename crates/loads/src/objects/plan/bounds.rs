//! What the text of a program alone says of its figures: for programs that are too long to count.
//!
//! Must not know: the stream. A property test holds what is said here against what the stream does.

use super::{Bound, Count, Plan, VERBS};
use crate::objects::program::{Branch, Extent, Program, Section, Size, Statement, has, share};
use crate::objects::stream::Verb;

/// What the text alone says of the figures.
pub(super) struct Bounds {
    counts: [Bound; VERBS.len()],
    written: Bound,
    created_bytes: Bound,
    embedded_bytes: Bound,
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
            counts: [Bound::exactly(0); VERBS.len()],
            written: Bound::exactly(0),
            created_bytes: Bound::exactly(0),
            embedded_bytes: Bound::exactly(0),
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
            Section::Command { body } => self.body(body, Bound::exactly(1)),
            Section::Ordered { count, branches } => {
                for Branch { percent, body } in branches {
                    self.repeated(body, share(*count, *percent), Bound::exactly(1));
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
                    self.repeated(body, share(*count, *percent), Bound::exactly(1));
                    becomes_live |= self.is_live;
                }
                self.is_live = becomes_live;
            }
            Section::Unordered { extent: Extent::Time(length_ns), branches } => {
                // An open loop begins at most so many commands; each may be of any branch.
                let high =
                    rate.map(|rate| ((rate * *length_ns as f64 / 1e9) as u64).saturating_add(2));
                let was_live = self.is_live;
                self.may_be_live |=
                    branches.iter().any(|branch| branch.percent > 0 && has_creation(&branch.body));
                for Branch { percent, body } in branches {
                    if *percent > 0 {
                        self.is_live = was_live;
                        self.body(body, Bound { low: 0, high });
                    }
                }
                self.is_live = was_live;
            }
        }
    }

    /// A body that runs `count` times for each of `times`.
    fn repeated(&mut self, body: &[Statement], count: u64, times: Bound) {
        if count == 0 {
            return;
        }
        // The first turn may skip statements that later turns find an object for. Looking twice is
        // only worth it, and only ends soon in nested repetitions, when this turn can change that.
        if count > 1 && !self.is_live && times.low > 0 && has_creation(body) {
            // For each of `times` only the very first turn of all begins without an object.
            self.body(body, Bound::exactly(1));
            let rest = times.times(count, count);
            self.body(
                body,
                Bound { low: rest.low - 1, high: rest.high.map(|high| high.saturating_sub(1)) },
            );
        } else {
            self.body(body, times.times(count, count));
        }
    }

    fn body(&mut self, body: &[Statement], times: Bound) {
        for statement in body {
            match statement {
                Statement::New(size) => self.create(Verb::Put, size, times),
                Statement::Embed(size) => self.create(Verb::Embed, size, times),
                Statement::OverWrite(size, _) => {
                    let sure = self.needing(Verb::OverWrite, times);
                    self.written = self.written.plus(sure.times(size.min(), size.max()));
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
                Statement::Sync => self.count(Verb::Sync, times),
                Statement::Times(count, body) => self.repeated(body, *count, times),
            }
        }
    }

    fn create(&mut self, verb: Verb, size: &Size, times: Bound) {
        self.count(verb, times);
        let bytes = times.times(size.min(), size.max());
        self.written = self.written.plus(bytes);
        self.created_bytes = self.created_bytes.plus(bytes);
        if verb == Verb::Embed {
            self.embedded_bytes = self.embedded_bytes.plus(bytes);
        }
        self.note_size(size);
        self.is_live |= times.low > 0;
        self.may_be_live = true;
    }

    /// Counts a statement that needs a live object; returns how often it runs.
    fn needing(&mut self, verb: Verb, times: Bound) -> Bound {
        if !self.may_be_live {
            return Bound::exactly(0);
        }
        let sure = if self.is_live && !self.deletes { times.low } else { 0 };
        let runs = Bound { low: sure, ..times };
        self.count(verb, runs);
        runs
    }

    fn count(&mut self, verb: Verb, times: Bound) {
        let count = &mut self.counts[verb as usize];
        *count = count.plus(times);
    }

    fn note_size(&mut self, size: &Size) {
        let (min, max) = self.sizes.unwrap_or((u64::MAX, 0));
        self.sizes = Some((min.min(size.min()), max.max(size.max())));
    }

    pub(super) fn plan(&self) -> Plan {
        let count = |verb: Verb| self.counts[verb as usize];
        let commands = self.counts.into_iter().fold(Bound::exactly(0), Bound::plus);
        let (size_min, size_max) = self.sizes.unwrap_or((0, 0));
        let created = count(Verb::Put).plus(count(Verb::Embed));
        let overwrites = count(Verb::OverWrite).high != Some(0);
        let live_objects = Bound { low: if self.deletes { 0 } else { created.low }, ..created };
        let live_bytes = Bound {
            low: if self.deletes || overwrites { 0 } else { self.created_bytes.low },
            // Overwriting adds at most what it writes.
            high: self.written.high,
        };
        let mut plan = Plan {
            exact: false,
            method: "bounded from the text; the program is too long to count".to_owned(),
            commands,
            counts: VERBS
                .iter()
                .filter(|(verb, _)| count(*verb).high != Some(0))
                .map(|(verb, name)| Count { verb: (*name).to_owned(), commands: count(*verb) })
                .collect(),
            bytes_written: self.written,
            bytes_read: count(Verb::Get).times(size_min, size_max),
            peak_live_objects: live_objects,
            peak_live_bytes: live_bytes,
            peak_embedded_bytes: Bound { low: 0, ..self.embedded_bytes },
            final_live_objects: live_objects,
            final_live_bytes: live_bytes,
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

fn has_creation(body: &[Statement]) -> bool {
    has(body, |statement| matches!(statement, Statement::New(_) | Statement::Embed(_)))
}

fn has_delete(body: &[Statement]) -> bool {
    has(body, |statement| matches!(statement, Statement::Delete(_) | Statement::DeleteRange(_)))
}
