//! What a node sees of what another node does to the same files: questions, their answers, and how often each was
//! as POSIX has it.
//!
//! Each question has a writer and a reader. The writer makes a file; the reader looks at it, so that it may keep
//! something of it; the writer changes it and tells the reader; and the reader looks again. Nothing here knows how
//! nodes talk ([`Meet`]), or which file system is asked. What a reader sees late is looked at until it is right, up
//! to [`WAIT_MAX`].

pub mod channel;
mod questions;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vocabulary::check::Check;

pub use questions::QUESTIONS;

/// How long a reader waits for one right answer.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Something that a node may rely on.
pub struct Question {
    /// The word for it.
    pub name: &'static str,
    /// What is relied on.
    pub text: &'static str,
    /// Whether NFS promises it: what is written before a close is seen after an open, locks and exclusive creation
    /// (RFC 7530, 9.3; RFC 8881, 10.3). A file system that looks like a local one promises all.
    pub by_nfs: bool,
    /// The writer, before anybody looks.
    prepare: fn(&Place) -> io::Result<()>,
    /// The reader, before the change; what it keeps open.
    look: fn(&Place) -> io::Result<Option<File>>,
    /// The writer, and the reader at the same time where both change it.
    change: fn(&Place, Role) -> io::Result<Changed>,
    both: bool,
    /// The reader, once it was told: what it found in the place of what it should.
    answer: fn(&Place, &Seen) -> io::Result<Option<String>>,
    /// Whether looking again can find what should be there.
    can_come: bool,
}

/// Who a node is in a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Writer,
    Reader,
}

/// What a change came to.
#[derive(Default)]
struct Changed {
    /// What the other node is told of it.
    said: u8,
    /// What stays open, and locked, until the answer is there.
    _held: Option<File>,
}

/// What a reader has to answer with.
struct Seen {
    /// What it kept open since it looked.
    held: Option<File>,
    /// What the change said: the writer's and the reader's own.
    said: [u8; 2],
}

/// The names of one question.
struct Place {
    file: PathBuf,
    other: PathBuf,
}

impl Place {
    fn of(directory: &Path, number: u32) -> Place {
        let name = |part: &str| directory.join(format!("question-{number}-{part}"));
        Place { file: name("file"), other: name("other") }
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
    /// Says something to all, waits until all have said something, and gives what each one said, the first node's
    /// first.
    fn meet(&mut self, said: u8) -> Result<Vec<u8>, String>;
}

/// A node among several, from 1.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Its number.
    pub number: u32,
    /// How many there are.
    pub nodes: u32,
}

/// What is asked, and of whom.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// How many questions, of each kind in turn.
    pub questions: u32,
    /// The node that takes part.
    pub member: Member,
    /// How long one right answer is waited for.
    pub wait_max: Duration,
}

/// What a reader found in all questions of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// How often, and how often it was not right at first.
    pub check: Check,
    /// The longest time until it was right; [`Asked::wait_max`] or more where it was not within that time.
    pub late_ns: u64,
    waited: Duration,
}

/// Asks; gives what this node found, a row for each of [`QUESTIONS`].
pub fn ask(
    asked: Asked,
    directory: &Path,
    meet: &mut dyn Meet,
    stop: &AtomicBool,
) -> Result<Vec<Answers>, String> {
    let new =
        |question: &Question| Answers { check: Check::new(question.name), ..Answers::default() };
    let mut answers: Vec<Answers> = QUESTIONS.iter().map(new).collect();
    let member = asked.member;
    for number in 0..asked.questions {
        if stop.load(Ordering::SeqCst) {
            return Err("stopped".into());
        }
        let kind = number as usize % QUESTIONS.len();
        let (question, place) = (&QUESTIONS[kind], Place::of(directory, number));
        let role = role_of(number, member);
        let failed = |what: &str, error: io::Error| {
            format!("{} (question {number}): {what}: {error}", question.name)
        };
        if role == Some(Role::Writer) {
            (question.prepare)(&place).map_err(|error| failed("preparing", error))?;
        }
        meet.meet(0)?;
        let held = match role {
            Some(Role::Reader) => {
                (question.look)(&place).map_err(|error| failed("looking", error))?
            }
            _ => None,
        };
        meet.meet(0)?;
        let changed = match role {
            Some(role) if question.both || role == Role::Writer => {
                (question.change)(&place, role).map_err(|error| failed("the change", error))?
            }
            _ => Changed::default(),
        };
        let said = meet.meet(changed.said)?;
        if role == Some(Role::Reader) {
            let [writer, reader] = pair(number, member.nodes);
            let said = [writer, reader].map(|node| said[node as usize - 1]);
            let found = |look: &Seen| match (question.answer)(&place, look) {
                Ok(found) => found,
                Err(error) => Some(error.to_string()),
            };
            let seen = Seen { held, said };
            let wait_max = if question.can_come { asked.wait_max } else { Duration::ZERO };
            answers[kind].judge(number, wait_max, || found(&seen));
        }
        meet.meet(0)?;
        drop(changed);
        if role == Some(Role::Writer) {
            place.remove();
        }
    }
    Ok(answers)
}

/// The writer and the reader of a question: every node has every neighbour as its reader, on both sides.
fn pair(number: u32, nodes: u32) -> [u32; 2] {
    let turn = number / QUESTIONS.len() as u32;
    let writer = turn % nodes;
    let step = if (turn / nodes).is_multiple_of(2) { 1 } else { nodes - 1 };
    [writer + 1, (writer + step) % nodes + 1]
}

fn role_of(number: u32, member: Member) -> Option<Role> {
    let [writer, reader] = pair(number, member.nodes);
    match member.number {
        own if own == writer => Some(Role::Writer),
        own if own == reader => Some(Role::Reader),
        _ => None,
    }
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
