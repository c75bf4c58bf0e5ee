//! Durable files that lose or move bytes: truncated at any byte, punched, zeroed, collapsed, inserted into,
//! and written right after the end. After any power cut, each file equals its state after some number of
//! its steps, byte for byte: never a mixture of two states.
//!
//! Without a journal, a change may be partly visible if it takes several transactions, or if the file's
//! mapping is not entirely in its inode. Each byte is then from one of these states, or zero, and not older
//! than the last sync.

use std::collections::HashSet;
use std::sync::Arc;

use throughline::{Error, Fallocate, File, FileOptions, Reason, Volume};
use throughline_testing::{Image, PowerDevice, Record};

use super::fsck::{Fsck, cannot_truncate, repairs};
use super::judge;
use super::oracle::external;
use super::oracle::image::tools;
use super::oracle::seeds::{chosen, run_all, seeds, soak};
use super::recipes::{OLD, RECIPES, Recipe};
use super::run;
use super::tree::{self, Tree};

/// Number of files in one workload.
const FILES: usize = 10;

/// A change of a file. All numbers are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    SetLen(u64),
    Append(u64),
    Allocate(Fallocate, u64, u64),
}

/// A file, and its changes since all of it was durable.
struct Subject {
    path: String,
    file: File,
    /// Contents before all steps, after the first one, and so on.
    states: Vec<Vec<u8>>,
    steps: Vec<Step>,
    /// Position in the device's record at which each step began.
    begun: Vec<usize>,
    /// Syncs of the file: the position at which each returned, and the number of steps that it covers.
    synced: Vec<(usize, usize)>,
    /// It has more pieces than one transaction frees.
    scattered: bool,
}

/// A finished workload.
struct Played {
    record: Record,
    subjects: Vec<Subject>,
    /// There was no space for new blocks.
    full: bool,
}

/// Random bytes that are neither zero nor the disk's initial byte.
pub fn bytes(random: &mut fastrand::Rng, len: u64) -> Vec<u8> {
    (0..len)
        .map(|_| match random.u8(1..=255) {
            OLD => 1,
            other => other,
        })
        .collect()
}

impl Step {
    /// The file's contents after the step.
    pub fn apply(self, before: &[u8], new: &[u8]) -> Vec<u8> {
        let mut after = before.to_vec();
        match self {
            Step::SetLen(len) => after.resize(len as usize, 0),
            Step::Append(_) => after.extend_from_slice(new),
            Step::Allocate(mode, at, len) => {
                let (at, end) = (at as usize, (at + len) as usize);
                match mode {
                    Fallocate::Collapse => drop(after.drain(at..end)),
                    Fallocate::Insert => drop(after.splice(at..at, vec![0; end - at])),
                    _ => {
                        if mode == Fallocate::ZeroRange {
                            after.resize(after.len().max(end), 0);
                        }
                        let end = end.min(after.len());
                        after[at.min(end)..end].fill(0);
                    }
                }
            }
        }
        after
    }

    /// A random step that is possible on a full volume: a change of the size, or of a part of one block.
    fn in_place(random: &mut fastrand::Rng, block: u64, size: u64) -> Step {
        if size > 1 && random.u8(..3) == 0 {
            let within = random.u64(1..block);
            let at = (random.u64(..size) / block * block + within).min(size - 1);
            let most = block - at % block;
            return Step::Allocate(
                Fallocate::PunchHole,
                at,
                random.u64(1..=most.min(block - 1)),
            );
        }
        Step::SetLen(match random.u8(..8) {
            0 => size + random.u64(..2 * block),
            1 | 2 => random.u64(..=size) / block * block,
            _ => random.u64(..=size),
        })
    }

    /// A random step for a file of `size` bytes.
    fn any(random: &mut fastrand::Rng, recipe: &Recipe, block: u64, size: u64) -> Step {
        // At a border of a block or sector, one byte off a block border, or anywhere.
        let mut place = |most: u64| {
            let any = random.u64(..=most);
            let place = match random.u8(..6) {
                0 => any / block * block,
                1 => any / 512 * 512,
                2 => any / block * block + 1,
                3 => (any / block * block).saturating_sub(1),
                _ => any,
            };
            place.min(most)
        };
        let (at, to) = (place(size), place(size + 3 * block));
        let len = to.saturating_sub(at).max(1);
        let kinds = if recipe.extents { 10 } else { 6 };
        match random.u8(..kinds) {
            0..3 => Step::SetLen(at),
            3 => Step::SetLen(to),
            4 => Step::Append(1 + random.u64(..2 * block)),
            5 => Step::Allocate(Fallocate::PunchHole, at, len),
            6 => Step::Allocate(Fallocate::ZeroRange, at, len),
            7 => Step::Allocate(Fallocate::ZeroRangeKeepSize, at, len),
            moving => {
                let cluster = recipe.cluster_bytes();
                let clusters = size.div_ceil(cluster);
                if clusters < 3 {
                    return Step::SetLen(at);
                }
                let first = random.u64(..clusters - 2);
                let many = 1 + random.u64(..(clusters - 2 - first).min(4));
                let mode = match moving {
                    8 => Fallocate::Collapse,
                    _ => Fallocate::Insert,
                };
                Step::Allocate(mode, first * cluster, many * cluster)
            }
        }
    }

    fn is_moving(self) -> bool {
        let Step::Allocate(mode, ..) = self else {
            return false;
        };
        matches!(mode, Fallocate::Collapse | Fallocate::Insert)
    }
}

impl Subject {
    fn make(
        volume: &Volume,
        random: &mut fastrand::Rng,
        number: usize,
        block: u64,
    ) -> Result<Subject, Error> {
        let path = format!("/f{number}");
        let file = volume.create_new(&path)?;
        let mut options = FileOptions::new();
        options.direct(random.u8(..3) == 0);
        let file = file.reopen(&options)?;
        let most = match number % 5 {
            0 => block,
            1 | 2 => 5 * block,
            3 => 16 * block,
            _ => 300 * 1024,
        };
        let mut content = bytes(random, 1 + random.clone().u64(..most));
        let scattered = number % 5 == 4 && random.bool();
        if scattered {
            // Every second block is a hole.
            content.resize((80 * block + 1 + random.u64(..block)) as usize, 7);
            let blocks = content.chunks_mut(block as usize);
            blocks.skip(1).step_by(2).for_each(|hole| hole.fill(0));
            for at in (0..content.len()).step_by(2 * block as usize) {
                let end = content.len().min(at + block as usize);
                file.write_all_at(&content[at..end], at as u64)?;
            }
            file.set_len(content.len() as u64)?;
        } else {
            file.write_all_at(&content, 0)?;
        }
        Ok(Subject {
            path,
            file,
            states: vec![content],
            steps: Vec::new(),
            begun: Vec::new(),
            synced: Vec::new(),
            scattered,
        })
    }

    fn now(&self) -> &[u8] {
        &self.states[self.steps.len()]
    }

    fn take(
        &mut self,
        device: &PowerDevice,
        random: &mut fastrand::Rng,
        step: Step,
    ) -> Result<(), String> {
        let new = match step {
            Step::Append(len) => bytes(random, len),
            _ => Vec::new(),
        };
        let size = self.now().len() as u64;
        self.states.push(step.apply(self.now(), &new));
        self.begun.push(device.mark());
        self.steps.push(step);
        let done = match step {
            Step::SetLen(len) => self.file.set_len(len),
            Step::Append(_) => self.file.write_all_at(&new, size),
            Step::Allocate(mode, at, len) => self.file.allocate(mode, at, len),
        };
        if let Err(Error::Caller(Reason::NoSpace)) = done {
            return Err(format!("no space for {step:?} of {}", self.path));
        }
        done.map_err(|error| format!("{step:?} of {}: {error}", self.path))?;
        // The file must read correctly before any power cut.
        let mut found = vec![0; self.now().len()];
        let read = self.file.read_exact_at(&mut found, 0);
        read.map_err(|error| format!("reading {} after {step:?}: {error}", self.path))?;
        let wrong = (0..found.len()).find(|&at| found[at] != self.now()[at]);
        match wrong {
            Some(at) => Err(format!("{}: byte {at} is wrong after {step:?}", self.path)),
            None => Ok(()),
        }
    }

    fn sync(&mut self, device: &PowerDevice) -> Result<(), String> {
        let covered = self.steps.len();
        let done = self.file.sync_all();
        done.map_err(|error| format!("syncing {}: {error}", self.path))?;
        self.synced.push((device.mark(), covered));
        Ok(())
    }

    /// The first and the last state that the file may have if power fails at `at`.
    fn may_be(&self, at: usize) -> (usize, usize) {
        let synced = self.synced.iter().filter(|(done, _)| *done <= at);
        let sure = synced.map(|(_, covered)| *covered).max().unwrap_or(0);
        let begun = self.begun.iter().filter(|begun| **begun < at).count();
        (sure, begun.max(sure))
    }

    /// Checks the contents found after a power cut at `at`.
    ///
    /// # Errors
    /// What is wrong with them.
    fn check(&self, at: usize, found: &[u8], whole: bool, block: u64) -> Result<(), String> {
        let (first, last) = self.may_be(at);
        let may = &self.states[first..=last];
        let appended = |(step, pair): (&Step, &[Vec<u8>])| {
            // An append writes its data before its size, so the size may be anywhere in between.
            let between = pair[0].len()..=pair[1].len();
            matches!(step, Step::Append(_))
                && between.contains(&found.len())
                && found == &pair[1][..found.len()]
        };
        let steps = &self.steps[first..last];
        if may.iter().any(|state| state == found)
            || std::iter::zip(steps, may.windows(2)).any(appended)
        {
            return Ok(());
        }
        let sizes: Vec<usize> = may.iter().map(Vec::len).collect();
        let of_time = |place: usize| {
            let byte = found[place];
            byte == 0 || may.iter().any(|state| state.get(place) == Some(&byte))
        };
        let strange = (0..found.len()).find(|place| !of_time(*place));
        let moved = steps.iter().any(|step| step.is_moving());
        if !whole {
            // If the size was written before the table, e2fsck rounds the size up to the blocks that exist.
            let most = sizes.iter().max().copied().unwrap_or(0);
            let fits = sizes.iter().min() <= Some(&found.len())
                && found.len() <= most.next_multiple_of(block as usize);
            let foreign = found.contains(&OLD);
            if fits && !foreign && (moved || strange.is_none()) {
                return Ok(());
            }
        }
        let place = |state: &Vec<u8>| (0..found.len()).find(|at| state.get(*at) != found.get(*at));
        let differs: Vec<_> = may.iter().map(place).collect();
        Err(format!(
            "{}: {} bytes, after {steps:?} of a file of {sizes:?}; differs from them first at \
            {differs:?}, from no state at {strange:?}",
            self.path,
            found.len()
        ))
    }
}

/// Whether each change of the file is atomic: one journal transaction, or only the inode and new blocks.
fn changes_whole(recipe: &Recipe, subject: &Subject, block: u64, full: bool) -> bool {
    let most = subject.states.iter().map(Vec::len).max().unwrap_or(0) as u64;
    let shallow = match recipe.extents {
        // True while the root has room for the extents.
        true => subject.steps.len() < 2,
        false => most.div_ceil(block) <= 12,
    };
    let in_steps = subject.scattered
        && subject
            .steps
            .iter()
            .any(|step| matches!(step, Step::Allocate(..)));
    match recipe.journaled {
        true => !in_steps,
        false => shallow && !subject.scattered && !full,
    }
}

/// Uses up all space, including the last blocks, which are kept for metadata.
pub fn fill(volume: &Volume) -> Result<(), Error> {
    let ballast = volume.create_new("/ballast")?;
    let ballast = ballast.reopen(FileOptions::new().direct(true))?;
    let mut len = 256 << 10;
    while len >= 1024 {
        match ballast.append(&vec![1; len]) {
            Ok((_, done)) if done == len => {}
            Ok(_) | Err(Error::Caller(Reason::NoSpace)) => len /= 2,
            Err(error) => return Err(error),
        }
    }
    for number in 0.. {
        match volume.create_dir(format!("/full{number}")) {
            Ok(_) => {}
            Err(Error::Caller(Reason::NoSpace)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Runs a workload. On a `full` volume, only sizes change and parts of blocks are punched.
fn play(recipe: &'static Recipe, seed: u64, full: bool) -> Result<Played, String> {
    let message = |error: Error| format!("{error}");
    let mut random = fastrand::Rng::with_seed(seed);
    let device = Arc::new(PowerDevice::new(recipe.image(), seed));
    let volume = external::open_power(&run::options(seed), &device);
    let volume = volume.map_err(message)?;
    let block = u64::from(volume.block_bytes());
    let keeper = volume.create_new("/keeper");
    let keeper = keeper.map_err(message)?;
    keeper.write_all_at(&[1], 0).map_err(message)?;
    let make = |number| Subject::make(&volume, &mut random.fork(), number, block);
    let subjects: Result<Vec<_>, _> = (0..FILES).map(make).collect();
    let mut subjects = subjects.map_err(message)?;
    if full {
        fill(&volume).map_err(message)?;
    }
    volume.sync().map_err(message)?;
    for subject in &mut subjects {
        subject.synced.push((device.mark(), 0));
    }
    for _ in 0..30 {
        let subject = random.usize(..FILES);
        let subject = &mut subjects[subject];
        for _ in 0..random.u8(1..3) {
            let size = subject.now().len() as u64;
            let step = match full {
                true => Step::in_place(&mut random, block, size),
                false => Step::any(&mut random, recipe, block, size),
            };
            subject.take(&device, &mut random, step)?;
        }
        match random.u8(..8) {
            0..3 => {
                keeper.write_all_at(&[1], 0).map_err(message)?;
                keeper.sync_all().map_err(message)?;
            }
            3 | 4 => subject.sync(&device)?,
            5 => volume.sync().map_err(message)?,
            _ => {}
        }
    }
    for subject in &mut subjects {
        subject.sync(&device)?;
    }
    let record = device.record();
    Ok(Played {
        record: record.with_sectors_of(recipe.sector_bytes),
        subjects,
        full,
    })
}

impl Played {
    fn check(&self, recipe: &Recipe, at: usize, tree: &Tree, block: u64) -> Result<(), String> {
        for subject in &self.subjects {
            // Before its first sync, a file may have any contents.
            if subject.synced.first().is_some_and(|(done, _)| *done > at) {
                continue;
            }
            let found = tree.get(&subject.path);
            let found = found.ok_or_else(|| format!("{} is gone", subject.path))?;
            let whole = changes_whole(recipe, subject, block, self.full);
            subject.check(at, &found.content, whole, block)?;
        }
        Ok(())
    }

    /// Checks a state after recovery by `e2fsck` and, with a journal, after ours.
    fn judge(
        &self,
        recipe: &Recipe,
        at: usize,
        state: &Image,
        fsck: &mut Fsck,
    ) -> Result<(), String> {
        let (repaired, output) = fsck.repair(state)?;
        let theirs = tree::read(&repaired)?;
        let block = recipe.block_bytes();
        let more = repairs(&output);
        if !cannot_truncate(recipe, &output) {
            if recipe.journaled && !more.is_empty() {
                return Err(format!("e2fsck -fy had to repair: {}", more.join("\n")));
            }
            let checked = self.check(recipe, at, &theirs, block);
            checked.map_err(|what| format!("after e2fsck -fy: {what}; it said {output}"))?;
        }
        if !recipe.journaled {
            return Ok(());
        }
        let recovered = judge::recover(state)?.contents();
        let ours = tree::read(&recovered)?;
        let checked = self.check(recipe, at, &ours, block);
        checked.map_err(|what| format!("after our recovery: {what}"))?;
        fsck.check(&recovered)
            .map_err(|what| format!("after our recovery: {what}"))
    }
}

/// Checks the states of one workload; returns their number.
fn work(seed: u64) -> Result<usize, String> {
    let recipe = &RECIPES[seed as usize % RECIPES.len()];
    let named = |what: String| format!("seed {seed}, {}: {what}", recipe.name);
    let full = seed as usize / RECIPES.len() % 2 == 1;
    let played = play(recipe, seed, full).map_err(named)?;
    let mut fsck = Fsck::new();
    let mut states = played.record.states();
    let mut seen = HashSet::new();
    let many = if soak() { 60 } else { 24 };
    for cut in played.record.cuts(many, seed) {
        let state = states.state(cut);
        if !seen.insert((state.fingerprint(played.record.base()), cut.at)) {
            continue;
        }
        let judged = played.judge(recipe, cut.at, &state, &mut fsck);
        judged.map_err(|what| named(format!("{cut:?} of {}: {what}", played.record.end())))?;
    }
    Ok(seen.len())
}

#[test]
fn a_durable_file_that_loses_or_moves_bytes_is_whole() {
    if !tools() {
        return;
    }
    let rounds = if soak() { 10 } else { 2 };
    let most = RECIPES.len() as u64 * rounds;
    let seeds = seeds(most);
    let counts = run_all(&seeds, |seed, _| work(seed));
    let states: usize = counts.iter().sum();
    throughline_testkit::ledger::judged(states as u64, "crash states of durable writes");
    let least = throughline_testkit::tier::pick(60, 500, 6_000);
    assert!(
        chosen().is_some() || states >= least,
        "only {states} states"
    );
}
