//! The golden volume: bytes of a real image that every implementation must read the same way.
//!
//! `tests/golden/volume.txt` lists the sectors that are not zero, one a line: number, then the
//! bytes in hexadecimal without trailing zeros. `MINFS_WRITE_GOLDEN=1` makes it anew; that is a
//! change of the format and needs a new version number.

use std::fmt::Write as _;
use std::sync::Arc;

use block::MemoryDevice;
use minfs::{MkfsOptions, MountOptions, Severity, Volume, fsck, mkfs};

const DEVICE_BYTES: u64 = 512 << 10;
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/volume.txt");

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index / 512 + 1) as u8).collect()
}

fn make() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES, 512));
    let options = MkfsOptions {
        label: "golden".into(),
        uuid: Some(uuid::Uuid::from_u128(0x00112233_4455_6677_8899_aabbccddeeff)),
        files: Some(8),
        created_ns: Some(1_000_000_000),
        ..Default::default()
    };
    mkfs(&device, &options).unwrap();
    let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
    let create = |name: &[u8], mode| {
        let file = volume.create_owned(name, mode, 1000, 100).unwrap();
        file.set_attributes(|attributes| {
            attributes.accessed_ns = 1;
            attributes.modified_ns = -2;
            attributes.created_ns = 3;
        })
        .unwrap();
        file
    };
    create(b"empty", 0o600);
    // Two files that take turns have several extents each.
    let (scattered, other) = (create(b"scattered", 0o644), create(b"other", 0o644));
    for units in 1..=4 {
        scattered.preallocate(0, units * 4096, false, true).unwrap();
        other.preallocate(0, units * 4096, true, false).unwrap();
    }
    scattered.write(&pattern(16_384), 0).unwrap();
    let victim = create(b"target", 0o644);
    victim.write(&[0xee; 4096], 0).unwrap();
    victim.sync().unwrap();
    drop(victim);
    create(b"source", 0o640).write(&pattern(5000), 0).unwrap();
    volume.rename(b"source", b"target", true).unwrap();
    create(&[0xfe; 255], 0o777).truncate(1 << 40).unwrap();
    create(b"gone", 0o644);
    volume.unlink(b"gone").unwrap();
    let log = create(b"log", 0o644);
    log.write(&pattern(3000), 0).unwrap();
    log.sync().unwrap();
    log.append(&pattern(3000)).unwrap();
    log.sync().unwrap();
    // Taken while mounted, so that the log's record still has its tail.
    device.image()
}

fn to_text(image: &[u8]) -> String {
    let mut text = String::new();
    for (number, sector) in image.chunks(512).enumerate() {
        let Some(end) = sector.iter().rposition(|byte| *byte != 0) else { continue };
        write!(text, "{number} ").unwrap();
        for byte in &sector[..=end] {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn from_text(text: &str) -> Vec<u8> {
    let mut image = vec![0; DEVICE_BYTES as usize];
    for line in text.lines() {
        let (number, bytes) = line.split_once(' ').unwrap();
        let start = number.parse::<usize>().unwrap() * 512;
        for (index, pair) in bytes.as_bytes().chunks(2).enumerate() {
            let pair = std::str::from_utf8(pair).unwrap();
            image[start + index] = u8::from_str_radix(pair, 16).unwrap();
        }
    }
    image
}

fn read(volume: &Volume, name: &[u8]) -> Vec<u8> {
    let file = volume.open(name).unwrap();
    let mut bytes = vec![0xaa; file.size() as usize];
    file.read(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn the_golden_volume_reads_as_ever() {
    if std::env::var_os("MINFS_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(std::path::Path::new(PATH).parent().unwrap()).unwrap();
        std::fs::write(PATH, to_text(&make())).unwrap();
    }
    let image = from_text(&std::fs::read_to_string(PATH).unwrap());
    let device = Arc::new(MemoryDevice::from_image(&image, 512));
    let report = fsck(&device, false).unwrap();
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Note));
    assert_eq!(report.geometry.label(), "golden");
    assert_eq!(report.geometry.uuid().to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    assert_eq!((report.geometry.unit_bytes(), report.geometry.inode_count()), (4096, 8));
    let options = MountOptions { read_only: true, ..Default::default() };
    let volume = Volume::mount(device, &options).unwrap();
    let listed: Vec<_> = volume
        .list()
        .into_iter()
        .map(|facts| (facts.name, facts.size, facts.valid, facts.extent_count))
        .collect();
    let expected = vec![
        (b"empty".to_vec(), 0, 0, 0),
        (b"log".to_vec(), 6000, 6000, 2),
        (b"other".to_vec(), 0, 0, 4),
        (b"scattered".to_vec(), 16_384, 16_384, 4),
        (b"target".to_vec(), 5000, 5000, 1),
        (vec![0xfe; 255], 1 << 40, 0, 0),
    ];
    assert_eq!(listed, expected);
    assert_eq!(read(&volume, b"scattered"), pattern(16_384));
    assert_eq!(read(&volume, b"target"), pattern(5000));
    assert_eq!(read(&volume, b"log"), [pattern(3000), pattern(3000)].concat());
    let facts = volume.stat(b"empty").unwrap();
    let attributes = facts.attributes;
    assert_eq!((attributes.mode, attributes.user, attributes.group), (0o600, 1000, 100));
    assert_eq!(volume.stat(b"target").unwrap().attributes.mode, 0o640);
    assert_eq!(volume.open(&[0xfe; 255]).unwrap().read(&mut [1; 8], 1 << 39).unwrap(), 8);
}

/// What is written today must still be what the golden volume has: same operations, same bytes
/// but for the times that records take from the clock.
#[test]
fn today_writes_what_the_golden_volume_has() {
    let (golden, today) = (from_text(&std::fs::read_to_string(PATH).unwrap()), make());
    assert_eq!(golden[..4096], today[..4096], "the geometry");
    let data = 17 * 4096;
    assert!(golden[data..] == today[data..], "the data and the backup geometry");
    for block in 1..17 {
        let of = |image: &[u8]| {
            let mut slot = image[block * 4096..(block + 1) * 4096].to_vec();
            slot[80..112].fill(0);
            // The checksum of the first sector covers the times.
            slot[508..512].fill(0);
            slot
        };
        assert!(of(&golden) == of(&today), "block {block}");
    }
}
