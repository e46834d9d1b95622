//! The notation of a contender: `[LABEL: ][STORE over] [LAYER over]... FS [MKFS OPTIONS] [@ MOUNT OPTIONS] [over LAYER]...
//! [aged PROFILE] [on ENVIRONMENT]`.
//!
//! This file knows the notation only; which file systems and layers exist, and which of their options
//! make sense, is for who makes them. Options are split as a shell would split them and are handed to
//! mkfs as they are, never through a shell.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vocabulary::path::UserPath;
use vocabulary::suggestion::unknown;

use crate::environment::{EnvironmentSpec, SAME_FILES, is_count};
use crate::name;

mod outside;
mod stored;

/// What the notation has to know about a file system, or about a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    pub name: &'static str,
    /// Whether it is a store: the topmost part of a stack, on which object programs run.
    pub is_store: bool,
    /// The short options of its mkfs that have no value.
    pub flags: &'static str,
    /// The short options of its mkfs whose value is a path.
    pub paths: &'static str,
}

impl Known {
    /// File systems of whose options nothing is known, so that whatever could be a path is refused.
    pub const fn named<const N: usize>(names: [&'static str; N]) -> [Known; N] {
        let mut all = [Known { name: "", is_store: false, flags: "", paths: "" }; N];
        let mut at = 0;
        while at < N {
            all[at].name = names[at];
            at += 1;
        }
        all
    }

    pub const fn store(name: &'static str) -> Known {
        Known { name, is_store: true, flags: "", paths: "" }
    }

    /// The names of the file systems among several, for messages.
    pub(crate) fn names(all: &[Known]) -> Vec<&'static str> {
        all.iter().filter(|one| !one.is_store).map(|one| one.name).collect()
    }

    /// Refuses a contender of this file system with an option that can name something else than its
    /// device.
    pub fn check_options(&self, contender: &Contender) -> Result<(), String> {
        outside::check(contender.base(), self)?;
        let of_layer = Known::default();
        contender.above().iter().try_for_each(|layer| outside::check(layer, &of_layer))
    }
}

/// One storage stack to compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "stored::StoredContender")]
pub struct Contender {
    /// The name in tables and on the command line; unique in a study.
    pub label: String,
    /// The store that object programs use on it, in place of the one that a workload names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Its layers from the top down; never empty. The first one is what the workload works on, the last
    /// one lies on the device.
    pub layers: Vec<Layer>,
    /// How many of the layers are above the file system: each works on a directory of the one below it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub above: usize,
    /// What its file system has been through before it is measured: a profile, or the path of an image.
    /// Which profiles there are is for who ages it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aged: Option<String>,
    #[serde(skip_serializing_if = "EnvironmentSpec::is_this_machine")]
    pub environment: EnvironmentSpec,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One part of a stack, written `NAME[:ARGUMENT] [OPTIONS] [@ MOUNT OPTIONS]`: a file system, or what
/// lies between it and the device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Name of its kind: `ext4`, `xfs`, `dir`, `delay`, ...
    pub name: String,
    /// What follows the colon: the path of an existing directory, the time of a delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// Words handed to what makes it (mkfs), before the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Mount options, one word each (`noatime`, `commit=30`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_options: Vec<String>,
}

impl Default for Contender {
    /// One without a name, on whose only layer nothing is known.
    fn default() -> Contender {
        let layers = vec![Layer::default()];
        let environment = EnvironmentSpec::default();
        Contender { label: String::new(), store: None, layers, above: 0, aged: None, environment }
    }
}

/// The kind of layer that is an existing directory, which is neither made nor mounted.
const DIRECTORY: &str = "dir";

impl Layer {
    /// The layer without options that `NAME[:ARGUMENT]` names.
    pub fn named(text: &str) -> Layer {
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument.to_string())),
            None => (text, None),
        };
        Layer { name: name.into(), argument, ..Layer::default() }
    }

    /// Reads `NAME[:ARGUMENT] [OPTIONS] [@ MOUNT OPTIONS]`, split into words.
    fn parse(words: &[String]) -> Result<Layer, String> {
        let mut lists = words.split(|word| word == "@");
        let Some((head, options)) = lists.next().and_then(<[String]>::split_first) else {
            return Err("'over' is followed by no layer; write over NAME[:ARGUMENT], such as over delay:200us".into());
        };
        // Each further '@' begins a list of mount options that is joined to the first.
        let mut mount_options = Vec::new();
        for list in lists {
            let mut list = split_mount_options(list);
            if list.is_empty() {
                return Err("'@' is followed by no mount option; leave '@' out".into());
            }
            mount_options.append(&mut list);
        }
        let mut layer = Layer { options: options.to_vec(), mount_options, ..Layer::named(head) };
        if layer.name == DIRECTORY {
            layer.argument = layer.argument.filter(|path| !path.is_empty());
            let Some(path) = &mut layer.argument else {
                return Err("'dir' needs a directory, as in dir:/mnt/data".into());
            };
            *path = UserPath::typed(&*path).display().to_string();
            if !(layer.options.is_empty() && layer.mount_options.is_empty()) {
                return Err(
                    "a dir: contender is never formatted or mounted, so it takes no options; leave them out"
                        .into(),
                );
            }
        }
        Ok(layer)
    }
}

impl fmt::Display for Layer {
    /// The notation that parses to this layer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.argument {
            Some(argument) => format!("{}:{argument}", self.name),
            None => self.name.clone(),
        };
        f.write_str(&quoted(&name))?;
        self.options.iter().try_for_each(|option| write!(f, " {}", quoted(option)))?;
        if self.mount_options.is_empty() {
            Ok(())
        } else {
            write!(f, " @ {}", self.mount_options.join(","))
        }
    }
}

/// What a shell takes away from a contender of several words.
pub const QUOTE: &str =
    "the words of one contender belong in quotes, as in 'ext4 -i 32768 @ noatime'";

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
    /// Reads a contender. `known` are the file systems and stores that there are; the nearest of the file
    /// systems is suggested for an unknown one. The first layer of such a name is the file system. Which
    /// layers there are above and below it is not looked at.
    pub fn parse(text: &str, known: &[Known]) -> Result<Contender, ContenderError> {
        let fail = |problem: String| ContenderError { text: text.to_string(), problem };
        let (label, rest) = split_label(text);
        let words = shlex::split(rest)
            .ok_or_else(|| fail("a quote is not closed; close it or escape it".into()))?;
        let (words, on) = match words.as_slice() {
            [rest @ .., on, nodes, guest, last]
                if on == "on" && is_count(nodes) && last == SAME_FILES && !rest.is_empty() =>
            {
                let text = format!("{nodes} {guest} {last}");
                (rest, Some(EnvironmentSpec::parse(&text).map_err(fail)?))
            }
            [rest @ .., on, nodes, guest] if on == "on" && is_count(nodes) && !rest.is_empty() => {
                (rest, Some(EnvironmentSpec::parse(&format!("{nodes} {guest}")).map_err(fail)?))
            }
            [rest @ .., on, hosts, last]
                if on == "on" && last == SAME_FILES && !rest.is_empty() =>
            {
                (rest, Some(EnvironmentSpec::parse(&format!("{hosts} {last}")).map_err(fail)?))
            }
            [rest @ .., on, environment] if on == "on" && !rest.is_empty() => {
                (rest, Some(EnvironmentSpec::parse(environment).map_err(fail)?))
            }
            [.., on] if on == "on" => {
                return Err(fail("'on' is followed by no environment; leave 'on' out".into()));
            }
            all => (all, None),
        };
        let (words, aged) = match words {
            [rest @ .., aged, profile] if aged == AGED && !rest.is_empty() => {
                (rest, Some(profile.clone()))
            }
            all if all.iter().any(|word| word == AGED) => {
                return Err(fail(
                    "'aged' is followed by one profile and then by nothing but 'on'; write aged git:200"
                        .into(),
                ));
            }
            all => (all, None),
        };
        if words.first().is_some_and(|first| first == "@") {
            return Err(fail(format!("'@' comes after a file system; {QUOTE}")));
        }
        if words.first().is_none_or(|first| first == "over") {
            return Err(fail(format!(
                "no file system is named; write [LABEL: ][LAYER over] FS [MKFS OPTIONS] [@ MOUNT OPTIONS] [over LAYER] [aged PROFILE] [on ENVIRONMENT], with FS one of {}",
                Known::names(known).join(", ")
            )));
        }
        let layers = words.split(|word| word == "over").map(Layer::parse);
        let mut layers: Vec<Layer> = layers.collect::<Result<_, _>>().map_err(fail)?;
        let store = take_store(&mut layers, known).map_err(fail)?;
        let find = |layer: &Layer| known.iter().find(|one| !one.is_store && one.name == layer.name);
        let above = layers.iter().position(|layer| find(layer).is_some()).unwrap_or(0);
        let base = &layers[above];
        let is_directory = base.name == DIRECTORY;
        let file_system = find(base).filter(|_| base.argument.is_none() || is_directory);
        let Some(file_system) = file_system else {
            let written = Layer { options: Vec::new(), mount_options: Vec::new(), ..base.clone() };
            let names = Known::names(known);
            return Err(fail(unknown("file system is called", &written.to_string(), &names)));
        };
        let environment = on.unwrap_or_default();
        if is_directory && (layers.len() > 1 || aged.is_some() || !can_have_directory(&environment))
        {
            return Err(fail(
                "a dir: contender is a directory of this machine as it is; leave 'over', 'aged' and 'on' out, or write on ssh:a,ssh:b for one that several machines have mounted"
                    .into(),
            ));
        }
        if !is_directory && environment.has_common_directory() {
            return Err(fail(ONLY_DIRECTORIES.into()));
        }
        let label = match label {
            Some("") => {
                return Err(fail(
                    "the label before ':' is empty; name it or leave ': ' out".into(),
                ));
            }
            Some(label) => label.to_string(),
            None => rest.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        let contender =
            Contender { label: name::of(&label), store, layers, above, aged, environment };
        file_system.check_options(&contender).map_err(fail)?;
        Ok(contender)
    }

    /// What its store lies on, in the notation of contenders: where two agree in this, their stores alone
    /// differ.
    pub fn below_store(&self) -> String {
        Contender { store: None, ..self.clone() }.stack()
    }

    /// The layer that is its file system.
    pub fn base(&self) -> &Layer {
        &self.layers[self.above]
    }

    /// The name of its file system.
    pub fn file_system(&self) -> &str {
        &self.base().name
    }

    /// What lies above its file system, the uppermost first.
    pub fn above(&self) -> &[Layer] {
        &self.layers[..self.above]
    }

    /// What lies between its file system and the device, the uppermost first.
    pub fn below(&self) -> &[Layer] {
        &self.layers[self.above + 1..]
    }

    /// The notation of each of [`Contender::below`].
    pub fn below_texts(&self) -> Vec<String> {
        self.below().iter().map(Layer::to_string).collect()
    }

    /// The existing directory that it is.
    pub fn directory(&self) -> Option<&Path> {
        self.base().argument.as_deref().filter(|_| self.file_system() == DIRECTORY).map(Path::new)
    }

    /// The same contender, on a file system that was just made.
    pub fn fresh(&self) -> Contender {
        Contender { aged: None, ..self.clone() }
    }

    /// Whether the two differ in nothing but their name and their age.
    pub fn is_of_one_stack(&self, other: &Contender) -> bool {
        let without = |one: &Contender| Contender { label: String::new(), ..one.fresh() };
        without(self) == without(other)
    }

    /// Whether it is the bare device, with nothing on it that one could choose.
    pub fn is_raw(&self) -> bool {
        self.file_system() == "raw" && self.store.is_none()
    }

    /// Whether it is made on a device of the study.
    pub fn needs_device(&self) -> bool {
        self.directory().is_none()
    }

    /// The notation that parses to this contender, with its label.
    pub fn notation(&self) -> String {
        let stack = self.stack();
        if self.label == stack { stack } else { format!("{}: {stack}", self.label) }
    }

    /// The notation without the label.
    fn stack(&self) -> String {
        let layers = self.layers.iter().map(Layer::to_string);
        let mut stack = self.store.iter().cloned().chain(layers).collect::<Vec<_>>().join(" over ");
        if let Some(aged) = &self.aged {
            stack.push_str(&format!(" {AGED} {}", quoted(aged)));
        }
        let on = self.environment.on();
        if !on.is_empty() {
            stack.push_str(" on");
        }
        for word in &on {
            stack.push(' ');
            stack.push_str(&shlex::try_quote(word).unwrap_or_else(|_| word.as_str().into()));
        }
        stack
    }
}

/// Why a file system is not made on machines that are there already.
pub(crate) const ONLY_DIRECTORIES: &str = "on several machines kurabe makes and mounts nothing; mount it on all of them yourself, and write dir:/that/mount on ssh:a,ssh:b";

/// Whether a directory that is there already can be a contender there.
fn can_have_directory(environment: &EnvironmentSpec) -> bool {
    environment.is_this_machine() || environment.has_common_directory()
}

/// Takes the store off the top of a stack that has one.
fn take_store(layers: &mut Vec<Layer>, known: &[Known]) -> Result<Option<String>, String> {
    let is_store = |layer: &Layer| known.iter().any(|one| one.is_store && one.name == layer.name);
    if let Some(lower) = layers[1..].iter().find(|layer| is_store(layer)) {
        let name = &lower.name;
        return Err(format!("'{name}' is a store, which comes first, as in '{name} over ext4'"));
    }
    if !is_store(&layers[0]) {
        return Ok(None);
    }
    let top = layers.remove(0);
    if layers.is_empty() {
        let name = &top.name;
        return Err(format!(
            "'{name}' is a store; say what it lies on, as in '{name} over ext4' or '{name} over raw'"
        ));
    }
    if top != Layer::named(&top.name) {
        return Err(format!("the store '{}' takes no options here; leave them out", top.name));
    }
    Ok(Some(top.name))
}

/// What comes before the profile.
const AGED: &str = "aged";

/// A word, in quotes where it would be another one without: shlex quotes more than that.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-+=:,./%@^".contains(c);
    let quoted = if word.is_empty()
        || !word.chars().all(is_plain)
        || ["@", AGED, "on", "over"].contains(&word)
    {
        shlex::try_quote(word).ok()
    } else {
        None
    };
    quoted.map_or_else(|| word.to_string(), |quoted| quoted.into_owned())
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

    const KNOWN: &[Known] = &Known::named(["ext2", "ext4", "xfs", "btrfs", "dir"]);

    fn parse(text: &str) -> Contender {
        Contender::parse(text, KNOWN).unwrap()
    }

    #[test]
    fn reads_the_whole_notation() {
        let contender = parse("nj: ext4 -O ^has_journal @ noatime,commit=30 data=writeback");
        assert_eq!(contender.label, "nj");
        assert_eq!(contender.file_system(), "ext4");
        assert_eq!(contender.base().options, ["-O", "^has_journal"]);
        assert_eq!(contender.base().mount_options, ["noatime", "commit=30", "data=writeback"]);
        let joined = parse("ext4 @ noatime @ lazytime,commit=30");
        assert_eq!(joined.base().mount_options, ["noatime", "lazytime", "commit=30"]);
    }

    #[test]
    fn a_store_is_the_topmost_part_of_a_stack() {
        let known = [KNOWN, &[Known::store("lump"), Known::store("files")]].concat();
        let contender = Contender::parse("a: lump over ext4 -F over delay:1ms", &known).unwrap();
        assert_eq!(contender.store.as_deref(), Some("lump"));
        assert_eq!(contender.file_system(), "ext4");
        assert_eq!(contender.notation(), "a: lump over ext4 -F over delay:1ms");
        assert_eq!(contender.below_store(), "ext4 -F over delay:1ms");
        let json = serde_json::to_string(&contender).unwrap();
        assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), contender);
        let plain = Contender::parse("files over dir:/mnt/data", &known).unwrap();
        assert_eq!(plain.directory(), Some(Path::new("/mnt/data")));

        let refused = |text: &str| Contender::parse(text, &known).unwrap_err().problem;
        assert!(refused("lump").contains("say what it lies on, as in 'lump over ext4'"));
        assert!(refused("ext4 over lump").contains("'lump' is a store, which comes first"));
        assert!(refused("lump over files over ext4").contains("'files' is a store"));
        assert!(refused("lump --fast over ext4").contains("takes no options here"));
        assert!(!refused("lumpy over ext9").contains("lump,"));
    }

    #[test]
    fn labels_default_to_what_was_written() {
        assert_eq!(parse("xfs").label, "xfs");
        assert_eq!(parse("  xfs   -m reflink=0 ").label, "xfs -m reflink=0");
        let directory = parse("dir:/mnt/data");
        assert_eq!(directory.label, "dir:/mnt/data");
        assert_eq!(directory.directory(), Some(Path::new("/mnt/data")));
    }

    #[test]
    fn the_environment_is_the_last_part() {
        let contender = parse("old: ext4 -O ^has_journal @ noatime on linux-6.1");
        assert_eq!(contender.environment.guest(), Some("linux-6.1"));
        assert_eq!(contender.base().mount_options, ["noatime"]);
        assert_eq!(parse("xfs on /boot/vmlinuz").label, "xfs on /boot/vmlinuz");
        assert_eq!(parse("xfs").environment, EnvironmentSpec::ThisMachine);
        let nodes = parse("xfs on 3 debian");
        assert_eq!((nodes.environment.guest(), nodes.environment.nodes()), (Some("debian"), 3));
        let json = serde_json::to_string(&nodes).unwrap();
        assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), nodes, "{json}");
        let message = |text: &str| Contender::parse(text, KNOWN).unwrap_err().to_string();
        assert!(message("xfs on").contains("no environment"), "{}", message("xfs on"));
        assert!(message("dir:/x on debian").contains("directory of this machine"));
        assert!(message("ext4 on ssh:a,ssh:b").contains("makes and mounts nothing"));
        let two = parse("dir:/x on ssh:a,ssh:b");
        let json = serde_json::to_string(&two).unwrap();
        assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), two, "{json}");
        let other = json.replace("\"dir\"", "\"ext4\"");
        assert!(serde_json::from_str::<Contender>(&other).is_err(), "{other}");
    }

    #[test]
    fn the_age_comes_behind_the_layers_and_before_the_environment() {
        let contender = parse("old: ext4 -m 0 @ noatime over delay:1ms aged git:200 on debian");
        assert_eq!(contender.aged.as_deref(), Some("git:200"));
        assert_eq!(contender.below_texts(), ["delay:1ms"]);
        assert_eq!(contender.environment.guest(), Some("debian"));
        assert_eq!(parse(&contender.notation()), contender);
        let json = serde_json::to_string(&contender).unwrap();
        assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), contender, "{json}");
        let fresh = parse("new: ext4 -m 0 @ noatime over delay:1ms on debian");
        assert!(fresh.is_of_one_stack(&contender));
        assert!(!fresh.is_of_one_stack(&parse("ext4 over delay:1ms on debian")));
        assert!(!serde_json::to_string(&fresh).unwrap().contains("aged"));
        assert_eq!(contender.fresh().aged, None);
        for text in
            ["ext4 aged", "ext4 aged git:2 over delay:1ms", "ext4 aged a b", "ext4 aged a @ b"]
        {
            let said = Contender::parse(text, KNOWN).unwrap_err().to_string();
            assert!(said.contains("'aged' is followed by one profile"), "{said}");
        }
        assert!(Contender::parse("dir:/x aged git:2", KNOWN).is_err());
        assert!(Contender::parse("aged git:2", KNOWN).is_err());
    }

    #[test]
    fn another_machine_is_named_and_is_no_option() {
        for host in ["box", "root@box.example", "//root@[fe80::1%eth0]:2222", "10.0.0.1"] {
            let contender = parse(&format!("a: xfs on ssh:{host}"));
            assert_eq!(
                (
                    contender.environment.hosts().first().map(String::as_str),
                    contender.environment.guest()
                ),
                (Some(host), None)
            );
            assert_eq!(parse(&contender.notation()), contender);
            let json = serde_json::to_string(&contender).unwrap();
            assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), contender, "{json}");
        }
        for host in
            ["", "-oProxyCommand=x", "root@-x", "//-x", "a b", "a;b", "$(a)", "a\n", "@", "a'"]
        {
            let said = crate::environment::check_host(host).unwrap_err();
            assert!(said.contains("names no machine; write ssh:HOST"), "{said}");
        }
        let said = Contender::parse("xfs on ssh:-x", KNOWN).unwrap_err().to_string();
        assert!(said.contains("'ssh:-x' names no machine"), "{said}");
    }

    #[test]
    fn notation_reads_back() {
        for text in [
            "xfs",
            "a: ext4 -L 'my disk' @ noatime",
            "here: dir:/tmp",
            "b: xfs @ x on '/a b'",
            "two: ext4 on 2 debian",
            "same: ext4 -F on 2 debian same-files",
            "xfs -f on 8 '/a b'",
            "c: ext4 -F @ noatime over delay:read=1ms over ignore-flush on debian",
            "ext4 -O ^has_journal over delay:flush=1ms",
            "old: xfs aged '/images/old disk.raw' on ssh:box",
            "ext4 aged churn:fill=85%,times=6",
        ] {
            let contender = parse(text);
            assert_eq!(parse(&contender.notation()), contender, "{text}");
            assert_eq!(contender.notation(), *text);
        }
    }

    #[test]
    fn layers_stand_below_the_file_system() {
        let contender = parse("ext4 @ noatime over delay:200us over ignore-flush on debian");
        assert_eq!(contender.below_texts(), ["delay:200us", "ignore-flush"]);
        assert_eq!(contender.label, "ext4 @ noatime over delay:200us over ignore-flush on debian");
        assert_eq!(contender.environment.guest(), Some("debian"));
        let options = parse("xfs over raid5 --chunk=64 @ x").layers[1].clone();
        assert_eq!(
            (options.options, options.mount_options),
            (vec!["--chunk=64".into()], vec!["x".into()])
        );
    }

    #[test]
    fn layers_over_a_directory_stand_above_the_file_system() {
        let contender = parse("g: gocryptfs -aessiv over overlayfs over ext4 -F over delay:1ms");
        assert_eq!(contender.file_system(), "ext4");
        assert_eq!(contender.base().options, ["-F"]);
        let above: Vec<&str> = contender.above().iter().map(|one| one.name.as_str()).collect();
        assert_eq!(above, ["gocryptfs", "overlayfs"]);
        assert_eq!(contender.below_texts(), ["delay:1ms"]);
        assert_eq!(parse(&contender.notation()), contender);
        let json = serde_json::to_string(&contender).unwrap();
        assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), contender, "{json}");
        let above_all = json.replace("\"above\":2", "\"above\":4");
        assert!(serde_json::from_str::<Contender>(&above_all).is_err());
        let outside = Contender::parse("overlayfs @ lowerdir=/etc over ext4", KNOWN);
        assert!(outside.unwrap_err().to_string().contains("can name something other"));
    }

    /// As they were stored before there were environments, before they were stacks, and today.
    #[test]
    fn stored_contenders_read_back() {
        let read = |text: &str| serde_json::from_str::<Contender>(text);
        let stored = |more: &str| {
            read(&format!("{{\"label\":\"a\",\"file_system\":\"dir\",\"place\":\"/mnt\"{more}}}"))
        };
        let directory = parse("a: dir:/mnt");
        assert_eq!(stored("").unwrap(), directory);
        assert_eq!(
            read(r#"{"label":"a","file_system":"dir","directory":"/mnt"}"#).unwrap(),
            directory
        );
        for (old, today) in [
            (r#"{"label":"xfs","file_system":"xfs"}"#, "xfs"),
            (
                r#"{"label":"a","file_system":"ext4","place":{"guest":"debian"},"mkfs_options":["-F"],
                "mount_options":["noatime"],"layers":["delay:1ms","record"]}"#,
                "a: ext4 -F @ noatime over delay:1ms over record on debian",
            ),
            (r#"{"label":"a","file_system":"xfs","place":{"ssh":"box"}}"#, "a: xfs on ssh:box"),
        ] {
            assert_eq!(read(old).unwrap(), parse(today));
            let json = serde_json::to_string(&parse(today)).unwrap();
            assert_eq!(read(&json).unwrap(), parse(today), "{json}");
        }
        assert!(read(r#"{"label":"a","layers":[]}"#).is_err());
        assert!(read(r#"{"label":"a","layers":[{"name":"dir"}]}"#).is_err());
        // A stored option that is two.
        let stored =
            r#"{"label":"a","layers":[{"name":"btrfs","mount_options":["subvol=a,bind"]}]}"#;
        let problem = KNOWN[3].check_options(&read(stored).unwrap()).unwrap_err();
        assert!(problem.contains("'subvol=a,bind' can name something other"), "{problem}");
        let elsewhere = r#"{"label":"a","layers":[{"name":"dir","argument":"/"}],"environment":{"guest":"debian"}}"#;
        assert!(read(elsewhere).is_err());
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
        assert!(message("@").contains(QUOTE), "{}", message("@"));
        assert!(message("dir:").contains("directory"));
        assert!(message("dir:/x @ noatime").contains("never formatted"));
    }
}
