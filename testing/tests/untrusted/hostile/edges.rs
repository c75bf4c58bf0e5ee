//! Hand-chosen damage: every number of the superblock at its limits, inodes of the wrong type, images cut
//! at every structure, and links that lead to links.

use throughline::internal::OpenBlockDevice;
use throughline::{Error, OpenOptions, Reason, Volume};

use super::exercise::{exercise, load};
use super::mutate::SUPERBLOCK;
use super::{BASES, base};
use crate::survey::{Base, Kind, Target};
use crate::watch::{WATCH, over_threads};

/// Recipes with little in common.
const SOME: [&str; 3] = ["ext2", "ext4 rich", "ext4 bare"];

fn some() -> impl Iterator<Item = (&'static str, &'static Base)> {
    let all = BASES.iter().map(|(name, base)| (*name, base));
    all.filter(|(name, _)| SOME.contains(name))
}

/// One damaged image: its name, and the function that makes its bytes.
type Case = (String, Box<dyn FnOnce() -> Vec<u8> + Send>);

fn run_cases(cases: Vec<Case>) {
    let cases = parking_lot::Mutex::new(cases);
    let failed = std::sync::atomic::AtomicUsize::new(0);
    over_threads(|| {
        loop {
            let Some((what, make)) = cases.lock().pop() else {
                return;
            };
            if WATCH.over(&what, || exercise(&make())).is_none() {
                failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
    });
    assert_eq!(
        failed.into_inner(),
        0,
        "images caused a panic; they are named above"
    );
}

/// A change of one number: the structure, the number's offset in it, its size in bytes, and its new value.
type Change = (Target, usize, usize, u64);

/// A case that sets these numbers and corrects the checksums.
fn numbers(name: &str, base: &'static Base, changes: Vec<Change>) -> Case {
    let shown = changes.iter().map(|(target, at, len, value)| {
        format!("{:?}, {value:#x} in {len} bytes at {at:#x}", target.kind)
    });
    let what = format!("{name}: {}", shown.collect::<Vec<_>>().join("; "));
    let make = move || {
        let mut bytes = base.bytes.clone();
        for (target, at, len, value) in changes {
            bytes[target.at + at..][..len].copy_from_slice(&value.to_le_bytes()[..len]);
            base.seal(&mut bytes, &target);
        }
        bytes
    };
    (what, Box::new(make))
}

fn number(
    name: &str,
    base: &'static Base,
    target: Target,
    at: usize,
    len: usize,
    value: u64,
) -> Case {
    numbers(name, base, vec![(target, at, len, value)])
}

/// An eighth of the cases, because many are alike in several recipes; fewer in the quick tier, all in a soak
/// run.
fn thinned(mut cases: Vec<Case>) -> Vec<Case> {
    fastrand::Rng::with_seed(1).shuffle(&mut cases);
    cases.truncate(cases.len() / throughline_testkit::tier::pick(24, 8, 1));
    cases
}

#[test]
fn every_number_of_the_superblock_at_its_limits() {
    let mut cases = Vec::new();
    for (name, base) in some() {
        let target = base.targets[0];
        for &(at, len) in SUPERBLOCK {
            let top = 1u64 << (len * 8 - 1);
            let blocks = base.geometry.blocks;
            for value in [
                0,
                1,
                2,
                6,
                7,
                31,
                33,
                128,
                1024,
                8193,
                65537,
                top - 1,
                top,
                top + 1,
                u64::MAX,
                blocks,
                blocks + 1,
            ] {
                cases.push(number(name, base, target, at, len, value));
            }
        }
        // Feature words, bit by bit.
        for at in [0x5C, 0x60, 0x64] {
            let old = u32::from_le_bytes(base.bytes[1024 + at..][..4].try_into().unwrap());
            cases.extend(
                (0..32).map(|bit| number(name, base, target, at, 4, u64::from(old ^ 1 << bit))),
            );
        }
    }
    run_cases(thinned(cases));
}

#[test]
fn inodes_of_the_wrong_kind() {
    let mut cases = Vec::new();
    for (name, base) in some() {
        let all = base
            .targets
            .iter()
            .filter(|target| matches!(target.kind, Kind::Inode(_)));
        let used: Vec<_> = all
            .filter(|target| base.bytes[target.at + 1] != 0)
            .collect();
        // The inodes of the large directory's files are all alike, so only a few of them are chosen.
        let chosen = used.iter().take(4).chain(used.iter().skip(4).step_by(24));
        for target in chosen {
            let flags = u32::from_le_bytes(base.bytes[target.at + 0x20..][..4].try_into().unwrap());
            let mut case =
                |at, len, value| cases.push(number(name, base, **target, at, len, value));
            (0..16).for_each(|kind| case(0, 2, kind << 12 | 0o777));
            (0..32).for_each(|bit| case(0x20, 4, u64::from(flags ^ 1 << bit)));
            for size in [0, 1, 59, 60, 61, 1023, 1025, 4097, u64::from(u32::MAX)] {
                case(4, 4, size);
            }
            for high in [1, 0x3F, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF] {
                case(0x6C, 4, high);
            }
            for links in [0, 1, 0xFFFF] {
                case(0x1A, 2, links);
            }
        }
    }
    run_cases(thinned(cases));
}

/// Orphan lists with cycles, and lists of inodes that are not orphans.
#[test]
fn invalid_orphan_entries() {
    let mut cases = Vec::new();
    for (name, base) in some() {
        let inodes: Vec<_> = base
            .targets
            .iter()
            .filter(|target| matches!(target.kind, Kind::Inode(_)))
            .collect();
        let number_of = |target: &Target| match target.kind {
            Kind::Inode(number) => u64::from(number.0),
            _ => 0,
        };
        let (superblock, len) = (base.targets[0], inodes.len());
        let slots = base
            .targets
            .iter()
            .find(|target| matches!(target.kind, Kind::Orphans(_)));
        for turn in 0..throughline_testkit::tier::pick(4, 40, 40) {
            let chain: Vec<Target> = (0..1 + turn % 4)
                .map(|n| *inodes[(turn * 7 + n * 13) % len])
                .collect();
            let mut changes = vec![(superblock, 0xE8, 4, number_of(&chain[0]))];
            for (n, target) in chain.iter().enumerate() {
                let next = &chain[(n + 1) % chain.len()];
                changes.push((
                    *target,
                    0x14,
                    4,
                    if turn % 3 == 0 { 0 } else { number_of(next) },
                ));
                if turn % 2 == 0 {
                    changes.push((*target, 0x1A, 2, 0));
                }
                if let Some(slots) = slots {
                    changes.push((*slots, n * 4, 4, number_of(next)));
                    changes.push((*slots, n * 4 + 16, 4, number_of(next)));
                }
            }
            if slots.is_some() {
                // ORPHAN_PRESENT.
                let old = u32::from_le_bytes(base.bytes[1024 + 0x64..][..4].try_into().unwrap());
                changes.push((superblock, 0x64, 4, u64::from(old | 0x10000)));
            }
            cases.push(numbers(name, base, changes));
        }
    }
    run_cases(cases);
}

#[test]
fn images_cut_short() {
    let mut cases: Vec<Case> = Vec::new();
    for (name, base) in some() {
        let structures = base
            .targets
            .iter()
            .filter(|target| !matches!(target.kind, Kind::Inode(_)));
        let mut lengths: Vec<usize> = structures
            .flat_map(|target| [target.at, target.at + 512])
            .collect();
        lengths.extend((0..=2048).step_by(256));
        lengths.extend([
            1,
            511,
            1023,
            1025,
            1500,
            2047,
            base.bytes.len() - 1,
            base.bytes.len() - 512,
        ]);
        lengths.sort_unstable();
        lengths.dedup();
        for len in lengths {
            cases.push((
                format!("{name} cut to {len} bytes"),
                Box::new(move || base.bytes[..len].to_vec()),
            ));
        }
    }
    run_cases(thinned(cases));
}

#[test]
fn no_image_at_all() {
    for len in [0, 1, 511, 512, 1023, 1024, 1025, 1536, 2047, 2048] {
        for byte in [0, 0xFF] {
            let what = format!("{len} bytes of {byte:#x}");
            let opened = WATCH.over(&what, || {
                OpenOptions::new()
                    .write(true)
                    .open_block_device(load(&vec![byte; len], 0))
                    .err()
            });
            assert!(matches!(opened, Some(Some(_))), "{what}");
        }
    }
}

#[test]
fn large_blocks_on_a_tiny_device() {
    let recipe = base::Recipe {
        name: "ext2 of 64 KiB",
        mke2fs: "-t ext2 -b 65536",
        kib: 8192,
        debugfs: "",
    };
    let Some(bytes) = base::make(&recipe) else {
        throughline_testkit::missing!("mke2fs, debugfs or e2fsck is missing");
        return;
    };
    let base: &'static Base = Box::leak(Box::new(Base::new(bytes)));
    let mut cases = Vec::new();
    for log in 0..24 {
        cases.push(number(recipe.name, base, base.targets[0], 0x18, 4, log));
    }
    for (at, len) in [(0x4, 4), (0x20, 4), (0x28, 4), (0x0, 4)] {
        for value in [1, 64, 127, 129, 65_528, 524_288, 524_289, u64::MAX] {
            cases.push(number(recipe.name, base, base.targets[0], at, len, value));
        }
    }
    for len in (0..base.bytes.len()).step_by(98_304) {
        cases.push((
            format!("64 KiB blocks cut to {len}"),
            Box::new(move || base.bytes[..len].to_vec()),
        ));
    }
    run_cases(cases);
}

/// Each link leads to the next one twice: 2^n steps for a walk that counts only levels.
#[test]
fn links_that_lead_to_links() {
    let Some((_, base)) = BASES.iter().find(|(name, _)| *name == "ext2") else {
        return;
    };
    let volume: Volume = OpenOptions::new()
        .write(true)
        .open_block_device(load(&base.bytes, 0))
        .unwrap();
    let link = |target: &str, name: &str| volume.symlink(target, name).unwrap();
    for n in 0..64 {
        link(&format!("b{}/b{}", n + 1, n + 1), &format!("/b{n}"));
    }
    link(".", "/b64");
    link("self", "/self");
    link(&"./".repeat(500), "/dots");
    let looped = WATCH.over("links", || {
        for path in ["/b0", "/b20/x", "/self", "/self/x"] {
            let met = volume.metadata(path);
            assert!(
                matches!(met, Err(Error::Caller(Reason::Loop))),
                "{path}: {met:?}"
            );
        }
        volume.metadata("/dots/plain").unwrap();
        let long = "/dots".repeat(30) + "/plain";
        volume.metadata(long).unwrap();
    });
    assert!(looped.is_some());
    volume.close().unwrap();
}
