//! `kurabe promises`: what file systems promise, asked by small programs and power cuts.

use std::path::Path;

use lab::contender::Contender;
use lab::spec::{CommandLine, PowerCuts, WorkloadSpec};
use trial::crash::promises::{PROMISES, Promise, by_name};
use trial::crash::{CrashReport, CrashVerdict};
use vocabulary::suggestion::unknown;

use super::crash::{CrashRunner, CutPoints, contenders, control_states, size, spec, workload};
use crate::exit::{self, Failure, SIGNAL_BASE};
use crate::request::flags::{PromiseArgs, PromisesArgs};
use crate::terminal;

/// Bound on a program and on its check in ns.
const TIMEOUT_NS: u64 = 60_000_000_000;

/// What stands in the place of a verdict where there is none.
const FAILED: &str = "failed";

pub fn promises(args: &PromisesArgs) -> Result<u8, Failure> {
    let contenders = contenders(&args.contenders, None, CutPoints::Here)?;
    let asked: Vec<&Promise> = if args.only.is_empty() {
        PROMISES.iter().collect()
    } else {
        args.only.iter().map(|name| known(name)).collect::<Result<_, _>>()?
    };
    let cuts = PowerCuts {
        size_bytes: size(&args.device)?,
        devices_bytes: Vec::new(),
        check_directory: "/".into(),
        check_timeout_ns: TIMEOUT_NS,
        // They read what is mounted and nothing else.
        parallel_checks: true,
        states: args.states,
        control_states: control_states(args.states),
        seed: args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
        ..PowerCuts::default()
    };
    let mut laboratory = CrashRunner::open(&contenders)?;
    let mut found: Vec<Vec<Result<CrashReport, String>>> = vec![Vec::new(); asked.len()];
    for (promise, row) in asked.iter().zip(&mut found) {
        for contender in &contenders {
            if laboratory.stop.raised() {
                break;
            }
            row.push(ask(&mut laboratory, promise, contender, &cuts)?);
        }
    }
    if let Some(number) = laboratory.stop.signal() {
        return Ok(SIGNAL_BASE + number as u8);
    }
    terminal::print(&table(&asked, &contenders, &found));
    terminal::print(&format!(
        "\nkept: in all states tried, which is no proof. inconclusive: a disk that ignores flushes broke \
         nothing either. To repeat: --seed {}\n",
        cuts.seed
    ));
    let of_posix = asked.iter().zip(&found).filter(|(promise, _)| promise.posix);
    let verdicts: Vec<CrashVerdict> = of_posix
        .flat_map(|(_, row)| row)
        .map(|one| one.as_ref().map_or(CrashVerdict::Refused, CrashReport::verdict))
        .collect();
    let has = |verdict| verdicts.contains(&verdict);
    Ok(match () {
        // A promise is broken, whatever else could not be tried.
        () if has(CrashVerdict::Violated) => exit::GATE_FAILS,
        () if has(CrashVerdict::Refused) => exit::TRIAL_FAILED,
        () if has(CrashVerdict::Inconclusive) => exit::GATE_INCONCLUSIVE,
        () => exit::OK,
    })
}

fn known(name: &str) -> Result<&'static Promise, Failure> {
    by_name(name).ok_or_else(|| {
        let names: Vec<&str> = PROMISES.iter().map(|promise| promise.name).collect();
        Failure::refused(format!("--only: {}", unknown("promise is called", name, &names)))
    })
}

/// Runs one program on one contender.
fn ask(
    laboratory: &mut CrashRunner,
    promise: &Promise,
    contender: &Contender,
    cuts: &PowerCuts,
) -> Result<Result<CrashReport, String>, Failure> {
    let data = std::fs::File::from(
        rustix::fs::memfd_create("recording", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|error| Failure::broken(std::io::Error::from(error)))?,
    );
    let program = |part: &str| {
        let words = ["/proc/self/exe", "promise"].map(String::from).into_iter();
        let words = words.chain(trust::owner::words());
        CommandLine::Words(words.chain([promise.name.into(), part.into()]).collect())
    };
    let load = WorkloadSpec::of_command(program("run"));
    let workload = workload(load, Some(program("setup")), Some(program("check")));
    let spec = spec(contender.clone(), cuts.clone(), workload, TIMEOUT_NS);
    Ok(laboratory.carry_out(spec, &data).0)
}

/// A row for each program, a column for each contender; below it the smallest case of each promise that is broken.
fn table(
    asked: &[&Promise],
    contenders: &[Contender],
    found: &[Vec<Result<CrashReport, String>>],
) -> String {
    let mut rows = vec![vec![String::new(), "POSIX".into()]];
    rows[0].extend(contenders.iter().map(|contender| contender.label.clone()));
    let mut cases = String::new();
    for (promise, reports) in asked.iter().zip(found) {
        let posix = if promise.posix { "yes" } else { "no" };
        let mut row = vec![promise.name.to_string(), posix.into()];
        for (contender, report) in contenders.iter().zip(reports) {
            row.push(match report {
                Ok(report) => verdict_text(report),
                Err(_) => FAILED.into(),
            });
            if let Some(case) = case_text(report) {
                cases += &format!("{}, {}: {case}\n", promise.name, contender.label);
            }
        }
        rows.push(row);
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let mut line = cells.collect::<Vec<_>>().join("  ");
        if number > 0 {
            line = format!("{line}  {}", asked[number - 1].text);
        }
        text += line.trim_end();
        text.push('\n');
    }
    if cases.is_empty() { text } else { format!("{text}\n{cases}") }
}

fn verdict_text(report: &CrashReport) -> String {
    let tried = report.states.tried;
    match report.verdict() {
        CrashVerdict::Refused => FAILED.into(),
        CrashVerdict::Held => format!("kept ({tried} of {tried})"),
        CrashVerdict::Violated => format!("broken ({} of {tried})", report.states.violated()),
        CrashVerdict::Inconclusive => "inconclusive".into(),
    }
}

fn case_text(report: &Result<CrashReport, String>) -> Option<String> {
    let report = match report {
        Ok(report) => report,
        Err(message) => return message.lines().next().map(str::to_string),
    };
    if report.refused.is_some() {
        return report.refused.clone();
    }
    let violated = report.cases.iter().filter(|case| case.finding.kind.is_violation());
    let case = violated.min_by_key(|case| case.lost.len())?;
    let lost: Vec<&str> = case.lost.iter().map(|lost| lost.what.as_str()).collect();
    Some(if lost.is_empty() {
        case.finding.to_string()
    } else {
        format!("{}; lost: {}", case.finding, lost.join(", "))
    })
}

/// `kurabe promise`: one part of a program.
pub fn one(args: &PromiseArgs) -> Result<u8, Failure> {
    let promise = known(&args.name)?;
    let here = Path::new(".");
    let done = match (args.part.as_str(), &args.directory, &args.acknowledged) {
        ("setup", None, None) => promise.set_up(here),
        ("run", None, None) => promise.run(here),
        ("check", Some(directory), Some(acknowledged)) => {
            return Ok(match promise.check(directory, acknowledged) {
                Ok(()) => exit::OK,
                Err(found) => {
                    terminal::note(&found);
                    1
                }
            });
        }
        _ => return Err(Failure::refused("write setup, run, or check DIRECTORY FILE")),
    };
    done.map(|()| exit::OK).map_err(Failure::broken)
}
