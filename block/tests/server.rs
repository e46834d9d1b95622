//! What a served file reads as after other bytes were put in its place: never as before.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use block::{BlockDevice, Server};
use rustix::mount::{UnmountFlags, unmount};

/// Every byte of it is the same, and can be another one from now on.
struct Filled(Arc<AtomicU8>);

const LENGTH: u64 = 8 << 20;

impl BlockDevice for Filled {
    fn len(&self) -> u64 {
        LENGTH
    }
    fn block_size(&self) -> u32 {
        512
    }
    fn read_at(&self, buffer: &mut [u8], _: u64) -> io::Result<()> {
        buffer.fill(self.0.load(Ordering::SeqCst));
        Ok(())
    }
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_is_forgotten_is_read_again() {
    let room = tempfile::tempdir().unwrap();
    let point = room.path().join("served");
    File::create(&point).unwrap();
    let byte = Arc::new(AtomicU8::new(1));
    let server = match Server::mount(Box::new(Filled(byte.clone())), &point) {
        Ok(server) => Arc::new(server),
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    for _ in 0..2 {
        let server = server.clone();
        std::thread::spawn(move || server.serve());
    }
    let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(&point);
    let kept = open(0).unwrap();
    let differ = |byte: u8| {
        let mut bytes = vec![0; LENGTH as usize];
        kept.read_exact_at(&mut bytes, 0).unwrap();
        bytes.iter().filter(|found| **found != byte).count()
    };
    assert_eq!(differ(1), 0);
    byte.store(2, Ordering::SeqCst);
    assert_eq!(differ(1), 0, "else the kernel keeps no pages, and this shows nothing");
    // A part of it is forgotten alone.
    server.forget(4096..12_288).unwrap();
    assert_eq!(differ(1), 8192, "the rest is kept");
    server.forget(0..LENGTH).unwrap();
    assert_eq!(differ(2), 0, "bytes of before");
    // What was written through the pages goes as well.
    kept.write_all_at(&[9; 10_000], 700).unwrap();
    assert_eq!(differ(2), 10_000);
    server.forget(0..LENGTH).unwrap();
    assert_eq!(differ(2), 0, "bytes that were written before");
    drop(kept);
    unmount(&point, UnmountFlags::DETACH).unwrap();
}
