//! The library's own handles, buffered and direct, in two threads on one file. Each word of 8 bytes has one
//! owner and contains its version. Every read is checked against the writes acknowledged before it and those
//! started by its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use throughline::{Fallocate, File, FileOptions, OpenOptions, Volume};
use throughline_testing::DiskImage;

const WORDS: usize = 12_000;
const MOST: usize = 2_000;

/// How a thread accesses the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Buffered,
    Direct,
    /// Written by `copy_range` from another file.
    Copied,
    /// Holes and zeros, along with buffered writes.
    Holes,
    /// Truncates and extends the part after the words.
    Cutting,
}

const KINDS: [Kind; 5] = [
    Kind::Buffered,
    Kind::Direct,
    Kind::Copied,
    Kind::Holes,
    Kind::Cutting,
];

struct Shared {
    begun: Vec<AtomicU32>,
    acknowledged: Vec<AtomicU32>,
    /// Adjacent words with the same owner.
    run: usize,
}

/// The content of a word in a version: odd versions are zeros.
fn content(word: usize, version: u32) -> u64 {
    match version % 2 {
        0 => u64::from(version) << 32 | u64::from((word as u32).wrapping_mul(2_654_435_761) | 1),
        _ => 0,
    }
}

fn is_right(word: usize, got: u64, low: u32, high: u32) -> bool {
    if got == 0 {
        // A version in between may have been a hole.
        return low % 2 == 1 || high % 2 == 1 || low != high;
    }
    let version = (got >> 32) as u32;
    got == content(word, version) && (low..=high).contains(&version)
}

struct Side {
    kind: Kind,
    number: usize,
    /// Set if the other thread truncates and owns no word.
    owns_all: bool,
    volume: Volume,
    file: File,
    version: u32,
    rng: Rng,
}

impl Side {
    fn new(kind: Kind, number: usize, other: Kind, volume: &Volume, seed: u64) -> Side {
        let mut side = Side {
            kind,
            number,
            owns_all: other == Kind::Cutting,
            volume: volume.clone(),
            file: volume.open_file("/file").expect("the file"),
            version: 0,
            rng: Rng::with_seed(seed),
        };
        side.open();
        side
    }

    fn open(&mut self) {
        let direct = self.kind == Kind::Direct;
        let options = FileOptions::new().direct(direct).clone();
        self.file = options.open(&self.volume, "/file").expect("opened");
    }

    fn owns(&self, shared: &Shared, word: usize) -> bool {
        self.owns_all || (word / shared.run) % 2 == self.number
    }

    fn change(&mut self, shared: &Shared) {
        let first = self.rng.usize(..WORDS) / shared.run * shared.run;
        let run = shared.run.min(WORDS - first);
        if !self.owns(shared, first) {
            return;
        }
        let count = self.rng.usize(1..=run);
        let first = first + self.rng.usize(..=run - count);
        self.version += 2;
        let hole = self.kind == Kind::Holes && self.rng.bool();
        let version = self.version | u32::from(hole);
        let words = first..first + count;
        for word in words.clone() {
            shared.begun[word].store(version, Ordering::SeqCst);
        }
        let bytes: Vec<u8> = words
            .clone()
            .flat_map(|word| content(word, version).to_ne_bytes())
            .collect();
        let (at, len) = (first as u64 * 8, bytes.len() as u64);
        if hole {
            let zero = [Fallocate::PunchHole, Fallocate::ZeroRangeKeepSize];
            let mode = zero[self.rng.usize(..2)];
            self.file.allocate(mode, at, len).expect("zeros");
        } else if self.kind == Kind::Copied {
            let source = FileOptions::new().create(true).clone();
            let source = source.open(&self.volume, format!("/source{}", self.number));
            let source = source.expect("a source");
            source.write_all_at(&bytes, 0).expect("written");
            let copied = source.copy_range(0, &self.file, at, len).expect("copied");
            assert_eq!(copied, len);
        } else {
            self.file.write_all_at(&bytes, at).expect("written");
        }
        for word in words {
            shared.acknowledged[word].store(version, Ordering::SeqCst);
        }
    }

    fn verify(&mut self, shared: &Shared) {
        let count = self.rng.usize(1..=MOST);
        let first = self.rng.usize(..WORDS - count);
        let load = |of: &[AtomicU32]| -> Vec<u32> {
            let words = of[first..first + count].iter();
            words.map(|word| word.load(Ordering::SeqCst)).collect()
        };
        let mut bytes = vec![0; count * 8];
        let low = load(&shared.acknowledged);
        (self.file.read_exact_at(&mut bytes, first as u64 * 8)).expect("read");
        let high = load(&shared.begun);
        for (at, got) in bytes.chunks_exact(8).enumerate() {
            let got = u64::from_ne_bytes(got.try_into().expect("8 bytes"));
            assert!(
                is_right(first + at, got, low[at], high[at]),
                "{:?} read word {}: {got:x}, and {} to {} are right",
                self.kind,
                first + at,
                low[at],
                high[at]
            );
        }
    }

    /// Shrinks, then extends; the new part must be zero.
    fn cut(&mut self) {
        let end = WORDS as u64 * 8;
        let (short, long) = (self.rng.u64(..5000), self.rng.u64(5000..20_000));
        self.file
            .write_all_at(&[7; 100], end + short)
            .expect("a tail");
        self.file.set_len(end + short).expect("cut");
        self.file.set_len(end + long).expect("lengthened");
        let mut tail = vec![1; (long - short) as usize];
        self.file
            .read_exact_at(&mut tail, end + short)
            .expect("read");
        assert!(tail.iter().all(|byte| *byte == 0), "the tail is not zero");
    }

    fn work(&mut self, shared: &Shared, until: Instant) {
        while Instant::now() < until {
            match self.kind {
                Kind::Cutting => self.cut(),
                _ => self.change(shared),
            }
            self.verify(shared);
            if self.rng.u8(..) < 4 {
                self.open();
            }
        }
    }
}

fn run(volume: &Volume, kinds: [Kind; 2], time: Duration, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let runs = [1, 5, 64, 100, 512, 1024];
    let zeros = || (0..WORDS).map(|_| AtomicU32::new(0)).collect();
    let shared = Arc::new(Shared {
        begun: zeros(),
        acknowledged: zeros(),
        run: runs[rng.usize(..runs.len())],
    });
    let file = FileOptions::new().create(true).truncate(true).clone();
    let file = file.open(volume, "/file").expect("a file");
    let first: Vec<u8> = (0..WORDS)
        .flat_map(|word| content(word, 0).to_ne_bytes())
        .collect();
    file.write_all_at(&first, 0).expect("written");
    drop(file);
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        for number in 0..2 {
            let shared = Arc::clone(&shared);
            let (kind, other, seed) = (kinds[number], kinds[1 - number], rng.u64(..));
            let mut side = Side::new(kind, number, other, volume, seed);
            scope.spawn(move || side.work(&shared, until));
        }
    });
    // Both threads have stopped: the acknowledged versions are in the file.
    for kind in [Kind::Buffered, Kind::Direct] {
        let mut last = Side::new(kind, 0, Kind::Cutting, volume, seed);
        for _ in 0..20 {
            last.verify(&shared);
        }
    }
}

#[test]
fn every_pair_of_the_librarys_openers_sees_what_was_written() {
    let Some(image) = DiskImage::make("-t ext4 -b 4096", "64M") else {
        return;
    };
    let soak = throughline_testkit::tier::soak();
    let time = Duration::from_millis(if soak { 5000 } else { 100 });
    let volume = OpenOptions::new()
        .write(true)
        .open(image.path())
        .expect("the image");
    let mut seed = 1;
    for (at, one) in KINDS.into_iter().enumerate() {
        for other in KINDS.into_iter().skip(at) {
            if (one, other) != (Kind::Cutting, Kind::Cutting) {
                seed += 1;
                run(&volume, [one, other], time, seed);
            }
        }
    }
    volume.close().expect("closed");
    image.check("the library's openers");
}
