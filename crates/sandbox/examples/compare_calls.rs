//! Compares the lists of calls with what processes did that ran with `THROUGHLINE_LOG_CALLS=DIR`: the second
//! half of `./dev calls`. Reads the kernel's log from its standard input.
//!
//! Exit code 1: a call was made that its list lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;

use syscalls::Sysno;

/// The calls of a role, and the programs that made them.
type Made = BTreeMap<String, BTreeSet<String>>;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("usage: compare_calls DIR < KERNEL-LOG");
        return 2.into();
    };
    let mut roles: BTreeMap<String, Made> = BTreeMap::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Some((role, call, program)) = made(&line, Path::new(&dir)) else {
            continue;
        };
        let made = roles.entry(role).or_default();
        made.entry(call).or_default().insert(program);
    }
    let mut lacks = false;
    for role in ["server", "command"] {
        let file = format!(
            "{}/calls/{role}.{}",
            env!("CARGO_MANIFEST_DIR"),
            std::env::consts::ARCH
        );
        let text = std::fs::read_to_string(&file).expect("a list");
        let listed = text
            .lines()
            .filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
        let listed: BTreeSet<&str> = listed.filter_map(|line| line.split(':').next()).collect();
        let made = roles.remove(role).unwrap_or_default();
        println!(
            "{role}: {} calls are listed, {} were made",
            listed.len(),
            made.len()
        );
        for (call, programs) in made
            .iter()
            .filter(|(call, _)| !listed.contains(call.as_str()))
        {
            lacks = true;
            println!(
                "+ {call}    # {}",
                programs.iter().cloned().collect::<Vec<_>>().join(", ")
            );
        }
        let unseen = listed.into_iter().filter(|call| !made.contains_key(*call));
        println!(
            "not made, or too often to be logged: {}",
            unseen.collect::<Vec<_>>().join(" ")
        );
    }
    u8::from(lacks).into()
}

/// The role, the call and the program of a line such as
/// `audit: type=1326 audit(SECONDS:1): … pid=1 comm="fuse-late" exe="/bin/x" … syscall=0 …`.
fn made(line: &str, dir: &Path) -> Option<(String, String, String)> {
    let (_, line) = line.split_once("type=1326 ")?;
    let field = |name: &str| {
        let words = line.split_whitespace();
        let mut values = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        values
            .next()
            .map(|value| value.trim_matches('"').to_owned())
    };
    let time = line.strip_prefix("audit(")?.split_once(':')?.0;
    let role = role(&dir.join(field("pid")?), time.parse().ok()?)?;
    let call = Sysno::new(field("syscall")?.parse().ok()?)?;
    let program = field("exe")?.rsplit('/').next()?.to_owned();
    let thread = field("comm").unwrap_or_default();
    Some((
        role,
        call.name().to_owned(),
        format!("{program} ({thread})"),
    ))
}

/// What the process was at this time, by the notes that processes with its ID made: seconds and a role.
fn role(notes: &Path, time: f64) -> Option<String> {
    let notes = std::fs::read_to_string(notes).ok()?;
    let notes = notes.lines().filter_map(|note| note.split_once(' '));
    let mut before = notes.filter(|(at, _)| at.parse().is_ok_and(|at: f64| at <= time));
    Some(before.next_back()?.1.to_owned())
}
