//! Serves an image as a file whose requests take longer, until it is killed: a disk with a known
//! difference, for any tool.
//!
//!     delaying IMAGE POINT PERCENT
//!
//! POINT is an empty file. Each request takes PERCENT longer.

use std::io;
use std::path::Path;
use std::sync::Arc;

use block::{Delay, DelayingDevice, Delays, DirectAccess, FileDevice, FileDeviceOptions, Server};

/// As many requests at a time as kurabe's own server.
const THREADS: usize = 32;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, point, delay] = words.as_slice() else {
        return Err(io::Error::other("write IMAGE POINT PERCENT"));
    };
    let delay = Some(Delay::Share(delay.parse::<f64>().map_err(io::Error::other)? / 100.0));
    let options = FileDeviceOptions { direct: DirectAccess::Require, ..Default::default() };
    let device = FileDevice::open(image, &options)?;
    let delays = Delays { read: delay, write: delay, flush: delay };
    let stack = DelayingDevice::new(device, delays);
    let server = Arc::new(Server::mount(Box::new(stack), Path::new(point))?);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let server = server.clone();
            std::thread::spawn(move || server.serve())
        })
        .collect();
    for thread in threads {
        thread.join().expect("no layer panics")?;
    }
    Ok(())
}
