//! What a file system costs in the fio matrix: for each cell, how many percent fewer operations a
//! second a contender did than the bare device, paired over blocks. The flash study's figure.

use serde::{Deserialize, Serialize};

use super::{Samples, options};
use crate::load::{MatrixCell, Unit};
use crate::plan::Plan;
use crate::statistics::{self, BLOCKS_MIN_FOR_INTERVAL, BOUND_MAX, ComparisonOptions};

/// Name of the contender that is the device itself.
pub const RAW: &str = "raw";

/// The cells of one contender against the bare device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Label of the contender.
    pub contender: String,
    /// Label of the bare device.
    pub raw: String,
    /// The cells that both have, in the matrix's order.
    pub cells: Vec<CellOverhead>,
}

/// What a contender loses in one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellOverhead {
    /// The cell.
    pub cell: MatrixCell,
    /// Blocks in which both have a figure.
    pub blocks: usize,
    /// How many percent fewer operations a second than the bare device; below 0 when more. Absent
    /// below [`BLOCKS_MIN_FOR_INTERVAL`] blocks: a picture of many cells takes its colours and its
    /// scale from each of them, and a single busy moment makes a cell anything.
    pub percent: Option<f64>,
    /// Lower end of the interval, corrected for the number of contenders; absent where the number
    /// is.
    pub low_percent: Option<f64>,
    /// Upper end of it.
    pub high_percent: Option<f64>,
    /// Lower end of the interval that is corrected for the number of cells as well (Bonferroni):
    /// for whoever picks one cell out of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_percent_among_all: Option<f64>,
    /// Upper end of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_percent_among_all: Option<f64>,
}

impl CellOverhead {
    /// Whether the interval leaves no doubt that the cell differs from the bare device's.
    pub fn is_decided(&self) -> bool {
        self.low_percent.zip(self.high_percent).is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }

    /// How many percent more or fewer operations it has at the most, where that is no more than
    /// [`BOUND_MAX`]: whole percent.
    pub fn bound(&self) -> Option<f64> {
        let (low, high) = self.low_percent.zip(self.high_percent)?;
        let most = low.abs().max(high.abs()).ceil();
        (most <= 100.0 * BOUND_MAX).then_some(most)
    }

    /// Whether it says nothing.
    pub fn is_open(&self) -> bool {
        !self.is_decided() && self.bound().is_none()
    }
}

/// One entry for each contender but the bare device; none where the workload is no matrix or no
/// contender is the bare device.
pub(super) fn overhead(plan: &Plan, samples: &Samples<'_>) -> Vec<Overhead> {
    let contenders = &plan.study.contenders;
    let raw = contenders.iter().position(|contender| contender.file_system() == RAW);
    let Some(raw) = raw else { return Vec::new() };
    let others: Vec<usize> = (0..contenders.len()).filter(|other| *other != raw).collect();
    let mut overheads: Vec<Overhead> = others
        .iter()
        .map(|other| Overhead {
            contender: contenders[*other].label.clone(),
            raw: contenders[raw].label.clone(),
            cells: Vec::new(),
        })
        .collect();
    let cells: Vec<(MatrixCell, String)> = samples
        .metrics()
        .into_iter()
        .filter(|(_, unit)| *unit == Unit::OperationsPerSecond)
        .filter_map(|(metric, _)| Some((metric.parse().ok()?, metric)))
        .collect();
    let plain = options(plan);
    let among_all = ComparisonOptions {
        confidence: 1.0 - (1.0 - plain.confidence) / cells.len().max(1) as f64,
        ..plain
    };
    let unit = Unit::OperationsPerSecond;
    for (cell, metric) in cells {
        let costs = |contender: usize| samples.costs(contender, &metric, unit);
        let other_costs: Vec<Vec<Option<f64>>> = others.iter().map(|other| costs(*other)).collect();
        let compare = |options| {
            statistics::compare_family(&costs(raw), &other_costs, options)
                .expect("costs are positive, and the margin was checked with the study")
        };
        let pairs = compare(&plain).into_iter().zip(compare(&among_all));
        for (overhead, (compared, corrected)) in overheads.iter_mut().zip(pairs) {
            if compared.pairs == 0 {
                continue;
            }
            overhead.cells.push(CellOverhead {
                cell: cell.clone(),
                blocks: compared.pairs,
                percent: compared
                    .ratio
                    .filter(|_| compared.pairs >= BLOCKS_MIN_FOR_INTERVAL)
                    .map(percent),
                low_percent: compared.interval.map(|interval| percent(interval.low)),
                high_percent: compared.interval.map(|interval| percent(interval.high)),
                low_percent_among_all: corrected.interval.map(|interval| percent(interval.low)),
                high_percent_among_all: corrected.interval.map(|interval| percent(interval.high)),
            });
        }
    }
    overheads.retain(|overhead| !overhead.cells.is_empty());
    overheads
}

/// Of a cost (time for an operation) over the bare device's: the share of its operations a second
/// that is missing.
fn percent(cost_ratio: f64) -> f64 {
    100.0 * (1.0 - cost_ratio.recip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::fixture;
    use crate::load::{LoadReport, Metric};

    fn metric(name: &str, value: f64) -> Metric {
        Metric::new(name, value, Unit::OperationsPerSecond)
    }

    #[test]
    fn the_overhead_is_paired_and_in_percent_of_the_bare_device() {
        let mut plan = fixture::plan(&["ext4", "xfs", "btrfs"], 4);
        let mut records = fixture::records(&plan, &[&[1; 4], &[1; 4], &[1; 4]]);
        for record in &mut records {
            // Every block is twice as fast as the one before; the pairs know nothing of that.
            let speed = f64::from(1 << record.block);
            let share = match record.contender.label.as_str() {
                "ext4" => [0.75, 0.74, 0.75, 0.76][record.block as usize],
                "btrfs" => 2.0,
                _ => 1.0,
            };
            record.load = Some(LoadReport {
                metrics: vec![
                    metric("geometric mean of all cells", 1000.0),
                    metric("randread-psync-1-4k", 1000.0 * speed * share),
                    metric("randread-psync-1-8k", 1000.0 * speed * share),
                ],
                ..Default::default()
            });
        }
        // Without a bare device there is no overhead.
        assert_eq!(analyse(&plan, &records, None).workloads[0].overhead, []);
        plan.study.contenders[1].layers[0].name = "raw".into();
        let found = analyse(&plan, &records, None).workloads.remove(0).overhead;
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].contender.as_str(), found[0].raw.as_str()), ("ext4", "xfs"));
        let [cell, _] = &found[0].cells[..] else { panic!("{found:?}") };
        assert_eq!((cell.cell.to_string().as_str(), cell.blocks), ("randread-psync-1-4k", 4));
        assert!((cell.percent.unwrap() - 25.0).abs() < 0.1, "{cell:?}");
        let (low, high) = (cell.low_percent.unwrap(), cell.high_percent.unwrap());
        assert!(20.0 < low && low < 25.0 && 25.0 < high && high < 30.0, "{cell:?}");
        assert!(cell.is_decided());
        // Two cells: wider than the interval of one, and still around the estimate.
        let of_all = cell.low_percent_among_all.zip(cell.high_percent_among_all);
        let (lower, higher) = of_all.unwrap();
        assert!(lower < low && high < higher && higher < 30.0, "{cell:?}");
        // Below three pairs there is no number, with other trials beside them and without.
        let of_blocks = |ext4: u32, raw: u32| {
            let mut few = records.clone();
            few.retain(|record| {
                record.block < if record.contender.label == "xfs" { raw } else { ext4 }
            });
            analyse(&plan, &few, None).workloads[0].overhead[0].cells[0].clone()
        };
        for (ext4, raw) in [(1, 1), (1, 2), (2, 2)] {
            let withheld = of_blocks(ext4, raw);
            assert_eq!((withheld.blocks as u32, withheld.percent), (ext4, None));
            assert!(!withheld.is_decided());
        }
        let kept = of_blocks(3, 4);
        assert!(
            (kept.percent.unwrap() - 25.0).abs() < 1.0 && kept.low_percent.is_some(),
            "{kept:?}"
        );
        // Twice as many operations: 100 % of the bare device's more.
        assert!((found[1].cells[0].percent.unwrap() + 100.0).abs() < 1e-6);
    }

    #[test]
    fn an_interval_around_nothing_decides_nothing() {
        let cell = CellOverhead {
            cell: "randwrite-libaio-32-1024k".parse().unwrap(),
            blocks: 5,
            percent: Some(2.0),
            low_percent: Some(-1.0),
            high_percent: Some(5.0),
            low_percent_among_all: None,
            high_percent_among_all: None,
        };
        assert!(!cell.is_decided());
        assert_eq!((cell.bound(), cell.is_open()), (Some(5.0), false));
        let wide = CellOverhead { low_percent: Some(-25.1), ..cell.clone() };
        assert_eq!((wide.bound(), wide.is_open()), (None, true));
        let none = CellOverhead { low_percent: None, high_percent: None, ..cell };
        assert!(!none.is_decided() && none.is_open());
    }
}
