//! Accounts as a table: one column each, and a line for everything that any of them reports, ordered along
//! the path from the program to the device.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::account::{Account, Counted, Sizes, Times};
use crate::text::{aligned, bytes as size, micros as duration};

/// The groups of lines, in order.
const GROUPS: &[&str] = &[
    "time",
    "requested",
    "page cache",
    "writers",
    "write-back",
    "journal",
    "bios",
    "read bio sizes",
    "write bio sizes",
    "bios submitted by",
    "bio splits by reason",
    "bios merged",
    "requests",
    "read request sizes",
    "write request sizes",
    "submission times",
    "device",
];

/// Sizes listed one per line; if there are more, they are grouped into classes.
const MAX_SIZE_ROWS: usize = 8;

/// The table. `colours` highlights group headings for a terminal.
pub fn table(accounts: &[&Account], colours: bool) -> String {
    let mut table = Table::default();
    for (column, account) in accounts.iter().enumerate() {
        table.column = column;
        table.heads.push(printable(&account.series));
        table.add(account);
    }
    table.sizes("write-back", accounts, |one| Some(&one.writeback_sizes));
    for op in ["read", "write"] {
        let bios = format!("{op} bio sizes");
        table.sizes(&bios, accounts, |one| one.bio_sizes.get(op));
        let requests = format!("{op} request sizes");
        table.sizes(&requests, accounts, |one| one.request_sizes.get(op));
    }
    let mut out = table.text(colours);
    let mut seen = BTreeSet::new();
    for note in accounts.iter().flat_map(|account| &account.notes) {
        if seen.insert(note) {
            let _ = writeln!(out, "note: {}", printable(note));
        }
    }
    for account in accounts.iter().filter(|account| account.lost_events > 0) {
        let _ = writeln!(
            out,
            "WARNING ({}): {} EVENTS WERE LOST, every count above is too small: \
             run it again with a larger --buffer",
            printable(&account.series),
            account.lost_events
        );
    }
    out
}

/// The text without control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[derive(Default)]
struct Table {
    heads: Vec<String>,
    /// The column that entries are added to.
    column: usize,
    /// The entries of each line by column. A line has its group's place, its own place in it, and its name.
    lines: BTreeMap<(usize, u64, String), BTreeMap<usize, String>>,
}

impl Table {
    fn add(&mut self, account: &Account) {
        self.push("time", "elapsed", duration(account.wall_us));
        if let Some(us) = account.first_bio_us {
            self.push("time", "to the first bio", duration(us));
        }
        self.counted("requested", &account.asked);
        self.one("requested", "direct I/O", &account.direct);
        if let Some(cache) = account.cache {
            let (hits, misses) = (cache.hits, cache.misses);
            self.one("page cache", "hits", &Counted::new(hits, cache.hit_bytes));
            self.one(
                "page cache",
                "misses",
                &Counted::new(misses, cache.miss_bytes),
            );
        }
        self.times("writers", "pauses", &account.pauses);
        self.times("writers", "waits at the limit", &account.waits);
        self.one("write-back", "pieces", &account.writeback);
        self.times("journal", "commits", &account.commits);
        self.counted("bios", &account.bios);
        self.plain("bios submitted by", &account.submitted_by);
        self.plain("bio splits by reason", &account.splits);
        self.plain("bios merged", &account.merges);
        self.counted("requests", &account.requests);
        self.one("requests", "requeued", &Counted::new(account.requeued, 0));
        self.times("submission times", "first bio", &account.first_submit);
        self.times("submission times", "bio to queue", &account.waiting);
        for (op, times) in &account.latency {
            self.times("device", op, times);
        }
        self.one("device", "FAILED", &Counted::new(account.failed, 0));
        let depth = &account.depth;
        if depth.most > 0 {
            let text = format!(
                "{}, {:.1} while busy, busy {:.0} % of the time",
                depth.most,
                depth.mean_busy,
                depth.busy * 100.0
            );
            self.at("device", 1, "depth", text);
        }
    }

    fn push(&mut self, group: &str, name: &str, text: String) {
        self.at(group, 0, name, text);
    }

    /// Adds an entry with an explicit place in its group. Other entries are ordered by name.
    fn at(&mut self, group: &str, place: u64, name: &str, text: String) {
        let group = GROUPS.iter().position(|one| *one == group).unwrap_or(0);
        let line = self.lines.entry((group, place, printable(name)));
        line.or_default().insert(self.column, printable(&text));
    }

    fn one(&mut self, group: &str, name: &str, what: &Counted) {
        match (what.count, what.bytes) {
            (0, _) => {}
            (count, 0) => self.push(group, name, count.to_string()),
            (count, bytes) => self.push(group, name, format!("{count} of {}", size(bytes))),
        }
    }

    fn counted(&mut self, group: &str, all: &BTreeMap<String, Counted>) {
        for (name, what) in all {
            self.one(group, name, what);
        }
    }

    fn plain(&mut self, group: &str, all: &BTreeMap<String, u64>) {
        for (name, count) in all {
            self.push(group, name, count.to_string());
        }
    }

    fn times(&mut self, group: &str, name: &str, times: &Times) {
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
        group: &str,
        accounts: &[&Account],
        of: impl Fn(&Account) -> Option<&Sizes>,
    ) {
        let columns = || accounts.iter().map(|account| of(account));
        let few = columns()
            .flatten()
            .all(|sizes| sizes.len() <= MAX_SIZE_ROWS);
        for (column, sizes) in columns().enumerate() {
            let mut classes: BTreeMap<u64, u64> = BTreeMap::new();
            for (bytes, count) in sizes.into_iter().flatten() {
                let class = match few {
                    true => *bytes,
                    false => bytes.checked_next_power_of_two().unwrap_or(u64::MAX),
                };
                *classes.entry(class).or_default() += count;
            }
            self.column = column;
            for (class, count) in classes {
                let to = if few { "" } else { "to " };
                self.at(
                    group,
                    class,
                    &format!("{to}{}", size(class)),
                    count.to_string(),
                );
            }
        }
    }

    fn text(&self, colours: bool) -> String {
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(self.heads.iter().cloned());
        let mut last = None;
        for ((group, _, name), texts) in &self.lines {
            if last.replace(group) != Some(group) {
                rows.push(vec![GROUPS[*group].to_owned()]);
            }
            let text = |column| texts.get(&column).map_or("-", String::as_str).to_owned();
            let cells = (0..self.heads.len()).map(text);
            rows.push([format!("  {name}")].into_iter().chain(cells).collect());
        }
        let lines = rows.iter().zip(aligned(&rows, 0..0));
        let line = |(row, line): (&Vec<String>, String)| match colours && row.len() == 1 {
            true => format!("\x1b[1m{line}\x1b[0m\n"),
            false => line + "\n",
        };
        lines.map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::Counted;
    use super::*;

    fn account(series: &str, sizes: &[(u64, u64)]) -> Account {
        let all = sizes
            .iter()
            .fold(Counted::default(), |all, (bytes, count)| Counted {
                count: all.count + count,
                bytes: all.bytes + bytes * count,
            });
        Account {
            series: series.into(),
            wall_us: 1_500.0,
            bios: [("write data".to_owned(), all)].into(),
            bio_sizes: [("write".to_owned(), sizes.to_vec())].into(),
            ..Account::default()
        }
    }

    #[test]
    fn two_stand_side_by_side() {
        let (mut a, b) = (
            account("ours.img", &[(1 << 20, 4)]),
            account("loop0", &[(4096, 1024), (1 << 20, 1)]),
        );
        a.splits.insert("size target".into(), 3);
        a.lost_events = 5;
        let text = table(&[&a, &b], false);
        let line = |name: &str| {
            let found = text
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            let words = found.unwrap_or_default().split_whitespace();
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("ours.img"), "ours.img loop0");
        assert_eq!(line("elapsed"), "elapsed 1.5 ms 1.5 ms");
        assert_eq!(line("write data"), "write data 4 of 4 MiB 1025 of 5 MiB");
        assert_eq!(line("4 KiB"), "4 KiB - 1024");
        assert_eq!(line("1 MiB"), "1 MiB 4 1");
        assert_eq!(line("size target"), "size target 3 -");
        assert!(text.contains("5 EVENTS WERE LOST"), "{text}");
    }

    #[test]
    fn many_sizes_become_classes_in_all_columns() {
        let many: Vec<(u64, u64)> = (1..=20).map(|n| (n * 4096, 1)).collect();
        let (a, b) = (account("a", &many), account("b", &[(4096, 7)]));
        let text = table(&[&a, &b], false);
        assert!(text.contains("to 4 KiB"), "{text}");
        assert!(text.contains("to 128 KiB"), "{text}");
        assert!(!text.contains("  4 KiB"), "{text}");
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        let mut account = account("evil\x1b[2J\n.img", &[]);
        account.notes.push("a\x07b".into());
        let text = table(&[&account], false);
        assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text:?}");
        assert!(text.contains("evil[2J.img"), "{text}");
    }
}
