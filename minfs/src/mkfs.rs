//! Making a volume: the plan (pure arithmetic) and its writing.
//!
//! The geometry is written last, behind a flush, so that an interrupted mkfs leaves either the
//! old content's beginning or a whole volume. Whether it is safe to write at all is asked before,
//! by the claim on the device.

use block::BlockDevice;

use crate::error::{Error, Result};
use crate::geometry::VolumeGeometry;
use crate::layout::{
    BLOCK_BYTES, FORMAT_VERSION, GEOMETRY_MAGIC, Geometry, INODES_MAX, LABEL_BYTES_MAX,
    UNIT_BYTES_MAX, UNIT_BYTES_MIN, UNITS_MAX,
};

/// Below this size the default allocation unit is 4 KiB, in bytes.
const SMALL_VOLUME_BYTES: u64 = 256 << 20;
/// Default allocation unit in bytes of larger volumes: a file of 434 extents of one unit each is
/// then 27 MiB even in the worst case, and a 1 TiB volume has 16 million units.
const DEFAULT_UNIT_BYTES: u32 = 64 << 10;
/// Default and bounds of the number of inodes: one for each of these bytes.
const BYTES_PER_INODE: u64 = 1 << 20;
const DEFAULT_INODES_MIN: u64 = 16;
const DEFAULT_INODES_MAX: u64 = 4096;
/// The data begin at a multiple of this many bytes (or of the unit, if larger) on volumes that
/// are not small, to suit the erase and stripe sizes of real devices.
const DATA_ALIGNMENT_BYTES: u64 = 1 << 20;

/// What can be chosen about a volume.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// Label of at most 64 bytes, without control characters.
    pub label: String,
    /// Identity; random unless given.
    pub uuid: Option<uuid::Uuid>,
    /// Allocation unit in bytes, a power of two from 4096 to 2^30; by size unless given.
    pub unit_bytes: Option<u32>,
    /// Number of inodes, 1 to 65536; by size unless given.
    pub files: Option<u32>,
    /// Tell the device first that its whole content is no longer needed.
    pub discard: bool,
    /// Time of making in nanoseconds since 1970 UTC; now unless given.
    pub created_ns: Option<i64>,
}

/// Lays a volume of `device_bytes` bytes out; writes nothing.
///
/// # Errors
///
/// [`Error::Invalid`] when an option is out of range or the device too small.
pub fn plan(device_bytes: u64, options: &MkfsOptions) -> Result<VolumeGeometry> {
    let invalid = |text: String| Err(Error::Invalid(text));
    // A line end in a label would forge a line of what `minfs stat` prints for scripts.
    if options.label.len() > LABEL_BYTES_MAX || options.label.contains(char::is_control) {
        return invalid(format!(
            "the label {:?} is not possible: it has at most {LABEL_BYTES_MAX} bytes and no control characters",
            options.label
        ));
    }
    let volume_blocks = device_bytes / BLOCK_BYTES;
    let default_inodes =
        (device_bytes / BYTES_PER_INODE).clamp(DEFAULT_INODES_MIN, DEFAULT_INODES_MAX) as u32;
    let inode_count = options.files.unwrap_or(default_inodes);
    if !(1..=INODES_MAX).contains(&inode_count) {
        return invalid(format!("{inode_count} files are not possible: 1 to {INODES_MAX} are"));
    }
    let mut unit_bytes = match options.unit_bytes {
        Some(unit_bytes) => unit_bytes,
        None if device_bytes < SMALL_VOLUME_BYTES => UNIT_BYTES_MIN,
        None => DEFAULT_UNIT_BYTES,
    };
    // What even the largest units do not reach is left unused.
    while options.unit_bytes.is_none()
        && device_bytes / u64::from(unit_bytes) > u64::from(UNITS_MAX)
        && unit_bytes < UNIT_BYTES_MAX
    {
        unit_bytes *= 2;
    }
    if !unit_bytes.is_power_of_two() || !(UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&unit_bytes) {
        return invalid(format!(
            "an allocation unit of {unit_bytes} bytes is not possible: it is a power of two from {UNIT_BYTES_MIN} to {UNIT_BYTES_MAX}"
        ));
    }
    let first_slots_block = 1;
    let second_slots_block = first_slots_block + u64::from(inode_count);
    let slots_end = second_slots_block + u64::from(inode_count);
    let alignment_bytes = if device_bytes < SMALL_VOLUME_BYTES {
        BLOCK_BYTES
    } else {
        DATA_ALIGNMENT_BYTES.max(u64::from(unit_bytes))
    };
    let data_block = slots_end.next_multiple_of(alignment_bytes / BLOCK_BYTES);
    let data_blocks = volume_blocks.saturating_sub(1).saturating_sub(data_block);
    let unit_count = data_blocks / (u64::from(unit_bytes) / BLOCK_BYTES);
    if unit_count == 0 {
        return invalid(format!(
            "{device_bytes} bytes are too few for {inode_count} files and a unit of {unit_bytes} bytes for their data; take a larger device or image, fewer files or a smaller unit"
        ));
    }
    let mut label = [0; LABEL_BYTES_MAX];
    label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    let fields = Geometry {
        magic: GEOMETRY_MAGIC,
        version: FORMAT_VERSION,
        block_bytes: BLOCK_BYTES as u32,
        uuid: *options.uuid.unwrap_or_else(uuid::Uuid::new_v4).as_bytes(),
        label,
        volume_blocks,
        first_slots_block,
        second_slots_block,
        data_block,
        backup_block: volume_blocks - 1,
        unit_bytes,
        unit_count: u32::try_from(unit_count.min(u64::from(UNITS_MAX))).expect("bounded"),
        inode_count,
        created_ns: options.created_ns.unwrap_or_else(crate::shared::now_ns),
        ..Geometry::zeroed()
    };
    let geometry = VolumeGeometry::checked(fields).map_err(Error::Invalid)?;
    // The checksum is part of the identity that readers compare, so it is set once, here.
    let bytes = geometry.encode();
    Ok(VolumeGeometry { fields: Geometry::decode(&bytes) })
}

/// Makes a volume on `device`; whatever was there is lost.
pub fn mkfs(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<VolumeGeometry> {
    let geometry = plan(device.len(), options)?;
    let failed = |what: &str| Error::device(format!("write the {what}"));
    if options.discard {
        device.discard(0, device.len()).map_err(failed("discard"))?;
    }
    let [first, backup] = geometry.copy_offsets();
    // An old volume must not be found again while its slots are being cleared.
    device.zero_range(backup, BLOCK_BYTES).map_err(failed("backup geometry"))?;
    device.zero_range(first, BLOCK_BYTES).map_err(failed("geometry"))?;
    device.flush().map_err(failed("geometry"))?;
    let slots = geometry.slot_offset(0, 0);
    let slots_end = geometry.slot_offset(geometry.inode_count() - 1, 1) + BLOCK_BYTES;
    device.zero_range(slots, slots_end - slots).map_err(failed("slots"))?;
    device.flush().map_err(failed("slots"))?;
    let bytes = geometry.encode();
    device.write_at(&bytes, backup).map_err(failed("backup geometry"))?;
    device.write_at(&bytes, first).map_err(failed("geometry"))?;
    device.flush().map_err(failed("geometry"))?;
    Ok(geometry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_fit_their_devices() {
        for (device_bytes, unit_bytes, files) in [
            (256 << 10, 4096, 16),
            (64 << 20, 4096, 64),
            (4 << 30, 65_536, 4096),
            (1 << 40, 65_536, 4096),
            (1 << 50, 1 << 19, 4096),
            ((64 << 20) + 4095, 4096, 64),
        ] {
            let geometry = plan(device_bytes, &MkfsOptions::default()).unwrap();
            assert_eq!(geometry.unit_bytes(), unit_bytes, "{device_bytes}");
            assert_eq!(geometry.inode_count(), files, "{device_bytes}");
            let end = geometry.unit_offset(geometry.unit_count());
            assert!(end + BLOCK_BYTES <= device_bytes);
            assert!(end + BLOCK_BYTES + geometry.unit_bytes() > device_bytes - BLOCK_BYTES);
        }
    }

    #[test]
    fn impossible_wishes_are_refused() {
        let bad = |options: MkfsOptions| plan(64 << 20, &options).unwrap_err();
        for options in [
            MkfsOptions { label: "x".repeat(65), ..Default::default() },
            MkfsOptions { label: "a\nUUID=b".into(), ..Default::default() },
            MkfsOptions { unit_bytes: Some(5000), ..Default::default() },
            MkfsOptions { unit_bytes: Some(2048), ..Default::default() },
            MkfsOptions { unit_bytes: Some(1 << 31), ..Default::default() },
            MkfsOptions { files: Some(0), ..Default::default() },
            MkfsOptions { files: Some(65_537), ..Default::default() },
            MkfsOptions { files: Some(60_000), ..Default::default() },
        ] {
            assert!(matches!(bad(options), Error::Invalid(_)));
        }
        assert!(plan(8192, &MkfsOptions::default()).is_err());
        assert!(plan(0, &MkfsOptions::default()).is_err());
        // Larger than any device: refused, or laid out with the largest units.
        assert_eq!(plan(1 << 62, &MkfsOptions::default()).unwrap().unit_bytes(), 1 << 30);
        assert!(plan(u64::MAX, &MkfsOptions::default()).is_err());
    }
}
