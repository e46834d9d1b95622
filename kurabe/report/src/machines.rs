//! One study on several machines: what contenders cost on each, on machines like these, and on the next.
//!
//! Costs are computed within each shard, so that no figure of one machine is ever held against one of
//! another; only costs are pooled. What differs between the machines is told.

use lab::analysis::Comparison;
use lab::record::{Outcome, Record};
use lab::statistics::{AcrossMachines, ComparisonOptions, across_machines};
use lab::words::{counted, list, ratio, ratio_with_interval};
use lab::workload::Unit;
use serde::{Deserialize, Serialize};
use trust::words::pasted;

use crate::across::facts_that_differ;
use crate::chart::{Axis, Chart, ChartSeries, Guide, LegendEntry, Point, SeriesStyle, row_offset};
use crate::document::Block;
use crate::source::ResultSource;
use crate::table::{Cell, Table};
use crate::tables::{tone_of, verdict_text};
use crate::text;

/// A shard that is not there, or not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub number: u32,
    /// Where it is, if it was named.
    pub directory: Option<String>,
}

/// The shards of a study, joined.
#[derive(Debug)]
pub struct Merged<'a> {
    /// The shards, in the order of their numbers; at least one.
    pub sources: &'a [ResultSource],
    pub machines: Vec<ResultMachine>,
    /// Whether all shards ran on one machine, so that each of them counts as a machine does.
    pub is_one_machine: bool,
    pub workloads: Vec<MergedWorkload>,
    /// The shards that are not there or not complete.
    pub missing: &'a [Missing],
}

/// A machine, or a shard where there is one machine only.
#[derive(Debug)]
pub struct ResultMachine {
    /// What it is called here: `machine 1`.
    pub name: String,
    /// Its shards, by their places.
    pub shards: Vec<usize>,
}

#[derive(Debug, Serialize)]
pub struct MergedWorkload {
    pub workload: String,
    /// A cost for each contender and metric that the study's error rate is promised for.
    pub costs: Vec<MergedCost>,
}

/// What one contender costs relative to the baseline.
#[derive(Debug, Serialize)]
pub struct MergedCost {
    pub contender: String,
    pub baseline: String,
    pub metric: String,
    pub unit: Unit,
    /// The cost on each machine; absent where it was not measured.
    pub each: Vec<Option<f64>>,
    /// Rounds in which it was measured, on each machine.
    pub rounds: Vec<usize>,
    /// What they say together.
    pub pooled: AcrossMachines,
}

impl<'a> Merged<'a> {
    /// Joins shards.
    pub fn new(sources: &'a [ResultSource], missing: &'a [Missing]) -> Merged<'a> {
        let mut by_identity: Vec<(Option<&str>, Vec<usize>)> = Vec::new();
        for (place, source) in sources.iter().enumerate() {
            let identity = identity(source);
            // One that does not say which it is may be any.
            match by_identity.iter_mut().find(|one| one.0 == identity && identity.is_some()) {
                Some((_, shards)) => shards.push(place),
                None => by_identity.push((identity, vec![place])),
            }
        }
        let is_one_machine = by_identity.len() == 1 && sources.len() > 1;
        let groups: Vec<Vec<usize>> = if is_one_machine {
            (0..sources.len()).map(|place| vec![place]).collect()
        } else {
            by_identity.into_iter().map(|(_, shards)| shards).collect()
        };
        let name = |(place, shards): (usize, Vec<usize>)| ResultMachine {
            name: match (is_one_machine, sources[shards[0]].plan.shard) {
                (true, Some(shard)) => format!("shard {}", shard.number),
                _ => format!("machine {}", place + 1),
            },
            shards,
        };
        let machines: Vec<ResultMachine> = groups.into_iter().enumerate().map(name).collect();
        let mut workloads: Vec<MergedWorkload> = Vec::new();
        let names = sources.iter().flat_map(|source| &source.analysis.workloads);
        for workload in text::distinct(names.map(|one| one.workload.as_str())) {
            workloads.push(MergedWorkload {
                workload: workload.into(),
                costs: costs(sources, &machines, workload),
            });
        }
        pool(&mut workloads, sources[0].plan.study.same_within);
        Merged { sources, machines, is_one_machine, workloads, missing }
    }

    /// `3 machines`, `one machine`.
    fn ground(&self) -> String {
        if self.is_one_machine {
            "one machine".into()
        } else {
            counted(self.machines.len(), "machine")
        }
    }
}

/// What tells the machine of a shard from others.
fn identity(source: &ResultSource) -> Option<&str> {
    source.facts.as_ref()?.pointer("/machine/identity")?.as_str()
}

/// The costs on each machine: those of its shards, weighted by their rounds.
fn costs<'a>(
    sources: &'a [ResultSource],
    machines: &[ResultMachine],
    workload: &str,
) -> Vec<MergedCost> {
    let of = |source: &'a ResultSource| -> Vec<&'a Comparison> {
        let found = source.analysis.workload(workload);
        let all = found.into_iter().flat_map(|found| &found.comparisons);
        all.filter(|one| one.primary && one.cost().is_some()).collect()
    };
    let shards: Vec<Vec<&Comparison>> = sources.iter().map(of).collect();
    let keys = shards.iter().flatten();
    let keys =
        text::distinct(keys.map(|one| (&one.contender, &one.baseline, &one.metric, one.unit)));
    let cost = |(contender, baseline, metric, unit): (&String, &String, &String, Unit)| {
        let is_it = |one: &&&Comparison| {
            (&one.contender, &one.baseline, &one.metric) == (contender, baseline, metric)
        };
        let on = |machine: &ResultMachine| {
            let found: Vec<(f64, usize)> = machine
                .shards
                .iter()
                .filter_map(|place| shards[*place].iter().find(is_it))
                .filter_map(|one| Some((one.cost()?, one.blocks)))
                .collect();
            let rounds: usize = found.iter().map(|(_, rounds)| rounds).sum();
            let logs: f64 = found.iter().map(|(cost, rounds)| cost.ln() * *rounds as f64).sum();
            ((rounds > 0).then(|| (logs / rounds as f64).exp()), rounds)
        };
        let (each, rounds): (Vec<_>, Vec<_>) = machines.iter().map(on).unzip();
        MergedCost {
            contender: contender.clone(),
            baseline: baseline.clone(),
            metric: metric.clone(),
            unit,
            each,
            rounds,
            pooled: across_machines(&[[]; 1], &ComparisonOptions::default())
                .expect("there is nothing to refuse")[0],
        }
    };
    keys.into_iter().map(cost).collect()
}

/// Pools all costs, as one family.
fn pool(workloads: &mut [MergedWorkload], same_within: f64) {
    let family: Vec<Vec<f64>> = workloads
        .iter()
        .flat_map(|workload| &workload.costs)
        .map(|cost| cost.each.iter().flatten().copied().collect())
        .collect();
    let options = ComparisonOptions { same_within, ..ComparisonOptions::default() };
    let pooled = across_machines(&family, &options)
        .expect("costs are positive, and the margin was checked with the study");
    let all = workloads.iter_mut().flat_map(|workload| &mut workload.costs);
    for (cost, pooled) in all.zip(pooled) {
        cost.pooled = pooled;
    }
}

/// All that is said of shards together.
pub fn document(merged: &Merged<'_>) -> Vec<Block> {
    let mut blocks = vec![Block::Text(origin(merged))];
    for (index, workload) in merged.workloads.iter().enumerate() {
        blocks.push(Block::heading(2, format!("m{}", index + 1), workload.workload.clone()));
        if workload.costs.is_empty() {
            blocks.push(Block::Warning("no shard has a cost under this workload".into()));
            continue;
        }
        blocks.push(Block::Answer(sentence(merged, workload)));
        blocks.push(Block::table("Cost on all machines", cost_table(merged, workload)));
        blocks.extend(chart(merged, workload, index).map(Block::Chart));
        blocks.push(Block::table("Cost on each machine", each_table(merged, workload)));
    }
    blocks.extend(warnings(merged).into_iter().map(Block::Warning));
    blocks.push(Block::Note(method(merged)));
    let places: Vec<&ResultSource> =
        merged.machines.iter().map(|machine| &merged.sources[machine.shards[0]]).collect();
    let names: Vec<String> = merged.machines.iter().map(|machine| machine.name.clone()).collect();
    let differences = facts_that_differ(&places, &names);
    if !differences.rows.is_empty() && !merged.is_one_machine {
        const TITLE: &str = "What differs between the machines";
        blocks.push(Block::fold(TITLE, vec![Block::table(TITLE, differences)]));
    }
    blocks
}

pub fn page(name: &str, blocks: &[Block]) -> Vec<Block> {
    let title = Block::heading(1, "", format!("{name}, merged"));
    std::iter::once(title).chain(blocks.iter().cloned()).collect()
}

/// `tar: 12 of 12 shards, on 3 machines, seed 7`.
fn origin(merged: &Merged<'_>) -> String {
    let plan = &merged.sources[0].plan;
    let of = plan.shard.map_or(merged.sources.len(), |shard| shard.of as usize);
    let seed = plan.shard.map_or(plan.seed, |shard| shard.seed);
    format!(
        "{}: {} of {}, on {}, seed {seed}",
        plan.study.name,
        merged.sources.len(),
        counted(of, "shard"),
        merged.ground(),
    )
}

/// `On 3 machines, xfs costs 1.040 (1.010 to 1.070) relative to ext4 and is slower; ...`
fn sentence(merged: &Merged<'_>, workload: &MergedWorkload) -> String {
    let of_first = |cost: &&MergedCost| cost.metric == workload.costs[0].metric;
    let each = workload.costs.iter().filter(of_first).map(|cost| {
        let ends = cost.pooled.interval.map(|interval| (interval.low, interval.high));
        let value = cost.pooled.cost.map_or("-".into(), |value| ratio_with_interval(value, ends));
        let verdict = verdict_text(&cost.pooled.verdict);
        format!("{} costs {value} relative to {} ({verdict})", cost.contender, cost.baseline)
    });
    format!("On {}, {}.", merged.ground(), list(&each.collect::<Vec<_>>()))
}

fn is_one_metric(workload: &MergedWorkload) -> bool {
    workload.costs.iter().all(|cost| cost.metric == workload.costs[0].metric)
}

/// What a row is called: the contender, and the metric where there are several.
fn row_name(workload: &MergedWorkload, cost: &MergedCost) -> String {
    if is_one_metric(workload) {
        cost.contender.clone()
    } else {
        format!("{}, {}", cost.contender, cost.metric)
    }
}

fn cost_table(merged: &Merged<'_>, workload: &MergedWorkload) -> Table {
    let baseline = &workload.costs[0].baseline;
    let next = if merged.is_one_machine { "the next shard" } else { "the next machine" };
    let count = if merged.is_one_machine { "shards" } else { "machines" };
    let mut table = Table::new(&[
        "contender",
        count,
        &format!("cost relative to {baseline} (95 % confidence)"),
        next,
        "verdict",
    ]);
    for cost in &workload.costs {
        let AcrossMachines { machines, cost: value, interval, next, verdict } = cost.pooled;
        let ends = interval.map(|interval| (interval.low, interval.high));
        let shown = value.map_or("-".into(), |value| ratio_with_interval(value, ends));
        table.rows.push(vec![
            row_name(workload, cost).into(),
            Cell::whole(machines as u64),
            Cell::from(shown).valued(value),
            match next {
                Some(next) => format!("{} to {}", ratio(next.low), ratio(next.high)).into(),
                None => "-".into(),
            },
            Cell::toned(verdict_text(&verdict), tone_of(&verdict)),
        ]);
    }
    table.without_empty_columns()
}

/// A row for each machine, a column for each contender.
fn each_table(merged: &Merged<'_>, workload: &MergedWorkload) -> Table {
    let what = if merged.is_one_machine { "shard" } else { "machine" };
    let shards = (!merged.is_one_machine).then(|| "shards".to_string());
    let heads = std::iter::once(what.to_string()).chain(shards).chain(["rounds".into()]);
    let names = workload.costs.iter().map(|cost| row_name(workload, cost));
    let mut table = Table { heads: heads.chain(names).collect(), rows: Vec::new() };
    for (place, machine) in merged.machines.iter().enumerate() {
        let number = |shard: &usize| merged.sources[*shard].plan.shard.map(|one| one.number);
        let numbers: Vec<u32> = machine.shards.iter().filter_map(number).collect();
        let rounds = workload.costs.iter().map(|cost| cost.rounds[place]).max().unwrap_or(0);
        let mut row: Vec<Cell> = vec![machine.name.as_str().into()];
        if !merged.is_one_machine {
            row.push(ranges(&numbers).into());
        }
        row.push(Cell::whole(rounds as u64));
        row.extend(workload.costs.iter().map(|cost| match cost.each[place] {
            Some(value) => Cell::number(value, ratio(value)),
            None => "-".into(),
        }));
        table.rows.push(row);
    }
    table
}

/// Numbers in ascending order: `1 to 4, 7`.
fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let words = parts.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Every machine a point, the mean with its interval, and where the next machine is expected.
fn chart(merged: &Merged<'_>, workload: &MergedWorkload, index: usize) -> Option<Chart> {
    let study = &merged.sources[0].plan.study;
    let baseline = &workload.costs[0].baseline;
    let shown: Vec<&MergedCost> =
        workload.costs.iter().filter(|cost| cost.metric == workload.costs[0].metric).collect();
    let (mut series, mut said) = (Vec::new(), Vec::new());
    for (row, cost) in shown.iter().enumerate() {
        let key = study.contenders.iter().position(|one| one.label == cost.contender)?;
        let each = merged.machines.iter().zip(&cost.each).enumerate();
        let dots = each.filter_map(|(place, (machine, value))| {
            let words = format!("{}, {}: {}", cost.contender, machine.name, ratio((*value)?));
            Some(Point::at((*value)?, row as f64 + row_offset(place) + 0.2, words))
        });
        series.push(ChartSeries { key, mark: SeriesStyle::Dots, points: dots.collect() });
        if let Some(value) = cost.pooled.cost {
            let ends = cost.pooled.interval.map(|interval| (interval.low, interval.high));
            let words = format!("{}: {}", cost.contender, ratio_with_interval(value, ends));
            let point = Point::at(value, row as f64 - 0.14, words.clone()).between(ends);
            series.push(ChartSeries { key, mark: SeriesStyle::Interval, points: vec![point] });
            said.push(words);
        }
    }
    let x = Axis::of_ratios(format!("cost relative to {baseline}"), &series)?;
    let y = Axis::rows(shown.iter().map(|cost| cost.contender.as_str()));
    let what = if merged.is_one_machine { "shard" } else { "machine" };
    let keys = study.contenders.iter().enumerate();
    let keys =
        keys.map(|(style, contender)| LegendEntry::contender(&contender.label, style)).collect();
    Some(Chart {
        says: format!(
            "{}. Each dot is one {what}; the large symbol is their mean with its interval.",
            said.join("; ")
        ),
        height: 84 + 52 * shown.len() as u32,
        keys,
        legend: false,
        series,
        guides: Guide::of_ratios(baseline, study.same_within),
        numbers: cost_table(merged, workload),
        ..Chart::new(format!("m{}-cost", index + 1), format!("Cost on each {what}"), x, y)
    })
}

fn warnings(merged: &Merged<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for Missing { number, directory } in merged.missing {
        warnings.push(match directory {
            Some(directory) => {
                let pasted = pasted(directory);
                format!(
                    "shard {number} is not complete; run it with 'kurabe run {pasted}', then merge again"
                )
            }
            None => format!("shard {number} was not named; run it, then merge again"),
        });
    }
    if merged.is_one_machine || merged.machines.len() == 1 {
        warnings.push(
            "all shards ran on one machine: the interval says how far its rounds agree, and nothing about other machines".into(),
        );
    }
    for source in merged.sources {
        let number = source.plan.shard.map_or(0, |shard| shard.number);
        let mut identities: Vec<&str> = source
            .earlier_facts
            .iter()
            .chain(&source.facts)
            .filter_map(|facts| facts.pointer("/machine/identity")?.as_str())
            .collect();
        identities.sort_unstable();
        identities.dedup();
        if identities.len() > 1 {
            warnings.push(format!(
                "shard {number} was resumed on another machine, and counts for the last one"
            ));
        }
        let has_failed = |record: &&Record| {
            matches!(record.outcome, Outcome::Failed { .. } | Outcome::TimedOut { .. })
        };
        let failed = source.records.iter().filter(has_failed).count();
        if failed > 0 {
            warnings.push(format!(
                "shard {number}: {} failed: kurabe report {}",
                counted(failed, "run"),
                pasted(&source.name)
            ));
        }
        if !source.damage.is_empty() {
            warnings.push(format!("shard {number}: {}", source.damage.join("; ")));
        }
    }
    warnings
}

/// How the figures were made.
fn method(merged: &Merged<'_>) -> String {
    let what = if merged.is_one_machine { "shard" } else { "machine" };
    format!(
        "Costs are computed within each {what}, and every {what} counts the same (random effects with the correction of Hartung and Knapp). 95 % confidence, corrected for multiple comparisons; the range for the next {what} is not corrected."
    )
}
