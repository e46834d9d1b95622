//! The geometry of a volume, judged: where the slots, the data and the backup lie.
//!
//! A [`VolumeGeometry`] exists only for values that were checked, so everyone after may compute
//! with them without overflow. Knows nothing of inodes.

use block::BlockDevice;

use crate::checksum::crc32c;
use crate::error::{Error, Result};
use crate::layout::{
    BLOCK_BYTES, FORMAT_VERSION, GEOMETRY_MAGIC, Geometry, INODES_MAX, LABEL_BYTES_MAX,
    UNIT_BYTES_MAX, UNIT_BYTES_MIN, UNITS_MAX,
};

/// Where everything lies on a volume; the invariants of the format hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeGeometry {
    /// The fields as they are on disk.
    pub(crate) fields: Geometry,
}

/// What one copy of the geometry turned out to be.
#[derive(Debug)]
pub(crate) enum Copy {
    Good(Box<VolumeGeometry>),
    /// No magic: perhaps never a minfs.
    Foreign,
    /// The magic, but a wrong checksum or values against the format.
    Damaged(String),
    /// Whole, but for another implementation.
    Unsupported(String),
}

impl VolumeGeometry {
    /// Identity of the volume.
    pub fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::from_bytes(self.fields.uuid)
    }

    /// Label, without padding.
    pub fn label(&self) -> String {
        let length = self.fields.label.iter().position(|byte| *byte == 0);
        let bytes = &self.fields.label[..length.unwrap_or(LABEL_BYTES_MAX)];
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Size of the volume in bytes.
    pub fn volume_bytes(&self) -> u64 {
        self.fields.volume_blocks * BLOCK_BYTES
    }

    /// Allocation unit in bytes.
    pub fn unit_bytes(&self) -> u64 {
        u64::from(self.fields.unit_bytes)
    }

    /// Number of allocation units.
    pub fn unit_count(&self) -> u32 {
        self.fields.unit_count
    }

    /// Number of inodes: the most files that the volume can hold.
    pub fn inode_count(&self) -> u32 {
        self.fields.inode_count
    }

    /// Bytes for data, used or free.
    pub fn data_bytes(&self) -> u64 {
        self.unit_bytes() * u64::from(self.unit_count())
    }

    /// Where unit `unit` begins on the device, in bytes.
    pub fn unit_offset(&self, unit: u32) -> u64 {
        self.fields.data_block * BLOCK_BYTES + u64::from(unit) * self.unit_bytes()
    }

    /// Where slot `slot` (0 or 1) of inode `inode` lies on the device, in bytes.
    pub fn slot_offset(&self, inode: u32, slot: usize) -> u64 {
        let first = [self.fields.first_slots_block, self.fields.second_slots_block][slot];
        (first + u64::from(inode)) * BLOCK_BYTES
    }

    /// Where the two copies of the geometry lie on the device, in bytes.
    pub(crate) fn copy_offsets(&self) -> [u64; 2] {
        [0, self.fields.backup_block * BLOCK_BYTES]
    }

    /// The block as it lies on disk.
    pub(crate) fn encode(&self) -> block::AlignedBuffer {
        let mut bytes = block::AlignedBuffer::zeroed(BLOCK_BYTES as usize);
        let mut fields = self.fields.clone();
        fields.encode(&mut bytes);
        fields.checksum = crc32c(&bytes[..Geometry::SIZE - 4]);
        fields.encode(&mut bytes);
        bytes
    }

    /// Judges fields, whether from disk or from mkfs.
    pub(crate) fn checked(fields: Geometry) -> std::result::Result<Self, String> {
        let end_of = |start: u64, blocks: u64| start.checked_add(blocks).ok_or("overflow");
        let slots = u64::from(fields.inode_count);
        let unit_blocks = u64::from(fields.unit_bytes) / BLOCK_BYTES;
        let data_blocks = unit_blocks * u64::from(fields.unit_count);
        let rules = [
            (u64::from(fields.block_bytes) == BLOCK_BYTES, "the block size is not 4096"),
            (fields.reserved_word == 0, "reserved bytes are not zero"),
            (fields.reserved.iter().all(|byte| *byte == 0), "reserved bytes are not zero"),
            (fields.unit_bytes.is_power_of_two(), "the allocation unit is no power of two"),
            (
                (UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&fields.unit_bytes),
                "the allocation unit is out of range",
            ),
            ((1..=UNITS_MAX).contains(&fields.unit_count), "the number of units is out of range"),
            (
                (1..=INODES_MAX).contains(&fields.inode_count),
                "the number of inodes is out of range",
            ),
            (fields.volume_blocks <= u64::MAX / BLOCK_BYTES / 2, "the volume is too large"),
            (fields.first_slots_block >= 1, "the slots overlap the geometry"),
            (
                end_of(fields.first_slots_block, slots)? <= fields.second_slots_block,
                "the slots overlap",
            ),
            (
                end_of(fields.second_slots_block, slots)? <= fields.data_block,
                "the slots overlap the data",
            ),
            (
                end_of(fields.data_block, data_blocks)? <= fields.backup_block,
                "the data overlap the backup geometry",
            ),
            (
                fields.backup_block.checked_add(1) == Some(fields.volume_blocks),
                "the backup geometry is not the last block",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, broken)) => Err((*broken).to_string()),
            None => Ok(Self { fields }),
        }
    }

    /// Judges one copy of the geometry block.
    pub(crate) fn parse(bytes: &[u8]) -> Copy {
        let fields = Geometry::decode(bytes);
        if fields.magic != GEOMETRY_MAGIC {
            return Copy::Foreign;
        }
        if fields.checksum != crc32c(&bytes[..Geometry::SIZE - 4]) {
            return Copy::Damaged("its checksum is wrong".into());
        }
        if fields.version != FORMAT_VERSION {
            return Copy::Unsupported(format!("format version {}", fields.version));
        }
        if fields.features_incompatible != 0 {
            let features = fields.features_incompatible;
            return Copy::Unsupported(format!("the incompatible features {features:#x}"));
        }
        match Self::checked(fields) {
            Ok(geometry) => Copy::Good(Box::new(geometry)),
            Err(why) => Copy::Damaged(why),
        }
    }
}

/// Both copies of the geometry, and the one to go by.
pub(crate) struct FoundGeometry {
    pub(crate) geometry: VolumeGeometry,
    /// What is wrong with the copies: index (0 the first block, 1 the last) and text.
    pub(crate) faults: Vec<(usize, String)>,
}

/// Reads the geometry, from the backup when the first block is damaged.
pub(crate) fn find(device: &dyn BlockDevice) -> Result<FoundGeometry> {
    let device_bytes = device.len() - device.len() % BLOCK_BYTES;
    if device_bytes < 2 * BLOCK_BYTES {
        return Err(Error::NotMinfs);
    }
    let first = read_copy(device, 0);
    let mut faults = Vec::new();
    let geometry = match first {
        Copy::Good(geometry) => *geometry,
        Copy::Unsupported(what) => return Err(Error::Unsupported(what)),
        Copy::Foreign | Copy::Damaged(_) => {
            // The device normally ends with the volume, so its last block is where to look.
            let Copy::Good(geometry) = read_copy(device, device_bytes - BLOCK_BYTES) else {
                return Err(match first {
                    Copy::Damaged(why) => Error::Damaged(format!(
                        "the geometry ({why}), and no good backup is in the last block"
                    )),
                    _ => Error::NotMinfs,
                });
            };
            let why = if let Copy::Damaged(why) = first { why } else { "it lost its magic".into() };
            faults.push((0, why));
            *geometry
        }
    };
    if geometry.volume_bytes() > device.len() {
        return Err(Error::DeviceShrank {
            volume_bytes: geometry.volume_bytes(),
            device_bytes: device.len(),
        });
    }
    if faults.is_empty() {
        match read_copy(device, geometry.copy_offsets()[1]) {
            Copy::Good(backup) if *backup == geometry => {}
            Copy::Good(_) => faults.push((1, "it differs from the first".into())),
            Copy::Foreign => faults.push((1, "it lost its magic".into())),
            Copy::Damaged(why) | Copy::Unsupported(why) => faults.push((1, why)),
        }
    }
    Ok(FoundGeometry { geometry, faults })
}

fn read_copy(device: &dyn BlockDevice, offset: u64) -> Copy {
    let mut bytes = block::AlignedBuffer::zeroed(BLOCK_BYTES as usize);
    match device.read_at(&mut bytes, offset) {
        Ok(()) => VolumeGeometry::parse(&bytes),
        Err(error) => Copy::Damaged(format!("it cannot be read: {error}")),
    }
}
