//! Objects across a power cut: says which puts and deletes are durable, and looks for them afterwards.
//!
//! `made` the store can be opened; `put KEY VERSION BYTES` and `deleted FROM TO` are durable;
//! `replace KEY VERSION BYTES` and `delete FROM TO` are about to begin, and may be there or not from then on.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use vocabulary::workload::Loss;

use super::contents::ContentIdentity;
use super::store::{StoreError, StoreKind, StoreLocation, StoreOptions};
use super::stream::{Command, Verb};
use measure::acknowledge::Acknowledger;

/// Says what a run has made durable.
#[derive(Debug)]
pub struct ObjectAcknowledger {
    acknowledger: Acknowledger,
    /// Whether every put and delete is durable when it returns.
    is_each_durable: bool,
    /// What was done since the last sync began.
    done: Mutex<Vec<String>>,
}

/// What a command that has begun is going to make durable.
#[derive(Debug, Default)]
pub struct Promised(Vec<String>);

impl ObjectAcknowledger {
    /// A acknowledgements for a store that was made with these options.
    pub fn new(pipe: &Path, options: &StoreOptions) -> io::Result<ObjectAcknowledger> {
        Ok(ObjectAcknowledger {
            acknowledger: Acknowledger::open(pipe)?,
            is_each_durable: options.sync_every_put,
            done: Mutex::default(),
        })
    }

    /// The store was made and is durable.
    pub fn made(&self) -> io::Result<()> {
        self.acknowledger.say("made").map(drop)
    }

    /// A command is about to begin.
    pub fn begin(&self, command: &Command) -> io::Result<Promised> {
        let Command { key, end_key, version, size, .. } = command;
        let line = match command.verb {
            Verb::Put | Verb::Embed => format!("put {key} {version} {size}"),
            Verb::OverWrite => {
                self.acknowledger.announce(&format!("replace {key} {version} {size}"))?;
                format!("put {key} {version} {size}")
            }
            Verb::Delete | Verb::DeleteRange => {
                self.acknowledger.announce(&format!("delete {key} {end_key}"))?;
                format!("deleted {key} {end_key}")
            }
            Verb::Get => return Ok(Promised::default()),
            Verb::Sync => return Ok(self.begin_sync()),
        };
        Ok(Promised(vec![line]))
    }

    /// Everything that is done by now is about to be made durable.
    pub fn begin_sync(&self) -> Promised {
        Promised(std::mem::take(&mut self.done.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// A command has ended well.
    pub fn end(&self, command: &Command, promised: Promised) -> io::Result<()> {
        if self.is_each_durable || command.verb == Verb::Sync {
            return self.end_sync(promised);
        }
        self.done.lock().unwrap_or_else(PoisonError::into_inner).extend(promised.0);
        Ok(())
    }

    /// A sync has ended well.
    pub fn end_sync(&self, promised: Promised) -> io::Result<()> {
        promised.0.iter().try_for_each(|line| self.acknowledger.say(line).map(drop))
    }
}

/// What was said of one object.
#[derive(Debug, Default)]
struct ObjectStatements {
    /// The version that is durable, with its size in bytes.
    durable: Option<(u32, u64)>,
    /// Later ones that may be there.
    begun: Vec<(u32, u64)>,
    /// Whether its deletion has begun.
    may_be_gone: bool,
    /// Whether that is durable.
    is_gone: bool,
}

fn told(acknowledged: &str) -> Option<BTreeMap<u64, ObjectStatements>> {
    let mut is_made = false;
    let mut objects: BTreeMap<u64, ObjectStatements> = BTreeMap::new();
    // A key is never used again, and a deletion may be said before the object that it deletes.
    let mut deletions = Vec::new();
    for line in acknowledged.lines() {
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        match (verb, &numbers[..]) {
            ("made", []) => is_made = true,
            ("put", [key, version, size]) => {
                let told = objects.entry(*key).or_default();
                let version = *version as u32;
                if told.durable.is_none_or(|(known, _)| known < version) {
                    told.durable = Some((version, *size));
                }
                told.begun.retain(|(begun, _)| *begun > version);
            }
            ("replace", [key, version, size]) => {
                objects.entry(*key).or_default().begun.push((*version as u32, *size));
            }
            ("delete" | "deleted", [from, to]) if from < to => {
                deletions.push((*from..*to, verb == "deleted"));
            }
            _ => {}
        }
    }
    for (keys, is_durable) in deletions {
        for (_, told) in objects.range_mut(keys) {
            told.may_be_gone = true;
            told.is_gone |= is_durable;
        }
    }
    is_made.then_some(objects)
}

/// Looks in a store for what was acknowledged. `salt` is that of the run.
pub fn find_loss(
    kind: &StoreKind,
    place: &StoreLocation,
    options: &StoreOptions,
    salt: u64,
    acknowledged: &str,
) -> Result<Option<Loss>, StoreError> {
    let Some(objects) = told(acknowledged) else { return Ok(None) };
    let unusable = |error: StoreError| Ok(Some(Loss::Unusable(error.to_string())));
    let store = match (kind.open)(place, options) {
        Ok(store) => store,
        Err(error) => return unusable(error),
    };
    let mut session = match store.session() {
        Ok(session) => session,
        Err(error) => return unusable(error),
    };
    let mut corrupt = None;
    for (key, told) in objects {
        let found = match session.get(key) {
            Ok(found) => found,
            Err(error) => {
                let words = format!("object {key} cannot be read: {error}");
                corrupt.get_or_insert(Loss::Corrupt(words));
                continue;
            }
        };
        match (found, told.durable) {
            (None, Some(_)) if !told.may_be_gone => {
                return Ok(Some(Loss::Lost(format!("object {key} is missing"))));
            }
            (Some(_), _) if told.is_gone => {
                let words = format!("object {key} is there again; its deletion was durable");
                return Ok(Some(Loss::Lost(words)));
            }
            (Some(found), Some(durable)) => {
                let identity = |version| ContentIdentity { salt, key, version };
                let is =
                    |&(version, size): &(u32, u64)| identity(version).check(size, found).is_ok();
                // Without a sync a version may be replaced in place, a piece after the other.
                let is_torn = !options.sync_every_put && !told.begun.is_empty();
                if let Err(difference) = identity(durable.0).check(durable.1, found)
                    && !is_torn
                    && !told.begun.iter().any(is)
                {
                    corrupt.get_or_insert(Loss::Corrupt(difference.to_string()));
                }
            }
            _ => {}
        }
    }
    Ok(corrupt)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block::{BlockDevice, MemoryDevice};

    use super::*;
    use crate::store;

    #[test]
    fn what_is_missing_changed_or_there_again_is_found() {
        let kind = store::kind("lump").unwrap();
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(16 << 20, 512));
        let place = StoreLocation::Open(device);
        let options = StoreOptions { sync_every_put: true, ..StoreOptions::default() };
        let created = (kind.create)(&place, &options).unwrap();
        let mut session = created.session().unwrap();
        for (key, version) in [(1, 0), (2, 3), (3, 0)] {
            ContentIdentity { salt: 7, key, version }.fill(session.prepare(5000, false).unwrap());
            session.put(key).unwrap();
        }
        drop(session);
        drop(created);
        let found = |acknowledged: &str| {
            let loss = find_loss(kind, &place, &options, 7, acknowledged).unwrap();
            loss.map(|loss| (loss.exit_code(), loss.words().to_string()))
        };
        let code = |acknowledged: &str| found(acknowledged).map(|(code, _)| code);
        assert_eq!(found("made\nput 1 0 5000\nput 2 3 5000\n"), None);
        assert_eq!(code("made\nput 9 0 5000\n"), Some(1));
        assert_eq!(found("made\nput 9 0 5000\ndelete 9 10\n"), None, "it may be gone");
        assert_eq!(found("made\ndelete 9 10\nput 9 0 5000\n"), None, "said by one sync");
        assert_eq!(code("made\nput 3 0 5000\ndelete 2 4\ndeleted 2 4\n"), Some(1));
        assert_eq!(found("made\nput 3 0 5000\ndelete 3 4\n"), None);
        assert_eq!(code("made\nput 1 0 4999\n"), Some(2));
        assert_eq!(code("made\nput 2 2 5000\n"), Some(2), "an unknown version");
        assert_eq!(found("made\nput 2 2 5000\nreplace 2 3 5000\n"), None);
        assert_eq!(code("made\nput 2 3 5000\nreplace 2 4 5000\nput 2 4 5000\n"), Some(2));
        // Before the store was made nothing can be lost; afterwards it opens.
        let nowhere = StoreLocation::Open(Arc::new(MemoryDevice::new(16 << 20, 512)));
        let of_nothing = |acknowledged| find_loss(kind, &nowhere, &options, 7, acknowledged);
        assert_eq!(of_nothing("").unwrap(), None);
        assert_eq!(of_nothing("made\n").unwrap().map(|loss| loss.exit_code()), Some(3));
    }
}
