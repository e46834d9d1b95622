//! A result for other programs and for other people: CSV with one line a trial, JSON with every
//! sample, Markdown with the tables.

use std::collections::BTreeMap;

use lab::analysis::Analysis;
use lab::plan::Plan;
use lab::record::{Phase, Record, unfinished_block};
use lab::workload::{BLOCK_SIZE_AXIS, DEPTH_AXIS, ENGINE_AXIS, OPERATION_AXIS};
use lab::workload::{QUANTILES, Unit};
use serde_json::{Value, json};
use trust::text;

use crate::answer::answer;
use crate::details::details;
use crate::document::{self, Block};
use crate::source::ResultSource;
use crate::text::distinct;

/// One line for each contender in each round; times in ns, sizes in bytes, as the units in the heads say. The last columns
/// are the figures of the workloads, in the order in which they first occur.
pub fn csv(records: &[Record]) -> String {
    let metrics = records.iter().filter_map(|record| record.load.as_ref()).flat_map(|l| &l.metrics);
    let figures = distinct(metrics.map(|metric| (metric.name.clone(), metric.unit)));
    let checks = records.iter().flat_map(|record| &record.checks);
    let checks = distinct(checks.map(|check| check.name.as_str()));
    let (mut lines, mut unfinished) = (Vec::new(), BTreeMap::new());
    for record in records {
        let last = unfinished
            .entry(record.workload.as_str())
            .or_insert_with_key(|workload| unfinished_block(records, workload));
        let is_whole = *last != Some(record.block);
        let mut columns = csv_columns(record, is_whole || record.warmup);
        for (name, unit) in &figures {
            let metrics = record.load.as_ref().map_or(&[][..], |load| &load.metrics);
            let metric = metrics.iter().find(|metric| metric.name == *name);
            let head = format!("{name}_{}", unit_suffix(*unit));
            columns.push((head, metric.map_or(String::new(), |metric| metric.value.to_string())));
        }
        for name in &checks {
            let check = record.checks.iter().find(|check| check.name == *name);
            let mut add = |what: &str, count: Option<u64>| {
                columns.push((format!("check {name}_{what}"), optional(count)));
            };
            add("tried", check.map(|check| check.tried));
            add("violated", check.map(|check| check.violated));
        }
        lines.push(columns);
    }
    // Of no record there are heads all the same.
    let none = csv_columns(&Record::default(), true);
    let heads = lines.first().unwrap_or(&none).iter().map(|(head, _)| head);
    let mut text = line(heads);
    lines.iter().for_each(|columns| text.push_str(&line(columns.iter().map(|(_, field)| field))));
    text
}

fn optional(value: Option<u64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// The columns that every record has, each with its head.
fn csv_columns(record: &Record, is_whole: bool) -> Vec<(String, String)> {
    let mut columns = vec![
        ("run".to_string(), record.trial.to_string()),
        ("round".into(), (u64::from(record.block) + 1).to_string()),
        ("round_whole".into(), is_whole.to_string()),
        ("warmup".into(), record.warmup.to_string()),
        ("workload".into(), record.workload.clone()),
        ("contender".into(), record.contender.label.clone()),
        ("outcome".into(), record.outcome.word().into()),
        ("time_ns".into(), optional(record.time_ns())),
    ];
    for phase in Phase::ALL {
        let time_ns = record.phase(*phase).map(|entry| entry.elapsed_ns);
        columns.push((format!("{}_ns", phase.name()), optional(time_ns)));
    }
    let usage = record.command.as_ref();
    let device = record.run_device();
    let counts = [
        ("command_user_ns", usage.map(|usage| usage.user_ns)),
        ("command_system_ns", usage.map(|usage| usage.system_ns)),
        ("command_memory_bytes_max", usage.map(|usage| usage.memory_bytes_max)),
        ("command_storage_written_bytes", usage.and_then(|usage| usage.storage_written_bytes)),
        ("command_write_call_bytes", usage.and_then(|usage| usage.write_call_bytes)),
        ("device_reads", device.map(|device| device.reads)),
        ("device_read_bytes", device.map(|device| device.read_bytes)),
        ("device_writes", device.map(|device| device.writes)),
        ("device_written_bytes", device.map(|device| device.written_bytes)),
        ("device_flushes", device.map(|device| device.flushes)),
        ("device_discards", device.map(|device| device.discards)),
        ("idle_wait_ns", record.idle_wait.as_ref().map(|wait| wait.waited_ns)),
    ];
    columns.extend(counts.map(|(head, value)| (head.to_string(), optional(value))));
    columns
}

fn unit_suffix(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "ns",
        Unit::BytesPerSecond => "bytes_per_second",
        Unit::OperationsPerSecond => "operations_per_second",
        Unit::Bytes => "bytes",
        Unit::Count => "count",
    }
}

/// One line for each workload, contender and operation: the latencies of all trials together, in
/// ns. `None` where no workload records any.
pub fn latencies_csv(analysis: &Analysis) -> Option<String> {
    const HEADS: &str = "workload,contender,operation,count,bytes,total_ns,p5_ns,p50_ns,p90_ns,p95_ns,p99_ns,p99_9_ns,p99_99_ns,max_ns\n";
    let mut text = HEADS.to_string();
    for workload in &analysis.workloads {
        for contender in &workload.contenders {
            for latency in &contender.latencies {
                let (workload, label) = (workload.workload.clone(), contender.label.clone());
                let mut fields = vec![workload, label, latency.operation.clone()];
                let sums = [latency.count, latency.bytes, latency.total_ns];
                fields.extend(sums.map(|number| number.to_string()));
                fields.extend(QUANTILES.map(|quantile| {
                    if latency.quantiles_ns.is_empty() {
                        String::new()
                    } else {
                        latency.at(quantile).to_string()
                    }
                }));
                fields.push(latency.max_ns.to_string());
                text.push_str(&line(fields));
            }
        }
    }
    (text != HEADS).then_some(text)
}

/// One line for each workload, contender and cell of a fio matrix: the cost relative to the bare device, with
/// its interval. `None` where there is no such thing.
pub fn overhead_csv(analysis: &Analysis) -> Option<String> {
    const HEADS: &str = "workload,contender,raw,pattern,engine,depth,block_size_bytes,rounds,cost,cost_low,cost_high,confidence\n";
    let mut text = HEADS.to_string();
    for workload in &analysis.workloads {
        for one in &workload.overhead {
            let axes = workload.axes(&one.metric);
            let at = |axis: &str| axes.and_then(|axes| axes.get(axis)).cloned().unwrap_or_default();
            let mut fields =
                [&one.workload, &one.contender, &one.baseline].map(String::clone).to_vec();
            fields.extend([OPERATION_AXIS, ENGINE_AXIS, DEPTH_AXIS, BLOCK_SIZE_AXIS].map(at));
            fields.push(one.blocks.to_string());
            // Of single rounds there is no cost: one busy moment would make it anything.
            let costs =
                one.cost().zip(one.cost_ends()).map(|(cost, (low, high))| [cost, low, high]);
            let words = costs.map(|costs| costs.map(|cost| format!("{cost:.4}")));
            fields.extend(words.unwrap_or_default());
            fields.push(one.confidence.to_string());
            text.push_str(&line(fields));
        }
    }
    (text != HEADS).then_some(text)
}

/// One line for each comparison: the cost relative to the baseline and the ends of its interval, as every
/// table and gate has them. `None` where nothing was compared.
pub fn costs_csv(analysis: &Analysis) -> Option<String> {
    const HEADS: &str =
        "workload,contender,baseline,metric,rounds,cost,cost_low,cost_high,verdict,confidence\n";
    let mut text = HEADS.to_string();
    let of_workloads = analysis.workloads.iter().flat_map(|workload| &workload.comparisons);
    for one in of_workloads.chain(&analysis.overall).chain(&analysis.stores) {
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let ends = one.cost_ends();
        let mut fields =
            [&one.workload, &one.contender, &one.baseline, &one.metric].map(String::clone).to_vec();
        fields.push(one.blocks.to_string());
        fields.extend([one.cost(), ends.map(|ends| ends.0), ends.map(|ends| ends.1)].map(number));
        fields.extend([one.verdict.to_string(), one.confidence.to_string()]);
        text.push_str(&line(fields));
    }
    (text != HEADS).then_some(text)
}

pub(crate) fn line(fields: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let fields = fields.into_iter().map(|field| text::csv(field.as_ref()).into_owned());
    let fields: Vec<String> = fields.collect();
    format!("{}\n", fields.join(","))
}

/// The analysis and every sample.
pub fn json(plan: &Plan, records: &[Record], analysis: &Analysis, facts: &Value) -> Value {
    json!({
        "schema": plan.schema,
        "study": plan.study,
        "seed": plan.seed,
        "facts": facts,
        "analysis": analysis,
        "records": records,
    })
}

/// The answer and the details as Markdown.
pub fn markdown(source: &ResultSource) -> String {
    let study = &source.plan.study;
    let mut blocks = vec![Block::heading(1, "", study.name.clone())];
    blocks.extend(study.why.clone().map(Block::Text));
    blocks.extend(answer(source));
    blocks.extend(details(source));
    document::markdown(&blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::contender::Known;
    use std::collections::BTreeMap;

    use lab::contender::Contender;
    use lab::record::{Check, CommandUsage, DeviceDelta, IdleWait, Outcome, PhaseRecord};
    use lab::spec::{
        Cache, CommandLine, OutputTarget, SCHEMA_VERSION, TrialSpec, Workload, WorkloadSpec,
    };
    use lab::workload::{Metric, WorkloadReport};

    #[test]
    fn csv_quotes_what_needs_quoting() {
        let fields = ["a".to_string(), "b, \"c\"".into(), String::new()];
        assert_eq!(line(&fields), "a,\"b, \"\"c\"\"\",\n");
    }

    #[test]
    fn the_figures_of_the_workloads_have_columns_of_their_own() {
        let metric = |name: &str, value, unit| Metric::new(name, value, unit);
        let (mut one, mut other) = (record(), record());
        one.load = Some(WorkloadReport {
            metrics: vec![metric("throughput", 1.5e6, Unit::BytesPerSecond)],
            ..Default::default()
        });
        other.load = Some(WorkloadReport {
            metrics: vec![metric("copy, all", 0.1 + 0.2, Unit::Nanoseconds)],
            ..Default::default()
        });
        let text = csv(&[one, other, record()]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with(",throughput_bytes_per_second,\"copy, all_ns\""), "{text}");
        assert!(lines[1].ends_with(",1500000,"), "{text}");
        assert!(lines[2].ends_with(",,0.30000000000000004"), "{text}");
        assert!(lines[3].ends_with(",,"), "{text}");
    }

    #[test]
    fn checks_have_columns_of_their_own() {
        let (mut one, mut other) = (record(), record());
        one.checks = vec![Check { tried: 9, violated: 2, ..Check::new("contents, all") }];
        other.checks = vec![Check { tried: 7, ..Check::new("durability") }];
        let text = csv(&[one, other]);
        let lines: Vec<&str> = text.lines().collect();
        let heads = "\"check contents, all_tried\",\"check contents, all_violated\",check durability_tried,check durability_violated";
        assert!(lines[0].ends_with(heads), "{text}");
        assert!(lines[1].ends_with(",9,2,,") && lines[2].ends_with(",,7,0"), "{text}");
    }

    /// A record of which every number that the CSV has is another one.
    fn record() -> Record {
        let contender = Contender::parse("a, \"b\": ext4", &Known::named(["ext4"])).unwrap();
        let load = WorkloadSpec::of_command(CommandLine::Words(vec!["make".into()]));
        let workload = Workload::of("make", load);
        let spec = TrialSpec {
            schema: SCHEMA_VERSION,
            trial: 7,
            order_seed: 0,
            block: 3,
            warmup: true,
            contender,
            directory_identity: None,
            device: None,
            aged: None,
            measure_layout: false,
            side_by_side: None,
            node: None,
            workload,
            power_cuts: None,
            node_death: None,
            cache: Cache::Cold,
            timeout_ns: None,
            idle_wait_ns_max: 0,
            discard: false,
            trace: None,
            user: None,
            scratch: "/nowhere".into(),
            output: OutputTarget::Null,
        };
        let mut record = Record::begun(&spec, 0);
        let delta = |first: u64| DeviceDelta {
            reads: first,
            read_bytes: first + 1,
            writes: first + 2,
            written_bytes: first + 3,
            discards: first + 4,
            discarded_bytes: first + 5,
            flushes: first + 6,
            busy_ms: 0,
            queue_ms: 0,
        };
        record.phases = [(Phase::Mkfs, 1000), (Phase::Run, 2000), (Phase::Sync, 3000)]
            .map(|(phase, elapsed_ns)| PhaseRecord {
                phase,
                elapsed_ns,
                device: Some(delta(elapsed_ns / 10)),
                machine_cpu_ns: None,
            })
            .into();
        record.command = Some(CommandUsage {
            user_ns: 11,
            system_ns: 12,
            memory_bytes_max: 13,
            storage_written_bytes: Some(14),
            write_call_bytes: Some(15),
            ..Default::default()
        });
        record.idle_wait = Some(IdleWait { waited_ns: 16, idle: true, cause: None });
        record
    }

    #[test]
    fn every_field_of_a_line_stands_under_its_head() {
        let mut failed = record();
        let (message, output) = ("it broke".into(), String::new());
        failed.outcome = Outcome::Failed { phase: Phase::Run, message, output };
        failed.command = None;
        let text = csv(&[record(), failed]);
        let lines: Vec<&str> = text.lines().collect();
        // The label is quoted, and its comma and quotes are the only ones.
        let quoted = "\"a, \"\"b\"\"\"";
        let fields = |line: &str| -> Vec<String> {
            line.replace(quoted, "LABEL").split(',').map(String::from).collect()
        };
        let heads = fields(lines[0]);
        assert_eq!(lines.len(), 3);
        let of = |line: &str| -> BTreeMap<String, String> {
            assert_eq!(fields(line).len(), heads.len(), "{line}");
            let found = heads.iter().cloned().zip(fields(line));
            found.filter(|(_, field)| !field.is_empty()).collect()
        };
        // Run and sync together: 200 + 300 reads, and so on.
        let expected = [
            ("run", "7"),
            ("round", "4"),
            ("round_whole", "true"),
            ("warmup", "true"),
            ("workload", "make"),
            ("contender", "LABEL"),
            ("outcome", "completed"),
            ("time_ns", "5000"),
            ("mkfs_ns", "1000"),
            ("run_ns", "2000"),
            ("sync_ns", "3000"),
            ("command_user_ns", "11"),
            ("command_system_ns", "12"),
            ("command_memory_bytes_max", "13"),
            ("command_storage_written_bytes", "14"),
            ("command_write_call_bytes", "15"),
            ("device_reads", "500"),
            ("device_read_bytes", "502"),
            ("device_writes", "504"),
            ("device_written_bytes", "506"),
            ("device_discards", "508"),
            ("device_flushes", "512"),
            ("idle_wait_ns", "16"),
        ];
        let expected: BTreeMap<String, String> =
            expected.map(|(head, field)| (head.to_string(), field.to_string())).into();
        assert_eq!(of(lines[1]), expected);
        // A trial that failed has no time that counts, and what was not measured is no zero.
        let found = of(lines[2]);
        assert_eq!(found["outcome"], "failed");
        assert_eq!(found["run_ns"], "2000");
        for head in ["time_ns", "command_user_ns", "command_storage_written_bytes"] {
            assert!(!found.contains_key(head), "{head}: {found:?}");
        }
        assert!(lines[1].contains(quoted), "{text}");
    }
}
