//! I/O path accounts of all runs side by side, for the page and for the mail.

use throughline_explain::{Account, Section, sections};

use crate::record::Record;

use super::text::{bytes, micros, one_line, plural};

/// The accounts of all runs.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// For each account, the index of its entity in the page's list.
    pub(super) entities: Vec<usize>,
    /// A summary of each in one sentence, without its name.
    pub(super) in_short: Vec<String>,
    /// Their contents: in each line, a text for each account.
    pub(super) sections: Vec<Section>,
    /// Warnings that the reader needs before trusting the figures.
    pub(super) warnings: Vec<String>,
}

/// Collects the accounts. `entity` returns the entity of a series, given the number of its run and its name.
pub(super) fn of(records: &[&Record], mut entity: impl FnMut(usize, &str) -> usize) -> Accounts {
    let mut all: Vec<&Account> = Vec::new();
    let mut accounts = Accounts::default();
    for (run, record) in records.iter().enumerate() {
        for account in record.accounts() {
            accounts.entities.push(entity(run, &account.series));
            accounts.in_short.push(in_short(account));
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

fn in_short(account: &Account) -> String {
    let bios = account.bios_with_data();
    format!(
        "{} of {} on average, the first after {}, at most {} I/Os on the device at once.",
        plural(bios.count as usize, "bio"),
        bytes(bios.bytes.checked_div(bios.count).unwrap_or(0)),
        account
            .first_bio_us
            .map_or_else(|| "no time".into(), micros),
        account.depth.most
    )
}
