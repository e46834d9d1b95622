//! Names and sums of the files below a directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, program};

/// The files below a directory, by their paths in it, in order.
pub fn files_below(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for name in names_in(directory)? {
        let path = directory.join(&name);
        match path.is_dir() && !path.is_symlink() {
            true => files
                .extend(files_below(&path)?.into_iter().map(|below| Path::new(&name).join(below))),
            false => files.push(name.into()),
        }
    }
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
