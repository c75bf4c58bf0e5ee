//! Damage to the journal's inode and its map, and to the superblock's fields for the journal.

use std::collections::BTreeSet;

use throughline_extfmt::{GroupDesc, GroupNumber, InodeNumber, Superblock};

use super::Case;
use super::craft::{Base, Crafted};
use super::judge::Damaged;
use crate::survey::{self, Kind, Target};

const JOURNAL: InodeNumber = InodeNumber(8);

/// Fields of the inode, little-endian: offset and length.
const INODE: &[(&str, usize, usize)] = &[
    ("i_mode", 0x00, 2),
    ("i_size", 0x04, 4),
    ("i_dtime", 0x14, 4),
    ("i_links_count", 0x1A, 2),
    ("i_blocks", 0x1C, 4),
    ("i_flags", 0x20, 4),
    ("i_size_high", 0x6C, 4),
];
/// Fields of the superblock.
const SUPERBLOCK: &[(&str, usize, usize)] = &[
    ("s_journal_uuid", 0xD0, 4),
    ("s_journal_inum", 0xE0, 4),
    ("s_journal_dev", 0xE4, 4),
    ("s_jnl_backup_type", 0xFD, 1),
    ("s_jnl_blocks", 0x10C, 4),
];
/// Fields of an extent root with its first extent.
const EXTENTS: &[(&str, usize, usize)] = &[
    ("eh_magic", 0, 2),
    ("eh_entries", 2, 2),
    ("eh_max", 4, 2),
    ("eh_depth", 6, 2),
    ("ee_block", 12, 4),
    ("ee_len", 16, 2),
    ("ee_start_hi", 18, 2),
    ("ee_start_lo", 20, 4),
];

/// All cases for one image.
pub(crate) fn cases<'a>(base: &'a Base, sound: &'a Crafted) -> Vec<Case<'a>> {
    // The survey needs a consistent image; the structures it finds are at the same places in ours.
    let survey = std::sync::Arc::new(survey::Base::new(base.states[0].clone()));
    let find = |kind: Kind| {
        let found = survey.targets.iter().find(|target| target.kind == kind);
        *found.expect("what every image has")
    };
    let inode = find(Kind::Inode(JOURNAL));
    let mut places: Vec<(Target, String, usize, usize)> = Vec::new();
    let mut list = |target: Target, base_at: usize, fields: &[(&str, usize, usize)]| {
        places.extend(
            fields
                .iter()
                .map(|(name, at, len)| (target, (*name).to_owned(), base_at + at, *len)),
        );
    };
    list(inode, 0, INODE);
    list(find(Kind::Superblock), 0, SUPERBLOCK);
    let extents = base.kind.mke2fs.contains("ext4");
    if extents {
        list(inode, 0x28, EXTENTS);
    } else {
        for slot in [0, 1, 5, 11, 12, 13, 14] {
            places.push((inode, format!("i_block[{slot}]"), 0x28 + slot * 4, 4));
        }
        for (index, block) in map_blocks(base).into_iter().enumerate() {
            let at = block as usize * base.kind.block_bytes as usize;
            let target = Target {
                kind: Kind::Pointers,
                at,
                len: 1024,
            };
            for slot in [0, 1, 100, 255] {
                places.push((
                    target,
                    format!("map block {index}, pointer {slot}"),
                    slot * 4,
                    4,
                ));
            }
        }
    }
    let fixed = fixed_blocks(base);
    let mut cases = Vec::new();
    for (target, name, at, len) in places {
        for value in values(base, &sound.bytes[target.at + at..][..len]) {
            let survey = std::sync::Arc::clone(&survey);
            // The block may belong to another file as well, which cannot be noticed without checking all
            // files.
            let also = (value >= fixed).then_some(value).into_iter().collect();
            let make = move || {
                let mut bytes = sound.bytes.clone();
                bytes[target.at + at..][..len].copy_from_slice(&value.to_le_bytes()[..len]);
                survey.seal(&mut bytes, &target);
                Damaged {
                    bytes,
                    also: BTreeSet::clone(&also),
                    unsealed: false,
                    anywhere: false,
                }
            };
            cases.push(Case {
                name: format!("{}: {name}, {value:#x}", base.kind.name),
                base,
                sound,
                make: Box::new(make),
            });
        }
    }
    cases
}

/// The first block after the volume's own structures; the volume has one group.
fn fixed_blocks(base: &Base) -> u64 {
    let sb = Superblock::read(&base.states[0][1024..]).expect("a superblock");
    let geometry = sb.validate().expect("a sound image");
    assert_eq!(geometry.groups, 1);
    let (block, offset) = geometry.desc_place(GroupNumber(0));
    let at = block.0 as usize * base.kind.block_bytes as usize + offset;
    let desc = GroupDesc::read(&base.states[0][at..at + usize::from(geometry.desc_bytes)]);
    let table = desc.expect("a descriptor").inode_table().0;
    table + u64::from(geometry.inode_table_blocks)
}

/// Blocks of the journal's map.
fn map_blocks(base: &Base) -> Vec<u64> {
    let journal: BTreeSet<u64> = base.journal.iter().copied().collect();
    base.reserved.difference(&journal).copied().collect()
}

fn values(base: &Base, old: &[u8]) -> Vec<u64> {
    let blocks = base.states[0].len() as u64 / u64::from(base.kind.block_bytes);
    let (bits, mut bytes) = (old.len() * 8, [0; 8]);
    bytes[..old.len()].copy_from_slice(old);
    let (old, most) = (u64::from_le_bytes(bytes), u64::MAX >> (64 - bits));
    let few = (0..20).chain((0..bits).map(|bit| old ^ 1 << bit));
    let near = [
        old.wrapping_sub(1),
        old.wrapping_add(1),
        old / 2,
        old * 2,
        1024,
        1 << 20,
    ];
    let mut values: Vec<u64> = few
        .chain(near)
        .chain([
            base.journal[0],
            base.journal[7],
            blocks - 1,
            blocks,
            most / 2,
            most,
        ])
        .map(|value| value & most)
        .filter(|value| *value != old)
        .collect();
    values.sort_unstable();
    values.dedup();
    values
}
