//! What is drawn at a place with a size in px whatever the size of the picture: symbols, rings, the ends of
//! intervals.

use std::fmt::Write;

use crate::chart::SeriesStyle;

/// Symbols that styles have: circle, square, diamond, triangles, cross, star.
const SYMBOLS: usize = 7;
/// Radii of the symbols: of single runs, of the points of a line, in outline, of an estimate.
const RADII: [f64; 4] = [3.4, 4.0, 5.2, 6.0];

/// A shape around the place where it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolShape {
    /// The symbol of a style, in one of the sizes.
    Symbol(usize, SymbolSize),
    /// The end of an interval: a line of twice so many px across it.
    Cap(u8),
    /// Where an interval goes on to the left or to the right.
    Arrow(u8, Side),
    /// A ring that points a place out, by its mark.
    Ring(SeriesStyle),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolSize {
    /// A single run.
    Dot,
    /// A point of a line.
    Step,
    /// In outline.
    Hollow,
    /// An estimate.
    Large,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

impl SymbolShape {
    /// Its identifier in a page.
    pub fn id(self) -> String {
        match self {
            SymbolShape::Symbol(style, size) => format!("s{}{}", style % SYMBOLS, size as usize),
            SymbolShape::Cap(half) => format!("c{half}"),
            SymbolShape::Arrow(half, Side::Left) => format!("l{half}"),
            SymbolShape::Arrow(half, Side::Right) => format!("r{half}"),
            SymbolShape::Ring(SeriesStyle::Ring) => "o".into(),
            SymbolShape::Ring(SeriesStyle::SmallRing) => "os".into(),
            SymbolShape::Ring(_) => "ox".into(),
        }
    }

    /// Its outline around 0, 0 as SVG has it.
    pub fn outline(self) -> String {
        match self {
            SymbolShape::Symbol(style, size) => symbol(style % SYMBOLS, RADII[size as usize]),
            SymbolShape::Cap(half) => format!("M0 -{half}V{half}"),
            SymbolShape::Arrow(half, side) => {
                let back = f64::from(half) * if side == Side::Left { 1.8 } else { -1.8 };
                format!("M0 0L{back:.1} -{half}V{half}Z")
            }
            SymbolShape::Ring(SeriesStyle::Ring) => circle(7.0),
            SymbolShape::Ring(SeriesStyle::CrossedRing) => {
                circle(4.5) + "M-3.2 -3.2L3.2 3.2M-3.2 3.2L3.2 -3.2"
            }
            SymbolShape::Ring(_) => circle(4.5),
        }
    }
}

/// All shapes, to which the pictures of a page refer.
pub fn sprite() -> String {
    let sizes = [SymbolSize::Dot, SymbolSize::Step, SymbolSize::Hollow, SymbolSize::Large];
    let symbols = (0..SYMBOLS).flat_map(|style| sizes.map(|size| SymbolShape::Symbol(style, size)));
    let ends = [4, 6].into_iter().flat_map(|half| {
        [
            SymbolShape::Cap(half),
            SymbolShape::Arrow(half, Side::Left),
            SymbolShape::Arrow(half, Side::Right),
        ]
    });
    let rings = [SeriesStyle::Ring, SeriesStyle::SmallRing, SeriesStyle::CrossedRing]
        .map(SymbolShape::Ring);
    let mut out = String::from("<svg class=\"sprite\" aria-hidden=\"true\"><defs>");
    for shape in symbols.chain(ends).chain(rings) {
        let _ = write!(out, "<path id=\"{}\" d=\"{}\"/>", shape.id(), shape.outline());
    }
    out + "</defs></svg>\n"
}

fn circle(radius: f64) -> String {
    let across = 2.0 * radius;
    format!("M-{radius} 0a{radius} {radius} 0 1 0 {across} 0a{radius} {radius} 0 1 0 -{across} 0Z")
}

fn symbol(symbol: usize, radius: f64) -> String {
    let corners: &[(f64, f64)] = match symbol {
        0 => return circle(radius),
        1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        2 => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        3 => &[(0.0, -1.2), (1.15, 0.8), (-1.15, 0.8)],
        4 => &[(0.0, 1.2), (1.15, -0.8), (-1.15, -0.8)],
        5 => &[
            (-1.0, -0.55),
            (-0.55, -1.0),
            (0.0, -0.45),
            (0.55, -1.0),
            (1.0, -0.55),
            (0.45, 0.0),
            (1.0, 0.55),
            (0.55, 1.0),
            (0.0, 0.45),
            (-0.55, 1.0),
            (-1.0, 0.55),
            (-0.45, 0.0),
        ],
        _ => &[(-1.4, -0.6), (1.4, -0.6), (1.4, 0.6), (-1.4, 0.6)],
    };
    let mut path = String::new();
    for (index, (across, down)) in corners.iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", across * radius, down * radius);
    }
    path + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_a_page_has_a_name_of_its_own() {
        let sprite = sprite();
        let mut ids: Vec<&str> =
            sprite.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), count), (37, 37));
    }
}
