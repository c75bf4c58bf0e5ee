//! Converts job files of other tools to workloads: what can be expressed is converted, the rest is listed.

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
    /// What was left out or is different here: one text each, with its line if known.
    pub left_out: Vec<String>,
    /// Those that change the pattern: places, sizes, order or pace of the operations.
    pub lost: Vec<String>,
}

impl Imported {
    /// The workload file, with what was left out in comments at the top.
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
