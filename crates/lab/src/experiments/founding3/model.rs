//! The report on the model of its disk array: one writer, in the old way, in ours and with direct I/O, on a
//! computer that fills pages as slowly as the reporter's.
//!
//! The time to fill a page is chosen so that the old way, which does nothing else meanwhile, reaches the
//! reporter's 205 MB/s. Our result on the same computer is then measured: our flusher keeps the device busy
//! while the writer fills pages.

use std::sync::Arc;

use throughline_models::{Clock, ModelDevice};

use super::old_way::{Accounts, OldWay};
use super::{Bench, MIB, Way};
use crate::interleave::{Sample, Variant};
use crate::outcome::{Outcome, ratios};
use crate::streams::targets::{OurStream, Ours};
use crate::streams::writers::{Stream, race};
use crate::{Result, Settings, modelled};

const PAGE_BYTES: u64 = 4096;
/// Small enough that dirty memory reaches its limit early in a sample, as 4.5 GB did for the reporter.
const CACHE_BYTES: u64 = 256 * MIB;

/// The minimum time a computer takes to fill pages.
pub(super) struct Pace {
    /// The clock, nanoseconds per page, and the start of filling; `None`: as fast as possible.
    of: Option<(Clock, u64, u64)>,
}

impl Pace {
    /// No minimum: the speed of this computer.
    pub(super) fn none() -> Pace {
        Pace { of: None }
    }

    /// The speed of the computer in the device's model; filling starts now.
    fn of(device: &ModelDevice) -> Pace {
        let (clock, page_ns) = (device.clock().clone(), device.model().host.page_fill_ns);
        let begun_ns = clock.now_ns();
        Pace {
            of: Some((clock, page_ns, begun_ns)),
        }
    }

    /// Filling starts now.
    pub(super) fn begin(&mut self) {
        if let Some((clock, _, begun_ns)) = &mut self.of {
            *begun_ns = clock.now_ns();
        }
    }

    /// Data of this length was filled. Waits until the slower computer would have filled it.
    pub(super) fn filled(&self, bytes: usize) {
        if let Some((clock, page_ns, begun_ns)) = &self.of {
            let pages = (bytes as u64).div_ceil(PAGE_BYTES);
            clock.wait_until(begun_ns + pages * page_ns);
        }
    }
}

/// A stream from a slower computer. It fills the data of a call before writing it; the time of the write is
/// that of this computer.
struct Slower {
    stream: OurStream,
    pace: Pace,
}

impl Stream for Slower {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.pace.begin();
        self.pace.filled(bytes.len());
        self.stream.write(at, bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.stream.finish()
    }
}

fn label(way: Way) -> String {
    format!("array model, {}, 1 writer", way.name())
}

fn total_bytes(settings: &Settings<'_>) -> u64 {
    let bytes = settings.scaled(2048 * MIB, 256 * MIB);
    bytes - bytes % MIB
}

fn sample(bench: &Bench<'_>, device: &ModelDevice, plain: &Ours, way: Way) -> Result<Sample> {
    let total_bytes = total_bytes(bench.settings);
    let mut streams = plain.streams(1, total_bytes, way != Way::Buffered)?;
    let Some(stream) = streams.pop() else {
        return Ok(Sample::new());
    };
    let accounts = Arc::new(Accounts::default());
    let stream: Box<dyn Stream> = match way {
        Way::Old => Box::new(OldWay::new(stream, &accounts, Pace::of(device))),
        Way::Buffered => {
            let pace = Pace::of(device);
            Box::new(Slower { stream, pace })
        }
        Way::Direct => Box::new(stream),
    };
    let race = race(&bench.source, total_bytes, way.call_bytes(), vec![stream])?;
    let rate = race.spent.mb_per_s(total_bytes);
    Ok(vec![("throughput", "MB/s", rate)])
}

/// Measures, and records the expected results.
pub(super) fn measure(bench: &Bench<'_>, outcome: &mut Outcome) -> Result<()> {
    let device = Arc::new(modelled::open("disk-array", None)?);
    let plain = Ours::on_device(bench.settings, CACHE_BYTES, Arc::clone(&device) as _)?;
    let variants = Way::ALL.map(|way| {
        let (device, plain) = (&device, &plain);
        Variant::new(label(way), move || sample(bench, device, plain, way))
    });
    outcome.measure(bench.settings, 5, variants)?;
    let [old, buffered, direct] = Way::ALL.map(label);
    let name = "array model: old way / direct (reported 0.62)";
    if let Some(ratio) = outcome.ratio(name, "throughput", &old, &direct) {
        outcome.at_least(&format!("{name}, no less"), ratio.value, 0.59);
        outcome.at_most(&format!("{name}, no more"), ratio.value, 0.65);
    }
    ratios! { outcome;
        "array model: buffered / direct" => "throughput", buffered, direct, at_least 0.99;
    }
    outcome.note(
        "array model: 'disk-array'; its processor time per page is fitted to the reported old way, and is \
         the same for buffered writes",
    );
    Ok(())
}
