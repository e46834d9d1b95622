//! The flash study's conclusions, judged on a matrix of fio cells against the raw device.
//!
//! What is lost in a cell is the overhead of the analysis: 1 less the ratio of operations a second
//! to the device's, whatever the study's baseline. A claim about every cell holds by the intervals
//! of the single cells, which are those of the table; wherever one cell of many decides or is
//! picked, the interval is the one that is corrected for the number of cells. What is said by the
//! wider one says so, beside what the table has.

use std::collections::BTreeMap;

use super::{Finding, Outcome};
use crate::analysis::{CellOverhead, Overhead, WorkloadAnalysis};
use crate::load::MatrixCell;
use crate::quantity::size_text;
use crate::words::{self, list, loss_interval};

fn cell_words(cell: &MatrixCell) -> String {
    let how = match cell.depth {
        1 => "one by one".to_string(),
        depth => format!("{depth} at once"),
    };
    let size = size_text(cell.block_size_bytes);
    format!("{} of {size}, {how}", pattern_words(&cell.pattern))
}

fn pattern_words(pattern: &str) -> &str {
    match pattern {
        "randread" => "random reads",
        "randwrite" => "random writes",
        "randrw-70-30" => "random reads and writes (70/30)",
        other => other,
    }
}

/// What a contender loses in a cell, as shares of the device's performance: 0.5 is half.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Loss {
    pub contender: String,
    pub cell: MatrixCell,
    pub lost: f64,
    /// Ends of the cell's interval, where there is one.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Ends of the interval that is corrected for the number of cells.
    pub low_among_all: Option<f64>,
    pub high_among_all: Option<f64>,
}

impl Loss {
    /// The loss as the table has it, and its interval where it is one that was picked out of
    /// `cells`: `loses 60 % [55 %, 65 %]; [48 %, 70 %] with all 18 cells deciding together`.
    fn words(&self, cells: usize) -> String {
        let percent = |low: f64, high: f64| loss_interval((low * 100.0, high * 100.0));
        let mut text = words::loss(self.lost * 100.0);
        let alone = self.low.zip(self.high).map(|(low, high)| percent(low, high));
        text.extend(alone.iter().map(|alone| format!(" {alone}")));
        if let Some((low, high)) = self.low_among_all.zip(self.high_among_all)
            && cells > 1
            && Some(percent(low, high)) != alone
        {
            let wider = percent(low, high);
            text.push_str(&format!(", and {wider} {}", together(cells)));
        }
        text
    }

    /// Whether it is above 0 by its own interval, as in the table.
    fn is_loss_alone(&self) -> bool {
        self.low.is_some_and(|low| low > 0.0)
    }

    /// Whether it is below 0 by its own interval, as in the table.
    fn is_gain_alone(&self) -> bool {
        self.high.is_some_and(|high| high < 0.0)
    }

    /// Whether it is above 0 however many cells there are.
    fn is_loss(&self) -> bool {
        self.is_loss_alone() && self.low_among_all.is_some_and(|low| low > 0.0)
    }

    /// Whether it is below 0 however many cells there are.
    fn is_gain(&self) -> bool {
        self.is_gain_alone() && self.high_among_all.is_some_and(|high| high < 0.0)
    }
}

/// What is said of the wider intervals, where one of many cells decides or is picked.
fn together(cells: usize) -> String {
    format!(
        "by the interval that is wider than in the table, because {cells} cells decide together"
    )
}

/// How many cells surely differ from the device, by the table's intervals; and, where that is
/// another number, how many of them still do by those that allow for all cells.
fn counts(losses: &[&Loss]) -> String {
    let count = |is: fn(&Loss) -> bool| losses.iter().filter(|loss| is(loss)).count();
    let (cells, slower, faster) =
        (losses.len(), count(Loss::is_loss_alone), count(Loss::is_gain_alone));
    let open = cells - slower - faster;
    if open == cells {
        return format!(
            "of none of the {} is it sure that it is slower or faster than the device (? in the table)",
            words::counted(cells, "cell")
        );
    }
    let mut text = format!(
        "surely slower than the device in {slower} of {cells} cells, surely faster in {faster}, undecided (? in the table) in {open}"
    );
    let (still_slower, still_faster) = (count(Loss::is_loss), count(Loss::is_gain));
    if (still_slower, still_faster) != (slower, faster) {
        text.push_str(&format!(
            "; of so many cells some look sure by chance: allowing for that, slower in {still_slower} and faster in {still_faster}"
        ));
    }
    text
}

/// The losses of every contender but the device in every cell; none where the device itself did
/// not take part.
pub(super) fn losses(workload: &WorkloadAnalysis) -> Vec<Loss> {
    let of_contender = |overhead: &Overhead| {
        let contender = overhead.contender.clone();
        let loss = move |cell: &CellOverhead| {
            Some(Loss {
                contender: contender.clone(),
                cell: cell.cell.clone(),
                lost: cell.percent? / 100.0,
                low: cell.low_percent.map(|percent| percent / 100.0),
                high: cell.high_percent.map(|percent| percent / 100.0),
                low_among_all: cell.low_percent_among_all.map(|percent| percent / 100.0),
                high_among_all: cell.high_percent_among_all.map(|percent| percent / 100.0),
            })
        };
        overhead.cells.iter().filter_map(loss).collect::<Vec<_>>()
    };
    workload.overhead.iter().flat_map(of_contender).collect()
}

/// The contenders in the order in which they come up.
fn contenders(losses: &[Loss]) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for loss in losses {
        if !labels.contains(&loss.contender.as_str()) {
            labels.push(&loss.contender);
        }
    }
    labels
}

fn of<'a>(losses: &'a [Loss], contender: &str) -> Vec<&'a Loss> {
    losses.iter().filter(|loss| loss.contender == contender).collect()
}

fn greatest<'a>(losses: &[&'a Loss], by: fn(&Loss) -> f64) -> Option<&'a Loss> {
    losses.iter().copied().max_by(|one, other| by(one).total_cmp(&by(other)))
}

const NONE_COMPARED: &str =
    "no cell has 3 blocks with a completed trial of a file system and one of the device itself";

/// Half of the device's performance.
const HALF: f64 = 0.5;

/// "A file system can cost up to half of the device": holds when in some cell surely half or more
/// is lost, fails when surely less than half is lost everywhere.
pub(super) fn loses_half(losses: &[Loss]) -> Finding {
    if losses.is_empty() {
        return Finding::untested(NONE_COMPARED);
    }
    let surely_half = losses.iter().any(|loss| loss.low_among_all.is_some_and(|low| low >= HALF));
    let surely_less = losses.iter().all(|loss| loss.high.is_some_and(|high| high < HALF));
    let outcome = match (surely_half, surely_less) {
        (true, _) => Outcome::Holds,
        (_, true) => Outcome::Fails,
        _ => Outcome::Inconclusive,
    };
    let evidence = contenders(losses)
        .into_iter()
        .filter_map(|label| {
            let own = of(losses, label);
            let worst = greatest(&own, |loss| loss.lost)?;
            Some(format!(
                "{label}: the most is lost in {}: {}; {}",
                cell_words(&worst.cell),
                worst.words(own.len()),
                counts(&own)
            ))
        })
        .collect();
    Finding::new(outcome, evidence)
}

/// "The loss shrinks as the load grows": of the pairs of cells that differ in depth alone, one by
/// one against the deepest queue, in how many less is lost in the queue. Holds when surely so in
/// more than half of the pairs, fails when surely the contrary in more than half.
pub(super) fn loses_less_under_load(losses: &[Loss]) -> Finding {
    let deepest = losses.iter().map(|loss| loss.cell.depth).max().unwrap_or(1);
    if deepest == 1 {
        return Finding::untested("no cell with a queue was compared with the device itself");
    }
    let (mut shrinks, mut grows, mut pairs) = (0, 0, 0);
    let mut evidence = Vec::new();
    for label in contenders(losses) {
        let own = of(losses, label);
        let mut counts = [0usize; 4];
        for alone in own.iter().filter(|loss| loss.cell.depth == 1) {
            let same = |loss: &&&Loss| {
                loss.cell.depth == deepest
                    && loss.cell.pattern == alone.cell.pattern
                    && loss.cell.block_size_bytes == alone.cell.block_size_bytes
            };
            let Some(queued) = own.iter().find(same) else { continue };
            counts[0] += 1;
            counts[1] += usize::from(queued.lost < alone.lost);
            counts[2] += usize::from(surely_below(queued, alone));
            counts[3] += usize::from(surely_below(alone, queued));
        }
        let [count, less, surely_less, surely_more] = counts;
        pairs += count;
        shrinks += surely_less;
        grows += surely_more;
        evidence.push(format!(
            "{label}: with {deepest} at once less is lost than one by one in {less} of {count} pairs of cells, surely in {surely_less}; surely more in {surely_more} (surely: the two intervals of the table lie apart)"
        ));
    }
    let outcome = if pairs > 0 && shrinks * 2 > pairs {
        Outcome::Holds
    } else if pairs > 0 && grows * 2 > pairs {
        Outcome::Fails
    } else {
        Outcome::Inconclusive
    };
    Finding::new(outcome, evidence)
}

fn surely_below(one: &Loss, other: &Loss) -> bool {
    one.high.zip(other.low).is_some_and(|(high, low)| high < low)
}

/// "Synchronous I/O varies most": how far apart the losses over the block sizes of one pattern
/// are, one by one and in queues. Holds when even the least spread that the intervals allow one by
/// one is above the greatest that they allow in queues, for every contender; fails the other way
/// round.
pub(super) fn varies_most_alone(losses: &[Loss]) -> Finding {
    let mut outcomes = Vec::new();
    let mut evidence = Vec::new();
    for label in contenders(losses) {
        let own = of(losses, label);
        let cells = own.len();
        let mut lines: BTreeMap<(u32, &str), Vec<&Loss>> = BTreeMap::new();
        for loss in own {
            lines.entry((loss.cell.depth, &loss.cell.pattern)).or_default().push(loss);
        }
        let spreads: Vec<(u32, Spread)> = lines
            .into_iter()
            .filter(|(_, line)| line.len() > 1)
            .map(|((depth, _), line)| (depth, Spread::of(&line)))
            .collect();
        let widest = |alone: bool, by: fn(&Spread) -> f64| {
            let of_kind = spreads.iter().filter(|(depth, _)| (*depth == 1) == alone);
            of_kind.map(|(_, spread)| by(spread)).max_by(f64::total_cmp)
        };
        let (Some(alone), Some(queued)) = (widest(true, |s| s.seen), widest(false, |s| s.seen))
        else {
            continue;
        };
        let surely = |one: bool| {
            let (least, most) = (widest(one, |s| s.least), widest(!one, |s| s.most));
            least.zip(most).is_some_and(|(least, most)| least > most)
        };
        outcomes.push(match (surely(true), surely(false)) {
            (true, _) => Outcome::Holds,
            (_, true) => Outcome::Fails,
            _ => Outcome::Inconclusive,
        });
        evidence.push(format!(
            "{label}: over the block sizes what is lost differs by up to {:.0} percentage points one by one, and by up to {:.0} in queues; decided by the intervals that are wider than in the table, because {} cells decide together",
            alone * 100.0,
            queued * 100.0,
            cells
        ));
    }
    let all = |wanted| !outcomes.is_empty() && outcomes.iter().all(|outcome| *outcome == wanted);
    let outcome = match outcomes.is_empty() {
        true => return Finding::untested("there are not two block sizes to compare"),
        false if all(Outcome::Holds) => Outcome::Holds,
        false if all(Outcome::Fails) => Outcome::Fails,
        false => Outcome::Inconclusive,
    };
    Finding::new(outcome, evidence)
}

/// How far apart some losses are: as they were seen, and the least and the most that their
/// intervals allow. Without intervals anything is possible.
struct Spread {
    seen: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(line: &[&Loss]) -> Spread {
        let most = |by: &dyn Fn(&Loss) -> f64| {
            line.iter().map(|loss| by(loss)).fold(f64::NEG_INFINITY, f64::max)
        };
        let least = |by: &dyn Fn(&Loss) -> f64| {
            line.iter().map(|loss| by(loss)).fold(f64::INFINITY, f64::min)
        };
        let low = |loss: &Loss| loss.low_among_all.unwrap_or(f64::NEG_INFINITY);
        let high = |loss: &Loss| loss.high_among_all.unwrap_or(f64::INFINITY);
        Spread {
            seen: most(&|loss| loss.lost) - least(&|loss| loss.lost),
            least: (most(&low) - least(&high)).max(0.0),
            most: most(&high) - least(&low),
        }
    }
}

/// "It is below the device in every cell": holds when that is so of each cell, fails when one is
/// above however many were looked at.
pub(super) fn always_loses(losses: &[Loss]) -> Finding {
    if losses.is_empty() {
        return Finding::untested(NONE_COMPARED);
    }
    let above: Vec<&Loss> = losses.iter().filter(|loss| loss.is_gain()).collect();
    let outcome = match (losses.iter().all(Loss::is_loss_alone), above.is_empty()) {
        (true, _) => Outcome::Holds,
        (_, false) => Outcome::Fails,
        _ => Outcome::Inconclusive,
    };
    let mut evidence = vec![counts(&losses.iter().collect::<Vec<_>>())];
    if let Some(best) = above.iter().min_by(|one, other| one.lost.total_cmp(&other.lost)) {
        evidence.push(format!(
            "furthest above in {}: {}",
            cell_words(&best.cell),
            best.words(losses.len())
        ));
    }
    Finding::new(outcome, evidence)
}

/// Which calls lose most: what is lost on average over the block sizes, by pattern and depth. It is
/// answered when of some cell it is sure, however many there are; else the order may be chance.
pub(super) fn which_calls(losses: &[Loss]) -> Finding {
    if losses.is_empty() {
        return Finding::untested(NONE_COMPARED);
    }
    let mut evidence = Vec::new();
    for label in contenders(losses) {
        let own = of(losses, label);
        let mut lines: BTreeMap<(&str, u32), Vec<&Loss>> = BTreeMap::new();
        for loss in &own {
            lines.entry((&loss.cell.pattern, loss.cell.depth)).or_default().push(loss);
        }
        let is_decided = |loss: &&Loss| loss.is_loss_alone() || loss.is_gain_alone();
        let mut means: Vec<(f64, String)> = lines
            .into_iter()
            .filter(|(_, line)| line.iter().any(is_decided))
            .map(|((pattern, depth), line)| {
                let mean = line.iter().map(|loss| loss.lost).sum::<f64>() / line.len() as f64;
                let how = if depth == 1 { "one by one".into() } else { format!("{depth} at once") };
                (mean, format!("{} {how} {}", pattern_words(pattern), words::loss(mean * 100.0)))
            })
            .collect();
        means.sort_by(|one, other| other.0.total_cmp(&one.0));
        let means: Vec<String> = means.into_iter().map(|(_, words)| words).collect();
        let sure = surest(&own);
        let sure = match sure.is_empty() {
            true => String::new(),
            false => format!("; surest {}: {}", together(own.len()), list(&sure)),
        };
        // An order of calls of which nothing is sure would be one of chance.
        let order = match means.is_empty() {
            true => String::new(),
            false => format!(
                "of the calls with a cell that is sure in the table, on average over the block sizes, the most suffering first: {}; ",
                means.join(", ")
            ),
        };
        evidence.push(format!("{label}: {order}{}{sure}", counts(&own)));
    }
    let is_sure = losses.iter().any(|loss| loss.is_loss() || loss.is_gain());
    Finding::new(if is_sure { Outcome::Answered } else { Outcome::Inconclusive }, evidence)
}

/// Cells that are named as the surest losses.
const SUREST_SHOWN: usize = 3;

/// The cells with the greatest losses that are beyond doubt.
fn surest(losses: &[&Loss]) -> Vec<String> {
    let mut sure: Vec<(&Loss, f64)> = losses
        .iter()
        .filter(|loss| loss.is_loss())
        .filter_map(|loss| Some((*loss, loss.low_among_all?)))
        .collect();
    sure.sort_by(|one, other| other.1.total_cmp(&one.1));
    sure.truncate(SUREST_SHOWN);
    sure.into_iter()
        .map(|(loss, low)| {
            format!("{} loses at least {:.0} %", cell_words(&loss.cell), low * 100.0)
        })
        .collect()
}
