//! A file in memory for tests of the cache and its users: a [`Backing`] over a fragmented device in memory,
//! short of space if asked to be, with strict checks of reservations and claims.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, Weak};

use throughline_block::Disk;
use throughline_device::{BlockDevice, Limits, MemoryDevice};
use throughline_locks::{Mutex, Rank, RwLock};

use crate::cache::{AddressSpace, Backing, CacheOptions, Holes, PageCache};
use crate::error::{Reason, Result};
use crate::mapper::{Claim, ClaimKind, Map, MappedExtent, Mapper, Target};
use crate::readahead::ReadStream;

/// Contents of unallocated device blocks. No reader may ever see these bytes.
pub(crate) const STALE: u8 = 0xEE;

/// A device in memory with its free blocks, and a cache over it.
pub(crate) struct Volume {
    pub(crate) disk: Arc<Disk>,
    pub(crate) cache: Arc<PageCache>,
    pub(crate) block: u64,
    state: Mutex<VolumeState>,
}

struct VolumeState {
    /// Free device blocks, allocated from the back.
    free: Vec<u64>,
    promised: u64,
}

/// One file of a [`Volume`].
pub(crate) struct FakeFile {
    volume: Arc<Volume>,
    space: AddressSpace,
    state: Mutex<FileState>,
    this: Weak<FakeFile>,
    /// The locks that the file's owner holds: see [`crate::buffered`].
    pub(crate) lock: RwLock<()>,
    pub(crate) extend: Mutex<()>,
}

#[derive(Default)]
struct FileState {
    /// File block → device block, and whether it was written.
    map: BTreeMap<u64, (u64, bool)>,
    size: u64,
    /// Returned by `map` instead of the real extent.
    lie: Option<MappedExtent>,
    claims: BTreeMap<u64, Claim>,
    next_claim: u64,
}

impl Volume {
    pub(crate) fn new(block: u64, blocks: u64, budget_bytes: u64) -> Arc<Volume> {
        let limits = Limits {
            logical_block_bytes: 512,
            ..Limits::default()
        };
        let device = Arc::new(MemoryDevice::with_limits(block * blocks, limits));
        Volume::over(device, block, budget_bytes)
    }

    /// Over a given device. All its blocks are free and stale.
    pub(crate) fn over(device: Arc<dyn BlockDevice>, block: u64, budget_bytes: u64) -> Arc<Volume> {
        let disk = Arc::new(Disk::new(device).expect("a disk"));
        let blocks = disk.len_bytes() / block;
        let stale = vec![STALE; block as usize];
        for at in 0..blocks {
            disk.write_at(at * block, &stale, false).expect("a write");
        }
        // Runs of 5 blocks, from the end of the device to its start.
        let free = (0..blocks).collect::<Vec<_>>();
        let free = free
            .chunks(5)
            .flat_map(|run| run.iter().rev().copied())
            .collect();
        let options = CacheOptions {
            budget_bytes: Some(budget_bytes),
            ..CacheOptions::default()
        };
        Arc::new(Volume {
            cache: PageCache::new(Arc::clone(&disk), &options),
            disk,
            block,
            state: Mutex::new(VolumeState { free, promised: 0 }),
        })
    }

    pub(crate) fn file(self: &Arc<Self>) -> Arc<FakeFile> {
        Arc::new_cyclic(|this| FakeFile {
            space: AddressSpace::new(Arc::clone(&self.cache), 0, self.block as u32),
            volume: Arc::clone(self),
            state: Mutex::ranked(Rank::Mapping, FileState::default()),
            this: Weak::clone(this),
            lock: RwLock::ranked(Rank::FileIo, ()),
            extend: Mutex::ranked(Rank::Extend, ()),
        })
    }

    pub(crate) fn promised(&self) -> u64 {
        self.state.lock().promised
    }

    pub(crate) fn free(&self) -> usize {
        self.state.lock().free.len()
    }
}

impl FakeFile {
    pub(crate) fn host(&self) -> Arc<dyn Backing> {
        self.this.upgrade().expect("it is alive")
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<usize> {
        let _shared = self.lock.read();
        let end = offset + data.len() as u64;
        let _exclusive = (end > self.space.size()).then(|| self.extend.lock());
        let accepted = crate::buffered::write(&self.host(), offset, &[IoSlice::new(data)])?;
        Ok(accepted.bytes)
    }

    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0xAB; len];
        let read = self.read_into(offset, &mut buf, &ReadStream::default())?;
        buf.truncate(read);
        Ok(buf)
    }

    pub(crate) fn read_into(
        &self,
        offset: u64,
        buf: &mut [u8],
        stream: &ReadStream,
    ) -> Result<usize> {
        let _shared = self.lock.read();
        crate::buffered::read(&self.host(), offset, &mut [IoSliceMut::new(buf)], stream)
    }

    pub(crate) fn flush(&self) -> Result<()> {
        crate::buffered::flush(&self.host(), 0..u64::MAX)
    }

    /// Sets the size as a file system does: nothing is flushed.
    pub(crate) fn truncate(&self, size: u64) {
        let _exclusive = self.lock.write();
        let frozen = self.space.freeze();
        if size < self.space.size() {
            self.space.discard(&*self.host(), size..u64::MAX);
        }
        let mut state = self.state.lock();
        let first = size.div_ceil(self.volume.block);
        let cut = state.map.split_off(&first);
        self.volume
            .state
            .lock()
            .free
            .extend(cut.values().map(|(device, _)| *device));
        let before = std::mem::replace(&mut state.size, size);
        // Bytes of the old last block that the longer file exposes must be zero.
        let old_block = before / self.volume.block;
        let is_part = !before.is_multiple_of(self.volume.block);
        if let Some((device, true)) = state
            .map
            .get(&old_block)
            .filter(|_| before < size && is_part)
        {
            let mut bytes = vec![0; self.volume.block as usize];
            let at = device * self.volume.block;
            self.volume.disk.read_at(at, &mut bytes).expect("a read");
            bytes[(before % self.volume.block) as usize..].fill(0);
            self.volume
                .disk
                .write_at(at, &bytes, false)
                .expect("a write");
        }
        drop(state);
        self.space.set_size(size);
        drop(frozen);
    }

    /// Punches a hole of whole blocks.
    pub(crate) fn punch(&self, range: Range<u64>) {
        let _exclusive = self.lock.write();
        let _frozen = self.space.freeze();
        self.space.discard(&*self.host(), range.clone());
        let mut state = self.state.lock();
        // The dirty blocks that would have committed the size may be gone.
        state.size = self.space.size();
        let blocks = range.start / self.volume.block..range.end / self.volume.block;
        for block in blocks {
            if let Some((device, _)) = state.map.remove(&block) {
                self.volume.state.lock().free.push(device);
            }
        }
    }

    /// Allocates unwritten blocks. As in a file system, no write-back may hold a claim on these holes
    /// meanwhile.
    pub(crate) fn preallocate(&self, range: Range<u64>) {
        let _frozen = self.space.freeze();
        let mut state = self.state.lock();
        let mut volume = self.volume.state.lock();
        for block in range.start / self.volume.block..range.end.div_ceil(self.volume.block) {
            if !state.map.contains_key(&block) && volume.free.len() as u64 > volume.promised {
                let device = volume.free.pop().expect("one is free");
                state.map.insert(block, (device, false));
            }
        }
    }

    /// Makes `map` return this extent from now on; `None`: the real one.
    pub(crate) fn lie(&self, extent: Option<MappedExtent>) {
        self.state.lock().lie = extent;
    }

    /// The file's contents on the device, bypassing the cache.
    pub(crate) fn on_device(&self) -> Vec<u8> {
        let mut all = vec![0; self.size_bytes() as usize];
        let read =
            crate::direct::read(&self.volume.disk, self, 0, &mut [IoSliceMut::new(&mut all)]);
        assert_eq!(read.expect("a read"), all.len());
        all
    }

    /// Number of blocks with a device block.
    pub(crate) fn mapped(&self) -> usize {
        self.state.lock().map.len()
    }
}

impl Drop for FakeFile {
    fn drop(&mut self) {
        let map = std::mem::take(&mut self.state.get_mut().map);
        let mut volume = self.volume.state.lock();
        volume.free.extend(map.values().map(|(device, _)| *device));
    }
}

impl Map for FakeFile {
    fn block_bytes(&self) -> u32 {
        self.volume.block as u32
    }

    fn size_bytes(&self) -> u64 {
        self.state.lock().size
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        assert!(len > 0);
        let state = self.state.lock();
        if let Some(lie) = state.lie {
            return Ok(lie);
        }
        let block = self.volume.block;
        let first = file_offset / block;
        let most = (file_offset + len).div_ceil(block) - first;
        let (blocks, target) = match state.map.get(&first) {
            None => {
                let next = state.map.range(first..).next();
                let next = next.map_or(u64::MAX, |(block, _)| *block);
                ((next - first).min(most), Target::Hole)
            }
            Some((device, written)) => {
                let follows =
                    |i: &u64| state.map.get(&(first + i)) == Some(&(device + i, *written));
                let device_offset = device * block;
                let target = match written {
                    true => Target::Data { device_offset },
                    false => Target::Unwritten { device_offset },
                };
                (1 + (1..most).take_while(follows).count() as u64, target)
            }
        };
        Ok(MappedExtent {
            file_offset: first * block,
            len: blocks * block,
            target,
        })
    }
}

impl Backing for FakeFile {
    fn space(&self) -> &AddressSpace {
        &self.space
    }

    fn reserve(&self, file_offset: u64, len: u64) -> Result<Holes> {
        let block = self.volume.block;
        assert!(file_offset.is_multiple_of(block) && len.is_multiple_of(block) && len > 0);
        let state = self.state.lock();
        let mut volume = self.volume.state.lock();
        let blocks = file_offset / block..(file_offset + len) / block;
        let runs: Vec<(u64, u64)> = blocks
            .filter(|at| !state.map.contains_key(at))
            .map(|at| (at * block, block))
            .collect();
        let promised = volume.promised + runs.len() as u64;
        if promised > volume.free.len() as u64 {
            return Err(Reason::NoSpace.into());
        }
        volume.promised = promised;
        Ok(Holes { runs })
    }

    fn unreserve(&self, units: u64) {
        let mut volume = self.volume.state.lock();
        volume.promised = volume.promised.checked_sub(units).expect("promised before");
    }

    fn writer(self: Arc<Self>, _file_offset: u64, _len: u64) -> Result<Box<dyn Mapper>> {
        Ok(Box::new(Writer(self)))
    }
}

struct Writer(Arc<FakeFile>);

impl Map for Writer {
    fn block_bytes(&self) -> u32 {
        self.0.block_bytes()
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        self.0.map(file_offset, len)
    }
}

impl Mapper for Writer {
    fn claim(&self, file_offset: u64, len: u64) -> Result<Claim> {
        let block = self.0.volume.block;
        let known = self.0.map(file_offset, len)?;
        let mut state = self.0.state.lock();
        let id = state.next_claim;
        state.next_claim += 1;
        let mut claim = Claim {
            file_offset: known.file_offset,
            len: known.len,
            device_offset: 0,
            kind: ClaimKind::New,
            id,
        };
        match known.target {
            Target::Data { device_offset } => {
                claim.device_offset = device_offset;
                claim.kind = ClaimKind::Overwrite;
                return Ok(claim);
            }
            Target::Unwritten { device_offset } => {
                claim.device_offset = device_offset;
                claim.kind = ClaimKind::Convert;
            }
            Target::Hole => {
                let mut volume = self.0.volume.state.lock();
                let device = volume.free.pop().ok_or(Reason::NoSpace)?;
                let promised = volume.promised.checked_sub(1);
                volume.promised = promised.expect("every hole that is written was promised");
                claim.device_offset = device * block;
                claim.len = block;
                while claim.len < known.len
                    && volume.free.last() == Some(&(device + claim.len / block))
                {
                    volume.free.pop();
                    volume.promised = volume.promised.checked_sub(1).expect("promised");
                    claim.len += block;
                }
            }
        }
        state.claims.insert(id, claim);
        Ok(claim)
    }

    fn commit(&self, claims: &[Claim], new_size: Option<u64>) -> Result<()> {
        let block = self.0.volume.block;
        let mut state = self.0.state.lock();
        for claim in claims {
            if claim.kind == ClaimKind::Overwrite {
                continue;
            }
            assert_eq!(state.claims.remove(&claim.id), Some(*claim));
            for at in 0..claim.len / block {
                let device = claim.device_offset / block + at;
                let before = state
                    .map
                    .insert(claim.file_offset / block + at, (device, true));
                assert_eq!(before.is_some(), claim.kind == ClaimKind::Convert);
            }
        }
        state.size = state.size.max(new_size.unwrap_or(0));
        Ok(())
    }

    fn abandon(&self, claims: &[Claim]) {
        let block = self.0.volume.block;
        let mut state = self.0.state.lock();
        let mut volume = self.0.volume.state.lock();
        for claim in claims {
            let known = state.claims.remove(&claim.id);
            if known.is_some() && claim.kind == ClaimKind::New {
                let first = claim.device_offset / block;
                let count = claim.len / block;
                volume.free.extend((first..first + count).rev());
                volume.promised += count;
            }
        }
    }
}
