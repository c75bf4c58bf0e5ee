//! Small new files, many in one go: their data goes out together, in as few bios as its place on the device allows, and
//! one wait is for all. A file by itself would cost a bio and a wait.
//!
//! The order is that of every write: claim, write, commit. All claims come first, so that data that lies together goes
//! out together.

use throughline_block::Disk;
use throughline_device::{Op, PooledBuf, Segment};

use crate::error::{Error, Reason, Result};
use crate::mapper::{Claim, ClaimKind, Mapper};

/// The whole contents of a file that is empty.
pub struct NewFile<'a> {
    /// Its mapping; the caller holds the file's lock, exclusive.
    pub mapper: &'a dyn Mapper,
    /// What it is to hold.
    pub data: &'a [u8],
}

/// Writes whole files. Each has all of its data and its new size when its result is `Ok`. Else it is as empty as before or,
/// where its commit ran out of space half-way, it ends behind what was entered.
///
/// Memory for a copy of all data comes from the disk's pool: the caller bounds what it asks for at once.
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

/// Memory for the data, one buffer after the other.
struct Room<'env> {
    rest: &'env mut [u8],
    later: std::slice::IterMut<'env, PooledBuf>,
}

impl<'env> Room<'env> {
    /// Up to `len` bytes, at least one.
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

/// Puts the file's bytes from `at` on into `memory`, and zeroes behind its end.
fn fill(memory: &mut [u8], data: &[u8], at: u64) {
    let data = usize::try_from(at)
        .ok()
        .and_then(|at| data.get(at..))
        .unwrap_or_default();
    let len = data.len().min(memory.len());
    memory[..len].copy_from_slice(&data[..len]);
    memory[len..].fill(0);
}

/// Claims the whole file.
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
                "the claim for byte {at} of an empty file makes no sense: {claim:?}"
            )));
        }
        at = at.saturating_add(claim.len);
    }
    Ok(())
}
