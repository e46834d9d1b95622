//! What a store costs relative to another one that lies on the same stack: the question of a study whose contenders
//! are stores, which comparisons with one baseline leave open. Over several workloads and stacks the mean of the costs is
//! computed within each round, as in [`super::overall`].

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Comparison;
use super::overall::{self, MEAN_OF_COSTS};
use super::primary::{Predecessors, Primary, group};
use super::samples::Samples;
use crate::contender::Contender;
use crate::plan::Plan;
use crate::record::Record;
use crate::statistics::{self, ComparisonOptions, Group};
use crate::workload::Unit;

/// Places of two contenders of which the stores alone differ, the one of the reference first.
pub type Pair = [usize; 2];

/// The store to which the others are compared, and by each other store the contenders on a stack that both have:
/// the store with the most of these, of several the baseline's or the first one. None without stores.
pub fn store_pairs(plan: &Plan) -> Option<(&str, BTreeMap<&str, Vec<Pair>>)> {
    let contenders = &plan.study.contenders;
    let baseline = contenders.get(plan.study.baseline);
    let stores = baseline.into_iter().chain(contenders).filter_map(|one| one.store.as_deref());
    let of = |reference| (reference, pairs_of(contenders, reference));
    stores.map(of).min_by_key(|(_, pairs)| Reverse(pairs.values().map(Vec::len).sum::<usize>()))
}

fn pairs_of<'a>(contenders: &'a [Contender], reference: &str) -> BTreeMap<&'a str, Vec<Pair>> {
    let mut pairs = BTreeMap::<&str, Vec<Pair>>::new();
    for (under, one) in contenders.iter().enumerate() {
        let stack = one.below_store();
        let is_reference = one.store.as_deref() == Some(reference);
        for (over, other) in contenders.iter().enumerate().filter(|_| is_reference) {
            let store = other.store.as_deref().filter(|store| *store != reference);
            if let Some(store) = store.filter(|_| other.below_store() == stack) {
                pairs.entry(store).or_default().push([under, over]);
            }
        }
    }
    pairs
}

/// Each store against the reference, over all workloads and stacks on which both have a cost; nothing for a single
/// workload. A family of its own.
pub(super) fn compare(
    plan: &Plan,
    records: &[Record],
    samples: &[Samples<'_>],
    primary: &[Primary],
    options: &ComparisonOptions,
) -> Vec<Comparison> {
    let Some((reference, pairs)) = store_pairs(plan).filter(|_| samples.len() > 1) else {
        return Vec::new();
    };
    let before = Predecessors::of(plan, records);
    let together = |(store, pairs): (&str, Vec<Pair>)| {
        let all = samples.iter().zip(primary).flat_map(|(samples, primary)| {
            let of = |[under, over]: &Pair| {
                group(plan, samples, &primary.metric, &before, *under, &[*over]).0
            };
            pairs.iter().map(of).collect::<Vec<_>>()
        });
        let is_known = |costs: &[Option<f64>]| costs.iter().any(Option::is_some);
        let all: Vec<Group> =
            all.filter(|one| is_known(&one.baseline) && is_known(&one.contenders[0])).collect();
        let timed: Vec<&Group> = all.iter().collect();
        (!timed.is_empty()).then(|| (store.to_string(), overall::together(&timed, 1)))
    };
    let (stores, groups): (Vec<String>, Vec<Group>) =
        pairs.into_iter().filter_map(together).unzip();
    let compared = statistics::compare_families(&groups, options)
        .expect("costs are positive, and the margin was checked with the study");
    let metric = (MEAN_OF_COSTS.to_string(), Unit::Count);
    let both = stores.into_iter().zip(compared.into_iter().flatten());
    let both = both.filter(|(_, compared)| compared.pairs > 0);
    both.map(|(store, compared)| Comparison {
        workload: overall::ALL_WORKLOADS.into(),
        contender: store,
        baseline: reference.into(),
        ..Comparison::of(plan, 0, [0, 0], &metric, &compared, false)
    })
    .collect()
}
