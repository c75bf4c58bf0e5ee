//! A process that writes an image under load is killed with SIGKILL at random moments, repeatedly: what its
//! calls promised is present after each reopening, the image is sound, and damage does not accumulate over
//! many kills.
//!
//! ```text
//!  this test ── starts ──► itself, as the load: threads on one image ──► diary: calls begun and returned
//!      │ SIGKILL
//!      ▼
//!  recovery (by us; sometimes by e2fsck and the kernel on copies) ─► e2fsck -fn ─► model ─► next kill
//! ```
//!
//! `THROUGHLINE_SEED=n` repeats one chain of kills, `THROUGHLINE_SOAK=1` runs ten times as many.

mod chain;
mod order;

use crate::oracle;
use oracle::image::tools;
use oracle::seeds::{chosen, run_all, seeds, soak};

/// Chains of kills on one image each, in the fast test.
const CHAINS: u64 = 20;
/// Kills per chain.
const KILLS: u64 = 10;

#[test]
fn killed_at_any_moment() {
    if !tools() {
        return;
    }
    let chains = if soak() { 10 * CHAINS } else { CHAINS };
    let seeds = seeds(chains);
    let all: Vec<chain::Counts> = run_all(&seeds, |seed, scratch| {
        chain::run(seed, KILLS, false, scratch)
            .map_err(|what| format!("THROUGHLINE_SEED={seed} (chain): {what}"))
    });
    let mut sum = chain::Counts::default();
    all.iter().for_each(|counts| sum.add(counts));
    eprintln!("{sum:?}");
    throughline_testkit::ledger::judged(sum.kills, "kills of a process");
    if chosen().is_none() {
        assert_eq!(
            sum.kills,
            seeds.len() as u64 * KILLS,
            "too many loads ended by themselves"
        );
        // The number depends on the machine; that there was something to lose does not.
        assert!(sum.promises > sum.kills && sum.files > sum.kills);
    }
}

/// Checks the checker: it must detect broken promises.
#[test]
fn a_sync_that_does_nothing_is_noticed() {
    if !tools() {
        return;
    }
    let scratch = oracle::image::Scratch::new();
    for seed in [0, 2] {
        let judged = chain::run(seed, KILLS, true, &scratch);
        assert!(judged.is_err(), "seed {seed}: {judged:?}");
    }
}

/// Not a test: the process that is killed. Does nothing unless started as such.
#[test]
fn the_load() {
    if let Some(order) = order::Order::from_environment() {
        order::run(&order);
    }
}
