//! [`QuotaFile`]: where the blocks of a quota file are on the volume, and its header.

use throughline_extfmt::quota::{QUOTA_BLOCK_BYTES, QuotaHeader, QuotaKind};
use throughline_extfmt::{FsBlock, InodeNumber};
use throughline_locks::{Mutex, MutexGuard, Rank, RwLock};

use crate::error::{Error, Result};

/// A quota file in use.
pub(crate) struct QuotaFile {
    pub(crate) kind: QuotaKind,
    pub(crate) ino: InodeNumber,
    block_bytes: usize,
    /// The volume's blocks, in the order of the file. Only grows.
    blocks: RwLock<Vec<FsBlock>>,
    header: Mutex<QuotaHeader>,
    /// Serializes changes of the tree. Searches take no lock: a block is complete before another names it,
    /// and blocks become free only when the volume is being closed.
    tree: Mutex<()>,
}

/// The place of a quota block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    pub(super) block: FsBlock,
    pub(super) offset: usize,
}

impl BlockPlace {
    /// The quota block, in the volume's block.
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes
            .get(self.offset..self.offset.saturating_add(QUOTA_BLOCK_BYTES))
            .unwrap_or_default()
    }

    /// As [`BlockPlace::of`], for changing it.
    pub(super) fn of_mut(self, bytes: &mut [u8]) -> &mut [u8] {
        bytes
            .get_mut(self.offset..self.offset.saturating_add(QUOTA_BLOCK_BYTES))
            .unwrap_or_default()
    }
}

impl QuotaFile {
    pub(super) fn new(
        kind: QuotaKind,
        ino: InodeNumber,
        block_bytes: u32,
        blocks: Vec<FsBlock>,
        header: QuotaHeader,
    ) -> Self {
        Self {
            kind,
            ino,
            block_bytes: block_bytes as usize,
            blocks: RwLock::new(blocks),
            header: Mutex::new(header),
            tree: Mutex::numbered(Rank::QuotaTree, kind.index() as u64, ()),
        }
    }

    /// For changing the tree; inside a handle.
    pub(super) fn tree(&self) -> MutexGuard<'_, ()> {
        self.tree.lock()
    }

    pub(super) fn header(&self) -> QuotaHeader {
        *self.header.lock()
    }

    pub(super) fn set_header(&self, header: QuotaHeader) {
        *self.header.lock() = header;
    }

    /// Quota blocks for which the volume's blocks have room.
    pub(super) fn room_blocks(&self) -> u64 {
        (self.blocks.read().len() * (self.block_bytes / QUOTA_BLOCK_BYTES)) as u64
    }

    /// The number of the volume's blocks in the file.
    pub(super) fn len_blocks(&self) -> usize {
        self.blocks.read().len()
    }

    pub(super) fn push(&self, block: FsBlock) {
        self.blocks.write().push(block);
    }

    /// Where a quota block is.
    ///
    /// # Errors
    /// `Corrupt` past the end of the file.
    pub(super) fn place(&self, number: u32) -> Result<BlockPlace> {
        let at = number as usize * QUOTA_BLOCK_BYTES;
        let block = self.blocks.read().get(at / self.block_bytes).copied();
        let block =
            block.ok_or_else(|| self.corrupt(format!("quota block {number} is missing")))?;
        Ok(BlockPlace {
            block,
            offset: at % self.block_bytes,
        })
    }

    /// Damage of this file.
    pub(super) fn corrupt(&self, what: impl Into<String>) -> Error {
        Error::corrupt(what.into()).in_inode(self.ino)
    }
}
