//! `kurabe history`: the results of one study in a directory, in the order of time, with the changes of level and what
//! changed on the machine. Nothing of a result is changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lab::change_points::{ChangePoint, change_points};
use lab::result::{PLAN_FILE, StoredResult};
use lab::workload::Unit;
use report::document::{self, Block};
use report::source::ResultSource;
use report::table::{Cell, Table};
use serde_json::{Map, Value, json};
use trust::file::write;

use crate::exit::{self, Failure, refused};
use crate::presentation::check_target;
use crate::presentation::progress::TerminalStyle;
use crate::request::flags::HistoryArgs;
use crate::terminal;

/// One result in the order of time.
struct Entry {
    name: String,
    started_unix_ns: u64,
    kernel: String,
    /// The plan but for its seed: what was asked for.
    options: Vec<String>,
}

/// The first metric of one contender under one workload.
#[derive(Default)]
struct Series {
    unit: Option<Unit>,
    metric: String,
    /// By the number of the result: the median, and the ends of its interval.
    values: BTreeMap<usize, (f64, Option<(f64, f64)>)>,
}

pub fn history(args: &HistoryArgs) -> Result<u8, Failure> {
    for path in [&args.export_bencher, &args.export_otava].into_iter().flatten() {
        check_target(path)?;
    }
    let (study, sources) = read_all(args)?;
    let entries: Vec<Entry> = sources.iter().map(entry).collect();
    let series = series_of(&sources);
    if let Some(path) = &args.export_bencher {
        let text = format!("{:#}\n", bencher(&series, entries.len() - 1));
        write(path, text.as_bytes()).map_err(Failure::broken)?;
    }
    if let Some(path) = &args.export_otava {
        write(path, otava(&entries, &series).as_bytes()).map_err(Failure::broken)?;
    }
    let mut blocks = vec![Block::heading(1, "", format!("{study}: {} results", entries.len()))];
    for ((workload, contender), series) in &series {
        let caption = format!("{contender} under {workload}: {}", series.metric);
        blocks.push(Block::heading(2, "", caption.clone()));
        let order: Vec<usize> = series.values.keys().copied().collect();
        let values: Vec<f64> = series.values.values().map(|(value, _)| *value).collect();
        let changes = change_points(&values);
        blocks.push(Block::table(caption, table(&entries, series, &order, &changes)));
        blocks.push(Block::Text(sentence(&entries, &order, &changes, series)));
    }
    let look = TerminalStyle::of(args.style);
    terminal::show(&document::terminal(&blocks, look.colour));
    Ok(exit::OK)
}

/// The results of one study in a directory: of the one that was named, or of the only one.
fn read_all(args: &HistoryArgs) -> Result<(String, Vec<ResultSource>), Failure> {
    let directory = &args.directory;
    let listed = std::fs::read_dir(directory).map_err(refused(directory.display()))?;
    let mut paths: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.join(PLAN_FILE).is_file());
    paths.sort();
    let mut studies: BTreeMap<String, Vec<ResultSource>> = BTreeMap::new();
    for path in &paths {
        match StoredResult::read(path) {
            Ok(stored) => {
                let source = ResultSource::of(stored);
                studies.entry(source.plan.study.name.clone()).or_default().push(source);
            }
            Err(error) => terminal::note(&format!("kurabe: left out: {error}")),
        }
    }
    let names = studies.keys().cloned().collect::<Vec<_>>().join(", ");
    let shown = directory.display();
    let chosen = match &args.study {
        Some(name) => studies.remove_entry(name),
        None if studies.len() > 1 => {
            return Err(Failure::refused(format!(
                "{shown} has results of several studies; name one by --study: {names}"
            )));
        }
        None => studies.pop_first(),
    };
    let (name, mut sources) = chosen.ok_or_else(|| {
        Failure::refused(match names.as_str() {
            "" => format!("{shown} has no results; name the directory in which results lie"),
            _ => format!("{shown} has no results of that study; there are: {names}"),
        })
    })?;
    sources.sort_by_key(started);
    Ok((name, sources))
}

/// When the first run of a result began.
fn started(source: &ResultSource) -> u64 {
    source.records.iter().map(|record| record.started_unix_ns).min().unwrap_or(0)
}

fn entry(source: &ResultSource) -> Entry {
    let fact = |path| source.facts.as_ref().and_then(|facts| facts.pointer(path)?.as_str());
    let kernel = fact("/machine/kernel").unwrap_or_default();
    let study = &source.plan.study;
    let contenders = study.contenders.iter().map(|one| one.notation());
    Entry {
        name: Path::new(&source.name)
            .file_name()
            .map_or(source.name.clone(), |name| name.to_string_lossy().into_owned()),
        started_unix_ns: started(source),
        kernel: kernel.split(' ').next().unwrap_or_default().to_string(),
        options: contenders.chain([study.device.clone()]).collect(),
    }
}

/// Every series, by workload and contender, in the order of their names.
fn series_of(sources: &[ResultSource]) -> BTreeMap<(String, String), Series> {
    let mut all: BTreeMap<(String, String), Series> = BTreeMap::new();
    for (number, source) in sources.iter().enumerate() {
        for workload in &source.analysis.workloads {
            for contender in &workload.contenders {
                let Some(metric) = contender.metrics.first() else { continue };
                let key = (workload.workload.clone(), contender.label.clone());
                let series = all.entry(key).or_default();
                // A metric that took the place of another is no point of the same series.
                if series.unit.is_some() && series.metric != metric.name {
                    continue;
                }
                (series.unit, series.metric) = (Some(metric.unit), metric.name.clone());
                let ends = metric.summary.median_interval.map(|ends| (ends.low, ends.high));
                series.values.insert(number, (metric.summary.median, ends));
            }
        }
    }
    all
}

fn table(entries: &[Entry], series: &Series, order: &[usize], changes: &[ChangePoint]) -> Table {
    let mut table =
        Table::new(&["date", "result", "kernel", &series.metric, "cost", "what changed"]);
    let unit = series.unit.unwrap_or(Unit::Nanoseconds);
    let first = order.first().map_or(1.0, |number| series.values[number].0);
    for (place, number) in order.iter().enumerate() {
        let entry = &entries[*number];
        let value = series.values[number].0;
        let mut changed = Vec::new();
        if let Some(before) = place.checked_sub(1).map(|before| &entries[order[before]]) {
            if before.kernel != entry.kernel {
                changed.push("kernel".to_string());
            }
            if before.options != entry.options {
                changed.push("options".to_string());
            }
        }
        if let Some(change) = changes.iter().find(|change| change.index == place) {
            changed.push(format!("level: cost {:.2}", cost(change.ratio, unit)));
        }
        table.rows.push(vec![
            moment(entry.started_unix_ns).as_str().into(),
            entry.name.as_str().into(),
            entry.kernel.as_str().into(),
            Cell::number(value, report::text::figure(value, unit)),
            format!("{:.3}", cost(value / first, unit)).as_str().into(),
            changed.join(", ").as_str().into(),
        ]);
    }
    table
}

/// A ratio of values as a cost: above 1 is worse.
fn cost(ratio: f64, unit: Unit) -> f64 {
    if unit.more_is_better() { ratio.recip() } else { ratio }
}

fn sentence(
    entries: &[Entry],
    order: &[usize],
    changes: &[ChangePoint],
    series: &Series,
) -> String {
    let unit = series.unit.unwrap_or(Unit::Nanoseconds);
    if changes.is_empty() {
        return "No change of level (E-divisive, p <= 0.01).".into();
    }
    let words = changes.iter().map(|change| {
        let entry = &entries[order[change.index]];
        let (cost, probability) = (cost(change.ratio, unit), change.probability);
        format!(
            "From {} ({}) on it costs {cost:.2} times as much as before (p = {probability:.3}).",
            moment(entry.started_unix_ns),
            entry.name
        )
    });
    words.collect::<Vec<_>>().join(" ")
}

fn moment(unix_ns: u64) -> String {
    let moment = jiff::Timestamp::from_nanosecond(unix_ns.into()).unwrap_or_default();
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The latest result as Bencher Metric Format: benchmarks, each with its measures.
fn bencher(all: &BTreeMap<(String, String), Series>, last: usize) -> Value {
    let mut benchmarks = Map::new();
    for ((workload, contender), series) in all {
        let Some((value, ends)) = series.values.get(&last) else { continue };
        let mut measure = json!({ "value": value });
        if let Some((low, high)) = ends {
            measure["lower_value"] = json!(low);
            measure["upper_value"] = json!(high);
        }
        let name = format!("{workload}/{contender}");
        benchmarks.insert(name, json!({ series.metric.clone(): measure }));
    }
    Value::Object(benchmarks)
}

/// All results as the CSV that Apache Otava reads: `time`, attributes, and a column for each series.
fn otava(entries: &[Entry], all: &BTreeMap<(String, String), Series>) -> String {
    let line = |fields: Vec<String>| {
        let fields: Vec<String> =
            fields.iter().map(|field| trust::text::csv(field).into_owned()).collect();
        format!("{}\n", fields.join(","))
    };
    let mut heads = vec!["time".to_string(), "result".into(), "kernel".into()];
    heads.extend(all.iter().map(|((workload, contender), series)| {
        let name = format!("{workload}.{contender}.{}", series.metric);
        name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_")
    }));
    let mut text = line(heads);
    for (number, entry) in entries.iter().enumerate() {
        let value = |series: &Series| {
            series.values.get(&number).map_or(String::new(), |(value, _)| value.to_string())
        };
        let mut fields =
            vec![moment(entry.started_unix_ns), entry.name.clone(), entry.kernel.clone()];
        fields.extend(all.values().map(value));
        text.push_str(&line(fields));
    }
    text
}
