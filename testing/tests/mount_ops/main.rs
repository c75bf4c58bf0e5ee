//! Random calls by several users on our mount and on the kernel's own ext4, over a few names: every answer is the same, and so
//! are the trees in the end, what `e2fsck -fn` says and what the kernel sees in our image. What each call is and what is told
//! of its answer: [`throughline_testing::actor`]. The calls that are tried one by one: `mount_posix`.
//!
//! `THROUGHLINE_SEED=n` repeats one run, `THROUGHLINE_SOAK=1` does many more and longer ones.

mod calls;
#[path = "../oracle/mod.rs"]
mod oracle;

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use oracle::seeds::{Deadline, chosen, soak};
use throughline_testing::pair::Recipe;
use throughline_testing::{Ids, Pair, Side};

use calls::{Calls, PEOPLE};

throughline_testing::mount_server!();

/// The program that does the calls.
const ACTOR: &str = env!("CARGO_BIN_EXE_throughline-actor");
const RUNS: u64 = 10;
const CALLS: u32 = 300;
const SOAK_RUNS: u64 = 240;
const SOAK_CALLS: u32 = 400;
/// Calls before the one that differs that are told.
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
    let seeds = chosen().unwrap_or_else(|| (0..runs).collect());
    let mut succeeded = 0;
    for &seed in &seeds {
        match run(seed, calls) {
            None => return,
            Some(Ok(good)) => succeeded += good,
            Some(Err(what)) => panic!("THROUGHLINE_SEED={seed}: {what}"),
        }
    }
    eprintln!(
        "{} runs of {calls} calls, {succeeded} of them successful",
        seeds.len()
    );
    // Calls that all fail must not pass. One seed alone may be of an unlucky kind.
    let all = u64::from(calls) * seeds.len() as u64;
    assert!(
        succeeded * 3 > all || seeds.len() == 1,
        "only {succeeded} of {all} did anything"
    );
}

/// One run: how many calls succeeded, or what differed. `None` where nothing can be mounted.
fn run(seed: u64, most: u32) -> Option<Result<u64, String>> {
    let _deadline = Deadline::within(
        std::time::Duration::from_secs(500),
        format!("THROUGHLINE_SEED={seed} of mount_ops"),
    );
    let recipe = &RECIPES[seed as usize % RECIPES.len()];
    let pair = Pair::make(recipe)?;
    let told = |what: String| format!("{}: {what}", recipe.mke2fs);
    // e2fsck 1.47 takes the blocks of a value that is in an inode for those of a symbolic link's target.
    let calls = Calls::new(seed, !recipe.mke2fs.contains("ea_inode"));
    let Compared { good, parted } = match compare(&pair, calls, most) {
        Ok(compared) => compared,
        Err(what) => return Some(Err(told(what))),
    };
    let differences = if parted {
        Vec::new()
    } else {
        pair.differences()
    };
    if !differences.is_empty() {
        return Some(Err(told(differences.join("\n"))));
    }
    pair.finish(&format!("THROUGHLINE_SEED={seed}"));
    Some(Ok(good))
}

/// The end of a directory: ext4 has the last position in the order of hashes there, FUSE the directory's size. Reading bytes
/// behind that position is refused for the position, elsewhere for the directory. ext4 cuts a directory that is removed to
/// nothing (`mount_posix` knows that too).
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

/// `chown(-1, -1)` by one who is not the owner, while somebody has the file open to write: FUSE asks what it asks when that
/// one writes, so it is allowed, and takes setuid away. Both sides have different files from there on.
fn parts(line: &str, kernel: &str, ours: &str) -> bool {
    line.starts_with("lchown ") && line.ends_with(" - -") && kernel == "EPERM" && ours == "ok"
}

/// What came of the calls.
struct Compared {
    /// How many succeeded.
    good: u64,
    /// Whether they ended at the one from which on both sides differ ([`parts`]).
    parted: bool,
}

/// Does the calls on both sides: what came of them, or the first that were answered differently.
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
        let answers = [0, 1].map(|side| actors[side][who].say(&line));
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
