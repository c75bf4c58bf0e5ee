//! The text of a file with bugs in it.

use std::ops::RangeInclusive;

use crate::points::Point;

/// What the root of a crate needs: it tells which bug is switched on.
pub const SWITCH: &str = r#"
/// Whether the planted bug of this number is switched on.
#[allow(dead_code)]
pub(crate) fn planted_here(number: u32) -> bool {
    static ON: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let on = || std::env::var("THROUGHLINE_PLANTED").ok()?.parse().ok();
    *ON.get_or_init(|| on().unwrap_or(0)) == number
}
"#;

/// The text of a file with these bugs, which do not overlap, and the lines of each, in the order of `bugs`.
pub fn plant(text: &str, bugs: &[(u32, &Point)]) -> (String, Vec<RangeInclusive<usize>>) {
    let mut order: Vec<usize> = (0..bugs.len()).collect();
    order.sort_by_key(|&index| bugs[index].1.at.start);
    let (mut planted, mut copied) = (String::new(), 0);
    let mut lines = vec![0..=0; bugs.len()];
    for index in order {
        let (number, point) = bugs[index];
        planted.push_str(&text[copied..point.at.start]);
        let first = line_of(&planted);
        let original = &text[point.at.clone()];
        planted.push_str(&match point.mutated.as_str() {
            "" => format!("if !crate::planted_here({number}) {{ {original} }}"),
            mutated => {
                format!("(if crate::planted_here({number}) {{ {mutated} }} else {{ {original} }})")
            }
        });
        lines[index] = first..=line_of(&planted);
        copied = point.at.end;
    }
    planted.push_str(&text[copied..]);
    (planted, lines)
}

/// The line that the end of `text` is in.
pub fn line_of(text: &str) -> usize {
    text.matches('\n').count() + 1
}
