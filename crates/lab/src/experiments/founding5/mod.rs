//! `founding/5`, report 5: sequential buffered writes of 32 KiB, like those of sysbench's `seqwr`. The device
//! handle is kept in the open file, or looked up for every page.
//!
//! In the report, a pointer load became an out-of-line call on a path that runs once per page, and a
//! streaming write became 3.5 % slower. The lab recreates that path: for every page of 4 KiB, a call that is
//! not inlined looks the handle up by device number in a table behind a lock, and balances. The engine has no
//! such lookup: an open file has its cache, and each write balances once.

mod model;

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline::internal::OpenBlockDevice;
use throughline::{DirtyLimits, FileOptions, OpenOptions};
use throughline_device::{AlignedBuf, MemoryDevice};
use throughline_fileio::PageCache;
use throughline_locks::{Rank, RwLock};

use crate::callgrind;
use crate::interleave::{Sample, Variant};
use crate::kernel::{e2fsck, mke2fs};
use crate::meter::Meter;
use crate::modelled::load_image;
use crate::outcome::{Outcome, ratios};
use crate::streams::targets::{OpenFile, Opened};
use crate::{Error, Result, Settings};

const CALL_BYTES: u64 = 32 << 10;
const PAGE_BYTES: u64 = 4096;
const NAME: &str = "/seqwr";
/// The experiment's name, for `lab alone`.
pub(super) const ALONE: &str = "founding/5";

/// Where the file is stored.
const PLACES: [&str; 2] = [EXT4, "raw"];
const EXT4: &str = "ext4";

/// When the device handle is looked up: never, because the open file has it, or for every page, to balance.
const WAYS: [&str; 2] = ["handle cached", PER_PAGE];
const PER_PAGE: &str = "looked up per page";

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let (image, plain) = (scratch.path().join("image"), scratch.path().join("plain"));
    // In memory, a sample stays below every limit, so that only the path counts. On disk, the device
    // determines the speed.
    let whole_mib = |bytes: u64| bytes >> 20 << 20;
    let memory_bytes = whole_mib(settings.scaled(256 << 20, 16 << 20));
    let disk_bytes = whole_mib(settings.scaled(512 << 20, 16 << 20));
    mke2fs(&image, 2 * memory_bytes.max(64 << 20), &["-t", "ext4"])?;
    let in_memory = |place| Target::in_memory(place, settings.opening(), &image, memory_bytes);
    let memory = [in_memory(PLACES[0])?, in_memory(PLACES[1])?];
    let instructions = instructions(&image, scratch.path(), outcome)?;
    mke2fs(&image, 2 * disk_bytes.max(64 << 20), &["-t", "ext4"])?;
    let disk = [
        Target::on_disk(PLACES[0], settings, &image, disk_bytes)?,
        Target::on_disk(PLACES[1], settings, &plain, disk_bytes)?,
    ];
    let buffer = &AlignedBuf::zeroed(CALL_BYTES as usize, PAGE_BYTES as usize);
    let mut variants = Vec::new();
    for (where_, targets) in [("memory", &memory), ("disk", &disk)] {
        for (place, target) in PLACES.into_iter().zip(targets) {
            for way in WAYS {
                let name = variant_name(where_, place, way);
                variants.push(Variant::new(name, move || target.sample(buffer, way)));
            }
        }
    }
    outcome.measure(settings, 20, variants)?;
    for target in memory.into_iter().chain(disk) {
        target.close()?;
    }
    e2fsck(&image)?;
    bars(outcome, &instructions);
    model::measure(settings, outcome)?;
    Ok(())
}

fn variant_name(where_: &str, place: &str, way: &str) -> String {
    format!("{where_}, {place}: {way}")
}

/// An open file, and the naive way's table of devices.
struct Target {
    file: OpenFile,
    opened: Opened,
    file_bytes: u64,
    handles: Handles,
}

impl Target {
    /// A target with enough memory to write a file of this size without waiting for the device.
    fn in_memory(
        place: &str,
        mut options: OpenOptions,
        image: &Path,
        file_bytes: u64,
    ) -> Result<Target> {
        let room = Some(2 * file_bytes.max(64 << 20));
        options
            .cache_bytes(room)
            .dirty_limits(DirtyLimits::new(room, None));
        let opened = match place {
            EXT4 => Opened::Volume(options.open_block_device(Arc::new(load_image(image)?))?),
            _ => {
                let device = Arc::new(MemoryDevice::new(file_bytes));
                Opened::Raw(options.open_raw_block_device(device)?)
            }
        };
        Target::new(opened, file_bytes)
    }

    /// A target with so little memory that most of a file waits for the device.
    fn on_disk(
        place: &str,
        settings: &Settings<'_>,
        path: &Path,
        file_bytes: u64,
    ) -> Result<Target> {
        let mut options = settings.opening();
        options.cache_bytes(Some(256 << 20));
        let opened = match place {
            EXT4 => Opened::Volume(options.open(path)?),
            _ => Opened::Raw(options.create(true).open_raw(path)?),
        };
        Target::new(opened, file_bytes)
    }

    fn new(opened: Opened, file_bytes: u64) -> Result<Target> {
        let file: OpenFile = match &opened {
            Opened::Volume(volume) => Box::new(volume.create_file(NAME)?),
            Opened::Raw(file) => Box::new(file.reopen(&FileOptions::new())?),
        };
        // The first buffered write creates the cache of a raw file.
        file.write_all_at(&[0; PAGE_BYTES as usize], 0)?;
        let cache = opened
            .cache()
            .ok_or_else(|| Error::new("a file that was written to has no cache"))?;
        Ok(Target {
            handles: Handles::new(cache),
            file,
            opened,
            file_bytes,
        })
    }

    /// Performs `calls` consecutive writes from the start of the file.
    fn write(&self, buffer: &[u8], calls: u64, way: &str) -> Result<()> {
        for call in 0..calls {
            let offset = call * CALL_BYTES;
            self.file.write_all_at(buffer, offset)?;
            if way == PER_PAGE {
                for _ in 0..CALL_BYTES / PAGE_BYTES {
                    // The write has already accounted for its bytes.
                    self.handles.balance(DEVICE, black_box(0));
                }
            }
        }
        Ok(())
    }

    /// Writes the whole file, starting empty, as `seqwr` creates it; data still dirty at the end is written
    /// back outside the measurement.
    fn sample(&self, buffer: &[u8], way: &str) -> Result<Sample> {
        let calls = self.file_bytes / CALL_BYTES;
        if let Opened::Volume(_) = &self.opened {
            self.file.set_len(0)?;
        }
        let (looked_up, balanced) = (self.handles.looked_up(), self.balance_calls());
        let meter = Meter::start();
        self.write(buffer, calls, way)?;
        let spent = meter.spent();
        let per_page = |count: u64| count as f64 / (calls * CALL_BYTES / PAGE_BYTES) as f64;
        let looked_up = per_page(self.handles.looked_up() - looked_up);
        let balanced = per_page(self.balance_calls() - balanced);
        let sample = vec![
            ("throughput", "MB/s", spent.mb_per_s(self.file_bytes)),
            ("cpu", "s/GiB", spent.cpu_s_per_gib(self.file_bytes)),
            ("look-ups per page", "", looked_up),
            ("balance calls per page", "", balanced),
        ];
        self.file.sync_data()?;
        Ok(sample)
    }

    fn balance_calls(&self) -> u64 {
        let cache = self.opened.cache();
        cache.map_or(0, |cache| cache.throttle().state().balance_calls)
    }

    fn close(self) -> Result<()> {
        drop(self.file);
        self.opened.close()
    }
}

/// The number of the only device.
const DEVICE: u64 = 8;

/// The lookup in the report's kernel: a table of device handles by device number.
struct Handles {
    by_device: RwLock<HashMap<u64, Arc<PageCache>>>,
    looked_up: AtomicU64,
}

impl Handles {
    fn new(cache: &Arc<PageCache>) -> Handles {
        Handles {
            by_device: RwLock::ranked(
                Rank::Experiment,
                HashMap::from([(DEVICE, Arc::clone(cache))]),
            ),
            looked_up: AtomicU64::new(0),
        }
    }

    /// Balances for a page of the device.
    #[inline(never)]
    fn balance(&self, device: u64, dirtied_bytes: u64) {
        self.looked_up.fetch_add(1, Ordering::Relaxed);
        if let Some(cache) = self.by_device.read().get(&device) {
            cache.throttle().balance(dirtied_bytes);
        }
    }

    fn looked_up(&self) -> u64 {
        self.looked_up.load(Ordering::Relaxed)
    }
}

/// Instructions of a 32 KiB write, by place and way.
type Instructions = Vec<(&'static str, &'static str, f64)>;

/// The number of calls counted.
const COUNTED_CALLS: u64 = 512;

fn instructions(image: &Path, scratch: &Path, outcome: &mut Outcome) -> Result<Instructions> {
    let mut counted = Vec::new();
    if !callgrind::is_there() {
        outcome.note("instructions were left out: valgrind is not installed");
        return Ok(counted);
    }
    let image = image.to_string_lossy();
    for place in PLACES {
        for way in WAYS {
            let alone = ["alone", ALONE];
            let arguments = [&alone[..], &[place, way, &image]].concat();
            let found = callgrind::instructions("*founding5*counted*", &arguments, scratch)?;
            let Some(count) = found else {
                outcome.note("instructions were left out: callgrind did not find the function");
                return Ok(counted);
            };
            counted.push((place, way, count as f64 / COUNTED_CALLS as f64));
        }
    }
    Ok(counted)
}

/// Runs one variant in memory by itself, for callgrind. Arguments: place, way, image.
pub(super) fn alone(arguments: &[String]) -> Result<()> {
    let [place, way, image] = arguments else {
        return Err(Error::new("wanted: place, way, image"));
    };
    if !PLACES.contains(&place.as_str()) || !WAYS.contains(&way.as_str()) {
        return Err(Error::new("no such place or way"));
    }
    let bytes = COUNTED_CALLS * CALL_BYTES;
    let target = Target::in_memory(
        place,
        OpenOptions::new().write(true).clone(),
        Path::new(image),
        bytes,
    )?;
    let buffer = AlignedBuf::zeroed(CALL_BYTES as usize, PAGE_BYTES as usize);
    target.write(&buffer, 2, way)?;
    counted(&target, &buffer, way)?;
    target.close()
}

/// The function that callgrind counts, found by its name.
#[inline(never)]
fn counted(target: &Target, buffer: &[u8], way: &str) -> Result<()> {
    target.write(buffer, COUNTED_CALLS, way)
}

fn bars(outcome: &mut Outcome, instructions: &Instructions) {
    for where_ in ["memory", "disk"] {
        for place in PLACES {
            let name = |way| variant_name(where_, place, way);
            let [ours, naive] = WAYS.map(name);
            let most = outcome.most(&ours, "look-ups per page");
            outcome.at_most(&format!("look-ups per page, {ours}"), most, 0.0);
            let title = format!("throughput, {where_}, {place}: cached / per page");
            ratios! { outcome; title => "throughput", ours, naive; }
        }
    }
    for place in PLACES {
        let of = |wanted| {
            let mut found = instructions.iter();
            found.find_map(|&(at, way, count)| (at == place && way == wanted).then_some(count))
        };
        let [Some(ours), Some(naive)] = WAYS.map(of) else {
            continue;
        };
        for (way, count) in WAYS.into_iter().zip([ours, naive]) {
            let name = format!("instructions per 32 KiB, {place}: {way}");
            outcome.count(name, count.round());
        }
        let name = format!("instructions, {place}: cached / per page");
        outcome.at_most(&name, ours / naive, 0.999);
    }
}
