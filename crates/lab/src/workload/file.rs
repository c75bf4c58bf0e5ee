//! Reading and writing a [`Workload`] as a TOML file.
//!
//! A file contains only what differs from the defaults; [`EXAMPLE`] shows every key with its default.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use throughline::internal::parse_size;

use super::{
    BLOCK_BYTES, Direction, Layout, MAX_BUFFERS_BYTES, MAX_END_BYTES, MAX_ROUNDS, MAX_WORKERS,
    SyncPolicy, TargetSpec, UNNAMED, Workload,
};
use crate::{Error, Result};

/// A file with every key and an explanation of it.
pub const EXAMPLE: &str = include_str!("example.toml");

/// The kernel's direct I/O requires offsets and lengths in multiples of the device's block size, which is at
/// least 512.
const DIRECT_BYTES: u64 = 512;
/// Maximum runtime of a round: a year.
const MAX_RUNTIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// The keys of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Form {
    pattern: Pattern,
    block: Size,
    size: Size,
    name: Option<String>,
    read_share: Option<Count>,
    offset: Option<Size>,
    threads: Option<Count>,
    queue_depth: Option<Count>,
    files: Option<Files>,
    cache: Option<Cache>,
    sync: Option<SyncPolicy>,
    layout: Option<Layout>,
    runtime: Option<Time>,
    #[serde(default)]
    time_based: bool,
    cold: Option<bool>,
    seed: Option<u64>,
    warm_up: Option<Count>,
    rounds: Option<Count>,
    #[serde(default)]
    targets: Vec<TargetSpec>,
}

/// Whether offsets are random, and whether operations read or write.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Pattern {
    SequentialRead,
    SequentialWrite,
    SequentialMixed,
    RandomRead,
    RandomWrite,
    RandomMixed,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Files {
    One,
    PerThread,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Cache {
    Buffered,
    Direct,
}

/// A number, or a string with a number and a unit.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a number, or a string with a number and its unit"
)]
enum Number {
    Whole(u64),
    Broken(f64),
    Text(String),
}

/// A value too large for `u32` becomes the maximum of `u32`. That is out of range for every key, so the error
/// for the key names the allowed range.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "i64")]
struct Count(u32);

impl TryFrom<i64> for Count {
    type Error = &'static str;

    fn try_from(number: i64) -> std::result::Result<Count, Self::Error> {
        let number = u64::try_from(number).map_err(|_| "write a whole number, not below 0")?;
        Ok(Count(u32::try_from(number).unwrap_or(u32::MAX)))
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "Number")]
struct Size(u64);

impl TryFrom<Number> for Size {
    type Error = String;

    fn try_from(number: Number) -> std::result::Result<Size, String> {
        match number {
            Number::Whole(bytes) => Ok(Size(bytes)),
            Number::Broken(_) => Err("write whole bytes, or a size such as \"4k\"".into()),
            Number::Text(text) => parse_size(&text).map(Size),
        }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "Number")]
struct Time(Duration);

impl TryFrom<Number> for Time {
    type Error = String;

    fn try_from(number: Number) -> std::result::Result<Time, String> {
        let seconds = match number {
            Number::Whole(seconds) => seconds as f64,
            Number::Broken(seconds) => seconds,
            Number::Text(text) => {
                seconds(&text).ok_or("write a time such as \"500ms\", \"10s\", \"2m\"")?
            }
        };
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() && time <= MAX_RUNTIME => Ok(Time(time)),
            _ => Err("a time is longer than 0 and at most a year".into()),
        }
    }
}

/// Parses a time: `10s`, `500ms`, `2m`, `1h`, `1d`. A plain number is in seconds.
pub(super) fn seconds(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1e-3,
        "us" => 1e-6,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    Some(number * unit)
}

impl TryFrom<String> for SyncPolicy {
    type Error = &'static str;

    fn try_from(text: String) -> std::result::Result<SyncPolicy, Self::Error> {
        let every = |writes: &str| match writes.trim().parse() {
            Ok(writes) if writes > 0 => Some(SyncPolicy::Every(writes)),
            _ => None,
        };
        let policy = match text.trim() {
            "none" => Some(SyncPolicy::Never),
            "end" => Some(SyncPolicy::End),
            "dsync" => Some(SyncPolicy::Dsync),
            other => other.strip_prefix("every ").and_then(every),
        };
        policy.ok_or("write \"none\", \"end\", \"dsync\", or \"every N\", N at least 1")
    }
}

/// See [`Workload::parse`].
pub(super) fn parse(text: &str) -> Result<Workload> {
    let form: Form =
        toml::from_str(text).map_err(|error| Error::new(error.to_string().trim_end()))?;
    let direction = match form.pattern {
        Pattern::SequentialRead | Pattern::RandomRead => Direction::Read,
        Pattern::SequentialWrite | Pattern::RandomWrite => Direction::Write,
        Pattern::SequentialMixed | Pattern::RandomMixed => {
            let percent = form.read_share.map_or(50, |share| share.0);
            Direction::Mixed(u8::try_from(percent).unwrap_or(u8::MAX))
        }
    };
    let random = matches!(
        form.pattern,
        Pattern::RandomRead | Pattern::RandomWrite | Pattern::RandomMixed
    );
    let workload = Workload {
        name: form.name.unwrap_or_else(|| UNNAMED.into()),
        direction,
        random,
        block_bytes: form.block.0,
        size_bytes: form.size.0,
        offset_bytes: form.offset.map_or(0, |offset| offset.0),
        threads: form.threads.map_or(1, |count| count.0),
        queue_depth: form.queue_depth.map_or(1, |count| count.0),
        file_per_thread: matches!(form.files, Some(Files::PerThread)),
        direct: matches!(form.cache, Some(Cache::Direct)),
        sync: form.sync.unwrap_or(SyncPolicy::End),
        layout: form.layout.unwrap_or(Layout::Written),
        runtime: form.runtime.map(|time| time.0),
        time_based: form.time_based,
        cold: form.cold.unwrap_or(true),
        seed: form.seed.unwrap_or(1),
        warm_up: form.warm_up.map_or(1, |count| count.0),
        rounds: form.rounds.map_or(10, |count| count.0),
        targets: form.targets,
    };
    let no_mix = form.read_share.is_some() && !matches!(direction, Direction::Mixed(_));
    let fault = match no_mix {
        true => Some(("read-share", "only a mixed pattern has one".to_owned())),
        false => fault(&workload),
    };
    match fault {
        Some((key, why)) => Err(Error::new(format!("{}{key}: {why}", line_of(text, key)))),
        None => Ok(workload),
    }
}

/// The line of a key, as `line 3: `; empty if the key is not given.
fn line_of(text: &str, key: &str) -> String {
    let is_it = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let number = text.lines().position(is_it);
    number.map_or_else(String::new, |number| format!("line {}: ", number + 1))
}

/// The first key that is out of range, and what is allowed.
fn fault(w: &Workload) -> Option<(&'static str, String)> {
    let workers = u64::from(w.threads) * u64::from(w.queue_depth);
    let end = w.offset_bytes.checked_add(w.size_bytes);
    let mixed_percent = match w.direction {
        Direction::Mixed(percent) => percent,
        _ => 0,
    };
    let whole = |bytes: u64| !w.direct || bytes.is_multiple_of(DIRECT_BYTES);
    let whole_text = format!("direct I/O needs a multiple of {DIRECT_BYTES}");
    /// Returns the first condition that fails. Arguments: the condition, the key, what is allowed.
    macro_rules! first_broken {
        ($($holds:expr, $key:literal, $allowed:expr;)*) => {
            $(if !$holds { return Some(($key, $allowed.into())); })*
        };
    }
    let at_once = format!("at least 1; threads times queue-depth at most {MAX_WORKERS}");
    let a_block_each = w.size_bytes.checked_div(w.threads.into());
    first_broken! {
        w.name == plain_name(&w.name), "name",
            "up to 100 letters, digits, '-', '_' and '.', a letter or digit first";
        mixed_percent <= 100,                                "read-share", "0 to 100 percent";
        BLOCK_BYTES.contains(&w.block_bytes),                "block", "1 byte to 256M";
        whole(w.block_bytes),                                "block", whole_text.as_str();
        whole(w.offset_bytes),                               "offset", whole_text.as_str();
        (1..=MAX_WORKERS).contains(&w.threads),              "threads", format!("1 to {MAX_WORKERS}");
        w.queue_depth > 0 && workers <= MAX_WORKERS.into(),  "queue-depth", at_once;
        workers.saturating_mul(w.block_bytes) <= MAX_BUFFERS_BYTES, "block",
            "the buffers of all operations in flight would need more than 2G";
        end.is_some_and(|end| end <= MAX_END_BYTES),         "size",
            "offset and size together reach beyond 1024P";
        a_block_each.is_some_and(|each| each >= w.block_bytes), "size", "at least one block for each thread";
        w.runtime.is_some() || !w.time_based,                "time-based", "needs a runtime";
        w.layout == Layout::Written || w.direction == Direction::Write, "layout",
            "an empty file cannot be read: use \"written\"";
        w.direction.writes() || matches!(w.sync, SyncPolicy::End | SyncPolicy::Never), "sync",
            "nothing is written: use \"none\"";
        (1..=MAX_ROUNDS).contains(&w.rounds),                "rounds", format!("1 to {MAX_ROUNDS}");
        w.warm_up <= MAX_ROUNDS,                             "warm-up", format!("0 to {MAX_ROUNDS}");
    }
    None
}

/// A valid name for a workload: characters that are not allowed become `-`.
pub(super) fn plain_name(name: &str) -> String {
    const MAX_CHARS: usize = 100;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fitting = name.chars().map(|c| if fits(c) { c } else { '-' });
    let name: String = fitting.take(MAX_CHARS).collect();
    match name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        true => name,
        false => UNNAMED.into(),
    }
}

/// See [`Workload::to_toml`].
pub(super) fn to_toml(w: &Workload) -> String {
    let mut out = String::new();
    let text = |value: &str| toml::Value::from(value).to_string();
    let mut put = |key: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{key} = {value}");
    };
    put("name", text(&w.name));
    put("pattern", text(&w.to_string()));
    if let Direction::Mixed(percent) = w.direction {
        put("read-share", percent.to_string());
    }
    put("block", size(w.block_bytes));
    put("size", size(w.size_bytes));
    let mut unless = |usual: bool, key: &str, value: String| {
        if !usual {
            put(key, value);
        }
    };
    unless(w.offset_bytes == 0, "offset", size(w.offset_bytes));
    unless(w.threads == 1, "threads", w.threads.to_string());
    unless(w.queue_depth == 1, "queue-depth", w.queue_depth.to_string());
    unless(!w.file_per_thread, "files", text("per-thread"));
    unless(!w.direct, "cache", text("direct"));
    unless(w.sync == SyncPolicy::End, "sync", text(&w.sync.to_string()));
    unless(w.layout == Layout::Written, "layout", text("empty"));
    if let Some(runtime) = w.runtime {
        unless(
            false,
            "runtime",
            text(&format!("{}s", runtime.as_secs_f64())),
        );
    }
    unless(!w.time_based, "time-based", "true".into());
    unless(w.cold, "cold", "false".into());
    unless(w.seed == 1, "seed", w.seed.to_string());
    unless(w.warm_up == 1, "warm-up", w.warm_up.to_string());
    unless(w.rounds == 10, "rounds", w.rounds.to_string());
    let targets: Vec<String> = w.targets.iter().map(|t| text(&t.to_string())).collect();
    unless(
        targets.is_empty(),
        "targets",
        format!("[{}]", targets.join(", ")),
    );
    out
}

/// A size in the largest unit that divides it.
fn size(bytes: u64) -> String {
    let units = [("G", 30), ("M", 20), ("k", 10)];
    let unit = units
        .iter()
        .find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((unit, shift)) => format!("\"{}{unit}\"", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests;
