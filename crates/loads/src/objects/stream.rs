//! The commands of a program, one after another: a pure function of its text and seed.
//!
//! The program is compiled to a short list of instructions, and a small interpreter walks it; what
//! it remembers is the live objects and one frame for each repetition that it is in, so that 10^9
//! commands cost no more memory than the objects that live at once. It works ahead by a batch of
//! [`BATCH`] commands: it decides which objects they take, has the processor fetch those, and only
//! then fills the commands in, so that the waits for memory overlap. The meaning of every statement
//! is written down in `docs/object-language.md`.
//!
//! Must not know: stores, clocks, threads. A section that lasts for a time is announced
//! ([`Step::Timed`]), and whoever has a clock ends it ([`Stream::end_timed_section`]).
//!
//! Invariants: a command never names an object that is not live; the generator draws the same
//! numbers whatever the stores answer; the stream ends, or yields a command, or announces a section
//! after a bounded number of steps.

use super::live::{LiveSet, Object};
use super::program::{Popularity, Program, Size};
use super::random::{Random, Zipf, mix, word_at};

mod compile;

use compile::Compiler;

/// Commands that the stream works ahead.
pub const BATCH: usize = 32;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Verb {
    /// Put a new object.
    Put,
    /// Put a new object into the journal.
    Embed,
    /// Put new contents for a live object.
    OverWrite,
    /// Read an object.
    Get,
    /// Delete an object.
    Delete,
    /// Delete all objects with keys of a range.
    DeleteRange,
    /// Make everything durable.
    Sync,
}

/// One command to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to do.
    pub verb: Verb,
    /// Whether the object is, or was, embedded in the journal.
    pub embedded: bool,
    /// Which of [`Stream::classes`] the object's size is of.
    pub class: u16,
    /// How often the object was overwritten, this command included.
    pub version: u32,
    /// Key of the object; the first key of a range.
    pub key: u64,
    /// Bytes of the object that is put, read or deleted; of all the objects that a range deletes.
    pub size: u64,
    /// The key after the last of a range.
    pub end_key: u64,
    /// Bytes that an overwritten object had before; objects that a range deletes.
    pub before: u64,
}

impl Command {
    fn of(verb: Verb, object: Object, size: u64) -> Command {
        Command {
            verb,
            embedded: object.embedded,
            class: object.class,
            version: object.version,
            key: object.key,
            size,
            end_key: object.key + 1,
            before: 0,
        }
    }
}

/// What the stream yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next command.
    Command(Command),
    /// A section begins that yields commands until it is ended, so many nanoseconds from now.
    Timed(u64),
    /// There is no more.
    End,
}

/// An instruction. Targets are places in the list of instructions.
#[derive(Clone, Copy, Debug)]
enum Code {
    New(u16),
    Embed(u16),
    OverWrite(u16, Select),
    Get(Select),
    Delete(Select),
    DeleteRange(u32, u32),
    Sync,
    /// Runs the instructions up to `end` (an [`Code::Again`]) this often, at least twice.
    Repeat {
        count: u64,
        end: usize,
        wakes: bool,
    },
    /// The end of a repetition.
    Again {
        wakes: bool,
    },
    /// Begins an unordered section.
    EnterMix(usize),
    /// Draws the next branch of the unordered section, or leaves it.
    Mix(usize),
    Jump(usize),
}

/// How an object is chosen.
#[derive(Clone, Copy, Debug)]
enum Select {
    /// Any, each equally likely.
    Any,
    /// The original's range of percentages.
    Range(u32, u32),
    /// By a popularity: place in [`Stream::zipfs`].
    Zipf(usize, Popularity),
}

/// An unordered section.
#[derive(Clone, Debug)]
struct Mix {
    branches: Vec<MixBranch>,
    /// Nanoseconds, for a section that lasts for a time.
    length_ns: Option<u64>,
    /// Where the program goes on.
    end: usize,
}

#[derive(Clone, Debug)]
struct MixBranch {
    /// Runs left, or the weight in a section that lasts for a time.
    left: u64,
    start: usize,
    /// Whether it does something even when no object is live.
    wakes: bool,
}

/// A command of which only the object is decided; what is remembered of that object is read when
/// the command's turn comes, after all commands before it were filled in.
#[derive(Clone, Copy, Debug)]
struct Pending {
    verb: Verb,
    /// The new class, for [`Verb::OverWrite`].
    class: u16,
    slot: usize,
}

/// A repetition that the interpreter is in.
#[derive(Clone, Copy, Debug)]
struct Frame {
    start: usize,
    left: u64,
}

/// The commands of a program.
#[derive(Clone, Debug)]
pub struct Stream {
    code: Vec<Code>,
    at: usize,
    batch: Vec<Pending>,
    batch_at: usize,
    /// Commands of the next batch: one in a section that lasts for a time, because it may be ended
    /// at any moment.
    batch_limit: usize,
    frames: Vec<Frame>,
    mixes: Vec<Mix>,
    /// What is left of the unordered section that the interpreter is in.
    mix_left: Vec<MixBranch>,
    mix_total: u64,
    zipfs: Vec<Zipf>,
    classes: Vec<Size>,
    /// The distributions of the classes that have one.
    class_zipfs: Vec<Option<Zipf>>,
    random: Random,
    /// Start of the sequence from which sizes of distributions are drawn.
    sizes_seed: u64,
    live: LiveSet,
    next_key: u64,
    skipped: u64,
}

impl Stream {
    /// The commands of this program, from the first.
    pub fn new(program: &Program) -> Stream {
        let mut compiler = Compiler::default();
        for section in &program.sections {
            compiler.section(section);
        }
        let seed = program.settings.seed;
        let class_zipfs = compiler
            .classes
            .iter()
            .map(|size| match *size {
                Size::Zipf { unit, max, exponent } => {
                    let mut zipf = Zipf::new(exponent);
                    zipf.set_count(max / unit);
                    Some(zipf)
                }
                _ => None,
            })
            .collect();
        Stream {
            code: compiler.code,
            at: 0,
            batch: Vec::with_capacity(BATCH),
            batch_at: 0,
            batch_limit: BATCH,
            frames: Vec::new(),
            mixes: compiler.mixes,
            mix_left: Vec::new(),
            mix_total: 0,
            zipfs: compiler.zipfs,
            classes: compiler.classes,
            class_zipfs,
            random: Random::new(seed),
            sizes_seed: mix(seed ^ 0x7369_7a65),
            live: LiveSet::default(),
            next_key: 1,
            skipped: 0,
        }
    }

    /// The sizes that the program names, each once; [`Command::class`] counts into them.
    pub fn classes(&self) -> &[Size] {
        &self.classes
    }

    /// The objects that are live after the last command.
    pub fn live(&self) -> &LiveSet {
        &self.live
    }

    /// Statements that yielded no command, because no object was live.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Bytes of an object.
    #[inline]
    pub fn size_of(&self, object: Object) -> u64 {
        match self.classes[object.class as usize] {
            Size::Fixed(size) => size,
            _ => self.drawn_size(object),
        }
    }

    /// A size of a distribution is a function of key and version, so it need not be remembered.
    #[cold]
    fn drawn_size(&self, object: Object) -> u64 {
        let start = word_at(self.sizes_seed ^ u64::from(object.version), object.key);
        let mut random = Random::new(start);
        match self.classes[object.class as usize] {
            Size::Fixed(size) => size,
            Size::Uniform(min, max) => min + random.below(max - min + 1),
            Size::LogNormal { median, sigma, max } => {
                let size = median as f64 * libm::exp(sigma * random.normal());
                (size.round() as u64).clamp(1, max)
            }
            Size::Zipf { unit, .. } => {
                let zipf = self.class_zipfs[object.class as usize]
                    .as_ref()
                    .expect("every class of this kind has its distribution");
                unit * zipf.rank(&mut random)
            }
        }
    }

    /// Ends the section that [`Step::Timed`] announced; outside of one, nothing happens.
    pub fn end_timed_section(&mut self) {
        self.mix_left.clear();
        self.mix_total = 0;
    }

    /// Ends the program early. Commands that were decided already (fewer than [`BATCH`]) are still
    /// yielded before [`Step::End`], so that the live objects are those of the commands yielded.
    pub fn stop(&mut self) {
        self.at = self.code.len();
    }

    /// The next command, or what else there is.
    #[inline]
    pub fn next_step(&mut self) -> Step {
        if let Some(&pending) = self.batch.get(self.batch_at) {
            self.batch_at += 1;
            return Step::Command(self.fill_in(pending));
        }
        self.next_batch()
    }

    /// Decides the next batch and yields its first command. What must not be decided ahead ends a
    /// batch: it is found again, with nothing pending, at the next call.
    fn next_batch(&mut self) -> Step {
        self.batch.clear();
        self.batch_at = 0;
        if self.live.is_sparse() {
            self.live.pack();
        }
        while self.batch.len() < self.batch_limit && !self.live.is_sparse() {
            let Some(&code) = self.code.get(self.at) else {
                if self.batch.is_empty() {
                    return Step::End;
                }
                break;
            };
            let must_be_alone = match code {
                Code::EnterMix(place) => self.mixes[place].length_ns.is_some(),
                Code::DeleteRange(..) => true,
                _ => false,
            };
            if must_be_alone && !self.batch.is_empty() {
                break;
            }
            self.at += 1;
            if let Some(step) = self.decide(code) {
                return step;
            }
        }
        self.batch_at = 1;
        Step::Command(self.fill_in(self.batch[0]))
    }

    /// Carries one instruction out. Most commands are only decided; what this returns is yielded
    /// at once.
    #[inline]
    fn decide(&mut self, code: Code) -> Option<Step> {
        match code {
            Code::New(class) => self.put(class, Verb::Put),
            Code::Embed(class) => self.put(class, Verb::Embed),
            Code::Sync => self.batch.push(Pending { verb: Verb::Sync, class: 0, slot: 0 }),
            Code::Repeat { count, end, wakes } => {
                if self.live.is_empty() && !wakes {
                    self.at = end + 1;
                    self.skipped += 1;
                } else {
                    self.frames.push(Frame { start: self.at, left: count - 1 });
                }
            }
            Code::Again { wakes } => self.again(wakes),
            Code::EnterMix(place) => {
                let mix = &self.mixes[place];
                self.mix_left.clone_from(&mix.branches);
                self.mix_total = mix.branches.iter().map(|branch| branch.left).sum();
                if let Some(length_ns) = mix.length_ns {
                    self.batch_limit = 1;
                    return Some(Step::Timed(length_ns));
                }
            }
            Code::Mix(place) => self.draw_branch(place),
            Code::Jump(target) => self.at = target,
            // What is left needs a live object.
            _ if self.live.is_empty() => self.skipped += 1,
            Code::Get(select) => {
                let older = self.choose(select);
                self.note(Verb::Get, 0, self.live.slot(older));
            }
            Code::Delete(select) => {
                let older = self.choose(select);
                let slot = self.live.take(older);
                self.note(Verb::Delete, 0, slot);
            }
            Code::OverWrite(class, select) => {
                let older = self.choose(select);
                self.note(Verb::OverWrite, class, self.live.slot(older));
            }
            Code::DeleteRange(from, to) => return Some(self.delete_range(from, to)),
        }
        None
    }

    #[inline]
    fn put(&mut self, class: u16, verb: Verb) {
        let slot = self.live.push(Object {
            key: self.next_key,
            version: 0,
            class,
            embedded: verb == Verb::Embed,
        });
        self.next_key += 1;
        self.batch.push(Pending { verb, class, slot });
    }

    /// The whole command, now that all before it are filled in.
    #[inline]
    fn fill_in(&mut self, pending: Pending) -> Command {
        if pending.verb == Verb::Sync {
            return SYNC;
        }
        let object = self.live.at(pending.slot);
        let size = self.size_of(object);
        if pending.verb != Verb::OverWrite {
            return Command::of(pending.verb, object, size);
        }
        let new = Object {
            key: object.key,
            version: object.version.wrapping_add(1),
            class: pending.class,
            embedded: false,
        };
        *self.live.at_mut(pending.slot) = new;
        Command { before: size, ..Command::of(Verb::OverWrite, new, self.size_of(new)) }
    }

    /// The objects of ranks `from` percent of `len - 1` up to, but not including, `to` percent of
    /// `len - 1`: so the newest object is never in the range.
    fn delete_range(&mut self, from: u32, to: u32) -> Step {
        let last = self.live.len() - 1;
        let start = last * from as usize / 100;
        let end = last * to as usize / 100;
        let key = self.live.at(self.live.slot(start)).key;
        let end_key = self.live.at(self.live.slot(end)).key;
        let mut doomed = Vec::new();
        self.live.bury_range(start..end, |object| doomed.push(object));
        let size = doomed.iter().map(|&object| self.size_of(object)).sum();
        Step::Command(Command {
            verb: Verb::DeleteRange,
            embedded: false,
            class: 0,
            version: 0,
            key,
            size,
            end_key,
            before: doomed.len() as u64,
        })
    }

    /// Decides which object a command takes, by how many live ones are older; one must be live.
    #[inline]
    fn choose(&mut self, select: Select) -> usize {
        let count = self.live.len() as u64;
        let older = match select {
            Select::Any => self.random.below(count),
            Select::Range(from, to) => {
                // Counted from 1, as the original does; both 0 and 1 are the oldest object.
                let from = count * u64::from(from) / 100;
                let to = count * u64::from(to) / 100;
                (from + self.random.below(to - from + 1)).saturating_sub(1)
            }
            Select::Zipf(place, order) => {
                let zipf = &mut self.zipfs[place];
                zipf.set_count(count);
                let rank = zipf.rank(&mut self.random);
                match order {
                    Popularity::Oldest => rank - 1,
                    Popularity::Newest => count - rank,
                    Popularity::Scattered => {
                        ((u128::from(mix(rank)) * u128::from(count)) >> 64) as u64
                    }
                }
            }
        };
        older as usize
    }

    /// Notes a command whose object is decided.
    #[inline]
    fn note(&mut self, verb: Verb, class: u16, slot: usize) {
        self.live.prefetch(slot);
        self.batch.push(Pending { verb, class, slot });
    }

    #[inline]
    fn again(&mut self, wakes: bool) {
        let frame = self.frames.last_mut().expect("every end of a repetition has a beginning");
        if frame.left == 0 || (!wakes && self.live.is_empty()) {
            self.frames.pop();
        } else {
            frame.left -= 1;
            self.at = frame.start;
        }
    }

    #[inline]
    fn draw_branch(&mut self, place: usize) {
        let nothing_wakes = self.live.is_empty()
            && !self.mix_left.iter().any(|branch| branch.wakes && branch.left > 0);
        if self.mix_total == 0 || nothing_wakes {
            self.at = self.mixes[place].end;
            self.batch_limit = BATCH;
            return;
        }
        let mut draw = self.random.below(self.mix_total);
        for branch in &mut self.mix_left {
            if draw < branch.left {
                self.at = branch.start;
                if self.mixes[place].length_ns.is_none() {
                    branch.left -= 1;
                    self.mix_total -= 1;
                }
                return;
            }
            draw -= branch.left;
        }
        unreachable!("the total is the sum of the branches");
    }
}

const SYNC: Command = Command {
    verb: Verb::Sync,
    embedded: false,
    class: 0,
    version: 0,
    key: 0,
    size: 0,
    end_key: 0,
    before: 0,
};

#[cfg(test)]
mod tests;
