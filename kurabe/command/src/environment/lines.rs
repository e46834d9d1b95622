//! Reads what a trial, a guest or another machine says, a line at a time, within bounds.
//!
//! Whoever speaks may be hostile: a guest's kernel is, and another machine. Invariants: lines are handed
//! over one by one, so that no more than one waits for the listener; a line that is too long, or of more
//! values than any record has, ends the talk before it is parsed; so does a speaker who says more than
//! its allowance.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, sync_channel};

/// How much one speaker may say.
#[derive(Debug, Clone, Copy)]
pub struct OutputBounds {
    /// Bytes of a line, its end included.
    pub line_bytes_max: u64,
    /// JSON values of a line, roughly: a parsed value takes many times the bytes of its text.
    pub line_values_max: usize,
    /// Bytes of a trial in all, or of what is asked at once.
    pub bytes_max: u64,
}

/// For kurabe's own process on this machine, which is believed: no record of it is as long as this.
pub const OWN: OutputBounds =
    OutputBounds { line_bytes_max: 1 << 30, line_values_max: usize::MAX, bytes_max: u64::MAX };

/// For a guest and another machine. A record with its histograms has some MiB and some 100,000 values.
pub const FOREIGN: OutputBounds =
    OutputBounds { line_bytes_max: 64 << 20, line_values_max: 1 << 20, bytes_max: 1 << 30 };

/// What came of one speaker.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// A line, without its end.
    Line(String),
    /// There is nothing more: the end of the output, a line without an end or that is not UTF-8; with the
    /// reason when a bound was exceeded.
    End(Option<String>),
}

/// Lines of several speakers, each with its speaker's number.
pub type Lines = Receiver<(usize, StreamEvent)>;

/// A channel for lines. A speaker waits until its line is taken.
pub fn channel() -> (SyncSender<(usize, StreamEvent)>, Lines) {
    sync_channel(0)
}

/// What a speaker may still say, in bytes.
#[derive(Debug, Clone)]
pub struct Allowance {
    left: Arc<AtomicU64>,
    bounds: OutputBounds,
}

impl Allowance {
    /// Gives the whole allowance again: it was asked something new.
    pub fn renew(&self) {
        self.left.store(self.bounds.bytes_max, Ordering::Relaxed);
    }

    fn take(&self, bytes: u64) -> bool {
        let take = |left: u64| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Reads `output` in a thread, line by line, until it ends, says too much, or nobody listens.
pub fn read(
    output: impl Read + Send + 'static,
    bounds: OutputBounds,
    number: usize,
    lines: &SyncSender<(usize, StreamEvent)>,
) -> Allowance {
    let lines = lines.clone();
    let allowance = Allowance { left: Arc::new(AtomicU64::new(bounds.bytes_max)), bounds };
    let left = allowance.clone();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let said = next(&mut output, &left);
            let is_end = matches!(said, StreamEvent::End(_));
            // Nobody listens any more when the runner has given up.
            if lines.send((number, said)).is_err() || is_end {
                return;
            }
        }
    });
    allowance
}

/// Says lines to another process from a thread of its own, so that one that does not read keeps nobody waiting.
/// When this is dropped, the other side's input ends after what was said.
#[derive(Debug)]
pub struct LineWriter(Sender<String>);

impl LineWriter {
    /// Speaks through a pipe.
    pub fn new(mut input: impl Write + Send + 'static) -> LineWriter {
        let (sender, lines) = mpsc::channel::<String>();
        std::thread::spawn(move || {
            for line in lines {
                // One that takes nothing any more says so by its end.
                if writeln!(input, "{line}").and_then(|()| input.flush()).is_err() {
                    return;
                }
            }
        });
        LineWriter(sender)
    }

    /// Says a line, as soon as the other side takes it.
    pub fn say(&self, line: String) {
        let _ = self.0.send(line);
    }
}

fn next(output: &mut impl BufRead, allowance: &Allowance) -> StreamEvent {
    let bounds = allowance.bounds;
    let mut line = Vec::new();
    if output.take(bounds.line_bytes_max).read_until(b'\n', &mut line).is_err() {
        return StreamEvent::End(None);
    }
    let bytes = line.len() as u64;
    if line.pop() != Some(b'\n') {
        let too_long = format!("it sent a line of more than {} MiB", bounds.line_bytes_max >> 20);
        return StreamEvent::End((bytes == bounds.line_bytes_max).then_some(too_long));
    }
    if !allowance.take(bytes) {
        return StreamEvent::End(Some(format!("it sent more than {} MiB", bounds.bytes_max >> 20)));
    }
    // Each value but the first follows one of these.
    let values = line.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    if values > bounds.line_values_max {
        return StreamEvent::End(Some(format!(
            "it sent a line of more than {} values",
            bounds.line_values_max
        )));
    }
    String::from_utf8(line).map_or(StreamEvent::End(None), StreamEvent::Line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_not_read_keeps_nobody_waiting() {
        let (output, input) = std::io::pipe().unwrap();
        let line_writer = LineWriter::new(input);
        // More than a pipe holds.
        let long = "x".repeat(1 << 20);
        line_writer.say(long.clone());
        line_writer.say("end".into());
        drop(line_writer);
        let lines: Vec<String> = BufReader::new(output).lines().map(Result::unwrap).collect();
        assert_eq!(lines, [long, "end".to_string()]);
    }
    use std::sync::atomic::AtomicUsize;

    const SMALL: OutputBounds =
        OutputBounds { line_bytes_max: 8, line_values_max: 3, bytes_max: 20 };

    fn all(text: &[u8]) -> Vec<StreamEvent> {
        let (sender, lines) = channel();
        read(std::io::Cursor::new(text.to_vec()), SMALL, 7, &sender);
        drop(sender);
        lines.into_iter().map(|(number, said)| (assert_eq!(number, 7), said).1).collect()
    }

    fn line(text: &str) -> StreamEvent {
        StreamEvent::Line(text.into())
    }

    #[test]
    fn lines_come_in_their_order_until_the_end() {
        assert_eq!(all(b""), [StreamEvent::End(None)]);
        assert_eq!(
            all(b"one\n\ntwo\n"),
            [line("one"), line(""), line("two"), StreamEvent::End(None)]
        );
        assert_eq!(all(b"one\nhalf"), [line("one"), StreamEvent::End(None)], "an incomplete line");
        assert_eq!(all(b"one\n\xff\ntwo\n"), [line("one"), StreamEvent::End(None)], "not UTF-8");
    }

    #[test]
    fn whoever_says_too_much_is_cut_off_with_the_reason() {
        let why = |text: &[u8]| match all(text).pop() {
            Some(StreamEvent::End(Some(why))) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(all(b"1234567\n")[0], line("1234567"));
        assert!(why(b"12345678\n").contains("a line of more than"));
        assert!(why(b"123456789012345678901234567890").contains("a line of more than"));
        assert_eq!(all(b"[1,2]\n")[0], line("[1,2]"));
        assert!(why(b"[[[[\n").contains("values"));
        assert!(why(b"1234567\n1234567\n1234567\n").contains("more than"));
    }

    #[test]
    fn what_is_asked_anew_has_a_new_allowance() {
        let (sender, lines) = channel();
        let text = std::io::Cursor::new(b"1234567\n".repeat(9));
        let allowance = read(text, SMALL, 0, &sender);
        for _ in 0..8 {
            assert_eq!(lines.recv().unwrap().1, line("1234567"));
            allowance.renew();
        }
    }

    /// An output without an end that counts how much of it was read.
    struct Endless(Arc<AtomicUsize>);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            buffer.fill(b'\n');
            self.0.fetch_add(buffer.len(), Ordering::SeqCst);
            Ok(buffer.len())
        }
    }

    #[test]
    fn no_more_is_read_than_is_listened_to() {
        let (sender, lines) = channel();
        let taken = Arc::new(AtomicUsize::new(0));
        read(Endless(taken.clone()), OWN, 0, &sender);
        for _ in 0..1000 {
            assert_eq!(lines.recv().unwrap().1, line(""));
        }
        // Without a bound it would be read on while nobody listens.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let read = taken.load(Ordering::SeqCst);
        assert!(read < 1000 + (64 << 10), "{read} bytes were read for 1000 lines of a byte");
    }
}
