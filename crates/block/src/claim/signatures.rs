//! The signatures that a device carries, as libblkid knows them: every one that wipefs(8) would
//! wipe, also those that a newer one hides. And those of minfs and lump, which libblkid does not know.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// A file system, a partition table, a member of a group, or another thing with a magic number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Signature {
    /// What libblkid calls it: `ext4`, `swap`, `gpt`, `LVM2_member`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What sort of thing that is: `filesystem`, `raid`, `partition-table`, `crypto`, `other`.
    #[serde(default)]
    pub usage: String,
    /// Its label.
    #[serde(default)]
    pub label: Option<String>,
    /// Its UUID.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Where its magic number stands, in bytes, in hexadecimal.
    pub offset: String,
}

/// Labels of the pools that kurabe makes begin so.
const OWN_LABEL_PREFIX: &str = "kurabe";

impl Signature {
    /// Whether the device belongs with others (LVM, md, a pool) or is divided. Such a thing is
    /// taken apart with the tools that made it, never by naming it.
    pub fn marks_a_group(&self) -> bool {
        let pool = self.kind == "zfs_member"
            && !self.label.as_deref().is_some_and(|label| label.starts_with(OWN_LABEL_PREFIX));
        pool || matches!(self.usage.as_str(), "raid" | "partition-table")
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        let details: Vec<String> = [
            self.label.as_ref().map(|label| format!("label '{label}'")),
            self.uuid.as_ref().map(|uuid| format!("UUID {uuid}")),
            Some(format!("at byte {}", self.offset)),
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

/// Reads the signatures of a device; writes nothing.
pub fn read(device: &Path) -> io::Result<Vec<Signature>> {
    let text = run(&[
        "--no-act",
        "--json",
        "--output",
        "TYPE,USAGE,LABEL,UUID,OFFSET",
        "--",
        &device.display().to_string(),
    ])?;
    let mut signatures = parse(&text)?;
    let file = std::fs::File::open(device)?;
    for own in &OURS {
        signatures.extend(find(&file, own)?);
    }
    Ok(signatures)
}

/// What kurabe's own programs put on a device: their first block and, as a copy, the last.
struct Own {
    kind: &'static str,
    usage: &'static str,
    magic: &'static [u8],
    label: Range<usize>,
    uuid: Range<usize>,
}

/// As in `docs/format-minfs.md` and `crates/lump/src/layout.rs`.
const OURS: [Own; 2] = [
    Own {
        kind: "minfs",
        usage: "filesystem",
        magic: b"\x89minfs\r\n",
        label: 56..120,
        uuid: 40..56,
    },
    Own { kind: "lump", usage: "other", magic: b"\x89lump\r\n\x1a", label: 0..0, uuid: 24..40 },
];

fn find(device: &std::fs::File, own: &Own) -> io::Result<Option<Signature>> {
    const BLOCK_BYTES: u64 = 4096;
    let size_bytes = (&mut &*device).seek(SeekFrom::End(0))?;
    let last = (size_bytes / BLOCK_BYTES).saturating_sub(1) * BLOCK_BYTES;
    for offset in [0, last] {
        let mut block = [0; BLOCK_BYTES as usize];
        if device.read_exact_at(&mut block, offset).is_err() || !block.starts_with(own.magic) {
            continue;
        }
        let label = block[own.label.clone()].split(|byte| *byte == 0).next().unwrap_or_default();
        let digits: String =
            block[own.uuid.clone()].iter().map(|byte| format!("{byte:02x}")).collect();
        let uuid = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        return Ok(Some(Signature {
            kind: own.kind.into(),
            usage: own.usage.into(),
            label: (!label.is_empty()).then(|| String::from_utf8_lossy(label).into_owned()),
            uuid: Some(uuid.join("-")),
            offset: format!("{offset:#x}"),
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

fn run(arguments: &[&str]) -> io::Result<String> {
    let program = ["/usr/sbin/wipefs", "/sbin/wipefs", "/usr/bin/wipefs"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .unwrap_or_else(|| "wipefs".into());
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "wipefs (package util-linux) is needed to see what the device carries: {error}"
                ),
            )
        })?;
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
        assert_eq!(parse("\n").unwrap(), []);
        assert!(parse("{").unwrap_err().to_string().contains("wipefs --json"));
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
            usage: "filesystem".into(),
            label: label.map(ToString::to_string),
            uuid: None,
            offset: "0x0".into(),
        };
        assert!(pool(Some("tank")).marks_a_group());
        assert!(pool(None).marks_a_group());
        assert!(!pool(Some("kurabe-1234")).marks_a_group());
    }
}
