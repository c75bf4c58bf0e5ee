//! The one who tells an actor what to do.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long an answer may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(150);

/// Whose a process is.
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
    /// Root, and no groups but its own.
    pub const ROOT: Ids = Ids {
        uid: 0,
        gid: 0,
        groups: &[],
    };
}

/// A process that makes system calls as it is told.
pub struct Actor {
    child: Child,
    /// `None` once the process was told that there is no more.
    lines: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Actor {
    /// Starts one: `program` is `throughline-actor`, `dir` where it begins. It takes root.
    ///
    /// # Panics
    /// Where the program does not start.
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

    /// Has a line done and waits for the answer.
    ///
    /// # Panics
    /// As [`Actor::finish`].
    pub fn say(&mut self, line: &str) -> String {
        self.begin(line);
        self.finish(line)
    }

    /// Has a line done and does not wait, as for a call that waits itself.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn begin(&mut self, line: &str) {
        let lines = self.lines.as_mut().expect("told to end");
        writeln!(lines, "{line}").unwrap_or_else(|error| panic!("{line}: no more actor: {error}"));
    }

    /// Waits for the answer to what was begun.
    ///
    /// # Panics
    /// When the process ends instead, or says nothing for minutes.
    pub fn finish(&mut self, line: &str) -> String {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => panic!("{line}: no answer for {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("{line}: the actor ended"),
        }
    }

    /// Waits until a lock of this process's is waited for: the kernel lists those that wait.
    ///
    /// # Panics
    /// When that does not come for minutes.
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

    /// Ends the process by telling it that there is no more, and waits for that.
    pub fn end(&mut self) {
        self.lines = None;
        self.wait();
    }

    /// Waits, but not for a process that hangs in the file system for ever: what comes after has to be cleaned up, too.
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
