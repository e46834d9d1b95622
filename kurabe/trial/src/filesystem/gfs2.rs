//! GFS2: gfs2-utils, and the kernel's lock manager (dlm).
//!
//! The lock manager is told of its nodes by configfs, as dlm_controld would tell it; without corosync,
//! since kurabe knows of every node when it comes and when it goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use guest::{BuildSite, Error, Recipe};
use lab::spec::NodeSpec;

use super::kernel::{Cluster, KernelFileSystem, Leaving, words};
use super::{FileSystem, InstanceContext, LayerTool};
use crate::locks::LockCalls;
use crate::nodes;
use crate::tool::{StepFailure, Toolbox, failed};

/// GFS2: on one node without locks, on several by the lock manager of the kernel.
pub static GFS2: FileSystem = FileSystem {
    tools: &[LayerTool { name: "mkfs.gfs2", package: "gfs2-utils", version: Some("-V") }],
    // A journal of 32 MiB for each of eight nodes.
    size_bytes_min: 512 << 20,
    modules: &["gfs2", "dlm", "virtio_net"],
    recipe: Some(&RECIPE),
    mkfs_flags: "DhKOqV",
    ..FileSystem::of_kernel(
        "gfs2",
        "a journal for each node and locks on every inode, by Red Hat; one or several nodes",
        KernelFileSystem {
            mkfs: &["mkfs.gfs2", "-q", "-O"],
            mkfs_without_discard: &["-K"],
            complete,
            geometry: &["tunegfs2", "-l"],
            check: &["fsck.gfs2", "-n"],
            repair: &["fsck.gfs2", "-y"],
            check_meaning: |code| match code & 4 {
                4 => "errors were found",
                _ => "it could not be checked",
            },
            cluster: Some(Cluster { join, leaving: Some(LEAVING), left, died, locks: LOCK_CALLS }),
            ..KernelFileSystem::PLAIN
        },
    )
};

/// Without those that it answers from what it holds.
const LOCK_CALLS: LockCalls =
    LockCalls { requests: &["gfs2:gdlm_lock"], revocations: &["gfs2:gdlm_bast"] };

/// The name of the locks of the file system, of which a guest has one.
const LOCKS: &str = "kurabe";
/// A number for them that all nodes agree on.
const LOCKS_NUMBER: &str = "1";

fn complete(options: &mut Vec<String>, stage: &InstanceContext) {
    let own = match &stage.member {
        None => words(&["-p", "lock_nolock", "-j", "1"]),
        Some(member) => {
            let (table, journals) =
                (format!("{}:{LOCKS}", member.cluster), member.nodes.to_string());
            words(&["-p", "lock_dlm", "-t", &table, "-j", &journals])
        }
    };
    let size = if options.iter().any(|word| word == "-J") { &[][..] } else { &["-J", "32"] };
    options.splice(0..0, own.into_iter().chain(words(size)));
}

const CLUSTER: &str = "/sys/kernel/config/dlm/cluster";
/// What is open there keeps the lock manager believing in its daemon.
const MONITOR: &str = "/dev/dlm-monitor";

/// How long a lock space may take to come up once its file system is being mounted.
const LOCKS_WAIT_MAX: Duration = Duration::from_secs(600);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

fn locks(name: &str) -> PathBuf {
    Path::new("/sys/kernel/dlm").join(LOCKS).join(name)
}

fn node(number: u32) -> PathBuf {
    Path::new(CLUSTER).join("spaces").join(LOCKS).join("nodes").join(number.to_string())
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), StepFailure> {
    fs::write(path, bytes).map_err(failed(format_args!("the lock manager: {}", path.display())))
}

fn make(path: &Path) -> Result<(), StepFailure> {
    fs::create_dir_all(path).map_err(failed(format_args!("the lock manager: {}", path.display())))
}

/// A `struct sockaddr_storage` of IPv4.
fn socket_address(address: [u8; 4]) -> [u8; 128] {
    let mut bytes = [0; 128];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&address);
    bytes
}

fn join(_: &InstanceContext, member: &NodeSpec, _: &mut Toolbox) -> Result<(), StepFailure> {
    let cluster = Path::new(CLUSTER);
    make(cluster)?;
    write(&cluster.join("cluster_name"), &member.cluster)?;
    write(&cluster.join("recover_callbacks"), "1")?;
    for number in 1..=member.nodes {
        let way = cluster.join("comms").join(number.to_string());
        make(&way)?;
        write(&way.join("nodeid"), number.to_string())?;
        write(&way.join("addr"), socket_address(nodes::address(number)))?;
        write(&way.join("local"), if number == member.number { "1" } else { "0" })?;
    }
    for number in 1..=member.nodes {
        make(&node(number))?;
        write(&node(number).join("nodeid"), number.to_string())?;
    }
    let monitor =
        fs::File::open(MONITOR).map_err(failed(format_args!("the lock manager: {MONITOR}")))?;
    // Open until this process ends, which is after the unmount.
    std::mem::forget(monitor);
    // mount(8) waits in the kernel until somebody answers for the locks.
    std::thread::spawn(|| {
        let until = Instant::now() + LOCKS_WAIT_MAX;
        while Instant::now() < until {
            if locks("event_done").exists() {
                let start = [("id", LOCKS_NUMBER), ("control", "1"), ("event_done", "0")];
                for (name, value) in start {
                    if let Err(failure) = write(&locks(name), value) {
                        // The mount fails or hangs, and the console says why.
                        eprintln!("{failure}");
                    }
                }
                return;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    });
    Ok(())
}

/// The unmount waits in the kernel until the daemon says that the others know: they answer the end of the
/// connection, for which it would otherwise wait for three minutes.
const LEAVING: Leaving =
    Leaving { says: "leaving the lockspace group", let_go: || write(&locks("event_done"), "0") };

/// Has the locks of a node that left taken over by those that are still there.
fn left(number: u32) -> Result<(), StepFailure> {
    without(&[node(number)])
}

/// The same of one that is dead: that it is no member of the cluster any more tells the kernel to replay its journal.
fn died(number: u32) -> Result<(), StepFailure> {
    without(&[Path::new(CLUSTER).join("comms").join(number.to_string()), node(number)])
}

/// Removes what the lock manager knows of a node, while it gives no locks.
fn without(known: &[PathBuf]) -> Result<(), StepFailure> {
    write(&locks("control"), "0")?;
    for path in known {
        fs::remove_dir(path)
            .map_err(failed(format_args!("the lock manager: {}", path.display())))?;
    }
    write(&locks("control"), "1")
}

/// The tools, whose module the kernel has.
static RECIPE: Recipe = Recipe::of_packages("gfs2", build);

fn build(site: &mut BuildSite<'_>) -> Result<(), Error> {
    site.take_tools("gfs2-utils", &["mkfs.gfs2", "fsck.gfs2", "tunegfs2"])
}
