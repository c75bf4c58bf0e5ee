//! `mount/sysbench`: report 5's own command line through a mount.
//!
//! `sysbench` 1.0 renamed some options: `--num-threads` is now `--threads`, and `--max-requests` is
//! `--events`. `--time=0` removes the default limit of 10 s, which the older version did not apply if the
//! number of requests was limited.

use crate::command::timed;
use crate::kernel::named;
use crate::mounts::Bench;
use crate::mounts::contestants::{Aim, Contestant};
use crate::mounts::work::have;
use crate::outcome::Outcome;
use crate::warm::{note, warm};
use crate::{Error, Result, Settings};

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 32768;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    if !have(outcome, "sysbench", "everything") {
        return Ok(());
    }
    let file_mib = settings.scaled(4096, 64);
    let contestants = Contestant::all(outcome);
    let bench = Bench::new(settings, file_mib * MIB / 8 * 9 + 256 * MIB, &[])?;
    bench.compare(outcome, &contestants, 5, &|session| {
        let mut sysbench = named("sysbench");
        sysbench
            .arg("fileio")
            .args(["--threads=1", "--file-num=1"])
            .arg(format!("--file-block-size={BLOCK_BYTES}"))
            .arg(format!("--file-total-size={file_mib}M"))
            .args(["--file-test-mode=seqwr", "--file-io-mode=sync"])
            .args(["--file-extra-flags=", "--file-fsync-freq=0"])
            .arg("--file-fsync-end=off")
            .arg(format!("--events={}", file_mib * MIB / BLOCK_BYTES))
            .args(["--time=0", "run"])
            .current_dir(session.root().path(""));
        warm(file_mib * MIB / 4 * 5);
        let (_, stdout) = timed(&mut sysbench)?;
        let written = number_after(&stdout, "written, MiB/s:")?;
        let unmounting = session.unmount()?;
        let seconds = file_mib as f64 / written.max(1e-9);
        let durable = file_mib as f64 / (seconds + unmounting.as_secs_f64());
        let late_ms = number_after(&stdout, "95th percentile:")?;
        Ok(vec![
            ("written", "MiB/s", written),
            ("written, durable", "MiB/s", durable),
            ("95th percentile", "ms", late_ms),
        ])
    })?;
    outcome.count("file, MiB", file_mib as f64);
    outcome.note(
        "durable: the time until the unmount has ended; the report's command line has no fsync",
    );
    note(outcome);
    let written = Aim::new("written").kernel(1.0, 0.8).fuse2fs(12.0);
    written.judge(outcome);
    Aim::new("written, durable").judge(outcome);
    Ok(())
}

/// The number after `label` in the output.
fn number_after(text: &str, label: &str) -> Result<f64> {
    let rest = text.split_once(label).map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| Error::new(format!("no '{label}' in what sysbench printed: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_labels() {
        let text = "Throughput:\n    read, MiB/s:   0.00\n    written, MiB/s:   1234.50\n";
        assert_eq!(number_after(text, "written, MiB/s:").unwrap(), 1234.5);
        assert!(number_after(text, "95th percentile:").is_err());
    }
}
