//! The request to stop, raised by a signal or by a test, looked at wherever something waits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag shared by everything that waits.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that the signals SIGTERM and SIGINT raise, instead of ending the process.
    pub fn on_signals() -> io::Result<Stop> {
        let stop = Stop::default();
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register(signal, stop.0.clone())?;
        }
        Ok(stop)
    }

    /// Raises the flag.
    pub fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the flag is raised.
    pub fn raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The flag itself, for a waiter that wants an atomic.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
