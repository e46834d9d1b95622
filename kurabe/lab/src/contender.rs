//! The notation of a contender: `[LABEL: ]FS [MKFS OPTIONS] [@ MOUNT OPTIONS] [on PLACE]`.
//!
//! This file knows the notation only; which file systems exist, and which of their options make
//! sense, is the trial room's business. Options are split as a shell would split them and are
//! handed to mkfs as they are, never through a shell.

use std::path::Path;

use crate::name;
use serde::{Deserialize, Serialize};
use vocabulary::path::UserPath;
use vocabulary::suggestion::unknown;

pub(crate) mod outside;

/// One storage stack to compare.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contender {
    /// The name in tables and on the command line; unique in a study.
    #[serde(deserialize_with = "name::read")]
    pub label: String,
    /// Name of the file-system descriptor: `ext4`, `xfs`, `dir`, ...
    pub file_system: String,
    /// Where it runs.
    #[serde(default, alias = "directory", skip_serializing_if = "Place::is_this_host")]
    pub place: Place,
    /// Words handed to mkfs, before the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mkfs_options: Vec<String>,
    /// Mount options, one word each (`noatime`, `commit=30`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_options: Vec<String>,
    /// What stands between the study's device and this contender alone, the uppermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
}

/// Where a contender runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// This host, on a device of the study.
    #[default]
    ThisHost,
    /// A guest, by its notation, which is booted for each trial.
    Guest(String),
    /// Another machine, as ssh(1) is told it.
    Ssh(String),
    /// An existing directory of this host, as it is; written as its path.
    #[serde(untagged)]
    Directory(UserPath),
}

/// What the notation of another machine begins with.
const SSH: &str = "ssh:";

impl Place {
    /// Reads what follows `on`: `ssh:HOST`, or a guest.
    pub fn parse(text: &str) -> Result<Place, String> {
        match text.strip_prefix(SSH) {
            None => Ok(Place::Guest(text.into())),
            Some(host) => check_host(host).map(|()| Place::Ssh(host.into())),
        }
    }

    /// What follows `on`; nothing does for a place on this machine.
    fn on(&self) -> Option<String> {
        match self {
            Place::Guest(guest) => Some(guest.clone()),
            Place::Ssh(host) => Some(format!("{SSH}{host}")),
            Place::ThisHost | Place::Directory(_) => None,
        }
    }

    /// Where a contender lives, in words. What lives at places of different words is not compared.
    pub fn words(&self) -> String {
        match self {
            Place::Guest(_) => "in a guest".into(),
            Place::Ssh(host) => format!("on {host}"),
            Place::ThisHost | Place::Directory(_) => "on this machine".into(),
        }
    }

    fn is_this_host(&self) -> bool {
        *self == Place::ThisHost
    }

    /// The existing directory.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Place::Directory(path) => Some(path),
            Place::ThisHost | Place::Guest(_) | Place::Ssh(_) => None,
        }
    }

    /// The notation of the guest.
    pub fn guest(&self) -> Option<&str> {
        match self {
            Place::Guest(guest) => Some(guest),
            Place::ThisHost | Place::Ssh(_) | Place::Directory(_) => None,
        }
    }

    /// The other machine.
    pub fn host(&self) -> Option<&str> {
        match self {
            Place::Ssh(host) => Some(host),
            Place::ThisHost | Place::Guest(_) | Place::Directory(_) => None,
        }
    }
}

/// Refuses what is no name of a machine: `HOST`, `USER@HOST` or `//USER@HOST:PORT`. Nothing in it can
/// be an option of ssh or of a program that its configuration names, or mean something to a shell, also
/// after ssh has decoded `%XX`: there is a `%` only before the zone of an IPv6 address in brackets.
pub fn check_host(host: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@/._-:".contains(c);
    let is_name =
        |part: &str| !part.is_empty() && !part.starts_with('-') && part.chars().all(is_plain);
    let whole = host.strip_prefix("//").unwrap_or(host);
    let (users, address) = match whole.rsplit_once('@') {
        Some((users, address)) => (Some(users), address),
        None => (None, whole),
    };
    let is_address = match address.strip_prefix('[') {
        Some(bracketed) => is_bracketed(bracketed),
        None => is_name(address),
    };
    if is_address && users.is_none_or(|users| users.split('@').all(is_name)) {
        Ok(())
    } else {
        Err(format!(
            "'{SSH}{host}' names no machine; write {SSH}HOST, {SSH}USER@HOST, {SSH}//USER@HOST:PORT or \
         {SSH}//USER@[IPV6%ZONE]:PORT"
        ))
    }
}

/// Whether this is what follows the opening bracket of an IPv6 address: its end, and a port.
fn is_bracketed(text: &str) -> bool {
    let Some((inner, port)) = text.split_once(']') else { return false };
    let (address, zone) = match inner.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (inner, None),
    };
    let is_zone = |zone: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !zone.is_empty() && zone.chars().all(is_plain)
    };
    let is_port = |port: &str| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit());
    !address.is_empty()
        && address.chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c))
        && zone.is_none_or(is_zone)
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Why a contender could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("contender '{text}': {problem}")]
pub struct ContenderError {
    /// The text that was given, whole.
    pub text: String,
    /// What is wrong with it, naming the word, and the next step.
    pub problem: String,
}

impl Contender {
    /// Reads a contender. `known` are the file systems that the machine's descriptors name; the
    /// nearest of them is suggested for an unknown one.
    pub fn parse(text: &str, known: &[&str]) -> Result<Contender, ContenderError> {
        let fail = |problem: String| ContenderError { text: text.to_string(), problem };
        let (label, rest) = split_label(text);
        let words = shlex::split(rest)
            .ok_or_else(|| fail("a quote is not closed; close it or escape it".into()))?;
        let (words, on) = match words.as_slice() {
            [rest @ .., on, place] if on == "on" && !rest.is_empty() => {
                (rest, Some(Place::parse(place).map_err(fail)?))
            }
            [.., on] if on == "on" => {
                return Err(fail("'on' is followed by no place; leave 'on' out".into()));
            }
            all => (all, None),
        };
        let mut parts = words.splitn(2, |word| word == "@");
        let left = parts.next().unwrap_or_default();
        let right = parts.next();
        let Some((head, mkfs_options)) = left.split_first() else {
            return Err(fail(format!(
                "no file system is named; write [LABEL: ]FS [MKFS OPTIONS] [@ MOUNT OPTIONS] [on PLACE], with FS one of {}",
                known.join(", ")
            )));
        };
        let (file_system, place) = match head.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => {
                ("dir", Place::Directory(UserPath::typed(path)))
            }
            _ if head == "dir" || head == "dir:" => {
                return Err(fail("'dir' needs a directory, as in dir:/mnt/data".into()));
            }
            _ => (head.as_str(), Place::ThisHost),
        };
        if !known.contains(&file_system) {
            return Err(fail(unknown("file system is called", file_system, known)));
        }
        // Each further '@' begins a list of mount options that is joined to the first.
        let lists: Vec<&[String]> =
            right.map(|words| words.split(|word| word == "@").collect()).unwrap_or_default();
        let is_empty = lists.iter().any(|list| split_mount_options(list).is_empty());
        let mount_options: Vec<String> = lists.into_iter().flat_map(split_mount_options).collect();
        if is_empty {
            return Err(fail("'@' is followed by no mount option; leave '@' out".into()));
        }
        if place != Place::ThisHost && !(mkfs_options.is_empty() && mount_options.is_empty()) {
            return Err(fail(
                "a dir: contender is never formatted or mounted, so it takes no options; leave them out".into(),
            ));
        }
        let place = match (place, on) {
            (Place::ThisHost, Some(on)) => on,
            (Place::Directory(_), Some(_)) => {
                return Err(fail(
                    "a dir: contender is a directory of this machine; leave 'on' out".into(),
                ));
            }
            (place, _) => place,
        };
        let label = match label {
            Some("") => {
                return Err(fail(
                    "the label before ':' is empty; name it or leave ': ' out".into(),
                ));
            }
            Some(label) => label.to_string(),
            None => rest.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        let contender = Contender {
            label: name::of(&label),
            file_system: file_system.to_string(),
            place,
            mkfs_options: mkfs_options.to_vec(),
            mount_options,
            layers: Vec::new(),
        };
        outside::check(&contender).map_err(fail)?;
        Ok(contender)
    }

    /// Whether it is made on a device of the study.
    pub fn needs_device(&self) -> bool {
        self.place.directory().is_none()
    }

    /// The notation that parses to this contender, with its label.
    pub fn notation(&self) -> String {
        let mut words = vec![match &self.place {
            Place::Directory(path) => format!("dir:{path}"),
            Place::ThisHost | Place::Guest(_) | Place::Ssh(_) => self.file_system.clone(),
        }];
        words.extend(self.mkfs_options.iter().cloned());
        let mut rest =
            shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "));
        if !self.mount_options.is_empty() {
            rest.push_str(" @ ");
            rest.push_str(&self.mount_options.join(","));
        }
        if let Some(on) = self.place.on() {
            rest.push_str(" on ");
            rest.push_str(&shlex::try_quote(&on).unwrap_or_else(|_| on.as_str().into()));
        }
        if self.label == rest { rest } else { format!("{}: {rest}", self.label) }
    }
}

/// Splits `LABEL: REST` at the first colon that a space follows. `dir:/path` has none.
fn split_label(text: &str) -> (Option<&str>, &str) {
    match text.split_once(": ") {
        Some((label, rest)) => (Some(label.trim()), rest.trim()),
        None => (None, text.trim()),
    }
}

/// Mount options may be written with commas, spaces or both; commas inside quotes stay, as
/// mount(8) has it for security labels.
fn split_mount_options(words: &[String]) -> Vec<String> {
    let words = words.iter().filter(|word| word.as_str() != "-o");
    let mut options = Vec::new();
    for word in words {
        let mut option = String::new();
        let mut quoted = false;
        for character in word.chars() {
            match character {
                '"' => {
                    quoted = !quoted;
                    option.push(character);
                }
                ',' if !quoted => options.push(std::mem::take(&mut option)),
                _ => option.push(character),
            }
        }
        options.push(option);
    }
    options.retain(|option| !option.is_empty());
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["ext2", "ext4", "xfs", "btrfs", "dir"];

    fn parse(text: &str) -> Contender {
        Contender::parse(text, KNOWN).unwrap()
    }

    #[test]
    fn a_percent_sign_stands_only_before_the_zone_of_an_address_in_brackets() {
        let machines = ["box", "joe@box", "//joe@box:22", "a@b@box", "fe80::1", "//[fe80::1]"];
        let zones = ["//joe@[fe80::1%eth0]:22", "//[fe80::1%25eth0.7]"];
        for host in machines.iter().chain(&zones) {
            assert_eq!(check_host(host), Ok(()), "{host}");
        }
        let encoded =
            ["//u%0aMatch@box", "u%0a@box", "//box%0a", "fe80::1%eth0", "//u%0a@[::1%lo]"];
        let broken =
            ["[", "//[]", "//[%lo]", "//[::1", "//[::1%]", "//[::1%a%0a]", "//[::1]x", "//[x%0a]"];
        for host in encoded.iter().chain(&broken).chain(&["", "-o", "a@-o", "a;b", "[::1]:", "]"]) {
            assert!(check_host(host).is_err(), "{host}");
        }
    }

    #[test]
    fn reads_the_whole_notation() {
        let contender = parse("nj: ext4 -O ^has_journal @ noatime,commit=30 data=writeback");
        assert_eq!(contender.label, "nj");
        assert_eq!(contender.file_system, "ext4");
        assert_eq!(contender.mkfs_options, ["-O", "^has_journal"]);
        assert_eq!(contender.mount_options, ["noatime", "commit=30", "data=writeback"]);
        let joined = parse("ext4 @ noatime @ lazytime,commit=30");
        assert_eq!(joined.mount_options, ["noatime", "lazytime", "commit=30"]);
    }

    #[test]
    fn labels_default_to_what_was_written() {
        assert_eq!(parse("xfs").label, "xfs");
        assert_eq!(parse("  xfs   -m reflink=0 ").label, "xfs -m reflink=0");
        let directory = parse("dir:/mnt/data");
        assert_eq!(directory.label, "dir:/mnt/data");
        assert_eq!(directory.place, Place::Directory(UserPath::typed("/mnt/data")));
    }

    #[test]
    fn the_place_is_the_last_part() {
        let contender = parse("old: ext4 -O ^has_journal @ noatime on linux-6.1");
        assert_eq!(contender.place.guest(), Some("linux-6.1"));
        assert_eq!(contender.mount_options, ["noatime"]);
        assert_eq!(parse("xfs on /boot/vmlinuz").label, "xfs on /boot/vmlinuz");
        assert_eq!(parse("xfs").place, Place::ThisHost);
        let message = |text: &str| Contender::parse(text, KNOWN).unwrap_err().to_string();
        assert!(message("xfs on").contains("no place"), "{}", message("xfs on"));
        assert!(message("dir:/x on debian").contains("directory of this machine"));
    }

    #[test]
    fn another_machine_is_named_and_is_no_option() {
        for host in ["box", "root@box.example", "//root@[fe80::1%eth0]:2222", "10.0.0.1"] {
            let contender = parse(&format!("a: xfs on ssh:{host}"));
            assert_eq!((contender.place.host(), contender.place.guest()), (Some(host), None));
            assert_eq!(parse(&contender.notation()), contender);
            let json = serde_json::to_string(&contender).unwrap();
            assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), contender, "{json}");
        }
        for host in
            ["", "-oProxyCommand=x", "root@-x", "//-x", "a b", "a;b", "$(a)", "a\n", "@", "a'"]
        {
            let said = check_host(host).unwrap_err();
            assert!(said.contains("names no machine; write ssh:HOST"), "{said}");
        }
        let said = Contender::parse("xfs on ssh:-x", KNOWN).unwrap_err().to_string();
        assert!(said.contains("'ssh:-x' names no machine"), "{said}");
    }

    #[test]
    fn notation_reads_back() {
        for text in
            ["xfs", "a: ext4 -L 'my disk' @ noatime", "here: dir:/tmp", "b: xfs @ x on '/a b'"]
        {
            let contender = parse(text);
            assert_eq!(parse(&contender.notation()), contender, "{text}");
        }
    }

    /// As they stand in results of before there were places, and in those of today.
    #[test]
    fn stored_contenders_read_back() {
        let stored = |place: &str| {
            let text = format!("{{\"label\":\"a\",\"file_system\":\"dir\"{place}}}");
            serde_json::from_str::<Contender>(&text).unwrap().place
        };
        let directory = Place::Directory(UserPath::typed("/mnt"));
        assert_eq!(stored(",\"directory\":\"/mnt\""), directory);
        assert_eq!(stored(",\"place\":\"/mnt\""), directory);
        assert_eq!(stored(""), Place::ThisHost);
        for text in ["here: dir:/tmp", "xfs"] {
            let json = serde_json::to_string(&parse(text)).unwrap();
            assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), parse(text), "{json}");
        }
    }

    #[test]
    fn errors_name_the_word_and_the_next_step() {
        let message = |text: &str| Contender::parse(text, KNOWN).unwrap_err().to_string();
        assert!(message("ext5").contains("did you mean 'ext4'"), "{}", message("ext5"));
        assert!(message("hammer").contains("there are ext2, ext4"), "{}", message("hammer"));
        assert!(message("a: ").contains("no file system is named"));
        assert!(message(": ext4").contains("label"));
        assert!(message("ext4 -L 'x").contains("quote"));
        for text in ["ext4 @", "ext4 @ @ noatime", "ext4 @ noatime @", "ext4 @ noatime @ -o"] {
            assert!(message(text).contains("'@' is followed by no mount option"), "{text}");
        }
        assert!(message("dir:").contains("directory"));
        assert!(message("dir:/x @ noatime").contains("never formatted"));
    }
}
