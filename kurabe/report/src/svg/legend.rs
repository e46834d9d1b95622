//! The marks of a legend: what a key or a sign looks like in small.

use super::shape::{SymbolShape, SymbolSize};
use super::{SvgDestination, dash_of};
use crate::chart::{Chart, SeriesStyle};

/// A mark that stands for no contender, for legends; its left end at `x`.
pub fn sign(mark: SeriesStyle, place: SvgDestination, x: f64, y: f64) -> String {
    let shape = match mark {
        SeriesStyle::Ring => SymbolShape::Ring(SeriesStyle::SmallRing),
        SeriesStyle::Hollow => SymbolShape::Symbol(0, SymbolSize::Hollow),
        mark => SymbolShape::Ring(mark),
    };
    let width = if mark == SeriesStyle::Ring { 2.0 } else { 1.2 };
    let look = format!("fill:none;stroke:{};stroke-width:{width}", place.ink());
    stamp(shape, x + 14.0, y, &look)
}

fn stamp(shape: SymbolShape, x: f64, y: f64, look: &str) -> String {
    let outline = shape.outline();
    format!("<path transform=\"translate({x:.1} {y:.1})\" d=\"{outline}\" style=\"{look}\"/>")
}

/// The mark of a key, for legends; its left end at `x`: a piece of line with the symbol of the
/// style, or a piece of bar.
pub fn swatch(chart: &Chart, key: usize, place: SvgDestination, x: f64, y: f64) -> String {
    let style = chart.keys[key].style;
    let colour = place.colour(style);
    let drawn = |mark| chart.series.iter().any(|s| s.key == key && s.mark == mark);
    if drawn(SeriesStyle::Hatched) {
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
    if drawn(SeriesStyle::Bars) {
        return format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"10\" style=\"fill:{colour}\"/>",
            x + 7.0,
            y - 5.0
        );
    }
    let middle = x + 14.0;
    if drawn(SeriesStyle::Hollow) && !drawn(SeriesStyle::Steps) {
        let look = format!("fill:{};stroke:{colour};stroke-width:1.6", place.paper());
        return stamp(SymbolShape::Symbol(style, SymbolSize::Step), middle, y, &look);
    }
    let symbol =
        stamp(SymbolShape::Symbol(style, SymbolSize::Step), middle, y, &format!("fill:{colour}"));
    if [SeriesStyle::Line, SeriesStyle::Steps, SeriesStyle::Faint].into_iter().any(drawn) {
        format!(
            "<path d=\"M{x:.1} {y:.1}h28\" style=\"fill:none;stroke:{colour};stroke-width:2;stroke-dasharray:{}\"/>{symbol}",
            dash_of(style)
        )
    } else {
        symbol
    }
}
