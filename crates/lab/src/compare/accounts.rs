//! The I/O path accounts of the two sides of a comparison.

use throughline_explain::Account;

use super::Choice;
use crate::record::Record;

/// The accounts of two runs, if both have any of the selected series.
pub(super) fn of_two(base: &Record, new: &Record, choice: &Choice) -> Vec<Account> {
    let of = |record, place: &str, name: Option<&str>| -> Vec<Account> {
        let chosen = chosen(record, choice, name);
        let called = |account: &Account| Account {
            series: format!("{place}: {}", account.series),
            ..account.clone()
        };
        chosen.into_iter().map(called).collect()
    };
    let theirs = of(base, "base", choice.base.as_deref());
    let ours = of(new, "new", choice.new.as_deref());
    match theirs.is_empty() || ours.is_empty() {
        true => Vec::new(),
        false => theirs.into_iter().chain(ours).collect(),
    }
}

/// The accounts of two series of one run, or of all series if none was named.
pub(super) fn within(run: &Record, choice: &Choice) -> Vec<Account> {
    let names = [choice.base.as_deref(), choice.new.as_deref()];
    let accounts: Vec<&Account> = match names {
        [None, None] => run.accounts(),
        names => {
            let of = |name: Option<&str>| chosen(run, choice, name).first().copied();
            names.into_iter().filter_map(of).collect()
        }
    };
    match accounts.len() {
        2.. => accounts.into_iter().cloned().collect(),
        _ => Vec::new(),
    }
}

/// The accounts of the requested series, restricted to `name` if given.
fn chosen<'r>(record: &'r Record, choice: &Choice, name: Option<&str>) -> Vec<&'r Account> {
    let mut accounts = record.accounts();
    accounts.retain(|account| {
        let series = &account.series;
        name.is_none_or(|name| name == series)
            && (choice.series.is_empty() || choice.series.contains(series))
    });
    accounts
}
