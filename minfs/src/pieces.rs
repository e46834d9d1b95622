//! Where the bytes of a file lie on the device.
//!
//! Only arithmetic on extents, and the check of a tail, which reads them.

use block::{AlignedBuffer, BlockDevice};

use crate::checksum::crc32c_append;
use crate::error::{Error, Result};
use crate::geometry::VolumeGeometry;
use crate::layout::BLOCK_BYTES;
use crate::record::{Extent, FileRecord, Tail};

/// Calls `visit` with each piece of the file bytes `start..end`: device offset and length.
pub(crate) fn for_each_piece<E>(
    geometry: &VolumeGeometry,
    extents: &[Extent],
    start: u64,
    end: u64,
    mut visit: impl FnMut(u64, u64) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut extent_start = 0;
    for extent in extents {
        let extent_end = extent_start + u64::from(extent.count) * geometry.unit_bytes();
        let (from, to) = (start.max(extent_start), end.min(extent_end));
        if from < to {
            visit(geometry.unit_offset(extent.start) + (from - extent_start), to - from)?;
        }
        extent_start = extent_end;
        if extent_start >= end {
            break;
        }
    }
    Ok(())
}

/// Where the file bytes `start..end` lie on the device, if one extent holds them all.
#[inline]
pub(crate) fn contiguous_place(
    geometry: &VolumeGeometry,
    extents: &[Extent],
    start: u64,
    end: u64,
) -> Option<u64> {
    let mut extent_start = 0;
    for extent in extents {
        let extent_end = extent_start + u64::from(extent.count) * geometry.unit_bytes();
        if start < extent_end {
            let place = geometry.unit_offset(extent.start) + (start - extent_start);
            return (end <= extent_end).then_some(place);
        }
        extent_start = extent_end;
    }
    None
}

/// Whether the bytes on the device are those that the record vouches for.
pub(crate) fn tail_matches(
    device: &dyn BlockDevice,
    geometry: &VolumeGeometry,
    file: &FileRecord,
    tail: Tail,
) -> Result<bool> {
    const PIECE_BYTES: u64 = 1 << 20;
    let buffer_bytes = (file.valid - tail.start + 2 * BLOCK_BYTES).min(PIECE_BYTES);
    let mut buffer = AlignedBuffer::zeroed(buffer_bytes.next_multiple_of(BLOCK_BYTES) as usize);
    let mut checksum = 0;
    let mut position = tail.start;
    while position < file.valid {
        // Whole blocks are read, since the tail may begin and end within one.
        let block_start = position - position % BLOCK_BYTES;
        let end = file.valid.min(block_start + PIECE_BYTES);
        let block_end = end.next_multiple_of(BLOCK_BYTES);
        let mut filled = 0;
        for_each_piece(geometry, &file.extents, block_start, block_end, |offset, length| {
            let part = &mut buffer[filled..filled + length as usize];
            filled += length as usize;
            let action = format!("read {length} bytes at offset {offset}");
            device.read_at(part, offset).map_err(Error::device(action))
        })?;
        let range = (position - block_start) as usize..(end - block_start) as usize;
        checksum = crc32c_append(checksum, &buffer[range]);
        position = end;
    }
    Ok(checksum == tail.checksum)
}
