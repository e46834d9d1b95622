//! Options of a contender that name a device, a file or a directory besides the trial's own: a
//! journal on another disk, a second device of an array, a directory to copy from.
//!
//! The claim guards the one device that was granted, so nothing else may be handed to mkfs and
//! mount as root. Knows the forms of options and no file system's whole list: what is in doubt is
//! refused.

use super::Layer;

/// What there is to know of the options of a mkfs: short ones without a value, and those whose
/// value is a path.
struct Options {
    file_systems: &'static [&'static str],
    flags: &'static str,
    paths: &'static str,
}

const KNOWN: [Options; 13] = [
    Options { file_systems: &["ext2", "ext3", "ext4"], flags: "cjnqvDFKSV", paths: "dlz" },
    Options { file_systems: &["xfs"], flags: "fNqVK", paths: "cp" },
    Options { file_systems: &["btrfs"], flags: "fMKqvV", paths: "ru" },
    Options { file_systems: &["f2fs"], flags: "fimqrSV", paths: "c" },
    Options { file_systems: &["jfs"], flags: "cOqV", paths: "j" },
    Options { file_systems: &["nilfs2"], flags: "cfhKnqvV", paths: "" },
    Options { file_systems: &["bcachefs"], flags: "fhqv", paths: "" },
    Options { file_systems: &["zfs", "zfs-fuse"], flags: "dfn", paths: "R" },
    Options { file_systems: &["vfat"], flags: "aAcIv", paths: "lm" },
    Options { file_systems: &["exfat"], flags: "fhqvV", paths: "" },
    Options { file_systems: &["ntfs3"], flags: "CdfFIlnQqTUvV", paths: "" },
    Options { file_systems: &["reiserfs"], flags: "dfqV", paths: "jB" },
    Options { file_systems: &["ufs"], flags: "x", paths: "FN" },
];

/// Short options whose value is a name, in which a slash leads nowhere: labels, ext4's last mount
/// point, UUIDs.
const NAMES: &str = "LMU";

/// Long options with a path, in any form.
const LONG_PATHS: [&str; 3] = ["--rootdir", "--subvol", "--inode-flags"];

/// Keys within a value, and mount options, that name something else.
const KEYS: [&str; 23] = [
    "altroot",
    "bind",
    "cachefile",
    "dev",
    "device",
    "file",
    "helper",
    "journal_dev",
    "journal_path",
    "logdev",
    "loop",
    "lowerdir",
    "move",
    "name",
    "offset",
    "options",
    "rbind",
    "remount",
    "rtdev",
    "source",
    "uhelper",
    "upperdir",
    "workdir",
];

/// Refuses a layer with such an option.
pub(crate) fn check(layer: &Layer) -> Result<(), String> {
    let named = mkfs_word(layer).or_else(|| {
        let mut options = layer.mount_options.iter();
        options.find(|option| is_outside(option, false) && !option.starts_with("subvol="))
    });
    match named {
        None => Ok(()),
        Some(word) => Err(format!(
            "'{word}' can name something else than the one device that a trial may write, and mkfs and mount run as root; leave it out (values of long options are written --NAME=VALUE)"
        )),
    }
}

/// The first word for mkfs that names something else.
fn mkfs_word(layer: &Layer) -> Option<&String> {
    let file_system = layer.name.as_str();
    let known = KNOWN.iter().find(|known| known.file_systems.contains(&file_system));
    let (flags, paths) = known.map_or(("", ""), |known| (known.flags, known.paths));
    let mut words = layer.options.iter();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let is_path = LONG_PATHS.iter().any(|path| word.starts_with(path));
            let value = long.split_once('=').filter(|(name, _)| *name != "label");
            if is_path
                || long.is_empty()
                || value.is_some_and(|(_, value)| is_outside(value, false))
            {
                return Some(word);
            }
            continue;
        }
        let Some(letters) = word.strip_prefix('-') else { return Some(word) };
        // Of letters in one word the first that takes a value has the rest of it, or the next word.
        let Some(at) = letters.find(|letter| !flags.contains(letter)) else { continue };
        let letter = letters[at..].chars().next()?;
        let rest = &letters[at + letter.len_utf8()..];
        let value = if rest.is_empty() { words.next() } else { None };
        let text = value.map_or(rest, String::as_str);
        if paths.contains(letter) || is_outside(text, NAMES.contains(letter)) {
            return value.or(Some(word));
        }
    }
    None
}

fn is_outside(value: &str, is_name: bool) -> bool {
    !is_name
        && value.split(',').any(|part| {
            let key = part.split('=').next().unwrap_or(part).trim().to_ascii_lowercase();
            part.contains('/') || KEYS.contains(&key.as_str()) || key.starts_with("x-mount.")
        })
}

#[cfg(test)]
mod tests {
    use crate::contender::Contender;

    fn parse(text: &str) -> Result<Contender, String> {
        let known = ["ext4", "xfs", "btrfs", "f2fs", "jfs", "nilfs2", "zfs-fuse", "minfs"];
        Contender::parse(text, &known).map_err(|error| error.to_string())
    }

    #[test]
    fn what_names_another_device_or_file_is_refused() {
        for (text, word) in [
            ("ext4 -J device=/dev/sdb1", "device=/dev/sdb1"),
            ("ext4 -Jdevice=LABEL=x", "-Jdevice=LABEL=x"),
            ("ext4 -F -J size=8,device=UUID=1", "size=8,device=UUID=1"),
            ("ext4 /dev/sdb", "/dev/sdb"),
            ("ext4 -F disk.img", "disk.img"),
            ("ext4 -d .", "."),
            ("ext4 -qz undo", "undo"),
            ("xfs -l logdev=sdb1,size=64m", "logdev=sdb1,size=64m"),
            ("xfs -f -r rtdev=sdb", "rtdev=sdb"),
            ("xfs -d file,name=x", "file,name=x"),
            ("xfs -p proto", "proto"),
            ("btrfs -f second.img", "second.img"),
            ("btrfs -d raid1 /dev/sdb", "/dev/sdb"),
            ("btrfs --rootdir etc", "--rootdir"),
            ("btrfs --mixed second.img", "second.img"),
            ("btrfs -- second.img", "--"),
            ("f2fs -q -c second.img", "second.img"),
            ("jfs -qj journal.img", "journal.img"),
            ("jfs -J device=sdb", "device=sdb"),
            ("zfs-fuse -o cachefile=x", "cachefile=x"),
            ("minfs other.img", "other.img"),
            ("ext4 @ loop", "loop"),
            ("ext4 @ noatime,loop=/dev/loop7", "loop=/dev/loop7"),
            ("ext4 @ journal_path=/dev/sdb1", "journal_path=/dev/sdb1"),
            ("xfs @ logdev=/dev/sdb", "logdev=/dev/sdb"),
            ("btrfs @ device=/dev/sdb", "device=/dev/sdb"),
            ("ext4 @ bind", "bind"),
            ("ext4 @ X-mount.idmap=/proc/1/ns/user", "X-mount.idmap=/proc/1/ns/user"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(&format!("'{word}' can name something else")), "{error}");
        }
    }

    #[test]
    fn options_of_the_file_system_itself_are_taken() {
        for text in [
            "ext4 -O ^has_journal -E lazy_itable_init=0,root_owner=0:0 @ noatime,data=writeback",
            "ext4 -L 'a/b' -b 4096 -M /mnt/data -J size=64 -m0 -FqN 1000",
            "xfs -f -m reflink=0,crc=1 -d agcount=4 -l size=64m,version=2 @ logbsize=256k",
            "btrfs -f -d single -m dup --nodesize=16k @ compress=zstd:3,subvol=/,space_cache=v2",
            "f2fs -q -f -O extra_attr,compression -s 2 @ compress_algorithm=lz4",
            "jfs -q -s 32 -L name",
            "nilfs2 -B 16 -f",
            "zfs-fuse -o ashift=12 -O compression=off",
            "minfs --files=100",
        ] {
            parse(text).expect(text);
        }
    }
}
