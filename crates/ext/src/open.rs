//! Opening a volume: which features allow what, whether it is in a state to be written, and marking it as in use.
//!
//! Nothing here costs per group: of the descriptors, only those are read that something else asks for.

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use throughline_block::Disk;
use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, State};
use throughline_extfmt::{Geometry, Superblock};
use throughline_fileio::PageCache;
use throughline_journal::recovery::JournalRun;
use throughline_journal::{Budget, Journal, LogOptions};

use crate::balloc::Balloc;
use crate::dir::HashRules;
use crate::error::{Error, Reason, Result};
use crate::fs::{Access, Fs, Life};
use crate::groups::Groups;
use crate::ialloc::Ialloc;
use crate::inode::InodeTable;
use crate::mmp::MmpGuard;
use crate::options::OpenOptions;
use crate::orphan::Orphans;

/// Incompatible features that are understood in full.
const INCOMPAT_WRITE: Incompat = Incompat::FILETYPE
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGE_DIR)
    .union(Incompat::INLINE_DATA);

/// Incompatible features that are understood as far as reading goes (`needs_recovery` has rules of its own).
const INCOMPAT_READ: Incompat = INCOMPAT_WRITE
    .union(Incompat::RECOVER)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);

/// Read-only-compatible features that are maintained when writing.
const RO_COMPAT_WRITE: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::PROJECT)
    .union(RoCompat::ORPHAN_PRESENT);

/// What the features of a volume allow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Reading and writing.
    Write,
    /// Reading; the text names what stands against writing.
    Read(String),
    /// Nothing; the text names why.
    Refuse(String),
}

/// Looks features up in the tables above.
pub(crate) fn gate(sb: &Superblock) -> Gate {
    let (incompat, ro_compat) = (sb.incompat(), sb.ro_compat());
    if incompat.contains(Incompat::JOURNAL_DEV) {
        return Gate::Refuse("this is an external journal (journal_dev), not a file system".into());
    }
    let unknown = incompat.difference(INCOMPAT_READ);
    if !unknown.is_empty() {
        return Gate::Refuse(format!("incompatible feature {unknown}"));
    }
    let read_only = incompat.difference(INCOMPAT_WRITE | Incompat::RECOVER);
    if !read_only.is_empty() {
        return Gate::Read(format!(
            "feature {read_only} is not maintained by this version"
        ));
    }
    let read_only = ro_compat.difference(RO_COMPAT_WRITE);
    if !read_only.is_empty() {
        return Gate::Read(format!(
            "feature {read_only} is not maintained by this version"
        ));
    }
    Gate::Write
}

impl Fs {
    /// Opens the volume on `disk`.
    ///
    /// A volume with features that can only be read opens for reading, whatever was asked: see [`Fs::read_only_reason`].
    ///
    /// # Errors
    /// `Unsupported` for an incompatible feature that is not known, by name; and, where writing was asked, for a journal
    /// that needs recovery or lies on another device, and for a volume that was not closed cleanly. `Corrupt` for what is
    /// no ext volume or one whose superblock contradicts itself or the device's length. `Busy` for one that another
    /// machine has open (`mmp`). `ReadOnly` for writing to a device that can only be read.
    pub fn open(disk: Arc<Disk>, options: &OpenOptions) -> Result<Self> {
        let sb = read_superblock(&disk)?;
        let gate = gate(&sb);
        if let Gate::Refuse(why) = gate {
            return Err(Error::Unsupported(why));
        }
        let geo = sb.validate()?;
        check_length(&disk, &geo)?;
        let access = match gate {
            _ if !options.write => Access::Read,
            Gate::Read(why) => Access::Refused(why),
            _ => Access::Write,
        };
        if access == Access::Write {
            check_writable(&disk, &sb, options)?;
        }
        if access == Access::Write {
            let log = Self::find_log(&disk, sb, geo.clone(), options)?;
            let fs = Self::assemble(disk, sb, geo, access, options, log.as_deref())?;
            fs.start_writing(options)?;
            return Ok(fs);
        }
        let fs = Self::assemble(disk, sb, geo, access, options, None)?;
        if crate::replay::is_needed(&sb) {
            return Self::open_overlaid(&fs, options);
        }
        Ok(fs)
    }

    /// Where the blocks of the journal are, which holds nothing; `None` for a volume without one.
    fn find_log(
        disk: &Arc<Disk>,
        sb: Superblock,
        geo: Geometry,
        options: &OpenOptions,
    ) -> Result<Option<Vec<JournalRun>>> {
        if !geo.compat.contains(Compat::HAS_JOURNAL) {
            return Ok(None);
        }
        let fs = Self::assemble(Arc::clone(disk), sb, geo, Access::Read, options, None)?;
        crate::replay::check_empty(&fs)?;
        crate::replay::log_runs(&fs)
    }

    /// Opens the volume of `before`, whose journal needs recovery, as it will be after it.
    fn open_overlaid(before: &Self, options: &OpenOptions) -> Result<Self> {
        let disk = crate::replay::overlay(before)?;
        let sb = read_superblock(&disk)?;
        let geo = sb.validate()?;
        check_length(&disk, &geo)?;
        Self::assemble(disk, sb, geo, before.access.clone(), options, None)
    }

    fn assemble(
        disk: Arc<Disk>,
        sb: Superblock,
        geo: Geometry,
        access: Access,
        options: &OpenOptions,
        log: Option<&[JournalRun]>,
    ) -> Result<Self> {
        let half = options.metadata_cache_bytes as u64 / 2;
        let budget = Budget {
            clean_bytes: half,
            dirty_bytes: half,
        };
        let (on, bytes) = (Arc::clone(&disk), geo.block_bytes);
        let journal = match (&access, log) {
            (Access::Write, None) => {
                Journal::without_journal(on, bytes, budget, options.commit_interval)?
            }
            (Access::Write, Some(runs)) => {
                let log = LogOptions {
                    commit_interval: options.commit_interval,
                    checksums: geo.ro_compat.contains(RoCompat::METADATA_CSUM),
                    bit64: geo.incompat.contains(Incompat::BIT64),
                };
                Journal::with_log(on, bytes, geo.blocks, runs, budget, &log)?
            }
            _ => Journal::read_only(on, bytes, budget)?,
        };
        Ok(Self {
            cache: PageCache::new(Arc::clone(&disk), &options.cache),
            balloc: Balloc::new(&sb, &geo, options.use_reserved),
            ialloc: Ialloc::new(&sb),
            groups: Groups::default(),
            inodes: InodeTable::default(),
            rename: Mutex::new(()),
            hash_rules: HashRules::new(&sb),
            orphans: Orphans::default(),
            mmp: OnceLock::new(),
            changed: AtomicBool::new(false),
            life: Life {
                state_at_open: sb.state(),
                kbytes_at_open: sb.s_kbytes_written.get(),
                error_found: AtomicBool::new(false),
                closed: AtomicBool::new(false),
            },
            superblock: Mutex::new(sb),
            disk,
            journal,
            geo,
            access,
        })
    }

    /// Takes the volume: no other machine has it, and it is marked as in use until it is closed.
    fn start_writing(&self, options: &OpenOptions) -> Result<()> {
        if self.geo.incompat.contains(Incompat::MMP) {
            let guard = MmpGuard::take(self)?;
            self.mmp.get_or_init(|| guard);
        }
        self.mark_recovery(true)?;
        if !self.life.state_at_open.contains(State::VALID) {
            self.recount()?;
        }
        let has_log = self.geo.compat.contains(Compat::HAS_JOURNAL);
        self.write_super(|sb| {
            if !has_log {
                sb.set_state(sb.state() - State::VALID);
            }
            sb.s_mnt_count.set(sb.s_mnt_count.get().saturating_add(1));
            sb.set_mtime(self.now().seconds.max(0).cast_unsigned());
            if let Some(place) = &options.last_mounted {
                set_last_mounted(sb, place);
            }
        })?;
        self.journal.sync()?;
        crate::orphan::recover(self).map(drop)
    }

    /// After an unclean end, the superblock's counts may be older than the descriptors'.
    fn recount(&self) -> Result<()> {
        let (mut blocks, mut inodes) = (0u64, 0u32);
        for group in (0..self.geo.groups).map(throughline_extfmt::GroupNumber) {
            self.read_descriptors_ahead(group);
            let desc = self.group_desc(group)?;
            blocks = blocks.saturating_add(desc.free_blocks().into());
            inodes = inodes.saturating_add(desc.free_inodes());
        }
        self.balloc.set_free(blocks);
        self.ialloc.set_free(inodes);
        Ok(())
    }
}

/// Reads the primary superblock. Larger logical blocks than 1 KiB are read whole.
pub(crate) fn read_superblock(disk: &Disk) -> Result<Superblock> {
    let logical = disk.limits().logical_block_bytes.max(1) as usize;
    let start = SUPERBLOCK_OFFSET as usize / logical * logical;
    let end = (SUPERBLOCK_OFFSET as usize + SUPERBLOCK_BYTES).next_multiple_of(logical);
    if disk.len_bytes() < end as u64 {
        return Err(Error::corrupt(format!(
            "no ext file system: the device has only {} bytes",
            disk.len_bytes()
        )));
    }
    let mut bytes = vec![0; end - start];
    disk.read_at(start as u64, &mut bytes)?;
    let superblock = bytes
        .get(SUPERBLOCK_OFFSET as usize - start..)
        .unwrap_or_default();
    Superblock::read(superblock).map_err(|e| Error::corrupt(format!("no ext file system: {e}")))
}

/// A volume that ends behind its device has lost its end.
fn check_length(disk: &Disk, geo: &Geometry) -> Result<()> {
    let volume_bytes = geo.blocks.saturating_mul(geo.block_bytes.into());
    if volume_bytes > disk.len_bytes() {
        return Err(Error::corrupt(format!(
            "the volume has {volume_bytes} bytes, its device only {}: the image is truncated",
            disk.len_bytes()
        )));
    }
    Ok(())
}

/// Whether the state of the volume allows writing.
fn check_writable(disk: &Disk, sb: &Superblock, options: &OpenOptions) -> Result<()> {
    if disk.info().read_only {
        return Err(Reason::ReadOnly.into());
    }
    let refuse = |why: &str| Err(Error::Unsupported(format!("writing: {why}")));
    if sb.incompat().contains(Incompat::RECOVER) {
        return refuse(
            "the journal needs recovery. Run `e2fsck -p` on the image (or mount and unmount it once), or open it read-only",
        );
    }
    if sb.compat().contains(Compat::HAS_JOURNAL) && sb.s_journal_inum.get() == 0 {
        return refuse("the journal is on another device (external journal). Open it read-only");
    }
    if options.allow_unclean {
        return Ok(());
    }
    if sb.state().contains(State::ERROR) {
        return refuse(
            "the volume has recorded errors. Run `e2fsck -f` on it, or open it read-only",
        );
    }
    if !sb.state().contains(State::VALID) {
        return refuse(
            "the volume was not closed cleanly. Run `e2fsck -f` on it, or open it read-only",
        );
    }
    Ok(())
}

/// Sets `s_last_mounted`, cut where the field ends.
fn set_last_mounted(sb: &mut Superblock, place: &str) {
    let len = place.len().min(sb.s_last_mounted.len());
    sb.s_last_mounted = [0; 64];
    if let (Some(to), Some(from)) = (
        sb.s_last_mounted.get_mut(..len),
        place.as_bytes().get(..len),
    ) {
        to.copy_from_slice(from);
    }
}
