//! ext2, ext3 and ext4: e2fsprogs.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::kernel::{KernelFileSystem, ToolRunner, words};
use super::{FileSystem, InstanceContext, LayerTool, Owner};

pub static EXT2: FileSystem = FileSystem {
    tools: &[tool("mkfs.ext2"), tool("dumpe2fs"), tool("e2fsck")],
    ..ext(
        "ext2",
        "the second extended file system: block maps, no journal",
        &["mkfs.ext2", "-q", "-F"],
    )
};

pub static EXT3: FileSystem = FileSystem {
    tools: &[tool("mkfs.ext3"), tool("dumpe2fs"), tool("e2fsck")],
    ..ext("ext3", "ext2 with a journal", &["mkfs.ext3", "-q", "-F"])
};

pub static EXT4: FileSystem = FileSystem {
    tools: &[tool("mkfs.ext4"), tool("dumpe2fs"), tool("e2fsck")],
    ..ext(
        "ext4",
        "extents, delayed allocation and a journal; Debian's default",
        &["mkfs.ext4", "-q", "-F"],
    )
};

const fn tool(name: &'static str) -> LayerTool {
    LayerTool::new(name, "e2fsprogs", "-V")
}

const fn ext(
    name: &'static str,
    summary: &'static str,
    mkfs: &'static [&'static str],
) -> FileSystem {
    let kernel = KernelFileSystem {
        mkfs,
        complete,
        mount_options_of_copy: Some(&[]),
        geometry: &["dumpe2fs", "-h"],
        check: &["e2fsck", "-fn"],
        repair: &["e2fsck", "-f", "-y"],
        owner,
        free,
        // e2fsck(8), EXIT CODE.
        check_meaning: |code| match code {
            1..=3 => "the check found errors",
            4..=7 => "the check found errors and left them",
            8..=15 => "the check could not be carried out",
            _ => "the check failed",
        },
        // One thread of the kernel zeroes inode tables and journals of every ext4 mount after mkfs
        // left them for later.
        background_threads: &["ext4lazyinit"],
        ..KernelFileSystem::PLAIN
    };
    // Room for a journal and a few files.
    FileSystem {
        // It mounts all three.
        modules: &["ext4"],
        mkfs_flags: "cjnqvDFKSV",
        mkfs_paths: "dlz",
        size_bytes_min: 16 << 20,
        journal,
        ..FileSystem::of_kernel(name, summary, kernel)
    }
}

/// The copy of the journal's inode in the superblock, where that is made of extents (`s_jnl_blocks` in
/// Documentation/filesystems/ext4/super.rst, `ext4_extent` in ifork.rst).
fn journal(device: &File) -> io::Result<Vec<Range<u64>>> {
    let mut superblock = [0; 1024];
    device.read_exact_at(&mut superblock, 1024)?;
    let half = |at: usize| u64::from(u16::from_le_bytes([superblock[at], superblock[at + 1]]));
    let word = |at: usize| half(at) | half(at + 2) << 16;
    let (backup_kind, root) = (superblock[0xfd], 0x10c);
    let (magic, extents, depth) = (half(root), half(root + 2), half(root + 6));
    if backup_kind != 1 || magic != 0xf30a || depth != 0 || extents > 4 {
        return Ok(Vec::new());
    }
    let block_bytes = 1024_u64 << word(0x18).min(6);
    let extent = |number: u64| {
        let at = root + 12 * (number as usize + 1);
        let first = (half(at + 6) << 32 | word(at + 8)) * block_bytes;
        first..first.saturating_add(half(at + 4) * block_bytes)
    };
    Ok((0..extents).map(extent).collect())
}

/// e2freefrag(8): `4K... 8K- : 12 14 0.01%`, with the number of extents and their blocks.
fn free(node: &str, ask: &mut ToolRunner<'_>) -> Option<Vec<(u64, u64)>> {
    let said = ask(&["e2freefrag", node])?;
    let block_bytes: u64 = said
        .lines()
        .find_map(|line| line.strip_prefix("Blocksize: ")?.split(' ').next()?.parse().ok())?;
    let of_line = |line: &str| {
        let (range, numbers) = line.split_once(':')?;
        range.contains("...").then_some(())?;
        let mut numbers = numbers.split_whitespace();
        let extents: u64 = numbers.next()?.parse().ok()?;
        let blocks: u64 = numbers.next()?.parse().ok()?;
        (extents > 0).then(|| (blocks / extents * block_bytes, extents))
    };
    Some(said.lines().filter_map(of_line).collect())
}

/// On less than this mke2fs makes blocks of 1 KiB (mke2fs(8), `-T`: `small`), which an ordinary disk never has.
const SMALL_BYTES: u64 = 512 << 20;

fn complete(options: &mut Vec<String>, stage: &InstanceContext) {
    // First, so that a size of the user's is the last word.
    if stage.size_bytes < SMALL_BYTES && !options.iter().any(|word| word.starts_with("-T")) {
        options.splice(0..0, words(&["-b", "4096"])).for_each(drop);
    }
    if !stage.discard {
        add_extended_option(options, "nodiscard");
    }
    // What a thread of the kernel would do seconds after the mount.
    let is_said = |option: &str| options.iter().any(|word| word.contains(option));
    let at_once: Vec<String> = ["lazy_itable_init", "lazy_journal_init"]
        .into_iter()
        .filter(|option| stage.made_at_once && !is_said(option))
        .map(|option| format!("{option}=0"))
        .collect();
    if !at_once.is_empty() {
        add_extended_option(options, &at_once.join(","));
    }
}

/// mke2fs takes the last `-E` and forgets those before it, so an option of ours must go into the
/// user's.
fn add_extended_option(options: &mut Vec<String>, option: &str) {
    let separate =
        options.iter().rposition(|word| word == "-E").filter(|at| at + 1 < options.len());
    let joined = options.iter().rposition(|word| word.starts_with("-E") && word.len() > 2);
    match separate.map(|at| at + 1).max(joined) {
        Some(at) => {
            options[at].push(',');
            options[at].push_str(option);
        }
        None => options.splice(0..0, words(&["-E", option])).for_each(drop),
    }
}

/// debugfs(8) says which inode has a block, dumpe2fs(8) what lies in each group besides.
fn owner(node: &str, byte: u64, ask: &mut ToolRunner<'_>) -> Option<Owner> {
    let facts = ask(&["dumpe2fs", node])?;
    let size = facts.lines().find_map(|line| line.strip_prefix("Block size:"))?;
    let block = byte / size.trim().parse::<u64>().ok()?;
    let said = ask(&["debugfs", "-R", &format!("icheck {block}"), node])?;
    match said.lines().last()?.split_whitespace().nth(1)?.parse::<u64>() {
        Ok(8) => return Some(Owner::Own("the journal".into())),
        Ok(_) => return None,
        Err(_) => {}
    }
    let mut group = "";
    for line in facts.lines() {
        if let Some(rest) = line.strip_prefix("Group ") {
            group = rest.split(':').next()?;
        }
        for (what, place) in line.split(", ").filter_map(|part| part.split_once(" at ")) {
            let place = place.split_whitespace().next()?;
            let (first, last) = place.split_once('-').unwrap_or((place, place));
            let (Ok(first), Ok(last)) = (first.parse(), last.parse()) else { continue };
            if (first..=last).contains(&block) {
                let what = what.trim().to_lowercase();
                return Some(Owner::Own(format!("the {what} of group {group}")));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceNode;

    /// On a device that is too large for mkfs to make everything at once.
    fn stage(text: &str, discard: bool) -> InstanceContext {
        stage_of(text, discard, 1 << 40)
    }

    fn stage_of(text: &str, discard: bool, size_bytes: u64) -> InstanceContext {
        let contender = lab::contender::Contender::parse(text, &[EXT4.known()]).unwrap();
        let home = tempfile::tempdir().unwrap();
        let scratch = crate::scratch::Occupied::enter(home.path()).unwrap().into();
        let node = DeviceNode::of_nothing("/dev/loop7");
        InstanceContext::new(&contender, Some(&node), size_bytes, discard, &scratch)
    }

    fn made(stage: &InstanceContext) -> String {
        let super::super::FileSystemKind::Kernel(kernel) = &EXT4.kind else {
            panic!("the kernel mounts it")
        };
        kernel.make(stage).join(" ")
    }

    fn command(text: &str, discard: bool) -> String {
        made(&stage(text, discard))
    }

    #[test]
    fn free_extents_are_read_from_what_the_tool_prints() {
        let said = "Device: x\nBlocksize: 4096 bytes\n\nHISTOGRAM OF FREE EXTENT SIZES:\n\
            Extent Size Range :  Free extents   Free Blocks  Percent\n    4K...    8K-  :            12            12    0.00%\n   64M...  128M-  :             4        124719  100.00%\n";
        let found = free("x", &mut |_| Some(said.into())).unwrap();
        assert_eq!(found, [(4096, 12), (31_179 * 4096, 4)]);
        assert_eq!(free("x", &mut |_| None), None);
    }

    #[test]
    fn the_users_options_come_before_the_device() {
        assert_eq!(
            command("ext4 -O ^has_journal", false),
            "mkfs.ext4 -q -F -E nodiscard -O ^has_journal /dev/loop7"
        );
        assert_eq!(command("ext4", true), "mkfs.ext4 -q -F /dev/loop7");
    }

    #[test]
    fn nothing_is_left_for_later_where_it_would_be_waited_for() {
        let with = |text: &str| {
            let stage = InstanceContext { made_at_once: true, ..stage(text, false) };
            made(&stage)
        };
        assert_eq!(
            with("ext4 -m 0"),
            "mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 -m 0 /dev/loop7"
        );
        assert_eq!(
            with("ext4 -E lazy_itable_init=1"),
            "mkfs.ext4 -q -F -E lazy_itable_init=1,nodiscard,lazy_journal_init=0 /dev/loop7"
        );
        // Ten runs of 31 ms took 42 s, of which the thread was waited for in 30.
        assert_eq!(
            made(&stage_of("ext4", false, 8 << 30)),
            "mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/loop7"
        );
        assert_eq!(
            command("ext4 on debian", true),
            "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 /dev/loop7"
        );
    }

    #[test]
    fn a_small_device_has_the_blocks_of_an_ordinary_one() {
        let with = |text: &str, size_bytes| {
            made(&InstanceContext { made_at_once: false, ..stage_of(text, true, size_bytes) })
        };
        let small = SMALL_BYTES - (1 << 20);
        assert_eq!(with("ext4", SMALL_BYTES), "mkfs.ext4 -q -F /dev/loop7");
        assert_eq!(with("ext4", small), "mkfs.ext4 -q -F -b 4096 /dev/loop7");
        assert_eq!(with("ext4 -b 1024", small), "mkfs.ext4 -q -F -b 4096 -b 1024 /dev/loop7");
        assert_eq!(with("ext4 -T small", small), "mkfs.ext4 -q -F -T small /dev/loop7");
    }

    #[test]
    fn extended_options_are_joined_because_the_last_one_wins() {
        assert_eq!(
            command("ext4 -E lazy_itable_init=0 -m 0", false),
            "mkfs.ext4 -q -F -E lazy_itable_init=0,nodiscard -m 0 /dev/loop7"
        );
        assert_eq!(
            command("ext4 -E a=1 -Eb=2", false),
            "mkfs.ext4 -q -F -E a=1 -Eb=2,nodiscard /dev/loop7"
        );
        assert_eq!(command("ext4 -E discard", false), "mkfs.ext4 -q -F -E discard /dev/loop7");
    }

    #[test]
    fn the_journal_lies_where_the_superblock_says() {
        let mut image = vec![0; 4096];
        let superblock = &mut image[1024..2048];
        superblock[0x18] = 2;
        superblock[0xfd] = 1;
        let numbers: [u16; 12] = [0xf30a, 2, 4, 0, 0, 0, 0, 0, 16, 0, 7, 0];
        for (place, number) in numbers.into_iter().chain([16, 0, 8, 1, 9, 0]).enumerate() {
            superblock[0x10c + 2 * place..][..2].copy_from_slice(&number.to_le_bytes());
        }
        let device = tempfile::tempfile().unwrap();
        device.write_all_at(&image, 0).unwrap();
        let high = (1_u64 << 32) + 9;
        assert_eq!(
            journal(&device).unwrap(),
            [7 * 4096..23 * 4096, high * 4096..(high + 8) * 4096]
        );
        device.write_all_at(&[2], 1024 + 0x10c + 6).unwrap();
        assert_eq!(journal(&device).unwrap(), []);
    }
}
