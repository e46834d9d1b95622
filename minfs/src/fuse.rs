//! A volume behind FUSE: the options of a mount, and how it comes and goes.
//!
//! Knows the kernel's mount(2) and `fuser`, and nothing of the format; what the kernel asks of a
//! mounted volume is answered in `requests`, from what `served` keeps.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::mount::{MountFlags, UnmountFlags, unmount};

use block::tool::{Mount, mounts};

use crate::volume::Volume;
use served::FuseVolume;

mod requests;
mod served;

/// How the mount behaves.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// Let no write reach the volume.
    pub read_only: bool,
    /// Bypass the kernel's page cache for every open file, not only for those opened with
    /// `O_DIRECT`.
    pub direct_io: bool,
    /// Let the kernel collect small writes in its page cache.
    pub writeback_cache: bool,
    /// Let `fallocate` fill the space with zeros once, so that later writes touch no metadata.
    pub zero_fallocate: bool,
    /// Let other users in; permissions are checked by the kernel in any case.
    pub allow_other: bool,
    /// Number of threads that serve requests.
    pub threads: usize,
    /// Name of the device as `/proc/mounts` shows it.
    pub source: String,
    /// Permission bits, owner and group of the root directory.
    pub root: (u16, u32, u32),
    /// Further options for the kernel (`nodev`, `noexec`, ...).
    pub kernel_options: Vec<MountOption>,
}

/// A mount that is there but not served yet.
pub struct Mounted {
    session: Session<FuseVolume>,
    directory: PathBuf,
    /// Made here by mount(2), so `fuser` does not know how to end it: the number of its file system.
    own: Option<(u32, u32)>,
}

impl Mounted {
    /// Serves until the mount is ended by whomever, then unmounts the volume.
    pub fn run(self) -> io::Result<()> {
        self.session.run()
    }

    /// What ends the mount from another thread. A busy mount leaves the tree at once and is
    /// served on until its last file is closed.
    pub fn unmounter(&mut self) -> impl FnMut() -> io::Result<()> + Send + 'static {
        let mut unmounter = self.session.unmount_callable();
        let (directory, own) = (self.directory.clone(), self.own);
        move || {
            let Some(own) = own else { return unmounter.unmount() };
            // Whatever is mounted there by now is not this one's to end.
            match topmost(&directory) {
                Some(mount) if mount.device == own => {
                    Ok(unmount(&directory, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
                }
                Some(_) => Err(io::Error::other("something else is mounted over it")),
                None => Ok(()),
            }
        }
    }
}

/// What is mounted last at a directory, by its real path.
fn topmost(directory: &Path) -> Option<Mount> {
    mounts().ok()?.into_iter().rfind(|mount| mount.point == directory)
}

/// Mounts `volume` at `directory`. `on_read_only` is told when the volume stops writing.
pub fn mount(
    volume: Volume,
    directory: &Path,
    options: FuseOptions,
    on_read_only: Box<dyn Fn(&str) + Send + Sync>,
) -> io::Result<Mounted> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        MountOption::Subtype("minfs".into()),
        MountOption::DefaultPermissions,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    config.mount_options.extend(options.kernel_options.iter().cloned());
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    let kernel_options = options.clone();
    let filesystem = FuseVolume::new(volume, options, on_read_only);
    // What is mounted there is not asked any more once it is.
    let directory = directory.canonicalize()?;
    let mut own = None;
    let session = if rustix::process::geteuid().is_root() {
        // `fuser` loses the subtype when it mounts as root, and with it `fuse.minfs` in the
        // table of mounts, which tools look for.
        let (fuse_device, acl) = (mount_as_root(&directory, &kernel_options)?, config.acl);
        own = topmost(&directory).map(|mount| mount.device);
        match Session::from_fd(filesystem, fuse_device, acl, config) {
            Ok(session) => session,
            Err(error) => {
                let _ = unmount(&directory, UnmountFlags::DETACH);
                return Err(error);
            }
        }
    } else {
        Session::new(filesystem, &directory, &config)?
    };
    Ok(Mounted { session, directory, own })
}

/// Mounts with mount(2) and returns the channel to the kernel.
fn mount_as_root(directory: &Path, options: &FuseOptions) -> io::Result<OwnedFd> {
    let fuse_device: OwnedFd =
        std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse")?.into();
    let root_mode = std::fs::metadata(directory)?.mode();
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let mut data = format!(
        "fd={},rootmode={root_mode:o},user_id={},group_id={},default_permissions",
        fuse_device.as_raw_fd(),
        user.as_raw(),
        group.as_raw()
    );
    if options.allow_other {
        data += ",allow_other";
    }
    let flags = mount_flags(options.read_only, &options.kernel_options);
    let data = CString::new(data)?;
    rustix::mount::mount(options.source.as_str(), directory, "fuse.minfs", flags, data.as_c_str())?;
    Ok(fuse_device)
}

fn mount_flags(read_only: bool, kernel_options: &[MountOption]) -> MountFlags {
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID;
    flags.set(MountFlags::RDONLY, read_only);
    for option in kernel_options {
        match option {
            MountOption::Suid => flags.remove(MountFlags::NOSUID),
            MountOption::NoExec => flags.insert(MountFlags::NOEXEC),
            MountOption::NoAtime => flags.insert(MountFlags::NOATIME),
            MountOption::Sync => flags.insert(MountFlags::SYNCHRONOUS),
            MountOption::DirSync => flags.insert(MountFlags::DIRSYNC),
            _ => {}
        }
    }
    flags
}

/// Changes what the kernel allows on a mount that stands. What was mounted read-only at first
/// stays so: the kernel then lets writes through, and the volume refuses them with `EROFS`.
pub fn remount(
    directory: &Path,
    read_only: bool,
    kernel_options: &[MountOption],
) -> io::Result<()> {
    // FUSE ignores further data at a remount, so only flags are given.
    let flags = mount_flags(read_only, kernel_options);
    Ok(rustix::mount::mount_remount(directory, flags, c"")?)
}
