//! Attaches the prepared device for one trial, in the trial's own process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use block::loop_status;
use lab::event::DiskMark;
use lab::spec::{Device, DevicePart};
use rustix::fs::{AtFlags, OFlags, StatxFlags};

use super::layer;
use super::loop_node::{self, Backing, RELEASE_WAIT_MAX, Released};
use super::served::{Said, ServedDevice};
use super::{AttachSite, AttachedFacts, BlockDeviceFacts, DeviceError, is_kurabes_guest, kind};
use crate::ledger::{Ledger, Taken};
use crate::lower;
use crate::node::DeviceNode;
use crate::scratch::Occupied;
use crate::sys::loop_device::{self, FLAG_AUTOCLEAR, FLAG_DIRECT_IO};

/// A device that is attached for one trial. Given back when dropped, but only
/// [`Attached::detach`] says how that went.
pub struct Attached {
    node: DeviceNode,
    size_bytes: u64,
    notes: Vec<String>,
    taken: Option<TakenNode>,
    /// What stands below the loop device, where the device has layers.
    served: Option<ServedDevice>,
    disk_below: Option<u64>,
    ground: Option<Box<dyn AttachedFacts>>,
    /// Further devices of the contender's.
    others: Vec<Attached>,
}

/// A private loop device that this process added.
#[derive(Debug)]
struct TakenNode {
    /// Held open so that the file stays attached between the tools that use the device. The
    /// kernel detaches it when this process is gone, however it went.
    device: Option<File>,
    index: u32,
    backing: Backing,
    ledger: Ledger,
    ledger_id: u64,
}

/// Attaches `device`, or the part of it that is named, and the further ones.
///
/// What has a node of its own is given as it is. All else gets a private loop device with direct
/// I/O. Unless `discard`, nothing can make a hole in an image: the loop device takes no discards, and
/// then writes zeros where it is asked for zeros. Holes that an earlier trial was allowed to make are
/// filled first.
/// Errors: [`DeviceError`]; nothing stays attached.
pub fn attach(
    device: &Device,
    discard: bool,
    site: &AttachSite<'_>,
) -> Result<Attached, DeviceError> {
    let mut first = attach_one(device, discard, site, site.scratch.work())?;
    if !device.others.is_empty() && !is_kurabes_guest() {
        return Err(DeviceError::Refused("several devices are attached in a guest only".into()));
    }
    for (number, other) in (2..).zip(&device.others) {
        // Each has a server of its layers.
        let room = site.scratch.work().join(format!("device-{number}"));
        fs::create_dir(&room).map_err(DeviceError::system(format!("making {}", room.display())))?;
        let mut other = attach_one(other, discard, site, &room)?;
        first.notes.append(&mut other.notes);
        first.others.push(other);
    }
    Ok(first)
}

fn attach_one(
    device: &Device,
    discard: bool,
    site: &AttachSite<'_>,
    room: &Path,
) -> Result<Attached, DeviceError> {
    let kind = kind(&device.kind).ok_or_else(|| {
        DeviceError::Refused(format!("this kurabe knows no device of the kind '{}'", device.kind))
    })?;
    let mut ground = (kind.ground)(&device.prepared, site)?;
    let whole_bytes = ground.size_bytes();
    let part = match device.part {
        None => 0..whole_bytes,
        Some(DevicePart { offset_bytes, size_bytes }) => offset_bytes..offset_bytes + size_bytes,
    };
    if part.end > whole_bytes {
        return Err(DeviceError::Refused(format!(
            "{} has {whole_bytes} bytes, and the part to attach ends at {}",
            ground.text(),
            part.end
        )));
    }
    let mut notes = Vec::new();
    notes.extend(ground.freshen(&part, discard, site)?);
    let size_bytes = part.end - part.start;
    // Those of the kernel are set up on what is attached here.
    let is_served = |layer: &&String| !lower::is_one(layer);
    let layers: Vec<String> = device.layers.iter().filter(is_served).cloned().collect();
    if let (Some(node), None, []) = (ground.node(), device.part, &layers[..]) {
        let mut attached = Attached::new(node.clone(), size_bytes, None);
        (attached.notes, attached.ground) = (notes, Some(ground));
        return Ok(attached);
    }
    let text = ground.text().to_string();
    let system = |what: &str| DeviceError::system(format!("{what} {text}"));
    let mut file = ground.file().map_err(system("opening"))?;
    let mut block_size_bytes = block_size_bytes(&file);
    let mut served = None;
    if !layers.is_empty() {
        let mut server =
            ServedDevice::start(file, room).map_err(system("serving the layers on"))?;
        (file, block_size_bytes) =
            server.layers(&layers).map_err(system("serving the layers on"))?;
        served = Some(server);
    }
    let (mut attached, is_direct) =
        attach_file(&file, &part, block_size_bytes, site.scratch, &text)?;
    let turns = layer::rotational(&layers);
    // A hard disk takes none: mkfs would wait until the model has written all of it.
    if !discard || turns == Some(true) {
        attached.forbid_discards(&text)?;
    }
    if ground.is_expendable() {
        attached.leave_flushes_out();
    }
    if let Some(turns) = turns {
        attached.say_turning(turns).map_err(system("saying what turns of"))?;
    }
    let is_cached = ground.is_cached();
    if is_direct && !is_cached && served.is_none() {
        attached.disk_below = attached.taken.as_ref().map(|taken| taken.backing.file_system);
    }
    if !is_direct && !is_cached {
        notes.push(format!(
            "direct I/O is not possible on {text}: the host's page cache takes part in every number"
        ));
    }
    (attached.notes, attached.served, attached.ground) = (notes, served, Some(ground));
    Ok(attached)
}

/// Attaches files, each with its size in bytes, that a process of the trial serves, as they were opened: past the page
/// cache or through it.
/// Errors: [`DeviceError`]; nothing stays attached.
pub fn attach_served(files: &[(File, u64)], scratch: &Occupied) -> Result<Attached, DeviceError> {
    let mut all = Vec::new();
    for (file, size_bytes) in files {
        all.push(attach_served_one(file, *size_bytes, scratch)?);
    }
    let mut first = all.remove(0);
    first.others = all;
    Ok(first)
}

fn attach_served_one(
    file: &File,
    size_bytes: u64,
    scratch: &Occupied,
) -> Result<Attached, DeviceError> {
    let text = "a served disk";
    let system = |what: &str| DeviceError::system(format!("{what} {text}"));
    let (attached, _) = attach_file(file, &(0..size_bytes), 512, scratch, text)?;
    attached.forbid_discards(text)?;
    let flags = rustix::fs::fcntl_getfl(file).map_err(|error| system("opening")(error.into()))?;
    if !flags.contains(OFlags::DIRECT) {
        attached.go_through_pages().map_err(system("keeping pages of"))?;
    }
    Ok(attached)
}

/// Attaches an image file on a file system of the trial's own, as losetup does: past the page cache only if
/// so asked, and with discards.
/// Errors: [`DeviceError`]; nothing stays attached.
pub fn attach_image(
    image: &File,
    size_bytes: u64,
    block_size_bytes: u32,
    direct: bool,
    scratch: &Occupied,
) -> Result<Attached, DeviceError> {
    let text = "the image";
    let (attached, is_direct) =
        attach_file(image, &(0..size_bytes), block_size_bytes, scratch, text)?;
    match (direct, is_direct) {
        (true, false) => Err(DeviceError::Refused(
            "the file system below takes no direct I/O in sectors of this size; leave direct-io=on out, or add sector-size=4096"
                .into(),
        )),
        (true, true) => Ok(attached),
        (false, _) => {
            let through = attached.go_through_pages();
            through.map_err(DeviceError::system("keeping pages of the image"))?;
            Ok(attached)
        }
    }
}

impl Attached {
    fn new(node: DeviceNode, size_bytes: u64, taken: Option<TakenNode>) -> Attached {
        let (notes, served, disk_below, ground) = (Vec::new(), None, None, None);
        let others = Vec::new();
        Attached { node, size_bytes, notes, taken, served, disk_below, ground, others }
    }

    /// Lets what goes to the image be kept in the page cache.
    fn go_through_pages(&self) -> io::Result<()> {
        match &self.taken {
            Some(TakenNode { device: Some(device), .. }) => loop_device::go_through_pages(device),
            _ => Ok(()),
        }
    }

    /// Tells the kernel that the device has no cache of its own, where that can be told.
    fn leave_flushes_out(&self) {
        if let Some(TakenNode { index, .. }) = &self.taken {
            // With flushes it takes longer, and comes to the same.
            let _ = fs::write(format!("/sys/block/loop{index}/queue/write_cache"), "write through");
        }
    }

    /// A loop device passes a discard on as a hole in its file, and a request for zeros too, unless
    /// it takes no discards: then the kernel writes zeros (`lo_fallocate` in drivers/block/loop.c).
    fn forbid_discards(&self, text: &str) -> Result<(), DeviceError> {
        let Some(TakenNode { index, .. }) = &self.taken else { return Ok(()) };
        let path = format!("/sys/block/loop{index}/queue/discard_max_bytes");
        match fs::write(&path, "0") {
            Ok(()) => Ok(()),
            // A file system below that can make no holes leaves nothing to turn off.
            Err(_) if fs::read_to_string(&path).is_ok_and(|text| text.trim() == "0") => Ok(()),
            Err(error) => {
                let error = io::Error::new(error.kind(), format!("{path}: {error}"));
                Err(DeviceError::system(format!("turning discards off for {text}"))(error))
            }
        }
    }

    /// Tells the kernel, and whoever asks it, whether the device turns. mkfs and mount look.
    fn say_turning(&self, turns: bool) -> io::Result<()> {
        let Some(TakenNode { index, .. }) = &self.taken else { return Ok(()) };
        let path = format!("/sys/block/loop{index}/queue/rotational");
        fs::write(&path, if turns { "1" } else { "0" })
    }

    /// The device node that mkfs and mount are given.
    pub fn node(&self) -> &DeviceNode {
        &self.node
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Each of the devices, and its size in bytes.
    pub fn all(&self) -> Vec<(DeviceNode, u64)> {
        let each = std::iter::once(self).chain(&self.others);
        each.map(|one| (one.node.clone(), one.size_bytes)).collect()
    }

    /// The number of the file system on which the image lies, where what the device is asked for
    /// reaches the disk below as it is: without layers and past the host's page cache.
    pub fn disk_below(&self) -> Option<u64> {
        self.disk_below
    }

    /// Puts other bytes in the place of the device's: waits until nobody uses it, calls `change`, and
    /// drops what the kernel still has of the bytes before.
    pub fn change(&self, change: impl FnOnce() -> io::Result<()>) -> Result<(), DeviceError> {
        let each: Vec<&Attached> = std::iter::once(self).chain(&self.others).collect();
        let held: Vec<File> = each.iter().map(|one| one.hold()).collect::<Result<_, _>>()?;
        let drop_buffers = || held.iter().try_for_each(loop_device::drop_buffers);
        drop_buffers()
            .and_then(|()| change())
            .and_then(|()| drop_buffers())
            .map_err(DeviceError::system(format!("changing what lies on {}", self.node.shown())))
    }

    /// Has it exclusively, once nobody uses it.
    fn hold(&self) -> Result<File, DeviceError> {
        let until = Instant::now() + RELEASE_WAIT_MAX;
        loop {
            // What mounts it or keeps it to itself is in the way.
            let path = self.node.path();
            let opened = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path);
            match opened {
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => {
                    let taking = format!("taking {}", self.node.shown());
                    return opened.map_err(DeviceError::system(taking));
                }
            }
        }
    }

    /// Begins, or ends, what modelled disks will say at the end.
    pub fn measure(&mut self, begins: bool) -> Result<(), DeviceError> {
        let asked = self.served.as_mut().map_or(Ok(()), |served| served.measure(begins));
        asked.map_err(DeviceError::system("asking what serves the layers"))?;
        self.others.iter_mut().try_for_each(|other| other.measure(begins))
    }

    /// Keeps every request of the modelled disk from now on.
    pub fn keep_trace(&mut self) -> io::Result<()> {
        self.served.as_mut().map_or(Ok(()), ServedDevice::keep_trace)
    }

    /// The trace that was kept, where a disk is modelled, and how many requests found no room.
    pub fn trace(&mut self) -> io::Result<Option<(File, u64)>> {
        self.served.as_mut().map(ServedDevice::trace).transpose()
    }

    /// Whether what serves the layers has ended before its time, and how.
    pub fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let own = self.served.as_mut().map_or(Ok(None), ServedDevice::has_ended)?;
        let others = self.others.iter_mut().map(Attached::has_ended);
        Ok(own.or(others.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().next()))
    }

    /// From now on, what is found on a real device is the trial's.
    pub fn begin_making(&mut self) {
        if let Some(ground) = &mut self.ground {
            ground.begin_making();
        }
    }

    /// Notes what the trial has made on a real device, and says it for the runner; see [`AttachedFacts`].
    pub fn note_made(&mut self, kind: Option<&str>) -> Result<Vec<DiskMark>, DeviceError> {
        let shown = self.node.shown().to_string();
        let ground = self.ground.as_mut().map(|ground| ground.note_made(kind));
        let system = DeviceError::system(format!("looking at what was made on {shown}"));
        Ok(ground.transpose().map_err(system)?.unwrap_or_default())
    }

    /// Remarks for the record: direct I/O that is not on, holes that were filled.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Gives the device back: detaches the image and removes the loop device, waiting for its
    /// users to go. Says what reached the device below its layers, where it has some.
    /// Errors: somebody still uses it; the error says who, when that can be seen. The runner's
    /// ledger still has it then.
    pub fn detach(mut self) -> Result<Said, DeviceError> {
        self.release()
    }

    fn release(&mut self) -> Result<Said, DeviceError> {
        let mut said = self.release_one();
        for mut other in std::mem::take(&mut self.others) {
            // All are given back, whatever becomes of one.
            said = match (said, other.release()) {
                (Ok(mut said), Ok(more)) => {
                    said.reached.extend(more.reached);
                    said.disks.extend(more.disks);
                    Ok(said)
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        said
    }

    fn release_one(&mut self) -> Result<Said, DeviceError> {
        if let Some(mut taken) = self.taken.take() {
            drop(taken.device.take());
            loop_node::release(taken.index, taken.backing, RELEASE_WAIT_MAX)
                .and_then(|_: Released| taken.ledger.gave_back(taken.ledger_id))
                .map_err(DeviceError::system(format!("giving back {}", self.node.shown())))?;
        }
        self.node.remove();
        let ended = self.served.take().map(ServedDevice::end).transpose();
        let said = ended.map_err(DeviceError::system("ending what served the layers"))?;
        if let Some(mut ground) = self.ground.take() {
            ground.release().map_err(DeviceError::system(format!("wiping {}", ground.text())))?;
        }
        Ok(said.unwrap_or_default())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Whoever wants to know calls `detach`; here the ledger keeps what could not be given.
        let _ = self.release();
    }
}

/// Attempts to find a free number. Each is lost only to somebody else who picked the same.
const ATTEMPTS_MAX: usize = 100;

/// Attaches a part of a file to a private loop device, and says whether transfers between them go past
/// the page cache.
fn attach_file(
    image: &File,
    part: &Range<u64>,
    block_size_bytes: u32,
    scratch: &Occupied,
    image_text: &str,
) -> Result<(Attached, bool), DeviceError> {
    let system = |what: &str| DeviceError::system(format!("{what} {image_text}"));
    let ledger = scratch.ledger().map_err(system("starting the run's ledger for"))?;
    let control = loop_node::open_control()
        .map_err(DeviceError::system("a private loop device cannot be added"))?;
    let backing = Backing::of(image).map_err(system("looking at the image"))?;
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
        let device =
            loop_node::open(index, OFlags::RDWR).map_err(system("opening the loop device of"))?;
        let configure =
            |flags| loop_device::configure(&device, image, part, block_size_bytes, flags);
        let configured = match configure(FLAG_AUTOCLEAR | FLAG_DIRECT_IO) {
            // The kernel refuses direct I/O where the file does not allow it.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => configure(FLAG_AUTOCLEAR),
            result => result,
        };
        let status = configured.and_then(|()| loop_status(device.as_fd()));
        let made = status.and_then(|status| {
            Ok((status, DeviceNode::of(&device, &loop_node::name(index), scratch)?))
        });
        match made {
            Ok((status, node)) => {
                let device = Some(device);
                let taken = TakenNode { device, index, backing, ledger, ledger_id };
                let attached = Attached::new(node, part.end - part.start, Some(taken));
                return Ok((attached, status.flags & FLAG_DIRECT_IO != 0));
            }
            // Somebody who asked for any free loop device was given ours before we could use it.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                ledger.gave_back(ledger_id).map_err(system("writing the ledger for"))?;
            }
            Err(error) => {
                drop(device);
                let _ = loop_node::release(index, backing, RELEASE_WAIT_MAX);
                return Err(system("attaching")(error));
            }
        }
    }
    Err(DeviceError::Refused(format!(
        "no free loop device was found in {ATTEMPTS_MAX} attempts; see 'losetup -a' for who holds them"
    )))
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
