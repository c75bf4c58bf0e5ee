//! The block allocator on volumes of every format, checked by `e2fsck` and `dumpe2fs`.

use std::collections::BTreeMap;

use throughline_extfmt::{FsBlock, GroupNumber};

use super::{GROUP_CREDITS, Purpose, Run};
use crate::testing::{Image, Rng, SHAPES};
use crate::{Error, Fs, OpenOptions, Reason};

fn confirm(fs: &Fs, run: Run) {
    let mut h = fs.begin(GROUP_CREDITS).expect("begin");
    fs.confirm(&mut h, run).expect("confirm");
    h.stop().expect("stop");
}

fn free(fs: &Fs, run: Run) {
    let mut h = fs.begin(2 * GROUP_CREDITS).expect("begin");
    fs.free(&mut h, run.start, run.len.into()).expect("free");
    h.stop().expect("stop");
}

/// Runs claimed by the test, by first block; catches a block that is given out twice.
#[derive(Default)]
struct Owned(BTreeMap<u64, u32>);

impl Owned {
    fn add(&mut self, run: Run) {
        let end = run.start.0 + u64::from(run.len);
        let before = self.0.range(..end).next_back();
        assert!(
            before.is_none_or(|(start, len)| start + u64::from(*len) <= run.start.0),
            "{run:?} was given out twice"
        );
        self.0.insert(run.start.0, run.len);
    }

    fn take(&mut self, at: u64) -> Option<Run> {
        let (&start, _) = self.0.range(at..).next().or_else(|| self.0.iter().next())?;
        self.0.remove(&start).map(|len| Run {
            start: FsBlock(start),
            len,
        })
    }
}

#[test]
fn random_claims_keep_every_shape_consistent() {
    for (seed, (name, size, args)) in (1..).zip(SHAPES) {
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let before = image.free_counts();
        let fs = image.open();
        let mut rng = Rng::new(seed);
        let mut owned = Owned::default();
        for _ in 0..600 {
            let most = 1 << rng.below(13);
            let want = 1 + rng.below(most) as u32;
            let goal = FsBlock(rng.below(fs.geo.blocks));
            match fs.claim(goal, want) {
                Ok(run) if rng.below(4) == 0 => fs.release(run),
                Ok(run) => {
                    // Clusters, with `bigalloc`.
                    let unit = 1 << fs.geo.cluster_ratio_log;
                    let most = want.next_multiple_of(unit);
                    assert!(run.len >= 1 && run.len <= most, "{name}, seed {seed}");
                    let kept = Run {
                        len: (1 + rng.below(run.len.into()) as u32).next_multiple_of(unit),
                        ..run
                    };
                    confirm(&fs, kept);
                    if kept.len < run.len {
                        fs.release(Run {
                            start: FsBlock(run.start.0 + u64::from(kept.len)),
                            len: run.len - kept.len,
                        });
                    }
                    owned.add(kept);
                }
                Err(error) => assert!(
                    matches!(error, Error::Caller(Reason::NoSpace)),
                    "{name}, seed {seed}: {error}"
                ),
            }
            if rng.below(3) == 0
                && let Some(run) = owned.take(rng.below(fs.geo.blocks))
            {
                free(&fs, run);
            }
        }
        fs.check_counts().expect(name);
        fs.close().expect("close");
        let used: u64 = owned.0.values().map(|len| u64::from(*len)).sum();
        let [superblock, groups] = image.free_counts();
        assert_eq!(superblock, groups, "{name}, seed {seed}");
        assert_eq!(superblock.0 + used, before[0].0, "{name}, seed {seed}");
        let fs = image.open();
        while let Some(run) = owned.take(0) {
            free(&fs, run);
        }
        fs.close().expect("close");
        image.check(name);
        assert_eq!(image.free_counts(), before, "{name}, seed {seed}");
    }
}

#[test]
fn exactly_all_blocks_can_be_allocated() {
    for (name, size, args) in SHAPES {
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let free_before = image.free_counts()[0].0;
        let fs = image.open();
        let mut owned = Owned::default();
        let mut total = 0u64;
        let mut goal = FsBlock(0);
        loop {
            match fs.claim(goal, 5000) {
                Ok(run) => {
                    total += u64::from(run.len);
                    goal = FsBlock(run.start.0 + u64::from(run.len));
                    confirm(&fs, run);
                    owned.add(run);
                }
                Err(Error::Caller(Reason::NoSpace)) => break,
                Err(error) => panic!("{name}: {error}"),
            }
        }
        let kept = fs.balloc.kept.for_maps() << fs.geo.cluster_ratio_log;
        assert_eq!(total + kept, free_before, "{name}");
        assert_eq!(fs.statfs().expect(name).free_blocks, kept, "{name}");
        for _ in 0..fs.balloc.kept.for_maps() {
            let run = fs
                .claim_metadata(FsBlock(0), 1)
                .expect("blocks kept for mappings");
            confirm(&fs, run);
            owned.add(run);
        }
        let full = fs.claim_metadata(FsBlock(0), 1);
        assert!(
            matches!(full, Err(Error::Caller(Reason::NoSpace))),
            "{name}: {full:?}"
        );
        fs.check_counts().expect(name);
        fs.close().expect("close");
        assert_eq!(image.free_counts().map(|counts| counts.0), [0, 0], "{name}");
        let fs = image.open();
        while let Some(run) = owned.take(0) {
            free(&fs, run);
        }
        fs.close().expect("close");
        image.check(name);
    }
}

#[test]
fn a_stream_gets_long_runs_from_its_goal_on() {
    let Some(image) = Image::make("2G", &["-t", "ext4", "-b", "4096"]) else {
        return;
    };
    let fs = image.open();
    let mut goal = fs.goal_for(
        &fs.inode(throughline_extfmt::InodeNumber::ROOT)
            .expect("root"),
    );
    let (mut runs, mut blocks) = (0, 0u64);
    let mut end = goal;
    while blocks < 1 << 18 {
        let run = fs.claim(goal, 32768).expect("a run");
        if run.start != end {
            runs += 1;
        }
        blocks += u64::from(run.len);
        goal = FsBlock(run.start.0 + u64::from(run.len));
        end = goal;
    }
    // A gigabyte has eight groups. Superblock copies and the journal split the free space further.
    assert!(runs <= 10, "{blocks} blocks in {runs} pieces");
}

#[test]
fn reserved_blocks_are_only_for_root() {
    let Some(image) = Image::make("64M", &["-t", "ext2", "-b", "1024", "-m", "10"]) else {
        return;
    };
    let free_before = image.free_counts()[0].0;
    let options = OpenOptions {
        write: true,
        use_reserved: Some(false),
        ..OpenOptions::default()
    };
    let fs = image.try_open(&options).expect("open");
    let mut total = 0;
    while let Ok(run) = fs.claim(FsBlock(0), 1 << 20) {
        total += u64::from(run.len);
    }
    assert_eq!(total, free_before - fs.superblock().r_blocks_count());
    assert_eq!(fs.statfs().expect("statfs").available_blocks, 0);
}

#[test]
fn what_a_search_is_promised_is_not_free() {
    let Some(image) = Image::make("64M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let free = || fs.statfs().expect("statfs").free_blocks;
    let before = free();
    fs.reserve(40, false).expect("reserve");
    assert_eq!(free(), before - 40);
    let search = fs.balloc.promise(30, Purpose::Reserved).expect("promise");
    assert_eq!(free(), before - 40, "while reserved blocks are searched");
    drop(search);
    fs.unreserve(40);
    let search = fs.balloc.promise(30, Purpose::Data).expect("promise");
    assert_eq!(free(), before - 30, "while data blocks are searched");
    drop(search);
    assert_eq!(free(), before);
}

#[test]
fn blocks_that_are_not_allocated_cannot_be_freed() {
    let Some(image) = Image::make("64M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let run = fs.claim(FsBlock(20_000), 10).expect("claim");
    confirm(&fs, run);
    let desc = fs.group_desc(GroupNumber(0)).expect("descriptor");
    let bad = [
        (FsBlock(0), 1),
        (FsBlock(1), 1),
        (desc.block_bitmap(), 1),
        (FsBlock(desc.inode_table().0 + 5), 3),
        (FsBlock(run.start.0), 11),
        (FsBlock(fs.geo.blocks - 1), 2),
        (FsBlock(u64::MAX), 2),
        (run.start, 0),
    ];
    for (start, len) in bad {
        let mut h = fs.begin(GROUP_CREDITS).expect("begin");
        let result = fs.free(&mut h, start, len);
        assert!(
            matches!(result, Err(Error::Corrupt(_))),
            "{start} {len}: {result:?}"
        );
        h.stop().expect("nothing was changed");
    }
    free(&fs, run);
    let mut h = fs.begin(GROUP_CREDITS).expect("begin");
    assert!(fs.free(&mut h, run.start, 1).is_err(), "freed twice");
    h.stop().expect("nothing was changed");
    fs.close().expect("close");
    // The failed free counts as damage, so the volume asks for a check.
    let state = image.debugfs("show_super_stats -h");
    assert!(state.contains("with errors"), "{state}");
}

#[test]
fn threads_never_get_one_block_twice() {
    let Some(image) = Image::make("100M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let before = image.free_counts();
    let fs = image.open();
    let owned = throughline_locks::Mutex::new(Owned::default());
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let (fs, owned) = (&fs, &owned);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..300 {
                    let Ok(run) = fs.claim(FsBlock(rng.below(50_000)), 1 + rng.below(200) as u32)
                    else {
                        continue;
                    };
                    owned.lock().add(run);
                    if rng.below(2) == 0 {
                        owned.lock().0.remove(&run.start.0);
                        fs.release(run);
                        continue;
                    }
                    confirm(fs, run);
                    if rng.below(2) == 0 {
                        owned.lock().0.remove(&run.start.0);
                        free(fs, run);
                    }
                }
            });
        }
    });
    let mut owned = owned.into_inner();
    while let Some(run) = owned.take(0) {
        free(&fs, run);
    }
    fs.close().expect("close");
    image.check("threads");
    assert_eq!(image.free_counts(), before);
}

#[test]
fn threads_share_the_last_blocks_without_losing_one() {
    let Some(image) = Image::make("8M", &["-t", "ext2", "-b", "1024"]) else {
        return;
    };
    let free_before = image.free_counts()[0].0;
    let fs = image.open();
    // Each thread claims more than is left until a claim fails with no space. Together they must have every
    // block.
    let got = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    std::iter::from_fn(|| fs.claim(FsBlock(0), 500).ok()).collect::<Vec<Run>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect::<Vec<Run>>()
    });
    let total: u64 = got.iter().map(|run| u64::from(run.len)).sum();
    assert_eq!(total, free_before);
    got.into_iter().for_each(|run| fs.release(run));
    assert_eq!(fs.statfs().expect("statfs").free_blocks, free_before);
    fs.close().expect("close");
    image.check("released");
}
