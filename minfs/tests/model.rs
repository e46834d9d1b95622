//! The library against a model in memory: random sequences of operations, shrunk when they fail.
//!
//! The model is a map from names to bytes. Remounts and crashes without unflushed loss are among
//! the operations, and after every sequence fsck must find nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::MemoryDevice;
use minfs::{Error, MkfsOptions, MountOptions, Volume, fsck, mkfs};
use proptest::prelude::*;

const DEVICE_BYTES: u64 = 600 << 10;
const FILES: u32 = 5;

#[derive(Clone, Debug)]
enum Operation {
    Create(u8),
    Unlink(u8),
    Rename(u8, u8, bool),
    Write { name: u8, offset: u64, length: usize, fill: u8 },
    Append { name: u8, length: usize, fill: u8 },
    Read { name: u8, offset: u64, length: usize },
    Truncate(u8, u64),
    Preallocate { name: u8, offset: u64, length: u64, keep_size: bool, zero: bool },
    ZeroRange { name: u8, offset: u64, length: u64 },
    Sync(u8),
    Remount,
}

fn operation() -> impl Strategy<Value = Operation> {
    let name = 0..7_u8;
    let offset = prop_oneof![0..20_000_u64, (0..20_u64).prop_map(|block| block * 4096)];
    let length = prop_oneof![1..20_000_usize, (1..8_usize).prop_map(|blocks| blocks * 4096)];
    prop_oneof![
        2 => name.clone().prop_map(Operation::Create),
        1 => name.clone().prop_map(Operation::Unlink),
        1 => (name.clone(), name.clone(), any::<bool>())
            .prop_map(|(from, to, replace)| Operation::Rename(from, to, replace)),
        6 => (name.clone(), offset.clone(), length.clone(), 1..255_u8).prop_map(
            |(name, offset, length, fill)| Operation::Write { name, offset, length, fill }
        ),
        3 => (name.clone(), length.clone(), 1..255_u8)
            .prop_map(|(name, length, fill)| Operation::Append { name, length, fill }),
        4 => (name.clone(), offset.clone(), length.clone())
            .prop_map(|(name, offset, length)| Operation::Read { name, offset, length }),
        2 => (name.clone(), 0..60_000_u64).prop_map(|(name, size)| Operation::Truncate(name, size)),
        1 => (name.clone(), offset.clone(), 1..60_000_u64, any::<bool>(), any::<bool>()).prop_map(
            |(name, offset, length, keep_size, zero)| Operation::Preallocate {
                name,
                offset,
                length,
                keep_size,
                zero
            }
        ),
        1 => (name.clone(), offset, 1..30_000_u64)
            .prop_map(|(name, offset, length)| Operation::ZeroRange { name, offset, length }),
        1 => name.prop_map(Operation::Sync),
        1 => Just(Operation::Remount),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct System {
    device: Arc<MemoryDevice>,
    volume: Volume,
    model: Model,
}

fn bytes_of(length: usize, fill: u8) -> Vec<u8> {
    (0..length).map(|index| fill.wrapping_add((index / 512) as u8)).collect()
}

/// Runs `change` on the model's file of that name if the operation on the volume succeeded; the
/// two must agree on whether the file exists, and only a lack of space may make them differ.
fn agree(
    model: &mut Model,
    name: &[u8],
    outcome: Result<(), Error>,
    change: impl FnOnce(&mut Vec<u8>),
) {
    match (outcome, model.get_mut(name)) {
        (Ok(()), Some(content)) => change(content),
        (Err(Error::NotFound(_)), None) => {}
        (Err(Error::NoSpace { .. }), Some(_)) => {}
        (outcome, content) => panic!("{outcome:?} for {:?}", content.map(|content| content.len())),
    }
}

impl System {
    fn new() -> Self {
        let device = Arc::new(MemoryDevice::from_image(&vec![0xee; DEVICE_BYTES as usize], 512));
        mkfs(&device, &MkfsOptions { files: Some(FILES), ..Default::default() }).unwrap();
        let volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
        Self { device, volume, model: Model::new() }
    }

    fn apply(&mut self, operation: &Operation) {
        let named = |name: u8| vec![b'a' + name];
        let volume = &self.volume;
        match *operation {
            Operation::Create(name) => {
                let name = named(name);
                match volume.create(&name, 0o644).map(drop) {
                    Ok(()) => assert!(self.model.insert(name, Vec::new()).is_none()),
                    Err(Error::Exists(_)) => assert!(self.model.contains_key(&name)),
                    Err(Error::TooManyFiles { .. }) => {
                        assert_eq!(self.model.len(), FILES as usize);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Operation::Unlink(name) => {
                let name = named(name);
                assert_eq!(volume.unlink(&name).is_ok(), self.model.remove(&name).is_some());
            }
            Operation::Rename(from, to, replace) => {
                let (from, to) = (named(from), named(to));
                let may =
                    self.model.contains_key(&from) && (replace || !self.model.contains_key(&to));
                assert_eq!(volume.rename(&from, &to, replace).is_ok(), may);
                if may {
                    let content = self.model.remove(&from).unwrap();
                    self.model.insert(to, content);
                }
            }
            Operation::Write { name, offset, length, fill } => {
                let (name, bytes) = (named(name), bytes_of(length, fill));
                let outcome = volume.open(&name).and_then(|file| file.write(&bytes, offset));
                agree(&mut self.model, &name, outcome, |content| {
                    let end = offset as usize + length;
                    content.resize(content.len().max(end), 0);
                    content[offset as usize..end].copy_from_slice(&bytes);
                });
            }
            Operation::Append { name, length, fill } => {
                let (name, bytes) = (named(name), bytes_of(length, fill));
                let outcome = volume.open(&name).and_then(|file| file.append(&bytes)).map(drop);
                agree(&mut self.model, &name, outcome, |content| content.extend(&bytes));
            }
            Operation::Read { name, offset, length } => {
                if let Some(content) = self.model.get(&named(name)) {
                    let mut buffer = vec![0xaa; length];
                    let read =
                        volume.open(&named(name)).unwrap().read(&mut buffer, offset).unwrap();
                    let start = content.len().min(offset as usize);
                    let end = content.len().min(offset as usize + length);
                    assert_eq!(buffer[..read], content[start..end]);
                }
            }
            Operation::Truncate(name, size) => {
                let name = named(name);
                let outcome = volume.open(&name).and_then(|file| file.truncate(size));
                agree(&mut self.model, &name, outcome, |content| content.resize(size as usize, 0));
            }
            Operation::Preallocate { name, offset, length, keep_size, zero } => {
                let name = named(name);
                let outcome = volume
                    .open(&name)
                    .and_then(|file| file.preallocate(offset, length, keep_size, zero));
                agree(&mut self.model, &name, outcome, |content| {
                    if !keep_size {
                        content.resize(content.len().max((offset + length) as usize), 0);
                    }
                });
            }
            Operation::ZeroRange { name, offset, length } => {
                let name = named(name);
                let outcome =
                    volume.open(&name).and_then(|file| file.zero_range(offset, length, false));
                agree(&mut self.model, &name, outcome, |content| {
                    let end = (offset + length) as usize;
                    content.resize(content.len().max(end), 0);
                    content[offset as usize..end].fill(0);
                });
            }
            Operation::Sync(name) => {
                if let Ok(file) = volume.open(&named(name)) {
                    file.sync().unwrap();
                }
            }
            Operation::Remount => self.remount(),
        }
        self.check();
    }

    fn remount(&mut self) {
        self.volume.sync().unwrap();
        // What is mounted now ends when the value is replaced; ending it first would need a
        // second owner, so the new mount starts from a copy of the synced image.
        let device = Arc::new(MemoryDevice::from_image(&self.device.image(), 512));
        self.volume = Volume::mount(device.clone(), &MountOptions::default()).unwrap();
        self.device = device;
    }

    fn check(&self) {
        let listed = self.volume.list();
        assert!(listed.iter().map(|facts| &facts.name).eq(self.model.keys()));
        for facts in listed {
            let content = &self.model[&facts.name];
            assert_eq!(facts.size, content.len() as u64);
            let mut found = vec![0xaa; content.len()];
            self.volume.open(&facts.name).unwrap().read(&mut found, 0).unwrap();
            assert!(found == *content, "{:?} differs", facts.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_library_does_what_the_model_does(
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        let mut system = System::new();
        for operation in &operations {
            system.apply(operation);
        }
        system.remount();
        system.check();
        let report = fsck(&system.device, false).unwrap();
        prop_assert!(report.findings.is_empty(), "{:?}", report.findings);
        let held: u64 = system.volume.list().iter().map(|facts| facts.allocated_bytes).sum();
        prop_assert_eq!(report.used_bytes, held);
        let space = system.volume.space();
        prop_assert_eq!(space.free_bytes + held, space.total_bytes);
    }
}
