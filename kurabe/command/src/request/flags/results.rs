//! Commands about results that are there.

use std::path::PathBuf;

use clap::Args;

use super::{ShowArgs, Style};

/// `kurabe merge`.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The shards after they were run, as shell patterns name them: shards/*.
    #[arg(required = true, value_name = "SHARD")]
    pub shards: Vec<PathBuf>,
    /// Directory of the merged result. [default: kurabe-results/NAME-merged-TIME]
    #[arg(short, long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Style of the terminal output. [default: auto]
    #[arg(long, value_enum, value_name = "STYLE", help_heading = "Output")]
    pub style: Option<Style>,
}

/// `kurabe resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The result directory of the interrupted study.
    pub directory: PathBuf,
    /// Carry out N more rounds for undecided comparisons, whatever the study's budget was. The error rate
    /// of the study stays the same.
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub more: Option<u32>,
    /// Name or serial number of the real disk whose contents may be destroyed. Needed again each time.
    #[arg(long, value_name = "NAME_OR_SERIAL")]
    pub destroy: Option<String>,
    /// Skip the dry run that comes before the device is filled.
    #[arg(long)]
    pub no_dry_run: bool,
    /// Options of the output.
    #[command(flatten)]
    pub present: ShowArgs,
}

/// `kurabe history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The directory in which the results lie.
    #[arg(default_value = "kurabe-results")]
    pub directory: PathBuf,
    /// Name of the study, where the directory has results of several.
    #[arg(long, value_name = "NAME")]
    pub study: Option<String>,
    /// Write the latest result as Bencher Metric Format (JSON).
    #[arg(long, value_name = "FILE")]
    pub export_bencher: Option<PathBuf>,
    /// Write all results as CSV for Apache Otava.
    #[arg(long, value_name = "FILE")]
    pub export_otava: Option<PathBuf>,
    /// Style of the terminal output. [default: auto]
    #[arg(long, value_enum, value_name = "STYLE")]
    pub style: Option<Style>,
}

/// `kurabe report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The result directory. With several, each contender is compared with the contender of the same label
    /// in the first result, for example before and after an upgrade.
    #[arg(required = true, value_name = "RESULT")]
    pub directories: Vec<PathBuf>,
    /// Write the report as one HTML file that needs no network.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Write each chart as an SVG file into this directory.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub svg: Option<PathBuf>,
    /// Condition as in 'kurabe compare'. With several results, 'xfs <= 1.10' is about the cost of xfs in
    /// each later result relative to the first. Exit codes are those of 'kurabe compare'. May be
    /// repeated.
    #[arg(long, value_name = "CONDITION")]
    pub gate: Vec<String>,
    /// Options of the output.
    #[command(flatten)]
    pub present: ShowArgs,
}
