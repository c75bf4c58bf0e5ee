//! `mount/choices`: toggles each of the kernel's FUSE features that a mount uses, or could use, on the work
//! that the feature is meant for. ARCHITECTURE.md cites these ratios.
//!
//! `direct_mmap` is not included: it is not a matter of speed, because without it files opened for direct I/O
//! cannot be mapped. `async_dio` is not included either, because writable mounts do not use it.

mod work;

use crate::mounts::contestants::Contestant;
use crate::mounts::{Bench, System};
use crate::outcome::Outcome;
use crate::{Result, Settings};
use work::{WORK, Work};

/// Our mount with the defaults, and the same again as a control.
const OURS: &str = "ours";
const AGAIN: &str = "ours again";
const MIB: u64 = 1 << 20;

/// What to toggle, as an argument of `-o`, and the names of the work to measure it on.
const CHOICES: &[(&str, &[&str])] = &[
    ("without=direct_writes", &["write", "create"]),
    ("without=direct_new", &["small writes", "small reads, new"]),
    ("with=direct_mixed", &["small reads"]),
    ("without=parallel_direct_writes", &["write one file by 4"]),
    ("without=keep_cache", &["read again"]),
    ("without=explicit_inval", &["read, appended to"]),
    ("with=writeback_cache", &["write", "small writes", "create"]),
    ("without=give_back", &["read", "read small files"]),
    ("without=entry_cache", &["stat again"]),
    ("without=negative_cache", &["look up, missing"]),
    ("without=cache_symlinks", &["readlink"]),
    ("without=no_opendir", &["ls -R"]),
    ("without=no_flush", &["create", "read small files"]),
    ("without=clone_fd", &["create by 4", "write 4 files"]),
    (
        "without=spin",
        &["small writes", "create", "create by 4", "write", "read"],
    ),
    ("without=atomic_o_trunc", &["rewrite"]),
    ("without=readdirplus", &["ls -lR"]),
    ("without=readdirplus_auto", &["ls -R"]),
    ("without=parallel_dirops", &["look-ups by 4"]),
    ("without=handle_killpriv", &["small writes", "create"]),
];

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    if let Some(why) = System::Ours.unavailable() {
        outcome.note(format!("our mount: skipped: {why}"));
        return Ok(());
    }
    let sizes = work::Sizes {
        file_bytes: settings.scaled(512 * MIB, 32 * MIB) / (4 * MIB) * (4 * MIB),
        folders: settings.scaled(60, 4) / 4 * 4,
    };
    let image_bytes = sizes.file_bytes * 3 / 2 + 384 * MIB;
    let bench = Bench::new(settings, image_bytes, &["-N", "40000"])?;
    for work in WORK {
        measure(&bench, outcome, work, &sizes)?;
    }
    Ok(())
}

/// Measures the default, the default again, and every choice that is measured on this work.
fn measure(
    bench: &Bench<'_>,
    outcome: &mut Outcome,
    work: &Work,
    sizes: &work::Sizes,
) -> Result<()> {
    let shown = CHOICES.iter().filter(|(_, by)| by.contains(&work.name));
    let options: Vec<&str> = shown.map(|(option, _)| *option).collect();
    let plain = [OURS, AGAIN].map(|name| Contestant::ours(name, None));
    let switched = options
        .iter()
        .map(|option| Contestant::ours(*option, Some(option)));
    let contestants: Vec<_> = plain.into_iter().chain(switched).collect();
    bench.compare(outcome, &contestants, 5, &|session| {
        Ok(vec![(
            work.name,
            work.unit,
            (work.measure)(session, sizes)?,
        )])
    })?;
    for option in options.into_iter().chain([AGAIN]) {
        let name = format!("{}: {option} / default", work.name);
        outcome.ratio(&name, work.name, option, OURS);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_has_work_and_every_work_a_choice() {
        let named: Vec<&str> = CHOICES
            .iter()
            .flat_map(|(_, by)| by.iter().copied())
            .collect();
        assert!(
            named
                .iter()
                .all(|name| WORK.iter().any(|work| work.name == *name))
        );
        assert!(WORK.iter().all(|work| named.contains(&work.name)));
    }
}
