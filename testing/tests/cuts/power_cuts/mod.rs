//! Every power cut must be survived: workloads on a device that loses power at any moment, with any part of
//! the unflushed data, torn at any sector. Each state is recovered by us and, independently, by `e2fsck`, and
//! everything promised must be present.
//!
//! `THROUGHLINE_SEED=n` runs one workload, `THROUGHLINE_CUT=folder` checks one failed state again,
//! `THROUGHLINE_SOAK=1` checks many more.

#![allow(unreachable_pub)] // one test of several files

mod actor;
mod content;
mod durable;
mod edges;
mod flush_fails;
mod fsck;
mod history;
mod judge;
mod names;
use crate::oracle;
mod planted;
mod random;
mod recipes;
mod recorded;
mod refused;
mod remade;
mod replace;
mod replay;
mod rights;
mod run;
mod scripts;
mod torn;
mod tree;
mod unfinished;
mod whole;

use std::collections::HashSet;
use std::path::Path;

use fsck::Fsck;
use judge::Case;
use oracle::image::tools;
use oracle::seeds::{chosen, run_all, seeds, soak};
use recipes::{RECIPES, Recipe};
use run::{Played, Script, Start};
use throughline_testing::{Fault, Image};

/// Result for the states of one workload.
#[derive(Default)]
struct Counts {
    states: usize,
    in_recovery: usize,
}

/// A state that is not allowed.
struct Failure {
    /// Number of states checked before it.
    states: usize,
    what: String,
}

/// Checks up to this many states of a workload, each content at each moment once. If `keep`, a failed one is
/// saved.
fn judge_all(played: &Played, many: usize, seed: u64, keep: bool) -> Result<Counts, Failure> {
    let lanes = played.history.lanes.iter();
    let trees: Vec<_> = lanes.map(|lane| lane.names.trees()).collect();
    let mut fsck = Fsck::new();
    let mut states = played.record.states();
    let mut seen = HashSet::new();
    let mut counts = Counts::default();
    for cut in played.record.cuts(many, seed) {
        let state = states.state(cut);
        if !seen.insert((state.fingerprint(played.record.base()), cut.at)) {
            continue;
        }
        counts.states += 1;
        let case = Case {
            recipe: played.recipe,
            history: &played.history,
            trees: &trees,
            kept: &played.kept,
            at: cut.at,
            failed: played.failed,
        };
        let judged = judge_one(&case, &state, seed, &mut counts, &mut fsck);
        judged.map_err(|(what, state, more)| {
            let kept = match keep {
                true => {
                    let events = played.record.describe(cut.at) + &more;
                    replay::keep(&case, &state, &events)
                }
                false => String::new(),
            };
            let end = played.record.end();
            Failure {
                states: counts.states,
                what: format!("{cut:?} of {end}: {what}; {kept}"),
            }
        })?;
    }
    Ok(counts)
}

/// Checks a state; for every eighth, also states left by a power cut during our recovery.
fn judge_one(
    case: &Case<'_>,
    state: &Image,
    seed: u64,
    counts: &mut Counts,
    fsck: &mut Fsck,
) -> Result<(), (String, Image, String)> {
    let judged = case.judge(state, fsck);
    let recovery = judged.map_err(|what| (what, state.clone(), String::new()))?;
    let Some(recovery) = recovery.filter(|_| counts.states.is_multiple_of(8)) else {
        return Ok(());
    };
    let record = recovery.record();
    let mut states = record.states();
    for cut in record.cuts(4, seed ^ counts.states as u64) {
        let state = states.state(cut);
        let judged = case.judge(&state, fsck);
        judged.map_err(|what| {
            let what = format!("cut in our recovery, {cut:?}: {what}");
            (
                what,
                state,
                format!("recovery:\n{}", record.describe(cut.at)),
            )
        })?;
        counts.in_recovery += 1;
    }
    Ok(())
}

const RANDOM: Script<'static> = &|player| player.play(60);
const SHORT: Script<'static> = &|player| player.play(25);
const LONG: Script<'static> = &|player| player.play(120);
const FULL: Script<'static> = &|player| player.play_full(60);
const APPENDING: Script<'static> = &scripts::appending;

/// Runs a workload on a volume, with one actor per script.
const WORK: [&[Script<'static>]; 11] = [
    &[RANDOM],
    &[&scripts::fragments],
    &[SHORT, &scripts::attributes],
    &[&scripts::orphans],
    &[APPENDING; 4],
    &[LONG],
    &[&scripts::wrapping],
    &[&scripts::directories],
    &[&scripts::metadata_becomes_data],
    &[SHORT; 3],
    &[FULL],
];

/// The states of one workload: cycles through all recipes and all kinds of work.
fn work(seed: u64) -> Result<Counts, String> {
    let recipe = &RECIPES[seed as usize % RECIPES.len()];
    let kind = seed as usize / RECIPES.len() % (WORK.len() + 1);
    let named = |what: String| format!("seed {seed}, {}: {what}", recipe.name);
    let start = match kind == WORK.len() {
        true => survivor(recipe, seed).map_err(named)?,
        false => Start::of(recipe),
    };
    let scripts = WORK[kind % WORK.len()];
    let played = run::play(recipe, start, seed, scripts, None).map_err(named)?;
    // The quick tier has fewer workloads.
    let many = throughline_testkit::tier::pick(24, 12, 60);
    judge_all(&played, many, seed, true).map_err(|failure| named(failure.what))
}

/// The states of a workload on a device that begins to fail, and then loses power.
fn failing(seed: u64) -> Result<Counts, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let recipe = match random.u8(..3) {
        0 => &RECIPES[random.usize(..RECIPES.len())],
        _ => Recipe::named("ext4 1k in clusters of 4k, quota"),
    };
    let most = random.u64(10..2000);
    let at = random.u64(..most);
    let fault = match random.u8(..6) {
        0 => Fault::Once(at),
        1 => Fault::Torn(at),
        2 => Fault::AfterDone(at),
        _ => Fault::From(at),
    };
    let named = |what: String| format!("seed {seed}, {}, {fault:?}: {what}", recipe.name);
    let scripts = WORK[random.usize(..WORK.len())];
    let played = run::play_failing(recipe, seed, scripts, fault).map_err(named)?;
    let many = if soak() { 30 } else { 12 };
    judge_all(&played, many, seed, true).map_err(|failure| named(failure.what))
}

#[test]
fn a_device_that_fails_and_then_loses_power() {
    if !tools() {
        return;
    }
    let seeds = seeds(if soak() { 20_000 } else { 60 });
    let counts = run_all(&seeds, |seed, _| failing(seed));
    let states: usize = counts.iter().map(|counts| counts.states).sum();
    throughline_testkit::ledger::judged(states as u64, "crash states of failing devices");
    assert!(
        chosen().is_some() || states > 3 * seeds.len(),
        "only {states} states"
    );
}

/// A volume that has survived one or more power cuts.
fn survivor(recipe: &'static Recipe, seed: u64) -> Result<Start, String> {
    let mut start = Start::of(recipe);
    for round in 0..1 + seed % 3 {
        let first = start.first;
        let played = run::play(recipe, start, seed ^ round, &[SHORT], None)?;
        let cuts = played.record.cuts(8, seed ^ round);
        let state = played.record.states().state(cuts[4]);
        let image = match recipe.journaled {
            true => judge::recover(&state)?.contents(),
            false => Fsck::new().repair(&state)?.0,
        };
        start = Start {
            kept: tree::read(&image)?,
            image,
            first: first + 5,
        };
    }
    Ok(start)
}

#[test]
fn every_power_cut_is_survived() {
    if !tools() {
        return;
    }
    if let Some(folder) = std::env::var_os("THROUGHLINE_CUT") {
        if let Err(what) = replay::again(Path::new(&folder)) {
            panic!("{what}");
        }
        return;
    }
    let rounds = if soak() { 8 } else { 1 };
    let most = (RECIPES.len() * (WORK.len() + 1)) as u64 * rounds;
    let seeds = seeds(most);
    let counts = run_all(&seeds, |seed, _| work(seed));
    let states: usize = counts.iter().map(|counts| counts.states).sum();
    let in_recovery: usize = counts.iter().map(|counts| counts.in_recovery).sum();
    println!("{} workloads", seeds.len());
    throughline_testkit::ledger::judged(states as u64, "crash states");
    throughline_testkit::ledger::judged(in_recovery as u64, "crash states of recoveries");
    let least = throughline_testkit::tier::pick(250, 2_000, 50_000);
    assert!(
        chosen().is_some() || states >= least,
        "only {states} states"
    );
}
