//! lump: an object store on one disk, for values of any size under keys of 128 bits.
//!
//! A value lies in one piece, with its checksums behind it: a get is one read and verifies all of
//! it. A durable put of up to 256 KiB is one write; any other is one write of data and a share of one
//! write of the journal. All puts that need a flush while one is under way share the next. Nothing is overwritten in place, nothing is moved later, and what returned as
//! durable survives power loss. The format and the argument for this are in `lump/docs/format-lump.md`.
//!
//! ```
//! use std::sync::Arc;
//! use block::MemoryDevice;
//! use lump::{CreateOptions, Durability, OpenOptions, Store};
//!
//! let device = Arc::new(MemoryDevice::new(8 << 20, 512));
//! Store::create(&device, &CreateOptions::default())?;
//! let store = Store::open(device, &OpenOptions::default())?;
//! store.put(7, b"seven", Durability::Durable)?;
//! assert_eq!(&store.get(7)?.unwrap()[..], b"seven");
//! assert_eq!(store.get_range(7, 1..3)?.unwrap(), b"ev");
//! assert_eq!(store.list(..)?.map(|object| object.key).collect::<Vec<_>>(), [7]);
//! assert!(store.delete(7, Durability::Written)?);
//! store.close()?;
//! # Ok::<(), lump::Error>(())
//! ```
//!
//! This crate depends on `block` and knows nothing of the benchmark or of minfs. Its modules: `layout`
//! (bytes), `geometry`, `extent`, `journal`, `checkpoint` (bytes judged), `recovery` (a whole store
//! judged), `index`, `space`, `window`, `gather` (changes in memory), `medium` (who may write), `data`
//! (extents on their way), `commit` (the order on the medium), `engine` (what is shared, checkpoints),
//! `store`, `check`, `metrics`, `sync` (threads and locks), `sabotage` (canaries).

#![warn(missing_docs)]

mod check;
mod checkpoint;
mod checksum;
mod commit;
mod data;
mod engine;
mod error;
mod extent;
mod gather;
mod geometry;
mod index;
mod journal;
pub mod layout;
mod medium;
mod metrics;
mod recovery;
mod sabotage;
mod space;
mod store;
mod sync;
mod window;

pub use check::{CheckReport, ScrubReport, check};
pub use error::{Error, Result};
pub use extent::Value;
pub use geometry::{CreateOptions, Geometry};
pub use metrics::Metrics;
pub use sabotage::Sabotage;
pub use store::{Durability, Object, OpenOptions, Store, Usage};
