//! The script of a case: one step per line.
//!
//! `alice: unlink a` runs a call in alice's process (see [`throughline_testing::actor`]); without a name, in
//! root's. A digit after a name denotes another process of the same user: `root2`. `& alice: flock f ex wait`
//! starts a call that blocks, `~ alice` waits until she waits for a lock, `= alice` waits for her answer.
//! `end alice` ends the process normally, `kill alice` kills it. `released 2` waits until the server knows
//! that all files but two are closed: the kernel's ext4 knows it when close(2) returns, and a server with
//! `small_files` never knows. `#` begins a comment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use throughline_testing::transport::is_small_files;
use throughline_testing::{Actor, Ids, Pair, Side};

/// The program that makes the calls.
const ACTOR: &str = env!("CARGO_BIN_EXE_throughline-actor");
/// How long a RELEASE may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A case: operations of Linux programs, to be run on both sides.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) script: &'static str,
}

pub(crate) const fn case(name: &'static str, script: &'static str) -> Case {
    Case { name, script }
}

/// The users of the scripts. Groups 2000 and 2001 are shared.
fn ids(name: &str) -> Ids {
    let user = |uid, groups| Ids {
        uid,
        gid: uid,
        groups,
    };
    match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "root" => Ids::ROOT,
        "alice" => user(1001, &[]),
        "bob" => user(1002, &[2000]),
        "carol" => user(1003, &[2000, 2001]),
        "dave" => user(1004, &[]),
        other => panic!("unknown user {other}"),
    }
}

impl Case {
    /// The steps, without comments and empty lines.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &'static str> {
        self.script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
    }

    /// Runs the script on one side, in a directory. Returns the answer of each step.
    pub(crate) fn run(&self, pair: &Pair, side: Side, dir: &str) -> Vec<String> {
        let mut people = People {
            pair,
            side,
            dir,
            actors: BTreeMap::new(),
        };
        self.steps().map(|step| people.step(step)).collect()
    }
}

/// The processes of a case.
struct People<'a> {
    pair: &'a Pair,
    side: Side,
    dir: &'a str,
    actors: BTreeMap<String, Actor>,
}

impl People<'_> {
    fn step(&mut self, step: &str) -> String {
        if let Some(open) = step.strip_prefix("released ") {
            self.wait_until_released(open.parse().expect("a number of open files"));
            return "released".to_owned();
        }
        if let Some((verb @ ("&" | "~" | "=" | "end" | "kill"), rest)) = step.split_once(' ') {
            let (name, line) = rest.split_once(": ").unwrap_or((rest, ""));
            let actor = self.actor(name);
            return match verb {
                "&" => {
                    actor.begin(line);
                    "begun".to_owned()
                }
                "~" => {
                    actor.until_it_waits();
                    "waits".to_owned()
                }
                "=" => actor.finish(name),
                "end" => {
                    actor.end();
                    self.actors.remove(name);
                    "ended".to_owned()
                }
                _ => {
                    actor.kill();
                    self.actors.remove(name);
                    "killed".to_owned()
                }
            };
        }
        let (name, line) = match step.split_once(": ") {
            Some((name, line)) if !name.contains(' ') => (name, line),
            _ => ("root", step),
        };
        self.actor(name).ask(line)
    }

    fn wait_until_released(&self, open: u64) {
        if is_small_files() {
            return;
        }
        let until = Instant::now() + PATIENCE;
        while let Some(status) = self.pair.status(self.side) {
            let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
            if status["open_files"] == open {
                return;
            }
            let now = &status["open_files"];
            assert!(Instant::now() < until, "{now} files are open, not {open}");
            std::thread::yield_now();
        }
    }

    fn actor(&mut self, name: &str) -> &mut Actor {
        let (pair, side, dir) = (self.pair, self.side, self.dir);
        self.actors
            .entry(name.to_owned())
            .or_insert_with(|| pair.actor(ACTOR, side, dir, ids(name)))
    }
}
