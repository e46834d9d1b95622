//! The layer that answers later: by a time, or by a share of the time that the layers below take.

use block::{Delay, DelayingDevice, Delays};
use lab::quantity::{parse_duration, parse_percent};

use super::{Layer, Put, any_size, plain};

pub(super) static LAYER: Layer = Layer {
    name: "delay",
    notation: "delay:TIME, delay:PERCENT or delay:read=...,write=...,flush=... (answers later, by a \
               time such as 200us or a share such as 10% of the time that the layers below take)",
    read,
    fits: any_size,
    rotational: None,
};

/// The longest time for which a request is believed to be held back by intent.
const SECONDS_MAX: u64 = 60;
/// The largest share of its own time for which a request can be held back.
const SHARE_MAX: f64 = 1000.0;

fn read(words: &str) -> Result<Put, String> {
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
    Ok(plain(move |below| Box::new(DelayingDevice::new(below, delays))))
}

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
