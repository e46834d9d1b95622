//! Locks and atomics: those of the standard library, or of a scheduler with a seed.
//!
//! The crate `minfs-model` compiles this source with the feature `shuttle`, so that a test decides
//! which thread goes on at each lock. Everything that threads meet at comes from here.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard};

pub(crate) mod atomic {
    #[cfg(feature = "shuttle")]
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
    #[cfg(not(feature = "shuttle"))]
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
}
