//! The identity mapping of a device, as direct I/O uses it.

use throughline_block::Disk;

use crate::error::{Reason, Result};
use crate::mapper::{Claim, ClaimKind, Map, MappedExtent, Mapper, Target};

/// See the module. Its allocation unit is the logical block.
pub(super) struct Identity<'a> {
    pub(super) disk: &'a Disk,
    /// The file's length at the start of the call.
    pub(super) len: u64,
}

impl Map for Identity<'_> {
    fn block_bytes(&self) -> u32 {
        logical_bytes(self.disk)
    }

    fn size_bytes(&self) -> u64 {
        self.len
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        Ok(MappedExtent {
            file_offset,
            len,
            target: Target::Data {
                device_offset: file_offset,
            },
        })
    }
}

impl Mapper for Identity<'_> {
    fn claim(&self, file_offset: u64, len: u64) -> Result<Claim> {
        claim(self.disk, file_offset, len)
    }

    fn commit(&self, _claims: &[Claim], _new_size: Option<u64>) -> Result<()> {
        Ok(())
    }

    fn abandon(&self, _claims: &[Claim]) {}
}

/// Claims what can be written from `file_offset` on: up to the end of the device's last block.
pub(super) fn claim(disk: &Disk, file_offset: u64, len: u64) -> Result<Claim> {
    let len = len.min(end_of_blocks(disk).saturating_sub(file_offset));
    if len == 0 {
        return Err(Reason::NoSpace.into());
    }
    Ok(Claim {
        file_offset,
        len,
        device_offset: file_offset,
        kind: ClaimKind::Overwrite,
        id: 0,
    })
}

/// The end of the device's last block.
pub(super) fn end_of_blocks(disk: &Disk) -> u64 {
    let len = disk.len_bytes();
    len.checked_next_multiple_of(u64::from(logical_bytes(disk)))
        .unwrap_or(len)
}

pub(super) fn logical_bytes(disk: &Disk) -> u32 {
    disk.limits().logical_block_bytes.max(1)
}
