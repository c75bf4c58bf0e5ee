//! [`Record`]: a run kept as a file, the one form in which the lab's parts hand results to each other.
//!
//! A file is JSON lines: a [`Head`] first, then [`Line`]s in the order in which things happened, a [`Line::End`] last. What
//! a run that was cut short wrote can be read: a last line torn by the cut is left out, and the end is missing.
//!
//! Invariants:
//! - Sample `round` of one series belongs to sample `round` of every other: they were taken one after the other.
//! - A reader refuses a file of a newer [`SCHEMA`], and passes over kinds of lines that it does not know.

mod file;
mod order;
mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::explain::Account;
use crate::machine::Machine;
use crate::outcome::Bar;
use crate::stats::Ratio;

pub use file::Writer;

/// The version of the form; grows when an old reader would misread a new file.
pub const SCHEMA: u32 = 2;

/// Which way a quantity is good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better: throughput.
    #[default]
    Higher,
    /// Less is better: time, memory.
    Lower,
}

/// What was run, where and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// The experiment's or the workload's name.
    pub name: String,
    /// When it began: RFC 3339, UTC; by it runs are put in order.
    pub started: String,
    /// Where.
    pub machine: Machine,
    /// The run might end earlier, by what it saw, and after so many rounds at the latest: then it is judged by its looks, as
    /// [`judge_at_looks`](crate::stats::judge_at_looks) does it. `None`: how many rounds there would be was fixed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// What the run was told, by name: scale, rounds, the workload's own settings, the targets' (mkfs, mount options).
    pub settings: BTreeMap<String, serde_json::Value>,
}

impl Head {
    /// Of a run on this machine that began at `started` (RFC 3339, UTC), its rounds fixed before.
    pub fn new(
        name: impl Into<String>,
        started: impl Into<String>,
        settings: BTreeMap<String, serde_json::Value>,
    ) -> Head {
        Head {
            schema: SCHEMA,
            name: name.into(),
            started: started.into(),
            machine: Machine::here(),
            max_rounds: None,
            settings,
        }
    }
}

/// One measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Who was measured: the variant or the target.
    pub series: String,
    /// What was measured, such as `throughput`.
    pub quantity: String,
    /// The unit, such as `MB/s` (10⁶ bytes) or `us`; empty for a plain number.
    pub unit: String,
    /// Which way it is good.
    pub better: Better,
    /// The round it belongs to, from 1; 0: of the warm-up, and not to be counted.
    pub round: u32,
    /// The value.
    pub value: f64,
    /// Seconds from the start of the run to the end of the sample; `None` where it was not noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_s: Option<f64>,
}

/// How long single operations of one sample took, as counts in classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Who was measured.
    pub series: String,
    /// Whose times, such as `write`.
    pub quantity: String,
    /// The round.
    pub round: u32,
    /// Pairs of the longest time of a class in microseconds, as it was measured (in files of form 1 the end of the class), and how
    /// many operations took so long, longer than the class before; ascending.
    pub classes_us: Vec<(f64, u64)>,
}

/// What the path did at one moment of one sample; the pipeline of a request is drawn from these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Microseconds since the trace began.
    pub at_us: f64,
    /// What happened: `build`, `submit`, `requeue` (given back by the driver, to be submitted again), `complete`, `split`,
    /// `merge`, `pause`, `commit`.
    pub what: String,
    /// For a bio, `read`, `write` or as the device calls it; for a split, why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// First byte on the device.
    #[serde(default)]
    pub offset_bytes: u64,
    /// Bytes; of a pause or a commit 0.
    #[serde(default)]
    pub len_bytes: u64,
    /// How long it took, microseconds: of `complete`, from submitting; of `pause` and `commit`, in all.
    #[serde(default)]
    pub took_us: f64,
}

/// One line of a file behind its head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Line {
    /// A measured value.
    Sample(Sample),
    /// Times of single operations.
    Latencies(Latencies),
    /// What the path did, of one series.
    Trace {
        /// Who was watched.
        series: String,
        /// In the order of time.
        events: Vec<TraceEvent>,
    },
    /// What the I/O path did, as `explain` tells it.
    Account(Box<Account>),
    /// A ratio that the experiment itself works out.
    Ratio {
        /// Of what.
        name: String,
        /// The ratio.
        ratio: Ratio,
    },
    /// A plain count.
    Count {
        /// Of what.
        name: String,
        /// How many.
        value: f64,
    },
    /// A limit, and whether it was reached.
    Bar(Bar),
    /// What a reader must know.
    Note {
        /// The text.
        text: String,
    },
    /// The run ended by itself.
    End {
        /// Why: `rounds` (all were run), `certain` (the answer was), `interrupted`.
        why: String,
    },
    /// A kind that this version does not know.
    #[serde(other)]
    Unknown,
}

/// A run as it was read, or is to be written.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was run.
    pub head: Head,
    /// What came of it.
    pub lines: Vec<Line>,
}

/// The samples of one quantity of one series, in the order of the rounds, without those of the warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Who was measured.
    pub series: String,
    /// What was measured.
    pub quantity: String,
    /// The unit.
    pub unit: String,
    /// Which way it is good.
    pub better: Better,
    /// Round and value, ascending by round.
    pub samples: Vec<(u32, f64)>,
}

impl Column {
    /// The values alone.
    pub fn values(&self) -> Vec<f64> {
        self.samples.iter().map(|(_, value)| *value).collect()
    }

    /// The values of the rounds that both have, in pairs.
    pub fn paired(&self, other: &Column) -> (Vec<f64>, Vec<f64>) {
        let theirs: BTreeMap<u32, f64> = other.samples.iter().copied().collect();
        self.samples
            .iter()
            .filter_map(|(round, value)| Some((*value, *theirs.get(round)?)))
            .unzip()
    }
}

impl Record {
    /// Every quantity of every series, ordered by series, then quantity.
    pub fn columns(&self) -> Vec<Column> {
        let mut columns: BTreeMap<(&str, &str), Column> = BTreeMap::new();
        for line in &self.lines {
            let Line::Sample(sample) = line else { continue };
            if sample.round == 0 {
                continue;
            }
            columns
                .entry((&sample.series, &sample.quantity))
                .or_insert_with(|| Column {
                    series: sample.series.clone(),
                    quantity: sample.quantity.clone(),
                    unit: sample.unit.clone(),
                    better: sample.better,
                    samples: Vec::new(),
                })
                .samples
                .push((sample.round, sample.value));
        }
        let mut columns: Vec<Column> = columns.into_values().collect();
        for column in &mut columns {
            column.samples.sort_by_key(|(round, _)| *round);
        }
        columns
    }

    /// How many rounds there might have been at the most, where the run might end earlier by what it saw.
    pub fn most_rounds(&self) -> Option<u32> {
        let ended_early = matches!(self.lines.last(), Some(Line::End { why }) if why == "certain");
        // Before, a file did not say of how many. Any number that is none of the samples' business will do; this one is safe.
        let not_said = self.head.schema < 2 && ended_early;
        self.head
            .max_rounds
            .or(not_said.then_some(crate::workload::MAX_ROUNDS))
    }

    /// Whether the run ended by itself, and was not cut short.
    pub fn is_whole(&self) -> bool {
        matches!(self.lines.last(), Some(Line::End { .. }))
    }
}
