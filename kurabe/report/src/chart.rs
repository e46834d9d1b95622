//! A chart as data: axes, series, guides and the words and numbers for a reader who does not see it.
//!
//! [`crate::svg`] draws it, in the page and as a file. Nothing here knows of results. Invariants: every
//! range is finite and not empty, on a logarithmic axis positive; every series belongs to a key.

use lab::words::is_telling;

use crate::table::Table;

#[derive(Debug, Clone)]
pub struct Chart {
    /// Identifier, unique in a page; also the name of the SVG file.
    pub id: String,
    pub title: String,
    /// What is to be seen, in whole sentences with numbers: the text alternative.
    pub says: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Height in px at the width of [`crate::svg::WIDTH`].
    pub height: u32,
    /// The entries of the legend.
    pub keys: Vec<LegendEntry>,
    /// Whether the legend is needed; rows that carry their own labels can do without.
    pub legend: bool,
    /// What is drawn, in order.
    pub series: Vec<ChartSeries>,
    /// Lines and bands behind the series.
    pub guides: Vec<Guide>,
    /// The marks that the legend explains.
    pub signs: Vec<Sign>,
    /// The numbers that are drawn.
    pub numbers: Table,
}

impl Chart {
    /// A chart with a legend and nothing in it yet.
    pub fn new(id: String, title: String, x: Axis, y: Axis) -> Chart {
        Chart {
            id,
            title,
            says: String::new(),
            x,
            y,
            height: 300,
            keys: Vec::new(),
            legend: true,
            series: Vec::new(),
            guides: Vec::new(),
            signs: Vec::new(),
            numbers: Table::new(&[]),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Axis {
    /// What it measures, with its unit.
    pub title: String,
    /// Whether equal distances are equal factors.
    pub logarithmic: bool,
    /// Ends of the axis, in the units of the data.
    pub range: (f64, f64),
    /// Marks with their labels.
    pub ticks: Vec<Tick>,
    /// Whether the labels stand for places that have no others between them (rows, percentiles),
    /// so that they stay as they are when a reader zooms in.
    pub fixed: bool,
    /// Whether it is of times in ns, which its labels give in units that suit them.
    pub of_times: bool,
}

/// A mark of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    pub at: f64,
    pub text: String,
}

/// An entry of the legend: what can be hidden.
#[derive(Debug, Clone)]
pub struct LegendEntry {
    pub name: String,
    /// Which colour, dash and symbol of the palette.
    pub style: usize,
    /// What is hidden together, in all charts, is what has this and the name in common.
    pub group: &'static str,
}

impl LegendEntry {
    /// A contender, whose style is its place in the study.
    pub fn contender(label: &str, style: usize) -> LegendEntry {
        LegendEntry { name: label.into(), style, group: "contender" }
    }
}

/// Points that are drawn alike.
#[derive(Debug, Clone)]
pub struct ChartSeries {
    pub key: usize,
    /// How they are drawn.
    pub mark: SeriesStyle,
    pub points: Vec<Point>,
}

/// How the points of a series are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesStyle {
    Line,
    /// A thin, pale line, for single trials behind their median.
    Faint,
    /// A line with a symbol at each point.
    Steps,
    /// Symbols, pale, for single trials.
    Dots,
    /// A large symbol with a horizontal interval from `low` to `high`.
    Interval,
    /// Horizontal bars from `low` to `x`, in the row `y`.
    Bars,
    /// A ring around a place that is pointed out.
    Ring,
    /// Horizontal bars like `Bars`, in outline and hatched: numbers of another origin.
    Hatched,
    /// Symbols in outline, with a horizontal interval where there is one: likewise.
    Hollow,
    /// The horizontal interval from `low` to `high` alone.
    Whisker,
    /// The point's text, to the right of its place.
    Label,
    /// A small ring, for a place on a single trial.
    SmallRing,
    /// A crossed ring, for something found about a single trial.
    CrossedRing,
}

/// What a mark stands for that is no contender's alone: an entry of the legend.
#[derive(Debug, Clone)]
pub struct Sign {
    pub mark: SeriesStyle,
    pub text: String,
}

#[derive(Debug, Clone)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Lower end of its interval, or the start of a bar.
    pub low: Option<f64>,
    /// Upper end of its interval.
    pub high: Option<f64>,
    /// Whether the interval goes on beyond `low` and beyond `high`, where the picture ends: an
    /// arrow is drawn there, and no end.
    pub cut: [bool; 2],
    /// What is said when it is pointed at.
    pub text: String,
}

impl Chart {
    /// Whether all that it has is bars.
    pub fn is_of_bars(&self) -> bool {
        self.series.iter().all(|series| series.mark == SeriesStyle::Bars)
    }

    /// Places of the keys of which anything is drawn.
    pub fn keys_drawn(&self) -> Vec<usize> {
        let drawn = |key: &usize| {
            self.series.iter().any(|series| series.key == *key && !series.points.is_empty())
        };
        (0..self.keys.len()).filter(drawn).collect()
    }
}

impl Point {
    /// A point without an interval.
    pub fn at(x: f64, y: f64, text: impl Into<String>) -> Point {
        Point { x, y, low: None, high: None, cut: [false; 2], text: text.into() }
    }

    /// The point with these ends of its interval, where it has one.
    pub fn between(self, ends: Option<(f64, f64)>) -> Point {
        let (low, high) = ends.unzip();
        Point { low, high, ..self }
    }
}

/// A curve, of whose points the ones without a mark of certainty are not decided: they stand in
/// outline, and no line leads to them, so that nobody takes their place for a course.
pub fn curve(key: usize, points: Vec<(Point, bool)>) -> Vec<ChartSeries> {
    let mut series: Vec<ChartSeries> = Vec::new();
    for run in points.chunk_by(|one, other| one.1 == other.1) {
        let mark = if run[0].1 { SeriesStyle::Steps } else { SeriesStyle::Hollow };
        series.push(ChartSeries {
            key,
            mark,
            points: run.iter().map(|one| one.0.clone()).collect(),
        });
    }
    series
}

/// The legend of what [`curve`] draws in outline; empty where it drew nothing so.
pub fn undecided_sign(series: &[ChartSeries]) -> Vec<Sign> {
    let text = "in outline without a line: inconclusive".to_string();
    let has_line = |one: &ChartSeries| {
        series.iter().any(|other| other.key == one.key && other.mark == SeriesStyle::Line)
    };
    let is_undecided = |one: &ChartSeries| one.mark == SeriesStyle::Hollow && !has_line(one);
    if series.iter().any(is_undecided) {
        vec![Sign { mark: SeriesStyle::Hollow, text }]
    } else {
        Vec::new()
    }
}

/// Something behind the series that they are read against.
#[derive(Debug, Clone)]
pub enum Guide {
    Line {
        x: f64,
        text: String,
    },
    /// A horizontal line.
    Level {
        y: f64,
    },
    Band {
        /// Left end.
        from: f64,
        /// Right end.
        to: f64,
    },
}

impl Guide {
    /// What ratios are read against: the one that counts as 1, and the margin within which two count
    /// as the same.
    pub fn of_ratios(baseline: &str, same_within: f64) -> Vec<Guide> {
        let margin = 1.0 + same_within;
        vec![
            Guide::Band { from: margin.recip(), to: margin },
            Guide::Line { x: 1.0, text: format!("{baseline} = 1") },
        ]
    }
}

impl Axis {
    /// An axis of rows, the first on top, at the places 0, 1, 2 and so on.
    pub fn rows<'a>(labels: impl IntoIterator<Item = &'a str>) -> Axis {
        let tick = |(row, label)| Tick { at: row as f64, text: short(label) };
        let ticks: Vec<Tick> = labels.into_iter().enumerate().map(tick).collect();
        // The first row on top: the axis runs downwards.
        let range = (ticks.len() as f64 - 0.5, -0.5);
        Axis::named("", range, ticks)
    }

    /// A linear axis of places that have names, and nothing between them.
    pub fn named(title: impl Into<String>, range: (f64, f64), ticks: Vec<Tick>) -> Axis {
        let title = title.into();
        Axis { title, logarithmic: false, range, ticks, fixed: true, of_times: false }
    }

    /// A logarithmic axis around 1 and the places and intervals of all points, but for intervals that tell nothing:
    /// they would press all others together, and go on beyond its ends. None without any.
    pub fn of_ratios(title: impl Into<String>, series: &[ChartSeries]) -> Option<Axis> {
        let points = series.iter().flat_map(|series| &series.points);
        let values = points.flat_map(|point| {
            let ends = point.low.zip(point.high).filter(|(low, high)| is_telling(*low, *high));
            let (low, high) = ends.unzip();
            [Some(point.x), low, high].into_iter().flatten()
        });
        let mut values = values.peekable();
        values.peek()?;
        Axis::logarithmic(title, values.chain([1.0]), crate::text::plain)
    }

    /// A linear axis from 0 (or below) to the largest value.
    pub fn from_zero(title: impl Into<String>, values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = extremes(values).unwrap_or((0.0, 1.0));
        let (low, high) = (low.min(0.0), if high > 0.0 { high } else { 1.0 });
        Axis::linear(title, low, high * 1.04)
    }

    /// A linear axis between two values.
    pub fn linear(title: impl Into<String>, low: f64, high: f64) -> Axis {
        let high = if high > low { high } else { low + 1.0 };
        let ticks = linear_ticks(low, high, 6.0);
        Axis { fixed: false, ..Axis::named(title, (low, high), ticks) }
    }

    /// A logarithmic axis around positive values, labelled by `label`. None without any.
    pub fn logarithmic(
        title: impl Into<String>,
        values: impl Iterator<Item = f64>,
        label: fn(f64) -> String,
    ) -> Option<Axis> {
        let (low, high) = extremes(values.filter(|value| *value > 0.0))?;
        // A little room on both sides, and some span where all values are one.
        let room = (high / low).powf(0.05).max(1.03);
        let range = (low / room, high * room);
        let ticks = logarithmic_ticks(range.0, range.1, label);
        Some(Axis { logarithmic: true, fixed: false, ..Axis::named(title, range, ticks) })
    }

    /// A logarithmic axis of times in ns. None without any above 0.
    pub fn of_times(title: impl Into<String>, values: impl Iterator<Item = f64>) -> Option<Axis> {
        let axis = Axis::logarithmic(title, values, crate::text::round_time)?;
        Some(Axis { of_times: true, ..axis })
    }

    /// Where a value lies between the ends, 0 to 1 within the axis.
    pub fn place(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        if self.logarithmic {
            (value.ln() - low.ln()) / (high.ln() - low.ln())
        } else {
            (value - low) / (high - low)
        }
    }
}

/// Longest label that an axis of rows shows whole.
pub const LABEL_CHARACTERS_MAX: usize = 30;

/// A label that leaves room for the chart beside it.
pub fn short(label: &str) -> String {
    if label.chars().count() <= LABEL_CHARACTERS_MAX {
        return label.to_string();
    }
    let head: String = label.chars().take(LABEL_CHARACTERS_MAX - 1).collect();
    format!("{}…", head.trim_end())
}

/// How far beside its row a dot lies, by its place among the dots, so that equal ones do not hide one another.
pub fn row_offset(place: usize) -> f64 {
    ((place * 7 % 11) as f64 - 5.0) * 0.022
}

/// Smallest and largest of the finite values.
pub fn extremes(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |found, value| match found {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

/// At most about `count` marks at multiples of 1, 2 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64, count: f64) -> Vec<Tick> {
    let rough = (high - low) / count;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let first = (low / step).ceil() as i64;
    (first..)
        .map(|count| count as f64 * step)
        .take_while(|at| *at <= high + step * 1e-9)
        .map(|at| Tick { at, text: format!("{at:.digits$}") })
        .collect()
}

/// Marks at powers of ten, with 2 and 5 between them on a short axis, and finer ones on a very
/// short one.
fn logarithmic_ticks(low: f64, high: f64, label: fn(f64) -> String) -> Vec<Tick> {
    if !low.is_normal() || !high.is_normal() {
        return Vec::new();
    }
    let decades = (high / low).log10();
    if decades < 0.8 {
        let ticks = linear_ticks(low, high, 9.0).into_iter().filter(|tick| tick.at > 0.0);
        return ticks.map(|tick| Tick { text: label(tick.at), ..tick }).collect();
    }
    let factors: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last)
        .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
        .filter(|at| (low..=high).contains(at))
        .map(|at| Tick { at, text: label(at) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.text.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers_inside_the_axis() {
        assert_eq!(
            texts(&linear_ticks(0.0, 1.04, 6.0)),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
        assert_eq!(texts(&linear_ticks(-3.0, 9.0, 6.0)), ["-2", "0", "2", "4", "6", "8"]);
        let label = |value: f64| format!("{value}");
        assert_eq!(texts(&logarithmic_ticks(0.9, 11.0, label)), ["1", "2", "5", "10"]);
        assert_eq!(texts(&logarithmic_ticks(1.0, 1e6, label)).len(), 7);
        assert!(logarithmic_ticks(0.97, 1.21, label).len() >= 3);
    }

    #[test]
    fn axes_stay_finite_whatever_the_values() {
        let axis = Axis::from_zero("t", [0.0, f64::NAN, f64::INFINITY].into_iter());
        assert!(axis.range.0 < axis.range.1 && axis.range.1.is_finite(), "{axis:?}");
        let axis = Axis::logarithmic("t", [5.0, 5.0, 0.0, -1.0].into_iter(), |v| v.to_string());
        let axis = axis.unwrap();
        assert!(axis.range.0 < 5.0 && axis.range.1 > 5.0, "{axis:?}");
        assert!(Axis::logarithmic("t", [0.0].into_iter(), |v| v.to_string()).is_none());
    }

    #[test]
    fn places_run_from_end_to_end() {
        let rows = Axis::rows(["a", "b"]);
        assert_eq!((rows.place(0.0), rows.place(1.0)), (0.75, 0.25));
        let axis = Axis { logarithmic: true, range: (1.0, 100.0), ..rows };
        assert!((axis.place(10.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn long_labels_are_cut() {
        assert_eq!(short("ext4"), "ext4");
        assert_eq!(short(&"é".repeat(40)).chars().count(), LABEL_CHARACTERS_MAX);
    }
}
