//! Percentages in the lab's options: `1`, `1.5`, `1%`.

use crate::text::quote;

/// A percentage of at least 0.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim_end().parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent),
        _ => Err(format!("{} is not a percentage of 0 or more", quote(text))),
    }
}

/// The confidence of an answer, in percent.
pub(super) fn confidence(text: &str) -> Result<f64, String> {
    match percent(text) {
        Ok(percent) if percent > 50.0 && percent < 100.0 => Ok(percent),
        _ => Err(format!(
            "{} is not a percentage above 50 and below 100",
            quote(text)
        )),
    }
}
