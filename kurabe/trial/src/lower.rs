//! The block layers of the kernel below a file system, such as LUKS and RAID: one descriptor each, one file each.
//!
//! A layer gets a block device and gives another one. The lowest one may get several: its members, or data and cache.
//! To add one, write its file and add a line to [`ALL`]. Most are set up in guests only, whose disks are the trial's:
//! nothing of anybody else's can be found, assembled or stopped there. Invariants: what was set up is taken down before
//! the disks are given back, however far it came; keys are in memory only.

mod bcache;
mod image;
mod integrity;
mod luks;
mod lvm;
mod members;
mod on_stack;
mod raid;
mod room;
mod writecache;

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use guest::Supplies;
use lab::contender::{Contender, Layer};
use lab::quantity::size_text;
use rustix::fs::{MemfdFlags, memfd_create};
use vocabulary::suggestion::did_you_mean;
use workloads::counters::DeviceCounters;

use crate::device::fill::wipe_signatures;
use crate::device::{Attached, is_kurabes_guest, layer};
use crate::filesystem::kernel::drop_pages_of;
use crate::filesystem::{self, FileSystem, Instance, LayerTool, missing_of};
use crate::node::DeviceNode;
use crate::scratch::Occupied;
use crate::tool::{StepFailure, Toolbox, failed};
use crate::upper;

pub use on_stack::OnStack;
pub use room::room;

/// What a block layer is and needs.
pub struct Lower {
    /// The name in the notation of a contender.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// The tools that a trial runs.
    pub tools: &'static [LayerTool],
    /// Modules that a guest gets where its kernel has them; without the first one the layer cannot be set up.
    pub modules: &'static [&'static str],
    /// What it is made of.
    made_of: MadeOf,
    /// The options of its tool that it takes, without dashes; those that end in `=` have a value.
    options: &'static [&'static str],
    /// Whether what is written to it must not be found on the device below.
    encrypts: bool,
    /// Whether bytes of the device below appear on it, signatures of earlier runs among them.
    shows_old_bytes: bool,
    /// Whether it can be opened without one of its members: any one of several, of data and cache the cache.
    spares_one: bool,
    /// Whether it can be set up on a machine that is no guest: what it takes is in the ledger.
    works_here: bool,
    /// Whether it lies on a file of a file system, which it makes and mounts on the device below.
    on_file: bool,
    /// How much of so many bytes it leaves at most to what lies on it.
    leaves: fn(&Layer, u64) -> u64,
    /// Makes it and opens it; gives the path of its device.
    make: fn(&LowerLocation, &mut Toolbox) -> Result<PathBuf, StepFailure>,
    /// Opens it after a power failure, as an administrator would; gives the path of its device.
    open: fn(&LowerLocation, &mut Toolbox) -> Result<PathBuf, StepFailure>,
    /// Whether it still makes its members equal.
    is_syncing: fn(&LowerLocation) -> bool,
    describe: fn(&LowerLocation) -> Vec<String>,
    /// The commands that take it down, in their order.
    close: fn(&LowerLocation) -> Vec<Vec<String>>,
}

/// What a layer is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MadeOf {
    /// One device.
    One,
    /// As many members as the number behind its name says, so many at least.
    Members(u32),
    /// A device and its cache.
    DataAndCache,
}

/// Where a layer lies.
pub struct LowerLocation {
    /// The device below it, of several the first.
    node: DeviceNode,
    /// All devices below it, where each is a member; empty where the one device is all there is.
    devices: Vec<(DeviceNode, u64)>,
    /// Size in bytes of the device below it.
    size_bytes: u64,
    /// A name of its own.
    name: String,
    /// Its number among the layers, from the lowest one.
    index: usize,
    layer: Layer,
    /// The key, in memory, for a layer that encrypts.
    key: File,
    /// The number of a member that is gone.
    lost: Option<u32>,
    /// The directory of the file system that carries it.
    directory: Option<PathBuf>,
    /// Its loop device, where it is one.
    attached: RefCell<Option<Attached>>,
    scratch: Arc<Occupied>,
}

impl LowerLocation {
    fn node_text(&self) -> String {
        self.node.path().display().to_string()
    }

    /// The kernel's own node of a device, which LVM looks for below /dev only.
    fn dev_text(node: &DeviceNode) -> String {
        let name = node.path().file_name().unwrap_or_default();
        format!("/dev/{}", name.to_string_lossy())
    }

    /// By what device-mapper's tools find it.
    fn mapped(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.name)
    }

    fn members(&self) -> u32 {
        self.layer.argument.as_deref().and_then(|text| text.parse().ok()).unwrap_or(1)
    }

    /// The contender's own options for the layer's tool, of those that have these names.
    fn options<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = String> + 'a {
        let own = self.layer.options.iter().map(|word| word.strip_prefix("--").unwrap_or(word));
        own.filter(|word| names.contains(&option_of(word))).map(|word| format!("--{word}"))
    }

    /// A path by which a child reads the key.
    fn key_path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.key.as_raw_fd())
    }
}

fn option_of(word: &str) -> &str {
    word.find('=').map_or(word, |at| &word[..=at])
}

static ALL: &[&Lower] = &[
    &luks::LUKS,
    &raid::RAID0,
    &raid::RAID1,
    &raid::RAID5,
    &raid::RAID6,
    &raid::RAID10,
    &lvm::LVM,
    &lvm::STRIPE,
    &lvm::THIN,
    &integrity::INTEGRITY,
    &writecache::WRITECACHE,
    &bcache::BCACHE,
    &image::LOOP,
];

/// Members that a layer has, at most.
const MEMBERS_MAX: u32 = 64;

/// Every block layer of the kernel, in the order of the help.
pub fn all() -> &'static [&'static Lower] {
    ALL
}

pub fn by_name(name: &str) -> Option<&'static Lower> {
    all().iter().copied().find(|lower| lower.name == name)
}

/// Those of a contender, the uppermost first.
pub fn of(contender: &Contender) -> impl Iterator<Item = &'static Lower> {
    contender.below().iter().filter_map(|layer| by_name(&layer.name))
}

/// The file systems that carry some of them, the uppermost first.
pub fn hosts(contender: &Contender) -> impl Iterator<Item = &'static FileSystem> {
    contender.below().iter().filter_map(|layer| filesystem::by_name(&layer.name))
}

/// Which file system of a contender behaves differently on so few bytes, if one does: its own on what is
/// `top_bytes` large, or one that carries its layers on a device of `device_bytes`.
pub fn too_small(contender: &Contender, device_bytes: u64, top_bytes: u64) -> Option<String> {
    let own = filesystem::by_name(contender.file_system()).filter(|one| one.needs_device);
    let hosts = hosts(contender).map(|host| (host, device_bytes));
    let mut all = own.map(|own| (own, top_bytes)).into_iter().chain(hosts);
    let (small, bytes) = all.find(|(one, bytes)| *bytes < one.size_bytes_ordinary)?;
    let [least, bytes] = [small.size_bytes_ordinary, bytes].map(size_text);
    Some(format!("{} behaves differently on less than {least}, and has {bytes}", small.name))
}

/// The tools of a contender's block layers.
pub fn tools(contender: &Contender) -> impl Iterator<Item = &'static LayerTool> {
    of(contender).flat_map(|lower| lower.tools).chain(hosts(contender).flat_map(|one| one.tools))
}

/// Whether a layer of a device, as it is written, is one of these or carries one.
pub fn is_one(text: &str) -> bool {
    let name = text.split([' ', ':']).next().unwrap_or(text);
    by_name(name).is_some() || filesystem::by_name(name).is_some()
}

/// Whether none of the layers below a contender are kurabe's own.
pub fn are_all(contender: &Contender) -> bool {
    contender.below_texts().iter().all(|text| is_one(text))
}

/// What guests are supplied with for all file systems and block layers.
pub fn supplies() -> Supplies {
    let mut supplies = filesystem::supplies();
    supplies.modules.extend(all().iter().flat_map(|lower| lower.modules));
    supplies.modules.extend(upper::all().iter().flat_map(|upper| upper.modules()));
    supplies.modules.sort_unstable();
    supplies.modules.dedup();
    supplies
}

/// What this machine lacks for the block layers of a contender, a line each with the next step.
pub fn missing(contender: &Contender) -> Vec<String> {
    let in_guest = contender.environment.guest().is_some();
    let here = of(contender).filter(|_| !in_guest).filter_map(|lower| lower.only_in_guests());
    let missing_of_host = if in_guest { filesystem::missing_tools } else { filesystem::missing };
    let of_hosts = hosts(contender).flat_map(missing_of_host);
    here.chain(of(contender).flat_map(lacks)).chain(of_hosts).collect()
}

/// The tools that a layer lacks here: a guest reads them from this machine.
pub fn lacks(lower: &Lower) -> Vec<String> {
    missing_of(lower.tools)
}

impl Lower {
    /// Why it cannot be set up on a machine that is no guest; absent where it can.
    pub fn only_in_guests(&self) -> Option<String> {
        (!self.works_here).then(|| format!(
            "'{}' is set up in a guest only, where nothing but kurabe's own disk can be touched: --on debian",
            self.name
        ))
    }

    pub fn notation(&self) -> String {
        match self.made_of {
            MadeOf::Members(_) => format!("{}:N", self.name),
            MadeOf::One | MadeOf::DataAndCache => self.name.into(),
        }
    }

    fn make_new(&self, place: &LowerLocation, tools: &mut Toolbox) -> Result<PathBuf, StepFailure> {
        let path = (self.make)(place, tools)?;
        if self.shows_old_bytes {
            wipe(&path)?;
        }
        if place.devices.is_empty() {
            note_of(&place.layer).into_iter().for_each(|note| tools.note(note));
        }
        note_of_cache(&place.layer).into_iter().for_each(|note| tools.note(note));
        Ok(path)
    }

    fn check(&self, layer: &Layer) -> Result<(), String> {
        if let MadeOf::Members(least) = self.made_of {
            let number = layer.argument.as_deref().unwrap_or_default();
            let fits = |number: u32| (least..=MEMBERS_MAX).contains(&number);
            if !number.parse().is_ok_and(fits) {
                return Err(format!(
                    "'{layer}': {} has {least} to {MEMBERS_MAX} members; write {}:{least}",
                    self.name, self.name
                ));
            }
        } else if layer.argument.is_some() {
            return Err(format!("'{layer}': {} takes nothing after a colon", self.name));
        }
        if !layer.mount_options.is_empty() {
            return Err(format!("'{layer}': {} is not mounted; leave '@' out", self.name));
        }
        for word in &layer.options {
            let bare = word.strip_prefix("--").unwrap_or(word);
            if bare == "consistency-policy=journal" {
                return Err(format!(
                    "'{word}': a journal needs a device of its own, which kurabe gives no array; raid5 takes consistency-policy=ppl, which needs none"
                ));
            }
            let value = &bare[option_of(bare).len()..];
            let is_plain =
                |letter: char| letter.is_ascii_alphanumeric() || "-_.:()".contains(letter);
            if !self.options.contains(&option_of(bare)) || !value.chars().all(is_plain) {
                let options = self.options.join(", ");
                let options = if options.is_empty() { "no options".into() } else { options };
                return Err(format!("'{word}': {} takes {options}", self.name));
            }
        }
        Ok(())
    }
}

/// Refuses layers below the file system that there are not, or that cannot be there.
pub fn check(contender: &Contender) -> Result<(), String> {
    if let Some(layer) = contender.above().iter().find(|layer| by_name(&layer.name).is_some()) {
        let base = contender.file_system();
        return Err(if by_name(&layer.name).is_some_and(|lower| lower.on_file) {
            format!("'{layer}' is a block device; write ext4 over {layer} over {base}")
        } else {
            format!(
                "'{}' is a block device; write {base} over {layer}, or ext4 over {layer} over loop over {base}",
                layer.name
            )
        });
    }
    let mut own: Option<&Layer> = None;
    let mut upper_one = contender.base();
    for layer in contender.below() {
        let above = std::mem::replace(&mut upper_one, layer);
        let on_file = by_name(&above.name).is_some_and(|lower| lower.on_file);
        if let Some(host) = filesystem::by_name(&layer.name) {
            check_host(host, layer, above, on_file)?;
        } else if on_file {
            return Err(format!(
                "'{above}' lies on a file, and '{layer}' has no files; write {above} over ext4 over {layer}"
            ));
        } else if let Some(lower) = by_name(&layer.name) {
            lower.check(layer)?;
            if let Some(own) = own {
                return Err(format!(
                    "'{}' is below '{own}', and layers of kurabe's own lie directly on the device; write over {} over {own}",
                    layer.name, layer.name
                ));
            }
            if contender.aged.is_some() {
                return Err(format!(
                    "an aged file system is restored onto the device itself; leave 'aged' or 'over {}' out",
                    layer.name
                ));
            }
        } else if upper::by_name(&layer.name).is_some() {
            let (name, base) = (&layer.name, contender.file_system());
            return Err(format!(
                "'{name}' lies over the directory of a file system; write {name} over {base}"
            ));
        } else {
            let read = layer::read(&layer.to_string()).map(drop);
            read.map_err(|problem| {
                let names: Vec<&str> = all().iter().map(|lower| lower.name).collect();
                let meant = did_you_mean(&layer.name, &names);
                meant.map_or(problem.clone(), |meant| format!("{problem}; {meant}"))
            })?;
            own = Some(layer);
        }
    }
    if by_name(&upper_one.name).is_some_and(|lower| lower.on_file) {
        return Err(format!(
            "'{upper_one}' is a file on a file system; say on which, as in {upper_one} over xfs"
        ));
    }
    Ok(())
}

/// Refuses several devices for a contender that cannot have them, or another number of them.
pub fn check_devices(contender: &Contender, devices: usize) -> Result<(), String> {
    if devices < 2 {
        return Ok(());
    }
    if contender.environment.guest().is_none() || contender.environment.nodes() > 1 {
        return Err(
            "several devices are for contenders that run in one guest each: --on debian".into()
        );
    }
    let lowest = LowerStack::layers_of(contender).into_iter().next();
    match lowest.as_ref().and_then(|layer| Some((layer, count_of(layer)?))) {
        Some((layer, count)) if count as usize != devices => Err(format!(
            "'{layer}' needs {count} devices, or one to divide; --device names {devices}"
        )),
        _ => Ok(()),
    }
}

/// Refuses a file system that cannot be below another layer.
fn check_host(
    host: &'static FileSystem,
    layer: &Layer,
    above: &Layer,
    on_file: bool,
) -> Result<(), String> {
    if !on_file {
        return Err(format!(
            "'{above}' needs a device, and '{}' has files; write {above} over loop over {layer}",
            layer.name
        ));
    }
    if !host.can_carry_images() {
        let can = filesystem::all().iter().filter(|one| one.can_carry_images());
        let names: Vec<&str> = can.map(|one| one.name).collect();
        return Err(format!("'{layer}' carries no image; these do: {}", names.join(", ")));
    }
    host.known().check_options(&image::contender_of(layer))
}

/// The block layers of one trial.
pub struct LowerStack {
    layers: Vec<Layer>,
    /// What carries each of them, where that is a file system.
    hosts: Vec<Option<Layer>>,
    /// The devices that the lowest one lies on; another one lies on the first.
    devices: Vec<(DeviceNode, u64)>,
    scratch: Arc<Occupied>,
    opened: Vec<Opened>,
    keys: Keys,
    /// The number of a member that the lowest layer which can do without has lost.
    lost: Option<u32>,
}

/// What keys are, which no file has.
#[derive(Clone, Copy)]
enum Keys {
    /// New ones each time.
    New,
    /// The same ones each time, so that a disk that a power failure left can be opened again by `--replay`.
    Same,
}

/// A layer that was begun.
struct Opened {
    /// Its device, once there is one; held open, so that its number stays its own.
    top: Option<Top>,
    lower: &'static Lower,
    place: LowerLocation,
    /// The file system that carries it, and what that said of itself when it was made.
    host: Option<(Box<dyn Instance>, String)>,
}

struct Top {
    _device: File,
    node: DeviceNode,
    size_bytes: u64,
}

/// How often a layer that makes its members equal is asked whether it still does.
const SYNC_INTERVAL: Duration = Duration::from_millis(50);

impl LowerStack {
    /// Those of a contender, on devices of so many bytes. Touches nothing yet.
    pub fn new(
        contender: &Contender,
        devices: Vec<(DeviceNode, u64)>,
        scratch: &Arc<Occupied>,
    ) -> LowerStack {
        let layers = LowerStack::layers_of(contender);
        let hosts = image::hosts_of(contender);
        let (scratch, opened) = (scratch.clone(), Vec::new());
        LowerStack { layers, hosts, devices, scratch, opened, keys: Keys::New, lost: None }
    }

    /// The same, to be opened again after power failures, and without a member of this number.
    pub fn of_power_cuts(self, lost: Option<u32>) -> LowerStack {
        LowerStack { keys: Keys::Same, lost, ..self }
    }

    /// Those of a contender, from the lowest one.
    fn layers_of(contender: &Contender) -> Vec<Layer> {
        let layers = contender.below().iter().filter(|layer| by_name(&layer.name).is_some());
        layers.rev().cloned().collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Of several devices, what nobody uses, in words.
    pub fn unused(&self) -> Option<String> {
        let takes_all = self.layers.first().and_then(count_of).is_some();
        (self.devices.len() > 1 && !takes_all)
            .then(|| format!("it lies on the first of {} devices alone", self.devices.len()))
    }

    /// The uppermost device, and its size in bytes.
    pub fn top(&self) -> Option<(&DeviceNode, u64)> {
        let opened = self.opened.last().and_then(|opened| opened.top.as_ref());
        match opened {
            Some(top) => Some((&top.node, top.size_bytes)),
            None => self.devices.first().map(|(node, size_bytes)| (node, *size_bytes)),
        }
    }

    /// Whether all of them are made.
    pub fn is_whole(&self) -> bool {
        self.opened.len() == self.layers.len()
    }

    /// Makes the next one, from the lowest one.
    pub fn make_next(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.add_next(tools, true)
    }

    /// Opens all of them after a power failure.
    pub fn open_all(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        while !self.is_whole() {
            self.add_next(tools, false)?;
        }
        Ok(())
    }

    /// Makes the next one, or opens it.
    fn add_next(&mut self, tools: &mut Toolbox, is_new: bool) -> Result<(), StepFailure> {
        let index = self.opened.len();
        let layer = self.layers[index].clone();
        let lower = by_name(&layer.name).expect("others were left out");
        if !lower.works_here && !is_kurabes_guest() {
            return Err(StepFailure::of(format!("{layer}: this is no guest of kurabe's")));
        }
        let (node, size_bytes) = self.top().expect("a layer has a device");
        let (node, name) = (node.clone(), format!("kurabe{index}"));
        let takes_all = index == 0 && self.devices.len() > 1 && self.unused().is_none();
        let devices = if takes_all { self.devices.clone() } else { Vec::new() };
        let key = new_key(self.keys)?;
        let lost = self.lost.filter(|_| Some(index) == losing(&self.layers));
        let host = self.hosts[index]
            .as_ref()
            .map(|host| image::begin_host(host, &node, size_bytes, index, &self.scratch));
        let host = host.transpose()?.map(|host| (host, String::new()));
        let (directory, attached, scratch) = (None, RefCell::default(), self.scratch.clone());
        let place = LowerLocation {
            node,
            devices,
            size_bytes,
            name,
            index,
            layer,
            key,
            lost,
            directory,
            attached,
            scratch,
        };
        self.opened.push(Opened { top: None, lower, place, host });
        let Opened { top, place, host, .. } = self.opened.last_mut().expect("it was just added");
        if let Some((host, geometry)) = host {
            if is_new {
                host.make(tools)?;
                *geometry = host.geometry(tools)?;
                host.mount(tools)?;
            } else {
                host.mount_untimed(tools)?;
            }
            place.directory = Some(host.directory());
        }
        let path = if is_new { lower.make_new(place, tools) } else { (lower.open)(place, tools) }?;
        let opening =
            |error: std::io::Error| StepFailure::of(format!("opening {}: {error}", path.display()));
        let mut device = File::open(&path).map_err(opening)?;
        let size_bytes = device.seek(SeekFrom::End(0)).map_err(opening)?;
        let own_node = place.attached.borrow().as_ref().map(|attached| attached.node().clone());
        let node = own_node.map_or_else(|| DeviceNode::of(&device, &path, &self.scratch), Ok);
        let node = node.map_err(opening)?;
        tools.show(&node);
        *top = Some(Top { _device: device, node, size_bytes });
        Ok(())
    }

    /// What of the device a byte lies in, in words.
    fn place_of(&self, byte: u64) -> String {
        let lowest = &self.layers[0];
        let sizes = match &self.devices[..] {
            [(_, size_bytes)] => members::parts(lowest, *size_bytes),
            each => count_of(lowest).map(|_| each.iter().map(|(_, bytes)| *bytes).collect()),
        };
        let (sizes, mut end) = (sizes.unwrap_or_default(), 0);
        let found = (0..).zip(sizes).find(|(_, size_bytes)| {
            end += size_bytes;
            byte < end
        });
        found.map_or("the device".into(), |(number, _)| member_text(lowest, number))
    }

    /// Whether one of them has members to be made equal.
    pub fn is_syncing(&self) -> bool {
        self.opened.iter().any(|opened| (opened.lower.is_syncing)(&opened.place))
    }

    /// Waits until the members of all are equal.
    pub fn wait_synced(&self, tools: &Toolbox) -> Result<(), StepFailure> {
        while self.is_syncing() {
            tools.pause(SYNC_INTERVAL)?;
        }
        Ok(())
    }

    /// Fails where what is written to a layer that encrypts can be read on the device below it.
    pub fn verify(&self) -> Result<(), StepFailure> {
        for opened in self.opened.iter().filter(|opened| opened.lower.encrypts) {
            if let Some(top) = &opened.top {
                verify_encrypted(&opened.place, &top.node)?;
            }
        }
        Ok(())
    }

    /// The counters of each, from the uppermost one.
    pub fn counters(&self) -> Vec<(String, DeviceCounters)> {
        let counted = self.opened.iter().rev().filter_map(|opened| {
            let counters = DeviceCounters::of_node(opened.top.as_ref()?.node.path()).ok()?;
            Some((opened.place.layer.to_string(), counters))
        });
        counted.collect()
    }

    /// What they say of themselves.
    pub fn describe(&self, tools: &Toolbox) -> String {
        let describe = |opened: &Opened| {
            let said =
                tools.look(&(opened.lower.describe)(&opened.place), "a layer is not described");
            let said = said.unwrap_or_else(|error| error.to_string());
            let host = opened.host.as_ref().map_or("", |(_, geometry)| geometry);
            format!("{}\n{said}\n{host}", opened.place.layer)
        };
        self.opened.iter().rev().map(describe).collect()
    }

    /// Takes them down, from the uppermost one.
    pub fn end(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        while let Some(Opened { top, lower, place, host }) = self.opened.pop() {
            // What did not come to be may have nothing to take down.
            let is_whole = top.is_some();
            drop(top);
            for words in (lower.close)(&place) {
                let output = tools.run(&words)?;
                if output.code != 0 && is_whole {
                    return Err(output.failure(&format!("taking {} down", place.layer)));
                }
            }
            if let Some(attached) = place.attached.take() {
                attached.detach().map_err(|error| StepFailure::of(error.to_string()))?;
            }
            if let Some((mut host, _)) = host {
                host.end(tools)?;
            }
        }
        Ok(())
    }
}

/// The number of members of a layer that has any.
fn members_of(layer: &Layer) -> Option<u32> {
    match by_name(&layer.name)?.made_of {
        MadeOf::Members(_) => layer.argument.as_deref()?.parse().ok().filter(|count| *count > 0),
        MadeOf::One | MadeOf::DataAndCache => None,
    }
}

/// What is to be said of a layer whose members are parts of one device.
fn note_of(layer: &Layer) -> Option<String> {
    let members = members_of(layer)?;
    Some(format!(
        "{layer}: one device is divided into {members} members, so bytes, flushes and CPU time can be compared, and the speed of members side by side cannot"
    ))
}

/// What is to be said of a layer that holds back what is written to it.
fn note_of_cache(layer: &Layer) -> Option<String> {
    const WRITEBACK: &str = "writeback";
    let is_held = |word: &String| word.trim_start_matches('-') == WRITEBACK;
    let always = !by_name(&layer.name)?.options.contains(&WRITEBACK);
    let holds = has_cache(layer) && (always || layer.options.iter().any(is_held));
    holds.then(|| format!(
        "{layer}: what its cache holds at the end of a run is not written to the device behind it, so those bytes are not counted"
    ))
}

/// The same of a contender's lowest layer.
pub fn note_of_parts(contender: &Contender) -> Option<String> {
    note_of(LowerStack::layers_of(contender).first()?)
}

/// The sizes in bytes of the parts into which a contender's only device is divided for its lowest layer; absent
/// where that needs one device.
pub fn parts(contender: &Contender, size_bytes: u64) -> Option<Vec<u64>> {
    members::parts(LowerStack::layers_of(contender).first()?, size_bytes)
}

/// The number of devices that a layer can be made of, where it can be of several.
fn count_of(layer: &Layer) -> Option<u32> {
    match by_name(&layer.name)?.made_of {
        MadeOf::DataAndCache => Some(2),
        MadeOf::Members(_) | MadeOf::One => members_of(layer),
    }
}

/// The place, among layers from the lowest one, of the one that can lose a member.
fn losing(layers: &[Layer]) -> Option<usize> {
    layers.iter().position(|layer| by_name(&layer.name).is_some_and(|lower| lower.spares_one))
}

/// The layer of a contender that can lose a member, and the numbers of those that it can lose, from 0.
pub fn can_lose(contender: &Contender) -> Option<(Layer, Range<u32>)> {
    let layers: Vec<Layer> = LowerStack::layers_of(contender);
    let layer = layers[losing(&layers)?].clone();
    let members = u32::from(has_cache(&layer))..count_of(&layer)?;
    Some((layer, members))
}

fn has_cache(layer: &Layer) -> bool {
    by_name(&layer.name).is_some_and(|lower| lower.made_of == MadeOf::DataAndCache)
}

/// What a member of a layer is called, by its number from 0.
pub fn member_text(layer: &Layer, number: u32) -> String {
    match (has_cache(layer), number) {
        (true, 0) => format!("the cached device of {}", layer.name),
        (true, _) => format!("the cache of {}", layer.name),
        (false, _) => format!("member {} of {}", number + 1, layer.name),
    }
}

/// Overwrites the places of a device where tools would find something of an earlier run.
fn wipe(path: &Path) -> Result<(), StepFailure> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
    let wiped = opened.and_then(|mut device| {
        let size_bytes = device.seek(SeekFrom::End(0))?;
        wipe_signatures(&device, &(0..size_bytes))
    });
    wiped.map_err(failed(format_args!("wiping signatures of {}", path.display())))
}

/// A key, which no file has.
fn new_key(keys: Keys) -> Result<File, StepFailure> {
    let failed = |error: std::io::Error| StepFailure::of(format!("making a key: {error}"));
    let memory = memfd_create("key", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let mut key = File::from(memory);
    let bytes: [u8; 32] = match keys {
        Keys::New => rand::random(),
        Keys::Same => [7; 32],
    };
    key.write_all(&bytes).map_err(failed)?;
    Ok(key)
}

/// What is looked for on the device below.
const PLAIN_TEXT: &[u8; 32] = b"kurabe's plain text to be hidden";

/// How much of the device below is searched: its header and the first of its data.
const SEARCHED_BYTES: u64 = 32 << 20;

/// Writes a plain text to the beginning of a layer, and looks for it on the device below.
fn verify_encrypted(place: &LowerLocation, top: &DeviceNode) -> Result<(), StepFailure> {
    let failed = |error: std::io::Error| {
        StepFailure::of(format!("verifying that {} encrypts: {error}", place.layer))
    };
    let written = PLAIN_TEXT.repeat(4096 / PLAIN_TEXT.len());
    let mut device = OpenOptions::new().write(true).open(top.path()).map_err(failed)?;
    device.write_all(&written).and_then(|()| device.sync_all()).map_err(failed)?;
    drop(device);
    drop_pages_of(top)?;
    drop_pages_of(&place.node)?;
    let read = |node: &DeviceNode, bytes: u64| {
        let mut found = Vec::new();
        File::open(node.path())?.take(bytes).read_to_end(&mut found).map(|_| found)
    };
    if read(top, written.len() as u64).map_err(failed)? != written {
        return Err(StepFailure::of(format!(
            "{} gave back other bytes than were written",
            place.layer
        )));
    }
    let below = read(&place.node, SEARCHED_BYTES).map_err(failed)?;
    drop_pages_of(&place.node)?;
    match position_of(PLAIN_TEXT, &below) {
        None => Ok(()),
        Some(at) => Err(StepFailure::of(format!(
            "{} does not encrypt: what was written to it is at byte {at} of the device below",
            place.layer
        ))),
    }
}

/// A block device moves whole sectors, so a text from the beginning of one is at the beginning of one.
fn position_of(text: &[u8], bytes: &[u8]) -> Option<usize> {
    bytes.chunks(512).position(|sector| sector.starts_with(text)).map(|sector| sector * 512)
}

/// Strings out of words.
fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
