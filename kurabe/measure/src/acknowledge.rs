//! What a workload says while the power is cut under it: what is durable, and what it is about to change.
//!
//! A line goes into a pipe and is stamped when it is read from there. So a line about something durable can
//! be stamped late and never too early; one about a change to come has to be stamped before the change.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vocabulary::workload::WorkloadTask;

/// How long a line may be under way.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked whether it was received.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);

/// The file, beside the pipe, in which whoever reads the pipe keeps the number of lines that he has stamped:
/// eight bytes, little-endian.
pub fn received_file(pipe: &Path) -> PathBuf {
    pipe.with_extension("received")
}

/// Says lines, from several threads.
#[derive(Debug)]
pub struct Acknowledger {
    pipe: File,
    received: File,
    said: Mutex<u64>,
}

impl Acknowledger {
    /// That of a task, where the power is cut under it.
    ///
    /// Errors: nobody reads the pipe.
    pub fn of(task: &WorkloadTask) -> Result<Option<Arc<Acknowledger>>, String> {
        let opened = task.acknowledgements.as_deref().map(Acknowledger::open).transpose();
        let opened = opened.map_err(|error| format!("the pipe for acknowledgements: {error}"))?;
        Ok(opened.map(Arc::new))
    }

    /// Opens the pipe. Nobody else writes into it.
    pub fn open(pipe: &Path) -> io::Result<Acknowledger> {
        Ok(Acknowledger {
            pipe: OpenOptions::new().append(true).open(pipe)?,
            received: File::open(received_file(pipe))?,
            said: Mutex::default(),
        })
    }

    /// Says that something is durable. Gives the line's number.
    pub fn say(&self, line: &str) -> io::Result<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.pipe).write_all(format!("{line}\n").as_bytes())?;
        *said += 1;
        Ok(*said)
    }

    /// Says what is going to change, and waits until that was received.
    pub fn announce(&self, line: &str) -> io::Result<()> {
        let number = self.say(line)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let mut received = [0; 8];
            self.received.read_exact_at(&mut received, 0)?;
            if u64::from_le_bytes(received) >= number {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(io::Error::other("nobody reads the pipe for acknowledgements"));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}
