//! The seed of what a test run generates at random.
//!
//! The fast tests generate the same cases in each run, so that a failure repeats and none appears by chance
//! in CI. The long tests generate other cases each time:
//!
//! | environment | seed |
//! | --- | --- |
//! | | 0 |
//! | `THROUGHLINE_SOAK=1` | another one in each process |
//! | `THROUGHLINE_SEED=n` | `n` |
//!
//! A test that fails with a seed other than 0 prints it.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// The variable that repeats a run.
const VARIABLE: &str = "THROUGHLINE_SEED";

/// The seed of this process, combined with `of_test`, which may differ from test to test. Unless the seed is
/// 0, prints how to repeat the run; the test harness shows that only if the test fails.
///
/// # Panics
/// If the environment has a seed that is no number.
pub fn of_run(of_test: u64) -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = *SEED.get_or_init(|| match std::env::var(VARIABLE) {
        // Some tests also take a range.
        Ok(text) => match text.split("..").next().unwrap_or_default().parse() {
            Ok(seed) => seed,
            Err(error) => panic!("{VARIABLE}={text}: {error}"),
        },
        // 32 bits, so that it is easily typed.
        Err(_) if crate::tier::soak() => RandomState::new().hash_one(std::process::id()) >> 32,
        Err(_) => 0,
    });
    if seed != 0 {
        eprintln!("{VARIABLE}={seed} repeats what is generated here");
    }
    of_test ^ seed
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// What a process with these settings prints: its seed, and how to repeat it.
    fn run(settings: &[(&str, &str)]) -> (u64, String) {
        let this = std::env::current_exe().expect("this executable");
        let mut command = Command::new(this);
        command.args(["--exact", "seed::tests::prints_its_seed", "--ignored"]);
        command.arg("--nocapture");
        command
            .env_remove("THROUGHLINE_SOAK")
            .env_remove(super::VARIABLE);
        let ran = command.envs(settings.iter().copied()).output();
        let ran = ran.expect("the test ran");
        let text = String::from_utf8_lossy(&ran.stderr).into_owned();
        let seed = text.lines().find_map(|line| line.strip_prefix("seed "));
        let seed = seed.unwrap_or_else(|| panic!("{text}"));
        (seed.parse().expect("a number"), text)
    }

    #[test]
    #[ignore = "run by the test below, in processes of its own"]
    fn prints_its_seed() {
        eprintln!("seed {}", super::of_run(0));
    }

    #[test]
    fn fast_tests_repeat_and_long_ones_say_how_to() {
        let (seed, text) = run(&[]);
        assert_eq!(seed, 0);
        assert!(!text.contains(super::VARIABLE), "{text}");
        let (seed, text) = run(&[("THROUGHLINE_SOAK", "1")]);
        assert_ne!(seed, 0);
        assert!(
            text.contains(&format!("THROUGHLINE_SEED={seed} repeats")),
            "{text}"
        );
        let (again, _) = run(&[("THROUGHLINE_SEED", &seed.to_string())]);
        assert_eq!(again, seed);
        let (another, _) = run(&[("THROUGHLINE_SOAK", "1")]);
        assert_ne!(another, seed);
    }
}
