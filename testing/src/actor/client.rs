//! The client side of an actor.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(150);

/// The ids of a process.
#[derive(Clone, Copy, Debug)]
pub struct Ids {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
}

impl Ids {
    /// Root with no supplementary groups.
    pub const ROOT: Ids = Ids {
        uid: 0,
        gid: 0,
        groups: &[],
    };
}

/// A process that makes system calls on request.
pub struct Actor {
    child: Child,
    /// `None` once the input was closed.
    lines: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Actor {
    /// Starts an actor: `program` is `throughline-actor`, `dir` its working directory. Needs root.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn start(program: &Path, dir: &Path, ids: Ids) -> Actor {
        let groups: Vec<String> = ids.groups.iter().map(u32::to_string).collect();
        let mut child = Command::new(program)
            .args([ids.uid.to_string(), ids.gid.to_string(), groups.join(",")])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let lines = child.stdin.take();
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in out.lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Actor {
            child,
            lines,
            answers,
        }
    }

    /// Sends a line and waits for the answer.
    ///
    /// # Panics
    /// As [`Actor::finish`].
    pub fn ask(&mut self, line: &str) -> String {
        self.begin(line);
        self.finish(line)
    }

    /// Sends a line without waiting, for a call that blocks.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn begin(&mut self, line: &str) {
        let lines = self.lines.as_mut().expect("input is open");
        writeln!(lines, "{line}")
            .unwrap_or_else(|error| panic!("{line}: the actor has ended: {error}"));
    }

    /// Waits for the answer to a line sent with [`Actor::begin`].
    ///
    /// # Panics
    /// If the process ends, or the time limit expires.
    pub fn finish(&mut self, line: &str) -> String {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => panic!("{line}: no answer for {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("{line}: the actor ended"),
        }
    }

    /// Waits until this process waits for a lock: the kernel lists lock waiters.
    ///
    /// # Panics
    /// If the time limit expires.
    pub fn until_it_waits(&self) {
        let pid = self.child.id().to_string();
        let until = Instant::now() + PATIENCE;
        loop {
            let locks = std::fs::read_to_string("/proc/locks").expect("/proc/locks");
            let waits = |line: &str| {
                let mut words = line.split_whitespace();
                words.nth(1) == Some("->") && words.nth(3) == Some(&pid)
            };
            if locks.lines().any(waits) {
                return;
            }
            assert!(Instant::now() < until, "process {pid} waits for no lock");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills the process and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.wait();
    }

    /// Ends the process by closing its input, and waits for its exit.
    pub fn end(&mut self) {
        self.lines = None;
        self.wait();
    }

    /// Waits with a time limit, because a process may hang in the file system and later cleanup must still
    /// run.
    fn wait(&mut self) {
        let until = Instant::now() + PATIENCE;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > until {
                let _ = self.child.kill();
                eprintln!("process {} does not end", self.child.id());
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.lines = None;
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
        }
        self.wait();
    }
}
