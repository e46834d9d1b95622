//! `kurabe coherence`: what nodes see of each other's files, as a study of one round with a control, whose answer is
//! a table of promises.
//!
//! The control is NFS with attributes cached for a minute. Where it answers like a local file system, the questions
//! find nothing, and contenders are inconclusive. On other machines, where kurabe mounts nothing, the user names one.
//! Contenders on other machines than the first are a study of their own.

use clap::Parser;
use lab::contender::Contender;
use lab::record::{Check, Outcome, Record};
use report::document::Block;
use report::source::ResultSource;
use report::table::{Cell, Table, Tone};
use trial::filesystem;
use workloads::coherence::{QUESTIONS, Question, WAIT_MAX};
use workloads::kind::late_metric;

use crate::exit::{self, Failure};
use crate::request::flags::{Action, Cli, CoherenceArgs};
use crate::session::prepare;

/// The label of what must fail.
const CONTROL: &str = "control";
/// What must fail, on these nodes.
const CONTROL_STACK: &str = "nfs @ nocto,actimeo=60 over ext4 on";
/// What is said where no control was asked.
const NO_CONTROL: &str = "No control was asked, so that a contender which held all proves less: mount NFS with nocto,actimeo=60 on these machines and add 'control: dir:/that/mount on ssh:...'.";
/// Exit codes, the one that counts first.
const WORST_FIRST: [u8; 3] = [exit::GATE_FAILS, exit::TRIAL_FAILED, exit::GATE_INCONCLUSIVE];
/// The question by whose answers the control fails.
const CONTROL_QUESTION: &str = "fsync-then-read";

pub fn coherence(args: &CoherenceArgs) -> Result<u8, Failure> {
    let refused = |problem: String| Failure::refused(format!("CONTENDER: {problem}"));
    let studies = studies(&args.contenders).map_err(refused)?;
    let least = QUESTIONS.len() as u32;
    if args.questions < least {
        return Err(Failure::refused(format!(
            "--questions: {} is less than one of each kind; ask {least} or more",
            args.questions
        )));
    }
    let mut codes = Vec::new();
    for (number, contenders) in (1u32..).zip(&studies) {
        let mut words: Vec<String> =
            ["kurabe", "compare", "--rounds", "1", "--name", "coherence"].map(String::from).into();
        let mut flag = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{name}={value}")));
        };
        let more = if number == 1 { String::new() } else { format!("-{number}") };
        flag("coherence", Some(args.questions.to_string()));
        flag("device", Some(args.device.clone()));
        flag("out", args.out.as_ref().map(|path| format!("{}{more}", path.display())));
        flag("seed", args.seed.map(|seed| seed.to_string()));
        words.extend(contenders.iter().map(Contender::notation));
        let cli = Cli::try_parse_from(words).map_err(Failure::refused)?;
        let Action::Compare(compare) = cli.action else {
            unreachable!("these are words of compare")
        };
        codes.push(prepare::compare_with(&compare, Some(answer))?);
    }
    // A violation is more than what is not known, and that is more than what was not found.
    let worst = WORST_FIRST.into_iter().find(|code| codes.contains(code));
    Ok(worst.or(codes.last().copied()).unwrap_or(exit::OK))
}

/// What is compared: the contenders of each study, all on the same files, and then its control.
fn studies(texts: &[String]) -> Result<Vec<Vec<Contender>>, String> {
    let mut all: Vec<Vec<Contender>> = Vec::new();
    for text in texts {
        let mut contender =
            Contender::parse(text, &filesystem::known()).map_err(|error| error.to_string())?;
        if !contender.environment.share_files() {
            return Err(format!(
                "'{text}' has one node; say how many and where, as in 'gfs2 on 2 debian' or 'dir:/mnt/nfs on ssh:a,ssh:b'"
            ));
        }
        if contender.label == CONTROL && contender.environment.guest().is_some() {
            return Err(format!("'{text}': '{CONTROL}' is kurabe's own; take another label"));
        }
        let place = contender.environment.words();
        match all.iter_mut().find(|study| study[0].environment.words() == place) {
            Some(study) => study.push(contender),
            None => all.push(vec![contender]),
        }
    }
    for study in &mut all {
        if let Some(guest) = study[0].environment.guest() {
            let control = format!("{CONTROL}: {CONTROL_STACK} 2 {guest} same-files");
            let control = Contender::parse(&control, &filesystem::known());
            study.push(control.map_err(|error| error.to_string())?);
        }
        if study.iter().all(|one| one.label == CONTROL) {
            return Err(format!("name a contender besides '{CONTROL}'"));
        }
    }
    Ok(all)
}

/// What one contender's answers come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CoherenceVerdict {
    Held,
    Violated,
    /// The control was not caught either.
    Inconclusive,
    Failed,
}

impl CoherenceVerdict {
    fn cell(self) -> Cell {
        let (word, tone) = match self {
            CoherenceVerdict::Held => ("held", Tone::Good),
            CoherenceVerdict::Violated => ("violated", Tone::Bad),
            CoherenceVerdict::Inconclusive => ("inconclusive", Tone::Uncertain),
            CoherenceVerdict::Failed => ("not asked", Tone::Bad),
        };
        Cell::toned(word, tone)
    }
}

fn check_of<'a>(record: Option<&'a Record>, question: &str) -> Option<&'a Check> {
    let record = record.filter(|record| record.outcome == Outcome::Completed)?;
    record.checks.iter().find(|check| check.name == question)
}

/// Whether a question was answered; one that the file system cannot answer is not asked, and says why.
fn was_asked(check: &Check) -> bool {
    check.tried > 0 || check.evidence.is_some()
}

fn is_broken(record: Option<&Record>, question: &str) -> bool {
    check_of(record, question).is_some_and(|check| check.violated > 0)
}

/// The verdict of a contender. `control` is None where there is no control at all.
fn verdict_of(record: Option<&Record>, control: Option<Option<&Record>>) -> CoherenceVerdict {
    let checks = || QUESTIONS.iter().map(|question| check_of(record, question.name));
    match () {
        () if record.is_some_and(Record::is_violated) => CoherenceVerdict::Violated,
        () if checks().any(|check| !check.is_some_and(was_asked)) => CoherenceVerdict::Failed,
        () if control.is_none_or(|control| is_broken(control, CONTROL_QUESTION)) => {
            CoherenceVerdict::Held
        }
        () => CoherenceVerdict::Inconclusive,
    }
}

/// What the second column has of a question.
fn promised_by(records: &[(&Contender, Option<&Record>)], question: &Question) -> String {
    let not = records.iter().filter(|(_, record)| {
        check_of(*record, question.name).is_some_and(|check| check.not_promised)
    });
    let labels: Vec<&str> = not.map(|(contender, _)| contender.label.as_str()).collect();
    match labels.len() {
        0 => "yes".into(),
        count if count == records.len() => "no".into(),
        _ => format!("not by {}", labels.join(", ")),
    }
}

/// The answer on a terminal, and the exit code.
fn answer(source: &ResultSource) -> (Vec<Block>, u8) {
    let contenders = &source.plan.study.contenders;
    let record = |label: &str| {
        let mut records = source.records.iter();
        records.find(|record| record.contender.label == label)
    };
    let mut heads = vec!["", "promised"];
    heads.extend(contenders.iter().map(|contender| contender.label.as_str()));
    let mut table = Table::new(&heads);
    let asked: Vec<(&Contender, Option<&Record>)> = contenders
        .iter()
        .filter(|contender| contender.label != CONTROL)
        .map(|contender| (contender, record(&contender.label)))
        .collect();
    for question in &QUESTIONS {
        let mut row =
            vec![Cell::from(question.name.to_string()), Cell::from(promised_by(&asked, question))];
        row.extend(contenders.iter().map(|one| cell(record(&one.label), question)));
        table.rows.push(row);
    }
    let has_control = asked.len() < contenders.len();
    let control = has_control.then(|| record(CONTROL));
    let verdicts: Vec<CoherenceVerdict> =
        asked.iter().map(|(_, record)| verdict_of(*record, control)).collect();
    let caught = check_of(control.flatten(), CONTROL_QUESTION)
        .filter(|check| check.tried > 0)
        .map(|check| check.violated > 0);
    let of_control = || match caught {
        Some(true) => Cell::from("caught, as it must be".to_string()),
        Some(false) => Cell::toned("not caught", Tone::Bad),
        None => CoherenceVerdict::Failed.cell(),
    };
    let mut last = vec![Cell::from("verdict".to_string()), Cell::from(String::new())];
    let mut of_others = verdicts.iter().map(|verdict| verdict.cell());
    last.extend(contenders.iter().map(|one| match one.label.as_str() {
        CONTROL => of_control(),
        _ => of_others.next().expect("each contender has a verdict"),
    }));
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
    if !has_control {
        blocks.push(Block::Note(NO_CONTROL.into()));
    }
    let failed = (has_control && caught.is_none()).then_some(CoherenceVerdict::Failed);
    (blocks, code_of(&[&verdicts[..], failed.as_slice()].concat()))
}

fn code_of(verdicts: &[CoherenceVerdict]) -> u8 {
    let has = |verdict| verdicts.contains(&verdict);
    match () {
        () if has(CoherenceVerdict::Violated) => exit::GATE_FAILS,
        () if has(CoherenceVerdict::Failed) => exit::TRIAL_FAILED,
        () if has(CoherenceVerdict::Inconclusive) => exit::GATE_INCONCLUSIVE,
        () => exit::OK,
    }
}

/// How often it was kept, and the longest staleness.
fn cell(record: Option<&Record>, question: &Question) -> Cell {
    let Some(check) = check_of(record, question.name).filter(|check| check.tried > 0) else {
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
    let tone = if check.not_promised { Tone::Uncertain } else { Tone::Bad };
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
    let unasked = QUESTIONS.iter().filter_map(|question| {
        let check = check_of(record, question.name).filter(|check| check.tried == 0)?;
        Some(format!("{label}: {} was not asked: {}.", check.name, check.evidence.as_ref()?))
    });
    let found = (!found.is_empty()).then(|| format!("{label}, first found: {}.", found.join("; ")));
    let lines: Vec<String> = found.into_iter().chain(unasked).collect();
    (!lines.is_empty()).then(|| Block::Note(lines.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(text: &str) -> Contender {
        Contender::parse(text, &filesystem::known()).unwrap()
    }

    /// A record in which these questions were not answered right, of which some promise nothing.
    fn record(broken: &[&str], not_promised: &[&str]) -> Record {
        let json = serde_json::json!({
            "schema": 1, "trial": 0, "block": 0, "started_unix_ns": 0, "elapsed_ns": 1,
            "workload": "w", "outcome": { "kind": "completed" },
            "contender": contender("gfs2 on 2 debian"), "phases": [],
        });
        let mut record: Record = serde_json::from_value(json).unwrap();
        record.checks = QUESTIONS
            .iter()
            .map(|question| Check {
                tried: 9,
                violated: u64::from(broken.contains(&question.name)),
                not_promised: not_promised.contains(&question.name),
                ..Check::new(question.name)
            })
            .collect();
        record
    }

    #[test]
    fn verdicts_follow_from_what_is_promised_and_from_the_control() {
        let not = &["mode", "append"][..];
        let judged = |broken: &[&str], control: &[&str]| {
            verdict_of(Some(&record(broken, not)), Some(Some(&record(control, &[]))))
        };
        let caught = &["fsync-then-read", "mode"][..];
        assert_eq!(judged(&[], caught), CoherenceVerdict::Held);
        assert_eq!(judged(&["mode", "append"], caught), CoherenceVerdict::Held);
        assert_eq!(judged(&["close-to-open"], caught), CoherenceVerdict::Violated);
        assert_eq!(judged(&[], &["mode"]), CoherenceVerdict::Inconclusive);
        assert_eq!(judged(&["lock"], &[]), CoherenceVerdict::Violated);
        assert_eq!(verdict_of(None, Some(Some(&record(caught, &[])))), CoherenceVerdict::Failed);
        assert_eq!(verdict_of(Some(&record(&[], &[])), Some(None)), CoherenceVerdict::Inconclusive);
        // On other machines there need not be a control.
        assert_eq!(verdict_of(Some(&record(&[], &[])), None), CoherenceVerdict::Held);
        let mut without = record(&[], &[]);
        without.checks[0].tried = 0;
        assert_eq!(verdict_of(Some(&without), None), CoherenceVerdict::Failed);
        without.checks[0].evidence = Some("it cannot answer".into());
        assert_eq!(verdict_of(Some(&without), None), CoherenceVerdict::Held);
        assert_eq!(
            code_of(&[
                CoherenceVerdict::Held,
                CoherenceVerdict::Failed,
                CoherenceVerdict::Violated
            ]),
            3
        );
        assert_eq!(
            code_of(&[
                CoherenceVerdict::Held,
                CoherenceVerdict::Failed,
                CoherenceVerdict::Inconclusive
            ]),
            1
        );
        assert_eq!(code_of(&[CoherenceVerdict::Held, CoherenceVerdict::Inconclusive]), 4);
        assert_eq!(code_of(&[CoherenceVerdict::Held]), 0);
    }

    #[test]
    fn all_work_on_the_same_files_and_the_control_comes_last() {
        let asked = |texts: &[&str]| {
            studies(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>())
        };
        let all = asked(&["gfs2 on 3 debian", "dir:/mnt on ssh:a,ssh:b"]).unwrap();
        assert!(all.iter().flatten().all(|one| one.environment.same_files()));
        let guests = &all[0];
        assert_eq!((guests.len(), &*guests[1].label), (2, CONTROL));
        assert_eq!(guests[1].environment.nodes(), 2);
        assert_eq!(guests[1].notation(), format!("control: {CONTROL_STACK} 2 debian same-files"));
        assert_eq!(
            all[1][0].notation(),
            "dir:/mnt on ssh:a,ssh:b: dir:/mnt on 'ssh:a,ssh:b' same-files"
        );
        for text in [
            "ext4",
            "gfs2 on debian",
            "control: gfs2 on 2 debian",
            "control: dir:/x on ssh:a,ssh:b",
        ] {
            asked(&[text]).expect_err(text);
        }
        asked(&["dir:/y on ssh:a,ssh:b", "control: dir:/x on ssh:a,ssh:b"]).unwrap();
    }
}
