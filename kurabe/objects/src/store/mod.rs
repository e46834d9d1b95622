//! Where objects are kept: one small trait, and the table of what implements it.
//!
//! A store is made on a [`StoreLocation`] and used through one [`StoreSession`] a thread. What a benchmark must
//! not measure (making the contents) is separated from what it must ([`StoreSession::prepare`] and
//! [`StoreSession::put`]). To add a store, write its file and give it a line in [`STORES`].
//!
//! Must not know: programs, latencies, threads beyond that there may be many sessions.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::BlockDevice;
use serde::{Deserialize, Serialize};
use vocabulary::suggestion::unknown;

use measure::durable::WholeSync;

#[cfg(feature = "cannyls")]
mod cannyls;
mod files;
#[cfg(feature = "fjall")]
mod fjall;
mod lump;
mod null;
#[cfg(feature = "redb")]
mod redb;
mod rocksdb;
mod sequential;

pub trait Store: Send + Sync {
    /// A way into the store for one thread.
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError>;

    /// Makes everything durable that was put and deleted before the call.
    fn sync(&self) -> Result<(), StoreError>;

    /// The keys of all objects, ascending.
    fn keys(&self) -> Result<Vec<u64>, StoreError>;

    /// Bytes that it has written so far to the file or device that it lies on; `None` for a store
    /// that does not count them.
    fn written_bytes(&self) -> Option<u64> {
        None
    }

    /// What the store says of itself: sizes, options in force.
    fn facts(&self) -> BTreeMap<String, String>;

    /// What is left in it, in bytes, for a store that knows; asked after the final sync.
    fn usage(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// One thread's way into a store.
pub trait StoreSession {
    /// Memory for the contents of the next put, of this size, for the caller to fill whole. This
    /// is not part of the put.
    fn prepare(&mut self, size_bytes: usize, embedded: bool) -> Result<&mut [u8], StoreError>;

    /// Puts what was prepared under a key, new or not.
    fn put(&mut self, key: u64) -> Result<(), StoreError>;

    /// The contents of an object; `None` when there is none under this key.
    fn get(&mut self, key: u64) -> Result<Option<&[u8]>, StoreError>;

    /// Deletes an object; says whether there was one.
    fn delete(&mut self, key: u64) -> Result<bool, StoreError>;

    /// Deletes the objects with keys of a range; says how many there were.
    fn delete_range(&mut self, keys: Range<u64>) -> Result<u64, StoreError>;
}

#[derive(Clone)]
pub enum StoreLocation {
    /// In a directory, which exists and is empty.
    Directory(PathBuf),
    /// On a block device or an image file, which is overwritten.
    Device(PathBuf),
    /// On a device that is open already.
    Open(Arc<dyn BlockDevice>),
}

/// How a store is made and used. A store ignores what it has no use for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreOptions {
    /// Block size of a store that has blocks, in bytes.
    pub block_size_bytes: u32,
    /// Whether every put and delete is durable when it returns.
    pub sync_every_put: bool,
    /// Size of a store on one file or device, in bytes; `None` lets the runner choose by the
    /// program.
    pub capacity_bytes: Option<u64>,
    /// Journal that the program needs at the most, in bytes; the runner fills it in.
    pub journal_bytes: u64,
    /// Most objects that the program keeps at once, where that can be told; the runner fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// What makes the file system below durable, for a store that leaves that to it.
    #[serde(skip)]
    pub whole_sync: WholeSync,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            block_size_bytes: 512,
            sync_every_put: false,
            capacity_bytes: None,
            journal_bytes: 0,
            objects: None,
            whole_sync: WholeSync::Call,
        }
    }
}

/// What a program asks of a store, at the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Objects that are live at once.
    pub objects: u64,
    /// Bytes of the objects that are live at once.
    pub bytes: u64,
    /// Those of them that are embedded.
    pub embedded_bytes: u64,
}

/// What makes or opens a store.
pub type StoreOpener = fn(&StoreLocation, &StoreOptions) -> Result<Box<dyn Store>, StoreError>;

pub struct StoreKind {
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Whether it can be made on a device.
    pub takes_device: bool,
    /// Whether it gives back what was put; one that does not cannot be verified.
    pub keeps_contents: bool,
    /// Greatest size of an object, in bytes.
    pub object_bytes_max: u64,
    /// What this machine lacks for it, with the next step.
    pub missing: fn() -> Option<String>,
    /// Space that it needs for this demand, in bytes.
    pub space: fn(&StoreOptions, &Demand) -> StoreSpace,
    /// Makes an empty store.
    pub create: StoreOpener,
    /// Opens a store that was made.
    pub open: StoreOpener,
}

/// How much of a device or a file system a store takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSpace {
    /// Without this much it does not work, whatever it keeps, in bytes.
    pub least_bytes: u64,
    /// With this much it is comfortable, in bytes.
    pub comfortable_bytes: u64,
    pub journal_bytes: u64,
}

/// Every kind of store.
pub static STORES: &[StoreKind] = &[
    #[cfg(feature = "cannyls")]
    cannyls::KIND,
    files::KIND,
    #[cfg(feature = "fjall")]
    fjall::KIND,
    lump::KIND,
    null::KIND,
    #[cfg(feature = "redb")]
    redb::KIND,
    rocksdb::KIND,
    sequential::KIND,
];

pub fn names() -> Vec<&'static str> {
    STORES.iter().map(|kind| kind.name).collect()
}

pub fn kind(name: &str) -> Result<&'static StoreKind, StoreError> {
    STORES
        .iter()
        .find(|kind| kind.name == name)
        .ok_or_else(|| StoreError::Refused(unknown("store is called", name, &names())))
}

/// The directory of a store that needs a file system.
fn directory<'a>(place: &'a StoreLocation, name: &str) -> Result<&'a Path, StoreError> {
    match place {
        StoreLocation::Directory(directory) => Ok(directory),
        StoreLocation::Device(_) | StoreLocation::Open(_) => {
            Err(StoreError::Refused(needs_file_system(name)))
        }
    }
}

/// The rule for a store that cannot lie on a device.
pub fn needs_file_system(name: &str) -> String {
    format!(
        "the store '{name}' keeps several files or lets one grow, so it needs a mounted file system, as in '{name} over ext4'"
    )
}

/// Memory in which the engines with a log-structured tree and redb keep what they have read, in
/// bytes: what RocksDB takes by itself.
#[cfg(any(feature = "fjall", feature = "redb"))]
const CACHE_BYTES: u64 = 8 << 20;

/// What an engine that writes every object to a log and again to its tables, and drops old
/// versions later, needs: three times the objects, and room for its logs.
fn engine_space(_: &StoreOptions, demand: &Demand) -> StoreSpace {
    const LOGS_BYTES: u64 = 256 << 20;
    let rows_bytes = demand.bytes.saturating_add(demand.objects.saturating_mul(256));
    let comfortable_bytes = rows_bytes.saturating_mul(3).saturating_add(LOGS_BYTES);
    StoreSpace { least_bytes: 0, comfortable_bytes, journal_bytes: 0 }
}

/// How the message begins where a store has no room for another object.
pub const IS_FULL: &str = "the store is full";

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No room for another object.
    #[error("{IS_FULL}: {0}")]
    Full(String),
    /// The store cannot be made or used like this.
    #[error("{0}")]
    Refused(String),
    /// The system below reported an error.
    #[error("{act} {}: {source}", .path.display())]
    System { act: &'static str, path: PathBuf, source: io::Error },
    /// The store itself failed.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl From<StoreError> for String {
    fn from(error: StoreError) -> String {
        error.to_string()
    }
}

impl StoreError {
    /// An error of the system; a full file system is a full store.
    fn system(act: &'static str, path: &Path, source: io::Error) -> StoreError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::Full(format!("{act} {}: {source}", path.display()))
            }
            _ => StoreError::System { act, path: path.to_owned(), source },
        }
    }
}

#[cfg(test)]
mod tests;
