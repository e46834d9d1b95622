//! The request to stop, raised by a signal, by a bound or by a test, looked at wherever something
//! waits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A flag shared by everything that waits.
#[derive(Debug, Clone, Default)]
pub struct StopFlag {
    raised: Arc<AtomicBool>,
    /// Number of the last signal that asked for it; 0 for none.
    signal: Arc<AtomicUsize>,
}

impl StopFlag {
    /// A flag that SIGINT, SIGTERM and the end of the terminal (SIGHUP) raise, instead of ending
    /// the process.
    pub fn on_signals() -> io::Result<StopFlag> {
        let stop = StopFlag::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The number comes first, so that whoever sees the flag can ask for it.
            signal_hook::flag::register_usize(signal, stop.signal.clone(), signal as usize)?;
            signal_hook::flag::register(signal, stop.raised.clone())?;
        }
        Ok(stop)
    }

    pub fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
    }

    /// Whether the flag is raised.
    pub fn raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// The signal that raised it, if one did.
    pub fn signal(&self) -> Option<i32> {
        match self.signal.load(Ordering::SeqCst) {
            0 => None,
            number => Some(number as i32),
        }
    }

    /// The flag itself, for a waiter that wants an atomic.
    pub fn flag(&self) -> &AtomicBool {
        &self.raised
    }
}
