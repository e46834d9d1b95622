//! What clients did, when, and what may be visible: while the store is open, and after it is opened
//! anew.
//!
//! Each change has a time when it began and one when it was answered. A change is certainly before
//! another one if it was answered before that one began; two that overlap may have any order.

use std::collections::{BTreeMap, BTreeSet};

pub type Key = u128;
/// The value of each key that has one.
pub type Content = BTreeMap<Key, Vec<u8>>;

/// What a change does.
#[derive(Clone, Debug)]
pub enum Act {
    Put(Key, Vec<u8>),
    Delete(Key),
    DeleteRange(Key, Key),
    /// Changes nothing, and makes durable what was answered before.
    Barrier,
}

impl Act {
    fn touches(&self, key: Key) -> bool {
        match self {
            Self::Put(own, _) | Self::Delete(own) => *own == key,
            Self::DeleteRange(first, last) => (*first..=*last).contains(&key),
            Self::Barrier => false,
        }
    }

    /// What a key that it touches has after it.
    fn value(&self) -> Option<&Vec<u8>> {
        match self {
            Self::Put(_, value) => Some(value),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// None yet, or one that leaves open whether it took place.
    Open,
    Done,
    /// It did not take place, and never will have.
    Failed,
}

/// What an answer promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Durable,
    /// It survives the end of the process.
    Written,
    /// It survives nothing, until a barrier that is durable.
    Buffered,
}

#[derive(Clone, Debug)]
struct Change {
    act: Act,
    level: Level,
    begin: u64,
    end: u64,
    answer: Answer,
}

/// All that was done since the store was last looked at as a whole.
#[derive(Clone, Default)]
pub struct History {
    time: u64,
    base: Content,
    changes: Vec<Change>,
    /// Changes of one key at the same time, of which a reader saw the second one later.
    order: BTreeSet<(usize, usize)>,
}

/// What is known of a change when it is to be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// What was promised: the power failed, or a flush.
    Promised,
    /// All that was answered: only the process ended, in good order.
    Answered,
    /// All that was written: the process was killed.
    Written,
}

impl History {
    /// A history that begins with what the store has, for sure.
    pub fn new(base: Content) -> Self {
        Self { base, ..Self::default() }
    }

    pub fn now(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// A change begins; returns its number.
    pub fn begin(&mut self, act: Act, level: Level) -> usize {
        let begin = self.now();
        self.changes.push(Change { act, level, begin, end: u64::MAX, answer: Answer::Open });
        self.changes.len() - 1
    }

    pub fn end(&mut self, number: usize, answer: Answer) {
        let end = self.now();
        let change = &mut self.changes[number];
        if answer != Answer::Open {
            (change.end, change.answer) = (end, answer);
        }
    }

    /// Whether a change is certainly before another one.
    fn is_before(&self, one: usize, other: usize) -> bool {
        let (first, second) = (&self.changes[one], &self.changes[other]);
        first.answer == Answer::Done
            && (first.end < second.begin || self.order.contains(&(one, other)))
    }

    /// Whether a change is there wherever another one is. What was buffered comes with what was buffered later,
    /// with a barrier, and with what changes the same keys in another way.
    fn comes_with(&self, one: usize, other: usize) -> bool {
        let (first, second) = (&self.changes[one], &self.changes[other]);
        let touches_same = |key: Key| first.act.touches(key) && second.act.touches(key);
        self.is_before(one, other)
            && (first.level != Level::Buffered
                || second.level == Level::Buffered
                || matches!(second.act, Act::Barrier | Act::DeleteRange(..))
                || (0..64).any(touches_same))
    }

    /// The changes of a key.
    fn of(&self, key: Key) -> Vec<usize> {
        let all = 0..self.changes.len();
        all.filter(|at| self.changes[*at].act.touches(key)).collect()
    }

    /// Whether a read from `begin` until now may have found this.
    pub fn may_read(&mut self, key: Key, found: Option<&Vec<u8>>, begin: u64) -> bool {
        let now = self.now();
        let own = self.of(key);
        let past: Vec<usize> = own
            .iter()
            .copied()
            .filter(|at| {
                let one = &self.changes[*at];
                one.answer == Answer::Done && one.end < begin
            })
            .collect();
        let may_be = |at: &usize| {
            let one = &self.changes[*at];
            one.act.value() == found
                && one.begin < now
                && one.answer != Answer::Failed
                && !past.iter().any(|later| self.is_before(*at, *later))
        };
        let causes: Vec<usize> = own.into_iter().filter(may_be).collect();
        let is_base = self.base.get(&key) == found && past.is_empty();
        // What was answered before the read began came before what it found.
        if let ([cause], false) = (&causes[..], is_base) {
            let before = past.iter().filter(|at| *at != cause).map(|at| (*at, *cause));
            self.order.extend(before.collect::<Vec<_>>());
        }
        is_base || !causes.is_empty()
    }

    /// Whether this key may have a value that a failed flush lost.
    pub fn may_be_lost(&self, key: Key) -> bool {
        let kept = self.kept(Kept::Promised);
        let mut own = self.changes.iter().enumerate().filter(|(_, one)| one.act.touches(key));
        own.any(|(at, one)| one.act.value().is_some() && !kept.contains(&at))
    }

    /// The changes that must be there.
    fn kept(&self, kept: Kept) -> BTreeSet<usize> {
        let all = 0..self.changes.len();
        let done: Vec<usize> = all.filter(|at| self.changes[*at].answer == Answer::Done).collect();
        let is_enough = |at: &usize| match self.changes[*at].level {
            Level::Durable => true,
            Level::Written => kept != Kept::Promised,
            Level::Buffered => kept == Kept::Answered,
        };
        let enough: Vec<usize> = done.iter().copied().filter(is_enough).collect();
        let is_kept =
            |at: &usize| is_enough(at) || enough.iter().any(|after| self.comes_with(*at, *after));
        done.into_iter().filter(is_kept).collect()
    }

    /// Judges what an opening found; `lost` are keys of which nothing can be said.
    pub fn judge(&self, found: &Content, kept: Kept, lost: &BTreeSet<Key>) -> Result<(), String> {
        let mut must = self.kept(kept);
        let keys: BTreeSet<Key> = self.keys().chain(found.keys().copied()).collect();
        let keys: Vec<Key> = keys.into_iter().filter(|key| !lost.contains(key)).collect();
        loop {
            let mut certain = BTreeSet::new();
            for &key in &keys {
                let value = found.get(&key);
                let causes = self.causes(key, value, &must);
                match causes[..] {
                    [] => return Err(self.explain(key, value, &must)),
                    // What is there has all before it.
                    [Some(one)] => certain.extend(self.before(one)),
                    _ => {}
                }
            }
            let before = must.len();
            must.extend(certain);
            if must.len() == before {
                break;
            }
        }
        self.judge_ranges(found, &must, &keys)
    }

    /// Whether all values that were found were put under their keys.
    pub fn judge_values(&self, found: &Content) -> Result<(), String> {
        for (key, value) in found {
            let is_put = |one: &Change| one.act.touches(*key) && one.act.value() == Some(value);
            if self.base.get(key) != Some(value) && !self.changes.iter().any(is_put) {
                return Err(format!("key {key} has {}", shown(Some(value))));
            }
        }
        Ok(())
    }

    fn keys(&self) -> impl Iterator<Item = Key> {
        let touched = self.changes.iter().filter_map(|one| match one.act {
            Act::Put(key, _) | Act::Delete(key) => Some(key..=key),
            Act::DeleteRange(first, last) => Some(first..=last),
            Act::Barrier => None,
        });
        let touched = touched.flatten();
        touched.chain(self.base.keys().copied())
    }

    fn before(&self, number: usize) -> impl Iterator<Item = usize> {
        let all = 0..self.changes.len();
        all.filter(move |at| *at == number || self.comes_with(*at, number))
    }

    /// The changes that can be why a key has this value; `None` is what there was before all.
    fn causes(
        &self,
        key: Key,
        value: Option<&Vec<u8>>,
        must: &BTreeSet<usize>,
    ) -> Vec<Option<usize>> {
        let own = self.of(key);
        let later = |one: Option<usize>| {
            let mut kept = own.iter().filter(|at| must.contains(at));
            kept.any(|other| one.is_none_or(|one| self.is_before(one, *other)))
        };
        let mut causes = Vec::new();
        if self.base.get(&key) == value && !later(None) {
            causes.push(None);
        }
        for &at in &own {
            let one = &self.changes[at];
            let can_be = one.act.value() == value && one.answer != Answer::Failed;
            if can_be && !later(Some(at)) {
                causes.push(Some(at));
            }
        }
        causes
    }

    /// A delete of a range is one change: it is there for all of its keys, or for none.
    fn judge_ranges(
        &self,
        found: &Content,
        must: &BTreeSet<usize>,
        keys: &[Key],
    ) -> Result<(), String> {
        for (at, one) in self.changes.iter().enumerate() {
            if !matches!(one.act, Act::DeleteRange(..)) {
                continue;
            }
            let own = keys.iter().filter(|key| one.act.touches(**key));
            let (mut made, mut unmade) = (None, None);
            for &key in own {
                let causes = self.causes(key, found.get(&key), must);
                if causes == [Some(at)] {
                    made = Some(key);
                }
                // What is there was answered before the range was deleted.
                let is_older =
                    |cause: &Option<usize>| cause.is_none_or(|cause| self.is_before(cause, at));
                if found.contains_key(&key) && causes.iter().all(is_older) {
                    unmade = Some(key);
                }
            }
            if let (Some(made), Some(unmade)) = (made, unmade) {
                return Err(format!("half of {:?}: not {unmade}, but {made}", one.act));
            }
        }
        Ok(())
    }

    fn explain(&self, key: Key, value: Option<&Vec<u8>>, must: &BTreeSet<usize>) -> String {
        let mut text = format!("key {key} has {}, although:", shown(value));
        text += &format!("\n  before: {}", shown(self.base.get(&key)));
        for (at, one) in self.changes.iter().enumerate().filter(|(_, one)| one.act.touches(key)) {
            let what = match &one.act {
                Act::Put(_, value) => format!("put {}", shown(Some(value))),
                act => format!("{act:?}"),
            };
            text += &format!(
                "\n  {}..{}: {what}, {:?}, {:?}, kept {}",
                one.begin,
                if one.end == u64::MAX { 0 } else { one.end },
                one.level,
                one.answer,
                must.contains(&at)
            );
        }
        text
    }
}

pub fn shown(value: Option<&Vec<u8>>) -> String {
    match value {
        None => "nothing".into(),
        Some(value) => {
            let word = value.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            format!("{} bytes, {word:x}", value.len())
        }
    }
}
