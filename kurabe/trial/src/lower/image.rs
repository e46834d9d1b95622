//! A loop device: an image file on another file system. That file system is a layer of the contender too; it is
//! made, mounted and unmounted here. Nothing but the trial's own mount is written to, so this works on any machine.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use lab::contender::{Contender, Layer};
use rustix::fs::FallocateFlags;

use super::{Lower, LowerLocation, MadeOf, by_name, words};
use crate::device::attach::attach_image;
use crate::device::free_bytes;
use crate::filesystem::{self, Instance, InstanceContext};
use crate::node::DeviceNode;
use crate::scratch::Occupied;
use crate::tool::{StepFailure, failed};

pub static LOOP: Lower = Lower {
    name: "loop",
    summary: "an image file on the file system that is named next (ext4 over loop over xfs)",
    tools: &[],
    modules: &["loop"],
    made_of: MadeOf::One,
    options: &["direct-io=", "sector-size="],
    encrypts: false,
    shows_old_bytes: false,
    spares_one: false,
    works_here: true,
    on_file: true,
    leaves: |_, bytes| bytes / 100 * IMAGE_PERCENT,
    make: |place, tools| {
        let path = path(place)?;
        let failed = |error: io::Error| {
            StepFailure::of(format!("making an image for {}: {error}", place.layer))
        };
        let directory = path.parent().expect("it lies in a directory");
        let directory = File::open(directory).map_err(failed)?;
        let free = free_bytes(&directory).map_err(failed)?;
        let size_bytes = free / 100 * IMAGE_PERCENT / MIB * MIB;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let image = options.open(&path).map_err(failed)?;
        match rustix::fs::fallocate(&image, FallocateFlags::empty(), 0, size_bytes) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => {
                image.set_len(size_bytes).map_err(failed)?;
                tools.note(format!(
                    "{}: the file system below cannot allocate a file before it is written, so the image is sparse",
                    place.layer
                ));
            }
            Err(error) => return Err(failed(error.into())),
        }
        // With its name, which a power failure is not to take.
        rustix::fs::syncfs(&image).map_err(|error| failed(error.into()))?;
        attach(place, image, size_bytes)
    },
    open: |place, _| {
        let path = path(place)?;
        let failed = |error: io::Error| {
            StepFailure::of(format!("opening the image of {}: {error}", place.layer))
        };
        let image = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let size_bytes = image.metadata().map_err(failed)?.len();
        attach(place, image, size_bytes)
    },
    is_syncing: |_| false,
    describe: |place| {
        let attached = place.attached.borrow();
        let name = attached.as_ref().and_then(|one| one.node().path().file_name());
        let name = name.map(|name| name.to_string_lossy()).unwrap_or_default();
        let of = |file: &str| format!("/sys/block/{name}/{file}");
        let files = ["loop/backing_file", "loop/dio", "size", "queue/logical_block_size"];
        words(&["grep", "-H", ""]).into_iter().chain(files.map(of)).collect()
    },
    close: |_| Vec::new(),
};

/// How much of the free space the image takes. The file system needs some for its own maps of it.
const IMAGE_PERCENT: u64 = 90;

const MIB: u64 = 1 << 20;

fn path(place: &LowerLocation) -> Result<PathBuf, StepFailure> {
    let directory = place.directory.as_ref();
    let none = || StepFailure::of(format!("{} has no file system below it", place.layer));
    Ok(directory.ok_or_else(none)?.join("image"))
}

/// What follows an option's `=`, where the contender has the option.
fn value(place: &LowerLocation, name: &str) -> Option<String> {
    let option = place.options(&[name]).last()?;
    option.split_once('=').map(|(_, value)| value.to_string())
}

fn attach(place: &LowerLocation, image: File, size_bytes: u64) -> Result<PathBuf, StepFailure> {
    let LowerLocation { layer, scratch, .. } = place;
    let is_direct = match value(place, "direct-io=").as_deref() {
        None | Some("off") => false,
        Some("on") => true,
        Some(other) => {
            return Err(StepFailure::of(format!(
                "{layer}: direct-io={other}: write direct-io=on or off"
            )));
        }
    };
    let sector_bytes = match value(place, "sector-size=") {
        None => SECTOR_BYTES,
        Some(text) => text.parse().map_err(|_| {
            StepFailure::of(format!("{layer}: sector-size={text}: write sector-size=512 to 4096"))
        })?,
    };
    let attached = attach_image(&image, size_bytes, sector_bytes, is_direct, scratch)
        .map_err(failed(layer))?;
    let path = attached.node().path().to_path_buf();
    place.attached.replace(Some(attached));
    Ok(path)
}

/// A loop device's sectors unless the contender says otherwise, as with losetup.
const SECTOR_BYTES: u32 = 512;

/// A file system that carries an image, as a contender of its own.
pub(super) fn contender_of(layer: &Layer) -> Contender {
    Contender { layers: vec![layer.clone()], ..Contender::default() }
}

/// What carries each block layer of a contender, from the lowest one.
pub(super) fn hosts_of(contender: &Contender) -> Vec<Option<Layer>> {
    let below = contender.below();
    let lowers = (0..below.len()).rev().filter(|at| by_name(&below[*at].name).is_some());
    let on_file = |at: usize| by_name(&below[at].name).is_some_and(|lower| lower.on_file);
    lowers.map(|at| below.get(at + 1).filter(|_| on_file(at)).cloned()).collect()
}

/// The file system that carries a layer, not yet made.
pub(super) fn begin_host(
    layer: &Layer,
    node: &DeviceNode,
    size_bytes: u64,
    index: usize,
    scratch: &Arc<Occupied>,
) -> Result<Box<dyn Instance>, StepFailure> {
    let file_system = filesystem::of(&contender_of(layer)).map_err(StepFailure::of)?;
    scratch.make_below().map_err(failed("making a place for what is below"))?;
    let stage = InstanceContext::new(&contender_of(layer), Some(node), size_bytes, false, scratch);
    Ok(file_system.begin(InstanceContext { carries: Some(index), made_at_once: true, ..stage }))
}
