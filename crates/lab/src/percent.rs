//! Parsers of options: percentages (`1`, `1.5`, `1%`), and which direction is better.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use throughline_face::text::quote;

use crate::record::Better;

/// A percentage of at least 0.
///
/// # Errors
/// If it is no such number.
pub fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim_end().parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent),
        _ => Err(format!("{} is not a percentage of 0 or more", quote(text))),
    }
}

/// The confidence of an answer, given in percent: 0.995.
///
/// # Errors
/// If it cannot be one.
pub fn confidence(text: &str) -> Result<f64, String> {
    match percent(text) {
        Ok(percent) if percent > 50.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err(format!(
            "{} is not a percentage above 50 and below 100",
            quote(text)
        )),
    }
}

/// `higher` or `lower`.
pub fn better() -> impl TypedValueParser<Value = Better> {
    PossibleValuesParser::new(["higher", "lower"]).map(|word| match word.as_str() {
        "lower" => Better::Lower,
        _ => Better::Higher,
    })
}
