//! Pairs of runs: two runs taken one right after the other, one from each side.
//!
//! If the sides alternate, all runs are paired. If each side was run as a block, only the two runs at the
//! boundary are: between the blocks, something else may have changed, such as the machine's temperature or
//! the load from its neighbours, and that cannot be distinguished from a difference between the sides.

use super::Run;

/// The pairs, and the number of runs left over.
pub(super) struct Turns {
    /// Indices of a base run and a new run.
    pub(super) pairs: Vec<(usize, usize)>,
    /// Runs without a partner.
    left_out: usize,
}

/// Finds as many pairs as possible, by the start times of the runs.
pub(super) fn pairs(base: &[Run<'_>], new: &[Run<'_>]) -> Turns {
    let times = |runs: &[Run<'_>]| -> Vec<String> {
        let started = |run: &Run<'_>| run.1.head.started.clone();
        runs.iter().map(started).collect()
    };
    neighbours(&times(base), &times(new))
}

/// As [`pairs`], with the start times. They have the same format, so they sort as text.
fn neighbours(base: &[String], new: &[String]) -> Turns {
    let of = |times: &[String], is_new: bool| -> Vec<(String, bool, usize)> {
        let times = times.iter().cloned().zip(0..);
        times.map(|(time, place)| (time, is_new, place)).collect()
    };
    let mut order = [of(base, false), of(new, true)].concat();
    // Runs with equal times keep the order in which they were named: first with first.
    order.sort_by(|a, b| (&a.0, a.2, a.1).cmp(&(&b.0, b.2, b.1)));
    let mut pairs = Vec::new();
    let mut rest = &order[..];
    while let [first, others @ ..] = rest {
        rest = match others {
            [next, further @ ..] if next.1 != first.1 => {
                let (base, new) = if first.1 {
                    (next, first)
                } else {
                    (first, next)
                };
                pairs.push((base.2, new.2));
                further
            }
            _ => others,
        };
    }
    let left_out = order.len() - 2 * pairs.len();
    Turns { pairs, left_out }
}

impl Turns {
    /// A warning about runs without a partner.
    pub(super) fn warning(&self) -> Option<String> {
        let (subject, has) = match self.left_out {
            0 => return None,
            1 => ("1 run".to_owned(), "has"),
            count => (format!("{count} runs"), "have"),
        };
        Some(format!(
            "{subject} {has} no run of the other side directly before or after, and {has} no part in the \
             verdicts: alternate base and new runs"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sides in chronological order, such as `abba`.
    fn turns(order: &str) -> Turns {
        let of = |side| -> Vec<String> {
            let its = order.chars().zip(100..).filter(|(c, _)| *c == side);
            its.map(|(_, at)| at.to_string()).collect()
        };
        neighbours(&of('a'), &of('b'))
    }

    #[test]
    fn neighbours_are_pairs_and_blocks_are_not() {
        for (order, pairs, left_out) in [
            ("abababab", 4, 0),
            ("abbaabba", 4, 0),
            ("aaaabbbb", 1, 6),
            ("bbbbaaaa", 1, 6),
            ("aab", 1, 1),
            ("aabab", 2, 1),
            ("ab", 1, 0),
            ("aaaa", 0, 4),
            ("", 0, 0),
        ] {
            let found = turns(order);
            assert_eq!(
                (found.pairs.len(), found.left_out),
                (pairs, left_out),
                "{order}"
            );
            assert_eq!(found.warning().is_some(), left_out > 0);
        }
        assert_eq!(turns("abba").pairs, [(0, 0), (1, 1)]);
        assert_eq!(turns("baab").pairs, [(0, 0), (1, 1)]);
        assert_eq!(turns("aabba").pairs, [(1, 0), (2, 1)]);
    }

    #[test]
    fn simultaneous_runs_are_paired_by_name() {
        let same = vec!["2026".to_owned(); 9];
        let found = neighbours(&same, &same);
        let want: Vec<(usize, usize)> = (0..9).map(|i| (i, i)).collect();
        assert_eq!((found.pairs, found.left_out), (want, 0));
    }
}
