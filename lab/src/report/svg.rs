//! Axes, marks and text of a plot, as SVG. The page defines colours and fonts: marks have only classes.

use std::fmt::Write;

use super::number;

/// Escapes text for markup.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            other => escaped.push(other),
        }
    }
    escaped
}

/// A complete picture of `size` units, which the page scales to the available width. `id` is unique in the page.
pub fn picture(id: &str, title: &str, words: &str, size: (f64, f64), body: &str) -> String {
    let (width, height) = size;
    format!(
        "<svg class=\"plot\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>{body}</svg>",
        escaped(title),
        escaped(words)
    )
}

/// The anchor of a text.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// Its start.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// A text at a position.
pub fn text(x: f64, y: f64, anchor: Anchor, class: &str, words: &str) -> String {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(words))
}

/// A straight line.
pub fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>")
}

/// A line through points.
pub fn polyline(class: &str, points: &[(f64, f64)]) -> String {
    let mut list = String::new();
    for (x, y) in points {
        let _ = write!(list, "{x:.1},{y:.1} ");
    }
    format!("<polyline class=\"{class}\" points=\"{}\"/>", list.trim_end())
}

/// An area between two lines over the same points.
pub fn band(class: &str, upper: &[(f64, f64)], lower: &[(f64, f64)]) -> String {
    let mut list = String::new();
    for (x, y) in upper.iter().chain(lower.iter().rev()) {
        let _ = write!(list, "{x:.1},{y:.1} ");
    }
    format!("<polygon class=\"{class}\" points=\"{}\"/>", list.trim_end())
}

/// How a point is drawn: the shape indicates the server, the colour of the class the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SvgShape {
    /// A filled circle.
    Circle,
    /// A hollow square.
    Square,
    /// A hollow diamond.
    Diamond,
}

/// A point with a tooltip.
pub fn mark(class: &str, shape: SvgShape, (x, y): (f64, f64), words: &str) -> String {
    let outline = match shape {
        SvgShape::Circle => format!("<circle class=\"full {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.4\">"),
        SvgShape::Square => {
            format!("<rect class=\"open {class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"6\" height=\"6\">", x - 3.0, y - 3.0)
        }
        SvgShape::Diamond => {
            format!("<path class=\"open {class}\" d=\"M{x:.1} {:.1}l4 4 -4 4 -4 -4z\">", y - 4.0)
        }
    };
    let end = match shape {
        SvgShape::Circle => "</circle>",
        SvgShape::Square => "</rect>",
        SvgShape::Diamond => "</path>",
    };
    format!("{outline}<title>{}</title>{end}", escaped(words))
}

/// A logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis for positive `values`, from position `from` to `to`; spans at least half a decade, with a margin at the
    /// ends. `None` without a positive value.
    pub fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Axis> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for logarithm in values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10) {
            (low, high) = (low.min(logarithm), high.max(logarithm));
        }
        if low > high {
            return None;
        }
        let air = (0.06 * (high - low)).max((0.5 - (high - low)) / 2.0);
        Some(Axis { low: low - air, high: high + air, from, to })
    }

    /// The position of a value; values outside are clamped to the ends.
    pub fn at(self, value: f64) -> f64 {
        let share = (value.max(f64::MIN_POSITIVE).log10() - self.low) / (self.high - self.low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values, not too many: decades; with values between them if there are few.
    pub fn ticks(self) -> Vec<f64> {
        let decades = self.high - self.low;
        let steps: &[f64] = match decades {
            d if d < 1.2 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            d if d < 2.5 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let stride = if decades > 7.0 { 2 } else { 1 };
        let first = self.low.floor() as i32;
        let exponents = (first..=self.high.ceil() as i32).filter(|exponent| exponent % stride == 0);
        exponents
            .flat_map(|exponent| steps.iter().map(move |step| step * 10_f64.powi(exponent)))
            .filter(|tick| (self.low..=self.high).contains(&tick.log10()))
            .collect()
    }
}

/// The label of a tick.
pub fn tick_text(value: f64, unit: &str) -> String {
    if unit == "ns" {
        let (scaled, name) = match value {
            v if v < 999.0 => (v, "ns"),
            v if v < 999e3 => (v / 1e3, "µs"),
            v if v < 999e6 => (v / 1e6, "ms"),
            v => (v / 1e9, "s"),
        };
        return format!("{} {name}", trimmed(scaled));
    }
    number::short(value)
}

/// A number without trailing zeros.
pub fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_of_any_range_has_a_few_round_ticks() {
        for (low, high) in [(1.0, 1.0), (3.0, 4.0), (1.0, 20.0), (1.0, 1e5), (1.0, 1e9), (0.002, 7e4)] {
            let axis = Axis::over([low, high].into_iter(), 0.0, 100.0).unwrap();

            let ticks = axis.ticks();

            assert!((2..=10).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (0.0..=100.0).contains(&axis.at(*tick))));
        }
    }

    #[test]
    fn the_axis_is_logarithmic_and_clamps_out_of_range_values() {
        let axis = Axis::over([1.0, 100.0, f64::NAN, 0.0].into_iter(), 200.0, 0.0).unwrap();

        let (first, middle, last) = (axis.at(1.0), axis.at(10.0), axis.at(100.0));
        assert!((first - middle - (middle - last)).abs() < 1e-9 && first > last);
        assert_eq!((axis.at(0.0), axis.at(1e30)), (200.0, 0.0));
        assert!(Axis::over([0.0, -1.0].into_iter(), 0.0, 1.0).is_none());
    }

    #[test]
    fn external_names_are_escaped_in_svg() {
        let svg = mark("c-fodo", SvgShape::Circle, (1.0, 2.0), "<script>\"'&");

        assert!(svg.contains("&lt;script&gt;&quot;&#39;&amp;"), "{svg}");
    }

    #[test]
    fn tick_labels_are_as_short_as_possible() {
        assert_eq!([tick_text(1500.0, "ns"), tick_text(2e6, "ns"), tick_text(1e4, "")], ["1.5 µs", "2 ms", "10k"]);
    }
}
