//! `kurabe coherence`: what nodes see of each other's files, as a study of one round with a control, whose answer is
//! a table of promises.
//!
//! The control is NFS with attributes cached for a minute. Where it answers like a local file system, the questions
//! find nothing, and contenders are inconclusive.

use clap::Parser;
use lab::contender::Contender;
use lab::environment::Environment;
use lab::record::{Check, Outcome, Record};
use loads::coherence::{QUESTIONS, Question, WAIT_MAX};
use loads::kind::late_metric;
use report::document::Block;
use report::source::Source;
use report::table::{Cell, Table, Tone};
use trial::filesystem;

use crate::exit::{self, Failure};
use crate::request::flags::{Action, Cli, CoherenceArgs};
use crate::session::prepare;

/// The label of what must fail.
const CONTROL: &str = "control";
/// What must fail, on these nodes.
const CONTROL_STACK: &str = "nfs @ nocto,actimeo=60 over ext4 on";
/// The question by whose answers the control fails.
const CONTROL_QUESTION: &str = "fsync-then-read";
/// The layer that promises less than a local file system.
const NFS: &str = "nfs";

/// `kurabe coherence`.
pub fn coherence(args: &CoherenceArgs) -> Result<u8, Failure> {
    let refused = |problem: String| Failure::refused(format!("CONTENDER: {problem}"));
    let contenders = contenders(&args.contenders).map_err(refused)?;
    let least = QUESTIONS.len() as u32;
    if args.questions < least {
        return Err(Failure::refused(format!(
            "--questions: {} is less than one of each kind; ask {least} or more",
            args.questions
        )));
    }
    let mut words: Vec<String> =
        ["kurabe", "compare", "--rounds", "1", "--name", "coherence"].map(String::from).into();
    let mut flag = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("--{name}={value}")));
    };
    flag("coherence", Some(args.questions.to_string()));
    flag("device", Some(args.device.clone()));
    flag("out", args.out.as_ref().map(|path| path.display().to_string()));
    flag("seed", args.seed.map(|seed| seed.to_string()));
    words.extend(contenders.iter().map(Contender::notation));
    let cli = Cli::try_parse_from(words).map_err(Failure::refused)?;
    let Action::Compare(compare) = cli.action else { unreachable!("these are words of compare") };
    prepare::compare_with(&compare, Some(answer))
}

/// What is compared: the contenders, all on the same files, and then the control.
fn contenders(texts: &[String]) -> Result<Vec<Contender>, String> {
    let mut all = Vec::new();
    for text in texts {
        let mut contender =
            Contender::parse(text, &filesystem::known()).map_err(|error| error.to_string())?;
        let Environment::Guests { same_files, .. } = &mut contender.environment else {
            return Err(format!(
                "'{text}' has one node; say how many and where, as in 'gfs2 on 2 debian'"
            ));
        };
        *same_files = true;
        if contender.label == CONTROL {
            return Err(format!("'{text}': '{CONTROL}' is kurabe's own; take another label"));
        }
        all.push(contender);
    }
    let first = all.first().map(|one: &Contender| one.environment.clone());
    let Some(Environment::Guests { guest, .. }) = first else {
        return Err("is missing; name one, as in 'gfs2 on 2 debian'".into());
    };
    let control = format!("{CONTROL}: {CONTROL_STACK} 2 {guest} same-files");
    all.push(Contender::parse(&control, &filesystem::known()).map_err(|error| error.to_string())?);
    Ok(all)
}

/// What one contender's answers come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Held,
    Violated,
    /// The control was not caught either.
    Inconclusive,
    Failed,
}

impl Verdict {
    fn cell(self) -> Cell {
        let (word, tone) = match self {
            Verdict::Held => ("held", Tone::Good),
            Verdict::Violated => ("violated", Tone::Bad),
            Verdict::Inconclusive => ("inconclusive", Tone::Uncertain),
            Verdict::Failed => ("not asked", Tone::Bad),
        };
        Cell::toned(word, tone)
    }
}

/// Whether a contender promises what a question asks for.
fn is_promised(contender: &Contender, question: &Question) -> bool {
    question.by_nfs || contender.layers[0].name != NFS
}

fn check_of<'a>(record: Option<&'a Record>, question: &str) -> Option<&'a Check> {
    let record = record.filter(|record| record.outcome == Outcome::Completed)?;
    record.checks.iter().find(|check| check.name == question && check.tried > 0)
}

fn is_broken(record: Option<&Record>, question: &str) -> bool {
    check_of(record, question).is_some_and(|check| check.violated > 0)
}

fn verdict_of(contender: &Contender, record: Option<&Record>, control: Option<&Record>) -> Verdict {
    let promised = || QUESTIONS.iter().filter(|question| is_promised(contender, question));
    match () {
        () if promised().any(|question| is_broken(record, question.name)) => Verdict::Violated,
        () if promised().any(|question| check_of(record, question.name).is_none()) => {
            Verdict::Failed
        }
        () if is_broken(control, CONTROL_QUESTION) => Verdict::Held,
        () => Verdict::Inconclusive,
    }
}

/// The answer on a terminal, and the exit code.
fn answer(source: &Source) -> (Vec<Block>, u8) {
    let contenders = &source.plan.study.contenders;
    let record = |label: &str| {
        let mut records = source.records.iter();
        records.find(|record| record.contender.label == label)
    };
    let mut heads = vec!["", "promised"];
    let is_control = |contender: &&Contender| contender.label == CONTROL;
    heads.extend(contenders.iter().map(|contender| contender.label.as_str()));
    let mut table = Table::new(&heads);
    for question in &QUESTIONS {
        let all = contenders.iter().filter(|one| !is_control(one));
        let promised: Vec<bool> = all.map(|one| is_promised(one, question)).collect();
        let word = match (promised.contains(&true), promised.contains(&false)) {
            (true, false) => "yes",
            (true, true) => "not by NFS",
            _ => "no",
        };
        let mut row = vec![Cell::from(question.name.to_string()), Cell::from(word.to_string())];
        row.extend(contenders.iter().map(|one| cell(one, record(&one.label), question)));
        table.rows.push(row);
    }
    let control = record(CONTROL);
    let verdicts: Vec<Verdict> = contenders
        .iter()
        .filter(|one| !is_control(one))
        .map(|one| verdict_of(one, record(&one.label), control))
        .collect();
    let mut last = vec![Cell::from("verdict".to_string()), Cell::from(String::new())];
    last.extend(verdicts.iter().map(|verdict| verdict.cell()));
    let caught = check_of(control, CONTROL_QUESTION).map(|check| check.violated > 0);
    last.push(match caught {
        Some(true) => Cell::from("caught, as it must be".to_string()),
        Some(false) => Cell::toned("not caught", Tone::Bad),
        None => Verdict::Failed.cell(),
    });
    table.rows.push(last);
    let mut blocks = vec![Block::table("what each node saw of the other one's changes", table)];
    let texts = QUESTIONS.iter().map(|one| (one.name.to_string(), one.text.to_string()));
    blocks.push(Block::table("what was asked", Table::pairs(texts.collect())));
    for contender in contenders {
        blocks.extend(first_found(contender, record(&contender.label)));
    }
    if caught == Some(false) {
        blocks.push(Block::Warning(
            format!("the control answered {CONTROL_QUESTION} like a local file system, so nothing is known of the others; ask more questions"),
        ));
    }
    let asked = caught.is_none().then_some(Verdict::Failed);
    (blocks, code_of(&[&verdicts[..], asked.as_slice()].concat()))
}

fn code_of(verdicts: &[Verdict]) -> u8 {
    let has = |verdict| verdicts.contains(&verdict);
    match () {
        () if has(Verdict::Violated) => exit::GATE_FAILS,
        () if has(Verdict::Failed) => exit::TRIAL_FAILED,
        () if has(Verdict::Inconclusive) => exit::GATE_INCONCLUSIVE,
        () => exit::OK,
    }
}

/// How often it was kept, and the longest staleness.
fn cell(contender: &Contender, record: Option<&Record>, question: &Question) -> Cell {
    let Some(check) = check_of(record, question.name) else {
        return Cell::toned("-", Tone::Uncertain);
    };
    let kept = check.tried - check.violated;
    if check.violated == 0 {
        return Cell::toned(format!("{kept} of {}", check.tried), Tone::Good);
    }
    let late_ns = record.and_then(|record| record.metric(&late_metric(question.name)));
    let late = match late_ns {
        Some(ns) if ns >= WAIT_MAX.as_nanos() as f64 => {
            format!(", stale for {} s or more", WAIT_MAX.as_secs())
        }
        Some(ns) if ns > 0.0 => format!(", stale up to {}", report::text::time(ns)),
        _ => String::new(),
    };
    let tone = if is_promised(contender, question) { Tone::Bad } else { Tone::Uncertain };
    Cell::toned(format!("{kept} of {}{late}", check.tried), tone)
}

/// The first answers that were not right, or why there are none.
fn first_found(contender: &Contender, record: Option<&Record>) -> Option<Block> {
    let label = &contender.label;
    if let Some(Outcome::Failed { phase, message, .. }) = record.map(|record| &record.outcome) {
        return Some(Block::Warning(format!("{label} failed in {}: {message}", phase.name())));
    }
    let found = QUESTIONS.iter().filter_map(|question| {
        let first = check_of(record, question.name)?.first.clone()?;
        Some(format!("{} {first}", question.name))
    });
    let found: Vec<String> = found.collect();
    (!found.is_empty()).then(|| Block::Note(format!("{label}, first found: {}.", found.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(text: &str) -> Contender {
        Contender::parse(text, &filesystem::known()).unwrap()
    }

    /// A record in which these questions were not answered right.
    fn record(text: &str, broken: &[&str]) -> Record {
        let json = serde_json::json!({
            "schema": 1, "trial": 0, "block": 0, "started_unix_ns": 0, "elapsed_ns": 1,
            "workload": "w", "outcome": { "kind": "completed" },
            "contender": contender(text), "phases": [],
        });
        let mut record: Record = serde_json::from_value(json).unwrap();
        record.checks = QUESTIONS
            .iter()
            .map(|question| Check {
                tried: 9,
                violated: u64::from(broken.contains(&question.name)),
                ..Check::new(question.name)
            })
            .collect();
        record
    }

    #[test]
    fn verdicts_follow_from_what_is_promised_and_from_the_control() {
        let (nfs, gfs2) = ("nfs over ext4 on 2 debian", "gfs2 on 2 debian");
        let judged = |text, broken: &[&str], control: &[&str]| {
            let control = record("nfs over ext4 on 2 debian", control);
            verdict_of(&contender(text), Some(&record(text, broken)), Some(&control))
        };
        let caught = &["fsync-then-read", "mode"][..];
        assert_eq!(judged(gfs2, &[], caught), Verdict::Held);
        assert_eq!(judged(gfs2, &["mode"], caught), Verdict::Violated);
        assert_eq!(judged(nfs, &["mode", "append"], caught), Verdict::Held);
        assert_eq!(judged(nfs, &["close-to-open"], caught), Verdict::Violated);
        assert_eq!(judged(gfs2, &[], &["mode"]), Verdict::Inconclusive);
        assert_eq!(judged(gfs2, &["lock"], &[]), Verdict::Violated);
        let without = verdict_of(&contender(gfs2), None, Some(&record(nfs, caught)));
        assert_eq!(without, Verdict::Failed);
        assert_eq!(code_of(&[Verdict::Held, Verdict::Failed, Verdict::Violated]), 3);
        assert_eq!(code_of(&[Verdict::Held, Verdict::Failed, Verdict::Inconclusive]), 1);
        assert_eq!(code_of(&[Verdict::Held, Verdict::Inconclusive]), 4);
        assert_eq!(code_of(&[Verdict::Held]), 0);
    }

    #[test]
    fn all_work_on_the_same_files_and_the_control_comes_last() {
        let asked = |text: &str| contenders(&[text.to_string()]);
        let all = asked("gfs2 on 3 debian").unwrap();
        assert!(all.iter().all(|one| one.environment.same_files()));
        assert_eq!((all.len(), all[1].label.as_str(), all[1].environment.nodes()), (2, CONTROL, 2));
        assert_eq!(all[1].notation(), format!("control: {CONTROL_STACK} 2 debian same-files"));
        for text in ["ext4", "gfs2 on debian", "control: gfs2 on 2 debian"] {
            asked(text).expect_err(text);
        }
    }
}
