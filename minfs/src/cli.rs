//! The command line: words to values, exit codes, and the man pages that follow from both.
//!
//! Exit codes: 0 done; 1 failed; 2 usage error, or refused before anything was changed. As a helper of
//! mount(8) or fsck(8), the program uses their exit codes.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use block::tool::{ToolFailure, output, size, write_files};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::{mounting, tools};

const EXAMPLES: &str = "\
Examples:
  minfs mkfs --size 10G --label store store.img    an image file with an empty volume
  minfs put store.img /etc/hostname && minfs ls -l store.img
  minfs mount store.img /mnt && cp big.db /mnt/ && minfs umount /mnt
  minfs fsck store.img                             check; --repair repairs
  echo '/srv/store.img /store fuse.minfs defaults 0 0' >> /etc/fstab

Exit codes: 0 done; 1 failed; 2 usage error, or refused before anything was changed. fsck and mount
use the codes of fsck(8) and mount(8).";

const MKFS_NOTES: &str = "\
The contents of a device or image are overwritten only with --force; a device or image that is mounted \
or otherwise in use is never overwritten. With --size an image is created; an existing image is resized \
and formatted, also only with --force, and its contents are lost. A volume cannot be resized: copy its \
files to another one.

Exit codes: 0 made; 1 failed; 2 usage error, or refused before anything was changed.";

const FSCK_NOTES: &str = "\
An error is damage that puts a file in doubt: the volume mounts read-only, and reading that file gives \
EUCLEAN. Before a repair, copy the device, or copy the file out with `minfs get --damaged`. --repair \
restores the file to its newest readable record. A warning is damage that loses no file.

Exit codes: 0 clean; 1 damage was repaired; 4 damage is left; 8 the check could not run; 16 usage error.";

const MOUNT_NOTES: &str = "\
Options of minfs: discard (tell the device of freed space), direct_io (bypass the page cache for \
every file), writeback_cache (let the kernel collect small writes), zero_fallocate (fallocate writes \
zeros to the space that it reserves), threads=N (number of threads that serve requests; default 16), \
root_mode=OCTAL, root_user=NUMBER, root_group=NUMBER (attributes of the root directory), allow_other \
(other users may use the mount; always set when root mounts).

LABEL= and UUID= find no volume, since blkid(8) does not know minfs: name the device by its link in \
/dev/disk/by-id, or its partition by PARTUUID=. `minfs stat DEVICE` prints label and UUID.

Options of mount(8): ro, rw, remount, nodev, nosuid, suid, noexec, noatime, sync, dirsync. Options \
meant for mount(8) itself or for system start (noauto, nofail, _netdev, user, x-...) are accepted and \
have no effect.

Exit codes: 0 mounted; 1 usage error; 2 system error; 32 the mount failed.";

/// A minimal file system for storage engines that keep their own journal.
#[derive(Parser)]
#[command(name = "minfs", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a volume on a device or an image file.
    #[command(after_help = MKFS_NOTES)]
    Mkfs(MkfsArguments),
    /// Check a volume; change nothing without --repair.
    #[command(after_help = FSCK_NOTES)]
    Fsck(FsckArguments),
    /// Mount a volume through FUSE; the command returns when the mount is ready.
    #[command(after_help = MOUNT_NOTES)]
    Mount(MountArguments),
    /// Unmount a volume and wait until the daemon has released its device.
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
    /// Show label, UUID and sizes of a volume as KEY=value lines, or the attributes of one file.
    Stat {
        /// Device or image.
        device: PathBuf,
        /// Name on the volume.
        name: Option<OsString>,
    },
    /// Copy a file into an unmounted volume.
    Put {
        /// Device or image.
        device: PathBuf,
        /// File to copy; `-` is standard input.
        source: PathBuf,
        /// Name on the volume; by default the name of the source file.
        name: Option<OsString>,
        /// Replace an existing file of that name atomically.
        #[arg(short, long)]
        force: bool,
    },
    /// Copy a file out of an unmounted volume.
    Get {
        /// Device or image.
        device: PathBuf,
        /// Name on the volume.
        name: OsString,
        /// File to write; `-` is standard output. Without it, standard output too, but no binary
        /// file to a terminal.
        destination: Option<PathBuf>,
        /// Replace an existing file.
        #[arg(short, long)]
        force: bool,
        /// Also copy a file whose newest record may be lost, using the newest readable record.
        #[arg(long)]
        damaged: bool,
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
        /// Current name.
        from: OsString,
        /// New name.
        to: OsString,
    },
    /// Show used and free space.
    Df {
        /// Device or image.
        device: PathBuf,
    },
    /// Show where files are on the device.
    Map {
        /// Device or image.
        device: PathBuf,
        /// Only this file.
        name: Option<OsString>,
    },
    /// Write the man pages into a directory.
    Man {
        /// The directory; it is created if missing.
        directory: PathBuf,
    },
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
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
    /// Maximum number of files.
    #[arg(short = 'N', long)]
    pub files: Option<u32>,
    /// Create an image of this size (k, M, G, T allowed); an existing image needs --force, and
    /// its contents are lost.
    #[arg(short, long, value_parser = size)]
    pub size: Option<u64>,
    /// Discard the contents of the whole device first.
    #[arg(long)]
    pub discard: bool,
    /// Overwrite the contents of the device or image.
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
    /// Change nothing (the default).
    #[arg(short = 'n', long)]
    pub no_change: bool,
    /// Repair the damage and report each change.
    #[arg(short = 'y', long, conflicts_with = "no_change")]
    pub repair: bool,
    /// Also report what a power cut normally leaves behind.
    #[arg(short, long)]
    pub verbose: bool,
    /// Accepted for fsck(8): every check is a full check.
    #[arg(short, long)]
    pub force: bool,
    /// Accepted for fsck(8): only --repair changes anything.
    #[arg(short = 'a', short_alias = 'p', long)]
    pub automatic: bool,
}

#[derive(Args)]
pub struct MountArguments {
    /// Device or image.
    pub device: PathBuf,
    /// Where to mount.
    pub directory: PathBuf,
    /// Options, separated by commas; see below.
    #[arg(short, long)]
    pub options: Vec<String>,
    /// Serve in the foreground.
    #[arg(short = 'F', long)]
    pub foreground: bool,
    /// Do everything except mount.
    #[arg(short, long)]
    pub fake: bool,
    /// Ignore unknown options.
    #[arg(short, long)]
    pub sloppy: bool,
    /// Report what the mount finds.
    #[arg(short, long)]
    pub verbose: bool,
    /// Accepted for mount(8): there is no table of mounts to leave alone.
    #[arg(short = 'n', long)]
    pub no_mtab: bool,
    /// Accepted for mount(8): the type is known.
    #[arg(short = 't', long)]
    pub r#type: Option<String>,
}

/// Whether a word is a subcommand.
pub(crate) fn is_subcommand(word: &str) -> bool {
    word == "help" || Cli::command().find_subcommand(word).is_some()
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
    let outcome = match cli.command {
        Command::Mkfs(arguments) => tools::mkfs(&arguments),
        Command::Fsck(arguments) => return tools::fsck(&arguments),
        Command::Mount(arguments) => return mounting::mount(&arguments),
        Command::Umount { directory } => mounting::umount(&directory),
        Command::Ls { device, long } => tools::list(&device, long),
        Command::Stat { device, name: None } => tools::identify(&device),
        Command::Stat { device, name: Some(name) } => tools::stat(&device, &name),
        Command::Put { device, source, name, force } => {
            tools::put(&device, &source, name.as_deref(), force)
        }
        Command::Get { device, name, destination, force, damaged } => {
            tools::get(&device, &name, destination.as_deref(), force, damaged)
        }
        Command::Rm { device, names } => tools::remove(&device, &names),
        Command::Mv { device, from, to } => tools::rename(&device, &from, &to),
        Command::Df { device } => tools::space(&device),
        Command::Map { device, name } => tools::map(&device, name.as_deref()),
        Command::Man { directory } => man(&directory),
        Command::Completions { shell } => {
            // The generator panics where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "minfs", &mut script);
            output::stdout().write_all(&script).map_err(ToolFailure::of_output)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            block::complain!("minfs: {failure}");
            failure.exit_code()
        }
    }
}

/// Writes `minfs.8`, a page for each subcommand, and those under which the helpers are known.
fn man(directory: &Path) -> Result<(), ToolFailure> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut pages = vec![(program.clone(), "minfs".to_string())];
    for command in program.get_subcommands() {
        let name = command.get_name();
        pages.push((command.clone(), format!("minfs-{name}")));
        if ["mkfs", "fsck", "mount"].contains(&name) {
            pages.push((command.clone(), format!("{name}.minfs")));
        }
    }
    let files: Vec<(String, Vec<u8>)> = pages
        .into_iter()
        .map(|(command, name)| Ok((format!("{name}.8"), man_page(command, &name)?)))
        .collect::<std::io::Result<_>>()
        .map_err(|error| ToolFailure::Failed(format!("cannot make the man pages: {error}")))?;
    write_files(directory, files)
}

fn man_page(command: clap::Command, name: &str) -> std::io::Result<Vec<u8>> {
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_subcommands = command.has_subcommands();
    let version = format!("minfs {}", env!("CARGO_PKG_VERSION"));
    // In the synopsis a helper goes by its own name, a subcommand by two words.
    let called = name.replacen("minfs-", "minfs ", 1);
    let page = Man::new(command.display_name(name.to_string()).bin_name(called))
        .title(name.to_uppercase())
        .section("8")
        .source(version);
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if has_subcommands {
        page.render_subcommands_section(&mut text)?;
    }
    if !notes.is_empty() {
        let mut roff = Roff::new();
        roff.control("SH", ["NOTES"]);
        for line in notes.lines() {
            if line.is_empty() {
                roff.control("PP", []);
            } else if let Some(example) = line.strip_prefix("  ") {
                roff.control("br", []);
                roff.text([roman(example)]);
            } else {
                roff.text([roman(line)]);
            }
        }
        roff.to_writer(&mut text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_its_man_page_and_the_helpers_theirs() {
        let directory = tempfile::tempdir().unwrap();
        let pages = directory.path().join("man8");
        man(&pages).unwrap();
        let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
        for subcommand in Cli::command().get_subcommands() {
            assert!(page(&format!("minfs-{}.8", subcommand.get_name())).contains(".SH SYNOPSIS"));
        }
        assert!(page("minfs.8").contains("minfs\\-fsck(8)"), "{}", page("minfs.8"));
        let helper = page("fsck.minfs.8");
        assert!(helper.contains("fsck.minfs") && helper.contains("damage is left"), "{helper}");
    }
}
