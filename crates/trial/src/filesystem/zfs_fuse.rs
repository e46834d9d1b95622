//! zfs-fuse: a file system in user space, with a daemon of its own for every trial.
//!
//! The daemon keeps its socket, its lock and its list of pools at fixed places, and reads its
//! settings from another. So that neither the host's files nor a daemon of the host are touched,
//! it runs in a mount namespace of its own, nested in the trial's, in which those places are
//! empty. Only the mount point is shared between the two: what the daemon mounts there appears in
//! the trial. Its tools are run inside that namespace; the record has their command lines as one
//! would type them.
//!
//! The settings that the machine has in `/etc/zfs/zfsrc` are copied into that namespace, since
//! they are what a user of the package gets.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::process::{Pid, Signal};
use trust::mounts;

use super::kernel::{
    BUSY_INTERVAL, BUSY_WAIT_MAX, drop_caches, make_mount_point, users_text, words,
};
use super::{FileSystem, Instance, Kind, Stage, Tool};
use crate::ledger::random_name;
use crate::sys::process_clock::cpu_time_ns;
use crate::tool::{Failure, ToolOutput, Toolbox, command_for};

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
    // zpool refuses a device below 64 MiB.
    size_bytes_min: 64 << 20,
    counts_write_bytes: false,
    ..FileSystem::new(
        "zfs-fuse",
        "copy on write in user space (package zfs-fuse, pool version 23), a daemon for each trial",
        Kind::Own(begin),
    )
};

const fn tool(name: &'static str, package: &'static str) -> Tool {
    Tool { name, package, version: None }
}

fn begin(stage: Stage) -> Box<dyn Instance> {
    let pool = random_name();
    Box::new(ZfsFuseInstance { stage, pool, daemon: None, imported: false, shared_point: false })
}

struct ZfsFuseInstance {
    stage: Stage,
    pool: String,
    daemon: Option<Daemon>,
    /// Whether the daemon has the pool open.
    imported: bool,
    /// Whether the mount point was made a mount of its own, shared with the daemon's namespace.
    shared_point: bool,
}

impl Instance for ZfsFuseInstance {
    fn make(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        self.share_mount_point()?;
        self.start_daemon(tools)?;
        // Mounted by the mount phase and not before.
        let mut words = words(&["zpool", "create", "-f", "-m", "none", "-O", "canmount=noauto"]);
        words.extend(self.stage.mkfs_options.iter().cloned());
        words.extend([self.pool.clone(), self.stage.node_text()]);
        self.expect(&words, "mkfs failed", tools)?;
        self.imported = true;
        let point = format!("mountpoint={}", self.stage.mount_point().display());
        self.expect(&["zfs", "set", &point, &self.pool], "mkfs failed", tools)
    }

    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, Failure> {
        let mut text = String::new();
        for words in [["zpool", "get", "all"], ["zfs", "get", "all"]] {
            let words = self.inside(&[&words, &[self.pool.as_str()][..]].concat())?;
            text.push_str(&tools.look(&words, "the geometry cannot be read")?);
        }
        let settings = fs::read_to_string(HOST_SETTINGS).unwrap_or_default();
        let in_force = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
        for line in settings.lines().filter(in_force) {
            text.push_str(&format!("zfsrc: {line}\n"));
        }
        Ok(text)
    }

    fn mount(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        let mut words = words(&["zfs", "mount"]);
        words.extend(self.stage.mount_words(&[]));
        words.push(self.pool.clone());
        self.expect(&words, "mount failed", tools)
    }

    fn directory(&self) -> PathBuf {
        self.stage.mount_point()
    }

    /// The daemon has a cache in its own memory, which only letting go of the pool empties.
    fn cool(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        self.unmount(tools)?;
        drop_caches(tools)?;
        let devices = self.device_directory()?;
        let mut words = words(&["zpool", "import"]);
        words.extend(self.stage.mount_words(&[]));
        words.extend(["-d".into(), devices, self.pool.clone()]);
        self.expect(&words, "import failed", tools)?;
        self.imported = true;
        // This version mounts what it imports, whatever `canmount` says; another may not.
        if self.is_mounted() { Ok(()) } else { self.mount(tools) }
    }

    /// FUSE hands syncfs(2) on to no daemon like this one, so it would return at once with
    /// nothing written. Setting a property is done in a transaction group, and returns when that
    /// group, with everything written before, is on the device and the device was flushed.
    fn sync(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        self.expect(&["zfs", "set", SYNC_PROPERTY, &self.pool], "sync failed", tools)
    }

    fn sync_command(&self) -> Option<Vec<String>> {
        self.inside(&["zfs", "set", SYNC_PROPERTY, &self.pool]).ok()
    }

    fn cool_command(&self) -> Option<Vec<String>> {
        let devices = self.device_directory().ok()?;
        let options = self.stage.mount_options.join(",");
        self.inside(&["sh", "-c", COOL_SCRIPT, &self.pool, &devices, &options]).ok()
    }

    fn unmount(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
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
    fn check(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        let devices = self.device_directory()?;
        let words = ["zdb", "-e", "-p", &devices, "-c", &self.pool];
        self.expect(&words, "the check found damage or could not be carried out", tools)
    }

    fn daemon_cpu_ns(&self) -> Option<u64> {
        cpu_time_ns(self.daemon.as_ref()?.pid()).ok()
    }

    fn end(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        let mut result = Ok(());
        if self.imported && self.daemon.as_mut().is_some_and(Daemon::runs) {
            result = self.unmount(tools).or_else(|failure| {
                // It may never have been mounted; then only the pool is open.
                let output = self.run(&["zpool", "export", "-f", &self.pool], tools)?;
                if output.code == 0 { Ok(()) } else { Err(failure) }
            });
        }
        self.imported = false;
        self.end_daemon();
        let _ = fs::remove_dir_all(self.files());
        result
    }
}

impl Drop for ZfsFuseInstance {
    fn drop(&mut self) {
        self.end_daemon();
    }
}

/// Set for the transaction group in which that is done, whatever the value was before.
const SYNC_PROPERTY: &str = "kurabe:sync=on";

/// What [`ZfsFuseInstance::cool`] does, for a load. `$0` is the pool, `$1` the directory with its
/// device, `$2` the mount options. An unmount right after the last use may still find it busy.
const COOL_SCRIPT: &str = "set -e
tries=1000
until said=$(zfs unmount \"$0\" 2>&1); do
    tries=$((tries - 1))
    if test $tries = 0; then echo \"$said\" >&2; exit 1; fi
    sleep 0.01
done
zpool export \"$0\"
echo 3 > /proc/sys/vm/drop_caches
zpool import ${2:+-o \"$2\"} -d \"$1\" \"$0\"
zfs mount \"$0\" 2> /dev/null || test \"$(zfs get -H -o value mounted \"$0\")\" = yes";

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

impl ZfsFuseInstance {
    /// Makes the mount point a mount of its own that is shared with the namespaces nested in this
    /// one, so that what the daemon mounts on it appears here, and nothing else does.
    fn share_mount_point(&mut self) -> Result<(), Failure> {
        let point = self.stage.mount_point();
        make_mount_point(&point)?;
        let failed = |error: rustix::io::Errno| {
            Failure::of(format!("sharing the mount point {}: {error}", point.display()))
        };
        rustix::mount::mount_bind(&point, &point).map_err(failed)?;
        self.shared_point = true;
        // Private first: it may have come from a group that reaches beyond this namespace.
        rustix::mount::mount_change(&point, MountPropagationFlags::PRIVATE).map_err(failed)?;
        rustix::mount::mount_change(&point, MountPropagationFlags::SHARED).map_err(failed)
    }

    fn start_daemon(&mut self, tools: &mut Toolbox) -> Result<(), Failure> {
        let files = self.files();
        let settings = files.join("zfsrc");
        let log = files.join("log");
        let failed = |error: io::Error| Failure::of(format!("starting zfs-fuse: {error}"));
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
                return Err(Failure::Failed {
                    message: "zfs-fuse ended before it answered".into(),
                    output: text(),
                });
            }
            // Answered only once the shell has become the daemon.
            if tools.run_unlogged(&self.inside(&["zpool", "list"])?)?.code == 0 {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(Failure::Failed {
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
        last.is_some_and(|mount| mount.file_system.starts_with("fuse"))
    }

    /// Where this pool's daemon has its files: another trial's may still lie in the scratch
    /// directory.
    fn files(&self) -> PathBuf {
        self.stage.scratch.room().join(&self.pool)
    }

    /// A directory that holds nothing but a link to the device, for the tools that look for pools
    /// in whole directories.
    fn device_directory(&self) -> Result<String, Failure> {
        let directory = self.files().join("devices");
        let link = directory.join(self.stage.node.file_name().unwrap_or_default());
        let made = fs::create_dir_all(&directory).and_then(|()| match link.is_symlink() {
            true => Ok(()),
            false => symlink(&self.stage.node, &link),
        });
        made.map_err(|error| Failure::of(format!("{}: {error}", link.display())))?;
        Ok(directory.display().to_string())
    }

    /// The words that run a tool in the daemon's namespace.
    fn inside<W: AsRef<str>>(&self, line: &[W]) -> Result<Vec<String>, Failure> {
        let daemon = self.daemon.as_ref().ok_or_else(|| Failure::of("zfs-fuse does not run"))?;
        let pid = daemon.pid().as_raw_nonzero().to_string();
        let mut words = words(&["nsenter", "--target", &pid, "--mount", "--"]);
        words.extend(line.iter().map(|word| word.as_ref().to_string()));
        Ok(words)
    }

    fn run<W: AsRef<str>>(&self, words: &[W], tools: &mut Toolbox) -> Result<ToolOutput, Failure> {
        tools.log_command(words);
        tools.run_unlogged(&self.inside(words)?)
    }

    fn expect<W: AsRef<str>>(
        &self,
        words: &[W],
        what: &str,
        tools: &mut Toolbox,
    ) -> Result<(), Failure> {
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
