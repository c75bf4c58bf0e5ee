//! Appends through many handles to one file.

use super::*;

/// Appends through many handles never overlap, and each thread's stay in order.
pub(super) fn appending(seed: u64, name: &str, scratch: &Scratch) -> Check {
    let device = scratch.device(&shape(name));
    let volume = volume(&device, seed)?;
    let log = volume.create_file("/log").map_err(in_call("create"))?;
    let steps = if soak() { 2000 } else { 150 };
    let total = AtomicU64::new(0);
    let ended = AtomicBool::new(false);
    {
        let (volume, log, total) = (&volume, &log, &total);
        let append = move |me: u64| -> Check {
            let mut random = fastrand::Rng::with_seed(seed ^ me.rotate_left(48));
            for version in 1..=steps {
                let handle = some_handle(&mut random, volume, "/log", log)?;
                let len = random.usize(1..24) * SECTOR_BYTES;
                // The offset is not known yet, so the sector's position is counted per thread.
                let bytes = filled(len, me, 0, version);
                let (_, n) = handle.append(&bytes).map_err(in_call("append"))?;
                if n != len {
                    return Err(format!("appended {n} of {len}"));
                }
                total.fetch_add(len as u64, Ordering::Relaxed);
            }
            Ok(())
        };
        let threads = (0..WRITERS).map(|me| Box::new(move || append(me)) as _);
        together(threads.collect(), Vec::new(), &ended)?;
    }
    drop(log);
    let check = |volume: &Volume| -> Check {
        let file = volume.open_file("/log").map_err(in_call("open"))?;
        let mut bytes = vec![0xee; file.size().map_err(in_call("size"))? as usize];
        file.read_exact_at(&mut bytes, 0).map_err(in_call("read"))?;
        if bytes.len() as u64 != total.load(Ordering::Relaxed) {
            return Err(format!("{} bytes, appended {total:?}", bytes.len()));
        }
        let mut next = vec![(1, 0); WRITERS as usize];
        for (at, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let Sector::Data {
                file,
                offset,
                version,
            } = parse(sector)
            else {
                return Err(format!("sector {at} is {:?}", parse(sector)));
            };
            let next = &mut next[file as usize];
            // Either the record continues, or the next one starts.
            if (version, offset) != *next && (version, offset) != (next.0 + 1, 0) {
                return Err(format!(
                    "sector {at} of {file}: {version} at {offset}, after {next:?}"
                ));
            }
            *next = (version, offset + SECTOR);
        }
        Ok(())
    };
    check(&volume)?;
    let again = close_and_open(volume, &device, seed, scratch)?;
    check(&again)?;
    again.close().map_err(in_call("close again"))
}
