//! What pictures consist of: a frame with a scale, and marks in it.

use maud::{Markup, html};
use throughline_explain::text::short;

/// The width of a picture, and where its scale begins. Left of that are names.
pub(super) const WIDTH: f64 = 960.0;
const LEFT: f64 = 300.0;
const RIGHT: f64 = 20.0;
/// The height of a line of text.
pub(super) const LINE: f64 = 18.0;
/// Colours that differ in hue and brightness.
const COLOURS: [&str; 6] = [
    "#1f6fb2", "#c2571a", "#2c8a4b", "#8a3fa0", "#b08a00", "#555555",
];

/// The colour of a series.
pub(super) fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// A scale from left to right.
pub(super) struct Scale {
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale for these values; `None` without a finite one.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Scale> {
        let ends = values
            .filter(|value| value.is_finite())
            .map(|value| (value, value));
        let (from, to) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let room = match to > from {
            true => (to - from) / 50.0,
            false => from.abs().max(1.0) / 50.0,
        };
        Some(Scale {
            from: from - room,
            to: to + room,
        })
    }

    /// The place of a value; beyond an end, that end.
    pub(super) fn x(&self, value: f64) -> f64 {
        let share = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    /// Lines at round numbers, and the numbers below them.
    fn ticks(&self, bottom: f64) -> Markup {
        let width = self.to - self.from;
        let ten = 10f64.powf((width / 6.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * ten);
        let step = step
            .into_iter()
            .find(|step| width / step <= 6.0)
            .unwrap_or(width);
        let first = (self.from / step).ceil();
        let ticks = (0..8).map(|number| (first + f64::from(number)) * step);
        let ticks = ticks.filter(|tick| tick.is_finite() && *tick <= self.to);
        html! {
            @for tick in ticks {
                line.tick x1=(self.x(tick)) x2=(self.x(tick)) y1="0" y2=(bottom) {}
                text x=(self.x(tick)) y=(bottom + LINE - 4.0) text-anchor="middle" { (short(tick)) }
            }
        }
    }
}

/// A picture of this height above the numbers of its scale.
pub(super) fn picture(title: &str, scale: &Scale, height: f64, marks: &Markup) -> Markup {
    html! {
        figure {
            figcaption { (title) }
            svg viewBox=(format!("0 0 {WIDTH} {}", height + LINE)) role="img" aria-label=(title) {
                (scale.ticks(height))
                (marks)
            }
        }
    }
}

/// The name of a row.
pub(super) fn name(y: f64, text: &str, colour: &str) -> Markup {
    const MAX_CHARS: usize = 46;
    let shown: String = text.chars().take(MAX_CHARS).collect();
    html! { text x="0" y=(y) fill=(colour) { title { (text) } (shown) } }
}

/// A line between two points.
pub(super) fn stroke(from: (f64, f64), to: (f64, f64), width: f64, colour: &str) -> Markup {
    html! {
        line x1=(from.0) y1=(from.1) x2=(to.0) y2=(to.1) stroke=(colour) stroke-width=(width) {}
    }
}

/// A point.
pub(super) fn dot(x: f64, y: f64, radius: f64, colour: &str) -> Markup {
    html! { circle cx=(x) cy=(y) r=(radius) fill=(colour) {} }
}
