//! `git`: a working tree through many commits, with the repository next to it.
//!
//! The history is made up from the seed and handed to git commit by commit (git-fast-import(1)), so no network
//! and no second repository are needed. Each commit is checked out; now and then the loose objects are packed,
//! and more rarely everything.

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use trust::quantity::about_text;

use super::{AgeProfile, AgeingDirectory, History};
use crate::tool::WorkloadTool;
use crate::tree::SyntheticTree;
use crate::tree::synthetic::EntryKind;

pub(super) static GIT: AgeProfile = AgeProfile {
    name: "git",
    notation: "git:N[,files=F][,repack=R][,copied]",
    summary: "a source tree of F files checked out after each of N commits, packed every R (files=3000, repack=50)",
    read: |keys| {
        let commits = keys.first(100_000)?;
        let files = keys.number("files", 3000, 10, 1_000_000)?;
        Ok(Box::new(Git { commits, files, repack: keys.number("repack", 50, 0, 100_000)? }))
    },
};

struct Git {
    commits: u64,
    files: u64,
    /// Commits between two times of packing; 0 for never.
    repack: u64,
}

/// Where the working tree is.
const REPOSITORY: &str = "work";
/// Of the files, how many a commit changes: as many as a working day of a large project does, so that a few hundred
/// commits are a year.
const CHANGED_SHARE: f64 = 0.015;
/// Of the changes, how many are a file that comes, and how many one that goes.
const ADDED_SHARE: f64 = 0.06;
const REMOVED_SHARE: f64 = 0.05;
/// How many times the loose objects are packed between two times that everything is.
const WHOLE_EVERY: u64 = 4;
/// The first second of the history.
const EPOCH: u64 = 1_600_000_000;
/// Bytes of a file of the tree on average, and what a commit's changed file leaves in the repository.
const FILE_BYTES: u64 = 16_500;
const OBJECT_BYTES: u64 = 8 << 10;
/// Bytes that a change puts into a file.
const EDIT_BYTES: usize = 240;

/// A file of the tree.
#[derive(Clone)]
struct Source {
    path: String,
    mode: u32,
    index: u64,
    size_bytes: u64,
    edits: u64,
}

/// The tree as of some commit, and what comes next.
struct Tree {
    tree: SyntheticTree,
    files: Vec<Source>,
    directories: Vec<String>,
    next_index: u64,
    random: ChaCha8Rng,
}

impl Tree {
    fn new(files: u64, seed: u64) -> Tree {
        let tree = SyntheticTree::new(files, seed);
        let (mut sources, mut directories) = (Vec::new(), Vec::new());
        for entry in tree.entries() {
            let (path, mode) = (entry.path.clone(), entry.mode);
            match &entry.kind {
                EntryKind::Directory => directories.push(path),
                EntryKind::File { size_bytes, index } => {
                    let (index, size_bytes) = (*index, *size_bytes);
                    sources.push(Source { path, mode, index, size_bytes, edits: 0 });
                }
                EntryKind::Link { .. } => {}
            }
        }
        let random = ChaCha8Rng::seed_from_u64(seed ^ 0x6769_7400);
        Tree { tree, next_index: files, files: sources, directories, random }
    }

    fn contents(&self, source: &Source) -> Vec<u8> {
        let mut contents = self.tree.contents(source.index, source.size_bytes);
        let mut random = ChaCha8Rng::seed_from_u64(source.index << 20 ^ 0x6564_6974);
        for edit in 0..source.edits {
            let text = format!("/* {edit} */").repeat(EDIT_BYTES / 7 + 1);
            let length = EDIT_BYTES.min(contents.len());
            let at = random.random_range(0..=(contents.len() - length) as u64) as usize;
            contents[at..at + length].copy_from_slice(&text.as_bytes()[..length]);
        }
        contents
    }

    /// What git-fast-import(1) is told of the first commit.
    fn first(&self) -> Vec<u8> {
        let mut stream = head(0);
        for file in &self.files {
            self.put(file, &mut stream);
        }
        stream
    }

    fn put(&self, file: &Source, stream: &mut Vec<u8>) {
        let contents = self.contents(file);
        let mode = if file.mode & 0o100 == 0 { "100644" } else { "100755" };
        let line = format!("M {mode} inline {}\ndata {}\n", file.path, contents.len());
        stream.extend_from_slice(line.as_bytes());
        stream.extend_from_slice(&contents);
        stream.push(b'\n');
    }

    /// The same of the next one, and how many bytes of files it changes.
    fn commit(&mut self, number: u64) -> (Vec<u8>, u64) {
        let mut stream = head(number);
        let mut bytes = 0;
        let changes = ((self.files.len() as f64 * CHANGED_SHARE) as usize).max(3);
        let mut places: Vec<usize> = (0..self.files.len()).collect();
        let (chosen, _) = places.partial_shuffle(&mut self.random, changes);
        let chosen = chosen.to_vec();
        let mut gone = Vec::new();
        for place in chosen {
            let kind: f64 = self.random.random();
            if kind < REMOVED_SHARE && self.files.len() - gone.len() > 1 {
                let line = format!("D {}\n", self.files[place].path);
                stream.extend_from_slice(line.as_bytes());
                gone.push(place);
                continue;
            }
            // It grows by a little, or shrinks.
            let factor = 0.97 + 0.08 * self.random.random::<f64>();
            let file = &mut self.files[place];
            file.size_bytes = (file.size_bytes as f64 * factor) as u64 + 1;
            file.edits += 1;
            let file = file.clone();
            bytes += file.size_bytes;
            self.put(&file, &mut stream);
            if kind > 1.0 - ADDED_SHARE {
                let directory = self.random.random_range(0..self.directories.len() as u64) as usize;
                let index = self.next_index;
                self.next_index += 1;
                let path = format!("{}/n{index}.c", self.directories[directory]);
                let added = Source { path, index, edits: 0, ..file };
                bytes += added.size_bytes;
                self.put(&added, &mut stream);
                self.files.push(added);
            }
        }
        gone.sort_unstable();
        for place in gone.into_iter().rev() {
            self.files.swap_remove(place);
        }
        (stream, bytes)
    }
}

/// What comes before the changes of a commit.
fn head(number: u64) -> Vec<u8> {
    let (time, message) = (EPOCH + number * 3600, format!("change {number}\n"));
    let from = if number == 0 { "" } else { "from refs/heads/main^0\n" };
    format!(
        "commit refs/heads/main\ncommitter kurabe <kurabe@localhost> {time} +0000\ndata {}\n{message}{from}",
        message.len()
    )
    .into_bytes()
}

impl History for Git {
    fn tools(&self) -> &'static [WorkloadTool] {
        &[WorkloadTool::Git]
    }

    fn check(&self, capacity_bytes: u64) -> Result<(), String> {
        let changed = (self.files as f64 * CHANGED_SHARE).max(3.0) as u64 * self.commits;
        let loose = if self.repack == 0 { changed } else { changed / 2 };
        // Packing everything needs the old and the new packs for a while.
        let bytes = 2 * self.files * FILE_BYTES + loose * OBJECT_BYTES;
        if bytes <= capacity_bytes / 10 * 9 {
            return Ok(());
        }
        Err(format!(
            "{} commits of {} files need about {}, and the device has {}; take fewer commits or files=, or a larger device",
            self.commits,
            self.files,
            about_text(bytes),
            about_text(capacity_bytes)
        ))
    }

    fn live(&self, place: &mut AgeingDirectory<'_>) -> Result<(), String> {
        let git = |place: &mut AgeingDirectory<'_>, words: &[&str], input: &[u8]| {
            place.run(WorkloadTool::Git, REPOSITORY, words, input).map(drop)
        };
        git(place, &["init", "--quiet", "--initial-branch=main", "."], &[])?;
        for (key, value) in [
            ("gc.auto", "0"),
            // Up to so many objects are loose until they are packed, as after a day's work.
            ("fastimport.unpackLimit", "1000"),
            ("core.autocrlf", "false"),
            ("pack.threads", "1"),
        ] {
            git(place, &["config", key, value], &[])?;
        }
        let mut history = Tree::new(self.files, place.seed);
        let import = ["fast-import", "--quiet", "--force"];
        let checkout = ["reset", "--quiet", "--hard", "main"];
        git(place, &import, &history.first())?;
        git(place, &checkout, &[])?;
        place.wrote(self.files * FILE_BYTES)?;
        for commit in 1..=self.commits {
            let (stream, bytes) = history.commit(commit);
            git(place, &import, &stream)?;
            git(place, &checkout, &[])?;
            place.wrote(bytes)?;
            place.sync()?;
            if self.repack > 0 && commit.is_multiple_of(self.repack) {
                let whole = (commit / self.repack).is_multiple_of(WHOLE_EVERY);
                let words: &[&str] = if whole { &["repack", "-adq"] } else { &["repack", "-dq"] };
                git(place, words, &[])?;
                place.sync()?;
                place.drop_caches();
            }
        }
        place.say(format!("{} commits, {} files in the tree\n", self.commits, history.files.len()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_changes_adds_and_removes_some_files() {
        let mut history = Tree::new(400, 9);
        let before = history.files.len();
        let mut lines = [0; 2];
        for commit in 1..=200 {
            let (stream, bytes) = history.commit(commit);
            assert!(bytes > 0);
            let text = String::from_utf8_lossy(&stream);
            lines[0] += text.lines().filter(|line| line.starts_with("M 100")).count();
            lines[1] += text.lines().filter(|line| line.starts_with("D tree/")).count();
        }
        assert!((1000..1500).contains(&lines[0]) && (20..120).contains(&lines[1]), "{lines:?}");
        assert!((before - 60..before + 100).contains(&history.files.len()));
        let paths: std::collections::BTreeSet<&str> =
            history.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths.len(), history.files.len(), "no file is there twice");
        let same = Tree::new(400, 9).commit(1).0;
        assert_eq!(same, Tree::new(400, 9).commit(1).0);
    }
}
