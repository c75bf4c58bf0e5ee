//! Accounts of what the I/O path did, of all runs side by side, for the page and for the mail.

use crate::explain::{Account, Section, accounts_in, sections};
use crate::record::Record;

use super::text::one_line;

/// All accounts.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Of each account the index of its entity in the page's list.
    pub(super) entities: Vec<usize>,
    /// What they say; a text for each account in each line.
    pub(super) sections: Vec<Section>,
    /// What must be known before a figure of theirs is believed.
    pub(super) warnings: Vec<String>,
}

/// Puts them together. `entity`: whose each is, by the number of the run and the name of the series.
pub(super) fn of(records: &[&Record], mut entity: impl FnMut(usize, &str) -> usize) -> Accounts {
    let mut all: Vec<&Account> = Vec::new();
    let mut accounts = Accounts::default();
    for (run, record) in records.iter().enumerate() {
        for account in accounts_in(record) {
            accounts.entities.push(entity(run, &account.series));
            if account.lost_events > 0 {
                accounts.warnings.push(format!(
                    "{} events of {} were lost: every count of its account is too small",
                    account.lost_events,
                    one_line(&account.series)
                ));
            }
            all.push(account);
        }
    }
    accounts.sections = sections(&all);
    accounts
}
