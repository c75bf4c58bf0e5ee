//! Phrases for the page and the mail; figures are formatted as in an account ([`throughline_explain::text`]).

pub(super) use throughline_explain::text::{bytes, figure, micros, short};

/// A figure and its unit.
pub(super) fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", figure(value)).trim_end().to_owned()
}

/// A change in percent, with its sign.
pub(super) fn percent(change: f64) -> String {
    match change.is_finite() {
        true => format!("{change:+.*} %", decimals(change)),
        false => figure(change),
    }
}

/// A share in percent, without a sign.
pub(super) fn share(percent: f64) -> String {
    match percent.is_finite() {
        true => format!("{percent:.*} %", decimals(percent)),
        false => figure(percent),
    }
}

fn decimals(percent: f64) -> usize {
    if percent.abs() < 10.0 { 2 } else { 1 }
}

/// Text from a file as one line: line breaks, control characters and text direction marks become spaces.
pub(super) fn one_line(text: &str) -> String {
    let strange = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let line: String = text
        .chars()
        .map(|c| if strange(c) { ' ' } else { c })
        .collect();
    line.trim().to_owned()
}

/// A count with its noun, such as "1 sample" or "2 samples".
pub(super) fn plural(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// A warning about values that are not numbers.
pub(super) fn not_finite(count: usize) -> String {
    let is = if count == 1 { "is" } else { "are" };
    let what = plural(count, "value");
    format!("{what} {is} not finite and {is} left out of tables and plots")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_plain() {
        assert_eq!(percent(-4.5), "-4.50 %");
        assert_eq!(one_line("a\nb\u{202e}c\t"), "a b c");
        assert_eq!(plural(2, "sample"), "2 samples");
        assert_eq!(
            not_finite(1),
            "1 value is not finite and is left out of tables and plots"
        );
        assert_eq!(
            not_finite(2),
            "2 values are not finite and are left out of tables and plots"
        );
    }
}
