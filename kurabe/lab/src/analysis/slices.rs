//! What the turns of a workload tell that the means of its trials do not: slow ones among them, what
//! their order did, file systems that differ from block to block, work that others had to suffer.
//!
//! It reads [`Record::slices`] and gives no figure: a block counts once, however many turns it has.

use std::collections::BTreeMap;

use super::samples::Samples;
use crate::plan::Plan;
use crate::record::{DeviceDelta, Record, TIME_METRIC};
use crate::slice::RunRecord;
use crate::statistics::{self, OrderEffect, OrderedRun};
use crate::warning::{Warning, WarningKind};
use crate::words;
use crate::workload::Unit;

/// Fewest rounds of a block in which the order is looked at.
const ROUNDS_MIN: usize = 4;
/// An order that bends a ratio by less than this leaves it as good as it was.
const BENT_MAX: f64 = 0.01;
/// Idle work above this share of what a contender does in its own turns is told.
const IDLE_SHARE_MAX: f64 = 0.1;
/// Below this a turn, it is a superblock now and then.
const IDLE_BYTES_MIN: f64 = (64 << 10) as f64;

type Figure = (String, Unit);

/// Whether each of a record's slices is a whole run, and no cell of one.
pub(super) fn are_whole_runs(record: &Record) -> bool {
    let names =
        |slice: &RunRecord| slice.metrics.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    let alike = record.slices.windows(2).all(|pair| names(&pair[0]) == names(&pair[1]));
    let of_all = record.metrics().into_iter().next().map(|metric| metric.name);
    let has_it = |slice: &RunRecord| of_all.iter().any(|name| names(slice).contains(name));
    let is_timed = record.load.as_ref().is_none_or(|load| load.metrics.is_empty());
    !record.slices.is_empty() && alike && (is_timed || record.slices.iter().all(has_it))
}

/// Logarithms of the costs of a trial's turns with their slices, in their order; none of a trial
/// whose turns are parts of a run.
fn turns<'a>(record: &'a Record, metric: &str, unit: Unit) -> Vec<(&'a RunRecord, f64)> {
    if !are_whole_runs(record) {
        return Vec::new();
    }
    let cost = |slice: &RunRecord| {
        let own = slice.metrics.iter().find(|own| own.name == metric).map(|own| own.value);
        let time = (metric == TIME_METRIC).then(|| slice.time_ns() as f64);
        let value = own.or(time)?;
        let sign = if unit.more_is_better() { -1.0 } else { 1.0 };
        (value.is_finite() && value > 0.0).then(|| sign * value.ln())
    };
    record.slices.iter().filter_map(|slice| Some((slice, cost(slice)?))).collect()
}

/// By block, the logarithms of the costs of two contenders in the rounds that both have.
pub(super) fn pairs(
    samples: &Samples<'_>,
    places: [usize; 2],
    metric: &str,
    unit: Unit,
) -> Vec<(Vec<f64>, Vec<f64>)> {
    let of_block = |block: usize| {
        let of = |place: usize| -> BTreeMap<u32, f64> {
            let record = samples.completed_in(place, block);
            let turns = record.map_or_else(Vec::new, |record| turns(record, metric, unit));
            turns.into_iter().map(|(slice, cost)| (slice.round, cost)).collect()
        };
        let (under, over) = (of(places[0]), of(places[1]));
        under.iter().filter_map(|(round, cost)| Some((*cost, *over.get(round)?))).unzip()
    };
    (0..samples.blocks()).map(of_block).collect()
}

/// Tells what the turns of a workload cast doubt on.
pub(super) fn tell(plan: &Plan, samples: &Samples<'_>, warnings: &mut Vec<Warning>) {
    let Some(figure) = samples.metrics().into_iter().next() else { return };
    let label = |place: usize| plan.study.contenders[place].label.as_str();
    warnings.extend(order(plan, samples, &figure));
    let baseline = plan.study.baseline;
    for place in 0..samples.records.len() {
        let pairs = pairs(samples, [baseline, place], &figure.0, figure.1);
        let ratio = |(under, over): (Vec<f64>, Vec<f64>)| -> Vec<f64> {
            over.iter().zip(&under).map(|(over, under)| over - under).collect()
        };
        let ratios: Vec<Vec<f64>> = pairs.into_iter().map(ratio).collect();
        if let Some(share) = statistics::instances(&ratios) {
            let (by, baseline) = (words::percent(share), label(baseline));
            warnings.push(Warning::of(
                WarningKind::Instances,
                label(place),
                format!(
                    "its cost relative to {baseline} differs by about {by} from one new file system to the next, more than between runs on the same one; the interval includes this, and only more rounds make it narrower"
                ),
            ));
        }
        warnings.extend(idle_work(label(place), samples.completed(place)));
    }
}

/// What the order of the turns did, where it is significant, and by how much it bends ratios.
fn order(plan: &Plan, samples: &Samples<'_>, (metric, unit): &Figure) -> Option<Warning> {
    let contenders = samples.records.len();
    let mut all: Vec<OrderedRun> = Vec::new();
    let mut rounds = 0;
    for block in 0..samples.blocks() {
        let mut own: Vec<(&RunRecord, usize, f64)> = Vec::new();
        for contender in 0..contenders {
            let of_block = samples.completed_in(contender, block);
            let costs = of_block.map_or_else(Vec::new, |record| turns(record, metric, *unit));
            // Fresh file systems differ, and their turns are of one.
            let mean = costs.iter().map(|(_, cost)| cost).sum::<f64>() / costs.len().max(1) as f64;
            if costs.len() >= ROUNDS_MIN {
                // The mean has its share of each effect.
                let whole = costs.len() as f64 / (costs.len() - 1) as f64;
                own.extend(
                    costs
                        .into_iter()
                        .map(|(slice, cost)| (slice, contender, (cost - mean) * whole)),
                );
            }
        }
        own.sort_by_key(|(slice, ..)| (slice.round, slice.position));
        let mut before: Option<(u32, usize)> = None;
        for (slice, contender, value) in own {
            rounds += usize::from(before.is_none_or(|(round, _)| round != slice.round));
            let previous = before.map(|(_, contender)| contender);
            let first = slice.position == 0;
            all.push(OrderedRun { block: rounds, contender, first, previous, value });
            before = Some((slice.round, contender));
        }
    }
    if contenders < 2 || all.is_empty() {
        return None;
    }
    let found = statistics::order(&all, contenders, plan.study.baseline);
    let label = |place: usize| &plan.study.contenders[place].label;
    let effects = found.effects.iter().map(|effect| match *effect {
        OrderEffect::First { ratio } => {
            format!(
                "the first of a round costs {} times as much as the others",
                words::ratio(ratio)
            )
        }
        OrderEffect::After { contender, least, ratio } => format!(
            "what runs after {} costs {} times as much as what runs after {}",
            label(contender),
            words::ratio(ratio),
            label(least)
        ),
    });
    let effects: Vec<String> = effects.collect();
    if effects.is_empty() {
        return None;
    }
    // What the order added to each contender on average; all of it cancels where all got the same.
    let mut added = vec![(0.0, 0.0); contenders];
    for (turn, value) in all.iter().zip(&found.values) {
        let (sum, count) = &mut added[turn.contender];
        (*sum, *count) = (*sum + turn.value - value, *count + 1.0);
    }
    let means = || added.iter().filter(|(_, count)| *count > 0.0).map(|(sum, count)| sum / count);
    let most = means().fold(f64::NEG_INFINITY, f64::max);
    let bent = (most - means().fold(f64::INFINITY, f64::min)).exp_m1();
    let (by, effects) = (words::percent_up(bent), words::list(&effects));
    Some(if bent < BENT_MAX {
        Warning::new(
            WarningKind::TurnOrder,
            format!(
                "runs depend on their order: {effects}; the order was balanced, so no cost is off by more than {by}"
            ),
        )
    } else {
        Warning::new(
            WarningKind::CarriedOver,
            format!(
                "runs depend on their order: {effects}; costs may be off by up to {by}. Look for a device that is still busy or full, and repeat with --one-at-a-time"
            ),
        )
    })
}

/// Whether a contender's device did much while others had their turn: that is in nobody's cost, and may
/// have slowed them.
fn idle_work<'a>(label: &str, records: impl Iterator<Item = &'a Record>) -> Option<Warning> {
    let bytes = |delta: DeviceDelta| (delta.read_bytes + delta.written_bytes) as f64;
    let (mut idle, mut own, mut count) = (0.0, 0.0, 0.0);
    for slice in records.filter(|one| !one.device_shared).flat_map(|record| &record.slices) {
        if let Some((idle_of, own_of)) = slice.idle_device.zip(slice.device) {
            (idle, own, count) = (idle + bytes(idle_of), own + bytes(own_of), count + 1.0);
        }
    }
    (idle > IDLE_SHARE_MAX * own && idle > IDLE_BYTES_MIN * count).then(|| {
        let each_kib = idle / count / 1024.0;
        let share = if own > 0.0 { format!("{:.0} % of", 100.0 * idle / own) } else { "compared with nothing of".into() };
        Warning::of(
            WarningKind::IdleWork,
            label,
            format!(
                "its device moved {each_kib:.0} KiB per run while others were running, {share} what it moved in its own runs. This is in none of its figures and may have slowed the others; see 'idle_device' in records.jsonl, and compare with --one-at-a-time"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Analysis, analyse};
    use crate::fixture;
    use crate::statistics::Verdict;
    use crate::workload::{Metric, WorkloadReport};

    const BLOCKS: u32 = 6;
    const ROUNDS: u32 = 20;

    /// A turn in a simulated block.
    struct At {
        block: u32,
        round: u32,
        position: u32,
        contender: usize,
        previous: Option<usize>,
    }

    /// Records of turns that cost what `level` says, as a logarithm, with a noise of 2 %; in orders of
    /// which each begins with who ended the last one.
    fn records(plan: &Plan, level: impl Fn(&At) -> f64) -> Vec<Record> {
        records_in_order(plan, <[usize]>::reverse, level)
    }

    fn records_in_order(
        plan: &Plan,
        next: fn(&mut [usize]),
        level: impl Fn(&At) -> f64,
    ) -> Vec<Record> {
        let contenders = plan.study.contenders.len();
        let mut records = Vec::new();
        for block in 0..BLOCKS {
            let mut slices = vec![Vec::new(); contenders];
            let mut previous = None;
            let mut order: Vec<usize> = (0..contenders).collect();
            for round in 0..ROUNDS {
                next(&mut order);
                if (block + round) % 3 == 0 {
                    order[1..].reverse();
                }
                for (position, contender) in order.iter().enumerate() {
                    let position = position as u32;
                    let at = At { block, round, position, contender: *contender, previous };
                    let mixed =
                        (block * 37 + round * 53 + 29 * *contender as u32 + block * round * 11)
                            % 41;
                    let noise = 0.07 * (f64::from(mixed) / 40.0 - 0.5);
                    let run_ns = (15e6 * (level(&at) + noise).exp()) as u64;
                    slices[*contender].push(slice(round, position, run_ns));
                    previous = Some(*contender);
                }
            }
            for (contender, slices) in slices.into_iter().enumerate() {
                let sum: u64 = slices.iter().map(RunRecord::time_ns).sum();
                let mean_ns = sum / slices.len() as u64;
                let mut record = fixture::record(plan, contender, block, mean_ns);
                record.side_by_side = Some(crate::spec::SideBySide { contenders: 2, part: 0 });
                record.slices = slices;
                records.push(record);
            }
        }
        records
    }

    fn slice(round: u32, position: u32, run_ns: u64) -> RunRecord {
        RunRecord {
            round,
            position,
            run_ns,
            sync_ns: 0,
            device: Some(DeviceDelta { written_bytes: 1 << 20, ..DeviceDelta::default() }),
            idle_device: Some(DeviceDelta::default()),
            metrics: Vec::new(),
            watched: None,
        }
    }

    fn told(analysis: &Analysis, kind: WarningKind) -> Vec<&str> {
        let all = analysis.workloads[0].warnings.iter();
        all.filter(|one| one.kind == kind).map(|one| one.text.as_str()).collect()
    }

    const KINDS: [WarningKind; 6] = [
        WarningKind::Modes,
        WarningKind::WarmRuns,
        WarningKind::TurnOrder,
        WarningKind::CarriedOver,
        WarningKind::Instances,
        WarningKind::IdleWork,
    ];

    #[test]
    fn turns_without_a_fault_say_nothing() {
        let plan = fixture::plan(&["ext4", "xfs", "btrfs"], BLOCKS);
        let records = records(&plan, |at| 0.3 * at.contender as f64 + 0.2 * f64::from(at.block));
        let found = analyse(&plan, &records, None);
        for kind in KINDS {
            assert_eq!(told(&found, kind), [""; 0]);
        }
    }

    #[test]
    fn slow_turns_that_a_mean_hides_are_told_and_never_the_same() {
        let plan = fixture::plan(&["ext4", "xfs"], BLOCKS);
        // One in five twice as slow, the others so much faster that the means agree.
        let fifth = |contender: usize| {
            move |at: &At| match at.contender == contender {
                true if (at.round + at.block).is_multiple_of(5) => 2f64.ln() - 1.2f64.ln(),
                true => -1.2f64.ln(),
                false => 0.0,
            }
        };
        let found = analyse(&plan, &records(&plan, |_| 0.0), None);
        assert_eq!(found.workloads[0].comparisons[0].verdict, Verdict::Same { within: 0.05 });
        for (contender, label) in [(1, "xfs"), (0, "ext4")] {
            let found = analyse(&plan, &records(&plan, fifth(contender)), None);
            let one = &found.workloads[0].comparisons[0];
            assert_eq!(one.verdict, Verdict::Inconclusive, "{one:?}");
            let said = told(&found, WarningKind::Modes);
            let expected = format!("{label}: 24 of 120 runs cost ");
            assert!(said.len() == 1 && said[0].starts_with(&expected), "{said:?}");
        }
    }

    #[test]
    fn cold_turns_that_found_something_in_memory_are_named() {
        let plan = fixture::plan(&["ext4", "xfs"], BLOCKS);
        let mut records = records(&plan, |_| 0.0);
        for record in records.iter_mut().filter(|record| record.contender.label == "xfs") {
            let warm = if record.block == 2 { 10 } else { 0 };
            for slice in &mut record.slices {
                let read_bytes = if slice.round < warm { 8 << 10 } else { 700 << 10 };
                slice.device = Some(DeviceDelta { read_bytes, ..DeviceDelta::default() });
            }
        }
        let expected = "xfs: 10 of 120 runs, in round 3, read at most 8 KiB";
        let is_told = |records: &[Record]| {
            let found = analyse(&plan, records, None);
            let said = told(&found, WarningKind::WarmRuns);
            assert!(said.iter().all(|said| said.starts_with(expected)), "{said:?}");
            said.len() == 1
        };
        assert!(is_told(&records));
        // Beside what the workload writes it is little.
        let mut writing = records.clone();
        for slice in writing.iter_mut().flat_map(|record| &mut record.slices) {
            slice.device.iter_mut().for_each(|device| device.written_bytes = 200 << 20);
        }
        assert!(!is_told(&writing));
        // A workload of kurabe's own is no exception, but the cells of a matrix each read what they do.
        let metric = |name: &str| Metric::new(name, 1.0, Unit::Nanoseconds);
        let mut loads = records.clone();
        for record in &mut loads {
            let metrics = vec![metric("put")];
            record.slices.iter_mut().for_each(|slice| slice.metrics = metrics.clone());
            record.load = Some(WorkloadReport { metrics, ..WorkloadReport::default() });
        }
        assert!(is_told(&loads));
        for slice in loads.iter_mut().flat_map(|record| &mut record.slices) {
            slice.metrics[0].name = format!("cell {}", slice.round);
        }
        assert!(!is_told(&loads));
        // A few of many are no mode.
        let is_xfs = |record: &&mut Record| record.contender.label == "xfs";
        for record in records.iter_mut().filter(is_xfs) {
            for slice in record.slices.iter_mut().filter(|slice| slice.round >= 6) {
                slice.device.as_mut().unwrap().read_bytes = 700 << 10;
            }
        }
        assert!(!is_told(&records));
    }

    #[test]
    fn what_the_order_of_turns_does_is_named_with_what_it_bends() {
        let plan = fixture::plan(&["ext4", "xfs", "btrfs"], BLOCKS);
        let first = |at: &At| if at.position == 0 { 1.1f64.ln() } else { 0.0 };
        let found = analyse(&plan, &records(&plan, first), None);
        let said =
            [told(&found, WarningKind::TurnOrder), told(&found, WarningKind::CarriedOver)].concat();
        let [said] = said[..] else { panic!("{said:?}") };
        assert!(said.contains("the first of a round costs 1.10"), "{said}");
        // What runs after xfs suffers, and here xfs itself never runs after itself.
        let after = |at: &At| if at.previous == Some(1) { 1.2f64.ln() } else { 0.0 };
        let found = analyse(&plan, &records(&plan, after), None);
        let said = told(&found, WarningKind::TurnOrder);
        assert!(said.len() == 1 && said[0].contains("what runs after xfs costs 1.2"), "{said:?}");
        let records = records_in_order(&plan, |order| order.rotate_left(1), after);
        let found = analyse(&plan, &records, None);
        let said = told(&found, WarningKind::CarriedOver);
        let [said] = said[..] else { panic!("{said:?}") };
        assert!(said.contains("what runs after xfs costs 1.2"), "{said}");
        assert!(said.contains("costs may be off by up to "), "{said}");
    }

    #[test]
    fn fresh_file_systems_that_differ_are_told() {
        let plan = fixture::plan(&["ext4", "xfs"], BLOCKS);
        let shared =
            |at: &At| if at.contender == 1 && at.block.is_multiple_of(2) { 0.05 } else { 0.0 };
        let found = analyse(&plan, &records(&plan, shared), None);
        let said = told(&found, WarningKind::Instances);
        let expected = "xfs: its cost relative to ext4 differs by about ";
        assert!(said.len() == 1 && said[0].starts_with(expected), "{said:?}");
    }

    #[test]
    fn work_while_others_had_their_turn_is_told() {
        let plan = fixture::plan(&["ext4", "xfs"], BLOCKS);
        let mut records = records(&plan, |_| 0.0);
        let idle = |records: &mut [Record], written_bytes: u64| {
            let of_xfs = records.iter_mut().filter(|record| record.contender.label == "xfs");
            for slice in of_xfs.flat_map(|record| &mut record.slices) {
                slice.idle_device = Some(DeviceDelta { written_bytes, ..DeviceDelta::default() });
            }
            let found = analyse(&plan, records, None);
            told(&found, WarningKind::IdleWork).into_iter().map(String::from).collect::<Vec<_>>()
        };
        // A tenth of what its own turns write.
        assert_eq!(idle(&mut records, 104_857), [""; 0]);
        let said = idle(&mut records, 204_800);
        assert!(said[0].starts_with("xfs: its device moved 200 KiB per run"), "{said:?}");
        assert!(said.len() == 1 && said[0].contains("20 % of what it moved"), "{said:?}");
        for slice in records.iter_mut().flat_map(|record| &mut record.slices) {
            slice.device = Some(DeviceDelta::default());
        }
        assert_eq!(idle(&mut records, 64 << 10), [""; 0]);
        assert!(idle(&mut records, 65 << 10)[0].contains("compared with nothing"));
    }
}
