//! The comparison at the end of a run: everything that should be in the store, and nothing else.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use vocabulary::check::Check;

use super::worker::{WrongAnswer, compare};
use super::{PROGRESS_INTERVAL, failure};
use crate::contents::ContentIdentity;
use crate::report::{ProgramFailure, Verification};
use crate::store::{Store, StoreError};
use crate::stream::Stream;

/// What opens the store again.
pub(super) type Reopen<'a> = &'a dyn Fn() -> Result<Box<dyn Store>, StoreError>;

/// Reads every object that should be there, with contents of this salt, from a store that was closed and
/// is opened again. `tick` is called ten times a second, and ends it by breaking.
pub(super) fn sweep(
    stream: &Stream,
    salt: u64,
    reopen: Reopen<'_>,
    verification: &mut Verification,
    check: &mut Check,
    tick: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Box<ProgramFailure>> {
    const DURING: &str = "the sweep at the end";
    let failed = |error| Box::new(failure(DURING, error));
    let mut count =
        |wrong: WrongAnswer| check.count(wrong.err().map(|wrong| format!("{DURING}: {wrong}")));
    let live = || stream.live().iter();
    let store = match reopen() {
        // A store that cannot be opened again has lost all that it had.
        Err(error @ StoreError::Failed(_)) => {
            live().for_each(|_| count(Err(format!("the store cannot be opened again: {error}"))));
            return Ok(ControlFlow::Continue(()));
        }
        opened => opened.map_err(failed)?,
    };
    let unlisted = compare_keys(stream, store.as_ref(), &mut count).map_err(failed)?;
    let mut session = store.session().map_err(failed)?;
    let mut told = std::time::Instant::now();
    for object in live() {
        let identity = ContentIdentity { salt, key: object.key, version: object.version };
        let size = stream.size_of(object);
        let wrong = compare(&identity, size, session.get(object.key), true).map_err(failed)?;
        count(if unlisted.contains(&object.key) {
            wrong.and(Err(format!("object {} is not listed", object.key)))
        } else {
            wrong
        });
        verification.swept_objects += 1;
        verification.bytes += size;
        if told.elapsed() > PROGRESS_INTERVAL {
            told = std::time::Instant::now();
            if tick().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Counts the keys that the store has and should not have; returns those that it should have and
/// has not.
fn compare_keys(
    stream: &Stream,
    store: &dyn Store,
    count: &mut dyn FnMut(WrongAnswer),
) -> Result<BTreeSet<u64>, StoreError> {
    let mut found = store.keys()?.into_iter().peekable();
    let mut unlisted = BTreeSet::new();
    let mut risen = |key: u64| {
        count(Err(format!("object {key} is there, though it was deleted or never put")));
    };
    for object in stream.live().iter() {
        while let Some(key) = found.next_if(|key| *key < object.key) {
            risen(key);
        }
        if found.next_if_eq(&object.key).is_none() {
            unlisted.insert(object.key);
        }
    }
    found.for_each(risen);
    Ok(unlisted)
}
