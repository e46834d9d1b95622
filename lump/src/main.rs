//! The program `lump`: a store on a device or image file, from the command line.
//!
//! Parses the command line, opens the device, calls the library and turns its answers into text
//! and exit codes: 0 done; 1 failed, or damage was found; 2 wrong use, or refused before anything
//! was touched. Knows nothing of the format.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bench;
mod import;
mod tools;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use block::complain;
use block::tool::{ToolFailure, output, size, write_files};
use clap::{Args, CommandFactory, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  lump create --size 10G store.img           an image file with an empty store
  lump put store.img 2a photo.jpg            under the key 0x2a
  lump get store.img 2a copy.jpg
  lump list -l store.img 0-ff
  lump delete store.img 2a
  lump check store.img

Keys are numbers of 128 bits in hexadecimal.

Exit codes: 0 done; 1 failed, not found, or damage was found; 2 wrong use, or refused before anything was \
touched.";

/// An object store on one disk, whose durable puts survive power failures.
#[derive(Parser)]
#[command(name = "lump", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make an empty store on a device or an image file.
    Create(CreateArguments),
    /// Store a file under a key, replacing any previous value.
    Put {
        /// Device or image.
        device: PathBuf,
        /// Key.
        #[arg(value_parser = key)]
        key: u128,
        /// File to store; `-` is standard input. [default: standard input]
        source: Option<PathBuf>,
    },
    /// Copy a value out of the store.
    Get {
        /// Device or image.
        device: PathBuf,
        /// Key.
        #[arg(value_parser = key)]
        key: u128,
        /// File to write; `-` is standard output. [default: standard output]
        destination: Option<PathBuf>,
        /// Only these bytes: START-END; END is not included.
        #[arg(short, long, value_parser = bytes)]
        range: Option<(u64, u64)>,
        /// Replace an existing file.
        #[arg(short, long)]
        force: bool,
    },
    /// List keys in ascending order.
    List {
        /// Device or image.
        device: PathBuf,
        /// Only these: a key, or FIRST-LAST.
        #[arg(value_parser = keys, default_value = "0-ffffffffffffffffffffffffffffffff")]
        keys: (u128, u128),
        /// Show lengths in bytes.
        #[arg(short, long)]
        long: bool,
    },
    /// Delete values, and print how many there were.
    Delete {
        /// Device or image.
        device: PathBuf,
        /// Keys, or FIRST-LAST.
        #[arg(value_parser = keys, required = true)]
        keys: Vec<(u128, u128)>,
    },
    /// Show identity and usage of a store as KEY=value lines.
    Stat {
        /// Device or image.
        device: PathBuf,
        /// Print the text format of Prometheus instead.
        #[arg(short, long)]
        prometheus: bool,
    },
    /// Check all metadata and every value of a store. Writes nothing.
    Check {
        /// Device or image.
        device: PathBuf,
        /// Also report what any power cut may leave behind.
        #[arg(short, long)]
        verbose: bool,
    },
    /// Read and verify every value.
    Scrub {
        /// Device or image.
        device: PathBuf,
        /// At most this many bytes per second (k, M, G allowed).
        #[arg(short, long, value_parser = size)]
        rate: Option<u64>,
    },
    /// Copy every value of a CannyLS storage (.lusf) into the store. The source is only read.
    Import {
        /// Device or image with a store.
        device: PathBuf,
        /// File or device with the CannyLS storage.
        source: PathBuf,
        /// Replace values that the store already has under the same keys.
        #[arg(short, long)]
        force: bool,
        /// Accept a damaged journal, and read it up to the damage.
        #[arg(short, long)]
        partial: bool,
    },
    /// Tell the device which space is free (TRIM). Does nothing on a device without TRIM.
    Trim {
        /// Device or image.
        device: PathBuf,
        /// Shortest piece to discard (k, M allowed).
        #[arg(short, long, value_parser = size, default_value = "64k")]
        minimum: u64,
    },
    /// Measure puts and gets with generated values, which are deleted afterwards.
    Bench(bench::BenchArguments),
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
struct CreateArguments {
    /// Device or image; an image is created if --size is given.
    device: PathBuf,
    /// Create the image with this size (k, M, G, T allowed).
    #[arg(short, long, value_parser = size)]
    size: Option<u64>,
    /// Maximum number of objects. [default: one per 4 KiB]
    #[arg(short = 'N', long)]
    objects: Option<u64>,
    /// Size of the journal, 32k to 64M (k, M allowed). [default: a 64th of the store]
    #[arg(short, long, value_parser = size)]
    journal: Option<u64>,
    /// Allocation unit in bytes, 512 or 4096. [default: the device's block size]
    #[arg(short, long)]
    unit: Option<u32>,
    /// Overwrite another store, file system or partition table, or an image that is not empty.
    #[arg(short, long)]
    force: bool,
    /// Print nothing but errors.
    #[arg(short, long)]
    quiet: bool,
}

fn key(text: &str) -> Result<u128, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(digits, 16)
        .ok()
        .filter(|_| is_number)
        .ok_or_else(|| format!("'{text}' is no key: 1 to 32 hexadecimal digits"))
}

fn keys(text: &str) -> Result<(u128, u128), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (key(first)?, key(last)?);
    if first > last {
        return Err(format!("'{text}' ends before it starts"));
    }
    Ok((first, last))
}

fn bytes(text: &str) -> Result<(u64, u64), String> {
    let (start, end) = text.split_once('-').ok_or("a range is START-END")?;
    let number = |text| size(text).map_err(|error| format!("{error} (a range is START-END)"));
    Ok((number(start)?, number(end)?))
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let outcome = match cli.command {
        Command::Create(arguments) => tools::create(&arguments),
        Command::Put { device, key, source } => tools::put(&device, key, source.as_deref()),
        Command::Get { device, key, destination, range, force } => {
            tools::get(&device, key, destination.as_deref(), range, force)
        }
        Command::List { device, keys, long } => tools::list(&device, keys, long),
        Command::Delete { device, keys } => tools::delete(&device, &keys),
        Command::Stat { device, prometheus } => tools::stat(&device, prometheus),
        Command::Check { device, verbose } => tools::check(&device, verbose),
        Command::Scrub { device, rate } => tools::scrub(&device, rate),
        Command::Import { device, source, force, partial } => {
            import::import(&device, &source, force, partial)
        }
        Command::Trim { device, minimum } => tools::trim(&device, minimum),
        Command::Bench(arguments) => bench::bench(&arguments),
        Command::Man { directory } => man(&directory),
        Command::Completions { shell } => {
            // The generator panics where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "lump", &mut script);
            output::stdout().write_all(&script).map_err(ToolFailure::of_output)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain!("lump: {failure}");
            failure.exit_code()
        }
    }
}

/// Writes `lump.1` and a page for each subcommand.
fn man(directory: &std::path::Path) -> Result<(), ToolFailure> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let subcommands = program.get_subcommands().cloned();
    let commands: Vec<clap::Command> =
        std::iter::once(program.clone()).chain(subcommands).collect();
    let render = |command: clap::Command| {
        let page = clap_mangen::Man::new(command);
        let mut bytes = Vec::new();
        page.render(&mut bytes)?;
        Ok((page.get_filename(), bytes))
    };
    let files: Vec<(String, Vec<u8>)> = commands
        .into_iter()
        .map(render)
        .collect::<std::io::Result<_>>()
        .map_err(|error| ToolFailure::Failed(format!("cannot make the man pages: {error}")))?;
    write_files(directory, files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn words_become_numbers_or_a_refusal() {
        assert_eq!(keys("0x10-FF"), Ok((16, 255)));
        assert_eq!(keys("7"), Ok((7, 7)));
        assert_eq!(key(&"f".repeat(32)), Ok(u128::MAX));
        for text in ["", "+1", "g", "0x", "ff-", "8-7", &"f".repeat(33)] {
            assert!(keys(text).is_err(), "{text}");
        }
    }
}
