//! Appends of 4 KiB, each with an fsync, by one thread and by eight threads with one file each. The same on
//! the kernel's ext4, on a loop device (direct-io=on) on the same disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use throughline::Volume;
use throughline::internal::VolumeLayers;
use throughline_device::Op;
use throughline_locks::Mutex;

use super::{Bench, Images};
use crate::Result;
use crate::interleave::{Sample, Variant};
use crate::kernel::{LoopMount, e2fsck, may_mount, mkfs};
use crate::meter::Spent;
use crate::mounts::work::{NEW, together};
use crate::outcome::{Outcome, ratios};

const APPEND_BYTES: usize = 4096;
const THREADS: [usize; 2] = [1, 8];

const JOURNAL: &str = "journal";
const AGAIN: &str = "journal again";
const NONE: &str = "no journal";
const KERNEL: &str = "kernel ext4";

pub(super) fn measure(bench: &Bench<'_>, images: &Images, outcome: &mut Outcome) -> Result<()> {
    for (path, arguments) in images.each() {
        mkfs("ext4", path, arguments)?;
    }
    let journal = bench.settings.volume(&images.journal)?;
    let none = bench.settings.volume(&images.none)?;
    let kernel = match may_mount() {
        true => {
            let path = bench.written_out("kernel")?;
            mkfs("ext4", &path, super::WITH)?;
            Some(LoopMount::new(&path, "ext4", None)?)
        }
        false => {
            outcome.note(
                "fsync: the kernel's ext4 on loop was left out: it needs root and loop devices",
            );
            None
        }
    };
    let time = Duration::from_millis(bench.settings.scaled(700, 30));
    let mut variants = Vec::new();
    for threads in THREADS {
        for (name, volume) in [(JOURNAL, &journal), (AGAIN, &journal), (NONE, &none)] {
            let run = move || ours(bench, volume, threads, time);
            variants.push(Variant::new(label(name, threads), run));
        }
        if let Some(mount) = &kernel {
            let run = move || kernels(bench, mount, threads, time);
            variants.push(Variant::new(label(KERNEL, threads), run));
        }
    }
    outcome.measure(bench.settings, 7, variants)?;
    for (volume, path) in [(journal, &images.journal), (none, &images.none)] {
        volume.close()?;
        e2fsck(path)?;
    }
    bars(outcome);
    Ok(())
}

fn label(name: &str, threads: usize) -> String {
    match threads {
        1 => format!("fsync, {name}, 1 thread"),
        _ => format!("fsync, {name}, {threads} threads"),
    }
}

fn bars(outcome: &mut Outcome) {
    for (threads, target) in THREADS.into_iter().zip([0.8, 1.0]) {
        let [journal, again, none, kernel] =
            [JOURNAL, AGAIN, NONE, KERNEL].map(|name| label(name, threads));
        let title = |what: &str| label(what, threads);
        ratios! { outcome;
            title("journal / kernel ext4")              => "rate", journal, kernel, at_least target;
            title("control, journal twice")             => "rate", again, journal;
            title("journal / no journal")               => "rate", journal, none;
            title("machine cpu, journal / kernel ext4") => "machine cpu", journal, kernel;
        }
    }
}

fn file_name(thread: usize) -> String {
    format!("log{thread}")
}

fn ours(bench: &Bench<'_>, volume: &Volume, threads: usize, time: Duration) -> Result<Sample> {
    // Truncate what an earlier sample wrote.
    let file = |thread| volume.create_file(format!("/{}", file_name(thread)));
    let files = (0..threads)
        .map(file)
        .collect::<throughline::Result<Vec<_>>>()?;
    volume.sync()?;
    let before = (volume.disk().counters(), volume.journal_counts());
    let content = &bench.source[..APPEND_BYTES];
    let ran = hammer(&files, time, |file, at| {
        file.write_all_at(content, at)?;
        Ok(file.sync_all()?)
    })?;
    let io = volume.disk().counters().since(&before.0);
    let journal = volume.journal_counts();
    let writes = io.bios(Op::Write) as f64;
    // These are the only ways to make a write to a regular file durable.
    let flushes = (io.bios(Op::Flush) + io.fua()) as f64;
    let written_kib = io.bytes(Op::Write) as f64 / 1024.0;
    let logged = (journal.log_blocks - before.1.log_blocks) as f64;
    let checkpoints = (journal.checkpoints - before.1.checkpoints) as f64;
    let mut sample = ran.quantities();
    sample.extend([
        ("writes", "per fsync", ran.each(writes)),
        ("flushes", "per fsync", ran.each(flushes)),
        ("written", "KiB/fsync", ran.each(written_kib)),
        ("log blocks", "per fsync", ran.each(logged)),
        ("checkpoints", "per s", ran.per_second(checkpoints)),
    ]);
    sample.extend(ran.grouped((journal.commits - before.1.commits) as f64));
    Ok(sample)
}

fn kernels(bench: &Bench<'_>, mount: &LoopMount, threads: usize, time: Duration) -> Result<Sample> {
    let file = |thread| mount.root().open(&file_name(thread), NEW);
    let files = (0..threads).map(file).collect::<Result<Vec<File>>>()?;
    mount.sync()?;
    let before = mount.counts();
    let content = &bench.source[..APPEND_BYTES];
    let ran = hammer(&files, time, |file, at| {
        file.write_all_at(content, at)?;
        Ok(file.sync_all()?)
    })?;
    let after = mount.counts();
    let mut sample = ran.quantities();
    let flushes = (after.flushes - before.flushes) as f64;
    sample.push(("flushes", "per fsync", ran.each(flushes)));
    let written = (after.written_bytes - before.written_bytes) as f64;
    sample.push(("written", "KiB/fsync", ran.each(written / 1024.0)));
    let commits = (after.commits - before.commits) as f64;
    sample.extend(ran.grouped(commits));
    Ok(sample)
}

/// What the threads did in the given time.
struct Ran {
    /// The time of each fsync with its append, in nanoseconds, ascending.
    latencies_ns: Vec<u64>,
    spent: Spent,
}

impl Ran {
    fn quantities(&self) -> Sample {
        let us = |time: Duration| self.each(time.as_secs_f64() * 1e6);
        let fsyncs = self.latencies_ns.len() as f64;
        vec![
            ("rate", "fsync/s", self.per_second(fsyncs)),
            ("p50", "us", self.percentile(50)),
            ("p99", "us", self.percentile(99)),
            ("cpu", "us/fsync", us(self.spent.cpu)),
            ("machine cpu", "us/fsync", us(self.spent.machine_cpu)),
        ]
    }

    fn grouped(&self, commits: f64) -> Sample {
        let fsyncs = self.latencies_ns.len() as f64;
        vec![
            ("commits", "per s", self.per_second(commits)),
            ("fsyncs", "per commit", fsyncs / commits.max(1.0)),
        ]
    }

    /// A total, divided by the number of fsyncs.
    fn each(&self, total: f64) -> f64 {
        total / self.latencies_ns.len().max(1) as f64
    }

    fn per_second(&self, total: f64) -> f64 {
        total / self.spent.wall.as_secs_f64().max(1e-9)
    }

    fn percentile(&self, percent: usize) -> f64 {
        let at = self.latencies_ns.len().saturating_sub(1) * percent / 100;
        self.latencies_ns.get(at).map_or(0.0, |ns| *ns as f64 / 1e3)
    }
}

/// Runs one thread per file, each appending to its own file for this long. `append` receives the file offset.
fn hammer<F: Sync>(
    files: &[F],
    time: Duration,
    append: impl Fn(&F, u64) -> Result<()> + Sync,
) -> Result<Ran> {
    let all_ns = Mutex::new(Vec::new());
    let spent = together(files.len(), |thread| {
        let mut own_ns = Vec::new();
        let begun = Instant::now();
        let mut before = begun;
        while before.duration_since(begun) < time {
            append(&files[thread], (own_ns.len() * APPEND_BYTES) as u64)?;
            let now = Instant::now();
            let took = now.duration_since(before).as_nanos();
            own_ns.push(u64::try_from(took).unwrap_or(u64::MAX));
            before = now;
        }
        all_ns.lock().append(&mut own_ns);
        Ok(())
    })?;
    let mut latencies_ns = all_ns.into_inner();
    latencies_ns.sort_unstable();
    Ok(Ran {
        latencies_ns,
        spent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_appends_to_its_own_file_without_gaps() {
        let files = [Mutex::new(Vec::new()), Mutex::new(Vec::new())];
        let append = |own: &Mutex<Vec<u64>>, at| {
            own.lock().push(at);
            Ok(())
        };
        let ran = hammer(&files, Duration::from_millis(5), append).unwrap();
        let all = files.map(|seen| seen.into_inner());
        assert_eq!(ran.latencies_ns.len(), all[0].len() + all[1].len());
        for seen in all {
            assert!(!seen.is_empty());
            let expected = (0..seen.len()).map(|n| (n * APPEND_BYTES) as u64);
            assert!(seen.iter().copied().eq(expected));
        }
        assert!(ran.latencies_ns.is_sorted());
        assert!(ran.percentile(50) <= ran.percentile(99));
    }
}
