//! One thread of a run: takes commands, carries them out, times and compares.
//!
//! Must not know: how many threads there are, the plan.

use vocabulary::check::Check;

use super::{INTERVAL, Run, check_name, failure};
use crate::contents::ContentIdentity;
use crate::feed::{SharedFeed, Task};
use crate::report::{ProgramFailure, Verification};
use crate::store::{StoreError, StoreSession};
use crate::stream::{Command, Verb};
use measure::latency::{KindId, LatencyRecorder, LatencyRecording};

/// What came of one thread.
#[derive(Default)]
pub(super) struct WorkerReport {
    pub recording: Option<LatencyRecording>,
    pub failure: Option<Box<ProgramFailure>>,
    pub commands: u64,
    pub ended_ns: u64,
    pub bytes_written: u64,
    pub bytes_read: u64,
    pub verification: Verification,
    pub check: Check,
}

impl WorkerReport {
    /// Nothing yet, of a run whose check has this name.
    pub(super) fn nothing(check_name: &str) -> WorkerReport {
        WorkerReport { check: Check::new(check_name), ..WorkerReport::default() }
    }
}

/// One thread at work.
pub(super) struct Worker<'a> {
    run: &'a Run<'a>,
    session: Box<dyn StoreSession + 'a>,
    recorder: LatencyRecorder,
    /// For each size, the kind of each verb, once it was recorded.
    kinds: Vec<[Option<KindId>; VERBS]>,
    sum: WorkerReport,
}

const VERBS: usize = Verb::Sync as usize + 1;

impl<'a> Worker<'a> {
    pub(super) fn new(run: &'a Run<'a>, session: Box<dyn StoreSession + 'a>) -> Worker<'a> {
        Worker {
            run,
            session,
            recorder: LatencyRecorder::with_intervals(INTERVAL),
            kinds: vec![[None; VERBS]; run.classes.len().max(1)],
            sum: WorkerReport::nothing(check_name(run.options.verify)),
        }
    }

    pub(super) fn work(mut self, feed: &SharedFeed<'_>) -> WorkerReport {
        let mut now_ns = self.run.clock.now_ns();
        let mut before: Option<Task> = None;
        while let Some(task) = feed.take(before.as_ref(), now_ns) {
            if let Some(intended_ns) = task.intended_ns {
                self.run.clock.wait_until(intended_ns);
            }
            if !feed.wait_for_earlier(&task) {
                break;
            }
            match self.carry_out_aloud(&task) {
                Ok(ended_ns) => now_ns = ended_ns,
                Err(failure) => {
                    self.sum.failure = Some(failure);
                    break;
                }
            }
            self.sum.commands += 1;
            before = Some(task);
        }
        self.sum.ended_ns = now_ns;
        self.sum.recording = Some(self.recorder.finish());
        self.sum
    }

    /// Carries one command out, and says what it made durable where somebody listens.
    fn carry_out_aloud(&mut self, task: &Task) -> Result<u64, Box<ProgramFailure>> {
        let Some(acknowledgements) = self.run.options.acknowledgements.as_deref() else {
            return self.carry_out(task);
        };
        let unheard = |error: std::io::Error| {
            let words = format!("acknowledging: {error}");
            Box::new(failure(&described(&task.command), StoreError::Failed(words)))
        };
        let promised = acknowledgements.begin(&task.command).map_err(unheard)?;
        let ended_ns = self.carry_out(task)?;
        acknowledgements.end(&task.command, promised).map_err(unheard)?;
        Ok(ended_ns)
    }

    fn identity(&self, command: &Command) -> ContentIdentity {
        ContentIdentity { salt: self.run.options.salt, key: command.key, version: command.version }
    }

    /// Carries one command out and records it; returns when it ended. One long match, so that what
    /// is timed stands beside what is not.
    fn carry_out(&mut self, task: &Task) -> Result<u64, Box<ProgramFailure>> {
        let command = &task.command;
        let clock = self.run.clock;
        let failed = |error| Box::new(failure(&described(command), error));
        let mut bytes = 0;
        let started_ns;
        let ended_ns;
        match command.verb {
            Verb::Put | Verb::Embed | Verb::OverWrite => {
                bytes = command.size;
                self.sum.bytes_written += bytes;
                let identity = self.identity(command);
                let embedded = command.verb == Verb::Embed;
                let size = usize::try_from(command.size).expect("the plan was checked");
                identity.fill(self.session.prepare(size, embedded).map_err(failed)?);
                started_ns = clock.now_ns();
                self.session.put(command.key).map_err(failed)?;
                ended_ns = clock.now_ns();
            }
            Verb::Get => {
                bytes = command.size;
                self.sum.bytes_read += bytes;
                let identity = self.identity(command);
                started_ns = clock.now_ns();
                let found = self.session.get(command.key);
                ended_ns = clock.now_ns();
                if self.run.keeps_contents {
                    let whole = self.run.options.verify;
                    let wrong = compare(&identity, command.size, found, whole).map_err(failed)?;
                    self.sum.check.count(of(command, wrong).err());
                } else {
                    found.map_err(failed)?;
                }
                if self.run.options.verify {
                    self.sum.verification.gets += 1;
                    self.sum.verification.bytes += command.size;
                }
            }
            Verb::Delete => {
                let mut wrong = Ok(());
                if self.run.options.verify {
                    let identity = self.identity(command);
                    let found = self.session.get(command.key);
                    wrong = compare(&identity, command.size, found, true).map_err(failed)?;
                    self.sum.verification.deletes += 1;
                    self.sum.verification.bytes += command.size;
                }
                started_ns = clock.now_ns();
                let existed = self.session.delete(command.key).map_err(failed)?;
                ended_ns = clock.now_ns();
                if self.run.keeps_contents {
                    if !existed {
                        wrong = wrong.and(Err("there was no such object".into()));
                    }
                    self.sum.check.count(of(command, wrong).err());
                }
            }
            Verb::DeleteRange => {
                started_ns = clock.now_ns();
                let keys = command.key..command.end_key;
                let deleted = self.session.delete_range(keys).map_err(failed)?;
                ended_ns = clock.now_ns();
                if self.run.keeps_contents {
                    let wrong = match command.before {
                        expected if expected == deleted => Ok(()),
                        expected => {
                            Err(format!("{deleted} objects were deleted instead of {expected}"))
                        }
                    };
                    self.sum.check.count(of(command, wrong).err());
                }
            }
            Verb::Sync => {
                started_ns = clock.now_ns();
                self.run.store.sync().map_err(failed)?;
                ended_ns = clock.now_ns();
            }
        }
        let from_ns = task.intended_ns.unwrap_or(started_ns);
        let kind = self.kind(command);
        self.recorder.record_at(kind, ended_ns, ended_ns.saturating_sub(from_ns), bytes);
        Ok(ended_ns)
    }

    /// The kind of a command, as CannylsBencher names it: overwriting is a put.
    fn kind(&mut self, command: &Command) -> KindId {
        let (name, sized) = match command.verb {
            Verb::Put | Verb::OverWrite => ("Put", true),
            Verb::Embed => ("Embed", true),
            Verb::Get => ("Get", true),
            Verb::Delete => ("Delete", false),
            Verb::DeleteRange => ("DeleteRange", false),
            Verb::Sync => ("Sync", false),
        };
        let class = if sized { usize::from(command.class) } else { 0 };
        let known = &mut self.kinds[class][command.verb as usize];
        *known.get_or_insert_with(|| {
            if sized {
                self.recorder.kind(&format!("{name}({})", self.run.classes[class]))
            } else {
                self.recorder.kind(name)
            }
        })
    }
}

/// What was wrong of an answer, for a check; nothing where it was right.
pub(super) type WrongAnswer = Result<(), String>;

/// Compares what was read with what was put; only its length unless `whole`. An object that the
/// store cannot read any more is lost.
pub(super) fn compare(
    identity: &ContentIdentity,
    size_bytes: u64,
    found: Result<Option<&[u8]>, StoreError>,
    whole: bool,
) -> Result<WrongAnswer, StoreError> {
    let key = identity.key;
    let found = match found {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Err(format!("object {key} is missing"))),
        Err(error @ (StoreError::Failed(_) | StoreError::System { .. })) => {
            return Ok(Err(format!("object {key} cannot be read: {error}")));
        }
        Err(error) => return Err(error),
    };
    if !whole && found.len() as u64 == size_bytes {
        return Ok(Ok(()));
    }
    Ok(identity.check(size_bytes, found).map_err(|difference| difference.to_string()))
}

fn described(command: &Command) -> String {
    match command.verb {
        Verb::DeleteRange => {
            format!("DeleteRange of keys {} to {}", command.key, command.end_key)
        }
        Verb::Sync => "Sync".to_owned(),
        verb => format!("{verb:?} of object {} ({} bytes)", command.key, command.size),
    }
}

/// What was wrong of a command's answer, with the command.
fn of(command: &Command, wrong: WrongAnswer) -> WrongAnswer {
    wrong.map_err(|wrong| format!("{}: {wrong}", described(command)))
}
