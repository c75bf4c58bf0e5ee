//! Text output of commands, made from the values that `--json` prints.
//!
//! The templates are Jinja, as implemented by minijinja; each is a file in this folder.

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use throughline_forms::time;

use crate::problem::{Failure, Problem};
use crate::text::human;

/// The templates by command.
const TEXTS: [(&str, &str); 5] = [
    ("cache", include_str!("cache.txt")),
    ("info", include_str!("info.txt")),
    ("partitions", include_str!("partitions.txt")),
    ("status", include_str!("status.txt")),
    ("tune", include_str!("tune.txt")),
];

/// Renders the text of a command. Missing values are left empty.
pub(crate) fn fill(name: &str, values: &serde_json::Value) -> Result<String, Failure> {
    filled(name, values)
        .map_err(|error| Problem::new(error.to_string()).met("cannot show what was found"))
}

fn filled(name: &str, values: &serde_json::Value) -> Result<String, minijinja::Error> {
    let mut texts = Environment::new();
    texts.set_undefined_behavior(UndefinedBehavior::Chainable);
    texts.add_filter("size", size);
    texts.add_filter("date", date);
    texts.add_filter("duration", |seconds: Value| duration(number(seconds)));
    texts.add_filter("ms", |ms: Value| format!("{:.1} ms", number(ms)));
    texts.add_filter("whole", |figure: Value| format!("{:.0}", number(figure)));
    texts.add_filter("plain", |figure: Value| number(figure).to_string());
    texts.add_filter("text", |text: Value| {
        text.as_str().unwrap_or("?").to_owned()
    });
    texts.add_filter("escaped", |text: &str| text.escape_debug().to_string());
    for (name, text) in TEXTS {
        texts.add_template(name, text)?;
    }
    texts.get_template(name)?.render(Serde(values))
}

fn number(value: Value) -> f64 {
    f64::try_from(value).unwrap_or_default()
}

/// A number of bytes, such as `12.3M`.
fn size(bytes: Value) -> String {
    u64::try_from(bytes).map_or_else(|_| "?".to_owned(), human)
}

/// A date in local time, from its form in JSON.
fn date(date: Value) -> String {
    let date = date.as_str().and_then(|date| time::parse(date).ok());
    date.map_or_else(|| "never".to_owned(), time::full)
}

/// A duration, such as `3 h 5 min`.
fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_are_short() {
        assert_eq!(duration(59.9), "59 s");
        assert_eq!(duration(60.0), "1 min");
        assert_eq!(duration(3.0 * 3600.0 + 300.0), "3 h 5 min");
        assert_eq!(duration(86_400.0 * 2.0), "2 d 0 h");
    }

    /// Rendering succeeds whatever a server answers.
    #[test]
    fn texts_need_no_value() {
        for values in [json!(null), json!({}), json!({"requests": 7, "cache": []})] {
            for (name, _) in TEXTS {
                assert!(fill(name, &values).unwrap().contains(':'), "{name}");
            }
        }
    }
}
