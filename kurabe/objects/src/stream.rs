//! The commands of a program, one after another: a pure function of its text and seed.
//!
//! The program is compiled to a short list of instructions, and a small interpreter walks it; what
//! it remembers is the live objects and one frame for each repetition that it is in, so that 10^9
//! commands cost no more memory than the objects that live at once. The meaning of every statement
//! is written down in `docs/reference/object-language.md`.
//!
//! Must not know: stores, clocks, threads. A section that lasts for a time is announced
//! ([`StreamStep::Timed`]), and whoever has a clock ends it ([`Stream::end_timed_section`]).
//!
//! Invariants: a command never names an object that is not live; the generator draws the same
//! numbers whatever the stores answer; the stream ends, or yields a command, or announces a section
//! after a bounded number of steps.

use super::live::{LiveSet, Object};
use super::program::{ObjectSize, Popularity, Program};
use super::random::{Random, Zipf, mix, word_at};

mod compile;

use compile::Compiler;

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
    Delete,
    /// Delete all objects with keys of a range.
    DeleteRange,
    /// Make everything durable.
    Sync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStep {
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
    frames: Vec<Frame>,
    mixes: Vec<Mix>,
    /// What is left of the unordered section that the interpreter is in.
    mix_left: Vec<MixBranch>,
    mix_total: u64,
    zipfs: Vec<Zipf>,
    classes: Vec<ObjectSize>,
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
                ObjectSize::Zipf { unit, max, exponent } => {
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
    pub fn classes(&self) -> &[ObjectSize] {
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
    pub fn size_of(&self, object: Object) -> u64 {
        match self.classes[object.class as usize] {
            ObjectSize::Fixed(size) => size,
            _ => self.drawn_size(object),
        }
    }

    /// A size of a distribution is a function of key and version, so it need not be remembered.
    fn drawn_size(&self, object: Object) -> u64 {
        let start = word_at(self.sizes_seed ^ u64::from(object.version), object.key);
        let mut random = Random::new(start);
        match self.classes[object.class as usize] {
            ObjectSize::Fixed(size) => size,
            ObjectSize::Uniform(min, max) => min + random.below(max - min + 1),
            ObjectSize::LogNormal { median, sigma, max } => {
                let size = median as f64 * libm::exp(sigma * random.normal());
                (size.round() as u64).clamp(1, max)
            }
            ObjectSize::Zipf { unit, .. } => {
                let zipf = self.class_zipfs[object.class as usize]
                    .as_ref()
                    .expect("every class of this kind has its distribution");
                unit * zipf.rank(&mut random)
            }
        }
    }

    /// Ends the section that [`StreamStep::Timed`] announced; outside of one, nothing happens.
    pub fn end_timed_section(&mut self) {
        self.mix_left.clear();
        self.mix_total = 0;
    }

    /// Ends the program early.
    pub fn stop(&mut self) {
        self.at = self.code.len();
    }

    /// The next command, or what else there is.
    pub fn next_step(&mut self) -> StreamStep {
        while let Some(&code) = self.code.get(self.at) {
            self.at += 1;
            if let Some(step) = self.carry_out(code) {
                return step;
            }
        }
        StreamStep::End
    }

    /// Carries one instruction out; returns what it yields, if anything.
    fn carry_out(&mut self, code: Code) -> Option<StreamStep> {
        let command = match code {
            Code::New(class) => self.put(class, Verb::Put),
            Code::Embed(class) => self.put(class, Verb::Embed),
            Code::Sync => SYNC,
            Code::Repeat { count, end, wakes } => {
                if self.live.is_empty() && !wakes {
                    self.at = end + 1;
                    self.skipped += 1;
                } else {
                    self.frames.push(Frame { start: self.at, left: count - 1 });
                }
                return None;
            }
            Code::Again { wakes } => {
                self.again(wakes);
                return None;
            }
            Code::EnterMix(place) => {
                let mix = &self.mixes[place];
                self.mix_left.clone_from(&mix.branches);
                self.mix_total = mix.branches.iter().map(|branch| branch.left).sum();
                return mix.length_ns.map(StreamStep::Timed);
            }
            Code::Mix(place) => {
                self.draw_branch(place);
                return None;
            }
            Code::Jump(target) => {
                self.at = target;
                return None;
            }
            // What is left needs a live object.
            _ if self.live.is_empty() => {
                self.skipped += 1;
                return None;
            }
            Code::Get(select) => {
                let older = self.choose(select);
                let object = self.live.get(older);
                Command::of(Verb::Get, object, self.size_of(object))
            }
            Code::Delete(select) => {
                let older = self.choose(select);
                let object = self.live.remove(older);
                Command::of(Verb::Delete, object, self.size_of(object))
            }
            Code::OverWrite(class, select) => self.overwrite(class, select),
            Code::DeleteRange(from, to) => self.delete_range(from, to),
        };
        Some(StreamStep::Command(command))
    }

    fn put(&mut self, class: u16, verb: Verb) -> Command {
        let embedded = verb == Verb::Embed;
        let object = Object { key: self.next_key, version: 0, class, embedded };
        self.next_key += 1;
        self.live.push(object);
        Command::of(verb, object, self.size_of(object))
    }

    fn overwrite(&mut self, class: u16, select: Select) -> Command {
        let older = self.choose(select);
        let object = self.live.get_mut(older);
        let old = *object;
        let version = old.version.wrapping_add(1);
        let new = Object { key: old.key, version, class, embedded: false };
        *object = new;
        let before = self.size_of(old);
        Command { before, ..Command::of(Verb::OverWrite, new, self.size_of(new)) }
    }

    /// The objects of ranks `from` percent of `len - 1` up to, but not including, `to` percent of
    /// `len - 1`: so the newest object is never in the range.
    fn delete_range(&mut self, from: u32, to: u32) -> Command {
        let last = self.live.len() - 1;
        let start = last * from as usize / 100;
        let end = last * to as usize / 100;
        let mut range = SYNC;
        range.verb = Verb::DeleteRange;
        range.key = self.live.get(start).key;
        range.end_key = self.live.get(end).key;
        for _ in start..end {
            let object = self.live.remove(start);
            range.size += self.size_of(object);
            range.before += 1;
        }
        range
    }

    /// Decides which object a command takes, by how many live ones are older; one must be live.
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

    fn again(&mut self, wakes: bool) {
        let frame = self.frames.last_mut().expect("every end of `times` has a beginning");
        if frame.left == 0 || (!wakes && self.live.is_empty()) {
            self.frames.pop();
        } else {
            frame.left -= 1;
            self.at = frame.start;
        }
    }

    fn draw_branch(&mut self, place: usize) {
        let nothing_wakes = self.live.is_empty()
            && !self.mix_left.iter().any(|branch| branch.wakes && branch.left > 0);
        if self.mix_total == 0 || nothing_wakes {
            self.at = self.mixes[place].end;
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
