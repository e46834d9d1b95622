//! Ages a file system: carries the same operations out on it that others have been through, from a seed.
//!
//! There is one file for each profile, and one line in [`PROFILES`]. A profile says what happens; [`AgeingDirectory`]
//! carries it out in a directory, and makes it durable piece by piece, as on a machine that has months for it.
//! Invariants: the operations depend on the profile, the seed and the size of the device alone, never on
//! the file system; nothing is touched outside of the directory, which is new.

mod churn;
mod distribution;
mod git;
pub mod layout;
mod mail;
mod notation;
mod place;
mod population;
mod vm;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use trust::quantity::about_text;
use vocabulary::suggestion::unknown;

use crate::tool::WorkloadTool;
use notation::AgeOptions;
pub use place::{AgeingDirectory, AgeingReport};

/// What a file system can have been through, in the order of the documentation.
static PROFILES: [&AgeProfile; 4] = [&git::GIT, &churn::CHURN, &mail::MAIL, &vm::VM];

/// The directory of the files that have aged, at the top of the file system.
pub const DIRECTORY: &str = "aged";

/// The seed of all histories that are told no other: contenders of different studies are aged alike.
pub const SEED: u64 = 1;

/// Smallest file system that can be aged, in bytes.
const CAPACITY_BYTES_MIN: u64 = 48 << 20;

/// The highest fill level of a profile. File systems need some space for themselves, and the more of it the fuller
/// they are.
const FILL_MAX: f64 = 0.9;

/// How a file system can be aged.
struct AgeProfile {
    /// The word before the colon.
    name: &'static str,
    notation: &'static str,
    /// What it does, in a line.
    summary: &'static str,
    /// Reads what follows the colon.
    read: fn(&mut AgeOptions<'_>) -> Result<Box<dyn History>, String>,
}

/// What a file system goes through.
pub trait History {
    /// Refuses a capacity in which it does not fit, with what it needs.
    fn check(&self, capacity_bytes: u64) -> Result<(), String>;

    /// The programs that it needs.
    fn tools(&self) -> &'static [WorkloadTool] {
        &[]
    }

    /// Carries it out.
    fn live(&self, place: &mut AgeingDirectory<'_>) -> Result<(), String>;

    /// What it comes to in a file system of this size, found out without one; empty where that is known only
    /// afterwards.
    fn foretell(&self, _capacity_bytes: u64, _seed: u64) -> String {
        String::new()
    }
}

/// A history as it was asked for.
pub struct Age {
    history: Box<dyn History>,
    /// Whether the files are copied, once, to a file system that has been through nothing: what an aged one is
    /// compared with.
    pub copied: bool,
}

impl Age {
    /// Reads `NAME:KEY=VALUE,...`.
    ///
    /// Errors: what is wrong with it, and the next step.
    pub fn parse(text: &str) -> Result<Age, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let Some(profile) = PROFILES.iter().find(|profile| profile.name == name) else {
            let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
            return Err(unknown("profile is called", name, &names));
        };
        let fail = |problem: String| format!("'{text}': {problem}; write {}", profile.notation);
        let mut keys = AgeOptions::read(rest).map_err(fail)?;
        let copied = keys.flag("copied");
        let history = (profile.read)(&mut keys).map_err(fail)?;
        keys.end().map_err(fail)?;
        Ok(Age { history, copied })
    }

    /// Refuses a device in which it does not fit, with the limit, and names tools that are missing.
    ///
    /// Errors: as said.
    pub fn check(&self, capacity_bytes: u64) -> Result<(), String> {
        if capacity_bytes < CAPACITY_BYTES_MIN {
            let (has, needs) = (about_text(capacity_bytes), about_text(CAPACITY_BYTES_MIN));
            return Err(format!(
                "a file system that is aged needs at least {needs}, and there are {has}"
            ));
        }
        for tool in self.history.tools() {
            tool.locate()?;
        }
        self.history.check(capacity_bytes)
    }

    /// The programs that it needs.
    pub fn tools(&self) -> &'static [WorkloadTool] {
        self.history.tools()
    }

    /// What it comes to in a file system of this size.
    pub fn foretell(&self, capacity_bytes: u64, seed: u64) -> String {
        self.history.foretell(capacity_bytes, seed)
    }

    /// Carries it out in a new directory [`DIRECTORY`] of `here`, of a file system of this size. A history that is
    /// copied happens in a directory of `elsewhere`, which is removed.
    ///
    /// Errors: what failed, with the path; what was made until then stays.
    pub fn live(
        &self,
        here: &Path,
        elsewhere: &Path,
        capacity_bytes: u64,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<AgeingReport, String> {
        self.check(capacity_bytes)?;
        let target = here.join(DIRECTORY);
        if !self.copied {
            let mut place = AgeingDirectory::make(&target, capacity_bytes, seed, stop)?;
            self.history.live(&mut place)?;
            return place.end();
        }
        let elsewhere = elsewhere.join(format!("kurabe-age-{}", std::process::id()));
        let mut place = AgeingDirectory::make(&elsewhere, capacity_bytes, seed, stop)?;
        // Of its file system only the files are of use.
        place.is_to_age = false;
        let lived = self.history.live(&mut place).and_then(|()| place.end());
        let copied = lived.and_then(|lived| {
            let mut copy = AgeingDirectory::make(&target, capacity_bytes, seed, stop)?;
            copy.copy(&elsewhere)?;
            copy.end()?;
            Ok(lived)
        });
        trust::tree::remove(&elsewhere).map_err(|error| error.to_string())?;
        copied
    }
}

/// How each profile is written and what it does, a line each.
pub fn profiles() -> Vec<(&'static str, &'static str)> {
    PROFILES.iter().map(|profile| (profile.notation, profile.summary)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_the_limit_and_the_next_step() {
        let message = |text: &str| Age::parse(text).err().unwrap_or_else(|| panic!("{text}"));
        for (text, said) in [
            ("gti:5", "did you mean 'git'"),
            ("git", "git:N"),
            ("git:0", "within 1 to 100000"),
            ("git:5,depth=3", "no key is called 'depth'"),
            ("git:5,files=many", "'many' is not a number"),
            ("churn:fill=95%,times=6", "at most 90 %"),
            ("churn:fill=0%", "above 0"),
            ("churn:times=0", "more than 0"),
            ("churn:sizes=agrawl", "did you mean 'agrawal'"),
            ("churn:fill=50%,fill=60%", "twice"),
            ("vm:images=0", "within 1 to 1000"),
            ("mail:boxes=0", "within 1 to 10000"),
        ] {
            assert!(message(text).contains(said), "{text}: {}", message(text));
        }
        for text in [
            "git:200",
            "git:5,files=100,repack=0,copied",
            "churn",
            "churn:fill=85%,times=6",
            "vm",
            "mail",
        ] {
            Age::parse(text).map(drop).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_sizes() {
        let check = |text: &str, bytes| Age::parse(text).unwrap().check(bytes);
        assert!(check("churn", 32 << 20).unwrap_err().contains("at least 48 MiB"));
        let said = check("git:200,files=100000", 1 << 30).unwrap_err();
        assert!(said.contains("need about") && said.contains("1 GiB"), "{said}");
        check("churn", 64 << 20).unwrap();
    }

    #[test]
    fn every_profile_says_how_it_is_written() {
        for (notation, summary) in profiles() {
            assert!(!summary.is_empty() && !summary.contains('\n'), "{notation}");
        }
    }
}
