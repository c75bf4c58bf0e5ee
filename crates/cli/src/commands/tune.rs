//! `tune`.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use throughline::internal::RawLayers;
use throughline::{AlignedBuf, RawFile};
use throughline_explain::ours::listening;

use super::df::image_of;
use super::info::cache_value;
use crate::context::Context;
use crate::image_name::ImageName;
use crate::objects::shown;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;
use crate::texts::fill;

/// Arguments of `tune`.
#[derive(Args, Debug)]
pub(crate) struct TuneArgs {
    /// An image, a plain file or a block device
    #[arg(required = true, value_name = "FILE")]
    place: Place,
    /// Read it with I/Os of several sizes, and show the speed
    #[arg(long)]
    measure: bool,
}

/// Bytes per call: enough for many I/Os of each size.
const CALL_BYTES: usize = 16 << 20;
/// Minimum length of a file to measure. Figures for shorter ones would be meaningless.
const MIN_BYTES: u64 = 1 << 20;
/// Time limit for each size; a measurement also ends at the end of the file.
const MEASURED: Duration = Duration::from_millis(500);
const TARGETS_BYTES: [u32; 6] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20];

/// Shows the settings, and measures if requested.
pub(crate) fn run(args: &TuneArgs, context: &mut Context) -> Result<(), Failure> {
    // The device is measured, not a partition of it.
    let path = ImageName::of(&image_of(&args.place)?).file;
    let opening = || format!("cannot open {}", quote(&path));
    let file = context
        .globals
        .open_options(false)?
        .listener(listening(context.images.watched(&path).as_ref()))
        .open_raw(&path)
        .doing(opening)?;
    let disk = file.disk();
    context
        .globals
        .check_bio_target(disk.limits().logical_block_bytes)?;
    let derived = disk.bio_target_bytes();
    let measured = match args.measure {
        true => {
            let len = file
                .size()
                .doing(|| format!("error reading {}", quote(&path)))?;
            if len < MIN_BYTES {
                let doing = format!("cannot measure {}", quote(&path));
                return Err(Problem::new("too small: at least 1M is needed").met(doing));
            }
            measure(context, &file, &path)?
        }
        false => Vec::new(),
    };
    let info = disk.info();
    let value = json!({
        "file": shown(&path).to_string_lossy(),
        "engine": info.engine,
        "direct": info.direct,
        "bio_target_bytes": derived,
        "queue_depth": info.limits.queue_depth,
        "cache": cache_value(&file.prepare_cache()),
        "measured": measured.iter().map(value).collect::<Vec<_>>(),
    });
    match context.json {
        true => context.out.json(&value),
        false => context.out.line(fill("tune", &value)?),
    }
}

struct Measured {
    target_bytes: u32,
    bytes: u64,
    time: Duration,
}

impl Measured {
    fn mib_per_s(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.time.as_secs_f64().max(1e-9)
    }
}

fn value(one: &Measured) -> Value {
    json!({
        "bio_target_bytes": one.target_bytes,
        "read_bytes": one.bytes,
        "mib_per_s": one.mib_per_s(),
    })
}

/// Reads past all caches, one size after the other.
fn measure(context: &Context, file: &RawFile, path: &Path) -> Result<Vec<Measured>, Failure> {
    let reading = || format!("error reading {}", quote(path));
    let direct = file
        .reopen(throughline::FileOptions::new().direct(true))
        .doing(reading)?;
    let disk = file.disk();
    let mut buffer = AlignedBuf::zeroed(CALL_BYTES, 4096);
    let mut all = Vec::new();
    let block = disk.limits().logical_block_bytes;
    for target_bytes in TARGETS_BYTES.into_iter().filter(|bytes| *bytes >= block) {
        disk.set_bio_target_bytes(Some(target_bytes));
        let start = Instant::now();
        let mut bytes = 0;
        while start.elapsed() < MEASURED {
            context.interrupt().check()?;
            let read = direct.read_at(&mut buffer, bytes).doing(reading)?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
        }
        all.push(Measured {
            target_bytes,
            bytes,
            time: start.elapsed(),
        });
    }
    disk.set_bio_target_bytes(context.globals.bio_target);
    Ok(all)
}
