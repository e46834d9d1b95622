//! How much of a study was carried out: what a quick profile, or a factor, made of its loads.
//!
//! Computed from the two validated studies, the whole one and the one that is carried out, and
//! never written by hand, so that it cannot say something else than what ran.

use serde::{Deserialize, Serialize};

use super::Study;
use crate::load::{FioLoad, FioMatrixLoad, Load, TreeSource};
use crate::name;
use crate::quantity::{parse_duration, parse_size, size_text};
use crate::words::{counted, list};

/// What was carried out in the place of the whole study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reduced {
    /// Whether the study's quick profile was taken; else a factor was.
    pub quick: bool,
    /// What carries all of it out: `--full runs it all`.
    pub remedy: String,
    /// The whole study's device, where it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The loads of which another amount was done, or in whose place another was.
    pub loads: Vec<ReducedLoad>,
}

/// A load of which another amount was done, or in whose place another was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReducedLoad {
    /// Name of the workload.
    #[serde(deserialize_with = "name::read")]
    pub workload: String,
    /// What of it is another.
    pub parts: Vec<Part>,
}

/// One measure of a load, or that it is another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// What is meant: `the counted time`.
    pub what: String,
    /// Here over that of the whole study; absent where the two cannot be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Both amounts, `3 s of 600 s`, where they are more than the share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amounts: Option<String>,
}

impl Reduced {
    /// What `here` carries out of `whole`; None where it is all of it.
    pub fn between(whole: &Study, here: &Study, quick: bool, remedy: &str) -> Option<Reduced> {
        let loads: Vec<ReducedLoad> = here
            .workloads
            .iter()
            .filter_map(|workload| {
                let other = whole.workloads.iter().find(|other| other.name == workload.name)?;
                let mut parts = parts(&other.load, &workload.load);
                if !is_same(&other.load, &levelled(&other.load, &workload.load)) {
                    let what = match parts.is_empty() {
                        true => "another load",
                        false => "other settings besides",
                    };
                    parts.push(Part { what: what.into(), share: None, amounts: None });
                }
                let workload = workload.name.clone();
                (!parts.is_empty()).then_some(ReducedLoad { workload, parts })
            })
            .collect();
        let device = (whole.device != here.device).then(|| whole.device.clone());
        (quick || !loads.is_empty()).then(|| Reduced {
            quick,
            remedy: remedy.into(),
            device,
            loads,
        })
    }

    /// The loads of `study` with their shares, those with equal ones together:
    /// `dbench and replay: 0.5 % of the counted time (3 s of 600 s)`.
    pub fn shares(&self, study: &Study) -> String {
        let mut alike: Vec<(String, Vec<String>)> = Vec::new();
        for workload in &study.workloads {
            let load = self.loads.iter().find(|load| load.workload == workload.name);
            let words = load.map_or("all of it".to_string(), |load| {
                list(&load.parts.iter().map(Part::words).collect::<Vec<_>>())
            });
            match alike.iter_mut().find(|(known, _)| *known == words) {
                Some((_, names)) => names.push(workload.name.clone()),
                None => alike.push((words, vec![workload.name.clone()])),
            }
        }
        match alike.as_slice() {
            [(words, _)] => words.clone(),
            _ => alike
                .iter()
                .map(|(words, names)| format!("{}: {words}", list(names)))
                .collect::<Vec<_>>()
                .join("; "),
        }
    }
}

impl Part {
    fn words(&self) -> String {
        let amounts = self.amounts.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
        let share = self.share.map(|share| format!("{} of ", percent(share))).unwrap_or_default();
        format!("{share}{}{amounts}", self.what)
    }
}

/// A share in percent with two digits that count: `0.4 %`, `6.7 %`, `22 %`.
fn percent(share: f64) -> String {
    let value = share * 100.0;
    let magnitude = if value > 0.0 { value.log10().floor() } else { 0.0 };
    let digits = (1.0 - magnitude).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => format!("{} %", text.trim_end_matches('0').trim_end_matches('.')),
        false => format!("{text} %"),
    }
}

/// The measures in which a load differs from the whole one.
fn parts(whole: &Load, here: &Load) -> Vec<Part> {
    match (whole, here) {
        (Load::Objects(whole), Load::Objects(here)) => {
            let what = "the program's counts";
            part(what, whole.scale, here.scale, |_| String::new()).into_iter().collect()
        }
        (Load::Tree(whole), Load::Tree(here)) => match (&whole.source, &here.source) {
            (
                TreeSource::Synthetic { files: whole, .. },
                TreeSource::Synthetic { files: here, .. },
            ) => {
                let words = |files: f64| format!("{files:.0}");
                part("the files", *whole as f64, *here as f64, words).into_iter().collect()
            }
            _ => Vec::new(),
        },
        (Load::Fio(whole), Load::Fio(here)) => fio(whole, here),
        (Load::FioMatrix(whole), Load::FioMatrix(here)) => matrix(whole, here),
        (Load::Dbench(whole), Load::Dbench(here)) => counted_time(whole.seconds, here.seconds),
        (Load::DbenchReplay(whole), Load::DbenchReplay(here)) => {
            counted_time(whole.seconds, here.seconds)
        }
        (Load::Bonnie(whole), Load::Bonnie(here)) => {
            size("the files' size", whole.size_bytes, here.size_bytes).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// `here` with the amounts of `whole`: what is another load still is so by more than its amount.
fn levelled(whole: &Load, here: &Load) -> Load {
    let mut level = here.clone();
    match (whole, &mut level) {
        (Load::Objects(whole), Load::Objects(level)) => level.scale = whole.scale,
        (Load::Tree(whole), Load::Tree(level)) => {
            if let (
                TreeSource::Synthetic { files: whole, .. },
                TreeSource::Synthetic { files, .. },
            ) = (&whole.source, &mut level.source)
            {
                *files = *whole;
            }
        }
        (Load::Fio(whole), Load::Fio(level)) if level.path.is_none() => {
            let words = level.text.split_whitespace().map(|word| {
                let amount = word.split_once('=').filter(|(key, _)| is_amount(key));
                let other = amount.and_then(|(key, _)| option_word(whole, key));
                other.unwrap_or(word)
            });
            level.text = words.collect::<Vec<_>>().join(" ");
        }
        (Load::FioMatrix(whole), Load::FioMatrix(level)) => {
            level.cell_ns = whole.cell_ns;
            level.size_bytes = whole.size_bytes;
            level.block_sizes_bytes.clone_from(&whole.block_sizes_bytes);
        }
        (Load::Dbench(whole), Load::Dbench(level)) => level.seconds = whole.seconds,
        (Load::DbenchReplay(whole), Load::DbenchReplay(level)) => level.seconds = whole.seconds,
        (Load::Bonnie(whole), Load::Bonnie(level)) => level.size_bytes = whole.size_bytes,
        _ => {}
    }
    level
}

/// fio's options that are sizes of the whole, and those that are sizes or times.
const SIZES: [&str; 3] = ["size", "filesize", "io_size"];
const RUNTIME: &str = "runtime";

fn is_amount(key: &str) -> bool {
    let name = key.trim_start_matches('-');
    SIZES.contains(&name) || name == RUNTIME
}

/// The word of fio's options with this name.
fn option_word<'a>(load: &'a FioLoad, key: &str) -> Option<&'a str> {
    let has_name = |word: &&str| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.trim_start_matches('-') == key.trim_start_matches('-'))
    };
    load.text.split_whitespace().find(has_name)
}

/// Whether two loads are the same; of fio's options, also where an amount is written in other words.
fn is_same(whole: &Load, here: &Load) -> bool {
    let option = |word: &str| {
        let amount = word.split_once('=').and_then(|(key, value)| {
            let amount = match key.trim_start_matches('-') {
                name if SIZES.contains(&name) => u128::from(parse_size(value).ok()?),
                RUNTIME => parse_duration(value).ok()?.as_nanos(),
                _ => return None,
            };
            Some(format!("{key}={amount}"))
        });
        amount.unwrap_or_else(|| word.to_string())
    };
    match (whole, here) {
        (Load::Fio(whole), Load::Fio(here)) => {
            let options = |load: &FioLoad| -> Vec<String> {
                load.text.split_whitespace().map(option).collect()
            };
            whole.path == here.path && options(whole) == options(here)
        }
        _ => whole == here,
    }
}

/// None where the two are equal, or nothing is to be divided by.
fn part(what: &str, whole: f64, here: f64, words: impl Fn(f64) -> String) -> Option<Part> {
    let amounts = (words(here), words(whole));
    (whole != here && whole > 0.0).then(|| Part {
        what: what.into(),
        share: Some(here / whole),
        amounts: (!amounts.0.is_empty()).then(|| format!("{} of {}", amounts.0, amounts.1)),
    })
}

fn size(what: &str, whole_bytes: u64, here_bytes: u64) -> Option<Part> {
    part(what, whole_bytes as f64, here_bytes as f64, |bytes| size_text(bytes as u64))
}

fn counted_time(whole_seconds: u32, here_seconds: u32) -> Vec<Part> {
    let words = |seconds: f64| format!("{seconds:.0} s");
    let whole = f64::from(whole_seconds);
    part("the counted time", whole, f64::from(here_seconds), words).into_iter().collect()
}

fn matrix(whole: &FioMatrixLoad, here: &FioMatrixLoad) -> Vec<Part> {
    let seconds = |ns: f64| format!("{} s", ns / 1e9);
    let sizes = |load: &FioMatrixLoad| load.block_sizes_bytes.len();
    let count = |count: f64| format!("{count:.0}");
    [
        part("the time of a cell", whole.cell_ns as f64, here.cell_ns as f64, seconds),
        part("the block sizes", sizes(whole) as f64, sizes(here) as f64, count),
        size("the files' size", whole.size_bytes, here.size_bytes),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Options of fio with another size or length.
fn fio(whole: &FioLoad, here: &FioLoad) -> Vec<Part> {
    let value = |load: &FioLoad, key: &str| -> Option<String> {
        Some(option_word(load, key)?.split_once('=')?.1.to_string())
    };
    let both = |key: &str| value(whole, key).zip(value(here, key));
    let sizes = SIZES.into_iter().filter_map(|key| {
        let (whole, here) = both(key)?;
        size(&format!("fio's {key}"), parse_size(&whole).ok()?, parse_size(&here).ok()?)
    });
    let runtime = both(RUNTIME).and_then(|(whole, here)| {
        let seconds = |text: &str| parse_duration(text).ok().map(|time| time.as_secs_f64());
        let words = |seconds: f64| format!("{seconds} s");
        part("fio's runtime", seconds(&whole)?, seconds(&here)?, words)
    });
    sizes.chain(runtime).collect()
}

/// How much of a load is done, in words; None where its name or its program says it all.
pub fn amount(load: &Load) -> Option<String> {
    match load {
        Load::Objects(load) if load.scale != 1.0 => {
            Some(format!("{} of the program's counts", percent(load.scale)))
        }
        Load::Tree(load) => Some(match &load.source {
            TreeSource::Synthetic { files, .. } => format!("a tree of {files} files"),
            TreeSource::Tarball(path) => path.display().to_string(),
        }),
        Load::Fio(load) if load.path.is_none() => Some(load.text.clone()),
        Load::FioMatrix(load) => Some(format!(
            "cells of {} s over {}, {}",
            load.cell_ns as f64 / 1e9,
            size_text(load.size_bytes),
            counted(load.block_sizes_bytes.len(), "block size")
        )),
        Load::Dbench(load) => Some(clients(load.clients, load.seconds)),
        Load::DbenchReplay(load) => Some(clients(load.clients, load.seconds)),
        Load::Bonnie(load) => Some(format!("files of {}", size_text(load.size_bytes))),
        Load::Objects(_) | Load::Fio(_) | Load::Command { .. } => None,
    }
}

fn clients(clients: u32, seconds: u32) -> String {
    format!("{}, {seconds} s counted", counted(clients as usize, "client"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const STUDY: &str = r#"
        contenders = ["ext4", "xfs"]
        device = "loop:40G"
        [quick]
        device = "loop:2G"
        runs = 3
        scale = 0.004
        [[workload]]
        name = "objects"
        program = "Command { 100000.times { New(256K); }; }"
        [[workload]]
        name = "more objects"
        program = "Command { 5000.times { New(4M); }; }"
        [[workload]]
        name = "tree"
        tree = "synthetic:60000"
        [[workload]]
        name = "fio"
        fio = "rw=randrw -size=1000M runtime=500"
        [[workload]]
        name = "matrix"
        fio-matrix = true
        size = "8G"
        quick = { block-size = ["4K", "64K"], time = "75s" }
        [[workload]]
        name = "dbench"
        dbench = 4
        time = "600s"
        quick = { time = "750s" }
        [[workload]]
        name = "tar"
        command = "tar xf x.tar"
    "#;

    fn studies() -> (Study, Study) {
        let known = ["ext4", "xfs"];
        let text = crate::study_file::parse(Path::new("s"), STUDY).unwrap();
        let quick = text.quickened().unwrap().resolve(&known).unwrap();
        (text.resolve(&known).unwrap(), quick)
    }

    #[test]
    fn every_load_says_what_of_it_ran() {
        let (whole, here) = studies();
        let reduced = Reduced::between(&whole, &here, true, "--full runs it all").unwrap();
        assert_eq!(reduced.device.as_deref(), Some("loop:40G"));
        assert_eq!(
            reduced.shares(&here),
            "objects and more objects: 0.4 % of the program's counts; \
             tree: 0.4 % of the files (240 of 60000); \
             fio: 0.4 % of fio's size (4M of 1000M) and 0.4 % of fio's runtime (2 s of 500 s); \
             matrix: 10 % of the time of a cell (0.3 s of 3 s), 22 % of the block sizes (2 of 9) \
             and 0.4 % of the files' size (33M of 8G); \
             dbench: 0.5 % of the counted time (3 s of 600 s); tar: all of it"
        );
        // What was left out on a machine is not spoken of; of one load no name is needed.
        let only = Study { workloads: here.workloads[5..6].to_vec(), ..here.clone() };
        assert_eq!(reduced.shares(&only), "0.5 % of the counted time (3 s of 600 s)");
        // The whole study is reduced by nothing.
        assert_eq!(Reduced::between(&whole, &whole, false, ""), None);
    }

    #[test]
    fn another_load_is_not_called_all_of_it() {
        let said = |whole: &str, here: &str| {
            let study = |load: &str| {
                let text = format!("contenders = ['ext4']\n[[workload]]\nname = 'x'\n{load}");
                let text = crate::study_file::parse(Path::new("s"), &text).unwrap();
                text.resolve(&["ext4"]).unwrap()
            };
            let here = study(here);
            Reduced::between(&study(whole), &here, true, "").unwrap().shares(&here)
        };
        let synthetic = "tree = 'synthetic:500'";
        assert_eq!(said("tree = '/path/linux-4.10.1.tar.xz'", synthetic), "another load");
        assert_eq!(said("fio = 'rw=read size=1G'", "fio = 'rw=write size=1G'"), "another load");
        assert_eq!(said("command = 'true'", "command = 'false'"), "another load");
        // Less of it, and another pattern.
        assert_eq!(
            said("fio = 'rw=read size=1G'", "fio = 'rw=write size=256M'"),
            "25 % of fio's size (256M of 1G) and other settings besides"
        );
        assert_eq!(
            said("dbench = 4\ntime = '600s'", "dbench = 2\ntime = '60s'"),
            "10 % of the counted time (60 s of 600 s) and other settings besides"
        );
        // The same amount in other words is the same load.
        let fio = "fio = 'rw=read size=1024M runtime=60s'";
        assert_eq!(said(fio, "fio = 'rw=read  size=1G runtime=60'"), "all of it");
        assert_eq!(said(synthetic, synthetic), "all of it");
    }

    #[test]
    fn shares_keep_two_digits() {
        assert_eq!(
            [0.004, 0.0667, 0.2222, 1.0, 2.5, 0.00001].map(percent),
            ["0.4 %", "6.7 %", "22 %", "100 %", "250 %", "0.001 %"]
        );
    }

    #[test]
    fn the_amount_is_that_of_the_study_that_runs() {
        let (whole, here) = studies();
        let of = |study: &Study, index: usize| amount(&study.workloads[index].load);
        assert_eq!(of(&whole, 0), None);
        assert_eq!(of(&here, 0).as_deref(), Some("0.4 % of the program's counts"));
        assert_eq!(of(&here, 4).as_deref(), Some("cells of 0.3 s over 33M, 2 block sizes"));
        assert_eq!(of(&here, 5).as_deref(), Some("4 clients, 3 s counted"));
        assert_eq!(of(&here, 6), None);
    }
}
