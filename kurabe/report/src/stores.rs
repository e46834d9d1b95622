//! What a store costs relative to another one that lies on the same stack: the question of a study whose
//! contenders are stores, which comparisons with one baseline leave open.

use lab::analysis::{Analysis, Comparison, WorkloadAnalysis, store_pairs};
use lab::contender::Contender;
use lab::plan::Plan;
use lab::words::ratio_with_interval;

use crate::document::Block;
use crate::quotient::{WITHHELD, cost_text};
use crate::table::{Cell, Table};
use crate::tables::{primary_metric, verdict_mark};
use crate::text;

/// A sentence for each store that shares a stack with the first one, and a table where there are several
/// workloads. Nothing where comparisons with the baseline say the same.
pub fn blocks(analysis: &Analysis, plan: &Plan) -> Vec<Block> {
    let Some((reference, pairs)) = store_pairs(plan) else { return Vec::new() };
    let workloads = analysis.workloads.as_slice();
    let of_baseline = |[under, _]: &[usize; 2]| *under == plan.study.baseline;
    if workloads.len() == 1 && pairs.values().flatten().all(of_baseline) {
        return Vec::new();
    }
    // On how many stacks most stores are compared: a store that is on fewer has one sentence with all such.
    let most = pairs.values().map(Vec::len).max().unwrap_or(0);
    let mut elsewhere = Vec::new();
    let mut blocks = Vec::new();
    for (store, pairs) in pairs {
        let is_elsewhere = pairs.len() < most && workloads.len() > 1;
        let pairs: Vec<Pair<'_>> = pairs.into_iter().map(|pair| Pair::of(pair, plan)).collect();
        match workloads {
            [workload] => blocks.push(Block::Answer(sentence(store, reference, &pairs, workload))),
            _ if is_elsewhere => elsewhere.extend(mean_text(store, &pairs, analysis)),
            _ => blocks.extend(of_several(store, reference, &pairs, analysis)),
        }
    }
    if !elsewhere.is_empty() {
        let all = text::list(&elsewhere);
        blocks.push(Block::Answer(format!(
            "Relative to {reference}, on average over the workloads: {all}."
        )));
    }
    blocks
}

/// The geometric mean of a store's costs with its interval. None where no round has all.
fn mean(store: &str, analysis: &Analysis) -> Option<String> {
    analysis.stores.iter().find(|one| one.contender == store).and_then(cost_text)
}

/// `rocksdb 0.610 (0.550 to 0.680) on ext4`.
fn mean_text(store: &str, pairs: &[Pair<'_>], analysis: &Analysis) -> Option<String> {
    let mean = mean(store, analysis)?;
    let stacks: Vec<String> = pairs.iter().map(|pair| pair.stack.clone()).collect();
    Some(format!("{store} {mean} on {}", text::list(&stacks)))
}

/// Two contenders of which the stores alone differ.
struct Pair<'a> {
    /// The one with the store to which the other is compared.
    under: &'a Contender,
    over: &'a Contender,
    /// What both lie on: the file system, or the whole stack where that is not enough to tell.
    stack: String,
}

impl<'a> Pair<'a> {
    fn of([under, over]: [usize; 2], plan: &'a Plan) -> Pair<'a> {
        let contenders = &plan.study.contenders;
        let (under, over) = (&contenders[under], &contenders[over]);
        let is_like =
            |one: &&Contender| one.store == under.store && one.file_system() == under.file_system();
        let is_short = contenders.iter().filter(is_like).count() == 1;
        let stack = if is_short { under.file_system().to_string() } else { under.below_store() };
        Pair { under, over, stack }
    }
}

/// A cost with its interval, and what it says.
struct CostText {
    cost: f64,
    ends: Option<(f64, f64)>,
    comparison: Comparison,
}

impl CostText {
    /// The cost of the one contender of a pair relative to the other, as the study's comparisons have it.
    fn of(pair: &Pair<'_>, workload: &WorkloadAnalysis) -> Option<CostText> {
        let metric = primary_metric(workload);
        let between = |under: &str, over: &str| {
            let mut all = workload.comparisons.iter().chain(&workload.direct);
            let is_it = |one: &&Comparison| {
                one.metric == metric && one.baseline == under && one.contender == over
            };
            let one = all.find(is_it)?;
            Some((one.cost()?, one.cost_ends(), one.clone()))
        };
        let (under, over) = (&pair.under.label, &pair.over.label);
        let (cost, ends, comparison) = between(under, over).or_else(|| {
            let (cost, ends, comparison) = between(over, under)?;
            Some((cost.recip(), ends.map(|(low, high)| (high.recip(), low.recip())), comparison))
        })?;
        Some(CostText { cost, ends, comparison })
    }

    fn words(&self) -> String {
        ratio_with_interval(self.cost, self.ends)
    }

    /// Whether it is surely below 1.
    fn is_cheaper(&self) -> bool {
        let is_open = verdict_mark(&self.comparison.verdict) == "?";
        !is_open && self.ends.is_some_and(|(_, high)| high < 1.0)
    }

    /// Whether it is surely above 1.
    fn is_dearer(&self) -> bool {
        let is_open = verdict_mark(&self.comparison.verdict) == "?";
        !is_open && self.ends.is_some_and(|(low, _)| low > 1.0)
    }
}

/// `Relative to cannyls, lump costs 0.610 (0.550 to 0.680) on ext4 and 0.700 (0.600 to 0.800) on raw.`
fn sentence(
    store: &str,
    reference: &str,
    pairs: &[Pair<'_>],
    workload: &WorkloadAnalysis,
) -> String {
    let on = |pair: &Pair<'_>| {
        let words =
            CostText::of(pair, workload).map_or_else(|| WITHHELD.into(), |cost| cost.words());
        format!("{words} on {}", pair.stack)
    };
    let costs: Vec<String> = pairs.iter().map(on).collect();
    format!("Relative to {reference}, {store} costs {}.", text::list(&costs))
}

/// One sentence over all workloads and stacks, and the table of what it is made of.
fn of_several(store: &str, reference: &str, pairs: &[Pair<'_>], analysis: &Analysis) -> Vec<Block> {
    let mut table = Table::new(&["workload"]);
    table.heads.extend(pairs.iter().map(|pair| format!("on {}", pair.stack)));
    let mut all: Vec<CostText> = Vec::new();
    for workload in &analysis.workloads {
        let mut row = vec![Cell::from(workload.workload.as_str())];
        for pair in pairs {
            let cost = CostText::of(pair, workload);
            row.push(Cell::maybe(cost.as_ref().map(|cost| cost.cost), |_| {
                cost.as_ref().map_or_else(String::new, CostText::words)
            }));
            all.extend(cost);
        }
        table.rows.push(row);
    }
    if all.is_empty() {
        return Vec::new();
    }
    let (cheaper, dearer) = (
        all.iter().filter(|one| one.is_cheaper()).count(),
        all.iter().filter(|one| one.is_dearer()).count(),
    );
    let counted = text::counted(all.len(), "comparison");
    let mean = mean(store, analysis);
    let sure = format!("{counted}: surely less in {cheaper}, surely more in {dearer}");
    let sentence = match mean {
        Some(mean) => format!(
            "{store} costs {mean} times as much as {reference}, as the geometric mean of {sure}."
        ),
        // No round has all of them.
        None => format!("{store} relative to {reference}, in {sure}."),
    };
    let caption = format!("Cost of {store} relative to {reference}");
    vec![Block::Answer(sentence), Block::table(caption, table)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::analysis::analyse;
    use lab::contender::Known;
    use lab::record::{Phase, PhaseRecord, Record};
    use lab::study::{CommandText, StudyText, WorkloadText};

    const KNOWN: &[Known] = &[
        Known { name: "ext4", is_store: false, flags: "", paths: "" },
        Known { name: "raw", is_store: false, flags: "", paths: "" },
        Known::store("lump"),
        Known::store("cannyls"),
    ];

    fn plan(contenders: &[&str], workloads: &[&str]) -> Plan {
        let workload = |line: &&str| WorkloadText {
            command: Some(CommandText::Line(line.to_string())),
            ..Default::default()
        };
        let text = StudyText {
            contenders: contenders.iter().map(ToString::to_string).collect(),
            runs: Some(6),
            workloads: workloads.iter().map(workload).collect(),
            ..Default::default()
        };
        Plan::new(text.resolve(KNOWN).unwrap(), 1)
    }

    /// What is said where a run of lump takes half as long as one of another store.
    fn said(plan: &Plan) -> (Analysis, Vec<Block>) {
        let mut records = Vec::new();
        for (number, block) in plan.blocks.iter().enumerate() {
            for trial in &block.trials {
                let spec = plan.spec(block, *trial, None, "/nowhere".into());
                let mut record = Record::begun(&spec, 0);
                let is_lump = record.contender.store.as_deref() == Some("lump");
                let noise = (number as u64 * 7 + u64::from(trial.trial) * 3) % 5;
                let elapsed_ns = (if is_lump { 500_000 } else { 1_000_000 }) * (100 + noise);
                let phase =
                    |phase| PhaseRecord { phase, elapsed_ns, device: None, machine_cpu_ns: None };
                record.phases = [Phase::Run, Phase::Sync].map(phase).into();
                records.push(record);
            }
        }
        let analysis = analyse(plan, &records, None);
        let blocks = blocks(&analysis, plan);
        (analysis, blocks)
    }

    const STORES: &[&str] =
        &["cannyls over ext4", "lump over ext4", "lump over raw", "cannyls over raw"];

    #[test]
    fn a_store_is_compared_on_each_stack_with_the_baselines() {
        let (_, blocks) = said(&plan(STORES, &["a"]));
        let [Block::Answer(sentence)] = blocks.as_slice() else { panic!("{blocks:?}") };
        assert!(sentence.starts_with("Relative to cannyls, lump costs 0.49"), "{sentence}");
        assert!(sentence.contains(" on ext4 and 0.5") && sentence.ends_with(" on raw."));
    }

    #[test]
    fn several_workloads_have_one_sentence_and_a_table() {
        let (analysis, blocks) = said(&plan(STORES, &["a", "b"]));
        let [Block::Answer(sentence), Block::Table { table, .. }] = blocks.as_slice() else {
            panic!("{blocks:?}")
        };
        let mean = &analysis.stores[0];
        let (low, high) = mean.cost_ends().unwrap();
        assert!(low < 0.5 && 0.5 < high && high < 0.52, "{mean:?}");
        let of = "as the geometric mean of 4 comparisons: surely less in 4, surely more in 0.";
        let mean = cost_text(mean).unwrap();
        assert_eq!(*sentence, format!("lump costs {mean} times as much as cannyls, {of}"));
        assert_eq!(table.heads, ["workload", "on ext4", "on raw"]);
        assert!(table.rows[1][2].text.starts_with("0.5"), "{table:?}");
    }

    #[test]
    fn nothing_is_said_that_comparisons_with_the_baseline_say() {
        assert!(said(&plan(&["cannyls over raw", "lump over raw"], &["a"])).1.is_empty());
        assert!(said(&plan(&["ext4", "raw"], &["a", "b"])).1.is_empty());
        assert!(said(&plan(&["lump over ext4", "cannyls over raw"], &["a", "b"])).1.is_empty());
    }
}
