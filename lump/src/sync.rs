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

/// Locks a mutex.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds a lock of the store")
}
