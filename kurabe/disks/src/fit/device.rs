//! A device that is measured by the clock.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use block::{AlignedBuffer, BlockDevice};

use super::{FitTarget, MIB};
use crate::virtual_host::RequestTimes;
use crate::{DiskOperation, ModelRequest};

/// A device past the page cache. What is written are zeros.
pub struct OnDevice<D> {
    device: D,
    began: Instant,
}

impl<D: BlockDevice> OnDevice<D> {
    /// Measures `device`, which loses its contents.
    pub fn new(device: D) -> OnDevice<D> {
        OnDevice { device, began: Instant::now() }
    }

    fn carry(&self, request: ModelRequest, buffer: &mut AlignedBuffer) -> io::Result<RequestTimes> {
        let bytes = &mut buffer[..request.length as usize];
        let start = self.began.elapsed().as_nanos() as u64;
        match request.operation {
            DiskOperation::Read => self.device.read_at(bytes, request.offset)?,
            DiskOperation::Write => self.device.write_at(bytes, request.offset)?,
            DiskOperation::Flush => self.device.flush()?,
            DiskOperation::Discard => self.device.discard(request.offset, request.length)?,
        }
        Ok(start..self.began.elapsed().as_nanos() as u64)
    }
}

impl<D: BlockDevice> FitTarget for OnDevice<D> {
    fn size_bytes(&self) -> u64 {
        self.device.len()
    }

    fn run(&mut self, depth: usize, requests: Vec<ModelRequest>) -> io::Result<Vec<RequestTimes>> {
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Ok(vec![0..0; requests.len()])));
        let work = || {
            let mut buffer = AlignedBuffer::zeroed(MIB as usize);
            while let Some((at, request)) = {
                let at = next.fetch_add(1, Ordering::SeqCst);
                requests.get(at).map(|request| (at, *request))
            } {
                let carried = self.carry(request, &mut buffer);
                let mut done = done.lock().expect("nothing panics with it");
                match (carried, &mut *done) {
                    (Ok(times), Ok(all)) => all[at] = times,
                    (Err(error), Ok(_)) => *done = Err(error),
                    (_, Err(_)) => break,
                }
            }
        };
        if depth == 1 {
            work();
        } else {
            std::thread::scope(|scope| (0..depth).for_each(|_| drop(scope.spawn(work))));
        }
        done.into_inner().expect("nothing panics with it")
    }

    fn rest(&mut self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns));
    }
}
