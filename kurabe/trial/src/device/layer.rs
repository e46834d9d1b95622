//! What can stand between a device and a contender: one line each in one table.
//!
//! A layer is written `NAME` or `NAME:WORDS`. To add one, add a line to [`LAYERS`] and what reads its
//! words.

use block::{BlockDevice, Delay, DelayingDevice, Delays, Fault, FaultyDevice};
use crash::Recorder;
use lab::quantity::{parse_duration, parse_percent};
use rustix::fs::{MemfdFlags, memfd_create};

/// A device, whatever it is made of.
pub type Stack = Box<dyn BlockDevice>;

/// Puts a layer on top of what it is given.
pub type Put = Box<dyn FnOnce(Stack) -> Stack>;

/// A kind of layer.
struct Layer {
    /// The word before the colon.
    name: &'static str,
    /// How it is written, and what it does.
    notation: &'static str,
    /// Reads the words behind the colon.
    read: fn(&str) -> Result<Put, String>,
}

/// The layer that takes flushes and does nothing.
pub const IGNORE_FLUSH: &str = "ignore-flush";

static LAYERS: [Layer; 3] = [
    Layer {
        name: "delay",
        notation: "delay:TIME, delay:PERCENT or delay:read=...,write=...,flush=... (answers later, by a \
                   time such as 200us or a share such as 10% of the time that the layers below take)",
        read: delay,
    },
    Layer {
        name: IGNORE_FLUSH,
        notation: "ignore-flush (answers flushes without carrying them out, as a disk that lies)",
        read: ignore_flush,
    },
    Layer {
        name: "record",
        notation: "record (keeps every write in memory, as the recorder of 'kurabe crash' does)",
        read: record,
    },
];

/// Reads a layer.
pub fn read(text: &str) -> Result<Put, String> {
    let (name, words) = text.split_once(':').unwrap_or((text, ""));
    match LAYERS.iter().find(|layer| layer.name == name) {
        Some(layer) => (layer.read)(words)
            .map_err(|problem| format!("the layer '{text}': {problem}; write {}", layer.notation)),
        None => {
            let known: Vec<&str> = LAYERS.iter().map(|layer| layer.notation).collect();
            Err(format!("there is no layer '{name}'; write {}", known.join(", or ")))
        }
    }
}

fn delay(words: &str) -> Result<Put, String> {
    let mut delays = Delays::default();
    for word in words.split(',') {
        let (which, amount) = word.split_once('=').unwrap_or(("", word));
        let delay = Some(amount_of(amount)?);
        match which.trim() {
            "" => delays = Delays { read: delay, write: delay, flush: delay },
            "read" => delays.read = delay,
            "write" => delays.write = delay,
            "flush" => delays.flush = delay,
            other => return Err(format!("'{other}' is no kind of request")),
        }
    }
    Ok(Box::new(move |below| Box::new(DelayingDevice::new(below, delays))))
}

/// The longest time for which a request is believed to be held back by intent.
const SECONDS_MAX: u64 = 60;
/// The largest share of its own time for which a request can be held back.
const SHARE_MAX: f64 = 1000.0;

fn amount_of(text: &str) -> Result<Delay, String> {
    if text.ends_with('%') {
        return match parse_percent(text) {
            Ok(share) if share <= SHARE_MAX => Ok(Delay::Share(share)),
            Ok(_) => Err(format!("'{text}' is more than {} %", SHARE_MAX * 100.0)),
            Err(error) => Err(error.to_string()),
        };
    }
    match parse_duration(text) {
        Ok(time) if time.as_secs() < SECONDS_MAX => Ok(Delay::Fixed(time)),
        Ok(_) => Err(format!("'{text}' is not below {SECONDS_MAX} s")),
        Err(error) => Err(error.to_string()),
    }
}

fn ignore_flush(words: &str) -> Result<Put, String> {
    match words {
        "" => Ok(Box::new(|below| Box::new(FaultyDevice::new(below, vec![Fault::IgnoreFlushes])))),
        _ => Err("it takes no words".into()),
    }
}

fn record(words: &str) -> Result<Put, String> {
    match words {
        "" => {
            let data = memfd_create("recording", MemfdFlags::CLOEXEC)
                .map_err(|error| format!("there is no memory for it ({error})"))?;
            Ok(Box::new(|below| Box::new(Recorder::new(below, data.into()))))
        }
        _ => Err("it takes no words".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use block::MemoryDevice;

    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_named() {
        for text in
            ["delay:200us", "delay:5%", "delay:read=1ms,flush=150%", "ignore-flush", "record"]
        {
            assert!(read(text).is_ok(), "{text}");
        }
        for (text, word) in [
            ("dlay:1ms", "no layer 'dlay'"),
            ("delay", "'' is not a duration"),
            ("delay:sync=1ms", "'sync' is no kind"),
            ("delay:-3%", "'-3%' is not a percentage"),
            ("delay:100001%", "'100001%' is more than 100000 %"),
            ("delay:2m", "not below 60 s"),
            ("ignore-flush:x", "takes no words"),
            ("record:x", "takes no words"),
        ] {
            let problem = read(text).err().unwrap();
            assert!(problem.contains(word) && problem.contains("write "), "{text}: {problem}");
        }
    }

    #[test]
    fn a_delay_of_one_kind_of_request_leaves_the_others_alone() {
        let put = read("delay:flush=30ms").unwrap();
        let stack = put(Box::new(MemoryDevice::new(4096, 512)));
        let begun = Instant::now();
        stack.write_at(&[1; 512], 0).unwrap();
        assert!(begun.elapsed() < Duration::from_millis(20));
        stack.flush().unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }
}
