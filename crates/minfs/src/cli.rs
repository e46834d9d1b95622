//! The command line: words to values, and exit codes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::{mounting, tools};

/// A minimal file system for storage engines that keep their own journal.
#[derive(Parser)]
#[command(name = "minfs", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a volume on a device or an image file.
    Mkfs(MkfsArguments),
    /// Check a volume; change nothing unless told to repair.
    Fsck(FsckArguments),
    /// Mount a volume.
    Mount(MountArguments),
    /// Unmount a volume and wait until its device is free.
    Umount {
        /// Where the volume is mounted.
        directory: PathBuf,
    },
    /// List the files of an unmounted volume.
    Ls {
        /// Device or image.
        device: PathBuf,
        /// Show inode, mode, size, valid length, space and extents.
        #[arg(short, long)]
        long: bool,
    },
    /// Show the identity of a volume as KEY=value lines, or the facts of one file.
    Stat {
        /// Device or image.
        device: PathBuf,
        /// File.
        name: Option<OsString>,
    },
    /// Copy a file into an unmounted volume.
    Put {
        /// Device or image.
        device: PathBuf,
        /// File to copy; `-` is standard input.
        source: PathBuf,
        /// Name on the volume; the file's own unless given.
        name: Option<OsString>,
        /// Replace a file of that name, in one atomic step.
        #[arg(short, long)]
        force: bool,
    },
    /// Copy a file out of an unmounted volume.
    Get {
        /// Device or image.
        device: PathBuf,
        /// Name on the volume.
        name: OsString,
        /// Where to; standard output unless given.
        destination: Option<PathBuf>,
    },
    /// Remove files.
    Rm {
        /// Device or image.
        device: PathBuf,
        /// Names on the volume.
        #[arg(required = true)]
        names: Vec<OsString>,
    },
    /// Rename a file, replacing a file of the new name.
    Mv {
        /// Device or image.
        device: PathBuf,
        /// Present name.
        from: OsString,
        /// New name.
        to: OsString,
    },
    /// Show used and free space.
    Df {
        /// Device or image.
        device: PathBuf,
    },
    /// Show where files lie on the device.
    Map {
        /// Device or image.
        device: PathBuf,
        /// Only this file.
        name: Option<OsString>,
    },
}

#[derive(Args)]
pub struct MkfsArguments {
    /// Device or image; an image is created when --size is given.
    pub device: PathBuf,
    /// Label of at most 64 bytes.
    #[arg(short = 'L', long, default_value = "")]
    pub label: String,
    /// UUID instead of a random one.
    #[arg(short = 'U', long)]
    pub uuid: Option<String>,
    /// Allocation unit in bytes (k, M allowed), a power of two from 4k on.
    #[arg(short, long, value_parser = size)]
    pub unit: Option<u64>,
    /// Most files that the volume shall hold.
    #[arg(short = 'N', long)]
    pub files: Option<u32>,
    /// Create the image with this size, or resize it (k, M, G, T allowed).
    #[arg(short, long, value_parser = size)]
    pub size: Option<u64>,
    /// Tell the device first that its whole content is no longer needed.
    #[arg(long)]
    pub discard: bool,
    /// Overwrite another file system, partition table or volume.
    #[arg(short, long)]
    pub force: bool,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Args)]
pub struct FsckArguments {
    /// Device or image.
    pub device: PathBuf,
    /// Change nothing (this is so without --repair as well).
    #[arg(short = 'n', long)]
    pub no_change: bool,
    /// Repair what can be repaired and tell each change.
    #[arg(short = 'y', long, conflicts_with = "no_change")]
    pub repair: bool,
    /// Also tell what any power cut may leave.
    #[arg(short, long)]
    pub verbose: bool,
    /// Accepted for fsck(8): a check is always a full one.
    #[arg(short, long)]
    pub force: bool,
    /// Accepted for fsck(8): without --repair nothing is ever changed.
    #[arg(short = 'a', short_alias = 'p', long)]
    pub automatic: bool,
}

#[derive(Args)]
pub struct MountArguments {
    /// Device or image.
    pub device: PathBuf,
    /// Where to mount.
    pub directory: PathBuf,
    /// Options, separated by commas; see docs/minfs.md.
    #[arg(short, long)]
    pub options: Vec<String>,
    /// Serve in the foreground.
    #[arg(short = 'F', long)]
    pub foreground: bool,
    /// Check everything but do not mount.
    #[arg(short, long)]
    pub fake: bool,
    /// Ignore unknown options.
    #[arg(short, long)]
    pub sloppy: bool,
    /// Tell what is found on the way.
    #[arg(short, long)]
    pub verbose: bool,
    /// Accepted for mount(8): there is no table of mounts to leave alone.
    #[arg(short = 'n', long)]
    pub no_mtab: bool,
    /// Accepted for mount(8): the type is known.
    #[arg(short = 't', long)]
    pub r#type: Option<String>,
}

/// Reads a number of bytes with an optional binary suffix.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].trim_end_matches("iB").to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        other => return Err(format!("unknown suffix {other:?}; use k, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no size"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}

/// Runs the program and returns its exit code.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    // The helpers of mount(8) and fsck(8) have their own exit code for a wrong command line.
    let usage_code = match arguments.get(1).and_then(|word| word.to_str()) {
        Some("fsck") => 16,
        Some("mount") => 1,
        _ => 2,
    };
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { usage_code } else { 0 });
        }
    };
    let (outcome, failure_code) = match cli.command {
        Command::Mkfs(arguments) => (tools::mkfs(&arguments), 1),
        Command::Fsck(arguments) => return tools::fsck(&arguments),
        Command::Mount(arguments) => return mounting::mount(&arguments),
        Command::Umount { directory } => (mounting::umount(&directory), 1),
        Command::Ls { device, long } => (tools::list(&device, long), 1),
        Command::Stat { device, name: None } => (tools::identify(&device), 1),
        Command::Stat { device, name: Some(name) } => (tools::stat(&device, &name), 1),
        Command::Put { device, source, name, force } => {
            (tools::put(&device, &source, name.as_deref(), force), 1)
        }
        Command::Get { device, name, destination } => {
            (tools::get(&device, &name, destination.as_deref()), 1)
        }
        Command::Rm { device, names } => (tools::remove(&device, &names), 1),
        Command::Mv { device, from, to } => (tools::rename(&device, &from, &to), 1),
        Command::Df { device } => (tools::space(&device), 1),
        Command::Map { device, name } => (tools::map(&device, name.as_deref()), 1),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("minfs: {error}");
            ExitCode::from(failure_code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        // `main` decides by these words whether the first argument is a subcommand.
        for subcommand in Cli::command().get_subcommands() {
            assert!(crate::SUBCOMMANDS.contains(&subcommand.get_name()));
        }
    }

    #[test]
    fn sizes_have_binary_suffixes() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64k"), Ok(65536));
        assert_eq!(size("1T"), Ok(1 << 40));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert!(size("9x").is_err() && size("").is_err() && size("99999999T").is_err());
    }
}
