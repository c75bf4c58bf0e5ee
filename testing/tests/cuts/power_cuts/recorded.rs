//! Orphans of a volume that has recorded an error. Neither `e2fsck` (1.47) nor the kernel processes their
//! list: it cannot be trusted, and a full check is due. So `e2fsck` finds them as inodes without names in
//! pass 1, and our recovery leaves them recorded, for `e2fsck`.
//!
//! What it may find then is decided by `e2fsck` itself: without the record of the error, it must clear or
//! truncate the orphans and find nothing else, and so must we ([`judge`]). With the record, it may find these
//! inodes, and what they hold.

use std::collections::BTreeSet;

use throughline_extfmt::Superblock;
use throughline_extfmt::features::RoCompat;
use throughline_extfmt::superblock::State;
use throughline_testing::Image;
use zerocopy::IntoBytes;

use super::fsck::{Fsck, cannot_truncate, counts, is_of_left_value, left_values, repairs};
use super::judge::recover;
use super::recipes::Recipe;
use super::tree::{self, Tree};

/// The place of the superblock in bytes, and its length.
const SUPERBLOCK: u64 = 1024;
const CLEARED: &str = "Clearing orphaned inode ";
const TRUNCATED: &str = "Truncating orphaned inode ";

fn superblock(image: &Image) -> Option<Superblock> {
    let mut bytes = [0; SUPERBLOCK as usize];
    image.read(SUPERBLOCK, &mut bytes);
    Superblock::read(&bytes).ok()
}

/// The volume without the record of an error, if it has one and its orphans are left.
pub fn without_record(recovered: &Image) -> Option<Image> {
    let mut sb = superblock(recovered)?;
    let has_orphans =
        sb.s_last_orphan.get() != 0 || sb.ro_compat().contains(RoCompat::ORPHAN_PRESENT);
    if !sb.state().contains(State::ERROR) || !has_orphans {
        return None;
    }
    sb.set_state(sb.state() - State::ERROR);
    sb.update_checksum();
    let mut image = recovered.clone();
    image.write(SUPERBLOCK, sb.as_bytes());
    Some(image)
}

/// Checks the volume of [`without_record`], and that `output`, of `e2fsck -fy` with the record, blames
/// nothing but its orphans.
///
/// # Errors
/// What is wrong.
pub fn judge(recipe: &Recipe, volume: &Image, output: &str, fsck: &mut Fsck) -> Result<(), String> {
    let (repaired, ended) = fsck.repair(volume)?;
    let ours = recover(volume)?.contents();
    fsck.check(&ours)?;
    let mut has_left = false;
    if !cannot_truncate(recipe, &ended) {
        fsck.check(&repaired)?;
        match tree::read(&repaired) {
            Err(what) if left_values(&ended, &what) => has_left = true,
            repaired => same(repaired?, &tree::read(&ours)?, &ended)?,
        }
    }
    let mut orphans = orphans(&ended, CLEARED);
    orphans.extend(self::orphans(&ended, TRUNCATED));
    let more = repairs(output);
    let more: Vec<&str> = more
        .into_iter()
        .filter(|line| !(is_of(line, &orphans) || has_left && is_of_left_value(line)))
        .collect();
    match more.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "beside the orphans {orphans:?}, e2fsck -fy had to repair: {}",
            more.join("\n")
        )),
    }
}

/// Checks that the tree that `e2fsck` left is ours, and that it found nothing else.
fn same(mut theirs: Tree, ours: &Tree, ended: &str) -> Result<(), String> {
    restore_attributes(&mut theirs, ours, &orphans(ended, TRUNCATED));
    if let Some(what) = tree::difference(ours, &theirs) {
        return Err(format!("without the record of the error: {what}"));
    }
    let more = repairs(ended);
    match more.is_empty() {
        true => Ok(()),
        false => Err(format!("e2fsck -fy had to repair: {}", more.join("\n"))),
    }
}

/// Gives files whose truncation `e2fsck` (1.47) has ended the attributes that it dropped: it takes their
/// block, as that of an orphan that it clears. The kernel and we keep it.
fn restore_attributes(theirs: &mut Tree, ours: &Tree, truncated: &BTreeSet<u64>) {
    for (path, entry) in theirs {
        let is_dropped = entry.attributes.is_empty() && truncated.contains(&entry.ino);
        if let Some(ours) = ours.get(path).filter(|_| is_dropped) {
            entry.attributes = ours.attributes.clone();
        }
    }
}

/// The inodes that `e2fsck` says it cleared or truncated.
fn orphans(ended: &str, how: &str) -> BTreeSet<u64> {
    let lines = ended.lines().map(str::trim);
    let numbers = lines.filter_map(|line| {
        let (number, _) = line.strip_prefix(how)?.split_once(' ')?;
        number.parse().ok()
    });
    numbers.collect()
}

/// Whether a line is about these inodes and what they hold: their place in the list, and bits and usage that
/// are set for them. What `e2fsck` finds used, and not marked so, is another matter.
fn is_of(line: &str, orphans: &BTreeSet<u64>) -> bool {
    let names = |begin: &str, end: &str| {
        let number = line
            .strip_prefix(begin)
            .and_then(|rest| rest.strip_suffix(end));
        number.is_some_and(|n| n.parse().is_ok_and(|n| orphans.contains(&n)))
    };
    let bits = |begin: &str| line.strip_prefix(begin).map(freed);
    line == "Inodes that were part of a corrupted orphan linked list found.  Fix? yes"
        || names("Inode ", " was part of the orphaned inode list.  FIXED.")
        || names("Deleted inode ", " has zero dtime.  Fix? yes")
        || bits("Inode bitmap differences:").is_some_and(|freed| {
            freed.is_some_and(|mut ranges| {
                ranges.all(|mut range| range.all(|n| orphans.contains(&n)))
            })
        })
        || bits("Block bitmap differences:").is_some_and(|freed| freed.is_some())
        || line.starts_with("Free blocks count wrong for group #")
        || line.starts_with("Free inodes count wrong for group #")
        || line.starts_with("Update quota info for quota type ")
        || line.starts_with("[QUOTA WARNING]")
            && counts(line).is_some_and(|(actual, expected)| {
                actual.0 <= expected.0 && actual.1 <= expected.1 && actual != expected
            })
}

/// The ranges in a list such as ` -14 -(21--23)`; `None` if a bit is missing.
fn freed(list: &str) -> Option<impl Iterator<Item = std::ops::RangeInclusive<u64>>> {
    let ranges = list.split_whitespace().map(|word| {
        let word = word.strip_prefix('-')?;
        let word = word
            .strip_prefix('(')
            .map_or(Some(word), |w| w.strip_suffix(')'))?;
        let (first, last) = word.split_once("--").unwrap_or((word, word));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    let ranges: Option<Vec<_>> = ranges.collect();
    ranges.map(Vec::into_iter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_an_orphan_is_noticed() {
        let cleared = "Clearing orphaned inode 21 (uid=1, gid=1, mode=0100666, size=0)\n\
            Clearing orphaned inode 22 (uid=1, gid=1, mode=0100666, size=0)\n\
            Truncating orphaned inode 37 (uid=1, gid=1, mode=0100666, size=9)";
        assert_eq!(orphans(cleared, TRUNCATED), BTreeSet::from([37]));
        let orphans = orphans(cleared, CLEARED);
        assert_eq!(orphans, BTreeSet::from([21, 22]));
        for line in [
            "Inode 21 was part of the orphaned inode list.  FIXED.",
            "Deleted inode 22 has zero dtime.  Fix? yes",
            "Inode bitmap differences:  -21 -22",
            "Inode bitmap differences:  -(21--22)",
            "Block bitmap differences:  -1328 -(1400--1410)",
            "[QUOTA WARNING] Usage inconsistent for ID 1:actual (0, 0) != expected (4096, 1)",
        ] {
            assert!(is_of(line, &orphans), "{line}");
        }
        for line in [
            "Inode 23 was part of the orphaned inode list.  FIXED.",
            "Deleted inode 14 has zero dtime.  Fix? yes",
            "Inode bitmap differences:  -(21--23)",
            "Inode bitmap differences:  +21",
            "Block bitmap differences:  -1328 +(1400--1410)",
            "[QUOTA WARNING] Usage inconsistent for ID 1:actual (1, 0) != expected (0, 1)",
            "Inode 21, i_blocks is 172, should be 130.  Fix? yes",
            "Unattached inode 21",
            "Entry 'a' in /lane0 (12) has deleted/unused inode 21.  Clear? yes",
        ] {
            assert!(!is_of(line, &orphans), "{line}");
        }
    }
}
