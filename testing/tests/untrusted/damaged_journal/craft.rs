//! Hand-made images with a live log: any content of a jbd2 journal, at any position in the ring, with any
//! sequence number.
//!
//! ```text
//!  mke2fs ─► S0 ── names, files ─► S1 ── more ─► S2 ── more ─► S3      each closed cleanly
//!            S0 + a log of three transactions, the n-th of them the blocks in which S(n-1) and S(n) differ
//! ```
//!
//! So the result of a recovery is known byte for byte: S3, or S2, S1 or S0 if the log ends early. Two unused
//! blocks make a revoke and an escape visible.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use throughline::internal::OpenBlockDevice;
use throughline::{OpenOptions, Volume};
use throughline_device::MemoryDevice;
use throughline_extfmt::checksum::{CRC32C_INIT, crc32_be, crc32c};
use throughline_extfmt::features::Incompat;
use throughline_extfmt::jbd2::log::{Commit, DescriptorWriter, RevokeWriter};
use throughline_extfmt::jbd2::{
    BlockType, CHECKSUM_CRC32C, JBD2_MAGIC, JournalCsum, JournalFormat, JournalIncompat,
    JournalSuperblock, escape,
};
use throughline_extfmt::{FsBlock, Superblock};
use throughline_testkit::e2fs::tool;
use zerocopy::IntoBytes;

use super::disk::{bytes_of, load};

/// A kind of volume and journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// Arguments of `mke2fs`.
    pub(crate) mke2fs: &'static str,
    pub(crate) block_bytes: u32,
    pub(crate) kib: u64,
    pub(crate) csum: JournalCsum,
    pub(crate) bit64: bool,
}

/// All kinds.
pub(crate) const KINDS: &[Kind] = &[
    kind("ext3", "-t ext3 -J size=1", JournalCsum::None, false),
    kind(
        "ext3, sums of version 1",
        "-t ext3 -J size=1",
        JournalCsum::V1,
        false,
    ),
    kind(
        "ext4, sums of version 2",
        "-t ext4 -O ^64bit -J size=1",
        JournalCsum::V2,
        false,
    ),
    kind(
        "ext4",
        "-t ext4 -O 64bit,orphan_file,fast_commit -J size=1",
        JournalCsum::V3,
        true,
    ),
];

const fn kind(name: &'static str, mke2fs: &'static str, csum: JournalCsum, bit64: bool) -> Kind {
    Kind {
        name,
        mke2fs,
        block_bytes: 1024,
        kib: 3072,
        csum,
        bit64,
    }
}

/// The basis of crafted images: the states, and the location of the journal.
pub(crate) struct Base {
    pub(crate) kind: Kind,
    /// S0, S1, ...
    pub(crate) states: Vec<Vec<u8>>,
    /// The volume's block for each block of the journal.
    pub(crate) journal: Vec<u64>,
    /// Blocks of the journal and of its map.
    pub(crate) reserved: BTreeSet<u64>,
    /// Two blocks free in all states: one that is revoked, and one that starts with the journal's magic
    /// number.
    pub(crate) revoked: u64,
    pub(crate) escaped: u64,
    /// The block after the last one of the log.
    pub(crate) log_end: u32,
    /// The changes from each state to the next, without the journal.
    changes: Vec<BTreeMap<u64, Vec<u8>>>,
    /// The last state with one more file, [`QUICK`]: the basis of fast commits.
    pub(crate) quick: Vec<u8>,
    /// The blocks of that file.
    pub(crate) quick_data: BTreeSet<u64>,
}

/// The file in the fast commit.
pub(crate) const QUICK: &str = "quick";
/// Its content.
pub(crate) const QUICK_BYTES: [u8; 5000] = [0x51; 5000];

/// Where and how a log is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) start: u32,
    pub(crate) sequence: u32,
}

/// A block of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Superblock,
    /// With the byte offset of each tag in it.
    Descriptor(Vec<usize>),
    Copy(u64),
    Revoke,
    Commit,
}

/// An image with a live log.
pub(crate) struct Crafted {
    pub(crate) bytes: Vec<u8>,
    /// The parts, by byte offset in the image, with their sequence numbers: the journal's superblock first,
    /// then the log in order.
    pub(crate) parts: Vec<(usize, u32, Part)>,
    /// Every block of the volume that the log has a copy of.
    pub(crate) claims: BTreeSet<u64>,
    pub(crate) format: JournalFormat,
}

fn run(command: &mut Command) -> Option<Vec<u8>> {
    let output = command
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .env("MKE2FS_DETERMINISTIC", "1")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then_some(output.stdout)
}

impl Base {
    /// Makes one. `None` if a tool is missing or does not support a feature.
    pub(crate) fn new(kind: Kind) -> Option<Base> {
        let dir = tempfile::tempdir().ok()?;
        let image = dir.path().join("image");
        const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
        run(tool("mke2fs")
            .args(["-q", "-F", "-m", "0", "-N", "256", "-U", UUID])
            .args(["-E", &format!("hash_seed={UUID}")])
            .args(["-b", &kind.block_bytes.to_string()])
            .args(kind.mke2fs.split(' '))
            .arg(&image)
            .arg(format!("{}k", kind.kib)))?;
        let (journal, reserved) = journal_blocks(&image)?;
        let mut states = vec![std::fs::read(&image).ok()?];
        for step in 0..3 {
            let next = changed(states.last()?, step);
            states.push(next);
        }
        let mut base = Base {
            kind,
            states,
            journal,
            reserved,
            revoked: 0,
            escaped: 0,
            log_end: 0,
            changes: Vec::new(),
            quick: Vec::new(),
            quick_data: BTreeSet::new(),
        };
        base.quick = changed(base.states.last()?, 3);
        let blocks = base.quick.chunks(kind.block_bytes as usize);
        let data = (0..)
            .zip(blocks)
            .filter(|(_, bytes)| bytes.starts_with(&QUICK_BYTES[..512]));
        base.quick_data = data.map(|(block, _)| block).collect();
        base.log_end = base.find_log_end();
        base.changes = (1..base.states.len())
            .map(|to| base.find_changes(to))
            .collect();
        (base.revoked, base.escaped) = base.find_free(dir.path())?;
        Some(base)
    }

    fn block(&self, bytes: &[u8], block: u64) -> Vec<u8> {
        let size = self.kind.block_bytes as usize;
        bytes[block as usize * size..][..size].to_vec()
    }

    /// The byte offset of a block of the journal.
    pub(crate) fn at(&self, journal_block: u32) -> usize {
        (self.journal[journal_block as usize] * u64::from(self.kind.block_bytes)) as usize
    }

    pub(crate) fn superblock_block(&self) -> u64 {
        u64::from(self.kind.block_bytes == 1024)
    }

    /// Whether the journal has an area for fast commits.
    pub(crate) fn fast_commits(&self) -> bool {
        self.log_end as usize != self.journal.len()
    }

    fn find_log_end(&self) -> u32 {
        let sb = JournalSuperblock::read(&self.block(&self.states[0], self.journal[0])).unwrap();
        sb.s_maxlen.get() - sb.s_num_fc_blks.get()
    }

    /// Two blocks that are free in all states: the last ones of the volume.
    fn find_free(&self, dir: &Path) -> Option<(u64, u64)> {
        let path = dir.join("last");
        std::fs::write(&path, &self.quick).ok()?;
        let blocks = self.states[0].len() as u64 / u64::from(self.kind.block_bytes);
        let free = |block: u64| {
            let printed = run(tool("debugfs")
                .args(["-R", &format!("testb {block}")])
                .arg(&path));
            printed.is_some_and(|printed| String::from_utf8_lossy(&printed).contains("not in use"))
        };
        let mut found = (1..blocks).rev().filter(|block| free(*block));
        Some((found.next()?, found.next()?))
    }

    /// The changes that lead to state `to`.
    fn find_changes(&self, to: usize) -> BTreeMap<u64, Vec<u8>> {
        let size = self.kind.block_bytes as usize;
        let (from, to) = (&self.states[to - 1], &self.states[to]);
        let blocks = from.chunks(size).zip(to.chunks(size)).enumerate();
        let changed = blocks
            .filter(|(block, (from, to))| from != to && !self.reserved.contains(&(*block as u64)));
        let mut changes: BTreeMap<u64, Vec<u8>> = changed
            .map(|(block, (_, to))| (block as u64, to.to_vec()))
            .collect();
        let superblock = self.superblock_block();
        if self.fast_commits() {
            // If the log contains the superblock and there is a fast commit area, e2fsck 1.47.0 corrupts its
            // checksum.
            changes.remove(&superblock);
        } else if let Some(block) = changes.get_mut(&superblock) {
            // As in the kernel's copies of it.
            set_needs_recovery(block, superblock);
        }
        changes
    }

    fn format(&self) -> JournalFormat {
        let sb = JournalSuperblock::read(&self.block(&self.states[0], self.journal[0])).unwrap();
        JournalFormat {
            block_bytes: self.kind.block_bytes,
            bit64: self.kind.bit64,
            csum: self.kind.csum,
            csum_seed: crc32c(CRC32C_INIT, &sb.s_uuid),
            uuid: sb.s_uuid,
        }
    }

    /// The number of blocks in the log.
    pub(crate) fn log_blocks(&self) -> u32 {
        let crafted = self.craft(Place {
            start: 1,
            sequence: 1,
        });
        crafted.parts.len() as u32 - 1
    }

    /// The image with the log at `place`.
    pub(crate) fn craft(&self, place: Place) -> Crafted {
        let mut crafted = Crafted {
            bytes: self.states[0].clone(),
            parts: Vec::new(),
            claims: BTreeSet::new(),
            format: self.format(),
        };
        let size = self.kind.block_bytes as usize;
        let at = self.superblock_block() as usize * size;
        set_needs_recovery(&mut crafted.bytes[at..at + size], self.superblock_block());
        self.write_superblock(&mut crafted, place);
        let mut writer = Writer {
            base: self,
            crafted,
            at: place.start,
            sequence: place.sequence,
            sum: !0,
        };
        for step in 0..self.states.len() - 1 {
            writer.transaction(step);
        }
        writer.crafted
    }

    fn write_superblock(&self, crafted: &mut Crafted, place: Place) {
        let at = self.at(0);
        let mut sb = JournalSuperblock::read(&crafted.bytes[at..]).unwrap();
        sb.s_start.set(place.start);
        sb.s_sequence.set(place.sequence);
        let mut incompat = sb.incompat() | JournalIncompat::REVOKE;
        incompat.set(JournalIncompat::BIT64, self.kind.bit64);
        incompat.set(JournalIncompat::FAST_COMMIT, sb.s_num_fc_blks.get() != 0);
        match self.kind.csum {
            JournalCsum::None => {}
            JournalCsum::V1 => sb.s_feature_compat.set(1),
            JournalCsum::V2 => incompat |= JournalIncompat::CSUM_V2,
            JournalCsum::V3 => incompat |= JournalIncompat::CSUM_V3,
        }
        if crafted.format.has_crc32c() {
            sb.s_checksum_type = CHECKSUM_CRC32C;
        }
        // debugfs and the kernel support features only in version 2 superblocks, which mke2fs creates.
        assert_eq!(
            sb.s_header.h_blocktype.get(),
            BlockType::SuperblockV2.to_disk()
        );
        sb.set_incompat(incompat);
        sb.update_checksum();
        crafted.bytes[at..at + size_of::<JournalSuperblock>()].copy_from_slice(sb.as_bytes());
        crafted.parts.push((at, place.sequence, Part::Superblock));
    }
}

struct Writer<'a> {
    base: &'a Base,
    crafted: Crafted,
    at: u32,
    sequence: u32,
    sum: u32,
}

impl Writer<'_> {
    /// Writes the next block of the log.
    fn put(&mut self, bytes: &[u8], part: Part) {
        let at = self.base.at(self.at);
        if matches!(part, Part::Descriptor(_) | Part::Copy(_)) {
            self.sum = crc32_be(self.sum, bytes);
        }
        self.crafted.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.crafted.parts.push((at, self.sequence, part));
        self.at += 1;
        if self.at == self.base.log_end {
            self.at = 1;
        }
    }

    fn empty(&self) -> Vec<u8> {
        vec![0; self.base.kind.block_bytes as usize]
    }

    /// The first transaction logs a block that the last one revokes; the second logs one that must be
    /// escaped, and revokes one that is not logged.
    fn transaction(&mut self, step: usize) {
        self.sum = !0;
        let mut changes = self.base.changes[step].clone();
        let size = self.base.kind.block_bytes as usize;
        match step {
            0 => drop(changes.insert(self.base.revoked, vec![0xEE; size])),
            1 => {
                changes.insert(self.base.escaped, magical(size));
                self.revoke(&[self.base.journal[1]]);
            }
            _ => {
                // These blocks are written to their home after the log, and some are also logged in it.
                let quick = self.base.quick_data.iter().copied();
                let revoked = std::iter::once(self.base.revoked).chain(quick);
                self.revoke(&revoked.collect::<Vec<_>>());
            }
        }
        self.crafted.claims.extend(changes.keys());
        let mut left: Vec<(u64, Vec<u8>)> = changes.into_iter().collect();
        while !left.is_empty() {
            left = self.descriptor(left);
        }
        let (mut block, format) = (self.empty(), self.crafted.format);
        let commit = Commit {
            time: (1_700_000_000, 0),
            crc32: (format.csum == JournalCsum::V1).then_some(self.sum),
        };
        format.write_commit(&mut block, self.sequence, &commit);
        self.put(&block, Part::Commit);
        self.sequence = self.sequence.wrapping_add(1);
    }

    fn revoke(&mut self, blocks: &[u64]) {
        let mut block = self.empty();
        let mut writer = RevokeWriter::new(&mut block, &self.crafted.format, self.sequence);
        for block in blocks {
            assert!(writer.push(FsBlock(*block)));
        }
        writer.finish();
        self.put(&block, Part::Revoke);
    }

    /// Writes one descriptor and its copies; returns the rest of the list.
    fn descriptor(&mut self, mut list: Vec<(u64, Vec<u8>)>) -> Vec<(u64, Vec<u8>)> {
        let format = self.crafted.format;
        let rest = list.split_off(list.len().min(format.tags_per_block()));
        let escaped: Vec<bool> = list.iter_mut().map(|(_, bytes)| escape(bytes)).collect();
        let mut block = self.empty();
        let mut writer = DescriptorWriter::new(&mut block, &format, self.sequence);
        for ((home, bytes), escaped) in list.iter().zip(escaped) {
            let sum = format.data_checksum(self.sequence, bytes);
            assert!(writer.push(FsBlock(*home), escaped, sum));
        }
        writer.finish();
        let tag = |index: usize| 12 + index * format.tag_bytes() + if index > 0 { 16 } else { 0 };
        let tags = (0..list.len()).map(tag).collect();
        self.put(&block, Part::Descriptor(tags));
        for (home, bytes) in &list {
            self.put(bytes, Part::Copy(*home));
        }
        rest
    }
}

/// A block that looks like one of the journal's.
pub(crate) fn magical(size: usize) -> Vec<u8> {
    let mut bytes = vec![0x77; size];
    bytes[..4].copy_from_slice(&JBD2_MAGIC.to_be_bytes());
    bytes
}

/// Sets the flag in the superblock inside `block`, whose number is `number`.
fn set_needs_recovery(block: &mut [u8], number: u64) {
    let at = if number == 0 { 1024 } else { 0 };
    let bytes = &mut block[at..at + 1024];
    let mut sb = Superblock::read(bytes).unwrap();
    sb.s_feature_incompat
        .set((sb.incompat() | Incompat::RECOVER).bits());
    sb.update_checksum();
    bytes.copy_from_slice(sb.as_bytes());
}

/// The journal's blocks, and all blocks of its inode, including those of its map.
fn journal_blocks(image: &Path) -> Option<(Vec<u64>, BTreeSet<u64>)> {
    let printed = run(tool("debugfs").args(["-R", "stat <8>"]).arg(image))?;
    let printed = String::from_utf8_lossy(&printed);
    // "(0-11):24-35, (IND):36, (12-267):37-292, ..."; "(ETB0):40" for extents.
    let (mut journal, mut all) = (BTreeMap::new(), BTreeSet::new());
    let range = |text: &str| -> Option<(u64, u64)> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    let (_, list) = printed
        .split_once("BLOCKS:")
        .or_else(|| printed.split_once("EXTENTS:"))?;
    for word in list
        .split([',', '\n', ' '])
        .filter(|word| word.starts_with('('))
    {
        let (logical, physical) = word[1..].split_once("):")?;
        let (first, last) = range(physical)?;
        all.extend(first..=last);
        if let Some((logical, _)) = range(logical) {
            journal.extend((first..=last).map(|block| (logical + block - first, block)));
        }
    }
    let blocks: Vec<u64> = journal.values().copied().collect();
    (journal.keys().copied().eq(0..blocks.len() as u64) && blocks.len() >= 1024)
        .then_some((blocks, all))
}

/// The state that follows `bytes`.
fn changed(bytes: &[u8], step: u32) -> Vec<u8> {
    let device = load(bytes);
    let volume = OpenOptions::new()
        .write(true)
        .open_block_device(std::sync::Arc::clone(&device) as _)
        .expect("a sound image");
    change(&volume, step).expect("room");
    volume.close().expect("a device in memory");
    let device: &MemoryDevice = &device;
    bytes_of(device)
}

fn change(volume: &Volume, step: u32) -> throughline::Result<()> {
    match step {
        0 => {
            volume.create_dir("/dir")?;
            for n in 0..30 {
                let file = volume.create_file(format!("/dir/file-{n:030}"))?;
                file.write_all_at(&vec![n; 100 * usize::from(n)], 0)?;
            }
            volume.create_file("/long")?.write_all_at(&[3; 40_000], 0)?;
        }
        1 => {
            volume.rename("/dir/file-000000000000000000000000000007", "/seven")?;
            volume
                .create_file("/magic")?
                .write_all_at(&magical(5000), 0)?;
            volume.open_file("/long")?.set_len(10_000)?;
            volume.symlink("seven", "/link")?;
        }
        2 => {
            for n in 10..20 {
                volume.remove_file(format!("/dir/file-{n:030}"))?;
            }
            volume.create_dir("/dir/sub")?;
            volume
                .open_file("/long")?
                .write_all_at(&[4; 5000], 90_000)?;
        }
        _ => volume.create_file(QUICK)?.write_all_at(&QUICK_BYTES, 0)?,
    }
    Ok(())
}
