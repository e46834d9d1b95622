//! What a node sees of what another node does to the same files: questions, their answers, and how often each was
//! as POSIX has it.
//!
//! Each question has a writer and a reader. The writer makes a file; the reader looks at it, so that it may keep
//! something of it; the writer changes it and tells the reader; and the reader looks again. Nothing here knows how
//! nodes talk ([`Meet`]). What a reader sees late is looked at until it is right, up to [`WAIT_MAX`].
//!
//! A batch of questions is asked at once: nodes prepare, look, change and answer all of them before they meet again.
//! A cluster file system lets a node keep a lock for a while before another one gets it (GFS2: 200 ms), and the
//! directory's goes from node to node in each step.

pub mod channel;
mod questions;

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use vocabulary::check::Check;

pub use questions::QUESTIONS;

use crate::sys::mapped::Mapped;

/// How long a reader waits for one right answer.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
const BATCH: u32 = 2 * QUESTIONS.len() as u32;

/// File systems that promise less than a local one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Close-to-open, locks and exclusive creation: RFC 7530, 9.3; RFC 8881, 10.3.
    Nfs,
    /// The data of an open file, locks and exclusive creation: mount.cifs(8), `cache=strict`. Attributes and names are
    /// cached.
    Smb,
    /// All but POSIX locks, with the stack o2cb.
    Ocfs2,
    /// All but POSIX locks, without dlm_controld.
    Gfs2,
}

impl Sort {
    /// That of the file system on which a directory lies; none that looks like a local one.
    pub fn of(directory: &Path) -> io::Result<Option<Sort>> {
        // statfs(2) has 32 bits of each.
        Ok(match rustix::fs::statfs(directory)?.f_type as u32 {
            0x6969 => Some(Sort::Nfs),
            0xFE53_4D42 | 0xFF53_4D42 => Some(Sort::Smb),
            0x7461_636F => Some(Sort::Ocfs2),
            0x0116_1970 => Some(Sort::Gfs2),
            _ => None,
        })
    }
}

/// Something that a node may rely on.
pub struct Question {
    pub name: &'static str,
    pub text: &'static str,
    /// Who does not promise it. A file system that looks like a local one promises all.
    pub not_by: &'static [Sort],
    /// Where it cannot be asked, and why.
    not_asked_on: Option<(Sort, &'static str)>,
    /// The writer, before anybody looks.
    prepare: fn(&QuestionFiles) -> io::Result<()>,
    /// The reader, before the change; what it keeps open.
    look: fn(&QuestionFiles) -> io::Result<Option<NodeView>>,
    /// The writer, and the reader at the same time where both change it.
    change: fn(&QuestionFiles, NodeRole) -> io::Result<Changed>,
    both: bool,
    /// The reader, once it was told: what it found in the place of what it should.
    answer: fn(&QuestionFiles, &ChangeSeen) -> io::Result<Option<String>>,
    /// Whether looking again can find what should be there.
    can_come: bool,
}

/// Who a node is in a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeRole {
    Writer,
    Reader,
}

/// What a node keeps of a file.
enum NodeView {
    Open(File),
    Mapped(Mapped),
}

/// What a change came to.
#[derive(Default)]
struct Changed {
    /// What the other node is told of it.
    said: u8,
    /// What stays open, and locked, until the answer is there.
    _held: Option<NodeView>,
}

/// What a reader has to answer with.
struct ChangeSeen {
    /// What it kept since it looked.
    held: Option<NodeView>,
    /// What the change said: the writer's and the reader's own.
    said: [u8; 2],
}

struct QuestionFiles {
    file: PathBuf,
    other: PathBuf,
}

impl QuestionFiles {
    fn of(directory: &Path, number: u32) -> QuestionFiles {
        let name = |part: &str| directory.join(format!("question-{number}-{part}"));
        QuestionFiles { file: name("file"), other: name("other") }
    }

    fn remove(&self) {
        for path in [&self.file, &self.other] {
            // One of the names, or both, may not be there any more.
            let _ = fs::remove_file(path);
        }
    }
}

/// How nodes wait for each other.
pub trait Meet {
    /// Says something to all, waits until all have said as much, and gives what each one said, the first node's
    /// first.
    fn meet(&mut self, said: &[u8]) -> Result<Vec<Vec<u8>>, String>;
}

/// A node among several, from 1.
#[derive(Debug, Clone, Copy)]
pub struct QuestionNode {
    pub number: u32,
    pub nodes: u32,
}

/// What is asked, and of whom.
#[derive(Debug, Clone, Copy)]
pub struct QuestionSet {
    /// How many questions, of each kind in turn.
    pub questions: u32,
    /// The node that takes part.
    pub member: QuestionNode,
    /// The file system that is asked, where it promises less than a local one.
    pub sort: Option<Sort>,
    /// How long one right answer is waited for.
    pub wait_max: Duration,
}

/// What a reader found in all questions of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// How often, and how often it was not right at first.
    pub check: Check,
    /// The longest time until it was right; [`QuestionSet::wait_max`] or more where it was not within that time.
    pub late_ns: u64,
    waited: Duration,
}

/// Asks; gives what this node found, a row for each of [`QUESTIONS`].
pub fn ask(
    asked: QuestionSet,
    directory: &Path,
    meet: &mut dyn Meet,
    stop: &AtomicBool,
) -> Result<Vec<Answers>, String> {
    // Opened once: a link in its place is refused, and another directory that takes its name is not used.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty())
        .map_err(|error| format!("opening {}: {error}", directory.display()))?;
    let directory = PathBuf::from(format!("/proc/thread-self/fd/{}", opened.as_raw_fd()));
    let mut answers: Vec<Answers> = QUESTIONS.iter().map(|one| one.unasked(asked.sort)).collect();
    for first in (0..asked.questions).step_by(BATCH as usize) {
        if stop.load(Ordering::SeqCst) {
            return Err("stopped".into());
        }
        let numbers = first..asked.questions.min(first + BATCH);
        let batch = Batch::of(numbers, asked, &directory);
        batch.ask(meet, &mut answers)?;
    }
    Ok(answers)
}

impl Question {
    /// How often it was answered, before it is asked.
    fn unasked(&self, sort: Option<Sort>) -> Answers {
        let check = match self.not_asked_on {
            Some((on, why)) if sort == Some(on) => Check::not_tried(self.name, why),
            _ => Check::new(self.name),
        };
        let not_promised = sort.is_some_and(|sort| self.not_by.contains(&sort));
        Answers { check: Check { not_promised, ..check }, ..Answers::default() }
    }
}

/// Questions that are asked at once, all with the same writer and reader.
struct Batch {
    asked: QuestionSet,
    /// The writer and the reader.
    pair: [u32; 2],
    role: Option<NodeRole>,
    /// Each with its number and its names.
    questions: Vec<(u32, &'static Question, QuestionFiles)>,
}

impl Batch {
    fn of(numbers: Range<u32>, asked: QuestionSet, directory: &Path) -> Batch {
        let pair = pair(numbers.start / BATCH, asked.member.nodes);
        let [writer, reader] = pair;
        let role = match asked.member.number {
            own if own == writer => Some(NodeRole::Writer),
            own if own == reader => Some(NodeRole::Reader),
            _ => None,
        };
        let can_be_asked = |question: &Question| {
            !question.not_asked_on.is_some_and(|(on, _)| asked.sort == Some(on))
        };
        let numbered = numbers.map(|number| {
            let kind = number as usize % QUESTIONS.len();
            (number, &QUESTIONS[kind], QuestionFiles::of(directory, number))
        });
        let mut questions: Vec<_> = numbered.filter(|(_, one, _)| can_be_asked(one)).collect();
        // What both do at the same time comes right after they have met.
        questions.sort_by_key(|(_, question, _)| !question.both);
        Batch { asked, pair, role, questions }
    }

    /// Does something for each question where this node has the role.
    fn each<T>(
        &self,
        role: NodeRole,
        what: &str,
        mut act: impl FnMut(&Question, &QuestionFiles) -> io::Result<T>,
    ) -> Result<Vec<Option<T>>, String> {
        let of_one = |(number, question, place): &(u32, &Question, QuestionFiles)| {
            if self.role != Some(role) {
                return Ok(None);
            }
            act(question, place)
                .map(Some)
                .map_err(|error| format!("{} (question {number}): {what}: {error}", question.name))
        };
        self.questions.iter().map(of_one).collect()
    }

    fn ask(&self, meet: &mut dyn Meet, answers: &mut [Answers]) -> Result<(), String> {
        self.each(NodeRole::Writer, "preparing", |question, place| (question.prepare)(place))?;
        meet.meet(&[0])?;
        let look = |question: &Question, place: &QuestionFiles| (question.look)(place);
        let held = self.each(NodeRole::Reader, "looking", look)?;
        meet.meet(&[0])?;
        let change = |role| {
            self.each(role, "the change", move |question: &Question, place: &QuestionFiles| {
                if question.both || role == NodeRole::Writer {
                    (question.change)(place, role)
                } else {
                    Ok(Changed::default())
                }
            })
        };
        let [written, read] = [change(NodeRole::Writer)?, change(NodeRole::Reader)?];
        let changed: Vec<Changed> = written
            .into_iter()
            .zip(read)
            .map(|(one, other)| one.or(other).unwrap_or_default())
            .collect();
        let own: Vec<u8> = changed.iter().map(|one| one.said).collect();
        let said = meet.meet(&own)?;
        if self.role == Some(NodeRole::Reader) {
            for (place, held) in held.into_iter().enumerate() {
                let said = self.pair.map(|node| said[node as usize - 1][place]);
                self.answer(place, &ChangeSeen { held: held.flatten(), said }, answers);
            }
        }
        meet.meet(&[0])?;
        drop(changed);
        if self.role == Some(NodeRole::Writer) {
            self.questions.iter().for_each(|(.., place)| place.remove());
        }
        Ok(())
    }

    fn answer(&self, at: usize, seen: &ChangeSeen, answers: &mut [Answers]) {
        let (number, question, place) = &self.questions[at];
        let found = || match (question.answer)(place, seen) {
            Ok(found) => found,
            Err(error) => Some(error.to_string()),
        };
        let wait_max = if question.can_come { self.asked.wait_max } else { Duration::ZERO };
        answers[*number as usize % QUESTIONS.len()].judge(*number, wait_max, found);
    }
}

/// The writer and the reader of a batch: every node has every neighbour as its reader, on both sides.
fn pair(batch: u32, nodes: u32) -> [u32; 2] {
    let writer = batch % nodes;
    let step = if (batch / nodes).is_multiple_of(2) { 1 } else { nodes - 1 };
    [writer + 1, (writer + step) % nodes + 1]
}

impl Answers {
    /// Counts what is found, and waits until nothing is found any more.
    fn judge(&mut self, number: u32, wait_max: Duration, mut look: impl FnMut() -> Option<String>) {
        let began = Instant::now();
        let found = look();
        self.check.count(found.as_ref().map(|found| format!("question {number}: {found}")));
        if found.is_none() {
            return;
        }
        // So long in all, until then each time in full: a cache of minutes would cost hours otherwise.
        let wait = if self.waited < wait_max { wait_max } else { Duration::ZERO };
        let mut is_right = false;
        while !is_right && began.elapsed() < wait {
            std::thread::sleep(LOOK_INTERVAL);
            is_right = look().is_none();
        }
        let late = began.elapsed();
        self.waited += late;
        // Of what was not waited for in full nothing is known.
        if is_right || (late >= wait_max && !wait_max.is_zero()) {
            self.late_ns = self.late_ns.max(late.as_nanos() as u64);
        }
    }
}

#[cfg(test)]
mod tests;
