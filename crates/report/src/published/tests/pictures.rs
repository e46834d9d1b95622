//! The pictures of published tables, and what leads to them.

use super::*;

use crate::chart::{Mark, Point, Series};
use crate::published::picture::draw::{Bar, Scale, draw_bars};
use crate::svg::{self, Place};

/// The charts of the first table, drawn as this says.
fn charts(picture: &str) -> Vec<Chart> {
    let text = STUDY.replacen(
        "title = \"Times\"\n",
        &format!("title = \"Times\"\npicture = {picture}\n"),
        1,
    );
    let (plan, records, analysis) = measured_of(&text, times);
    tables(&plan, &records, &analysis).remove(0).charts
}

fn values(chart: &Chart, mark: Mark) -> Vec<f64> {
    let series = chart.series.iter().filter(|series| series.mark == mark);
    series.flat_map(|series: &Series| &series.points).map(|point| point.x).collect()
}

fn near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
    }
}

#[test]
fn bars_are_multiples_of_the_reference_of_their_own_origin() {
    let charts =
        charts("{ draw = \"bars\", each = \"row\", of = [\"time\"], reference = \"one\" }");
    let [chart] = charts.as_slice() else { panic!("{charts:?}") };
    near(&values(chart, Mark::Hatched), &[1.0, 194.82 / 117.62]);
    // ext4 is the reference; btrfs, which the publication has not, follows.
    near(&values(chart, Mark::Bars), &[1.0, 2.0, 3.0]);
    let ticks: Vec<&str> = chart.y.ticks.iter().map(|tick| tick.text.as_str()).collect();
    assert_eq!(
        ticks,
        ["one, published", "ext4, here", "two, published", "xfs, here", "btrfs, here"]
    );
    let intervals = chart.series.iter().filter(|series| series.mark == Mark::Whisker);
    let ends: Vec<(f64, f64)> =
        intervals.flat_map(|s| &s.points).map(|p| (p.low.unwrap(), p.high.unwrap())).collect();
    assert_eq!(ends.len(), 2, "the baseline has no interval: {ends:?}");
    assert!(ends[0].0 <= 2.0001 && ends[0].1 >= 1.9999, "{ends:?}");
    for part in
        ["one 1 (117.62 s)", "two 1.656 (194.82 s)", "xfs 2.000 (2.000 s)", "factors compare"]
    {
        assert!(chart.says.contains(part), "no '{part}' in {}", chart.says);
    }
    let table = words(&chart.numbers);
    assert_eq!(table[2][..2], ["two, published", "published"]);
    assert_eq!(chart.numbers.rows[3][2].value.map(f64::round), Some(2.0));
    assert_eq!(table[2][5], "194.82", "with all the digits that were published");
}

#[test]
fn numbers_of_like_size_are_bars_and_others_are_symbols_on_a_scale_of_factors() {
    let charts = charts("{ draw = \"bars\", each = \"row\" }");
    let [time, ratio] = charts.as_slice() else { panic!("{charts:?}") };
    // 1 to 3 s here and up to 194 s there.
    assert!(time.x.logarithmic && values(time, Mark::Bars).is_empty());
    near(&values(time, Mark::Hollow), &[117.62, 194.82]);
    near(&values(time, Mark::Interval), &[1.0, 2.0, 3.0]);
    assert!(!ratio.x.logarithmic && ratio.x.range.0 == 0.0, "{:?}", ratio.x);
    near(&values(ratio, Mark::Hatched), &[1.0, 1.65]);
    // A ratio of the table stays what it is.
    near(&values(ratio, Mark::Bars), &[1.0, 2.0, 3.0]);
}

#[test]
fn published_numbers_keep_the_noughts_they_were_published_with() {
    let text = STUDY.replacen("\"117.62\", \"194.82\"", "\"1.0 to 1.50\", \"1.30\"", 1);
    let picture = "title = \"Times\"\npicture = { draw = \"bars\", each = \"row\" }\n";
    let text =
        text.replacen("title = \"Times\"\n", picture, 1).replace("[1, \"1.65\"]", "[1, \"1.60\"]");
    let (plan, records, analysis) = measured_of(&text, times);
    let charts = tables(&plan, &records, &analysis).remove(0).charts;
    assert!(charts[0].says.contains("one 1.0 to 1.50 s; two 1.30 s."), "{}", charts[0].says);
    assert!(charts[1].says.contains("one 1; two 1.60."), "{}", charts[1].says);
    let table = words(&charts[0].numbers);
    assert_eq!(table[0][2..5], ["-", "1.0", "1.50"]);
    assert!(table.iter().any(|row| row[2] == "1.30"), "{table:?}");
}

#[test]
fn published_ranges_and_noughts_are_drawn() {
    let text = STUDY.replacen("cells = [\"117.62\", \"194.82\"]", "cells = [\"10 to 20\", 0]", 1);
    let text = text.replacen(
        "title = \"Times\"\n",
        "title = \"Times\"\npicture = { draw = \"bars\", each = \"row\", of = [\"time\"] }\n",
        1,
    );
    let (plan, _, _) = measured_of(&text, times);
    let analysis = analyse(&plan, &[], None);
    let beside = tables(&plan, &[], &analysis).remove(0);
    let [chart] = beside.charts.as_slice() else { panic!("{:?}", beside.charts) };
    let bars: Vec<&Point> =
        chart.series.iter().filter(|s| s.mark == Mark::Hatched).flat_map(|s| &s.points).collect();
    assert_eq!((bars[0].low, bars[0].x, bars[1].x), (Some(10.0), 20.0, 0.0));
    assert_eq!(words(&chart.numbers)[0][2..], ["-", "10", "20"], "its middle was not published");
    assert!(chart.says.contains("one 10 to 20 s; two 0 s"), "{}", chart.says);
    assert!(chart.says.contains("Nothing of it was measured here"), "{}", chart.says);
}

#[test]
fn curves_run_over_the_columns_that_are_known() {
    let charts =
        charts("{ draw = \"curves\", of = [\"time\"], level = { at = 50, text = \"half\" } }");
    let [chart] = charts.as_slice() else { panic!("{charts:?}") };
    let names: Vec<&str> = chart.keys.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(names, ["time, published", "time, here"]);
    let points = |mark| {
        let series = chart.series.iter().find(|series| series.mark == mark).unwrap();
        series.points.iter().map(|point| point.y).collect::<Vec<_>>()
    };
    near(&points(Mark::Hollow), &[117.62, 194.82]);
    near(&points(Mark::Steps), &[1.0, 2.0]);
    assert!(svg::draw(chart, Place::File).contains(">half</text>"));
}

#[test]
fn what_is_published_is_told_from_what_was_measured_without_colour() {
    let charts = charts("{ draw = \"bars\", each = \"row\", of = [\"ext4 = 1\"] }");
    let file = svg::draw(&charts[0], Place::File);
    assert_eq!(
        file.matches("style=\"fill:url(#hatch-published-1-picture-1-0)").count(),
        2,
        "{file}"
    );
    assert_eq!(file.matches("<pattern id=\"hatch-published-1-picture-1-0\"").count(), 1);
    assert!(!file.contains("var(--") && file.contains(">1.65</text>"), "{file}");
}

#[test]
fn every_way_in_the_navigation_leads_somewhere() {
    let text = STUDY.replace(
        "unit = \"ms\"\n",
        "unit = \"ms\"\npicture = { draw = \"bars\", each = \"column\" }\n",
    );
    let (plan, records, analysis) = measured_of(&text, times);
    let section = section(&plan, &records, &analysis, &[]);
    assert_eq!(section.charts.len(), 1);
    let ways: Vec<&str> = section
        .navigation
        .split("href=\"#")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert_eq!(
        ways,
        ["published", "conclusions", "published-1", "published-2", "published-2-picture-1"]
    );
    for way in ways {
        assert_eq!(section.html.matches(&format!(" id=\"{way}\"")).count(), 1, "{way}");
    }
    assert!(section.html.contains("data-chart=\"0\""), "{}", section.html);
}

fn bar(key: usize, value: f64, interval: Option<(f64, f64)>) -> Bar {
    Bar {
        label: "x".into(),
        key,
        value,
        interval,
        ends: interval,
        absolute: None,
        published: None,
        instead: None,
    }
}

fn drawn(scale: Scale, layers: &[&str], bars: Vec<Bar>) -> Chart {
    let layers = layers.iter().map(|layer| layer.to_string()).collect();
    draw_bars("id".into(), "title".into(), "axis".into(), scale, layers, bars)
}

#[test]
fn every_load_has_a_key_of_its_own() {
    let loads = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let bars = (1..=loads.len()).map(|key| bar(key, key as f64, None)).collect();
    let chart = drawn(Scale::Absolute(None), &loads, bars);
    let drawn = chart.series.iter().filter(|series| series.mark == Mark::Bars);
    let names: Vec<&str> = drawn.map(|series| chart.keys[series.key].name.as_str()).collect();
    assert_eq!(names, loads.map(|load| format!("here, {load}")));
    let styles: std::collections::BTreeSet<usize> =
        chart.keys[..loads.len()].iter().map(|key| key.style).collect();
    assert_eq!(styles.len(), loads.len(), "as many as there are beside the published one's");
}

#[test]
fn the_reference_is_seen_where_bars_begin_at_it() {
    // Far apart, so that the axis is one of factors, and bars begin at 1.
    let bars = vec![bar(0, 1.0, None), bar(1, 1.0, None), bar(1, 30.0, Some((28.0, 32.0)))];
    let chart = drawn(Scale::Multiple(None), &["load"], bars);
    assert!(chart.x.logarithmic);
    let of = |mark| values(&chart, mark);
    assert_eq!((of(Mark::Hollow), of(Mark::Interval)), (vec![1.0], vec![1.0]));
    assert_eq!((of(Mark::Hatched), of(Mark::Bars)), (vec![], vec![30.0]));
}

#[test]
fn an_interval_far_below_all_numbers_says_how_far_it_reaches() {
    let bars = vec![bar(1, 20.0, Some((-300.0, 25.0))), bar(1, 30.0, Some((28.0, 32.0)))];
    let chart = drawn(Scale::Absolute(None), &["load"], bars);
    let points = |mark| chart.series.iter().filter(move |s| s.mark == mark).flat_map(|s| &s.points);
    let lows: Vec<f64> = points(Mark::Whisker).map(|point| point.low.unwrap()).collect();
    assert_eq!((lows, chart.x.range.0), (vec![0.0, 28.0], 0.0));
    let cut: Vec<[bool; 2]> = points(Mark::Whisker).map(|point| point.cut).collect();
    assert_eq!(cut, [[true, false], [false, false]]);
    let drawn = svg::draw(&chart, Place::File);
    assert_eq!(drawn.matches("class=\"beyond\"").count(), 1, "{drawn}");
    let labels: Vec<&str> = points(Mark::Label).map(|point| point.text.as_str()).collect();
    assert_eq!(labels, ["20.00, down to -300.0", "30.00"]);
}

#[test]
fn an_interval_that_says_nothing_is_not_drawn() {
    // xfs takes between a hundredth and a hundred times as long as ext4, from block to block.
    fn wild(contender: u64, block: u64) -> u64 {
        let factor = [1, 10_000, 100, 2, 9_000][block as usize];
        10_000_000 * if contender == 1 { factor } else { 100 }
    }
    let drawn_as = |of: &str| {
        let of = format!("title = \"Times\"\npicture = {{ {of}, of = [\"ext4 = 1\"] }}\n");
        let loss = "statistic = \"loss\", baseline = \"ext4\" }, unit = \"%\"";
        let ratio = "statistic = \"ratio\", baseline = \"ext4\" }";
        let text = STUDY.replacen("title = \"Times\"\n", &of, 1);
        let text = if of.contains("curves") { text.replace(ratio, loss) } else { text };
        let (plan, records, analysis) = measured_of(&text, wild);
        tables(&plan, &records, &analysis).remove(0)
    };
    let beside = drawn_as("draw = \"bars\", each = \"row\"");
    let cell = &words(&beside.table)[3][2];
    assert!(cell.contains("[too wide to tell]"), "{cell}");
    let [chart] = beside.charts.as_slice() else { panic!("{:?}", beside.charts) };
    let points = |mark| chart.series.iter().filter(move |s| s.mark == mark).flat_map(|s| &s.points);
    // That of btrfs, which takes as long as ext4 in each block.
    assert_eq!(points(Mark::Whisker).count(), 1, "{:?}", chart.series);
    let label = points(Mark::Label).map(|point| &point.text).find(|text| text.contains("too wide"));
    assert!(label.is_some_and(|text| text.ends_with(" [too wide to tell]")), "{label:?}");
    assert!(chart.says.contains("xfs") && chart.says.contains("[too wide to tell]"));
    let xfs = words(&chart.numbers).into_iter().find(|row| row[0].starts_with("xfs")).unwrap();
    assert!(xfs[3].starts_with("0.") && xfs[4] != "-", "the numbers have its ends: {xfs:?}");
    // As a curve it is a symbol in outline, which no line reaches.
    let chart = drawn_as("draw = \"curves\"").charts.remove(0);
    let of = |name: &str| {
        let key = chart.keys.iter().position(|key| key.name.ends_with(name)).unwrap();
        let own = chart.series.iter().filter(|one| one.key == key);
        own.map(|one| one.mark).collect::<Vec<_>>()
    };
    assert_eq!((of("published"), of("here")), (vec![Mark::Line, Mark::Hollow], vec![Mark::Hollow]));
    assert!(words(&chart.numbers)[1].last().unwrap().ends_with('?'));
    assert_eq!(chart.signs[0].text, "in outline without a line: not decided");
}

#[test]
fn an_interval_far_beyond_all_numbers_leaves_them_room() {
    let bars = vec![bar(1, 0.5, Some((0.4, 0.6))), bar(1, 0.7, Some((0.1, 20.0)))];
    let chart = drawn(Scale::Multiple(None), &["load"], bars);
    assert!(!chart.x.logarithmic && chart.x.range.1 < 3.0, "{:?}", chart.x);
    let points = |mark| chart.series.iter().filter(move |s| s.mark == mark).flat_map(|s| &s.points);
    let highs: Vec<f64> = points(Mark::Whisker).map(|point| point.high.unwrap()).collect();
    assert_eq!(highs, [0.6, 1.6]);
    let cut: Vec<[bool; 2]> = points(Mark::Whisker).map(|point| point.cut).collect();
    assert_eq!(cut, [[false, false], [false, true]]);
    let labels: Vec<&str> = points(Mark::Label).map(|point| point.text.as_str()).collect();
    assert_eq!(labels, ["0.500", "0.700, up to 20.0"]);
    // The numbers keep their whole intervals.
    assert_eq!(chart.numbers.rows[1][4].value, Some(20.0));
}

#[test]
fn a_long_name_says_that_it_was_published_where_the_axis_has_room() {
    let labels = |name: &str| -> Vec<String> {
        let text = STUDY.replacen("head = \"one\"", &format!("head = \"{name}\""), 1).replacen(
            "title = \"Times\"\n",
            "title = \"Times\"\npicture = { draw = \"bars\", each = \"row\", of = [\"time\"] }\n",
            1,
        );
        let (plan, records, analysis) = measured_of(&text, times);
        let chart = tables(&plan, &records, &analysis).remove(0).charts.remove(0);
        chart.y.ticks.into_iter().map(|tick| tick.text).collect()
    };
    assert_eq!(labels("Ext3 on Samsung SSD")[0], "Ext3 on Samsung SSD, published");
    // Cut off, "published" would be lost before the name is.
    assert_eq!(labels("Ext3 on a Samsung SSD")[0], "Ext3 on a Samsung SSD");
}
