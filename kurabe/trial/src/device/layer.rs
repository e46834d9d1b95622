//! What can stand between a device and a contender: one file each, one line in one table.
//!
//! A layer is written `NAME` or `NAME:WORDS`. To add one, write its file and add a line to [`LAYERS`].

mod cloud;
mod delay;
mod hdd;
mod ignore_flush;
mod modelled;
mod record;
mod ssd;

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use block::BlockDevice;
use serde_json::Value;

pub use ignore_flush::NAME as IGNORE_FLUSH;

/// A device, whatever it is made of.
pub type BlockStack = Box<dyn BlockDevice>;

/// A stack of layers, and what they will have to say when the trial is over.
pub struct Layered {
    /// The uppermost.
    pub stack: BlockStack,
    /// The disks that are modelled among them.
    pub disks: Vec<Arc<dyn ModelledLayer>>,
}

/// A modelled disk, to be asked when the trial is over.
pub trait ModelledLayer: Send + Sync {
    /// What the record is to have of it.
    fn facts(&self) -> Value;

    /// Begins, or ends, what it has to say.
    fn measure(&self, begins: bool);

    /// Keeps every request from now on.
    fn keep_trace(&self);

    /// Keeps from now on what [`ModelledLayer::durable`] needs.
    fn follow_cache(&self);

    /// When each of these writes had left the disk's cache for where it is durable, if it had.
    fn durable(&self, writes: &[(Instant, Range<u64>)]) -> Vec<Option<Instant>>;

    /// Writes what was kept, and says how many requests found no room.
    fn write_trace(&self, out: &mut dyn Write) -> io::Result<u64>;
}

/// Puts a layer on top of what it is given, or says why it does not fit there.
pub type Put = Box<dyn FnOnce(Layered) -> Result<Layered, String>>;

/// A layer that fits everywhere and has nothing to say.
fn plain(put: impl FnOnce(BlockStack) -> BlockStack + 'static) -> Put {
    Box::new(|below| Ok(Layered { stack: put(below.stack), ..below }))
}

/// A kind of layer.
struct Layer {
    /// The word before the colon.
    name: &'static str,
    /// How it is written, and what it does.
    notation: &'static str,
    /// Reads the words behind the colon.
    read: fn(&str) -> Result<Put, String>,
    /// Whether it fits on a device of so many bytes.
    fits: fn(&str, u64) -> Result<(), String>,
    /// Whether the kernel is told that what it sees turns; absent where that stays as it is.
    rotational: Option<bool>,
}

static LAYERS: &[&Layer] =
    &[&delay::LAYER, &ignore_flush::LAYER, &record::LAYER, &hdd::LAYER, &ssd::LAYER, &cloud::LAYER];

/// How each layer is written, and what it does.
pub fn notations() -> impl Iterator<Item = &'static str> {
    LAYERS.iter().map(|layer| layer.notation)
}

pub fn read(text: &str) -> Result<Put, String> {
    read_from(LAYERS, text)
}

/// Whether a layer that was read fits on a device of so many bytes.
pub fn check_size(text: &str, size_bytes: u64) -> Result<(), String> {
    let (name, words) = split(text);
    match LAYERS.iter().find(|layer| layer.name == name) {
        Some(layer) => (layer.fits)(words, size_bytes)
            .map_err(|problem| format!("the layer '{text}': {problem}")),
        None => Ok(()),
    }
}

/// Whether a layer is a modelled disk.
pub fn is_modelled(text: &str) -> bool {
    rotational(std::slice::from_ref(&text.to_string())).is_some()
}

/// Whether the kernel is to be told that a device below these layers turns, the uppermost first.
pub fn rotational(layers: &[String]) -> Option<bool> {
    layers.iter().find_map(|text| {
        let (name, _) = split(text);
        LAYERS.iter().find(|layer| layer.name == name)?.rotational
    })
}

fn split(text: &str) -> (&str, &str) {
    text.split_once(':').unwrap_or((text, ""))
}

/// It fits on any device.
fn any_size(_: &str, _: u64) -> Result<(), String> {
    Ok(())
}

fn read_from(layers: &[&Layer], text: &str) -> Result<Put, String> {
    let (name, words) = split(text);
    match layers.iter().find(|layer| layer.name == name) {
        Some(layer) => (layer.read)(words)
            .map_err(|problem| format!("the layer '{text}': {problem}; write {}", layer.notation)),
        None => {
            let known: Vec<&str> = layers.iter().map(|layer| layer.notation).collect();
            Err(format!("there is no layer '{name}'; write {}", known.join(", or ")))
        }
    }
}

/// Refuses words where a layer takes none.
fn no_words(words: &str) -> Result<(), String> {
    if words.is_empty() { Ok(()) } else { Err("it takes no words".into()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use block::MemoryDevice;

    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_named() {
        for text in
            ["delay:200us", "delay:5%", "delay:read=1ms,flush=150%", "ignore-flush", "record"]
                .into_iter()
                .chain(["hdd:st1000dm003", "hdd:7200rpm,position=50%", "ssd:nvme", "cloud:gp3"])
        {
            assert!(read(text).is_ok(), "{text}");
        }
        assert!(check_size("hdd:st1000dm003", 8 << 30).is_ok());
        let problem = check_size("hdd:st1000dm003", 2 << 40).unwrap_err();
        assert!(problem.contains("give a smaller size"), "{problem}");
        assert_eq!(rotational(&["delay:1ms".into(), "hdd:7200rpm".into()]), Some(true));
        assert_eq!(rotational(&["delay:1ms".into()]), None);
        for (text, word) in [
            ("dlay:1ms", "no layer 'dlay'"),
            ("delay", "'' is not a duration"),
            ("delay:sync=1ms", "'sync' is no kind"),
            ("delay:-3%", "'-3%' is not a percentage"),
            ("delay:100001%", "'100001%' is more than 100000 %"),
            ("delay:2m", "not below 60 s"),
            ("ignore-flush:x", "takes no words"),
            ("record:x", "takes no words"),
            ("hdd:st1000", "there is no profile 'st1000'"),
            ("hdd:nvme", "is written ssd:nvme"),
            ("hdd:7200rpm,rpm=3", "rpm=3 is not from 1000 to 30000"),
        ] {
            let problem = read(text).err().unwrap();
            assert!(problem.contains(word) && problem.contains("write "), "{text}: {problem}");
        }
    }

    /// A layer that no other file knows: its description, and its place in a table.
    #[test]
    fn a_layer_is_added_by_its_description() {
        static NARROW: Layer = Layer {
            name: "narrow",
            notation: "narrow (lets one request through at a time)",
            read: |words| no_words(words).map(|()| plain(|below| below)),
            fits: any_size,
            rotational: None,
        };
        let layers = [LAYERS, &[&NARROW]].concat();
        assert!(read_from(&layers, "narrow").is_ok());
        let said = |text: &str| read_from(&layers, text).err().unwrap();
        assert_eq!(
            said("narrow:x"),
            "the layer 'narrow:x': it takes no words; write narrow (lets one request through at a time)"
        );
        assert!(said("wide").ends_with("or narrow (lets one request through at a time)"));
        assert!(said("wide").contains("delay:TIME"));
    }

    #[test]
    fn a_delay_of_one_kind_of_request_leaves_the_others_alone() {
        let put = read("delay:flush=30ms").unwrap();
        let stack: BlockStack = Box::new(MemoryDevice::new(4096, 512));
        let stack = put(Layered { stack, disks: Vec::new() }).ok().unwrap().stack;
        let begun = Instant::now();
        stack.write_at(&[1; 512], 0).unwrap();
        assert!(begun.elapsed() < Duration::from_millis(20));
        stack.flush().unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }
}
