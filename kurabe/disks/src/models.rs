//! From a profile to its model.

use crate::DiskModel;
use crate::cloud::Cloud;
use crate::flash::Flash;
use crate::hard::HardDisk;
use crate::profile::{DiskKind, DiskProfile, Placed, ProfileError};

impl DiskProfile {
    /// The disk, of which a device of `length` bytes is a slice.
    ///
    /// Errors: the slice is larger than the disk.
    pub fn disk(&self, length: u64) -> Result<(Box<dyn DiskModel>, Placed), ProfileError> {
        let placed = self.placed(length)?;
        let disk: Box<dyn DiskModel> = match self.kind {
            DiskKind::Hard => Box::new(HardDisk::new(&self.parameters, self.seed)),
            DiskKind::Flash => Box::new(Flash::new(&self.parameters, length)),
            DiskKind::Cloud => Box::new(Cloud::new(&self.parameters, length, self.seed)),
        };
        Ok((disk, placed))
    }
}
