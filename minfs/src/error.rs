//! What can go wrong in a volume, each with the errno that a system call would give.
//!
//! Corrupt bytes become [`Error::Damaged`] or [`Error::NotMinfs`], never a panic.

use std::io;

use block::tool::ToolFailure;

/// Why an operation on a volume failed. Nothing was done, unless the text says otherwise.
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
    /// No geometry with the magic of minfs was found.
    #[error("this is no minfs volume (neither the first block nor the last carries its magic)")]
    NotMinfs,
    /// The metadata contradict themselves.
    #[error("damaged: {0}; run fsck.minfs")]
    Damaged(String),
    /// The volume was made for a later implementation.
    #[error("the volume needs {0}, which this version of minfs does not know")]
    Unsupported(String),
    /// The device is smaller than the volume on it.
    #[error("the volume has {volume_bytes} bytes but its device only {device_bytes}")]
    DeviceShrank {
        /// Size that the geometry states.
        volume_bytes: u64,
        /// Size that the device has.
        device_bytes: u64,
    },
    /// Not enough free space.
    #[error("no space: {wanted_bytes} bytes wanted, {free_bytes} free")]
    NoSpace {
        /// What the operation needs beyond what it has.
        wanted_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },
    /// Every inode is in use.
    #[error("the volume holds its {limit} files already; mkfs.minfs --files sets the limit")]
    TooManyFiles {
        /// Number of inodes.
        limit: u32,
    },
    /// The free space is too scattered for this file.
    #[error("{name}: the file would need more than {limit} extents; free a larger contiguous area")]
    TooManyExtents {
        /// The file.
        name: String,
        /// Most extents of a file.
        limit: usize,
    },
    /// No file of this name.
    #[error("{0}: no such file")]
    NotFound(String),
    /// The name is taken.
    #[error("{0}: the file exists")]
    Exists(String),
    /// The name is longer than 255 bytes.
    #[error("a name of {0} bytes is too long; 255 is the most")]
    NameTooLong(usize),
    /// The name is empty, `.`, `..`, or has a slash or a zero byte.
    #[error("{0:?} is no valid name")]
    BadName(String),
    /// Writing is not possible.
    #[error("the volume is read-only: {0}")]
    ReadOnly(String),
    /// A record of the file is damaged, and may have been the newest.
    #[error("{0}: its newest record may be lost; run fsck.minfs, which says what can be done")]
    DamagedFile(String),
    /// An argument makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// An offset or a length beyond the largest file.
    #[error("{0} bytes are beyond the largest possible file")]
    TooLarge(u64),
}

/// Result of an operation on a volume.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno of `errno.h` that stands for this error at a system call.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Self::NotMinfs | Self::Unsupported(_) | Self::Invalid(_) | Self::BadName(_) => {
                libc::EINVAL
            }
            Self::Damaged(_) | Self::DeviceShrank { .. } | Self::DamagedFile(_) => libc::EUCLEAN,
            Self::NoSpace { .. } | Self::TooManyFiles { .. } => libc::ENOSPC,
            Self::TooManyExtents { .. } | Self::TooLarge(_) => libc::EFBIG,
            Self::NotFound(_) => libc::ENOENT,
            Self::Exists(_) => libc::EEXIST,
            Self::NameTooLong(_) => libc::ENAMETOOLONG,
            Self::ReadOnly(_) => libc::EROFS,
        }
    }

    pub(crate) fn device(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Device { action, source }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = io::Error::from_raw_os_error(error.errno()).kind();
        io::Error::new(kind, error)
    }
}

impl From<Error> for ToolFailure {
    /// The library refuses before it writes, but for what the device or its space fails.
    fn from(error: Error) -> Self {
        use Error::{
            Damaged, DamagedFile, Device, DeviceShrank, NoSpace, NotFound, ReadOnly, TooManyExtents,
        };
        match error {
            Device { .. }
            | Damaged(_)
            | DamagedFile(_)
            | DeviceShrank { .. }
            | NoSpace { .. }
            | NotFound(_)
            | ReadOnly(_)
            | TooManyExtents { .. } => Self::Failed(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}
