//! A file that one thread truncates, punches and collapses while others read and write it.

use super::*;

/// One thread truncates, punches and collapses a file that others read and write: everything they see was
/// written to it.
fn cut_under(common: &Common<'_>, seed: u64, steps: u64) -> Check {
    let mut random = fastrand::Rng::with_seed(seed ^ 0xc07);
    for _ in 0..steps {
        let (_, handle) = common.pick(&mut random)?;
        let offset = random.u64(..SECTORS) * SECTOR;
        let len = random.u64(1..600) * SECTOR;
        let block = 4096;
        let (from, whole) = (offset / block * block, len.next_multiple_of(block));
        let done = match random.u8(..10) {
            0..4 => handle.set_len(offset + random.u64(..2) * random.u64(..SECTOR)),
            4 => handle.set_len(0),
            5..7 => handle.allocate(Fallocate::PunchHole, offset, len),
            7 => ignore_invalid(handle.allocate(Fallocate::ZeroRange, offset, len)),
            // Data moves: only by whole sectors, so that each stays intact.
            8 => ignore_invalid(handle.allocate(Fallocate::Collapse, from, whole)),
            _ => ignore_invalid(handle.allocate(Fallocate::Insert, from, whole)),
        };
        done.map_err(in_call("cut"))?;
    }
    Ok(())
}

/// Moving blocks is refused at the end of a file, and without extents.
fn ignore_invalid(result: throughline::Result<()>) -> throughline::Result<()> {
    match result {
        Err(throughline::Error::Caller(throughline::Reason::Invalid(_)))
        | Err(throughline::Error::Unsupported(_)) => Ok(()),
        other => other,
    }
}

/// Checks that every whole sector read is zero or was once written to this file.
fn judge_loosely(shared: &Shared, offset: u64, bytes: &[u8]) -> Check {
    for (index, sector) in bytes.chunks_exact(SECTOR_BYTES).enumerate() {
        let found = parse(sector);
        // If the sector was truncated in the middle, the rest of it is zero.
        let zeros = sector.iter().rev().take_while(|byte| **byte == 0).count();
        let right = match found {
            Sector::Zero => true,
            Sector::Data { file, .. } => file == shared.number,
            Sector::Garbage => {
                zeros > 0 && sector.starts_with(&MAGIC[..8.min(SECTOR_BYTES - zeros)])
            }
        };
        if !right {
            return Err(format!(
                "{} sector {} is {found:?}, {zeros} zeros at its end",
                shared.path,
                offset / SECTOR + index as u64
            ));
        }
    }
    Ok(())
}

/// Writes and reads a file that another thread truncates.
fn use_what_is_cut(common: &Common<'_>, me: u64, seed: u64, ended: &AtomicBool) -> Check {
    let mut random = fastrand::Rng::with_seed(seed ^ me.rotate_left(40));
    let mut version = 0;
    while !ended.load(Ordering::Relaxed) {
        version += 1;
        let (shared, handle) = common.pick(&mut random)?;
        let first = random.u64(..SECTORS);
        let count = random.u64(1..300);
        let mut bytes = vec![0xee; (count * SECTOR) as usize];
        match random.u8(..8) {
            0..4 => {
                fill(&mut bytes, shared.number, first * SECTOR, version);
                handle
                    .write_all_at(&bytes, first * SECTOR)
                    .map_err(in_call("write"))?;
            }
            4 if me == 0 => handle.sync_all().map_err(in_call("sync"))?,
            _ => {
                let n = handle
                    .read_at(&mut bytes, first * SECTOR)
                    .map_err(in_call("read"))?;
                judge_loosely(shared, first * SECTOR, &bytes[..n])?;
            }
        }
    }
    Ok(())
}

pub(super) fn cutting(seed: u64, name: &str, scratch: &Scratch) -> Check {
    let device = scratch.device(&shape(name));
    let volume = volume(&device, seed)?;
    let shared: Vec<Shared> = (0..2).map(|number| Shared::new(number, 1)).collect();
    let mut open = Vec::new();
    for shared in &shared {
        let file = volume.create_file(&shared.path);
        open.push(file.map_err(in_call("create"))?);
    }
    let steps = if soak() { 3000 } else { 300 };
    let ended = AtomicBool::new(false);
    {
        let common = &Common {
            volume: &volume,
            shared: &shared,
            open: &open,
            extents: shape(name).extents,
        };
        let ended = &ended;
        let users = (0..3)
            .map(|me| Box::new(move || use_what_is_cut(common, me, seed, ended)) as _)
            .collect();
        let cutter = Box::new(move || cut_under(common, seed, steps));
        together(vec![cutter], users, ended)?;
    }
    // The current content is the same after write-back, and on the device.
    let whole = |volume: &Volume, direct: bool| -> Result<Vec<Vec<u8>>, String> {
        let read = |shared: &Shared| {
            let file = FileOptions::new()
                .direct(direct)
                .open(volume, &shared.path)
                .map_err(in_call("open"))?;
            let mut bytes = vec![0xee; file.size().map_err(in_call("size"))? as usize];
            let n = file.read_at(&mut bytes, 0).map_err(in_call("read"))?;
            judge_loosely(shared, 0, &bytes[..n])?;
            (n == bytes.len())
                .then_some(bytes)
                .ok_or_else(|| format!("{n} bytes read"))
        };
        shared.iter().map(read).collect()
    };
    drop(open);
    let before = whole(&volume, false)?;
    if whole(&volume, true)? != before {
        return Err("direct handles see other bytes".into());
    }
    let again = close_and_open(volume, &device, seed, scratch)?;
    if whole(&again, false)? != before {
        return Err("the bytes differ after closing and opening again".into());
    }
    again.close().map_err(in_call("close again"))
}
