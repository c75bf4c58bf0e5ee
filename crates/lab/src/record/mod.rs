//! [`Record`]: a run, stored in a file. The parts of the lab exchange results only in this form. The format
//! is that of `explain`; here is what statistics find in it.

mod table;

pub use table::Table;
pub use throughline_explain::Latencies;
pub(crate) use throughline_explain::TraceEvent;
pub use throughline_explain::record::{
    Bar, Better, Column, Head, Line, Machine, Ratio, Record, SCHEMA, Sample, Writer,
};

/// A throughput in MB/s.
#[cfg(test)]
pub(crate) fn throughput(series: &str, round: u32, value: f64) -> Sample {
    Sample {
        series: series.into(),
        quantity: "throughput".into(),
        unit: "MB/s".into(),
        better: Better::Higher,
        round,
        value,
        at_s: None,
    }
}
