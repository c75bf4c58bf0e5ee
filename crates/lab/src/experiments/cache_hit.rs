//! `cache/hit`: threads read 4 KiB at random from a fully cached file: through our page cache, from a file on
//! an ext4 volume and from a plain file; with `pread` on a file in the kernel's cache; and, as the most that
//! any cache could reach, as a plain copy from memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use throughline::Handle;
use throughline::internal::{RawLayers, VolumeLayers};
use throughline_device::{AlignedBuf, Op};

use super::hammer::{Io, ONE_PROCESSOR, hammer, thread_counts};
use crate::command::make_data;
use crate::interleave::Variant;
use crate::kernel::mke2fs;
use crate::outcome::Outcome;
use crate::{Result, Settings};

const FILE_BYTES: u64 = 256 << 20;
const CALL_BYTES: usize = 1 << 20;

const FILE: &str = "File (ours)";
const RAW: &str = "RawFile (ours)";
const PREAD: &str = "pread";
const COPY: &str = "bare copy";

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let sample_time = Duration::from_millis(settings.scaled(400, 20));
    let len = settings.scaled(FILE_BYTES, 8 << 20) / CALL_BYTES as u64 * CALL_BYTES as u64;
    let scratch = settings.scratch()?;
    let (plain, image) = (scratch.path().join("plain"), scratch.path().join("image"));
    make_data(&plain, len)?;
    let image_bytes = len + len / 4 + (64 << 20);
    mke2fs(&image, image_bytes, &["-t", "ext4", "-b", "4096"])?;

    let mut options = settings.opening();
    options.cache_bytes(Some(len * 2));
    let volume = options.open(&image)?;
    let file = volume.create_file("/cached")?;
    fill(&file, &plain)?;
    let raw = options.open_raw(&plain)?;
    let kernel = File::open(&plain)?;
    let memory = bring_in(&file, &raw, &kernel, len)?;

    let read_file = |at: u64, buf: &mut [u8]| Ok(file.read_exact_at(buf, at)?);
    let read_raw = |at: u64, buf: &mut [u8]| Ok(raw.read_exact_at(buf, at)?);
    let pread = |at: u64, buf: &mut [u8]| Ok(kernel.read_exact_at(buf, at)?);
    let copy = |at: u64, buf: &mut [u8]| {
        buf.copy_from_slice(&memory[at as usize..at as usize + buf.len()]);
        Ok(())
    };
    let ways: [(&str, Io<'_>); 4] = [
        (FILE, &read_file),
        (RAW, &read_raw),
        (PREAD, &pread),
        (COPY, &copy),
    ];
    let counts = thread_counts();
    let mut variants = Vec::new();
    for &threads in &counts {
        for (name, io) in ways {
            variants.push(Variant::new(variant(name, threads), move || {
                let ns = hammer(threads, len, sample_time, io)?;
                let rate = threads as f64 * 1000.0 / ns.max(1e-9);
                Ok(vec![("a read", "ns", ns), ("rate", "M/s", rate)])
            }));
        }
    }
    let before = (volume.disk().counters(), raw.disk().counters());
    outcome.measure(settings, 15, variants)?;
    let missed = volume.disk().counters().since(&before.0).bytes(Op::Read)
        + raw.disk().counters().since(&before.1).bytes(Op::Read);
    outcome.count("bytes our reads took from the device", missed as f64);
    bars(outcome, &counts);
    drop(file);
    volume.close()?;
    Ok(())
}

fn variant(name: &str, threads: usize) -> String {
    format!("{name}, {threads} threads")
}

/// Copies the plain file into a file on the volume and syncs it, so that the pages read later are clean.
fn fill(file: &Handle, plain: &Path) -> Result<()> {
    let from = File::open(plain)?;
    let len = from.metadata()?.len();
    let mut buf = vec![0; CALL_BYTES];
    for at in (0..len).step_by(CALL_BYTES) {
        from.read_exact_at(&mut buf, at)?;
        file.write_all_at(&buf, at)?;
    }
    Ok(file.sync_all()?)
}

/// Reads the file into every cache, and into plain memory.
fn bring_in(file: &Handle, raw: &Handle, kernel: &File, len: u64) -> Result<AlignedBuf> {
    let mut memory = AlignedBuf::zeroed(len as usize, 4096);
    for (at, piece) in (0..len)
        .step_by(CALL_BYTES)
        .zip(memory.chunks_mut(CALL_BYTES))
    {
        file.read_exact_at(piece, at)?;
        raw.read_exact_at(piece, at)?;
        kernel.read_exact_at(piece, at)?;
    }
    Ok(memory)
}

fn bars(outcome: &mut Outcome, counts: &[usize]) {
    for &threads in counts {
        let pread = variant(PREAD, threads);
        for ours in [FILE, RAW] {
            let (title, over) = (format!("{ours} / {pread}"), variant(ours, threads));
            let limit = (threads <= 2).then_some(1.5);
            outcome.ratio_at_least(&title, "rate", (&over, &pread), limit);
        }
        for way in [FILE, RAW, PREAD, COPY].into_iter().filter(|_| threads > 1) {
            let title = format!("{way}: {threads} threads / 1 thread");
            let (many, one) = (variant(way, threads), variant(way, 1));
            let limit = (threads == 2 && [FILE, RAW].contains(&way)).then_some(1.8);
            outcome.ratio_at_least(&title, "rate", (&many, &one), limit);
        }
    }
    if counts.len() == 1 {
        outcome.note(ONE_PROCESSOR);
    }
}
