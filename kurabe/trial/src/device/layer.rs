//! What can stand between a device and a contender: one file each, one line in one table.
//!
//! A layer is written `NAME` or `NAME:WORDS`. To add one, write its file and add a line to [`LAYERS`].

mod delay;
mod ignore_flush;
mod record;

use block::BlockDevice;

pub use ignore_flush::NAME as IGNORE_FLUSH;

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

static LAYERS: &[&Layer] = &[&delay::LAYER, &ignore_flush::LAYER, &record::LAYER];

/// How each layer is written, and what it does.
pub fn notations() -> impl Iterator<Item = &'static str> {
    LAYERS.iter().map(|layer| layer.notation)
}

/// Reads a layer.
pub fn read(text: &str) -> Result<Put, String> {
    read_from(LAYERS, text)
}

fn read_from(layers: &[&Layer], text: &str) -> Result<Put, String> {
    let (name, words) = text.split_once(':').unwrap_or((text, ""));
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

    /// A layer that no other file knows: its description, and its place in a table.
    #[test]
    fn a_layer_is_added_by_its_description() {
        static NARROW: Layer = Layer {
            name: "narrow",
            notation: "narrow (lets one request through at a time)",
            read: |words| no_words(words).map(|()| -> Put { Box::new(|below| below) }),
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
        let stack = put(Box::new(MemoryDevice::new(4096, 512)));
        let begun = Instant::now();
        stack.write_at(&[1; 512], 0).unwrap();
        assert!(begun.elapsed() < Duration::from_millis(20));
        stack.flush().unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }
}
