//! Btrfs: btrfs-progs.

use super::kernel::{KernelFileSystem, ToolRunner};
use super::{FileSystem, LayerTool, Owner};

pub static BTRFS: FileSystem = FileSystem {
    tools: &[
        LayerTool::new("mkfs.btrfs", "btrfs-progs", "--version"),
        LayerTool::new("btrfs", "btrfs-progs", "--version"),
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
        KernelFileSystem {
            mkfs: &["mkfs.btrfs", "-q", "-f"],
            mkfs_without_discard: &["-K"],
            // Since Linux 6.2 a device that can discard is discarded in the background by default.
            mount_options_without_discard: &["nodiscard"],
            geometry: &["btrfs", "inspect-internal", "dump-super"],
            check: &["btrfs", "check", "--readonly"],
            // btrfs-rescue(8): a torn superblock is taken from its copy; 2 is success.
            repair: &["btrfs", "rescue", "super-recover", "-y"],
            // The kernel takes two devices with one identity for one file system.
            renew: &["btrfstune", "-f", "-m"],
            owner,
            free,
            ..KernelFileSystem::PLAIN
        },
    )
};

/// Gaps between the extents of each block group of data, and what belongs to no block group, as one.
fn free(node: &str, ask: &mut ToolRunner<'_>) -> Option<Vec<(u64, u64)>> {
    let said = ask(&["btrfs", "inspect-internal", "dump-super", node])?;
    let of_super = |name: &str| -> Option<u64> {
        let line = said.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().last()?.parse().ok()
    };
    let mut all = vec![(of_super("dev_item.total_bytes")? - of_super("dev_item.bytes_used")?, 1)];
    let (mut extents, mut groups, mut group) = (Vec::new(), Vec::new(), None);
    // Block groups may be in a tree of their own.
    for tree in ["extent", "block-group"] {
        let said = ask(&["btrfs", "inspect-internal", "dump-tree", "-t", tree, node]);
        for line in said.unwrap_or_default().lines().map(str::trim) {
            let words: Vec<&str> = line.split([' ', '(', ')']).collect();
            match words[..] {
                ["item", _, "key", "", at, "EXTENT_ITEM", bytes, ..] => {
                    extents.push((at.parse().ok()?, bytes.parse().ok()?));
                }
                ["item", _, "key", "", at, "BLOCK_GROUP_ITEM", bytes, ..] => {
                    group = Some((at.parse().ok()?, bytes.parse().ok()?));
                }
                ["block", "group", "used", .., flags] if flags.starts_with("DATA") => {
                    groups.extend(group.take());
                }
                _ => {}
            }
        }
    }
    all.extend(gaps(&extents, &groups).map(|bytes| (bytes, 1)));
    Some(all)
}

/// The bytes of each gap that extents, in their order, leave in these groups.
fn gaps<'a>(extents: &'a [(u64, u64)], groups: &'a [(u64, u64)]) -> impl Iterator<Item = u64> + 'a {
    groups.iter().flat_map(|(start, length)| {
        let (mut from, end) = (*start, start + length);
        let mut found = Vec::new();
        let first = extents.partition_point(|(at, _)| at < start);
        for (at, bytes) in extents[first..].iter().take_while(|(at, _)| *at < end) {
            found.push(at.saturating_sub(from));
            from = at + bytes;
        }
        found.push(end.saturating_sub(from));
        found.into_iter().filter(|bytes| *bytes > 0)
    })
}

/// Of a superblock and each of its copies: fs/btrfs/disk-io.h.
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPERBLOCK_BYTES: u64 = 4096;

/// The chunk tree says which addresses of Btrfs's own lie where, and what for.
fn owner(node: &str, byte: u64, ask: &mut ToolRunner<'_>) -> Option<Owner> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_extents_of_data_are_free() {
        let tree = "\titem 0 key (1000 BLOCK_GROUP_ITEM 900) itemoff 1 itemsize 24\n\
            \t\tblock group used 0 chunk_objectid 256 flags DATA|single\n\
            \titem 1 key (1100 EXTENT_ITEM 100) itemoff 1 itemsize 53\n\
            \titem 2 key (1200 EXTENT_ITEM 300) itemoff 1 itemsize 53\n\
            \titem 3 key (1900 BLOCK_GROUP_ITEM 100) itemoff 1 itemsize 24\n\
            \t\tblock group used 0 chunk_objectid 256 flags METADATA|DUP\n";
        let mut ask = |words: &[&str]| match words[2] {
            "dump-super" => Some("dev_item.total_bytes\t5000\ndev_item.bytes_used\t2000\n".into()),
            _ => (words[4] == "extent").then(|| tree.to_string()),
        };
        assert_eq!(free("x", &mut ask).unwrap(), [(3000, 1), (100, 1), (400, 1)]);
    }
}
