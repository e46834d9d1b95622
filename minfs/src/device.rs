//! Opening the device of a volume for the tools.

use std::path::Path;
use std::time::Duration;

use block::FileDevice;
use block::tool::{self, Checked, ToolFailure};

/// How long a device that is mounted nowhere may stay busy: the daemon of a mount that was just
/// ended may need a moment to let go of it.
const RELEASE_WAIT: Duration = Duration::from_secs(10);

/// Opens a device or an image exclusively; the error names it.
pub fn open(path: &Path, read_only: bool) -> Result<FileDevice, ToolFailure> {
    tool::open(path, read_only, RELEASE_WAIT)
}

/// Opens what was checked, to overwrite it; with a length, makes or resizes the image.
pub fn open_checked(
    path: &Path,
    checked: &Checked,
    length: Option<u64>,
) -> Result<FileDevice, ToolFailure> {
    tool::open_checked(path, checked, length, RELEASE_WAIT)
}
