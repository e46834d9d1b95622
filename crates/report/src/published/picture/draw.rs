//! Draws what a published table's picture holds: bars, symbols or curves, the published ones in
//! outline. Knows nothing of where the numbers came from.

use std::fmt::Write;

use lab::published::{Picture, PublishedTable, PublishedUnit};

use crate::chart::{self, Axis, Chart, Guide, Key, Mark, Point, Series, Tick, extremes};
use crate::edge;
use crate::published::row;
use crate::table::{Cell, Table};
use crate::text;

/// Greatest quotient of the largest and the smallest number whose bars can both be read.
const LINEAR_SPREAD_MAX: f64 = 20.0;
/// How far beyond the largest number intervals are drawn, as a factor.
const INTERVAL_REACH_MAX: f64 = 1.6;
/// Part of the axis that is left for the labels to the right of the bars.
const LABEL_ROOM: f64 = 0.36;
/// Styles of the published numbers, and of those measured here, one a workload; more of them begin
/// again.
pub const PUBLISHED_STYLE: usize = 7;
const HERE_STYLES: [usize; 7] = [0, 3, 6, 1, 2, 4, 5];

/// One number of a picture.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Who or what.
    pub label: String,
    /// 0 for a published number, from 1 on for the counterparts.
    pub key: usize,
    /// The number that is drawn, the middle of a range.
    pub value: f64,
    /// Its interval, or the ends of a published range.
    pub interval: Option<(f64, f64)>,
    /// The ends of its interval even where they say nothing, for the numbers below the picture.
    pub ends: Option<(f64, f64)>,
    /// The number in the table's unit, where a multiple is drawn instead.
    pub absolute: Option<f64>,
    /// As it was published, the number or both ends of its range; none of a measured one.
    pub published: Option<(String, String)>,
    /// What stands in the place of an interval that says nothing.
    pub instead: Option<&'static str>,
}

/// What the numbers of a picture are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Multiples of one of them; the numbers themselves have this unit.
    Multiple(Option<PublishedUnit>),
    /// Numbers in a unit.
    Absolute(Option<PublishedUnit>),
}

/// How the numbers lie on the axis.
struct Ground {
    axis: Axis,
    /// Where bars begin; none where symbols are drawn instead.
    bars_from: Option<f64>,
    /// Between what intervals are drawn.
    intervals: (f64, f64),
}

fn ground(title: String, scale: Scale, bars: &[Bar]) -> Ground {
    let ends = || bars.iter().filter_map(|bar| bar.interval).flat_map(|(low, high)| [low, high]);
    let base = if matches!(scale, Scale::Multiple(_)) { Some(1.0) } else { None };
    // A published range is a number with two ends.
    let number = |bar: &Bar| match (bar.key, bar.interval) {
        (0, Some((_, high))) => high,
        _ => bar.value,
    };
    let values = || bars.iter().map(number).chain(base);
    let (low, high) = extremes(values()).unwrap_or((0.0, 1.0));
    if low > 0.0 && high / low > LINEAR_SPREAD_MAX {
        let (low, high) =
            extremes(values().chain(ends().filter(|end| *end > 0.0))).unwrap_or((low, high));
        let room = high * (high / low).powf(LABEL_ROOM / (1.0 - LABEL_ROOM));
        if let Some(axis) = Axis::logarithmic(title.clone(), [low, room].into_iter(), text::plain) {
            return Ground { axis, bars_from: base, intervals: (low, high) };
        }
    }
    // An interval that goes far beyond all numbers would leave no room for them.
    let (_, furthest) = extremes(ends().chain([high])).unwrap_or((low, high));
    let published = bars.iter().filter(|bar| bar.key == 0).filter_map(|bar| bar.interval);
    let low = published.fold(low, |low, ends| low.min(ends.0));
    let (low, high) = (low.min(0.0), furthest.min(high * INTERVAL_REACH_MAX).max(0.0));
    let room = (high - low) / (1.0 - LABEL_ROOM);
    let axis = Axis::linear(title, low, low + room);
    Ground { axis, bars_from: Some(0.0), intervals: (low, high) }
}

/// Draws the numbers of one row or column, each in a row of the picture. `layers` are the workloads
/// of the counterparts.
pub fn draw_bars(
    id: String,
    title: String,
    axis: String,
    scale: Scale,
    layers: Vec<String>,
    bars: Vec<Bar>,
) -> Chart {
    let ground = ground(axis, scale, &bars);
    let mut keys = vec![key("published", PUBLISHED_STYLE)];
    let several = layers.len() > 1;
    keys.extend(layers.iter().zip(HERE_STYLES.into_iter().cycle()).map(|(workload, style)| {
        match several {
            true => key(format!("here, {workload}"), style),
            false => key("here", style),
        }
    }));
    let all = bars.iter().enumerate();
    let series: Vec<Series> = all
        .flat_map(|(place, bar)| series_of(bar, place as f64, bar.key, scale, &ground))
        .collect();
    let axis = ground.axis;
    let labels: Vec<&str> = bars.iter().map(|bar| bar.label.as_str()).collect();
    let guides = match scale {
        Scale::Multiple(_) => vec![Guide::Line { x: 1.0, text: "1".into() }],
        Scale::Absolute(_) => Vec::new(),
    };
    Chart {
        says: says(&bars, scale, axis.logarithmic),
        height: 70 + 26 * bars.len() as u32,
        keys,
        series,
        guides,
        numbers: numbers(&bars, scale),
        ..Chart::new(id, title, axis, Axis::rows(&labels))
    }
}

/// A number in its row: a bar with its interval, or a symbol where bars say nothing; and its label.
fn series_of(bar: &Bar, place: f64, key: usize, scale: Scale, ground: &Ground) -> Vec<Series> {
    let (least, most) = ground.intervals;
    // A bar that ends where bars begin, that of the reference itself, would not be seen.
    let is_unseen = ground.axis.logarithmic && bar.interval.is_none();
    let bars_from = ground.bars_from.filter(|from| !(is_unseen && *from == bar.value));
    let words = words(bar, scale);
    let ends = bar.interval.map(|(low, high)| (low.clamp(least, most), high.clamp(least, most)));
    let said = format!("{}: {words}", bar.label);
    let point = Point { low: bars_from, ..Point::at(bar.value, place, said) };
    let with_ends = Point {
        low: ends.map(|ends| ends.0),
        high: ends.map(|ends| ends.1),
        cut: bar.interval.map_or([false; 2], |(low, high)| [low < least, high > most]),
        ..point.clone()
    };
    let one = |mark, point| Series { key, mark, points: vec![point] };
    let mut series = match (bars_from, bar.key, ends) {
        // A published range reaches from end to end; nothing was said of its middle.
        (Some(_), 0, Some((low, high))) => {
            vec![one(Mark::Hatched, Point { x: high, low: Some(low), ..point })]
        }
        (Some(_), 0, None) => vec![one(Mark::Hatched, point)],
        (Some(_), _, None) => vec![one(Mark::Bars, point)],
        (Some(_), _, Some(_)) => vec![one(Mark::Bars, point), one(Mark::Whisker, with_ends)],
        (None, 0, _) => vec![one(Mark::Hollow, with_ends)],
        (None, ..) => vec![one(Mark::Interval, with_ends)],
    };
    // A bar to the left of where bars begin has its label where it begins.
    let right = [bar.value, ends.map_or(bar.value, |ends| ends.1), bars_from.unwrap_or(bar.value)];
    let right = right.into_iter().fold(f64::MIN, f64::max);
    let end = |value| match scale {
        Scale::Multiple(_) => text::ratio(value),
        Scale::Absolute(_) => row::digits(value),
    };
    let mut label = words;
    // The ends of a published range are in its words.
    let here = bar.interval.filter(|_| bar.key != 0);
    if let Some((low, _)) = here.filter(|(low, _)| *low < least) {
        let _ = write!(label, ", down to {}", end(low));
    }
    if let Some((_, high)) = here.filter(|(_, high)| *high > most) {
        let _ = write!(label, ", up to {}", end(high));
    }
    series.push(one(Mark::Label, Point::at(right, place, label)));
    series
}

fn key(name: impl Into<String>, style: usize) -> Key {
    Key { name: name.into(), style, hidden: false, group: "publication" }
}

/// A number; a multiple with the number itself behind it. What was published keeps its digits.
fn words(bar: &Bar, scale: Scale) -> String {
    let (Scale::Multiple(unit) | Scale::Absolute(unit)) = scale;
    let unit = unit.map(|unit| format!(" {}", unit.name())).unwrap_or_default();
    let exact = |value| match &bar.published {
        Some((text, _)) => text.clone(),
        None => row::digits(value),
    };
    let own = match (&bar.published, bar.interval) {
        (Some(_), Some((low, high))) if bar.absolute.is_some() => {
            format!("{} to {}", text::ratio(low), text::ratio(high))
        }
        (Some((low, high)), Some(_)) => format!("{low} to {high}"),
        (Some((text, _)), None) if bar.absolute.is_none() => text.clone(),
        _ if matches!(scale, Scale::Multiple(_)) && bar.value == 1.0 => "1".to_string(),
        _ if matches!(scale, Scale::Multiple(_)) => text::ratio(bar.value),
        _ => exact(bar.value),
    };
    let said = match (scale, bar.absolute) {
        (_, Some(_)) if bar.key == 0 && bar.interval.is_some() => own,
        (_, Some(absolute)) => format!("{own} ({}{unit})", exact(absolute)),
        (Scale::Multiple(_), None) => own,
        (Scale::Absolute(_), None) => own + &unit,
    };
    match bar.instead {
        Some(instead) => format!("{said} [{instead}]"),
        None => said,
    }
}

/// The picture in words: every number, and how to read them.
fn says(bars: &[Bar], scale: Scale, logarithmic: bool) -> String {
    let of = |published: bool| {
        let bars = bars.iter().filter(|bar| (bar.key == 0) == published);
        let mut said = Vec::new();
        for bar in bars {
            let name = bar.label.trim_end_matches(", published").trim_end_matches(", here");
            said.push(format!("{name} {}", words(bar, scale)));
        }
        said
    };
    let mut parts = Vec::new();
    for (published, head) in [(true, "Published (in outline)"), (false, "Here (filled)")] {
        let said = of(published);
        parts.push(match said.is_empty() {
            true if published => "Nothing was published in numbers.".to_string(),
            true => "Nothing of it was measured here.".to_string(),
            false => format!("{head}: {}.", said.join("; ")),
        });
    }
    if bars.iter().any(|bar| bar.absolute.is_some()) {
        parts.push(
            "Each is a multiple of its own reference, published or measured, with the number itself behind it: machine and amount of work differ, factors compare. What was measured is paired within each block, so a multiple need not be the quotient of the numbers behind.".into(),
        );
    }
    if logarithmic {
        parts.push("Equal distances are equal factors.".into());
    }
    parts.join(" ")
}

fn numbers(bars: &[Bar], scale: Scale) -> Table {
    let figure = match scale {
        Scale::Multiple(_) => "multiple".to_string(),
        Scale::Absolute(Some(unit)) => unit.name().to_string(),
        Scale::Absolute(None) => "number".to_string(),
    };
    let mut table = Table::new(&["of", "origin", &figure, "from", "to", "number itself"]);
    for bar in bars {
        let number = |value: Option<f64>, text: Option<&String>| match (value, text) {
            (Some(value), Some(text)) => Cell::number(value, text.clone()),
            (Some(value), None) => Cell::number(value, row::digits(value)),
            (None, _) => "-".into(),
        };
        // A multiple of a published number was not published itself, nor was the middle of a range.
        let (low, high) = bar.published.as_ref().map(|(low, high)| (low, high)).unzip();
        let as_it_is = |text| if bar.absolute.is_none() { text } else { None };
        let is_one = bar.key != 0 || bar.interval.is_none();
        table.rows.push(vec![
            bar.label.as_str().into(),
            if bar.key == 0 { "published" } else { "here" }.into(),
            number(Some(bar.value).filter(|_| is_one), as_it_is(low)),
            number(bar.ends.map(|ends| ends.0), as_it_is(low)),
            number(bar.ends.map(|ends| ends.1), as_it_is(high)),
            number(bar.absolute.filter(|_| is_one), low),
        ]);
    }
    table.without_empty_columns()
}

/// A row of a table as a curve.
pub struct Curve {
    pub name: String,
    pub style: usize,
    pub published: bool,
    pub values: Vec<Option<Place>>,
}

/// A number of a curve.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub value: f64,
    /// Whether an interval or nothing at all speaks against its direction; of a published number, and
    /// of one that compares nothing, always so.
    pub decided: bool,
}

/// Draws the rows of a table as curves over those columns of which anything is known.
pub fn draw_curves(
    id: String,
    table: &PublishedTable,
    picture: &Picture,
    unit: Option<PublishedUnit>,
    curves: &[Curve],
) -> Option<Chart> {
    let columns: Vec<usize> = (0..table.columns.len())
        .filter(|column| curves.iter().any(|curve| curve.values[*column].is_some()))
        .collect();
    let unit_name = unit.map_or("", PublishedUnit::name);
    let mut keys = Vec::new();
    let mut series = Vec::new();
    let mut numbers = Table { heads: vec![format!("in {unit_name}")], rows: Vec::new() };
    numbers.heads.extend(columns.iter().map(|column| table.columns[*column].clone()));
    let mut said = Vec::new();
    for curve in curves.iter().filter(|curve| curve.values.iter().any(Option::is_some)) {
        let text = |one: Place| row::digits(one.value) + if one.decided { "" } else { "?" };
        let known =
            || columns.iter().enumerate().filter_map(|(x, c)| Some((x, *c, curve.values[*c]?)));
        let points: Vec<(Point, bool)> = known()
            .map(|(x, column, one)| {
                let head = &table.columns[column];
                let words = format!("{}, {head}: {} {unit_name}", curve.name, text(one));
                (Point::at(x as f64, one.value, words), one.decided)
            })
            .collect();
        let values = columns.iter().map(|column| match curve.values[*column] {
            Some(one) => Cell::number(one.value, text(one)),
            None => "-".into(),
        });
        numbers.rows.push(std::iter::once(curve.name.as_str().into()).chain(values).collect());
        let texts: Vec<String> = known().map(|(.., one)| text(one)).collect();
        said.push(format!("{} {}", curve.name, texts.join(", ")));
        let key_place = keys.len();
        keys.push(key(curve.name.clone(), curve.style));
        if curve.published {
            let points: Vec<Point> = points.into_iter().map(|(point, _)| point).collect();
            series.push(Series { key: key_place, mark: Mark::Line, points: points.clone() });
            series.push(Series { key: key_place, mark: Mark::Hollow, points });
        } else {
            series.extend(chart::curve(key_place, points));
        }
    }
    let beyond = match unit {
        Some(PublishedUnit::Percent) => edge::bound(&mut series, &keys),
        _ => String::new(),
    };
    let signs = chart::undecided_sign(&series);
    let undecided = match signs.is_empty() {
        true => "",
        false => " A number with ? is not decided: its interval allows for no difference.",
    };
    let level = picture.level.as_ref();
    let values = series.iter().flat_map(|series: &Series| &series.points).map(|point| point.y);
    let (low, high) = extremes(values)?;
    let (low, high) = extremes([low, high, 0.0].into_iter().chain(level.map(|l| l.at)))?;
    let room = ((high - low) * 0.08).max(1.0);
    let heads: Vec<&str> = columns.iter().map(|column| table.columns[*column].as_str()).collect();
    let ticks = heads.iter().enumerate();
    let mut guides = vec![Guide::Level { y: 0.0 }];
    guides.extend(level.map(|level| Guide::NamedLevel { y: level.at, text: level.text.clone() }));
    let without = match curves
        .iter()
        .any(|curve| curve.published && curve.values.iter().any(Option::is_some))
    {
        true => "",
        false => " The publication's curves carry no numbers.",
    };
    let x = Axis {
        title: String::new(),
        logarithmic: false,
        range: (-0.3, edge::end_of_places(columns.len(), &series)),
        ticks: ticks.map(|(at, head)| Tick { at: at as f64, text: head.to_string() }).collect(),
        fixed: true,
    };
    let y = Axis::linear(unit_name, low - room, high + room);
    Some(Chart {
        says: format!(
            "At {}: {}. Intervals stand in the table, where there are any.{undecided}{without}{beyond}",
            heads.join(", "),
            said.join("; ")
        ),
        keys,
        series,
        guides,
        signs,
        numbers,
        ..Chart::new(id, super::short(&table.title).to_string(), x, y)
    })
}
