//! Threads, locks and atomics of the store: those of the standard library, or, in the crate
//! `lump-model`, those of a scheduler that runs one thread at a time in an order that a seed gives.
//!
//! Everything that makes a thread wait is imported from here, so that the model test controls it.
//! Counters of metrics are not: no decision depends on them.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, mpsc},
    thread,
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, mpsc},
    thread,
};

const UNBROKEN: &str = "no thread panics while it holds a lock of the store";

/// Waits for a change.
pub(crate) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).expect(UNBROKEN)
}

/// Waits for a change, and no longer than `most`; under a scheduler with a seed there is no time, and none
/// passes.
#[cfg_attr(feature = "shuttle", allow(unused_variables))]
pub(crate) fn wait_at_most<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    most: Option<std::time::Duration>,
) -> MutexGuard<'a, T> {
    #[cfg(not(feature = "shuttle"))]
    if let Some(most) = most {
        return condition.wait_timeout(guard, most).expect(UNBROKEN).0;
    }
    wait(condition, guard)
}

/// Locks a mutex.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(UNBROKEN)
}
