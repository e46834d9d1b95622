//! The comparison at the end of a run: everything that should be in the store, and nothing else.

use std::ops::ControlFlow;

use super::worker::compare;
use super::{PROGRESS_INTERVAL, failure};
use crate::objects::contents::Identity;
use crate::objects::report::{Failure, Verification};
use crate::objects::store::{Place, Store, StoreKind, StoreOptions};
use crate::objects::stream::Stream;

/// How the store is opened again.
pub(super) struct Again<'a> {
    pub kind: &'a StoreKind,
    pub place: &'a Place,
    pub options: &'a StoreOptions,
}

/// Reads every object that should be there from a store that was closed and opened again.
pub(super) struct Sweep<'a> {
    pub stream: &'a Stream,
    pub salt: u64,
}

impl Sweep<'_> {
    /// Compares; `tick` hears ten times a second how many objects were, and ends it by breaking.
    pub(super) fn carry_out(
        &self,
        again: &Again<'_>,
        verification: &mut Verification,
        tick: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Box<Failure>> {
        let failed = |during: &str, error| Box::new(failure(during, error));
        let store = (again.kind.open)(again.place, again.options)
            .map_err(|error| failed("opening again", error))?;
        self.compare_keys(store.as_ref())?;
        let mut session = store.session().map_err(|error| failed("opening a session", error))?;
        let mut told = std::time::Instant::now();
        for object in self.stream.live().iter() {
            let during = "the sweep at the end";
            let identity = Identity { salt: self.salt, key: object.key, version: object.version };
            let size = self.stream.size_of(object);
            let found = session.get(object.key).map_err(|error| failed(during, error))?;
            compare(&identity, size, found, true, || during.to_owned())?;
            verification.swept_objects += 1;
            verification.bytes += size;
            if told.elapsed() > PROGRESS_INTERVAL {
                told = std::time::Instant::now();
                if tick(verification.swept_objects).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The store must have the keys of the live objects and no others.
    fn compare_keys(&self, store: &dyn Store) -> Result<(), Box<Failure>> {
        let during = "listing the keys after opening again";
        let found = store.keys().map_err(|error| Box::new(failure(during, error)))?;
        let mut found = found.into_iter();
        let mut expected = self.stream.live().iter().map(|object| object.key);
        loop {
            let message = match (expected.next(), found.next()) {
                (None, None) => return Ok(()),
                (Some(expected), Some(found)) if expected == found => continue,
                (Some(expected), Some(found)) if expected > found => {
                    format!("object {found} is there again, though it was deleted")
                }
                (Some(expected), _) => format!("object {expected} is missing"),
                (None, Some(found)) => {
                    format!("object {found} is there, though it was deleted or never put")
                }
            };
            return Err(Box::new(Failure {
                message,
                during: during.to_owned(),
                store_is_full: false,
                difference: None,
            }));
        }
    }
}
