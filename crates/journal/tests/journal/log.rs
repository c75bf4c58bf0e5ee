//! Power cuts while the log is written. Whatever a cut leaves, recovery finds for every thread the state
//! after one of its operations, not older than the last one made durable, and freed metadata does not come
//! back.
//!
//! Each thread has its own blocks and runs a script derived from its seed, so its state after any number of
//! operations is known.

use std::sync::Arc;
use std::time::Duration;

use throughline_block::Disk;
use throughline_device::BlockDevice;
use throughline_extfmt::FsBlock;
use throughline_extfmt::jbd2::{
    BlockHeader, BlockType, JBD2_MAGIC, JournalCompat, JournalIncompat, JournalSuperblock,
};
use throughline_journal::recovery::{JournalRun, recover, reset, write_home};
use throughline_journal::{Budget, Journal, LogOptions};
use throughline_testing::{Cut, Image, Keep, PowerDevice};
use zerocopy::{FromZeros, IntoBytes};

const BLOCK: u32 = 1024;
const FS_BLOCKS: u64 = 4096;
/// The journal lies in two runs, so that it is not contiguous.
const LOG: [(u32, u64, u32); 2] = [(0, 1000, 150), (150, 2000, 170)];
/// Blocks of one thread.
const OWN: u64 = 40;
const OPS: u32 = 120;

fn runs() -> Vec<JournalRun> {
    LOG.iter()
        .map(|&(journal_block, first, len)| JournalRun {
            journal_block,
            first: FsBlock(first),
            len,
        })
        .collect()
}

/// A journal format.
#[derive(Clone, Copy, Debug)]
struct Shape {
    version: BlockType,
    compat: JournalCompat,
    incompat: JournalIncompat,
    sequence: u32,
}

fn shapes() -> Vec<Shape> {
    let shape = |incompat, sequence| Shape {
        version: BlockType::SuperblockV2,
        compat: JournalCompat::empty(),
        incompat,
        sequence,
    };
    let (v2, v3, wide) = (
        JournalIncompat::CSUM_V2,
        JournalIncompat::CSUM_V3,
        JournalIncompat::BIT64,
    );
    vec![
        Shape {
            version: BlockType::SuperblockV1,
            ..shape(JournalIncompat::empty(), 1)
        },
        shape(wide, 7),
        Shape {
            compat: JournalCompat::CHECKSUM,
            ..shape(JournalIncompat::empty(), 100)
        },
        Shape {
            compat: JournalCompat::CHECKSUM,
            ..shape(wide, 100)
        },
        shape(v2, 1000),
        shape(v2 | wide, 1),
        shape(v3, u32::MAX - 20),
        shape(v3 | wide, u32::MAX - 3),
    ]
}

fn volume(shape: Shape) -> Image {
    let mut superblock = JournalSuperblock::new_zeroed();
    superblock.s_header = BlockHeader::new(shape.version, 0);
    superblock.s_blocksize.set(BLOCK);
    superblock.s_maxlen.set(LOG.iter().map(|run| run.2).sum());
    superblock.s_first.set(1);
    superblock.s_sequence.set(shape.sequence);
    superblock.s_uuid = *b"sixteen bytes id";
    if shape.version == BlockType::SuperblockV2 {
        superblock.s_feature_compat.set(shape.compat.bits());
        superblock.set_incompat(shape.incompat);
        superblock.s_checksum_type = 4;
        superblock.update_checksum();
    }
    let mut image = Image::zeros(FS_BLOCKS * u64::from(BLOCK));
    image.write(LOG[0].1 * u64::from(BLOCK), superblock.as_bytes());
    image
}

/// The state of a thread's block after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    /// Metadata, written by this operation.
    Meta(u32),
    /// Freed by this operation and reused for data.
    Freed(u32),
}

/// The changes of one operation.
fn step(random: &mut fastrand::Rng, op: u32, state: &mut [Content]) -> Vec<(usize, Content)> {
    let mut changes = Vec::new();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(1..state.len());
        let new = match state[at] {
            Content::Meta(_) if random.u8(0..4) == 0 => Content::Freed(op),
            _ => Content::Meta(op),
        };
        if !changes.iter().any(|(place, _)| *place == at) {
            changes.push((at, new));
        }
    }
    // The first block of each thread counts its operations.
    changes.push((0, Content::Meta(op)));
    for &(at, new) in &changes {
        state[at] = new;
    }
    changes
}

fn bytes_of(content: Content, thread: u64, at: usize) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    let (mark, op) = match content {
        Content::Nothing => return bytes,
        Content::Meta(op) => (1_u32, op),
        Content::Freed(op) => (2, op),
    };
    // Some contents begin with the journal's magic number.
    if (op as usize + at).is_multiple_of(5) && mark == 1 {
        bytes[..4].copy_from_slice(&JBD2_MAGIC.to_be_bytes());
    }
    for (index, word) in [mark, op, thread as u32, at as u32].into_iter().enumerate() {
        for copy in [4, 512, 1000] {
            bytes[copy + index * 4..copy + index * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// The durability that a thread was promised, by position in the device's record.
#[derive(Default)]
struct Promises {
    /// From this position on, this operation is durable.
    synced: Vec<(usize, u32)>,
    /// From this position on, the data written to a block (index) freed by this operation is durable.
    data: Vec<(usize, u32, usize)>,
}

fn work(journal: &Journal, device: &PowerDevice, thread: u64, seed: u64) -> Promises {
    let mut random = fastrand::Rng::with_seed(seed ^ thread);
    let mut dice = fastrand::Rng::with_seed(seed.wrapping_mul(31) ^ thread);
    let mut state = vec![Content::Nothing; OWN as usize];
    let mut promises = Promises::default();
    let place = |at: usize| FsBlock(100 + thread * OWN + at as u64);
    for op in 1..=OPS {
        let changes = step(&mut random, op, &mut state);
        let mut handle = journal.begin(8).unwrap();
        let tid = handle.tid();
        for &(at, content) in &changes {
            match content {
                Content::Freed(_) => handle.forget(place(at)),
                _ if dice.bool() => handle
                    .create(place(at), |b| {
                        b.copy_from_slice(&bytes_of(content, thread, at))
                    })
                    .unwrap(),
                _ => handle
                    .modify(place(at), |b| {
                        b.copy_from_slice(&bytes_of(content, thread, at))
                    })
                    .unwrap(),
            }
        }
        handle.stop().unwrap();
        for &(at, content) in &changes {
            if matches!(content, Content::Freed(_)) {
                // Reuse the block for data as soon as that is allowed.
                journal.sync_through(tid).unwrap();
                let data = bytes_of(content, thread, at);
                journal
                    .disk()
                    .write_at(place(at).0 * u64::from(BLOCK), &data, true)
                    .unwrap();
                promises.data.push((device.position(), op, at));
            }
        }
        match dice.u8(0..12) {
            0 => journal.sync().unwrap(),
            1 => journal.sync_through(tid).unwrap(),
            _ => continue,
        }
        promises.synced.push((device.position(), op));
    }
    promises
}

/// Recovers a crash state and checks it. Returns whether there was something to replay.
fn check(image: Image, threads: u64, seed: u64, cut: Cut, promises: &[Promises]) -> bool {
    let device: Arc<dyn BlockDevice> = Arc::new(PowerDevice::new(image, 1));
    let disk = Arc::new(Disk::new(device).unwrap());
    let replay = recover(&disk, BLOCK, FS_BLOCKS, &runs()).unwrap();
    write_home(&disk, BLOCK, FS_BLOCKS, &runs(), &replay).unwrap();
    reset(&disk, BLOCK, FS_BLOCKS, &runs(), &replay).unwrap();
    for thread in 0..threads {
        let read = |at: usize| {
            let mut bytes = vec![0; BLOCK as usize];
            let place = 100 + thread * OWN + at as u64;
            disk.read_at(place * u64::from(BLOCK), &mut bytes).unwrap();
            bytes
        };
        let done = u32::from_le_bytes(read(0)[8..12].try_into().unwrap());
        let promises = &promises[thread as usize];
        let safe = promises.synced.iter().rfind(|p| p.0 <= cut.at);
        let safe = safe.map_or(0, |p| p.1);
        assert!(done >= safe, "thread {thread}: {done} operations of {safe}");
        let mut random = fastrand::Rng::with_seed(seed ^ thread);
        let mut state = vec![Content::Nothing; OWN as usize];
        for op in 1..=done {
            step(&mut random, op, &mut state);
        }
        for (at, &content) in state.iter().enumerate() {
            let freed = matches!(content, Content::Freed(_));
            let (Content::Meta(op) | Content::Freed(op)) = content else {
                continue;
            };
            // Until its data is durable, a freed block may hold anything.
            if freed
                && !promises
                    .data
                    .iter()
                    .any(|p| p.0 <= cut.at && (p.1, p.2) == (op, at))
            {
                continue;
            }
            assert!(
                read(at) == bytes_of(content, thread, at),
                "thread {thread}, block {at} after {done} operations: {content:?}"
            );
        }
    }
    // The recovered journal can be written again.
    let budget = Budget::default();
    let options = LogOptions::default();
    let again = Journal::with_log(disk, BLOCK, FS_BLOCKS, &runs(), budget, &options).unwrap();
    let mut handle = again.begin(1).unwrap();
    handle.create(FsBlock(1), |bytes| bytes.fill(1)).unwrap();
    handle.stop().unwrap();
    again.shut_down().unwrap();
    !replay.is_empty()
}

fn cut_and_check(shape: Shape, threads: u64, seed: u64, cuts: usize) {
    let power = Arc::new(PowerDevice::new(volume(shape), seed));
    let device = Arc::clone(&power) as Arc<dyn BlockDevice>;
    let disk = Arc::new(Disk::new(device).unwrap());
    // Small, so that transactions fill up, checkpoints run and blocks are evicted.
    let budget = Budget {
        clean_bytes: 16 << 10,
        dirty_bytes: 32 << 10,
    };
    let options = LogOptions {
        commit_interval: Duration::from_secs(3600),
        ..LogOptions::default()
    };
    let journal = Journal::with_log(disk, BLOCK, FS_BLOCKS, &runs(), budget, &options).unwrap();
    let promises: Vec<Promises> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn({
                    let (journal, power) = (&journal, &power);
                    move || work(journal, power, thread, seed)
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let status = journal.status();
    assert_eq!(status.credit_overruns, 0);
    assert!(
        status.log.unwrap().checkpoints > 0,
        "the log never filled up"
    );
    if fastrand::Rng::with_seed(seed).bool() {
        journal.shut_down().unwrap();
    }
    drop(journal);

    let record = power.record();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut places: Vec<usize> = (0..cuts).map(|_| random.usize(..=record.end())).collect();
    places.sort_unstable();
    let mut states = record.states();
    let mut replayed = 0;
    for at in places {
        let keep = match random.u8(0..6) {
            0 => Keep::Nothing,
            1 => Keep::Everything,
            _ => Keep::Some(random.u64(..)),
        };
        let cut = Cut { at, keep };
        let image = states.state(cut);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(image, threads, seed, cut, &promises)
        }));
        match result {
            Ok(any) => replayed += usize::from(any),
            Err(_) => panic!("{shape:?}, {threads} threads, seed {seed}, {cut:?}"),
        }
    }
    assert!(
        replayed > cuts / 4,
        "{replayed} of {cuts} states had a log to replay"
    );
}

#[test]
fn every_format_survives_every_cut() {
    for (seed, shape) in (1..).zip(shapes()) {
        cut_and_check(shape, 1, seed, 60);
    }
}

#[test]
fn threads_survive_every_cut() {
    let shapes = shapes();
    for seed in 0..24 {
        cut_and_check(shapes[seed % shapes.len()], 3, 100 + seed as u64, 60);
    }
}

/// More crash states, from a given seed: `THROUGHLINE_SOAK=1 THROUGHLINE_SEED=7 cargo test -p
/// throughline-journal --test log`.
#[test]
fn many_cuts() {
    if !throughline_testkit::tier::soak() {
        throughline_testkit::left_out!("THROUGHLINE_SOAK is not set");
        return;
    }
    let first = std::env::var("THROUGHLINE_SEED").map_or(1000, |seed| seed.parse().unwrap());
    let shapes = shapes();
    for seed in first..first + 200 {
        let threads = 1 + seed % 4;
        cut_and_check(shapes[seed as usize % shapes.len()], threads, seed, 100);
    }
}
