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

/// Waits for a change, and no longer than `most`; under a scheduler with a seed there is no time, and none
/// passes.
#[cfg_attr(feature = "shuttle", allow(unused_variables))]
pub(crate) fn wait_at_most<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    most: Option<std::time::Duration>,
) -> MutexGuard<'a, T> {
    const UNBROKEN: &str = "no thread panics while it holds a lock of the store";
    #[cfg(not(feature = "shuttle"))]
    if let Some(most) = most {
        return condition.wait_timeout(guard, most).expect(UNBROKEN).0;
    }
    condition.wait(guard).expect(UNBROKEN)
}

/// Locks a mutex.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds a lock of the store")
}
