//! Power cuts of an image, simulated: of what was written since the last sync, any part may be lost, in
//! sectors. What was promised must be there, other bytes must be old or new, `qemu-img check` finds no error,
//! and after the next opening no leak either. `THROUGHLINE_SOAK=1` makes at least 2,000 different cuts.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};

use throughline_device::LockMode;
use throughline_image::{Backing, DiskOptions, Format, ReadAt, Store, VirtualDisk, no_objects};
use throughline_testing::Cuttable;
use throughline_testkit::program::{self, has};
use throughline_testkit::seed;

const SECTOR: usize = 512;
const DISK_BYTES: usize = 2 << 20;

/// The bytes that each sector may have after a cut.
struct Model {
    now: Vec<u8>,
    /// The values of a sector since the last flush, if there are several.
    allowed: HashMap<usize, Vec<u8>>,
}

impl Model {
    fn write(&mut self, at: usize, len: usize, mark: u8) {
        for sector in (at..at + len).step_by(SECTOR) {
            let before = self.now[sector];
            self.allowed
                .entry(sector)
                .or_insert_with(|| vec![before])
                .push(mark);
        }
        self.now[at..at + len].fill(mark);
    }

    fn check(&self, found: &[u8], seed: u64) {
        for sector in (0..found.len()).step_by(SECTOR) {
            let bytes = &found[sector..sector + SECTOR];
            let first = bytes[0];
            assert!(
                bytes.iter().all(|byte| *byte == first),
                "seed {seed}: sector {sector} is mixed"
            );
            let is_right = match self.allowed.get(&sector) {
                Some(allowed) => allowed.contains(&first),
                None => first == self.now[sector],
            };
            assert!(
                is_right,
                "seed {seed}: byte {sector} is {first}, not {}",
                self.now[sector]
            );
        }
    }
}

struct Judge {
    folder: tempfile::TempDir,
    /// Of what each cut has left.
    seen: RefCell<HashSet<u64>>,
}

impl Judge {
    fn new() -> Judge {
        let folder = tempfile::tempdir().unwrap();
        Judge {
            folder,
            seen: RefCell::default(),
        }
    }

    fn run(&self, arguments: &[&str]) -> Option<i32> {
        let mut command = program::command("qemu-img");
        command.current_dir(self.folder.path()).args(arguments);
        command.output().unwrap().status.code()
    }

    /// Looks at what a cut left.
    fn judge(&self, left: &[u8], model: &Model, seed: u64) {
        let mut hash = DefaultHasher::new();
        left.hash(&mut hash);
        self.seen.borrow_mut().insert(hash.finish());
        fs::write(self.folder.path().join("cut"), left).unwrap();
        // 3: leaks only.
        let checked = self.run(&["check", "-q", "cut"]);
        assert!(
            matches!(checked, Some(0 | 3)),
            "seed {seed}: qemu-img check: {checked:?}"
        );
        let options = DiskOptions {
            write: true,
            lock: LockMode::Exclusive,
            backing: Backing::none().allow(self.folder.path()),
            objects: no_objects,
        };
        let disk = VirtualDisk::open(&self.folder.path().join("cut"), &options).unwrap();
        let mut found = vec![0; DISK_BYTES];
        disk.read_exact_at(&mut found, 0).unwrap();
        model.check(&found, seed);
        drop(disk);
        assert_eq!(
            self.run(&["check", "-q", "cut"]),
            Some(0),
            "seed {seed}: after it was opened"
        );
    }
}

/// A base, all of whose sectors differ from what is written.
fn base() -> Vec<u8> {
    (0..DISK_BYTES)
        .map(|at| 200 + (at / SECTOR % 50) as u8)
        .collect()
}

fn cut_once(judge: &Judge, seed: u64) {
    let mut numbers = fastrand::Rng::with_seed(seed);
    let store = Cuttable::default();
    let has_base = numbers.usize(..2) == 0;
    let shapes = [
        "cluster_size=512",
        "cluster_size=4k",
        "cluster_size=64k",
        "refcount_bits=1",
    ];
    match numbers.usize(..5) {
        0 => VirtualDisk::create(
            &store,
            DISK_BYTES as u64,
            has_base.then_some(("base", Format::Raw)),
        )
        .unwrap(),
        shape => {
            let mut arguments = vec!["create", "-q", "-f", "qcow2", "-o", shapes[shape - 1]];
            if has_base {
                arguments.extend(["-b", "base", "-F", "raw"]);
            }
            arguments.extend(["made", "2M"]);
            assert_eq!(judge.run(&arguments), Some(0));
            let bytes = fs::read(judge.folder.path().join("made")).unwrap();
            store.write_all_at(&bytes, 0).unwrap();
            store.sync().unwrap();
        }
    }
    let mut model = Model {
        now: if has_base {
            base()
        } else {
            vec![0; DISK_BYTES]
        },
        allowed: HashMap::new(),
    };
    let over: Option<Box<dyn ReadAt + Send + Sync>> = match has_base {
        true => Some(Box::new(
            fs::File::open(judge.folder.path().join("base")).unwrap(),
        )),
        false => None,
    };
    let disk = VirtualDisk::in_store(Box::new(store.clone()), over, true).unwrap();
    for step in 0..numbers.usize(..120) {
        let at = numbers.usize(..DISK_BYTES / SECTOR) * SECTOR;
        let longest = [4, 60, 700][numbers.usize(..3)];
        let len = ((1 + numbers.usize(..longest)) * SECTOR).min(DISK_BYTES - at);
        match numbers.usize(..8) {
            0 => {
                store.cut_after(numbers.usize(..8));
                disk.flush().unwrap();
                if let Some(left) = store.was_cut(&mut numbers) {
                    judge.judge(&left, &model, seed);
                }
                model.allowed.clear();
            }
            1 => {
                disk.discard(at as u64, len as u64).unwrap();
                let mut now = vec![0; len];
                disk.read_exact_at(&mut now, at as u64).unwrap();
                for (ahead, sector) in now.chunks(SECTOR).enumerate() {
                    model.write(at + ahead * SECTOR, SECTOR, sector[0]);
                }
            }
            _ => {
                let mark = (step % 190 + 1) as u8;
                model.write(at, len, mark);
                disk.write_all_at(&vec![mark; len], at as u64).unwrap();
            }
        }
        if numbers.usize(..40) == 0 {
            judge.judge(&store.cut(&mut numbers), &model, seed);
        }
    }
    judge.judge(&store.cut(&mut numbers), &model, seed);
    store.cut_after(numbers.usize(..8));
    drop(disk);
    if let Some(left) = store.was_cut(&mut numbers) {
        judge.judge(&left, &model, seed);
    }
    judge.judge(&store.cut(&mut numbers), &model, seed);
}

#[test]
fn a_power_cut_takes_only_what_was_not_promised() {
    if !has(&["qemu-img"]) {
        throughline_testkit::missing!("qemu-img is not installed (qemu-utils)");
        return;
    }
    let judge = Judge::new();
    fs::write(judge.folder.path().join("base"), base()).unwrap();
    let first = seed::of_run(0).wrapping_mul(1 << 20);
    for seed in 1..=throughline_testkit::tier::pick(30, 60, 1000) {
        cut_once(&judge, first.wrapping_add(seed));
    }
    let cuts = judge.seen.borrow().len();
    throughline_testkit::ledger::judged(cuts as u64, "power cuts of overlays");
    let least = throughline_testkit::tier::pick(30, 60, 2_000);
    assert!(cuts >= least, "{cuts} cuts, not {least}");
    assert!(
        fs::read(judge.folder.path().join("base")).unwrap() == base(),
        "the base was written"
    );
}
