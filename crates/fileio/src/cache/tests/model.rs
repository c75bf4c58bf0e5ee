//! Random operations on a file, compared with a byte vector.

use proptest::prelude::*;

use crate::cache::Backing;
use crate::cache::testing::{FakeFile, Volume};
use crate::cache::tests::{finish, pattern};
use crate::error::{Error, Reason};

/// Maximum file size in the test.
const MOST: u64 = 3 << 20;

#[derive(Clone, Debug)]
enum Op {
    Write { offset: u64, len: usize, seed: u64 },
    Append { len: usize, seed: u64 },
    Read { offset: u64, len: usize },
    ReadCached { offset: u64, len: usize },
    Truncate(u64),
    Punch { offset: u64, len: u64 },
    Preallocate { offset: u64, len: u64 },
    Flush,
    FlushPart { offset: u64, len: u64 },
    DropClean { offset: u64, len: u64 },
    Budget(u64),
}

fn any_len() -> impl Strategy<Value = usize> {
    prop_oneof![1_usize..200, 1_usize..20_000, 1_usize..400_000]
}

fn any_op() -> impl Strategy<Value = Op> {
    let offset = || prop_oneof![0..50_000_u64, 0..MOST];
    let len = || any_len().prop_map(|len| len as u64);
    prop_oneof![
        6 => (offset(), any_len(), any::<u64>())
            .prop_map(|(offset, len, seed)| Op::Write { offset, len, seed }),
        3 => (any_len(), any::<u64>()).prop_map(|(len, seed)| Op::Append { len, seed }),
        6 => (offset(), any_len()).prop_map(|(offset, len)| Op::Read { offset, len }),
        3 => (offset(), any_len()).prop_map(|(offset, len)| Op::ReadCached { offset, len }),
        2 => offset().prop_map(Op::Truncate),
        1 => (offset(), len()).prop_map(|(offset, len)| Op::Punch { offset, len }),
        1 => (offset(), len()).prop_map(|(offset, len)| Op::Preallocate { offset, len }),
        1 => Just(Op::Flush),
        1 => (offset(), len()).prop_map(|(offset, len)| Op::FlushPart { offset, len }),
        1 => (offset(), len()).prop_map(|(offset, len)| Op::DropClean { offset, len }),
        1 => (1_u64..8).prop_map(|mib| Op::Budget(mib << 20)),
    ]
}

fn write(file: &FakeFile, model: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let written = match file.write(offset, data) {
        Ok(written) => written,
        Err(Error::Caller(Reason::NoSpace)) => 0,
        Err(error) => panic!("{error}"),
    };
    if written > 0 {
        let (start, end) = (offset as usize, offset as usize + written);
        model.resize(model.len().max(end), 0);
        model[start..end].copy_from_slice(&data[..written]);
    }
}

fn part(model: &[u8], offset: u64, len: usize) -> &[u8] {
    let start = (offset as usize).min(model.len());
    &model[start..(start + len).min(model.len())]
}

fn carry_out(op: &Op, file: &FakeFile, model: &mut Vec<u8>, block: u64) {
    match *op {
        Op::Write { offset, len, seed } => write(file, model, offset, &pattern(seed, offset, len)),
        Op::Append { len, seed } => {
            let end = model.len() as u64;
            if end < MOST {
                write(file, model, end, &pattern(seed, end, len));
            }
        }
        Op::Read { offset, len } => {
            assert!(
                file.read(offset, len).unwrap() == part(model, offset, len),
                "{op:?}"
            );
        }
        Op::ReadCached { offset, len } => {
            let mut buf = vec![0; len];
            if let Some(read) = file.space().read_cached(offset, &mut buf) {
                assert!(&buf[..read] == part(model, offset, len), "{op:?}");
            }
        }
        Op::Truncate(size) => {
            file.truncate(size);
            model.resize(size as usize, 0);
        }
        Op::Punch { offset, len } => {
            let range = offset.next_multiple_of(block)..(offset + len) / block * block;
            if range.start < range.end {
                let end = range.end.min(model.len() as u64);
                if range.start < end {
                    model[range.start as usize..end as usize].fill(0);
                }
                file.punch(range);
            }
        }
        Op::Preallocate { offset, len } => file.preallocate(offset..offset + len),
        Op::Flush => {
            file.flush().unwrap();
            assert!(file.on_device() == *model);
        }
        Op::FlushPart { offset, len } => {
            crate::buffered::flush(&file.host(), offset..offset + len).unwrap();
            assert!(!file.space().is_dirty(offset..offset + len));
        }
        Op::DropClean { offset, len } => file.space().drop_clean(offset..offset + len),
        Op::Budget(bytes) => file.space().cache().set_budget_bytes(bytes),
    }
    assert_eq!(file.space().size(), model.len() as u64);
}

fn check(block: u64, budget_bytes: u64, ops: &[Op]) {
    let volume = Volume::new(block, (5 << 20) / block, budget_bytes);
    let file = volume.file();
    let mut model = Vec::new();
    for op in ops {
        carry_out(op, &file, &mut model, block);
    }
    assert!(file.read(0, model.len() + 1).unwrap() == model);
    file.flush().unwrap();
    assert!(file.on_device() == model);
    finish(&volume, vec![file]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_file_matches_a_byte_vector(
        block in prop::sample::select(vec![1024_u64, 4096, 65536]),
        budget_mib in 1_u64..12,
        ops in prop::collection::vec(any_op(), 1..60),
    ) {
        check(block, budget_mib << 20, &ops);
    }
}
