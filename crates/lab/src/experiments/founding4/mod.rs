//! `founding/4`, report 4: one large direct call, as a single request that is assembled before it is
//! submitted, compared with bios of a size derived from the device, and with the kernel's O_DIRECT.
//!
//! "First submit" is the time from the call until the first request has been submitted to the device. The
//! same probe below every variant measures it.

mod model;

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::{BlockDevice, Op, Segment, scope};
use throughline_fileio::{self as fileio, RawFile};

use crate::command::make_data;
use crate::interleave::{Sample, Variant};
use crate::meter::Meter;
use crate::outcome::{Outcome, ratios};
use crate::tap::{Probe, Tapped};
use crate::{Error, Result, Settings};

const PAGE_BYTES: usize = 4096;
const CALLS_PER_SAMPLE: usize = 8;
/// Queue depth of the control: so low that many small requests cannot overlap more than a few large ones.
const CONTROL_DEPTH: u32 = 4;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let path = scratch.path().join("data");
    let file_len = settings.scaled(512 << 20, 128 << 20);
    make_data(&path, file_len)?;
    for op in [Op::Read, Op::Write] {
        for mib in [32usize, 64] {
            measure(settings, outcome, &path, op, mib)?;
        }
    }
    model::measure(settings, outcome)?;
    bars(outcome);
    model::bars(outcome);
    Ok(())
}

fn measure(
    settings: &Settings<'_>,
    outcome: &mut Outcome,
    path: &Path,
    op: Op,
    mib: usize,
) -> Result<()> {
    let label = format!(
        "{mib} MiB {}",
        if op == Op::Read { "read" } else { "write" }
    );
    let ours = Way::open(settings, path, None)?;
    let control = Way::open(settings, path, Some(CONTROL_DEPTH))?;
    let target_kib = f64::from(ours.disk.bio_target_bytes()) / 1024.0;
    outcome.count(format!("bio target, {label}, KiB"), target_kib);
    // The control's small bios have the device's maximum size: on its four slots, they add up to the whole
    // request.
    control
        .disk
        .set_bio_target_bytes(Some(control.disk.limits().max_transfer_bytes));
    let kernel = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
        .open(path)?;
    let mut memory = ordinary_memory(mib);
    let buffer = RefCell::new(page_aligned(&mut memory, mib));
    let sample = &|way: &Way, build| way.sample(op, &mut buffer.borrow_mut(), build);
    let mut variants = Vec::new();
    for (depth, way) in [("", &ours), ("depth 4, ", &control)] {
        for (name, build) in [("ours", Build::Pipelined), ("whole request", Build::Whole)] {
            let name = format!("{label}: {depth}{name}");
            variants.push(Variant::new(name, move || sample(way, build)));
        }
    }
    variants.push(Variant::new(format!("{label}: kernel O_DIRECT"), || {
        kernel_sample(&kernel, op, &mut buffer.borrow_mut())
    }));
    outcome.measure(settings, 15, variants)
}

/// One buffer for all variants, because memory placement matters more than most of them. As in the report, it
/// is ordinary memory in small pages.
fn ordinary_memory(mib: usize) -> Vec<u8> {
    vec![1; (mib << 20) + PAGE_BYTES]
}

/// This many MiB of it, starting at a page boundary.
fn page_aligned(memory: &mut [u8], mib: usize) -> &mut [u8] {
    let start = memory.as_ptr().align_offset(PAGE_BYTES);
    &mut memory[start..][..mib << 20]
}

/// How a call is split into requests.
#[derive(Clone, Copy)]
enum Build {
    /// In bios, as our engine does it.
    Pipelined,
    /// As in the report: page by page into one request, submitted when it is complete.
    Whole,
}

/// An open file with a probe below it.
struct Way {
    raw: RawFile,
    disk: Arc<Disk>,
    device: Arc<Tapped<Probe>>,
}

impl Way {
    fn open(settings: &Settings<'_>, path: &Path, depth: Option<u32>) -> Result<Way> {
        let inner = throughline_device::OpenOptions::new()
            .write(true)
            .engine(settings.engine)
            .open(path)?;
        Way::over(inner, depth)
    }

    fn over(inner: Arc<dyn BlockDevice>, depth: Option<u32>) -> Result<Way> {
        let device = Arc::new(Tapped::new(inner, Probe::new(), depth));
        let disk = Disk::new(Arc::clone(&device) as Arc<dyn BlockDevice>);
        let disk = Arc::new(disk.map_err(fileio::Error::from)?);
        Ok(Way {
            raw: RawFile::new(Arc::clone(&disk)),
            disk,
            device,
        })
    }

    /// Sequential calls through the file; returns the mean of each quantity.
    fn sample(&self, op: Op, buffer: &mut [u8], build: Build) -> Result<Sample> {
        let (mut first_us, mut requests) = (0.0, 0.0);
        let len = buffer.len() as u64;
        let places = self.device.len_bytes() / len;
        let mut queue = self.device.open_queue()?;
        let meter = Meter::start();
        for call in 0..CALLS_PER_SAMPLE {
            let offset = (call as u64 % places) * len;
            let start = self.device.tap.reset();
            match build {
                Build::Pipelined => self.pipelined(op, buffer, offset)?,
                Build::Whole => whole(&mut *queue, op, buffer, offset)?,
            }
            first_us += self.device.tap.first_submit_us(start);
            requests += self.device.tap.requests();
        }
        let spent = meter.spent();
        let (calls, bytes) = (CALLS_PER_SAMPLE as f64, len * CALLS_PER_SAMPLE as u64);
        Ok(vec![
            ("throughput", "MB/s", spent.mb_per_s(bytes)),
            ("first submit", "us", first_us / calls),
            ("requests per call", "", requests / calls),
            ("cpu", "s/GiB", spent.cpu_s_per_gib(bytes)),
        ])
    }

    fn pipelined(&self, op: Op, buffer: &mut [u8], offset: u64) -> Result<()> {
        let moved = match op {
            Op::Read => self.raw.read_at(offset, buffer),
            _ => self.raw.write_at(offset, buffer),
        };
        match moved? {
            all if all == buffer.len() => Ok(()),
            short => {
                let all = buffer.len();
                Err(Error::new(format!("a call moved {short} bytes of {all}")))
            }
        }
    }
}

/// The naive way: visits every page, appends it to the current segment or starts a new one, and submits after
/// the last page.
fn whole(
    queue: &mut dyn throughline_device::Queue,
    op: Op,
    buffer: &mut [u8],
    offset: u64,
) -> Result<()> {
    let mut gathered: Vec<(usize, usize)> = Vec::new();
    for page in buffer.chunks(PAGE_BYTES) {
        // The page must be present before a device may access it. The kernel pins it at this point.
        std::hint::black_box(page[0]);
        let start = page.as_ptr().addr();
        match gathered.last_mut() {
            Some((_, end)) if *end == start => *end += page.len(),
            _ => gathered.push((start, start + page.len())),
        }
    }
    let pieces = gathered.len();
    let mut done = Vec::new();
    scope(queue, |scope| {
        let segment = match op {
            Op::Read => Segment::Read(buffer),
            _ => Segment::Write(buffer),
        };
        debug_assert_eq!(pieces, 1, "the buffer is one piece of memory");
        scope.submit(0, op, offset, [segment], false);
        scope.kick();
        scope.reap(1, &mut done);
    });
    Ok(done.into_iter().try_for_each(|d| d.result)?)
}

fn kernel_sample(file: &File, op: Op, buffer: &mut [u8]) -> Result<Sample> {
    let len = buffer.len() as u64;
    let places = file.metadata()?.len() / len;
    let meter = Meter::start();
    for call in 0..CALLS_PER_SAMPLE {
        let offset = (call as u64 % places) * len;
        match op {
            Op::Read => file.read_exact_at(buffer, offset)?,
            _ => file.write_all_at(buffer, offset)?,
        }
    }
    let (spent, bytes) = (meter.spent(), len * CALLS_PER_SAMPLE as u64);
    Ok(vec![
        ("throughput", "MB/s", spent.mb_per_s(bytes)),
        ("cpu", "s/GiB", spent.cpu_s_per_gib(bytes)),
    ])
}

fn bars(outcome: &mut Outcome) {
    for label in ["32 MiB read", "64 MiB read", "32 MiB write", "64 MiB write"] {
        let name = |variant: &str| format!("{label}: {variant}");
        let (ours, whole, kernel) = (name("ours"), name("whole request"), name("kernel O_DIRECT"));
        ratios! { outcome;
            name("ours / kernel O_DIRECT") => "throughput", ours, kernel, at_least 1.0;
            name("ours / whole request")   => "throughput", ours, whole;
        }
        let [ours_of_few, whole_of_few] = ["depth 4, ours", "depth 4, whole request"].map(name);
        let control = name("control at depth 4");
        if let Some(control) = outcome.ratio(&control, "throughput", &ours_of_few, &whole_of_few) {
            let nearest = 1.0f64.clamp(control.low, control.high);
            let control = name("control, distance of its interval from 1");
            outcome.at_most(&control, (nearest - 1.0).abs(), 0.02);
        }
        if label == "32 MiB read" {
            let first = crate::stats::Summary::of(&outcome.samples(&ours, "first submit")).median;
            outcome.at_most("32 MiB read: first submit, median, us", first, 100.0);
            ratios! { outcome;
                name("first submit, whole request / ours") => "first submit", whole, ours, at_least 20.0;
            }
        }
    }
}
