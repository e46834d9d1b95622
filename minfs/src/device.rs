//! Opening the device of a volume for the tools.

use std::path::Path;
use std::time::Duration;

use block::tool::{Failure, open as open_device};
use block::{FileDevice, FileDeviceOptions};

/// How long a device that is mounted nowhere may stay busy: the daemon of a mount that was just
/// ended may need a moment to let go of it.
const RELEASE_WAIT: Duration = Duration::from_secs(10);

/// Opens a device or an image exclusively; the error names it.
pub fn open(path: &Path, read_only: bool) -> Result<FileDevice, Failure> {
    open_device(path, FileDeviceOptions { read_only, ..Default::default() }, RELEASE_WAIT)
}

/// Opens what shall be changed; with a length, makes or resizes the image.
pub fn open_to_write(path: &Path, set_length: Option<u64>) -> Result<FileDevice, Failure> {
    open_device(path, FileDeviceOptions { set_length, ..Default::default() }, RELEASE_WAIT)
}
