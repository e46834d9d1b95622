//! What can go wrong in a store. Corrupt bytes become an error, never a panic and never data.

use std::io;

use block::tool::ToolFailure;

/// Why an operation on a store failed. Nothing was done, unless the text says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error("cannot {action}: {source}")]
    Device {
        /// What was tried, with the place.
        action: String,
        /// What the device said.
        source: io::Error,
    },
    /// No superblock of lump was found.
    #[error("this is no lump store (neither the first block nor the last carries its magic)")]
    NotLump,
    /// The metadata contradict themselves; nothing was written.
    #[error("damaged: {0}; copy the device before anything else, and see `lump check`")]
    Damaged(String),
    /// The store was made for a later implementation, or for another kind of device.
    #[error("the store needs {0}")]
    Unsupported(String),
    /// The device is smaller than the store on it.
    #[error("the store has {store_bytes} bytes but its device only {device_bytes}")]
    DeviceShrank {
        /// Size that the superblock states.
        store_bytes: u64,
        /// Size that the device has.
        device_bytes: u64,
    },
    /// No free extent is long enough.
    #[error(
        "no space: {wanted_bytes} bytes wanted in one piece; {free_bytes} are free, at most \
         {longest_free_bytes} in one piece; delete something"
    )]
    NoSpace {
        /// What the value takes.
        wanted_bytes: u64,
        /// What is free in all.
        free_bytes: u64,
        /// The longest free extent.
        longest_free_bytes: u64,
    },
    /// The store holds as many objects as it was made for.
    #[error("the store holds its {limit} objects already; `lump create --objects` sets the limit")]
    TooManyObjects {
        /// Most objects.
        limit: u64,
    },
    /// The value is longer than any may be.
    #[error("a value of {length_bytes} bytes is too long; {limit_bytes} is the most")]
    TooLarge {
        /// Its length.
        length_bytes: u64,
        /// Longest value.
        limit_bytes: u64,
    },
    /// A range of bytes that the value does not have.
    #[error("bytes {start} to {end} were asked of a value of {length_bytes} bytes")]
    BadRange {
        /// First byte.
        start: u64,
        /// The byte after the last.
        end: u64,
        /// Length of the value.
        length_bytes: u64,
    },
    /// The value of a key is not on the medium as it was put.
    #[error(
        "corrupt: key {key:032x}, {length_bytes} bytes in the extent at byte {offset}: {what} is \
         {found:#010x}, expected {expected:#010x}"
    )]
    Corrupt {
        /// The key.
        key: u128,
        /// Where the extent lies on the device, in bytes.
        offset: u64,
        /// Length of the value in bytes.
        length_bytes: u64,
        /// Which checksum.
        what: String,
        /// The checksum that the value should have.
        expected: u32,
        /// The checksum that it has.
        found: u32,
    },
    /// Writing is not possible. Of an operation that got this from a failing device only the next
    /// opening tells whether it took place.
    #[error("the store refuses to write: {0}")]
    ReadOnly(String),
    /// An argument makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// Result of an operation on a store.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn device(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Device { action, source }
    }

    /// Why a store refuses to write after this: a refusal has its reason already.
    pub(crate) fn refusal(&self) -> String {
        match self {
            Self::ReadOnly(why) => why.clone(),
            error => error.to_string(),
        }
    }
}

impl From<Error> for ToolFailure {
    fn from(error: Error) -> Self {
        use Error::{BadRange, DeviceShrank, Invalid, NotLump, TooLarge, Unsupported};
        match error {
            BadRange { .. }
            | DeviceShrank { .. }
            | Invalid(_)
            | NotLump
            | TooLarge { .. }
            | Unsupported(_) => Self::Refused(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
