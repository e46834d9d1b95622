//! Where the parts of a store lie: planned, written and judged.
//!
//! Superblock, two roots, journal, two checkpoint areas, data, and a copy of the superblock in the
//! last block. Only sizes are stored; all places follow from them.

use block::{AlignedBuffer, BlockDevice};
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{Error, Result};
use crate::layout::{
    BLOCK_BYTES, ENTRIES_PER_BLOCK, FORMAT_VERSION, JOURNAL_BLOCK, ROOTS_BLOCK, SUPERBLOCK_MAGIC,
    Superblock, is_sealed, read, seal,
};
use crate::medium::Source;
use crate::sync::{mpsc, thread};

/// Fewest blocks of a journal.
const JOURNAL_BLOCKS_MIN: u64 = 8;
/// Most blocks of a journal: what an opening reads.
const JOURNAL_BLOCKS_MAX: u64 = 16_384;
/// Blocks of a transfer of checkpoint or journal: 1 MiB.
pub(crate) const TRANSFER_BLOCKS: usize = 256;
/// From so many transfers on one is under way while the one before is looked at.
const TRANSFERS_AHEAD_MIN: usize = 4;
/// Most blocks of a store, and most objects; an opening counts on it.
pub(crate) const STORE_BLOCKS_MAX: u64 = (1 << 39) - 1;
/// Puts that replace a value may be under way beyond the limit of objects.
pub(crate) const OBJECTS_SPARE: u64 = 1024;

/// How to make a store.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Size of the store in bytes; all of the device unless given.
    pub store_bytes: Option<u64>,
    /// Allocation unit in bytes, 512 or 4096; the block size of the device unless given.
    pub unit_bytes: Option<u32>,
    /// Most objects; one for each 4 KiB of the device unless given.
    pub objects_max: Option<u64>,
    /// Size of the journal in bytes; a 64th of the device, at most 64 MiB, unless given.
    pub journal_bytes: Option<u64>,
    /// Identity instead of a random one.
    pub uuid: Option<uuid::Uuid>,
}

/// Identity and sizes of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub(crate) uuid: [u8; 16],
    /// Size of the store in blocks of 4096 bytes.
    pub(crate) store_blocks: u64,
    pub(crate) journal_blocks: u64,
    pub(crate) area_blocks: u64,
    pub(crate) objects_max: u64,
    pub(crate) unit_bytes: u64,
}

impl Geometry {
    /// Lays a store out on a device of `device_bytes` with blocks of `block_size` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] names the option or size that does not fit.
    pub fn plan(device_bytes: u64, block_size: u32, options: &CreateOptions) -> Result<Self> {
        let store_bytes = device_bytes.min(options.store_bytes.unwrap_or(u64::MAX));
        let store_blocks = store_bytes / BLOCK_BYTES;
        let journal_blocks = match options.journal_bytes {
            Some(bytes) => bytes / BLOCK_BYTES,
            None => (store_blocks / 64).clamp(JOURNAL_BLOCKS_MIN, JOURNAL_BLOCKS_MAX),
        };
        let objects_max = options.objects_max.unwrap_or(store_blocks);
        let geometry = Self {
            uuid: *options.uuid.unwrap_or_else(uuid::Uuid::new_v4).as_bytes(),
            store_blocks,
            journal_blocks,
            area_blocks: area_blocks(objects_max),
            objects_max,
            unit_bytes: u64::from(options.unit_bytes.unwrap_or(block_size)),
        };
        geometry.judge().map_err(Error::Invalid)?;
        geometry.suits(block_size)?;
        Ok(geometry)
    }

    /// What is wrong with the sizes, in words.
    fn judge(&self) -> std::result::Result<(), String> {
        if ![512, BLOCK_BYTES].contains(&self.unit_bytes) {
            return Err(format!("a unit of {} bytes; it is 512 or 4096", self.unit_bytes));
        }
        if !(JOURNAL_BLOCKS_MIN..=JOURNAL_BLOCKS_MAX).contains(&self.journal_blocks) {
            return Err(format!(
                "a journal of {} blocks of 4096 bytes; it has {JOURNAL_BLOCKS_MIN} to \
                 {JOURNAL_BLOCKS_MAX}",
                self.journal_blocks
            ));
        }
        if self.store_blocks > STORE_BLOCKS_MAX || self.objects_max > STORE_BLOCKS_MAX {
            return Err("a store of 2 PiB, or of 2^39 objects, or more".into());
        }
        if self.area_blocks != area_blocks(self.objects_max) {
            return Err(format!(
                "checkpoints of {} blocks for {} objects",
                self.area_blocks, self.objects_max
            ));
        }
        if self.data_block() + 1 >= self.store_blocks {
            return Err(format!(
                "{} blocks of 4096 bytes leave no room for data beside {} of a journal and two \
                 checkpoints",
                self.store_blocks,
                self.data_block()
            ));
        }
        Ok(())
    }

    /// Whether a device with this block size can carry the store.
    fn suits(&self, block_size: u32) -> Result<()> {
        if u64::from(block_size) <= self.unit_bytes {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "a device with blocks of at most {} bytes, and this one has {block_size}",
            self.unit_bytes
        )))
    }

    /// Reads the geometry of the store on `device`, from the first block or its copy in the last.
    ///
    /// # Errors
    ///
    /// [`Error::NotLump`], [`Error::Damaged`], [`Error::Unsupported`], [`Error::DeviceShrank`], or
    /// [`Error::Device`].
    pub fn read(device: &dyn BlockDevice) -> Result<Self> {
        match Self::read_at(device, 0) {
            Err(first @ (Error::NotLump | Error::Damaged(_) | Error::Device { .. })) => {
                let last = (device.len() / BLOCK_BYTES).saturating_sub(1);
                Self::read_at(device, last).map_err(|last| match (&first, &last) {
                    (Error::NotLump, Error::Damaged(_)) => last,
                    _ => first,
                })
            }
            outcome => outcome,
        }
    }

    /// Reads and judges the superblock in one block of the device.
    pub(crate) fn read_at(device: &dyn BlockDevice, at: u64) -> Result<Self> {
        if device.len() < BLOCK_BYTES {
            return Err(Error::NotLump);
        }
        if u64::from(device.block_size()) > BLOCK_BYTES {
            return Err(Error::Unsupported(format!(
                "a device with blocks of at most 4096 bytes, and this one has {}",
                device.block_size()
            )));
        }
        let block = read_block(&device, at)?;
        if !block.starts_with(&SUPERBLOCK_MAGIC) {
            return Err(Error::NotLump);
        }
        if !is_sealed(&[0; 16], &SUPERBLOCK_MAGIC, &block) {
            return Err(Error::Damaged(format!("the superblock in block {at}")));
        }
        let fields: Superblock = read(&block);
        let (version, features) = (fields.version.get(), fields.features.get());
        let is_known = version == FORMAT_VERSION && features == 0;
        if !is_known || fields.reserved.iter().any(|b| *b != 0) {
            return Err(Error::Unsupported(format!(
                "version {version} of the format with features {features:#x}, and this lump knows \
                 version {FORMAT_VERSION} without any; get its values with the lump that made it, \
                 and put them into a new store"
            )));
        }
        let geometry = Self {
            uuid: fields.uuid,
            store_blocks: fields.store_blocks.get(),
            journal_blocks: fields.journal_blocks.get(),
            area_blocks: fields.area_blocks.get(),
            objects_max: fields.objects_max.get(),
            unit_bytes: u64::from(fields.unit_bytes.get()),
        };
        geometry
            .judge()
            .map_err(|why| Error::Damaged(format!("the superblock in block {at} states {why}")))?;
        if geometry.store_bytes() > device.len() {
            return Err(Error::DeviceShrank {
                store_bytes: geometry.store_bytes(),
                device_bytes: device.len(),
            });
        }
        geometry.suits(device.block_size())?;
        Ok(geometry)
    }

    /// The superblock of this geometry.
    pub(crate) fn superblock(&self) -> AlignedBuffer {
        let fields = Superblock {
            magic: SUPERBLOCK_MAGIC,
            version: FORMAT_VERSION.into(),
            uuid: self.uuid,
            store_blocks: self.store_blocks.into(),
            journal_blocks: self.journal_blocks.into(),
            area_blocks: self.area_blocks.into(),
            objects_max: self.objects_max.into(),
            unit_bytes: (self.unit_bytes as u32).into(),
            ..Superblock::new_zeroed()
        };
        let mut block = AlignedBuffer::copied_from(fields.as_bytes());
        seal(&[0; 16], &mut block);
        block
    }

    /// Identity.
    pub fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::from_bytes(self.uuid)
    }

    /// Size in bytes.
    pub fn store_bytes(&self) -> u64 {
        self.store_blocks * BLOCK_BYTES
    }

    /// Size of the journal in bytes.
    pub fn journal_bytes(&self) -> u64 {
        self.journal_blocks * BLOCK_BYTES
    }

    /// Most objects.
    pub fn objects_max(&self) -> u64 {
        self.objects_max
    }

    /// Allocation unit in bytes.
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Bytes for values and their trailers, used or free.
    pub fn data_bytes(&self) -> u64 {
        (self.store_blocks - 1 - self.data_block()) * BLOCK_BYTES
    }

    pub(crate) fn unit_count(&self) -> u64 {
        self.data_bytes() / self.unit_bytes
    }

    fn data_block(&self) -> u64 {
        JOURNAL_BLOCK + self.journal_blocks + 2 * self.area_blocks
    }

    /// Where a unit lies, in bytes.
    pub(crate) fn unit_offset(&self, unit: u64) -> u64 {
        self.data_block() * BLOCK_BYTES + unit * self.unit_bytes
    }

    /// Where a journal block lies, in bytes.
    pub(crate) fn journal_offset(&self, sequence: u64) -> u64 {
        (JOURNAL_BLOCK + sequence % self.journal_blocks) * BLOCK_BYTES
    }

    /// Where the checkpoint of a generation begins, in bytes.
    pub(crate) fn area_offset(&self, generation: u64) -> u64 {
        (JOURNAL_BLOCK + self.journal_blocks + generation % 2 * self.area_blocks) * BLOCK_BYTES
    }

    /// Where the root of a generation lies, in bytes.
    pub(crate) fn root_offset(&self, generation: u64) -> u64 {
        (ROOTS_BLOCK + generation % 2) * BLOCK_BYTES
    }

    /// Where the copy of the superblock lies, in bytes.
    pub(crate) fn backup_offset(&self) -> u64 {
        (self.store_blocks - 1) * BLOCK_BYTES
    }
}

/// Blocks of the largest checkpoint.
fn entry_blocks(objects_max: u64) -> u64 {
    objects_max.saturating_add(OBJECTS_SPARE).div_ceil(ENTRIES_PER_BLOCK as u64)
}

/// With room for additions, where they are of use: an eighth, in steps of 8 blocks.
fn area_blocks(objects_max: u64) -> u64 {
    entry_blocks(objects_max) + entry_blocks(objects_max) / 64 * 8
}

/// Gives `visit` the blocks of parts of a device, each its first byte and its blocks, in order;
/// the next transfer is under way meanwhile.
pub(crate) fn read_ahead(
    source: &dyn Source,
    name: &str,
    parts: Vec<(u64, u64)>,
    mut visit: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let transfers: Vec<(u64, usize)> = parts
        .into_iter()
        .flat_map(|(start, blocks)| {
            (0..blocks).step_by(TRANSFER_BLOCKS).map(move |first| {
                let count = (blocks - first).min(TRANSFER_BLOCKS as u64);
                (start + first * BLOCK_BYTES, (count * BLOCK_BYTES) as usize)
            })
        })
        .collect();
    let read = |buffer: &mut AlignedBuffer, (offset, length): (u64, usize)| {
        source
            .read_into(&mut buffer[..length], offset)
            .map_err(Error::device(format!("read the {name} at byte {offset}")))
    };
    let mut visit_all = |bytes: &[u8]| bytes.chunks(BLOCK_BYTES as usize).try_for_each(&mut visit);
    let buffer = || AlignedBuffer::zeroed(TRANSFER_BLOCKS * BLOCK_BYTES as usize);
    if transfers.len() < TRANSFERS_AHEAD_MIN {
        let mut buffer = buffer();
        return transfers.into_iter().try_for_each(|transfer| {
            read(&mut buffer, transfer)?;
            visit_all(&buffer[..transfer.1])
        });
    }
    let (read_one, next) = mpsc::sync_channel(0);
    let (give_back, spare) = mpsc::channel();
    (0..2).for_each(|_| drop(give_back.send(buffer())));
    thread::scope(move |scope| {
        scope.spawn(move || {
            for transfer in transfers {
                let Ok(mut buffer) = spare.recv() else { return };
                let outcome = read(&mut buffer, transfer).map(|()| (buffer, transfer.1));
                if read_one.send(outcome).is_err() {
                    return;
                }
            }
        });
        for outcome in next {
            let (buffer, length) = outcome?;
            visit_all(&buffer[..length])?;
            // The reader may have ended.
            let _ = give_back.send(buffer);
        }
        Ok(())
    })
}

/// Reads one block.
pub(crate) fn read_block(source: &dyn Source, at: u64) -> Result<AlignedBuffer> {
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES as usize);
    source
        .read_into(&mut block, at * BLOCK_BYTES)
        .map_err(Error::device(format!("read block {at}")))?;
    Ok(block)
}
