//! Names and sums of the files below a directory, and copies into one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use trust::Directory;

use crate::{Error, program};

/// Copies a file to a new one: to `below` in `directory`, with the directories above it. The copy is
/// made by descriptor and exclusively, so that it stays in `directory` and overwrites nothing, its own
/// source least of all.
///
/// Errors: `below` is not a relative path of plain names, or is taken; the source is not a trusted regular file.
pub fn copy_below(source: &Path, directory: &Path, below: &Path) -> Result<(), Error> {
    let names: Option<Vec<_>> = below
        .components()
        .map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let Some((name, above)) = names.as_deref().and_then(|names| names.split_last()) else {
        return Err(Error::Refused(format!(
            "{} cannot be copied to {below:?}, which is not a path below {}",
            source.display(),
            directory.display()
        )));
    };
    let mut from = trust::file::open(source)?;
    let mode = from.metadata().map_err(Error::at(source))?.permissions().mode() & 0o777;
    let mut directory = Directory::open(directory)?;
    for name in above {
        directory = directory.open_or_make_directory(name, 0o755)?;
    }
    let mut to = directory.create_file(name, mode)?;
    std::io::copy(&mut from, &mut to).map(drop).map_err(Error::at(source))
}

/// The files below a directory, by their paths in it, in order.
pub fn files_below(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let (mut files, mut pending) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(below) = pending.pop() {
        for name in names_in(&directory.join(&below))? {
            let (path, below) = (directory.join(&below).join(&name), below.join(&name));
            if path.is_dir() && !path.is_symlink() {
                pending.push(below);
            } else {
                files.push(below);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The files below a directory with their SHA-256, a line each.
pub fn sums_below(directory: &Path) -> Result<Vec<String>, Error> {
    let files = files_below(directory)?;
    let paths: Vec<PathBuf> = files.iter().map(|file| directory.join(file)).collect();
    let sums = program::sha256(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    let line = |(sum, file): (String, PathBuf)| format!("{sum}  {}", file.display());
    Ok(sums.into_iter().zip(files).map(line).collect())
}

pub fn names_in(directory: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(directory).map_err(Error::at(directory))?;
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

pub fn text_of(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Error::Refused(format!("{} is no text", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_below_its_directory_and_overwrites_nothing() {
        let home = tempfile::tempdir().unwrap();
        let (source, target) = (home.path().join("source"), home.path().join("target"));
        fs::write(&source, "text").unwrap();
        fs::create_dir(&target).unwrap();
        copy_below(&source, &target, Path::new("a/b")).unwrap();
        assert_eq!(fs::read_to_string(target.join("a/b")).unwrap(), "text");
        std::os::unix::fs::symlink(home.path(), target.join("link")).unwrap();
        let absolute = source.to_str().unwrap();
        for below in ["", ".", "..", "../source", "a/../../source", absolute, "a/b", "link/source"]
        {
            copy_below(&source, &target, Path::new(below)).expect_err(below);
            assert_eq!(fs::read_to_string(&source).unwrap(), "text", "{below}");
        }
    }
}
