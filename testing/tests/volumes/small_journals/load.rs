//! A load that changes much metadata, and checks of its results.

use throughline::{File, Volume};
use throughline_testing::sectors::{SECTOR_BYTES, Sector, filled, parse};

/// Number of concurrent threads.
pub(crate) const THREADS: usize = 4;
/// Number of files that are appended to.
pub(crate) const FILES: usize = 6;
/// Number of files in each thread's directory: they need more metadata blocks than the log has.
const MANY: usize = 400;
/// Number of pieces of the scattered file: each takes a block and a change of the mapping.
const PIECES: u64 = 500;

fn dir(number: usize) -> String {
    format!("/d{number}")
}

/// One thread's work: creates a full directory and a scattered file, then truncates and removes most of it.
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
            file.sync_all()?;
        }
    }
    let scattered = volume.create_file(format!("{dir}/scattered"))?;
    for n in 0..PIECES {
        scattered.write_all_at(&[1; 300], n * 70_000)?;
    }
    scattered.sync_all()?;
    // One call frees the whole mapping.
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

/// Checks what [`work`] has left of every thread.
pub(crate) fn check(volume: &Volume) -> Result<(), String> {
    for number in 0..THREADS {
        let dir = dir(number);
        let message = |error: throughline::Error| format!("{dir}: {error}");
        let names = volume.read_dir(&dir).map_err(message)?;
        let names = names.collect::<Result<Vec<_>, _>>().map_err(message)?;
        let expected = MANY.div_ceil(3) + 1;
        if names.len() != expected {
            return Err(format!("{dir} has {} names, not {expected}", names.len()));
        }
        for n in (0..MANY).step_by(3) {
            let path = match n % 9 {
                0 => format!("{dir}/moved-{n}"),
                _ => format!("{dir}/{n:0100}"),
            };
            let message = |error: throughline::Error| format!("{path}: {error}");
            let mut bytes = [0; SECTOR_BYTES];
            let file = volume.open_file(&path).map_err(message)?;
            file.read_exact_at(&mut bytes, 0).map_err(message)?;
            check_sector(&bytes, n as u64, 0).map_err(|what| format!("{path}: {what}"))?;
        }
    }
    Ok(())
}

/// Removes everything that [`work`] has left.
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

/// Appends self-describing sectors.
pub(crate) fn append(file: &File, number: usize, sectors: u64) -> throughline::Result<()> {
    let at = file.size()?;
    let bytes = filled(sectors as usize * SECTOR_BYTES, number as u64, at, 1);
    file.write_all_at(&bytes, at)
}

/// Checks a file's size and every sector.
pub(crate) fn check_file(volume: &Volume, number: usize, size: u64) -> Result<(), String> {
    let path = path(number);
    let message = |error: throughline::Error| format!("{path}: {error}");
    let file = volume.open_file(&path).map_err(message)?;
    let found = file.size().map_err(message)?;
    if found != size {
        return Err(format!("{path} has {found} bytes, not {size}"));
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 0).map_err(message)?;
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
