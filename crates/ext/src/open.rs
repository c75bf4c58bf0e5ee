//! Opens a volume: checks its features and state, recovers it, and marks it as in use.
//!
//! Opening for writing takes these steps, each durable before the next: claim the volume exclusively; write
//! the journal's contents in place and empty the journal; mark the journal as needing recovery (without a
//! journal: mark the volume as not clean); free or truncate the orphans, in the first transactions.
//!
//! No step costs time per group: only the descriptors that are needed are read.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use throughline_block::Disk;
use throughline_extfmt::casefold::CaseFolding;
use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::superblock::{MAX_LAST_MOUNTED, State};
use throughline_extfmt::verity::{self, VeritySuperblock};
use throughline_extfmt::{Geometry, Superblock};
use throughline_fileio::PageCache;
use throughline_journal::recovery::JournalRun;
use throughline_journal::{Budget, Journal, LogOptions};
use throughline_locks::{Mutex, Rank};

use crate::alloc::Alloc;
use crate::attrs::Attrs;
use crate::balloc::{Balloc, Blocks, host_room};
use crate::base::{self, Access, Base, Life, Settings};
use crate::damage::Damage;
use crate::data::Data;
use crate::error::{Error, Reason, Result};
use crate::external::{self, External};
use crate::fs::Fs;
use crate::given_up::GivenUp;
use crate::groups::Groups;
use crate::ialloc::Ialloc;
use crate::inode::Inodes;
use crate::mmp::MmpGuard;
use crate::names::Names;
use crate::options::{JournalDevice, OpenOptions};
use crate::primary::{self, Primary};
use crate::quota::{Quotas, setup};
use crate::reclaim::{self, OrphansProcessed};
use crate::replay::Replayed;
use crate::sums::Sums;
use crate::times::Times;

/// Incompatible features with full support.
const INCOMPAT_WRITE: Incompat = Incompat::FILETYPE
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGE_DIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);

/// Incompatible features supported for reading (`needs_recovery` has its own rules).
const INCOMPAT_READ: Incompat = INCOMPAT_WRITE.union(Incompat::RECOVER);

/// Read-only-compatible features that writes maintain.
const RO_COMPAT_WRITE: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::QUOTA)
    .union(RoCompat::PROJECT)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);

/// What a volume's features allow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Reading and writing.
    Write,
    /// Reading; the text says what prevents writing.
    Read(String),
    /// Nothing; the text says why.
    Refuse(String),
}

/// Checks a volume's features against the tables above.
pub(crate) fn gate(sb: &Superblock) -> Gate {
    let (incompat, ro_compat) = (sb.incompat(), sb.ro_compat());
    if incompat.contains(Incompat::JOURNAL_DEV) {
        return Gate::Refuse("this is an external journal (journal_dev), not a file system".into());
    }
    let unknown = incompat.difference(INCOMPAT_READ);
    if !unknown.is_empty() {
        return Gate::Refuse(format!("incompatible feature {unknown}"));
    }
    if incompat.contains(Incompat::CASEFOLD) && CaseFolding::of(sb).is_none() {
        let encoding = sb.s_encoding.get();
        return Gate::Read(format!(
            "feature casefold with character encoding {encoding} is not maintained by this version"
        ));
    }
    let read_only = ro_compat.difference(RO_COMPAT_WRITE);
    if !read_only.is_empty() {
        return Gate::Read(format!(
            "feature {read_only} is not maintained by this version"
        ));
    }
    match clusters_unwritten(sb) {
        Some(why) => Gate::Read(why.into()),
        None => Gate::Write,
    }
}

/// Why a volume with `bigalloc` cannot be written, if so. `mke2fs` makes none of these.
fn clusters_unwritten(sb: &Superblock) -> Option<&'static str> {
    if !sb.ro_compat().contains(RoCompat::BIGALLOC) {
        return None;
    }
    if !sb.incompat().contains(Incompat::EXTENTS) {
        return Some("bigalloc without extents is not maintained by this version");
    }
    let ratio_log = sb
        .s_log_cluster_size
        .get()
        .checked_sub(sb.s_log_block_size.get())?;
    let blocks = 1_u64.checked_shl(ratio_log)?;
    let is_whole = sb.blocks_count().is_multiple_of(blocks);
    (!is_whole).then_some("a last cluster that is not whole is not maintained by this version")
}

/// What recovery did when a volume was opened for writing after an unclean close.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// The journal's contents, which are now in place; `None` if no replay was needed.
    pub replayed: Option<Replayed>,
    /// Unnamed files that were freed, and truncations that were completed.
    pub orphans: OrphansProcessed,
    /// The volume was not closed cleanly, and has no journal that records the interrupted changes: run
    /// `e2fsck`.
    pub unchecked: bool,
}

impl Recovery {
    /// Whether nothing had to be recovered.
    pub fn is_empty(&self) -> bool {
        self.replayed.is_none() && self.orphans == OrphansProcessed::default()
    }
}

impl Fs {
    /// Opens the volume on `disk`.
    ///
    /// A volume with features that are supported read-only, or with a hash tree behind it, is opened for
    /// reading, even if writing was requested: see [`Base::read_only_reason`]. If its journal needs recovery,
    /// opening for writing recovers it first; opening for reading shows the recovered state and does not
    /// modify the volume.
    ///
    /// # Errors
    /// `Unsupported` for an unknown incompatible feature, by name. For writing, also for an external journal
    /// that was not named, for a volume that has recorded errors ([`OpenOptions::allow_unclean`]), and for a
    /// journal that holds transactions although the superblock says that it needs no recovery.
    /// [`Reason::NotExt`] if this is not an ext volume. `Corrupt` if its superblock contradicts itself or
    /// the device's length, or if its journal is damaged. `Busy` if another machine has it open (`mmp`).
    /// `ReadOnly` for writing to a read-only device.
    pub fn open(disk: Arc<Disk>, options: &OpenOptions) -> Result<Self> {
        let sb = primary::find(&disk)?;
        let gate = gate(&sb);
        if let Gate::Refuse(why) = gate {
            return Err(Error::Unsupported(why));
        }
        let found = Primary::check(&disk, sb)?;
        let disk = match &options.journal {
            Some(JournalDevice(journal)) if external::is_used(&sb) => {
                external::join(&disk, journal, &sb, &found.geo)?
            }
            _ => disk,
        };
        let access = match gate {
            _ if !options.write => Access::Read,
            Gate::Read(why) => Access::Refused(why),
            _ if !options.over_hash_tree && has_hash_tree(&disk, &found.geo)? => {
                Access::Refused(HASH_TREE.to_owned())
            }
            Gate::Write if options.no_replay => {
                let why = "a volume opened without its journal can only be read";
                return Err(Reason::Invalid(why).into());
            }
            _ => return Self::open_to_write(disk, found, options),
        };
        let fs = Self::assemble(disk, found, access, options, None, None)?;
        if crate::replay::is_needed(&sb) && !options.no_replay {
            return Self::open_overlaid(&fs, options);
        }
        Ok(fs)
    }

    /// Opens the volume of `before`, whose journal needs recovery, in its recovered state.
    fn open_overlaid(before: &Self, options: &OpenOptions) -> Result<Self> {
        let disk = crate::replay::overlay(before)?;
        let found = Primary::check(&disk, primary::read(&disk)?)?;
        Self::assemble(disk, found, before.access.clone(), options, None, None)
    }

    /// Whether opening for writing would recover something: a journal to replay, or orphans to process.
    pub fn needs_recovery(&self) -> bool {
        let sb = self.superblock();
        crate::replay::is_needed(&sb)
            || sb.s_last_orphan.get() != 0
            || sb.ro_compat().contains(RoCompat::ORPHAN_PRESENT)
    }

    /// Why this version does not write a volume with these features, whether it is open for writing or not;
    /// `None` if it does.
    pub fn unwritten_features(&self) -> Option<String> {
        match gate(&self.superblock()) {
            Gate::Write => {
                let is_external = external::is_used(&self.superblock());
                is_external.then(|| EXTERNAL_JOURNAL.to_owned())
            }
            Gate::Read(why) | Gate::Refuse(why) => Some(why),
        }
    }

    /// Why this version does not resize a volume with these features; `None` if it does.
    pub fn unresized_features(&self) -> Option<String> {
        let has_clusters = self.geo.ro_compat.contains(RoCompat::BIGALLOC);
        // resize2fs 1.47 refuses, and with -f it writes wrong counts: that is no advice.
        let why = "a volume with bigalloc is not resized: make a new one, and copy the files to it";
        let clustered = has_clusters.then(|| why.to_owned());
        self.unwritten_features().or(clustered)
    }

    /// Claims the volume, recovers it if needed, and marks it as in use.
    fn open_to_write(disk: Arc<Disk>, mut found: Primary, options: &OpenOptions) -> Result<Self> {
        check_device(&disk, &found.superblock, options)?;
        // Before reading anything that another machine may be writing.
        let mmp = if found.geo.incompat.contains(Incompat::MMP) {
            let guard = MmpGuard::take(&disk, &found.superblock, &found.geo)?;
            Some(guard)
        } else {
            None
        };
        let mut uncounted = found.torn;
        let mut recovery = Recovery::default();
        if crate::replay::is_needed(&found.superblock) {
            let before = Self::for_reading(&disk, found, options)?;
            let admit = |disk: &Arc<Disk>, errno| Self::check_recovered(disk, errno, options);
            recovery.replayed = Some(crate::replay::write_home(&before, admit)?);
            drop(before);
            let sb = primary::read(&disk)?;
            found = Primary::check(&disk, sb)?;
            uncounted = true;
        }
        check_state(&found.superblock, options)?;
        recovery.unchecked = !found.superblock.state().contains(State::VALID);
        if recovery.unchecked {
            // As the kernel does.
            tracing::warn!("the volume was not closed cleanly; e2fsck -f should look at it");
        }
        uncounted |= recovery.unchecked;
        let log = find_log(&disk, found.clone(), options)?;
        let mut fs = Self::assemble(disk, found, Access::Write, options, log.as_deref(), mmp)?;
        let counted = match uncounted {
            true => fs.recount(),
            false => Ok(()),
        };
        let started = counted
            .and_then(|()| Ok(fs.cache.writeback().start()?))
            .and_then(|()| setup::start(&fs));
        if let Err(error) = started {
            // A close would write outdated counts to the superblock and mark them as valid.
            fs.abandon();
            return Err(error);
        }
        fs.mark_in_use(options)?;
        recovery.orphans = reclaim::recover(&fs)?;
        fs.recovery = recovery;
        Ok(fs)
    }

    /// Checks that the volume can be written after recovery; `disk` shows the recovered state. `errno` is the
    /// last writer's recorded error, or 0.
    fn check_recovered(disk: &Arc<Disk>, errno: u32, options: &OpenOptions) -> Result<()> {
        let sb = primary::read(disk)?;
        if gate(&sb) != Gate::Write {
            return Err(Error::corrupt(
                "the journal holds a superblock with other features",
            ));
        }
        let found = Primary::check(disk, sb)?;
        let mut marked = found.superblock;
        if errno != 0 {
            marked.set_state(marked.state() | State::ERROR);
        }
        check_state(&marked, options)?;
        let fs = Self::for_reading(disk, found, options)?;
        crate::replay::log_runs_to_write(&fs).map(drop)
    }

    /// Opens the volume without its journal, in order to find and recover the journal.
    fn for_reading(disk: &Arc<Disk>, found: Primary, options: &OpenOptions) -> Result<Self> {
        Self::assemble(Arc::clone(disk), found, Access::Read, options, None, None)
    }

    /// Opens a second instance of an open volume, on a private device. Up to `most_bytes` of metadata may be
    /// changed; then the instance is [abandoned](Fs::abandon). Nothing is marked or recovered.
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub(crate) fn open_in_memory(disk: Arc<Disk>, most_bytes: usize) -> Result<Self> {
        let sb = primary::read(&disk)?;
        if let Gate::Read(why) | Gate::Refuse(why) = gate(&sb) {
            let text = format!("replaying fast commits: {why}");
            return Err(Error::Unsupported(text));
        }
        let found = Primary::check(&disk, sb)?;
        let options = OpenOptions {
            write: true,
            use_reserved: Some(true),
            metadata_cache_bytes: most_bytes.saturating_mul(2),
            // Nothing may be committed by age: all of it is one transaction.
            commit_interval: Duration::from_secs(24 * 3600),
            ..OpenOptions::default()
        };
        let fs = Self::assemble(disk, found, Access::Write, &options, None, None)?;
        fs.recount()?;
        setup::start(&fs)?;
        Ok(fs)
    }

    fn assemble(
        disk: Arc<Disk>,
        Primary {
            superblock: sb,
            geo,
            ..
        }: Primary,
        access: Access,
        options: &OpenOptions,
        log: Option<&[JournalRun]>,
        mmp: Option<MmpGuard>,
    ) -> Result<Self> {
        let cache = PageCache::new(Arc::clone(&disk), &options.cache);
        if let Some(age) = options.dirty_age {
            cache.writeback().set_age(age);
        }
        let base = Base {
            journal: journal(&disk, &geo, &access, options, log)?,
            external: External::of(&sb, &geo, options),
            superblock: Mutex::ranked(Rank::Super, sb),
            sums: Sums::new(&geo, &disk, sb.s_kbytes_written.get()),
            quotas: Quotas::new(&sb, options.limits),
            disk,
            geo,
            access,
            mmp,
            changed: AtomicBool::new(false),
            damage: Damage::default(),
            given_up: GivenUp::default(),
            life: Life::new(&sb),
            settings: Settings {
                commit_interval: options.commit_interval,
                on_error: options.on_error,
            },
            clock: options.clock.clone(),
        };
        let balloc = Balloc::new(&sb, &base.geo, options);
        let blocks = Blocks::new(Groups::new(base), balloc);
        let ialloc = Ialloc::new(&sb, options.seed);
        let inodes = Inodes::new(Alloc::new(blocks, ialloc), Times::new(options));
        let data = Arc::new(Data::new(inodes, cache, options));
        Ok(Self {
            recovery: Recovery::default(),
            names: Names::new(Attrs::new(data, &sb, options.acl), &sb),
        })
    }

    /// Marks the volume as in use, directly on disk. With a journal, the mark says that the journal must be
    /// replayed, and precedes the first transaction. Without one, it says that the volume must be checked.
    fn mark_in_use(&self, options: &OpenOptions) -> Result<()> {
        let marked = {
            let mut sb = self.superblock.lock();
            if self.has_log() {
                let incompat = sb.incompat() | Incompat::RECOVER;
                sb.s_feature_incompat.set(incompat.bits());
            } else {
                let state = sb.state() - State::VALID;
                sb.set_state(state);
            }
            let mounts = sb.s_mnt_count.get().saturating_add(1);
            sb.s_mnt_count.set(mounts);
            sb.set_mtime(self.now().seconds.max(0).cast_unsigned());
            if let Some(place) = &options.last_mounted {
                set_last_mounted(&mut sb, place);
            }
            self.stamp(&mut sb);
            *sb
        };
        base::edit_primary(self, |home, _| *home = marked)
    }

    /// Recomputes the superblock's counts, which may lag behind the descriptors after an unclean shutdown.
    fn recount(&self) -> Result<()> {
        let (mut blocks, mut inodes) = (0u64, 0u32);
        for group in (0..self.geo.groups).map(throughline_extfmt::GroupNumber) {
            self.read_descriptors_ahead(group);
            let (free_blocks, free_inodes) = self.free_counts(group)?;
            blocks = blocks.saturating_add(free_blocks.into());
            inodes = inodes.saturating_add(free_inodes);
        }
        self.balloc.set_free(blocks);
        self.ialloc.set_free(inodes);
        Ok(())
    }
}

/// The journal of a volume; on disk if it has one.
fn journal(
    disk: &Arc<Disk>,
    geo: &Geometry,
    access: &Access,
    options: &OpenOptions,
    log: Option<&[JournalRun]>,
) -> Result<Journal> {
    let half = options.metadata_cache_bytes as u64 / 2;
    let budget = Budget {
        clean_bytes: half,
        dirty_bytes: half,
    };
    let (disk, bytes) = (Arc::clone(disk), geo.block_bytes);
    Ok(match (access, log) {
        (Access::Write, Some(runs)) => {
            if options.allocate {
                // A journal outside has its own place.
                let inside = options.journal.is_none().then_some(runs);
                host_room::for_journal(&disk, geo, inside)?;
            }
            let log = LogOptions {
                clock: options.clock.clone(),
                commit_interval: options.commit_interval,
                checksums: geo.ro_compat.contains(RoCompat::METADATA_CSUM),
                bit64: geo.incompat.contains(Incompat::BIT64),
            };
            Journal::with_log(disk, bytes, geo.blocks, runs, budget, &log)?
        }
        (Access::Write, None) => {
            if options.allocate {
                host_room::for_journal(&disk, geo, None)?;
            }
            Journal::without_journal(disk, bytes, budget, options.commit_interval)?
        }
        _ => Journal::read_only(disk, bytes, budget)?,
    })
}

/// Finds the blocks of the journal, which must be empty; `None` for a volume without one.
fn find_log(
    disk: &Arc<Disk>,
    found: Primary,
    options: &OpenOptions,
) -> Result<Option<Vec<JournalRun>>> {
    if !found.geo.compat.contains(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    let fs = Fs::for_reading(disk, found, options)?;
    crate::replay::check_empty(&fs)?;
    crate::replay::log_runs_to_write(&fs)
}

/// Checks that the device can be written and the journal is there.
fn check_device(disk: &Disk, sb: &Superblock, options: &OpenOptions) -> Result<()> {
    if disk.info().read_only {
        return Err(Reason::ReadOnly.into());
    }
    if external::is_used(sb) && options.journal.is_none() {
        return Err(unwritable(&format!(
            "{EXTERNAL_JOURNAL}: {}. Or open it read-only",
            external::NEXT
        )));
    }
    Ok(())
}

const HASH_TREE: &str = "a hash tree of dm-verity is behind the volume, and would not fit it any more: write to \
                         an overlay (--overlay FILE), or pack it anew";

fn has_hash_tree(disk: &Disk, geo: &Geometry) -> Result<bool> {
    let place = verity::place_behind(geo, disk.len_bytes());
    let is_block = u64::from(disk.limits().logical_block_bytes) <= verity::BLOCK_BYTES;
    let Some(place) = place.filter(|_| is_block) else {
        return Ok(false);
    };
    let mut block = vec![0; verity::BLOCK_BYTES as usize];
    disk.read_at(place, &mut block)?;
    Ok(VeritySuperblock::read(&block).is_some())
}

const EXTERNAL_JOURNAL: &str = "the journal is on another device (external journal)";

/// Checks that the state of the recovered volume allows writing.
fn check_state(sb: &Superblock, options: &OpenOptions) -> Result<()> {
    if options.allow_unclean {
        return Ok(());
    }
    if sb.state().contains(State::ERROR) {
        return Err(unwritable(
            "the volume has recorded errors. Run `e2fsck -f` on it, or open it read-only",
        ));
    }
    Ok(())
}

fn unwritable(why: &str) -> Error {
    Error::Unsupported(format!("writing: {why}"))
}

/// Sets `s_last_mounted`, truncated to the room for it.
fn set_last_mounted(sb: &mut Superblock, place: &str) {
    let len = place.len().min(MAX_LAST_MOUNTED);
    sb.s_last_mounted = [0; 64];
    if let (Some(to), Some(from)) = (
        sb.s_last_mounted.get_mut(..len),
        place.as_bytes().get(..len),
    ) {
        to.copy_from_slice(from);
    }
}
