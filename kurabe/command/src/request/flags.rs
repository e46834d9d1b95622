//! The one definition of the flags: help, man pages and completions are generated from it.
//!
//! This is the low layer: what the user typed, without side effects. [`CompareArgs::study_text`]
//! turns it into the same text that a study file holds, and validation happens there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use lab::study::{CommandText, StudyText, WorkloadText};
use serde::Serialize;

use super::workload_flags::{WorkloadKeys, decimal, some, whole};
use super::{from_here, scan};

mod results;
mod survival;

pub use results::{HistoryArgs, MergeArgs, ReportArgs, ResumeArgs};
pub use survival::{AckArgs, CoherenceArgs, CrashArgs, PromiseArgs, PromisesArgs};

/// Compare file systems under a workload, with confidence intervals.
///
/// In every round, kurabe makes each contender's file system, mounts it, drops the caches, runs the
/// workload in it, syncs, unmounts and checks it. Contenders take part in random order. Costs are
/// relative to the first contender, the baseline: 1.24 means 1.24 times the time.
#[derive(Debug, Parser)]
#[command(name = "kurabe", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = crate::exit::HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
    /// Also trust files, directories and results of this user. May be repeated.
    #[arg(long, global = true, value_name = "USER")]
    pub trust: Vec<String>,
    /// Believe directories that other users can write to.
    #[arg(long, global = true)]
    pub trust_shared: bool,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Compare contenders under a command or another workload.
    Compare(Box<CompareArgs>),
    /// Run a study file or a bundled study.
    Run(Box<RunArgs>),
    /// List the bundled studies, or print the file of one.
    Studies {
        /// The study to print. [default: list all]
        name: Option<String>,
    },
    /// Continue an interrupted study, with the same plan.
    Resume(ResumeArgs),
    /// Divide a study into shards, which several machines run, each as 'kurabe run SHARD'.
    Shard(Box<ShardArgs>),
    /// Join the results of shards: what contenders cost on machines like these.
    Merge(MergeArgs),
    /// Show a result again (tables, HTML page, pictures), or compare several results.
    Report(ReportArgs),
    /// Show the results of one study over time: what changed on the machine, and where the level changed.
    History(HistoryArgs),
    /// Simulate power failures, and check whether what a workload acknowledged is still there.
    Crash(Box<CrashArgs>),
    /// Find out what file systems promise: small programs with simulated power failures.
    Promises(PromisesArgs),
    /// Find out what nodes see of each other's files, and how late.
    Coherence(CoherenceArgs),
    /// Acknowledge, from within a workload of 'kurabe crash', that something is durable.
    Ack(AckArgs),
    /// Age the file system of the current directory, or list the profiles.
    Age(AgeArgs),
    /// Modelled disks: list them, attach one for any program, replay a trace on one.
    #[command(subcommand)]
    Disk(DiskAction),
    /// Show what this machine can do, and what to install for the rest.
    Doctor,
    /// List the file systems that kurabe knows.
    #[command(name = "file-systems")]
    FileSystems,
    /// List the layers that can be above and below a file system.
    Layers,
    /// Remove what a killed kurabe left behind (images, loop devices, directories).
    Clean {
        /// Also remove the images of guests.
        #[arg(long)]
        guests: bool,
        /// Also remove the images of aged file systems.
        #[arg(long)]
        aged: bool,
    },
    /// Build, list, remove and enter guests: virtual machines with other kernels (docs/where.md).
    #[command(subcommand)]
    Guest(GuestAction),
    /// Write the man pages.
    Man {
        /// Directory to write the pages to. [default: print the main page]
        directory: Option<PathBuf>,
    },
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Be the first process of a guest, which runs this program with these words.
    #[command(hide = true)]
    Inside {
        /// The words.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Be one of the programs of 'kurabe promises', or its check.
    #[command(hide = true)]
    Promise(PromiseArgs),
    /// Carry out one part of a workload: a task comes in, a report goes out, as JSON.
    #[command(hide = true)]
    Load,
    /// Read programs into the page cache; print their bytes.
    #[command(hide = true)]
    Warm {
        /// A program, besides those that the words name.
        #[arg(long = "program")]
        programs: Vec<PathBuf>,
        /// A command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Carry trials out for the kurabe of another machine: requests come in, replies go out, as lines of
    /// JSON.
    #[command(hide = true)]
    Remote,
    /// Serve, as a file, layers of a device or the disks of power cuts: what they need comes in.
    #[command(hide = true)]
    Serve {
        /// The file on which it is mounted.
        point: PathBuf,
    },
    /// Carry out one trial: the spec comes in, events and the record go out, as lines of JSON.
    #[command(hide = true)]
    Trial {
        /// Process that must outlive the trial; the trial ends when it does.
        #[arg(long)]
        parent: u32,
        /// Whether the private namespaces are entered already.
        #[arg(long)]
        inside: bool,
    },
}

/// The help of `guest build --with`, which names what can be built.
fn with_help() -> String {
    let recipes = trial::lower::supplies().recipes;
    let names: Vec<&str> = recipes.iter().map(|recipe| recipe.module).collect();
    format!(
        "Also build these modules for its kernel now, instead of when they are first needed: {}",
        names.join(", ")
    )
}

/// `kurabe disk`.
#[derive(Debug, Subcommand)]
pub enum DiskAction {
    /// List the profiles, or the parameters of one with their sources.
    Profiles {
        /// The profile, or FILE.toml. [default: list all]
        name: Option<String>,
    },
    /// Serve a modelled disk as a block device until Ctrl-C or 'kurabe disk detach'; prints its path.
    Attach {
        /// PROFILE[,WORD=VALUE...]:SIZE in memory, or with @DIR in an image there; such as
        /// st1000dm003:8G. FILE.toml is a profile of your own.
        disk: String,
        /// Write every request to FILE when it is detached.
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
    },
    /// End what 'kurabe disk attach' serves.
    Detach {
        /// The path that it printed.
        device: PathBuf,
    },
    /// Replay a trace on another disk, in virtual time: 'the same run on the other disk'.
    Replay {
        /// The trace, of 'kurabe disk attach --trace', or traces/trial-N.trace of a result with --trace.
        trace: PathBuf,
        /// PROFILE[,WORD=VALUE...]; FILE.toml is a profile of your own.
        profile: String,
        /// Write the trace as it would have been on that disk to FILE.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Measure a hard disk, whose contents are destroyed, and write a profile with which the model answers alike. Takes
    /// about two minutes.
    Fit {
        /// The disk.
        device: PathBuf,
        /// Name or serial number of the disk whose contents may be destroyed.
        #[arg(long, value_name = "NAME")]
        destroy: String,
        /// Write the profile to FILE.toml.
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Convert a trace for other programs.
    Export {
        /// The trace.
        trace: PathBuf,
        /// Write a table.
        #[arg(long, value_name = "FILE", required_unless_present = "blktrace")]
        csv: Option<PathBuf>,
        /// Write what blkparse and btt read.
        #[arg(long, value_name = "FILE")]
        blktrace: Option<PathBuf>,
    },
}

/// `kurabe age`.
#[derive(Debug, Args)]
pub struct AgeArgs {
    /// What the file system goes through, such as git:200. [default: list the profiles]
    pub profile: Option<String>,
    /// Size of the device, from which the number of operations follows. [default: of the file system]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Seed of the operations.
    #[arg(long, value_name = "N", default_value_t = workloads::age::SEED)]
    pub seed: u64,
    /// Where the history of a profile with 'copied' takes place. [default: kurabe's own directory]
    #[arg(long, value_name = "DIR")]
    pub elsewhere: Option<PathBuf>,
    /// Print what it comes to, and touch nothing.
    #[arg(long)]
    pub print_plan: bool,
}

/// What to do with guests.
#[derive(Debug, Subcommand)]
pub enum GuestAction {
    /// Build the image of a guest: fetch its kernel, pack this machine's programs.
    Build {
        /// debian (the newest kernel in the package source), linux-VERSION, or the path of a
        /// bzImage or kernel tree.
        guest: String,
        /// Take the kernel's package from this directory instead of fetching it.
        #[arg(long, value_name = "DIR")]
        packages: Option<PathBuf>,
        #[arg(long, value_name = "MODULES", value_delimiter = ',', help = with_help())]
        with: Vec<String>,
    },
    /// List the guests.
    List,
    /// Remove a guest's image.
    Remove {
        /// The guest, as it was named to build it.
        guest: String,
    },
    /// Run a shell in a guest without a disk; 'exit' ends it.
    Shell {
        /// The guest; it is built first if it is missing.
        guest: String,
    },
}

const COMPARE_EXAMPLES: &str = "\
Contenders are written [LABEL: ][LAYER over] FS [MKFS OPTIONS] [@ MOUNT OPTIONS] [over LAYER] [aged PROFILE]
[on ENVIRONMENT];
`kurabe file-systems` lists FS, `kurabe layers` lists LAYER.

Examples:
  sudo kurabe compare ext4 xfs btrfs -- tar xf \"$PWD/linux-source-6.1.tar.xz\"
  sudo kurabe compare ext4 'nj: ext4 -O ^has_journal @ noatime' --setup 'cp -r /usr/share/doc .' -- rm -rf doc
  sudo kurabe compare ext4 'old: ext4 aged git:200' xfs 'old xfs: xfs aged git:200' --tree synthetic:3000
  kurabe compare dir:/home/me dir:/mnt/data -- 'dd if=/dev/zero of=x bs=1M count=500'
  kurabe compare ext4 xfs --on ssh:root@box --device /dev/sdb --destroy SERIAL -- tar xf /root/x.tar";

/// `kurabe compare`.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct CompareArgs {
    /// Contenders: [LABEL: ][LAYER over] FS [MKFS OPTIONS] [@ MOUNT OPTIONS] [over LAYER] [aged PROFILE]
    /// [on ENVIRONMENT], one argument each.
    #[arg(required = true, value_name = "CONTENDER")]
    pub contenders: Vec<String>,

    /// The command, run in the mounted directory. Several words are executed as they are; a
    /// single argument is a line for the shell. It sees KURABE_DIR, KURABE_CONTENDER and
    /// KURABE_TRIAL.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,

    /// Workloads other than a command.
    #[command(flatten)]
    pub other: WorkloadKeys,

    /// Options of the workload.
    #[command(flatten)]
    pub load: WorkloadArgs,
    /// Options of the study.
    #[command(flatten)]
    pub study: StudyArgs,
    /// Options of the output.
    #[command(flatten)]
    pub present: PresentArgs,

    /// What to print instead of measuring.
    #[command(flatten)]
    pub print: PrintArgs,
}

/// What is printed instead of measuring.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct PrintArgs {
    /// Print the study file that equals these flags, and do nothing else.
    #[arg(long)]
    pub print_study: bool,
    /// Print what the workloads would do (what, how much, whether it fits), and do nothing else.
    #[arg(long)]
    pub print_plan: bool,
}

impl PrintArgs {
    /// Whether nothing is to be measured.
    pub fn asked(&self) -> bool {
        self.print_study || self.print_plan
    }
}

/// Options of the workload, as a hyperfine user knows them.
#[derive(Debug, Args)]
#[command(next_help_heading = "The workload")]
pub struct WorkloadArgs {
    /// Run CMD in the mounted directory once per run, before caches are dropped.
    #[arg(short, long, value_name = "CMD")]
    pub setup: Option<String>,
    /// Run CMD right before the measured command, after caches are dropped.
    #[arg(short, long, value_name = "CMD")]
    pub prepare: Option<String>,
    /// Run CMD after the measured command and its sync, before the unmount.
    #[arg(short, long, value_name = "CMD")]
    pub cleanup: Option<String>,
    /// With --durability: command that checks whether what the workload acknowledged is there after a power
    /// failure. It gets the mounted directory and a file with the acknowledgements (docs/durability.md).
    #[arg(long, value_name = "CMD")]
    pub check: Option<String>,
    /// Accept exit codes of the command other than 0.
    #[arg(short, long)]
    pub ignore_failure: bool,
    /// Shell for single-argument commands; 'none' splits them into words.
    #[arg(short = 'S', long, value_name = "SHELL", default_value = "sh")]
    pub shell: String,
    /// Start the command without a shell; the same as --shell=none.
    #[arg(short = 'N', conflicts_with = "shell")]
    pub no_shell: bool,
    /// Name of the workload in tables.
    #[arg(short = 'n', long, value_name = "NAME")]
    pub command_name: Option<String>,
    /// Values for {VAR} in the workload or in a contender: --parameter-list jobs 1,2,4.
    #[arg(short = 'L', long, num_args = 2, value_names = ["VAR", "VALUES"], action = clap::ArgAction::Append)]
    pub parameter_list: Vec<String>,
    /// Numbers that {VAR} takes, from MIN to MAX: --parameter-scan jobs 1 8.
    #[arg(short = 'P', long, num_args = 3, value_names = ["VAR", "MIN", "MAX"], action = clap::ArgAction::Append, allow_negative_numbers = true)]
    pub parameter_scan: Vec<String>,
    /// Step of --parameter-scan.
    #[arg(short = 'D', long, value_name = "DELTA", default_value = "1", value_parser = decimal)]
    pub parameter_step_size: f64,
}

/// Options of the study: keys of a study file, but for those that are said on the command line alone.
#[derive(Debug, Args, Default, Serialize)]
#[command(next_help_heading = "The study")]
#[serde(rename_all = "kebab-case")]
pub struct StudyArgs {
    /// Device under the file systems: loop:SIZE[@DIR] (an image file), mem:SIZE (memory) or
    /// /dev/NAME (a real disk; needs --destroy); in guests several, with commas. [default: loop:8G]
    #[arg(short, long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Name or serial number of the real disk whose contents may be destroyed; of several disks one each, with commas.
    #[arg(long, value_name = "NAME_OR_SERIAL")]
    #[serde(skip)]
    pub destroy: Option<String>,
    /// Skip the dry run that comes before the device is filled: mkfs and mount of every contender and one run of
    /// the command, on an image that takes no space.
    #[arg(long)]
    #[serde(skip)]
    pub no_dry_run: bool,
    /// Where contenders run that do not say so themselves: a guest (debian, linux-VERSION or the path of
    /// a kernel), or another machine, ssh:HOST, which then has the device and the command (docs/where.md).
    /// [default: this machine]
    #[arg(long, value_name = "PLACE")]
    pub on: Option<String>,
    /// Let mkfs and mount discard. [default: the device stays fully allocated]
    #[arg(long)]
    pub discard: bool,
    /// Trace every request that reaches the contender's device: traces/ in the result, for 'kurabe disk replay' and
    /// 'kurabe disk export', and a picture of where each contender put its bytes.
    #[arg(long)]
    pub trace: bool,
    /// Also simulate power failures for each contender, in separate runs that are not timed, and run
    /// --check on STATES disks that they could have left. [default: 300]
    #[arg(long, value_name = "STATES", num_args = 0..=1, require_equals = true,
        default_missing_value = "300", value_parser = some::<u32>)]
    pub durability: Option<u32>,
    /// Command that ages the file systems of contenders 'aged own', in the root directory of each
    /// (docs/reference/ageing.md).
    #[arg(long, value_name = "COMMAND")]
    pub age: Option<String>,
    /// Command that runs once in the root directory of each file system whose profile has 'then', after it was aged,
    /// such as one that defragments it.
    #[arg(long, value_name = "COMMAND")]
    pub then: Option<String>,
    /// Run the workload, and its setup and cleanup, as this user instead of root. The user owns the root
    /// directory of each file system; sudo and other setuid programs have no effect. Not for
    /// contenders that are the device itself, such as raw.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Label of the contender to compare the others with. [default: the first]
    #[arg(short, long, value_name = "LABEL")]
    pub baseline: Option<String>,
    /// Run the baseline twice, under two labels. The difference between the two is this machine's noise.
    #[arg(long)]
    pub control: bool,
    /// Run the workload exactly N times on every contender.
    #[arg(short, long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub runs: Option<u32>,
    /// Carry out exactly N rounds. A round has the same number of runs of every contender.
    #[arg(long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub rounds: Option<u32>,
    /// Carry out at least N rounds. [default: 5]
    #[arg(short, long, visible_alias = "min-rounds", value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub min_runs: Option<u32>,
    /// Carry out at most N rounds. [default: 20]
    #[arg(short = 'M', long, visible_alias = "max-rounds", value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub max_runs: Option<u32>,
    /// Rounds to carry out first and not count. [default: 0]
    #[arg(short, long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub warmup: Option<u32>,
    /// Time limit for the whole study, such as 10m. Exceeded, by half at most, only if fewer than three rounds, the
    /// fewest that give an interval, would fit. The power failures of --durability come after it.
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// Time limit for a contender's part of a round, from mkfs to unmount. What exceeds it is killed and fails.
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// How long to wait for an idle device before each run, at most. [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub idle_wait: Option<String>,
    /// Caches before each run: cold (dropped, except for the workload's programs and libraries) or
    /// warm. [default: cold]
    #[arg(long, value_name = "STATE")]
    pub cache: Option<String>,
    /// Mount the contenders of a round at the same time, each on an equal part of the device, and
    /// alternate in short runs. [default: where that is possible and fair]
    #[arg(long, conflicts_with = "one_at_a_time")]
    #[serde(skip)]
    pub side_by_side: bool,
    /// Run the contenders of a round one at a time, each on the whole device.
    #[arg(long)]
    #[serde(skip)]
    pub one_at_a_time: bool,
    /// Length of a round of alternating contenders. [default: until 75 % of its time was
    /// measured]
    #[arg(long, value_name = "TIME")]
    pub block_time: Option<String>,
    /// Seed for the order of runs. [default: random, recorded]
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// How large a difference still counts as the same, in percent. [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = decimal, allow_negative_numbers = true)]
    pub same_within: Option<f64>,
    /// Condition on a cost, such as 'xfs <= 1.10'. The exit code is 0 if all gates hold, 3 if one fails,
    /// and 4 if one is inconclusive (docs/ci.md). May be repeated.
    #[arg(long, value_name = "CONDITION")]
    pub gate: Vec<String>,
    /// Layers under one contender only, such as 'slow: delay:10%'. May be repeated.
    #[arg(long, value_name = "LABEL: LAYERS")]
    pub layers: Vec<String>,
    /// Name of the study and of its result directory.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Show the output of the command; the same as --output inherit.
    #[arg(long, conflicts_with = "output")]
    #[serde(skip)]
    pub show_output: bool,
    /// Where the output of the command goes: null, pipe, inherit or a file. [default: null]
    #[arg(long, value_name = "WHERE")]
    #[serde(skip)]
    pub output: Option<String>,
}

/// Options of the output.
#[derive(Debug, Args, Default, Clone)]
#[command(next_help_heading = "Output")]
pub struct PresentArgs {
    /// Result directory. [default: kurabe-results/NAME-TIME]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How the result is shown.
    #[command(flatten)]
    pub show: ShowArgs,
}

/// How a result is shown, also one that is there already.
#[derive(Debug, Args, Default, Clone)]
#[command(next_help_heading = "Output")]
pub struct ShowArgs {
    /// Style of the terminal output. [default: auto]
    #[arg(long, value_enum, value_name = "STYLE")]
    pub style: Option<Style>,
    /// Print everything in the report: costs, metrics, latencies, phases and all rounds of every workload.
    #[arg(long)]
    pub verbose: bool,
    /// Write every sample and the whole analysis as JSON.
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,
    /// Write one line for each contender in each round as CSV. Costs go to FILE.costs.csv, latencies to
    /// FILE.latencies.csv, the fio matrix's overheads to FILE.overhead.csv.
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<PathBuf>,
    /// Write the report as Markdown.
    #[arg(long, value_name = "FILE")]
    pub export_markdown: Option<PathBuf>,
}

/// Style of the terminal output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// Full on a terminal, basic elsewhere.
    Auto,
    /// Plain lines, no colour.
    Basic,
    /// Colour and live progress.
    Full,
    /// Live progress without colour.
    Nocolor,
    /// Colour without live progress.
    Color,
    /// Only the final tables.
    None,
}

const RUN_EXAMPLES: &str = "\
Examples:
  sudo kurabe run cannyls                     a bundled study: its quick profile, in memory
  sudo kurabe run cannyls --full              as large as the publication's
  sudo kurabe run dbench --scale 0.1 --device /dev/sdb --destroy SERIAL
  sudo kurabe run study.toml --quick          a study file of your own";

/// `kurabe run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// A study file (docs/reference/study-file.md), the name of a bundled study (kurabe studies), or a
    /// shard (kurabe shard, kurabe crash --shards). If a file and a bundled study have the name, the file is used.
    #[arg(value_name = "STUDY")]
    pub study_file: PathBuf,
    /// Use the study's quick profile. This is the default for bundled studies without --full, --scale
    /// or --device.
    #[arg(long, help_heading = "The study")]
    pub quick: bool,
    /// Run a bundled study as it is written.
    #[arg(long, help_heading = "The study", conflicts_with = "quick")]
    pub full: bool,
    /// Multiply the work of every workload: counts of objects and files, sizes, times. The image is
    /// scaled too, unless --device is given.
    #[arg(long, value_name = "FACTOR", help_heading = "The study", value_parser = decimal, allow_negative_numbers = true)]
    pub scale: Option<f64>,
    /// Options that override the study's.
    #[command(flatten)]
    pub study: StudyArgs,
    /// Options of the output.
    #[command(flatten)]
    pub present: PresentArgs,
    /// What to print instead of measuring.
    #[command(flatten)]
    pub print: PrintArgs,
}

impl RunArgs {
    /// A flag that changes the study, or asks for something instead of measuring, where one was given.
    pub fn changes(&self) -> Option<String> {
        let study = serde_json::to_value(&self.study).expect("flags have a JSON form");
        let is_given = |(_, value): &(&String, &serde_json::Value)| {
            ![serde_json::Value::Null, false.into(), serde_json::json!([])].contains(value)
        };
        let in_study = study.as_object().and_then(|all| all.iter().find(is_given));
        let others = [
            (self.quick, "--quick"),
            (self.full, "--full"),
            (self.scale.is_some(), "--scale"),
            (self.study.side_by_side, "--side-by-side"),
            (self.study.one_at_a_time, "--one-at-a-time"),
            (self.study.show_output, "--show-output"),
            (self.study.output.is_some(), "--output"),
            (self.present.out.is_some(), "--out"),
            (self.print.print_study, "--print-study"),
            (self.print.print_plan, "--print-plan"),
        ];
        let found = others.into_iter().find(|(given, _)| *given).map(|(_, flag)| flag.into());
        found.or_else(|| in_study.map(|(name, _)| format!("--{}", name.replace('_', "-"))))
    }
}

/// `kurabe shard`.
#[derive(Debug, Args)]
pub struct ShardArgs {
    /// Number of shards. Each has an equal share of the study's rounds, and at least 3.
    #[arg(long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub shards: u32,
    /// The study.
    #[command(flatten)]
    pub run: RunArgs,
}

impl CompareArgs {
    /// The study that the flags ask for.
    pub fn study_text(&self) -> StudyText {
        let command = match self.command.as_slice() {
            [] => None,
            [line] => Some(CommandText::Line(from_here::line(line))),
            words => Some(CommandText::Words(from_here::words(words))),
        };
        let shell = if self.load.no_shell { "none" } else { &self.load.shell };
        let line = |text: &Option<String>| {
            text.as_ref().map(|text| CommandText::Line(from_here::line(text)))
        };
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self.load.parameter_list.chunks_exact(2) {
            let values = pair[1].split(',').map(str::to_string);
            parameters.entry(pair[0].clone()).or_default().extend(values);
        }
        for words in self.load.parameter_scan.chunks_exact(3) {
            let values = scan::numbers(&words[1], &words[2], self.load.parameter_step_size);
            parameters.entry(words[0].clone()).or_default().extend(values);
        }
        let mut text = StudyText {
            contenders: self.contenders.clone(),
            parameters,
            workloads: vec![WorkloadText {
                name: self.load.command_name.clone(),
                why: None,
                command,
                load: self.other.0.clone(),
                shell: (shell != "sh").then(|| shell.to_string()),
                setup: line(&self.load.setup),
                prepare: line(&self.load.prepare),
                cleanup: line(&self.load.cleanup),
                check: line(&self.load.check),
                ignore_failure: self.load.ignore_failure,
                ..WorkloadText::default()
            }],
            ..Default::default()
        };
        self.study.apply(&mut text);
        self.present.show.apply(&mut text);
        text
    }
}

impl StudyArgs {
    /// Puts what was given on the command line over what the study says.
    pub fn apply(&self, text: &mut StudyText) {
        *text = text.with(self);
        if self.side_by_side || self.one_at_a_time {
            text.side_by_side = Some(self.side_by_side);
        }
        if self.show_output {
            text.output = Some("inherit".into());
        }
        if self.output.is_some() && self.output_file().is_none() {
            text.output.clone_from(&self.output);
        }
    }

    /// The file that the output of commands goes to, which no study names.
    pub fn output_file(&self) -> Option<&Path> {
        let word = self.output.as_deref()?;
        (!["", "null", "pipe", "inherit"].contains(&word)).then(|| Path::new(word))
    }
}

impl ShowArgs {
    /// Puts what was given on the command line over what the study says.
    pub fn apply(&self, text: &mut StudyText) {
        if let Some(style) = self.style {
            text.style = style.to_possible_value().map(|value| value.get_name().to_string());
        }
    }
}

/// The flag that stands for a field of the study, for messages to people who typed flags.
pub fn flag_of_field(field: &str) -> String {
    let head = field.split(['[', '.']).next().unwrap_or(field);
    match (head, field.rsplit('.').next()) {
        ("contenders", _) => "CONTENDER".into(),
        ("parameters", _) => "--parameter-list".into(),
        ("workload", Some("command")) => "COMMAND".into(),
        ("workload", Some("name")) => "--command-name".into(),
        ("workload", Some(flag)) => format!("--{flag}"),
        (flag, _) => format!("--{flag}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    fn compare(words: &[&str]) -> StudyText {
        let words = ["kurabe", "compare"].iter().chain(words);
        match Cli::try_parse_from(words).unwrap().action {
            Action::Compare(args) => args.study_text(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_documented_line_parses() {
        let text = compare(&["ext4", "xfs", "btrfs", "--", "tar", "xf", "/a b.tar"]);
        assert_eq!(text.contenders, ["ext4", "xfs", "btrfs"]);
        let words = ["tar", "xf", "/a b.tar"].map(str::to_string).to_vec();
        assert_eq!(text.workloads[0].command, Some(CommandText::Words(words)));
    }

    #[test]
    fn hyperfine_habits_hold() {
        let text = compare(&[
            "ext4", "-w", "2", "-r", "7", "-p", "sync", "-N", "-L", "n", "1,2", "--", "echo {n}",
        ]);
        assert_eq!((text.warmup, text.runs), (Some(2), Some(7)));
        assert_eq!(text.workloads[0].shell.as_deref(), Some("none"));
        assert_eq!(text.workloads[0].prepare, Some(CommandText::Line("sync".into())));
        assert_eq!(text.parameters["n"], ["1", "2"]);
    }

    /// The help is text, and what it says is decided elsewhere.
    #[test]
    fn the_numbers_of_the_help_are_those_that_count() {
        use lab::study::{
            BLOCKS_MAX_DEFAULT, BLOCKS_MIN_DEFAULT, IDLE_WAIT_DEFAULT, SAME_WITHIN_DEFAULT,
        };

        let command = Cli::command();
        let flags = command.find_subcommand("compare").unwrap();
        let of = |long: &str| flags.get_arguments().find(|one| one.get_long() == Some(long));
        let durability = compare(&["ext4", "--durability", "--", "true"]).durability;
        let measured = crate::runner::schedule::MEASURED_SHARE * 100.0;
        for (long, default) in [
            ("min-runs", BLOCKS_MIN_DEFAULT.to_string()),
            ("max-runs", BLOCKS_MAX_DEFAULT.to_string()),
            ("idle-wait", IDLE_WAIT_DEFAULT.to_string()),
            ("same-within", (SAME_WITHIN_DEFAULT * 100.0).to_string()),
            ("block-time", format!("until {measured} % of its time was measured")),
            ("durability", durability.unwrap().to_string()),
        ] {
            let help = of(long).unwrap().get_help().unwrap().to_string().replace('\n', " ");
            assert!(help.contains(&format!("[default: {default}]")), "--{long}: {help}");
        }
    }

    #[test]
    fn fields_are_named_as_flags() {
        assert_eq!(flag_of_field("contenders[1]"), "CONTENDER");
        assert_eq!(flag_of_field("workload[0].setup"), "--setup");
        assert_eq!(flag_of_field("idle-wait"), "--idle-wait");
    }
}
