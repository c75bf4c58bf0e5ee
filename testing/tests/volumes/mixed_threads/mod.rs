//! Threads on the same files through buffered, direct and sync handles. Each sector contains its file,
//! position and version, so a reader can check it: it is no older than the last write completed before the
//! read began, it was written at some time, and it belongs to this file. And threads that make calls of every
//! kind on names ([`calls`]).

mod appending;
use crate::oracle::calls;
mod cutting;
use crate::oracle;
mod reused;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oracle::image::{SHAPES, Scratch, Shape, tools};
use oracle::seeds::{Deadline, seeds, soak};
use throughline::internal::OpenBlockDevice;
use throughline::{
    AccessTimes, Advice, DirtyLimits, Fallocate, File, FileOptions, OpenOptions, SyncRange, Volume,
    VolumeOptions,
};
use throughline_device::BlockDevice;
use throughline_testing::sectors::{MAGIC, SECTOR_BYTES, Sector, fill, filled, parse};

const WRITERS: u64 = 4;
const READERS: u64 = 2;
const SECTOR: u64 = SECTOR_BYTES as u64;
/// Sectors of a shared file: more than one span, with a partial last block.
const SECTORS: u64 = (2 << 20) / SECTOR + 1021;

type Check = Result<(), String>;

fn in_call(call: &'static str) -> impl Fn(throughline::Error) -> String {
    move |error| format!("{call}: {error}")
}

/// A volume with a small cache.
fn volume(device: &Arc<dyn BlockDevice>, seed: u64) -> Result<Volume, String> {
    let mut limits = DirtyLimits::default();
    limits.limit_bytes = [Some(512 << 10), None][seed as usize % 2];
    OpenOptions::new()
        .write(true)
        .cache_bytes(Some((2 << 20) << (seed % 3)))
        .dirty_limits(limits)
        .open_block_device(Arc::clone(device))
        .map_err(in_call("open"))
}

/// A handle of a random kind, on the open file or opened by name.
fn some_handle(
    random: &mut fastrand::Rng,
    volume: &Volume,
    path: &str,
    open: &File,
) -> Result<File, String> {
    let mut options = FileOptions::new();
    match random.u8(..12) {
        0..7 => {}
        7..11 => drop(options.direct(true)),
        _ => drop(options.data_sync(true)),
    }
    match random.bool() {
        true => open.reopen(&options),
        false => options.open(volume, path),
    }
    .map_err(in_call("open"))
}

/// One sector of a shared file, as recorded by the threads.
#[derive(Default)]
struct Slot {
    /// The version its owner is writing or wrote last.
    begun: AtomicU64,
    /// The version its owner's last completed call left.
    done: AtomicU64,
    /// The latest version by which it became zero, or is becoming zero.
    zeroed: AtomicU64,
}

/// A file shared by all threads. Each sector is written only by its owner.
struct Shared {
    number: u64,
    path: String,
    /// The number of adjacent sectors with the same owner.
    stripe: u64,
    slots: Vec<Slot>,
}

impl Shared {
    fn new(number: u64, stripe: u64) -> Shared {
        Shared {
            number,
            path: format!("/shared{number}"),
            stripe,
            slots: (0..SECTORS).map(|_| Slot::default()).collect(),
        }
    }

    /// A run of sectors owned by `owner`.
    fn own_run(&self, random: &mut fastrand::Rng, owner: u64) -> (u64, u64) {
        let stripes = SECTORS / self.stripe / WRITERS;
        let stripe = random.u64(..stripes.max(1)) * WRITERS + owner;
        let skip = random.u64(..self.stripe);
        let len = match random.bool() {
            true => self.stripe - skip,
            false => random.u64(1..=self.stripe - skip),
        };
        let first = stripe * self.stripe + skip;
        (first, len.min(SECTORS.saturating_sub(first)))
    }

    fn slots(&self, first: u64, count: u64) -> &[Slot] {
        &self.slots[first as usize..(first + count) as usize]
    }

    /// Writes a run of its owner's sectors and records it.
    fn write(&self, handle: &File, first: u64, count: u64, version: u64) -> Check {
        let mut bytes = filled(
            (count * SECTOR) as usize,
            self.number,
            first * SECTOR,
            version,
        );
        for slot in self.slots(first, count) {
            slot.begun.store(version, Ordering::SeqCst);
        }
        handle
            .write_all_at(&bytes, first * SECTOR)
            .map_err(in_call("write"))?;
        for slot in self.slots(first, count) {
            slot.done.store(version, Ordering::SeqCst);
        }
        // After the call the buffer belongs to the caller again.
        bytes.fill(0xdb);
        Ok(())
    }

    /// Zeroes a run of its owner's sectors and records it.
    fn zero(&self, handle: &File, first: u64, count: u64, version: u64, mode: Fallocate) -> Check {
        for slot in self.slots(first, count) {
            slot.begun.store(version, Ordering::SeqCst);
            slot.zeroed.store(version, Ordering::SeqCst);
        }
        handle
            .allocate(mode, first * SECTOR, count * SECTOR)
            .map_err(in_call("allocate"))?;
        for slot in self.slots(first, count) {
            slot.done.store(version, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Reads a run and checks every sector.
    fn read(&self, handle: &File, first: u64, count: u64) -> Check {
        let done: Vec<u64> = self
            .slots(first, count)
            .iter()
            .map(|slot| slot.done.load(Ordering::SeqCst))
            .collect();
        let mut bytes = vec![0xee; (count * SECTOR) as usize];
        let n = handle
            .read_at(&mut bytes, first * SECTOR)
            .map_err(in_call("read"))?;
        if n != bytes.len() {
            return Err(format!("{} bytes at sector {first}: read {n}", bytes.len()));
        }
        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let (at, least) = (first + index as u64, done[index]);
            let slot = &self.slots[at as usize];
            let found = parse(sector);
            let right = match found {
                Sector::Zero => slot.zeroed.load(Ordering::SeqCst) >= least,
                Sector::Data {
                    file,
                    offset,
                    version,
                } => {
                    file == self.number
                        && offset == at * SECTOR
                        && (least..=slot.begun.load(Ordering::SeqCst)).contains(&version)
                }
                Sector::Garbage => false,
            };
            if !right {
                let (begun, zeroed) = (&slot.begun, &slot.zeroed);
                return Err(format!(
                    "{} sector {at} ({} direct) is {found:?}, expected version {least} to {begun:?}, \
                    zeroed {zeroed:?}",
                    self.path,
                    handle.is_direct()
                ));
            }
        }
        Ok(())
    }
}

/// Shared by all threads.
struct Common<'a> {
    volume: &'a Volume,
    shared: &'a [Shared],
    open: &'a [File],
    extents: bool,
}

impl Common<'_> {
    fn pick(&self, random: &mut fastrand::Rng) -> Result<(&Shared, File), String> {
        let at = random.usize(..self.shared.len());
        let shared = &self.shared[at];
        let handle = some_handle(random, self.volume, &shared.path, &self.open[at])?;
        Ok((shared, handle))
    }
}

/// A writer: its own sectors in all files.
fn writer(common: &Common<'_>, me: u64, seed: u64, steps: u64) -> Check {
    let mut random = fastrand::Rng::with_seed(seed ^ me.rotate_left(32));
    for version in 1..=steps {
        let (shared, handle) = common.pick(&mut random)?;
        let (first, count) = shared.own_run(&mut random, me);
        if count == 0 {
            continue;
        }
        match random.u8(..20) {
            0 => shared.zero(&handle, first, count, version, Fallocate::PunchHole)?,
            1 if common.extents => {
                shared.zero(&handle, first, count, version, Fallocate::ZeroRange)?
            }
            2 => handle.sync_all().map_err(in_call("sync"))?,
            3 => handle
                .sync_range(first * SECTOR, count * SECTOR, SyncRange::Wait)
                .map_err(in_call("sync_range"))?,
            4 => handle
                .advise(Advice::DontNeed, first * SECTOR, count * SECTOR)
                .map_err(in_call("advise"))?,
            5..9 => shared.read(&handle, first, count)?,
            _ => shared.write(&handle, first, count, version)?,
        }
    }
    Ok(())
}

/// A reader, at random places or sequentially.
fn reader(common: &Common<'_>, seed: u64, ended: &AtomicBool) -> Check {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = 0;
    while !ended.load(Ordering::Relaxed) {
        let (shared, handle) = common.pick(&mut random)?;
        if random.bool() {
            at = random.u64(..SECTORS);
        }
        for _ in 0..random.u8(1..8) {
            let count = random.u64(1..400).min(SECTORS - at);
            shared.read(&handle, at, count)?;
            at = (at + count) % SECTORS;
        }
        if random.u8(..8) == 0 {
            let bytes = (2 << 20) << random.u8(..3);
            common.volume.tune().cache_bytes(Some(bytes));
        }
    }
    Ok(())
}

fn shape(name: &str) -> Shape {
    let shape = SHAPES.iter().find(|shape| shape.name == name);
    Shape {
        mib: 64,
        ..*shape.expect("a shape of the table")
    }
}

/// Runs the threads; those in `first` end by themselves, then `ended` is set for the others.
fn together<'a>(
    first: Vec<Box<dyn FnOnce() -> Check + Send + 'a>>,
    others: Vec<Box<dyn FnOnce() -> Check + Send + 'a>>,
    ended: &AtomicBool,
) -> Check {
    let ran: Vec<Check> = std::thread::scope(|scope| {
        let others: Vec<_> = others.into_iter().map(|work| scope.spawn(work)).collect();
        let first: Vec<_> = first.into_iter().map(|work| scope.spawn(work)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Check>| {
            thread.join().unwrap_or_else(|_| Err("panicked".into()))
        };
        let mut ran: Vec<Check> = first.into_iter().map(join).collect();
        ended.store(true, Ordering::Relaxed);
        ran.extend(others.into_iter().map(join));
        ran
    });
    ran.into_iter().collect()
}

/// Reads all shared files through the cache and past it.
fn read_all(volume: &Volume, shared: &[Shared]) -> Check {
    for shared in shared {
        for direct in [false, true] {
            let handle = FileOptions::new()
                .direct(direct)
                .open(volume, &shared.path)
                .map_err(in_call("open"))?;
            shared.read(&handle, 0, SECTORS)?;
        }
    }
    Ok(())
}

/// Closes, checks the image, and reopens.
fn close_and_open(
    open: Volume,
    device: &Arc<dyn BlockDevice>,
    seed: u64,
    scratch: &Scratch,
) -> Result<Volume, String> {
    open.close().map_err(in_call("close"))?;
    scratch.check(&**device)?;
    volume(device, seed)
}

fn regions(seed: u64, name: &str, scratch: &Scratch) -> Check {
    let device = scratch.device(&shape(name));
    let volume = volume(&device, seed)?;
    // Sectors of one block, blocks of one folio, folios.
    let shared: Vec<Shared> = (0..)
        .zip([1, 8, 3, 128])
        .map(|(number, stripe)| Shared::new(number, stripe))
        .collect();
    let mut open = Vec::new();
    for shared in &shared {
        let file = volume.create_file(&shared.path);
        let file = file.map_err(in_call("create"))?;
        file.set_len(SECTORS * SECTOR).map_err(in_call("set_len"))?;
        open.push(file);
    }
    let steps = if soak() { 3000 } else { 400 };
    let ended = AtomicBool::new(false);
    {
        let common = &Common {
            volume: &volume,
            shared: &shared,
            open: &open,
            extents: shape(name).extents,
        };
        let ended = &ended;
        let writers = (0..WRITERS).map(|me| Box::new(move || writer(common, me, seed, steps)) as _);
        let readers =
            (0..READERS).map(|me| Box::new(move || reader(common, seed ^ (me + 77), ended)) as _);
        together(writers.collect(), readers.collect(), ended)?;
    }
    drop(open);
    read_all(&volume, &shared)?;
    let again = close_and_open(volume, &device, seed, scratch)?;
    read_all(&again, &shared)?;
    again.close().map_err(in_call("close again"))
}

/// Runs a few seeds of one of these tests on several shapes.
fn over_shapes(what: &str, run: fn(u64, &str, &Scratch) -> Check) {
    if !tools() {
        return;
    }
    const NAMES: [&str; 4] = ["ext4 4k", "ext4 1k", "ext3 1k", "ext2 4k"];
    let most = if soak() { 400 } else { NAMES.len() as u64 };
    let scratch = Scratch::new();
    let seeds = seeds(most);
    for &seed in &seeds {
        let name = NAMES[seed as usize % NAMES.len()];
        let _deadline = Deadline::new(format!("{what}, seed {seed}"));
        run(seed, name, &scratch).unwrap_or_else(|wrong| {
            panic!("{what}, THROUGHLINE_SEED={seed} (threads do not repeat), {name}: {wrong}")
        });
    }
    throughline_testkit::ledger::judged(seeds.len() as u64, &format!("seeds of {what}"));
}

#[test]
fn readers_see_no_less_than_what_was_written() {
    over_shapes("regions", regions);
}

#[test]
fn readers_of_a_file_being_cut_see_only_its_data() {
    over_shapes("cutting", cutting::cutting);
}

#[test]
fn appends_never_overlap() {
    over_shapes("appending", appending::appending);
}

fn calls_of_every_kind(seed: u64, name: &str, scratch: &Scratch) -> Check {
    let device = scratch.device(&shape(name));
    let mut settings = VolumeOptions::new();
    settings
        .access_times(AccessTimes::Strict)
        .directory_access_times(true);
    let volume = OpenOptions::new()
        .write(true)
        .cache_bytes(Some(2 << 20))
        .volume(&settings)
        .open_block_device(Arc::clone(&device))
        .map_err(in_call("open"))?;
    let volume = calls::Library(volume);
    let steps = if soak() { 8000 } else { 500 };
    calls::run(&volume, seed, 10, steps)?;
    close_and_open(volume.0, &device, seed, scratch)?
        .close()
        .map_err(in_call("close again"))
}

#[test]
fn calls_of_every_kind_go_on_beside_each_other() {
    over_shapes("calls", calls_of_every_kind);
}

#[test]
fn a_name_leads_to_a_new_inode_with_the_same_number() {
    over_shapes("reused", reused::reused);
}
