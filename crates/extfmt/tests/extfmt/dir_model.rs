//! Directory blocks against a model: a block must have the same entries as a map of names.

use std::collections::BTreeMap;

use proptest::prelude::*;
use throughline_extfmt::InodeNumber;
use throughline_extfmt::dir::{self, DirEntry, DirFormat, Vacancy};
use throughline_testkit::cases::config;

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, u32, u8),
    Remove(usize),
    SetInode(usize, u32),
    Refill,
}

fn step() -> impl Strategy<Value = Step> {
    let name = proptest::collection::vec(any::<u8>(), 1..=255);
    let short = proptest::collection::vec(any::<u8>(), 1..20);
    prop_oneof![
        2 => (name, 1u32..1000, 0u8..8).prop_map(|(name, ino, kind)| Step::Insert(name, ino, kind)),
        6 => (short, 1u32..1000, 0u8..8).prop_map(|(name, ino, kind)| Step::Insert(name, ino, kind)),
        3 => any::<usize>().prop_map(Step::Remove),
        1 => (any::<usize>(), 1u32..1000).prop_map(|(at, ino)| Step::SetInode(at, ino)),
        1 => Just(Step::Refill),
    ]
}

fn format() -> impl Strategy<Value = DirFormat> {
    let block = prop_oneof![4 => Just(1024u32), 2 => Just(4096), 1 => Just(65536)];
    (block, any::<bool>(), any::<bool>()).prop_map(|(block_bytes, tail, filetype)| DirFormat {
        block_bytes,
        inodes: 1000,
        tail,
        filetype,
    })
}

type Model = BTreeMap<Vec<u8>, (InodeNumber, u8)>;

fn used<'a>(block: &'a [u8], format: &DirFormat) -> Vec<DirEntry<'a>> {
    let all: Vec<DirEntry<'_>> = dir::entries(block, format).map(Result::unwrap).collect();
    let end = all.last().map_or(0, |entry| entry.offset + entry.rec_len);
    assert_eq!(end, format.usable(block.len()), "records fill the block");
    all.into_iter().filter(DirEntry::is_used).collect()
}

fn apply(block: &mut [u8], format: &DirFormat, model: &mut Model, step: Step) {
    let pick = |at: usize| (!model.is_empty()).then(|| model.keys().nth(at % model.len()).cloned());
    match step {
        Step::Insert(name, inode, kind) => {
            if model.contains_key(&name) {
                return;
            }
            let inode = InodeNumber(inode);
            let before = block.to_vec();
            match dir::insert(block, format, 0, (&name, inode, kind)).unwrap() {
                Some(offset) => {
                    let found = dir::find(block, format, &name).unwrap().unwrap();
                    assert_eq!(found.offset, offset);
                    model.insert(name, (inode, if format.filetype { kind } else { 0 }));
                }
                None => {
                    assert_eq!(before, block, "a refused insert changes nothing");
                    let wanted = dir::record_bytes(name.len());
                    for entry in dir::entries(block, format).map(Result::unwrap) {
                        assert!(entry.rec_len - entry.needs() < wanted, "there was room");
                    }
                }
            }
        }
        Step::Remove(at) => {
            if let Some(Some(name)) = pick(at) {
                let offset = dir::find(block, format, &name).unwrap().unwrap().offset;
                dir::remove(block, format, offset).unwrap();
                model.remove(&name);
            }
        }
        Step::SetInode(at, inode) => {
            if let Some(Some(name)) = pick(at) {
                let offset = dir::find(block, format, &name).unwrap().unwrap().offset;
                dir::set_inode(block, format, offset, InodeNumber(inode), 3).unwrap();
                let kind = if format.filetype { 3 } else { 0 };
                model.insert(name, (InodeNumber(inode), kind));
            }
        }
        Step::Refill => {
            let copy = block.to_vec();
            assert!(dir::fill(block, format, &used(&copy, format)));
            // Nothing is lost to gaps: all free space is in one record.
            let gaps = dir::entries(block, format)
                .map(Result::unwrap)
                .filter(|entry| entry.rec_len > entry.needs());
            assert!(gaps.count() <= 1);
        }
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn blocks_agree_with_a_map(format in format(), steps in proptest::collection::vec(step(), 1..120)) {
        let mut block = vec![0xEEu8; format.block_bytes as usize];
        dir::init(&mut block, &format);
        let mut model = Model::new();
        for step in steps {
            apply(&mut block, &format, &mut model, step);
            let listed: Model = used(&block, &format)
                .into_iter()
                .map(|entry| (entry.name.to_vec(), (entry.inode, entry.file_type)))
                .collect();
            prop_assert_eq!(&listed, &model);
        }
        if format.tail {
            dir::update_checksum(&mut block, Some(7));
            prop_assert!(dir::verify_checksum(&block, Some(7)).is_ok());
            prop_assert!(dir::verify_checksum(&block, Some(8)).is_err());
            block[9] ^= 1;
            prop_assert!(dir::verify_checksum(&block, Some(7)).is_err());
        }
    }

    /// The searches that trust a check agree with those that check, and end in any region.
    #[test]
    fn searches_in_checked_blocks_agree_and_end_anywhere(
        format in format(),
        steps in proptest::collection::vec(step(), 1..60),
        damage in proptest::collection::vec((0usize..1024, any::<u8>()), 0..4),
        name in proptest::collection::vec(any::<u8>(), 1..=255),
    ) {
        let format = DirFormat { block_bytes: 1024, ..format };
        let mut block = vec![0; 1024];
        dir::init(&mut block, &format);
        let mut model = Model::new();
        for step in steps {
            apply(&mut block, &format, &mut model, step);
        }
        for (at, byte) in damage {
            block[at] = byte;
        }
        let mut names: Vec<Vec<u8>> = model.into_keys().collect();
        names.push(name);
        for name in &names {
            let found = dir::find_in_checked(&block, &format, name);
            let vacancy = dir::vacancy(&block, &format, name);
            if dir::check(&block, &format).is_ok() {
                prop_assert_eq!(found, dir::find(&block, &format, name).unwrap());
                let wanted = dir::record_bytes(name.len());
                let room = dir::entries(&block, &format)
                    .map(Result::unwrap)
                    .find(|entry| entry.rec_len - entry.needs() >= wanted);
                let want = match (found, room) {
                    (Some(_), _) => Vacancy::Taken,
                    (None, Some(record)) => Vacancy::Room(record.offset),
                    (None, None) => Vacancy::Full,
                };
                prop_assert_eq!(vacancy, want);
            }
            let mut changed = block.clone();
            let new = (name.as_slice(), InodeNumber(12), 1);
            let searched = dir::insert(&mut changed, &format, 0, new);
            if let Vacancy::Room(from) = vacancy {
                let mut again = block.clone();
                prop_assert_eq!(dir::insert(&mut again, &format, from, new), searched);
                prop_assert_eq!(again, changed);
            }
        }
    }

    #[test]
    fn record_lengths_round_trip(quarter in 3usize..=16384) {
        let len = quarter * 4;
        prop_assert_eq!(dir::rec_len_from_disk(dir::rec_len_to_disk(len, 65536), 65536), len);
        if len <= 32768 {
            prop_assert_eq!(dir::rec_len_from_disk(dir::rec_len_to_disk(len, 32768), 32768), len);
        }
    }
}

#[test]
fn a_list_that_does_not_fit_is_refused() {
    let format = DirFormat {
        block_bytes: 1024,
        inodes: 10,
        tail: true,
        filetype: true,
    };
    let name = [b'n'; 255];
    let entry = DirEntry {
        offset: 0,
        rec_len: 0,
        inode: InodeNumber(5),
        name: &name,
        file_type: 1,
    };
    let mut block = vec![3u8; 1024];
    assert!(!dir::fill(&mut block, &format, &[entry; 4]));
    assert_eq!(block, [3u8; 1024]);
    assert!(dir::fill(&mut block, &format, &[entry; 3]));
    assert_eq!(dir::entries(&block, &format).count(), 3);
}
