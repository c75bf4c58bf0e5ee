//! Storing accounts in a [`Record`], and reading them back.

use std::collections::BTreeMap;

use super::{Head, Line, Record};
use crate::{Account, Explained};

impl Record {
    /// The record of a command that was traced, with its settings. `started`: RFC 3339.
    pub fn explained(
        explained: Vec<Explained>,
        started: &str,
        settings: BTreeMap<String, serde_json::Value>,
    ) -> Record {
        let mut lines = Vec::new();
        for one in explained {
            let series = one.account.series.clone();
            let notes = one.account.notes.iter().cloned();
            lines.extend(notes.map(|text| Line::Note { text }));
            lines.push(Line::Account(Box::new(one.account)));
            lines.extend(one.latencies.into_iter().map(Line::Latencies));
            lines.push(Line::Trace {
                series,
                events: one.trace,
            });
        }
        lines.push(Line::End {
            why: "rounds".into(),
        });
        Record {
            head: Head::new("explain", started, settings),
            lines,
        }
    }

    /// The accounts in the record.
    pub fn accounts(&self) -> Vec<&Account> {
        let accounts = self.lines.iter().filter_map(|line| match line {
            Line::Account(account) => Some(&**account),
            _ => None,
        });
        accounts.collect()
    }
}
