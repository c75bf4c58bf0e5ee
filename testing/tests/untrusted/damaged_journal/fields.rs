//! The table of all fields of the log, of the journal's superblock and of its inode, and their test values.

use std::collections::BTreeSet;

use throughline_extfmt::jbd2::JournalCsum;

use super::craft::{Base, Crafted, Part};
use super::judge::Damaged;
use super::seal::seal;

/// A number in the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// Its byte offset in the image.
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) values: Values,
}

/// The values a field is set to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values {
    /// Limits of all integer sizes.
    Number,
    /// Each bit inverted.
    Bits,
    /// The home block of a copy.
    Home,
}

const SUPERBLOCK: &[(&str, usize, usize, Values)] = &[
    ("h_magic", 0x00, 4, Values::Number),
    ("h_blocktype", 0x04, 4, Values::Number),
    ("h_sequence", 0x08, 4, Values::Number),
    ("s_blocksize", 0x0C, 4, Values::Number),
    ("s_maxlen", 0x10, 4, Values::Number),
    ("s_first", 0x14, 4, Values::Number),
    ("s_sequence", 0x18, 4, Values::Number),
    ("s_start", 0x1C, 4, Values::Number),
    ("s_errno", 0x20, 4, Values::Number),
    ("s_feature_compat", 0x24, 4, Values::Bits),
    ("s_feature_incompat", 0x28, 4, Values::Bits),
    ("s_feature_ro_compat", 0x2C, 4, Values::Bits),
    ("s_uuid", 0x30, 4, Values::Bits),
    ("s_nr_users", 0x40, 4, Values::Number),
    ("s_dynsuper", 0x44, 4, Values::Number),
    ("s_max_transaction", 0x48, 4, Values::Number),
    ("s_max_trans_data", 0x4C, 4, Values::Number),
    ("s_checksum_type", 0x50, 1, Values::Number),
    ("s_num_fc_blks", 0x54, 4, Values::Number),
    ("s_head", 0x58, 4, Values::Number),
    ("s_checksum", 0xFC, 4, Values::Bits),
    ("s_users", 0x100, 4, Values::Number),
];
const HEADER: &[(&str, usize, usize, Values)] = &[
    ("h_magic", 0, 4, Values::Bits),
    ("h_blocktype", 4, 4, Values::Number),
    ("h_sequence", 8, 4, Values::Number),
];
const COMMIT: &[(&str, usize, usize, Values)] = &[
    ("h_chksum_type", 12, 1, Values::Number),
    ("h_chksum_size", 13, 1, Values::Number),
    ("h_chksum", 16, 4, Values::Number),
    ("h_chksum[1]", 20, 4, Values::Bits),
    ("h_commit_sec", 48, 8, Values::Number),
    ("h_commit_nsec", 56, 4, Values::Number),
];
const REVOKE: &[(&str, usize, usize, Values)] = &[
    ("r_count", 12, 4, Values::Number),
    ("a record", 16, 8, Values::Number),
];

/// The fields of one block of the log; for descriptors, those of the first tags and the last.
fn of_part(crafted: &Crafted, at: usize, part: &Part) -> Vec<Field> {
    let place = |(name, offset, len, values): (&'static str, usize, usize, Values)| Field {
        name,
        at: at + offset,
        len,
        values,
    };
    let list = |list: &[(&'static str, usize, usize, Values)]| -> Vec<Field> {
        list.iter().copied().map(place).collect()
    };
    match part {
        Part::Superblock => list(SUPERBLOCK),
        Part::Descriptor(tags) => {
            let mut fields = list(HEADER);
            let some = tags.iter().take(2).chain(tags.iter().skip(2).last());
            for tag in some {
                fields.extend(
                    tag_fields(crafted)
                        .iter()
                        .map(|(name, offset, len, values)| {
                            place((name, tag + offset, *len, *values))
                        }),
                );
            }
            fields.push(place((
                "its tail",
                crafted.format.block_bytes as usize - 4,
                4,
                Values::Bits,
            )));
            fields
        }
        Part::Copy(_) => vec![place(("a byte of a copy", 500, 1, Values::Bits))],
        Part::Revoke => [list(HEADER), list(REVOKE)].concat(),
        Part::Commit => [list(HEADER), list(COMMIT)].concat(),
    }
}

fn tag_fields(crafted: &Crafted) -> &'static [(&'static str, usize, usize, Values)] {
    match crafted.format.csum {
        JournalCsum::V3 => &[
            ("t_blocknr", 0, 4, Values::Home),
            ("t_flags", 4, 4, Values::Bits),
            ("t_blocknr_high", 8, 4, Values::Number),
            ("t_checksum", 12, 4, Values::Bits),
        ],
        _ => &[
            ("t_blocknr", 0, 4, Values::Home),
            ("t_checksum", 4, 2, Values::Bits),
            ("t_flags", 6, 2, Values::Bits),
        ],
    }
}

/// All fields of a log; for copies, one in sixteen.
pub(crate) fn of_log(crafted: &Crafted) -> Vec<Field> {
    let mut copies = 0;
    let mut fields = Vec::new();
    for (at, _, part) in &crafted.parts {
        if matches!(part, Part::Copy(_)) {
            copies += 1;
            if copies % 16 != 1 {
                continue;
            }
        }
        fields.extend(of_part(crafted, *at, part));
    }
    fields
}

/// The test values of `field`, whose value is `old`.
pub(crate) fn values(base: &Base, field: &Field, old: u64) -> Vec<u64> {
    let blocks = base.states[0].len() as u64 / u64::from(base.kind.block_bytes);
    let bits = field.len * 8;
    let most = u64::MAX >> (64 - bits);
    let numbers = [
        0,
        1,
        2,
        3,
        4,
        5,
        15,
        16,
        17,
        255,
        256,
        512,
        1020,
        1023,
        1024,
        1025,
        1040,
        2048,
        4096,
        blocks - 1,
        blocks,
        1 << 30,
        most / 2,
        most / 2 + 1,
        most - 1,
        most,
        old.wrapping_sub(1) & most,
        old.wrapping_add(1) & most,
    ];
    let mut values: Vec<u64> = match field.values {
        Values::Bits => (0..bits).map(|bit| old ^ 1 << bit).collect(),
        Values::Number => numbers.to_vec(),
        Values::Home => {
            // The superblock, descriptors, bitmaps and inodes, the journal's own blocks, the limits.
            let journal = [base.journal[0], base.journal[1], base.journal[500]];
            let near = (0..24).chain([blocks - 1, blocks, blocks + 1, most / 2, most]);
            near.chain(journal).collect()
        }
    };
    values.sort_unstable();
    values.dedup();
    values.retain(|value| *value != old && *value <= most);
    values
}

/// The log's image with `field` set to `value`, its checksums corrected or left unchanged.
pub(crate) fn damage(sound: &Crafted, field: &Field, value: u64, sealed: bool) -> Damaged {
    let mut bytes = sound.bytes.clone();
    bytes[field.at..field.at + field.len].copy_from_slice(&value.to_be_bytes()[8 - field.len..]);
    if sealed {
        seal(&mut bytes, &sound.parts, &sound.format);
    }
    let also = match field.values {
        Values::Home => BTreeSet::from([value]),
        _ => BTreeSet::new(),
    };
    // Without checksums, any result is possible. Changing where the log starts, or its type, also changes the
    // log.
    let sums = sound.format.csum != JournalCsum::None;
    Damaged {
        bytes,
        also,
        unsealed: sums && !sealed,
        anywhere: false,
    }
}

/// The big-endian number in the field.
pub(crate) fn read(bytes: &[u8], field: &Field) -> u64 {
    let bytes = &bytes[field.at..field.at + field.len];
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
