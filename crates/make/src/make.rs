//! Makes a volume in a file, on a block device, or on any device of the caller's.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::{
    BlockDevice, DeviceInfo, DeviceKind, EngineChoice, LockMode, OpenOptions,
};
use throughline_extfmt::features::Compat;
use throughline_extfmt::superblock::OnError;

use crate::error::{Error, Result};
use crate::journal_device::{self, External};
use crate::options::{MkfsOptions, VolumeSize};
use crate::plan::Plan;
use crate::request::Request;
use crate::resolve::{self, Manner, Target};
use crate::write::{self, Clear, Found, How};
use crate::writer::read_bytes;

/// The start of a target that is looked at before it is overwritten: where file systems, partition tables and
/// volume managers have their signatures.
pub(crate) const LOOKED_AT_BYTES: u64 = 128 << 10;

/// A volume that was made, or would be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Made {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Inodes of the volume.
    pub inodes: u32,
    /// Block groups.
    pub groups: u32,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode.
    pub inode_bytes: u16,
    /// Free blocks.
    pub free_blocks: u64,
    /// Blocks reserved for root.
    pub reserved_blocks: u64,
    /// The first block of the first group.
    pub first_data_block: u64,
    /// Blocks that hold copies of the superblock.
    pub backups: Vec<u64>,
    /// Blocks of the journal; 0 if there is none.
    pub journal_blocks: u64,
    /// Whether a journal was asked for that the volume is too small for.
    pub too_small_for_journal: bool,
    /// The names of the features.
    pub features: Vec<String>,
    /// The UUID.
    pub uuid: [u8; 16],
    /// The label.
    pub label: Vec<u8>,
    /// The behaviour on damage.
    pub on_error: OnError,
}

impl MkfsOptions {
    /// Makes a volume in the file or on the block device `path`. A file that does not exist is created, and
    /// one that is shorter than [`size`](MkfsOptions::size) is lengthened.
    ///
    /// The target is locked meanwhile, as an open volume is. When the call returns, the volume is durable.
    /// **After a crash before that, the target holds no volume, or part of one.**
    ///
    /// # Errors
    /// - [`Error::Invalid`], [`Error::Unsupported`]: options, with what is allowed. Nothing was written.
    /// - [`Error::Occupied`]: the target is not blank, and [`overwrite`](MkfsOptions::overwrite) is not set.
    /// - [`Error::Open`]: it cannot be opened; it is in use, mounted or locked.
    /// - [`Error::Device`].
    pub fn make(&self, path: impl AsRef<Path>) -> Result<Made> {
        let path = path.as_ref();
        let found = fs::metadata(path);
        let exists = match &found {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::NotFound,
        };
        if !exists {
            // Refused before the file is created.
            self.plan(None)?;
        }
        let is_device = found.is_ok_and(|found| found.file_type().is_block_device());
        let mut open = OpenOptions::new()
            .write(true)
            .create(!exists)
            .lock(LockMode::Exclusive);
        if !is_device {
            // Hundreds of small writes into holes: through the host's cache, the host allocates their blocks
            // at once when they are synced, and no write waits for the disk.
            open = open.direct(false).engine(EngineChoice::Threads);
        }
        let device = open.open(path).map_err(Error::open(path))?;
        let made = self.make_on(device);
        if made.is_err() && !exists {
            // The file is ours, and of no use.
            let _ = fs::remove_file(path);
        }
        made
    }

    /// The end of the volume in the target, if a size was given.
    pub(crate) fn end_bytes(&self) -> Result<Option<u64>> {
        let bytes = match self.size {
            None => return Ok(None),
            Some(VolumeSize::Bytes(bytes)) => Some(bytes),
            Some(VolumeSize::Blocks(blocks)) => {
                let target = Target { bytes: None };
                let (request, _) = resolve::resolve(self, target)?;
                blocks.checked_mul(u64::from(request.block_bytes))
            }
        };
        bytes
            .and_then(|bytes| bytes.checked_add(self.offset()))
            .filter(|end| i64::try_from(*end).is_ok())
            .map(Some)
            .ok_or_else(|| Error::invalid("the volume would end beyond 2^63 bytes"))
    }

    /// Where the volume begins in the target.
    fn offset(&self) -> u64 {
        self.extended.offset.unwrap_or(0)
    }

    /// Makes a volume on a device. One that can be resized, as a file, is lengthened if it is too short.
    /// **The volume is durable when this returns. After a crash before that, the device holds no volume, or
    /// part of one.**
    ///
    /// # Errors
    /// As [`MkfsOptions::make`].
    pub fn make_on(&self, device: Arc<dyn BlockDevice>) -> Result<Made> {
        let disk = Disk::new(device)?;
        self.for_device(disk.info())?.make_in(&disk)
    }

    /// The same options, with blocks that are no smaller than the sectors of a device, which does no
    /// smaller I/O.
    ///
    /// # Errors
    /// [`Error::Invalid`] if smaller blocks were asked for.
    pub(crate) fn for_device(&self, device: &DeviceInfo) -> Result<MkfsOptions> {
        match device.kind {
            DeviceKind::RegularFile => Ok(self.clone()),
            _ => {
                self.with_least_blocks(device.limits.logical_block_bytes, "the sectors of a device")
            }
        }
    }

    /// The same options, with blocks of at least so many bytes, because `why` have them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if smaller ones were asked for.
    pub(crate) fn with_least_blocks(&self, bytes: u32, why: &str) -> Result<MkfsOptions> {
        if let Some(asked) = self.block_bytes.filter(|asked| *asked < bytes) {
            return Err(Error::invalid(format!(
                "blocks of {asked} bytes (-b) are smaller than {why}: -b {bytes} is the least here"
            )));
        }
        let mut options = self.clone();
        options.min_block_bytes(self.min_block_bytes.unwrap_or(0).max(bytes));
        Ok(options)
    }

    fn make_in(&self, disk: &Disk) -> Result<Made> {
        let offset = self.offset();
        let len = disk.len_bytes();
        let end = self.end_bytes()?.unwrap_or(len);
        if end > len && !disk.is_resizable() {
            return Err(Error::invalid(format!(
                "a volume that ends at byte {end} does not fit the device, which has {len} bytes"
            )));
        }
        let room = len.max(end).checked_sub(offset).ok_or_else(|| {
            Error::invalid(format!("-E offset={offset}: the target has {len} bytes"))
        })?;
        let is_file = disk.info().kind == DeviceKind::RegularFile;
        let is_blank = is_file && (offset >= len || disk.seek_data(offset)?.is_none());
        if !self.overwrite && !self.only_supers && !is_blank {
            refuse_occupied(disk, offset)?;
        }
        let (mut request, mut manner) = resolve::resolve(self, Target { bytes: Some(room) })?;
        if is_file && len > 0 && !self.only_supers {
            manner.becomes_holes(&mut request);
        }
        let how = self.how(manner, is_blank);
        let lengthen = || match end > len {
            true => disk.set_len(end),
            false => Ok(()),
        };
        if journal_device::is_asked(&request) {
            journal_device::check(&request)?;
            lengthen()?;
            journal_device::make(&request, disk, how)?;
            return Ok(journal_device::made(&request));
        }
        let (plan, external) = self.planned(&request, true)?;
        lengthen()?;
        write::write(&plan, disk, how, &Found::default())?;
        if let Some(external) = external.filter(|_| !self.only_supers) {
            external.add_user(&request.uuid)?;
        }
        Ok(made(&plan, &request))
    }

    /// The plan of a volume, and the journal device that it gets.
    fn planned(&self, request: &Request, write: bool) -> Result<(Plan<'static>, Option<External>)> {
        let Some(path) = &self.journal.device else {
            return Ok((Plan::new(request)?, None));
        };
        if self.journal.size_mib.is_some() || self.journal.location.is_some() {
            return Err(Error::invalid(
                "-J device=: size= and location= are of a journal in the volume",
            ));
        }
        let features = request.features.compat & (Compat::ORPHAN_FILE | Compat::FAST_COMMIT);
        if let Some(name) = features.names().first() {
            return Err(Error::unsupported(format!(
                "the feature {name} together with a journal outside the volume (-J device=)"
            )));
        }
        let external = External::open(path, request.block_bytes, write)?;
        let mut inside = request.clone();
        inside.features.compat.remove(Compat::HAS_JOURNAL);
        let mut plan = Plan::new(&inside)?;
        external.join(&mut plan);
        Ok((plan, Some(external)))
    }

    fn how(&self, manner: Manner, is_blank: bool) -> How {
        How {
            offset: self.offset(),
            clear: if self.only_supers {
                Clear::Nothing
            } else if is_blank {
                Clear::Blank
            } else if manner.discard {
                Clear::All
            } else {
                Clear::Needed
            },
            lazy_journal: manner.lazy_journal,
            lazy_itable: manner.lazy_itable,
        }
    }

    /// What [`MkfsOptions::make`] would make in the file or on the block device `path`. `-n`
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Unsupported`], [`Error::Open`].
    pub fn plan_for(&self, path: impl AsRef<Path>) -> Result<Made> {
        let path = path.as_ref();
        let failed = Error::open(path);
        match fs::metadata(path) {
            Ok(_) => {
                let device = OpenOptions::new().open(path).map_err(failed)?;
                let options = self.for_device(device.info())?;
                options.plan(Some(device.len_bytes()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => self.plan(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// What [`MkfsOptions::make`] would make in a target of `bytes` bytes (`None`: it does not exist).
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Unsupported`].
    pub fn plan(&self, bytes: Option<u64>) -> Result<Made> {
        let target = Target {
            bytes: bytes.map(|bytes| bytes.saturating_sub(self.offset())),
        };
        let (request, _) = resolve::resolve(self, target)?;
        if journal_device::is_asked(&request) {
            journal_device::check(&request)?;
            return Ok(journal_device::made(&request));
        }
        Ok(made(&self.planned(&request, false)?.0, &request))
    }
}

/// Refuses a target that is not blank where a signature would be.
pub(crate) fn refuse_occupied(disk: &Disk, offset: u64) -> Result<()> {
    let end = disk.len_bytes().min(offset + LOOKED_AT_BYTES).max(offset);
    let start = read_bytes(disk, offset, (end - offset) as usize)?;
    match start.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(occupied()),
    }
}

/// The error of a target that is not blank.
pub(crate) fn occupied() -> Error {
    Error::Occupied("the target is not blank: what it holds would be lost".to_owned())
}

pub(crate) fn made(plan: &Plan<'_>, request: &Request) -> Made {
    let geo = &plan.geo;
    Made {
        block_bytes: geo.block_bytes,
        blocks: geo.blocks,
        inodes: geo.inodes,
        groups: geo.groups,
        blocks_per_group: geo.blocks_per_group,
        inodes_per_group: geo.inodes_per_group,
        inode_bytes: geo.inode_bytes,
        free_blocks: plan.superblock.free_blocks_count(),
        reserved_blocks: plan.superblock.r_blocks_count(),
        first_data_block: geo.first_data_block.0,
        backups: geo
            .superblock_groups()
            .skip(1)
            .map(|group| geo.group_first_block(group).0)
            .collect(),
        journal_blocks: plan.journal.map_or(0, |size| {
            u64::from(size.blocks) + u64::from(size.fast_commit_blocks)
        }),
        too_small_for_journal: request.features.has_journal()
            && plan.journal.is_none()
            && !plan.superblock.compat().contains(Compat::HAS_JOURNAL),
        features: geo.feature_names(),
        uuid: geo.uuid,
        label: request.label.clone(),
        on_error: request.on_error,
    }
}
