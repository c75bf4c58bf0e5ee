//! Power cuts of a volume in an overlay. After each, the volume is recovered in the overlay: what was synced
//! is there, what replaces a file is whole, `e2fsck -fn` and `qemu-img check` find nothing, and no byte of
//! the base has changed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use throughline::{Format, ImageOptions, OpenOptions, Volume};
use throughline_image::{Backing, ReadAt, Store, VirtualDisk};
use throughline_testing::Cuttable;
use throughline_testkit::program::{self, has};
use throughline_testkit::{e2fs, seed};

const NAMES: u64 = 12;

/// What the files of the root may hold after a cut: one of these contents, whole.
type Allowed = BTreeMap<String, Vec<Option<Vec<u8>>>>;

struct Judge {
    folder: tempfile::TempDir,
    base: Vec<u8>,
    /// Cuts judged so far.
    cuts: Cell<u32>,
}

impl Judge {
    fn new() -> Judge {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("base");
        e2fs::mke2fs(&base, "12M", &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
        let volume = options().open(&base).unwrap();
        for name in 0..NAMES {
            volume.write(format!("/f{name}"), content(name, 0)).unwrap();
        }
        volume.close().unwrap();
        let base = fs::read(base).unwrap();
        Judge {
            folder,
            base,
            cuts: Cell::new(0),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn qemu(&self, arguments: &[&str]) -> Option<i32> {
        let mut command = program::command("qemu-img");
        let ran = command.current_dir(self.folder.path()).args(arguments);
        ran.output().unwrap().status.code()
    }

    /// Recovers what a cut left, as a user would: by its path.
    fn judge(&self, left: &[u8], allowed: &Allowed, at: &str) {
        self.cuts.set(self.cuts.get() + 1);
        let cut = self.path("cut");
        fs::write(&cut, left).unwrap();
        // 3: clusters that are counted and not used.
        let checked = self.qemu(&["check", "-q", "cut"]);
        assert!(
            matches!(checked, Some(0 | 3)),
            "{at}: qemu-img check: {checked:?}"
        );
        let mut image = ImageOptions::new();
        image.backing(Backing::none().allow(self.path("base")));
        let volume = options().image(&image).open(&cut).unwrap();
        for (name, allowed) in allowed {
            let found = match volume.exists(name).unwrap() {
                true => Some(volume.read(name).unwrap()),
                false => None,
            };
            let lens: Vec<_> = allowed.iter().map(|it| it.as_ref().map(Vec::len)).collect();
            assert!(
                allowed.contains(&found),
                "{at}: {name} has {:?} bytes, allowed are {lens:?}",
                found.map(|it| it.len())
            );
        }
        volume.close().unwrap();
        assert_eq!(
            self.qemu(&["check", "-q", "cut"]),
            Some(0),
            "{at}: recovered"
        );
        assert_eq!(
            self.qemu(&["convert", "-O", "raw", "cut", "shown"]),
            Some(0)
        );
        e2fs::assert_clean_after(&self.path("shown"), at);
        assert!(
            fs::read(self.path("base")).unwrap() == self.base,
            "{at}: the base has changed"
        );
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .cache_bytes(Some(2 << 20))
        .readahead_max(Some(0));
    options
}

fn content(name: u64, turn: u64) -> Vec<u8> {
    let len = 1 + (name * 7919 + turn * 104_729) % 90_000;
    vec![(name * 16 + turn % 16 + 1) as u8; len as usize]
}

/// Replaces files by rename, and syncs some of them; the power is cut at some call of the store.
fn cut_once(judge: &Judge, seed: u64) {
    let mut numbers = fastrand::Rng::with_seed(seed);
    let store = Cuttable::default();
    let len_bytes = judge.base.len() as u64;
    VirtualDisk::create(&store, len_bytes, Some(("base", Format::Raw))).unwrap();
    let base = fs::File::open(judge.path("base")).unwrap();
    let disk = VirtualDisk::in_store(Box::new(store.clone()), Some(Box::new(base)), true).unwrap();
    let volume = options().open_device(disk).unwrap();
    let mut allowed: Allowed = (0..NAMES)
        .map(|name| (format!("/f{name}"), vec![Some(content(name, 0))]))
        .collect();
    for turn in 1..=numbers.u64(1..30) {
        store.cut_after(numbers.usize(..40));
        let number = numbers.u64(..NAMES);
        let name = format!("/f{number}");
        let new = content(number, turn);
        volume.write("/new", &new).unwrap();
        volume.rename("/new", &name).unwrap();
        let values = allowed.get_mut(&name).unwrap();
        values.push(Some(new));
        let is_synced = numbers.bool();
        if is_synced {
            sync(&volume, &name);
        }
        if let Some(left) = store.was_cut(&mut numbers) {
            judge.judge(&left, &allowed, &format!("seed {seed}, turn {turn}"));
        }
        if is_synced {
            let values = allowed.get_mut(&name).unwrap();
            values.drain(..values.len() - 1);
        }
    }
    judge.judge(
        &store.cut(&mut numbers),
        &allowed,
        &format!("seed {seed}, the end"),
    );
    volume.close().unwrap();
    for values in allowed.values_mut() {
        values.drain(..values.len() - 1);
    }
    judge.judge(
        &store.cut(&mut numbers),
        &allowed,
        &format!("seed {seed}, closed"),
    );
    assert!(store.len_bytes().unwrap() > 0);
    store.sync().unwrap();
}

fn sync(volume: &Volume, name: &str) {
    volume
        .open_file(Path::new(name))
        .unwrap()
        .sync_all()
        .unwrap();
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
    let judge = Judge::new();
    let soak = std::env::var("THROUGHLINE_SOAK").is_ok_and(|set| set == "1");
    let first = seed::of_run(0).wrapping_mul(1 << 20);
    for seed in 1..=if soak { 300 } else { 8 } {
        cut_once(&judge, first.wrapping_add(seed));
    }
    throughline_testkit::ledger::judged(
        judge.cuts.get() as u64,
        "power cuts of volumes in overlays",
    );
}
