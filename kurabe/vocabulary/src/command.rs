//! A command as it is carried out.

use serde::{Deserialize, Serialize};

/// A command: words, or a line for a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// Program and arguments, started without a shell.
    Words(Vec<String>),
    /// A line for `SHELL -c`.
    Shell {
        /// The shell, with its own arguments: `["sh"]`, `["bash", "--norc"]`.
        shell: Vec<String>,
        line: String,
    },
}

impl CommandLine {
    pub fn words(&self) -> Vec<String> {
        match self {
            CommandLine::Words(words) => words.clone(),
            CommandLine::Shell { shell, line } => {
                let mut words = shell.clone();
                words.push("-c".into());
                words.push(line.clone());
                words
            }
        }
    }
}

impl std::fmt::Display for CommandLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CommandLine::Words(words) => {
                let joined = shlex::try_join(words.iter().map(String::as_str));
                f.write_str(&joined.unwrap_or_else(|_| words.join(" ")))
            }
            CommandLine::Shell { line, .. } => f.write_str(line),
        }
    }
}
