//! What a guest's console says: the signs of life of its first process, and the last lines of
//! everything else. The emulator's own complaints come the same way.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

/// What every line of the guest's first process begins with.
pub const MARK: &str = "kurabe: ";
/// Says that a command can run.
pub const READY: &str = "ready";
/// Says that it lives.
pub const ALIVE: &str = "alive";

/// Lines that are kept, and bytes of each.
const LINES_MAX: usize = 60;
const LINE_BYTES_MAX: usize = 400;

#[derive(Debug)]
struct State {
    lines: VecDeque<String>,
    ready: Option<Instant>,
    last_sign: Instant,
    ended: bool,
}

/// A console that is being read.
#[derive(Debug)]
pub struct Console {
    state: Arc<Mutex<State>>,
    reader: Option<JoinHandle<()>>,
}

impl Console {
    /// Reads a console to its end, in a thread.
    pub fn follow(source: impl Read + Send + 'static) -> Console {
        let state =
            State { lines: VecDeque::new(), ready: None, last_sign: Instant::now(), ended: false };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let reader = std::thread::spawn(move || {
            let mut source = BufReader::new(source);
            let mut line = Vec::new();
            // A line without an end is cut into pieces.
            while let Ok(1..) =
                (&mut source).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)
            {
                locked(&shared).take(&String::from_utf8_lossy(&line));
                line.clear();
            }
            locked(&shared).ended = true;
        });
        Console { state, reader: Some(reader) }
    }

    /// When the guest said that a command can run.
    pub fn ready(&self) -> Option<Instant> {
        locked(&self.state).ready
    }

    pub fn last_sign(&self) -> Instant {
        locked(&self.state).last_sign
    }

    /// The last lines; to be asked for when the guest has ended.
    pub fn tail(&mut self) -> String {
        // Whoever else holds the other end is not waited for.
        for _ in 0..50 {
            if locked(&self.state).ended {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        if locked(&self.state).ended
            && let Some(reader) = self.reader.take()
        {
            let _ = reader.join();
        }
        let lines: Vec<String> = locked(&self.state).lines.iter().cloned().collect();
        lines.join("\n")
    }
}

impl State {
    fn take(&mut self, line: &str) {
        let line = line.trim();
        let sign = line.split_once(MARK).map(|(_, sign)| sign);
        if sign.is_some() {
            self.last_sign = Instant::now();
        }
        match sign {
            Some(ALIVE) => {}
            Some(READY) => self.ready = Some(Instant::now()),
            _ if line.is_empty() => {}
            _ => self.lines.push_back(line.to_string()),
        }
        while self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_understood_and_the_end_of_the_rest_is_kept() {
        let mut text = "[ 1.0] kurabe: alive\r\nfirst\n".repeat(LINES_MAX);
        text.push_str("kurabe: ready\r\nkurabe: no disk\n");
        text.push_str(&"x".repeat(3 * LINE_BYTES_MAX));
        let mut console = Console::follow(std::io::Cursor::new(text.into_bytes()));
        let tail = console.tail();
        assert!(console.ready().is_some());
        assert!(!tail.contains("alive") && !tail.contains("ready"), "{tail}");
        let lines: Vec<&str> = tail.lines().collect();
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[LINES_MAX - 4], "kurabe: no disk");
        assert_eq!(lines[LINES_MAX - 1].len(), LINE_BYTES_MAX);
    }
}
