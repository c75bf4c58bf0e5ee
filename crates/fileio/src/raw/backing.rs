//! [`Core`], the state of a raw file, and [`Cached`], the file as the page cache sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_block::Disk;

use super::identity;
use super::room::{self, Room};
use crate::cache::{AddressSpace, Backing, Holes};
use crate::error::Result;
use crate::mapper::{Claim, Map, MappedExtent, Mapper, Target};

/// Granularity of cached state, if the device allows it.
const UNIT_BYTES: u32 = 4096;

/// The state of the file, cached or not.
pub(super) struct Core {
    pub(super) disk: Arc<Disk>,
    /// Length in bytes of the data that is on the device. For a plain file with cached data the host's length
    /// may differ: it is in whole blocks, and is set to the exact byte when the file is synced or closed.
    pub(super) committed: AtomicU64,
    pub(super) room: Room,
}

impl Core {
    pub(super) fn new(disk: Arc<Disk>) -> Core {
        Core {
            committed: AtomicU64::new(disk.len_bytes()),
            room: Room::default(),
            disk,
        }
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    pub(super) fn can_grow(&self) -> bool {
        self.disk.is_resizable()
    }
}

/// The file as the page cache sees it. Keeps the device open and the cache alive.
pub(super) struct Cached {
    pub(super) core: Arc<Core>,
    pub(super) space: AddressSpace,
}

/// For a device of odd length, the largest unit that divides it: nothing past its end is cached.
pub(super) fn unit_of(disk: &Disk) -> u32 {
    let logical = identity::logical_bytes(disk);
    let mut unit = logical.max(UNIT_BYTES);
    while unit > logical && !disk.is_resizable() && !disk.len_bytes().is_multiple_of(unit.into()) {
        unit /= 2;
    }
    unit
}

impl Map for Cached {
    fn block_bytes(&self) -> u32 {
        self.space.block_bytes()
    }

    fn size_bytes(&self) -> u64 {
        self.core.committed()
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        let on_device = identity::end_of_blocks(&self.core.disk).saturating_sub(file_offset);
        let (len, target) = match on_device {
            0 => (len, Target::Hole),
            _ => (
                len.min(on_device),
                Target::Data {
                    device_offset: file_offset,
                },
            ),
        };
        Ok(MappedExtent {
            file_offset,
            len,
            target,
        })
    }
}

impl Backing for Cached {
    fn space(&self) -> &AddressSpace {
        &self.space
    }

    /// There is nothing to account for: reserved space stays reserved, and is recorded.
    fn reserve(&self, file_offset: u64, len: u64) -> Result<Holes> {
        let core = &self.core;
        if core.can_grow() {
            let end = file_offset.saturating_add(len);
            core.room
                .take(&core.disk, file_offset, end, self.space.size())?;
        }
        Ok(Holes::default())
    }

    fn unreserve(&self, _units: u64) {}

    fn writer(self: Arc<Self>, _file_offset: u64, _len: u64) -> Result<Box<dyn Mapper>> {
        Ok(Box::new(RunWriter { file: self }))
    }
}

/// The mapper of one run of write-back. It runs as background work, so the file's length is not set
/// meanwhile.
struct RunWriter {
    file: Arc<Cached>,
}

impl Map for RunWriter {
    fn block_bytes(&self) -> u32 {
        self.file.block_bytes()
    }

    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        self.file.map(file_offset, len)
    }
}

impl Mapper for RunWriter {
    /// Extends the host's file first: the host would serialize parallel writes past its end.
    fn claim(&self, file_offset: u64, len: u64) -> Result<Claim> {
        let disk = &self.file.core.disk;
        let end = file_offset.saturating_add(len);
        if self.file.core.can_grow() && end > identity::end_of_blocks(disk) {
            disk.set_len(end).map_err(room::host_error)?;
        }
        identity::claim(disk, file_offset, len)
    }

    fn commit(&self, _claims: &[Claim], new_size: Option<u64>) -> Result<()> {
        if let Some(size) = new_size {
            self.file.core.committed.fetch_max(size, Ordering::AcqRel);
        }
        Ok(())
    }

    fn abandon(&self, _claims: &[Claim]) {}
}
