//! [`Record`]: a run, stored in a file. `explain` writes and reads it, and so does the lab.
//!
//! A file consists of JSON lines: a [`Head`], then [`Line`]s in chronological order, then a [`Line::End`].
//! The file of a killed run can be read: a torn last line is dropped, and the end is missing.
//!
//! Invariants:
//! - Sample `round` of one series pairs with sample `round` of every other: they were taken one after the
//!   other.
//! - A reader refuses a file with a newer [`SCHEMA`] and skips unknown kinds of lines.

mod explained;
mod file;
mod machine;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Account, Latencies, TraceEvent};

pub use file::Writer;
pub use machine::{Machine, free_memory_leaves};

/// The version of the format. It is incremented when an old reader would misread a new file.
pub const SCHEMA: u32 = 2;

/// Which direction of a quantity is better.
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
    /// The name of the experiment or workload.
    pub name: String,
    /// When the run started: RFC 3339, UTC. Runs are ordered by this time.
    pub started: String,
    /// The machine it ran on.
    pub machine: Machine,
    /// The maximum number of rounds, if the run could stop early because of its results. Such a run is judged
    /// at its looks. `None` if the number of rounds was fixed in advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// Settings by name: scale, rounds, the workload's own settings, and those of the targets (mkfs, mount
    /// options).
    pub settings: BTreeMap<String, serde_json::Value>,
}

impl Head {
    /// The head of a run on this machine that started at `started` (RFC 3339, UTC), with a fixed number of
    /// rounds.
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
    /// What was measured: the variant or the target.
    pub series: String,
    /// The quantity, such as `throughput`.
    pub quantity: String,
    /// The unit, such as `MB/s` (10⁶ bytes) or `us`; empty for a plain number.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// The round, from 1; 0 is warm-up and is not counted.
    pub round: u32,
    /// The value.
    pub value: f64,
    /// Seconds from the start of the run to the end of the sample; `None` if not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_s: Option<f64>,
}

/// A ratio of two variants with its 95 % interval.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// The typical ratio of the first to the second within a round: the Hodges-Lehmann estimate.
    pub value: f64,
    /// Lower end of the 95 % interval; equals the value if there is only one pair.
    pub low: f64,
    /// Upper end of the 95 % interval, likewise.
    pub high: f64,
}

/// A limit set by the project, and whether a run met it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bar {
    /// What is compared.
    pub name: String,
    /// What this run found.
    pub value: f64,
    /// The limit; `at_least` gives the direction.
    pub target: f64,
    /// True if `value` must be at least `target`, false if at most.
    pub at_least: bool,
    /// Whether the limit was met.
    pub met: bool,
}

/// One line of a file, after its head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Line {
    /// A measured value.
    Sample(Sample),
    /// Latencies of single operations.
    Latencies(Latencies),
    /// A trace: what the I/O path did for one series.
    Trace {
        /// The series that was traced.
        series: String,
        /// The events, in chronological order.
        events: Vec<TraceEvent>,
    },
    /// An account: what the I/O path did, as reported by `explain`.
    Account(Box<Account>),
    /// A ratio computed by the experiment itself.
    Ratio {
        /// What the ratio compares.
        name: String,
        /// The ratio.
        ratio: Ratio,
    },
    /// A plain count.
    Count {
        /// What is counted.
        name: String,
        /// The count.
        value: f64,
    },
    /// A limit, and whether it was met.
    Bar(Bar),
    /// A note that the reader needs to interpret the results.
    Note {
        /// The text.
        text: String,
    },
    /// The run has ended, and the record is complete.
    End {
        /// Why it ended: `rounds` (all were run), `certain` (the answer was), or `interrupted`.
        why: String,
    },
    /// A kind of line that this version does not know.
    #[serde(other)]
    Unknown,
}

/// A run that was read or will be written.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was run.
    pub head: Head,
    /// The results.
    pub lines: Vec<Line>,
}

/// The samples of one quantity of one series, ordered by round, without warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The variant or the target.
    pub series: String,
    /// The quantity.
    pub quantity: String,
    /// The unit.
    pub unit: String,
    /// Which direction is better.
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

    /// Whether the record is complete, that is, the run was not killed.
    pub fn is_whole(&self) -> bool {
        matches!(self.lines.last(), Some(Line::End { .. }))
    }
}
