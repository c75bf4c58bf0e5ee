//! The server is killed with SIGKILL under load, repeatedly on one image.
//!
//! ```text
//!  threads of the load (tests/kill) ── on the mount ──► diary: what is begun, what has returned
//!      │ SIGKILL of the server, once the diary is so long
//!      ▼
//!  mounted again ─► read as it is then ─► unmounted ─► e2fsck -fn ─► model (tests/kill) ─► next kill
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use throughline_device::LockMode;
use throughline_testing::Mounted;
use throughline_testkit::e2fs;

use crate::diary::load::Load;
use crate::diary::model::{Promises, World, judge};
use crate::diary::tree::{self, Tree};
use crate::diary::{self, Diary};
use crate::mount_robust::place::Place;
use crate::mount_robust::work;
use crate::oracle::image::{Scratch, Shape, shape, tools};
use crate::oracle::seeds::{chosen, run_all, seeds, soak};

/// Chains of kills on one image each in the fast test, and kills per chain.
const CHAINS: u64 = 2;
const KILLS: u64 = 4;
/// The same in the long test.
const LONG_CHAINS: u64 = 10;
const LONG_KILLS: u64 = 10;
/// Length of a diary, in bytes, at which its load is killed at the latest. A line has about 20 bytes.
const LONGEST_DIARY: u64 = 60_000;
/// Not a measurement: limit for a load that never gets that far.
const PATIENCE: Duration = Duration::from_secs(120);

/// Result of a chain.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    kills: u64,
    /// Number of promises checked.
    promises: u64,
    /// Number of file contents checked.
    files: u64,
}

/// The kinds of volumes and their mount options.
fn recipes() -> [(Shape, Promises, &'static str); 6] {
    [
        (shape("ext4", 4096, true, "-t ext4"), "commit=1"),
        (
            shape(
                "ext4 1k, ea_inode",
                1024,
                true,
                "-t ext4 -O orphan_file,ea_inode",
            ),
            "",
        ),
        (shape("ext3", 4096, false, "-t ext3"), "cache_size=8M"),
        (shape("ext2", 4096, false, "-t ext2"), ""),
        (
            shape("ext3 1k, small journal", 1024, false, "-t ext3 -J size=1"),
            "",
        ),
        (
            shape("ext4, small journal", 4096, true, "-t ext4 -J size=4"),
            "dirsync,cache_size=16M",
        ),
    ]
    .map(|(shape, options)| {
        let journal = !shape.mke2fs.contains("ext2");
        let block_bytes = shape.block_bytes;
        let promises = match journal {
            true => Promises::Journal,
            false => Promises::NoJournal { block_bytes },
        };
        (shape.mib(48), promises, options)
    })
}

struct Chain<'a> {
    seed: u64,
    image: PathBuf,
    scratch: &'a Path,
    options: String,
    random: fastrand::Rng,
    promises: Promises,
    /// The load reports syncs that it does not do.
    skips_syncs: bool,
}

/// Runs one chain. With `skips_syncs`, the load does not do what it reports as promised.
fn run(seed: u64, kills: u64, skips_syncs: bool, scratch: &Scratch) -> Result<Counts, String> {
    let recipes = recipes();
    let (shape, promises, options) = &recipes[seed as usize % recipes.len()];
    // Where syncs are left out, data must not become durable by its age.
    let options = if skips_syncs { "commit=300" } else { *options };
    let mut chain = Chain {
        seed,
        image: scratch.make(shape),
        scratch: scratch.dir(),
        options: format!("allow_other,{options}"),
        random: fastrand::Rng::with_seed(seed),
        promises: *promises,
        skips_syncs,
    };
    let mut counts = Counts::default();
    let mut world = World::default();
    for number in 0..kills {
        let named = |what: String| format!("{}, kill {number}: {what}", shape.name);
        world = chain.kill(number, &world, &mut counts).map_err(named)?;
    }
    Ok(counts)
}

impl Chain<'_> {
    /// One load, its end, and the check of what is left.
    fn kill(&mut self, number: u64, world: &World, counts: &mut Counts) -> Result<World, String> {
        let diary = self.scratch.join("diary");
        self.load(&diary, number + 1)?;
        counts.kills += 1;
        let read = diary::read(&diary)?;
        wait_for_io_of_dead_process(&self.image)?;
        let tree = self.recover()?;
        let judged = judge(world, &read.entries, &tree, self.promises)?;
        counts.promises += judged.promises;
        counts.files += judged.files;
        Ok(World::of(&tree))
    }

    /// Mounts, and kills the server when the load has written this much of its diary.
    fn load(&mut self, diary: &Path, run: u64) -> Result<(), String> {
        let mut mounted = Mounted::start(&self.image, &self.options)?;
        if run == 1 {
            plant(mounted.root())?;
        }
        let least = if self.skips_syncs {
            LONGEST_DIARY / 2
        } else {
            100
        };
        let enough = self.random.u64(least..LONGEST_DIARY);
        let place = Place::new(mounted.root());
        let load = Load {
            seed: self.seed,
            run,
            ops: u64::MAX,
            skips_syncs: self.skips_syncs,
        };
        let writer = Diary::create(diary);
        writer.opened();
        let killed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let loaded = scope.spawn(|| {
                let error = load
                    .run(&place, &writer)
                    .expect_err("the load runs until it is killed");
                if !killed.load(Ordering::Acquire) {
                    writer.failed(&error.to_string());
                }
            });
            let written = || std::fs::metadata(diary).map_or(0, |metadata| metadata.len());
            let until = Instant::now() + PATIENCE;
            while written() < enough && !loaded.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            let slow = written() < enough && !loaded.is_finished();
            killed.store(!loaded.is_finished(), Ordering::Release);
            mounted.kill();
            let log = mounted.log();
            loaded.join().expect("the load does not panic");
            match slow {
                true => Err(format!("{} bytes in {PATIENCE:?}: {log}", written())),
                false => Ok(()),
            }
        })
    }

    /// Mounted again, the volume must be readable as it is, and sound afterwards.
    fn recover(&self) -> Result<Tree, String> {
        if self.promises != Promises::Journal {
            e2fs::e2fsck(&self.image, &["-fy"]);
        }
        let shown = tree::of_image(&self.image)?;
        let mounted = Mounted::start(&self.image, &self.options)?;
        let tree = tree::of_mount(mounted.root())?;
        mounted.unmount();
        work::e2fsck(&self.image)?;
        match tree::differences(&shown, &tree) {
            Some(text) => Err(format!("read-only before / mounted again: {text}")),
            None => Ok(tree),
        }
    }
}

/// Creates the directories, accessible to every user.
fn plant(root: &Path) -> Result<(), String> {
    let message = |error: std::io::Error| format!("planting: {error}");
    for dir in tree::DIRS {
        let dir = root.join(&dir[1..]);
        std::fs::create_dir(&dir).map_err(message)?;
        rustix::fs::chmod(&dir, Mode::from_raw_mode(0o777)).map_err(|e| message(e.into()))?;
    }
    let root = std::fs::File::open(root).map_err(message)?;
    root.sync_all().map_err(message)
}

/// Requests of a dead process may still be in flight, for as long as it holds its lock. A tool without the
/// lock must wait.
pub(crate) fn wait_for_io_of_dead_process(image: &Path) -> Result<(), String> {
    let locked = throughline_device::OpenOptions::new()
        .lock(LockMode::Shared)
        .open(image);
    locked.map(drop).map_err(|e| e.to_string())
}

#[test]
fn killed_under_load() {
    if !possible() {
        return;
    }
    let (chains, kills) = match soak() {
        true => (LONG_CHAINS, LONG_KILLS),
        false => (CHAINS, KILLS),
    };
    let seeds = seeds(chains);
    let all = run_all(&seeds, |seed, scratch| {
        run(seed, kills, false, scratch)
            .map_err(|what| format!("THROUGHLINE_SEED={seed} (chain): {what}"))
    });
    let (mut killed, mut promises, mut files) = (0, 0, 0);
    for counts in &all {
        killed += counts.kills;
        promises += counts.promises;
        files += counts.files;
    }
    eprintln!("{promises} promises, {files} contents of files");
    throughline_testkit::ledger::judged(killed, "kills of a mount's server");
    if chosen().is_none() {
        assert!(promises > 10 * killed && files > 5 * killed);
    }
}

/// Checks the checker: it must detect false promises.
#[test]
fn syncs_that_are_left_out_are_noticed() {
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let judged = run(0, 2, true, &scratch);
    assert!(judged.is_err(), "{judged:?}");
    let what = judged.expect_err("it is one");
    assert!(
        what.contains("promised") || what.contains("holds version") || what.contains("sectors"),
        "not for what was left out: {what}"
    );
}

fn possible() -> bool {
    Mounted::possible() && tools() && work::root("making files as other users needs root")
}
