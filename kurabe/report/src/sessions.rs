//! The sessions of a result: every `kurabe resume` is another one, maybe on another kernel, and has
//! facts of its own.
//!
//! Knows records and facts only. Invariant: what is said of the machine is said of every session
//! whose trials count, never of the last one alone.

use lab::record::FIRST_SESSION;
use serde_json::Value;

use crate::source::ResultSource;
use crate::table::{Cell, Table};
use crate::text;

/// Groups that stand among the facts and tell nothing of what was measured.
pub(crate) const NO_FACTS: [&str; 3] = ["schema", "command_line", "started_unix_ns"];

/// A session whose trials count.
#[derive(Debug, Clone, Copy)]
pub struct ResultSession<'a> {
    /// Its number, from 1.
    pub number: u32,
    /// Records of it that stand.
    pub trials: usize,
    /// Its facts; None where they could not be read.
    pub facts: Option<&'a Value>,
}

/// A fact in every session whose trials count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Its name, with the path to it.
    pub name: String,
    /// Its value in each session; None where the session lacks it.
    pub values: Vec<Option<String>>,
}

impl Fact {
    /// Whether all sessions have the same value.
    pub fn is_constant(&self) -> bool {
        self.values.windows(2).all(|pair| pair[0] == pair[1])
    }
}

/// The sessions of which a record stands, the first one first; without a record the last one.
pub fn sessions(source: &ResultSource) -> Vec<ResultSession<'_>> {
    let last = FIRST_SESSION + source.earlier_facts.len() as u32;
    let found = (FIRST_SESSION..=last).map(|number| ResultSession {
        number,
        trials: source.records.iter().filter(|record| record.session == number).count(),
        facts: match source.earlier_facts.get((number - FIRST_SESSION) as usize) {
            Some(facts) => Some(facts),
            None => source.facts.as_ref(),
        }
        .filter(|facts| facts.is_object()),
    });
    let mut found: Vec<ResultSession<'_>> = found.collect();
    if found.iter().any(|session| session.trials > 0) {
        found.retain(|session| session.trials > 0);
    } else {
        found.drain(..found.len() - 1);
    }
    found
}

/// The facts of the sessions that can be read, in the order of their first appearance. What tells
/// nothing of what was measured is left out: the command line, when it began, and how long the filling
/// took.
pub fn facts(sessions: &[ResultSession<'_>]) -> Vec<Fact> {
    let readable: Vec<&Value> = sessions.iter().filter_map(|session| session.facts).collect();
    let mut found: Vec<Fact> = Vec::new();
    for (place, facts) in readable.iter().enumerate() {
        let groups = facts.as_object().into_iter().flatten();
        let mut rows = Vec::new();
        for (group, value) in groups.filter(|(name, _)| !NO_FACTS.contains(&name.as_str())) {
            let mut value = value.clone();
            if let Some(fields) = value.as_object_mut() {
                fields.remove("fill_ns");
            }
            flatten(group, &value, &mut rows);
        }
        for (name, value) in rows {
            let known = found.iter().position(|fact| fact.name == name).unwrap_or_else(|| {
                found.push(Fact { name, values: vec![None; readable.len()] });
                found.len() - 1
            });
            found[known].values[place] = Some(value);
        }
    }
    found
}

/// The facts that are not the same in all sessions that can be read.
pub fn differences(sessions: &[ResultSession<'_>]) -> Table {
    let readable = sessions.iter().filter(|session| session.facts.is_some());
    let heads = readable.map(|session| format!("session {}", session.number));
    let mut table =
        Table { heads: std::iter::once("fact".to_string()).chain(heads).collect(), rows: vec![] };
    for fact in facts(sessions).iter().filter(|fact| !fact.is_constant()) {
        let values = fact.values.iter().map(|value| value.as_deref().unwrap_or("-").into());
        table.rows.push(std::iter::once(Cell::from(fact.name.as_str())).chain(values).collect());
    }
    table
}

/// How the trials fall on sessions, and what is not the same in them; None for a single one.
pub fn sentence(sessions: &[ResultSession<'_>]) -> Option<String> {
    if sessions.len() < 2 {
        return None;
    }
    let parts: Vec<String> = sessions
        .iter()
        .map(|session| match session.facts {
            Some(_) => {
                format!("{} in session {}", text::counted(session.trials, "run"), session.number)
            }
            None => format!(
                "{} in session {}, whose facts could not be read",
                text::counted(session.trials, "run"),
                session.number
            ),
        })
        .collect();
    let names: Vec<String> = facts(sessions)
        .into_iter()
        .filter(|fact| !fact.is_constant())
        .map(|fact| fact.name)
        .collect();
    let consequence = match names.as_slice() {
        [] => "the machine's facts are the same".to_string(),
        names => format!("these facts differ: {}", text::list(names)),
    };
    Some(format!("the study was resumed: {}; {consequence}", text::list(&parts)))
}

/// The kernels of the sessions, each once, in their order.
pub fn kernels(sessions: &[ResultSession<'_>]) -> Option<String> {
    let facts = sessions.iter().filter_map(|session| session.facts);
    let kernels = facts.filter_map(|facts| facts.pointer("/machine/kernel")?.as_str());
    let found = text::distinct(
        kernels.map(|kernel| format!("Linux {}", kernel.split(' ').next().unwrap_or(kernel))),
    );
    (!found.is_empty()).then(|| text::list(&found))
}

/// Leaves of a JSON value with the path to each; sizes and times in words by their names.
pub(crate) fn flatten(path: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    let below = |name: &str| match path {
        "" => name.replace('_', " "),
        path => format!("{path} · {}", name.replace('_', " ")),
    };
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, field) in fields {
                let in_words = field.as_f64().and_then(|number| {
                    if let Some(name) = name.strip_suffix("_bytes") {
                        Some((name, format!("{} ({number} bytes)", crate::text::bytes(number))))
                    } else if let Some(name) = name.strip_suffix("_ns") {
                        Some((name, crate::text::time(number)))
                    } else {
                        None
                    }
                });
                match in_words {
                    Some((name, words)) => rows.push((below(name), words)),
                    None => flatten(&below(name), field, rows),
                }
            }
        }
        Value::Array(entries) => {
            // A list of pairs is a list of settings.
            let pairs: Option<Vec<(&str, &str)>> = entries
                .iter()
                .map(|entry| match entry.as_array()?.as_slice() {
                    [name, value] => name.as_str().zip(value.as_str()),
                    _ => None,
                })
                .collect();
            match pairs {
                Some(pairs) if !pairs.is_empty() => {
                    // The names of settings are to be found again as they are.
                    let row = |(name, value): (&str, &str)| {
                        (format!("{path} · {name}").trim_start_matches(" · ").into(), value.into())
                    };
                    rows.extend(pairs.into_iter().map(row));
                }
                _ => {
                    let words: Vec<String> = entries.iter().map(leaf).collect();
                    rows.push((path.to_string(), words.join(" ")));
                }
            }
        }
        other => rows.push((path.to_string(), leaf(other))),
    }
}

fn leaf(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}
