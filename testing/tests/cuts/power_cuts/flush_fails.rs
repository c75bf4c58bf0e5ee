//! A flush fails, and the device drops what it had not stored, also what others wrote; its later flushes
//! succeed. Threads sync files, names and whole volumes at that moment, which commits, and one overwrites a
//! file and syncs its data, which flushes beside the commits: nothing is gone for which a call returned
//! success, and no call returns success after a failure was reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use throughline::{Error, Reason, Volume, VolumeOptions};
use throughline_testing::{Cut, Image, Keep, PowerDevice};

use super::durable::bytes;
use super::fsck::Fsck;
use super::judge;
use super::oracle::external;
use super::oracle::image::tools;
use super::oracle::seeds::{run_all, seeds, soak};
use super::recipes::{RECIPES, Recipe};
use super::run::options_with;
use super::tree;

const THREADS: u64 = 5;
/// Names that are durable before the failure is near, at most; it depends on their number, not on that of
/// flushes, as the thread that overwrites may flush much more often than the others.
const MOST_BEFORE: usize = 16;
/// Flushes after that until one fails, at most.
const MOST_FLUSHES: u64 = 60;
/// The file that is overwritten, each time with the next number.
const OVERWRITTEN: &str = "/overwritten";
const OVERWRITTEN_BYTES: usize = 4096;

/// What must be there: names and contents.
type Sure = Vec<(String, Vec<u8>)>;

/// Shared by the threads.
struct Run<'r> {
    volume: &'r Volume,
    device: &'r PowerDevice,
    /// A flush fails this many flushes after so many names are durable; taken once.
    failure: Mutex<Option<(usize, u64)>>,
    /// Operations on names are durable when they return.
    names_are_sync: bool,
    /// A call has returned an error.
    is_reported: AtomicBool,
    sure: Mutex<Sure>,
    /// The newest number in the overwritten file that was synced.
    overwritten: AtomicU64,
}

impl Run<'_> {
    /// Chooses the flush that fails once enough is durable.
    fn fail_after(&self, durable: usize) {
        let mut failure = self.failure.lock();
        if let Some((_, flushes)) = failure.take_if(|(before, _)| durable >= *before) {
            self.device.fail_flush(flushes);
        }
    }

    /// Works until a call fails.
    fn work(&self, thread: u64, seed: u64) -> Result<(), String> {
        let mut random = fastrand::Rng::with_seed(seed << 8 | thread);
        for round in 0..400 {
            let path = format!("/{thread}-{round}");
            let len = random.u64(1..9000);
            let content = bytes(&mut random, len);
            let was_reported = self.is_reported.load(Ordering::SeqCst);
            match self.step(&path, &content, random.u8(..4)) {
                Ok(more) if !was_reported => {
                    let mut sure = self.sure.lock();
                    sure.extend(more.into_iter().map(|path| (path, content.clone())));
                    sure.push((path, content));
                    self.fail_after(sure.len());
                }
                Ok(_) => return Err(format!("{path} was synced after an error")),
                Err(Error::Caller(Reason::NoSpace)) => return Ok(()),
                Err(_) => {
                    self.is_reported.store(true, Ordering::SeqCst);
                    return Ok(());
                }
            }
        }
        Err("no call failed".into())
    }

    /// Overwrites a file in place until a sync of it fails.
    fn overwrite(&self) -> throughline::Result<()> {
        let file = self.volume.create_new(OVERWRITTEN)?;
        for number in 1_u64.. {
            let was_reported = self.is_reported.load(Ordering::SeqCst);
            let content = number.to_le_bytes().repeat(OVERWRITTEN_BYTES / 8);
            let synced = file
                .write_all_at(&content, 0)
                .and_then(|()| file.sync_data());
            if let Err(error) = synced {
                self.is_reported.store(true, Ordering::SeqCst);
                return Err(error);
            }
            if !was_reported {
                self.overwritten.store(number, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    /// Makes a file durable in one of several ways; returns its other names.
    fn step(&self, path: &str, content: &[u8], way: u8) -> throughline::Result<Vec<String>> {
        let file = self.volume.create_new(path)?;
        file.write_all_at(content, 0)?;
        let mut more = Vec::new();
        match way {
            0 => file.sync_all()?,
            1 => file.sync_data()?,
            2 => self.volume.sync()?,
            // The name is durable when the call returns, and so is the file that was synced before it.
            _ => {
                file.sync_all()?;
                let link = format!("{path}-link");
                self.volume.hard_link(path, &link)?;
                if !self.names_are_sync {
                    self.volume.root()?.sync()?;
                }
                more.push(link);
            }
        }
        Ok(more)
    }
}

fn failing(recipe: &'static Recipe, seed: u64) -> Result<usize, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let device = Arc::new(PowerDevice::new(recipe.image(), seed));
    let names_are_sync = random.bool();
    let options = options_with(seed, VolumeOptions::new().synchronous_names(names_are_sync));
    let volume = external::open_power(&options, &device);
    let volume = volume.map_err(|error| format!("opening: {error}"))?;
    let run = Run {
        volume: &volume,
        device: &device,
        failure: Mutex::new(Some((
            random.usize(..MOST_BEFORE),
            random.u64(..MOST_FLUSHES),
        ))),
        names_are_sync,
        is_reported: AtomicBool::new(false),
        sure: Mutex::default(),
        overwritten: AtomicU64::new(0),
    };
    run.fail_after(0);
    std::thread::scope(|scope| {
        scope.spawn(|| run.overwrite());
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let run = &run;
                    move || run.work(thread, seed)
                })
            })
            .collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        results.collect::<Result<(), String>>()
    })?;
    let (sure, overwritten) = (run.sure.into_inner(), run.overwritten.into_inner());
    drop(volume);
    let record = device.record();
    let at = record.end();
    let mut fsck = Fsck::new();
    for keep in [Keep::Nothing, Keep::Some(seed), Keep::Everything] {
        let state = record.states().state(Cut { at, keep });
        let found = recovered(recipe, &state, &mut fsck)?;
        check_overwritten(&found, overwritten).map_err(|what| format!("{keep:?}: {what}"))?;
        for (path, content) in &sure {
            let entry = found
                .get(path)
                .ok_or_else(|| format!("{keep:?}: {path} is gone"))?;
            if &entry.content != content {
                let lens = (content.len(), entry.content.len());
                return Err(format!("{keep:?}: {path} has other content, {lens:?}"));
            }
        }
    }
    Ok(sure.len())
}

/// Each block of the file has the newest number that was synced, or a later one.
fn check_overwritten(found: &tree::Tree, synced: u64) -> Result<(), String> {
    let content = found.get(OVERWRITTEN).map(|entry| entry.content.as_slice());
    let numbers = content.unwrap_or_default().chunks_exact(8);
    let oldest = numbers.map(|number| u64::from_le_bytes(number.try_into().expect("8 bytes")));
    match oldest.min().unwrap_or_default() {
        oldest if oldest >= synced => Ok(()),
        oldest => Err(format!("number {synced} was synced, {oldest} is there")),
    }
}

fn recovered(recipe: &Recipe, state: &Image, fsck: &mut Fsck) -> Result<tree::Tree, String> {
    let image = match recipe.journaled {
        true => judge::recover_failed(state)?.contents(),
        false => fsck.repair(state)?.0,
    };
    tree::read(&image)
}

#[test]
fn a_failed_flush_fails_everyone_who_waits() {
    if !tools() {
        return;
    }
    let inside: Vec<&Recipe> = RECIPES.iter().filter(|recipe| recipe.journaled).collect();
    let seeds = seeds(if soak() { 4000 } else { 60 });
    let sure = run_all(&seeds, |seed, _| {
        let recipe = inside[seed as usize % inside.len()];
        failing(recipe, seed).map_err(|what| format!("seed {seed}, {}: {what}", recipe.name))
    });
    let sure: usize = sure.into_iter().sum();
    throughline_testkit::ledger::judged(sure as u64, "syncs beside a flush that fails");
    assert!(sure > 4 * seeds.len(), "only {sure} syncs");
}
