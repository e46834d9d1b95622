//! minfs: a minimal file system for storage engines that keep their own journal.
//!
//! A volume holds few, large files in one flat directory. There is no log, no bitmap and no page
//! cache: every inode has two slots, written alternately, and the free space is what no record
//! claims. A change of names, sizes or space costs one 4 KiB write and one flush; a write inside
//! the valid length costs nothing but itself. The format and the reasons are in
//! `minfs/docs/format-minfs.md`.
//!
//! ```
//! use std::sync::Arc;
//! use block::MemoryDevice;
//! use minfs::{MkfsOptions, MountOptions, Volume};
//!
//! let device = Arc::new(MemoryDevice::new(1 << 20, 512));
//! minfs::mkfs(&device, &MkfsOptions::default())?;
//! let volume = Volume::mount(device, &MountOptions::default())?;
//! let file = volume.create(b"journal", 0o644)?;
//! file.write(b"first entry", 0)?;
//! file.sync()?;
//! volume.rename(b"journal", b"journal.old", true)?;
//! volume.unmount()?;
//! # Ok::<(), minfs::Error>(())
//! ```
//!
//! This crate depends on `block` and knows nothing of the benchmark. The modules: `layout` (bytes),
//! `geometry` and `record` (bytes judged), `survey` and `conflicts` (a whole volume judged),
//! `allocator`, `medium` (what is written and flushed), `lengths` (what is on the medium of a file),
//! `shared` (records, space and their order on the medium), `volume` (names), `file` and `pieces`
//! (bytes), `mkfs`, `fsck`, `fuse` (the mount), and `program` (the tools).

#![warn(missing_docs)]

mod allocator;
mod checksum;
#[cfg(all(feature = "tools", feature = "mount"))]
mod cli;
mod conflicts;
#[cfg(all(feature = "tools", feature = "mount"))]
mod device;
mod error;
mod file;
mod flushes;
mod fsck;
#[cfg(feature = "mount")]
pub mod fuse;
mod geometry;
mod inode;
pub mod layout;
mod lengths;
mod medium;
mod mkfs;
#[cfg(all(feature = "tools", feature = "mount"))]
mod mounting;
mod pieces;
#[cfg(all(feature = "tools", feature = "mount"))]
pub mod program;
mod record;
mod shared;
mod survey;
mod sync;
#[cfg(all(feature = "tools", feature = "mount"))]
mod tools;
mod volume;

pub use error::{Error, Result};
pub use file::{File, Piece};
pub use fsck::{FsckReport, fsck};
pub use geometry::VolumeGeometry;
pub use mkfs::{MkfsOptions, mkfs, plan};
pub use record::{Attributes, Extent};
pub use shared::display as display_name;
pub use survey::{Finding, Severity, Subject};
pub use volume::{FileFacts, MountOptions, Sabotage, SpaceFacts, Volume, check_name};

/// Reads the geometry of the volume on `device`: identity, label and sizes.
pub fn identify(device: &dyn block::BlockDevice) -> Result<VolumeGeometry> {
    Ok(geometry::find(device)?.geometry)
}
