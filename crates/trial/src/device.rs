//! What a trial stands on: an image file or memory behind a private loop device, or a real block
//! device that was claimed.
//!
//! The runner prepares a device once for a study ([`prepare`]); every trial attaches it afresh
//! ([`attach`]) and gives it back. Knows nothing of file systems.

pub mod attach;
pub mod facts;
pub mod fill;
pub mod loop_node;
pub mod prepare;
mod real;

use std::fmt;
use std::io;

pub use attach::{Attached, attach};
pub use facts::{BackingFacts, BlockDeviceFacts, DeviceFacts};
pub use fill::Progress;
pub use lab::device::{DEFAULT_DEVICE, DeviceRequest, RequestError};
pub use prepare::{Prepared, prepare};
pub use real::{examine, size_bytes};

/// Why a device could not be prepared or attached.
#[derive(Debug)]
pub enum DeviceError {
    /// It was refused: nothing was touched. The text names what was found and the next step.
    Refused(String),
    /// The system said no.
    System {
        /// What was tried, with the path.
        what: String,
        /// What the system said.
        error: io::Error,
    },
    /// A stop was asked for.
    Stopped,
}

impl DeviceError {
    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> DeviceError {
        let what = what.into();
        move |error| match error.kind() {
            io::ErrorKind::Interrupted => DeviceError::Stopped,
            _ => DeviceError::System { what, error },
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Refused(text) => f.write_str(text),
            DeviceError::System { what, error } => {
                write!(f, "{what}: {error}")?;
                match os_code(error) {
                    Some(libc::ENXIO | libc::ENODEV) => {
                        f.write_str("; the device is gone: see 'dmesg' for what became of it")
                    }
                    Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ESTALE) => {
                        f.write_str("; what the image lies on is gone: mount it again")
                    }
                    Some(libc::EIO) => f.write_str(
                        "; the disk below reports an error: see 'dmesg', and do not trust its numbers",
                    ),
                    Some(libc::ENOSPC) => {
                        f.write_str("; free some space or give --device a smaller size")
                    }
                    _ => Ok(()),
                }
            }
            DeviceError::Stopped => f.write_str("the study was stopped"),
        }
    }
}

/// The number of an error of the system, also of one to which a place was added.
fn os_code(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let cause = error.get_ref()?.source()?;
        os_code(cause.downcast_ref()?)
    })
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DeviceError::System { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<DeviceError> for crate::tool::Failure {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Stopped => crate::tool::Failure::Stopped,
            error => crate::tool::Failure::of(error.to_string()),
        }
    }
}
