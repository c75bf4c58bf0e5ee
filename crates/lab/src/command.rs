//! Whole programs as variants: our own binary and other tools, each run as a process.

use std::path::Path;
use std::process::Command;

use rustix::fs::{Advice, fadvise};

use crate::kernel::output;
use crate::meter::{Meter, Spent};
use crate::{Error, Result};

/// The report printed by `throughline --json cp --stats`.
pub(crate) struct OwnReport(serde_json::Value);

impl OwnReport {
    /// A number in the report; 0 if it has none with that name.
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.0
            .get(name)
            .and_then(serde_json::Value::as_f64)
            .unwrap_or(0.0)
    }
}

/// Runs a command to its end and measures its wall time. The processor time of the result is that of this
/// process, and meaningless here.
pub(crate) fn timed(command: &mut Command) -> Result<(Spent, String)> {
    let meter = Meter::start();
    let output = output(command)?;
    let spent = meter.spent();
    Ok((spent, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Our own binary.
pub(crate) fn own() -> Result<Command> {
    let own = std::env::current_exe()
        .map_err(|e| Error::new(format!("cannot find this program: {e}")))?;
    Ok(Command::new(own))
}

/// Runs our own `cp --stats` with these arguments.
pub(crate) fn own_cp(arguments: &[&str]) -> Result<(Spent, OwnReport)> {
    let mut cp = own()?;
    let (spent, stdout) = timed(cp.args(["--json", "cp", "--stats"]).args(arguments))?;
    let line = stdout.lines().last().unwrap_or_default();
    let report = serde_json::from_str(line)
        .map_err(|e| Error::new(format!("cp --stats printed {line:?}: {e}")))?;
    Ok((spent, OwnReport(report)))
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
