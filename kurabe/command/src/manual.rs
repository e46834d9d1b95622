//! Man pages and shell completions, generated from the one definition of the flags.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::exit::{self, Failure};
use crate::request::flags::Cli;
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
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    write_pages(&opened, program)?;
    Ok(exit::OK)
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(directory: &trust::Directory, command: Command) -> Result<(), Failure> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(directory, subcommand.clone())?;
    }
    let page = clap_mangen::Man::new(command);
    let mut bytes = Vec::new();
    page.render(&mut bytes).map_err(Failure::broken)?;
    directory.replace(page.get_filename(), &bytes, 0o644).map_err(Failure::broken)
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
