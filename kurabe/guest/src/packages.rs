//! Packages of the package source in use, fetched and verified by apt, or out of a directory of the
//! user's. Nothing is installed.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{files_below, text_of};
use crate::{Error, program};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// SHA-256 of its file; absent of one that is installed on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// A package as it lies somewhere, verified by whoever put it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub name: String,
    pub version: String,
    pub file: PathBuf,
}

/// What another package needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    pub name: String,
    /// Where no other will do.
    pub version: Option<String>,
}

/// Downloads a package, of this version where one is named, into `directory`. `options` are apt's.
pub fn download(
    name: &str,
    version: Option<&str>,
    options: &[String],
    directory: &Path,
) -> Result<(), Error> {
    let wanted = version.map_or_else(|| name.into(), |version| format!("{name}={version}"));
    // As the user that apt takes for it, it could not write into kurabe's own directory.
    let mut words = vec!["apt-get", "-q", "-o", "APT::Sandbox::User=root"];
    words.extend(options.iter().map(String::as_str));
    words.extend(["download", &wanted]);
    program::output(&words, Some(directory)).map(drop)
}

/// The package of this name in a directory, of this version where one is named.
pub fn in_directory(name: &str, wanted: Option<&str>, directory: &Path) -> Result<Fetched, Error> {
    let begin = format!("{name}_");
    let mut found = Vec::new();
    for file in files_in(directory)?.into_iter().filter(|file| file.starts_with(&begin)) {
        let file = directory.join(file);
        let shown = file.display().to_string();
        let version = program::text(&["dpkg-deb", "-f", &shown, "Version"])?.trim().to_string();
        if wanted.is_none_or(|wanted| wanted == version) {
            found.push(Fetched { name: name.into(), version, file });
        }
    }
    let wanted = wanted.map(|version| format!(" {version}")).unwrap_or_default();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Error::Refused(format!(
            "{}: there is no package {name}{wanted}",
            directory.display()
        ))),
        count => Err(Error::Refused(format!(
            "{}: there are {count} files of the package {name}{wanted}; keep one",
            directory.display()
        ))),
    }
}

/// The names of the packages' files in a directory, none of which a stranger can change: a stranger's
/// package is a stranger's kernel.
pub fn files_in(directory: &Path) -> Result<Vec<String>, Error> {
    let opened = trust::Directory::open_shared(directory)?;
    let names = opened.names()?.into_iter().map(OsString::into_string);
    let files: Vec<String> =
        names.filter_map(Result::ok).filter(|name| name.ends_with(".deb")).collect();
    for file in &files {
        opened.open_file(file)?;
    }
    Ok(files)
}

/// Unpacks a package into a directory, and takes away every link in it that leads out of the directory: tools that are
/// run in such a tree later follow links as any program does, with root's rights.
pub fn unpack(file: &Path, root: &Path) -> Result<(), Error> {
    program::output(&["dpkg-deb", "-x", text_of(file)?, text_of(root)?], None)?;
    let is_out = |below: &PathBuf| root.join(below).is_symlink() && leaves(root, below);
    for below in files_below(root)?.into_iter().filter(is_out) {
        let path = root.join(below);
        std::fs::remove_file(&path).map_err(Error::at(&path))?;
    }
    Ok(())
}

/// Links that are followed on one path, as the kernel counts them.
const LINKS_MAX: usize = 40;

/// Whether the kernel would leave `root` where it follows `below`: by an absolute link, by one that leads above
/// it, or in a circle.
fn leaves(root: &Path, below: &Path) -> bool {
    let mut ahead: Vec<PathBuf> = below.iter().rev().map(PathBuf::from).collect();
    let mut at = PathBuf::new();
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        match part.components().next() {
            None | Some(Component::CurDir) => continue,
            Some(Component::ParentDir) => {
                if !at.pop() {
                    return true;
                }
                continue;
            }
            Some(Component::RootDir | Component::Prefix(_)) => return true,
            Some(Component::Normal(_)) => {}
        }
        let Ok(target) = std::fs::read_link(root.join(&at).join(&part)) else {
            at.push(part);
            continue;
        };
        links += 1;
        if links > LINKS_MAX {
            return true;
        }
        ahead.extend(target.iter().rev().map(PathBuf::from));
    }
    false
}

/// What a package says that it depends on, the first of alternatives.
pub fn dependencies(file: &Path) -> Result<Vec<Dependency>, Error> {
    let text = program::text(&["dpkg-deb", "-f", &file.display().to_string(), "Depends"])?;
    Ok(text.split(',').filter_map(dependency).collect())
}

fn dependency(text: &str) -> Option<Dependency> {
    let first = text.split('|').next()?.trim();
    let (name, rest) = first.split_once(' ').unwrap_or((first, ""));
    let version = rest.trim().strip_prefix("(= ").and_then(|rest| rest.strip_suffix(')'));
    // A name may say for which architecture.
    let name = name.split(':').next().filter(|name| !name.is_empty())?.to_string();
    Some(Dependency { name, version: version.map(str::to_string) })
}

/// apt's options by which it reads a component of the package source that may not be listed there, such
/// as `contrib`.
pub fn with_component(component: &str, directory: &Path) -> Result<Vec<String>, Error> {
    let sources = sources()?;
    if sources.iter().any(|source| source.component == component) {
        return Ok(Vec::new());
    }
    let wanted =
        sources.iter().map(|source| format!("{} {} {component}", source.uri, source.suite));
    with_lists(wanted.collect(), component, directory)
}

/// apt's options by which it reads other suites of Debian, from where this machine's come from. What is
/// installed here counts for nothing then: it may be newer.
pub fn with_suites(suites: &[&str], directory: &Path) -> Result<Vec<String>, Error> {
    let wanted = suites_from(&sources()?, suites);
    let mut options = with_lists(wanted, &suites.join(" and "), directory)?;
    options.extend(["-o".into(), "Dir::State::status=/dev/null".into()]);
    Ok(options)
}

/// One of Debian's lists that apt reads here.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    component: String,
    uri: String,
    suite: String,
}

fn sources() -> Result<Vec<Source>, Error> {
    let format = "$(ORIGIN) $(COMPONENT) $(REPO_URI) $(RELEASE)";
    let words = ["apt-get", "indextargets", "--format", format, "Identifier: Packages"];
    Ok(sources_in(&program::text(&words)?))
}

fn sources_in(targets: &str) -> Vec<Source> {
    let source = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [origin, component, uri, suite] if origin.starts_with("Debian") => {
            Some(Source { component: component.into(), uri: uri.into(), suite: suite.into() })
        }
        _ => None,
    };
    targets.lines().filter_map(source).collect()
}

/// The lines of other suites, from where the first of these comes that is no archive of security fixes.
fn suites_from(sources: &[Source], suites: &[&str]) -> Vec<String> {
    let main = sources.iter().find(|source| !source.suite.ends_with("-security"));
    let lines = main.map(|main| suites.iter().map(|suite| format!("{} {suite} main", main.uri)));
    lines.into_iter().flatten().collect()
}

/// Reads lists of our own below `directory`, signed as Debian's others are: `URI SUITE COMPONENT` each.
fn with_lists(mut wanted: Vec<String>, what: &str, directory: &Path) -> Result<Vec<String>, Error> {
    let key = KEYS.iter().find(|key| Path::new(key).exists());
    let signed = key.map_or_else(String::new, |key| format!("[signed-by={key}] "));
    wanted.dedup();
    if wanted.is_empty() {
        return Err(Error::Refused(format!(
            "the package source has no {what}, and is not Debian's"
        )));
    }
    let lines: Vec<String> = wanted.iter().map(|one| format!("deb {signed}{one}\n")).collect();
    let list = directory.join("sources.list");
    std::fs::write(&list, lines.concat()).map_err(Error::at(&list))?;
    let own = |what: &str, name: &str| {
        ["-o".into(), format!("{what}={}", directory.join(name).display())]
    };
    let mut options: Vec<String> =
        ["-o", "APT::Sandbox::User=root", "-o", "Dir::Etc::SourceParts=-"]
            .map(str::to_string)
            .into();
    options.extend(own("Dir::Etc::SourceList", "sources.list"));
    options.extend(own("Dir::State::Lists", "lists"));
    options.extend(own("Dir::Cache", "cache"));
    for name in ["lists/partial", "cache/archives/partial"] {
        let path = directory.join(name);
        std::fs::create_dir_all(&path).map_err(Error::at(&path))?;
    }
    let mut words = vec!["apt-get", "-q"];
    words.extend(options.iter().map(String::as_str));
    words.push("update");
    program::output(&words, None)?;
    Ok(options)
}

/// The keys of Debian's archive.
const KEYS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_of_a_package_are_not_unpacked() {
        use std::os::unix::fs::symlink;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let tree = home.path().join("tree");
        std::fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        std::fs::create_dir_all(tree.join("usr/lib/deep")).unwrap();
        let control =
            "Package: p\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: d\n";
        std::fs::write(tree.join("DEBIAN/control"), control).unwrap();
        for (place, target) in [
            ("absolute", "/var/tmp"),
            ("above", "../outside"),
            // By itself it stays within, and through another one it does not.
            ("usr/lib/deep/up", "../../.."),
            ("chain", "usr/lib/deep/up/../outside"),
            ("circle", "circle"),
            ("lib", "usr/lib"),
            ("dangling", "usr/lib/comes/later"),
            ("usr/lib/deep/fine", "../deep"),
        ] {
            symlink(target, tree.join(place)).unwrap();
        }
        let file = home.path().join("p.deb");
        let words = ["dpkg-deb", "-b", text_of(&tree).unwrap(), text_of(&file).unwrap()];
        if program::output(&words, None).is_err() {
            return eprintln!("SKIPPED: dpkg-deb does not build a package here");
        }
        let root = home.path().join("root");
        unpack(&file, &root).unwrap();
        let left: Vec<String> =
            files_below(&root).unwrap().iter().map(|path| path.display().to_string()).collect();
        assert_eq!(left, ["dangling", "lib", "usr/lib/deep/fine", "usr/lib/deep/up"]);
    }

    #[test]
    fn dependencies_have_a_name_and_a_version_where_only_one_will_do() {
        let is = |text: &str, name: &str, version: Option<&str>| {
            let expected = Dependency { name: name.into(), version: version.map(str::to_string) };
            assert_eq!(dependency(text), Some(expected), "{text}");
        };
        is(" libzfs4linux (= 2.1.11-1)", "libzfs4linux", Some("2.1.11-1"));
        is("linux-kbuild-6.1 (>= 6.1.192-2)", "linux-kbuild-6.1", None);
        is("linux-image-6 (= 6-1) | linux-image-6-unsigned (= 6-1)", "linux-image-6", Some("6-1"));
        is("perl:any", "perl", None);
        assert_eq!(dependency(" "), None);
    }

    #[test]
    fn other_suites_come_from_where_this_machines_do_and_only_of_debian() {
        let targets = "Debian main http://security/debian bookworm-security\n\
                       Other main http://other/x stable\nDebian main http://mirror/debian bookworm\n";
        let sources = sources_in(targets);
        let suites = suites_from(&sources, &["experimental", "trixie"]);
        let expected =
            ["http://mirror/debian experimental main", "http://mirror/debian trixie main"];
        assert_eq!(suites, expected);
        assert!(
            suites_from(&sources_in("Other main http://other/x stable\n"), &["trixie"]).is_empty()
        );
    }
}
