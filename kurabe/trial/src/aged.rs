//! Puts a file system that was aged before on a trial's device, and measures how files lie.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use block::{ALIGNMENT, AlignedBuffer};
use lab::quantity::about_text;
use lab::spec::{Aged, TrialSpec};
use rustix::fs::{OFlags, SeekFrom};
use serde::{Deserialize, Serialize};
use workloads::age;

use crate::device::loop_node::Backing;
use crate::host_proc::HostProc;
use crate::node::DeviceNode;
use crate::stop::StopFlag;
use crate::sys::loop_device;
use crate::tool::StepFailure;

/// By what a trial finds an image that the runner has open, and knows it again.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    /// `/proc/PID/fd/N` in the runner.
    path: PathBuf,
    #[serde(flatten)]
    backing: Backing,
    /// Whether what the image has no bytes for is zero; else it is free, and left as it is.
    holes_are_zero: bool,
}

/// Bytes of one transfer.
const CHUNK_BYTES: u64 = 4 << 20;
/// Transfers in flight.
const COPIERS: usize = 2;
/// How often a stop is looked for.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Where a command finds the path of the files that have aged.
pub const AGED_VARIABLE: &str = "KURABE_AGED";

/// The aged file system of a trial whose contender is to have one.
pub fn of(spec: &TrialSpec) -> Result<Option<&Aged>, StepFailure> {
    match (&spec.contender.aged, &spec.aged) {
        (Some(_), None) => Err(StepFailure::of("nothing says where the aged file system is")),
        (_, aged) => Ok(aged.as_ref()),
    }
}

/// The path of the files that have aged, in a file system mounted at `root`. Below a layer nobody finds them.
pub fn directory_of(spec: &TrialSpec, root: &Path) -> Option<String> {
    let is_there = spec.aged.is_some() && spec.contender.above().is_empty();
    is_there.then(|| root.join(age::DIRECTORY).display().to_string())
}

/// What a trial is told of an image that this process has open, as long as it has.
pub fn told(image: &File, holes_are_zero: bool) -> io::Result<serde_json::Value> {
    let path = format!("/proc/{}/fd/{}", std::process::id(), image.as_raw_fd()).into();
    let found = Found { path, backing: Backing::of(image)?, holes_are_zero };
    Ok(serde_json::to_value(found)?)
}

/// The places of a file at which it has bytes.
pub fn data_of(file: &File, size_bytes: u64) -> io::Result<Vec<Range<u64>>> {
    let mut all = Vec::new();
    let mut position = 0;
    while position < size_bytes {
        let start = match rustix::fs::seek(file, SeekFrom::Data(position)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size_bytes);
        if start >= end {
            break;
        }
        all.push(start..end);
        position = end;
    }
    Ok(all)
}

/// Copies the image to the device, where there is one to be copied, and makes it durable.
pub fn restore(
    aged: &Aged,
    node: &DeviceNode,
    device_bytes: u64,
    host: &HostProc,
    stop: &StopFlag,
) -> Result<(), StepFailure> {
    let Some(image) = &aged.image else { return Ok(()) };
    if aged.size_bytes > device_bytes {
        return Err(StepFailure::of(format!(
            "the aged file system has {} and the device {}: give a larger --device",
            about_text(aged.size_bytes),
            about_text(device_bytes)
        )));
    }
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::Interrupted => StepFailure::Stopped,
        _ => StepFailure::of(format!("putting the aged file system on {}: {error}", node.shown())),
    };
    let found = Found::deserialize(image).map_err(|error| failed(error.into()))?;
    let open = |how| host.open_descriptor(&found.path, OFlags::RDONLY | how);
    // Past the page cache where that is possible: what is in it is the same for every contender.
    let source = open(OFlags::DIRECT).or_else(|_| open(OFlags::empty())).map_err(failed)?;
    if Backing::of(&source).map_err(failed)? != found.backing {
        return Err(StepFailure::of("the aged image is another one by now; start the study again"));
    }
    let places = if found.holes_are_zero {
        std::iter::once(0..aged.size_bytes).collect()
    } else {
        data_of(&source, aged.size_bytes).map_err(failed)?
    };
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(node.path());
    let target = direct.map_err(failed)?;
    copy(&source, &target, &places, stop).map_err(failed)?;
    // What a tool or the kernel has read of the device before is not there any more.
    target
        .sync_all()
        .and_then(|()| loop_device::drop_buffers(&File::open(node.path())?))
        .map_err(failed)
}

fn copy(source: &File, target: &File, places: &[Range<u64>], stop: &StopFlag) -> io::Result<()> {
    let chunks: Vec<Range<u64>> = places
        .iter()
        .flat_map(|place| {
            let starts = (place.start..place.end).step_by(CHUNK_BYTES as usize);
            starts.map(|start| start..place.end.min(start + CHUNK_BYTES))
        })
        .collect();
    let next = AtomicU64::new(0);
    let give_up = AtomicBool::new(false);
    let copier = || -> io::Result<()> {
        let mut buffer = AlignedBuffer::zeroed(CHUNK_BYTES as usize);
        while !give_up.load(Ordering::Relaxed) {
            let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed) as usize) else {
                break;
            };
            // Whole blocks: an image of somebody's may end within one.
            let length = (chunk.end - chunk.start).next_multiple_of(ALIGNMENT as u64) as usize;
            let bytes = &mut buffer[..length];
            let copied = read_up_to(source, bytes, chunk.start)
                .and_then(|()| target.write_all_at(bytes, chunk.start));
            copied.inspect_err(|_| give_up.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let copiers: Vec<_> = (0..COPIERS).map(|_| scope.spawn(copier)).collect();
        while copiers.iter().any(|copier| !copier.is_finished()) {
            std::thread::park_timeout(STOP_INTERVAL);
            if stop.raised() {
                give_up.store(true, Ordering::Relaxed);
            }
        }
        copiers.into_iter().try_for_each(|copier| copier.join().expect("a copier never panics"))
    })?;
    if stop.raised() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
}

/// Reads to the end of the buffer, or of the file: what is behind it is zero.
fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => {
                bytes[done..].fill(0);
                break;
            }
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // With direct I/O the rest behind a last, short block cannot be asked for.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && done > 0 => {
                bytes[done..].fill(0);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_bytes_is_copied_and_the_rest_left_alone() {
        let image = tempfile::tempfile_in("/var/tmp").unwrap();
        let size_bytes = 16 << 20;
        image.set_len(size_bytes).unwrap();
        image.write_all_at(&[1; 4096], 0).unwrap();
        image.write_all_at(&[2; 8192], (9 << 20) + 4096).unwrap();
        let places = data_of(&image, size_bytes).unwrap();
        assert!(places.iter().map(|place| place.end - place.start).sum::<u64>() < size_bytes);
        let target = tempfile::tempfile_in("/var/tmp").unwrap();
        target.write_all_at(&vec![9; size_bytes as usize], 0).unwrap();
        copy(&image, &target, &places, &StopFlag::default()).unwrap();
        let mut found = vec![0; size_bytes as usize];
        target.read_exact_at(&mut found, 0).unwrap();
        assert!(found[..4096].iter().all(|byte| *byte == 1));
        assert!(found[5 << 20..6 << 20].iter().all(|byte| *byte == 9));
        let at = (9 << 20) + 4096;
        assert!(found[at..at + 8192].iter().all(|byte| *byte == 2));
        let stop = StopFlag::default();
        stop.raise();
        let stopped = copy(&image, &target, &places, &stop).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn an_image_may_end_within_a_block() {
        let image = tempfile::tempfile_in("/var/tmp").unwrap();
        image.write_all_at(&[3; 5000], 0).unwrap();
        let target = tempfile::tempfile_in("/var/tmp").unwrap();
        let places = std::slice::from_ref(&(0..5000));
        copy(&image, &target, places, &StopFlag::default()).unwrap();
        let mut found = vec![7; 8192];
        target.read_exact_at(&mut found, 0).unwrap();
        assert!(found[..5000].iter().all(|byte| *byte == 3));
        assert!(found[5000..].iter().all(|byte| *byte == 0));
    }
}
