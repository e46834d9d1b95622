//! Options of a contender that name a device, a file or a directory besides the trial's own: a
//! journal on another disk, a second device of an array, a directory to copy from.
//!
//! The claim guards the one device that was granted, so nothing else may be handed to mkfs and
//! mount as root. Knows the forms of options and no file system: [`Known`] says which short options
//! of one have no value or a path. What is in doubt is refused.

use super::{Known, Layer};

/// Short options whose value is a name, in which a slash leads nowhere: labels, ext4's last mount
/// point, UUIDs.
const NAMES: &str = "LMU";

/// Long options with a path, in any form.
const LONG_PATHS: [&str; 3] = ["--rootdir", "--subvol", "--inode-flags"];

/// Keys within a value, and mount options, that name something else.
const KEYS: [&str; 23] = [
    "altroot",
    "bind",
    "cachefile",
    "dev",
    "device",
    "file",
    "helper",
    "journal_dev",
    "journal_path",
    "logdev",
    "loop",
    "lowerdir",
    "move",
    "name",
    "offset",
    "options",
    "rbind",
    "remount",
    "rtdev",
    "source",
    "uhelper",
    "upperdir",
    "workdir",
];

/// Refuses a layer with such an option.
pub(super) fn check(layer: &Layer, known: &Known) -> Result<(), String> {
    let named = mkfs_word(layer, known).or_else(|| {
        // One that was stored may be several.
        let is_part = |part: &str| is_outside(part, false) && !part.starts_with("subvol=");
        layer.mount_options.iter().find(|option| option.split(',').any(is_part))
    });
    match named {
        None => Ok(()),
        Some(word) => Err(format!(
            "'{word}' can name something other than the one device that kurabe may write, and mkfs and mount run as root; leave it out (values of long options are written --NAME=VALUE)"
        )),
    }
}

/// The first word for mkfs that names something else.
fn mkfs_word<'a>(layer: &'a Layer, known: &Known) -> Option<&'a String> {
    let mut words = layer.options.iter();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let is_path = LONG_PATHS.iter().any(|path| word.starts_with(path));
            let value = long.split_once('=').filter(|(name, _)| *name != "label");
            if is_path
                || long.is_empty()
                || value.is_some_and(|(_, value)| is_outside(value, false))
            {
                return Some(word);
            }
            continue;
        }
        let Some(letters) = word.strip_prefix('-') else { return Some(word) };
        // Of letters in one word the first that takes a value has the rest of it, or the next word.
        let Some(at) = letters.find(|letter| !known.flags.contains(letter)) else { continue };
        let letter = letters[at..].chars().next()?;
        let rest = &letters[at + letter.len_utf8()..];
        let value = if rest.is_empty() { words.next() } else { None };
        let text = value.map_or(rest, String::as_str);
        if known.paths.contains(letter) || is_outside(text, NAMES.contains(letter)) {
            return value.or(Some(word));
        }
    }
    None
}

fn is_outside(value: &str, is_name: bool) -> bool {
    !is_name
        && value.split(',').any(|part| {
            let key = part.split('=').next().unwrap_or(part).trim().to_ascii_lowercase();
            part.contains('/') || KEYS.contains(&key.as_str()) || key.starts_with("x-mount.")
        })
}
