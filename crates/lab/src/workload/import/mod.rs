//! Job files of other tools as workloads: what can be said here is taken over, the rest is named.

mod fio;
mod sysbench;

use super::Workload;

pub use fio::fio;
pub use sysbench::sysbench;

/// A job as it was understood.
#[derive(Clone, Debug)]
pub struct Imported {
    /// What the workload file says.
    pub workload: Workload,
    /// What was left out, and what is different here: one text each, with its line where it has one.
    pub left_out: Vec<String>,
    /// Those of them for which another pattern is done here: other places, sizes, order or pace of the operations.
    pub lost: Vec<String>,
}

impl Imported {
    /// The workload file, with what was left out at its head.
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

/// What would end a comment is in no comment.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
