//! What was checked: the cell of a contender in the ranking, and the table of all checks of a workload.

use lab::analysis::{ContenderAnalysis, WorkloadAnalysis};
use lab::record::{CheckVerdict, TIME_METRIC};
use lab::words::{share_text, thousands};

use crate::document::Block;
use crate::table::{Cell, Table, Tone};
use crate::{tables, text};

const WORST_FIRST: [CheckVerdict; 4] =
    [CheckVerdict::Violated, CheckVerdict::NotTried, CheckVerdict::NotPromised, CheckVerdict::Held];

/// Whether anything was checked under a workload.
pub fn any(workload: &WorkloadAnalysis) -> bool {
    workload.contenders.iter().any(|contender| !contender.checks.is_empty())
}

/// All checks of a contender, the violated ones first: `contents violated (3 of 10,000)`.
pub fn cell(contender: &ContenderAnalysis) -> Cell {
    let checks = &contender.checks;
    let of = |verdict| checks.iter().filter(move |one| one.verdict == verdict);
    let words: Vec<String> = WORST_FIRST.into_iter().flat_map(of).map(|one| one.words()).collect();
    match WORST_FIRST.into_iter().find(|verdict| of(*verdict).next().is_some()) {
        Some(worst) => Cell::toned(words.join(", "), tone(worst)),
        None => "-".into(),
    }
}

/// The worst verdict of a contender's checks, for a narrow cell; none where nothing was checked.
pub fn mark(contender: &ContenderAnalysis) -> Option<Cell> {
    let has = |verdict: &CheckVerdict| contender.checks.iter().any(|one| one.verdict == *verdict);
    WORST_FIRST.into_iter().find(has).map(|verdict| Cell::toned(verdict.words(), tone(verdict)))
}

/// The checks of a workload with their evidence; nothing where nothing was checked.
pub fn blocks(workload: &WorkloadAnalysis) -> Vec<Block> {
    if !any(workload) {
        return Vec::new();
    }
    let mut table = Table::new(&[
        "check",
        "contender",
        "tried",
        "violated",
        "verdict",
        "at most",
        "first violation",
        "evidence",
    ]);
    let all = || workload.contenders.iter().flat_map(|contender| &contender.checks);
    for name in text::distinct(all().map(|one| one.check.name.as_str())) {
        for contender in tables::ranked(workload) {
            let found = contender.checks.iter().find(|one| one.check.name == name);
            let Some(found) = found else { continue };
            let words = |words: &Option<String>| Cell::from(words.as_deref().unwrap_or("-"));
            let count = |count: u64| Cell::number(count as f64, thousands(count));
            let bound = found.bound.map_or("-".to_string(), share_text);
            table.rows.push(vec![
                name.into(),
                contender.label.as_str().into(),
                count(found.check.tried),
                count(found.check.violated),
                Cell::toned(found.verdict.words(), tone(found.verdict)),
                Cell::from(bound).valued(found.bound),
                words(&found.check.first),
                words(&found.check.evidence),
            ]);
        }
    }
    let mut blocks = vec![Block::table(
        format!("Checks under {}", workload.workload),
        table.without_empty_columns(),
    )];
    if all().any(|one| one.bound.is_some()) {
        blocks.push(Block::Text(BOUND_EXPLAINED.into()));
    }
    blocks
}

/// What the bound of a check that held is.
const BOUND_EXPLAINED: &str = "At most: the largest share of violations that is possible when N independent tries found none, with 95 % confidence (1 - 0.05^(1/N), about 3/N).";

/// Who lost data under a workload and is not ranked, a sentence each.
pub fn lost(workload: &WorkloadAnalysis) -> Vec<String> {
    let metric = tables::primary_metric(workload);
    let of = |contender: &ContenderAnalysis| {
        let lost = contender.violation()?;
        Some(match metric {
            _ if contender.metrics.is_empty() => format!("{} {lost}.", contender.label),
            TIME_METRIC => format!("{} {lost}; its time is not ranked.", contender.label),
            _ => format!("{} {lost}; it is not ranked.", contender.label),
        })
    };
    workload.contenders.iter().filter_map(of).collect()
}

/// What the checks of a workload without metrics say: `ext4 and xfs: durability held (400 of 400).`
pub fn sentence(workload: &WorkloadAnalysis) -> Option<String> {
    let kept = workload.contenders.iter().filter(|contender| contender.violation().is_none());
    let kept = kept.filter(|contender| !contender.checks.is_empty()).map(|contender| {
        let words: Vec<String> = contender.checks.iter().map(|one| one.words()).collect();
        (words.join(", "), contender.label.clone())
    });
    let parts = text::grouped(kept).into_iter();
    let parts: Vec<String> =
        parts.map(|(words, labels)| format!("{}: {words}", text::list(&labels))).collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

fn tone(verdict: CheckVerdict) -> Tone {
    match verdict {
        CheckVerdict::Held => Tone::Plain,
        CheckVerdict::Violated => Tone::Bad,
        CheckVerdict::NotTried | CheckVerdict::NotPromised => Tone::Uncertain,
    }
}
