//! Random operations on a file, compared with a byte vector.

use proptest::prelude::*;
use throughline_testkit::cases::config;

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
    #![proptest_config(config(48))]

    #[test]
    fn a_file_matches_a_byte_vector(
        block in prop::sample::select(vec![1024_u64, 4096, 65536]),
        budget_mib in 1_u64..12,
        ops in prop::collection::vec(any_op(), 1..60),
    ) {
        check(block, budget_mib << 20, &ops);
    }
}

/// A case that failed once.
#[test]
fn a_file_matches_after_parts_were_flushed_and_cut_off() {
    use Op::{Append, FlushPart, Preallocate, Punch, Read, ReadCached, Truncate, Write};
    let write = |offset, len, seed| Write { offset, len, seed };
    let ops = [
        Read {
            offset: 48493,
            len: 143_014,
        },
        Read {
            offset: 13968,
            len: 14084,
        },
        write(709_855, 81293, 6_257_607_881_222_788_605),
        Read {
            offset: 157_248,
            len: 164,
        },
        Read {
            offset: 24191,
            len: 106,
        },
        Append {
            len: 199,
            seed: 15_145_785_584_181_479_445,
        },
        FlushPart {
            offset: 5950,
            len: 331_515,
        },
        FlushPart {
            offset: 982_918,
            len: 14054,
        },
        write(25578, 17950, 14_408_480_001_985_818_914),
        Preallocate {
            offset: 2_590_340,
            len: 14763,
        },
        Op::Flush,
        Read {
            offset: 23948,
            len: 1445,
        },
        Read {
            offset: 45951,
            len: 86,
        },
        Append {
            len: 16248,
            seed: 3_972_850_471_931_548_949,
        },
        Read {
            offset: 2_801_119,
            len: 81,
        },
        Preallocate {
            offset: 47987,
            len: 115,
        },
        Preallocate {
            offset: 33513,
            len: 8517,
        },
        Op::Flush,
        Truncate(1_521_581),
        Op::Budget(5_242_880),
        Preallocate {
            offset: 48845,
            len: 3988,
        },
        Preallocate {
            offset: 1_124_078,
            len: 67918,
        },
        Punch {
            offset: 22684,
            len: 199,
        },
        write(8908, 13870, 13_694_711_298_456_009_719),
        Truncate(13082),
        Read {
            offset: 2_274_278,
            len: 351_868,
        },
        FlushPart {
            offset: 15936,
            len: 135,
        },
        ReadCached {
            offset: 30133,
            len: 18796,
        },
        write(711_676, 59, 8_570_839_324_276_883_052),
    ];
    check(4096, 1 << 20, &ops);
}
