//! Runs that are generated, not measured.

use serde_json::json;
use throughline_lab::record::{Better, Head, Line, Machine, Record, SCHEMA, Sample};

/// A directory of runs.
pub(crate) struct Runs(tempfile::TempDir);

/// The samples of one quantity in a series: name, quantity, unit, which direction is better, and the value
/// for a round.
pub(crate) struct Series(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) Better,
    pub(crate) f64,
);

impl Runs {
    pub(crate) fn new() -> Runs {
        Runs(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a run of this many rounds, with noise of about 1.2 % that differs between series.
    pub(crate) fn write(&self, name: &str, rounds: u32, series: &[Series]) -> String {
        self.write_changed(name, rounds, series, |_| ())
    }

    /// Writes this many runs per side, alternating or one side after the other. Returns the options that name
    /// them.
    pub(crate) fn sides(
        &self,
        runs: usize,
        turns: bool,
        base: &[Series],
        new: &[Series],
    ) -> Vec<String> {
        let mut named = [vec!["--base".to_owned()], vec!["--new".to_owned()]];
        for number in 0..runs {
            for (side, series) in [base, new].into_iter().enumerate() {
                let second = match turns {
                    true => 2 * number + side,
                    false => number + side * runs,
                };
                let name = format!("{side}-{number}-{second}-{turns}");
                let path = self.write_changed(&name, 5, series, |record| {
                    record.head.started = format!("2026-01-02T03:04:{second:02}.000Z");
                });
                named[side].push(path);
            }
        }
        named.concat()
    }

    pub(crate) fn write_changed(
        &self,
        name: &str,
        rounds: u32,
        series: &[Series],
        change: impl FnOnce(&mut Record),
    ) -> String {
        let mut lines = Vec::new();
        let mut noise = name.bytes().fold(7u64, |seed, byte| {
            seed.wrapping_mul(131).wrapping_add(u64::from(byte))
        });
        for round in 0..=rounds {
            for Series(series, quantity, unit, better, level) in series {
                // Knuth's generator. The sum of four values is nearly normal.
                let mut throws = 0.0;
                for _ in 0..4 {
                    noise = noise
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    throws += (noise >> 40) as f64 / f64::from(1 << 24) - 0.5;
                }
                // The warm-up round must not be counted.
                let cold = if round == 0 { 0.1 } else { 1.0 };
                lines.push(Line::Sample(Sample {
                    series: (*series).into(),
                    quantity: (*quantity).into(),
                    unit: (*unit).into(),
                    better: *better,
                    round,
                    value: cold * level * (1.0 + 0.02 * throws),
                    at_s: None,
                }));
            }
        }
        lines.push(Line::End {
            why: "rounds".into(),
        });
        let mut machine = Machine::here();
        machine.optimised = true;
        machine.wake_up_us = 20.0;
        let head = Head {
            schema: SCHEMA,
            name: "streams".into(),
            started: "2026-01-02T03:04:05Z".into(),
            machine,
            max_rounds: None,
            settings: [
                ("scale".to_owned(), json!(100)),
                (
                    "workload".to_owned(),
                    json!("block = \"4k\"\nthreads = 2\n"),
                ),
            ]
            .into(),
        };
        let mut record = Record { head, lines };
        change(&mut record);
        let path = self.0.path().join(name);
        record.write(&path).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

pub(crate) const SPEED: fn(f64) -> Series =
    |level| Series("write", "throughput", "MB/s", Better::Higher, level);
pub(crate) const TIME: fn(f64) -> Series =
    |level| Series("write", "p99", "us", Better::Lower, level);
