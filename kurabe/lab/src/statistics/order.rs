//! Whether a trial's place in its block, or what ran before it, changed its value; and the values
//! without that. The same of turns in their rounds.
//!
//! It takes logarithms of trials with their place and their predecessor. An effect is taken out only
//! where it is significant: the orders of a plan are balanced, so that what is not taken out widens
//! the intervals and does not bend the ratios.

use serde::{Deserialize, Serialize};

use super::compare::Correction;
use super::distribution::fisher_tail;

/// Level at which an effect of the order is believed.
const LEVEL: f64 = 0.01;
/// Fewest degrees of freedom that must be left to believe one.
const FREEDOM_MIN: f64 = 3.0;
/// Effects below this, as a ratio, are not worth a word.
const EFFECT_MIN: f64 = 1.01;

/// One trial in its order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OrderedRun {
    pub block: usize,
    pub contender: usize,
    /// Whether it was the first of its block.
    pub first: bool,
    /// The contender whose trial came before it, whatever the workload; None at the very beginning.
    pub previous: Option<usize>,
    /// Logarithm of its cost.
    pub value: f64,
}

/// An effect of the order, as a ratio of costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "effect")]
pub enum OrderEffect {
    /// The first trial of a block costs so many times as much as the others.
    First { ratio: f64 },
    /// What comes after this contender costs so many times as much as what comes after the one after
    /// which it costs least.
    After {
        contender: usize,
        /// The one after which it costs least.
        least: usize,
        ratio: f64,
    },
}

/// What the order did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrderEffects {
    /// The effects that are significant.
    pub effects: Vec<OrderEffect>,
    /// The turns' values without them, in the order of the turns.
    pub values: Vec<f64>,
    /// By contender, what taking them out costs its comparison with the baseline.
    pub corrections: Vec<Correction>,
}

/// Fits blocks, contenders and the order by least squares, and takes out what of the order is
/// significant by the F test: being first in the block, then what came before.
pub fn order(turns: &[OrderedRun], contenders: usize, baseline: usize) -> OrderEffects {
    let mut columns: Vec<Column> = Vec::new();
    let candidates: [Vec<Column>; 2] =
        [vec![Column::First], (1..contenders).map(Column::After).collect()];
    let mut base = Fit::of(turns, contenders, &columns);
    for candidate in candidates {
        let more: Vec<Column> = columns.iter().chain(&candidate).copied().collect();
        let fit = Fit::of(turns, contenders, &more);
        let gained = base.freedom - fit.freedom;
        if gained < 1.0 || fit.freedom < FREEDOM_MIN {
            continue;
        }
        let residual = fit.squares / fit.freedom;
        let explained = (base.squares - fit.squares).max(0.0) / gained;
        if explained > 0.0 && fisher_tail(explained / residual, gained, fit.freedom) < LEVEL {
            (columns, base) = (more, fit);
        }
    }
    let effects = effects(&columns, &base);
    if effects.is_empty() {
        let values = turns.iter().map(|turn| turn.value).collect();
        return OrderEffects { effects, values, corrections: Vec::new() };
    }
    let values = turns
        .iter()
        .map(|turn| {
            let taken: f64 =
                columns.iter().zip(&base.effects).map(|(column, b)| column.of(turn) * b).sum();
            turn.value - taken
        })
        .collect();
    let corrections = (0..contenders)
        .map(|contender| base.correction(turns, &columns, contender, baseline, contenders))
        .collect();
    OrderEffects { effects, values, corrections }
}

/// The fitted effects that are worth a word.
fn effects(columns: &[Column], fit: &Fit) -> Vec<OrderEffect> {
    let mut found = Vec::new();
    // After contender 0 the effect is 0 by definition.
    let mut after = vec![(0, 0.0)];
    for (column, effect) in columns.iter().zip(&fit.effects) {
        match column {
            Column::First if effect.abs() >= EFFECT_MIN.ln() => {
                found.push(OrderEffect::First { ratio: effect.exp() });
            }
            Column::First => {}
            Column::After(contender) => after.push((*contender, *effect)),
        }
    }
    let by_effect = |one: &&(usize, f64), other: &&(usize, f64)| one.1.total_cmp(&other.1);
    let ends = after.iter().min_by(by_effect).zip(after.iter().max_by(by_effect));
    if let Some((least, most)) = ends
        && most.1 - least.1 >= EFFECT_MIN.ln()
    {
        let ratio = (most.1 - least.1).exp();
        found.push(OrderEffect::After { contender: most.0, least: least.0, ratio });
    }
    found
}

/// What the order may have done to a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Column {
    First,
    After(usize),
}

impl Column {
    fn of(self, turn: &OrderedRun) -> f64 {
        let holds = match self {
            Column::First => turn.first,
            Column::After(contender) => turn.previous == Some(contender),
        };
        f64::from(u8::from(holds))
    }
}

/// A least-squares fit of blocks, contenders and columns of the order.
struct Fit {
    /// Of the columns, 0 where the data cannot tell.
    effects: Vec<f64>,
    /// Covariance of the columns' effects.
    covariance: Vec<Vec<f64>>,
    /// Sum of the squared residuals.
    squares: f64,
    /// Degrees of freedom that are left.
    freedom: f64,
}

impl Fit {
    fn of(turns: &[OrderedRun], contenders: usize, columns: &[Column]) -> Fit {
        let dummies = contenders - 1;
        let width = dummies + columns.len();
        let row = |turn: &OrderedRun| -> Vec<f64> {
            let dummy = (1..contenders).map(|c| f64::from(u8::from(turn.contender == c)));
            let order = columns.iter().map(|column| column.of(turn));
            dummy.chain(order).chain([turn.value]).collect()
        };
        // The blocks' own levels leave by centring each block.
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(turns.len());
        let mut blocks = 0.0;
        for block in turns.chunk_by(|one, other| one.block == other.block) {
            blocks += 1.0;
            let own: Vec<Vec<f64>> = block.iter().map(&row).collect();
            let mean =
                |place: usize| own.iter().map(|row| row[place]).sum::<f64>() / own.len() as f64;
            let means: Vec<f64> = (0..=width).map(mean).collect();
            rows.extend(own.into_iter().map(|row| {
                row.iter().zip(&means).map(|(value, mean)| value - mean).collect::<Vec<f64>>()
            }));
        }
        let product = |one: usize, other: usize| -> f64 {
            rows.iter().map(|row| row[one] * row[other]).sum()
        };
        let moments: Vec<Vec<f64>> =
            (0..width).map(|one| (0..width).map(|other| product(one, other)).collect()).collect();
        let right: Vec<f64> = (0..width).map(|one| product(one, width)).collect();
        let (inverse, rank) = inverse(moments);
        let solved: Vec<f64> = inverse
            .iter()
            .map(|row| row.iter().zip(&right).map(|(entry, value)| entry * value).sum())
            .collect();
        let explained: f64 = solved.iter().zip(&right).map(|(one, other)| one * other).sum();
        let squares = (product(width, width) - explained).max(0.0);
        let freedom = turns.len() as f64 - blocks - rank as f64;
        let variance = if freedom > 0.0 { squares / freedom } else { 0.0 };
        let covariance = inverse[dummies..]
            .iter()
            .map(|row| row[dummies..].iter().map(|entry| entry * variance).collect())
            .collect();
        Fit { effects: solved[dummies..].to_vec(), covariance, squares, freedom }
    }

    /// What the columns' uncertainty adds to a contender's comparison with the baseline: the more,
    /// the less evenly the order fell on the two.
    fn correction(
        &self,
        turns: &[OrderedRun],
        columns: &[Column],
        contender: usize,
        baseline: usize,
        contenders: usize,
    ) -> Correction {
        let blocks = turns.chunk_by(|one, other| one.block == other.block);
        let pairs: Vec<(&OrderedRun, &OrderedRun)> = blocks
            .filter_map(|block| {
                let of = |contender| block.iter().find(|turn| turn.contender == contender);
                of(contender).zip(of(baseline))
            })
            .collect();
        let lean: Vec<f64> = columns
            .iter()
            .map(|column| {
                let sum: f64 =
                    pairs.iter().map(|(own, base)| column.of(own) - column.of(base)).sum();
                sum / pairs.len().max(1) as f64
            })
            .collect();
        let variance = lean
            .iter()
            .zip(&self.covariance)
            .map(|(one, row)| one * row.iter().zip(&lean).map(|(c, two)| c * two).sum::<f64>())
            .sum::<f64>()
            .max(0.0);
        let freedom = columns.len() as f64 / (contenders - 1).max(1) as f64;
        Correction { freedom, variance }
    }
}

/// The inverse of a symmetric matrix by Gauss and Jordan, and its rank; rows and columns that depend
/// on earlier ones are 0 in it.
fn inverse(mut matrix: Vec<Vec<f64>>) -> (Vec<Vec<f64>>, usize) {
    let size = matrix.len();
    let scale: Vec<f64> = (0..size).map(|place| matrix[place][place]).collect();
    let mut inverse: Vec<Vec<f64>> =
        (0..size).map(|row| (0..size).map(|c| f64::from(u8::from(row == c))).collect()).collect();
    let mut kept = vec![false; size];
    for place in 0..size {
        let pivot = matrix[place][place];
        if pivot <= 1e-9 * scale[place].max(1e-300) {
            continue;
        }
        kept[place] = true;
        for column in 0..size {
            matrix[place][column] /= pivot;
            inverse[place][column] /= pivot;
        }
        for row in (0..size).filter(|row| *row != place) {
            let factor = matrix[row][place];
            for column in 0..size {
                matrix[row][column] -= factor * matrix[place][column];
                inverse[row][column] -= factor * inverse[place][column];
            }
        }
    }
    for row in 0..size {
        for column in 0..size {
            if !kept[row] || !kept[column] {
                inverse[row][column] = 0.0;
            }
        }
    }
    (inverse, kept.iter().filter(|kept| **kept).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three contenders in balanced orders, ten blocks: levels 0, 0.1, 0.2, noise of 1 %.
    fn turns(first: f64, after_two: f64) -> Vec<OrderedRun> {
        const ORDERS: [[usize; 3]; 6] =
            [[0, 1, 2], [2, 0, 1], [1, 2, 0], [0, 2, 1], [1, 0, 2], [2, 1, 0]];
        let mut previous = None;
        let mut turns = Vec::new();
        for block in 0..12 {
            for (place, contender) in ORDERS[block % 6].into_iter().enumerate() {
                let noise =
                    0.01 * (((block * 7 + contender * 11 + place * 5) % 9) as f64 - 4.0) / 4.0;
                let mut value = 0.3 * block as f64 + 0.1 * contender as f64 + noise;
                value += if place == 0 { first } else { 0.0 };
                value += if previous == Some(2) { after_two } else { 0.0 };
                turns.push(OrderedRun { block, contender, first: place == 0, previous, value });
                previous = Some(contender);
            }
        }
        turns
    }

    #[test]
    fn an_order_without_effect_changes_nothing() {
        let turns = turns(0.0, 0.0);
        let found = order(&turns, 3, 0);
        assert_eq!((found.effects.len(), found.corrections.len()), (0, 0));
        assert!(found.values.iter().zip(&turns).all(|(value, turn)| *value == turn.value));
    }

    #[test]
    fn a_slow_first_trial_is_measured_and_taken_out() {
        let found = order(&turns(0.2, 0.0), 3, 0);
        let [OrderEffect::First { ratio }] = found.effects[..] else { panic!("{found:?}") };
        assert!((ratio.ln() - 0.2).abs() < 0.01, "{ratio}");
        let still = turns(0.0, 0.0);
        let apart = found.values.iter().zip(&still).map(|(value, turn)| (value - turn.value).abs());
        assert!(apart.fold(0.0, f64::max) < 0.01);
        // Each contender is first as often as each other, so nothing but freedom is lost.
        assert!(found.corrections[1].variance < 1e-9 && found.corrections[1].freedom > 0.0);
    }

    #[test]
    fn what_one_contender_leaves_to_the_next_is_named() {
        let found = order(&turns(0.0, 0.1), 3, 0);
        let named = found.effects.iter().any(|effect| {
            matches!(effect, OrderEffect::After { contender: 2, ratio, .. } if (ratio.ln() - 0.1).abs() < 0.02)
        });
        assert!(named, "{:?}", found.effects);
    }
}
