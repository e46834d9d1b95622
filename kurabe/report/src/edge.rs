//! Losses in percent that lie far beyond the others: drawn at the edge of the axis, with their
//! numbers, so that one cell does not press all others together.

use crate::chart::{Key, Mark, Point, Series};

/// Least distance from 0 up to which losses stand where they are: more than everything is not lost.
const EDGE_PERCENT: f64 = 100.0;
/// A cell that is faster can be so many times over. The edge is this many times the middle one of all
/// distances from 0, so that it follows the numbers where most of them are large.
const EDGE_PER_MIDDLE: f64 = 2.0;
/// The edge is a multiple of this.
const EDGE_STEP_PERCENT: f64 = 50.0;
/// From one number at the edge to the next at the same place, as a part of the edge.
const LINE_SHARE: f64 = 0.12;

/// Where the edge is. Of an even number of distances the smaller middle one counts: one of two that
/// lies far out is not what the axis is for.
fn edge(series: &[Series]) -> f64 {
    let points = series.iter().flat_map(|one| &one.points);
    let mut distances: Vec<f64> = points.map(|point| point.y.abs()).collect();
    distances.sort_by(f64::total_cmp);
    let middle = distances.get(distances.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    let edge = (EDGE_PER_MIDDLE * middle / EDGE_STEP_PERCENT).ceil() * EDGE_STEP_PERCENT;
    edge.max(EDGE_PERCENT)
}

/// Moves the points beyond the edge to it and appends their numbers, with the names of the keys where
/// there are several. What is to be said of it; empty where no point was moved.
pub fn bound(series: &mut Vec<Series>, keys: &[Key]) -> String {
    let edge = edge(series);
    let several = series.iter().any(|one| one.key != series[0].key);
    let mut numbers: Vec<Series> = Vec::new();
    for one in series.iter_mut() {
        for point in one.points.iter_mut().filter(|point| point.y.abs() > edge) {
            let text = if several {
                format!("{} {:.0} %", keys[one.key].name, point.y)
            } else {
                format!("{:.0} %", point.y)
            };
            point.y = edge.copysign(point.y);
            let at_place = |other: &&Series| {
                let Point { x, y, .. } = other.points[0];
                x == point.x && y.signum() == point.y.signum()
            };
            // A curve may be drawn twice, as a line and as symbols.
            if numbers.iter().filter(at_place).any(|other| other.key == one.key) {
                continue;
            }
            let inwards = numbers.iter().filter(at_place).count() as f64 * LINE_SHARE * edge;
            let y = point.y - inwards.copysign(point.y);
            let points = vec![Point::at(point.x, y, text)];
            numbers.push(Series { key: one.key, mark: Mark::Label, points });
        }
    }
    if numbers.is_empty() {
        return String::new();
    }
    series.append(&mut numbers);
    format!(" What is beyond {edge} % is drawn at that edge, with its number.")
}

/// The end of an axis of so many places: with room for the numbers at its last one where there are
/// any.
pub fn end_of_places(places: usize, series: &[Series]) -> f64 {
    let places = places as f64;
    if series.iter().any(|one| one.mark == Mark::Label) {
        places * 1.14 - 0.7
    } else {
        places - 0.7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_far_beyond_stands_at_the_edge_with_its_number() {
        let curve = |key, mark, ys: [f64; 3]| Series {
            key,
            mark,
            points: ys.iter().enumerate().map(|(x, y)| Point::at(x as f64, *y, "")).collect(),
        };
        let mut series = vec![
            curve(0, Mark::Line, [-751.4, 12.0, 40.0]),
            curve(0, Mark::Hollow, [-751.4, 12.0, 40.0]),
            curve(1, Mark::Steps, [-240.0, -120.0, 3.0]),
        ];
        let keys =
            ["ext4", "xfs"].map(|name| Key { name: name.into(), style: 0, group: "contender" });
        let said = bound(&mut series, &keys);
        let ys = |place: usize| series[place].points.iter().map(|p| p.y).collect::<Vec<_>>();
        assert_eq!([ys(0), ys(1)], [[-100.0, 12.0, 40.0], [-100.0, 12.0, 40.0]]);
        assert_eq!(ys(2), [-100.0, -100.0, 3.0]);
        let labels = series[3..].iter().map(|one| {
            assert_eq!(one.mark, Mark::Label);
            (one.key, one.points[0].x, one.points[0].y, one.points[0].text.as_str())
        });
        assert_eq!(
            labels.collect::<Vec<_>>(),
            [
                (0, 0.0, -100.0, "ext4 -751 %"),
                (1, 0.0, -88.0, "xfs -240 %"),
                (1, 1.0, -100.0, "xfs -120 %")
            ]
        );
        assert!(said.contains("at that edge"), "{said}");
        // Nothing is said of curves that all lie within.
        let mut within = vec![curve(0, Mark::Line, [-100.0, 0.0, 100.0])];
        assert_eq!((bound(&mut within, &keys).as_str(), within.len()), ("", 1));
        assert_eq!(end_of_places(3, &within), 2.3);
        assert!(end_of_places(3, &series) > 2.6);
        // Where most are far from 0, as three file systems beside a device that stalled, so is the edge.
        let mut far = vec![curve(0, Mark::Hollow, [-196.0, -146.0, -222.0])];
        assert_eq!((bound(&mut far, &keys).as_str(), far.len()), ("", 1));
        far.push(curve(1, Mark::Hollow, [-1836.0, -150.0, -104.0]));
        assert!(bound(&mut far, &keys).contains("beyond 300 %"));
        assert_eq!(far[2].points[0].text, "xfs -1836 %");
    }
}
