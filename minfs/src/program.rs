//! The program `minfs`, also reached as `mkfs.minfs`, `fsck.minfs`, `mount.minfs`.
//!
//! Parses the command line, opens the device, calls the library and turns its answers into text
//! and exit codes: those of mkfs(8), fsck(8) and mount(8) where the program is used as their
//! helper. Knows nothing of the format. Another program can carry it.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::cli;

/// Puts the subcommand that the program's name means before the arguments.
fn normalized(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let called = arguments.first().cloned().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let subcommand = match name.as_str() {
        "mkfs.minfs" => Some("mkfs"),
        "fsck.minfs" | "fsck.fuse.minfs" => Some("fsck"),
        "mount.minfs" | "mount.fuse.minfs" => Some("mount"),
        "umount.minfs" => Some("umount"),
        _ => {
            // Anything else that is a path asks for a mount, since mount.fuse(8) calls
            // `minfs DEVICE DIRECTORY -o OPTIONS` for `mount -t fuse.minfs`.
            let first = arguments.get(1).map(|first| first.to_string_lossy());
            let is_path =
                first.is_some_and(|first| !first.starts_with('-') && !cli::is_subcommand(&first));
            (is_path && arguments.len() > 2).then_some("mount")
        }
    };
    if let Some(subcommand) = subcommand {
        // The usage then shows words that can be typed.
        arguments.splice(..1, ["minfs".into(), subcommand.into()]);
    }
    arguments
}

/// Does what the arguments of this process say, the first of which is the program's name.
pub fn main() -> ExitCode {
    cli::run(normalized(std::env::args_os().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_chooses_the_subcommand() {
        let normal = |words: &[&str]| -> Vec<String> {
            let words = normalized(words.iter().map(OsString::from).collect());
            words.into_iter().map(|word| word.into_string().unwrap()).collect()
        };
        assert_eq!(normal(&["/sbin/mkfs.minfs", "x"]), ["minfs", "mkfs", "x"]);
        assert_eq!(normal(&["fsck.minfs", "-n", "x"])[1], "fsck");
        assert_eq!(normal(&["mount.minfs", "x", "y"])[1], "mount");
        assert_eq!(normal(&["minfs", "/dev/x", "/mnt", "-o", "rw"])[1], "mount");
        assert_eq!(normal(&["minfs", "ls", "x"]), ["minfs", "ls", "x"]);
        assert_eq!(normal(&["minfs", "--help"]), ["minfs", "--help"]);
    }
}
