//! Why a tool did not do what it was asked, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

/// Why a command ended without success; the text says what to do next where there is something.
#[derive(Debug)]
pub enum Failure {
    /// Wrong use, or something that forbids the wish: nothing was touched.
    Refused(String),
    /// It was tried and went wrong.
    Failed(String),
}

impl Failure {
    /// A refusal about `subject`, a path or a name.
    pub fn refused(subject: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Refused(format!("{subject}: {why}"))
    }

    /// A failure about `subject`, a path or a name.
    pub fn failed(subject: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Failed(format!("{subject}: {why}"))
    }

    /// The exit code of every command but fsck and mount.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) | Self::Failed(text) => formatter.write_str(text),
        }
    }
}

impl From<crate::Error> for Failure {
    /// The library refuses before it writes, but for what the device or its space fails.
    fn from(error: crate::Error) -> Self {
        use crate::Error::{
            Damaged, DamagedFile, Device, DeviceShrank, NoSpace, ReadOnly, TooManyExtents,
        };
        match error {
            Device { .. }
            | Damaged(_)
            | DamagedFile(_)
            | DeviceShrank { .. }
            | NoSpace { .. }
            | ReadOnly(_)
            | TooManyExtents { .. } => Self::Failed(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}
