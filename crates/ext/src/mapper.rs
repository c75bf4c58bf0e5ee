//! The mapping of an inode as the data path sees it: [`throughline_fileio::Mapper`].
//!
//! One [`FileMapper`] serves one call of direct I/O, under the inode's I/O lock. The first piece of a write that needs new
//! blocks takes the exclusive right to allocate in the rest of the call's range, so that two writers never map one block
//! twice and never wait for each other in a circle: each holds one range, and takes it while it holds no other.
//!
//! A claim of new blocks may come with spare blocks in front of it, for the tables that an indirect map will need: so they
//! lie where they break no run of data, and they are there when the data is.

use parking_lot::Mutex;
use throughline_extfmt::extent::Extent;
use throughline_extfmt::{FileBlock, FsBlock};
use throughline_fileio as fileio;
use throughline_fileio::{Claim, ClaimKind, Map, MappedExtent, Mapper, Target};

use crate::balloc::{GROUP_CREDITS, Run};
use crate::error::{Error, Reason, Result};
use crate::file;
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::map::{self, Allocating, Format, INSERT_CREDITS, Kind, Mapping, Spare};

/// Claims that go into one transaction, at most.
const CLAIMS_PER_COMMIT: usize = 8;

/// A file's mapping for one call of direct I/O.
pub(crate) struct FileMapper<'a> {
    fs: &'a Fs,
    inode: &'a Inode,
    /// Behind the last file block that the call may write.
    end: u64,
    call: Mutex<Call<'a>>,
}

/// What a call has going.
#[derive(Default)]
struct Call<'a> {
    allocating: Option<Allocating<'a>>,
    /// New blocks that are claimed: by claim id; `None` once they are settled.
    claimed: Vec<Option<Claimed>>,
    /// Where the last claim ended, in the file and on the volume: the next one goes behind it.
    last: Option<(u64, FsBlock)>,
}

impl Call<'_> {
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
}

impl<'a> FileMapper<'a> {
    /// For reading.
    pub(crate) fn for_read(fs: &'a Fs, inode: &'a Inode) -> Self {
        Self {
            fs,
            inode,
            end: 0,
            call: Mutex::default(),
        }
    }

    /// For writing up to the file byte `end`.
    pub(crate) fn for_write(fs: &'a Fs, inode: &'a Inode, end: u64) -> Self {
        Self {
            fs,
            inode,
            end: end.div_ceil(fs.geo.block_bytes.into()),
            call: Mutex::default(),
        }
    }

    fn bytes(&self, blocks: u64) -> u64 {
        blocks << self.fs.geo.block_log
    }

    /// The first block of a byte range, and how many blocks it touches.
    fn blocks(&self, offset: u64, len: u64) -> Option<(FileBlock, u32)> {
        let log = self.fs.geo.block_log;
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

    fn claim_blocks(&self, offset: u64, len: u64) -> Result<Claim> {
        let (first, count) = self.blocks(offset, len).ok_or(Reason::TooLarge)?;
        let mut found = map::lookup_cached(self.fs, self.inode, first, count)?;
        let mut call = self.call.lock();
        if !matches!(found.kind, Kind::Data(_)) && call.allocating.is_none() {
            let end = self.end.max(u64::from(first.0) + 1);
            call.allocating = Some(self.inode.mapping.allocating(first.0.into(), end));
            // Whoever allocated here until now has changed it.
            found = map::lookup_cached(self.fs, self.inode, first, count)?;
        }
        match found.kind {
            Kind::Data(block) => self.overwrite(offset, len, first, block, found.len_blocks),
            Kind::Unwritten(block) => {
                self.fs.check_data_range(block, found.len_blocks.into())?;
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
        self.fs.check_data_range(block, count.into())?;
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
    fn claim_new(&self, call: &mut Call<'a>, first: FileBlock, hole: Mapping) -> Result<Claim> {
        let (fs, inode) = (self.fs, self.inode);
        let want = hole.len_blocks.min(fs.geo.blocks_per_group);
        let goal = match call.last {
            Some((block, goal)) if block == u64::from(first.0) => goal,
            _ => map::goal(fs, inode, first)?,
        };
        let tables = map::tables_for(fs, inode, first, want)?;
        let run = fs.claim(goal, want.saturating_add(tables))?;
        // A run too short for both holds data only; tables then come from elsewhere.
        let tables = if run.len > tables { tables } else { 0 };
        let spare = (tables > 0).then_some(Run {
            start: run.start,
            len: tables,
        });
        let data = Run {
            start: FsBlock(run.start.0 + u64::from(tables)),
            len: (run.len - tables).min(want),
        };
        let over = run.len - tables - data.len;
        if over > 0 {
            fs.release(Run {
                start: FsBlock(data.start.0 + u64::from(data.len)),
                len: over,
            });
        }
        call.last = Some((
            u64::from(first.0) + u64::from(data.len),
            FsBlock(data.start.0 + u64::from(data.len)),
        ));
        let id = call.claimed.len() as u64;
        call.claimed.push(Some(Claimed { data, spare }));
        Ok(self.units(first, data.start, data.len, ClaimKind::New, id))
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
        let (fs, inode) = (self.fs, self.inode);
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
            file::touch(fs, inode);
            fs.store(h, inode)?;
            result
        })
    }

    /// Enters one claim into the mapping and, if its blocks are new, their bits.
    fn enter(&self, h: &mut Handle<'_>, claim: &Claim) -> Result<()> {
        let first = claim.file_offset >> self.fs.geo.block_log;
        let count = claim.len >> self.fs.geo.block_log;
        match claim.kind {
            ClaimKind::Overwrite => Ok(()),
            ClaimKind::Convert => {
                let mut next = Some(first);
                while let Some(from) = next {
                    if h.credits_left() < INSERT_CREDITS {
                        h.extend(INSERT_CREDITS)?;
                    }
                    next = map::set_unwritten(
                        self.fs,
                        h,
                        self.inode,
                        (from, first + count),
                        false,
                        1,
                    )?;
                }
                Ok(())
            }
            ClaimKind::New => {
                let Some(claimed) = self.settle(claim) else {
                    return Err(Error::corrupt("a claim was committed twice"));
                };
                let Claimed { data, spare } = claimed;
                let mut spare = Spare::new(spare);
                let extent = Extent {
                    block: FileBlock(first as u32),
                    len: data.len,
                    start: data.start,
                    unwritten: false,
                };
                let result = map::enter(self.fs, h, self.inode, extent, Some(&mut spare));
                if let Some(rest) = spare.rest() {
                    self.fs.release(rest);
                }
                match result {
                    Ok(()) => self.fs.confirm(h, data),
                    Err(error) => {
                        self.fs.release(data);
                        Err(error)
                    }
                }
            }
        }
    }

    fn credits(&self, claim: &Claim) -> u32 {
        let count = (claim.len >> self.fs.geo.block_log) as u32;
        match claim.kind {
            ClaimKind::Overwrite => 0,
            ClaimKind::New if Format::of(&self.inode.raw.read()) == Format::Indirect => {
                let tables = count / (self.fs.geo.block_bytes / 4) + 5;
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

    fn give_back(&self, claimed: Claimed) {
        self.fs.release(claimed.data);
        if let Some(spare) = claimed.spare {
            self.fs.release(spare);
        }
    }
}

/// The file byte behind the last of some claims.
fn end_of(claims: &[Claim]) -> u64 {
    claims
        .last()
        .map_or(0, |c| c.file_offset.saturating_add(c.len))
}

impl Map for FileMapper<'_> {
    fn block_bytes(&self) -> u32 {
        self.fs.geo.block_bytes
    }

    fn size_bytes(&self) -> u64 {
        // Callers have looked the size up before they made the mapper, so it is known.
        map::size(self.fs, self.inode).unwrap_or(0)
    }

    fn map(&self, file_offset: u64, len: u64) -> fileio::Result<MappedExtent> {
        let Some((first, count)) = self.blocks(file_offset, len) else {
            return Ok(MappedExtent {
                file_offset,
                len,
                target: Target::Hole,
            });
        };
        let found = map::lookup_cached(self.fs, self.inode, first, count)?;
        let start = self.bytes(first.0.into());
        let end = start
            .saturating_add(self.bytes(found.len_blocks.into()))
            .min(file_offset.saturating_add(len));
        let target = match found.kind {
            Kind::Hole => Target::Hole,
            Kind::Unwritten(block) => Target::Unwritten {
                device_offset: self.bytes(block.0),
            },
            Kind::Data(block) => Target::Data {
                device_offset: self.bytes(block.0),
            },
        };
        Ok(MappedExtent {
            file_offset: start,
            len: end - start,
            target,
        })
    }
}

impl Mapper for FileMapper<'_> {
    fn claim(&self, file_offset: u64, len: u64) -> fileio::Result<Claim> {
        Ok(self
            .claim_blocks(file_offset, len)
            .map_err(|e| e.in_inode(self.inode.ino))?)
    }

    fn commit(&self, claims: &[Claim], new_size: Option<u64>) -> fileio::Result<()> {
        let mut pending: Vec<Claim> = claims
            .iter()
            .copied()
            .filter(|c| c.kind != ClaimKind::Overwrite)
            .collect();
        if pending.is_empty() && new_size.is_none() {
            return Ok(());
        }
        let result = self.commit_claims(&mut pending, new_size);
        if result.is_err() {
            self.abandon(claims);
        }
        self.call.lock().forget_settled();
        Ok(result?)
    }

    fn abandon(&self, claims: &[Claim]) {
        for claim in claims.iter().filter(|c| c.kind == ClaimKind::New) {
            if let Some(claimed) = self.settle(claim) {
                self.give_back(claimed);
            }
        }
    }
}

impl Drop for FileMapper<'_> {
    fn drop(&mut self) {
        let claimed = std::mem::take(&mut self.call.get_mut().claimed);
        claimed
            .into_iter()
            .flatten()
            .for_each(|c| self.give_back(c));
    }
}
