//! The plots of a page: curves over n, ratios to the floor, all repetitions, latencies by percentile, and all questions
//! at a glance. Each is a picture of [`super::svg`], or `None` when there is nothing to draw.

use super::model::{Contender, Section};
use super::number;
use super::published::PublishedStudy;
use super::svg::{Anchor, Axis, SvgShape, band, line, mark, picture, polyline, text, tick_text};
use crate::result::ResultRow;

/// Size in units of a plot with two axes; on a telephone a unit is a little less than a pixel.
const SIZE: (f64, f64) = (380.0, 290.0);

/// Left, top, right, bottom of the area between the axes.
const AREA: (f64, f64, f64, f64) = (56.0, 14.0, 370.0, 246.0);

/// Start and end of the bars and dots in a plot of rows, and the height of a row.
const ROWS: (f64, f64, f64) = (128.0, 330.0, 25.0);

/// The CSS class with the colour of a client.
pub fn colour(client: &str) -> &'static str {
    match client {
        "fodo" => "c-fodo",
        "libca" => "c-libca",
        client if client.starts_with("fodo-java") => "c-fodo-java",
        client if client.starts_with("psi-ca") => "c-psi-ca",
        "aioca" => "c-aioca",
        "pyepics" => "c-pyepics",
        "caproto" => "c-caproto",
        client if client.starts_with("raw") => "c-raw",
        _ => "c-other",
    }
}

/// The CSS class of a line and the shape of its points.
pub fn style(contender: Contender<'_>) -> (String, SvgShape) {
    let client = colour(contender.client);
    match contender.server {
        "fodo" | "raw" => (client.into(), SvgShape::Circle),
        "soft-ioc" => (format!("{client} dashed"), SvgShape::Square),
        _ => (format!("{client} dotted"), SvgShape::Diamond),
    }
}

/// A line sample of this style for legends.
pub fn swatch(class: &str, shape: Option<SvgShape>) -> String {
    let dot = shape.map_or(String::new(), |shape| mark(class, shape, (14.0, 6.0), ""));
    let stroke = polyline(&format!("curve {class}"), &[(1.0, 6.0), (27.0, 6.0)]);
    format!("<svg class=\"swatch\" viewBox=\"0 0 28 12\" aria-hidden=\"true\">{stroke}{dot}</svg>")
}

/// One line of a plot.
struct Curve {
    class: String,
    shape: Option<SvgShape>,
    /// The marked points.
    points: Vec<PlotPoint>,
    /// The points of the line, where it has more than the marked ones.
    line: Vec<(f64, f64)>,
}

struct PlotPoint {
    x: f64,
    y: f64,
    interval: Option<(f64, f64)>,
    words: String,
}

/// Time per operation, over n. `None` with fewer than two points.
pub fn over_n(section: &Section<'_>, published: &[PublishedStudy], id: &str) -> Option<String> {
    let mut curves: Vec<Curve> = section.contenders.iter().map(|contender| curve(section, *contender)).collect();
    for (index, study) in published.iter().enumerate() {
        let point = |n: &u64| {
            let ns = section.published_ns(study, *n).filter(|ns| *ns > 0.0)?;
            let each = if section.moves_bytes() { ns } else { ns / *n as f64 };
            let words = format!("{}, n = {n}: {}", study.name(), number::time(each));
            Some(PlotPoint { x: *n as f64, y: each, interval: None, words })
        };
        let points = section.points.iter().filter_map(point).collect();
        curves.push(Curve { class: format!("c-study study-{index}"), shape: None, points, line: Vec::new() });
    }
    if !curves.iter().any(|curve| curve.points.len() > 1) {
        return None;
    }
    let unit = section.rows().first().map_or("ns", |row| row.unit.as_str());
    let y_words = if unit == "ns" { "time of one operation" } else { unit };
    let x_words = if section.moves_bytes() { "elements" } else { "n" };
    let title = format!("{} over {x_words}: {}, {}", y_words, section.question, section.place());
    let body = curves_body(&curves, (x_words, ""), (y_words, unit), &Ticks::Round)?;
    Some(picture(id, &title, "Both axes are logarithmic. The table has the numbers.", SIZE, &body))
}

fn curve(section: &Section<'_>, contender: Contender<'_>) -> Curve {
    let (class, shape) = style(contender);
    let point = |row: &ResultRow| {
        let (per, y) = (row.per_operation(), row.median_per_operation()?);
        let interval = row.low.zip(row.high).map(|(low, high)| (low * per, high * per));
        let words = format!("{}, n = {}: {}", contender.text(), row.point, number::value(y, &row.unit));
        Some(PlotPoint { x: row.point as f64, y, interval, words })
    };
    let points = section.measured(contender).into_iter().filter_map(point).collect();
    Curve { class, shape: Some(shape), points, line: Vec::new() }
}

/// Latency by percentile, up to the 99.99th: the complete distribution where a row has it, with its percentiles marked.
/// `None` when no row has percentiles.
pub fn percentiles(section: &Section<'_>, point: u64, id: &str) -> Option<String> {
    let mut curves = Vec::new();
    for (contender, row) in section.at(point) {
        let (class, shape) = style(contender);
        let mark = |&(share, value): &(f64, f64)| {
            let words = format!("{}, {share} %: {}", contender.text(), number::value(value, &row.unit));
            PlotPoint { x: nines(share), y: value, interval: None, words }
        };
        let inside = row.percentiles.iter().filter(|(share, _)| (0.0..100.0).contains(share));
        let line = distribution(row);
        curves.push(Curve { class, shape: Some(shape), points: inside.map(mark).collect(), line });
    }
    if !curves.iter().any(|curve| curve.points.len() > 1) {
        return None;
    }
    let title = format!("Latency by percentile: {}, n = {point}, {}", section.question, section.place());
    let body = curves_body(&curves, ("share of all single times", ""), ("latency", "ns"), &Ticks::Percentiles)?;
    Some(picture(id, &title, "At 99 %, one in a hundred took longer. Both axes are logarithmic.", SIZE, &body))
}

/// The share of times below each bound of a row's histogram, in the units of the axis, up to its last percentile.
fn distribution(row: &ResultRow) -> Vec<(f64, f64)> {
    let n: u64 = row.histogram.iter().map(|(_, count)| count).sum();
    let last = row.percentiles.iter().map(|(share, _)| *share).filter(|share| *share < 100.0).fold(0.0, f64::max);
    let mut below = 0;
    let shares = row.histogram.iter().map(|&(bound, count)| {
        below += count;
        (below as f64 / n.max(1) as f64 * 100.0, bound)
    });
    shares.take_while(|(share, _)| *share <= last).map(|(share, bound)| (nines(share), bound)).collect()
}

/// Inverse of the share beyond a percentile: 100 for 99 %, 1000 for 99.9 %. Nines are evenly spaced on a logarithmic
/// axis.
fn nines(per_cent: f64) -> f64 {
    100.0 / (100.0 - per_cent).max(1e-6)
}

enum Ticks {
    Round,
    Percentiles,
}

fn curves_body(curves: &[Curve], x_axis: (&str, &str), y_axis: (&str, &str), ticks: &Ticks) -> Option<String> {
    let (left, top, right, bottom) = AREA;
    let points = || {
        let marked = |curve: &Curve| curve.points.iter().map(|point| (point.x, point.y)).collect::<Vec<_>>();
        curves.iter().flat_map(move |curve| [marked(curve), curve.line.clone()].concat())
    };
    let x = Axis::over(points().map(|(x, _)| x), left, right)?;
    let y = Axis::over(points().map(|(_, y)| y), bottom, top)?;
    let mut body = String::new();
    for tick in y.ticks() {
        let place = y.at(tick);
        body += &line("grid", (left, place), (right, place));
        body += &text(left - 6.0, place + 4.0, Anchor::End, "tick", &tick_text(tick, y_axis.1));
    }
    let x_ticks: Vec<(f64, String)> = match ticks {
        Ticks::Round => x.ticks().into_iter().map(|tick| (tick, tick_text(tick, x_axis.1))).collect(),
        Ticks::Percentiles => [50.0, 90.0, 99.0, 99.9, 99.99].map(|share| (nines(share), format!("{share} %"))).into(),
    };
    for (tick, words) in x_ticks {
        body += &line("grid", (x.at(tick), top), (x.at(tick), bottom));
        body += &text(x.at(tick), bottom + 16.0, Anchor::Middle, "tick", &words);
    }
    body += &text((left + right) / 2.0, bottom + 36.0, Anchor::Middle, "label", x_axis.0);
    body += &text(left, top - 1.0, Anchor::Start, "label above", y_axis.0);
    // Fodo is drawn last and so lies on top.
    for curve in curves.iter().rev() {
        body += &curve_body(curve, x, y);
    }
    Some(body)
}

fn curve_body(curve: &Curve, x: Axis, y: Axis) -> String {
    let places: Vec<(f64, f64)> = curve.points.iter().map(|point| (x.at(point.x), y.at(point.y))).collect();
    let ends = |end: fn((f64, f64)) -> f64| -> Vec<(f64, f64)> {
        let known = curve.points.iter().filter_map(|point| Some((x.at(point.x), y.at(end(point.interval?)))));
        known.collect()
    };
    let mut body = String::new();
    if curve.points.iter().any(|point| point.interval.is_some()) {
        body += &band(&format!("band {}", curve.class), &ends(|interval| interval.1), &ends(|interval| interval.0));
    }
    let line: Vec<(f64, f64)> = curve.line.iter().map(|(at, value)| (x.at(*at), y.at(*value))).collect();
    body += &polyline(&format!("curve {}", curve.class), if line.is_empty() { &places } else { &line });
    for (point, place) in curve.points.iter().zip(&places) {
        if let Some(shape) = curve.shape {
            body += &mark(&curve.class, shape, *place, &point.words);
        }
    }
    body
}

/// Ratio to the floor of each contender, at one point. `None` when no contender has a floor.
pub fn ratios(section: &Section<'_>, point: u64, id: &str) -> Option<String> {
    let rows: Vec<_> = section.at(point).into_iter().filter_map(|(who, row)| Some((who, row.to_floor()?))).collect();
    let (left, right, step) = ROWS;
    let axis = Axis::over(rows.iter().map(|(_, ratio)| *ratio).chain([1.0]), left, right)?;
    if rows.is_empty() {
        return None;
    }
    let height = 14.0 + step * rows.len() as f64;
    let mut body = x_ticks(axis, height, |tick| format!("{}\u{d7}", super::svg::trimmed(tick)));
    for (index, (contender, ratio)) in rows.iter().enumerate() {
        let middle = 10.0 + step * (index as f64 + 0.5);
        let (start, end) = (axis.at(1.0).min(axis.at(*ratio)), axis.at(1.0).max(axis.at(*ratio)));
        let width = (end - start).max(1.0);
        let hollow = if contender.server == "fodo" { "" } else { " pale" };
        body += &text(left - 8.0, middle + 4.0, Anchor::End, name_class(*contender), &contender.text());
        body += &format!(
            "<rect class=\"bar {}{hollow}\" x=\"{start:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" rx=\"2\"/>",
            colour(contender.client),
            middle - 7.0
        );
        body += &text(end + 5.0, middle + 4.0, Anchor::Start, "value", &number::times(*ratio));
    }
    body += &line("one", (axis.at(1.0), 6.0), (axis.at(1.0), height));
    let title = format!("Times the floor: {}, n = {point}, {}", section.question, section.place());
    let words = "1 is a raw socket that transfers as many bytes. The axis is logarithmic.";
    Some(picture(id, &title, words, (SIZE.0, height + 40.0), &(body + &below(height, "times the floor"))))
}

/// Every repetition as a dot, the median as a stroke, its 95 % interval as a bar, at one point.
pub fn repetitions(section: &Section<'_>, point: u64, id: &str) -> Option<String> {
    let rows = section.at(point);
    let (left, right, step) = (ROWS.0, SIZE.0 - 12.0, ROWS.2);
    let all = rows.iter().flat_map(|(_, row)| row.samples.iter().map(|sample| sample * row.per_operation()));
    let axis = Axis::over(all, left, right)?;
    let unit = rows.first().map_or("ns", |(_, row)| row.unit.as_str());
    let height = 14.0 + step * rows.len() as f64;
    let mut body = x_ticks(axis, height, |tick| tick_text(tick, unit));
    for (index, (contender, row)) in rows.iter().enumerate() {
        let middle = 10.0 + step * (index as f64 + 0.5);
        let (class, per) = (colour(contender.client), row.per_operation());
        body += &text(left - 8.0, middle + 4.0, Anchor::End, name_class(*contender), &contender.text());
        body += &line("rail", (left, middle), (right, middle));
        if let Some((low, high)) = row.low.zip(row.high) {
            let (start, end) = (axis.at(low * per), axis.at(high * per));
            body += &line(&format!("interval {class}"), (start, middle), (end.max(start + 1.0), middle));
        }
        for sample in &row.samples {
            let words = format!("{}: {}", contender.text(), number::value(sample * per, unit));
            body += &mark(&format!("dot {class}"), SvgShape::Circle, (axis.at(sample * per), middle), &words);
        }
        if let Some(median) = row.median_per_operation() {
            body += &line(&format!("median {class}"), (axis.at(median), middle - 8.0), (axis.at(median), middle + 8.0));
        }
    }
    let title = format!("All repetitions: {}, n = {point}, {}", section.question, section.place());
    let words = "Dots are repetitions, the stroke is their median, the bar its 95 % interval.";
    let label = if unit == "ns" { "time of one operation" } else { unit };
    Some(picture(id, &title, words, (SIZE.0, height + 40.0), &(body + &below(height, label))))
}

fn name_class(contender: Contender<'_>) -> &'static str {
    if contender.client == "fodo" { "name ours" } else { "name" }
}

fn x_ticks(axis: Axis, height: f64, words: impl Fn(f64) -> String) -> String {
    let mut body = String::new();
    let mut last_end = f64::NEG_INFINITY;
    for tick in axis.ticks() {
        let (place, words) = (axis.at(tick), words(tick));
        body += &line("grid", (place, 6.0), (place, height));
        let half = 3.6 * words.chars().count() as f64;
        if place - half > last_end {
            body += &text(place, height + 16.0, Anchor::Middle, "tick", &words);
            last_end = place + half;
        }
    }
    body
}

fn below(height: f64, words: &str) -> String {
    let (left, right, _) = ROWS;
    text((left + right) / 2.0, height + 34.0, Anchor::Middle, "label", words)
}

/// One question at a glance: each client's time relative to Fodo's.
pub struct Glance<'a> {
    /// The question's id and the point, such as `Q16, 1k`.
    pub name: String,
    /// Client, and its time divided by Fodo's.
    pub ratios: Vec<(&'a str, f64)>,
}

/// All questions in one picture: Fodo is the line at 1; to the left of it is less time.
pub fn glance(rows: &[Glance<'_>], words: &str, id: &str) -> Option<String> {
    let all = rows.iter().flat_map(|row| row.ratios.iter().map(|(_, ratio)| *ratio));
    let (left, right, step) = (ROWS.0, SIZE.0 - 12.0, ROWS.2);
    let axis = Axis::over(all.chain([1.0, 0.5, 10.0]), left, right)?;
    if rows.is_empty() {
        return None;
    }
    let height = 24.0 + step * rows.len() as f64;
    let mut body = x_ticks(axis, height, |tick| format!("{}\u{d7}", super::svg::trimmed(tick)));
    body += &text(axis.at(1.0) - 6.0, 14.0, Anchor::End, "tick", "\u{2190} less time");
    body += &text(axis.at(1.0) + 6.0, 14.0, Anchor::Start, "tick", "more than Fodo \u{2192}");
    for (index, row) in rows.iter().enumerate() {
        let middle = 20.0 + step * (index as f64 + 0.5);
        body += &text(left - 10.0, middle + 4.0, Anchor::End, "name", &row.name);
        body += &line("rail", (left, middle), (right, middle));
        for (client, ratio) in &row.ratios {
            let words = format!("{}: {client} takes {} as long as Fodo", row.name, number::times(*ratio));
            body += &mark(&format!("big {}", colour(client)), SvgShape::Circle, (axis.at(*ratio), middle), &words);
        }
        body += &mark("big c-fodo", SvgShape::Circle, (axis.at(1.0), middle), "Fodo");
    }
    body += &line("one c-fodo", (axis.at(1.0), 18.0), (axis.at(1.0), height));
    let body = body + &text((left + right) / 2.0, height + 34.0, Anchor::Middle, "label", "time by Fodo's time");
    Some(picture(id, "Every question at a glance", words, (SIZE.0, height + 42.0), &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_plot_follows_bucket_bounds_up_to_the_last_percentile() {
        let row = ResultRow {
            histogram: vec![(10.0, 50), (100.0, 49), (1000.0, 1)],
            percentiles: vec![(50.0, 9.0), (99.0, 90.0)],
            ..ResultRow::default()
        };

        assert_eq!(distribution(&row), [(2.0, 10.0), (100.0, 100.0)]);
    }
}
