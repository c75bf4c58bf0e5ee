//! Runs the same steps on both sides and compares the answers.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use throughline_testing::pair::{Pair, Recipe, Side};
use throughline_testing::transport::is_small_files;

use crate::mount_posix::known::{KNOWN, Known, WITH_SMALL_FILES};
use crate::mount_posix::script::Case;

/// The recipe for most cases.
pub(crate) const USUAL: Recipe = Recipe {
    mke2fs: "-t ext4 -b 4096 -N 4000",
    size: "192M",
    options: "",
};

/// Runs all cases of a topic on one pair, in a directory each, and compares everything: each answer, the
/// resulting trees, and the kernel's view of our image.
///
/// # Panics
/// If there are differences that are not listed as known, with all of them.
pub(crate) fn judge(topic: &str, recipe: &Recipe, cases: &[Case]) {
    let Some(pair) = Pair::make(recipe) else {
        return;
    };
    let mut wrong = answers(&pair, cases);
    wrong.extend(pair.differences());
    assert!(
        wrong.is_empty(),
        "{topic}: {} differences\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    pair.finish(topic);
}

/// Runs all cases and returns the differences in the answers: for trees that cannot be compared or unmounted
/// afterwards.
pub(crate) fn answers(pair: &Pair, cases: &[Case]) -> Vec<String> {
    let chosen = std::env::var("THROUGHLINE_CASE").ok();
    let mut wrong = Vec::new();
    for case in cases {
        if chosen.as_ref().is_some_and(|chosen| chosen != case.name) {
            continue;
        }
        let dir = case.name.replace(' ', "-");
        let [kernel, ours] = [Side::Kernel, Side::Ours].map(|side| {
            let path = pair.root(side).join(&dir);
            fs::create_dir(&path).expect("a directory for a case");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("chmod");
            case.run(pair, side, &dir)
        });
        wrong.extend(differences(case, &kernel, &ours));
    }
    wrong
}

/// The steps whose answers differ and are not listed as known, and the listed ones that did not differ.
fn differences(case: &Case, kernel: &[String], ours: &[String]) -> Vec<String> {
    let more = match is_small_files() {
        true => WITH_SMALL_FILES,
        false => &[],
    };
    let known: Vec<&Known> = KNOWN
        .iter()
        .chain(more)
        .filter(|known| known.case == case.name)
        .collect();
    let mut seen = vec![false; known.len()];
    let mut wrong = Vec::new();
    let verbose = std::env::var_os("THROUGHLINE_TELL").is_some();
    for ((step, kernel), ours) in case.steps().zip(kernel).zip(ours) {
        if verbose {
            eprintln!("{}: {step}\n    {kernel}", case.name);
        }
        if kernel == ours {
            continue;
        }
        match known.iter().position(|known| known.is(step, kernel, ours)) {
            Some(at) => seen[at] = true,
            None => wrong.push(format!(
                "{}: {step}\n  kernel: {kernel}\n  ours:   {ours}",
                case.name
            )),
        }
    }
    for (known, _) in known.iter().zip(seen).filter(|(_, seen)| !seen) {
        wrong.push(format!("known, but not seen ({}): {known:?}", known.why));
    }
    wrong
}
