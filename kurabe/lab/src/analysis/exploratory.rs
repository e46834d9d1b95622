//! What else the records tell of a contender against the baseline: bytes, flushes, CPU time, space,
//! percentiles of operations. Exploratory: they have a correction of their own and decide nothing.

use super::Comparison;
use super::cost::{command_cpu_ns, written_by_load};
use super::primary::others;
use super::samples::{Costs, Samples};
use super::zero::{constant, of_constants};
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
    of: Reader,
}

impl Quantity {
    fn new(name: &str, unit: Unit, of: impl Fn(&Record) -> Option<f64> + 'static) -> Quantity {
        Quantity { name: name.into(), unit, of: Box::new(of) }
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

/// What the device does for each byte, and for each MiB, that the workload writes: compared where contenders have
/// different numbers of nodes and so different amounts of work.
pub const COUNTED_PER_WORK: [&str; 2] = ["bytes written per byte", "flushes per MiB"];

/// The quantities of these names; none of contenders with the same number of nodes.
fn counts_per_work(plan: &Plan) -> Vec<Quantity> {
    let nodes = |contender: &Contender| contender.environment.nodes();
    let contenders = &plan.study.contenders;
    if contenders.iter().all(|one| nodes(one) == nodes(&contenders[0])) {
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

/// One of these as a cost, by contender and block.
pub(super) fn counted(samples: &Samples<'_>, name: &str) -> Option<Costs> {
    let quantity = counts().into_iter().find(|quantity| quantity.name == name)?;
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
    quantities.extend(counts_per_work(plan));
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
    let quantities = quantities(samples, plan);
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
    use crate::record::{DeviceDelta, Phase, PhaseRecord};
    use crate::slice::RunRecord;
    use crate::spec::Cache;
    use crate::statistics::Verdict;

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
