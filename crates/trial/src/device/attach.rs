//! Attaches the prepared device for one trial, in the trial's own process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use block::claim::Identity;
use lab::spec::Device;
use rustix::fs::{AtFlags, StatxFlags};

use super::loop_node::{self, Backing, RELEASE_WAIT_MAX, Released};
use super::{BlockDeviceFacts, DeviceError, fill, real};
use crate::host_proc::HostProc;
use crate::ledger::{Ledger, Taken};
use crate::scratch::Occupied;
use crate::stop::Stop;
use crate::sys::loop_device::{self, FLAG_AUTOCLEAR, FLAG_DIRECT_IO};

/// A device that is attached for one trial. Given back when dropped, but only
/// [`Attached::detach`] says how that went.
#[derive(Debug)]
pub struct Attached {
    node: PathBuf,
    size_bytes: u64,
    notes: Vec<String>,
    taken: Option<TakenNode>,
    /// What a real device was granted as.
    granted: Option<Identity>,
}

/// A private loop device that this process added.
#[derive(Debug)]
struct TakenNode {
    /// Held open so that the file stays attached between the tools that use the device. The
    /// kernel detaches it when this process is gone, however it went.
    node: Option<File>,
    index: u32,
    backing: Backing,
    ledger: Ledger,
    ledger_id: u64,
    /// The trial's room, for a node of the device where `/dev` has none.
    room: PathBuf,
}

/// Attaches `device`.
///
/// An image gets a private loop device with direct I/O. Unless `discard`, nothing can make a hole
/// in the image: the loop device takes no discards, and then writes zeros where it is asked for
/// zeros. Holes that an earlier trial was allowed to make are filled first. `scratch` is the
/// trial's own directory, which its runner has in its ledger.
///
/// A real device was claimed again by the runner; it is compared with what that granted.
///
/// # Errors
///
/// [`DeviceError`]; nothing stays attached.
pub fn attach(
    device: &Device,
    discard: bool,
    scratch: &Occupied,
    host: &HostProc,
    stop: &Stop,
) -> Result<Attached, DeviceError> {
    match device {
        Device::Image { path, file_system, inode, size_bytes, memory } => {
            let prepared = Backing { file_system: *file_system, inode: *inode };
            let image = open_prepared(path, prepared, *size_bytes, *memory, host)?;
            let text = path.display().to_string();
            attach_image(&image, &text, *size_bytes, *memory, discard, scratch, stop)
        }
        Device::Block { path, identity } => {
            let identity = real::attach(path, identity)?;
            let (node, size_bytes) = (path.clone(), identity.size_bytes);
            let granted = Some(identity);
            Ok(Attached { node, size_bytes, notes: Vec::new(), taken: None, granted })
        }
        Device::None => Err(DeviceError::Refused(
            "a dir: contender stands on no device of its own; nothing can be attached".into(),
        )),
    }
}

impl Attached {
    /// The device node that mkfs and mount are given.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Remarks for the record: direct I/O that is not on, holes that were filled.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Gives the device back: detaches the image and removes the loop device, waiting for its
    /// users to go.
    ///
    /// # Errors
    ///
    /// Somebody still uses it; the error says who, when that can be seen. The runner's ledger
    /// still has it then.
    pub fn detach(mut self) -> Result<(), DeviceError> {
        self.release()
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        if let Some(identity) = self.granted.take() {
            real::wipe(&self.node, &identity)
                .map_err(DeviceError::system(format!("wiping {}", self.node.display())))?;
        }
        let Some(mut taken) = self.taken.take() else { return Ok(()) };
        drop(taken.node.take());
        loop_node::release(taken.index, taken.backing, &taken.room, RELEASE_WAIT_MAX)
            .and_then(|_: Released| taken.ledger.gave_back(taken.ledger_id))
            .map_err(DeviceError::system(format!("giving back {}", self.node.display())))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Whoever wants to know calls `detach`; here the ledger keeps what could not be given.
        let _ = self.release();
    }
}

/// Opens what the runner prepared, and nothing else that its place may lead to by now.
fn open_prepared(
    path: &Path,
    prepared: Backing,
    size_bytes: u64,
    memory: bool,
    host: &HostProc,
) -> Result<File, DeviceError> {
    let text = path.display();
    let image = open_image(path, memory, host)
        .map_err(DeviceError::system(format!("opening the image {text}")))?;
    let system = |what: &str| DeviceError::system(format!("{what} {text}"));
    if Backing::of(&image).map_err(system("looking at the image"))? != prepared {
        return Err(DeviceError::Refused(format!(
            "{text} is not the image that was prepared; start the study again"
        )));
    }
    let length_bytes = image.metadata().map_err(system("looking at the image"))?.len();
    if length_bytes != size_bytes {
        return Err(DeviceError::Refused(format!(
            "the image {text} has {length_bytes} bytes where {size_bytes} were prepared; start the study again"
        )));
    }
    Ok(image)
}

fn attach_image(
    image: &File,
    image_text: &str,
    size_bytes: u64,
    memory: bool,
    discard: bool,
    scratch: &Occupied,
    stop: &Stop,
) -> Result<Attached, DeviceError> {
    let mut notes = Vec::new();
    let system = |what: &str| DeviceError::system(format!("{what} {image_text}"));
    if !discard {
        let seed = crate::ledger::random_bits();
        let refilled_bytes = fill::refill_holes(image, size_bytes, seed, stop)
            .map_err(system("filling holes of the image"))?;
        if refilled_bytes > 0 {
            notes.push(format!(
                "{refilled_bytes} bytes of the image had been given back to the host and were filled again"
            ));
        }
    }
    fill::wipe_signatures(image, size_bytes).map_err(system("wiping signatures of the image"))?;
    let ledger = scratch.ledger().map_err(system("starting the trial's ledger for"))?;
    let (taken, node) = add_and_configure(image, ledger, scratch.room(), image_text)?;
    let mut attached = Attached { node, size_bytes, notes, taken: Some(taken), granted: None };
    let index = attached.taken.as_ref().map_or(0, |taken| taken.index);
    let file = attached.taken.as_ref().and_then(|taken| taken.node.as_ref());
    let status = loop_device::status(file.expect("it was just opened"))
        .map_err(system("looking at the loop device of"))?;
    if status.flags & FLAG_DIRECT_IO == 0 && !memory {
        attached.notes.push(format!(
            "direct I/O is not possible on {image_text}: the host's page cache takes part in every number"
        ));
    }
    if !discard {
        forbid_discards(index).map_err(system("turning discards off for"))?;
    }
    Ok(attached)
}

/// Opens past the page cache where that is possible, which also lets the loop device do so.
fn open_image(path: &Path, memory: bool, host: &HostProc) -> io::Result<File> {
    match host.open_writable(path, !memory) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => host.open_writable(path, false),
        result => result,
    }
}

/// Attempts to find a free number. Each is lost only to somebody else who picked the same.
const ATTEMPTS_MAX: usize = 100;

fn add_and_configure(
    image: &File,
    ledger: Ledger,
    room: &Path,
    image_text: &str,
) -> Result<(TakenNode, PathBuf), DeviceError> {
    let system = |what: &str| DeviceError::system(format!("{what} {image_text}"));
    let control = loop_node::open_control()
        .map_err(DeviceError::system("a private loop device cannot be added"))?;
    let backing = Backing::of(image).map_err(system("looking at the image"))?;
    let block_size_bytes = block_size_bytes(image);
    for _ in 0..ATTEMPTS_MAX {
        let index = loop_node::random_index();
        let ledger_id = ledger
            .take(Taken::LoopNode { index, file_system: backing.file_system, inode: backing.inode })
            .map_err(system("writing the ledger for"))?;
        match loop_device::add(&control, index) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                ledger.gave_back(ledger_id).map_err(system("writing the ledger for"))?;
                continue;
            }
            Err(error) => return Err(system("adding a loop device for")(error)),
        }
        let path =
            loop_node::node_path(index, room).map_err(system("finding the loop device of"))?;
        let node = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(system("opening the loop device of"))?;
        let configured = match configure(&node, image, block_size_bytes) {
            // The kernel refuses direct I/O where the file does not allow it.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                loop_device::configure(&node, image, block_size_bytes, FLAG_AUTOCLEAR)
            }
            result => result,
        };
        match configured {
            Ok(()) => {
                let taken = TakenNode {
                    node: Some(node),
                    index,
                    backing,
                    ledger,
                    ledger_id,
                    room: room.to_path_buf(),
                };
                return Ok((taken, path));
            }
            // Somebody who asked for any free loop device was given ours before we could use it.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                ledger.gave_back(ledger_id).map_err(system("writing the ledger for"))?;
            }
            Err(error) => {
                drop(node);
                let _ = loop_node::release(index, backing, room, RELEASE_WAIT_MAX);
                return Err(system("attaching")(error));
            }
        }
    }
    Err(DeviceError::Refused(format!(
        "no free loop device was found in {ATTEMPTS_MAX} attempts; see 'losetup -a' for who holds them"
    )))
}

fn configure(node: &File, image: &File, block_size_bytes: u32) -> io::Result<()> {
    loop_device::configure(node, image, block_size_bytes, FLAG_AUTOCLEAR | FLAG_DIRECT_IO)
}

/// The block size that direct I/O on the image needs: what statx(2) says of it, else what the disk
/// below says, else a sector.
fn block_size_bytes(image: &File) -> u32 {
    let usable =
        |bytes: u32| (bytes.is_power_of_two() && (512..=4096).contains(&bytes)).then_some(bytes);
    let asked = rustix::fs::statx(image, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    if let Ok(statx) = asked
        && let Some(bytes) = usable(statx.stx_dio_offset_align)
    {
        return bytes;
    }
    let disk = rustix::fs::fstat(image).ok().and_then(|stat| {
        BlockDeviceFacts::of_number(rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev))
    });
    disk.and_then(|disk| usable(disk.queue.get("logical_block_size")?.parse().ok()?)).unwrap_or(512)
}

/// A loop device passes a discard on as a hole in its file, and a request for zeros too, unless it
/// takes no discards: then the kernel writes zeros (`lo_fallocate` in drivers/block/loop.c).
fn forbid_discards(index: u32) -> io::Result<()> {
    let path = format!("/sys/block/loop{index}/queue/discard_max_bytes");
    match fs::write(&path, "0") {
        Ok(()) => Ok(()),
        // A file system below that can make no holes leaves nothing to turn off.
        Err(_) if fs::read_to_string(&path).is_ok_and(|text| text.trim() == "0") => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{path}: {error}"))),
    }
}
