//! The marks of a legend: what a key or a sign looks like in small.

use std::fmt::Write;

use super::{DASHES, Place, symbol};
use crate::chart::{Chart, Mark};

/// A ring that points something out; the crossed one has a cross in it.
pub(super) fn ring(mark: Mark, place: Place, x: f64, y: f64) -> String {
    let (radius, width) = if mark == Mark::Ring { (7.0, 2.0) } else { (4.5, 1.2) };
    let mut out = format!(
        "<g style=\"fill:none;stroke:{};stroke-width:{width}\"><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>",
        place.ink()
    );
    if mark == Mark::CrossedRing {
        let reach = radius * 0.7;
        let _ = write!(
            out,
            "<path d=\"M{0:.1} {1:.1}L{2:.1} {3:.1}M{0:.1} {3:.1}L{2:.1} {1:.1}\"/>",
            x - reach,
            y - reach,
            x + reach,
            y + reach
        );
    }
    out + "</g>"
}

/// A mark that stands for no contender, for legends; its left end at `x`.
pub fn sign(mark: Mark, place: Place, x: f64, y: f64) -> String {
    ring(mark, place, x + 14.0, y).replace("r=\"7\"", "r=\"5\"")
}

/// The mark of a key, for legends; its left end at `x`: a piece of line with the symbol of the
/// style, or a piece of bar.
pub fn swatch(chart: &Chart, key: usize, place: Place, x: f64, y: f64) -> String {
    let style = chart.keys[key].style;
    let colour = place.colour(style);
    let drawn = |mark| chart.series.iter().any(|s| s.key == key && s.mark == mark);
    if drawn(Mark::Hatched) {
        // Without a pattern: that of the picture is gone when the picture is not shown.
        return format!(
            "<path d=\"M{0:.1} {1:.1}h14v10h-14zM{0:.1} {2:.1}l5 -5M{0:.1} {3:.1}l9 -9M{4:.1} {3:.1}l9 -9M{5:.1} {3:.1}l4 -4\" style=\"fill:none;stroke:{colour};stroke-width:1.2\"/>",
            x + 7.0,
            y - 5.0,
            y,
            y + 5.0,
            x + 11.5,
            x + 17.0
        );
    }
    if drawn(Mark::Bars) {
        return format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"10\" style=\"fill:{colour}\"/>",
            x + 7.0,
            y - 5.0
        );
    }
    if drawn(Mark::Hollow) && !drawn(Mark::Steps) {
        return format!(
            "<path d=\"{}\" style=\"fill:{};stroke:{colour};stroke-width:1.6\"/>",
            symbol(style, x + 14.0, y, 4.2),
            place.paper()
        );
    }
    format!(
        "<path d=\"M{x:.1} {y:.1}h28\" style=\"fill:none;stroke:{colour};stroke-width:2;stroke-dasharray:{}\"/><path d=\"{}\" style=\"fill:{colour}\"/>",
        match DASHES[style % DASHES.len()] {
            "" => "none",
            dash => dash,
        },
        symbol(style, x + 14.0, y, 4.0)
    )
}
