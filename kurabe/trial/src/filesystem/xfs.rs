//! XFS: xfsprogs.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::kernel::{KernelFileSystem, ToolRunner};
use super::{FileSystem, LayerTool, Owner};

pub static XFS: FileSystem = FileSystem {
    tools: &[tool("mkfs.xfs"), tool("xfs_info"), tool("xfs_repair")],
    // mkfs.xfs refuses less than 300 MB.
    size_bytes_min: 300 << 20,
    modules: &["xfs"],
    mkfs_flags: "fNqVK",
    mkfs_paths: "cp",
    journal,
    ..FileSystem::of_kernel(
        "xfs",
        "allocation groups that work side by side, B+ trees, a log of metadata",
        KernelFileSystem {
            mkfs: &["mkfs.xfs", "-q", "-f"],
            // The mount discards nothing unless asked to.
            mkfs_without_discard: &["-K"],
            mount_options_of_copy: Some(&["nouuid"]),
            geometry: &["xfs_info"],
            check: &["xfs_repair", "-n"],
            repair: &["xfs_repair"],
            // The log is written anew, and every superblock.
            renew: &["xfs_admin", "-U", "generate"],
            owner,
            free,
            // xfs_repair(8), EXIT STATUS.
            check_meaning: |code| match code {
                1 => "the check found damage",
                2 => "the check found a log that was not replayed",
                _ => "the check could not be carried out",
            },
            ..KernelFileSystem::PLAIN
        },
    )
};

const fn tool(name: &'static str) -> LayerTool {
    LayerTool::new(name, "xfsprogs", "-V")
}

/// The log within the device (`sb_logstart` of `struct xfs_dsb`, fs/xfs/libxfs/xfs_format.h).
fn journal(device: &File) -> io::Result<Vec<Range<u64>>> {
    let mut superblock = [0; 512];
    device.read_exact_at(&mut superblock, 0)?;
    let word = |at: usize| {
        u64::from(u32::from_be_bytes(superblock[at..at + 4].try_into().expect("four bytes")))
    };
    let (block_bytes, group_blocks, log_blocks) = (word(4), word(84), word(96));
    // The number of the allocation group, then of the block in it.
    let (start, group_bits) = (word(48) << 32 | word(52), u32::from(superblock[124]).min(63));
    if &superblock[..4] != b"XFSB" || start == 0 {
        return Ok(Vec::new());
    }
    // Whatever a damaged superblock says.
    let block = (start >> group_bits).saturating_mul(group_blocks);
    let block = block.saturating_add(start & ((1 << group_bits) - 1));
    let bytes = |blocks: u64| blocks.saturating_mul(block_bytes);
    let log = bytes(block)..bytes(block.saturating_add(log_blocks));
    Ok(Vec::from([log]))
}

/// xfs_db(8), freesp: a line for each range of sizes, `from to extents blocks percent`.
fn free(node: &str, ask: &mut ToolRunner<'_>) -> Option<Vec<(u64, u64)>> {
    let said = ask(&["xfs_db", "-r", "-c", "sb 0", "-c", "p blocksize", "-c", "freesp", node])?;
    let block_bytes: u64 =
        said.lines().find_map(|line| line.strip_prefix("blocksize = ")?.parse().ok())?;
    let of_line = |line: &str| {
        let numbers: Vec<&str> = line.split_whitespace().collect();
        let [_, _, extents, blocks, _] = numbers[..] else { return None };
        let (extents, blocks): (u64, u64) = (extents.parse().ok()?, blocks.parse().ok()?);
        (extents > 0).then(|| (blocks / extents * block_bytes, extents))
    };
    Some(said.lines().filter_map(of_line).collect())
}

/// xfs_db(8), blockuse: `block 12 (0/12) type data inode 134 d/file3`.
fn owner(node: &str, byte: u64, ask: &mut ToolRunner<'_>) -> Option<Owner> {
    let daddr = format!("daddr {}", byte / 512);
    let said =
        ask(&["xfs_db", "-r", "-c", "blockget -n", "-c", &daddr, "-c", "blockuse -n", node])?;
    let (_, said) = said.lines().last()?.split_once(" type ")?;
    let (kind, of) = said.split_once(' ').unwrap_or((said, ""));
    let path = of.split_whitespace().nth(2).unwrap_or_default();
    Some(Owner::Own(match kind {
        "data" => return None,
        "log" => "the journal".into(),
        "sb" => "a superblock".into(),
        "inode" => "an inode table".into(),
        "dir" => format!("the directory /{path}"),
        free if free.starts_with("free") => "space that is free at the end of the workload".into(),
        other => format!("an allocation structure (xfs_db: {other})"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_extents_are_read_from_what_the_tool_prints() {
        let said = "blocksize = 4096\n   from      to extents  blocks    pct\n      1       1      16      16   0.01\n  16384   32768       3   98260  85.70\n";
        let found = free("x", &mut |_| Some(said.into())).unwrap();
        assert_eq!(found, [(4096, 16), (32_753 * 4096, 3)]);
    }

    #[test]
    fn the_log_lies_where_the_superblock_says() {
        let device = tempfile::tempfile().unwrap();
        device.set_len(512).unwrap();
        assert_eq!(journal(&device).unwrap(), []);
        for (at, bytes) in [
            (0, &b"XFSB"[..]),
            (4, &4096_u32.to_be_bytes()),
            // Block 5 of the third group.
            (48, &(2_u64 << 14 | 5).to_be_bytes()),
            (84, &10_000_u32.to_be_bytes()),
            (96, &1000_u32.to_be_bytes()),
            (124, &[14]),
        ] {
            device.write_all_at(bytes, at).unwrap();
        }
        let found = journal(&device).unwrap();
        assert_eq!((found.len(), &found[0]), (1, &(20_005 * 4096..21_005 * 4096)));
    }
}
