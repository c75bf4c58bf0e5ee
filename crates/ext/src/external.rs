//! A journal on a device of its own (`mke2fs -O journal_dev`), joined with the volume's device.
//!
//! ```text
//! block 0: ext superblock (journal_dev, the journal's UUID)
//! block 1 (2 with blocks of 1 KiB): the journal's superblock, with the UUIDs of its users
//! s_first…: the log; its numbers are those of the device's blocks
//! ```
//! The caller names the device. It is used only if its UUID is the one that the volume's superblock names
//! (`s_journal_uuid`), and the volume's UUID is among its users, so that no other volume's journal is
//! replayed or overwritten.
//!
//! The joined device has the journal's blocks behind those of the volume. So the journal code sees one
//! device, whose flushes cover both, and blocks past the volume's end that no other code can reach.
//! (Source of the format: jbd2 and journal devices in the kernel's documentation of ext4; `dumpe2fs` and
//! `debugfs logdump` on devices made by `mke2fs`.)

use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::{BlockDevice, JoinedDevice};
use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::jbd2::{JournalSuperblock, MAX_USERS};
use throughline_extfmt::{FsBlock, Geometry, InodeNumber, Superblock};
use throughline_journal::recovery::{JournalRun, MAX_JOURNAL_BLOCKS};

use crate::error::{Error, Reason, Result};
use crate::options::OpenOptions;
use crate::primary;

/// The unit at which the journal begins on the joined device, in bytes: larger than any logical block.
const BEGIN_UNIT_BYTES: u64 = 1 << 20;

/// What to do about a missing journal device.
pub(crate) const NEXT: &str =
    "name the journal's device or file: --journal PATH, or the mount option journal_path=PATH";

/// Whether the volume's journal is on another device.
pub(crate) fn is_used(sb: &Superblock) -> bool {
    sb.compat().contains(Compat::HAS_JOURNAL) && sb.s_journal_inum.get() == InodeNumber::NONE.0
}

/// The journal's blocks on the joined device.
#[derive(Clone, Debug)]
pub(crate) struct External {
    runs: [JournalRun; 2],
}

impl External {
    /// Of a volume that was opened with its journal's device; `None` if its journal is inside, or if no
    /// device was named.
    pub(crate) fn of(sb: &Superblock, geo: &Geometry, options: &OpenOptions) -> Option<Self> {
        let journal = options.journal.as_ref().filter(|_| is_used(sb))?;
        let blocks = journal.0.len_bytes() >> geo.block_log;
        let blocks = blocks.min(MAX_JOURNAL_BLOCKS.into()) as u32;
        let base = begin_bytes(geo)? >> geo.block_log;
        let at = FsBlock(base.saturating_add(superblock_at(geo).into()));
        Some(Self {
            runs: [
                JournalRun {
                    journal_block: 0,
                    first: at,
                    len: 1,
                },
                JournalRun {
                    journal_block: 1,
                    first: FsBlock(base.saturating_add(1)),
                    len: blocks.saturating_sub(1),
                },
            ],
        })
    }

    /// The journal's blocks. (Those of the log have the device's own numbers.)
    pub(crate) fn runs(&self) -> Vec<JournalRun> {
        self.runs.to_vec()
    }
}

/// The block of the journal's superblock on its device.
fn superblock_at(geo: &Geometry) -> u32 {
    if geo.block_bytes == 1024 { 2 } else { 1 }
}

/// Where the journal begins on the joined device.
fn begin_bytes(geo: &Geometry) -> Option<u64> {
    let end = FsBlock(geo.blocks).byte_offset(geo.block_bytes)?;
    end.checked_next_multiple_of(BEGIN_UNIT_BYTES)
}

/// Joins the volume's device and its journal's, which must belong together.
///
/// # Errors
/// `Invalid` if they do not; `Corrupt` for a damaged superblock of the journal; device errors.
pub(crate) fn join(
    disk: &Arc<Disk>,
    journal: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    geo: &Geometry,
) -> Result<Arc<Disk>> {
    check(&Disk::new(Arc::clone(journal))?, sb, geo)?;
    let begin = begin_bytes(geo).ok_or(Reason::TooLarge)?;
    // The volume may lie in a larger device; the rest of that is not reachable.
    let first = throughline_device::OffsetDevice::new(
        Arc::clone(disk.device()),
        0,
        Some(disk.len_bytes().min(begin)),
    );
    let joined =
        first.and_then(|first| JoinedDevice::new(Arc::new(first) as _, Arc::clone(journal), begin));
    let joined = joined.map_err(|error| Error::Unsupported(format!("the journal: {error}")))?;
    Ok(Arc::new(throughline_block::replaced(
        disk,
        Arc::new(joined),
    )?))
}

/// Checks that the device is the journal of this volume.
fn check(journal: &Disk, sb: &Superblock, geo: &Geometry) -> Result<()> {
    let refuse = |is_wrong: bool, what| match is_wrong {
        true => Err(Error::from(Reason::Invalid(what))),
        false => Ok(()),
    };
    let none = "what is named as the journal holds no external journal";
    let own = match primary::find(journal) {
        Err(Error::Caller(Reason::NotExt(_))) => return Err(Reason::Invalid(none).into()),
        own => own?,
    };
    refuse(!own.incompat().contains(Incompat::JOURNAL_DEV), none)?;
    refuse(
        own.s_uuid != sb.s_journal_uuid,
        "what is named as the journal is the journal of another volume",
    )?;
    own.verify_checksum()?;
    refuse(
        1024_u32.checked_shl(own.s_log_block_size.get()) != Some(geo.block_bytes),
        "the journal has blocks of another size than the volume",
    )?;
    let mut block = vec![0; geo.block_bytes as usize];
    let place = u64::from(superblock_at(geo)) << geo.block_log;
    if journal.len_bytes() < place.saturating_add(geo.block_bytes.into()) {
        return Err(Error::corrupt(
            "the journal's device ends before its superblock",
        ));
    }
    journal.read_at(place, &mut block)?;
    let log = JournalSuperblock::read(&block)?;
    let users = (log.s_nr_users.get() as usize).min(MAX_USERS);
    let mut users = log.s_users.chunks_exact(sb.s_uuid.len()).take(users);
    refuse(
        !users.any(|user| user == sb.s_uuid),
        "the journal does not list the volume among its users",
    )
}
