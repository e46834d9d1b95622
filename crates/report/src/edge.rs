//! Losses in percent that lie far beyond the others: drawn at the edge of the axis, with their
//! numbers, so that one cell does not press all others together.

use crate::chart::{Mark, Point, Series};

/// Furthest from 0 that an axis of losses reaches; more than everything is not lost, but a cell that
/// is faster can be so many times over.
const EDGE_PERCENT: f64 = 100.0;
/// From one number at the edge to the next at the same place.
const LINE_PERCENT: f64 = 12.0;

/// Moves the points beyond the edge to it and appends their numbers. What is to be said of it; empty
/// where no point was moved.
pub fn bound(series: &mut Vec<Series>) -> String {
    let mut numbers: Vec<Series> = Vec::new();
    for one in series.iter_mut() {
        for point in one.points.iter_mut().filter(|point| point.y.abs() > EDGE_PERCENT) {
            let text = format!("{:.0} %", point.y);
            point.y = EDGE_PERCENT.copysign(point.y);
            let at_place = |other: &&Series| {
                let Point { x, y, .. } = other.points[0];
                x == point.x && y.signum() == point.y.signum()
            };
            // A curve may be drawn twice, as a line and as symbols.
            if numbers.iter().filter(at_place).any(|other| other.key == one.key) {
                continue;
            }
            let inwards = numbers.iter().filter(at_place).count() as f64 * LINE_PERCENT;
            let y = point.y - inwards.copysign(point.y);
            let points = vec![Point::at(point.x, y, text)];
            numbers.push(Series { key: one.key, mark: Mark::Label, points });
        }
    }
    if numbers.is_empty() {
        return String::new();
    }
    series.append(&mut numbers);
    format!(" What is beyond {EDGE_PERCENT} % is drawn at that edge, with its number.")
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
            curve(0, Mark::Line, [-751.4, 12.0, 100.0]),
            curve(0, Mark::Hollow, [-751.4, 12.0, 100.0]),
            curve(1, Mark::Steps, [-240.0, -120.0, 3.0]),
        ];
        let said = bound(&mut series);
        let ys = |place: usize| series[place].points.iter().map(|p| p.y).collect::<Vec<_>>();
        assert_eq!([ys(0), ys(1)], [[-100.0, 12.0, 100.0], [-100.0, 12.0, 100.0]]);
        assert_eq!(ys(2), [-100.0, -100.0, 3.0]);
        let labels = series[3..].iter().map(|one| {
            assert_eq!(one.mark, Mark::Label);
            (one.key, one.points[0].x, one.points[0].y, one.points[0].text.as_str())
        });
        assert_eq!(
            labels.collect::<Vec<_>>(),
            [(0, 0.0, -100.0, "-751 %"), (1, 0.0, -88.0, "-240 %"), (1, 1.0, -100.0, "-120 %")]
        );
        assert!(said.contains("at that edge"), "{said}");
        // Nothing is said of curves that all lie within.
        let mut within = vec![curve(0, Mark::Line, [-100.0, 0.0, 100.0])];
        assert_eq!((bound(&mut within).as_str(), within.len()), ("", 1));
    }
}
