//! Accounts in words: what each reports, line by line, ordered along the path from the program to the device.

use std::collections::{BTreeMap, BTreeSet};

use super::account::{Account, Counted, Sizes, Times};
use crate::text::{bytes as size, micros as duration};

/// A part of the path, with a line for everything that an account reports there.
#[derive(Debug)]
pub struct Section {
    /// Its heading.
    pub name: &'static str,
    /// Its lines, in order.
    pub lines: Vec<Line>,
}

/// One line: what each account reports, in the order of the accounts.
#[derive(Debug)]
pub struct Line {
    /// What is reported.
    pub name: String,
    /// One text per account; `None` if it reports nothing here.
    pub texts: Vec<Option<String>>,
}

/// One column's entry: its group, its position in it, its subject, and its text.
struct Row {
    group: &'static str,
    order: u64,
    name: String,
    text: String,
}

/// The groups, ordered along the path from the program to the device.
const GROUPS: &[&str] = &[
    "time",
    "requested",
    "page cache",
    "writers",
    "write-back",
    "journal",
    "bios",
    SIZES_OF_BIOS[0],
    SIZES_OF_BIOS[1],
    "bios submitted by",
    "bio splits by reason",
    "bios merged",
    "requests",
    SIZES_OF_REQUESTS[0],
    SIZES_OF_REQUESTS[1],
    "submission times",
    "device",
];
const SIZES_OF_BIOS: [&str; 2] = ["read bio sizes", "write bio sizes"];
const SIZES_OF_REQUESTS: [&str; 2] = ["read request sizes", "write request sizes"];

/// Sizes listed one per line; if there are more, they are grouped into classes.
const MAX_SIZE_ROWS: usize = 8;
/// Characters in a line of queue depths.
const MAX_BARS: usize = 32;

/// All accounts side by side.
pub fn sections(accounts: &[&Account]) -> Vec<Section> {
    let columns: Vec<Vec<Row>> = accounts
        .iter()
        .map(|account| rows(account, accounts))
        .collect();
    let mut sections: Vec<Section> = Vec::new();
    for (group, name) in keys(&columns) {
        if sections.last().is_none_or(|last| last.name != group) {
            sections.push(Section {
                name: group,
                lines: Vec::new(),
            });
        }
        let text = |column: &Vec<Row>| {
            let mut rows = column.iter();
            let row = rows.find(|row| row.group == group && row.name == name)?;
            Some(row.text.clone())
        };
        let line = Line {
            name: name.to_owned(),
            texts: columns.iter().map(text).collect(),
        };
        if let Some(section) = sections.last_mut() {
            section.lines.push(line);
        }
    }
    sections
}

/// The lines' keys in order: group and name.
fn keys(columns: &[Vec<Row>]) -> Vec<(&'static str, &str)> {
    let mut keys: BTreeSet<(usize, u64, &str)> = BTreeSet::new();
    for row in columns.iter().flatten() {
        let group = GROUPS.iter().position(|group| *group == row.group);
        keys.insert((group.unwrap_or(GROUPS.len()), row.order, &row.name));
    }
    keys.into_iter()
        .map(|(group, _, name)| (GROUPS.get(group).copied().unwrap_or_default(), name))
        .collect()
}

/// The text without control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// An account's entries, in path order.
fn rows(account: &Account, all: &[&Account]) -> Vec<Row> {
    let mut rows = Rows(Vec::new());
    rows.push("time", "elapsed", duration(account.wall_us));
    if let Some(us) = account.first_bio_us {
        rows.push("time", "to the first bio", duration(us));
    }
    rows.counted("requested", &account.asked);
    rows.one("requested", "direct I/O", &account.direct);
    rows.one("requested", "mappings", &account.mappings);
    if let Some(cache) = account.cache.filter(|cache| cache.hits + cache.misses > 0) {
        rows.push("page cache", "hits", counted(cache.hits, cache.hit_bytes));
        rows.push(
            "page cache",
            "misses",
            counted(cache.misses, cache.miss_bytes),
        );
    }
    rows.times("writers", "pauses", &account.pauses);
    rows.times("writers", "waits at the limit", &account.waits);
    rows.one("write-back", "pieces", &account.writeback);
    rows.sizes("write-back", &account.writeback_sizes, all, |account| {
        vec![&account.writeback_sizes]
    });
    rows.times("journal", "commits", &account.commits);
    rows.counted("bios", &account.bios);
    for (op, sizes) in &account.bio_sizes {
        rows.sizes(
            SIZES_OF_BIOS[usize::from(op != "read")],
            sizes,
            all,
            |account| account.bio_sizes.get(op).into_iter().collect(),
        );
    }
    rows.plain("bios submitted by", &account.submitted_by);
    rows.plain("bio splits by reason", &account.splits);
    rows.plain("bios merged", &account.merges);
    if account.plugs > 0 {
        rows.push(
            "bios merged",
            "plugs",
            format!("{}, unplugs {}", account.plugs, account.unplugs),
        );
    }
    rows.counted("requests", &account.requests);
    if account.requeued > 0 {
        rows.push("requests", "requeued", account.requeued.to_string());
    }
    for (op, sizes) in &account.request_sizes {
        rows.sizes(
            SIZES_OF_REQUESTS[usize::from(op != "read")],
            sizes,
            all,
            |account| account.request_sizes.get(op).into_iter().collect(),
        );
    }
    rows.times("submission times", "first bio", &account.first_submit);
    rows.times("submission times", "bio to queue", &account.waiting);
    for (op, times) in &account.latency {
        rows.times("device", op, times);
    }
    if account.failed > 0 {
        rows.push("device", "FAILED", account.failed.to_string());
    }
    rows.depth(account);
    rows.0
}

struct Rows(Vec<Row>);

impl Rows {
    fn push(&mut self, group: &'static str, name: &str, text: String) {
        self.at(group, 0, name, text);
    }

    /// Adds an entry with an explicit position. Other entries are ordered by name.
    fn at(&mut self, group: &'static str, order: u64, name: &str, text: String) {
        self.0.push(Row {
            group,
            order,
            name: printable(name),
            text: printable(&text),
        });
    }

    fn one(&mut self, group: &'static str, name: &str, what: &Counted) {
        if what.count > 0 {
            self.push(group, name, counted(what.count, what.bytes));
        }
    }

    fn counted(&mut self, group: &'static str, all: &BTreeMap<String, Counted>) {
        for (name, what) in all {
            self.one(group, name, what);
        }
    }

    fn plain(&mut self, group: &'static str, all: &BTreeMap<String, u64>) {
        for (name, count) in all {
            self.push(group, name, count.to_string());
        }
    }

    fn times(&mut self, group: &'static str, name: &str, times: &Times) {
        if times.count > 0 {
            let text = format!(
                "{}: median {}, 99 % {}, longest {}",
                times.count,
                duration(times.p50_us),
                duration(times.p99_us),
                duration(times.max_us)
            );
            self.push(group, name, text);
        }
    }

    /// Sizes one by one, or in classes if any column has too many.
    fn sizes(
        &mut self,
        group: &'static str,
        sizes: &Sizes,
        all: &[&Account],
        of: impl Fn(&Account) -> Vec<&Sizes>,
    ) {
        let few = all
            .iter()
            .all(|account| of(account).iter().all(|sizes| sizes.len() <= MAX_SIZE_ROWS));
        let mut classes: BTreeMap<u64, u64> = BTreeMap::new();
        for (bytes, count) in sizes {
            let class = match few {
                true => *bytes,
                false => bytes.checked_next_power_of_two().unwrap_or(u64::MAX),
            };
            *classes.entry(class).or_default() += count;
        }
        for (class, count) in classes {
            let name = if few {
                size(class)
            } else {
                format!("to {}", size(class))
            };
            self.at(group, class, &name, count.to_string());
        }
    }

    fn depth(&mut self, account: &Account) {
        let depth = &account.depth;
        if depth.most == 0 {
            return;
        }
        let most = format!(
            "{}, {:.1} while busy, busy {:.0} % of the time",
            depth.most,
            depth.mean_busy,
            depth.busy * 100.0
        );
        self.at("device", 1, "depth", most);
        let each = depth.over_time.len().div_ceil(MAX_BARS).max(1);
        let bars: Vec<f64> = depth
            .over_time
            .chunks(each)
            .map(|slots| slots.iter().sum::<f64>() / slots.len() as f64)
            .collect();
        let text = format!(
            "{} {} each",
            sparks(&bars),
            duration(depth.slot_us * each as f64)
        );
        self.at("device", 1, "depth over time", text);
    }
}

/// Heights as characters, scaled to the maximum.
fn sparks(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| match *value > 0.0 {
        true => BARS[((value / most * 7.0).round() as usize).min(7)],
        false => '·',
    };
    values.iter().map(bar).collect()
}

fn counted(count: u64, bytes: u64) -> String {
    match bytes {
        0 => count.to_string(),
        bytes => format!("{count} of {}", size(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_characters() {
        assert_eq!(sparks(&[0.0, 1.0, 8.0]), "·▂█");
    }
}
