//! One study on several machines: `kurabe shard` divides it, `kurabe run` runs a shard, `kurabe merge`
//! joins what they measured.
//!
//! A shard is a result that has not begun, so that it is run, resumed and reported as any other.
//! Knows nothing of how shards get to machines and who starts them there.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lab::plan::{NO_FILE_OF_SHARDS, Plan, SHARDS_MAX, Shard};
use lab::result::{
    COMPARISONS_FILE, HISTOGRAMS_DIRECTORY, PLAN_FILE, RECORDS_FILE, ResultWriter, STUDY_FILE,
    StoredResult, TRACES_DIRECTORY,
};
use lab::spec::OutputTarget;
use lab::study::{Study, check_name};
use report::document;
use report::machines::{Merged, Missing};
use report::source::ResultSource;
use serde::{Deserialize, Serialize};
use trust::words::pasted_path;
use trust::{Directory, Refused};
use vocabulary::path::UserPath;
use vocabulary::words::{counted, list};

use crate::exit::{self, Failure, refused};
use crate::power_failures::crash_shards::{self, name_of, new_directory};
use crate::presentation::Presentation;
use crate::request::default_directory;
use crate::request::flags::{MergeArgs, ResumeArgs, RunArgs, ShardArgs, ShowArgs};
use crate::runner;
use crate::session::prepare::{self, file_of, settle, study_of};
use crate::terminal;

/// What says that a directory is a merged result, and of what.
pub const MERGED_FILE: &str = "merged.json";
/// Greatest size of that file.
const MERGED_BYTES_MAX: u64 = 64 << 20;
/// The page of a merged result.
const PAGE_FILE: &str = "report.html";
/// Greatest size of a file of a shard that is copied.
const COPY_BYTES_MAX: u64 = 1 << 30;
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

pub fn shard(args: &ShardArgs) -> Result<u8, Failure> {
    let of = args.shards;
    if !(1..=SHARDS_MAX).contains(&of) {
        return Err(Failure::refused(format!("--shards: is {of}; write 1 to {SHARDS_MAX}")));
    }
    let ShowArgs { verbose, export_json, export_csv, export_markdown, style } =
        &args.run.present.show;
    let exports = [export_json, export_csv, export_markdown];
    let shows = exports.iter().any(|one| one.is_some()) || *verbose || style.is_some();
    if shows || args.run.print.asked() {
        return Err(Failure::refused(
            "'kurabe shard' runs nothing and prints no result; give options of the output to 'kurabe run SHARD' or 'kurabe report'",
        ));
    }
    let (text, mut study, words) = study_of(&args.run)?;
    if study.runs.is_some() {
        return Err(Failure::refused(
            "--runs: shards divide the rounds of a study; write --rounds, the number for all shards together",
        ));
    }
    if !study.hosts().is_empty() {
        return Err(Failure::refused(
            "--on ssh: a shard is run by the machine that is to be measured; leave --on out, and start 'kurabe run SHARD' there",
        ));
    }
    if matches!(study.output, OutputTarget::File(_)) {
        return Err(Failure::refused(NO_FILE_OF_SHARDS));
    }
    study.directory = Some(UserPath::typed("."));
    settle(&mut study)?;
    let seed = study.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let out = args.run.present.out.clone().unwrap_or_else(|| default_directory(&study.name));
    let paths: Vec<PathBuf> = (1..=of).map(|number| out.join(name_of(number, of))).collect();
    if let Some(there) = paths.iter().find(|path| path.join(PLAN_FILE).exists()) {
        return Err(Failure::refused(format!(
            "--out: {} holds a shard already; name another place",
            there.display()
        )));
    }
    let plans = Plan::shards(study, seed, of);
    let rounds = plans[0].study.blocks_max;
    let file = file_of(&text);
    let mut written = Vec::new();
    for (plan, path) in plans.iter().zip(&paths) {
        match ResultWriter::create(path, plan, &file) {
            Ok(writer) => written.push(writer),
            Err(error) => {
                written.into_iter().rev().for_each(ResultWriter::withdraw);
                return Err(Failure::refused(error));
            }
        }
    }
    terminal::note(&words);
    let out = pasted_path(&out);
    terminal::print(&format!(
        "{} with {} each in {out}, seed {seed}\nrun each:  sudo kurabe run {out}/{}\nthen:      kurabe merge {out}/*\n",
        counted(of as usize, "shard"),
        counted(rounds as usize, "round"),
        name_of(1, of),
    ));
    Ok(exit::OK)
}

/// Whether a directory is to be run: a shard, or a result by mistake.
pub fn is_one(args: &RunArgs) -> bool {
    args.study_file.join(PLAN_FILE).is_file() || crash_shards::is_one(&args.study_file)
}

/// `kurabe run SHARD`: begins it, or goes on with it, so that whoever starts it again loses nothing.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let directory = &args.study_file;
    let shown = directory.display();
    if let Some(flag) = args.changes() {
        return Err(Failure::refused(format!(
            "{flag}: a shard is run as it was divided; leave it out, or give it when you divide"
        )));
    }
    if crash_shards::is_one(directory) {
        return crash_shards::run(directory);
    }
    let stored = StoredResult::read(directory).map_err(Failure::refused)?;
    if stored.plan.shard.is_none() {
        return Err(Failure::refused(format!(
            "{shown}: is a result and no shard; go on with it by 'kurabe resume {}'",
            pasted_path(directory)
        )));
    }
    prepare::resume(&ResumeArgs {
        directory: directory.clone(),
        more: None,
        destroy: args.study.destroy.clone(),
        no_dry_run: args.study.no_dry_run,
        present: args.present.show.clone(),
    })
}

/// What a merged result holds.
#[derive(Debug, Serialize, Deserialize)]
struct Joined {
    name: String,
    /// The directories of the shards within it, in the order of their numbers.
    shards: Vec<String>,
    /// The shards that are not there or not complete.
    missing: Vec<Missing>,
    /// What the shards say together; written for other programs, made anew by every report.
    #[serde(default)]
    comparisons: serde_json::Value,
}

pub fn merge(args: &MergeArgs) -> Result<u8, Failure> {
    if crash_shards::is_one(&args.shards[0]) {
        let out = args.out.clone().unwrap_or_else(|| default_directory("crash-merged"));
        return crash_shards::merge(&args.shards, &out);
    }
    let show = ShowArgs { style: args.style, ..ShowArgs::default() };
    let presentation = Presentation::new(&show, None)?;
    let mut found: Vec<(PathBuf, StoredResult)> = Vec::new();
    for path in &args.shards {
        let stored = StoredResult::read(path).map_err(Failure::refused)?;
        found.push((path.clone(), stored));
    }
    let of = check_together(&found)?;
    found.sort_by_key(|(_, stored)| stored.plan.shard.map(|shard| shard.number));
    let missing = missing(&found, of);
    // A shard that measured nothing has nothing to join.
    let is_used = |(_, stored): &(PathBuf, StoredResult)| !stored.records.is_empty();
    let used: Vec<(PathBuf, StoredResult)> = found.into_iter().filter(is_used).collect();
    let Some((_, first)) = used.first() else {
        return Err(Failure::refused("none of the shards has measured anything; run them first"));
    };
    let name = first.plan.study.name.clone();
    // It may be another user's words.
    check_name(&name).map_err(refused("the study's name"))?;
    let out = args.out.clone().unwrap_or_else(|| default_directory(&format!("{name}-merged")));
    let directory = new_directory(&out)?;
    let mut joined =
        Joined { name, shards: Vec::new(), missing, comparisons: serde_json::Value::Null };
    for (_, stored) in &used {
        let shard = stored.plan.shard.expect("shards were checked");
        let name = name_of(shard.number, shard.of);
        let to = directory.make_directory(&name, DIRECTORY_MODE).map_err(Failure::broken)?;
        copy(&stored.directory, &to).map_err(Failure::broken)?;
        joined.shards.push(name);
    }
    let sources: Vec<ResultSource> =
        used.into_iter().map(|(_, stored)| ResultSource::of(stored)).collect();
    let merged = Merged::new(&sources, &joined.missing);
    joined.comparisons = serde_json::to_value(&merged.workloads).expect("costs have a JSON form");
    let blocks = report::machines::document(&merged);
    let page =
        report::page::of_blocks(&joined.name, &report::machines::page(&joined.name, &blocks));
    let write = |name: &str, bytes: &[u8]| {
        directory.replace(name, bytes, FILE_MODE).map_err(Failure::broken)
    };
    write(PAGE_FILE, page.as_bytes())?;
    // Last, since it makes the directory a result.
    let mut text = serde_json::to_vec_pretty(&joined).expect("a result has a JSON form");
    text.push(b'\n');
    write(MERGED_FILE, &text)?;
    terminal::show(&document::terminal(&blocks, presentation.look.colour));
    terminal::note(&format!("report: {}", out.join(PAGE_FILE).display()));
    Ok(if joined.missing.is_empty() { exit::OK } else { exit::TRIAL_FAILED })
}

/// The report of a merged result, as blocks, with the name of its study.
pub fn report(path: &Path) -> Result<(String, Vec<document::Block>), Failure> {
    let directory = Directory::open(path).map_err(Failure::refused)?;
    let bytes = directory.read(MERGED_FILE, MERGED_BYTES_MAX).map_err(Failure::refused)?;
    let damaged = |problem: String| {
        Failure::refused(format!("{}: {problem}", path.join(MERGED_FILE).display()))
    };
    let joined: Joined =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    let is_name = |name: &String| Path::new(name).file_name() == Some(OsStr::new(name));
    let mut seen = HashSet::new();
    if !joined.shards.iter().all(|name| is_name(name) && seen.insert(name)) {
        return Err(damaged("names a shard outside of the result, or one twice".into()));
    }
    if joined.shards.len() > SHARDS_MAX as usize {
        return Err(damaged(format!("names more than {SHARDS_MAX} shards")));
    }
    // Not through links: many could lead to one result, and each would be read again.
    let read = |name: &String| {
        let shard = directory.open_directory(name).map_err(Failure::refused)?;
        StoredResult::read_in(Arc::new(shard)).map(ResultSource::of).map_err(Failure::refused)
    };
    let sources: Vec<ResultSource> = joined.shards.iter().map(read).collect::<Result<_, _>>()?;
    if sources.is_empty() {
        return Err(damaged("names no shard".into()));
    }
    let blocks = report::machines::document(&Merged::new(&sources, &joined.missing));
    Ok((joined.name, blocks))
}

/// Refuses what is no shard, or not of one study; gives the number of shards.
fn check_together(found: &[(PathBuf, StoredResult)]) -> Result<u32, Failure> {
    let mut seen: Vec<(Shard, &Path)> = Vec::new();
    let (first_path, first) = &found[0];
    for (path, stored) in found {
        let refused = |problem: String| Failure::refused(format!("{}: {problem}", path.display()));
        let Some(shard) = stored.plan.shard else {
            return Err(refused("is no shard; kurabe shard makes them".into()));
        };
        if let Some((_, other)) = seen.iter().find(|(other, _)| other.number == shard.number) {
            return Err(refused(format!(
                "is shard {}, as {} is; name one of them",
                shard.number,
                other.display()
            )));
        }
        if let Some(difference) = difference(&first.plan, &stored.plan) {
            return Err(refused(format!(
                "is not of the same study as {}: {difference}",
                first_path.display()
            )));
        }
        let version = |stored: &StoredResult| {
            let facts = stored.facts.as_ref()?;
            Some(facts.pointer("/machine/kurabe_version")?.as_str()?.to_string())
        };
        if let (Some(own), Some(other)) = (version(first), version(stored))
            && own != other
        {
            return Err(refused(format!(
                "was run by kurabe {other}, and {} by kurabe {own}; run all shards with one version",
                first_path.display()
            )));
        }
        seen.push((shard, path));
    }
    Ok(seen[0].0.of)
}

/// What tells the studies of two shards apart, in words.
fn difference(first: &Plan, other: &Plan) -> Option<String> {
    let (one, two) = (first.shard?, other.shard?);
    if one.seed != two.seed {
        return Some(format!("the seed is {} here and {} there", two.seed, one.seed));
    }
    if one.of != two.of {
        return Some(format!("it is one of {} shards here and of {} there", two.of, one.of));
    }
    // Rounds that were added later, or a budget, change no machine's cost.
    let same_rounds =
        |study: &Study| Study { blocks_min: 1, blocks_max: 1, budget_ns: None, ..study.clone() };
    let values = [&first.study, &other.study]
        .map(|study| serde_json::to_value(same_rounds(study)).expect("a study has a JSON form"));
    let [one, two] = values;
    let (Some(one), Some(two)) = (one.as_object(), two.as_object()) else { return None };
    let names: Vec<String> = one
        .keys()
        .chain(two.keys().filter(|key| !one.contains_key(*key)))
        .filter(|key| one.get(*key) != two.get(*key))
        .cloned()
        .collect();
    (!names.is_empty()).then(|| format!("they differ in {}", list(&names)))
}

/// The shards of which records are missing, and how to get them.
fn missing(found: &[(PathBuf, StoredResult)], of: u32) -> Vec<Missing> {
    let numbers = 1..=of;
    let of_number = |number: u32| {
        let has_it = |(_, stored): &&(PathBuf, StoredResult)| {
            stored.plan.shard.is_some_and(|shard| shard.number == number)
        };
        let Some((path, stored)) = found.iter().find(has_it) else {
            return Some(Missing { number, directory: None });
        };
        let is_whole = runner::is_complete(&stored.plan, &stored.records);
        (!is_whole).then(|| Missing { number, directory: Some(path.display().to_string()) })
    };
    numbers.filter_map(of_number).collect()
}

/// Copies the files of a result, and nothing else that lies with them.
fn copy(from: &Directory, to: &Directory) -> Result<(), Refused> {
    for name in from.names()? {
        let shown = name.to_string_lossy();
        let is_known = [PLAN_FILE, STUDY_FILE, RECORDS_FILE, COMPARISONS_FILE].contains(&&*shown)
            || shown.starts_with("facts") && shown.ends_with(".json")
            || shown.starts_with("trial-")
                && (shown.ends_with(".hlog") || shown.ends_with(".trace"));
        if [HISTOGRAMS_DIRECTORY, TRACES_DIRECTORY].iter().any(|known| name == **known) {
            let inner = from.open_directory(&name)?;
            copy(&inner, &to.make_directory(&name, DIRECTORY_MODE)?)?;
        } else if is_known {
            to.replace(&name, &from.read(&name, COPY_BYTES_MAX)?, FILE_MODE)?;
        }
    }
    Ok(())
}
