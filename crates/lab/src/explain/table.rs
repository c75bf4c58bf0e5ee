//! Accounts as a table: a column each, a line for each thing that any of them has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::account::{Account, Counted, Sizes, Times};

/// A line of one column: in which group it is, where in it, what it is about, and what it says.
struct Row {
    group: &'static str,
    order: u64,
    name: String,
    text: String,
}

/// The groups, in the order of the path: from the program down to the device.
const GROUPS: &[&str] = &[
    "time",
    "asked for",
    "page cache",
    "writers",
    "write-back",
    "journal",
    "bios",
    SIZES_OF_BIOS[0],
    SIZES_OF_BIOS[1],
    "bios given by",
    "bios ended by",
    "bios merged",
    "requests",
    SIZES_OF_REQUESTS[0],
    SIZES_OF_REQUESTS[1],
    "from call to bio",
    "device",
];
const SIZES_OF_BIOS: [&str; 2] = ["sizes of reading bios", "sizes of writing bios"];
const SIZES_OF_REQUESTS: [&str; 2] = ["sizes of reading requests", "sizes of writing requests"];

/// Sizes that get a line of their own; with more, classes do.
const MAX_SIZE_ROWS: usize = 8;
/// Characters of a line of depths.
const MOST_BARS: usize = 32;

/// The table. `colours` marks the heads of its groups for a terminal.
pub fn table(accounts: &[&Account], colours: bool) -> String {
    let columns: Vec<Vec<Row>> = accounts
        .iter()
        .map(|account| rows(account, accounts))
        .collect();
    let keys = keys(&columns);
    let name_width = keys
        .iter()
        .map(|key| key.1.chars().count() + 2)
        .max()
        .unwrap_or(0);
    let text = |column: &[Row], key: &(&str, &str)| {
        let row = column
            .iter()
            .find(|row| row.group == key.0 && row.name == key.1);
        row.map(|row| row.text.clone())
    };
    let widths: Vec<usize> = columns
        .iter()
        .zip(accounts)
        .map(|(column, account)| {
            let texts = column.iter().map(|row| row.text.chars().count());
            texts
                .chain([account.series.chars().count()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    let line = |out: &mut String, name: &str, cells: &[String]| {
        let mut line = format!("{name:<name_width$}");
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(line, "  {cell:<width$}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    };
    let names: Vec<String> = accounts
        .iter()
        .map(|account| printable(&account.series))
        .collect();
    line(&mut out, "", &names);
    let mut group = "";
    for key in &keys {
        if key.0 != group {
            group = key.0;
            match colours {
                true => drop(writeln!(out, "\x1b[1m{group}\x1b[0m")),
                false => drop(writeln!(out, "{group}")),
            }
        }
        let cells: Vec<String> = columns
            .iter()
            .map(|column| text(column, key).unwrap_or_else(|| "-".to_owned()))
            .collect();
        line(&mut out, &format!("  {}", key.1), &cells);
    }
    put_notes(&mut out, accounts);
    out
}

/// What the lines are about: group and name, in order.
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

fn put_notes(out: &mut String, accounts: &[&Account]) {
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for note in accounts.iter().flat_map(|account| &account.notes) {
        if told.insert(note) {
            let whose = accounts
                .iter()
                .filter(|account| account.notes.contains(note));
            let whose: BTreeSet<String> = whose.map(|account| printable(&account.series)).collect();
            let whose: Vec<String> = whose.into_iter().collect();
            let _ = writeln!(out, "note ({}): {}", whose.join(", "), printable(note));
        }
    }
    for account in accounts.iter().filter(|account| account.lost_events > 0) {
        let _ = writeln!(
            out,
            "WARNING ({}): {} EVENTS WERE LOST, every count above is too small: run it again with a larger --buffer",
            printable(&account.series),
            account.lost_events
        );
    }
}

/// Without what a terminal would take for a command.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// What an account says, in the order of the path: from the program down to the device.
fn rows(account: &Account, all: &[&Account]) -> Vec<Row> {
    let mut rows = Rows(Vec::new());
    rows.push("time", "in all", duration(account.wall_us));
    if let Some(us) = account.first_bio_us {
        rows.push("time", "to the first bio", duration(us));
    }
    rows.counted("asked for", &account.asked);
    rows.one("asked for", "direct I/O", &account.direct);
    rows.one("asked for", "mappings", &account.mappings);
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
    rows.plain("bios given by", &account.submitted_by);
    rows.plain("bios ended by", &account.splits);
    rows.plain("bios merged", &account.merges);
    if account.plugs > 0 {
        rows.push(
            "bios merged",
            "plugs",
            format!("{}, let go {}", account.plugs, account.unplugs),
        );
    }
    rows.counted("requests", &account.requests);
    if account.requeued > 0 {
        rows.push("requests", "given back", account.requeued.to_string());
    }
    for (op, sizes) in &account.request_sizes {
        rows.sizes(
            SIZES_OF_REQUESTS[usize::from(op != "read")],
            sizes,
            all,
            |account| account.request_sizes.get(op).into_iter().collect(),
        );
    }
    rows.times("from call to bio", "first bio", &account.first_submit);
    rows.times("from call to bio", "bio to queue", &account.waiting);
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

    /// One that is not in the order of names.
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
                "{}: half {}, 99 % {}, longest {}",
                times.count,
                duration(times.p50_us),
                duration(times.p99_us),
                duration(times.max_us)
            );
            self.push(group, name, text);
        }
    }

    /// Sizes as they are, or in classes where any of the columns has too many.
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
        let each = depth.over_time.len().div_ceil(MOST_BARS).max(1);
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

/// Heights as characters, the highest the full one.
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

/// `48 KiB`: exact where it is whole, else to three digits.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut shown = (bytes as f64, "bytes");
    for unit in UNITS {
        if shown.0 < 1024.0 {
            break;
        }
        shown = (shown.0 / 1024.0, unit);
    }
    match shown {
        (value, unit) if value.fract() == 0.0 => format!("{value:.0} {unit}"),
        (value, unit) if value < 10.0 => format!("{value:.2} {unit}"),
        (value, unit) => format!("{value:.1} {unit}"),
    }
}

fn duration(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.1} us"),
        us if us < 1_000_000.0 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
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
        a.splits.insert("the size that bios aim at".into(), 3);
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
        assert_eq!(line("in all"), "in all 1.50 ms 1.50 ms");
        assert_eq!(line("write data"), "write data 4 of 4 MiB 1025 of 5 MiB");
        assert_eq!(line("4 KiB"), "4 KiB - 1024");
        assert_eq!(line("1 MiB"), "1 MiB 4 1");
        assert_eq!(line("the size"), "the size that bios aim at 3 -");
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

    #[test]
    fn numbers_are_short() {
        assert_eq!(size(512), "512 bytes");
        assert_eq!(size(48 << 10), "48 KiB");
        assert_eq!(size(5_000_000), "4.77 MiB");
        assert_eq!(duration(12.34), "12.3 us");
        assert_eq!(duration(2e6), "2.00 s");
        assert_eq!(sparks(&[0.0, 1.0, 8.0]), "·▂█");
    }
}
