//! SIGINT and SIGTERM become a wish to stop; which of them it was decides the exit code.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::SIGNAL_BASE;

/// The first signal that asked to stop, if any.
#[derive(Debug, Clone)]
pub struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Takes the signals over from now on.
    pub fn catch() -> io::Result<Signals> {
        let number = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, number.clone(), signal as usize)?;
        }
        Ok(Signals(number))
    }

    /// Whether one came.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Exit code for the one that came.
    pub fn exit_code(&self) -> Option<u8> {
        let number = self.0.load(Ordering::SeqCst);
        (number != 0).then(|| SIGNAL_BASE + number as u8)
    }
}
