//! SQLite is killed, and so is the server of the mount under it: a transaction that SQLite reported as
//! committed must be there afterwards, complete and in order, and its `integrity_check` must pass. It runs
//! with `synchronous=EXTRA`, durable after each commit: otherwise it leaves the removal of its rollback
//! journal to the file system.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use throughline_testing::program;

use crate::mount_programs::stage::{EXT3, EXT4, INLINE_DATA, Stage, amount, call};

/// Time limit for one commit on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Number of transactions given to the program, which never finishes them.
const PLENTY: u64 = 100_000;

/// A running `sqlite3`: transactions one after another, each reported when committed.
struct Load {
    child: Child,
    committed: Receiver<u64>,
}

impl Load {
    /// Starts with transaction `from`.
    fn start(database: &Path, mode: &str, from: u64) -> Load {
        let mut child = Command::new("sqlite3")
            .arg("-bail")
            .arg(database)
            .env("PATH", program::search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It prints errors when the server is killed under it.
            .stderr(Stdio::null())
            .spawn()
            .expect("sqlite3");
        let mut input = child.stdin.take().expect("its input");
        let mode = mode.to_owned();
        // These threads end with the program: their pipes break.
        std::thread::spawn(move || {
            let _ = write!(
                input,
                "PRAGMA journal_mode={mode};\nPRAGMA synchronous=EXTRA;\n{TABLES}"
            );
            for number in from..from + PLENTY {
                if write!(input, "{}", transaction(number)).is_err() {
                    return;
                }
            }
        });
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, committed) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(number) = line.strip_prefix("done ").and_then(|n| n.parse().ok())
                    && sender.send(number).is_err()
                {
                    return;
                }
            }
        });
        Load { child, committed }
    }

    /// Waits until this many transactions are committed.
    fn wait_for(&self, count: u64) {
        for _ in 0..count {
            let committed = self.committed.recv_timeout(LIMIT);
            committed.expect("sqlite3 commits a transaction in two minutes");
        }
    }

    /// Kills the program. Returns the last transaction that it reported as committed after those waited for,
    /// if any.
    fn last(mut self) -> Option<u64> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.committed.iter().last()
    }
}

const TABLES: &str = "CREATE TABLE IF NOT EXISTS one (number INTEGER PRIMARY KEY, data BLOB);\n\
    CREATE TABLE IF NOT EXISTS two (number INTEGER PRIMARY KEY, length INTEGER);\n";

/// A transaction on both tables, sometimes with a change of existing rows, and a line that reports its
/// commit.
fn transaction(number: u64) -> String {
    let length = 10 + number * 379 % 5000;
    let mut text = format!(
        "BEGIN;\nINSERT INTO one VALUES({number}, randomblob({length}));\n\
         INSERT INTO two VALUES({number}, {length});\n"
    );
    if number % 5 == 4 {
        let old = number - 3;
        text += &format!(
            "UPDATE one SET data = randomblob(300) WHERE number = {old};\n\
             UPDATE two SET length = 300 WHERE number = {old};\n"
        );
    }
    text + &format!("COMMIT;\n.print done {number}\n")
}

fn ask(database: &Path, question: &str) -> String {
    let database = database.to_str().expect("UTF-8");
    let answer = call("sqlite3", &[database, question]).stdout;
    answer.trim().to_owned()
}

/// The number of the last transaction in the database, which must be sound and complete up to it.
fn judge(database: &Path, promised: u64, when: &str) -> u64 {
    assert_eq!(ask(database, "PRAGMA integrity_check;"), "ok", "{when}");
    let number = |question: &str| -> u64 {
        let answer = ask(database, question);
        answer
            .parse()
            .unwrap_or_else(|_| panic!("{when}: {question} {answer}"))
    };
    let last = number("SELECT max(number) FROM one;");
    assert!(
        last >= promised,
        "{when}: {promised} was committed, {last} is the last there"
    );
    let alike = "SELECT count(*) FROM one JOIN two USING (number) WHERE length(data) = length;";
    assert_eq!(number(alike), last, "{when}: transactions in part");
    assert_eq!(number("SELECT count(*) FROM one;"), last, "{when}: one");
    assert_eq!(number("SELECT count(*) FROM two;"), last, "{when}: two");
    last
}

/// Rounds on one image in one journal mode: alternately the program and the server are killed.
fn rounds(recipe: &'static str, modes: &[&str]) {
    let Some(mut stage) = Stage::new(recipe, "128m", &["sqlite3"]) else {
        return;
    };
    let count = amount(2, 40);
    for mode in modes {
        let name = format!("/{mode}.db");
        let mut last = 0;
        for round in 0..count {
            let load = Load::start(&stage.path(&name), mode, last + 1);
            let waited = 3 + 5 * round % 17;
            load.wait_for(waited);
            let promised = if round % 2 == 0 {
                load.last()
            } else {
                stage = stage.crash();
                load.last()
            };
            let promised = promised.unwrap_or(last + waited);
            let when = format!("{recipe}, journal_mode={mode}, round {round}");
            last = judge(&stage.path(&name), promised, &when);
        }
    }
    stage.finish();
}

#[test]
fn rollback_journals() {
    rounds(EXT4, &["delete", "truncate"]);
}

#[test]
fn write_ahead_log() {
    rounds(EXT3, &["wal"]);
}

#[test]
fn kept_journal() {
    rounds(INLINE_DATA, &["persist", "wal"]);
}
