//! Profiles: the parameters of a disk, each with its source, in a TOML file.
//!
//! A profile is written `NAME` or `NAME,WORD=VALUE,...`: the words place the slice on the disk
//! (`position`, `extent`), choose the `seed`, or replace a parameter. To add a profile, write its file
//! in `profiles/` and add a line to [`BUNDLED`].

mod parameters;

use std::collections::BTreeMap;
use std::fmt;

use trust::quantity::{parse_percent, parse_size, size_text};

use crate::ModelRequest;
use parameters::Parameter;

/// All that come with kurabe, by their names.
static BUNDLED: &[(&str, &str)] = &[
    ("st1000dm003", include_str!("../profiles/st1000dm003.toml")),
    ("7200rpm", include_str!("../profiles/7200rpm.toml")),
    ("5400rpm", include_str!("../profiles/5400rpm.toml")),
    ("shingled", include_str!("../profiles/shingled.toml")),
    ("sata", include_str!("../profiles/sata.toml")),
    ("nvme", include_str!("../profiles/nvme.toml")),
    ("gp2", include_str!("../profiles/gp2.toml")),
    ("gp3", include_str!("../profiles/gp3.toml")),
    ("unlimited", include_str!("../profiles/unlimited.toml")),
];

/// Parts of a slice that is spread over more than itself are so long.
const CHUNK_BYTES: u64 = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKind {
    /// A disk that turns.
    Hard,
    Flash,
    /// A volume with credits.
    Cloud,
}

impl DiskKind {
    /// As it is written in a profile.
    pub fn word(self) -> &'static str {
        match self {
            DiskKind::Hard => "hard-disk",
            DiskKind::Flash => "flash",
            DiskKind::Cloud => "cloud",
        }
    }

    /// The layer that takes such profiles.
    pub fn layer(self) -> &'static str {
        match self {
            DiskKind::Hard => "hdd",
            DiskKind::Flash => "ssd",
            DiskKind::Cloud => "cloud",
        }
    }

    fn parameters(self) -> &'static [Parameter] {
        match self {
            DiskKind::Hard => parameters::HARD,
            DiskKind::Flash => parameters::FLASH,
            DiskKind::Cloud => parameters::CLOUD,
        }
    }
}

/// Why a profile is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError(String);

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProfileError {}

fn error<T>(text: impl Into<String>) -> Result<T, ProfileError> {
    Err(ProfileError(text.into()))
}

/// Values of a model's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    kind: DiskKind,
    values: BTreeMap<&'static str, f64>,
    rates: Vec<(f64, f64)>,
}

impl Parameters {
    /// The value of a parameter. Panics where the kind has no such parameter.
    pub fn get(&self, name: &str) -> f64 {
        *self.values.get(name).unwrap_or_else(|| panic!("{:?} has no {name}", self.kind))
    }

    /// Size of the disk.
    pub fn capacity_bytes(&self) -> u64 {
        self.get("capacity_bytes") as u64
    }

    /// Share of the capacity, and rate there.
    pub fn rates(&self) -> &[(f64, f64)] {
        &self.rates
    }
}

/// Which part of a disk a device is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskSlice {
    /// Where it begins, as a share of the room that is left.
    pub position: f64,
    /// Over how many bytes it is spread, in parts of 16 MiB; its own size where none is given.
    pub extent_bytes: Option<u64>,
    /// The same, as a share of the capacity.
    pub extent_share: Option<f64>,
}

/// Where the bytes of a slice are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    start: u64,
    /// From one part of [`CHUNK_BYTES`] to the next.
    stride: u64,
}

impl Placed {
    /// The same request as the disk sees it. One that crosses from one part to the next is taken to
    /// lie where it begins.
    pub fn place(&self, request: ModelRequest) -> ModelRequest {
        let (chunk, within) = (request.offset / CHUNK_BYTES, request.offset % CHUNK_BYTES);
        ModelRequest { offset: self.start + chunk * self.stride + within, ..request }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DiskProfile {
    /// By which it is chosen.
    pub name: String,
    pub title: String,
    pub kind: DiskKind,
    pub parameters: Parameters,
    /// Where each comes from.
    pub sources: BTreeMap<String, String>,
    /// Which part of the disk is shown.
    pub slice: DiskSlice,
    /// Of everything random.
    pub seed: u64,
    /// As it was asked for.
    pub words: String,
}

/// Those that come with kurabe.
pub fn bundled() -> impl Iterator<Item = DiskProfile> {
    BUNDLED.iter().map(|(name, text)| {
        DiskProfile::parse(text, name).unwrap_or_else(|problem| panic!("{name}: {problem}"))
    })
}

/// The names of those that a layer takes.
pub fn names(kind: DiskKind) -> Vec<String> {
    bundled().filter(|profile| profile.kind == kind).map(|profile| profile.name).collect()
}

impl DiskProfile {
    /// Reads what stands behind the colon of a layer.
    ///
    /// Errors: there is no such profile or parameter, or a value is out of its range.
    pub fn read(kind: DiskKind, words: &str) -> Result<DiskProfile, ProfileError> {
        let mut parts = words.split(',');
        let name = parts.next().unwrap_or_default();
        let known = bundled().find(|profile| profile.name == name);
        let mut profile = match known {
            Some(profile) if profile.kind == kind => profile,
            Some(profile) => {
                let layer = profile.kind.layer();
                return error(format!("'{name}' is written {layer}:{name}"));
            }
            None => {
                let names = names(kind).join(", ");
                return error(format!("there is no profile '{name}'; there are {names}"));
            }
        };
        words.clone_into(&mut profile.words);
        parts.try_for_each(|part| profile.change(part))?;
        Ok(profile)
    }

    /// The profile with what `words` change of it, `WORD=VALUE,...`, which may be empty.
    ///
    /// Errors: there is no such parameter, or a value is out of its range.
    pub fn changed(mut self, words: &str) -> Result<DiskProfile, ProfileError> {
        if !words.is_empty() {
            self.words = format!("{},{words}", self.name);
            words.split(',').try_for_each(|part| self.change(part))?;
        }
        Ok(self)
    }

    fn change(&mut self, part: &str) -> Result<(), ProfileError> {
        match part.split_once('=') {
            Some((word, value)) => self.set(word.trim(), value.trim()),
            None => error(format!("'{part}' is no WORD=VALUE")),
        }
    }

    fn set(&mut self, word: &str, value: &str) -> Result<(), ProfileError> {
        let is_placing = matches!(word, "position" | "extent");
        if is_placing && self.kind != DiskKind::Hard {
            return error(format!("'{word}' is for hard disks: elsewhere all places are alike"));
        }
        match word {
            "seed" => match value.parse() {
                Ok(seed) => self.seed = seed,
                Err(_) => return error(format!("'{value}' is not a seed; write a whole number")),
            },
            "position" if value == "0%" => self.slice.position = 0.0,
            "position" => match parse_percent(value) {
                Ok(share) if (0.0..=1.0).contains(&share) => self.slice.position = share,
                _ => return error(format!("position='{value}': write 0% (outer edge) to 100%")),
            },
            "extent" => match (parse_percent(value), parse_size(value)) {
                (Ok(share), _) if share > 0.0 && share <= 1.0 => {
                    (self.slice.extent_share, self.slice.extent_bytes) = (Some(share), None);
                }
                (_, Ok(bytes)) => {
                    (self.slice.extent_share, self.slice.extent_bytes) = (None, Some(bytes));
                }
                _ => return error(format!("extent='{value}': write a size, or up to 100%")),
            },
            "rates" if self.kind == DiskKind::Hard => {
                let rates: Option<Vec<f64>> =
                    value.split('/').map(|rate| rate.parse().ok()).collect();
                let rates = rates.filter(|rates| rates.len() > 1).unwrap_or_default();
                let last = rates.len().saturating_sub(1) as f64;
                let points = (0..).zip(rates).map(|(at, rate)| (f64::from(at) / last, rate));
                let points = points.collect();
                if !is_sound(&points) {
                    return error(format!(
                        "rates='{value}': write MB/s at equal distances from the outer to the inner edge, such as 210/165/102"
                    ));
                }
                self.parameters.rates = points;
                self.sources.insert(word.into(), "given on the command line".into());
            }
            word => {
                let parameter = self.kind.parameters().iter().find(|one| one.name == word);
                let Some(parameter) = parameter else {
                    return error(format!(
                        "'{word}' is no parameter of a {}; 'kurabe disk profiles {}' lists them",
                        self.kind.word(),
                        self.name
                    ));
                };
                let Ok(number) = value.parse::<f64>() else {
                    return error(format!("{word}='{value}' is not a number"));
                };
                parameter.check(number).map_err(ProfileError)?;
                self.parameters.values.insert(parameter.name, number);
                self.sources.insert(word.into(), "given on the command line".into());
            }
        }
        Ok(())
    }

    /// Reads a profile's file; `place` is what messages call it.
    ///
    /// Errors: the file is no TOML, a parameter is missing, unknown, without a source or out of its range.
    pub fn parse(text: &str, place: &str) -> Result<DiskProfile, ProfileError> {
        let table: toml::Table =
            text.parse().map_err(|problem| ProfileError(format!("{place}: {problem}")))?;
        let word = |key: &str| match table.get(key) {
            Some(toml::Value::String(word)) => Ok(word.clone()),
            _ => error(format!("{place}: '{key}' is missing, or is no text")),
        };
        let (name, title, kind) = (word("name")?, word("title")?, word("kind")?);
        let kind = match kind.as_str() {
            "hard-disk" => DiskKind::Hard,
            "flash" => DiskKind::Flash,
            "cloud" => DiskKind::Cloud,
            other => {
                return error(format!("{place}: kind '{other}'; write hard-disk, flash or cloud"));
            }
        };
        let (mut values, mut sources, mut rates) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for (key, entry) in &table {
            if ["name", "title", "kind"].contains(&key.as_str()) {
                continue;
            }
            let fail = |problem: String| error(format!("{place}: '{key}': {problem}"));
            let (Some(value), Some(source)) =
                (entry.get("value"), entry.get("source").and_then(toml::Value::as_str))
            else {
                return fail("write { value = ..., source = \"...\" }".into());
            };
            if source.trim().is_empty() {
                return fail("it has no source".into());
            }
            sources.insert(key.clone(), source.to_string());
            if key == "rates" && kind == DiskKind::Hard {
                rates = match read_rates(value) {
                    Some(rates) => rates,
                    None => {
                        return fail(
                            "write [[0.0, MB/s], ..., [1.0, MB/s]], shares of the capacity in order"
                                .into(),
                        );
                    }
                };
                continue;
            }
            let Some(parameter) = kind.parameters().iter().find(|one| one.name == key) else {
                return fail(format!("it is no parameter of a {}", kind.word()));
            };
            let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
            let Some(number) = number else { return fail(format!("{value} is not a number")) };
            if let Err(problem) = parameter.check(number) {
                return fail(problem);
            }
            values.insert(parameter.name, number);
        }
        let missing = kind.parameters().iter().find(|one| !values.contains_key(one.name));
        if let Some(missing) = missing {
            return error(format!("{place}: '{}' is missing", missing.name));
        }
        if kind == DiskKind::Hard && rates.is_empty() {
            return error(format!("{place}: 'rates' is missing"));
        }
        let slice = DiskSlice { position: 0.0, extent_bytes: None, extent_share: None };
        let parameters = Parameters { kind, values, rates };
        let words = name.clone();
        Ok(DiskProfile { name, title, kind, parameters, sources, slice, seed: 0, words })
    }

    /// Where a slice of `length` bytes lies.
    ///
    /// Errors: it is larger than the disk, or than its extent.
    pub fn placed(&self, length: u64) -> Result<Placed, ProfileError> {
        let capacity = self.parameters.capacity_bytes();
        let about = |bytes: u64| size_text(bytes >> 20 << 20);
        if length > capacity {
            return error(format!(
                "{} has {}, and the device {}; give a smaller size",
                self.name,
                about(capacity),
                about(length)
            ));
        }
        let whole = self.slice.extent_share.map(|share| (share * capacity as f64) as u64);
        let Some(extent) = whole.or(self.slice.extent_bytes) else {
            let start = (capacity - length) as f64 * self.slice.position;
            return Ok(Placed { start: start as u64 / 4096 * 4096, stride: CHUNK_BYTES });
        };
        if extent < length || extent > capacity {
            return error(format!(
                "the extent is {}; it must be from the device's {} to the disk's {}",
                about(extent),
                about(length),
                about(capacity)
            ));
        }
        let chunks = length.div_ceil(CHUNK_BYTES);
        let free = (capacity - extent) as f64 * self.slice.position;
        let stride = if chunks > 1 { (extent - CHUNK_BYTES.min(extent)) / (chunks - 1) } else { 0 };
        Ok(Placed {
            start: free as u64 / 4096 * 4096,
            stride: (stride / 4096 * 4096).max(CHUNK_BYTES),
        })
    }

    /// Bytes of the sectors that the kernel is to see; 1 where it is all the same.
    pub fn sector_bytes(&self) -> u32 {
        match self.kind {
            DiskKind::Hard if self.parameters.get("sector_bytes") > 512.0 => 4096,
            DiskKind::Hard => 512,
            DiskKind::Flash | DiskKind::Cloud => 1,
        }
    }

    /// Whether a write can be acknowledged before it is where it stays without power.
    pub fn has_write_cache(&self) -> bool {
        match self.kind {
            DiskKind::Hard => self.parameters.get("write_cache_mib") > 0.0,
            DiskKind::Flash => self.parameters.get("power_loss_protection") == 0.0,
            DiskKind::Cloud => false,
        }
    }

    /// The words that make a bundled profile this one, slice and seed apart, so that a layer can take it.
    ///
    /// Errors: the rates are not at equal distances.
    pub fn as_words(&self) -> Result<String, ProfileError> {
        let base = bundled().find(|one| one.kind == self.kind).expect("each kind has a profile");
        let mut words = base.name;
        for (name, value) in &self.parameters.values {
            words.push_str(&format!(",{name}={value}"));
        }
        let rates = &self.parameters.rates;
        let last = rates.len().saturating_sub(1) as f64;
        let is_equal =
            |(at, point): (u32, &(f64, f64))| (point.0 * last - f64::from(at)).abs() < 1e-6;
        if !(0..).zip(rates).all(is_equal) {
            return error(format!("{}: a layer needs rates at equal distances", self.name));
        }
        let rates: Vec<String> = rates.iter().map(|(_, rate)| rate.to_string()).collect();
        if !rates.is_empty() {
            words.push_str(&format!(",rates={}", rates.join("/")));
        }
        Ok(words)
    }

    /// Each parameter: name, value, unit and meaning, source.
    pub fn listing(&self) -> Vec<[String; 4]> {
        let mut rows: Vec<[String; 4]> = self
            .kind
            .parameters()
            .iter()
            .map(|one| {
                let value = self.parameters.get(one.name);
                let source = self.sources.get(one.name).cloned().unwrap_or_default();
                [one.name.into(), value.to_string(), one.meaning.into(), source]
            })
            .collect();
        if self.kind == DiskKind::Hard {
            let rates = self.parameters.rates.iter();
            let rates: Vec<_> = rates.map(|(at, rate)| format!("{rate}@{at}")).collect();
            let source = self.sources.get("rates").cloned().unwrap_or_default();
            let meaning = "MB/s at shares of the capacity".into();
            rows.push(["rates".into(), rates.join(" "), meaning, source]);
        }
        rows
    }
}

fn read_rates(value: &toml::Value) -> Option<Vec<(f64, f64)>> {
    let number = |value: &toml::Value| {
        value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
    };
    let rates: Option<Vec<(f64, f64)>> = value
        .as_array()?
        .iter()
        .map(|pair| match pair.as_array()?.as_slice() {
            [at, rate] => Some((number(at)?, number(rate)?)),
            _ => None,
        })
        .collect();
    rates.filter(is_sound)
}

/// Whether rates go from the outer to the inner edge.
fn is_sound(rates: &Vec<(f64, f64)>) -> bool {
    let [first, .., last] = rates.as_slice() else { return false };
    let is_sorted = rates.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let is_sane = rates.iter().all(|(_, rate)| (1.0..=2000.0).contains(rate));
    first.0 == 0.0 && last.0 == 1.0 && is_sorted && is_sane
}

#[cfg(test)]
mod tests;
