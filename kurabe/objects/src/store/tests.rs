//! What every store must do, and what each promises beyond.

use std::sync::Arc;

use block::MemoryDevice;
#[cfg(feature = "cannyls")]
use crash::{RecordedRequest, RequestKind, RequestRecorder};

use super::*;

/// Every store that keeps contents, each on a fresh place, with its name for messages.
fn with_every_store(test: impl Fn(&str, &StoreKind, &StoreLocation, &StoreOptions)) {
    for kind in STORES.iter().filter(|kind| kind.keeps_contents) {
        if let Some(missing) = (kind.missing)() {
            eprintln!("SKIPPED: {missing}");
            continue;
        }
        for block_size_bytes in [512, 4096] {
            for sync_every_put in [false, true] {
                let directory = tempfile::tempdir().unwrap();
                let options = StoreOptions {
                    block_size_bytes,
                    sync_every_put,
                    capacity_bytes: Some(16 << 20),
                    ..StoreOptions::default()
                };
                let name = format!("{} {block_size_bytes} {sync_every_put}", kind.name);
                test(&name, kind, &StoreLocation::Directory(directory.path().to_owned()), &options);
                if kind.takes_device {
                    let device = MemoryDevice::new(16 << 20, 512);
                    let name = format!("{name} on a device");
                    test(&name, kind, &StoreLocation::Open(Arc::new(device)), &options);
                }
            }
        }
    }
}

fn put(session: &mut dyn StoreSession, key: u64, contents: &[u8], embedded: bool) {
    session.prepare(contents.len(), embedded).unwrap().copy_from_slice(contents);
    session.put(key).unwrap();
}

#[test]
fn what_was_put_is_there_until_it_is_deleted() {
    with_every_store(|name, kind, place, options| {
        let store = (kind.create)(place, options).unwrap();
        let mut session = store.session().unwrap();
        let session = session.as_mut();
        assert!(session.get(1).unwrap().is_none(), "{name}");
        put(session, 1, b"one", false);
        put(session, 2, &[2; 5000], false);
        put(session, 3, b"", false);
        put(session, 4, b"embedded", true);
        assert_eq!(session.get(1).unwrap(), Some(&b"one"[..]), "{name}");
        assert_eq!(session.get(2).unwrap(), Some(&[2; 5000][..]), "{name}");
        assert_eq!(session.get(3).unwrap(), Some(&b""[..]), "{name}");
        assert_eq!(session.get(4).unwrap(), Some(&b"embedded"[..]), "{name}");
        put(session, 2, b"shorter", false);
        assert_eq!(session.get(2).unwrap(), Some(&b"shorter"[..]), "{name}");
        assert!(session.delete(1).unwrap() && !session.delete(1).unwrap(), "{name}");
        assert!(session.get(1).unwrap().is_none(), "{name}");
        assert_eq!(store.keys().unwrap(), [2, 3, 4], "{name}");
    });
}

#[test]
fn a_range_is_deleted_without_its_end() {
    with_every_store(|name, kind, place, options| {
        let store = (kind.create)(place, options).unwrap();
        let mut session = store.session().unwrap();
        for key in [1, 2, 5, 6, 7] {
            put(session.as_mut(), key, &[key as u8; 100], key == 5);
        }
        assert_eq!(session.delete_range(2..7).unwrap(), 3, "{name}");
        assert_eq!(session.delete_range(3..3).unwrap(), 0, "{name}");
        assert_eq!(store.keys().unwrap(), [1, 7], "{name}");
    });
}

#[test]
fn a_store_that_was_synced_opens_as_it_was() {
    with_every_store(|name, kind, place, options| {
        let store = (kind.create)(place, options).unwrap();
        let mut session = store.session().unwrap();
        for key in 0..200 {
            put(session.as_mut(), key, &key.to_le_bytes().repeat(40), key % 7 == 0);
        }
        assert!(session.delete(100).unwrap());
        drop(session);
        store.sync().unwrap();
        drop(store);
        let store = (kind.open)(place, options).unwrap();
        let expected: Vec<u64> = (0..200).filter(|key| *key != 100).collect();
        assert_eq!(store.keys().unwrap(), expected, "{name}");
        let mut session = store.session().unwrap();
        for key in expected {
            let contents = key.to_le_bytes().repeat(40);
            assert_eq!(session.get(key).unwrap(), Some(&contents[..]), "{name}");
        }
    });
}

#[test]
fn an_unknown_store_is_told_the_nearest() {
    let told = kind("file").map(|kind| kind.name).unwrap_err().to_string();
    assert_eq!(told, "no store is called 'file'; did you mean 'files'?");
}

#[test]
fn a_store_of_files_is_not_made_on_a_device() {
    for kind in STORES.iter().filter(|kind| !kind.takes_device) {
        let device = StoreLocation::Open(Arc::new(MemoryDevice::new(1 << 20, 512)));
        let refused = (kind.create)(&device, &StoreOptions::default()).err().unwrap().to_string();
        assert_eq!(refused, needs_file_system(kind.name));
    }
}

#[cfg(feature = "cannyls")]
#[test]
fn cannyls_flushes_once_a_put_when_asked_and_hardly_otherwise() {
    for (sync_every_put, flushes) in [(true, 100), (false, 0)] {
        let recording =
            Arc::new(RequestRecorder::in_memory(MemoryDevice::new(16 << 20, 512)).unwrap());
        let place = StoreLocation::Open(Arc::clone(&recording) as Arc<dyn BlockDevice>);
        let options = StoreOptions { sync_every_put, ..StoreOptions::default() };
        let store = (kind("cannyls").unwrap().create)(&place, &options).unwrap();
        let count = || {
            let requests = recording.recording().log.requests;
            requests.iter().filter(|request| request.operation == RequestKind::Flush).count()
        };
        let before = count();
        let mut session = store.session().unwrap();
        for key in 0..100 {
            put(session.as_mut(), key, &[1; 700], false);
        }
        assert_eq!(count() - before, flushes);
    }
}

#[cfg(feature = "cannyls")]
#[test]
fn cannyls_is_made_whole_up_to_where_its_first_object_begins() {
    for (block_size_bytes, journal_bytes) in
        [(512, 0), (4096, 0), (512, 3_000_001), (4096, 5 << 20)]
    {
        let recording =
            Arc::new(RequestRecorder::in_memory(MemoryDevice::new(16 << 20, 512)).unwrap());
        let place = StoreLocation::Open(Arc::clone(&recording) as Arc<dyn BlockDevice>);
        let options = StoreOptions { block_size_bytes, journal_bytes, ..StoreOptions::default() };
        let store = (kind("cannyls").unwrap().create)(&place, &options).unwrap();
        let made = recording.recording().log.requests;
        let mut writes: Vec<(u64, u64)> = made.iter().filter_map(write_of).collect();
        writes.sort_unstable();
        // Without a gap, and durable.
        let end = writes.iter().fold(0, |end, (offset, length)| {
            assert!(*offset <= end, "a gap at {end}");
            end.max(offset + length)
        });
        assert!(end > journal_bytes && end < 2 * journal_bytes + (1 << 20), "{end}");
        assert!(made.last().is_some_and(|last| last.operation == RequestKind::Flush), "{made:?}");
        let made_of: u64 = writes.iter().map(|(_, length)| length).sum();
        assert_eq!(store.written_bytes(), Some(made_of));

        let mut session = store.session().unwrap();
        put(session.as_mut(), 0, &[1; 700], false);
        let first =
            recording.recording().log.requests[made.len()..].iter().find_map(write_of).unwrap();
        assert_eq!(first.0, end);
        assert_eq!(store.written_bytes(), Some(made_of + first.1));
    }
}

/// Offset and length of a write.
#[cfg(feature = "cannyls")]
fn write_of(request: &RecordedRequest) -> Option<(u64, u64)> {
    let bytes = |sectors| sectors * crash::SECTOR_BYTES;
    (request.operation == RequestKind::Write)
        .then(|| (bytes(request.sector), bytes(request.sectors)))
}

#[cfg(feature = "cannyls")]
#[test]
fn cannyls_refuses_blocks_smaller_than_the_devices_and_says_when_it_is_full() {
    let cannyls = kind("cannyls").unwrap();
    let place = StoreLocation::Open(Arc::new(MemoryDevice::new(16 << 20, 4096)));
    let refused = (cannyls.create)(&place, &StoreOptions::default()).err().unwrap().to_string();
    assert!(refused.contains("ask for a block size of 4096"), "{refused}");

    let options = StoreOptions { block_size_bytes: 4096, ..StoreOptions::default() };
    let store = (cannyls.create)(&place, &options).unwrap();
    let mut session = store.session().unwrap();
    let full = (0..20).find_map(|key| {
        session.prepare(1 << 20, false).unwrap();
        session.put(key).err()
    });
    assert!(matches!(full, Some(StoreError::Full(_))), "{full:?}");
}

#[test]
fn sequential_writes_as_many_bytes_in_order() {
    let device = Arc::new(block::CountingDevice::new(MemoryDevice::new(3 << 20, 512)));
    let place = StoreLocation::Open(device.clone());
    let store = (kind("sequential").unwrap().create)(&place, &StoreOptions::default()).unwrap();
    let mut session = store.session().unwrap();
    for size_bytes in [700_000, 700_000, 4 << 20] {
        session.prepare(size_bytes, false).unwrap();
        session.put(1).unwrap();
    }
    assert_eq!(device.counts().written_bytes, 5 << 20);
    store.sync().unwrap();
    let counts = device.counts();
    assert_eq!((counts.written_bytes, counts.flushes), (6 << 20, 1));
    let image = device.inner().image();
    assert!(image.chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)));
    let place = StoreLocation::Directory("/nowhere".into());
    let refused = (kind("sequential").unwrap().create)(&place, &StoreOptions::default());
    assert!(refused.err().unwrap().to_string().contains("'sequential over raw'"));
}

#[test]
fn null_takes_everything_and_keeps_nothing() {
    let place = StoreLocation::Directory("/nowhere".into());
    let store = (kind("null").unwrap().create)(&place, &StoreOptions::default()).unwrap();
    let mut session = store.session().unwrap();
    session.prepare(1 << 40, false).unwrap();
    session.put(1).unwrap();
    assert_eq!(session.get(1).unwrap(), Some(&[][..]));
    assert!(store.keys().unwrap().is_empty());
}
