//! What a program prints on standard output and standard error.
//!
//! A reader that has left (`minfs ls IMAGE | head -1`) is no failure: the program goes on without
//! output, and its exit code says the same as with it. Every other error, such as a full disk, is the
//! caller's to report. Nothing here panics, as `println!` and `eprintln!` do.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a write to standard output has failed because its reader had left.
static READER_LEFT: AtomicBool = AtomicBool::new(false);

/// Standard output, which takes everything once its reader has left.
#[derive(Debug)]
pub struct StandardOutput(io::Stdout);

/// Standard output.
pub fn stdout() -> StandardOutput {
    StandardOutput(io::stdout())
}

/// Whether the reader of standard output has left, so that nothing more need be printed.
pub fn reader_left() -> bool {
    READER_LEFT.load(Ordering::Relaxed)
}

/// Whether `error`, of a write to standard output, says that its reader has left; this is kept for
/// [`reader_left`].
pub fn is_reader_left(error: &io::Error) -> bool {
    let left = error.kind() == io::ErrorKind::BrokenPipe;
    READER_LEFT.fetch_or(left, Ordering::Relaxed);
    left
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if is_reader_left(&error) => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if is_reader_left(&error) => Ok(()),
            flushed => flushed,
        }
    }
}

/// Writes a line, or some, to standard error. Where that fails there is nobody left to tell.
pub fn complain(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
