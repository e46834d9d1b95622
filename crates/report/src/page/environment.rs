//! The end of the page: on what it was measured, by which commands, from which seed, and how to
//! measure it again.

use std::fmt::Write;

use lab::record::Record;
use serde_json::Value;

use crate::html::{self, escape};
use crate::sittings::{differences, sittings};
use crate::source::Source;

/// Environment, commands, study file and how to repeat it.
pub fn section(source: &Source) -> String {
    let mut out = String::from(
        "<section aria-labelledby=\"environment\">\n<h2 id=\"environment\">The environment</h2>\n",
    );
    let sittings = sittings(source);
    let changed = differences(&sittings);
    if !changed.rows.is_empty() {
        out.push_str(&html::table(&changed, "What differs between the sittings"));
        out.push_str("<p class=\"small\">The tables below are of the last sitting.</p>\n");
    }
    match sittings.last().and_then(|sitting| sitting.facts) {
        Some(facts) => out.push_str(&facts_tables(facts)),
        None => out.push_str("<p>The facts of the machine could not be read.</p>\n"),
    }
    out.push_str("<h3>The contenders and the exact commands</h3>\n<p class=\"small\">Of the first completed trial of each; every record keeps its own.</p>\n");
    for contender in &source.plan.study.contenders {
        let mut records = source.records.iter().filter(|r| r.contender.label == contender.label);
        let first = records.clone().find(|record| record.time_ns().is_some());
        let _ = writeln!(out, "<h4>{}</h4>", escape(&contender.label));
        match first.or_else(|| records.next()) {
            Some(record) => out.push_str(&commands(record)),
            None => out.push_str("<p class=\"small\">No trial of it has a record.</p>\n"),
        }
    }
    out.push_str("<h3>The load</h3>\n");
    for workload in &source.plan.study.workloads {
        let value = serde_json::to_value(workload).expect("a workload has a JSON form");
        let mut rows = Vec::new();
        flatten("", &value, &mut rows);
        out.push_str(&words_table(&rows, &format!("The load {}", workload.name)));
    }
    out.push_str(&repeat(source));
    out.push_str("</section>\n");
    out
}

/// One table for each group of facts; what this kurabe does not know is shown as well.
fn facts_tables(facts: &Value) -> String {
    let Value::Object(groups) = facts else {
        return "<p>The facts of the machine have a form that is not known.</p>\n".into();
    };
    let known = ["machine", "device", "tools"];
    let rank = |name: &str| known.iter().position(|k| *k == name).unwrap_or(known.len());
    let mut names: Vec<&String> =
        groups.keys().filter(|name| !["schema", "command_line"].contains(&name.as_str())).collect();
    names.sort_by_key(|name| (rank(name), name.as_str()));
    let mut out = String::new();
    for name in names {
        let mut rows = Vec::new();
        flatten("", &groups[name], &mut rows);
        if rows.is_empty() {
            continue;
        }
        let table = words_table(&rows, &format!("Facts: {name}"));
        let title = escape(&name.replace('_', " "));
        // What most readers look for is open; the rest is there for those who repeat it.
        let _ = match name.as_str() {
            "machine" => write!(out, "{table}"),
            _ => writeln!(out, "<details><summary>{title}</summary>\n{table}</details>"),
        };
    }
    out
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

fn words_table(rows: &[(String, String)], caption: &str) -> String {
    let mut out = format!(
        "<div class=\"scroll\"><table class=\"words\"><caption>{}</caption><tbody>\n",
        escape(caption)
    );
    for (name, value) in rows {
        let value = match value.contains('\n') {
            true => format!("<pre>{}</pre>", escape(value.trim_end())),
            false => escape(value),
        };
        let _ = writeln!(out, "<tr><th scope=\"row\">{}</th><td>{value}</td></tr>", escape(name));
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// What was executed for one trial, and what the file system says of itself.
fn commands(record: &Record) -> String {
    let mut out = String::new();
    if record.commands.is_empty() {
        out.push_str("<p class=\"small\">Nothing was executed to make it.</p>\n");
    } else {
        let _ = writeln!(out, "<pre>{}</pre>", escape(&record.commands.join("\n")));
    }
    let mounted = record.mounted_as.as_deref().unwrap_or_default();
    let geometry = record.geometry.as_deref().unwrap_or_default();
    if !(mounted.is_empty() && geometry.is_empty()) {
        let _ = writeln!(
            out,
            "<details><summary>What the file system reports of itself</summary>\n<pre>{}</pre></details>",
            escape(format!("{mounted}\n{geometry}").trim())
        );
    }
    for note in &record.notes {
        let _ = writeln!(out, "<p class=\"small\">{}</p>", escape(note));
    }
    out
}

/// Command lines that measure the same again.
fn repeat(source: &Source) -> String {
    let mut out = String::from("<h3 id=\"repeat\">How to repeat this</h3>\n");
    let seed = source.plan.seed;
    let _ = writeln!(
        out,
        "<p>The order of the trials follows from the seed {seed}. Save the study file below as <code>study.toml</code>, or take it from the result directory, and carry it out in the same order:</p>\n<pre>sudo kurabe run study.toml --seed {seed}</pre>"
    );
    if source.plan.study.device.starts_with("/dev/") {
        out.push_str(
            "<p class=\"small\">It overwrites the device that it names; put your own there.</p>\n",
        );
    }
    // Every sitting has its own: that of the last one may be no more than "resume".
    let lines: Vec<String> =
        source.earlier_facts.iter().chain(&source.facts).filter_map(command_line).collect();
    if !lines.is_empty() {
        let lines = escape(&lines.join("\n"));
        let _ = writeln!(out, "<p>This result was made by:</p>\n<pre>{lines}</pre>");
    }
    let name = shlex::try_quote(&source.name).map_or_else(|_| source.name.clone(), Into::into);
    let _ = writeln!(
        out,
        "<p>To print its tables again, or to set another result beside it:</p>\n<pre>kurabe report {name}\nkurabe report {name} OTHER-RESULT</pre>",
        name = escape(&name)
    );
    match &source.study_file {
        Some(text) => {
            let _ = writeln!(out, "<h4>study.toml</h4>\n<pre>{}</pre>", escape(text.trim_end()));
        }
        None => out.push_str("<p class=\"small\">The study file could not be read.</p>\n"),
    }
    out
}

/// The command line of a sitting, as a shell takes it.
fn command_line(facts: &Value) -> Option<String> {
    let words = facts.get("command_line")?.as_array()?;
    let words: Vec<&str> = words.iter().map(Value::as_str).collect::<Option<_>>()?;
    Some(shlex::try_join(words.iter().copied()).unwrap_or_else(|_| words.join(" ")))
}

/// `2026-11-21` of ns since the Unix epoch, in UTC.
pub fn date(unix_ns: u64) -> String {
    let (year, month, day) = civil((unix_ns / 86_400_000_000_000) as i64);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `23:17:54` of ns since the Unix epoch, in UTC.
pub fn clock(unix_ns: u64) -> String {
    let second = unix_ns / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day since the epoch (Howard Hinnant's civil-from-days algorithm).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400_000_000_000), "2000-02-29");
        assert_eq!(clock(1_795_216_674_000_000_000), "23:17:54");
    }

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
