//! Where a full leaf of a hash tree is split.

/// A name in a leaf: its hash, and the bytes that its entry needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Major hash, lowest bit clear.
    pub(super) hash: u32,
    /// Length of the entry without slack, in bytes.
    pub(super) len_bytes: usize,
}

/// A split: the first `keep` names stay, the rest moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Number of names that stay; at least one stays and one moves.
    pub(super) keep: usize,
    /// First hash of the part that moves.
    pub(super) hash: u32,
    /// Names with that hash are in both parts. The index marks that in the lowest bit of the hash.
    pub(super) continued: bool,
}

/// Splits `items`, sorted by hash, so that about half of `room_bytes` moves. `None` for fewer than two names:
/// such a leaf cannot be full.
pub(super) fn cut(items: &[Item], room_bytes: usize) -> Option<Cut> {
    if items.len() < 2 {
        return None;
    }
    let half = room_bytes / 2;
    let mut moved_bytes = 0usize;
    let mut keep = items.len();
    while let Some(item) = items.get(keep - 1) {
        // An entry that spans the middle goes to the side that holds the larger part of it.
        if moved_bytes + item.len_bytes / 2 > half {
            break;
        }
        moved_bytes += item.len_bytes;
        keep -= 1;
        if keep == 0 {
            break;
        }
    }
    if keep == 0 || keep == items.len() {
        keep = items.len() / 2;
    }
    let hash = items[keep].hash;
    Some(Cut {
        keep,
        hash,
        continued: items[keep - 1].hash == hash,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(spec: &[(u32, usize)]) -> Vec<Item> {
        spec.iter()
            .map(|&(hash, len_bytes)| Item { hash, len_bytes })
            .collect()
    }

    #[test]
    fn half_of_the_bytes_moves() {
        let names = items(&[(2, 264), (4, 264), (6, 264)]);
        assert_eq!(
            cut(&names, 1012),
            Some(Cut {
                keep: 1,
                hash: 4,
                continued: false
            })
        );
        let names: Vec<_> = (0..100)
            .map(|i| Item {
                hash: i * 2,
                len_bytes: 12,
            })
            .collect();
        let at = cut(&names, 1200).expect("many names");
        assert!((48..=52).contains(&at.keep), "{at:?}");
        assert_eq!(at.hash, names[at.keep].hash);
    }

    #[test]
    fn a_hash_in_both_parts_is_marked_as_continued() {
        let names = items(&[(2, 264), (8, 264), (8, 264), (8, 264)]);
        let at = cut(&names, 1012).expect("four names");
        assert!(at.continued && at.hash == 8, "{at:?}");
    }

    #[test]
    fn few_small_names_are_halved_and_one_is_not_cut() {
        assert_eq!(
            cut(&items(&[(2, 12), (4, 12)]), 4096),
            Some(Cut {
                keep: 1,
                hash: 4,
                continued: false
            })
        );
        assert_eq!(cut(&items(&[(2, 12)]), 4096), None);
        assert_eq!(cut(&[], 4096), None);
    }

    #[test]
    fn both_parts_have_room_for_the_longest_name() {
        // 1 KiB blocks with a checksum tail: for any lengths, one more name of 255 bytes fits in either part.
        let mut seed = 0x1234_5678_u32;
        for _ in 0..10_000 {
            let mut names = Vec::new();
            let mut used = 0usize;
            loop {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let len_bytes = 12 + (seed >> 8) as usize % 64 * 4;
                if used + len_bytes > 1012 {
                    break;
                }
                used += len_bytes;
                names.push(Item {
                    hash: names.len() as u32 * 2,
                    len_bytes,
                });
            }
            if used + 264 <= 1012 {
                continue;
            }
            let at = cut(&names, 1012).expect("a full leaf has several names");
            let kept: usize = names[..at.keep].iter().map(|i| i.len_bytes).sum();
            assert!(
                kept + 264 <= 1012 && used - kept + 264 <= 1012,
                "{names:?} {at:?}"
            );
        }
    }
}
