//! Where contenders run, in the notation of a contender: what follows `on`.

use serde::{Deserialize, Serialize};

/// Where a contender runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnvironmentSpec {
    #[default]
    ThisMachine,
    /// A guest, by its notation, which is booted for each trial.
    Guest(String),
    /// Several guests of one kind that share the contender's disk, and a network that is theirs alone.
    Guests {
        guest: String,
        nodes: u32,
        /// Whether all work in one directory, on the same files, in the place of one for each.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        same_files: bool,
    },
    /// Another machine, as ssh(1) is told it.
    Ssh(String),
    /// Several other machines that have the contender's directory mounted, each a node.
    Hosts {
        /// As ssh(1) is told them.
        hosts: Vec<String>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        same_files: bool,
    },
}

/// What the notation of another machine begins with.
const SSH: &str = "ssh:";

/// What follows on several guests that work on the same files.
pub(crate) const SAME_FILES: &str = "same-files";

/// Nodes of one contender, at most: each guest has memory and processors of its own.
const NODES_MAX: u32 = 8;

impl EnvironmentSpec {
    /// Reads what follows `on`: `ssh:HOST`, `ssh:HOST,ssh:HOST [same-files]`, a guest, or `N GUEST [same-files]`.
    pub fn parse(text: &str) -> Result<EnvironmentSpec, String> {
        if let Some((count, guest)) = text.split_once(' ').filter(|(count, _)| is_count(count)) {
            let files = guest.rsplit_once(' ').filter(|(_, last)| *last == SAME_FILES);
            let (guest, same_files) = files.map_or((guest, false), |(guest, _)| (guest, true));
            return match (count.parse(), guest.starts_with(SSH)) {
                (Ok(nodes), false) if (2..=NODES_MAX).contains(&nodes) => {
                    Ok(EnvironmentSpec::Guests { guest: guest.into(), nodes, same_files })
                }
                (_, true) => {
                    Err(format!("'{text}': machines are named one by one; write ssh:a,ssh:b"))
                }
                _ => Err(format!(
                    "'{text}': several nodes are 2 to {NODES_MAX}; leave the number out for one"
                )),
            };
        }
        let (hosts, same_files) = match text.rsplit_once(' ') {
            Some((hosts, last)) if last == SAME_FILES => (hosts, true),
            _ => (text, false),
        };
        if hosts.starts_with(SSH) && (hosts.contains(',') || same_files) {
            return EnvironmentSpec::of_hosts(hosts, same_files);
        }
        match text.strip_prefix(SSH) {
            None => Ok(EnvironmentSpec::Guest(text.into())),
            Some(host) => check_host(host).map(|()| EnvironmentSpec::Ssh(host.into())),
        }
    }

    /// Several machines, by their notation.
    fn of_hosts(text: &str, same_files: bool) -> Result<EnvironmentSpec, String> {
        let mut hosts: Vec<String> = Vec::new();
        for part in text.split(',') {
            let Some(host) = part.strip_prefix(SSH) else {
                return Err(format!("'{part}' is no machine; write {SSH}{part}"));
            };
            check_host(host)?;
            if hosts.iter().any(|other| other == host) {
                return Err(format!("'{text}': {host} is there twice; each node is a machine"));
            }
            hosts.push(host.into());
        }
        match hosts.len() {
            2.. if hosts.len() <= NODES_MAX as usize => {
                Ok(EnvironmentSpec::Hosts { hosts, same_files })
            }
            _ => Err(format!("'{text}': several nodes are 2 to {NODES_MAX}; write ssh:a,ssh:b")),
        }
    }

    /// The words that follow `on`; none do for this machine.
    pub(crate) fn on(&self) -> Vec<String> {
        match self {
            EnvironmentSpec::Guest(guest) => vec![guest.clone()],
            EnvironmentSpec::Guests { guest, nodes, same_files } => {
                let files = same_files.then(|| SAME_FILES.to_string());
                [nodes.to_string(), guest.clone()].into_iter().chain(files).collect()
            }
            EnvironmentSpec::Ssh(host) => vec![format!("{SSH}{host}")],
            EnvironmentSpec::Hosts { hosts, same_files } => {
                let hosts: Vec<String> = hosts.iter().map(|host| format!("{SSH}{host}")).collect();
                let files = same_files.then(|| SAME_FILES.to_string());
                std::iter::once(hosts.join(",")).chain(files).collect()
            }
            EnvironmentSpec::ThisMachine => Vec::new(),
        }
    }

    /// The environment in words. Contenders in environments of different words are not compared.
    pub fn words(&self) -> String {
        match self {
            EnvironmentSpec::Guest(_) | EnvironmentSpec::Guests { .. } => "in a guest".into(),
            EnvironmentSpec::Ssh(host) => format!("on {host}"),
            EnvironmentSpec::Hosts { hosts, .. } => format!("on {}", hosts.join(" and ")),
            EnvironmentSpec::ThisMachine => "on this machine".into(),
        }
    }

    pub fn is_this_machine(&self) -> bool {
        *self == EnvironmentSpec::ThisMachine
    }

    pub fn guest(&self) -> Option<&str> {
        match self {
            EnvironmentSpec::Guest(guest) | EnvironmentSpec::Guests { guest, .. } => Some(guest),
            EnvironmentSpec::ThisMachine
            | EnvironmentSpec::Ssh(_)
            | EnvironmentSpec::Hosts { .. } => None,
        }
    }

    /// Whether several nodes work on the same files.
    pub fn same_files(&self) -> bool {
        matches!(
            self,
            EnvironmentSpec::Guests { same_files: true, .. }
                | EnvironmentSpec::Hosts { same_files: true, .. }
        )
    }

    /// Has several nodes work on the same files; false where there is one.
    pub fn share_files(&mut self) -> bool {
        match self {
            EnvironmentSpec::Guests { same_files, .. }
            | EnvironmentSpec::Hosts { same_files, .. } => {
                *same_files = true;
                true
            }
            EnvironmentSpec::ThisMachine | EnvironmentSpec::Guest(_) | EnvironmentSpec::Ssh(_) => {
                false
            }
        }
    }

    /// Has several nodes work on the same files.
    pub fn use_same_files(&mut self) {
        if let EnvironmentSpec::Guests { same_files, .. } = self {
            *same_files = true;
        }
    }

    /// How many nodes mount the contender.
    pub fn nodes(&self) -> u32 {
        match self {
            EnvironmentSpec::Guests { nodes, .. } => *nodes,
            EnvironmentSpec::Hosts { hosts, .. } => hosts.len() as u32,
            EnvironmentSpec::ThisMachine | EnvironmentSpec::Guest(_) | EnvironmentSpec::Ssh(_) => 1,
        }
    }

    /// The other machines; none where it is on this one.
    pub fn hosts(&self) -> &[String] {
        match self {
            EnvironmentSpec::Ssh(host) => std::slice::from_ref(host),
            EnvironmentSpec::Hosts { hosts, .. } => hosts,
            EnvironmentSpec::ThisMachine
            | EnvironmentSpec::Guest(_)
            | EnvironmentSpec::Guests { .. } => &[],
        }
    }

    /// Whether it is several machines that are there already, whose common directory is a contender.
    pub fn has_common_directory(&self) -> bool {
        matches!(self, EnvironmentSpec::Hosts { .. })
    }
}

/// Whether a word between `on` and a guest is a number of nodes.
pub(crate) fn is_count(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_digit())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_before_a_guest_is_that_of_nodes() {
        let two = EnvironmentSpec::parse("2 debian").unwrap();
        assert_eq!((two.guest(), two.nodes(), two.hosts().len()), (Some("debian"), 2, 0));
        assert!(!two.same_files() && !serde_json::to_string(&two).unwrap().contains("same"));
        let same = EnvironmentSpec::parse("2 debian same-files").unwrap();
        assert_eq!((same.guest(), same.nodes(), same.same_files()), (Some("debian"), 2, true));
        assert_eq!(EnvironmentSpec::parse("debian").unwrap().nodes(), 1);
        assert_eq!(EnvironmentSpec::parse("/boot/a b").unwrap().guest(), Some("/boot/a b"));
        for text in ["0 debian", "1 debian", "9 debian", "99999999999 debian"] {
            let said = EnvironmentSpec::parse(text).unwrap_err();
            assert!(said.contains("2 to 8; leave the number out for one"), "{said}");
        }
        assert!(EnvironmentSpec::parse("2 ssh:box").unwrap_err().contains("write ssh:a,ssh:b"));
    }

    #[test]
    fn several_machines_are_named_one_by_one() {
        let two = EnvironmentSpec::parse("ssh:a,ssh:joe@b").unwrap();
        assert_eq!((two.hosts().join(" "), two.nodes()), ("a joe@b".into(), 2));
        assert_eq!((two.words(), two.same_files()), ("on a and joe@b".into(), false));
        let mut same = EnvironmentSpec::parse("ssh:a,ssh:joe@b same-files").unwrap();
        assert!(same.same_files() && same.on() == ["ssh:a,ssh:joe@b", "same-files"]);
        assert_eq!(serde_json::to_string(&two).unwrap(), r#"{"hosts":{"hosts":["a","joe@b"]}}"#);
        assert!(two != same && same.share_files());
        for (text, said) in [
            ("ssh:a,b", "write ssh:b"),
            ("ssh:a,ssh:-o", "names no machine"),
            ("ssh:a,ssh:a", "a is there twice"),
            ("ssh:a same-files", "several nodes are 2 to 8"),
        ] {
            let error = EnvironmentSpec::parse(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
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
}
