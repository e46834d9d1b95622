//! Checks: what was tried so often and must hold, beside the metrics of a workload.
//!
//! Zero violations of 10,000 is a result and not the absence of one, and so is a violation: it is
//! kept and told, and does not fail the trial that found it.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name;

/// What was read is what was written.
pub const CONTENTS: &str = "contents";
/// What was acknowledged is there after a power cut.
pub const DURABILITY: &str = "durability";

/// Something that was tried a number of times and must hold each time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name, the same for every contender of a workload: [`CONTENTS`], [`DURABILITY`].
    #[serde(deserialize_with = "name::read")]
    pub name: String,
    /// How often it was tried.
    pub tried: u64,
    /// How often it did not hold.
    pub violated: u64,
    /// Whether the contender does not promise that it holds, so that what did not hold violates nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_promised: bool,
    /// The first violation: what was found, and where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// What a reader can look at: a path, or a few lines. Of a check that was not tried: why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// What follows from a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckVerdict {
    Held,
    /// It did not at least once.
    Violated,
    /// It did not at least once, and the contender does not promise it.
    NotPromised,
    /// It was not tried, or what was tried proves nothing.
    NotTried,
}

impl CheckVerdict {
    pub fn words(self) -> &'static str {
        match self {
            CheckVerdict::Held => "held",
            CheckVerdict::Violated => "violated",
            CheckVerdict::NotPromised => "not promised",
            CheckVerdict::NotTried => "not tried",
        }
    }
}

impl fmt::Display for CheckVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl Check {
    /// A check that is about to be tried.
    pub fn new(name: impl Into<String>) -> Check {
        Check { name: name.into(), ..Check::default() }
    }

    /// A check of which nothing was tried, or only what proves nothing.
    pub fn not_tried(name: impl Into<String>, why: impl Into<String>) -> Check {
        Check { evidence: Some(why.into()), ..Check::new(name) }
    }

    /// It was tried once more, and held unless something was found.
    pub fn count(&mut self, found: Option<impl fmt::Display>) {
        self.tried += 1;
        if let Some(found) = found {
            self.violated += 1;
            self.first.get_or_insert_with(|| found.to_string());
        }
    }

    pub fn verdict(&self) -> CheckVerdict {
        match (self.violated, self.tried) {
            (1.., _) if self.not_promised => CheckVerdict::NotPromised,
            (1.., _) => CheckVerdict::Violated,
            (0, 1..) => CheckVerdict::Held,
            (0, 0) => CheckVerdict::NotTried,
        }
    }

    /// Adds what the same check found elsewhere later.
    pub fn add(&mut self, later: Check) {
        if self.violated == 0 && (later.violated > 0 || self.evidence.is_none()) {
            (self.first, self.evidence) = (later.first, later.evidence);
        }
        self.not_promised |= later.not_promised;
        self.tried = self.tried.saturating_add(later.tried);
        self.violated = self.violated.saturating_add(later.violated);
    }

    /// Adds checks to others, those of one name together.
    pub fn add_all(to: &mut Vec<Check>, later: impl IntoIterator<Item = Check>) {
        let known = to.iter().enumerate().map(|(place, check)| (check.name.clone(), place));
        let mut places: HashMap<String, usize> = known.collect();
        for check in later {
            let place = *places.entry(check.name.clone()).or_insert(to.len());
            match to.get_mut(place) {
                Some(known) => known.add(check),
                None => to.push(check),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_violation_stays_with_its_evidence() {
        let violated = |first: &str| Check {
            evidence: Some(format!("file of {first}")),
            ..[None, Some(first)].into_iter().fold(Check::new("contents"), |mut check, found| {
                check.count(found);
                check
            })
        };
        let mut all = Vec::new();
        assert_eq!(Check::new("contents").verdict(), CheckVerdict::NotTried);
        Check::add_all(&mut all, [Check { tried: 8, ..Check::new("contents") }]);
        assert_eq!(all[0].verdict(), CheckVerdict::Held);
        Check::add_all(&mut all, [violated("one"), violated("two"), Check::new("durability")]);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].tried, all[0].violated), (12, 2));
        assert_eq!(all[0].first.as_deref(), Some("one"));
        assert_eq!(all[0].evidence.as_deref(), Some("file of one"));
        assert_eq!(all[0].verdict(), CheckVerdict::Violated);
        all[0].add(Check { not_promised: true, ..Check::new("contents") });
        assert_eq!(all[0].verdict(), CheckVerdict::NotPromised);
    }

    #[test]
    fn why_nothing_was_tried_stays_until_something_is_found() {
        let mut check = Check::not_tried(DURABILITY, "the control lost nothing");
        check.add(Check::new(DURABILITY));
        assert_eq!(check.evidence.as_deref(), Some("the control lost nothing"));
        assert_eq!(check.verdict(), CheckVerdict::NotTried);
    }
}
