//! What a served file reads as after other bytes were put in its place: never as before; and which threads serve it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use block::{BlockDevice, Server};
use rustix::mount::{UnmountFlags, unmount};

/// What is read is filled in; what is written is forgotten.
struct Reading<F>(F);

const LENGTH: u64 = 8 << 20;

impl<F: Fn(&mut [u8]) + Send + Sync> BlockDevice for Reading<F> {
    fn len(&self) -> u64 {
        LENGTH
    }
    fn block_size(&self) -> u32 {
        512
    }
    fn read_at(&self, buffer: &mut [u8], _: u64) -> io::Result<()> {
        (self.0)(buffer);
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
    let read = byte.clone();
    let stack = Reading(move |buffer: &mut [u8]| buffer.fill(read.load(Ordering::SeqCst)));
    let server = match Server::mount(Box::new(stack), &point) {
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

/// So many requests wait for each other.
const MEET: usize = 3;

/// How many threads at most took requests of so many bytes at a time, where one has a turn; `wait` is what a request
/// waits by, each of [`MEET`] at a time for the others.
fn most_taking(bytes: usize, wait: impl Fn(&Barrier) + Send + Sync + 'static) -> Option<usize> {
    let room = tempfile::tempdir().unwrap();
    let point = room.path().join("served");
    File::create(&point).unwrap();
    let most_taking = Arc::new(AtomicUsize::new(0));
    let (all, taking, most) = (Barrier::new(MEET), AtomicUsize::new(0), most_taking.clone());
    let stack = Reading(move |_: &mut [u8]| {
        most.fetch_max(taking.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Long enough for another thread to come, if one may.
        std::thread::sleep(std::time::Duration::from_millis(2));
        taking.fetch_sub(1, Ordering::SeqCst);
        wait(&all);
    });
    let server = match Server::mount(Box::new(stack), &point) {
        Ok(server) => Arc::new(server.with_turns(1)),
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            return None;
        }
    };
    let serving: Vec<_> = (0..MEET)
        .map(|_| {
            let server = server.clone();
            std::thread::spawn(move || server.serve())
        })
        .collect();
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&point).unwrap();
    for _ in 0..20 {
        std::thread::scope(|scope| {
            for at in 0..MEET {
                let mut buffer = block::AlignedBuffer::zeroed(bytes);
                let file = &file;
                let offset = (at * bytes) as u64;
                scope.spawn(move || file.read_exact_at(&mut buffer, offset).unwrap());
            }
        });
    }
    drop(file);
    unmount(&point, UnmountFlags::DETACH).unwrap();
    // None is left waiting for its turn.
    serving.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    Some(most_taking.load(Ordering::SeqCst))
}

#[test]
fn one_thread_at_a_time_takes_requests_and_those_that_wait_hold_up_none() {
    let most = most_taking(4096, |all| {
        block::waiting(|| all.wait());
    });
    assert!(most.is_none_or(|most| most == 1), "{most:?}");
}

#[test]
fn a_long_transfer_holds_up_none() {
    let most = most_taking(64 << 10, |_| ());
    assert!(most.is_none_or(|most| most > 1), "{most:?}");
}
