//! Batched writing of small new files: their data is written together, in as few bios as its placement
//! allows, with one wait for all. Writing each file alone would cost a bio and a wait per file.
//!
//! The order is that of every write: claim, write, commit. All claims come first, so that adjacent data is
//! written together.

use throughline_block::Disk;
use throughline_device::{Op, PooledBuf, Segment};

use crate::error::{Error, Reason, Result};
use crate::mapper::{Claim, ClaimKind, Mapper};

/// The whole contents of a file that is still empty.
pub struct NewFile<'a> {
    /// The file's mapping. The caller holds the file's lock exclusively.
    pub mapper: &'a dyn Mapper,
    /// The contents to write.
    pub data: &'a [u8],
}

/// Writes whole files. If a file's result is `Ok`, it has all of its data and its new size. Otherwise it is
/// as empty as before or, if its commit ran out of space part-way, it ends after the part that was committed.
///
/// A copy of all data is held in buffers of the disk's pool: the caller limits how much it passes at once.
pub fn write_new(disk: &Disk, files: &[NewFile<'_>]) -> Vec<Result<()>> {
    let mut claims: Vec<Result<Vec<Claim>>> =
        files.iter().map(|file| claim_all(disk, file)).collect();
    let total = claims
        .iter()
        .flatten()
        .flatten()
        .fold(0u64, |sum, claim| sum.saturating_add(claim.len));
    let buffer_bytes = disk.bounce_pool().buffer_bytes();
    let mut buffers: Vec<PooledBuf> = (0..total.div_ceil(buffer_bytes.max(1) as u64))
        .map(|_| disk.bounce_pool().take())
        .collect();
    let mut room = Room {
        rest: &mut [],
        later: buffers.iter_mut(),
    };
    let written = disk.pipeline(Op::Write, |pipeline| -> Result<()> {
        for (file, claims) in files.iter().zip(&claims) {
            for claim in claims.iter().flatten() {
                let mut at = claim.file_offset;
                let (mut device, end) = (
                    claim.device_offset,
                    claim.device_offset.saturating_add(claim.len),
                );
                while device < end {
                    let memory = room.take(end - device)?;
                    fill(memory, file.data, at);
                    let len = memory.len() as u64;
                    pipeline.add(device, Segment::Write(memory))?;
                    (at, device) = (at.saturating_add(len), device.saturating_add(len));
                }
            }
        }
        Ok(())
    });
    let mut commit = |(file, claims): (&NewFile<'_>, &mut Result<Vec<Claim>>)| -> Result<()> {
        let claims = std::mem::replace(claims, Ok(Vec::new()))?;
        if let Err(error) = &written {
            file.mapper.abandon(&claims);
            return Err(error.clone());
        }
        file.mapper.commit(&claims, Some(file.data.len() as u64))
    };
    files.iter().zip(&mut claims).map(&mut commit).collect()
}

/// Buffer space for the data, allocated from one buffer after another.
struct Room<'env> {
    rest: &'env mut [u8],
    later: std::slice::IterMut<'env, PooledBuf>,
}

impl<'env> Room<'env> {
    /// Takes between 1 and `len` bytes.
    fn take(&mut self, len: u64) -> Result<&'env mut [u8]> {
        if self.rest.is_empty() {
            let next = self
                .later
                .next()
                .ok_or(Reason::Invalid("more data than was claimed for"))?;
            self.rest = next;
        }
        let here = usize::try_from(len)
            .unwrap_or(usize::MAX)
            .min(self.rest.len());
        let (taken, rest) = std::mem::take(&mut self.rest).split_at_mut(here);
        self.rest = rest;
        Ok(taken)
    }
}

/// Copies the file's bytes from `at` on into `memory`, and zeroes past the end of the file.
fn fill(memory: &mut [u8], data: &[u8], at: u64) {
    let data = usize::try_from(at)
        .ok()
        .and_then(|at| data.get(at..))
        .unwrap_or_default();
    let len = data.len().min(memory.len());
    memory[..len].copy_from_slice(&data[..len]);
    memory[len..].fill(0);
}

/// Claims blocks for the whole file.
fn claim_all(disk: &Disk, file: &NewFile<'_>) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    match claim_into(&mut claims, disk, file) {
        Ok(()) => Ok(claims),
        Err(error) => {
            file.mapper.abandon(&claims);
            Err(error)
        }
    }
}

fn claim_into(claims: &mut Vec<Claim>, disk: &Disk, file: &NewFile<'_>) -> Result<()> {
    let end = file.data.len() as u64;
    let block = u64::from(disk.limits().logical_block_bytes.max(1));
    if file.mapper.size_bytes() != 0 {
        return Err(Reason::Invalid("the file is not empty").into());
    }
    let mut at = 0;
    while at < end {
        let claim = file.mapper.claim(at, end - at)?;
        claims.push(claim);
        let whole = [claim.len, claim.device_offset]
            .iter()
            .all(|bytes| bytes.is_multiple_of(block));
        if claim.kind == ClaimKind::Overwrite || claim.file_offset != at || claim.len == 0 || !whole
        {
            return Err(Error::Corrupt(format!(
                "invalid claim for byte {at} of an empty file: {claim:?}"
            )));
        }
        at = at.saturating_add(claim.len);
    }
    Ok(())
}
