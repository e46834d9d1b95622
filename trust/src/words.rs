//! Commands: whose files those name that are run again, and the words of those that messages suggest.
//!
//! A command that was typed once and kept is run again by root later, or elsewhere. What it names may be somebody
//! else's by then. Every piece of its words that can be a path is looked at; what a shell makes of variables,
//! patterns and `~`, and what a program looks up by itself, is not known.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::way;

/// Directories that the words of one command may lead to: nobody types so many.
const PLACES_MAX: usize = 256;
/// Bytes of the words of one command that are looked through: time and memory grow faster than their number.
const BYTES_MAX: usize = 64 << 10;
/// The kernel follows no path of so many bytes: PATH_MAX.
const PATH_BYTES_MAX: usize = 4096;

/// A word as a shell reads it, for a command that a message suggests: who pastes that runs nothing that a name holds.
pub fn pasted(word: &str) -> Cow<'_, str> {
    // A comma means something to a shell in braces only.
    if shlex::try_quote(&word.replace(',', ".")).is_ok_and(|bare| !bare.starts_with(['\'', '"'])) {
        return Cow::Borrowed(word);
    }
    // No name has a zero byte.
    shlex::try_quote(word).unwrap_or(Cow::Borrowed("''"))
}

/// The same of a path.
pub fn pasted_path(path: &Path) -> String {
    pasted(&path.to_string_lossy()).into_owned()
}

/// Refuses a command of which a word names something that others than those who are believed can have put there,
/// or could put there. A piece that is no path from the root is one from `base`, where there is one, from each
/// directory that the command names, and from each to which such pieces lead (`cd /a && cd b && ./c`).
///
/// # Errors
///
/// What is refused, and what to do about it, in words.
pub fn believe(words: &[String], base: Option<&Path>) -> Result<(), String> {
    let bytes: usize = words.iter().map(|word| word.len() + 1).sum();
    if bytes > BYTES_MAX {
        return Err(format!(
            "the command has {bytes} bytes, and at most {BYTES_MAX} are looked through; put it into a script"
        ));
    }
    let pieces = pieces(words);
    let believe = |path: &Path| way::believe_name(path).map_err(|refused| refused.to_string());
    let mut absolute: Vec<PathBuf> = pieces.iter().filter_map(|piece| absolute(piece)).collect();
    absolute.extend(pieces.iter().flat_map(|piece| with_signs(piece)));
    absolute.iter().try_for_each(|path| believe(path))?;
    let is_relative = |piece: &&String| !piece.is_empty() && !piece.starts_with('/');
    let relative: Vec<&String> = pieces.iter().filter(is_relative).collect();
    // Nobody goes up more often than the words say.
    let ups = words.iter().map(|word| word.matches("..").count()).sum::<usize>();
    let mut unread: Vec<(PathBuf, usize)> =
        base.map(PathBuf::from).into_iter().chain(absolute).map(|path| (path, ups)).collect();
    let mut places: BTreeMap<PathBuf, usize> = BTreeMap::new();
    // What is read is believed already, or given.
    while let Some((place, ups)) = unread.pop() {
        let Ok(place) = place.canonicalize() else { continue };
        if !place.is_dir() || places.get(&place).is_some_and(|known| *known >= ups) {
            continue;
        }
        places.insert(place.clone(), ups);
        if places.len() > PLACES_MAX {
            return Err(format!("the command names more than {PLACES_MAX} directories"));
        }
        for piece in &relative {
            let Some(ups) = ups.checked_sub(piece.matches("..").count()) else { continue };
            let path = place.join(piece);
            believe(&path)?;
            unread.push((path, ups));
        }
    }
    Ok(())
}

/// All that may be one name: the words, the words that a shell, and one within it, would find in them, with and
/// without backslashes, and what is between the signs that end a name there.
fn pieces(words: &[String]) -> BTreeSet<String> {
    let ends = |c: char| c.is_whitespace() || "\"'`;|&()<>{}=,:$@".contains(c);
    let mut pieces: BTreeSet<String> = BTreeSet::new();
    let mut unread = words.to_vec();
    // What is found is shorter than what it was found in, or known.
    while let Some(text) = unread.pop() {
        if !pieces.contains(&text) {
            unread.extend(shlex::split(&text).unwrap_or_default());
            unread.extend(text.split(ends).map(String::from));
            unread.push(text.replace('\\', ""));
            pieces.insert(text);
        }
    }
    pieces
}

/// Ends that are tried of a path in which there are signs.
const ENDS_MAX: usize = 64;

/// The paths from the root in a piece that hold blanks or signs (`NAME=/data sets/u@h/tool`), and those that follow
/// a sign that ends no name (`#!/x`, `q[/x]`). What only looks like one, such as a program and its argument, is left
/// out: the name up to the first sign is there then, and the longer one is not.
fn with_signs(piece: &str) -> Vec<PathBuf> {
    let is_name = |c: char| c.is_alphanumeric() || "._-+~/".contains(c);
    let is_there = |path: &str| Path::new(path).symlink_metadata().is_ok();
    let mut found = Vec::new();
    let mut before = None;
    for (start, c) in piece.char_indices() {
        let begins = c == '/' && before.is_none_or(|before| !is_name(before));
        before = Some(c);
        if !begins {
            continue;
        }
        let path = &piece[start..];
        let ends = path.char_indices().filter(|(_, c)| !is_name(*c)).map(|(end, _)| end);
        let ends = ends.take(ENDS_MAX).chain([path.len()]);
        let mut ends = ends.filter(|end| *end < PATH_BYTES_MAX);
        let Some(short) = ends.next().map(|end| &path[..end]) else { continue };
        found.push(PathBuf::from(short));
        let is_short_there = is_there(short);
        let longer = ends.map(|end| &path[..end]);
        found.extend(longer.filter(|long| !is_short_there || is_there(long)).map(PathBuf::from));
    }
    found
}

/// The path from the root that a piece is, has behind an option (`-C/tmp`), or leads to through `..`: the
/// directory in which a command runs is anywhere.
fn absolute(piece: &str) -> Option<PathBuf> {
    let at = piece.find('/')?;
    match piece.rsplit_once("../") {
        _ if at == 0 || piece.starts_with(['-', '+']) => Some(PathBuf::from(&piece[at..])),
        Some((_, last)) => Some(Path::new("/").join(last)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    const STRANGER: u32 = 54_321;

    /// A directory of root's with a script, and one in which everybody makes files, as `/tmp`, with a stranger's
    /// script, Makefile and FIFO, and a script of root's.
    fn places() -> Option<(tempfile::TempDir, String, String)> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: files of another user are made by root alone");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let (own, all) = (home.path().join("own"), home.path().join("all"));
        for directory in [&own, &all, &all.join("his")] {
            fs::create_dir(directory).unwrap();
        }
        fs::create_dir(own.join("hers")).unwrap();
        fs::create_dir_all(own.join("mine/deep/bin")).unwrap();
        chown(own.join("mine/deep/bin"), Some(STRANGER), None).unwrap();
        fs::write(own.join("hers/file"), "").unwrap();
        chown(own.join("hers"), Some(STRANGER), None).unwrap();
        for name in ["own/mine.sh", "all/mine.sh", "all/his.sh", "all/his/Makefile"] {
            fs::write(home.path().join(name), "true").unwrap();
        }
        rustix::fs::mknodat(CWD, all.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0)
            .unwrap();
        std::os::unix::fs::symlink(all.join("missing"), own.join("dangling")).unwrap();
        for name in ["his.sh", "his", "his/Makefile", "fifo"] {
            chown(all.join(name), Some(STRANGER), None).unwrap();
        }
        fs::set_permissions(&all, fs::Permissions::from_mode(0o1777)).unwrap();
        let text = |path: PathBuf| path.to_str().unwrap().to_string();
        Some((home, text(own), text(all)))
    }

    #[test]
    fn what_a_stranger_can_have_put_there_is_not_run_again_however_it_is_named() {
        let Some((_home, own, all)) = places() else { return };
        let refused = [
            "sh ALL/his.sh",
            "sh ALL/fifo",
            "sh ALL/missing.sh",
            "sh OWN/dangling",
            "sh ALL/his/none/x.sh",
            "sh ALL/his.sh/x.sh",
            "sh ALL/fifo/x.sh",
            "cd OWN && sh ./hers/none.sh",
            "cd OWN && sh ./hers/file/x.sh",
            "make -C OWN -f hers/Makefile",
            "make TOOL=\"ALL/a b/tool\" -f OWN/Makefile",
            "env TOOL=ALL/u@h/tool make",
            "PATH=ALL/u@h:/bin tool",
            "echo #!ALL/his.sh",
            "perl -e do+q[ALL/his.sh]",
            "cd OWN && cd mine && cd deep && ./bin/none.sh",
            "cd OWN/mine && cd ../mine && make -C deep/bin",
            "env -C OWN make -C mine/deep -f bin/Makefile",
            "make -CALL/his",
            "make -C ALL",
            "make --directory=ALL/his",
            "cd ALL/his && make",
            "cd ALL && ./his.sh",
            "'ALL/his.sh arg'",
            "env -S'ALL/his.sh a'",
            "ALL/\"his\".sh",
            "FILE=ALL/his.sh sh -c '. $FILE'",
            "sh ALL/$NAME",
            "sh ALL/*.sh",
            "sh <ALL/his.sh",
            "{ALL/his.sh,x}",
            "sh OWN/../all/his.sh",
            "sh /proc/self/rootALL/his.sh",
            "sh /dev/fd/../../..ALL/his.sh",
        ];
        let believed = [
            "sh OWN/mine.sh",
            "sh ALL/mine.sh",
            "sh ALL/mine.sh an argument >/dev/null; cp /etc/hosts x",
            "cd OWN && ./mine.sh",
            "cd OWN && ./none.sh",
            "cd OWN && cd mine && cd deep && ./none.sh && cd ..",
            "sh OWN/mine.sh/x.sh",
            "dd if=/dev/zero of=file bs=1M 2>/dev/null; sed s/tmp/x/ </dev/stdin",
            "true /etc/passwd/x /no/such/place \0",
        ];
        let place = |line: &str| line.replace("OWN", &own).replace("ALL", &all);
        let is_believed = |line: &str| {
            let line = place(line);
            let shell = believe(&["sh".into(), "-c".into(), line.clone()], None).is_ok();
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            (shell, line.contains(['\'', '"', '{']) || believe(&words, None).is_ok() == shell)
        };
        for line in refused {
            assert_eq!(is_believed(line), (false, true), "{line}");
        }
        for line in believed {
            assert_eq!(is_believed(line), (true, true), "{line}");
        }
        let nested = place("sh -c \"sh \\\\ALL/his.sh\"");
        assert!(believe(&["sh".into(), "-c".into(), nested], None).is_err());
        // From a directory that nobody names, and from one that is given.
        let far = format!("../../../../../..{all}/his.sh");
        assert!(believe(&[far], None).is_err());
        assert!(believe(&["./his.sh".into()], None).is_ok());
        assert!(believe(&["./his.sh".into()], Some(Path::new(&all))).is_err());
    }

    #[test]
    fn a_long_command_takes_no_memory_without_end() {
        // Every name begins anew at a sign, and none of them is there.
        let names = with_signs(&"(/q".repeat(20_000));
        let bytes: usize = names.iter().map(|path| path.as_os_str().len()).sum();
        assert!(bytes < 300 << 20, "{bytes} bytes");
        let refused = believe(&["(/q".repeat(BYTES_MAX)], None).unwrap_err();
        assert!(refused.contains("put it into a script"), "{refused}");
    }

    #[test]
    fn what_a_message_suggests_runs_nothing_of_a_name() {
        assert_eq!(pasted("kurabe-results/xfs-1:2"), "kurabe-results/xfs-1:2");
        assert_eq!(pasted("loop,nobarrier"), "loop,nobarrier");
        assert_eq!(pasted("{a,b}"), "'{a,b}'");
        assert_eq!(pasted("noatime,x-a=$(id)"), "'noatime,x-a=$(id)'");
        assert_eq!(pasted("a;b 'c'"), "\"a;b 'c'\"");
        assert_eq!(pasted("a\0"), "''");
    }
}
