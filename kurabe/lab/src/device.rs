//! The notation of devices, joined by `,`: `KIND:SIZE[@DIR]` or an absolute path each, with layers in front that are
//! joined by `+`. `LAYER:WORDS:SIZE[@DIR]` is short for that layer on memory, or on an image in `DIR`. Knows the
//! notation only; which kinds and layers there are, and what they mean, is the trial's directory's business.

use std::fmt;
use std::path::PathBuf;

use crate::quantity::{parse_size, size_text};

/// A device as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceName {
    /// What stands between the device and the contender, the uppermost first.
    pub layers: Vec<String>,
    /// The device itself.
    pub base: Base,
    /// Further devices, in their order; none of these has any.
    pub others: Vec<DeviceName>,
}

/// The last part of the notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// What is made for the study.
    Made {
        kind: String,
        size_bytes: u64,
        /// The directory in which it lies, when one is named.
        directory: Option<PathBuf>,
    },
    /// What exists: the absolute path of a block device.
    Existing(PathBuf),
}

/// The kind of an image file.
pub const IMAGE: &str = "loop";
/// The kind of a device in memory.
pub const MEMORY: &str = "mem";

/// Devices at most: a guest has a disk for each.
pub const DEVICES_MAX: usize = 16;

/// The device of a study that names none.
pub const DEFAULT_DEVICE: &str = "loop:8G";

/// Smallest device that is made, in bytes. No file system that is worth a comparison fits into less.
pub const SIZE_BYTES_MIN: u64 = 16 << 20;

/// What is made is a multiple of this many bytes, so that any block size divides it.
const SIZE_BYTES_STEP: u64 = 1 << 20;

/// What is scaled is a multiple of this.
const SCALED_BYTES_STEP: u64 = 1 << 28;
/// Smallest size that a study is scaled down to, on which every file system here can be made.
const SCALED_BYTES_MIN: u64 = 1 << 30;

/// Why a device could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}': {problem}")]
pub struct DeviceNameError {
    /// The text that was given.
    pub text: String,
    /// What is wrong with it and the next step.
    pub problem: String,
}

impl DeviceName {
    /// Reads a device, or several. Touches nothing.
    pub fn parse(text: &str) -> Result<DeviceName, DeviceNameError> {
        let mut all = Vec::new();
        let mut begins = 0;
        for (at, _) in text.match_indices(',') {
            let one = &text[begins..at];
            match DeviceName::parse_one(one) {
                Ok(device) if device.ends_before(&text[at + 1..]) => {
                    all.push(device);
                    begins = at + 1;
                }
                Err(error) if [IMAGE, MEMORY].contains(&one.split(':').next().unwrap_or(one)) => {
                    return Err(error);
                }
                // Layers have commas too, and paths may.
                _ => {}
            }
        }
        all.push(DeviceName::parse_one(&text[begins..])?);
        if all.len() > DEVICES_MAX {
            let problem = format!("{} devices; give at most {DEVICES_MAX}", all.len());
            return Err(DeviceNameError { text: text.to_string(), problem });
        }
        let others = all.split_off(1);
        Ok(DeviceName { others, ..all.remove(0) })
    }

    fn parse_one(text: &str) -> Result<DeviceName, DeviceNameError> {
        let fail = |problem: String| Err(DeviceNameError { text: text.to_string(), problem });
        let mut layers = Vec::new();
        let mut rest = text;
        // A '+' behind the first '/' or '@' belongs to a path.
        while let Some((layer, below)) = rest.split_once('+')
            && !layer.contains(['/', '@'])
        {
            if layer.is_empty() {
                return fail("a layer before '+' is empty; write LAYER+KIND:SIZE".into());
            }
            layers.push(layer.to_string());
            rest = below;
        }
        if rest.starts_with('/') {
            let (base, others) = (Base::Existing(rest.into()), Vec::new());
            return Ok(DeviceName { layers, base, others });
        }
        let Some((kind, rest)) = rest.split_once(':') else {
            return fail(
                "not a device; write KIND:SIZE such as loop:8G or mem:4G, or the path of a block device"
                    .into(),
            );
        };
        let (word, directory) = match rest.split_once('@') {
            Some((_, "")) => {
                return fail(format!("'@' is followed by no directory; write {kind}:8G@/DIR"));
            }
            Some((word, directory)) => (word, Some(PathBuf::from(directory))),
            None => (rest, None),
        };
        // What stands between the kind and the size belongs to a layer on what is made.
        let (kind, word) = match word.rsplit_once(':') {
            Some((words, size)) => {
                layers.push(format!("{kind}:{words}"));
                (if directory.is_some() { IMAGE } else { MEMORY }, size)
            }
            None => (kind, word),
        };
        let size_bytes = match parse_size(word) {
            Err(error) => return fail(error.to_string()),
            Ok(bytes) if bytes < SIZE_BYTES_MIN => {
                let least = size_text(SIZE_BYTES_MIN);
                return fail(format!("{word} is too small; give at least {least}"));
            }
            Ok(bytes) if bytes % SIZE_BYTES_STEP != 0 => {
                return fail(format!("{word} is not a multiple of {}", size_text(SIZE_BYTES_STEP)));
            }
            Ok(bytes) => bytes,
        };
        let base = Base::Made { kind: kind.into(), size_bytes, directory };
        Ok(DeviceName { layers, base, others: Vec::new() })
    }

    /// Whether the comma between it and this text separates two devices, rather than being part of its path.
    fn ends_before(&self, rest: &str) -> bool {
        let is_path = !matches!(&self.base, Base::Made { directory: None, .. });
        let next = rest.split([',', '@']).next().unwrap_or(rest);
        !is_path || rest.starts_with('/') || next.contains(':')
    }

    /// Each of its devices.
    pub fn all(&self) -> impl Iterator<Item = &DeviceName> {
        std::iter::once(self).chain(&self.others)
    }

    /// How it is written without the others.
    pub fn alone(&self) -> String {
        DeviceName { others: Vec::new(), ..self.clone() }.to_string()
    }

    /// Whether any of them exists, and is overwritten.
    pub fn exists(&self) -> bool {
        self.all().any(|one| matches!(one.base, Base::Existing(_)))
    }

    /// The kind of what is made, where all have the same one; none of what exists.
    pub fn kind(&self) -> Option<&str> {
        let Base::Made { kind, .. } = &self.base else { return None };
        self.others.iter().all(|other| other.kind() == Some(kind)).then_some(kind)
    }

    /// The device with its size multiplied: rounded up to a quarter of a gibibyte and not below one
    /// (nor below what it was, when that is less). What exists stays as it is.
    pub fn scaled(mut self, factor: f64) -> DeviceName {
        if let Base::Made { size_bytes, .. } = &mut self.base {
            let scaled = (*size_bytes as f64 * factor) as u64;
            let scaled = scaled.div_ceil(SCALED_BYTES_STEP) * SCALED_BYTES_STEP;
            *size_bytes = scaled.max(SCALED_BYTES_MIN.min(*size_bytes));
        }
        self.others = self.others.into_iter().map(|other| other.scaled(factor)).collect();
        self
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.layers.iter().try_for_each(|layer| write!(f, "{layer}+"))?;
        match &self.base {
            Base::Made { kind, size_bytes, directory } => {
                write!(f, "{kind}:{}", size_text(*size_bytes))?;
                directory.iter().try_for_each(|directory| write!(f, "@{}", directory.display()))
            }
            Base::Existing(path) => write!(f, "{}", path.display()),
        }?;
        self.others.iter().try_for_each(|other| write!(f, ",{other}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_reads_and_prints_back() {
        for text in [
            "loop:8G",
            "loop:512M@/mnt/big disk",
            "mem:4G",
            "loop:1G@relative/dir",
            "loop:1G@/a+b@c",
            "/dev/disk/by-id/a+b",
            "delay:200us+mem:1G",
            "delay:read=1ms,flush=2ms+ignore-flush+/dev/sdb",
            "/dev/sdb,/dev/sdc",
            "loop:4G,loop:1G@/mnt/ssd",
            "delay:read=1ms,flush=2ms+mem:1G,delay:1ms+mem:1G,/dev/a,b",
        ] {
            assert_eq!(DeviceName::parse(text).unwrap().to_string(), text);
        }
        for (text, count) in [
            ("loop:4G,delay:read=1ms,flush=2ms+loop:4G", 2),
            ("hdd:a,seed=3:8G,ssd:b,seed=4:8G,mem:1G", 3),
            ("/dev/a,b", 1),
            ("loop:1G@/a,b", 1),
            ("loop:1G@/a,b,loop:2G@/c,/dev/d", 3),
        ] {
            assert_eq!(DeviceName::parse(text).unwrap().all().count(), count, "{text}");
        }
        let kind = |text: &str| DeviceName::parse(text).unwrap().kind().map(String::from);
        assert_eq!(kind("mem:1G,mem:2G").as_deref(), Some(MEMORY));
        assert_eq!((kind("mem:1G,loop:2G"), kind("mem:1G,/dev/sdb")), (None, None));
        assert!(DeviceName::parse("mem:1G,/dev/sdb").unwrap().exists());
        let layered = DeviceName::parse("delay:1ms+ignore-flush+loop:1G@/a+b").unwrap();
        assert_eq!(layered.layers, ["delay:1ms", "ignore-flush"]);
        let directory = Some("/a+b".into());
        assert_eq!(
            layered.base,
            Base::Made { kind: "loop".into(), size_bytes: 1 << 30, directory }
        );
        assert!(DeviceName::parse(DEFAULT_DEVICE).is_ok());
        for (short, whole) in [
            ("hdd:st1000dm003:8G", "hdd:st1000dm003+mem:8G"),
            ("delay:1ms+hdd:a,seed=3:8G@/d", "delay:1ms+hdd:a,seed=3+loop:8G@/d"),
        ] {
            assert_eq!(DeviceName::parse(short).unwrap().to_string(), whole);
        }
    }

    #[test]
    fn errors_name_the_value_and_the_next_step() {
        let message = |text: &str| DeviceName::parse(text).unwrap_err().to_string();
        assert!(message("loop:8Q").contains("'8Q' is not a size"));
        assert!(message("loop:").contains("such as 8G"));
        assert!(message("loop:1M").contains("at least 16M"));
        assert!(message("mem:16777217").contains("multiple of 1M"));
        assert!(message("loop:8G@").contains("no directory"));
        assert!(message("+loop:8G").contains("layer before '+'"));
        assert!(message("disk").starts_with("'disk': not a device"));
        assert!(message("mem:1G,sdb").starts_with("'sdb': not a device"));
        assert!(message("loop:8Q,loop:1G").starts_with("'loop:8Q': '8Q' is not a size"));
        assert!(message(&["mem:16M"; 17].join(",")).contains("17 devices; give at most 16"));
    }

    #[test]
    fn what_is_made_is_scaled_in_steps() {
        let scaled =
            |text: &str, factor| DeviceName::parse(text).unwrap().scaled(factor).to_string();
        assert_eq!(scaled("loop:48G@/images", 0.1), "loop:5G@/images");
        assert_eq!(scaled("delay:1ms+loop:48G", 0.0001), "delay:1ms+loop:1G");
        assert_eq!(scaled("mem:512M", 0.1), "mem:512M");
        assert_eq!(scaled("loop:8G", 2.0), "loop:16G");
        assert_eq!(scaled("/dev/sdb", 0.1), "/dev/sdb");
        assert_eq!(scaled("loop:48G,mem:48G", 0.1), "loop:5G,mem:5G");
    }
}
