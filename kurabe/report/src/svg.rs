//! A chart as SVG: in the page, on paper and, on request, as a file of its own.
//!
//! A picture in the page is as wide as the screen: places are shares of the plot in percent, letters and symbols
//! have their size in px, and lines lie in a box of their own that is stretched. The script of the page
//! (`assets/report.js`) enlarges a part by two attributes of one element and reads what is pointed at from the
//! marks. A file has the same marks at places in px. Colours are those of Okabe & Ito (2008), which differ for the
//! colour-blind too, and every key has a dash and a symbol of its own besides.

use std::fmt::Write;

use crate::chart::{Axis, Chart, ChartSeries, Guide, Point, SeriesStyle};
use crate::text::escape;

mod legend;
mod shape;

pub use legend::{sign, swatch};
pub use shape::sprite;
use shape::{Side, SymbolShape, SymbolSize};

/// Width of a picture in px.
pub const WIDTH: u32 = 760;

/// The letters of all pictures, as an attribute.
pub const FONT: &str =
    "font-family=\"system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif\"";

/// Colours by the style of a key, for light paper.
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#5b5b5b"];
/// Dashes by style, as `stroke-dasharray` has them.
const DASHES: [&str; 8] = ["none", "7 3", "2 2", "9 3 2 3", "12 4", "4 4", "1 3", "6 2 1 2 1 2"];
/// Styles whose colours are so light that letters on them are dark on any paper.
const LIGHT_STYLES: [usize; 3] = [3, 4, 5];
/// Letters and lines.
const INK: &str = "#1d1d1f";
const FAINT: &str = "#6a6a70";
const RULE: &str = "#dcdce0";

/// Who looks at the picture, which decides where its colours come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SvgDestination {
    /// In the page, whose style sheet knows whether it is dark, and how wide it is.
    Page,
    /// A file of its own: with a title and a legend, and the colours spelled out.
    File,
}

impl SvgDestination {
    fn colour(self, style: usize) -> String {
        let index = style % COLOURS.len();
        match self {
            SvgDestination::Page => format!("var(--k{index})"),
            SvgDestination::File => COLOURS[index].to_string(),
        }
    }

    /// Colour of letters.
    pub fn ink(self) -> &'static str {
        if self == SvgDestination::Page { "var(--ink)" } else { INK }
    }

    fn paper(self) -> &'static str {
        if self == SvgDestination::Page { "var(--paper)" } else { "#fff" }
    }

    /// Colour of letters of less weight.
    pub fn faint(self) -> &'static str {
        if self == SvgDestination::Page { "var(--faint)" } else { FAINT }
    }

    fn rule(self) -> &'static str {
        if self == SvgDestination::Page { "var(--rule)" } else { RULE }
    }
}

fn dash_of(style: usize) -> &'static str {
    DASHES[style % DASHES.len()]
}

/// The rectangle inside the axes, in px of a file.
struct Frame {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

struct Drawing<'a> {
    chart: &'a Chart,
    place: SvgDestination,
    /// Of no meaning in the page.
    frame: Frame,
    out: String,
}

/// Heights of what stands above and below the plot in a file, and of its title and a row of its legend.
const ABOVE: f64 = 14.0;
const BELOW: f64 = 46.0;
const TITLE_HEIGHT: f64 = 30.0;
const LEGEND_HEIGHT: f64 = 22.0;
/// About the width of a letter of 12 px.
const LETTER_WIDTH: f64 = 6.6;
/// The same where nothing may be cut off: fonts differ.
const LETTER_WIDTH_MAX: f64 = 7.3;
/// The width of a plot on a narrow screen, for labels that have no room there.
const NARROW_WIDTH: f64 = 280.0;
/// On a narrow screen a row has its label above it, of this height.
const ROW_LABEL_HEIGHT: f64 = 18.0;
/// Lines in the page have their places in a box of so many units a side.
const BOX: f64 = 10_000.0;

pub fn draw(chart: &Chart, place: SvgDestination) -> String {
    match place {
        SvgDestination::Page => in_page(chart),
        SvgDestination::File => file(chart),
    }
}

/// Width of the labels of the vertical axis in px.
fn beside(chart: &Chart) -> f64 {
    let widest = chart.y.ticks.iter().map(|tick| tick.text.chars().count()).max().unwrap_or(0);
    14.0 + widest as f64 * LETTER_WIDTH_MAX
}

/// The picture in the page, which the style sheet gives its width.
fn in_page(chart: &Chart) -> String {
    let rows = if chart.y.fixed { " rows" } else { "" };
    let height = f64::from(chart.height) - ABOVE - BELOW;
    let narrow =
        if chart.y.fixed { height + ROW_LABEL_HEIGHT * chart.y.ticks.len() as f64 } else { height };
    let mut out = String::new();
    if !chart.y.title.is_empty() {
        let _ = writeln!(out, "<p class=\"axis\">{}</p>", escape(&chart.y.title));
    }
    let _ = writeln!(
        out,
        "<div class=\"plot{rows}\" data-x=\"{}\" data-y=\"{}\" style=\"--left:{:.0}px;--height:{height:.0}px;--narrow:{narrow:.0}px;--row:{:.0}px\">\n<svg class=\"area\" role=\"img\" aria-labelledby=\"{id}-title\" aria-describedby=\"{id}-says\">",
        ends(&chart.x),
        ends(&chart.y),
        beside(chart),
        narrow / chart.y.ticks.len().max(1) as f64,
        id = chart.id
    );
    let frame = Frame { left: 0.0, top: 0.0, right: 0.0, bottom: 0.0 };
    let mut drawing = Drawing { chart, place: SvgDestination::Page, frame, out };
    drawing.axes();
    drawing.out.push_str("<svg class=\"clip\"><svg class=\"zoom\"><g class=\"shift\">\n");
    drawing.marks();
    let mut out = drawing.out + "</g></svg></svg>\n</svg>\n</div>\n";
    let _ = writeln!(out, "<p class=\"axis x\">{}</p>", escape(&chart.x.title));
    out
}

/// What the script must know of an axis to label a part of it; nothing where its labels are names of places.
fn ends(axis: &Axis) -> String {
    let kind = match (axis.fixed, axis.logarithmic, axis.of_times) {
        (true, ..) => return String::new(),
        (_, false, _) => "linear",
        (_, true, false) => "log",
        (_, true, true) => "time",
    };
    format!("{kind} {} {}", axis.range.0, axis.range.1)
}

/// The picture as a file: with a title and a legend.
fn file(chart: &Chart) -> String {
    let legend = legend_rows(chart);
    let head = TITLE_HEIGHT + legend.len() as f64 * LEGEND_HEIGHT;
    let height = f64::from(chart.height) + head;
    let title = if chart.y.title.is_empty() { 0.0 } else { 20.0 };
    let frame = Frame {
        left: title + beside(chart),
        top: head + ABOVE,
        right: f64::from(WIDTH) - 18.0,
        bottom: height - BELOW,
    };
    let Frame { left, top, right, bottom } = frame;
    let mut drawing = Drawing { chart, place: SvgDestination::File, frame, out: String::new() };
    let out = &mut drawing.out;
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" {FONT} font-size=\"12\" width=\"{WIDTH}\" height=\"{height}\"><title>{}</title>\n<desc>{}</desc>\n<rect width=\"{WIDTH}\" height=\"{height}\" style=\"fill:#fff\"/>",
        escape(&chart.title),
        escape(&chart.says)
    );
    let _ = writeln!(
        out,
        "<text x=\"14\" y=\"21\" font-weight=\"600\" font-size=\"14\" style=\"fill:{INK}\">{}</text>",
        escape(&chart.title)
    );
    drawing.legend(&legend);
    drawing.axes();
    let (middle, across) = ((left + right) / 2.0, (top + bottom) / 2.0);
    let out = &mut drawing.out;
    let _ = writeln!(
        out,
        "<g text-anchor=\"middle\" style=\"fill:{FAINT}\"><text x=\"{middle:.1}\" y=\"{:.1}\">{}</text><text transform=\"translate(13 {across:.1}) rotate(-90)\">{}</text></g>",
        bottom + 37.0,
        escape(&chart.x.title),
        escape(&chart.y.title)
    );
    let clip = format!("clip-{}", chart.id);
    let _ = writeln!(
        out,
        "<clipPath id=\"{clip}\"><rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/></clipPath><g clip-path=\"url(#{clip})\">",
        top - 6.0,
        right - left + 8.0,
        bottom - top + 12.0
    );
    drawing.marks();
    drawing.out + "</g>\n</svg>\n"
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
    let keys = chart.keys_drawn().into_iter();
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

/// A share of the plot in percent.
fn percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

impl Drawing<'_> {
    /// The place of a share of the plot, from the left.
    fn across(&self, share: f64) -> String {
        match self.place {
            SvgDestination::Page => percent(share),
            SvgDestination::File => {
                format!("{:.1}", self.frame.left + share * (self.frame.right - self.frame.left))
            }
        }
    }

    /// The place of a share of the plot, from below.
    fn up(&self, share: f64) -> String {
        match self.place {
            SvgDestination::Page => percent(1.0 - share),
            SvgDestination::File => {
                format!("{:.1}", self.frame.bottom - share * (self.frame.bottom - self.frame.top))
            }
        }
    }

    fn x(&self, value: f64) -> String {
        self.across(self.chart.x.place(value))
    }

    fn y(&self, value: f64) -> String {
        self.up(self.chart.y.place(value))
    }

    /// The attributes of a rectangle between two places, each of shares from the left and from below.
    fn rectangle(&self, (left, bottom): (f64, f64), (right, top): (f64, f64)) -> String {
        let (width, height) = match self.place {
            SvgDestination::Page => (percent(right - left), percent(top - bottom)),
            SvgDestination::File => (
                format!("{:.1}", (right - left) * (self.frame.right - self.frame.left)),
                format!("{:.1}", (top - bottom) * (self.frame.bottom - self.frame.top)),
            ),
        };
        format!(
            "x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\"",
            self.across(left),
            self.up(top)
        )
    }

    /// A text at a place, so many px beside it.
    fn text(&mut self, [x, y]: [&str; 2], [dx, dy]: [i32; 2], more: &str, text: &str) {
        let text = escape(text);
        let _ = writeln!(
            self.out,
            "<text x=\"{x}\" y=\"{y}\" dx=\"{dx}\" dy=\"{dy}\"{more}>{text}</text>"
        );
    }

    fn line(&mut self, [x1, y1]: [&str; 2], [x2, y2]: [&str; 2], more: &str) {
        let _ = writeln!(self.out, "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"{more}/>");
    }

    /// A shape at a place; what is said of it where anything is.
    fn stamp(&mut self, shape: SymbolShape, [x, y]: [&str; 2], says: &str) {
        let (open, name) = match self.place {
            SvgDestination::Page => {
                (format!("<use href=\"#{}\" x=\"{x}\" y=\"{y}\"", shape.id()), "use")
            }
            SvgDestination::File => (
                format!("<path transform=\"translate({x} {y})\" d=\"{}\"", shape.outline()),
                "path",
            ),
        };
        let _ = match says {
            "" => writeln!(self.out, "{open}/>"),
            says => writeln!(self.out, "{open}><title>{}</title></{name}>", escape(says)),
        };
    }

    fn group(&mut self, style: &str) {
        let _ = writeln!(self.out, "<g style=\"{style}\">");
    }

    fn end(&mut self) {
        self.out.push_str("</g>\n");
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
                let _ = writeln!(
                    self.out,
                    "<text x=\"{:.1}\" y=\"{y:.1}\" style=\"fill:{INK}\">{}</text>",
                    x + 34.0,
                    escape(name)
                );
                x += key_width(name);
            }
        }
    }

    /// The axes with their labels, and the names of vertical lines.
    fn axes(&mut self) {
        let chart = self.chart;
        let (faint, rule) = (self.place.faint(), self.place.rule());
        let (top, bottom) = (self.up(1.0), self.up(0.0));
        let (left, right) = (self.across(0.0), self.across(1.0));
        let rule = format!(" style=\"stroke:{rule}\"");
        let _ = writeln!(
            self.out,
            "<g class=\"x\" text-anchor=\"middle\" style=\"fill:{faint};stroke-width:1\">"
        );
        let mut written_to = [f64::NEG_INFINITY; 2];
        for tick in &chart.x.ticks {
            let x = self.x(tick.at);
            self.line([&x, &top], [&x, &bottom], &rule);
            // A label that would run into the one before it is left out.
            let share = chart.x.place(tick.at);
            let half = tick.text.chars().count() as f64 * LETTER_WIDTH / 2.0;
            let wide = f64::from(WIDTH) - 18.0 - beside(chart);
            let fits = [0, 1].map(|place| {
                let at = share * [wide, NARROW_WIDTH][place];
                let fits = at - half > written_to[place] + 4.0;
                if fits {
                    written_to[place] = at + half;
                }
                fits
            });
            match fits {
                [true, true] => self.text([&x, &bottom], [0, 17], "", &tick.text),
                [true, false] => self.text([&x, &bottom], [0, 17], " class=\"wide\"", &tick.text),
                [false, _] => {}
            }
        }
        for guide in &chart.guides {
            if let Guide::Line { x, text } = guide
                && (0.0..=1.0).contains(&chart.x.place(*x))
            {
                let is_right = chart.x.place(*x) > 0.8;
                let (anchor, dx) = if is_right { ("end", -4) } else { ("start", 4) };
                let more = format!(" class=\"guide\" font-size=\"11\" text-anchor=\"{anchor}\"");
                let x = self.x(*x);
                self.text([&x, &top], [dx, -3], &more, text);
            }
        }
        self.end();
        let _ = writeln!(
            self.out,
            "<g class=\"y\" text-anchor=\"end\" style=\"fill:{faint};stroke-width:1\">"
        );
        for tick in &chart.y.ticks {
            let y = self.y(tick.at);
            if !chart.y.fixed {
                self.line([&left, &y], [&right, &y], &rule);
            }
            self.text([&left, &y], [-8, 4], "", &tick.text);
        }
        if self.place == SvgDestination::Page && chart.y.fixed {
            self.labels_above();
        }
        self.end();
        self.line([&left, &bottom], [&right, &bottom], &format!(" style=\"stroke:{faint}\""));
    }

    /// The numbers beside bars once more, for a narrow screen, where there is room for them above the bars only.
    fn labels_above(&mut self) {
        let chart = self.chart;
        for series in chart.series.iter().filter(|series| series.mark == SeriesStyle::Label) {
            for point in &series.points {
                let y = self.y(point.y);
                self.text(["100%", &y], [0, 4], " class=\"above\"", &point.text);
            }
        }
    }

    /// Everything that lies inside the axes.
    fn marks(&mut self) {
        let chart = self.chart;
        for guide in &chart.guides {
            if let Guide::Band { from, to } = guide {
                let place = |value| chart.x.place(value).clamp(0.0, 1.0);
                let frame = self.rectangle((place(*from), 0.0), (place(*to), 1.0));
                let rule = self.place.rule();
                let _ = writeln!(self.out, "<rect {frame} style=\"fill:{rule};opacity:0.55\"/>");
            }
        }
        // Lines lie over the bars, which would hide them.
        if !chart.is_of_bars() {
            self.guides();
        }
        self.hatches();
        for series in chart.series.iter().filter(|series| !series.points.is_empty()) {
            let _ = match self.place {
                SvgDestination::Page => writeln!(self.out, "<g data-key=\"{}\">", series.key),
                SvgDestination::File => writeln!(self.out, "<g>"),
            };
            self.series(series);
            self.end();
        }
        if chart.is_of_bars() {
            self.guides();
        }
    }

    fn guides(&mut self) {
        let chart = self.chart;
        let ink = format!(" style=\"stroke:{}\"", self.place.ink());
        for guide in &chart.guides {
            match guide {
                Guide::Band { .. } => {}
                Guide::Level { y } => {
                    let (y, left, right) = (self.y(*y), self.across(0.0), self.across(1.0));
                    self.line([&left, &y], [&right, &y], &ink);
                }
                Guide::Line { x, .. } if (0.0..=1.0).contains(&chart.x.place(*x)) => {
                    let (x, top, bottom) = (self.x(*x), self.up(1.0), self.up(0.0));
                    self.line([&x, &top], [&x, &bottom], &ink);
                }
                Guide::Line { .. } => {}
            }
        }
    }

    fn series(&mut self, series: &ChartSeries) {
        let style = self.chart.keys[series.key].style;
        let (colour, paper) = (self.place.colour(style), self.place.paper());
        match series.mark {
            SeriesStyle::Line | SeriesStyle::Faint => self.path(series, style, true),
            SeriesStyle::Steps => {
                self.path(series, style, false);
                self.symbols(series, style, SymbolSize::Step, &format!("fill:{colour}"));
            }
            SeriesStyle::Dots => {
                let look = format!("fill:{colour};fill-opacity:0.6");
                self.symbols(series, style, SymbolSize::Dot, &look);
            }
            SeriesStyle::Interval => {
                self.intervals(series, &colour, 2.5, 6);
                self.symbols(series, style, SymbolSize::Large, &format!("fill:{colour}"));
            }
            SeriesStyle::Hollow => {
                self.intervals(series, &colour, 2.5, 6);
                let look = format!("fill:{paper};stroke:{colour};stroke-width:1.8");
                self.symbols(series, style, SymbolSize::Hollow, &look);
            }
            // In ink, which is seen on a bar as well as beside it.
            SeriesStyle::Whisker => self.intervals(series, self.place.ink(), 1.4, 4),
            SeriesStyle::Bars => self.bars(series, style),
            SeriesStyle::Hatched => {
                let hatch = format!("url(#hatch-{}-{})", self.chart.id, series.key);
                self.group(&format!("fill:{hatch};stroke:{colour};stroke-width:1.4"));
                series.points.iter().for_each(|point| self.bar(point));
                self.end();
            }
            SeriesStyle::Label => {
                self.group(&format!("fill:{};font-size:11px", self.place.ink()));
                for point in &series.points {
                    let (x, y) = (self.x(point.x), self.y(point.y));
                    self.text([&x, &y], [9, 4], " class=\"label\"", &point.text);
                }
                self.end();
            }
            SeriesStyle::Ring | SeriesStyle::SmallRing | SeriesStyle::CrossedRing => {
                let width = if series.mark == SeriesStyle::Ring { 2.0 } else { 1.2 };
                self.group(&format!("fill:none;stroke:{};stroke-width:{width}", self.place.ink()));
                self.stamps(series, SymbolShape::Ring(series.mark));
                self.end();
            }
        }
    }

    /// A line. `says`: whether its points are told by it, and not by symbols on them.
    fn path(&mut self, series: &ChartSeries, style: usize, says: bool) {
        let mut path = String::new();
        let mut pen_down = false;
        let mut told: Vec<&str> = Vec::new();
        for point in &series.points {
            let (x, y) = (self.chart.x.place(point.x), self.chart.y.place(point.y));
            if !(x.is_finite() && y.is_finite()) {
                pen_down = false;
                continue;
            }
            let letter = if pen_down { 'L' } else { 'M' };
            let _ = match self.place {
                SvgDestination::Page => {
                    write!(path, "{letter}{:.0} {:.0}", x * BOX, (1.0 - y) * BOX)
                }
                SvgDestination::File => write!(path, "{letter}{} {}", self.across(x), self.up(y)),
            };
            told.push(&point.text);
            pen_down = true;
        }
        let (width, opacity) =
            if series.mark == SeriesStyle::Faint { (1.0, 0.3) } else { (2.0, 1.0) };
        let look = format!(
            "style=\"fill:none;stroke:{};stroke-width:{width};opacity:{opacity};stroke-dasharray:{};stroke-linejoin:round\"",
            self.place.colour(style),
            dash_of(style)
        );
        let _ = match self.place {
            SvgDestination::Page => writeln!(
                self.out,
                "<svg class=\"line\" viewBox=\"0 0 {BOX} {BOX}\" preserveAspectRatio=\"none\"><path d=\"{path}\" {look}{}/></svg>",
                if says { in_attributes(&told) } else { String::new() }
            ),
            SvgDestination::File => writeln!(self.out, "<path d=\"{path}\" {look}/>"),
        };
    }

    fn symbols(&mut self, series: &ChartSeries, style: usize, size: SymbolSize, look: &str) {
        self.group(look);
        self.stamps(series, SymbolShape::Symbol(style, size));
        self.end();
    }

    fn stamps(&mut self, series: &ChartSeries, shape: SymbolShape) {
        for point in &series.points {
            let places = [self.chart.x.place(point.x), self.chart.y.place(point.y)];
            if places.iter().all(|place| place.is_finite()) {
                let (x, y) = (self.across(places[0]), self.up(places[1]));
                self.stamp(shape, [&x, &y], &point.text);
            }
        }
    }

    /// The patterns of the hatched series.
    fn hatches(&mut self) {
        for (index, key) in self.chart.keys.iter().enumerate() {
            let mut series = self.chart.series.iter();
            if series.any(|series| series.key == index && series.mark == SeriesStyle::Hatched) {
                let _ = writeln!(
                    self.out,
                    "<pattern id=\"hatch-{}-{index}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><path d=\"M1 0V6\" style=\"stroke:{};stroke-width:1.6\"/></pattern>",
                    self.chart.id,
                    self.place.colour(key.style)
                );
            }
        }
    }

    /// Lines from end to end: across them where the interval ends, an arrow where it goes on.
    fn intervals(&mut self, series: &ChartSeries, colour: &str, width: f64, half: u8) {
        self.group(&format!("fill:{colour};stroke:{colour};stroke-width:{width}"));
        for point in &series.points {
            let (Some(low), Some(high)) = (point.low, point.high) else { continue };
            let y = self.y(point.y);
            let ends = [(low, Side::Left), (high, Side::Right)].map(|(end, side)| {
                let share = self.chart.x.place(end);
                let is_cut = point.cut[side as usize] || !(-1e-9..=1.0 + 1e-9).contains(&share);
                (self.across(share.clamp(0.0, 1.0)), side, is_cut)
            });
            self.line([&ends[0].0, &y], [&ends[1].0, &y], "");
            for (x, side, is_cut) in &ends {
                let shape =
                    if *is_cut { SymbolShape::Arrow(half, *side) } else { SymbolShape::Cap(half) };
                self.stamp(shape, [x, &y], "");
            }
        }
        self.end();
    }

    /// Bars, each with its name in it where there is room: colour is not the only mark.
    fn bars(&mut self, series: &ChartSeries, style: usize) {
        let colour = self.place.colour(style);
        let paper = self.place.paper();
        self.group(&format!("fill:{colour};stroke:{paper};stroke-width:0.7"));
        series.points.iter().for_each(|point| self.bar(point));
        self.end();
        // Where bars have labels beside them, a name in them would be one too many.
        let labelled = self.chart.series.iter().any(|other| other.mark == SeriesStyle::Label);
        if labelled || !self.chart.legend {
            return;
        }
        let on = match (LIGHT_STYLES.contains(&(style % COLOURS.len())), self.place) {
            (true, _) => INK,
            (false, SvgDestination::Page) => "var(--on)",
            (false, SvgDestination::File) => "#fff",
        };
        let _ = writeln!(
            self.out,
            "<g class=\"wide\" text-anchor=\"middle\" style=\"fill:{on};font-size:11px;pointer-events:none\">"
        );
        let name = &self.chart.keys[series.key].name;
        let needed = name.chars().count() as f64 * LETTER_WIDTH + 8.0;
        for point in &series.points {
            let (from, to) = self.bar_ends(point);
            if (to - from) * f64::from(WIDTH - 18) - beside(self.chart) > needed {
                let (x, y) = (self.across((from + to) / 2.0), self.y(point.y));
                self.text([&x, &y], [0, 4], "", name);
            }
        }
        self.end();
    }

    /// The shares of the plot where a bar begins and ends.
    fn bar_ends(&self, point: &Point) -> (f64, f64) {
        let place = |value| self.chart.x.place(value).clamp(0.0, 1.0);
        let (one, other) = (place(point.low.unwrap_or(0.0)), place(point.x));
        (one.min(other), one.max(other).max(one.min(other) + 0.0006))
    }

    fn bar(&mut self, point: &Point) {
        let (left, right) = self.bar_ends(point);
        let half = 0.32 / self.chart.y.ticks.len().max(1) as f64;
        let middle = self.chart.y.place(point.y);
        let frame = self.rectangle((left, middle - half), (right, middle + half));
        let says = escape(&point.text);
        let _ = writeln!(self.out, "<rect {frame}><title>{says}</title></rect>");
    }
}

/// What is said of the points of a line: what all begin with, and the rest of each, one a line.
fn in_attributes(told: &[&str]) -> String {
    let told: Vec<String> = told.iter().map(|text| text.replace(['\n', '\r'], " ")).collect();
    let Some(first) = told.first() else { return String::new() };
    let alike = |other: &String| {
        let same = first.char_indices().zip(other.chars()).find(|((_, one), other)| one != other);
        same.map_or(first.len().min(other.len()), |((at, _), _)| at)
    };
    let common = told.iter().map(alike).min().unwrap_or(0);
    let rest: Vec<&str> = told.iter().map(|text| &text[common..]).collect();
    format!(" data-who=\"{}\" data-says=\"{}\"", escape(&first[..common]), escape(&rest.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_points_have_in_common_is_said_once() {
        let said =
            in_attributes(&["xfs, round 1: 3 s", "xfs, round 1: 4\ns", "xfs, round 1: 3 \"s"]);
        let expected = " data-who=\"xfs, round 1: \" data-says=\"3 s\n4 s\n3 &quot;s\"";
        assert_eq!(said, expected);
        assert_eq!(in_attributes(&["比べ", "比"]), " data-who=\"比\" data-says=\"べ\n\"");
        assert_eq!(in_attributes(&[]), "");
    }

    #[test]
    fn percentages_are_short() {
        assert_eq!([0.0, 0.5, 1.0, 1.0 / 3.0].map(percent), ["0%", "50%", "100%", "33.33%"]);
    }
}
