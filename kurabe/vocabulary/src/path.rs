//! The path of a file that the user named.
//!
//! Trials and loads run in working directories of their own, and a study can be resumed from
//! another one, so a relative path is resolved once, where flags and study files are read. The
//! invariant: a [`UserPath`] that was typed in this process is absolute.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A path as the user typed it, resolved against the user's working directory.
///
/// It is read back from plans and specs as it was stored: those of older versions can hold relative
/// paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UserPath(PathBuf);

impl UserPath {
    /// Resolves what was typed against the working directory of this process, which must be the
    /// user's. Symbolic links and `..` stay as they are, and nothing is looked up: whether the file
    /// exists is for whoever opens it. An empty path, and any path where the working directory is
    /// gone, stays as typed and fails when it is opened.
    pub fn typed(text: impl AsRef<Path>) -> UserPath {
        let text = text.as_ref();
        UserPath(std::path::absolute(text).unwrap_or_else(|_| text.into()))
    }

    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl Deref for UserPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for UserPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl From<UserPath> for PathBuf {
    fn from(path: UserPath) -> PathBuf {
        path.0
    }
}

impl fmt::Display for UserPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_path_is_absolute_and_a_stored_one_stays_as_it_is() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(UserPath::typed("a/b.tar").as_path(), here.join("a/b.tar"));
        assert_eq!(UserPath::typed("../x").as_path(), here.join("../x"));
        assert_eq!(UserPath::typed("/a/b").to_string(), "/a/b");
        let stored: UserPath = serde_json::from_str("\"x.tar\"").unwrap();
        assert_eq!(serde_json::to_string(&stored).unwrap(), "\"x.tar\"");
    }
}
