//! Which program a command line names, and whether it can be found, as far as that is certain without
//! running anything.

use std::path::{Path, PathBuf};

use lab::spec::CommandLine;
use trust::program::is_executable;

/// The program of a command when it is nowhere to be found. Of a line for a shell it is told only
/// where the answer is certain, and without running the shell, which the study names; a relative
/// path is no affair of this function.
pub fn missing_program(line: &CommandLine) -> Option<&str> {
    match line {
        CommandLine::Words(words) => Some(words[0].as_str()).filter(|program| !is_there(program)),
        CommandLine::Shell { shell, .. } if !is_there(&shell[0]) => Some(&shell[0]),
        CommandLine::Shell { shell, line } => {
            simple_command(line).filter(|program| is_unknown_to(shell, program))
        }
    }
}

/// The program of a command when it is a relative path.
pub fn relative_program(line: &CommandLine) -> Option<&str> {
    program_of(line).filter(|program| is_relative_path(program))
}

/// The program of a command as written, where that is certain.
pub fn program_of(line: &CommandLine) -> Option<&str> {
    match line {
        CommandLine::Words(words) => Some(words[0].as_str()),
        CommandLine::Shell { line, .. } => simple_command(line).filter(|word| !is_builtin(word)),
    }
}

fn is_relative_path(program: &str) -> bool {
    program.contains('/') && !program.starts_with('/')
}

/// Whether a program can be started, as far as that can be told before the trial.
fn is_there(program: &str) -> bool {
    is_relative_path(program) || !places_of(program).is_empty()
}

/// Where a program lies that can be executed: its own path, or each place of `PATH` that has one of its name; none of
/// a relative path, which leads from the trial's directory.
pub fn places_of(program: &str) -> Vec<PathBuf> {
    let candidates: Vec<PathBuf> = if is_relative_path(program) {
        Vec::new()
    } else if program.contains('/') {
        vec![program.into()]
    } else {
        std::env::var_os("PATH")
            .map(|path| std::env::split_paths(&path).map(|place| place.join(program)).collect())
            .unwrap_or_default()
    };
    candidates.into_iter().filter(|path| is_executable(path)).collect()
}

/// The first word of a line that is one simple command, where it means itself to every shell.
pub fn simple_command(line: &str) -> Option<&str> {
    const GRAMMAR: [char; 9] = ['|', '&', ';', '\n', '(', ')', '{', '}', '`'];
    let word = line.split_whitespace().next()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-+./".contains(c);
    (!line.contains(GRAMMAR) && word.chars().all(is_plain)).then_some(word)
}

/// What shells do themselves: builtins and keywords of dash, bash, ksh and zsh that can be the first
/// word of a simple command.
const BUILTINS: &str = ". : [ [[ alias autoload bg bind break builtin caller case cd chdir command \
    compgen complete continue declare dirs disown do done echo echotc elif else emulate enable esac \
    eval exec exit export false fc fg fi float for function getopts hash help history if in integer \
    jobs kill let limit local logout mapfile nameref nocorrect noglob popd print printf pushd pwd \
    read readarray readonly rehash repeat return select set setopt shift shopt sleep source suspend \
    test then time times trap true type typeset ulimit umask unalias unfunction unhash unlimit \
    unset unsetopt until vared wait whence where which while zmodload";

/// Whether a shell of a known kind finds no program, builtin or keyword of this name.
fn is_unknown_to(shell: &[String], program: &str) -> bool {
    const KNOWN: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];
    let [shell] = shell else { return false };
    let name = Path::new(shell).file_name().unwrap_or_default();
    KNOWN.iter().any(|known| name == *known) && !is_builtin(program) && !is_there(program)
}

fn is_builtin(word: &str) -> bool {
    BUILTINS.split_whitespace().any(|builtin| builtin == word)
}
