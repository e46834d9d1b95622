//! The release of a kernel, as `uname -r` prints it.
//!
//! It comes out of a kernel image or a package and becomes a directory name below `lib/modules`, so it is
//! checked where it enters: a [`Release`] is one plain name and never a path, an option or `..`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Bytes of a release at most: what utsname(2) holds without its final zero.
const BYTES_MAX: usize = 64;

/// A checked release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Release(String);

impl Release {
    /// Checks a release.
    ///
    /// Errors: it is longer than 64 bytes, does not begin with a digit, or has other characters than letters,
    /// digits and `._+~-`.
    pub fn parse(text: &str) -> Result<Release, Error> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._+~-".contains(c);
        let begins_well = text.chars().next().is_some_and(|first| first.is_ascii_digit());
        if begins_well && text.len() <= BYTES_MAX && text.chars().all(is_plain) {
            return Ok(Release(text.into()));
        }
        let shown: String = text.chars().take(2 * BYTES_MAX).collect();
        Err(Error::Refused(format!(
            "{shown:?} is not the release of a Linux kernel: one begins with a digit, has letters, digits and \
             '._+~-' only, and at most {BYTES_MAX} bytes; use another kernel"
        )))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Release {
    type Error = String;

    fn try_from(text: String) -> Result<Release, String> {
        Release::parse(&text).map_err(|error| error.to_string())
    }
}

impl From<Release> for String {
    fn from(release: Release) -> String {
        release.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_one_plain_name() {
        for text in ["6.1.0-56-amd64", "6.12.117+deb12-amd64", "7.0_rc1~x", "6", &"6".repeat(64)] {
            assert_eq!(Release::parse(text).unwrap().as_str(), text);
        }
        let long = "6".repeat(65);
        for text in ["", ".", "..", "6/..", "/etc", "-r", "6.1\n", "6 1", "6\0", "é6", "6é", &long]
        {
            assert!(matches!(Release::parse(text), Err(Error::Refused(_))), "{text:?}");
            let json = serde_json::to_string(text).unwrap();
            assert!(serde_json::from_str::<Release>(&json).is_err(), "{text:?} from a file");
        }
    }
}
