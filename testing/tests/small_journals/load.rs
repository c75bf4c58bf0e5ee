//! Work that changes much metadata, and what must be there after it.

use throughline::{File, Volume};
use throughline_testing::sectors::{SECTOR_BYTES, Sector, filled, parse};

/// Threads that work at once.
pub(crate) const THREADS: usize = 4;
/// Files that are appended to.
pub(crate) const FILES: usize = 6;
/// Files in each thread's directory: more blocks of metadata than the log has.
const MANY: usize = 400;
/// Pieces of the scattered file: each is a block, and a change of the map.
const PIECES: u64 = 500;

fn dir(number: usize) -> String {
    format!("/d{number}")
}

/// One thread's: makes a full directory and scattered files, and cuts and removes most of it again.
pub(crate) fn work(volume: &Volume, number: usize, seed: u64) -> throughline::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed ^ number as u64);
    let dir = dir(number);
    if volume.metadata(&dir).is_err() {
        volume.create_dir(&dir)?;
    }
    for n in 0..MANY {
        let path = format!("{dir}/{n:0100}");
        let file = volume.create_file(&path)?;
        file.write_all_at(&filled(SECTOR_BYTES, n as u64, 0, 1), 0)?;
        if random.u8(..40) == 0 {
            file.sync()?;
        }
    }
    let scattered = volume.create_file(format!("{dir}/scattered"))?;
    for n in 0..PIECES {
        scattered.write_all_at(&[1; 300], n * 70_000)?;
    }
    scattered.sync()?;
    // All of its map goes in one call.
    scattered.set_len(100)?;
    for n in (0..MANY).filter(|n| n % 3 != 0) {
        volume.remove_file(format!("{dir}/{n:0100}"))?;
    }
    for n in (0..MANY).step_by(9) {
        let (from, to) = (format!("{dir}/{n:0100}"), format!("{dir}/moved-{n}"));
        volume.rename(from, to)?;
    }
    Ok(())
}

/// What [`work`] has left of every thread.
pub(crate) fn check(volume: &Volume) -> Result<(), String> {
    for number in 0..THREADS {
        let dir = dir(number);
        let said = |error: throughline::Error| format!("{dir}: {error}");
        let names = volume.read_dir(&dir).map_err(said)?;
        let names = names.collect::<Result<Vec<_>, _>>().map_err(said)?;
        let expected = MANY.div_ceil(3) + 1;
        if names.len() != expected {
            return Err(format!("{dir} has {} names, not {expected}", names.len()));
        }
        for n in (0..MANY).step_by(3) {
            let path = match n % 9 {
                0 => format!("{dir}/moved-{n}"),
                _ => format!("{dir}/{n:0100}"),
            };
            let said = |error: throughline::Error| format!("{path}: {error}");
            let mut bytes = [0; SECTOR_BYTES];
            let file = volume.open_file(&path).map_err(said)?;
            file.read_exact_at(&mut bytes, 0).map_err(said)?;
            check_sector(&bytes, n as u64, 0).map_err(|what| format!("{path}: {what}"))?;
        }
    }
    Ok(())
}

/// Takes all of it away.
pub(crate) fn remove(volume: &Volume) -> throughline::Result<()> {
    for number in 0..THREADS {
        let dir = dir(number);
        for entry in volume.read_dir(&dir)?.collect::<Result<Vec<_>, _>>()? {
            let name = entry.file_name().to_string_lossy().into_owned();
            volume.remove_file(format!("{dir}/{name}"))?;
        }
        volume.remove_dir(&dir)?;
    }
    Ok(())
}

fn path(number: usize) -> String {
    format!("/f{number}")
}

pub(crate) fn create(volume: &Volume, number: usize) -> throughline::Result<File> {
    volume.create_file(path(number))
}

/// Appends sectors that say what they are.
pub(crate) fn append(file: &File, number: usize, sectors: u64) -> throughline::Result<()> {
    let at = file.size()?;
    let bytes = filled(sectors as usize * SECTOR_BYTES, number as u64, at, 1);
    file.write_all_at(&bytes, at)
}

/// Whether a file has its size and every sector.
pub(crate) fn check_file(volume: &Volume, number: usize, size: u64) -> Result<(), String> {
    let path = path(number);
    let said = |error: throughline::Error| format!("{path}: {error}");
    let file = volume.open_file(&path).map_err(said)?;
    let found = file.size().map_err(said)?;
    if found != size {
        return Err(format!("{path} has {found} bytes, not {size}"));
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 0).map_err(said)?;
    let mut sectors = bytes.chunks(SECTOR_BYTES).zip((0..).step_by(SECTOR_BYTES));
    sectors
        .try_for_each(|(bytes, at)| check_sector(bytes, number as u64, at))
        .map_err(|what| format!("{path}: {what}"))
}

fn check_sector(bytes: &[u8], file: u64, offset: u64) -> Result<(), String> {
    let expected = Sector::Data {
        file,
        offset,
        version: 1,
    };
    match parse(bytes) {
        found if found == expected => Ok(()),
        other => Err(format!("byte {offset} holds {other:?}")),
    }
}
