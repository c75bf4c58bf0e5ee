//! The mapping of an inode as seen by the data path: [`throughline_fileio::Mapper`].
//!
//! One [`FileMapper`] serves one direct I/O call, under the inode's I/O lock, or one write-back run, which
//! holds no lock. The first piece of a write that needs new blocks takes the exclusive right to allocate in
//! the rest of the range. So two writers never map a block twice and never deadlock: each holds one range,
//! and holds no other when it takes it. (The flusher holds several at once. They never overlap, and no direct
//! write to the file runs at the same time.)
//!
//! A claim of new blocks may include spare blocks in front, for the tables of an indirect map: the tables
//! then do not interrupt the data, and have their blocks before the data is mapped.
//!
//! Write-back takes its blocks from the file's reservation ([`crate::delayed`]) and does not change the
//! times: the writes have set them.
//!
//! With `bigalloc`, claims share the clusters of the file ([`crate::map::clusters`]).
//!
//! [`claim`] finds the blocks, [`commit`] maps them once their data is on the device.

mod claim;
mod commit;

use std::sync::Arc;

use throughline_extfmt::{FileBlock, FsBlock};
use throughline_fileio as fileio;
use throughline_fileio::{Claim, ClaimKind, Map, MappedExtent, Mapper, Target};
use throughline_locks::parts::Mutex;

use crate::cached::CachedFile;
use crate::data::Data;
use crate::error::Result;
use crate::inode::{Inode, Inodes};
use crate::map::{self, Kind};
use crate::quota::limit::Hold;
use claim::Claimed;

/// The file of a mapper, and the type of its caller.
pub(crate) trait Place: Send + Sync {
    /// Whether this is write-back, which uses reserved blocks.
    const WRITE_BACK: bool;

    fn fs(&self) -> &Data;
    fn inode(&self) -> &Inode;
}

/// A file borrowed for one call.
#[derive(Clone, Copy)]
pub(crate) struct Borrowed<'a> {
    fs: &'a Data,
    inode: &'a Inode,
}

impl Place for Borrowed<'_> {
    const WRITE_BACK: bool = false;

    fn fs(&self) -> &Data {
        self.fs
    }

    fn inode(&self) -> &Inode {
        self.inode
    }
}

impl Place for Arc<CachedFile> {
    const WRITE_BACK: bool = true;

    fn fs(&self) -> &Data {
        CachedFile::fs(self)
    }

    fn inode(&self) -> &Inode {
        CachedFile::inode(self)
    }
}

/// A file's mapping for one call of direct I/O, or one run of write-back.
pub(crate) struct FileMapper<P: Place> {
    place: P,
    /// End of the file blocks that the call may write.
    end: u64,
    /// Not in the order of locks: with `bigalloc` the mapping is locked under it when blocks are claimed, and
    /// always before it when they are entered. Each call has its own mapper.
    call: Mutex<Call>,
}

/// The state of a call.
#[derive(Default)]
struct Call {
    /// The file blocks in which it has the exclusive right to allocate.
    allocating: Option<(u64, u64)>,
    /// Claimed new blocks, by claim ID; `None` once mapped or released.
    claimed: Vec<Option<Claimed>>,
    /// The end of the last claim, in the file and on the volume: the next claim continues there.
    last: Option<(u64, FsBlock)>,
    /// Reserved blocks that the current commit has mapped.
    entered: u64,
    /// Quota for the claimed blocks, unless it is held for the file.
    held: Vec<Hold>,
}

impl Call {
    /// Clears the list between batches, when no claim is in use.
    fn clear_finished(&mut self) {
        if self.claimed.iter().all(Option::is_none) {
            self.claimed.clear();
        }
    }
}

impl<'a> FileMapper<Borrowed<'a>> {
    /// For reading.
    pub(crate) fn for_read(fs: &'a Data, inode: &'a Inode) -> Self {
        Self::new(Borrowed { fs, inode }, 0)
    }

    /// For writing up to the file byte `end`.
    pub(crate) fn for_write(fs: &'a Data, inode: &'a Inode, end: u64) -> Self {
        Self::new(Borrowed { fs, inode }, end)
    }
}

impl FileMapper<Arc<CachedFile>> {
    /// For writing back up to the file byte `end`.
    pub(crate) fn for_write_back(file: Arc<CachedFile>, end: u64) -> Self {
        Self::new(file, end)
    }
}

impl<P: Place> FileMapper<P> {
    fn new(place: P, end: u64) -> Self {
        let end = end.div_ceil(place.fs().geo.block_bytes.into());
        Self {
            place,
            end,
            call: Mutex::default(),
        }
    }

    fn fs(&self) -> &Data {
        self.place.fs()
    }

    fn inode(&self) -> &Inode {
        self.place.inode()
    }

    fn bytes(&self, blocks: u64) -> u64 {
        blocks << self.fs().geo.block_log
    }
}

impl<P: Place> FileMapper<P> {
    /// With a planted bug, commits a mapping before its data is written.
    fn planted(&self, claim: Claim) -> fileio::Result<Claim> {
        let planted = self
            .fs()
            .journal
            .has_bug(throughline_journal::Planted::SizeBeforeData);
        if P::WRITE_BACK || !planted || claim.kind != ClaimKind::New {
            return Ok(claim);
        }
        self.commit(&[claim], Some(claim.file_offset + claim.len))?;
        self.fs().journal.sync().map_err(crate::Error::from)?;
        Ok(Claim {
            kind: ClaimKind::Overwrite,
            ..claim
        })
    }
}

/// The first block of a byte range, and the number of blocks it touches.
fn blocks_of(fs: &Inodes, offset: u64, len: u64) -> Option<(FileBlock, u32)> {
    let log = fs.geo.block_log;
    let first = u32::try_from(offset >> log)
        .ok()
        .filter(|b| *b < u32::MAX)?;
    let last = offset.saturating_add(len.max(1) - 1) >> log;
    let count = (last - u64::from(first)).saturating_add(1);
    Some((
        FileBlock(first),
        u32::try_from(count)
            .unwrap_or(u32::MAX)
            .min(u32::MAX - first),
    ))
}

/// The piece of a file at a byte offset, for a reader. The caller must satisfy the rules of
/// [`map::lookup_cached`].
/// # Errors
/// The same.
pub(crate) fn mapped(fs: &Inodes, inode: &Inode, offset: u64, len: u64) -> Result<MappedExtent> {
    let Some((first, count)) = blocks_of(fs, offset, len) else {
        return Ok(MappedExtent {
            file_offset: offset,
            len,
            target: Target::Hole,
        });
    };
    let found = map::lookup_cached(fs, inode, first, count)?;
    let bytes = |blocks: u64| blocks << fs.geo.block_log;
    let start = bytes(first.0.into());
    let end = start
        .saturating_add(bytes(found.len_blocks.into()))
        .min(offset.saturating_add(len));
    let target = match found.kind {
        Kind::Hole => Target::Hole,
        Kind::Unwritten(block) => Target::Unwritten {
            device_offset: bytes(block.0),
        },
        Kind::Data(block) => Target::Data {
            device_offset: bytes(block.0),
        },
    };
    Ok(MappedExtent {
        file_offset: start,
        len: end - start,
        target,
    })
}

impl<P: Place> Map for FileMapper<P> {
    fn block_bytes(&self) -> u32 {
        self.fs().geo.block_bytes
    }

    fn size_bytes(&self) -> u64 {
        // Callers have read the size before they created the mapper, so it is known.
        map::size(self.fs(), self.inode()).unwrap_or(0)
    }

    fn map(&self, file_offset: u64, len: u64) -> fileio::Result<MappedExtent> {
        Ok(mapped(self.fs(), self.inode(), file_offset, len)?)
    }
}

impl<P: Place> Mapper for FileMapper<P> {
    fn claim(&self, file_offset: u64, len: u64) -> fileio::Result<Claim> {
        let claim = self
            .fs()
            .with_room(|| self.claim_blocks(file_offset, len))
            .map_err(|e| e.in_inode(self.inode().ino))?;
        self.planted(claim)
    }

    fn commit(&self, claims: &[Claim], new_size: Option<u64>) -> fileio::Result<()> {
        let mut pending: Vec<Claim> = claims
            .iter()
            .copied()
            .filter(|c| c.kind != ClaimKind::Overwrite)
            .collect();
        let new_size = new_size.filter(|size| *size > self.size_bytes());
        if pending.is_empty() && new_size.is_none() {
            return Ok(());
        }
        let result = self.commit_claims(&mut pending, new_size);
        if result.is_err() {
            self.abandon(claims);
        }
        let mut call = self.call.lock();
        call.clear_finished();
        let entered = std::mem::take(&mut call.entered);
        call.held.clear();
        drop(call);
        if P::WRITE_BACK {
            let restored = if result.is_err() { entered } else { 0 };
            self.inode()
                .delayed
                .adjust_reservation(self.fs(), self.inode(), restored);
        }
        Ok(result?)
    }

    fn abandon(&self, claims: &[Claim]) {
        self.call.lock().held.clear();
        for claim in claims.iter().filter(|c| c.kind == ClaimKind::New) {
            if let Some(claimed) = self.take_claim(claim) {
                self.discard(claimed.data);
                self.give_back(claimed);
            }
        }
    }
}

impl<P: Place> Drop for FileMapper<P> {
    fn drop(&mut self) {
        let call = std::mem::take(self.call.get_mut());
        call.claimed
            .into_iter()
            .flatten()
            .for_each(|c| self.give_back(c));
        if let Some(range) = call.allocating {
            self.inode().mapping.allocated(range);
        }
    }
}
