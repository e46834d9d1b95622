//! Runs the programs that make an image: found as root's shell would find them, in the C locale.

use std::path::Path;
use std::process::{Command, Stdio};

use trust::complaint::explanation;
pub use trust::program::find;

use crate::Error;
use crate::sys;

/// The packages of programs that are not called as their package.
const PACKAGES: [(&str, &str); 8] = [
    ("apt-cache", "apt"),
    ("apt-get", "apt"),
    ("depmod", "kmod"),
    ("dpkg-deb", "dpkg"),
    ("modprobe", "kmod"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("sha256sum", "coreutils"),
    ("xz", "xz-utils"),
];

/// A command for a program that is installed.
pub fn command(name: &str) -> Result<Command, Error> {
    let mut command = trust::program::command(name).map_err(|not_found| {
        let package = PACKAGES.iter().find(|(program, _)| *program == name);
        let package = package.map_or(name, |(_, package)| package);
        Error::Refused(format!("{not_found}; {}", trust::program::how_to_install(&[package])))
    })?;
    command.env("LC_ALL", "C").env_remove("LANGUAGE").stdin(Stdio::null());
    // A build takes minutes.
    sys::die_with_parent(&mut command);
    Ok(command)
}

/// What a program printed, or the first and last lines of its complaint.
pub fn output(words: &[&str], directory: Option<&Path>) -> Result<Vec<u8>, Error> {
    let mut command = command(words[0])?;
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    let what = words.join(" ");
    let output = command.args(&words[1..]).output().map_err(Error::system(what.clone()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = explanation(&complaint, 4).replace('\n', "; ");
    Err(Error::Refused(format!("'{what}' ended with {}: {complaint}", output.status)))
}

pub fn text(words: &[&str]) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&output(words, None)?).into_owned())
}

/// The SHA-256 of each file, in their order.
pub fn sha256(paths: &[&Path]) -> Result<Vec<String>, Error> {
    let mut command = command("sha256sum")?;
    let output = command
        .args(["--zero", "--binary", "--"])
        .args(paths)
        .output()
        .map_err(Error::system("sha256sum"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sums: Vec<String> = text.split_terminator('\0').map(|line| line[..64].into()).collect();
    if output.status.success() && sums.len() == paths.len() {
        Ok(sums)
    } else {
        Err(Error::Refused(format!(
            "sha256sum: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )))
    }
}

/// The SHA-256 of some bytes.
pub fn sha256_of(bytes: &[u8], scratch: &Path) -> Result<String, Error> {
    std::fs::write(scratch, bytes).map_err(Error::at(scratch))?;
    let mut sums = sha256(&[scratch])?;
    std::fs::remove_file(scratch).map_err(Error::at(scratch))?;
    Ok(sums.remove(0))
}
