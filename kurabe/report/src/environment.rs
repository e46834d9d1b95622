//! The end of the page: on what it was measured, by which commands, from which seed, and how to
//! measure it again.

use lab::contender::Contender;
use lab::device::DeviceName;
use lab::record::Record;
use lab::spec::Workload;
use serde_json::Value;

use crate::document::{self, Block};
use crate::sessions::{NO_FACTS, differences, flatten, sessions};
use crate::source::ResultSource;
use crate::table::Table;

/// Environment, commands, study file and how to repeat it.
pub fn environment(source: &ResultSource) -> Vec<Block> {
    let mut blocks = vec![Block::heading(2, "environment", "Environment")];
    let sessions = sessions(source);
    let changed = differences(&sessions);
    if !changed.rows.is_empty() {
        const TITLE: &str = "What differs between the sessions";
        let last = Block::Text("The tables below are of the last session.".into());
        blocks.push(Block::fold(TITLE, vec![Block::table(TITLE, changed), last]));
    }
    match sessions.last().and_then(|session| session.facts) {
        Some(facts) => blocks.extend(facts_tables(facts)),
        None => blocks.push(Block::Warning("the facts of the machine could not be read.".into())),
    }
    blocks.extend(disturbed(source).map(Block::Text));
    let mut of_all = vec![Block::Text("From each contender's first completed run.".into())];
    let of_contender = |contender: &Contender| {
        let mut records = source.records.iter().filter(|r| r.contender.label == contender.label);
        let first = records.clone().find(|record| record.time_ns().is_some());
        let commands = match first.or_else(|| records.next()) {
            Some(record) => commands(record),
            None => vec![Block::Text("No run of it has a record.".into())],
        };
        (contender.label.clone(), commands)
    };
    let mut all: Vec<_> = source.plan.study.contenders.iter().map(of_contender).collect();
    of_all.extend(document::said_once(&mut all));
    of_all.extend(all.into_iter().map(|(label, commands)| Block::fold(label, commands)));
    blocks.push(Block::fold("Exact commands", of_all));
    let load = |workload: &Workload| {
        let value = serde_json::to_value(workload).expect("a workload has a JSON form");
        let mut rows = Vec::new();
        flatten("", &value, &mut rows);
        let table = Block::table(format!("The workload {}", workload.name), Table::pairs(rows));
        Block::fold(workload.name.clone(), vec![table])
    };
    let loads = source.plan.study.workloads.iter().map(load).collect();
    blocks.push(Block::fold("Loads", loads));
    blocks.push(Block::fold("How to repeat this", repeat(source)));
    blocks
}

/// How many runs the machine disturbed, of everyone of whom it did; a verdict that would be another
/// one without them has a warning of its own.
fn disturbed(source: &ResultSource) -> Option<String> {
    let of_each = source.analysis.workloads.iter().flat_map(|workload| {
        let told = workload.contenders.iter().filter_map(|contender| {
            let runs = contender.disturbed.as_ref()?;
            Some(format!("{} under {} in {runs}", contender.label, workload.workload))
        });
        told.collect::<Vec<_>>()
    });
    let of_each: Vec<String> = of_each.collect();
    (!of_each.is_empty()).then(|| format!("Disturbed by the machine: {}.", of_each.join(", ")))
}

/// One table for each group of facts; what this kurabe does not know is shown as well.
fn facts_tables(facts: &Value) -> Vec<Block> {
    let Value::Object(groups) = facts else {
        return vec![Block::Warning("the facts of the machine have an unknown form.".into())];
    };
    let known = ["machine", "device", "tools"];
    let rank = |name: &str| known.iter().position(|k| *k == name).unwrap_or(known.len());
    let mut names: Vec<&String> =
        groups.keys().filter(|name| !NO_FACTS.contains(&name.as_str())).collect();
    names.sort_by_key(|name| (rank(name), name.as_str()));
    let mut blocks = Vec::new();
    for name in names {
        let mut rows = Vec::new();
        flatten("", &groups[name], &mut rows);
        if rows.is_empty() {
            continue;
        }
        let table = Block::table(format!("Facts: {name}"), Table::pairs(rows));
        blocks.push(Block::fold(name.replace('_', " "), vec![table]));
    }
    blocks
}

/// What was executed for one trial, and what the file system says of itself.
fn commands(record: &Record) -> Vec<Block> {
    let mut blocks = if record.commands.is_empty() {
        vec![Block::Text("Nothing was executed to make it.".into())]
    } else {
        vec![Block::Code(record.commands.join("\n"))]
    };
    let mounted = record.mounted_as.as_deref().unwrap_or_default();
    let geometry = record.geometry.as_deref().unwrap_or_default();
    let own = format!("{mounted}\n{geometry}");
    if !own.trim().is_empty() {
        let own = vec![Block::Code(own.trim().into())];
        blocks.push(Block::fold("What the file system reports of itself", own));
    }
    blocks.extend(record.notes.iter().cloned().map(Block::Note));
    blocks
}

/// Command lines that measure the same again.
fn repeat(source: &ResultSource) -> Vec<Block> {
    let seed = source.plan.seed;
    let mut blocks = vec![
        Block::Text(format!(
            "Save the study file below as study.toml; the seed {seed} gives the same order of runs."
        )),
        Block::Code(format!("sudo kurabe run study.toml --seed {seed}")),
    ];
    if DeviceName::parse(&source.plan.study.device).is_ok_and(|name| name.exists()) {
        blocks.push(Block::Warning(
            "it overwrites the device that it names; put your own there.".into(),
        ));
    }
    // Every session has its own: that of the last one may be no more than "resume".
    let lines: Vec<String> =
        source.earlier_facts.iter().chain(&source.facts).filter_map(command_line).collect();
    if !lines.is_empty() {
        blocks.push(Block::Text("This result was made by:".into()));
        blocks.push(Block::Code(lines.join("\n")));
    }
    match &source.study_file {
        Some(text) => {
            let file = vec![Block::Code(text.trim_end().into())];
            blocks.push(Block::fold("study.toml", file));
        }
        None => blocks.push(Block::Warning("the study file could not be read.".into())),
    }
    blocks
}

/// The command line that began the study.
pub(crate) fn first_command(source: &ResultSource) -> Option<String> {
    source.earlier_facts.iter().chain(&source.facts).find_map(command_line)
}

/// The command line of a session, as a shell takes it.
fn command_line(facts: &Value) -> Option<String> {
    let words = facts.get("command_line")?.as_array()?;
    let words: Vec<&str> = words.iter().map(Value::as_str).collect::<Option<_>>()?;
    Some(shlex::try_join(words.iter().copied()).unwrap_or_else(|_| words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_any_form_become_rows() {
        let facts = serde_json::json!({
            "memory_bytes": 1024, "root": true, "nothing": null, "elapsed_ns": 1_500_000_000_u64,
            "writeback": [["vm.dirty_ratio", "20"]], "inner": {"a_b": ["x", "y"]},
        });
        let mut rows = Vec::new();
        flatten("", &facts, &mut rows);
        let row = |name: &str| rows.iter().find(|row| row.0 == name).map(|row| row.1.as_str());
        assert_eq!(row("memory"), Some("1.00 KiB (1024 bytes)"));
        assert_eq!(row("elapsed"), Some("1.500 s"));
        assert_eq!(row("writeback · vm.dirty_ratio"), Some("20"));
        assert_eq!(row("inner · a b"), Some("x y"));
        assert_eq!((row("root"), row("nothing")), (Some("yes"), None));
    }
}
