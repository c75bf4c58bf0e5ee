//! Converts job files of other tools to workloads. What cannot be expressed as a workload is reported.

mod fio;
mod sysbench;

use super::Workload;

pub use fio::fio;
pub use sysbench::sysbench;

/// A converted job.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The workload.
    pub workload: Workload,
    /// What was left out or works differently here: one text each, with its line if known.
    pub left_out: Vec<String>,
    /// Those of them that change the pattern: offsets, sizes, order or rate of the operations.
    pub lost: Vec<String>,
}

impl Imported {
    /// The workload file. Comments at its top list what was left out.
    pub fn to_toml(&self, from: &str) -> String {
        let mut text = format!(
            "# Made by 'throughline lab import' from {}.\n",
            one_line(from)
        );
        for left_out in &self.left_out {
            text.push_str(&format!("# Left out: {}\n", one_line(left_out)));
        }
        text.push('\n');
        text.push_str(&self.workload.to_toml());
        text
    }
}

/// The text without line breaks, which would end a comment.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
