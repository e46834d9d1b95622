//! From a profile to its model.

use crate::Disk;
use crate::cloud::Cloud;
use crate::flash::Flash;
use crate::hard::HardDisk;
use crate::profile::{Kind, Placed, Profile, ProfileError};

impl Profile {
    /// The disk, of which a device of `length` bytes is a slice.
    ///
    /// # Errors
    ///
    /// The slice is larger than the disk.
    pub fn disk(&self, length: u64) -> Result<(Box<dyn Disk>, Placed), ProfileError> {
        let placed = self.placed(length)?;
        let disk: Box<dyn Disk> = match self.kind {
            Kind::Hard => Box::new(HardDisk::new(&self.parameters, self.seed)),
            Kind::Flash => Box::new(Flash::new(&self.parameters, length)),
            Kind::Cloud => Box::new(Cloud::new(&self.parameters, length, self.seed)),
        };
        Ok((disk, placed))
    }
}
