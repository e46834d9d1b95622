//! The sittings of a result: every `kurabe resume` is another one, maybe on another kernel, and has
//! facts of its own.
//!
//! Knows records and facts only. Invariant: what is said of the machine is said of every sitting
//! whose trials count, never of the last one alone.

use std::fmt::Write;

use lab::record::FIRST_SITTING;
use serde_json::Value;

use crate::page::flatten;
use crate::source::Source;
use crate::table::{Cell, Screen, Table, Tone};
use crate::text;

/// Groups that stand among the facts and tell nothing of what was measured.
const NO_FACTS: [&str; 2] = ["command_line", "started_unix_ns"];

/// A sitting whose trials count.
#[derive(Debug, Clone, Copy)]
pub struct Sitting<'a> {
    /// Its number, from 1.
    pub number: u32,
    /// Records of it that stand.
    pub trials: usize,
    /// Its facts; None where they could not be read.
    pub facts: Option<&'a Value>,
}

/// A fact in every sitting whose trials count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Its name, with the path to it.
    pub name: String,
    /// Its value in each sitting; None where the sitting lacks it.
    pub values: Vec<Option<String>>,
}

impl Fact {
    /// Whether all sittings have the same value.
    pub fn is_constant(&self) -> bool {
        self.values.windows(2).all(|pair| pair[0] == pair[1])
    }
}

/// The sittings of which a record stands, the first one first; without a record the last one.
pub fn sittings(source: &Source) -> Vec<Sitting<'_>> {
    let last = FIRST_SITTING + source.earlier_facts.len() as u32;
    let found = (FIRST_SITTING..=last).map(|number| Sitting {
        number,
        trials: source.records.iter().filter(|record| record.sitting == number).count(),
        facts: match source.earlier_facts.get((number - FIRST_SITTING) as usize) {
            Some(facts) => Some(facts),
            None => source.facts.as_ref(),
        }
        .filter(|facts| facts.is_object()),
    });
    let mut found: Vec<Sitting<'_>> = found.collect();
    if found.iter().any(|sitting| sitting.trials > 0) {
        found.retain(|sitting| sitting.trials > 0);
    } else {
        found.drain(..found.len() - 1);
    }
    found
}

/// The facts of the sittings that can be read, in the order of their first appearance. What tells
/// nothing of what was measured is left out: the command line, when it began, and how long the filling
/// took.
pub fn facts(sittings: &[Sitting<'_>]) -> Vec<Fact> {
    let readable: Vec<&Value> = sittings.iter().filter_map(|sitting| sitting.facts).collect();
    let mut found: Vec<Fact> = Vec::new();
    for (place, facts) in readable.iter().enumerate() {
        let groups = facts.as_object().into_iter().flatten();
        let mut rows = Vec::new();
        for (group, value) in groups.filter(|(name, _)| !NO_FACTS.contains(&name.as_str())) {
            flatten(group, value, &mut rows);
        }
        for (name, value) in rows.into_iter().filter(|(name, _)| !name.ends_with("· fill")) {
            let known = found.iter().position(|fact| fact.name == name).unwrap_or_else(|| {
                found.push(Fact { name, values: vec![None; readable.len()] });
                found.len() - 1
            });
            found[known].values[place] = Some(value);
        }
    }
    found
}

/// The facts that are not the same in all sittings that can be read.
pub fn differences(sittings: &[Sitting<'_>]) -> Table {
    let readable = sittings.iter().filter(|sitting| sitting.facts.is_some());
    let heads = readable.map(|sitting| format!("sitting {}", sitting.number));
    let mut table =
        Table { heads: std::iter::once("fact".to_string()).chain(heads).collect(), rows: vec![] };
    for fact in facts(sittings).iter().filter(|fact| !fact.is_constant()) {
        let values = fact.values.iter().map(|value| value.as_deref().unwrap_or("-").into());
        table.rows.push(std::iter::once(Cell::from(fact.name.as_str())).chain(values).collect());
    }
    table
}

/// How the trials fall on sittings, and what is not the same in them; None for a single one.
pub fn sentence(sittings: &[Sitting<'_>]) -> Option<String> {
    if sittings.len() < 2 {
        return None;
    }
    let parts: Vec<String> = sittings
        .iter()
        .map(|sitting| match sitting.facts {
            Some(_) => format!("{} in sitting {}", sitting.trials, sitting.number),
            None => format!(
                "{} in sitting {}, whose facts could not be read",
                sitting.trials, sitting.number
            ),
        })
        .collect();
    let names: Vec<String> = facts(sittings)
        .into_iter()
        .filter(|fact| !fact.is_constant())
        .map(|fact| fact.name)
        .collect();
    let consequence = match names.as_slice() {
        [] => "the facts of the machine are the same in all that can be read".to_string(),
        names => format!("these facts are not the same in all: {}", text::list(names)),
    };
    Some(format!("the study was resumed, its trials are {}; {consequence}", text::list(&parts)))
}

/// What is said of several sittings, as a note for the terminal; empty for a single one.
pub fn terminal(source: &Source, colour: bool) -> Screen {
    let mut out = Screen::new(colour);
    if let Some(said) = sentence(&sittings(source)) {
        let _ = write!(out, "  ");
        out.paint("Note:", Tone::Faint);
        let _ = writeln!(out, " {}\n", trust::text::line(&said));
    }
    out
}

/// The kernels of the sittings, each once, in their order.
pub fn kernels(sittings: &[Sitting<'_>]) -> Option<String> {
    let mut found: Vec<String> = Vec::new();
    for facts in sittings.iter().filter_map(|sitting| sitting.facts) {
        let Some(kernel) = facts.pointer("/machine/kernel").and_then(Value::as_str) else {
            continue;
        };
        let kernel = format!("Linux {}", kernel.split(' ').next().unwrap_or(kernel));
        if !found.contains(&kernel) {
            found.push(kernel);
        }
    }
    (!found.is_empty()).then(|| text::list(&found))
}
