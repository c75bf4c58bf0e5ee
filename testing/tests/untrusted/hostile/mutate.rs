//! Damage: changes structures to what their readers least expect.

use fastrand::Rng;

use crate::survey::{Base, Kind, Target};

/// Superblock fields that others are computed from: offset and size in bytes.
pub(crate) const SUPERBLOCK: &[(usize, usize)] = &[
    (0x00, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0C, 4),
    (0x10, 4),
    (0x14, 4),
    (0x18, 4),
    (0x1C, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x3A, 2),
    (0x4C, 4),
    (0x54, 4),
    (0x58, 2),
    (0x5A, 2),
    (0x5C, 4),
    (0x60, 4),
    (0x64, 4),
    (0xCE, 2),
    (0xE0, 4),
    (0xE4, 4),
    (0xE8, 4),
    (0xFC, 1),
    (0xFE, 2),
    (0x104, 4),
    (0x10C, 4),
    (0x150, 4),
    (0x154, 4),
    (0x158, 4),
    (0x15C, 2),
    (0x15E, 2),
    (0x166, 2),
    (0x168, 8),
    (0x174, 1),
    (0x175, 1),
    (0x178, 8),
    (0x194, 4),
    (0x24C, 4),
    (0x250, 4),
    (0x270, 4),
    (0x280, 4),
];
const DESC: &[(usize, usize)] = &[
    (0x00, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0C, 2),
    (0x0E, 2),
    (0x10, 2),
    (0x12, 2),
    (0x1C, 2),
];
const DESC_64BIT: &[(usize, usize)] = &[
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x2C, 2),
    (0x2E, 2),
    (0x30, 2),
    (0x32, 2),
];
const INODE: &[(usize, usize)] = &[
    (0x00, 2),
    (0x04, 4),
    (0x14, 4),
    (0x1A, 2),
    (0x1C, 4),
    (0x20, 4),
    (0x20, 4),
    (0x28, 2),
    (0x2A, 2),
    (0x2C, 2),
    (0x2E, 2),
    (0x28, 4),
    (0x2C, 4),
    (0x30, 4),
    (0x34, 4),
    (0x38, 4),
    (0x38, 2),
    (0x3A, 2),
    (0x3C, 4),
    (0x40, 4),
    (0x44, 4),
    (0x48, 4),
    (0x58, 4),
    (0x5C, 4),
    (0x60, 4),
    (0x64, 4),
    (0x68, 4),
    (0x6C, 4),
    (0x74, 2),
    (0x76, 2),
];
const INODE_EXTRA: &[(usize, usize)] = &[
    (0x80, 2),
    (0x84, 4),
    (0x88, 4),
    (0x9C, 4),
    (0xA0, 4),
    (0xA4, 2),
    (0xA6, 2),
    (0xA8, 4),
    (0xAC, 4),
];
const EXTENTS: &[(usize, usize)] = &[
    (0, 2),
    (2, 2),
    (4, 2),
    (6, 2),
    (12, 4),
    (16, 2),
    (16, 4),
    (18, 2),
    (20, 4),
    (20, 2),
    (24, 4),
    (28, 2),
    (28, 4),
    (30, 2),
    (32, 4),
];
const TREE_ROOT: &[(usize, usize)] = &[
    (0, 4),
    (4, 2),
    (6, 2),
    (12, 4),
    (16, 2),
    (18, 1),
    (0x18, 4),
    (0x1C, 1),
    (0x1D, 1),
    (0x1E, 1),
    (0x1F, 1),
    (0x20, 2),
    (0x22, 2),
    (0x24, 4),
    (0x28, 4),
    (0x2C, 4),
    (0x30, 4),
    (0x34, 4),
];
const TREE_NODE: &[(usize, usize)] = &[(0, 4), (4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 4)];
const XATTRS: &[(usize, usize)] = &[
    (0, 4),
    (4, 4),
    (8, 4),
    (12, 4),
    (0x20, 1),
    (0x21, 1),
    (0x22, 2),
    (0x24, 4),
    (0x28, 4),
    (0x2C, 4),
    (0x30, 1),
    (0x34, 1),
    (0x36, 2),
    (0x38, 4),
    (0x3C, 4),
];
const JOURNAL: &[(usize, usize)] = &[
    (0, 4),
    (4, 4),
    (8, 4),
    (0x0C, 4),
    (0x0C, 2),
    (0x10, 4),
    (0x12, 2),
    (0x14, 4),
    (0x18, 4),
    (0x1C, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x40, 4),
    (0x44, 4),
    (0x50, 1),
    (0x54, 4),
];

/// A damaged copy of `base`, the same for the same seed. Most damage is resealed, so that it passes the
/// checksums.
pub(crate) fn mutate(base: &Base, seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut bytes = base.bytes.clone();
    for _ in 0..1 + rng.usize(..3) * rng.usize(..3) {
        if rng.u8(..12) == 0 {
            flip(&mut bytes, &mut rng);
            continue;
        }
        let target = pick(base, &mut rng);
        damage(base, &mut bytes, &target, &mut rng);
        if rng.u8(..16) != 0 {
            base.seal(&mut bytes, &target);
        }
    }
    if rng.u8(..24) == 0 {
        bytes.truncate(rng.usize(..bytes.len()) & !511);
    }
    bytes
}

/// Rare structures are chosen as often as common ones.
fn pick(base: &Base, rng: &mut Rng) -> Target {
    let sort = |target: &Target| std::mem::discriminant(&target.kind);
    let mut sorts = Vec::new();
    for target in &base.targets {
        if !sorts.contains(&sort(target)) {
            sorts.push(sort(target));
        }
    }
    let chosen = sorts[rng.usize(..sorts.len())];
    let all: Vec<_> = base
        .targets
        .iter()
        .filter(|target| sort(target) == chosen)
        .collect();
    *all[rng.usize(..all.len())]
}

fn flip(bytes: &mut [u8], rng: &mut Rng) {
    for _ in 0..rng.usize(1..200) {
        let at = rng.usize(..bytes.len());
        bytes[at] ^= 1 << rng.u8(..8);
    }
}

fn damage(base: &Base, bytes: &mut [u8], target: &Target, rng: &mut Rng) {
    let whole = rng.u8(..10);
    if whole == 0 {
        // Replaces it with another of its kind, or with arbitrary bytes.
        let others: Vec<_> = base
            .targets
            .iter()
            .filter(|other| other.len >= target.len)
            .collect();
        let alike: Vec<_> = others
            .iter()
            .filter(|other| same_sort(other, target))
            .collect();
        let other = if rng.bool() {
            alike[rng.usize(..alike.len())]
        } else {
            &others[rng.usize(..others.len())]
        };
        bytes.copy_within(other.at..other.at + target.len, target.at);
        return;
    }
    for _ in 0..rng.usize(1..4) {
        let (at, len) = field(bytes, target, rng);
        if at + len <= target.len {
            change(base, bytes, target.at + at, len, target, rng);
        }
    }
}

fn same_sort(one: &Target, other: &Target) -> bool {
    std::mem::discriminant(&one.kind) == std::mem::discriminant(&other.kind)
}

/// A field of a structure: offset and size in bytes.
fn field(bytes: &[u8], target: &Target, rng: &mut Rng) -> (usize, usize) {
    if rng.u8(..6) == 0 {
        let len = 1 << rng.u8(..4);
        return (rng.usize(..target.len) & !(len - 1), len);
    }
    let one = |rng: &mut Rng, of: &[(usize, usize)]| of[rng.usize(..of.len())];
    // Entry `n` of an array has the layout of the first.
    let entry = |rng: &mut Rng, start: usize, bytes: usize, at: usize| {
        if at < start {
            at
        } else {
            at + bytes * rng.usize(..8) * rng.usize(..2)
        }
    };
    match target.kind {
        Kind::Superblock => one(rng, SUPERBLOCK),
        Kind::GroupDesc(_) if target.len >= 64 && rng.u8(..3) == 0 => one(rng, DESC_64BIT),
        Kind::GroupDesc(_) => one(rng, DESC),
        Kind::Inode(_) if target.len > 128 && rng.u8(..4) == 0 => one(rng, INODE_EXTRA),
        Kind::Inode(_) => one(rng, INODE),
        Kind::Extents(_) => {
            let (at, len) = one(rng, EXTENTS);
            (entry(rng, 12, 12, at), len)
        }
        Kind::TreeRoot(_) => one(rng, TREE_ROOT),
        Kind::TreeNode(_) => one(rng, TREE_NODE),
        Kind::Xattrs => one(rng, XATTRS),
        Kind::Journal => one(rng, JOURNAL),
        Kind::Pointers => (
            (4 * rng.usize(..target.len / 4)) & if rng.bool() { !0 } else { 31 },
            4,
        ),
        Kind::Orphans(_) | Kind::Quota => (4 * rng.usize(..8), 4),
        Kind::Names(_) => name_field(bytes, target, rng),
        Kind::BlockBitmap(_) | Kind::InodeBitmap(_) => (rng.usize(..target.len / 8) * 8, 8),
    }
}

/// A field of one entry of a directory block.
fn name_field(bytes: &[u8], target: &Target, rng: &mut Rng) -> (usize, usize) {
    let block = &bytes[target.at..][..target.len];
    let mut at = 0;
    for _ in 0..rng.usize(..6) {
        let step = usize::from(u16::from_le_bytes(
            block[at + 4..at + 6].try_into().unwrap(),
        ));
        if step < 8 || at + step + 12 > target.len {
            break;
        }
        at += step;
    }
    let fields = [
        (0, 4),
        (0, 4),
        (4, 2),
        (4, 2),
        (6, 1),
        (6, 2),
        (7, 1),
        (8, 1),
        (9, 1),
        (8, 4),
    ];
    let (offset, len) = fields[rng.usize(..fields.len())];
    (at + offset, len)
}

/// Stores an unlikely value in a little- or big-endian number.
fn change(base: &Base, bytes: &mut [u8], at: usize, len: usize, target: &Target, rng: &mut Rng) {
    let mut raw = [0; 8];
    let place = &mut bytes[at..at + len];
    raw[..len].copy_from_slice(place);
    let big = target.kind == Kind::Journal;
    if big {
        raw[..len].reverse();
    }
    let old = u64::from_le_bytes(raw);
    let block = |target: &Target| (target.at / base.geometry.block_bytes as usize) as u64;
    let top = 1u64 << (len * 8 - 1);
    let value = match rng.u8(..16) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => top,
        4 => top - 1,
        5 => old.wrapping_add(1),
        6 => old.wrapping_sub(1),
        7 => old ^ 1 << rng.usize(..len * 8),
        8 => rng.u64(..),
        9 => rng.u64(..64),
        10 => old.wrapping_mul(2),
        // Blocks and inodes that are something else, including this one.
        11 => block(target),
        12 => block(&base.targets[rng.usize(..base.targets.len())]),
        13 => rng.u64(..=u64::from(base.geometry.inodes)),
        14 => base
            .geometry
            .blocks
            .wrapping_add(rng.u64(..4))
            .wrapping_sub(2),
        _ => [
            2,
            3,
            7,
            8,
            10,
            11,
            12,
            u64::from(b'/'),
            u64::from(b'.'),
            0xF30A,
        ][rng.usize(..10)],
    };
    let mut new = value.to_le_bytes();
    if big {
        new[..len].reverse();
    }
    place.copy_from_slice(&new[..len]);
}

/// Damage chosen by a fuzzer: records of two bytes of target, two of offset, one of length, and the bytes to
/// store.
#[allow(dead_code)] // the fuzz target's
pub(crate) fn patch(base: &Base, mut input: &[u8]) -> Vec<u8> {
    let mut bytes = base.bytes.clone();
    while let [a, b, c, d, len, rest @ ..] = input {
        let target = base.targets[usize::from(u16::from_le_bytes([*a, *b])) % base.targets.len()];
        let at = usize::from(u16::from_le_bytes([*c, *d])) % target.len;
        let len = usize::from(len % 16).min(rest.len()).min(target.len - at);
        bytes[target.at + at..][..len].copy_from_slice(&rest[..len]);
        base.seal(&mut bytes, &target);
        input = &rest[len..];
    }
    bytes
}
