//! The results that fio prints as JSON (`json+`), as values of a record.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::record::Better;
use crate::rounds::{self, Measured, Taken};
use crate::{Error, Result};

/// Maximum number of groups of jobs: more than a user can tell apart, and each has several quantities.
const MAX_GROUPS: usize = 256;

/// The results of one run of fio.
#[derive(Debug, Deserialize)]
pub struct Results {
    /// Groups of jobs that ran at once. The groups ran one after another.
    jobs: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    /// The name of its first job.
    jobname: String,
    #[serde(default)]
    error: i64,
    #[serde(default)]
    read: Stream,
    #[serde(default)]
    write: Stream,
    #[serde(default)]
    trim: Stream,
    #[serde(default)]
    sync: Syncs,
}

/// Operations of one kind.
#[derive(Debug, Default, Deserialize)]
struct Stream {
    /// Bytes per second.
    bw_bytes: u64,
    iops: f64,
    total_ios: u64,
    /// In milliseconds.
    runtime: u64,
    /// From submission to completion.
    #[serde(default)]
    clat_ns: Latencies,
}

#[derive(Debug, Default, Deserialize)]
struct Syncs {
    #[serde(default)]
    lat_ns: Latencies,
}

/// Latencies in nanoseconds. The maps are missing if there was no operation, or if the job disables them.
#[derive(Debug, Default, Deserialize)]
struct Latencies {
    /// By percent, such as `99.000000`.
    #[serde(default)]
    percentile: BTreeMap<String, u64>,
    /// Number of operations by their latency.
    #[serde(default)]
    bins: BTreeMap<u64, u64>,
}

impl Group {
    fn streams(&self) -> [&Stream; 3] {
        [&self.read, &self.write, &self.trim]
    }

    /// Bytes and operations per second.
    fn rates(&self) -> (f64, f64) {
        let streams = self.streams();
        let bytes = streams.iter().map(|stream| stream.bw_bytes as f64).sum();
        (bytes, streams.iter().map(|stream| stream.iops).sum())
    }

    fn runtime_ms(&self) -> u64 {
        let runtimes = self.streams().map(|stream| stream.runtime);
        runtimes.into_iter().max().unwrap_or(0)
    }
}

impl Results {
    /// Reads what fio printed. Messages may stand before the JSON and after it.
    ///
    /// # Errors
    /// If it is not the JSON of fio, if a job failed, or if nothing was measured.
    pub fn parse(printed: &str) -> Result<Results> {
        let wrong = |why: &dyn std::fmt::Display| {
            Error::new(format!("fio printed no results that can be read: {why}"))
        };
        let starts = |line: &&str| line.starts_with('{');
        let before: usize = printed
            .split_inclusive('\n')
            .take_while(|l| !starts(l))
            .map(str::len)
            .sum();
        let mut json = serde_json::Deserializer::from_str(&printed[before..]);
        let results = Results::deserialize(&mut json).map_err(|e| wrong(&e))?;
        if results.jobs.len() > MAX_GROUPS {
            return Err(Error::new(format!(
                "fio reports more than {MAX_GROUPS} groups of jobs"
            )));
        }
        if let Some(failed) = results.jobs.iter().find(|group| group.error != 0) {
            let name = plain_name(&failed.jobname);
            let error = std::io::Error::from_raw_os_error(i32::try_from(failed.error).unwrap_or(0));
            return Err(Error::new(format!("job '{name}' failed: {error}")));
        }
        let all = || results.jobs.iter().flat_map(Group::streams);
        if all().all(|stream| stream.total_ios == 0) {
            return Err(Error::new("fio did no I/O"));
        }
        let is_rate = |(bytes, operations): (f64, f64)| {
            bytes > 0.0 && bytes.is_finite() && operations > 0.0 && operations.is_finite()
        };
        match results.jobs.iter().map(Group::rates).all(is_rate) {
            true => Ok(results),
            false => Err(Error::new(
                "fio measured no speed, because a job took less than a millisecond: make it longer",
            )),
        }
    }

    /// Quantities and values.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let values = self.taken().values.into_iter();
        values
            .map(|one| (one.quantity.into_owned(), one.value))
            .collect()
    }

    /// The values for the record: of all jobs together, and if there are several groups, of each.
    pub(super) fn taken(&self) -> Taken {
        let mut taken = Taken {
            values: Vec::new(),
            latencies: Vec::new(),
        };
        let all_ms: u64 = self.jobs.iter().map(Group::runtime_ms).sum();
        let (mut bytes, mut operations) = (0.0, 0.0);
        for group in &self.jobs {
            let share = group.runtime_ms() as f64 / all_ms.max(1) as f64;
            bytes += group.rates().0 * share;
            operations += group.rates().1 * share;
        }
        rates(&mut taken, "", (bytes, operations));
        if let [group] = &self.jobs[..] {
            latencies(&mut taken, "", group);
            return taken;
        }
        let names = self.jobs.iter().map(|group| plain_name(&group.jobname));
        let names: Vec<String> = names.collect();
        let names = rounds::labels(names.iter().map(String::as_str)).unwrap_or_default();
        for (name, group) in names.iter().zip(&self.jobs) {
            let prefix = format!("{name}: ");
            rates(&mut taken, &prefix, group.rates());
            latencies(&mut taken, &prefix, group);
        }
        taken
    }
}

fn rates(taken: &mut Taken, prefix: &str, (bytes, operations): (f64, f64)) {
    let of = |quantity, unit, value| {
        Measured::new(format!("{prefix}{quantity}"), unit, Better::Higher, value)
    };
    taken.values.push(of("throughput", "MB/s", bytes / 1e6));
    taken.values.push(of("operations", "per s", operations));
}

fn latencies(taken: &mut Taken, prefix: &str, group: &Group) {
    for (kind, of_kind) in [
        ("read", &group.read.clat_ns),
        ("write", &group.write.clat_ns),
        ("trim", &group.trim.clat_ns),
        ("sync", &group.sync.lat_ns),
    ] {
        for (percent, what) in [("50.000000", "median"), ("99.000000", "99th percentile")] {
            if let Some(ns) = of_kind.percentile.get(percent) {
                let quantity = format!("{prefix}{kind}, {what}");
                let us = *ns as f64 / 1e3;
                taken
                    .values
                    .push(Measured::new(quantity, "us", Better::Lower, us));
            }
        }
        if !of_kind.bins.is_empty() {
            let class = |(ns, count): (&u64, &u64)| (*ns as f64 / 1e3, *count);
            let classes_us = of_kind.bins.iter().map(class).collect();
            taken
                .latencies
                .push((format!("{prefix}{kind}").into(), classes_us));
        }
    }
}

/// A name for quantities: at most 100 characters, of which those that tables could not show become `-`.
fn plain_name(name: &str) -> String {
    const MAX_CHARS: usize = 100;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fitting = name.chars().map(|c| if fits(c) { c } else { '-' });
    let name: String = fitting.take(MAX_CHARS).collect();
    match name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        true => name,
        false => "job".into(),
    }
}

#[cfg(test)]
mod tests;
