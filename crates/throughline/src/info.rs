//! Facts about a volume and its device: [`VolumeInfo`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throughline_device::{DeviceKind, Limits};
use throughline_ext::{
    Compat, Corrupt, Fs, Incompat, LogInfo, OnError, RoCompat, StatFs, State, Superblock,
};
use uuid::Uuid;

use crate::cache::CacheState;
use crate::error::Result;

/// Facts about a volume and its device, as `throughline info` prints them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VolumeInfo {
    /// `ext2`, `ext3` or `ext4`, by its features.
    pub format: &'static str,
    /// The label; empty if there is none.
    pub label: String,
    /// The UUID, as text.
    pub uuid: String,
    /// Names of all features, as printed by `dumpe2fs`.
    pub features: Vec<String>,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// All blocks, including those of metadata.
    pub blocks: u64,
    /// Number of block groups.
    pub groups: u32,
    /// Inode size in bytes.
    pub inode_bytes: u16,
    /// Space and inodes, used and free.
    pub space: StatFs,
    /// The volume was closed cleanly (or, if open for writing, will be).
    pub clean: bool,
    /// The superblock records errors.
    pub errors: bool,
    /// The journal's state.
    pub journal: JournalState,
    /// Details of an internal journal.
    pub log: Option<LogInfo>,
    /// The damage that prevents an internal journal from being read.
    pub log_damage: Option<Corrupt>,
    /// Longest time until a metadata change is committed.
    pub commit_interval: Duration,
    /// Age at which dirty file data is written back.
    pub dirty_age: Duration,
    /// Reaction to damage found while the volume is open for writing.
    pub on_error: OnError,
    /// Errors recorded since the last check.
    pub error_count: u32,
    /// Why the volume is read-only although writing was requested; `None` otherwise.
    pub read_only_reason: Option<String>,
    /// When the volume was created.
    pub made: Option<SystemTime>,
    /// When it was last written to.
    pub written: Option<SystemTime>,
    /// When it was last checked.
    pub checked: Option<SystemTime>,
    /// Where it was last mounted; empty if never.
    pub last_mounted: String,
    /// The underlying device.
    pub device: DeviceState,
    /// The page cache.
    pub cache: CacheState,
}

/// The state of a volume's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// There is none.
    None,
    /// The journal is empty, or its contents are all in place.
    Clean,
    /// The journal holds changes that are not in place yet.
    NeedsRecovery,
    /// The volume is open for writing and uses the journal.
    InUse,
    /// The journal is on another device, and empty.
    External,
}

impl JournalState {
    /// The state as text.
    pub fn as_str(self) -> &'static str {
        match self {
            JournalState::None => "none",
            JournalState::Clean => "clean",
            JournalState::NeedsRecovery => "needs recovery",
            JournalState::InUse => "in use",
            JournalState::External => "on another device",
        }
    }
}

/// A device and the engine that drives it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceState {
    /// The path, or a description for devices without one.
    pub name: String,
    /// `regular file`, `block device`, `memory`, …
    pub kind: &'static str,
    /// The engine that performs the I/O.
    pub engine: &'static str,
    /// Whether I/O bypasses the host's page cache.
    pub direct: bool,
    /// Size in bytes.
    pub len_bytes: u64,
    /// Target size of data I/Os, in bytes.
    pub bio_target_bytes: u32,
    /// The device's limits.
    pub limits: Limits,
}

pub(crate) fn of(fs: &Fs) -> Result<VolumeInfo> {
    let geometry = fs.geometry();
    let sb = fs.superblock();
    let space = fs.statfs()?;
    let (log, log_damage) = match fs.log_info() {
        Ok(log) => (log, None),
        Err(throughline_ext::Error::Corrupt(damage)) => (None, Some(damage)),
        Err(other) => return Err(other.into()),
    };
    Ok(VolumeInfo {
        format: format_of(&sb),
        label: String::from_utf8_lossy(&space.label).into_owned(),
        uuid: Uuid::from_bytes(space.uuid).to_string(),
        features: geometry.feature_names(),
        block_bytes: geometry.block_bytes,
        blocks: geometry.blocks,
        groups: geometry.groups,
        inode_bytes: geometry.inode_bytes,
        clean: sb.state().contains(State::VALID) || !fs.is_read_only(),
        errors: sb.state().contains(State::ERROR),
        journal: journal_of(fs, &sb),
        log,
        log_damage,
        commit_interval: fs.commit_interval(),
        dirty_age: fs.cache().writeback().age(),
        on_error: fs.on_error(),
        error_count: sb.s_error_count.get(),
        read_only_reason: fs.read_only_reason().map(str::to_owned),
        made: moment(sb.mkfs_time()),
        written: moment(sb.wtime()),
        checked: moment(sb.lastcheck()),
        last_mounted: String::from_utf8_lossy(sb.last_mounted()).into_owned(),
        device: device_of(fs),
        cache: CacheState::of(fs.cache()),
        space,
    })
}

fn device_of(fs: &Fs) -> DeviceState {
    let disk = fs.disk();
    let info = disk.info();
    DeviceState {
        name: info.name.clone(),
        kind: match info.kind {
            DeviceKind::RegularFile => "regular file",
            DeviceKind::BlockDevice => "block device",
            DeviceKind::Memory => "memory",
            DeviceKind::Null => "null",
            DeviceKind::Other => "other",
        },
        engine: info.engine,
        direct: info.direct,
        len_bytes: fs.device_bytes(),
        bio_target_bytes: disk.bio_target_bytes(),
        limits: info.limits,
    }
}

/// Distinguishes the formats as `blkid` does: a feature that only ext4 has means ext4, else a journal means
/// ext3.
fn format_of(sb: &Superblock) -> &'static str {
    let ext3_incompat =
        Incompat::FILETYPE | Incompat::RECOVER | Incompat::META_BG | Incompat::JOURNAL_DEV;
    let ext3_ro_compat = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE;
    if !ext3_incompat.contains(sb.incompat()) || !ext3_ro_compat.contains(sb.ro_compat()) {
        "ext4"
    } else if sb.compat().contains(Compat::HAS_JOURNAL) {
        "ext3"
    } else {
        "ext2"
    }
}

/// From memory, without I/O.
pub(crate) fn journal_of(fs: &Fs, sb: &Superblock) -> JournalState {
    if !sb.compat().contains(Compat::HAS_JOURNAL) {
        JournalState::None
    } else if !fs.is_read_only() {
        JournalState::InUse
    } else if sb.incompat().contains(Incompat::RECOVER) {
        JournalState::NeedsRecovery
    } else if sb.s_journal_inum.get() == 0 {
        JournalState::External
    } else {
        JournalState::Clean
    }
}

/// Zero means never.
fn moment(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH
        .checked_add(Duration::from_secs(seconds))
        .filter(|_| seconds != 0)
}
