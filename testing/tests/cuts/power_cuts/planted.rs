//! Checks the checker: four planted bugs that lose data must each be found within a few states, and the same
//! work without them must pass.

use throughline_ext::Planted;

use super::judge_all;
use super::oracle::image::tools;
use super::recipes::Recipe;
use super::run::{self, Script, Start};
use super::scripts;

/// Maximum number of states to find each bug.
const FEW: usize = 60;

/// Number of states until a bug was found; `None` if all passed.
fn found(name: &str, script: Script<'_>, seed: u64, bug: Option<Planted>) -> Option<usize> {
    let recipe = Recipe::named(name);
    let played = run::play(recipe, Start::of(recipe), seed, &[script], bug).unwrap();
    let failure = judge_all(&played, FEW, seed, false).err()?;
    println!(
        "{bug:?} on {name}, seed {seed}, in state {}: {}",
        failure.states,
        failure.what.lines().next().unwrap_or_default()
    );
    Some(failure.states)
}

fn is_found(bug: Planted, script: Script<'_>) {
    if !cfg!(debug_assertions) {
        throughline_testkit::left_out!("bugs are planted only in a build with debug assertions");
        return;
    }
    if !tools() || throughline_testkit::tier::is_too_long("checks of the judge of power cuts") {
        return;
    }
    for name in ["ext4 1k", "ext3 1k"] {
        for seed in 0..3 {
            assert_eq!(found(name, script, seed, None), None, "without a bug");
            let states = found(name, script, seed, Some(bug));
            assert!(
                states.is_some(),
                "{bug:?} on {name}, seed {seed}: not found"
            );
        }
    }
}

#[test]
fn a_commit_block_before_its_flush_is_found() {
    is_found(Planted::CommitBeforeFlush, &scripts::growing);
}

#[test]
fn missing_revokes_are_found() {
    is_found(Planted::NoRevokes, &scripts::metadata_becomes_data);
}

#[test]
fn a_size_before_its_data_is_found() {
    is_found(Planted::SizeBeforeData, &scripts::growing);
}

#[test]
fn freed_blocks_used_too_early_are_found() {
    is_found(Planted::FreedReused, &scripts::data_becomes_data);
}
