//! The layers over a directory: one descriptor each, one file each.
//!
//! A layer gets a directory of the layer below it and gives another one. To add one, write its file and
//! add a line to [`all`]. [`Over`] puts one over any [`Instance`] and is an [`Instance`] itself, so that a
//! trial cannot tell a stack from a file system.

mod bindfs;
mod encfs;
mod gocryptfs;
mod mergerfs;
mod nfs;
mod overlayfs;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lab::contender::{Contender, Layer};
use lab::spec::NodeSpec;
use rustix::mount::UnmountFlags;
use vocabulary::layout::FreeExtents;
use vocabulary::suggestion::unknown;

use crate::device::is_kurabes_guest;
use crate::filesystem::kernel::{
    drop_caches, make_mount_point, sync_file_system, unmount, unmount_unless_used,
};
use crate::filesystem::{
    Access, FileSystem, Instance, InstanceContext, LayerTool, Owner,
    by_name as file_system_by_name, cpu_time_of, kernel_lacks, missing_of,
};
use crate::host_proc::HostProc;
use crate::ledger::random_name;
use crate::locks::LockCalls;
use crate::scratch::Occupied;
use crate::tool::{StepFailure, Toolbox, failed};
use crate::user::User;

/// What a layer over a directory is and needs.
pub struct Upper {
    /// The name in the notation of a contender.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// The tools that a trial runs.
    pub tools: &'static [LayerTool],
    /// The name in `/proc/filesystems` without which it cannot be mounted.
    pub kernel_name: &'static str,
    /// Beginnings of the words that may follow its name: what its tool takes, none of which names a file.
    pub options: &'static [&'static str],
    /// Whether a number of directories may follow its name, as in `mergerfs:3`.
    pub takes_number: bool,
    /// With whose rights it works below for a workload of another user.
    rights: Rights,
    /// The process that serves it in user space.
    daemon: Option<&'static str>,
    /// The names of its directories in the one below, which it is mounted from.
    directories: fn(&UpperLocation<'_>) -> Vec<String>,
    /// Makes what it needs in these, once.
    prepare: fn(&UpperLocation<'_>, &mut Toolbox) -> Result<(), StepFailure>,
    /// The command line that mounts it.
    mount: fn(&UpperLocation<'_>) -> Vec<String>,
    /// How the directory below is served, where it is mounted over a network.
    service: Option<Service>,
}

/// How the directory below is served to one or several nodes. It is the whole kernel's, and so in guests only.
struct Service {
    /// Modules that it needs besides the one that mounts it.
    modules: &'static [&'static str],
    /// Mount options of its own, as in [`MOUNT_OPTIONS`].
    mount_options: &'static [&'static str],
    /// Serves the directory below, on the node that has it.
    begin: fn(&UpperLocation<'_>) -> Result<(), StepFailure>,
    /// Waits until it is served, on the other nodes.
    wait: fn(&UpperLocation<'_>, &mut Toolbox) -> Result<(), StepFailure>,
    /// Serves it no longer, once it is unmounted.
    end: fn() -> Result<(), StepFailure>,
    locks: LockCalls,
}

/// With whose rights a layer does below what a user asks of it. Nobody but root goes there: a link that was put in
/// the place of a directory would be followed with root's rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rights {
    /// With root's, and the user's files are the user's.
    Roots,
    /// With root's, and the user's files are root's; or with the user's, who would have to go below. It is not for
    /// users.
    NotForUsers,
}

/// Why a contender is not for the workload of another user; None where it is.
pub fn why_not_for_users(contender: &Contender) -> Option<String> {
    let mut uppers = contender.above().iter().filter_map(|layer| by_name(&layer.name));
    let found = uppers.find(|upper| upper.rights == Rights::NotForUsers)?;
    Some(format!(
        "{} does not keep a user's rights and root's apart; leave --user out, or take gocryptfs",
        found.name
    ))
}

/// Where a layer lies.
pub struct UpperLocation<'a> {
    /// The directory of the layer below.
    pub below: &'a Path,
    pub point: &'a Path,
    pub layer: &'a Layer,
    /// A file with the password, while it is prepared and mounted.
    pub password: &'a Path,
    /// Which of several nodes this is.
    member: Option<&'a NodeSpec>,
}

impl UpperLocation<'_> {
    /// Makes directories in the one below. None may be there: an aged file system has whatever its user left, also
    /// links out of it, and root is to work in these.
    fn make_below(&self, names: &[String]) -> Result<(), StepFailure> {
        let failed = |path: &Path, error: io::Error| {
            StepFailure::of(format!("making {} for {}: {error}", path.display(), self.layer.name))
        };
        for path in names.iter().map(|name| self.below.join(name)) {
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(StepFailure::of(format!(
                        "the aged file system below {} has {} already, which the layer needs for itself; leave it out when ageing",
                        self.layer.name,
                        path.file_name().unwrap_or_default().display()
                    )));
                }
                made => made.map_err(|error| failed(&path, error))?,
            }
        }
        Ok(())
    }

    /// Refuses what is not as [`UpperLocation::make_below`] made it: a stored recording may be somebody else's, who put
    /// a link there, and root would work where it leads.
    fn expect_below(&self, names: &[String]) -> Result<(), StepFailure> {
        let is_directory = |path: &PathBuf| {
            fs::symlink_metadata(path).is_ok_and(|facts| facts.file_type().is_dir())
        };
        let mut paths = names.iter().map(|name| self.below.join(name));
        match paths.find(|path| !is_directory(path)) {
            None => Ok(()),
            Some(path) => Err(StepFailure::of(format!(
                "{} is no directory, and {} needs one there",
                path.display(),
                self.layer.name
            ))),
        }
    }

    fn below_text(&self, name: &str) -> String {
        self.below.join(name).display().to_string()
    }

    fn point_text(&self) -> String {
        self.point.display().to_string()
    }

    fn password_text(&self) -> String {
        self.password.display().to_string()
    }

    /// Mount options: these, and then the contender's own.
    fn mount_options(&self, own: &[&str]) -> String {
        let further = self.layer.mount_options.iter().map(String::as_str);
        own.iter().copied().chain(further).collect::<Vec<_>>().join(",")
    }

    /// The number behind its name, or else `otherwise`.
    fn number(&self, otherwise: u32) -> u32 {
        self.layer.argument.as_deref().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    }
}

/// What is not a layer, and why.
pub const ABSENT: [(&str, &str); 5] = [
    ("cryfs", "it stretches its password for over 20 s at each mount, and a run mounts twice"),
    ("ecryptfs", "its key reaches the kernel by the mount helper of ecryptfs-utils alone"),
    ("smb", "the server refuses every share in a guest"),
    ("virtiofs", "a guest's numbers would be mixed with the page cache of this machine"),
    ("9p", "a guest's numbers would be mixed with the page cache of this machine"),
];

static ALL: [&Upper; 7] = [
    &overlayfs::OVERLAYFS,
    &overlayfs::FUSE_OVERLAYFS,
    &gocryptfs::GOCRYPTFS,
    &encfs::ENCFS,
    &mergerfs::MERGERFS,
    &bindfs::BINDFS,
    &nfs::NFS,
];

/// Every layer over a directory, in the order of the help.
pub fn all() -> &'static [&'static Upper] {
    &ALL
}

pub fn by_name(name: &str) -> Option<&'static Upper> {
    all().iter().copied().find(|upper| upper.name == name)
}

/// Directories that a layer of several has, at most: each is a word of a command line.
const NUMBER_MAX: u32 = 64;

/// Mount options that layers over a directory may have, and their beginnings up to `=` or `.`: of every file system, of
/// FUSE, of overlayfs and of mergerfs. Each was read about; one that follows links, loads something or names another
/// directory is none of them. What a layer does not know it refuses itself.
const MOUNT_OPTIONS: [&str; 64] = [
    "ac_attr_timeout=",
    "async_read",
    "async_read=",
    "attr_timeout=",
    "auto_cache",
    "big_writes",
    "cache.",
    "category.",
    "congestion_threshold=",
    "default_permissions",
    "direct_io",
    "dirsync",
    "dropcacheonclose=",
    "entry_timeout=",
    "fast_ino",
    "fsync=",
    "func.",
    "fuse_msg_size=",
    "hard_remove",
    "ignorepponrename=",
    "index=",
    "inodecalc=",
    "kernel_cache",
    "lazytime",
    "link_cow=",
    "max_background=",
    "max_read=",
    "max_readahead=",
    "max_write=",
    "metacopy=",
    "minfreespace=",
    "moveonenospc=",
    "negative_timeout=",
    "nfs_export=",
    "noacl",
    "noatime",
    "noauto_cache",
    "nodev",
    "nodiratime",
    "noexec",
    "nosuid",
    "noxattrs=",
    "posix_acl=",
    "process-thread-count=",
    "read-thread-count=",
    "readahead=",
    "readdir_ino",
    "readdirplus=",
    "redirect_dir=",
    "relatime",
    "splice_move",
    "splice_read",
    "splice_write",
    "statfs=",
    "static_nlink",
    "strictatime",
    "sync_read",
    "threads=",
    "timeout=",
    "use_ino",
    "volatile",
    "writeback_cache",
    "xattr=",
    "xino=",
];

/// Whether a mount option is one of these.
fn is_mount_option(option: &str, known: &[&str]) -> bool {
    known.iter().any(|known| match known.strip_suffix(['=', '.']) {
        Some(_) => option.starts_with(known) && option.len() > known.len(),
        None => option == *known,
    })
}

/// Refuses layers above the file system that there are not, or that cannot be there.
pub fn check(contender: &Contender) -> Result<(), String> {
    let names: Vec<&str> = all().iter().map(|upper| upper.name).collect();
    for layer in contender.above() {
        let Some(upper) = by_name(&layer.name) else {
            if let Some((name, why)) = ABSENT.iter().find(|(name, _)| layer.name == *name) {
                return Err(format!("'{name}' is no layer of kurabe's: {why}"));
            }
            return Err(unknown("layer over a directory is called", &layer.name, &names));
        };
        if let Some(argument) = &layer.argument {
            let is_number = |number: u32| (1..=NUMBER_MAX).contains(&number);
            if !upper.takes_number || !argument.parse().is_ok_and(is_number) {
                return Err(if upper.takes_number {
                    format!("'{layer}': the number of directories is 1 to {NUMBER_MAX}")
                } else {
                    format!("'{layer}': {} takes nothing after a colon", upper.name)
                });
            }
        }
        let own = upper.service.as_ref().map_or(&MOUNT_OPTIONS[..], |one| one.mount_options);
        let mut options = layer.mount_options.iter();
        if let Some(option) = options.find(|option| !is_mount_option(option, own)) {
            let what = format!("mount option of {} is called", upper.name);
            return Err(unknown(&what, option, own));
        }
        let is_taken = |word: &String| upper.options.iter().any(|option| word.starts_with(option));
        if let Some(word) = layer.options.iter().find(|word| !is_taken(word)) {
            return Err(match upper.options {
                [] => format!(
                    "'{word}': {} takes mount options only; write them behind '@'",
                    upper.name
                ),
                options => {
                    format!(
                        "'{word}': of {}'s options there are {}",
                        upper.name,
                        options.join(", ")
                    )
                }
            });
        }
    }
    let Some(lowest) = contender.above().last() else { return Ok(()) };
    check_nodes(contender)?;
    let base = file_system_by_name(contender.file_system());
    if contender.directory().is_some() || base.is_some_and(|base| base.access != Access::Mounted) {
        return Err(format!(
            "'{}' lies over the directory of a mounted file system that kurabe makes, and '{}' has none; write {} over ext4",
            lowest.name,
            contender.file_system(),
            lowest.name
        ));
    }
    Ok(())
}

/// Refuses layers over a file system that several nodes cannot have.
fn check_nodes(contender: &Contender) -> Result<(), String> {
    let nodes = contender.environment.nodes();
    let is_served = of(contender).all(|upper| upper.service.is_some());
    let is_plain = contender.layers.len() == 2 && contender.store.is_none();
    if nodes == 1 || (is_served && is_plain && contender.aged.is_none()) {
        return Ok(());
    }
    let served = all().iter().filter(|upper| upper.service.is_some());
    let names: Vec<&str> = served.map(|upper| upper.name).collect();
    Err(format!(
        "{nodes} nodes have a file system alone, or with {} over it; leave other layers, stores and ages out",
        names.join(" or ")
    ))
}

/// Those above a contender's file system, the uppermost first.
fn of(contender: &Contender) -> impl Iterator<Item = &'static Upper> {
    contender.above().iter().filter_map(|layer| by_name(&layer.name))
}

/// What this machine lacks for the layers above a contender's file system, a line each with the next step. A
/// guest reads the tools from this machine and has a kernel of its own.
pub fn missing(contender: &Contender) -> Vec<String> {
    match contender.environment.guest() {
        Some(_) => of(contender).flat_map(|upper| missing_of(upper.tools)).collect(),
        None => of(contender).flat_map(lacks).collect(),
    }
}

/// Whether a contender has a layer that is in guests only.
pub fn is_in_guests(contender: &Contender) -> bool {
    of(contender).any(|upper| upper.service.is_some())
}

/// The modules of the layers above a contender's file system.
pub fn modules(contender: &Contender) -> impl Iterator<Item = &'static str> {
    of(contender).flat_map(Upper::modules)
}

impl Upper {
    /// The modules that a guest gets, the first of which mounts it.
    pub fn modules(&self) -> impl Iterator<Item = &'static str> {
        let more = self.service.as_ref().map_or(&[][..], |service| service.modules);
        [self.kernel_name].into_iter().chain(more.iter().copied())
    }
}

/// What this machine lacks for a layer, a line each with the next step.
pub fn lacks(upper: &Upper) -> Vec<String> {
    if upper.service.is_some() {
        return vec![format!("{} needs a kernel of its own: --on debian", upper.name)];
    }
    let mut missing = missing_of(upper.tools);
    missing.extend(kernel_lacks(upper.kernel_name));
    missing
}

/// The tools of the layers above a contender's file system.
pub fn tools(contender: &Contender) -> impl Iterator<Item = &'static LayerTool> {
    contender.above().iter().filter_map(|layer| by_name(&layer.name)).flat_map(|one| one.tools)
}

/// Whether `/proc/PID/io` sees what is written through all layers above a contender's file system.
pub fn count_write_bytes(contender: &Contender) -> bool {
    let mut uppers = contender.above().iter().filter_map(|layer| by_name(&layer.name));
    uppers.all(|upper| upper.daemon.is_none())
}

/// A file system for one trial, with the layers above it. Touches nothing yet.
pub fn begin(file_system: &'static FileSystem, mut stage: InstanceContext) -> Box<dyn Instance> {
    let (layers, scratch) = (stage.above.clone(), stage.scratch.clone());
    // What is served has one node of its own.
    let member = if layers.is_empty() { None } else { stage.member.take() };
    over(file_system.begin(stage), &layers, member.as_ref(), &scratch)
}

/// Puts layers, the uppermost first, over an instance.
fn over(
    instance: Box<dyn Instance>,
    layers: &[Layer],
    member: Option<&NodeSpec>,
    scratch: &Arc<Occupied>,
) -> Box<dyn Instance> {
    layers.iter().enumerate().rev().fold(instance, |below, (number, layer)| {
        let Some(upper) = by_name(&layer.name) else { return below };
        let place = if number == 0 { scratch.work() } else { scratch.below() };
        Box::new(Over {
            below,
            upper,
            layer: layer.clone(),
            point: place.join(format!("layer-{number}")),
            password: scratch.work().join(format!("password-{}", random_name())),
            scratch: scratch.clone(),
            member: member.cloned(),
            is_new: false,
            is_aged: false,
            mounted: false,
        })
    })
}

/// The password of what is encrypted: the same for every trial, so that a disk that a power failure left can
/// be opened again by `--replay`. The keys are the tools' own, random ones.
const PASSWORD: &[u8] = b"kurabe";

/// A layer over an instance.
struct Over {
    below: Box<dyn Instance>,
    upper: &'static Upper,
    layer: Layer,
    point: PathBuf,
    /// Where the password is read from while it is mounted.
    password: PathBuf,
    scratch: Arc<Occupied>,
    /// Which of several nodes this is.
    member: Option<NodeSpec>,
    /// Whether the file system below was made and nothing is on it yet.
    is_new: bool,
    /// Whether it was copied, and has what was put there before.
    is_aged: bool,
    mounted: bool,
}

impl Over {
    /// Makes the place for what lies below.
    fn make_below(&self) -> Result<(), StepFailure> {
        let made = self.scratch.make_below();
        made.map_err(failed("making a place for what is below"))
    }

    /// Mounts the layer, once that below is mounted.
    fn mount_own(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        make_mount_point(&self.point)?;
        let mut options = OpenOptions::new();
        let written = options.write(true).create_new(true).mode(0o600).open(&self.password);
        written
            .and_then(|mut file| file.write_all(PASSWORD))
            .map_err(failed(format_args!("writing the password of {}", self.upper.name)))?;
        let mounted = self.mount_with_password(tools);
        let _ = fs::remove_file(&self.password);
        mounted
    }

    /// Whether what is below is this node's to make, mount and unmount.
    fn has_below(&self) -> bool {
        self.member.as_ref().is_none_or(|member| member.number == 1)
    }

    fn mount_with_password(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let below = self.below.directory();
        let place = UpperLocation {
            below: &below,
            point: &self.point,
            layer: &self.layer,
            password: &self.password,
            member: self.member.as_ref(),
        };
        let directories = (self.upper.directories)(&place);
        if std::mem::take(&mut self.is_new) {
            if std::mem::take(&mut self.is_aged) {
                // What was aged as a user is that user's.
                chown(&below, Some(0), Some(0)).map_err(|error| {
                    StepFailure::of(format!("taking back {}: {error}", below.display()))
                })?;
            }
            place.make_below(&directories)?;
            (self.upper.prepare)(&place, tools)?;
        } else {
            place.expect_below(&directories)?;
        }
        match &self.upper.service {
            // What is served here is served to whoever reaches this kernel.
            Some(_) if !is_kurabes_guest() => {
                return Err(StepFailure::of(format!(
                    "{}: this is no guest of kurabe's",
                    self.layer
                )));
            }
            Some(service) if self.has_below() => (service.begin)(&place)?,
            Some(service) => (service.wait)(&place, tools)?,
            None => {}
        }
        tools.expect(&(self.upper.mount)(&place), "mount failed")?;
        self.mounted = true;
        Ok(())
    }

    /// Unmounts it, does something to what is below, and mounts it again; leaves it as it is where somebody
    /// uses it.
    fn mount_again(
        &mut self,
        tools: &mut Toolbox,
        with_below: impl FnOnce(&mut dyn Instance, &mut Toolbox) -> Result<(), StepFailure>,
    ) -> Result<(), StepFailure> {
        if !unmount_unless_used(&self.point, tools)? {
            return Ok(());
        }
        self.end_own()?;
        with_below(self.below.as_mut(), tools)?;
        self.mount_own(tools)
    }

    fn unmount_own(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        unmount(&self.point, tools)?;
        self.end_own()
    }

    /// Ends what serves it, once it is unmounted.
    fn end_own(&mut self) -> Result<(), StepFailure> {
        self.mounted = false;
        match &self.upper.service {
            Some(service) if self.has_below() => (service.end)(),
            _ => Ok(()),
        }
    }
}

impl Instance for Over {
    fn lock_calls(&self) -> Option<LockCalls> {
        self.upper.service.as_ref().map(|service| service.locks)
    }

    fn make(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.is_new = true;
        self.make_below()?;
        self.below.make(tools)
    }

    /// What was copied lies below; nothing of the layer's own is on it yet.
    fn renew(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        (self.is_new, self.is_aged) = (true, true);
        self.make_below()?;
        self.below.renew(tools)
    }

    fn free_extents(&mut self, tools: &mut Toolbox) -> Vec<FreeExtents> {
        self.below.free_extents(tools)
    }

    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, StepFailure> {
        let versions = self.upper.tools.iter().filter_map(LayerTool::installed_version);
        let own: Vec<String> = versions.map(|version| format!("{version}\n")).collect();
        Ok(own.concat() + &self.below.geometry(tools)?)
    }

    fn mount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.make_below()?;
        if self.has_below() {
            self.below.mount(tools)?;
        }
        self.mount_own(tools)
    }

    fn mount_untimed(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.make_below()?;
        self.below.mount_untimed(tools)?;
        self.mount_own(tools)
    }

    fn directory(&self) -> PathBuf {
        self.point.clone()
    }

    fn let_pass(&self, user: &User) -> Result<(), String> {
        self.below.let_pass(user)
    }

    fn mount_anew(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.mount_again(tools, |below, tools| below.mount_anew(tools))
    }

    fn background_work(&self, host: &HostProc) -> Option<String> {
        self.below.background_work(host)
    }

    fn cool(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        sync_file_system(&self.point, tools)?;
        if self.has_below() { self.below.cool(tools) } else { drop_caches(tools) }
    }

    fn cool_alone(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.mount_again(tools, |below, tools| below.cool_alone(tools))
    }

    /// Its own dirty pages go to the layer below, which makes them durable.
    fn sync(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        sync_file_system(&self.point, tools)?;
        if self.has_below() { self.below.sync(tools) } else { Ok(()) }
    }

    fn sync_command(&self) -> Option<Vec<String>> {
        if !self.has_below() {
            return None;
        }
        // A user who cannot go below has everything synced instead.
        const SCRIPT: &str = "sync -f \"$0\" || exit; below=$1; shift; if test -e \"$below\"; then exec \"$@\"; else exec sync; fi";
        let directory = self.below.directory().display().to_string();
        let command = self.below.sync_command();
        let below = command.unwrap_or_else(|| vec!["sync".into(), "-f".into(), directory.clone()]);
        let own = ["sh", "-c", SCRIPT].map(String::from).into_iter();
        let places = [self.point.display().to_string(), directory];
        Some(own.chain(places).chain(below).collect())
    }

    fn unmount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.unmount_own(tools)?;
        if self.has_below() { self.below.unmount(tools) } else { Ok(()) }
    }

    fn check(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.below.check(tools)
    }

    fn repair(&mut self, tools: &mut Toolbox) -> Result<bool, StepFailure> {
        self.below.repair(tools)
    }

    fn owner_of(&mut self, byte: u64, tools: &mut Toolbox) -> Owner {
        self.below.owner_of(byte, tools)
    }

    fn daemon_cpu_ns(&self) -> Option<u64> {
        let own = self.upper.daemon.and_then(cpu_time_of);
        match (own, self.below.daemon_cpu_ns()) {
            (Some(own), Some(below)) => Some(own + below),
            (own, below) => own.or(below),
        }
    }

    fn daemons(&self) -> Vec<&'static str> {
        let own = self.upper.daemon.into_iter();
        own.chain(self.below.daemons()).collect()
    }

    fn end(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let own = if self.mounted { self.unmount_own(tools) } else { Ok(()) };
        own.and(self.below.end(tools))
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        // Whoever wants to know calls `end`. What is still mounted would keep what is below.
        if self.mounted {
            let _ = rustix::mount::unmount(&self.point, UnmountFlags::DETACH);
        }
    }
}

/// Strings out of words.
fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn checked(text: &str) -> Result<(), String> {
        check(&Contender::parse(text, &crate::filesystem::known()).unwrap())
    }

    #[test]
    fn names_are_unique_and_of_no_file_system() {
        let mut names: Vec<&str> = all().iter().map(|upper| upper.name).collect();
        names.extend(crate::filesystem::all().iter().map(|one| one.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for upper in all() {
            assert!(!upper.summary.contains('\n') && !upper.summary.is_empty());
        }
    }

    #[test]
    fn what_cannot_be_above_is_refused_with_what_can() {
        for (text, said) in [
            ("gocryptsf over ext4", "did you mean 'gocryptfs'"),
            ("mergerfs:0 over ext4", "1 to 64"),
            ("mergerfs:x over ext4", "1 to 64"),
            ("encfs:2 over ext4", "nothing after a colon"),
            ("gocryptfs -extpass=x over ext4", "'-extpass=x': of gocryptfs's options there are"),
            ("overlayfs -x over ext4", "behind '@'"),
            ("overlayfs over raw", "'raw' has none; write overlayfs over ext4"),
        ] {
            let error = checked(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
        for text in ["ext4", "mergerfs:3 over xfs", "gocryptfs -aessiv over overlayfs over btrfs"] {
            checked(text).expect(text);
        }
    }
}
