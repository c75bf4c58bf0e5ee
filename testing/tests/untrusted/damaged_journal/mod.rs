//! Untrusted journals: every field of every block of a live log, of the journal's superblock and of its inode
//! is set to its limits. Opening either reports clearly what is wrong or recovers what was committed. It
//! never panics, hangs, uses unbounded memory, or changes a byte that the log does not cover.
//!
//! `THROUGHLINE_DAMAGE='ext4: t_flags'` runs the cases whose names start with that, `THROUGHLINE_SOAK=1` all
//! of them.

mod answers;
mod craft;
mod disk;
mod fast;
mod fast_damage;
mod fields;
mod inode;
mod judge;
mod ring;
mod seal;

use throughline_testkit::tier::{self, soak};

use crate::watch::{WATCH, over_threads};

use std::sync::LazyLock;

use craft::{Base, Crafted, KINDS, Place};
use judge::{Damaged, Outcome};
use parking_lot::Mutex;

/// All base images; empty if the tools are missing.
static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let made = KINDS.iter().map(|kind| Base::new(*kind));
    made.collect::<Option<_>>().unwrap_or_else(|| {
        throughline_testkit::missing!("mke2fs or debugfs is missing or does not support a feature");
        Vec::new()
    })
});

pub(crate) fn make_bases() {
    LazyLock::force(&BASES);
}

/// A damaged image: its name, and the function that makes it.
struct Case<'a> {
    name: String,
    base: &'a Base,
    sound: &'a Crafted,
    make: Box<dyn Fn() -> Damaged + Send + Sync + 'a>,
}

/// Runs one in `thin` of the cases, or all of them in a soak run.
fn run_cases(mut cases: Vec<Case<'_>>, thin: usize) {
    fastrand::Rng::with_seed(1).shuffle(&mut cases);
    match std::env::var("THROUGHLINE_DAMAGE") {
        Ok(begin) => cases.retain(|case| case.name.starts_with(&begin)),
        Err(_) if soak() => {}
        Err(_) => cases.truncate(cases.len() / tier::pick(8 * thin, thin, thin)),
    }
    let all = cases.len();
    let (cases, wrong) = (Mutex::new(cases), Mutex::new(Vec::new()));
    let outcomes = Mutex::new(Vec::<Outcome>::new());
    let work = || {
        loop {
            let Some(case) = cases.lock().pop() else {
                return;
            };
            let judged = WATCH.over(&case.name, || {
                judge::judge(case.base, case.sound, &(case.make)())
            });
            match judged {
                Some(Ok(outcome)) => outcomes.lock().push(outcome),
                Some(Err(what)) => wrong.lock().push(format!("{}: {what}", case.name)),
                None => wrong.lock().push(format!("{}: a panic", case.name)),
            }
        }
    };
    over_threads(work);
    let (mut wrong, outcomes) = (wrong.into_inner(), outcomes.into_inner());
    let read = outcomes.iter().filter(|outcome| outcome.read).count();
    let written = outcomes.iter().filter(|outcome| outcome.written).count();
    eprintln!("{read} could be read, {written} written");
    throughline_testkit::ledger::judged(all as u64, "images with damaged journals");
    wrong.sort();
    assert!(
        wrong.is_empty(),
        "{} of {all}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The position of the damaged logs: in the middle of the ring.
const PLACE: Place = Place {
    start: 300,
    sequence: 77,
};

fn logs() -> Vec<(&'static Base, Crafted)> {
    BASES.iter().map(|base| (base, base.craft(PLACE))).collect()
}

#[test]
fn every_field_of_the_log() {
    let logs = logs();
    let mut cases = Vec::new();
    for (base, sound) in &logs {
        for field in fields::of_log(sound) {
            let old = fields::read(&sound.bytes, &field);
            for value in fields::values(base, &field, old) {
                for sealed in [false, true] {
                    let how = if sealed { "sealed" } else { "as it is" };
                    cases.push(Case {
                        name: format!(
                            "{}: {} at {:#x}, {value:#x}, {how}",
                            base.kind.name, field.name, field.at
                        ),
                        base,
                        sound,
                        make: Box::new(move || fields::damage(sound, &field, value, sealed)),
                    });
                }
            }
        }
    }
    run_cases(cases, 24);
}

/// Journals whose superblock claims fewer blocks than there are: enough for the log, too few for it, or too
/// few to be written to. The logs are at their start.
#[test]
fn journals_cut_short() {
    let place = Place { start: 1, ..PLACE };
    let logs: Vec<_> = BASES.iter().map(|base| (base, base.craft(place))).collect();
    let mut cases = Vec::new();
    for (base, sound) in &logs {
        let fields = fields::of_log(sound);
        let length = fields.into_iter().find(|field| field.name == "s_maxlen");
        let length = length.expect("a field");
        for value in (0..24).chain([40, 100]).chain(254..260) {
            cases.push(Case {
                name: format!("{}: {value} blocks", base.kind.name),
                base,
                sound,
                make: Box::new(move || fields::damage(sound, &length, value, true)),
            });
        }
    }
    run_cases(cases, 1);
}

#[test]
fn every_field_of_a_fast_commit() {
    let mut logs = logs();
    logs.retain(|(base, _)| base.fast_commits());
    let fasts: Vec<fast::Fast> = logs
        .iter_mut()
        .map(|(base, sound)| fast::add(base, sound, PLACE.sequence + 3))
        .collect();
    let mut cases = Vec::new();
    for ((base, sound), fast) in logs.iter().zip(&fasts) {
        cases.extend(fast_damage::cases(base, sound, fast));
    }
    run_cases(cases, 4);
}

#[test]
fn every_field_of_the_journals_inode() {
    let logs = logs();
    let mut cases = Vec::new();
    for (base, sound) in &logs {
        cases.extend(inode::cases(base, sound));
    }
    run_cases(cases, 8);
}

/// The valid logs are recovered in every way.
#[test]
fn valid_logs() {
    for (base, sound) in &logs() {
        let whole = Damaged {
            bytes: sound.bytes.clone(),
            also: Default::default(),
            unsealed: true,
            anywhere: false,
        };
        let outcome = judge::judge(base, sound, &whole).expect("a sound log");
        assert!(outcome.read && outcome.written, "{}", base.kind.name);
        let mut sealed = sound.bytes.clone();
        seal::seal(&mut sealed, &sound.parts, &sound.format);
        assert!(
            sealed == sound.bytes,
            "{}: it was sealed already",
            base.kind.name
        );
    }
}
