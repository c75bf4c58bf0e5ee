//! The report's forty repetitions on the model of its disk, with a planted loss of 4.5 %.
//!
//! The base writes as `seqwr` does, at the speed of the disk. The second series adds a cost per page that
//! makes it 4.5 % slower than the disk. No two runs on the reporter's disk were alike. So each sample has its
//! own speed, for disk and planted loss alike, drawn with a fixed seed from the spread of the report's base
//! (cv 1.19 %). The third series repeats the base: a statistic that finds a loss there finds one everywhere.

use std::sync::Arc;

use throughline::RawFile;
use throughline::internal::OpenBlockDevice;
use throughline_device::AlignedBuf;
use throughline_models::ModelDevice;

use super::{CALL_BYTES, PAGE_BYTES};
use crate::interleave::{Sample, Variant};
use crate::meter::Meter;
use crate::outcome::{Outcome, ratios};
use crate::record::Better;
use crate::stats::{self, Question, Verdict, normal};
use crate::{Result, Settings, modelled};

const MIB: u64 = 1 << 20;
/// The largest number of samples that the report used.
const PAIRS: usize = 40;
/// The relative standard deviation of report 5's base: 1.610 of 135.677 MB/s.
const SPREAD: f64 = 0.0119;
const PLANTED: f64 = 0.045;
const SEED: u64 = 5;
/// Small relative to a sample, so that the disk determines the speed, as with the reporter's 4 GiB and 2 GB
/// of memory.
const CACHE_BYTES: u64 = 64 * MIB;

const BASE: &str = "sata model: base";
const AGAIN: &str = "sata model: base again";
const WITH_PLANT: &str = "sata model: a cost for each page planted";

/// Bytes written per sample.
fn sample_bytes(settings: &Settings<'_>) -> u64 {
    let bytes = settings.scaled(256 * MIB, 64 * MIB);
    bytes - bytes % MIB
}

/// The disk, and a file on all of it.
struct Target {
    device: Arc<ModelDevice>,
    file: RawFile,
    random: std::cell::RefCell<fastrand::Rng>,
}

impl Target {
    fn open(settings: &Settings<'_>) -> Result<Target> {
        let device = Arc::new(modelled::open("sata-disk", None)?);
        let file = settings
            .opening()
            .cache_bytes(Some(CACHE_BYTES))
            .open_raw_block_device(Arc::clone(&device) as _)?;
        Ok(Target {
            device,
            file,
            random: std::cell::RefCell::new(fastrand::Rng::with_seed(SEED)),
        })
    }

    /// Writes `bytes` from the start in calls of 32 KiB, and waits until they are on the disk. With `loss`,
    /// each page takes at least the time that makes the writer slower than the disk by this share.
    fn sample(&self, buffer: &[u8], bytes: u64, loss: Option<f64>) -> Result<Sample> {
        let of_this_run = 1.0 + SPREAD * normal(&mut self.random.borrow_mut());
        self.device.set_speed(of_this_run);
        let disk = self.device.model().law.bytes_per_s as f64 * of_this_run;
        let page_ns = loss.map_or(0.0, |loss| PAGE_BYTES as f64 * 1e9 / (disk * (1.0 - loss)));
        let clock = self.device.clock();
        let (meter, begun_ns) = (Meter::start(), clock.now_ns());
        for offset in (0..bytes).step_by(CALL_BYTES as usize) {
            self.file.write_all_at(buffer, offset)?;
            let pages = (offset + CALL_BYTES) / PAGE_BYTES;
            clock.wait_until(begun_ns + (pages as f64 * page_ns) as u64);
        }
        self.file.sync_data()?;
        let spent = meter.spent();
        Ok(vec![("throughput", "MB/s", spent.mb_per_s(bytes))])
    }
}

pub(super) fn measure(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let target = Target::open(settings)?;
    let bytes = sample_bytes(settings);
    let buffer = AlignedBuf::zeroed(CALL_BYTES as usize, PAGE_BYTES as usize);
    let sample = |loss| target.sample(&buffer, bytes, loss);
    let variants = [
        Variant::new(BASE, || sample(None)),
        Variant::new(AGAIN, || sample(None)),
        Variant::new(WITH_PLANT, || sample(Some(PLANTED))),
    ];
    let settings = Settings {
        dir: settings.dir.clone(),
        rounds: settings.rounds.map(|rounds| rounds.min(PAIRS)),
        ..*settings
    };
    outcome.measure(&settings, PAIRS, variants)?;
    target.file.close()?;
    outcome.note(format!(
        "sata model: 'sata-disk', {} MiB for each sample instead of the report's 4 GiB, each with an fsync; \
         added spread, cv {:.2} %",
        bytes / MIB,
        SPREAD * 100.0
    ));
    judge(outcome);
    Ok(())
}

/// Checks that forty pairs find the planted loss, and find none in the control.
fn judge(outcome: &mut Outcome) {
    let base = outcome.samples(BASE, "throughput");
    let question = Question::new(Better::Higher);
    for (name, series, expected) in [
        ("planted loss", WITH_PLANT, &[Verdict::Slower][..]),
        (
            "control, the base again",
            AGAIN,
            &[Verdict::NoDifference, Verdict::NotEnough][..],
        ),
    ] {
        let judgement = stats::judge(&base, &outcome.samples(series, "throughput"), &question);
        let of = |what: &str| format!("sata model: {name}, {what}");
        outcome.count(of("change, %"), judgement.change_percent);
        outcome.count(of("pairs"), judgement.pairs as f64);
        let is_expected = f64::from(u8::from(expected.contains(&judgement.verdict)));
        outcome.at_least(&of("verdict as expected (1: yes)"), is_expected, 1.0);
        outcome.note(format!("sata model, {name}: {judgement}"));
    }
    ratios! { outcome;
        "throughput, sata model: planted / base" => "throughput", WITH_PLANT, BASE;
    }
}
