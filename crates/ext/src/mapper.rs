//! The mapping of an inode as the data path sees it: [`throughline_fileio::Mapper`].
//!
//! One [`FileMapper`] serves one call of direct I/O, under the inode's I/O lock, or one run of write-back, which holds no
//! lock. The first piece of a write that needs new blocks takes the exclusive right to allocate in the rest of the range,
//! so that two writers never map one block twice and never wait for each other in a circle: each holds one range, and
//! takes it while it holds no other. (The flusher holds several at once. They never overlap, and nobody writes directly
//! to a file meanwhile.)
//!
//! A claim of new blocks may come with spare blocks in front of it, for the tables that an indirect map will need: so they
//! lie where they break no run of data, and they are there when the data is.
//!
//! Write-back takes its blocks out of what is put by for the file ([`crate::delayed`]), and leaves the times alone: they
//! are those of the writes, which set them.

use std::sync::Arc;

use parking_lot::Mutex;
use throughline_extfmt::extent::Extent;
use throughline_extfmt::{FileBlock, FsBlock};
use throughline_fileio as fileio;
use throughline_fileio::{Claim, ClaimKind, Map, MappedExtent, Mapper, Target};

use crate::balloc::{GROUP_CREDITS, Run};
use crate::cached::CachedFile;
use crate::delayed::Lent;
use crate::error::{Error, Reason, Result};
use crate::file;
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::map::{self, Format, INSERT_CREDITS, Kind, Mapping, Spare};

/// Claims that go into one transaction, at most.
const CLAIMS_PER_COMMIT: usize = 8;

/// The file of a mapper, and on whose behalf it works.
pub(crate) trait Place: Send + Sync {
    /// Whether this is write-back, which has its blocks put by.
    const WRITE_BACK: bool;

    fn fs(&self) -> &Fs;
    fn inode(&self) -> &Inode;
}

/// A file for the time of a call.
#[derive(Clone, Copy)]
pub(crate) struct Borrowed<'a> {
    fs: &'a Fs,
    inode: &'a Inode,
}

impl Place for Borrowed<'_> {
    const WRITE_BACK: bool = false;

    fn fs(&self) -> &Fs {
        self.fs
    }

    fn inode(&self) -> &Inode {
        self.inode
    }
}

impl Place for Arc<CachedFile> {
    const WRITE_BACK: bool = true;

    fn fs(&self) -> &Fs {
        CachedFile::fs(self)
    }

    fn inode(&self) -> &Inode {
        CachedFile::inode(self)
    }
}

/// A file's mapping for one call of direct I/O, or one run of write-back.
pub(crate) struct FileMapper<P: Place> {
    place: P,
    /// Behind the last file block that the call may write.
    end: u64,
    call: Mutex<Call>,
}

/// What a call has going.
#[derive(Default)]
struct Call {
    /// The file blocks in which it alone allocates.
    allocating: Option<(u64, u64)>,
    /// New blocks that are claimed: by claim id; `None` once they are settled.
    claimed: Vec<Option<Claimed>>,
    /// Where the last claim ended, in the file and on the volume: the next one goes behind it.
    last: Option<(u64, FsBlock)>,
    /// Blocks put by that the commit under way has entered.
    entered: u64,
}

impl Call {
    /// Between batches no claim is in use, so that the list starts again.
    fn forget_settled(&mut self) {
        if self.claimed.iter().all(Option::is_none) {
            self.claimed.clear();
        }
    }
}

/// Blocks claimed for one piece of a write.
#[derive(Clone, Copy)]
struct Claimed {
    data: Run,
    /// For tables.
    spare: Option<Run>,
    /// Whether they were put by.
    put_by: bool,
}

impl Claimed {
    /// What of it was put by.
    fn lent(&self) -> Lent {
        Lent {
            units: self.data.len,
            tables: self.spare.map_or(0, |spare| spare.len),
        }
    }
}

impl<'a> FileMapper<Borrowed<'a>> {
    /// For reading.
    pub(crate) fn for_read(fs: &'a Fs, inode: &'a Inode) -> Self {
        Self::new(Borrowed { fs, inode }, 0)
    }

    /// For writing up to the file byte `end`.
    pub(crate) fn for_write(fs: &'a Fs, inode: &'a Inode, end: u64) -> Self {
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

    fn fs(&self) -> &Fs {
        self.place.fs()
    }

    fn inode(&self) -> &Inode {
        self.place.inode()
    }

    fn bytes(&self, blocks: u64) -> u64 {
        blocks << self.fs().geo.block_log
    }

    fn claim_blocks(&self, offset: u64, len: u64) -> Result<Claim> {
        let (fs, inode) = (self.fs(), self.inode());
        let (first, count) = blocks_of(fs, offset, len).ok_or(Reason::TooLarge)?;
        let mut found = map::lookup_cached(fs, inode, first, count)?;
        let mut call = self.call.lock();
        if !matches!(found.kind, Kind::Data(_)) && call.allocating.is_none() {
            let range = (first.0.into(), self.end.max(u64::from(first.0) + 1));
            inode.mapping.allocate(range);
            call.allocating = Some(range);
            // Whoever allocated here until now has changed it.
            found = map::lookup_cached(fs, inode, first, count)?;
        }
        match found.kind {
            Kind::Data(block) => self.overwrite(offset, len, first, block, found.len_blocks),
            Kind::Unwritten(block) => {
                fs.check_data_range(block, found.len_blocks.into())?;
                Ok(self.units(first, block, found.len_blocks, ClaimKind::Convert, 0))
            }
            Kind::Hole => self.claim_new(&mut call, first, found),
        }
    }

    fn overwrite(
        &self,
        offset: u64,
        len: u64,
        first: FileBlock,
        block: FsBlock,
        count: u32,
    ) -> Result<Claim> {
        self.fs().check_data_range(block, count.into())?;
        let start = self.bytes(first.0.into());
        let end = start
            .saturating_add(self.bytes(count.into()))
            .min(offset.saturating_add(len));
        let device_offset = self.bytes(block.0) + (offset - start);
        Ok(Claim {
            file_offset: offset,
            len: end - offset,
            device_offset,
            kind: ClaimKind::Overwrite,
            id: 0,
        })
    }

    fn units(
        &self,
        first: FileBlock,
        block: FsBlock,
        count: u32,
        kind: ClaimKind,
        id: u64,
    ) -> Claim {
        let (file_offset, len) = (self.bytes(first.0.into()), self.bytes(count.into()));
        Claim {
            file_offset,
            len,
            device_offset: self.bytes(block.0),
            kind,
            id,
        }
    }

    /// Claims a run for the hole at `first`, with blocks for tables in front where they are needed.
    fn claim_new(&self, call: &mut Call, first: FileBlock, hole: Mapping) -> Result<Claim> {
        let (fs, inode) = (self.fs(), self.inode());
        let want = hole.len_blocks.min(fs.geo.blocks_per_group);
        let goal = self.goal(call, first)?;
        let tables = map::tables_for(fs, inode, first, want)?;
        let claimed = match self.claim_put_by(goal, want, tables)? {
            Some(claimed) => claimed,
            None => divide(
                fs.claim(goal, want.saturating_add(tables))?,
                (want, tables),
                |over| fs.release(over),
            ),
        };
        let data = claimed.data;
        let next = (
            u64::from(first.0) + u64::from(data.len),
            FsBlock(data.start.0 + u64::from(data.len)),
        );
        call.last = Some(next);
        if P::WRITE_BACK {
            inode.delayed.ended(next.0, next.1);
        }
        let id = call.claimed.len() as u64;
        call.claimed.push(Some(claimed));
        Ok(self.units(first, data.start, data.len, ClaimKind::New, id))
    }

    /// Where the block at `first` is best: behind the claim before, of this call or of the file's write-back, else
    /// where the mapping says.
    fn goal(&self, call: &Call, first: FileBlock) -> Result<FsBlock> {
        let last = call.last.filter(|(block, _)| *block == u64::from(first.0));
        let behind = match last {
            Some((_, goal)) => Some(goal),
            None if P::WRITE_BACK => self.inode().delayed.goal(first),
            None => None,
        };
        behind.map_or_else(|| map::goal(self.fs(), self.inode(), first), Ok)
    }

    /// Claims out of what is put by for the file; `None` where nothing is.
    fn claim_put_by(&self, goal: FsBlock, want: u32, tables: u32) -> Result<Option<Claimed>> {
        if !P::WRITE_BACK {
            return Ok(None);
        }
        let (fs, delayed) = (self.fs(), &self.inode().delayed);
        let lent = delayed.lend(want, tables);
        if lent.units == 0 {
            return Ok(None);
        }
        let run = fs
            .claim_put_by(goal, lent.units + lent.tables)
            .inspect_err(|_| delayed.take_back(lent))?;
        let claimed = divide(run, (lent.units, lent.tables), |over| {
            fs.release_put_by(over);
        });
        let claimed = Claimed {
            put_by: true,
            ..claimed
        };
        // What was not found was put by again by the allocator.
        let kept = claimed.lent();
        delayed.take_back(Lent {
            units: lent.units - kept.units,
            tables: lent.tables - kept.tables,
        });
        Ok(Some(claimed))
    }

    /// Enters claims, ascending, a bounded number in one transaction, and with each the size that they reach.
    fn commit_claims(&self, claims: &mut [Claim], new_size: Option<u64>) -> Result<()> {
        claims.sort_unstable_by_key(|c| c.file_offset);
        let new_size = new_size.unwrap_or(0);
        let mut batches = claims.chunks(CLAIMS_PER_COMMIT).peekable();
        if batches.peek().is_none() {
            return self.commit_batch(&[], new_size);
        }
        while let Some(batch) = batches.next() {
            let reached = if batches.peek().is_some() {
                end_of(batch).min(new_size)
            } else {
                new_size
            };
            self.commit_batch(batch, reached)?;
        }
        Ok(())
    }

    /// One transaction. Where space runs out in the middle, what was entered stays, and the file ends behind it at most.
    fn commit_batch(&self, batch: &[Claim], size: u64) -> Result<()> {
        let (fs, inode) = (self.fs(), self.inode());
        let credits = batch
            .iter()
            .map(|c| self.credits(c))
            .fold(file::INODE_CREDITS, u32::saturating_add);
        fs.transact(credits, |h| {
            let _map = inode.map_exclusive();
            let mut entered = 0;
            let mut result = Ok(());
            for claim in batch {
                result = self.enter(h, claim);
                if result.is_err() {
                    break;
                }
                entered += 1;
            }
            let size = if entered == batch.len() {
                size
            } else {
                end_of(&batch[..entered]).min(size)
            };
            if result
                .as_ref()
                .is_err_and(|e| !matches!(e, Error::Caller(_)))
            {
                return result;
            }
            file::grow_to(fs, h, inode, size)?;
            if !P::WRITE_BACK {
                file::touch(fs, inode);
            }
            fs.store(h, inode)?;
            result
        })
    }

    /// Enters one claim into the mapping and, if its blocks are new, their bits.
    fn enter(&self, h: &mut Handle<'_>, claim: &Claim) -> Result<()> {
        let first = claim.file_offset >> self.fs().geo.block_log;
        let count = claim.len >> self.fs().geo.block_log;
        match claim.kind {
            ClaimKind::Overwrite => Ok(()),
            ClaimKind::Convert => {
                let mut next = Some(first);
                while let Some(from) = next {
                    if h.credits_left() < INSERT_CREDITS {
                        h.extend(INSERT_CREDITS)?;
                    }
                    let range = (from, first + count);
                    let mut spare = Spare::new(None, P::WRITE_BACK);
                    next = map::set_written(self.fs(), h, self.inode(), range, &mut spare)?;
                }
                if P::WRITE_BACK {
                    self.inode().delayed.converted(count);
                }
                Ok(())
            }
            ClaimKind::New => {
                let claimed = self
                    .settle(claim)
                    .ok_or_else(|| Error::corrupt("a claim was committed twice"))?;
                self.enter_new(h, FileBlock(first as u32), claimed)
            }
        }
    }

    fn enter_new(&self, h: &mut Handle<'_>, first: FileBlock, claimed: Claimed) -> Result<()> {
        let (fs, inode) = (self.fs(), self.inode());
        let data = claimed.data;
        let extent = Extent {
            block: first,
            len: data.len,
            start: data.start,
            unwritten: false,
        };
        let mut spare = Spare::new(claimed.spare, P::WRITE_BACK);
        let result = map::enter(fs, h, inode, extent, Some(&mut spare));
        let rest = spare.rest();
        if let Err(error) = result {
            let used = claimed.lent().tables - rest.map_or(0, |rest| rest.len);
            self.tables_used(&claimed, used);
            self.give_back(Claimed {
                spare: rest,
                ..claimed
            });
            return Err(error);
        }
        let result = fs.confirm(h, data);
        let rest_len = rest.map_or(0, |rest| rest.len);
        if !claimed.put_by {
            rest.into_iter().for_each(|rest| fs.release(rest));
            return result;
        }
        inode.delayed.entered(Lent {
            units: data.len,
            tables: claimed.lent().tables - rest_len,
        });
        // Others that are under way may have made the table: what was for it is for theirs.
        if let Some(rest) = rest {
            fs.release_put_by(rest);
            inode.delayed.take_back(Lent {
                units: 0,
                tables: rest_len,
            });
        }
        self.call.lock().entered += u64::from(data.len);
        if Format::of(&inode.raw.read()) == Format::Indirect {
            inode.delayed.tables_made(fs, (first, data.len))?;
        }
        result
    }

    /// So many of the spare blocks are tables now.
    fn tables_used(&self, claimed: &Claimed, tables: u32) {
        if claimed.put_by {
            self.inode().delayed.entered(Lent { units: 0, tables });
        }
    }

    fn credits(&self, claim: &Claim) -> u32 {
        let count = (claim.len >> self.fs().geo.block_log) as u32;
        match claim.kind {
            ClaimKind::Overwrite => 0,
            ClaimKind::New if Format::of(&self.inode().raw.read()) == Format::Indirect => {
                let tables = count / (self.fs().geo.block_bytes / 4) + 5;
                tables * (1 + GROUP_CREDITS) + GROUP_CREDITS
            }
            ClaimKind::New | ClaimKind::Convert => INSERT_CREDITS + GROUP_CREDITS,
        }
    }

    /// What was claimed for a claim, out of the list.
    fn settle(&self, claim: &Claim) -> Option<Claimed> {
        let mut call = self.call.lock();
        usize::try_from(claim.id)
            .ok()
            .and_then(|id| call.claimed.get_mut(id))
            .and_then(Option::take)
    }

    /// What was written of blocks that nothing will map is of no use. Where the image is a sparse file on a disk that ran
    /// full, it takes the room that the volume's own structures need to be written. While nobody else can have the blocks.
    fn discard(&self, run: Run) {
        let log = self.fs().geo.block_log;
        let discarded = self
            .fs()
            .disk
            .discard(run.start.0 << log, u64::from(run.len) << log);
        if let Err(error) = discarded {
            tracing::debug!(%error, "discarding blocks that were given back");
        }
    }

    fn give_back(&self, claimed: Claimed) {
        let release = |run| {
            if claimed.put_by {
                self.fs().release_put_by(run);
            } else {
                self.fs().release(run);
            }
        };
        release(claimed.data);
        claimed.spare.into_iter().for_each(release);
        if claimed.put_by {
            self.inode().delayed.take_back(claimed.lent());
        }
    }
}

/// Divides a claimed run into `tables` blocks in front, where it is long enough for both, and up to `want` of data; the
/// rest goes `back`.
fn divide(run: Run, (want, tables): (u32, u32), back: impl FnOnce(Run)) -> Claimed {
    // A run too short for both holds data only; tables then come from elsewhere.
    let tables = if run.len > tables { tables } else { 0 };
    let part = |from: u32, len: u32| Run {
        start: FsBlock(run.start.0 + u64::from(from)),
        len,
    };
    let data = part(tables, (run.len - tables).min(want));
    let over = run.len - tables - data.len;
    if over > 0 {
        back(part(tables + data.len, over));
    }
    Claimed {
        data,
        spare: (tables > 0).then(|| part(0, tables)),
        put_by: false,
    }
}

/// The first block of a byte range, and how many blocks it touches.
fn blocks_of(fs: &Fs, offset: u64, len: u64) -> Option<(FileBlock, u32)> {
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

/// The piece of a file at a byte, as a reader sees it. For callers as those of [`map::lookup_cached`].
///
/// # Errors
/// As there.
pub(crate) fn mapped(fs: &Fs, inode: &Inode, offset: u64, len: u64) -> Result<MappedExtent> {
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

/// The file byte behind the last of some claims.
fn end_of(claims: &[Claim]) -> u64 {
    claims
        .last()
        .map_or(0, |c| c.file_offset.saturating_add(c.len))
}

impl<P: Place> Map for FileMapper<P> {
    fn block_bytes(&self) -> u32 {
        self.fs().geo.block_bytes
    }

    fn size_bytes(&self) -> u64 {
        // Callers have looked the size up before they made the mapper, so it is known.
        map::size(self.fs(), self.inode()).unwrap_or(0)
    }

    fn map(&self, file_offset: u64, len: u64) -> fileio::Result<MappedExtent> {
        Ok(mapped(self.fs(), self.inode(), file_offset, len)?)
    }
}

impl<P: Place> Mapper for FileMapper<P> {
    fn claim(&self, file_offset: u64, len: u64) -> fileio::Result<Claim> {
        Ok(self
            .claim_blocks(file_offset, len)
            .map_err(|e| e.in_inode(self.inode().ino))?)
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
        call.forget_settled();
        let entered = std::mem::take(&mut call.entered);
        drop(call);
        if P::WRITE_BACK {
            let restored = if result.is_err() { entered } else { 0 };
            self.inode()
                .delayed
                .settle(self.fs(), self.inode(), restored);
        }
        Ok(result?)
    }

    fn abandon(&self, claims: &[Claim]) {
        for claim in claims.iter().filter(|c| c.kind == ClaimKind::New) {
            if let Some(claimed) = self.settle(claim) {
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
