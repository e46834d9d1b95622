//! The signatures that a device carries, as libblkid knows them: every one that wipefs(8) would
//! wipe, also those that a newer one hides. And those of minfs and lump, which libblkid does not know.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::Deserialize;

/// A file system, a partition table, a member of a group, or another thing with a magic number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Signature {
    /// What libblkid calls it: `ext4`, `swap`, `gpt`, `LVM2_member`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its label.
    #[serde(default)]
    pub label: Option<String>,
    /// Its UUID.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Where its magic number stands, in bytes, in hexadecimal.
    pub offset: String,
    /// How many devices share what it marks, itself among them, where the superblock says so.
    #[serde(skip)]
    pub devices: Option<u64>,
}

/// What lies on one device alone, as libblkid calls it, and may be given up by its name. Whatever else there is
/// may belong with other devices or machines: a member of a group, a cache, a file system of a cluster, a snapshot's
/// other half, the journal of a file system elsewhere. btrfs and bcachefs say how many devices they have.
const ALONE: [&str; 41] = [
    "bcachefs",
    "befs",
    "bfs",
    "BitLocker",
    "btrfs",
    "cramfs",
    "crypto_LUKS",
    "erofs",
    "exfat",
    "exfs",
    "ext2",
    "ext3",
    "ext4",
    "ext4dev",
    "f2fs",
    "hfs",
    "hfsplus",
    "hpfs",
    "iso9660",
    "jfs",
    "lump",
    "minfs",
    "minix",
    "nilfs2",
    "ntfs",
    "ReFS",
    "reiser4",
    "reiserfs",
    "romfs",
    "squashfs",
    "squashfs3",
    "swap",
    "swsuspend",
    "sysv",
    "udf",
    "ufs",
    "vfat",
    "vxfs",
    "xenix",
    "xfs",
    "zonefs",
];

/// Whether kurabe made a pool: `kurabe-`, a process number, 16 hexadecimal digits.
fn is_own_label(label: &str) -> bool {
    let numbers = label.strip_prefix("kurabe-").and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(process, random)| {
        process.parse::<u32>().is_ok()
            && random.len() == 16
            && random.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

impl Signature {
    /// Whether the device belongs with others (LVM, md, a pool) or is divided. Such a thing is
    /// taken apart with the tools that made it, never by naming it.
    pub fn marks_a_group(&self) -> bool {
        let is_own_pool =
            self.kind == "zfs_member" && self.label.as_deref().is_some_and(is_own_label);
        let is_alone = is_own_pool || ALONE.contains(&self.kind.as_str());
        !is_alone || self.devices.is_some_and(|devices| devices != 1)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        let details: Vec<String> = [
            self.label.as_ref().map(|label| format!("label '{label}'")),
            self.uuid.as_ref().map(|uuid| format!("UUID {uuid}")),
            Some(format!("at byte {}", self.offset)),
            self.devices
                .filter(|devices| *devices != 1)
                .map(|devices| format!("one of {devices} devices")),
        ]
        .into_iter()
        .flatten()
        .collect();
        write!(f, " ({})", details.join(", "))
    }
}

#[derive(Deserialize)]
struct Listing {
    signatures: Vec<Signature>,
}

/// How long a look may take. A dying disk answers late or never.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// Reads the signatures of what `device` has open; writes nothing.
pub fn read(device: &File) -> io::Result<Vec<Signature>> {
    let text = run(device)?;
    let mut signatures = parse(&text)?;
    for signature in &mut signatures {
        if signature.kind == "btrfs" {
            signature.devices = Some(btrfs_devices(device)?);
        }
        if signature.kind == "bcachefs" {
            signature.devices = Some(bcachefs_devices(device)?);
        }
    }
    for own in &OURS {
        signatures.extend(find(device, own)?);
    }
    Ok(signatures)
}

/// How many devices a Btrfs has. One that is the seed of others counts as one more.
fn btrfs_devices(device: &File) -> io::Result<u64> {
    const SUPERBLOCK: u64 = 64 << 10;
    const FLAG_SEEDING: u64 = 1 << 32;
    let word = |offset: u64| {
        let mut bytes = [0; 8];
        device.read_exact_at(&mut bytes, SUPERBLOCK + offset)?;
        io::Result::Ok(u64::from_le_bytes(bytes))
    };
    let is_seed = word(0x38)? & FLAG_SEEDING != 0;
    Ok(word(0x88)?.saturating_add(is_seed.into()))
}

/// How many devices a Bcachefs has.
fn bcachefs_devices(device: &File) -> io::Result<u64> {
    let mut number = [0];
    device.read_exact_at(&mut number, 4096 + 123)?;
    Ok(number[0].into())
}

/// What kurabe's own programs put on a device: their first block and, as a copy, the last.
struct Own {
    kind: &'static str,
    magic: &'static [u8],
    label: Range<usize>,
    uuid: Range<usize>,
}

/// As in `minfs/docs/format-minfs.md` and `lump/src/layout.rs`.
const OURS: [Own; 2] = [
    Own { kind: "minfs", magic: b"\x89minfs\r\n", label: 56..120, uuid: 40..56 },
    Own { kind: "lump", magic: b"\x89lump\r\n\x1a", label: 0..0, uuid: 24..40 },
];

/// What one of them put there. A block that cannot be read is an error: there may be such a thing.
fn find(device: &File, own: &Own) -> io::Result<Option<Signature>> {
    const BLOCK_BYTES: u64 = 4096;
    let size_bytes = (&mut &*device).seek(SeekFrom::End(0))?;
    let Some(blocks) = (size_bytes / BLOCK_BYTES).checked_sub(1) else { return Ok(None) };
    for offset in [0, blocks * BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES as usize];
        device.read_exact_at(&mut block, offset).map_err(|error| {
            let text =
                format!("it cannot be read at byte {offset}, where a {} may be: {error}", own.kind);
            io::Error::new(error.kind(), text)
        })?;
        if !block.starts_with(own.magic) {
            continue;
        }
        let label = block[own.label.clone()].split(|byte| *byte == 0).next().unwrap_or_default();
        let digits: String =
            block[own.uuid.clone()].iter().map(|byte| format!("{byte:02x}")).collect();
        let uuid = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        return Ok(Some(Signature {
            kind: own.kind.into(),
            label: (!label.is_empty()).then(|| String::from_utf8_lossy(label).into_owned()),
            uuid: Some(uuid.join("-")),
            offset: format!("{offset:#x}"),
            devices: None,
        }));
    }
    Ok(None)
}

fn parse(text: &str) -> io::Result<Vec<Signature>> {
    // Some versions say nothing where there is nothing.
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let listing: Listing = serde_json::from_str(text)
        .map_err(|error| io::Error::other(format!("wipefs --json said '{text}': {error}")))?;
    Ok(listing.signatures)
}

/// Runs wipefs(8) on its own standard input, so that it sees the very device.
fn run(device: &File) -> io::Result<String> {
    let needed = |error: &dyn fmt::Display| {
        format!("wipefs (package util-linux) is needed to see what the device carries: {error}")
    };
    let mut child = trust::program::command("wipefs")
        .map_err(|not_found| io::Error::new(io::ErrorKind::NotFound, needed(&not_found)))?
        .args(["--no-act", "--json", "--output", "TYPE,USAGE,LABEL,UUID,OFFSET", "--"])
        .arg("/proc/self/fd/0")
        .env("LC_ALL", "C")
        .stdin(device.try_clone()?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), needed(&error)))?;
    // Its output is a few lines, which the pipe holds, so it can be read after the end.
    let until = Instant::now() + LOOK_MAX;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the device did not answer within {} s", LOOK_MAX.as_secs()),
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let mut text = String::new();
    let mut problem = String::new();
    child.stdout.take().expect("it was piped").read_to_string(&mut text)?;
    child.stderr.take().expect("it was piped").read_to_string(&mut problem)?;
    if !status.success() {
        return Err(io::Error::other(problem.trim().to_string()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read() {
        let text = r#"{"signatures": [
            {"type":"ext4","usage":"filesystem","label":"back up","uuid":"0d67","offset":"0x438"},
            {"type":"PMBR","usage":"partition-table","label":null,"uuid":null,"offset":"0x1fe"}]}"#;
        let signatures = parse(text).unwrap();
        assert_eq!(signatures[0].to_string(), "ext4 (label 'back up', UUID 0d67, at byte 0x438)");
        assert!(!signatures[0].marks_a_group());
        assert!(signatures[1].marks_a_group());
        for (kind, belongs) in [
            ("swap", false),
            ("lump", false),
            ("crypto_LUKS", false),
            // The journal of an ext4 elsewhere, a disk of a group that libblkid counts as a file system, the file
            // system of a cluster, and what nobody knows yet.
            ("jbd", true),
            ("DM_verity_hash", true),
            ("oracleasm", true),
            ("ocfs2", true),
            ("unheard_of", true),
        ] {
            let found = Signature { kind: kind.into(), ..signatures[0].clone() };
            assert_eq!(found.marks_a_group(), belongs, "{found}");
        }
        assert!(ALONE.is_sorted_by_key(|kind| kind.to_lowercase()));
        assert_eq!(parse("\n").unwrap(), []);
        assert!(parse("{").unwrap_err().to_string().contains("wipefs --json"));
    }

    #[test]
    fn a_block_that_cannot_be_read_is_not_without_a_minfs() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let read = || find(&File::open(image.path()).unwrap(), &OURS[0]);
        image.as_file().set_len(100).unwrap();
        assert_eq!(read().unwrap(), None);
        image.as_file().set_len(8192).unwrap();
        assert_eq!(read().unwrap(), None);
        // A file that was opened for writing only fails as a block of a dying disk does.
        let unreadable = File::options().write(true).open(image.path()).unwrap();
        let error = find(&unreadable, &OURS[0]).unwrap_err().to_string();
        assert!(error.contains("cannot be read at byte 0"), "{error}");
    }

    #[test]
    fn what_our_own_programs_wrote_is_known_from_either_end() {
        for (own, at) in OURS.iter().zip([0_u64, 4096]) {
            let file = tempfile::tempfile().unwrap();
            file.set_len(8192).unwrap();
            assert_eq!(find(&file, own).unwrap(), None);
            file.write_all_at(own.magic, at).unwrap();
            file.write_all_at(&[0xab; 16], at + own.uuid.start as u64).unwrap();
            let found = find(&file, own).unwrap().unwrap();
            assert_eq!((found.kind.as_str(), found.offset), (own.kind, format!("{at:#x}")));
            assert_eq!(found.uuid.as_deref(), Some("abababab-abab-abab-abab-abababababab"));
        }
    }

    #[test]
    fn pools_are_groups_unless_kurabe_made_them() {
        let pool = |label: Option<&str>| Signature {
            kind: "zfs_member".into(),
            label: label.map(ToString::to_string),
            uuid: None,
            offset: "0x0".into(),
            devices: None,
        };
        assert!(pool(Some("tank")).marks_a_group());
        assert!(pool(None).marks_a_group());
        assert!(pool(Some("kurabe-backup")).marks_a_group());
        assert!(!pool(Some("kurabe-1234-00c0ffee00c0ffee")).marks_a_group());
        let member = |kind: &str, devices| Signature { kind: kind.into(), devices, ..pool(None) };
        assert!(member("bcache", None).marks_a_group());
        assert!(!member("btrfs", Some(1)).marks_a_group());
        for devices in [0, 2] {
            assert!(member("btrfs", Some(devices)).marks_a_group());
        }
    }
}
