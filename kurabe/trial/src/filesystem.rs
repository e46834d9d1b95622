//! The file systems: one descriptor each, one file each.
//!
//! A descriptor says what a file system is and what it needs; [`FileSystem::begin`] gives an
//! [`Instance`] that makes, mounts, syncs, unmounts and checks it for one trial. To add one, write
//! its file and add a line to [`all`]. Nothing here knows phases, clocks or records: the trial
//! calls the hooks in their order and measures around them.

mod bcachefs;
mod btrfs;
mod directory;
mod ext;
mod f2fs;
mod fat;
mod gfs2;
mod jfs;
pub(crate) mod kernel;
mod minfs;
mod nilfs2;
mod ntfs3;
mod ocfs2;
mod raw;
mod reiserfs;
mod tmpfs;
mod udf;
mod ufs;
mod xfs;
mod zfs;

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use guest::{Recipe, Supplies};
use lab::contender::{Contender, Known, Layer};
use lab::spec::NodeSpec;

use crate::device::DeviceNode;
use crate::facts::tool_version;
use crate::host_proc::HostProc;
use crate::leftovers::running;
use crate::locks::LockCalls;
use crate::scratch::Occupied;
use crate::tool::{StepFailure, Toolbox, find, not_found};
use crate::user::User;
use kernel::KernelFileSystem;
pub use kernel::Leaving;
use vocabulary::layout::FreeExtents;

/// A tool that a file system needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerTool {
    /// Its name, as it is run.
    pub name: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
    /// The argument that makes it print its version; absent for one that prints none, whose
    /// package's counts.
    pub version: Option<&'static str>,
}

impl LayerTool {
    pub(crate) const fn new(
        name: &'static str,
        package: &'static str,
        version: &'static str,
    ) -> LayerTool {
        LayerTool { name, package, version: Some(version) }
    }

    /// What the tool says of its version, or else the version of its Debian package; absent when
    /// the tool is not installed or says nothing.
    pub fn installed_version(&self) -> Option<String> {
        find(self.name)?;
        match self.version {
            Some(argument) => tool_version(self.name, argument),
            None => {
                let status = fs::read_to_string("/var/lib/dpkg/status").ok()?;
                package_version(&status, self.package)
            }
        }
    }
}

/// The version of a package in dpkg's list of packages (deb-control(5)).
fn package_version(status: &str, package: &str) -> Option<String> {
    let header = format!("Package: {package}");
    let entry = status.split("\n\n").find(|entry| entry.lines().any(|line| line == header))?;
    let version = entry.lines().find_map(|line| line.strip_prefix("Version: "))?;
    Some(format!("{package} {version}"))
}

/// How a workload gets at what it works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Through a directory.
    Mounted,
    /// Through the device itself.
    RawDevice,
    /// As a library in the workload's own process.
    Library,
}

/// What [`LayerTool::package`] says of a program of this workspace.
pub const OWN_PACKAGE: &str = "";

/// CPU time in ns of the processes of this name in the trial's own process namespace, so far.
pub(crate) fn cpu_time_of(name: &str) -> Option<u64> {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    let ticks = running().filter(|process| process.name == name).map(|one| one.cpu_ticks);
    ticks.reduce(|sum, more| sum + more).map(|ticks| ticks * tick_ns)
}

/// Reads where a journal lies.
pub type Journal = fn(&File) -> io::Result<Vec<Range<u64>>>;

/// What a file system is and needs.
pub struct FileSystem {
    /// The name in the notation of a contender.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// The short options of its mkfs that have no value.
    pub mkfs_flags: &'static str,
    /// The short options of its mkfs whose value is a path, which contenders cannot have.
    pub mkfs_paths: &'static str,
    /// The tools that a trial runs.
    pub tools: &'static [LayerTool],
    /// The name in `/proc/filesystems` without which it cannot be mounted.
    pub kernel_name: Option<&'static str>,
    /// Modules that a guest gets where its kernel has them; the first one mounts it.
    pub modules: &'static [&'static str],
    /// How its module, or the tools of a module that the kernel has, are built for guests.
    pub recipe: Option<&'static Recipe>,
    /// Why this machine's kernel is not asked, and only a guest can have it; absent of all others.
    pub guests_only: Option<&'static str>,
    /// Why a contender cannot have an option that is kurabe's own, and of no tool; absent where it can.
    why_not_option: fn(&Contender) -> Option<String>,
    /// Whether it is made on a device. What is not is neither made, mounted, unmounted nor
    /// checked.
    pub needs_device: bool,
    /// Whether its files are in memory alone. A device only gives it its size.
    pub is_volatile: bool,
    /// How a workload gets at it.
    pub access: Access,
    /// Whether it can stand side by side with others and take turns: it has directories, its caches
    /// can be dropped without those of the others ([`Instance::cool_alone`]), and what waits for its
    /// turn leaves the machine alone.
    pub takes_turns: bool,
    /// Whether two disks with the same bytes can be used side by side
    /// ([`Instance::mount_untimed`]).
    pub has_copies: bool,
    /// Smallest device that it is made on, in bytes.
    pub size_bytes_min: u64,
    /// Size in bytes below which it behaves unlike a volume of ordinary size, so that it gets no
    /// part of a device that small unasked; 0 where every size is ordinary.
    pub size_bytes_ordinary: u64,
    /// Whether `/proc/PID/io` sees what is written to it.
    pub counts_write_bytes: bool,
    /// Mount options that give the root directory to a user and a group, by number, where chown(2)
    /// cannot.
    pub owner_options: fn(user: u32, group: u32) -> Vec<String>,
    /// The ranges of bytes on its device in which its journal lies, as its superblock says; none where it has none
    /// there, or where that is not known.
    pub journal: Journal,
    kind: FileSystemKind,
}

/// How an instance of it is begun.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of each in the program, and none is moved"
)]
enum FileSystemKind {
    Kernel(KernelFileSystem),
    /// It has a way of its own.
    Own(fn(InstanceContext) -> Box<dyn Instance>),
}

impl FileSystem {
    /// A file system with a name alone; its own file sets what else it needs.
    const fn new(name: &'static str, summary: &'static str, kind: FileSystemKind) -> FileSystem {
        FileSystem {
            name,
            summary,
            mkfs_flags: "",
            mkfs_paths: "",
            tools: &[],
            kernel_name: None,
            modules: &[],
            recipe: None,
            guests_only: None,
            why_not_option: |_| None,
            needs_device: true,
            is_volatile: false,
            access: Access::Mounted,
            takes_turns: false,
            has_copies: false,
            size_bytes_min: 0,
            size_bytes_ordinary: 0,
            counts_write_bytes: true,
            owner_options: |_, _| Vec::new(),
            journal: |_| Ok(Vec::new()),
            kind,
        }
    }

    /// One that the kernel mounts by its name.
    const fn of_kernel(
        name: &'static str,
        summary: &'static str,
        kernel: KernelFileSystem,
    ) -> FileSystem {
        let kernel_name = Some(name);
        let has_copies = kernel.mount_options_of_copy.is_some();
        let of = FileSystem::new(name, summary, FileSystemKind::Kernel(kernel));
        FileSystem { kernel_name, takes_turns: true, has_copies, ..of }
    }

    /// Why a contender of it cannot be mounted by several nodes, where it is to be, or with these options.
    pub fn why_not_on_nodes(&self, contender: &Contender) -> Option<String> {
        if let Some(why) = (self.why_not_option)(contender) {
            return Some(why);
        }
        let nodes = contender.environment.nodes();
        // What lies over it decides there, and of a directory who mounted it.
        if nodes == 1 || !contender.above().is_empty() || !self.needs_device {
            return None;
        }
        if !self.is_of_cluster() {
            let can = all().iter().filter(|one| one.is_of_cluster());
            let names: Vec<&str> = can.map(|one| one.name).collect();
            return Some(format!(
                "{} can be mounted by one node at a time, not by {nodes}; these can by several: {}; or by NFS: nfs over {}",
                self.name,
                names.join(", "),
                self.name
            ));
        }
        let is_plain = contender.layers.len() == 1 && contender.store.is_none();
        (!is_plain || contender.aged.is_some()).then(|| {
            format!(
                "on {nodes} nodes {} has no store, no other layers and no age; leave them out",
                self.name
            )
        })
    }

    fn is_of_cluster(&self) -> bool {
        matches!(&self.kind, FileSystemKind::Kernel(kernel) if kernel.cluster.is_some())
    }

    /// Whether an image file on it can be a block device of another layer.
    pub fn can_carry_images(&self) -> bool {
        let has_mkfs =
            |kernel: &KernelFileSystem| !kernel.mkfs_from_directory && kernel.cluster.is_none();
        let is_plain = self.needs_device && !self.is_volatile && self.guests_only.is_none();
        is_plain
            && self.recipe.is_none()
            && matches!(&self.kind, FileSystemKind::Kernel(kernel) if has_mkfs(kernel))
    }

    /// Modules that the kernel of a guest needs before the file system can be made or mounted there.
    pub fn modules_on(&self, contender: &Contender) -> Vec<&'static str> {
        match contender.environment.nodes() {
            1 => self.modules.first().copied().into_iter().collect(),
            _ => self.modules.to_vec(),
        }
    }

    /// Why it cannot be aged; absent where it can.
    pub fn why_not_aged(&self) -> Option<String> {
        (!self.can_be_aged()).then(|| {
            let can = all().iter().filter(|one| one.can_be_aged());
            let names: Vec<&str> = can.map(|one| one.name).collect();
            format!("{} cannot be aged; these can: {}", self.name, names.join(", "))
        })
    }

    fn can_be_aged(&self) -> bool {
        match &self.kind {
            FileSystemKind::Kernel(kernel) => {
                !self.is_volatile
                    && !kernel.mkfs_from_directory
                    && (self.has_copies || !kernel.renew.is_empty())
            }
            FileSystemKind::Own(_) => false,
        }
    }

    /// Why the power cannot be cut under it; absent where it can.
    pub fn why_not_cut(&self) -> Option<&'static str> {
        match (self.needs_device, self.is_volatile) {
            (false, _) => Some(
                "an existing directory is on a device whose writes cannot be recorded; name a file system",
            ),
            (true, true) => {
                Some("its files are in memory alone, so a power failure takes them all")
            }
            (true, false) => None,
        }
    }

    /// What the notation of a contender has to know about it.
    pub const fn known(&self) -> Known {
        Known { name: self.name, is_store: false, flags: self.mkfs_flags, paths: self.mkfs_paths }
    }

    /// A file system for one trial, without the layers above it. Touches nothing yet.
    pub fn begin(&'static self, stage: InstanceContext) -> Box<dyn Instance> {
        match &self.kind {
            FileSystemKind::Kernel(kernel) => {
                kernel.begin(self.kernel_name.unwrap_or(self.name), stage)
            }
            FileSystemKind::Own(begin) => begin(stage),
        }
    }
}

#[derive(Debug, Clone)]
pub struct InstanceContext {
    /// Device node; absent for what needs no device.
    pub node: Option<DeviceNode>,
    /// Size of the device in bytes.
    pub size_bytes: u64,
    /// Words handed to mkfs, before the device.
    pub mkfs_options: Vec<String>,
    /// Mount options, one word each.
    pub mount_options: Vec<String>,
    /// The layers above it, the uppermost first.
    pub above: Vec<Layer>,
    /// The existing directory of a `dir:` contender.
    pub directory: Option<PathBuf>,
    /// Its device and inode when the session began.
    pub directory_identity: Option<(u64, u64)>,
    /// The number of the block layer whose image it carries, where it does.
    pub carries: Option<usize>,
    /// Whether mkfs and mount may discard.
    pub discard: bool,
    /// Whether mkfs is to leave nothing for later: others take turns with this trial, a guest was booted for it
    /// alone, or the device is small enough.
    pub made_at_once: bool,
    /// Which of several nodes this is.
    pub member: Option<NodeSpec>,
    /// The trial's own directory, in whose room the mount point is made.
    pub scratch: Arc<Occupied>,
}

/// Up to this size mkfs writes all inode tables itself, 1 GiB of them at most. The kernel's thread for them begins
/// up to 5 s after the mount, rests ten times as long as it works, and serves every ext4 of the machine: each run
/// would wait for it. On larger devices mkfs would take longer than that wait may.
const MADE_AT_ONCE_BYTES_MAX: u64 = 64 << 30;

impl InstanceContext {
    /// The stage for a contender on a device.
    pub fn new(
        contender: &Contender,
        node: Option<&DeviceNode>,
        size_bytes: u64,
        discard: bool,
        scratch: &Arc<Occupied>,
    ) -> InstanceContext {
        let mut mount_options = contender.base().mount_options.clone();
        if contender.aged.is_some() {
            // Whoever made what it has may have put devices there, and a user is given all of it.
            mount_options.extend(["nodev", "nosuid"].map(String::from));
        }
        InstanceContext {
            node: node.cloned(),
            size_bytes,
            mkfs_options: contender.base().options.clone(),
            mount_options,
            above: contender.above().to_vec(),
            directory: contender.directory().map(Path::to_path_buf),
            directory_identity: None,
            carries: None,
            discard: discard || asks_for_discard(contender),
            made_at_once: contender.environment.guest().is_some()
                || size_bytes <= MADE_AT_ONCE_BYTES_MAX,
            member: None,
            scratch: scratch.clone(),
        }
    }

    /// Where the file system is mounted: where nobody else can go, if a layer lies over it or on a file of it.
    pub fn mount_point(&self) -> PathBuf {
        if let Some(index) = self.carries {
            return self.scratch.below().join(format!("carries-{index}"));
        }
        let place = if self.above.is_empty() { self.scratch.work() } else { self.scratch.below() };
        place.join("mount")
    }

    fn node(&self) -> &DeviceNode {
        self.node.as_ref().expect("a file system that is made has a device")
    }

    fn node_text(&self) -> String {
        self.node().path().display().to_string()
    }

    /// The words that hand the mount options, and these, to a command; none where there are none.
    fn mount_words(&self, more: &[&str]) -> Vec<String> {
        let own = self.mount_options.iter().map(String::as_str);
        let options: Vec<&str> = own.chain(more.iter().copied()).collect();
        if options.is_empty() { Vec::new() } else { vec!["-o".into(), options.join(",")] }
    }
}

/// Whose a place of the device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A file's, as far as the file system tells, which calls the place by this address (FIEMAP).
    Data(u64),
    /// The file system's own: `the journal`.
    Own(String),
}

/// A file system of one trial. The hooks are called in the order in which they stand here.
pub trait Instance: Send {
    /// Makes this node one of several that will mount it.
    fn join(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Makes it, and makes it durable.
    fn make(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Gives it an identity of its own after another one was copied, where two of the same cannot be mounted at the
    /// same time.
    fn renew(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Its free extents by size, as its own tools say; it is not mounted. Empty where none says it.
    fn free_extents(&mut self, _: &mut Toolbox) -> Vec<FreeExtents> {
        Vec::new()
    }

    /// What it reports of itself, once it was made; not timed.
    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, StepFailure>;

    fn mount(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Mounts it where nobody asks how long that takes, without a process of its own where it can be, and
    /// beside another disk with the same bytes where [`FileSystem::has_copies`].
    fn mount_untimed(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.mount(tools)
    }

    /// Where the command runs, once it is mounted.
    fn directory(&self) -> PathBuf;

    /// Lets the user as whom the workload runs get to [`Instance::directory`], where the way there is the instance's own.
    fn let_pass(&self, _: &User) -> Result<(), String> {
        Ok(())
    }

    /// Unmounts it and mounts it again as before, so that nothing of it is left in memory; leaves
    /// it mounted, with a remark, where somebody uses it. Does nothing where [`Instance::cool`]
    /// needs no such help.
    fn mount_anew(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        Ok(())
    }

    /// What it still does in the background after having been made and mounted, when that can be
    /// named.
    fn background_work(&self, _: &HostProc) -> Option<String> {
        None
    }

    /// Makes the caches as cold as after a reboot. What was written is durable before.
    fn cool(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.sync(tools)?;
        kernel::drop_caches(tools)
    }

    /// Makes its own caches cold and leaves those of everything else alone, the programs of the workload
    /// among them. What was written is durable before.
    fn cool_alone(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.cool(tools)
    }

    /// Makes everything durable that was written to it.
    fn sync(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure>;

    /// The command by which a workload makes everything durable from a process of its own; absent
    /// where syncfs(2) does.
    fn sync_command(&self) -> Option<Vec<String>> {
        None
    }

    /// The command by which a workload makes the caches cold between its phases, from a process of its
    /// own that uses nothing of the file system at that time; absent where dropping the kernel's
    /// caches is enough.
    fn cool_command(&self) -> Option<Vec<String>> {
        None
    }

    /// How this node of several waits for the others when it unmounts; absent where it does not.
    fn leaving(&self) -> Option<Leaving> {
        None
    }

    /// By which functions of the kernel this node of several asks for locks; absent where nobody counts them.
    fn lock_calls(&self) -> Option<LockCalls> {
        None
    }

    /// Another of several nodes, of this number, has unmounted it, or is about to and waits.
    fn left(&mut self, _: u32) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Another of several nodes, of this number, is dead: whoever decides that in a cluster has decided it.
    fn died(&mut self, _: u32) -> Result<(), StepFailure> {
        Ok(())
    }

    fn unmount(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Checks it without writing to it.
    /// Errors: it is damaged, or the check itself failed; the text says which.
    fn check(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Mends it where it cannot be mounted; says whether it has something that did.
    fn repair(&mut self, _: &mut Toolbox) -> Result<bool, StepFailure> {
        Ok(false)
    }

    /// Whose a byte of the device is, as its own tools say; it is not mounted.
    fn owner_of(&mut self, byte: u64, _: &mut Toolbox) -> Owner {
        Owner::Data(byte)
    }

    /// CPU time in ns of the processes that serve it in user space, so far; absent for a file
    /// system of the kernel.
    fn daemon_cpu_ns(&self) -> Option<u64> {
        None
    }

    /// The names of the processes that serve it in user space and may be started anew during a trial, so that
    /// they are not taken for what a command left running.
    fn daemons(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Gives back whatever is still taken, however far the trial came. Calling it again does
    /// nothing.
    fn end(&mut self, _: &mut Toolbox) -> Result<(), StepFailure> {
        Ok(())
    }
}

static ALL: &[&FileSystem] = &[
    &ext::EXT2,
    &ext::EXT3,
    &ext::EXT4,
    &xfs::XFS,
    &bcachefs::BCACHEFS,
    &btrfs::BTRFS,
    &f2fs::F2FS,
    &jfs::JFS,
    &nilfs2::NILFS2,
    &zfs::ZFS,
    &zfs::ZFS_FUSE,
    &fat::VFAT,
    &fat::EXFAT,
    &ntfs3::NTFS3,
    &reiserfs::REISERFS,
    &ocfs2::OCFS2,
    &gfs2::GFS2,
    &tmpfs::TMPFS,
    &udf::UDF,
    &ufs::UFS,
    &minfs::MINFS_FUSE,
    &minfs::MINFS,
    &minfs::MINFS_KERNEL,
    &raw::RAW,
    &directory::DIRECTORY,
];

/// Every file system, in the order of the help.
pub fn all() -> &'static [&'static FileSystem] {
    ALL
}

/// What [`Contender::parse`] has to know about all file systems and stores.
pub fn known() -> Vec<Known> {
    let file_systems = all().iter().map(|file_system| file_system.known());
    file_systems.chain(workloads::store::names().into_iter().map(Known::store)).collect()
}

/// What guests are supplied with for all file systems.
pub fn supplies() -> Supplies {
    supplies_of(all())
}

fn supplies_of(file_systems: &[&FileSystem]) -> Supplies {
    let mut modules: Vec<&str> = file_systems.iter().flat_map(|one| one.modules).copied().collect();
    modules.sort_unstable();
    modules.dedup();
    Supplies { modules, recipes: file_systems.iter().filter_map(|one| one.recipe).collect() }
}

/// The file system of a contender, which may have been read from a file.
/// Errors: there is none of its name, or an option could name something else than its device.
pub fn of(contender: &Contender) -> Result<&'static FileSystem, String> {
    let name = contender.file_system();
    let file_system =
        by_name(name).ok_or_else(|| format!("this kurabe knows no file system '{name}'"))?;
    file_system.known().check_options(contender)?;
    file_system.why_not_on_nodes(contender).map_or(Ok(()), Err)?;
    Ok(file_system)
}

pub fn by_name(name: &str) -> Option<&'static FileSystem> {
    all().iter().copied().find(|file_system| file_system.name == name)
}

/// Whether the contender's own options ask for discards. A study that says nothing has none.
pub fn asks_for_discard(contender: &Contender) -> bool {
    let asks = |word: &String| {
        word.split([',', '=']).any(|part| part == "discard" || part == "trim" || part == "autotrim")
    };
    let top = contender.base();
    top.options.iter().chain(&top.mount_options).any(asks)
}

/// What this machine lacks for a file system, a line each with the next step; empty when nothing.
pub fn missing(file_system: &FileSystem) -> Vec<String> {
    if let Some(why) = file_system.guests_only {
        return vec![format!("{why}: --on debian")];
    }
    let mut missing = missing_tools(file_system);
    missing.extend(file_system.kernel_name.and_then(kernel_lacks));
    missing
}

/// What to do where this machine's kernel does not have a file system.
pub(crate) fn kernel_lacks(name: &str) -> Option<String> {
    (!kernel_knows(name))
        .then(|| format!("this machine's kernel has no '{name}'; run it in a guest: --on debian"))
}

/// Whether a file system is missing on this machine and a guest has it.
pub fn is_in_guests(file_system: &FileSystem) -> bool {
    file_system.guests_only.is_some() || unknown_to_kernel(file_system).is_some()
}

/// The kernel's name of a file system that this kernel does not have.
fn unknown_to_kernel(file_system: &FileSystem) -> Option<&'static str> {
    file_system.kernel_name.filter(|name| !kernel_knows(name))
}

/// The tools of a file system that are not installed, a line each.
pub fn missing_tools(file_system: &FileSystem) -> Vec<String> {
    missing_of(file_system.tools)
}

/// Which of these tools are not installed, a line each.
pub(crate) fn missing_of(tools: &[LayerTool]) -> Vec<String> {
    let mut missing = Vec::new();
    for tool in tools {
        if let Some(not_found) = not_found(tool.name) {
            missing.push(match tool.package {
                OWN_PACKAGE => {
                    format!("{not_found}; install it with: cargo install --path {}", tool.name)
                }
                package => format!("{not_found}; {}", trust::program::how_to_install(&[package])),
            });
        }
    }
    missing
}

/// Whether the kernel has this file system, or a module that it loads when asked to.
pub fn kernel_knows(name: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.split_whitespace().next_back() == Some(name)) {
        return true;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let modules = PathBuf::from("/lib/modules").join(release);
    ["modules.dep", "modules.builtin"].iter().any(|list| {
        fs::read_to_string(modules.join(list)).is_ok_and(|text| {
            text.lines().any(|line| {
                let path = line.split(':').next().unwrap_or_default();
                let file = path.rsplit('/').next().unwrap_or_default();
                file.split('.').next() == Some(name)
            })
        })
    })
}

#[cfg(test)]
mod tests;
