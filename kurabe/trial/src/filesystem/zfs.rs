//! ZFS: OpenZFS in the kernel, and zfs-fuse, a file system in user space with a daemon of its own for
//! every trial. Their pools are handled alike.
//!
//! zfs-fuse: the daemon keeps its socket, its lock and its list of pools at fixed places, and reads its
//! settings from another. So that neither the host's files nor a daemon of the host are touched,
//! it runs in a mount namespace of its own, nested in the trial's, in which those places are
//! empty. Only the mount point is shared between the two: what the daemon mounts there appears in
//! the trial. Its tools are run inside that namespace; the record has their command lines as one
//! would type them.
//!
//! The settings that the machine has in `/etc/zfs/zfsrc` are copied into that namespace, since
//! they are what a user of the package gets.
//!
//! OpenZFS partitions whatever it takes for a whole disk and waits for udev, which no guest has. So it
//! gets the device by a node of the trial's own, of whose kind it knows nothing.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use guest::{BuildSite, Error, LIBRARIES, Recipe};
use rustix::fs::{FileType, Mode};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::process::{Pid, Signal};
use trust::mounts;

use super::kernel::{
    BUSY_INTERVAL, BUSY_WAIT_MAX, drop_caches, make_mount_point, users_text, words,
};
use super::{FileSystem, FileSystemKind, Instance, InstanceContext, LayerTool};
use crate::ledger::random_name;
use crate::sys::process_clock::cpu_time_ns;
use crate::tool::{StepFailure, ToolOutput, Toolbox, command_for, failed};

/// Short options of `zpool create`.
const MKFS_FLAGS: &str = "dfn";
const MKFS_PATHS: &str = "R";

/// zfs-fuse. The tools have no versions of their own: those of their packages count.
pub static ZFS_FUSE: FileSystem = FileSystem {
    tools: &[
        tool("zfs-fuse", "zfs-fuse"),
        tool("zpool", "zfs-fuse"),
        tool("zfs", "zfs-fuse"),
        tool("zdb", "zfs-fuse"),
        tool("unshare", "util-linux"),
        tool("nsenter", "util-linux"),
    ],
    kernel_name: Some("fuse"),
    modules: &["fuse"],
    takes_turns: true,
    // zpool refuses a device below 64 MiB.
    size_bytes_min: 64 << 20,
    counts_write_bytes: false,
    mkfs_flags: MKFS_FLAGS,
    mkfs_paths: MKFS_PATHS,
    ..FileSystem::new(
        "zfs-fuse",
        "copy on write in user space (package zfs-fuse, pool version 23), a daemon for each run",
        FileSystemKind::Own(|stage| begin(stage, false)),
    )
};

/// OpenZFS. Its cache is not the page cache.
pub static ZFS: FileSystem = FileSystem {
    tools: &[
        tool("zpool", "zfsutils-linux"),
        tool("zfs", "zfsutils-linux"),
        tool("zdb", "zfsutils-linux"),
    ],
    kernel_name: Some("zfs"),
    recipe: Some(&RECIPE),
    guests_only: Some(
        "a pool of the kernel outlives a run that is killed, so OpenZFS is compared in guests",
    ),
    size_bytes_min: 64 << 20,
    mkfs_flags: MKFS_FLAGS,
    mkfs_paths: MKFS_PATHS,
    ..FileSystem::new(
        "zfs",
        "copy on write, OpenZFS in the kernel of a guest, by zfs-dkms; in guests only",
        FileSystemKind::Own(|stage| begin(stage, true)),
    )
};

const fn tool(name: &'static str, package: &'static str) -> LayerTool {
    LayerTool { name, package, version: None }
}

fn begin(stage: InstanceContext, in_kernel: bool) -> Box<dyn Instance> {
    Box::new(ZfsInstance {
        stage,
        pool: random_name(),
        in_kernel,
        daemon: None,
        imported: false,
        shared_point: false,
    })
}

/// Where a guest has the tools of OpenZFS: zfs-fuse's have the same names.
const ZFS_TOOLS: &str = "/usr/lib/openzfs";

/// OpenZFS as Debian has it, in its component contrib for the licence's sake: the source of its DKMS
/// package, and its tools.
static RECIPE: Recipe = Recipe::of_packages("zfs", build);

fn build(site: &mut BuildSite<'_>) -> Result<(), Error> {
    let (own, common) = site.headers()?;
    let contrib = site.component("contrib")?;
    site.add("zfs-dkms", None, &contrib)?;
    let tools = site.add("zfsutils-linux", None, &contrib)?;
    let is_library = |name: &str| name.starts_with("lib") && name.ends_with("linux");
    for one in site.dependencies(&tools)?.iter().filter(|one| is_library(&one.name)) {
        site.add(&one.name, one.version.as_deref(), &contrib)?;
    }
    let sources = site.root().join("usr/src");
    let source = site.names(&sources).into_iter().find(|name| name.starts_with("zfs-"));
    let source = sources.join(source.unwrap_or_default());
    // As its dkms.conf has it.
    let (common, own) = (common.display(), own.display());
    let (linux, objects) = (format!("--with-linux={common}"), format!("--with-linux-obj={own}"));
    let configure =
        ["sh", "./configure", "--prefix=/usr", "--with-config=kernel", &linux, &objects];
    site.run(&configure, &source)?;
    site.make(&[], &source)?;
    site.take_modules(&source.join("module"))?;
    for directory in ["sbin", "usr/sbin"] {
        for name in ["zpool", "zfs", "zdb"] {
            let path = site.root().join(directory).join(name);
            if path.exists() {
                site.take(&path, ZFS_TOOLS)?;
            }
        }
    }
    for directory in ["lib/x86_64-linux-gnu", LIBRARIES] {
        let directory = site.root().join(directory);
        // The name by which programs ask for one is a link.
        for name in site.names(&directory) {
            let path = directory.join(name);
            if path.is_symlink() && path.is_file() {
                site.take(&path, LIBRARIES)?;
            }
        }
    }
    Ok(())
}

struct ZfsInstance {
    stage: InstanceContext,
    pool: String,
    /// Whether it is OpenZFS, and no daemon.
    in_kernel: bool,
    daemon: Option<Daemon>,
    /// Whether the daemon has the pool open.
    imported: bool,
    /// Whether the mount point was made a mount of its own, shared with the daemon's namespace.
    shared_point: bool,
}

impl Instance for ZfsInstance {
    fn make(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        // Mounted by the mount phase and not before.
        let mut words = words(&["zpool", "create", "-f", "-m", "none", "-O", "canmount=noauto"]);
        let node = if self.in_kernel {
            make_mount_point(&self.stage.mount_point())?;
            words.extend(["-o".into(), NO_CACHE_FILE.into()]);
            self.device_directory()?.1
        } else {
            self.share_mount_point()?;
            self.start_daemon(tools)?;
            self.stage.node_text()
        };
        words.extend(self.stage.mkfs_options.iter().cloned());
        words.extend([self.pool.clone(), node]);
        self.expect(&words, "mkfs failed", tools)?;
        self.imported = true;
        let point = format!("mountpoint={}", self.stage.mount_point().display());
        self.expect(&["zfs", "set", &point, &self.pool], "mkfs failed", tools)
    }

    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, StepFailure> {
        let mut text = if self.in_kernel {
            tools.look(&self.inside(&["zfs", "version"])?, "it tells no version")?
        } else {
            String::new()
        };
        for words in [["zpool", "get", "all"], ["zfs", "get", "all"]] {
            let words = self.inside(&[&words, &[self.pool.as_str()][..]].concat())?;
            text.push_str(&tools.look(&words, "the geometry cannot be read")?);
        }
        if self.in_kernel {
            return Ok(text);
        }
        let settings = fs::read_to_string(HOST_SETTINGS).unwrap_or_default();
        let in_force = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
        for line in settings.lines().filter(in_force) {
            text.push_str(&format!("zfsrc: {line}\n"));
        }
        Ok(text)
    }

    fn mount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let mut words = words(&["zfs", "mount"]);
        words.extend(self.stage.mount_words(&[]));
        words.push(self.pool.clone());
        self.expect(&words, "mount failed", tools)
    }

    fn directory(&self) -> PathBuf {
        self.stage.mount_point()
    }

    /// It has a cache of its own, which only letting go of the pool empties.
    fn cool(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.unmount(tools)?;
        drop_caches(tools)?;
        self.open_again(tools)
    }

    /// The daemon's cache goes with the pool, the kernel's with the mount and the device's last user.
    fn cool_alone(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.unmount(tools)?;
        self.open_again(tools)
    }

    /// FUSE hands syncfs(2) on to no daemon like this one, so it would return at once with
    /// nothing written. Setting a property is done in a transaction group, and returns when that
    /// group, with everything written before, is on the device and the device was flushed. In OpenZFS
    /// syncfs(2) writes what was written to a log only, and the rest would be missing in the cost.
    fn sync(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.expect(&self.sync_words(), "sync failed", tools)
    }

    fn sync_command(&self) -> Option<Vec<String>> {
        self.inside(&self.sync_words()).ok()
    }

    fn cool_command(&self) -> Option<Vec<String>> {
        let (devices, _) = self.device_directory().ok()?;
        let import = shlex::try_join(self.import_words().iter().map(String::as_str)).ok()?;
        let mount = shlex::try_join(self.stage.mount_words(&[]).iter().map(String::as_str)).ok()?;
        let path = format!("PATH={ZFS_TOOLS}:$PATH\n");
        let script = if self.in_kernel { path + COOL_SCRIPT } else { COOL_SCRIPT.into() };
        let script = script.replace("IMPORT_OPTIONS", &import).replace("MOUNT_OPTIONS", &mount);
        self.inside(&["sh", "-c", &script, &self.pool, &devices]).ok()
    }

    fn unmount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let point = self.stage.mount_point();
        let until = Instant::now() + BUSY_WAIT_MAX;
        loop {
            let output = self.run(&["zfs", "unmount", &self.pool], tools)?;
            if output.code == 0 {
                break;
            }
            if !output.stderr.contains("busy") {
                return Err(output.failure("unmount failed"));
            }
            if Instant::now() >= until {
                return Err(output.failure(&format!(
                    "unmount failed: {} is still busy after {} s{}",
                    point.display(),
                    BUSY_WAIT_MAX.as_secs(),
                    users_text(&point, tools)
                )));
            }
            tools.pause(BUSY_INTERVAL)?;
        }
        self.expect(&["zpool", "export", &self.pool], "export failed", tools)?;
        self.imported = false;
        Ok(())
    }

    /// zdb opens the exported pool for reading only. It verifies the checksums of all metadata and
    /// that every block is accounted for, as the other checks do; data is left out, as with them.
    fn check(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let (devices, _) = self.device_directory()?;
        let words = ["zdb", "-e", "-p", &devices, "-c", &self.pool];
        self.expect(&words, "the check found damage or could not be carried out", tools)
    }

    fn daemon_cpu_ns(&self) -> Option<u64> {
        cpu_time_ns(self.daemon.as_ref()?.pid()).ok()
    }

    fn end(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let mut result = Ok(());
        if self.imported && (self.in_kernel || self.daemon.as_mut().is_some_and(Daemon::runs)) {
            result = self.unmount(tools).or_else(|failure| {
                // It may never have been mounted; then only the pool is open.
                let output = self.run(&["zpool", "export", "-f", &self.pool], tools)?;
                if output.code == 0 { Ok(()) } else { Err(failure) }
            });
        }
        self.imported = false;
        self.end_daemon();
        let _ = trust::tree::remove(&self.files());
        result
    }
}

impl Drop for ZfsInstance {
    fn drop(&mut self) {
        self.end_daemon();
    }
}

/// Set for the transaction group in which that is done, whatever the value was before.
const SYNC_PROPERTY: &str = "kurabe:sync=on";

/// Keeps a pool out of the list of those that the machine opens when it starts.
const NO_CACHE_FILE: &str = "cachefile=none";

/// What [`ZfsInstance::cool`] does, for a workload. `$0` is the pool, `$1` the directory with its device.
/// An unmount right after the last use may still find it busy.
const COOL_SCRIPT: &str = "set -e
tries=1000
until said=$(zfs unmount \"$0\" 2>&1); do
    tries=$((tries - 1))
    case \"$said\" in *busy*) ;; *) tries=0 ;; esac
    if test $tries = 0; then echo \"$said\" >&2; exit 1; fi
    sleep 0.01
done
zpool export \"$0\"
zpool import IMPORT_OPTIONS -d \"$1\" \"$0\"
zfs mount MOUNT_OPTIONS \"$0\" 2> /dev/null || test \"$(zfs get -H -o value mounted \"$0\")\" = yes";

/// The settings of the package.
const HOST_SETTINGS: &str = "/etc/zfs/zfsrc";

/// Empties the places that the daemon keeps things at and becomes the daemon. `$0` is a file with
/// the settings. /run has the socket and, as /var/run and /var/lock, is a link on most machines;
/// where they are not, they are covered on their own.
const DAEMON_SCRIPT: &str = "set -e
mount -t tmpfs -o size=4m tmpfs /run
for place in /var/run /var/lib/zfs /etc/zfs; do
    if test -d \"$place\" && ! test -L \"$place\"; then
        mount -t tmpfs -o size=4m tmpfs \"$place\"
    fi
done
mkdir -p /run/zfs /run/lock /var/run/zfs
if ! test -L /var/lock; then mount -t tmpfs -o size=4m tmpfs /var/lock; fi
mkdir -p /var/lock/zfs
if test -d /etc/zfs; then cp \"$0\" /etc/zfs/zfsrc; fi
exec zfs-fuse --no-daemon --no-kstat-mount";

/// How long the daemon may take to answer.
const START_MAX: Duration = Duration::from_secs(20);
const START_INTERVAL: Duration = Duration::from_millis(10);

impl ZfsInstance {
    fn sync_words(&self) -> Vec<String> {
        let words: &[&str] = if self.in_kernel {
            &["zpool", "sync", &self.pool]
        } else {
            &["zfs", "set", SYNC_PROPERTY, &self.pool]
        };
        words.iter().map(ToString::to_string).collect()
    }

    /// Opens the exported pool and mounts it.
    fn open_again(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let (devices, _) = self.device_directory()?;
        let mut words = words(&["zpool", "import"]);
        words.extend(self.import_words());
        words.extend(["-d".into(), devices, self.pool.clone()]);
        self.expect(&words, "import failed", tools)?;
        self.imported = true;
        // zfs-fuse mounts what it imports, whatever `canmount` says; OpenZFS does not.
        if self.is_mounted() { Ok(()) } else { self.mount(tools) }
    }

    /// The options with which a pool is opened again.
    fn import_words(&self) -> Vec<String> {
        if self.in_kernel {
            vec!["-N".into(), "-o".into(), NO_CACHE_FILE.into()]
        } else {
            self.stage.mount_words(&[])
        }
    }

    /// Makes the mount point a mount of its own that is shared with the namespaces nested in this
    /// one, so that what the daemon mounts on it appears here, and nothing else does.
    fn share_mount_point(&mut self) -> Result<(), StepFailure> {
        let point = self.stage.mount_point();
        make_mount_point(&point)?;
        let failed = |error: rustix::io::Errno| {
            StepFailure::of(format!("sharing the mount point {}: {error}", point.display()))
        };
        rustix::mount::mount_bind(&point, &point).map_err(failed)?;
        self.shared_point = true;
        // Private first: it may have come from a group that reaches beyond this namespace.
        rustix::mount::mount_change(&point, MountPropagationFlags::PRIVATE).map_err(failed)?;
        rustix::mount::mount_change(&point, MountPropagationFlags::SHARED).map_err(failed)
    }

    fn start_daemon(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let files = self.files();
        let settings = files.join("zfsrc");
        let log = files.join("log");
        let failed = |error: io::Error| StepFailure::of(format!("starting zfs-fuse: {error}"));
        fs::create_dir_all(&files).map_err(failed)?;
        fs::write(&settings, fs::read(HOST_SETTINGS).unwrap_or_default()).map_err(failed)?;
        let output = File::create(&log).map_err(failed)?;
        let settings = settings.display().to_string();
        tools.log_command(&["zfs-fuse", "--no-daemon", "--no-kstat-mount"]);
        let words = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", DAEMON_SCRIPT];
        let words: Vec<&str> = words.into_iter().chain([settings.as_str()]).collect();
        let child = command_for(&words)?
            .stdout(Stdio::from(output.try_clone().map_err(failed)?))
            .stderr(Stdio::from(output))
            .spawn()
            .map_err(failed)?;
        self.daemon = Some(Daemon { child });
        let until = Instant::now() + START_MAX;
        loop {
            let text = || fs::read_to_string(&log).unwrap_or_default();
            if !self.daemon.as_mut().is_some_and(Daemon::runs) {
                return Err(StepFailure::Failed {
                    message: "zfs-fuse ended before it answered".into(),
                    output: text(),
                });
            }
            // Answered only once the shell has become the daemon.
            if tools.run_unlogged(&self.inside(&["zpool", "list"])?)?.code == 0 {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(StepFailure::Failed {
                    message: format!("zfs-fuse did not answer in {} s", START_MAX.as_secs()),
                    output: text(),
                });
            }
            tools.pause(START_INTERVAL)?;
        }
    }

    /// With no pool open there is nothing that the daemon could lose; asked nicely it would take three
    /// seconds to end its threads.
    fn end_daemon(&mut self) {
        drop(self.daemon.take());
        if std::mem::take(&mut self.shared_point) {
            let point = self.stage.mount_point();
            // A daemon that died leaves a dead mount above ours.
            while rustix::mount::unmount(&point, UnmountFlags::DETACH).is_ok() {}
        }
    }

    fn is_mounted(&self) -> bool {
        let point = self.stage.mount_point();
        let mounts = mounts::mounts().unwrap_or_default();
        let last = mounts.iter().rev().find(|mount| mount.point == point);
        let name = if self.in_kernel { "zfs" } else { "fuse" };
        last.is_some_and(|mount| mount.file_system.starts_with(name))
    }

    /// Where this pool's daemon has its files: another trial's may still lie in the scratch
    /// directory.
    fn files(&self) -> PathBuf {
        self.stage.scratch.work().join(&self.pool)
    }

    /// A directory that holds nothing but the device, for the tools that look for pools in whole
    /// directories; and the device there.
    fn device_directory(&self) -> Result<(String, String), StepFailure> {
        let directory = self.files().join("devices");
        let node = self.stage.node().path();
        let shown = |path: &Path| path.display().to_string();
        let device = if self.in_kernel {
            directory.join("disk")
        } else {
            directory.join(node.file_name().unwrap_or_default())
        };
        let make = || {
            if self.in_kernel {
                let number = fs::metadata(node)?.rdev();
                let (kind, mode) = (FileType::BlockDevice, Mode::RUSR | Mode::WUSR);
                rustix::fs::mknodat(rustix::fs::CWD, &device, kind, mode, number)
                    .map_err(io::Error::from)
            } else {
                symlink(node, &device)
            }
        };
        let made = fs::create_dir_all(&directory)
            .and_then(|()| if fs::symlink_metadata(&device).is_ok() { Ok(()) } else { make() });
        made.map_err(failed(device.display()))?;
        Ok((shown(&directory), shown(&device)))
    }

    /// The words that run a tool: in the daemon's namespace, or out of a guest's directory of OpenZFS.
    fn inside<W: AsRef<str>>(&self, line: &[W]) -> Result<Vec<String>, StepFailure> {
        if self.in_kernel {
            let mut words: Vec<String> = line.iter().map(|word| word.as_ref().into()).collect();
            let own = Path::new(ZFS_TOOLS).join(&words[0]);
            if own.exists() {
                words[0] = own.display().to_string();
            }
            return Ok(words);
        }
        let daemon =
            self.daemon.as_ref().ok_or_else(|| StepFailure::of("zfs-fuse does not run"))?;
        let pid = daemon.pid().as_raw_nonzero().to_string();
        let mut words = words(&["nsenter", "--target", &pid, "--mount", "--root", "--"]);
        words.extend(line.iter().map(|word| word.as_ref().to_string()));
        Ok(words)
    }

    fn run<W: AsRef<str>>(
        &self,
        words: &[W],
        tools: &mut Toolbox,
    ) -> Result<ToolOutput, StepFailure> {
        tools.log_command(words);
        tools.run_unlogged(&self.inside(words)?)
    }

    fn expect<W: AsRef<str>>(
        &self,
        words: &[W],
        what: &str,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        let output = self.run(words, tools)?;
        if output.code == 0 { Ok(()) } else { Err(output.failure(what)) }
    }
}

/// The running daemon, killed when dropped.
struct Daemon {
    child: Child,
}

impl Daemon {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32).expect("a child's number is positive")
    }

    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_two_trials_have_different_names_that_libblkid_shows_as_ours() {
        let (one, other) = (random_name(), random_name());
        assert_ne!(one, other);
        assert!(one.starts_with("kurabe"));
        assert!(!one.contains('/'));
    }
}
