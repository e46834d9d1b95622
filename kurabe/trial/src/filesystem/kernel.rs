//! What the file systems of the kernel have in common: mount(8), syncfs(2), umount2(2), and a
//! read-only checker.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::spec::NodeSpec;
use measure::durable::drop_kernel_caches;
use rustix::mount::{MountFlags, UnmountFlags};
use vocabulary::layout::{FreeExtents, Layout};

use super::{Instance, InstanceContext, Owner};
use crate::device::DeviceNode;
use crate::host_proc::HostProc;
use crate::kernel_log::KernelLog;
use crate::locks::LockCalls;
use crate::sys::loop_device;
use crate::tool::{StepFailure, ToolOutput, Toolbox, failed};

pub struct KernelFileSystem {
    /// The command line of mkfs before the contender's options: quiet and forced.
    pub mkfs: &'static [&'static str],
    /// What follows it unless the stage has discards.
    pub mkfs_without_discard: &'static [&'static str],
    /// Whether mkfs is told, after the node, an empty directory to fill the file system from.
    pub mkfs_from_directory: bool,
    /// Puts into the contender's options for mkfs what cannot stand beside them.
    pub complete: fn(&mut Vec<String>, &InstanceContext),
    /// The command line of mount(8) before the type.
    pub mount: &'static [&'static str],
    /// Mount options without which it cannot be mounted.
    pub mount_options: &'static [&'static str],
    /// Mount options without which the kernel may discard on its own.
    pub mount_options_without_discard: &'static [&'static str],
    /// Mount options by which two disks with the same bytes, so the same UUID, can be mounted side by
    /// side; absent where they cannot.
    pub mount_options_of_copy: Option<&'static [&'static str]>,
    /// The command line, before the node, that gives a copy an identity of its own; empty where none is needed.
    pub renew: &'static [&'static str],
    /// The free extents of an unmounted device by size, each size with how often it is there.
    pub free: Free,
    /// The command line that prints the geometry of an unmounted file system.
    pub geometry: &'static [&'static str],
    /// The command line of the read-only check, before the node.
    pub check: &'static [&'static str],
    /// The command line that mends what cannot be mounted, before the node; empty where nothing does.
    pub repair: &'static [&'static str],
    /// Whose a byte of an unmounted device is: asks its tools, of which each answers with what it prints.
    pub owner: fn(&str, u64, &mut ToolRunner<'_>) -> Option<Owner>,
    /// What an exit code of the check other than 0 means.
    pub check_meaning: fn(i32) -> &'static str,
    /// Threads of the kernel that finish the making in the background.
    pub background_threads: &'static [&'static str],
    /// How several nodes mount one at the same time; absent where they cannot.
    pub cluster: Option<Cluster>,
}

/// What a node of several does besides mounting and unmounting. The functions are called in this order.
pub struct Cluster {
    /// Makes this node one of the cluster, before anything is made or mounted.
    pub join: fn(&InstanceContext, &NodeSpec, &mut Toolbox) -> Result<(), StepFailure>,
    /// How an unmount waits for the other nodes; absent where it does not.
    pub leaving: Option<Leaving>,
    /// Another node has unmounted, or is about to and waits, by its number; this one has it mounted.
    pub left: fn(u32) -> Result<(), StepFailure>,
    /// Another node is dead, by its number; this one has it mounted.
    pub died: fn(u32) -> Result<(), StepFailure>,
    pub locks: LockCalls,
}

/// How an unmount waits for the other nodes.
#[derive(Clone, Copy)]
pub struct Leaving {
    /// What the kernel's log says when it waits.
    pub says: &'static str,
    /// Ends the waiting, once the others know.
    pub let_go: fn() -> Result<(), StepFailure>,
}

/// Sizes of free extents on a device, each with how often it is there.
pub type Free = fn(&str, &mut ToolRunner<'_>) -> Option<Vec<(u64, u64)>>;

/// Runs a tool and gives what it prints.
pub type ToolRunner<'a> = dyn FnMut(&[&str]) -> Option<String> + 'a;

impl KernelFileSystem {
    /// A file system whose tools get no options and are not asked anything.
    pub const PLAIN: KernelFileSystem = KernelFileSystem {
        mkfs: &[],
        mkfs_without_discard: &[],
        mkfs_from_directory: false,
        complete: |_, _| (),
        // Without -n libmount keeps some options in /run/mount/utab, which outlives whoever is killed.
        mount: &["mount", "-n"],
        mount_options: &[],
        mount_options_without_discard: &[],
        mount_options_of_copy: None,
        renew: &[],
        free: |_, _| None,
        geometry: &[],
        check: &[],
        repair: &[],
        owner: |_, _, _| None,
        check_meaning: |_| "the check found damage or could not be carried out",
        background_threads: &[],
        cluster: None,
    };

    pub fn begin(&'static self, name: &'static str, stage: InstanceContext) -> Box<dyn Instance> {
        Box::new(KernelInstance { kernel: self, name, stage, mounted: false })
    }

    /// The command line of mkfs.
    pub fn make(&self, stage: &InstanceContext) -> Vec<String> {
        let mut options = stage.mkfs_options.clone();
        (self.complete)(&mut options, stage);
        let kept = if stage.discard { &[] } else { self.mkfs_without_discard };
        let mut command = words(&[self.mkfs, kept].concat());
        command.append(&mut options);
        command.push(stage.node_text());
        if self.mkfs_from_directory {
            command.push(stage.mount_point().display().to_string());
        }
        command
    }
}

/// The option of mke2fs by which nothing is left for later.
const MADE_AT_ONCE: &str = "lazy_itable_init=0";

struct KernelInstance {
    kernel: &'static KernelFileSystem,
    /// As the kernel calls it.
    name: &'static str,
    stage: InstanceContext,
    mounted: bool,
}

impl KernelInstance {
    fn on_node(&self, line: &[&str]) -> Vec<String> {
        let mut words = words(line);
        words.push(self.stage.node_text());
        words
    }

    /// Mount options of the file system's own, and those without which the kernel may discard,
    /// unless it is to.
    fn further_options(&self) -> Vec<&'static str> {
        let discard =
            if self.stage.discard { &[] } else { self.kernel.mount_options_without_discard };
        [self.kernel.mount_options, discard].concat()
    }

    fn mount_words(&self, more: &[&str]) -> Vec<String> {
        let mut words = words(&[self.kernel.mount, &["-t", self.name]].concat());
        words.extend(self.stage.mount_words(&[&self.further_options(), more].concat()));
        words.extend([self.stage.node_text(), self.stage.mount_point().display().to_string()]);
        words
    }

    /// Drops what this node knows of a device to which others write too.
    fn forget_pages(&self) -> Result<(), StepFailure> {
        self.stage.member.as_ref().map_or(Ok(()), |_| drop_pages_of(self.stage.node()))
    }

    fn of_cluster(&self) -> Option<(&'static Cluster, &NodeSpec)> {
        self.kernel.cluster.as_ref().zip(self.stage.member.as_ref())
    }

    /// By what the kernel's messages about it are known: its name and its device's.
    fn log_words(&self) -> Vec<&str> {
        let device = self.stage.node().path().file_name().and_then(|name| name.to_str());
        [Some(self.name), device].into_iter().flatten().collect()
    }

    /// Mounts it as mount(8) does, but without starting a program, where no time is taken of it.
    fn mount_by_call(&mut self, more: &[&str], tools: &mut Toolbox) -> Result<(), StepFailure> {
        let point = self.stage.mount_point();
        let further = self.further_options().into_iter().chain(more.iter().copied());
        let options = self.stage.mount_options.iter().map(String::as_str).chain(further);
        let (flags, data) = mount_flags(options);
        let data = std::ffi::CString::new(data).ok();
        let mount = || {
            rustix::mount::mount(
                self.stage.node().path(),
                &point,
                self.name,
                flags,
                data.as_deref(),
            )
        };
        let until = Instant::now() + BUSY_WAIT_MAX;
        let mounted = loop {
            match mount() {
                // A program that another thread is starting has, until its exec, what this one had open.
                Err(rustix::io::Errno::BUSY) if Instant::now() < until => {
                    tools.pause(Duration::from_millis(1))?;
                }
                mounted => break mounted,
            }
        };
        if mounted.is_err() {
            // mount(8) may know an option that the kernel does not, and says best what is wrong.
            let mut log = KernelLog::from_now();
            let mounted = tools.expect(&self.mount_words(more), "mount failed");
            mounted.map_err(|failure| failure.with_lines(&log.about(&self.log_words())))?;
        }
        self.mounted = true;
        Ok(())
    }

    /// Unmounts it and mounts it again, the device's pages dropped in between if so asked; leaves it
    /// mounted, with a remark, where somebody uses it.
    fn mount_again(&mut self, drop_pages: bool, tools: &mut Toolbox) -> Result<(), StepFailure> {
        if !unmount_unless_used(&self.stage.mount_point(), tools)? {
            return Ok(());
        }
        self.mounted = false;
        if drop_pages {
            drop_pages_of(self.stage.node())?;
        }
        tools.log_command(&self.mount_words(&[]));
        self.mount_by_call(&[], tools)
    }
}

impl Instance for KernelInstance {
    fn make(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        if self.kernel.mkfs_from_directory {
            make_mount_point(&self.stage.mount_point())?;
        }
        tools.expect(&self.kernel.make(&self.stage), "mkfs failed")?;
        // A tool may leave what it wrote in the page cache of a device that is held open, and the
        // mount would then pay for it.
        let node = self.stage.node();
        File::open(node.path()).and_then(|device| device.sync_all()).map_err(|error| {
            let shown = node.shown();
            StepFailure::of(format!("making the new file system on {shown} durable: {error}"))
        })
    }

    fn renew(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        if self.kernel.renew.is_empty() {
            return Ok(());
        }
        let words = self.on_node(self.kernel.renew);
        tools.expect(&words, "giving the aged file system an identity of its own failed").map(drop)
    }

    fn free_extents(&mut self, tools: &mut Toolbox) -> Vec<FreeExtents> {
        let mut ask = |line: &[&str]| tools.read_long(line).ok();
        let found = (self.kernel.free)(&self.stage.node_text(), &mut ask);
        Layout::free_of(found.unwrap_or_default().into_iter())
    }

    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, StepFailure> {
        tools.look(&self.on_node(self.kernel.geometry), "the geometry cannot be read")
    }

    fn mount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        make_mount_point(&self.stage.mount_point())?;
        self.forget_pages()?;
        let mut log = KernelLog::from_now();
        let mounted = tools.expect(&self.mount_words(&[]), "mount failed");
        // mount(8) refers to the kernel's log; what matters is there.
        mounted.map_err(|failure| failure.with_lines(&log.about(&self.log_words())))?;
        self.mounted = true;
        Ok(())
    }

    fn mount_untimed(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        make_mount_point(&self.stage.mount_point())?;
        self.mount_by_call(self.kernel.mount_options_of_copy.unwrap_or_default(), tools)
    }

    fn directory(&self) -> PathBuf {
        self.stage.mount_point()
    }

    fn background_work(&self, host: &HostProc) -> Option<String> {
        // Where mkfs left nothing for later, the thread only reads a few maps, seconds after each
        // mount.
        let made = self.kernel.make(&self.stage);
        if self.stage.made_at_once && made.iter().any(|word| word.contains(MADE_AT_ONCE)) {
            return None;
        }
        self.kernel.background_threads.iter().find(|name| host.runs(name)).map(ToString::to_string)
    }

    fn mount_anew(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.mount_again(false, tools)
    }

    /// Nothing of a file system stays in memory across an unmount but the device's own pages.
    fn cool_alone(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.mount_again(true, tools)
    }

    fn sync(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        sync_file_system(&self.stage.mount_point(), tools)
    }

    fn cool_command(&self) -> Option<Vec<String>> {
        let point = self.stage.mount_point().display().to_string();
        let head = ["sh", "-c", COOL_SCRIPT, &self.stage.node_text(), &point];
        Some([words(&head), self.mount_words(&[])].concat())
    }

    fn join(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        match self.of_cluster() {
            Some((cluster, member)) => (cluster.join)(&self.stage, member, tools),
            None => Ok(()),
        }
    }

    fn left(&mut self, number: u32) -> Result<(), StepFailure> {
        self.of_cluster().map_or(Ok(()), |(cluster, _)| (cluster.left)(number))
    }

    fn died(&mut self, number: u32) -> Result<(), StepFailure> {
        self.of_cluster().map_or(Ok(()), |(cluster, _)| (cluster.died)(number))
    }

    fn leaving(&self) -> Option<Leaving> {
        self.of_cluster().and_then(|(cluster, _)| cluster.leaving)
    }

    fn lock_calls(&self) -> Option<LockCalls> {
        self.of_cluster().map(|(cluster, _)| cluster.locks)
    }

    fn unmount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        unmount(&self.stage.mount_point(), tools)?;
        self.mounted = false;
        Ok(())
    }

    fn check(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.forget_pages()?;
        let words = self.on_node(self.kernel.check);
        match tools.run(&words)? {
            ToolOutput { code: 0, .. } => Ok(()),
            output => Err(output.failure((self.kernel.check_meaning)(output.code))),
        }
    }

    fn repair(&mut self, tools: &mut Toolbox) -> Result<bool, StepFailure> {
        if self.kernel.repair.is_empty() {
            return Ok(false);
        }
        // 1 and 2: something was mended, as fsck(8) has it.
        Ok(tools.run(&self.on_node(self.kernel.repair))?.code <= 2)
    }

    fn owner_of(&mut self, byte: u64, tools: &mut Toolbox) -> Owner {
        let mut ask = |line: &[&str]| {
            let output = tools.run_unlogged(&words(line)).ok()?;
            (output.code == 0).then_some(output.stdout)
        };
        let found = (self.kernel.owner)(&self.stage.node_text(), byte, &mut ask);
        found.unwrap_or(Owner::Data(byte))
    }

    fn end(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        if self.mounted { self.unmount(tools) } else { Ok(()) }
    }
}

impl Drop for KernelInstance {
    fn drop(&mut self) {
        // Whoever wants to know calls `end`. What is still mounted would keep the device.
        if self.mounted {
            let _ = rustix::mount::unmount(self.stage.mount_point(), UnmountFlags::DETACH);
        }
    }
}

/// What mount(2) is given for options as mount(8) takes them: the flags, and what the file system
/// reads itself.
fn mount_flags<'a>(options: impl Iterator<Item = &'a str>) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut others = Vec::new();
    for option in options.flat_map(|options| options.split(',')) {
        flags |= match option {
            "defaults" | "rw" => MountFlags::empty(),
            "ro" => MountFlags::RDONLY,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            "strictatime" => MountFlags::STRICTATIME,
            "sync" => MountFlags::SYNCHRONOUS,
            "dirsync" => MountFlags::DIRSYNC,
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            other => {
                others.push(other);
                MountFlags::empty()
            }
        };
    }
    (flags, others.join(","))
}

/// Makes an empty directory to mount on.
pub fn make_mount_point(point: &Path) -> Result<(), StepFailure> {
    fs::create_dir_all(point)
        .map_err(failed(format_args!("making the mount point {}", point.display())))
}

/// Makes everything durable that was written to the file system on which `point` lies.
pub fn sync_file_system(point: &Path, tools: &mut Toolbox) -> Result<(), StepFailure> {
    tools.log_command(&["sync", "-f", &point.display().to_string()]);
    let failed = |error: io::Error| {
        StepFailure::of(format!("syncing {}: {error}; see 'dmesg'", point.display()))
    };
    // What a workload may have put in its place (a FIFO) is not waited for.
    let directory = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(point);
    let directory = directory.map_err(failed)?;
    rustix::fs::syncfs(&directory).map_err(|error| failed(error.into()))
}

/// Drops the pages of a device, and of no other, that memory holds.
pub fn drop_pages_of(node: &DeviceNode) -> Result<(), StepFailure> {
    File::open(node.path())
        .and_then(|device| loop_device::drop_buffers(&device))
        .map_err(failed(format_args!("dropping the cached pages of {}", node.shown())))
}

/// Drops the page cache, the directory entries and the inodes that memory holds, of every file
/// system, as [`drop_kernel_caches`] does. Without root it cannot be done, and a remark says so.
pub fn drop_caches(tools: &mut Toolbox) -> Result<(), StepFailure> {
    if !rustix::process::geteuid().is_root() {
        tools.note("caches were not dropped: that needs root; what was read may come from memory");
        return Ok(());
    }
    for _ in 0..2 {
        tools.log_command(&["sysctl", "vm.drop_caches=3"]);
    }
    drop_kernel_caches().map_err(StepFailure::of)
}

/// What [`KernelInstance::mount_again`] does, for a workload. `$0` is the device, `$1` the mount point, and the
/// rest mounts it.
const COOL_SCRIPT: &str = "set -e
point=$1
shift
tries=1000
until said=$(LC_ALL=C umount \"$point\" 2>&1); do
    tries=$((tries - 1))
    case \"$said\" in *busy*) ;; *) tries=0 ;; esac
    if test $tries = 0; then echo \"$said\" >&2; exit 1; fi
    sleep 0.01
done
blockdev --flushbufs \"$0\"
exec \"$@\"";

/// How long a busy mount is waited for.
pub const BUSY_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often a busy mount is tried again.
pub const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// How long a mount that the user's setup may have left in use is waited for.
const ANEW_WAIT_MAX: Duration = Duration::from_secs(1);

/// Unmounts, waiting for a bounded time while somebody uses it, and names who does.
pub fn unmount(point: &Path, tools: &mut Toolbox) -> Result<(), StepFailure> {
    if unmount_within(BUSY_WAIT_MAX, point, tools)? {
        return Ok(());
    }
    Err(StepFailure::of(format!(
        "{} is still busy after {} s{}",
        point.display(),
        BUSY_WAIT_MAX.as_secs(),
        users_text(point, tools)
    )))
}

/// Unmounts before it is mounted anew; leaves it mounted, with a remark, where somebody uses it, and says
/// whether it did.
pub fn unmount_unless_used(point: &Path, tools: &mut Toolbox) -> Result<bool, StepFailure> {
    let is_unmounted = unmount_within(ANEW_WAIT_MAX, point, tools)?;
    if !is_unmounted {
        let users = users_text(point, tools);
        tools.note(format!("not remounted before the run: it is in use{users}"));
    }
    Ok(is_unmounted)
}

/// Unmounts, unless it is in use for all that time; says whether it did.
fn unmount_within(
    wait_max: Duration,
    point: &Path,
    tools: &mut Toolbox,
) -> Result<bool, StepFailure> {
    let shown = point.display();
    tools.log_command(&["umount", &shown.to_string()]);
    let until = Instant::now() + wait_max;
    let mut retries = 0u32;
    loop {
        match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) {
            Ok(()) => break,
            Err(rustix::io::Errno::BUSY) if Instant::now() < until => {
                retries += 1;
                tools.pause(BUSY_INTERVAL)?;
            }
            Err(rustix::io::Errno::BUSY) => return Ok(false),
            Err(error) => return Err(StepFailure::of(format!("unmounting {shown}: {error}"))),
        }
    }
    if retries > 0 {
        tools.note(format!(
            "the unmount waited for {} ms because the mount was busy",
            u128::from(retries) * BUSY_INTERVAL.as_millis()
        ));
    }
    Ok(true)
}

/// Says which processes use what lies below `point`, as far as this process may see.
pub fn users_text(point: &Path, tools: &Toolbox) -> String {
    let users = tools.host().map_or_else(Vec::new, |host| host.users_below(point));
    if users.is_empty() {
        return "; no process can be seen that uses it".into();
    }
    format!(": used by {}; end it, or let the command wait for its children", users.join(", "))
}

/// Strings out of words, for the command lines of the descriptors.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}
