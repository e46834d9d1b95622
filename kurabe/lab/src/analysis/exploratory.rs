//! What else the records tell of a contender against the baseline: bytes, flushes, CPU time, space,
//! percentiles of operations. Exploratory: they have a correction of their own and decide nothing.

use super::cost::{command_cpu_ns, written_by_load};
use super::primary::others;
use super::samples::{Costs, Samples};
use super::zero::{constant, of_constants};
use super::{Comparison, median};
use crate::contender::Contender;
use crate::plan::Plan;
use crate::record::{DeviceDelta, Phase, Record};
use crate::spec::Cache;
use crate::statistics::{self, ComparisonOptions, Group};
use crate::workload::Unit;

/// Reads a quantity from a record.
type Reader = Box<dyn Fn(&Record) -> Option<f64>>;

/// A quantity of a record, of which less is better.
struct Quantity {
    name: String,
    unit: Unit,
    /// Whether it grows with the amount of work.
    is_total: bool,
    of: Reader,
}

impl Quantity {
    fn new(name: &str, unit: Unit, of: impl Fn(&Record) -> Option<f64> + 'static) -> Quantity {
        Quantity { name: name.into(), unit, is_total: false, of: Box::new(of) }
    }
}

/// What is counted of the device, and of the locks of several nodes, while a workload runs; conditions can name it
/// like a metric.
pub const COUNTED: [&str; 5] =
    ["bytes written", "bytes read", "flushes", "lock requests", "lock revocations"];

/// The quantities of these names.
fn counts() -> Vec<Quantity> {
    let device = |of: fn(&DeviceDelta) -> u64| {
        move |record: &Record| {
            let counted = record.run_device().filter(|_| !record.device_shared)?;
            Some(of(&counted) as f64)
        }
    };
    let [written, read, flushes, requests, revocations] = COUNTED;
    vec![
        Quantity::new(written, Unit::Bytes, device(|delta| delta.written_bytes)),
        Quantity::new(read, Unit::Bytes, device(|delta| delta.read_bytes)),
        Quantity::new(flushes, Unit::Count, move |record| {
            device(|delta| delta.flushes)(record).filter(|_| !record.flushes_uncounted)
        }),
        Quantity::new(requests, Unit::Count, |record| Some(record.locks?.requests as f64)),
        Quantity::new(revocations, Unit::Count, |record| Some(record.locks?.revocations as f64)),
    ]
}

/// What the device does for each byte, and for each MiB, that the workload writes: compared where contenders do
/// different amounts of work, since they have different numbers of nodes or run for a time.
pub const COUNTED_PER_WORK: [&str; 2] = ["bytes written per byte", "flushes per MiB"];

/// Whether one contender surely did more than another, as under a workload that runs for a time: then a total tells
/// of its speed and not of what it costs.
fn work_differs(samples: &Samples<'_>) -> bool {
    let done = |contender: usize| {
        let loads = samples.completed(contender).filter_map(|record| record.load.as_ref());
        median(loads.filter_map(|load| load.operations).map(|count| count as f64))
    };
    let all: Vec<f64> = (0..samples.records.len()).filter_map(done).collect();
    let (least, most) = all.iter().fold((f64::INFINITY, 0.0), |(least, most), one| {
        (f64::min(least, *one), f64::max(most, *one))
    });
    most > least * SAME_WORK
}

/// Amounts of work that differ by no more than this factor are the same.
const SAME_WORK: f64 = 1.01;

/// The quantities of these names; none of contenders that do the same work.
fn counts_per_work(samples: &Samples<'_>, plan: &Plan) -> Vec<Quantity> {
    let nodes = |contender: &Contender| contender.environment.nodes();
    let contenders = &plan.study.contenders;
    let has_same_nodes = contenders.iter().all(|one| nodes(one) == nodes(&contenders[0]));
    if has_same_nodes && !work_differs(samples) {
        return Vec::new();
    }
    let of = |count: Quantity, name: &str, bytes: f64| {
        Quantity::new(name, Unit::Count, move |record| {
            let written = written_by_load(record).filter(|bytes| *bytes > 0)?;
            Some((count.of)(record)? * bytes / written as f64)
        })
    };
    let [per_byte, per_mib] = COUNTED_PER_WORK;
    let mut counts = counts();
    let flushes = counts.remove(2);
    vec![of(counts.remove(0), per_byte, 1.0), of(flushes, per_mib, (1 << 20) as f64)]
}

/// One of the quantities as a cost, by contender and block.
pub(super) fn counted(plan: &Plan, samples: &Samples<'_>, name: &str) -> Option<Costs> {
    let mut quantities = quantities(samples, plan).into_iter();
    let quantity = quantities.find(|quantity| quantity.name == name)?;
    let of = |contender| {
        let mut values = values(samples, &quantity, contender);
        if values.contains(&Some(0.0)) {
            values.fill(None);
        }
        values
    };
    let values = (0..samples.records.len()).map(of).collect();
    Some(Costs { metric: (quantity.name.clone(), quantity.unit), values })
}

/// The values of a quantity by block; none of a contender of which a check was violated.
fn values(samples: &Samples<'_>, quantity: &Quantity, contender: usize) -> Vec<Option<f64>> {
    if samples.is_violated(contender) {
        return vec![None; samples.records[contender].len()];
    }
    let completed = |record: &&Record| record.outcome == crate::record::Outcome::Completed;
    let of = |record: &Option<&Record>| record.filter(completed).and_then(|r| (quantity.of)(r));
    samples.records[contender].iter().map(of).collect()
}

/// The quantities that a workload's records may have.
fn quantities(samples: &Samples<'_>, plan: &Plan) -> Vec<Quantity> {
    let cache = plan.study.cache;
    // Turns of a file system that stays mounted leave what they leave to one unmount; where it is
    // mounted anew before each, the last turn alone does.
    let left_to_unmount = move |record: &Record| {
        let is_of_one_run = cache == Cache::Cold || record.slices.len() <= 1;
        record.phase(Phase::Unmount).filter(|_| is_of_one_run).cloned()
    };
    let mut quantities = counts();
    quantities.extend([
        Quantity::new("CPU time", Unit::Nanoseconds, command_cpu_ns),
        Quantity::new("space", Unit::Bytes, |record| {
            let (before, after) = (record.space_before?, record.space_after?);
            Some(before.free_bytes.saturating_sub(after.free_bytes) as f64)
        }),
        Quantity::new("time until unmounted", Unit::Nanoseconds, move |record| {
            Some((record.time_ns()? + left_to_unmount(record)?.elapsed_ns) as f64)
        }),
        Quantity::new("bytes until unmounted", Unit::Bytes, move |record| {
            let counted = record.run_device().filter(|_| !record.device_shared)?;
            let unmount = left_to_unmount(record)?.device?;
            Some((counted.written_bytes + unmount.written_bytes) as f64)
        }),
    ]);
    quantities.iter_mut().for_each(|quantity| quantity.is_total = true);
    quantities.extend(counts_per_work(samples, plan));
    let first =
        (0..samples.records.len()).find_map(|contender| samples.completed(contender).next());
    let latencies = first.and_then(|record| record.load.as_ref()).map(|load| &load.latencies);
    let distributions = latencies.into_iter().flatten().filter(|one| !one.quantiles_ns.is_empty());
    for latency in distributions {
        for median in [true, false] {
            let operation = latency.operation.clone();
            let percentile = if median { "p50" } else { "p99" };
            let name = format!("{percentile} of {operation}");
            quantities.push(Quantity::new(&name, Unit::Nanoseconds, move |record| {
                let all = &record.load.as_ref()?.latencies;
                let latency = all.iter().find(|one| one.operation == operation)?;
                Some(latency.at(if median { 0.5 } else { 0.99 }) as f64)
            }));
        }
    }
    quantities
}

/// The comparisons of these quantities under a workload, one family.
pub(super) fn compare(
    plan: &Plan,
    samples: &Samples<'_>,
    workload: usize,
    options: &ComparisonOptions,
) -> Vec<Comparison> {
    let mut quantities = quantities(samples, plan);
    let differs = work_differs(samples);
    quantities.retain(|quantity| !(quantity.is_total && differs));
    let positive = |values: &[Option<f64>]| -> Vec<Option<f64>> {
        values.iter().map(|value| value.filter(|value| *value > 0.0)).collect()
    };
    let others = others(plan);
    let sampled: Vec<Vec<Vec<Option<f64>>>> = quantities
        .iter()
        .map(|quantity| {
            (0..samples.records.len()).map(|place| values(samples, quantity, place)).collect()
        })
        .collect();
    let groups: Vec<Group> = sampled
        .iter()
        .map(|values| Group {
            baseline: positive(&values[plan.study.baseline]),
            contenders: others.iter().map(|place| positive(&values[*place])).collect(),
            ..Group::default()
        })
        .collect();
    let compared =
        statistics::compare_families(&groups, options).expect("what is not positive was left out");
    let mut comparisons = Vec::new();
    for ((quantity, values), compared) in quantities.iter().zip(&sampled).zip(compared) {
        for (place, mut compared) in others.iter().zip(compared) {
            let constants = constant(&values[plan.study.baseline]).zip(constant(&values[*place]));
            match constants {
                // Not looked at by the workload, or not known of one: there is nothing to say.
                Some((under, over)) if under == 0.0 && over == 0.0 => continue,
                Some((under, over)) => {
                    compared.pairs = samples.records[*place].iter().flatten().count();
                    compared.verdict = of_constants(under, over, plan.study.same_within);
                    compared.ratio = (under > 0.0).then_some(over / under);
                }
                None if compared.pairs == 0 => continue,
                None => {}
            }
            let metric = (quantity.name.clone(), quantity.unit);
            let places = [plan.study.baseline, *place];
            comparisons.push(Comparison::of(plan, workload, places, &metric, &compared, false));
        }
    }
    comparisons
}

#[cfg(test)]
mod tests {
    use crate::analysis::analyse;
    use crate::condition::{self, GateOutcome};
    use crate::fixture;
    use crate::judgement::Measurements;
    use crate::plan::Plan;
    use crate::record::{DeviceDelta, Phase, PhaseRecord, Record};
    use crate::slice::RunRecord;
    use crate::spec::Cache;
    use crate::statistics::Verdict;
    use crate::workload::{Metric, Unit, WorkloadReport};

    #[test]
    fn what_is_left_to_the_unmount_has_a_verdict_of_its_own() {
        let mut plan = fixture::plan(&["ext4", "xfs"], 2);
        let mut records = fixture::records(&plan, &[&[1000, 1100], &[1050, 990]]);
        for record in &mut records {
            let device = |written_bytes| Some(DeviceDelta { written_bytes, ..Default::default() });
            fixture::run_of(record).device = device(4096);
            let left_bytes = if record.contender.label == "xfs" { 8192 } else { 0 };
            record.phases.push(PhaseRecord {
                phase: Phase::Unmount,
                elapsed_ns: 10,
                device: device(left_bytes),
                machine_cpu_ns: None,
            });
            record.slices = vec![slice(); 2];
        }
        let verdict = |plan: &Plan| {
            let workload = analyse(plan, &records, None).workloads.remove(0);
            let mut found = workload.exploratory.into_iter();
            let until = found.find(|one| one.metric == "bytes until unmounted");
            until.map(|one| (one.verdict, one.ratio))
        };
        assert_eq!(verdict(&plan), Some((Verdict::Slower, Some(3.0))));
        // Where it stays mounted, one unmount is of several turns.
        plan.study.cache = Cache::Warm;
        assert_eq!(verdict(&plan), None);
    }

    #[test]
    fn totals_of_unequal_work_are_no_costs() {
        let plan = fixture::plan(&["ext4", "xfs"], 4);
        let mut records = fixture::records(&plan, &[&[1000; 4], &[1000; 4]]);
        let metrics = |operations: u64, records: &mut [Record]| -> Vec<String> {
            for record in records.iter_mut() {
                let is_xfs = record.contender.label == "xfs";
                let operations = if is_xfs { operations } else { 1000 };
                let written_bytes = 4096 * operations;
                let device = DeviceDelta { written_bytes: 2 * written_bytes, ..Default::default() };
                fixture::run_of(record).device = Some(device);
                let value = operations as f64;
                record.load = Some(WorkloadReport {
                    metrics: vec![Metric::new("writes", value, Unit::OperationsPerSecond)],
                    operations: Some(operations),
                    written_bytes: Some(written_bytes),
                    ..Default::default()
                });
            }
            let workload = analyse(&plan, records, None).workloads.remove(0);
            workload.exploratory.into_iter().map(|one| one.metric).collect()
        };
        let same = metrics(1000, &mut records);
        assert!(same.contains(&"bytes written".into()), "{same:?}");
        assert!(!same.contains(&"bytes written per byte".into()), "{same:?}");
        // Twice as fast in the same time is not twice as costly.
        let faster = metrics(2000, &mut records);
        assert_eq!(faster, ["bytes written per byte"]);
    }

    fn slice() -> RunRecord {
        RunRecord {
            round: 0,
            position: 0,
            run_ns: 1,
            sync_ns: 0,
            device: None,
            idle_device: None,
            metrics: Vec::new(),
            watched: None,
        }
    }

    #[test]
    fn counts_that_do_not_vary_are_decided_at_once() {
        let plan = fixture::plan(&["ext4", "xfs"], 2);
        let mut records = fixture::records(&plan, &[&[1000, 1100], &[1050, 990]]);
        for record in &mut records {
            let flushes = if record.contender.label == "xfs" { 2000 } else { 1000 };
            let device = DeviceDelta { flushes, written_bytes: 4096, ..Default::default() };
            fixture::run_of(record).device = Some(device);
        }
        let mut analysis = analyse(&plan, &records, None);
        let result = Measurements { plan: &plan, records: &records, analysis: &analysis };
        for (condition, expected) in [
            ("xfs >= 2", GateOutcome::Holds),
            ("xfs <= 1.5", GateOutcome::Fails),
            ("xfs <= 2", GateOutcome::Holds),
        ] {
            let name = plan.study.workloads[0].name.as_str();
            let condition = condition::parse(condition).unwrap();
            let judged = result.judge(&condition, &[name], Some("flushes"));
            assert_eq!(judged.outcome, expected, "{judged:?}");
        }
        let workload = analysis.workloads.remove(0);
        let of =
            |metric: &str| workload.exploratory.iter().find(|one| one.metric == metric).unwrap();
        assert_eq!((of("flushes").verdict, of("flushes").ratio), (Verdict::Slower, Some(2.0)));
        assert_eq!(of("bytes written").verdict, Verdict::Same { within: 0.05 });
        // Nothing was read, so nothing is said of it; and two blocks say nothing of the time.
        assert!(!workload.exploratory.iter().any(|one| one.metric == "bytes read"));
        assert_eq!(workload.comparisons[0].verdict, Verdict::Inconclusive);
        assert!(workload.comparisons[0].primary && !of("flushes").primary);
    }
}
