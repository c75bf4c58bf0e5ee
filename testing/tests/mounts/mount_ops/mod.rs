//! Random calls by several users on our mount and on the kernel's own ext4, over a few names: all answers are
//! equal, and so are the final trees, the result of `e2fsck -fn`, and the kernel's view of our image. For the
//! calls and the format of the answers see [`throughline_testing::actor`]; for tests of single calls
//! `mount_posix`.
//!
//! `THROUGHLINE_SEED=n` repeats one run, `THROUGHLINE_SOAK=1` makes many more and longer ones.

mod calls;
use crate::oracle;

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use oracle::seeds::{Deadline, seeds, soak};
use throughline_testing::pair::Recipe;
use throughline_testing::{Ids, Pair, Side};

use calls::{Calls, PEOPLE};

/// The program that makes the calls.
const ACTOR: &str = env!("CARGO_BIN_EXE_throughline-actor");
const RUNS: u64 = 10;
const CALLS: u32 = 300;
const SOAK_RUNS: u64 = 240;
const SOAK_CALLS: u32 = 400;
/// Number of calls printed before the one that differs.
const TOLD: usize = 25;

const fn recipe(mke2fs: &'static str) -> Recipe {
    Recipe {
        mke2fs,
        size: "96M",
        options: "",
    }
}

const RECIPES: &[Recipe] = &[
    recipe("-t ext4 -b 4096"),
    recipe("-t ext4 -b 1024"),
    recipe("-t ext3 -b 4096 -I 256"),
    recipe("-t ext4 -b 4096 -O ea_inode,^dir_index"),
    recipe("-t ext4 -b 2048 -O ^has_journal,^metadata_csum"),
];

#[test]
fn random_calls_are_answered_as_the_kernel_answers_them() {
    let (runs, calls) = if soak() {
        (SOAK_RUNS, SOAK_CALLS)
    } else {
        (RUNS, CALLS)
    };
    let seeds = seeds(runs);
    let mut succeeded = 0;
    for &seed in &seeds {
        match run(seed, calls) {
            None => return,
            Some(Ok(good)) => succeeded += good,
            Some(Err(what)) => panic!("THROUGHLINE_SEED={seed}: {what}"),
        }
    }
    // If all calls fail the test must not pass. A single seed may be an unlucky one.
    let all = u64::from(calls) * seeds.len() as u64;
    eprintln!("{succeeded} were successful");
    throughline_testkit::ledger::judged(all, "calls compared with the kernel's");
    assert!(
        succeeded * 3 > all || seeds.len() == 1,
        "only {succeeded} of {all} did anything"
    );
}

/// One run. Returns the number of calls that succeeded, or the difference. `None` if mounting is not
/// possible.
fn run(seed: u64, most: u32) -> Option<Result<u64, String>> {
    let _deadline = Deadline::within(
        std::time::Duration::from_secs(500),
        format!("THROUGHLINE_SEED={seed} of mount_ops"),
    );
    let recipe = &RECIPES[seed as usize % RECIPES.len()];
    let pair = Pair::make(recipe)?;
    let message = |what: String| format!("{}: {what}", recipe.mke2fs);
    // e2fsck 1.47 mistakes the blocks of an attribute value in its own inode for those of a symbolic link's
    // target.
    let calls = Calls::new(seed, !recipe.mke2fs.contains("ea_inode"));
    let Compared { good, parted } = match compare(&pair, calls, most) {
        Ok(compared) => compared,
        Err(what) => return Some(Err(message(what))),
    };
    let differences = if parted {
        Vec::new()
    } else {
        pair.differences()
    };
    if !differences.is_empty() {
        return Some(Err(message(differences.join("\n"))));
    }
    pair.finish(&format!("THROUGHLINE_SEED={seed}"));
    Some(Ok(good))
}

/// The end of a directory: in ext4 the last position in hash order, with FUSE the directory's size. Reading
/// bytes past it fails because of the position, elsewhere because it is a directory. ext4 truncates a removed
/// directory to size 0 (`mount_posix` lists that too).
fn is_known(line: &str, kernel: &str, ours: &str) -> bool {
    let seeks_end = line.starts_with("seek ") && line.contains(" end ");
    let reads = line.starts_with("read ");
    let a_block = |ours: &str| ["1024", "2048", "4096"].contains(&ours);
    let removed = kernel
        .strip_suffix(" size 0")
        .filter(|of| of.starts_with("ok Directory ") && of.contains(" links 0 "));
    (seeks_end && kernel == format!("ok {}", i64::MAX))
        || (seeks_end && kernel == "ok 0" && ours.strip_prefix("ok ").is_some_and(a_block))
        || (reads && kernel == "EINVAL" && ours == "EISDIR")
        || removed.is_some_and(|of| {
            ours.strip_prefix(of)
                .is_some_and(|size| size.strip_prefix(" size ").is_some_and(a_block))
        })
}

/// `chown(-1, -1)` by a user who is not the owner, while another has the file open for writing: FUSE sends
/// the request that it also sends when that user writes, so the call is allowed and removes setuid. From then
/// on the files differ between the sides.
fn parts(line: &str, kernel: &str, ours: &str) -> bool {
    line.starts_with("lchown ") && line.ends_with(" - -") && kernel == "EPERM" && ours == "ok"
}

/// The result of a run.
struct Compared {
    /// Number of calls that succeeded.
    good: u64,
    /// Whether it ended at a call after which the sides differ ([`parts`]).
    parted: bool,
}

/// Makes the calls on both sides. Returns the result, or the first call with different answers.
fn compare(pair: &Pair, mut calls: Calls, most: u32) -> Result<Compared, String> {
    const SIDES: [Side; 2] = [Side::Kernel, Side::Ours];
    for side in SIDES {
        let dir = pair.root(side).join("work");
        fs::create_dir(&dir).expect("a directory");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    let start = |side| PEOPLE.map(|ids: Ids| pair.actor(ACTOR, side, "work", ids));
    let mut actors = SIDES.map(start);
    let mut last = VecDeque::new();
    let mut good = 0;
    for number in 0..most {
        let (who, line) = calls.draw();
        let answers = [0, 1].map(|side| actors[side][who].ask(&line));
        let step = format!("{number}: {who}: {line}\n    {}", answers[0]);
        if parts(&line, &answers[0], &answers[1]) {
            return Ok(Compared { good, parted: true });
        }
        if answers[0] != answers[1] && !is_known(&line, &answers[0], &answers[1]) {
            let before: Vec<String> = last.into();
            return Err(format!(
                "{}\n{step}\n    but we answer {}",
                before.join("\n"),
                answers[1]
            ));
        }
        let succeeded = answers[0].starts_with("ok");
        good += u64::from(succeeded);
        calls.answered(succeeded);
        last.push_back(step);
        if last.len() > TOLD {
            last.pop_front();
        }
    }
    Ok(Compared {
        good,
        parted: false,
    })
}
