//! The cases for fast commits: code, length and numbers of every tag at their limits.

use std::collections::BTreeSet;

use super::Case;
use super::craft::{Base, Crafted};
use super::fast::{Fast, seal};
use super::judge::Damaged;

/// All cases, with the old checksum and with a corrected one.
pub(crate) fn cases<'a>(base: &'a Base, sound: &'a Crafted, fast: &'a Fast) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for &(at, code, len) in &fast.tags {
        let numbers = (0..len.min(20) / 4).map(|word| (at + 4 + word * 4, 4));
        for (offset, width) in [(at, 2), (at + 2, 2)].into_iter().chain(numbers) {
            for value in values(base, width) {
                for sealed in [false, true] {
                    let how = if sealed { "sealed" } else { "as it is" };
                    cases.push(Case {
                        name: format!(
                            "{}: tag {code}, byte {offset} {value:#x}, {how}",
                            base.kind.name
                        ),
                        base,
                        sound,
                        make: Box::new(move || {
                            damage(base, sound, fast, (offset, width, value), sealed)
                        }),
                    });
                }
            }
        }
    }
    cases
}

fn values(base: &Base, width: usize) -> Vec<u64> {
    let blocks = base.states[0].len() as u64 / u64::from(base.kind.block_bytes);
    let most = u64::MAX >> (64 - width * 8);
    let near = [
        256,
        257,
        1000,
        1023,
        1024,
        blocks - 1,
        blocks,
        most / 2,
        most / 2 + 1,
        most,
    ];
    let mut values: Vec<u64> = (0..20).chain(near).filter(|value| *value <= most).collect();
    values.dedup();
    values
}

fn damage(
    base: &Base,
    sound: &Crafted,
    fast: &Fast,
    (offset, width, value): (usize, usize, u64),
    sealed: bool,
) -> Damaged {
    let mut bytes = sound.bytes.clone();
    let size = base.kind.block_bytes as usize;
    let block = &mut bytes[fast.at..fast.at + size];
    let before = block.to_vec();
    block[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
    // Everything after the checksum in the tail is padding.
    let tail = fast.tags.last().map_or(size, |(at, _, _)| *at);
    let whole = sealed || offset >= tail + 12 || block == before.as_slice();
    if sealed {
        seal(block, &fast.tags);
    }
    Damaged {
        bytes,
        also: BTreeSet::new(),
        unsealed: !whole,
        anywhere: whole,
    }
}
