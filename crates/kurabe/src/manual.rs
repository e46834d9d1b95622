//! Man pages and shell completions, generated from the one definition of the flags.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::exit::{self, Failure};
use crate::flags::Cli;
use crate::terminal;

/// Writes the man pages into a directory, or the main page to standard output.
pub fn man(directory: Option<&Path>) -> Result<u8, Failure> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(Failure::broken)?;
        terminal::generated(&page);
        return Ok(exit::OK);
    };
    let opened = trust::Directory::open_or_make(directory, 0o755).map_err(Failure::refused)?;
    clap_mangen::generate_to(Cli::command(), opened.descriptor_path())
        .map_err(|error| Failure::broken(format!("{}: {error}", directory.display())))?;
    Ok(exit::OK)
}

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Result<u8, Failure> {
    // The generators offer hidden subcommands too, which nobody is to type.
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let mut command = Command::new("kurabe")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments())
        .subcommands(shown);
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "kurabe", &mut text);
    terminal::generated(&text);
    Ok(exit::OK)
}
