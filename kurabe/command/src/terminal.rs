//! The one gate to the two outputs: whatever people are to read passes here, and what a stranger
//! put into it (a label, a finding, a disk's own label, an argument) commands no terminal.
//!
//! A reader that left (`kurabe report DIR | head -1`) is no failure of the study and no reason to
//! panic in the middle of one. Any other error of standard output, such as a full disk, is kept and
//! reported at the end ([`lost`]).
//!
//! Invariant: all text is escaped here but a [`Screen`], which has escaped what it holds and knows
//! its own colours, and what was generated of the flags alone.

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use lab::contender::QUOTE;
use report::table::Screen;
use trust::{output, text};

/// The first error of a write to standard output.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// Why standard output did not take all that was printed, where it did not.
pub fn lost() -> Option<io::Error> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Writes text to standard output.
pub fn print(text: &str) {
    write(&text::terminal(text));
}

/// Writes a result, which may be coloured, to standard output.
pub fn show(screen: &Screen) {
    write(screen);
}

/// Writes a script or a manual page to standard output as it is: nothing of a stranger is in it.
pub fn generated(text: &[u8]) {
    let mut output = output::stdout();
    if let Err(error) = output.write_all(text).and_then(|()| output.flush()) {
        LOST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

fn write(text: &str) {
    generated(text.as_bytes());
}

/// Writes a line, or some, to standard error.
pub fn note(text: &str) {
    output::complain(format_args!("{}", text::terminal(text)));
}

/// Text for the line that is redrawn in place.
pub fn one_line(text: &str) -> String {
    text::line(text).into_owned()
}

/// The command line. Help and errors end the program; an error repeats arguments, so it is made
/// anew of escaped ones.
pub fn parse<C: clap::Parser>() -> C {
    let shown = |argument: OsString| text::line(&argument.to_string_lossy()).into_owned();
    C::try_parse().unwrap_or_else(|error| {
        let Err(escaped) = C::try_parse_from(std::env::args_os().map(shown)) else {
            // What was wrong is gone once it is escaped, as bytes that are no text.
            note(&error.render().to_string());
            std::process::exit(error.exit_code());
        };
        exit_with(escaped)
    })
}

/// What clap advises, to write `-- -O`, would make the word a part of the command.
fn exit_with(mut error: clap::Error) -> ! {
    let advised = error.get(ContextKind::Suggested).is_some();
    if advised && std::env::args().nth(1).is_some_and(|command| command == "compare") {
        let advice = vec![QUOTE.into()];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(advice));
    }
    error.exit()
}

/// `1m 20s`, `12s`.
pub fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s:02}s"),
        (h, m, _) => format!("{h}h {m:02}m"),
    }
}
