//! Damaging the metadata of a volume, for the tests.

#![allow(dead_code, reason = "each test program uses its part")]

use std::sync::Arc;

use block::{AlignedBuffer, BlockDevice};
use minfs::{MountOptions, Volume};

pub fn mount<D: BlockDevice + 'static>(device: &Arc<D>) -> Volume {
    Volume::mount(device.clone(), &MountOptions::default()).unwrap()
}

pub fn content(volume: &Volume, name: &[u8]) -> Vec<u8> {
    let file = volume.open(name).unwrap();
    let mut bytes = vec![0; file.size() as usize];
    file.read(&mut bytes, 0).unwrap();
    bytes
}

pub fn slot_offset(device: &impl BlockDevice, inode: u32, slot: usize) -> u64 {
    minfs::identify(device).unwrap().slot_offset(inode, slot)
}

pub fn flip(device: &impl BlockDevice, offset: u64) {
    change(device, offset - offset % 4096, |block| block[(offset % 4096) as usize] ^= 0x40);
}

/// Changes the block at `offset`.
pub fn change(device: &impl BlockDevice, offset: u64, change: impl FnOnce(&mut [u8])) {
    let mut block = AlignedBuffer::zeroed(4096);
    device.read_at(&mut block, offset).unwrap();
    change(&mut block);
    device.write_at(&block, offset).unwrap();
}

/// The generation that the first sector of a slot bears.
pub fn generation(device: &impl BlockDevice, inode: u32, slot: usize) -> u64 {
    let mut block = AlignedBuffer::zeroed(4096);
    device.read_at(&mut block, slot_offset(device, inode, slot)).unwrap();
    u64::from_le_bytes(block[500..508].try_into().unwrap())
}

/// The slot of `inode` that holds its newest record.
pub fn newest_slot(device: &impl BlockDevice, inode: u32) -> usize {
    usize::from(generation(device, inode, 1) > generation(device, inode, 0))
}
