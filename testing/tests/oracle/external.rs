//! Volumes whose journal is on a device of its own. Here both are parts of one device, the journal behind the
//! volume, so that faults and power cuts meet both; and two files for `e2fsck`.

use std::path::Path;
use std::sync::Arc;

use throughline::internal::OpenBlockDevice;
use throughline::{OpenOptions, Volume};
use throughline_device::{BlockDevice, OffsetDevice, Op, Segment, scope};
use throughline_extfmt::Superblock;
use throughline_extfmt::features::Compat;
use throughline_testing::{Image, PowerDevice};
use throughline_testkit::{e2fs, program};

/// The place of the superblock in bytes, and its length.
const SUPERBLOCK: usize = 1024;

/// Where the journal begins behind a volume with this superblock; `None` if it is inside, or if there is none
/// or no superblock.
pub fn journal_begin(superblock: &[u8]) -> Option<u64> {
    let sb = Superblock::read(superblock).ok()?;
    let is_outside = sb.compat().contains(Compat::HAS_JOURNAL) && sb.s_journal_inum.get() == 0;
    let blocks = u64::from(sb.s_blocks_count_lo.get());
    is_outside.then(|| blocks << (10 + sb.s_log_block_size.get()))
}

/// As [`journal_begin`], of a device. A device that cannot be read has no journal: opening it fails then.
fn begin_on(device: &dyn BlockDevice) -> Option<u64> {
    let (mut bytes, mut done) = ([0; SUPERBLOCK], Vec::new());
    let mut queue = device.open_queue().ok()?;
    scope(&mut *queue, |scope| {
        let memory = [Segment::Read(&mut bytes)];
        scope.submit(0, Op::Read, SUPERBLOCK as u64, memory, false);
        scope.reap(1, &mut done);
    });
    done.pop()?.result.ok()?;
    journal_begin(&bytes)
}

/// Opens the volume on a device, with the journal that is behind it, if there is one.
pub fn open(options: &OpenOptions, device: Arc<dyn BlockDevice>) -> throughline::Result<Volume> {
    let Some(begin) = begin_on(&*device) else {
        return options.open_block_device(device);
    };
    let part = |from, len| OffsetDevice::new(Arc::clone(&device), from, len).map(Arc::new);
    let journal = part(begin, None).expect("the journal is behind the volume");
    options.open_with_journal(part(0, Some(begin)).expect("the volume"), journal)
}

/// As [`open`]: two devices that lose power together, but are flushed each for itself.
pub fn open_power(options: &OpenOptions, device: &Arc<PowerDevice>) -> throughline::Result<Volume> {
    match begin_in(&device.contents()) {
        None => options.open_block_device(Arc::clone(device) as _),
        Some(begin) => {
            let journal = device.part(begin..device.len_bytes());
            options.open_with_journal(Arc::new(device.part(0..begin)), Arc::new(journal))
        }
    }
}

/// As [`journal_begin`], of an image.
pub fn begin_in(image: &Image) -> Option<u64> {
    let mut bytes = [0; SUPERBLOCK];
    image.read(SUPERBLOCK as u64, &mut bytes);
    journal_begin(&bytes)
}

/// Runs `e2fsck` on an image, with the journal in the other file if there is one.
pub fn e2fsck(image: &Path, journal: Option<&Path>, arguments: &[&str]) -> program::Ran {
    let mut all = arguments.to_vec();
    if let Some(journal) = journal {
        all.extend(["-j", journal.to_str().expect("UTF-8")]);
    }
    e2fs::e2fsck(image, &all)
}
