//! `mount/stream`: large files written and read through a mount, each with an fsync after its write: with the
//! calls of `dd` and of `fio`, direct in calls of 4 MiB, and four files by four threads.

use rustix::fs::OFlags;

use crate::interleave::Sample;
use crate::mounts::contestants::{Aim, Contestant};
use crate::mounts::work::{NEW, fio, have, read_stream, together, write_stream};
use crate::mounts::{Bench, Session};
use crate::outcome::Outcome;
use crate::warm::{note, warm};
use crate::{Result, Settings};

const MIB: u64 = 1 << 20;
const CALL_BYTES: usize = 1 << 20;
const DIRECT_CALL_BYTES: usize = 4 << 20;
const FILES: usize = 4;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let file_bytes = settings.scaled(1024 * MIB, 64 * MIB) / (16 * MIB) * (16 * MIB);
    let contestants = Contestant::all(outcome);
    let with_fio = have(outcome, "fio", "write, fio");
    // Room for four streams and the file system's metadata.
    let bench = Bench::new(settings, file_bytes * 9 / 2 + 256 * MIB, &[])?;
    bench.compare(outcome, &contestants, 5, &|session| {
        sample(session, file_bytes, with_fio)
    })?;
    outcome.count("a stream, MiB", (file_bytes / MIB) as f64);
    note(outcome);
    let direct_write = direct_write_limit();
    for aim in [
        Aim::new("write").kernel(1.3, 1.3).fuse2fs(10.0),
        Aim::new("write, fio").kernel(1.3, 1.3).fuse2fs(10.0),
        Aim::new("cold read").kernel(1.0, 1.0).fuse2fs(4.0),
        Aim::new("direct write").kernel(direct_write, direct_write),
        Aim::new("direct read").kernel(1.0, 1.0),
        Aim::new("write, 4 files").kernel(1.0, 1.0),
        Aim::new("cold read, 4 files").kernel(1.0, 1.0),
    ] {
        aim.judge(outcome);
    }
    Ok(())
}

/// The limit for direct writes over the kernel's, by the size of requests that the kernel allows: whole
/// calls, or parts of them.
fn direct_write_limit() -> f64 {
    let pages = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit").unwrap_or_default();
    match pages.trim().parse::<usize>() {
        Ok(pages) if pages * rustix::param::page_size() >= DIRECT_CALL_BYTES => 0.9,
        _ => 0.75,
    }
}

fn sample(session: &mut Session<'_>, file_bytes: u64, with_fio: bool) -> Result<Sample> {
    let mut sample = written(session, file_bytes, with_fio)?;
    session.cold()?;
    sample.extend(read(session, file_bytes)?);
    Ok(sample)
}

fn written(session: &Session<'_>, file_bytes: u64, with_fio: bool) -> Result<Sample> {
    let (root, source) = (session.root(), &session.bench.source);
    let write = |name: &str, flags, len_bytes, call_bytes| {
        write_stream(&root.open(name, flags)?, source, len_bytes, call_bytes)
    };
    // Memory for written data, in our cache or in the kernel's.
    let needed = file_bytes / 4 * 5;
    warm(needed);
    let buffered = together(1, |_| write("buffered", NEW, file_bytes, CALL_BYTES))?;
    let cpu = buffered.machine_cpu_s_per_gib(file_bytes);
    let mut sample = vec![
        ("write", "MB/s", buffered.mb_per_s(file_bytes)),
        ("write, machine cpu", "s/GiB", cpu),
    ];
    if with_fio {
        warm(needed);
        let rate = fio(root, "fio", file_bytes, &["--rw=write", "--bs=1M"])?;
        sample.push(("write, fio", "MB/s", rate));
    }
    let flags = NEW | OFlags::DIRECT;
    let direct = together(1, |_| write("direct", flags, file_bytes, DIRECT_CALL_BYTES))?;
    sample.push(("direct write", "MB/s", direct.mb_per_s(file_bytes)));
    let part_bytes = file_bytes / FILES as u64;
    warm(needed);
    let four = together(FILES, |n| {
        write(&format!("part{n}"), NEW, part_bytes, CALL_BYTES)
    })?;
    sample.push(("write, 4 files", "MB/s", four.mb_per_s(file_bytes)));
    Ok(sample)
}

fn read(session: &Session<'_>, file_bytes: u64) -> Result<Sample> {
    let root = session.root();
    let read = |name: &str, flags, len_bytes, call_bytes| {
        let file = root.open(name, OFlags::RDONLY | flags)?;
        read_stream(&file, len_bytes, call_bytes)
    };
    let cached = OFlags::empty();
    // Memory for our readahead and for the kernel's cache.
    let needed = file_bytes / 2 * 3;
    warm(needed);
    let buffered = together(1, |_| read("buffered", cached, file_bytes, CALL_BYTES))?;
    let direct = together(1, |_| {
        read("direct", OFlags::DIRECT, file_bytes, DIRECT_CALL_BYTES)
    })?;
    let part_bytes = file_bytes / FILES as u64;
    warm(needed);
    let four = together(FILES, |n| {
        read(&format!("part{n}"), cached, part_bytes, CALL_BYTES)
    })?;
    let cpu = buffered.machine_cpu_s_per_gib(file_bytes);
    Ok(vec![
        ("cold read", "MB/s", buffered.mb_per_s(file_bytes)),
        ("cold read, machine cpu", "s/GiB", cpu),
        ("direct read", "MB/s", direct.mb_per_s(file_bytes)),
        ("cold read, 4 files", "MB/s", four.mb_per_s(file_bytes)),
    ])
}
