//! Accounts as a table: one column each, and a line for everything that any of them reports.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use super::account::Account;
use super::rows::{Section, printable, sections};

/// Maximum width of the table. Further columns go below the others, but two are always side by side.
const MAX_WIDTH: usize = 160;

/// The table. `colours` highlights group headings for a terminal.
pub fn table(accounts: &[&Account], colours: bool) -> String {
    let sections = sections(accounts);
    let names: Vec<String> = accounts
        .iter()
        .map(|account| printable(&account.series))
        .collect();
    let lines = || sections.iter().flat_map(|section| &section.lines);
    let widest = |texts: &mut dyn Iterator<Item = &str>| {
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let name_width = 2 + widest(&mut lines().map(|line| line.name.as_str()));
    let width = |column: usize| {
        let texts = lines().filter_map(|line| line.texts[column].as_deref());
        widest(&mut texts.chain([names[column].as_str()]))
    };
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let mut out = String::new();
    for columns in abreast(&widths, name_width) {
        if columns.start > 0 {
            out.push('\n');
        }
        let page = Page {
            names: &names[columns.clone()],
            widths: &widths[columns.clone()],
            name_width,
            colours,
        };
        page.put(&mut out, &sections, columns.start);
    }
    put_notes(&mut out, accounts);
    out
}

/// The ranges of columns shown side by side.
fn abreast(widths: &[usize], name_width: usize) -> Vec<Range<usize>> {
    let mut pages: Vec<Range<usize>> = Vec::new();
    let mut used = 0;
    for (column, width) in widths.iter().enumerate() {
        used += 2 + width;
        match pages.last_mut() {
            Some(page) if page.len() < 2 || used <= MAX_WIDTH => page.end = column + 1,
            _ => {
                pages.push(column..column + 1);
                used = name_width + 2 + width;
            }
        }
    }
    pages
}

/// Columns shown side by side.
struct Page<'t> {
    names: &'t [String],
    widths: &'t [usize],
    name_width: usize,
    colours: bool,
}

impl Page<'_> {
    /// Writes these columns, the first of which is number `first`.
    fn put(&self, out: &mut String, sections: &[Section], first: usize) {
        self.line(out, "", self.names.iter().map(String::as_str));
        for section in sections {
            let cells = first..first + self.names.len();
            let mut lines = section
                .lines
                .iter()
                .filter(|line| line.texts[cells.clone()].iter().any(Option::is_some))
                .peekable();
            if lines.peek().is_none() {
                continue;
            }
            match self.colours {
                true => drop(writeln!(out, "\x1b[1m{}\x1b[0m", section.name)),
                false => drop(writeln!(out, "{}", section.name)),
            }
            for line in lines {
                let texts = line.texts[cells.clone()].iter();
                let texts = texts.map(|text| text.as_deref().unwrap_or("-"));
                self.line(out, &format!("  {}", line.name), texts);
            }
        }
    }

    fn line<'c>(&self, out: &mut String, name: &str, cells: impl Iterator<Item = &'c str>) {
        let mut line = format!("{name:<0$}", self.name_width);
        for (cell, width) in cells.zip(self.widths) {
            let _ = write!(line, "  {cell:<width$}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn put_notes(out: &mut String, accounts: &[&Account]) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for note in accounts.iter().flat_map(|account| &account.notes) {
        if seen.insert(note) {
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
            "WARNING ({}): {} EVENTS WERE LOST, every count above is too small: \
             run it again with a larger --buffer",
            printable(&account.series),
            account.lost_events
        );
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
    fn many_columns_go_on_below() {
        assert_eq!(abreast(&[100, 100, 10, 40, 300], 20), [0..2, 2..4, 4..5]);
        assert!(abreast(&[], 20).is_empty());
        let names: Vec<String> = (0..8).map(|n| format!("variant {n} of many")).collect();
        let mut accounts: Vec<Account> = names.iter().map(|name| account(name, &[])).collect();
        accounts[7].merges.insert("in the plug".into(), 3);
        let text = table(&accounts.iter().collect::<Vec<_>>(), false);
        assert!(text.lines().all(|line| line.chars().count() <= MAX_WIDTH));
        assert!(names.iter().all(|name| text.matches(name).count() == 1));
        let heads: Vec<&str> = text.lines().filter(|line| *line == "bios merged").collect();
        assert_eq!(heads.len(), 1, "only where there is something: {text}");
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
