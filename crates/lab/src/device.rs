//! The notation of a device: `loop:8G[@DIR]`, `mem:4G`, or `/dev/X` with `--destroy NAME`. Knows
//! the notation only; whether there is such a device is the trial room's business.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::quantity::{parse_size, size_text};

/// What a person asked the trials to stand on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceRequest {
    /// An image file, attached to a private loop device.
    Loop {
        /// Size in bytes.
        size_bytes: u64,
        /// Directory of the image; one that is kept on a disk when absent.
        directory: Option<PathBuf>,
    },
    /// Memory, attached to a private loop device.
    Memory {
        /// Size in bytes.
        size_bytes: u64,
    },
    /// A real block device, whose contents will be destroyed.
    Block {
        /// The device node.
        path: PathBuf,
        /// What the user gave to `--destroy`.
        destroy: String,
    },
}

/// The device of a study that names none.
pub const DEFAULT_DEVICE: &str = "loop:8G";

/// Smallest image, in bytes. No file system that is worth a comparison fits into less.
pub const SIZE_BYTES_MIN: u64 = 16 << 20;

/// Images are a multiple of this many bytes, so that any block size divides them.
const SIZE_BYTES_STEP: u64 = 1 << 20;

/// Why a device could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    /// The text that was given.
    pub text: String,
    /// Whether it is `--destroy` that is wrong, or missing.
    pub about_destroy: bool,
    /// What is wrong with it and the next step.
    pub problem: String,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': {}", self.text, self.problem)
    }
}

impl std::error::Error for RequestError {}

impl DeviceRequest {
    /// Reads a device and the value of `--destroy`. Touches nothing.
    pub fn parse(text: &str, destroy: Option<&str>) -> Result<DeviceRequest, RequestError> {
        let error = |about_destroy: bool, problem: String| {
            Err(RequestError { text: text.to_string(), about_destroy, problem })
        };
        let fail = |problem: String| error(false, problem);
        if destroy.is_some() && !text.starts_with('/') {
            return error(
                true,
                "--destroy goes with a real device such as --device /dev/sdb; leave it out here"
                    .into(),
            );
        }
        if text.starts_with('/') {
            return match destroy {
                Some(destroy) if !destroy.trim().is_empty() => Ok(DeviceRequest::Block {
                    path: text.into(),
                    destroy: destroy.trim().to_string(),
                }),
                _ => error(
                    true,
                    format!(
                        "everything on a real device is destroyed; confirm with --destroy NAME, its kernel name ({}) or its serial number",
                        Path::new(text).file_name().unwrap_or_default().display()
                    ),
                ),
            };
        }
        let size = |word: &str| match parse_size(word) {
            Err(error) => Err(error.to_string()),
            Ok(bytes) if bytes < SIZE_BYTES_MIN => {
                Err(format!("{word} is too small; give at least {}", size_text(SIZE_BYTES_MIN)))
            }
            Ok(bytes) if bytes % SIZE_BYTES_STEP != 0 => {
                Err(format!("{word} is not a multiple of {}", size_text(SIZE_BYTES_STEP)))
            }
            Ok(bytes) => Ok(bytes),
        };
        match text.split_once(':') {
            Some(("loop", rest)) => {
                let (word, directory) = match rest.split_once('@') {
                    Some((_, "")) => {
                        return fail("'@' is followed by no directory; write loop:8G@/DIR".into());
                    }
                    Some((word, directory)) => (word, Some(PathBuf::from(directory))),
                    None => (rest, None),
                };
                match size(word) {
                    Ok(size_bytes) => Ok(DeviceRequest::Loop { size_bytes, directory }),
                    Err(problem) => fail(problem),
                }
            }
            Some(("mem", word)) => match size(word) {
                Ok(size_bytes) => Ok(DeviceRequest::Memory { size_bytes }),
                Err(problem) => fail(problem),
            },
            _ => fail(
                "not a device; write loop:8G or loop:8G@/DIR (an image file), mem:4G (memory), or the path of a block device".into(),
            ),
        }
    }
}

impl fmt::Display for DeviceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceRequest::Loop { size_bytes, directory: None } => {
                write!(f, "loop:{}", size_text(*size_bytes))
            }
            DeviceRequest::Loop { size_bytes, directory: Some(directory) } => {
                write!(f, "loop:{}@{}", size_text(*size_bytes), directory.display())
            }
            DeviceRequest::Memory { size_bytes } => write!(f, "mem:{}", size_text(*size_bytes)),
            DeviceRequest::Block { path, .. } => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_reads_and_prints_back() {
        for text in ["loop:8G", "loop:512M@/mnt/big disk", "mem:4G", "loop:1G@relative/dir"] {
            assert_eq!(DeviceRequest::parse(text, None).unwrap().to_string(), text);
        }
        assert_eq!(
            DeviceRequest::parse("loop:1G@/a@b", None),
            Ok(DeviceRequest::Loop { size_bytes: 1 << 30, directory: Some("/a@b".into()) })
        );
        assert_eq!(
            DeviceRequest::parse("/dev/sdb", Some(" WD-1234 ")),
            Ok(DeviceRequest::Block { path: "/dev/sdb".into(), destroy: "WD-1234".into() })
        );
        assert!(DeviceRequest::parse(DEFAULT_DEVICE, None).is_ok());
    }

    #[test]
    fn errors_name_the_value_and_the_next_step() {
        let message = |text: &str, destroy: Option<&str>| {
            DeviceRequest::parse(text, destroy).unwrap_err().to_string()
        };
        assert!(message("loop:8Q", None).contains("'8Q' is not a size"));
        assert!(message("loop:", None).contains("such as 8G"));
        assert!(message("loop:1M", None).contains("at least 16M"));
        assert!(message("mem:16777217", None).contains("multiple of 1M"));
        assert!(message("loop:8G@", None).contains("no directory"));
        assert!(message("loop:8G", Some("sdb")).contains("leave it out"));
        assert!(message("/dev/sdb", None).contains("--destroy NAME, its kernel name (sdb)"));
        assert!(message("/dev/sdb", Some("")).contains("--destroy"));
        assert!(message("disk", None).contains("loop:8G@/DIR"));
        assert!(message("ram:1G", None).starts_with("'ram:1G': not a device"));
    }
}
