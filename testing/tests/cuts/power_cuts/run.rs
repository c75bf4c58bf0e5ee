//! Runs a workload on a device that records its requests. Returns the history of the workload and the
//! record.

use std::sync::Arc;
use std::time::Duration;

use throughline::internal::VolumeLayers;
use throughline::{DirtyLimits, OpenOptions, Volume, VolumeOptions};
use throughline_ext::Planted;
use throughline_testing::{Fault, FaultDevice, Image, PowerDevice, Record};

use super::actor::{Actor, Board};
use super::history::History;
use super::names::Span;
use super::oracle::external;
use super::random::Player;
use super::recipes::Recipe;
use super::tree::{self, Tree};

/// A volume before a workload.
pub struct Start {
    pub image: Image,
    /// The tree on it, which the workload must not change.
    pub kept: Tree,
    /// The number of the first actor; not used on this volume before.
    pub first: u32,
}

impl Start {
    /// An empty volume.
    pub fn of(recipe: &Recipe) -> Start {
        Start {
            image: recipe.image(),
            kept: Tree::new(),
            first: 0,
        }
    }
}

/// A finished workload.
pub struct Played {
    pub recipe: &'static Recipe,
    pub record: Record,
    pub history: History,
    /// The tree from before the workload, which must not change.
    pub kept: Tree,
    /// Whether the device failed.
    pub failed: bool,
}

/// The work of one actor.
pub type Script<'a> = &'a (dyn Fn(&mut Player<'_, '_>) -> throughline::Result<()> + Sync);

/// Options for opening the volume: small caches, so that they fill up, and with some seeds a short commit
/// interval.
pub fn options(seed: u64) -> OpenOptions {
    options_with(seed, &mut VolumeOptions::new())
}

/// The same, with these options of the volume.
pub fn options_with(seed: u64, volume: &mut VolumeOptions) -> OpenOptions {
    let mut random = fastrand::Rng::with_seed(seed);
    let interval = Duration::from_millis([5000, 5, 50][random.usize(..3)]);
    let dirty = DirtyLimits::new(Some(256 << 10 << random.u8(..3)), None);
    let mut options = tree::options();
    options
        .cache_bytes(Some(1 << 20 << random.u8(..3)))
        .dirty_limits(dirty)
        .volume(volume.commit_interval(interval));
    options
}

/// Runs a script for each actor, all concurrently, and closes the volume. `bug` is planted first, if given.
///
/// # Errors
/// Any failure: none is expected.
pub fn play(
    recipe: &'static Recipe,
    start: Start,
    seed: u64,
    scripts: &[Script<'_>],
    bug: Option<Planted>,
) -> Result<Played, String> {
    let device = Arc::new(PowerDevice::new(start.image, seed));
    let volume = external::open_power(&options(seed), &device);
    let volume = volume.map_err(|error| format!("opening: {error}"))?;
    if let Some(bug) = bug {
        volume.fs().plant(bug);
    }
    let (mut history, failed) = work(&volume, &device, recipe, (seed, start.first), scripts)?;
    if let Some(what) = failed {
        return Err(what);
    }
    let begun = device.mark();
    volume
        .close()
        .map_err(|error| format!("closing: {error}"))?;
    history.syncs.push(Span {
        begun,
        done: Some(device.mark()),
    });
    Ok(Played {
        recipe,
        record: device.record().with_sectors_of(recipe.sector_bytes),
        history,
        kept: start.kept,
        failed: false,
    })
}

/// As [`play`], on a device that fails as `fault` says. Each actor ends with the first error that it gets;
/// the volume is closed if it can be.
///
/// # Errors
/// None of the device.
pub fn play_failing(
    recipe: &'static Recipe,
    seed: u64,
    scripts: &[Script<'_>],
    fault: Fault,
) -> Result<Played, String> {
    let device = Arc::new(PowerDevice::new(recipe.image(), seed));
    let failing = Arc::new(FaultDevice::counting(Arc::clone(&device) as _).seeded(seed));
    let volume = external::open(&options(seed), Arc::clone(&failing) as _);
    let volume = volume.map_err(|error| format!("opening: {error}"))?;
    failing.set_fault(fault);
    let (mut history, _) = work(&volume, &device, recipe, (seed, 0), scripts)?;
    let begun = device.mark();
    if volume.close().is_ok() {
        let done = Some(device.mark());
        history.syncs.push(Span { begun, done });
    }
    Ok(Played {
        recipe,
        record: device.record().with_sectors_of(recipe.sector_bytes),
        history,
        kept: Tree::new(),
        failed: true,
    })
}

/// Runs the actors. Also returns the first error that one of them got.
fn work(
    volume: &Volume,
    device: &Arc<PowerDevice>,
    recipe: &'static Recipe,
    (seed, first): (u64, u32),
    scripts: &[Script<'_>],
) -> Result<(History, Option<String>), String> {
    let mut failed = None;
    let mut history = History::default();
    let mut others = Vec::new();
    let board = Board::default();
    std::thread::scope(|scope| -> Result<(), String> {
        let act = |number: u32, script: Script<'_>| {
            let mut actor = Actor::new(volume, device, &board, number);
            let done = act(&mut actor, script, recipe, seed);
            (done.err(), actor.lane, actor.syncs, actor.others)
        };
        let actors: Vec<_> = std::iter::zip(first.., scripts)
            .map(|(number, script)| scope.spawn(move || act(number, *script)))
            .collect();
        for actor in actors {
            let (error, lane, whole, single) = actor.join().map_err(|_| "an actor panicked")?;
            failed = failed.take().or(error);
            history.lanes.push(lane);
            history.syncs.extend(whole);
            others.extend(single);
        }
        Ok(())
    })?;
    drop(board);
    for (id, sync) in others {
        let mut files = history.lanes.iter_mut().map(|lane| &mut lane.files);
        let file = files.find_map(|files| files.get_mut(&id));
        file.expect("a file of an actor").syncs.push(sync);
    }
    Ok((history, failed))
}

fn act(
    actor: &mut Actor<'_>,
    script: Script<'_>,
    recipe: &'static Recipe,
    seed: u64,
) -> Result<(), String> {
    let number = actor.lane.number;
    let mut player = Player::new(actor, seed ^ u64::from(number) << 32, recipe);
    let done = script(&mut player);
    done.map_err(|error| {
        let last = actor.lane.names.0.last();
        format!("actor {number}: {error}; last name operation {last:?}")
    })
}
