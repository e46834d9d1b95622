//! One thread of a run: takes commands, carries them out, times and compares.
//!
//! Must not know: how many threads there are, the plan.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Run, failure};
use crate::latency::{KindId, Recorder, Recording};
use crate::objects::contents::{Difference, Identity};
use crate::objects::feed::{SharedFeed, Task};
use crate::objects::report::{Failure, Verification};
use crate::objects::store::Session;
use crate::objects::stream::{Command, Verb};

/// What came of one thread.
#[derive(Default)]
pub(super) struct Worked {
    pub recording: Option<Recording>,
    pub failure: Option<Box<Failure>>,
    pub commands: u64,
    pub ended_ns: u64,
    pub bytes_written: u64,
    pub bytes_read: u64,
    pub verification: Verification,
}

impl Worked {
    pub(super) fn nothing(failure: Failure) -> Worked {
        Worked { failure: Some(Box::new(failure)), ..Worked::default() }
    }
}

/// One thread at work.
pub(super) struct Worker<'a> {
    run: &'a Run<'a>,
    session: Box<dyn Session + 'a>,
    done: &'a AtomicU64,
    recorder: Recorder,
    /// For each size, the kind of each verb, once it was recorded.
    kinds: Vec<[Option<KindId>; VERBS]>,
    sum: Worked,
}

/// Verbs that there are.
const VERBS: usize = Verb::Sync as usize + 1;

impl<'a> Worker<'a> {
    pub(super) fn new(
        run: &'a Run<'a>,
        session: Box<dyn Session + 'a>,
        done: &'a AtomicU64,
    ) -> Worker<'a> {
        Worker {
            run,
            session,
            done,
            recorder: Recorder::with_intervals(run.options.interval),
            kinds: vec![[None; VERBS]; run.classes.len().max(1)],
            sum: Worked::default(),
        }
    }

    pub(super) fn work(mut self, feed: &SharedFeed<'_>) -> Worked {
        let mut now_ns = self.run.clock.now_ns();
        let mut before: Option<Task> = None;
        while let Some(task) = feed.take(before.as_ref(), now_ns) {
            if let Some(intended_ns) = task.intended_ns {
                self.run.clock.wait_until(intended_ns);
            }
            if !feed.wait_for_earlier(&task) {
                break;
            }
            match self.carry_out(&task) {
                Ok(ended_ns) => now_ns = ended_ns,
                Err(failure) => {
                    self.sum.failure = Some(failure);
                    break;
                }
            }
            self.sum.commands += 1;
            self.done.store(self.sum.commands, Ordering::Relaxed);
            before = Some(task);
        }
        self.sum.ended_ns = now_ns;
        self.sum.recording = Some(self.recorder.finish());
        self.sum
    }

    fn identity(&self, command: &Command) -> Identity {
        Identity { salt: self.run.options.salt, key: command.key, version: command.version }
    }

    /// Carries one command out and records it; returns when it ended. One long match, so that what
    /// is timed stands beside what is not.
    fn carry_out(&mut self, task: &Task) -> Result<u64, Box<Failure>> {
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
                let found = self.session.get(command.key).map_err(failed)?;
                ended_ns = clock.now_ns();
                if self.run.keeps_contents {
                    let whole = self.run.options.verify;
                    compare(&identity, command.size, found, whole, || described(command))?;
                }
                if self.run.options.verify {
                    self.sum.verification.gets += 1;
                    self.sum.verification.bytes += command.size;
                }
            }
            Verb::Delete => {
                if self.run.options.verify {
                    let identity = self.identity(command);
                    let found = self.session.get(command.key).map_err(failed)?;
                    compare(&identity, command.size, found, true, || described(command))?;
                    self.sum.verification.deletes += 1;
                    self.sum.verification.bytes += command.size;
                }
                started_ns = clock.now_ns();
                let existed = self.session.delete(command.key).map_err(failed)?;
                ended_ns = clock.now_ns();
                if !existed {
                    return Err(wrong(command, "there was no such object".to_owned()));
                }
            }
            Verb::DeleteRange => {
                started_ns = clock.now_ns();
                let keys = command.key..command.end_key;
                let deleted = self.session.delete_range(keys).map_err(failed)?;
                ended_ns = clock.now_ns();
                if self.run.keeps_contents && deleted != command.before {
                    let message =
                        format!("{deleted} objects were deleted instead of {}", command.before);
                    return Err(wrong(command, message));
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

/// Compares what was read with what was put; only its length unless `whole`.
pub(super) fn compare(
    identity: &Identity,
    size_bytes: u64,
    found: Option<&[u8]>,
    whole: bool,
    during: impl Fn() -> String,
) -> Result<(), Box<Failure>> {
    let Some(found) = found else {
        return Err(Box::new(Failure {
            message: format!("object {} is missing", identity.key),
            during: during(),
            store_is_full: false,
            difference: None,
        }));
    };
    if !whole && found.len() as u64 == size_bytes {
        return Ok(());
    }
    identity.check(size_bytes, found).map_err(|difference: Box<Difference>| {
        Box::new(Failure {
            message: difference.to_string(),
            during: during(),
            store_is_full: false,
            difference: Some(*difference),
        })
    })
}

/// A command, for a message.
fn described(command: &Command) -> String {
    match command.verb {
        Verb::DeleteRange => {
            format!("DeleteRange of keys {} to {}", command.key, command.end_key)
        }
        Verb::Sync => "Sync".to_owned(),
        verb => format!("{verb:?} of object {} ({} bytes)", command.key, command.size),
    }
}

fn wrong(command: &Command, message: String) -> Box<Failure> {
    Box::new(Failure {
        message,
        during: described(command),
        store_is_full: false,
        difference: None,
    })
}
