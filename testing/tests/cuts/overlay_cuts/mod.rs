//! Power cuts of a volume in an overlay. After each, the volume is recovered in the overlay: what was synced
//! is there, what replaces a file is whole, `e2fsck -fn` and `qemu-img check` find nothing, and no byte of
//! the base has changed. Some recoveries are cut as well.
//!
//! `THROUGHLINE_SEED=n` repeats one run; `THROUGHLINE_SOAK=1` makes at least 2,000 cuts, no two of which
//! leave the same bytes.

mod ground;
mod model;

use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use throughline::{ImageOptions, Volume, VolumeOptions};
use throughline_image::{ReadAt, Store};
use throughline_testing::Cuttable;
use throughline_testkit::program::has;
use throughline_testkit::{e2fs, seed};

use ground::{GROUNDS, Ground, holding, options};
use model::{Model, NAMES, POOL};

/// What a run with `THROUGHLINE_SOAK=1` makes.
const MANY: usize = 2_000;
/// The most seeds that it takes for them.
const MAX_SEEDS: u64 = 600;
const FEW_SEEDS: u64 = 8;

#[derive(Default)]
struct Judge {
    /// Of what each cut has left, with the ground.
    seen: HashSet<u64>,
    /// Cuts of recoveries.
    again: usize,
}

impl Judge {
    /// Recovers what a cut left, as a user would: by its path. Says whether it is another one than all
    /// before.
    fn judge(&mut self, ground: &Ground, left: &[u8], model: &Model, at: &str) -> bool {
        let mut hash = DefaultHasher::new();
        ground.path("").hash(&mut hash);
        left.hash(&mut hash);
        // Judged even if the bytes are those of an earlier cut: more may have been synced since.
        let is_new = self.seen.insert(hash.finish());
        let cut = ground.path("cut");
        fs::write(&cut, left).unwrap();
        // 3: clusters that are counted and not used.
        let (checked, text) = ground.qemu("check cut");
        assert!(
            matches!(checked, Some(0 | 3)),
            "{at}: qemu-img check: {checked:?}, {text}"
        );
        let mut image = ImageOptions::new();
        image.backing(ground.backing());
        let volume = options().image(&image).open(&cut).unwrap();
        model.check(&volume, at);
        volume.close().unwrap();
        ground.qemu_good("check cut", &format!("{at}, recovered"));
        ground.qemu_good("convert -O raw cut shown", at);
        e2fs::assert_clean_after(&ground.path("shown"), at);
        ground.assert_kept(at);
        is_new
    }

    /// Judges what a cut left, and what a cut of its recovery leaves.
    fn judge_both(
        &mut self,
        ground: &Ground,
        left: &[u8],
        model: &Model,
        (at, numbers): (&str, &mut fastrand::Rng),
    ) {
        self.judge(ground, left, model, at);
        if numbers.usize(..4) > 0 {
            return;
        }
        let store = holding(left);
        store.cut_after(numbers.usize(..8));
        let volume = options().open_device(ground.disk(&store)).unwrap();
        volume.close().unwrap();
        if let Some(left) = store.was_cut(numbers) {
            let at = format!("{at}, its recovery");
            self.again += usize::from(self.judge(ground, &left, model, &at));
        }
    }
}

/// A volume in an overlay, and what it must hold.
struct Work {
    volume: Volume,
    model: Model,
}

/// What a turn has synced, if it was not cut.
enum Synced {
    Nothing,
    File(String),
    Pool,
    All,
}

impl Work {
    /// Replaces or removes a file, or overwrites a part of the pool; and syncs it or not.
    fn turn(&mut self, turn: u64, numbers: &mut fastrand::Rng) -> Synced {
        let (volume, model) = (&self.volume, &mut self.model);
        let number = numbers.u64(..NAMES);
        let name = model::name(number);
        let mut synced = Synced::Pool;
        match numbers.usize(..8) {
            0 | 1 => {
                let pool = volume.open_file(POOL).unwrap();
                for _ in 0..numbers.usize(1..5) {
                    let (at, bytes) = model.overwrite(turn, numbers);
                    pool.write_all_at(&bytes, at).unwrap();
                }
            }
            2 if model.is_there(&name) => {
                model.set(&name, None);
                volume.remove_file(&name).unwrap();
                synced = Synced::All;
            }
            _ => {
                let new = model::content(number, turn);
                volume.write("/new", &new).unwrap();
                volume.rename("/new", &name).unwrap();
                model.set(&name, Some(new));
                synced = Synced::File(name);
            }
        }
        if numbers.bool() {
            return Synced::Nothing;
        }
        match &synced {
            Synced::File(name) => sync(volume, name),
            Synced::Pool => sync(volume, POOL),
            Synced::All | Synced::Nothing => volume.sync().unwrap(),
        }
        synced
    }
}

fn sync(volume: &Volume, name: &str) {
    let file = volume.open_file(Path::new(name)).unwrap();
    file.sync_all().unwrap();
}

/// Changes files; the power is cut at some calls of the store.
fn cut_once(judge: &mut Judge, ground: &Ground, seed: u64) {
    let mut numbers = fastrand::Rng::with_seed(seed);
    let store: Cuttable = ground.overlay(&mut numbers);
    let mut behaviour = VolumeOptions::new();
    behaviour.discard(numbers.bool());
    let volume = options()
        .volume(&behaviour)
        .open_device(ground.disk(&store));
    let mut work = Work {
        volume: volume.unwrap(),
        model: Model::new(),
    };
    for turn in 1..=numbers.u64(1..30) {
        store.cut_after(numbers.usize(..40));
        let synced = work.turn(turn, &mut numbers);
        if let Some(left) = store.was_cut(&mut numbers) {
            let at = format!("seed {seed}, turn {turn}");
            judge.judge_both(ground, &left, &work.model, (&at, &mut numbers));
        }
        match synced {
            Synced::Nothing => {}
            Synced::File(name) => work.model.synced(&name),
            Synced::Pool => work.model.pool_synced(),
            Synced::All => work.model.all_synced(),
        }
    }
    let left = store.cut(&mut numbers);
    let at = format!("seed {seed}, the end");
    judge.judge_both(ground, &left, &work.model, (&at, &mut numbers));
    work.volume.close().unwrap();
    work.model.all_synced();
    let left = store.cut(&mut numbers);
    judge.judge(ground, &left, &work.model, &format!("seed {seed}, closed"));
    assert!(store.len_bytes().unwrap() > 0);
    store.sync().unwrap();
}

#[test]
fn a_volume_in_an_overlay_survives_power_cuts() {
    if !e2fs::is_there() {
        return;
    }
    if !has(&["qemu-img"]) {
        throughline_testkit::missing!("qemu-img is not installed (qemu-utils)");
        return;
    }
    let soak = throughline_testkit::tier::soak();
    let (wanted, max_seeds) = match soak {
        true => (MANY, MAX_SEEDS),
        false => (usize::MAX, FEW_SEEDS),
    };
    let grounds: Vec<Ground> = (0..GROUNDS).map(Ground::new).collect();
    let mut judge = Judge::default();
    let first = seed::of_run(0).wrapping_mul(1 << 20);
    let mut seeds = 0;
    while seeds < max_seeds && judge.seen.len() < wanted {
        seeds += 1;
        let ground = &grounds[(seeds % GROUNDS) as usize];
        cut_once(&mut judge, ground, first.wrapping_add(seeds));
    }
    let (cuts, again) = (judge.seen.len(), judge.again);
    println!("{again} of them of recoveries, all survived");
    throughline_testkit::ledger::judged(cuts as u64, "power cuts of volumes in overlays");
    let least = if soak { MANY } else { FEW_SEEDS as usize * 2 };
    assert!(cuts >= least, "{cuts} cuts, not {least}");
}
