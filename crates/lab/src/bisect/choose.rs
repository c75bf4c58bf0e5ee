//! Chooses the next commit when some cannot be measured.

use std::collections::BTreeSet;

/// Chooses the next commit of a range; `None` if none is left.
///
/// `range` is sorted as git sorts it for bisection, the best commit first. `bad` is its end.
///
/// Broken builds come in clusters. After the first broken commit in a range, its neighbour is chosen, then
/// commits further away in doubling steps. So a long run of broken builds costs the logarithm of its length
/// in builds.
pub(super) fn choose<'a>(
    range: &'a [String],
    bad: &str,
    skipped: &BTreeSet<String>,
) -> Option<&'a String> {
    let left: Vec<&String> = range
        .iter()
        .filter(|id| *id != bad && !skipped.contains(*id))
        .collect();
    let broken = range.iter().filter(|id| skipped.contains(*id)).count();
    // 0, 0, 2, 6, 14 …: among equally good commits, git lists neighbours first.
    let away = 1usize.checked_shl(u32::try_from(broken).unwrap_or(u32::MAX));
    let away = away.map_or(usize::MAX, |steps| steps.saturating_sub(2));
    left.get(away.min(left.len().saturating_sub(1) / 2))
        .copied()
}

/// The number of decisions needed for a range of this many commits, including its end.
pub(super) fn decisions(suspects: usize) -> usize {
    suspects.max(1).next_power_of_two().ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| n.to_string()).collect()
    }

    #[test]
    fn the_best_unless_it_is_broken() {
        let range = names(8);
        let mut skipped = BTreeSet::new();
        assert_eq!(choose(&range, "7", &skipped).unwrap(), "0");
        skipped.insert("0".to_owned());
        assert_eq!(choose(&range, "7", &skipped).unwrap(), "1");
        skipped.insert("1".to_owned());
        assert_eq!(choose(&range, "7", &skipped).unwrap(), "4");
    }

    #[test]
    fn every_commit_is_reached_and_then_there_is_an_end() {
        for count in 1..70 {
            let range = names(count);
            let bad = (count - 1).to_string();
            let mut skipped = BTreeSet::new();
            while let Some(next) = choose(&range, &bad, &skipped) {
                assert!(skipped.insert(next.clone()), "{next} twice");
            }
            assert_eq!(skipped.len(), count - 1);
        }
    }

    #[test]
    fn a_long_stretch_of_broken_builds_is_left_soon() {
        // As git sorts a linear history: the middle, then outwards to both sides.
        let mut range = names(1000);
        range.sort_by_key(|name| (name.parse::<i64>().unwrap() - 500).abs());
        let broken = 350..650;
        let mut skipped = BTreeSet::new();
        for builds in 1.. {
            let next = choose(&range, "999", &skipped).unwrap();
            if !broken.contains(&next.parse::<i32>().unwrap()) {
                assert!(builds <= 10, "{builds}");
                break;
            }
            skipped.insert(next.clone());
        }
    }

    #[test]
    fn decisions_halve() {
        assert_eq!(
            [1, 2, 3, 4, 63, 64, 65].map(decisions),
            [0, 1, 2, 2, 6, 6, 7]
        );
    }
}
