//! What a result of `kurabe crash` says, on the terminal and as a report.

use std::path::Path;

use report::charts::power_cuts::{self, Cuts};
use report::document::Block;
use report::table::{Cell, Table, Tone};
use report::text::{clock, date};
use trial::crash::{Case, CrashReport, CrashVerdict};
use trust::words::pasted;

use super::crash_result::{CrashResult, JudgedContender, Provenance, Verifier, read};
use crate::exit::Failure;

/// Flushes that are listed of those that could be left out.
const NEEDLESS_SHOWN_MAX: usize = 4;

/// A contender's verdict in a word, and how many states decided it.
fn verdict(report: &CrashReport) -> (&'static str, String, Tone) {
    let tried = report.states.tried;
    match report.verdict() {
        CrashVerdict::Refused => {
            ("refused", report.refused.clone().unwrap_or_default(), Tone::Uncertain)
        }
        CrashVerdict::Held => {
            let most = crash::share_at_most(tried as u64) * 100.0;
            let text = format!(
                "0 of {tried} states violated (at most {most:.2} % of such states, 95 % confidence)"
            );
            ("held", text, Tone::Good)
        }
        CrashVerdict::Violated => {
            let kinds = kinds(report);
            (
                "violated",
                format!("{} of {tried} states ({kinds})", report.states.violated()),
                Tone::Bad,
            )
        }
        CrashVerdict::Inconclusive => {
            let text = format!(
                "0 of {tried} states violated, but the check sees no loss on a disk that ignores flushes either"
            );
            ("inconclusive", text, Tone::Uncertain)
        }
    }
}

fn kinds(report: &CrashReport) -> String {
    let states = &report.states;
    let kinds = [
        (states.lost, "lost"),
        (states.corrupt, "corrupt"),
        (states.unusable, "unusable"),
        (states.unmountable, "cannot be mounted"),
    ];
    let kinds = kinds.iter().filter(|(count, _)| *count > 0);
    kinds.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

fn after_fsck(report: &CrashReport) -> Option<String> {
    let count = report.states.needed_fsck;
    (count > 0).then(|| format!("{count} mounted after fsck only, then all was there"))
}

/// The lines of a contender, and its cases; `cases` counts those of the whole result.
pub fn report_text(label: &str, report: &CrashReport, cases: &mut usize, result: &Path) -> String {
    let (word, why, _) = verdict(report);
    let after_fsck = after_fsck(report).map(|text| format!("; {text}")).unwrap_or_default();
    let mut text = format!("{label}: {word}: {why}{after_fsck}\n");
    if report.refused.is_none() {
        let CrashReport { acknowledgements, flushes, control, .. } = report;
        let tried = report.states.tried.saturating_add(control.tried) as f64;
        let rate = tried / (report.trying_ns as f64 / 1e9).max(1e-9);
        text += &format!(
            "  {acknowledgements} acknowledgements, {flushes} flushes, {rate:.0} states/s; control (a disk that ignores flushes): {} of {} violated\n",
            control.violated(),
            control.tried,
        );
    }
    text += &needless_text(report);
    for case in &report.cases {
        *cases += 1;
        text += &case_text(case, *cases, result);
    }
    text + &notes_text(report)
}

fn notes_text(report: &CrashReport) -> String {
    report.notes.iter().map(|note| format!("  note: {note}\n")).collect()
}

fn needless_text(report: &CrashReport) -> String {
    let CrashReport { left_out, needless, .. } = report;
    let found = needless.len();
    if found == 0 {
        return String::new();
    }
    let mut text = format!(
        "  {left_out} flushes were left out, one at a time. Without {found} of them nothing was lost, in a few states each, which proves none of them superfluous:\n"
    );
    for one in needless.iter().take(NEEDLESS_SHOWN_MAX) {
        text += &format!("    {one}\n");
    }
    match found.checked_sub(NEEDLESS_SHOWN_MAX) {
        None | Some(0) => text,
        Some(more) => text + &format!("    and {more} more\n"),
    }
}

fn case_text(case: &Case, number: usize, result: &Path) -> String {
    let mut text = format!("  case {number}: {}\n", case.finding);
    if let Some(cause) = &case.cause {
        text += &format!("    cause: {cause}\n");
    }
    if let Some(trace) = &case.trace {
        text += &format!("    on the disk: {trace}\n");
    }
    match &case.last_acknowledgement {
        Some(last) => text += &format!("    last acknowledgement before the cut: {last}\n"),
        None => {
            text += "    nothing was acknowledged before the cut: the check must accept what the setup left\n";
        }
    }
    if let Some(member) = &case.lost_member {
        text += &format!("    lost: {member}, with the power\n");
    }
    for lost in &case.lost {
        let when = match lost.before_acknowledgement_ns {
            Some(ns) => format!(", written {:.2} ms before it", ns as f64 / 1e6),
            None => String::new(),
        };
        let flush = match lost.flushes_under_way {
            0 => "no flush followed it",
            _ => "the flush that followed it had not completed",
        };
        text += &format!("    lost: {}{when}; {flush}\n", lost.what);
    }
    if case.lost.is_empty() {
        let member = case.lost_member.as_ref().map(|member| format!("losing {member}"));
        let what = member.as_deref().unwrap_or("the cut");
        text += &format!("    no completed write was lost: {what} alone is enough\n");
    }
    if !case.is_minimal {
        text += "    a smaller loss may be enough: the search for one was ended early\n";
    }
    let place = format!("{}:{number}", result.display());
    text + &format!("    again: kurabe crash --replay {}\n", pasted(&place))
}

/// The report of a result: the verdicts, what was asked and where, and of each contender the cases
/// and how each is tried again.
pub fn document(path: &Path) -> Result<Vec<Block>, Failure> {
    let refused = |problem| Failure::refused(format!("{}: {problem}", path.display()));
    let (_, result) = read(path).map_err(refused)?;
    let labels: Vec<&str> =
        result.contenders.iter().map(|judged| judged.contender.label.as_str()).collect();
    let title = format!("{} after a power failure", labels.join(", "));
    let mut blocks = vec![Block::heading(1, "", title)];
    if let Some(Provenance { started_unix_ns, kernel, kurabe_version, command_line }) = &result.made
    {
        let words: Vec<_> = command_line.iter().map(|word| pasted(word)).collect();
        let (date, clock) = (date(*started_unix_ns), clock(*started_unix_ns));
        let rows = [
            ("Command", words.join(" ")),
            ("Device", result.device_text()),
            (
                "Kernel",
                format!("Linux {}", kernel.split(char::is_whitespace).next().unwrap_or(kernel)),
            ),
            ("Date", format!("{date} {clock} UTC, kurabe {kurabe_version}")),
        ];
        let rows = rows.into_iter().map(|(name, text)| (name.to_string(), text)).collect();
        blocks.push(Block::table("What was tried, and when", Table::pairs(rows)));
    }
    blocks.push(verdicts(&result));
    blocks.extend(Block::charts(power_cuts::verdicts("power-cuts".into(), &cuts(&result))));
    blocks.push(Block::Text(asked_text(&result)));
    let mut cases = 0;
    for (number, judged) in result.contenders.iter().enumerate() {
        let label = &judged.contender.label;
        let text = text_of(judged, &mut cases, path);
        blocks.push(Block::heading(2, format!("contender-{}", number + 1), label.clone()));
        blocks.push(Block::Code(text.trim_end().into()));
    }
    Ok(blocks)
}

/// What was found of one contender.
pub fn text_of(judged: &JudgedContender, cases: &mut usize, path: &Path) -> String {
    let label = &judged.contender.label;
    match &judged.outcome {
        Ok(report) => report_text(label, report, cases, path),
        Err(message) => format!("{label}: could not be checked: {message}\n"),
    }
}

fn asked_text(result: &CrashResult) -> String {
    let asked = match &result.asked {
        Verifier::Check(check) => format!("checked by '{check}'"),
        Verifier::OwnLoad { load, .. } => format!("checked by kurabe's own {}", load.kind),
    };
    let device = result.device_text();
    let device = device[..1].to_uppercase() + &device[1..];
    let member =
        if result.lose_member { "; a member or a cache is lost with the power" } else { "" };
    format!("{device}, {asked}{member}; seed {}.", result.seed)
}

/// What the strip of verdicts is drawn of.
fn cuts(result: &CrashResult) -> Vec<Cuts> {
    let judged = result.contenders.iter();
    let judged = judged.filter_map(|one| Some((&one.contender.label, one.outcome.as_ref().ok()?)));
    let cuts = judged.map(|(label, report)| Cuts {
        label: label.clone(),
        tried: report.states.tried as u64,
        violated: report.states.violated() as u64,
        control_tried: report.control.tried as u64,
        control_violated: report.control.violated() as u64,
    });
    cuts.collect()
}

/// A row for each contender.
fn verdicts(result: &CrashResult) -> Block {
    let mut table = Table::new(&["contender", "verdict", "states"]);
    for JudgedContender { contender, outcome, .. } in &result.contenders {
        let label = Cell::from(contender.label.clone());
        table.rows.push(match outcome {
            Ok(report) => {
                let (word, why, tone) = verdict(report);
                let why = [Some(why), after_fsck(report)].into_iter().flatten();
                let why = why.collect::<Vec<_>>().join("; ");
                vec![label, Cell::toned(word, tone), why.into()]
            }
            Err(message) => {
                let word = Cell::toned("not checked", Tone::Uncertain);
                let first = message.lines().next().unwrap_or_default();
                vec![label, word, first.to_string().into()]
            }
        });
    }
    Block::table("verdicts", table)
}
