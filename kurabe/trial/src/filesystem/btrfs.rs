//! Btrfs: btrfs-progs.

use super::kernel::{Asked, Kernel};
use super::{FileSystem, Owner, Tool};

/// Btrfs.
pub static BTRFS: FileSystem = FileSystem {
    tools: &[
        Tool::new("mkfs.btrfs", "btrfs-progs", "--version"),
        Tool::new("btrfs", "btrfs-progs", "--version"),
    ],
    // mkfs.btrfs refuses less than about 109 MiB.
    size_bytes_min: 128 << 20,
    // Below it data is written out early: unpacking 15 MB took 3.2 times as long as on ext4 on
    // 1 GiB, and 1.3 times on 2 GiB (Linux 6.18).
    size_bytes_ordinary: 2 << 30,
    modules: &["btrfs"],
    mkfs_flags: "fMKqvV",
    mkfs_paths: "ru",
    ..FileSystem::of_kernel(
        "btrfs",
        "copy on write, checksums of data, snapshots, compression",
        Kernel {
            mkfs: &["mkfs.btrfs", "-q", "-f"],
            mkfs_without_discard: &["-K"],
            // Since Linux 6.2 a device that can discard is discarded in the background by default.
            mount_options_without_discard: &["nodiscard"],
            geometry: &["btrfs", "inspect-internal", "dump-super"],
            check: &["btrfs", "check", "--readonly"],
            // btrfs-rescue(8): a torn superblock is taken from its copy; 2 is success.
            repair: &["btrfs", "rescue", "super-recover", "-y"],
            owner,
            ..Kernel::PLAIN
        },
    )
};

/// Of a superblock and each of its copies: fs/btrfs/disk-io.h.
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPERBLOCK_BYTES: u64 = 4096;

/// The chunk tree says which addresses of Btrfs's own lie where, and what for.
fn owner(node: &str, byte: u64, ask: &mut Asked<'_>) -> Option<Owner> {
    if SUPERBLOCKS.iter().any(|at| (*at..at + SUPERBLOCK_BYTES).contains(&byte)) {
        return Some(Owner::Own("a superblock".into()));
    }
    let said = ask(&["btrfs", "inspect-internal", "dump-tree", "-t", "chunk", node])?;
    let (mut logical, mut length, mut kind) = (0, 0, "");
    for line in said.lines().map(str::trim) {
        let words: Vec<&str> = line.split([' ', ')']).collect();
        match &words[..] {
            ["item", _, "key", "(FIRST_CHUNK_TREE", "CHUNK_ITEM", at, ..] => {
                logical = at.parse().ok()?;
            }
            ["length", bytes, .., "type", of] => (length, kind) = (bytes.parse().ok()?, *of),
            ["stripe", _, "devid", _, "offset", at] => {
                let at: u64 = at.parse().ok()?;
                if (at..at + length).contains(&byte) {
                    return Some(match kind.split('|').next() {
                        Some("DATA") => Owner::Data(logical + byte - at),
                        Some("SYSTEM") => Owner::Own("the chunk tree".into()),
                        _ => Owner::Own("a metadata tree".into()),
                    });
                }
            }
            _ => {}
        }
    }
    None
}
