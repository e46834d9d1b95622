//! Writing to the two outputs. A reader that went away (`kurabe report DIR | head -1`) is no
//! failure of the study and no reason to panic in the middle of one.

use std::io::{self, Write};

/// Writes to standard output as it is.
pub fn print(text: &str) {
    let mut output = io::stdout().lock();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

/// Writes a line to standard error.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
