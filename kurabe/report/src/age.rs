//! What age costs: each aged contender relative to the same stack when new, whether their order changes, and how
//! their files lie on the device.

use lab::analysis::{Comparison, WorkloadAnalysis};
use lab::contender::Contender;
use lab::plan::Plan;
use lab::record::Record;
use lab::words::ratio_with_interval;

use crate::charts::WorkloadView;
use crate::charts::layout::{self, LayoutRow};
use crate::document::Block;
use crate::table::{Cell, Table};
use crate::tables::{tone_of, verdict_mark, verdict_text};
use crate::text;

/// The word of a profile by which its files are copied to a new file system.
const COPIED: &str = "copied";

/// What the table of how files lie calls free space in small pieces.
const SMALL_FREE_BYTES: u64 = 1 << 20;

/// What is known of the cost of one contender over that of another.
struct Between {
    cost: f64,
    ends: Option<(f64, f64)>,
    mark: &'static str,
    /// Of the comparison as it was made; none where it was made the other way round.
    words: Option<Cell>,
}

/// The aged contenders, each with what it is compared with: its files on a new file system, else the new file system.
fn pairs(plan: &Plan) -> Vec<(&Contender, &Contender)> {
    let all = &plan.study.contenders;
    let of = |aged: &&Contender| {
        let profile = aged.aged.as_deref().filter(|profile| !is_copied(profile))?;
        let twins = || all.iter().filter(|one| one.is_of_one_stack(aged));
        let copied = twins().find(|one| {
            let other = one.aged.as_deref();
            other.is_some_and(|other| {
                is_copied(other) && without_copied(other) == without_copied(profile)
            })
        });
        copied.or_else(|| twins().find(|one| one.aged.is_none()))
    };
    all.iter().filter_map(|aged| Some((aged, of(&aged)?))).collect()
}

fn is_copied(profile: &str) -> bool {
    keys(profile).any(|key| key == COPIED)
}

fn keys(profile: &str) -> impl Iterator<Item = &str> {
    profile.split([':', ','])
}

fn without_copied(profile: &str) -> Vec<&str> {
    keys(profile).filter(|key| ![COPIED, "then"].contains(key)).collect()
}

fn between(workload: &WorkloadAnalysis, one: &str, other: &str) -> Option<Between> {
    let all = || workload.comparisons.iter().filter(|one| one.primary).chain(&workload.direct);
    let find = |one: &str, other: &str| {
        all().find(|found| found.contender == one && found.baseline == other)
    };
    let of =
        |found: &Comparison| Some((found.cost()?, found.cost_ends(), verdict_mark(&found.verdict)));
    if let Some(found) = find(one, other) {
        let (cost, ends, mark) = of(found)?;
        let words = Cell::toned(verdict_text(&found.verdict), tone_of(&found.verdict));
        return Some(Between { cost, ends, mark, words: Some(words) });
    }
    let (cost, ends, mark) = of(find(other, one)?)?;
    let mark = match mark {
        "+" => "-",
        "-" => "+",
        mark => mark,
    };
    let ends = ends.map(|(low, high)| (high.recip(), low.recip()));
    Some(Between { cost: cost.recip(), ends, mark, words: None })
}

/// What age costs each contender, and whether their order changes.
pub fn answer(workload: &WorkloadAnalysis, plan: &Plan) -> Vec<Block> {
    let pairs = pairs(plan);
    let mut table = Table::new(&["aged", "new", "cost of age (95 % confidence)", "verdict"]);
    for (aged, new) in &pairs {
        let Some(found) = between(workload, &aged.label, &new.label) else { continue };
        let cost = ratio_with_interval(found.cost, found.ends);
        let words = found.words.unwrap_or_else(|| match found.mark {
            "+" => "faster".into(),
            "-" => "slower".into(),
            "=" => format!("same within {}", lab::words::percent(plan.study.same_within)).into(),
            "~" => "close".into(),
            _ => "inconclusive".into(),
        });
        table.rows.push(vec![
            aged.label.as_str().into(),
            new.label.as_str().into(),
            Cell::from(cost).valued(Some(found.cost)),
            words,
        ]);
    }
    if table.rows.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![Block::table("What age costs", table)];
    blocks.extend(order(workload, &pairs).map(Block::Text));
    blocks
}

/// Whether those who are faster when new are when aged.
fn order(workload: &WorkloadAnalysis, pairs: &[(&Contender, &Contender)]) -> Option<String> {
    let (mut turned, mut open, mut kept) = (Vec::new(), 0, 0);
    for (place, (aged, new)) in pairs.iter().enumerate() {
        for (other_aged, other_new) in &pairs[place + 1..] {
            let when_new = between(workload, &new.label, &other_new.label)?;
            let when_aged = between(workload, &aged.label, &other_aged.label)?;
            let is_surely = |mark: &str| mark == "+" || mark == "-";
            match (when_new.mark, when_aged.mark) {
                (one, other) if is_surely(one) && one == other => kept += 1,
                (one, other) if is_surely(one) && is_surely(other) => {
                    let (fast, slow) = if one == "+" { (new, other_new) } else { (other_new, new) };
                    turned.push(format!(
                        "{} is faster than {} when new, and slower when aged",
                        fast.label, slow.label
                    ));
                }
                _ => open += 1,
            }
        }
    }
    match (turned.is_empty(), open, kept) {
        (true, 0, 0) => None,
        (false, ..) => Some(format!("The order changes with age: {}.", turned.join("; "))),
        (true, 0, _) => Some("The order does not change with age.".into()),
        (true, _, _) => Some("Whether the order changes with age is not decided.".into()),
    }
}

/// How the files lay before the run and lie after it: the measures, and a picture of the disk.
pub fn layouts(view: &WorkloadView<'_>) -> Vec<Block> {
    let found = of_view(view);
    if found.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&[
        "contender",
        "which",
        "files",
        "pieces per file",
        "in several pieces",
        "score",
        "jump",
        "inode step",
        "free up to 1 MiB",
    ]);
    for LayoutRow { label, is_of_age, layout, .. } in &found {
        let share = |part: Option<f64>| match part {
            Some(part) => Cell::from(format!("{:.1} %", part * 100.0)).valued(Some(part)),
            None => "-".into(),
        };
        let pieces = layout.pieces_per_file();
        let split = (layout.files > 0).then(|| layout.split_files as f64 / layout.files as f64);
        let jump = layout.jump_bytes.map_or("-".into(), |bytes| {
            Cell::from(text::bytes(bytes as f64)).valued(Some(bytes as f64))
        });
        table.rows.push(vec![
            label.as_str().into(),
            if *is_of_age { "that aged, before the run" } else { "of the workload, after it" }
                .into(),
            Cell::whole(layout.files),
            pieces.map_or("-".into(), |pieces| {
                Cell::from(format!("{pieces:.2}")).valued(Some(pieces))
            }),
            share(split),
            share(layout.score()),
            jump,
            layout.inode_step.map_or("-".into(), Cell::whole),
            share(layout.free_share_up_to(SMALL_FREE_BYTES)),
        ]);
    }
    let says = "Score: the share of the blocks that come directly after the block read before them, when all files are read in the order of their paths. Jump: the median distance of the others. Inode step: the median difference between the inode numbers of files read one after the other. Free: the share of the free space in pieces of at most 1 MiB.";
    let mut blocks =
        vec![Block::table("How files lie on the device", table), Block::Text(says.into())];
    blocks.extend(layout::map(view, &found).map(Block::Chart));
    blocks
}

fn of_view<'a>(view: &WorkloadView<'a>) -> Vec<LayoutRow<'a>> {
    let mut all = Vec::new();
    for (key, contender) in view.analysis.contenders.iter().enumerate() {
        let label = &contender.label;
        let is_of = |record: &&Record| {
            record.workload == view.analysis.workload && record.contender.label == *label
        };
        let records = || view.source.records.iter().filter(is_of);
        let after = records().find_map(|record| record.layout_after.as_ref());
        let mapped = records().filter_map(|record| record.layout_before.as_ref());
        let before = mapped.max_by_key(|layout| layout.map.len());
        // A study without aged contenders measures nothing.
        if after.is_none() {
            continue;
        }
        for (is_of_age, layout) in [(true, before), (false, after)] {
            // A workload that made no files left the device as it was.
            if let Some(layout) = layout.filter(|one| one.files > 0) {
                all.push(LayoutRow { key, label: label.clone(), is_of_age, layout });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_compared_with_its_own_files_on_a_new_file_system() {
        assert!(is_copied("git:20,copied") && is_copied("churn:copied"));
        assert!(!is_copied("git:20,files=300"));
        assert_eq!(without_copied("git:20,copied,files=3"), without_copied("git:20,files=3"));
        assert_ne!(without_copied("git:20,copied"), without_copied("git:30"));
    }
}
