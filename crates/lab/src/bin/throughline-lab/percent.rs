//! Options on how certain answers are.

use clap::Args;
use throughline_lab::Question;
use throughline_lab::percent::percent;

use crate::text::quote;

/// Which differences count.
#[derive(Args, Debug)]
pub(crate) struct ThresholdArgs {
    /// A difference up to this size, in percent, counts as none
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = Question::DEFAULT_THRESHOLD_PERCENT,
        value_parser = percent
    )]
    pub(crate) threshold: f64,
}

/// How certain the answers are.
#[derive(Args, Debug)]
pub(crate) struct ConfidenceArgs {
    /// Required confidence of all answers together, in percent
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 100.0 * Question::DEFAULT_CONFIDENCE,
        value_parser = confidence
    )]
    pub(crate) confidence: f64,
}

/// The confidence of an answer, in percent.
fn confidence(text: &str) -> Result<f64, String> {
    match percent(text) {
        Ok(percent) if percent > 50.0 && percent < 100.0 => Ok(percent),
        _ => Err(format!(
            "{} is not a percentage above 50 and below 100",
            quote(text)
        )),
    }
}
