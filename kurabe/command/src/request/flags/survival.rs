//! Commands about what survives a power failure, and what nodes see of each other.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::super::workload_flags::{some, whole};

const CRASH_EXAMPLES: &str = "\
Each line on the workload's standard output, or 'kurabe ack WORDS' from anywhere in it, acknowledges
that something is durable. The check gets two arguments, the mounted directory and a file with the
acknowledgements so far, and exits with 0 (ok), 1 (lost), 2 (corrupt) or 3 (unusable).

Exit codes: 0 all held, 3 one is violated, 4 one is inconclusive, 1 one could not be tested.

Examples:
  sudo kurabe crash ext4 'nb: ext4 @ nobarrier' xfs --check ./check.sh -- ./my-database-load
  sudo kurabe crash 'ocfs2 on 2 debian' --kill-node --check ./check.sh -- ./workload.sh
  sudo kurabe crash --replay kurabe-results/crash-20260101-120000:1";

/// `kurabe crash`.
#[derive(Debug, Args)]
#[command(after_help = CRASH_EXAMPLES)]
pub struct CrashArgs {
    /// Contenders: [LABEL: ][LAYER over] FS [MKFS OPTIONS] [@ MOUNT OPTIONS] [over LAYER], one argument each.
    #[arg(value_name = "CONTENDER", required_unless_present = "replay")]
    pub contenders: Vec<String>,
    /// The workload, run once in the mounted directory. A single argument with spaces is a line for the shell.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Command that checks whether what was acknowledged is there. It runs in the current directory.
    #[arg(long, value_name = "CMD")]
    pub check: Option<String>,
    /// Run CMD in the mounted directory before the workload. The power is not cut during it.
    #[arg(short, long, value_name = "CMD")]
    pub setup: Option<String>,
    /// Disk states to try for each contender; the self-test tries a quarter of that.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = some::<usize>)]
    pub states: usize,
    /// Size of the device, such as 512M (mem:512M and loop:512M mean the same). The disk that loses power is always in memory.
    /// In a guest several, with commas.
    #[arg(long, visible_alias = "size", value_name = "DEVICE", default_value = "mem:512M")]
    pub device: String,
    /// Seed for choosing the states. [default: random, recorded]
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Time limit for the workload.
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub timeout: String,
    /// Time limit for one check.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub check_timeout: String,
    /// Run the checks of several states at the same time. Only for a check that uses no fixed port and writes to no
    /// file outside the mounted directory.
    #[arg(long)]
    pub parallel_checks: bool,
    /// Where contenders run that do not say so themselves: a guest, such as debian, for block layers of the
    /// kernel (docs/where.md). [default: this machine]
    #[arg(long, value_name = "PLACE", conflicts_with = "replay")]
    pub on: Option<String>,
    /// Also lose one member of an array with the power, another one in other states, or the cache of bcache or
    /// writecache: the lowest layer that can be opened without it is.
    #[arg(long, conflicts_with_all = ["replay", "shards"])]
    pub lose_member: bool,
    /// Kill one of several nodes ('ocfs2 on 2 debian') while the workload runs on all of them, and ask the others what
    /// is left: the last node, or --kill-node=NODE. All nodes work in one directory; KURABE_NODE tells which it is.
    #[arg(long, value_name = "NODE", num_args = 0..=1, require_equals = true, default_missing_value = "last", conflicts_with_all = ["replay", "shards", "lose_member", "states", "parallel_checks"])]
    pub kill_node: Option<String>,
    /// When a node is killed: half of TIME to one and a half after the run has begun.
    #[arg(long, value_name = "TIME", default_value = "5s", requires = "kill_node")]
    pub kill_after: String,
    /// Deaths to try for each contender, each on new guests.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = some::<u32>, requires = "kill_node")]
    pub deaths: u32,
    /// Record only, and divide the states among N shards, which several machines try, each as 'kurabe run
    /// SHARD'; 'kurabe merge' joins them.
    #[arg(long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true, conflicts_with = "replay")]
    pub shards: Option<u32>,
    /// Result directory. [default: kurabe-results/crash-TIME]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Try one failing state of an earlier result again, and keep its disk.
    #[arg(long, value_name = "RESULT:CASE", conflicts_with_all = ["contenders", "command", "check"])]
    pub replay: Option<String>,
}

const COHERENCE_EXAMPLES: &str = "\
One node changes a file and tells another one, which looks: 15 kinds of question in turn. The control, NFS
with 'nocto,actimeo=60', must be caught (docs/reference/coherence.md).

Exit codes: 0 all held, 3 one is violated, 4 one is inconclusive, 1 one could not be tested.

Example:
  sudo kurabe coherence 'gfs2 on 2 debian' 'nfs over ext4 on 2 debian'";

/// `kurabe coherence`.
#[derive(Debug, Args)]
#[command(after_help = COHERENCE_EXAMPLES)]
pub struct CoherenceArgs {
    /// Contenders on several nodes: [LABEL: ][nfs over] FS [MKFS OPTIONS] [@ MOUNT OPTIONS] on N GUEST, one argument each.
    #[arg(value_name = "CONTENDER", required = true)]
    pub contenders: Vec<String>,
    /// Questions for each contender, of every kind in turn.
    #[arg(long, value_name = "N", default_value_t = 1200, value_parser = some::<u32>)]
    pub questions: u32,
    /// The nodes' common disk, such as mem:512M or loop:1G.
    #[arg(short, long, value_name = "DEVICE", default_value = "mem:512M")]
    pub device: String,
    /// Seed for the order of contenders. [default: random, recorded]
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Result directory. [default: kurabe-results/coherence-TIME]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// `kurabe promises`.
#[derive(Debug, Args)]
pub struct PromisesArgs {
    /// Contenders: [LABEL: ][LAYER over] FS [MKFS OPTIONS] [@ MOUNT OPTIONS] [over LAYER], one argument each.
    #[arg(value_name = "CONTENDER", required = true)]
    pub contenders: Vec<String>,
    /// Try only this program, by its name in the table. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Disk states to try for each program; the self-test tries a quarter of that.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = some::<usize>)]
    pub states: usize,
    /// Size of the device, such as 320M (mem:320M and loop:320M mean the same). The disk that loses power is always in memory.
    #[arg(long, visible_alias = "size", value_name = "DEVICE", default_value = "mem:320M")]
    pub device: String,
    /// Seed for choosing the states. [default: random]
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: Option<u64>,
}

/// `kurabe promise`: a program in the directory where it is started, or its check.
#[derive(Debug, Args)]
pub struct PromiseArgs {
    /// Its name.
    pub name: String,
    /// setup, run or check.
    pub part: String,
    /// Of the check: the mounted directory.
    pub directory: Option<PathBuf>,
    /// Of the check: the file of acknowledgements.
    pub acknowledged: Option<PathBuf>,
}

/// `kurabe ack`.
#[derive(Debug, Args)]
pub struct AckArgs {
    /// What is durable, in words that the check understands.
    #[arg(required = true)]
    pub words: Vec<OsString>,
}
