//! A chart as a still picture: SVG that needs neither a browser nor a script.
//!
//! In the page it stands where the interactive chart will be, and on paper; on request it is a file
//! of its own. Colours are those of Okabe & Ito (2008), which differ for the colour-blind too, and
//! every key has a dash and a symbol of its own besides.

use std::fmt::Write;

use crate::chart::{Chart, Guide, Mark, Point, Series};
use crate::text::escape;

mod legend;

use legend::ring;
pub use legend::{sign, swatch};

/// Width of a picture in px.
pub const WIDTH: u32 = 760;

/// The letters of all pictures, as an attribute.
pub const FONT: &str =
    "font-family=\"system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif\"";

/// Colours by the style of a key, for light paper.
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#5b5b5b"];
/// Dashes by style, as `stroke-dasharray` has them.
pub const DASHES: [&str; 8] = ["", "7 3", "2 2", "9 3 2 3", "12 4", "4 4", "1 3", "6 2 1 2 1 2"];
/// Styles whose colours are so light that letters on them are dark on any paper.
const LIGHT_STYLES: [usize; 3] = [3, 4, 5];
/// Letters and lines.
const INK: &str = "#1d1d1f";
const FAINT: &str = "#6a6a70";
const RULE: &str = "#dcdce0";

/// Who looks at the picture, which decides where its colours come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the page, whose style sheet knows whether it is dark.
    Page,
    /// A file of its own: with a title and a legend, and the colours spelled out.
    File,
}

impl Place {
    fn colour(self, style: usize) -> String {
        let index = style % COLOURS.len();
        match self {
            Place::Page => format!("var(--k{index})"),
            Place::File => COLOURS[index].to_string(),
        }
    }

    /// Colour of letters.
    pub fn ink(self) -> &'static str {
        if self == Place::Page { "var(--ink)" } else { INK }
    }

    fn paper(self) -> &'static str {
        if self == Place::Page { "var(--paper)" } else { "#fff" }
    }

    /// Colour of letters of less weight.
    pub fn faint(self) -> &'static str {
        if self == Place::Page { "var(--faint)" } else { FAINT }
    }

    fn rule(self) -> &'static str {
        if self == Place::Page { "var(--rule)" } else { RULE }
    }
}

/// The rectangle inside the axes, in px.
struct Frame {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

struct Drawing<'a> {
    chart: &'a Chart,
    place: Place,
    frame: Frame,
    out: String,
}

/// Height of the title and of a row of the legend in a file.
const TITLE_HEIGHT: f64 = 30.0;
const LEGEND_HEIGHT: f64 = 22.0;
/// About the width of a letter of 12 px.
const LETTER_WIDTH: f64 = 6.6;
/// The same where nothing may be cut off: fonts differ.
const LETTER_WIDTH_MAX: f64 = 7.3;

/// Draws a chart.
pub fn draw(chart: &Chart, place: Place) -> String {
    let legend = legend_rows(chart);
    let head = match place {
        Place::Page => 0.0,
        Place::File => TITLE_HEIGHT + legend.len() as f64 * LEGEND_HEIGHT,
    };
    let height = f64::from(chart.height) + head;
    let widest = chart.y.ticks.iter().map(|tick| tick.text.chars().count()).max().unwrap_or(0);
    let beside = if chart.y.title.is_empty() { 14.0 } else { 34.0 };
    let frame = Frame {
        left: beside + widest as f64 * LETTER_WIDTH_MAX,
        top: head + 14.0,
        right: f64::from(WIDTH) - 18.0,
        bottom: height - 46.0,
    };
    let mut drawing = Drawing { chart, place, frame, out: String::new() };
    let _ = write!(
        drawing.out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" {FONT} font-size=\"12\""
    );
    if place == Place::File {
        let _ = write!(drawing.out, " width=\"{WIDTH}\" height=\"{height}\"");
    }
    let _ = writeln!(drawing.out, "><title>{}</title>", escape(&chart.title));
    let _ = writeln!(drawing.out, "<desc>{}</desc>", escape(&chart.says));
    if place == Place::File {
        let _ = writeln!(
            drawing.out,
            "<rect width=\"{WIDTH}\" height=\"{height}\" style=\"fill:#fff\"/>"
        );
        drawing.text(
            14.0,
            21.0,
            "start",
            INK,
            &chart.title,
            " font-weight=\"600\" font-size=\"14\"",
        );
        drawing.legend(&legend);
    }
    drawing.bands();
    drawing.axes();
    drawing.hatches();
    let clip = format!("clip-{}", chart.id);
    let Frame { left, top, right, bottom } = drawing.frame;
    let _ = writeln!(
        drawing.out,
        "<clipPath id=\"{clip}\"><rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/></clipPath><g clip-path=\"url(#{clip})\">",
        top - 6.0,
        right - left + 8.0,
        bottom - top + 12.0
    );
    for series in &chart.series {
        if !chart.keys[series.key].hidden {
            drawing.series(series);
        }
    }
    drawing.out.push_str("</g>\n");
    // Lines lie over the bars, which would hide them.
    if drawing.chart.is_of_bars() {
        drawing.lines();
    }
    drawing.out.push_str("</svg>\n");
    drawing.out
}

/// An entry of a legend, by its place among the keys or the signs.
#[derive(Debug, Clone, Copy)]
enum Entry {
    Key(usize),
    Sign(usize),
}

/// The keys that are shown and the signs, broken into rows that fit.
fn legend_rows(chart: &Chart) -> Vec<Vec<Entry>> {
    let mut rows: Vec<Vec<Entry>> = Vec::new();
    if !chart.legend {
        return rows;
    }
    let mut filled = f64::INFINITY;
    let keys = chart.keys_drawn().into_iter().filter(|index| !chart.keys[*index].hidden);
    let keys = keys.map(|index| (Entry::Key(index), chart.keys[index].name.as_str()));
    let signs = chart.signs.iter().enumerate();
    let signs = signs.map(|(index, sign)| (Entry::Sign(index), sign.text.as_str()));
    for (entry, name) in keys.chain(signs) {
        let width = key_width(name);
        if filled + width > f64::from(WIDTH) - 28.0 {
            rows.push(Vec::new());
            filled = 0.0;
        }
        filled += width;
        rows.last_mut().expect("a row was pushed").push(entry);
    }
    rows
}

fn key_width(name: &str) -> f64 {
    50.0 + name.chars().count() as f64 * LETTER_WIDTH
}

impl Drawing<'_> {
    fn x(&self, value: f64) -> f64 {
        self.frame.left + self.chart.x.place(value) * (self.frame.right - self.frame.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.frame.bottom - self.chart.y.place(value) * (self.frame.bottom - self.frame.top)
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, colour: &str, text: &str, more: &str) {
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" style=\"fill:{colour}\"{more}>{}</text>",
            escape(text)
        );
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
        let _ = writeln!(
            self.out,
            "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" style=\"fill:none;{style}\"/>"
        );
    }

    fn legend(&mut self, rows: &[Vec<Entry>]) {
        let chart = self.chart;
        for (row, entries) in rows.iter().enumerate() {
            let (mut x, y) = (14.0, TITLE_HEIGHT + row as f64 * LEGEND_HEIGHT + 14.0);
            for entry in entries {
                let (name, mark) = match *entry {
                    Entry::Key(index) => {
                        let key = &chart.keys[index];
                        (&key.name, swatch(chart, index, self.place, x, y - 4.0))
                    }
                    Entry::Sign(index) => {
                        let shown = &chart.signs[index];
                        (&shown.text, sign(shown.mark, self.place, x, y - 4.0))
                    }
                };
                self.out.push_str(&mark);
                self.text(x + 34.0, y, "start", INK, name, "");
                x += key_width(name);
            }
        }
    }

    fn bands(&mut self) {
        let Frame { top, bottom, left, right } = self.frame;
        for guide in &self.chart.guides {
            if let Guide::Band { from, to } = guide {
                let (from, to) = (self.x(*from).clamp(left, right), self.x(*to).clamp(left, right));
                let _ = writeln!(
                    self.out,
                    "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" style=\"fill:{};opacity:0.55\"/>",
                    to - from,
                    bottom - top,
                    self.place.rule()
                );
            }
        }
        if !self.chart.is_of_bars() {
            self.lines();
        }
    }

    fn lines(&mut self) {
        let Frame { top, bottom, left, right } = self.frame;
        let (ink, faint) = (self.place.ink(), self.place.faint());
        let stroke = format!("stroke:{ink};stroke-width:1");
        for guide in &self.chart.guides {
            match guide {
                Guide::Band { .. } => {}
                Guide::Level { y } => {
                    let y = self.y(*y);
                    self.line((left, y), (right, y), &stroke);
                }
                Guide::Line { x, text } => {
                    let x = self.x(*x);
                    if (left..=right).contains(&x) {
                        self.line((x, top), (x, bottom), &stroke);
                        let anchor = if x > right - 80.0 { "end" } else { "start" };
                        let shift = if anchor == "end" { -4.0 } else { 4.0 };
                        self.text(x + shift, top - 3.0, anchor, faint, text, " font-size=\"11\"");
                    }
                }
            }
        }
    }

    fn axes(&mut self) {
        let Frame { left, top, right, bottom } = self.frame;
        let (faint, rule) = (self.place.faint(), self.place.rule());
        let chart = self.chart;
        let mut written_to = f64::NEG_INFINITY;
        for tick in &chart.x.ticks {
            let x = self.x(tick.at);
            self.line((x, top), (x, bottom), &format!("stroke:{rule};stroke-width:1"));
            // A label that would run into the one before it is left out.
            let half = tick.text.chars().count() as f64 * LETTER_WIDTH / 2.0;
            if x - half > written_to + 4.0 {
                self.text(x, bottom + 17.0, "middle", faint, &tick.text, "");
                written_to = x + half;
            }
        }
        for tick in &chart.y.ticks {
            let y = self.y(tick.at);
            if !chart.y.fixed || chart.y.logarithmic {
                self.line((left, y), (right, y), &format!("stroke:{rule};stroke-width:1"));
            }
            self.text(left - 8.0, y + 4.0, "end", faint, &tick.text, "");
        }
        self.line((left, bottom), (right, bottom), &format!("stroke:{faint};stroke-width:1"));
        let middle = (left + right) / 2.0;
        self.text(middle, bottom + 37.0, "middle", faint, &chart.x.title, "");
        if !chart.y.title.is_empty() {
            let middle = (top + bottom) / 2.0;
            let turned = format!(" transform=\"rotate(-90 13 {middle:.1})\"");
            self.text(13.0, middle, "middle", faint, &chart.y.title, &turned);
        }
    }

    fn series(&mut self, series: &Series) {
        let style = self.chart.keys[series.key].style;
        match series.mark {
            Mark::Line | Mark::Faint | Mark::Steps => {
                self.path(series, style);
                if series.mark == Mark::Steps {
                    self.symbols(series, style, 4.0, 1.0);
                }
            }
            Mark::Dots => self.symbols(series, style, 3.4, 0.55),
            Mark::Interval => {
                self.intervals(series, style);
                self.symbols(series, style, 6.0, 1.0);
            }
            Mark::Bars => {
                let name = &self.chart.keys[series.key].name;
                // Where bars have labels beside them, a name in them would be one too many.
                let labelled = self.chart.series.iter().any(|other| other.mark == Mark::Label);
                let named = self.chart.legend && !labelled;
                let name = if named { name.clone() } else { String::new() };
                for point in &series.points {
                    self.bar(point, style, &name);
                }
            }
            Mark::Hatched => {
                for point in &series.points {
                    self.hatched_bar(point, series.key);
                }
            }
            Mark::Hollow => {
                self.intervals(series, style);
                let (paper, colour) = (self.place.paper(), self.place.colour(style));
                let look = format!("fill:{paper};stroke:{colour};stroke-width:1.8");
                self.outlines(series, style, 5.2, &look);
            }
            // In ink, which is seen on a bar as well as beside it.
            Mark::Whisker => {
                for point in &series.points {
                    self.interval(point, self.place.ink(), 1.4, 4.0);
                }
            }
            Mark::Label => {
                for point in &series.points {
                    let (x, y, ink) = (self.x(point.x), self.y(point.y), self.place.ink());
                    self.text(x + 9.0, y + 4.0, "start", ink, &point.text, " font-size=\"11\"");
                }
            }
            Mark::Ring | Mark::SmallRing | Mark::CrossedRing => {
                for point in &series.points {
                    let ring = ring(series.mark, self.place, self.x(point.x), self.y(point.y));
                    let title = escape(&point.text);
                    let _ = writeln!(self.out, "<g><title>{title}</title>{ring}</g>");
                }
            }
        }
    }

    fn path(&mut self, series: &Series, style: usize) {
        let mut path = String::new();
        let mut pen_down = false;
        for point in &series.points {
            let (x, y) = (self.x(point.x), self.y(point.y));
            if !(x.is_finite() && y.is_finite()) {
                pen_down = false;
                continue;
            }
            let _ = write!(path, "{}{x:.1} {y:.1}", if pen_down { 'L' } else { 'M' });
            pen_down = true;
        }
        let (width, opacity) = if series.mark == Mark::Faint { (1.0, 0.3) } else { (2.0, 1.0) };
        let _ = writeln!(
            self.out,
            "<path d=\"{path}\" style=\"fill:none;stroke:{};stroke-width:{width};opacity:{opacity};stroke-dasharray:{};stroke-linejoin:round\"/>",
            self.place.colour(style),
            match DASHES[style % DASHES.len()] {
                "" => "none",
                dash => dash,
            }
        );
    }

    /// Filled symbols.
    fn symbols(&mut self, series: &Series, style: usize, radius: f64, opacity: f64) {
        let look = format!("fill:{};opacity:{opacity}", self.place.colour(style));
        self.outlines(series, style, radius, &look);
    }

    fn outlines(&mut self, series: &Series, style: usize, radius: f64, look: &str) {
        for point in &series.points {
            let (x, y) = (self.x(point.x), self.y(point.y));
            if x.is_finite() && y.is_finite() {
                let outline = symbol(style, x, y, radius);
                let title = escape(&point.text);
                let _ = writeln!(
                    self.out,
                    "<path d=\"{outline}\" style=\"{look}\"><title>{title}</title></path>"
                );
            }
        }
    }

    /// The patterns of the hatched series.
    fn hatches(&mut self) {
        for (index, key) in self.chart.keys.iter().enumerate() {
            let mut series = self.chart.series.iter();
            if series.any(|series| series.key == index && series.mark == Mark::Hatched) {
                let _ = writeln!(
                    self.out,
                    "<pattern id=\"hatch-{}-{index}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><path d=\"M1 0V6\" style=\"stroke:{};stroke-width:1.6\"/></pattern>",
                    self.chart.id,
                    self.place.colour(key.style)
                );
            }
        }
    }

    fn intervals(&mut self, series: &Series, style: usize) {
        for point in &series.points {
            self.interval(point, &self.place.colour(style), 2.5, 6.0);
        }
    }

    /// A line from end to end: across it where the interval ends, an arrow where it goes on.
    fn interval(&mut self, point: &Point, colour: &str, width: f64, half: f64) {
        let (Some(low), Some(high)) = (point.low, point.high) else { return };
        let (low, high, y) = (self.x(low), self.x(high), self.y(point.y));
        let stroke = format!("stroke:{colour};stroke-width:{width}");
        self.line((low, y), (high, y), &stroke);
        for (end, outwards, is_cut) in [(low, -1.0, point.cut[0]), (high, 1.0, point.cut[1])] {
            if is_cut {
                let back = end - outwards * 1.8 * half;
                let _ = writeln!(
                    self.out,
                    "<path class=\"beyond\" d=\"M{end:.1} {y:.1}L{back:.1} {:.1}L{back:.1} {:.1}Z\" style=\"fill:{colour}\"/>",
                    y - half,
                    y + half
                );
            } else {
                self.line((end, y - half), (end, y + half), &stroke);
            }
        }
    }

    /// The rectangle of a bar: its left end, its top, its width and its height.
    fn bar_frame(&self, point: &Point) -> (f64, f64, f64, f64) {
        let (start, end) = (self.x(point.low.unwrap_or(0.0)), self.x(point.x));
        let rows = self.chart.y.ticks.len().max(1) as f64;
        let half = ((self.frame.bottom - self.frame.top) / rows * 0.32).min(13.0);
        let width = (end - start).abs().max(0.5);
        (start.min(end), self.y(point.y) - half, width, 2.0 * half)
    }

    fn hatched_bar(&mut self, point: &Point, key: usize) {
        let colour = self.place.colour(self.chart.keys[key].style);
        let id = &self.chart.id;
        self.rectangle(
            point,
            &format!("fill:url(#hatch-{id}-{key});stroke:{colour};stroke-width:1.4"),
        );
    }

    fn rectangle(&mut self, point: &Point, look: &str) {
        let (left, top, width, height) = self.bar_frame(point);
        let _ = writeln!(
            self.out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" style=\"{look}\"><title>{}</title></rect>",
            escape(&point.text)
        );
    }

    /// A piece of a bar, with its name in it where there is room: colour is not the only mark.
    fn bar(&mut self, point: &Point, style: usize, name: &str) {
        let (colour, paper) = (self.place.colour(style), self.place.paper());
        self.rectangle(point, &format!("fill:{colour};stroke:{paper};stroke-width:0.7"));
        let (from, top, width, height) = self.bar_frame(point);
        let (middle, to) = (top + height / 2.0, from + width);
        let needed = name.chars().count() as f64 * LETTER_WIDTH + 8.0;
        if !name.is_empty() && to - from > needed {
            let on = match (LIGHT_STYLES.contains(&(style % COLOURS.len())), self.place) {
                (true, _) => "#16171a",
                (false, Place::Page) => "var(--on)",
                (false, Place::File) => "#fff",
            };
            self.text((from + to) / 2.0, middle + 4.0, "middle", on, name, " font-size=\"11\"");
        }
    }
}

/// The outline of the symbol of a style: circle, square, diamond, triangles, cross, star.
fn symbol(style: usize, x: f64, y: f64, radius: f64) -> String {
    let corners: &[(f64, f64)] = match style % 7 {
        0 => {
            return format!(
                "M{:.1} {y:.1}a{radius} {radius} 0 1 0 {:.1} 0a{radius} {radius} 0 1 0 {:.1} 0Z",
                x - radius,
                2.0 * radius,
                -2.0 * radius
            );
        }
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
        let _ = write!(path, "{letter}{:.1} {:.1}", x + across * radius, y + down * radius);
    }
    path + "Z"
}
