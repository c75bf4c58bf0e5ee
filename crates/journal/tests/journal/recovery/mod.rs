//! Recovery of crashed journals written by `debugfs`, compared with `e2fsck -E journal_only` on a copy: our
//! overlay over the crashed image must read the same as the copy that `e2fsck` replayed.

mod fast;
mod home;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use throughline_block::Disk;
use throughline_device::{BlockDevice, MemoryDevice};
use throughline_extfmt::FsBlock;
use throughline_journal::recovery::{JournalRun, Replay, recover};
use throughline_journal::{Error, OverlayDevice};
use throughline_testkit::e2fs;

const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
const IMAGE_BYTES: u64 = 32 << 20;

/// An image with a journal, and the journal's mapping.
struct Image {
    path: PathBuf,
    block_bytes: u32,
    runs: Vec<JournalRun>,
}

impl Image {
    fn make(dir: &Path, block_bytes: u32, features: &str) -> Self {
        let path = dir.join("image");
        let size = format!("{}k", IMAGE_BYTES >> 10);
        let blocks = block_bytes.to_string();
        // The smallest journal has 1024 blocks.
        let journal = format!("size={}", block_bytes >> 10);
        let _ = std::fs::remove_file(&path);
        let arguments = ["-t", "ext4", "-b", &blocks, "-J", &journal, "-O", features];
        assert!(e2fs::mke2fs(&path, &size, &arguments));
        let mut image = Self {
            path,
            block_bytes,
            runs: Vec::new(),
        };
        image.map();
        image
    }

    fn debugfs(&self, script: &str) -> String {
        e2fs::debugfs_write(&self.path, script)
    }

    fn map(&mut self) {
        let script = (0..1024).fold(String::new(), |mut text, block| {
            writeln!(text, "bmap <8> {block}").unwrap();
            text
        });
        let out = self.debugfs(&script);
        for place in out
            .lines()
            .filter_map(|line| line.trim().parse::<u64>().ok())
        {
            match self.runs.last_mut() {
                Some(run) if run.first.0 + u64::from(run.len) == place => run.len += 1,
                last => {
                    let journal_block = last.map_or(0, |run| run.journal_block + run.len);
                    self.runs.push(JournalRun {
                        journal_block,
                        first: FsBlock(place),
                        len: 1,
                    });
                }
            }
        }
        assert_eq!(
            self.runs.iter().map(|run| run.len).sum::<u32>(),
            1024,
            "{out}"
        );
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    /// The byte offset of a block of the journal.
    fn journal_offset(&self, block: u32) -> usize {
        let run = self
            .runs
            .iter()
            .rfind(|run| run.journal_block <= block)
            .unwrap();
        (run.first.0 as usize + (block - run.journal_block) as usize) * self.block_bytes as usize
    }

    /// A disk in memory that holds `bytes`, and its device.
    fn disk(&self, bytes: &[u8]) -> (Arc<dyn BlockDevice>, Disk) {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes.len() as u64));
        let disk = Disk::new(Arc::clone(&device)).unwrap();
        disk.write_at(0, bytes, false).unwrap();
        (device, disk)
    }

    fn fs_blocks(&self) -> u64 {
        IMAGE_BYTES / u64::from(self.block_bytes)
    }

    fn recover(&self, disk: &Disk) -> throughline_journal::Result<Replay> {
        recover(disk, self.block_bytes, self.fs_blocks(), &self.runs)
    }

    /// A copy of `bytes` after `e2fsck` has replayed it.
    fn replayed(&self, bytes: &[u8]) -> Vec<u8> {
        let copy = self.path.with_extension("copy");
        std::fs::write(&copy, bytes).unwrap();
        let ran = e2fs::e2fsck(&copy, &["-fy", "-E", "journal_only"]);
        assert!((0..4).contains(&ran.code()), "{}", ran.text());
        std::fs::read(&copy).unwrap()
    }

    /// Compares our overlay with `e2fsck`'s replay, except for the two superblocks, which `e2fsck` updates.
    fn compare(&self, what: &str) -> Replay {
        let bytes = self.bytes();
        let (device, disk) = self.disk(&bytes);
        let replay = self
            .recover(&disk)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let overlay =
            OverlayDevice::new(device, Arc::new(replay.clone()), self.block_bytes).unwrap();
        let disk = Disk::new(Arc::new(overlay)).unwrap();
        let mut ours = vec![0; bytes.len()];
        // Read in pieces that split blocks, to test partial overlays too.
        let mut at = 0;
        for piece in ours.chunks_mut(99 * 512) {
            disk.read_at(at, piece).unwrap();
            at += piece.len() as u64;
        }
        let theirs = self.replayed(&bytes);
        let size = self.block_bytes as usize;
        let superblocks = [1024 / size, self.journal_offset(0) / size];
        for (block, (ours, theirs)) in ours.chunks(size).zip(theirs.chunks(size)).enumerate() {
            assert!(
                superblocks.contains(&block) || ours == theirs,
                "{what}: block {block} differs"
            );
        }
        replay
    }
}

/// Writes random transactions with `debugfs`. The content of every block differs by block number and
/// transaction.
fn transactions(image: &Image, dir: &Path, random: &mut Rng, checksums: &str, count: u32) {
    let blocks = image.fs_blocks();
    // Free blocks after the journal, few enough that transactions share some.
    let targets: Vec<u64> = (0..40)
        .map(|_| random.u64(blocks / 4 * 3..blocks - 8))
        .collect();
    let file = dir.join("data");
    for _ in 0..count {
        let list: Vec<u64> = (0..random.usize(1..20))
            .map(|_| *random.choice(&targets).unwrap())
            .collect();
        let mut data = Vec::new();
        for home in &list {
            let mut block = vec![0; image.block_bytes as usize];
            random.fill(&mut block);
            block[8..16].copy_from_slice(&home.to_le_bytes());
            if random.u8(..3) == 0 {
                block[..4].copy_from_slice(&MAGIC);
            }
            data.extend(block);
        }
        std::fs::write(&file, data).unwrap();
        let numbers = |list: &[u64]| {
            list.iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        // debugfs includes revoke blocks in a version 1 checksum; Linux and e2fsck do not.
        let revoke = match random.u8(..3) {
            0 if checksums != "-c" => format!(" -r {}", numbers(&targets[..random.usize(1..10)])),
            _ => String::new(),
        };
        // One debugfs process for each transaction: debugfs 1.47 overwrites the commit of a transaction with
        // revokes with the next transaction.
        let write = format!("jw -b {}{revoke} {}", numbers(&list), file.display());
        image.debugfs(&format!("jo {checksums}\n{write}\njc\n"));
    }
}

/// Block size, image features and arguments of `jo`: checksums of every version, and 64-bit tags.
const FORMATS: &[(u32, &str, &str)] = &[
    (1024, "^metadata_csum,^64bit", ""),
    (4096, "^metadata_csum,^64bit,^extent", ""),
    (4096, "^metadata_csum,64bit", ""),
    (1024, "^metadata_csum,^64bit", "-c"),
    (4096, "^metadata_csum,64bit", "-c"),
    (1024, "metadata_csum,^64bit", "-c -v 2"),
    (4096, "metadata_csum,64bit", "-c -v 2"),
    (1024, "metadata_csum,^64bit", "-c -v 3"),
    (4096, "metadata_csum,64bit", "-c -v 3"),
    (2048, "metadata_csum,64bit", ""),
];

#[test]
fn the_overlay_reads_as_what_e2fsck_replays() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut revoked, mut escaped) = (0, 0);
    for (index, (block_bytes, features, checksums)) in FORMATS.iter().enumerate() {
        for seed in 0..3 {
            let what = format!("{block_bytes} {features} {checksums} seed {seed}");
            let mut random = Rng::with_seed(seed * 100 + index as u64);
            let image = Image::make(dir.path(), *block_bytes, features);
            let count = random.u32(1..12);
            transactions(&image, dir.path(), &mut random, checksums, count);
            let replay = image.compare(&what);
            assert_eq!(replay.transactions, count, "{what}");
            assert_eq!(replay.torn, None, "{what}");
            revoked += replay.revoked;
            escaped += replay.blocks().iter().filter(|block| block.escaped).count();
        }
    }
    assert!(
        revoked > 10 && escaped > 10,
        "the scripts test too little: {revoked} revoked, {escaped} escaped"
    );
}

#[test]
fn a_log_that_wraps_around_is_followed() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..2 {
        let mut random = Rng::with_seed(seed);
        let image = Image::make(dir.path(), 1024, "^metadata_csum,^64bit");
        transactions(&image, dir.path(), &mut random, "", 8);
        // Rotate the log (blocks 1 to 1023, live from 1) so that it starts near its end.
        let mut bytes = image.bytes();
        let start = 1023 - random.u32(1..40);
        let size = image.block_bytes as usize;
        let log: Vec<Vec<u8>> = (1..1024)
            .map(|block| bytes[image.journal_offset(block)..][..size].to_vec())
            .collect();
        for (index, content) in log.iter().enumerate() {
            let to = (index as u32 + start - 1) % 1023 + 1;
            bytes[image.journal_offset(to)..][..size].copy_from_slice(content);
        }
        let superblock = image.journal_offset(0);
        bytes[superblock + 0x1c..][..4].copy_from_slice(&start.to_be_bytes());
        std::fs::write(&image.path, bytes).unwrap();
        let replay = image.compare(&format!("rotated to {start}, seed {seed}"));
        assert_eq!(replay.transactions, 8);
    }
}

#[test]
fn a_log_that_ends_before_a_commit_ends_before_its_transaction() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (block_bytes, features, checksums) in FORMATS {
        let mut random = Rng::with_seed(7);
        let image = Image::make(dir.path(), *block_bytes, features);
        transactions(&image, dir.path(), &mut random, checksums, 5);
        let whole = image.bytes();
        let size = *block_bytes as usize;
        let (_, disk) = image.disk(&whole);
        assert_eq!(image.recover(&disk).unwrap().transactions, 5);
        // Truncate the log before every block, from its end backwards: unwritten blocks are zeroes.
        let mut seen = vec![5];
        let mut bytes = whole.clone();
        for cut in (2..log_end(&image, &whole)).rev() {
            let offset = image.journal_offset(cut);
            bytes[offset..][..size].fill(0);
            disk.write_at(offset as u64, &bytes[offset..][..size], false)
                .unwrap();
            let what = format!("{features} {checksums} cut at {cut}");
            let replay = image
                .recover(&disk)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            if seen.last() != Some(&replay.transactions) {
                seen.push(replay.transactions);
                std::fs::write(&image.path, &bytes).unwrap();
                image.compare(&what);
            }
        }
        assert_eq!(seen, [5, 4, 3, 2, 1, 0], "{features} {checksums}");
    }
}

/// With checksums, damage in the middle of the log is an error, but a torn end is not. No damage causes a
/// panic or shows damaged content.
#[test]
fn damage_is_distinguished_from_a_torn_end() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (block_bytes, features, checksums) in FORMATS.iter().filter(|format| !format.2.is_empty()) {
        let mut random = Rng::with_seed(11);
        let image = Image::make(dir.path(), *block_bytes, features);
        transactions(&image, dir.path(), &mut random, checksums, 6);
        let whole = image.bytes();
        let (_, disk) = image.disk(&whole);
        let good = image.recover(&disk).unwrap();
        let end = log_end(&image, &whole);
        let (mut errors, mut torn) = (0, 0);
        let size = *block_bytes as usize;
        for block in 1..end {
            let offset = image.journal_offset(block);
            let mut bytes = whole[offset..][..size].to_vec();
            bytes[random.usize(..size)] ^= 1 << random.u8(..8);
            disk.write_at(offset as u64, &bytes, false).unwrap();
            let result = image.recover(&disk);
            disk.write_at(offset as u64, &whole[offset..][..size], false)
                .unwrap();
            match result {
                Err(Error::Corrupt { .. }) => errors += 1,
                Err(error) => panic!("{features} {checksums} block {block}: {error}"),
                Ok(replay) => {
                    torn += 1;
                    // The log ended early, or the change was in unused bytes that no checksum covers.
                    assert!(
                        replay.transactions < 6 || replay == good,
                        "{features} {checksums} block {block}"
                    );
                }
            }
        }
        assert!(
            errors > end / 2,
            "{features} {checksums}: {errors} errors, {torn} torn of {end}"
        );
    }
}

/// The block after the last one written of a log that starts at 1 and was never used before.
fn log_end(image: &Image, bytes: &[u8]) -> u32 {
    let size = image.block_bytes as usize;
    (1..1024)
        .rfind(|block| {
            bytes[image.journal_offset(*block)..][..size]
                .iter()
                .any(|byte| *byte != 0)
        })
        .unwrap()
        + 1
}

/// Changes bytes of the journal at random, mostly in headers: recovery returns without a panic.
#[test]
fn no_journal_makes_recovery_panic() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (index, (block_bytes, features, checksums)) in FORMATS.iter().enumerate() {
        let mut random = Rng::with_seed(index as u64);
        let image = Image::make(dir.path(), *block_bytes, features);
        transactions(&image, dir.path(), &mut random, checksums, 6);
        let whole = image.bytes();
        let end = log_end(&image, &whole);
        let (_, mut disk) = image.disk(&whole);
        let mut replayed = 0;
        for round in 0..400 {
            // A journal whose first blocks stay damaged is always empty.
            if round % 20 == 0 {
                (_, disk) = image.disk(&whole);
            }
            let block = if random.u8(..4) == 0 {
                0
            } else {
                random.u32(..end)
            };
            let offset = image.journal_offset(block);
            let size = *block_bytes as usize;
            let mut bytes = whole[offset..][..size].to_vec();
            for _ in 0..random.usize(1..6) {
                let at = if random.bool() {
                    random.usize(..size)
                } else {
                    random.usize(..96)
                };
                bytes[at] = random.u8(..);
            }
            disk.write_at(offset as u64, &bytes, false).unwrap();
            if let Ok(replay) = image.recover(&disk) {
                replayed += replay.blocks().len();
                assert!(
                    replay
                        .blocks()
                        .iter()
                        .all(|block| block.home.0 < image.fs_blocks())
                );
            }
            if random.u8(..3) > 0 {
                disk.write_at(offset as u64, &whole[offset..][..size], false)
                    .unwrap();
            }
        }
        assert!(replayed > 0, "{features}: no journal was accepted");
    }
}

#[test]
fn superblocks_that_make_no_sense_are_refused() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = Image::make(dir.path(), 1024, "^metadata_csum,^64bit");
    let mut random = Rng::with_seed(1);
    transactions(&image, dir.path(), &mut random, "", 2);
    let whole = image.bytes();
    let with = |field: usize, value: u32| {
        let mut bytes = whole.clone();
        bytes[image.journal_offset(0) + field..][..4].copy_from_slice(&value.to_be_bytes());
        image.recover(&image.disk(&bytes).1)
    };
    // Magic number, block size, length, first block and start of the log.
    for (field, value) in [
        (0, 1),
        (4, 9),
        (0xc, 4096),
        (0x10, 1025),
        (0x14, 0),
        (0x14, 1024),
        (0x1c, 1024),
    ] {
        let result = with(field, value);
        assert!(
            matches!(result, Err(Error::Corrupt { .. })),
            "field {field:#x} = {value}: {result:?}"
        );
    }
    assert!(
        matches!(with(0x28, 0x40), Err(Error::Unsupported(_))),
        "an unknown feature"
    );
    assert!(
        matches!(with(0x28, 0x18), Err(Error::Corrupt { .. })),
        "checksums of two versions"
    );
    assert!(with(0x1c, 0).unwrap().is_empty(), "an empty log");
    assert_eq!(
        with(0x20, (-5_i32).cast_unsigned()).unwrap().recorded_errno,
        5
    );
    let gap = [JournalRun {
        journal_block: 1,
        first: FsBlock(5),
        len: 1024,
    }];
    let (_, disk) = image.disk(&whole);
    for runs in [&gap[..], &[]] {
        assert!(matches!(
            recover(&disk, 1024, 32768, runs),
            Err(Error::Corrupt { .. })
        ));
    }
}
