//! The keys of a profile: `KEY=VALUE`, a word, or a number alone, with commas between them.

use vocabulary::quantity::parse_percent;
use vocabulary::suggestion::unknown;

use super::FILL_MAX;

/// What was written, less what was taken of it.
pub struct AgeOptions<'a> {
    left: Vec<(&'a str, Option<&'a str>)>,
    known: Vec<&'static str>,
}

impl<'a> AgeOptions<'a> {
    pub fn read(text: &'a str) -> Result<AgeOptions<'a>, String> {
        let mut left: Vec<(&str, Option<&str>)> = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (part, None),
            };
            if left.iter().any(|(other, _)| *other == key) {
                return Err(format!("'{key}' is given twice"));
            }
            left.push((key, value));
        }
        Ok(AgeOptions { left, known: Vec::new() })
    }

    fn take(&mut self, key: &'static str) -> Option<&'a str> {
        self.known.push(key);
        let at = self.left.iter().position(|(one, value)| *one == key && value.is_some())?;
        self.left.remove(at).1
    }

    /// Whether a word is there.
    pub fn flag(&mut self, word: &'static str) -> bool {
        self.known.push(word);
        let at = self.left.iter().position(|(one, value)| *one == word && value.is_none());
        at.map(|at| self.left.remove(at)).is_some()
    }

    /// The number without a key, which comes first.
    pub fn first(&mut self, most: u64) -> Result<u64, String> {
        let Some(&(text, None)) = self.left.first() else {
            return Err("the number is missing".into());
        };
        let number = whole(text, 1, most)?;
        self.left.remove(0);
        Ok(number)
    }

    /// A number between two.
    pub fn number(
        &mut self,
        key: &'static str,
        unless: u64,
        least: u64,
        most: u64,
    ) -> Result<u64, String> {
        self.take(key).map_or(Ok(unless), |text| {
            whole(text, least, most).map_err(|problem| format!("{key}: {problem}"))
        })
    }

    /// How full the file system is kept.
    pub fn fill(&mut self, unless: f64) -> Result<f64, String> {
        let fill = self.take("fill").map_or(Ok(unless), |text| {
            parse_percent(text).map_err(|error| format!("fill: {error}"))
        })?;
        if fill > 0.0 && fill <= FILL_MAX {
            Ok(fill)
        } else {
            let most = FILL_MAX * 100.0;
            Err(format!(
                "fill: a file system is aged at more than 0 and at most {most} % of its capacity"
            ))
        }
    }

    /// How often the capacity is written.
    pub fn times(&mut self, unless: f64) -> Result<f64, String> {
        const MOST: f64 = 1000.0;
        let times = self.take("times").map_or(Ok(unless), |text| {
            text.parse::<f64>().map_err(|_| format!("times: '{text}' is not a number"))
        })?;
        if times > 0.0 && times <= MOST {
            Ok(times)
        } else {
            Err(format!("times: the capacity is written more than 0 and at most {MOST} times"))
        }
    }

    /// A word that is one of these.
    pub fn one_of<'b>(
        &mut self,
        key: &'static str,
        all: &[&'b str],
    ) -> Result<Option<&'b str>, String> {
        let Some(text) = self.take(key) else { return Ok(None) };
        let found = all.iter().find(|one| **one == text).copied();
        found.map(Some).ok_or_else(|| unknown("distribution is called", text, all))
    }

    /// Refuses what nobody asked for.
    pub fn end(self) -> Result<(), String> {
        match self.left.first() {
            None => Ok(()),
            Some((key, Some(_))) if self.known.contains(key) => {
                Err(format!("'{key}' has no value"))
            }
            Some((key, None)) if self.known.contains(key) => {
                Err(format!("'{key}' needs a value: {key}=..."))
            }
            Some((key, _)) => Err(unknown("key is called", key, &self.known)),
        }
    }
}

fn whole(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number: u64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("{number} is not within {least} to {most}"))
    }
}
