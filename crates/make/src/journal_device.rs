//! Journals on devices of their own: made (`-O journal_dev`), and given to a volume (`-J device=`).
//!
//! ```text
//! block 0: superblock (journal_dev, the journal's UUID)
//! block 1 (2 with blocks of 1 KiB): the journal's superblock, with the UUID of its user
//! then: the log, of zeros
//! ```
//! A volume is given a journal that has no other user, because no kernel mounts a journal with several. The
//! volume is written first, then it is entered as the user: a volume that was made in part has no journal.
//!
//! (Source: jbd2 and journal devices in the kernel's documentation of ext4; what mke2fs 1.47 writes.)

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use throughline_block::Disk;
use throughline_device::{DeviceKind, LockMode, OpenOptions};
use throughline_extfmt::Superblock;
use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::jbd2::{BlockHeader, BlockType, JournalSuperblock};
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{Error, Result};
use crate::make::Made;
use crate::plan::{self, Plan};
use crate::request::Request;
use crate::write::{self, Clear, How};
use crate::writer::{Writer, read_bytes};

/// Fewest blocks of a device, and most of a journal.
const LEAST_BLOCKS: u64 = 1024;
const MOST_BLOCKS: u64 = u32::MAX as u64;

/// Whether a request is for a journal device, not for a volume.
pub(crate) fn is_asked(request: &Request) -> bool {
    (request.features.incompat).contains(Incompat::JOURNAL_DEV)
}

/// Byte of the journal's superblock on its device.
fn superblock_at(block_bytes: u32) -> u64 {
    let block_bytes = u64::from(block_bytes);
    (SUPERBLOCK_OFFSET / block_bytes + 1) * block_bytes
}

/// Checks the size of a journal device.
///
/// # Errors
/// With what is allowed.
pub(crate) fn check(request: &Request) -> Result<()> {
    match (LEAST_BLOCKS..=MOST_BLOCKS).contains(&request.blocks) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "a journal device (-O journal_dev) has from {LEAST_BLOCKS} to {MOST_BLOCKS} blocks; {} blocks of \
             {} bytes were asked for",
            request.blocks, request.block_bytes
        ))),
    }
}

/// Makes a journal device.
///
/// # Errors
/// Of the device; as [`check`].
pub(crate) fn make(request: &Request, disk: &Disk, how: How) -> Result<()> {
    check(request)?;
    let mut out = Writer::new(disk, how.offset);
    let end = request.blocks * u64::from(request.block_bytes);
    let is_file = disk.info().kind == DeviceKind::RegularFile;
    if !matches!(how.clear, Clear::New | Clear::Blank | Clear::Nothing) {
        write::erase(disk, how.offset, end)?;
    }
    match how.clear {
        Clear::New | Clear::Blank | Clear::Nothing => {}
        // A hole reads as zeros.
        Clear::All if is_file && out.discard(0..end)? => {}
        // An old log must not be replayed.
        Clear::All | Clear::Needed => out.zero(0..end)?,
    }
    let mut block = vec![0; request.block_bytes as usize];
    let log = first_superblock(request);
    block[..log.as_bytes().len()].copy_from_slice(log.as_bytes());
    out.put(0, &[0; SUPERBLOCK_OFFSET as usize])?;
    out.put(superblock_at(request.block_bytes), &block)?;
    out.settle()?;
    out.put(
        SUPERBLOCK_OFFSET,
        plan::of_journal_device(request).as_bytes(),
    )?;
    out.finish()
}

fn first_superblock(request: &Request) -> JournalSuperblock {
    let mut sb = JournalSuperblock::new_zeroed();
    sb.s_header = BlockHeader::new(BlockType::SuperblockV2, 0);
    sb.s_blocksize.set(request.block_bytes);
    sb.s_maxlen.set(request.blocks as u32);
    let first = superblock_at(request.block_bytes) / u64::from(request.block_bytes) + 1;
    sb.s_first.set(first as u32);
    sb.s_sequence.set(1);
    sb.s_uuid = request.uuid;
    sb
}

/// What was made, or would be.
pub(crate) fn made(request: &Request) -> Made {
    let sb = plan::of_journal_device(request);
    Made {
        block_bytes: request.block_bytes,
        blocks: request.blocks,
        inodes: 0,
        groups: 0,
        blocks_per_group: sb.s_blocks_per_group.get(),
        inodes_per_group: 0,
        inode_bytes: request.inode_bytes,
        free_blocks: 0,
        reserved_blocks: 0,
        first_data_block: u64::from(request.block_bytes == 1024),
        backups: Vec::new(),
        journal_blocks: request.blocks,
        too_small_for_journal: false,
        features: request.features.names(),
        uuid: request.uuid,
        label: request.label.clone(),
        on_error: request.on_error,
    }
}

/// The journal device that a volume is to get.
pub(crate) struct External {
    path: PathBuf,
    disk: Disk,
    block_bytes: u32,
    uuid: [u8; 16],
    /// Of a block device, as `s_journal_dev` has it.
    number: u32,
}

impl External {
    /// Opens a journal device, locked, and checks that a volume with blocks of this size can have it.
    ///
    /// # Errors
    /// [`Error::Open`]; [`Error::Invalid`] for what is no journal, or the journal of a volume.
    pub(crate) fn open(path: &Path, block_bytes: u32, write: bool) -> Result<External> {
        let failed = Error::open(path);
        let about = fs::metadata(path).map_err(failed)?;
        let device = OpenOptions::new()
            .write(write)
            .lock(LockMode::of(write))
            .open(path);
        let disk = Disk::new(device.map_err(failed)?)?;
        let mut external = External {
            path: path.to_owned(),
            disk,
            block_bytes,
            uuid: [0; 16],
            number: match about.file_type().is_block_device() {
                // The kernel's form of these bits is that of the system call.
                true => about.rdev() as u32,
                false => 0,
            },
        };
        external.check()?;
        Ok(external)
    }

    fn refused(&self, why: &str) -> Error {
        Error::invalid(format!("-J device={}: {why}", self.path.display()))
    }

    fn check(&mut self) -> Result<()> {
        let none = "holds no journal; throughline mkfs -O journal_dev makes one";
        let place = superblock_at(self.block_bytes);
        if self.disk.len_bytes() < place + u64::from(self.block_bytes) {
            return Err(self.refused(none));
        }
        let bytes = read_bytes(&self.disk, SUPERBLOCK_OFFSET, SUPERBLOCK_BYTES)?;
        let own = Superblock::read(&bytes).map_err(|_| self.refused(none))?;
        if !own.incompat().contains(Incompat::JOURNAL_DEV) {
            return Err(self.refused(none));
        }
        if 1024_u32.checked_shl(own.s_log_block_size.get()) != Some(self.block_bytes) {
            return Err(self.refused("has blocks of another size than the volume (-b)"));
        }
        let log = self.log()?;
        if log.s_nr_users.get() != 0 || log.s_start.get() != 0 || log.incompat().bits() != 0 {
            return Err(self.refused(
                "is or was the journal of a volume; throughline mkfs -O journal_dev -F makes it anew",
            ));
        }
        self.uuid = own.s_uuid;
        Ok(())
    }

    fn log(&self) -> Result<JournalSuperblock> {
        let place = superblock_at(self.block_bytes);
        let block = read_bytes(&self.disk, place, self.block_bytes as usize)?;
        JournalSuperblock::read(&block)
            .map_err(|_| self.refused("has a damaged superblock of its journal"))
    }

    /// Makes it the journal of a volume that is planned without one.
    pub(crate) fn join(&self, plan: &mut Plan<'_>) {
        let sb = &mut plan.superblock;
        sb.s_feature_compat
            .set((sb.compat() | Compat::HAS_JOURNAL).bits());
        sb.s_journal_uuid = self.uuid;
        sb.s_journal_dev.set(self.number);
        plan.geo.compat |= Compat::HAS_JOURNAL;
    }

    /// Enters a volume as the user.
    ///
    /// # Errors
    /// Of the device.
    pub(crate) fn add_user(self, uuid: &[u8; 16]) -> Result<()> {
        let mut log = self.log()?;
        log.s_nr_users.set(1);
        log.s_users[..uuid.len()].copy_from_slice(uuid);
        let mut out = Writer::new(&self.disk, 0);
        out.put(superblock_at(self.block_bytes), log.as_bytes())?;
        out.finish()
    }
}
