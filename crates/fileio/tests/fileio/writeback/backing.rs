//! A file over a mapper in memory, as the page cache sees it, with strict checks of reservations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_fileio::{
    AddressSpace, Backing, Claim, ClaimKind, Error, Holes, Map, MappedExtent, Mapper, PageCache,
    Reason, Result, Target,
};
use throughline_locks::Mutex;

use crate::writeback::fake_mapper::{BLOCK, FakeMapper};

/// A file whose blocks are all allocated, in order.
pub(crate) struct Flat {
    size: AtomicU64,
}

impl Flat {
    pub(crate) fn new() -> Flat {
        Flat {
            size: AtomicU64::new(0),
        }
    }
}

impl Map for Flat {
    fn block_bytes(&self) -> u32 {
        BLOCK as u32
    }

    fn size_bytes(&self) -> u64 {
        self.size.load(Ordering::Acquire)
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

impl Mapper for Flat {
    fn claim(&self, file_offset: u64, len: u64) -> Result<Claim> {
        Ok(Claim {
            file_offset,
            len,
            device_offset: file_offset,
            kind: ClaimKind::Overwrite,
            id: 0,
        })
    }

    fn commit(&self, claims: &[Claim], new_size: Option<u64>) -> Result<()> {
        assert!(claims.is_empty(), "an overwrite needs no commit");
        self.size
            .fetch_max(new_size.unwrap_or(0), Ordering::Release);
        Ok(())
    }

    fn abandon(&self, claims: &[Claim]) {
        assert!(claims.is_empty(), "overwrites are not passed to abandon");
    }
}

/// A mapper that can report whether anything is uncommitted.
pub(crate) trait CheckClaims: Mapper {
    fn assert_no_open_claims(&self) {}
}

impl CheckClaims for Flat {}

impl CheckClaims for FakeMapper {
    fn assert_no_open_claims(&self) {
        FakeMapper::assert_no_open_claims(self);
    }
}

/// A file on the device range at `base`.
pub(crate) struct FakeFile {
    mapper: Box<dyn CheckClaims>,
    space: AddressSpace,
    base: u64,
    blocks: u64,
    room: Mutex<Room>,
    /// Number of commits that fail from now on.
    pub(crate) failing_commits: AtomicU64,
}

/// Blocks that are reserved, or claimed and not committed or abandoned; and free blocks.
struct Room {
    free: u64,
    promised: u64,
    /// Runs being written, by offset.
    runs: BTreeMap<u64, u64>,
}

impl FakeFile {
    /// With `blocks` blocks on the device.
    pub(crate) fn new(
        cache: &Arc<PageCache>,
        mapper: impl CheckClaims + 'static,
        base: u64,
        blocks: u64,
    ) -> Arc<FakeFile> {
        let (size, block_bytes) = (mapper.size_bytes(), mapper.block_bytes());
        Arc::new(FakeFile {
            mapper: Box::new(mapper),
            space: AddressSpace::new(Arc::clone(cache), size, block_bytes),
            base,
            blocks,
            room: Mutex::new(Room {
                free: blocks,
                promised: 0,
                runs: BTreeMap::new(),
            }),
            failing_commits: AtomicU64::new(0),
        })
    }

    pub(crate) fn host(self: &Arc<Self>) -> Arc<dyn Backing> {
        Arc::clone(self) as Arc<dyn Backing>
    }

    pub(crate) fn space_ref(&self) -> &AddressSpace {
        &self.space
    }

    pub(crate) fn space_size(&self) -> u64 {
        self.space.size()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.space.is_dirty(0..u64::MAX)
    }

    /// Checks that nothing is reserved, claimed or in flight.
    pub(crate) fn assert_no_open_claims(&self) {
        let room = self.room.lock();
        assert_eq!(room.promised, 0, "reservations left");
        assert!(room.runs.is_empty(), "runs left: {:?}", room.runs);
        self.mapper.assert_no_open_claims();
    }

    pub(crate) fn promised(&self) -> u64 {
        self.room.lock().promised
    }

    fn holes(&self, from: u64, to: u64) -> Result<Holes> {
        let mut holes = Holes::default();
        let mut at = from;
        while at < to {
            let extent = self.mapper.map(at, to - at)?;
            let end = (extent.file_offset + extent.len).min(to);
            if extent.target == Target::Hole {
                holes.runs.push((at, end - at));
            }
            at = end;
        }
        Ok(holes)
    }
}

impl Map for FakeFile {
    fn block_bytes(&self) -> u32 {
        self.mapper.block_bytes()
    }

    fn size_bytes(&self) -> u64 {
        self.mapper.size_bytes()
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        let mut extent = self.mapper.map(file_offset, len)?;
        match &mut extent.target {
            Target::Hole => {}
            Target::Data { device_offset } | Target::Unwritten { device_offset } => {
                *device_offset += self.base;
            }
        }
        Ok(extent)
    }
}

impl Backing for FakeFile {
    fn space(&self) -> &AddressSpace {
        &self.space
    }

    fn reserve(&self, file_offset: u64, len: u64) -> Result<Holes> {
        assert!(file_offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK));
        let holes = self.holes(file_offset, file_offset + len)?;
        let units: u64 = holes.runs.iter().map(|(_, len)| len / BLOCK).sum();
        let mut room = self.room.lock();
        if room.promised + units > room.free || file_offset + len > self.blocks * BLOCK {
            return Err(Error::Caller(Reason::NoSpace));
        }
        room.promised += units;
        Ok(holes)
    }

    fn unreserve(&self, units: u64) {
        let mut room = self.room.lock();
        assert!(units <= room.promised, "more returned than reserved");
        room.promised -= units;
    }

    fn writer(self: Arc<Self>, file_offset: u64, len: u64) -> Result<Box<dyn Mapper>> {
        let mut room = self.room.lock();
        let before = room.runs.range(..file_offset + len).next_back();
        assert!(
            before.is_none_or(|(_, end)| *end <= file_offset),
            "two runs of the same bytes"
        );
        room.runs.insert(file_offset, file_offset + len);
        drop(room);
        Ok(Box::new(Writer {
            file: self,
            start: file_offset,
            end: file_offset + len,
        }))
    }
}

/// The mapper of one run.
struct Writer {
    file: Arc<FakeFile>,
    start: u64,
    end: u64,
}

impl Writer {
    fn unshifted(&self, claims: &[Claim]) -> Vec<Claim> {
        let unshift = |claim: &Claim| Claim {
            device_offset: claim.device_offset - self.file.base,
            ..*claim
        };
        claims.iter().map(unshift).collect()
    }

    fn back_to_promises(&self, claims: &[Claim]) {
        self.file.room.lock().promised += new_blocks(claims);
    }
}

fn new_blocks(claims: &[Claim]) -> u64 {
    let new = claims.iter().filter(|claim| claim.kind == ClaimKind::New);
    new.map(|claim| claim.len / BLOCK).sum()
}

impl Map for Writer {
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

impl Mapper for Writer {
    fn claim(&self, file_offset: u64, len: u64) -> Result<Claim> {
        assert!(self.start <= file_offset && file_offset + len <= self.end);
        let mut claim = self.file.mapper.claim(file_offset, len)?;
        claim.device_offset += self.file.base;
        let units = new_blocks(&[claim]);
        let mut room = self.file.room.lock();
        assert!(units <= room.promised, "a claim without a reservation");
        room.promised -= units;
        Ok(claim)
    }

    fn commit(&self, claims: &[Claim], new_size: Option<u64>) -> Result<()> {
        let claims = self.unshifted(claims);
        let failing = &self.file.failing_commits;
        let one_less = |left: u64| left.checked_sub(1);
        if failing
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less)
            .is_ok()
        {
            self.file.mapper.abandon(&claims);
            self.back_to_promises(&claims);
            return Err(Error::Unsupported("a commit that fails on purpose".into()));
        }
        self.file.room.lock().free -= new_blocks(&claims);
        self.file.mapper.commit(&claims, new_size)
    }

    fn abandon(&self, claims: &[Claim]) {
        self.file.mapper.abandon(&self.unshifted(claims));
        self.back_to_promises(claims);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.file.room.lock().runs.remove(&self.start);
    }
}
