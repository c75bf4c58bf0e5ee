//! Whole programs as variants: our own binary and other tools, each run as a process.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use throughline_face::arguments::{PROGRAM, beside};

use crate::kernel::search_path;
use crate::meter::{Meter, Spent, memory_kib};
use crate::{Error, Result};

/// Runs a command to its end and discards its output. Returns what it took, and its peak memory in MiB, read
/// every few milliseconds.
pub(crate) fn discarded(command: &mut Command) -> Result<(Spent, f64)> {
    const EVERY: Duration = Duration::from_millis(5);
    let failed = |e| Error::new(format!("cannot run a command: {e}"));
    command.env("PATH", search_path()).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let meter = Meter::start();
    let mut child = command.spawn().map_err(failed)?;
    let (process, ended) = (child.id(), AtomicBool::new(false));
    let (spent, status, errors, peak_kib) = std::thread::scope(|scope| {
        let peak = scope.spawn(|| {
            let mut peak_kib = 0;
            while !ended.load(Ordering::Relaxed) {
                peak_kib = memory_kib(process, "VmHWM:").max(peak_kib);
                std::thread::sleep(EVERY);
            }
            peak_kib
        });
        let mut errors = String::new();
        if let Some(stderr) = &mut child.stderr {
            let _ = stderr.read_to_string(&mut errors);
        }
        let status = child.wait();
        let spent = meter.spent();
        ended.store(true, Ordering::Relaxed);
        (spent, status, errors, peak.join().unwrap_or(0))
    });
    match status.map_err(failed)? {
        status if status.success() => Ok((spent, peak_kib as f64 / 1024.0)),
        status => Err(Error::new(format!("{command:?}: {status}: {errors}"))),
    }
}

/// The program `throughline`, which lies beside this one.
pub(crate) fn own() -> Result<Command> {
    let own = beside(PROGRAM)?;
    if !own.exists() {
        return Err(Error::new(format!(
            "{} is missing: build or install it",
            own.display()
        )));
    }
    #[expect(clippy::disallowed_methods, reason = "a full path")]
    Ok(Command::new(own))
}

/// Creates a file of `len_bytes` with incompressible, varied contents, and syncs it to the disk.
pub(crate) fn make_data(path: &Path, len_bytes: u64) -> Result<()> {
    use std::io::Write;
    let file = std::fs::File::create(path)?;
    let mut out = std::io::BufWriter::with_capacity(8 << 20, &file);
    let mut random = fastrand::Rng::with_seed(4);
    let mut block = vec![0u8; 1 << 20];
    random.fill(&mut block);
    let mut left = len_bytes;
    while left > 0 {
        let take = left.min(block.len() as u64) as usize;
        block[..8].copy_from_slice(&left.to_le_bytes());
        out.write_all(&block[..take])?;
        left -= take as u64;
    }
    out.flush()?;
    drop(out);
    Ok(file.sync_all()?)
}

/// Writes back the dirty data of `path` and drops it from the host's cache.
pub(crate) fn drop_cached(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::named;

    #[test]
    fn a_discarded_command_tells_its_time_memory_and_errors() {
        let (spent, peak_mib) = discarded(named("sleep").arg("0.1")).expect("it runs");
        assert!(spent.wall >= Duration::from_millis(100));
        assert!(peak_mib > 0.0 && peak_mib < 100.0, "{peak_mib}");
        let error = discarded(named("cat").arg("/no/such/file")).expect_err("it fails");
        assert!(error.to_string().contains("No such file"), "{error}");
    }
}
