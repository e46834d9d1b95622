//! Programs on the command line that are named by a path from the user's directory, such as `./load.sh`. A workload runs
//! in the contender's directory, where such a path leads nowhere.
//!
//! Invariant: a path is resolved once, before anything starts, and only where a file is there; else it is left as it
//! was typed, for what a setup makes in the contender's directory.

use std::path::{Path, PathBuf};

use lab::spec::CommandLine;

use super::programs::simple_command;

/// The words of a command, the first one resolved.
pub fn words(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    if let Some(program) = words.first_mut()
        && let Some(path) = resolved(program)
    {
        *program = path.display().to_string();
    }
    words
}

/// A line for the shell, its first word resolved where the line is one simple command.
pub fn line(line: &str) -> String {
    let found = simple_command(line).and_then(|program| Some((program, resolved(program)?)));
    let Some((program, path)) = found else { return line.into() };
    let path = path.display().to_string();
    let Ok(quoted) = shlex::try_quote(&path) else { return line.into() };
    line.replacen(program, &quoted, 1)
}

/// What to write where a word of a command names a file of the user's directory, such as `tar xf small.tar`: the
/// command runs in the mounted directory, where there is none. None where no word does.
pub fn misplaced(line: &CommandLine) -> Option<String> {
    let words = match line {
        CommandLine::Words(words) => words.clone(),
        CommandLine::Shell { line, .. } => shlex::split(line)?,
    };
    let here = std::env::current_dir().ok()?;
    let is_of_here = |word: &&String| {
        let path = Path::new(word.as_str());
        !word.starts_with(['-', '/', '$', '~']) && here.join(path).is_file()
    };
    let word = words.iter().skip(1).find(is_of_here)?;
    Some(format!(
        "'{word}' lies in {}, and the command runs in the mounted directory; write \"$PWD/{word}\"",
        here.display()
    ))
}

fn resolved(program: &str) -> Option<PathBuf> {
    let is_relative = program.contains('/') && !program.starts_with('/');
    let path = std::env::current_dir().ok()?.join(Path::new(program));
    // Without the `.` of `./load.sh`.
    (is_relative && path.is_file()).then(|| path.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_users_directory_is_named_with_what_to_write() {
        let words = |words: &[&str]| {
            misplaced(&CommandLine::Words(words.iter().map(ToString::to_string).collect()))
        };
        let said = words(&["tar", "xf", "src/main.rs"]).unwrap();
        assert!(said.ends_with("write \"$PWD/src/main.rs\""), "{said}");
        let line = "tar xf src/main.rs -C .".to_string();
        assert!(misplaced(&CommandLine::Shell { shell: vec!["sh".into()], line }).is_some());
        for fine in
            [&["tar", "xf", "/etc/hostname"][..], &["cp", "-r", ".", "no-such"], &["src/main.rs"]]
        {
            assert_eq!(words(fine), None);
        }
    }

    #[test]
    fn a_path_from_here_is_resolved_and_everything_else_is_left_alone() {
        let here = std::env::current_dir().unwrap().display().to_string();
        // Tests run in the directory of the crate.
        let full = format!("{here}/src/main.rs");
        let texts = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(words(&texts(&["./src/main.rs", "./src"])), texts(&[&full, "./src"]));
        assert_eq!(line("  src/main.rs ./src 'a b'"), format!("  {full} ./src 'a b'"));
        for left in ["ls ./src/main.rs", "./no/such", "src/main.rs; ls", "/bin/ls", ""] {
            assert_eq!(line(left), left);
        }
        assert_eq!(words(&texts(&["main.rs"])), texts(&["main.rs"]));
        assert!(words(&[]).is_empty());
    }
}
