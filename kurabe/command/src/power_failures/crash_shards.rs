//! The states of one recording on several machines: `kurabe crash --shards` records and divides, `kurabe run`
//! tries a share, `kurabe merge` joins the verdicts.
//!
//! Invariant: together, the shards try exactly the states that `kurabe crash` tries alone with that seed.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lab::contender::Contender;
use lab::plan::SHARDS_MAX;
use lab::spec::{PowerCuts, TrialSpec, WorkloadSpec};
use rustix::fs::{AtFlags, CWD, linkat};
use trial::crash::{CrashReport, StateShare};
use trust::words::pasted_path;
use trust::{CONTENTS_MODE, Directory};
use vocabulary::words::{counted, list};

use super::crash::{CrashRunner, believe_check, control_states, exit_code, spec, workload};
use super::crash_result::{
    CrashResult, CrashShard, JudgedContender, RESULT_FILE, Seal, Verifier, read, recording_file,
};
use super::crash_text::text_of;
use crate::exit::{self, Failure, SIGNAL_BASE};
use crate::terminal;

/// Most states of a contender.
const STATES_MAX: usize = 100_000_000;
const DIRECTORY_MODE: u32 = 0o755;

/// Records each contender and writes shards that try the states.
pub fn divide(
    contenders: &[Contender],
    spec: &TrialSpec,
    mut result: CrashResult,
    of: u32,
    out: &Path,
) -> Result<u8, Failure> {
    if !(1..=SHARDS_MAX).contains(&of) {
        return Err(Failure::refused(format!("--shards: is {of}; write 1 to {SHARDS_MAX}")));
    }
    let cuts = spec.power_cuts.clone().expect("it is one of power cuts");
    if let Some(one) = contenders.iter().find(|one| one.environment.guest().is_some()) {
        return Err(Failure::refused(format!(
            "--shards: '{}' runs in a guest, whose states are tried in one boot; leave --shards out",
            one.label
        )));
    }
    let mut laboratory = CrashRunner::open(contenders)?;
    let directory = new_directory(out)?;
    let first =
        directory.make_directory(name_of(1, of), DIRECTORY_MODE).map_err(Failure::refused)?;
    let withdraw = || {
        let _ = directory.remove_tree(name_of(1, of));
        let _ = fs::remove_dir(out);
    };
    for (number, contender) in contenders.iter().enumerate() {
        let name = recording_file(number);
        let data = first
            .create_file(&name, CONTENTS_MODE)
            .and_then(|_| first.append_file(&name))
            .map_err(Failure::broken)?;
        let share = serde_json::to_value(StateShare::Recording).expect("a share has a JSON form");
        let power_cuts = Some(PowerCuts { share: Some(share), ..cuts.clone() });
        let spec = TrialSpec { contender: contender.clone(), power_cuts, ..spec.clone() };
        let (outcome, _) = laboratory.carry_out(spec, &data);
        if let Some(number) = laboratory.stop.signal() {
            withdraw();
            return Ok(SIGNAL_BASE + number as u8);
        }
        let label = &contender.label;
        let report = match outcome {
            Ok(report) => report,
            Err(message) => {
                withdraw();
                return Err(Failure::broken(format!("{label}: could not be recorded: {message}")));
            }
        };
        if let Some(why) = &report.refused {
            withdraw();
            return Err(Failure::refused(format!("{label}: {why}")));
        }
        let CrashReport { acknowledgements, writes, flushes, .. } = report;
        terminal::print(&format!(
            "{label}: recorded {}, {}, {}\n",
            counted(acknowledgements, "acknowledgement"),
            counted(writes, "write"),
            counted(flushes, "flush")
        ));
        let contender = contender.clone();
        let seal = Some(Seal::of(&data).map_err(Failure::broken)?);
        let outcome = Ok(report);
        result.contenders.push(JudgedContender { contender, outcome, checks: Vec::new(), seal });
    }
    for number in 1..=of {
        let shard = match number {
            1 => first.try_clone(),
            _ => directory.make_directory(name_of(number, of), DIRECTORY_MODE),
        };
        let shard = shard.map_err(Failure::broken)?;
        if number > 1 {
            share_recordings(&first, &shard, contenders.len())?;
        }
        result.shard = Some(CrashShard {
            number,
            of,
            states: cuts.states,
            parallel_checks: cuts.parallel_checks,
            is_tried: false,
        });
        write(&shard, &result)?;
    }
    let (shown, first) = (pasted_path(out), name_of(1, of));
    terminal::print(&format!(
        "{} of {} and the self-test's {} for each contender in {shown}, seed {}\nrun each:  sudo kurabe run {shown}/{first}\nthen:      kurabe merge {shown}/*\n",
        counted(of as usize, "shard"),
        counted(cuts.states, "state"),
        control_states(cuts.states),
        result.seed,
    ));
    Ok(exit::OK)
}

/// The directory of `--out`, in which nothing is yet.
pub fn new_directory(out: &Path) -> Result<Directory, Failure> {
    let refused = |refused: trust::Refused| Failure::refused(format!("--out: {refused}"));
    let directory = Directory::open_or_make(out, DIRECTORY_MODE).map_err(refused)?;
    if directory.names().map_err(refused)?.is_empty() {
        return Ok(directory);
    }
    Err(Failure::refused(format!(
        "--out: {} holds something already; name another place",
        out.display()
    )))
}

/// The name of a shard; names sort as the numbers do.
pub fn name_of(number: u32, of: u32) -> String {
    let digits = of.to_string().len();
    format!("{number:0digits$}")
}

/// Gives a shard the recordings of another: the same files where that is possible, since they are only read
/// from here on.
fn share_recordings(from: &Directory, to: &Directory, count: usize) -> Result<(), Failure> {
    for number in 0..count {
        let name = recording_file(number);
        let mut source = from.open_file(&name).map_err(Failure::refused)?;
        // The file that was looked at, whatever has its name by now.
        let opened = format!("/proc/self/fd/{}", source.as_raw_fd());
        let flags = AtFlags::SYMLINK_FOLLOW;
        // One that others may read keeps its rights where it is; the copy has those of a recording.
        let is_private = source
            .metadata()
            .is_ok_and(|facts| facts.permissions().mode() & 0o777 == CONTENTS_MODE);
        if is_private && linkat(CWD, opened, to.descriptor(), &name, flags).is_ok() {
            continue;
        }
        let mut target = to.create_file(&name, CONTENTS_MODE).map_err(Failure::broken)?;
        io::copy(&mut source, &mut target).map_err(Failure::broken)?;
    }
    Ok(())
}

fn write(directory: &Directory, result: &CrashResult) -> Result<(), Failure> {
    let text = serde_json::to_vec(result).expect("a result has a JSON form");
    directory.replace(RESULT_FILE, &text, CONTENTS_MODE).map_err(Failure::broken)
}

/// Whether a directory is a result of `kurabe crash`, a shard or not.
pub fn is_one(path: &Path) -> bool {
    path.join(RESULT_FILE).is_file()
}

/// Tries the states of a shard; one that was tried is shown again.
pub fn run(path: &Path) -> Result<u8, Failure> {
    let refused = |problem: String| Failure::refused(format!("{}: {problem}", path.display()));
    let (directory, mut result) = read(path).map_err(refused)?;
    let Some(shard) = result.shard.clone() else {
        return Err(refused("is a result and no shard; 'kurabe report' shows it".into()));
    };
    check(&shard).map_err(refused)?;
    if shard.is_tried {
        show(&result, path);
        terminal::note(&format!("{}: every state has been tried", path.display()));
        return Ok(exit::OK);
    }
    let Verifier::Check(check) = result.asked.clone() else {
        return Err(refused("has no check".into()));
    };
    believe_check(&result.check_directory, &check).map_err(refused)?;
    let cuts = PowerCuts { parallel_checks: shard.parallel_checks, ..result.cuts(shard.states) };
    let mut laboratory = CrashRunner::open(&[])?;
    for (number, judged) in result.contenders.iter_mut().enumerate() {
        let report = judged.outcome.as_ref().ok();
        let Some(kept) = report.and_then(|report| report.kept.clone()) else {
            return Err(refused(format!("{} has no recording", judged.contender.label)));
        };
        let name = recording_file(number);
        let data = directory.append_file(name).map_err(Failure::refused)?;
        judged.believe(&data).map_err(refused)?;
        let share =
            StateShare::States { first: shard.number as usize - 1, of: shard.of as usize, kept };
        let cuts = PowerCuts {
            share: Some(serde_json::to_value(share).expect("a share has a JSON form")),
            ..cuts.clone()
        };
        let load = WorkloadSpec::of_command(lab::spec::CommandLine::Words(Vec::new()));
        let workload = workload(load, None, Some(check.clone()));
        let (outcome, checks) =
            laboratory.carry_out(spec(judged.contender.clone(), cuts, workload, 0), &data);
        if let Some(number) = laboratory.stop.signal() {
            return Ok(SIGNAL_BASE + number as u8);
        }
        (judged.outcome, judged.checks) = (outcome, checks);
    }
    show(&result, path);
    if result.contenders.iter().any(|judged| judged.outcome.is_err()) {
        // It stays as it was divided, to be tried again.
        return Ok(exit::TRIAL_FAILED);
    }
    result.shard = Some(CrashShard { is_tried: true, ..shard });
    write(&directory, &result)?;
    Ok(exit::OK)
}

/// Refuses numbers that no division makes.
fn check(shard: &CrashShard) -> Result<(), String> {
    let CrashShard { number, of, states, .. } = *shard;
    if !(1..=of).contains(&number) || of > SHARDS_MAX {
        return Err(format!("is shard {number} of {of}, and there are at most {SHARDS_MAX}"));
    }
    if states > STATES_MAX {
        return Err(format!("asks for {states} states, and there are at most {STATES_MAX}"));
    }
    Ok(())
}

fn show(result: &CrashResult, path: &Path) {
    let mut cases = 0;
    for judged in &result.contenders {
        terminal::print(&text_of(judged, &mut cases, path));
    }
}

/// Joins shards of recordings into a result as `kurabe crash` makes one.
pub fn merge(paths: &[PathBuf], out: &Path) -> Result<u8, Failure> {
    let mut shards: Vec<(&PathBuf, Directory, CrashResult, CrashShard)> = Vec::new();
    for path in paths {
        let refused = |problem: String| Failure::refused(format!("{}: {problem}", path.display()));
        let (directory, result) = read(path).map_err(refused)?;
        let Some(shard) = result.shard.clone() else {
            return Err(refused("is no shard; kurabe crash --shards makes them".into()));
        };
        check(&shard).map_err(refused)?;
        if shard.is_tried && result.contenders.iter().any(|judged| judged.outcome.is_err()) {
            return Err(refused("says that it was tried, and has a contender that was not".into()));
        }
        for (number, judged) in result.contenders.iter().enumerate() {
            let data = directory.open_file(recording_file(number)).map_err(Failure::refused)?;
            judged.believe(&data).map_err(refused)?;
        }
        if let Some((other, ..)) = shards.iter().find(|(.., one)| one.number == shard.number) {
            let (number, other) = (shard.number, other.display());
            return Err(refused(format!("is shard {number}, as {other} is; name one of them")));
        }
        if let Some((first, _, of_first, first_shard)) = shards.first()
            && let Some(difference) = difference((of_first, first_shard), (&result, &shard))
        {
            return Err(refused(format!(
                "is not of the same recording as {}: {difference}",
                first.display()
            )));
        }
        shards.push((path, directory, result, shard));
    }
    shards.sort_by_key(|(.., shard)| shard.number);
    let of = shards[0].3.of;
    let mut missing = Vec::new();
    for number in 1..=of {
        match shards.iter().find(|(.., shard)| shard.number == number) {
            Some((.., shard)) if shard.is_tried => {}
            Some((path, ..)) => missing.push(format!(
                "shard {number} has not been tried: kurabe run {}",
                pasted_path(path)
            )),
            None => missing.push(format!("shard {number} was not named")),
        }
    }
    shards.retain(|(.., shard)| shard.is_tried);
    if shards.is_empty() {
        return Err(Failure::refused("none of the shards has been tried; run them first"));
    }
    let directory = new_directory(out)?;
    let count = shards[0].2.contenders.len();
    share_recordings(&shards[0].1, &directory, count)?;
    let mut results = shards.into_iter().map(|(_, _, result, _)| result);
    let mut whole = results.next().expect("one was tried");
    let mut reports: Vec<Vec<CrashReport>> = vec![Vec::new(); count];
    for result in std::iter::once(&whole).chain(&results.collect::<Vec<_>>()) {
        for (place, judged) in result.contenders.iter().enumerate() {
            reports[place].extend(judged.outcome.iter().cloned());
        }
    }
    whole.shard = None;
    for (judged, reports) in whole.contenders.iter_mut().zip(reports) {
        let joined = CrashReport::joined(reports).expect("each shard that was tried has one");
        judged.checks = vec![joined.check()];
        judged.outcome = Ok(joined);
    }
    write(&directory, &whole)?;
    show(&whole, out);
    missing.iter().for_each(|words| terminal::note(&format!("kurabe: {words}; then merge again")));
    terminal::note(&format!("kurabe: the recordings are in {}", out.display()));
    Ok(if missing.is_empty() { exit_code(&whole) } else { exit::TRIAL_FAILED })
}

/// What tells two shards apart that are not of one recording, in words.
fn difference(
    (one, one_shard): (&CrashResult, &CrashShard),
    (two, two_shard): (&CrashResult, &CrashShard),
) -> Option<String> {
    let labels = |result: &CrashResult| {
        let labels = result.contenders.iter().map(|judged| judged.contender.label.clone());
        list(&labels.collect::<Vec<_>>())
    };
    let seals = |result: &CrashResult| -> Vec<Option<Seal>> {
        result.contenders.iter().map(|judged| judged.seal).collect()
    };
    let made = |result: &CrashResult| result.made.as_ref().map(|made| made.started_unix_ns);
    let differs = |what: &str, one: String, two: String| {
        (one != two).then(|| format!("{what} is {two} here and {one} there"))
    };
    differs("the seed", one.seed.to_string(), two.seed.to_string())
        .or_else(|| {
            differs("the number of shards", one_shard.of.to_string(), two_shard.of.to_string())
        })
        .or_else(|| differs("the list of contenders", labels(one), labels(two)))
        .or_else(|| {
            (made(one) != made(two) || seals(one) != seals(two))
                .then(|| "their recordings are not the same".into())
        })
}
