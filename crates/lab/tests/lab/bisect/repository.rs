//! A repository with a planted slowdown. Its commits are "measured" by a calculation, so nothing is timed,
//! and the same commit, pair and seed always give the same figure.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Ran, throughline};

/// The coefficient of variation of report 5's measurements.
const CV: f64 = 0.012;

/// Prints the speed in the commit's file, with noise by commit, pair and seed (a sum of twelve uniform
/// numbers, which is nearly normal) and a drift common to both runs of a pair.
const MEASURE: &str = r#"
function next_number() { x = (x * 16807) % 2147483647; return x / 2147483647 }
BEGIN {
    x = 1 + seed * 7919 + ENVIRON["THROUGHLINE_PAIR"] * 104729
    rev = ENVIRON["THROUGHLINE_REV"]
    for (i = 1; i <= 16; i++) x = (x * 31 + index("0123456789abcdef", substr(rev, i, 1))) % 2147483629 + 1
    for (i = 0; i < 8; i++) next_number()
    for (i = 0; i < 12; i++) sum += next_number()
    getline speed < "speed"
    drift = 1 + 0.05 * sin(ENVIRON["THROUGHLINE_PAIR"] / 7)
    print "measured:"
    printf "%.6f\n", speed * drift * (1 + cv * (sum - 6))
}
"#;

/// A commit to create.
#[derive(Clone, Default)]
pub(crate) struct Planned {
    /// Its speed.
    pub(crate) speed: f64,
    /// Whether its build fails.
    pub(crate) broken: bool,
    /// The indices of its parents; if empty, the previous commit.
    pub(crate) parents: Vec<usize>,
}

/// A repository in a temporary directory.
pub(crate) struct Repository {
    dir: tempfile::TempDir,
    /// The commit IDs in order.
    pub(crate) ids: Vec<String>,
    /// The speeds in order.
    speeds: Vec<f64>,
}

/// A linear history of `count` commits that differ slightly, 4.5 % slower from `culprit` on.
pub(crate) fn line(count: usize, culprit: usize) -> Vec<Planned> {
    (0..count)
        .map(|place| Planned {
            // Up to ±0.15 %.
            speed: (1.0 + 0.0015 * ((place * 37 % 19) as f64 / 9.0 - 1.0))
                * if place >= culprit {
                    130.0 * 0.955
                } else {
                    130.0
                },
            ..Planned::default()
        })
        .collect()
}

/// Whether git is missing; prints a note if it is.
pub(crate) fn git_is_missing() -> bool {
    let missing = Command::new("git").arg("--version").output().is_err();
    if missing {
        throughline_testkit::missing!("git is missing (Debian package git)");
    }
    missing
}

impl Repository {
    pub(crate) fn of(commits: &[Planned]) -> Repository {
        let repository = Repository {
            dir: tempfile::tempdir().unwrap(),
            ids: Vec::new(),
            speeds: commits.iter().map(|commit| commit.speed).collect(),
        };
        std::fs::create_dir(repository.path()).unwrap();
        repository.git(&["init", "-q", "-b", "main"]);
        std::fs::write(repository.script(), MEASURE).unwrap();
        let mut child = repository
            .command(&["fast-import", "--quiet", "--export-marks=../marks"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(stream(commits).as_bytes()).unwrap();
        drop(stdin);
        assert!(child.wait().unwrap().success());
        repository.git(&["reset", "-q", "--hard"]);
        let marks = std::fs::read_to_string(repository.dir.path().join("marks")).unwrap();
        let mut ids: Vec<(usize, String)> = marks
            .lines()
            .map(|line| line.trim_start_matches(':').split_once(' ').unwrap())
            .map(|(place, id)| (place.parse().unwrap(), id.to_owned()))
            .collect();
        ids.sort();
        let ids = ids.into_iter().map(|(_, id)| id).collect();
        Repository { ids, ..repository }
    }

    pub(crate) fn path(&self) -> PathBuf {
        // The directory's name contains a blank, as users' directories may.
        self.dir.path().join("my repo")
    }

    fn script(&self) -> PathBuf {
        self.dir.path().join("measure.awk")
    }

    /// The state directory of the bisections.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            .current_dir(self.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .args(arguments);
        command
    }

    #[track_caller]
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// The speed of a commit relative to the previous one.
    pub(crate) fn change(&self, place: usize) -> f64 {
        self.speeds[place] / self.speeds[place - 1]
    }

    /// The measuring command with the noise of this seed.
    pub(crate) fn measure(&self, seed: u64) -> String {
        let script = self.script();
        format!("awk -v seed={seed} -v cv={CV} -f '{}'", script.display())
    }

    /// The command `throughline lab WHAT` in this repository.
    pub(crate) fn lab(&self, what: &str) -> Command {
        let mut command = throughline();
        command
            .args(["lab", what])
            .current_dir(self.path())
            .env("XDG_STATE_HOME", self.state())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    /// The command `lab bisect` from the first commit to the last, with these build and measuring commands.
    pub(crate) fn asked(&self, build: &str, measure: &str) -> Command {
        let mut command = self.lab("bisect");
        command
            .args(["--good", &self.ids[0], "--bad", "main", "--build", build])
            .args(["--measure", measure]);
        command
    }

    /// The command `lab bisect` from the first commit to the last, with the noise of this seed. It prints
    /// JSON.
    pub(crate) fn bisect(&self, seed: u64, more: &[&str]) -> Command {
        let mut command = self.asked("test ! -e broken", &self.measure(seed));
        command.arg("--json").args(more);
        command
    }

    /// A state directory beside the repository.
    pub(crate) fn kept(&self) -> PathBuf {
        self.dir.path().join("kept")
    }

    /// The bisection left only its logs, and did not touch the checkout.
    #[track_caller]
    pub(crate) fn assert_untouched(&self) {
        let worktrees = self.git(&["worktree", "list", "--porcelain"]);
        let count = worktrees
            .lines()
            .filter(|line| line.starts_with("worktree "))
            .count();
        assert_eq!(count, 1, "{worktrees}");
        assert!(!self.path().join(".git/worktrees").exists());
        assert_eq!(self.git(&["status", "--porcelain"]), "");
        assert_eq!(self.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
        let states = std::fs::read_dir(self.state().join("throughline/bisect"));
        for state in states.into_iter().flatten().flatten() {
            let trees = state.path().join("trees");
            assert!(is_empty(&trees), "{}", trees.display());
        }
    }

    /// The index of a commit in history.
    pub(crate) fn place(&self, id: &serde_json::Value) -> usize {
        let place = self.ids.iter().position(|known| known == id);
        place.unwrap_or_else(|| panic!("{id} is no commit"))
    }
}

pub(crate) fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Runs a command to its end.
pub(crate) fn ran(command: &mut Command) -> Ran {
    command.output().unwrap().into()
}

/// The commits as input for `git fast-import`.
fn stream(commits: &[Planned]) -> String {
    let mut text = String::new();
    for (place, commit) in commits.iter().enumerate() {
        let message = format!("change number {place}");
        write!(
            text,
            "commit refs/heads/main\nmark :{}\nauthor A <a@example.org> {when} +0000\n\
             committer A <a@example.org> {when} +0000\ndata {}\n{message}\n",
            place + 1,
            message.len(),
            when = 1_700_000_000 + place * 60,
        )
        .unwrap();
        let parents = match commit.parents.as_slice() {
            [] if place > 0 => vec![place - 1],
            given => given.to_vec(),
        };
        for (number, parent) in parents.iter().enumerate() {
            let word = if number == 0 { "from" } else { "merge" };
            writeln!(text, "{word} :{}", parent + 1).unwrap();
        }
        let speed = format!("{:.4}\n", commit.speed);
        write!(text, "M 644 inline speed\ndata {}\n{speed}\n", speed.len()).unwrap();
        match commit.broken {
            true => text.push_str("M 644 inline broken\ndata 4\nyes\n\n"),
            false if place > 0 => text.push_str("D broken\n"),
            false => {}
        }
        text.push('\n');
    }
    text
}
