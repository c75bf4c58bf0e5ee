//! Plants bugs in a copy of the repository, for `scripts/planted`: all in one build, each switched on by its
//! number in `THROUGHLINE_PLANTED`. What the bugs are is written to `planted.tsv` in the copy.
//!
//! `points.rs` says where a bug can be, `draw.rs` which of these get one, `rewrite.rs` what the text is then.
//! Types are not known here, so a bug may not compile. The compiler tells, and another is drawn instead.
#![forbid(unsafe_code)]

mod draw;
mod points;
mod rewrite;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use draw::Urn;
use points::Point;

type Result<T> = std::result::Result<T, String>;

/// The crates that get bugs, unless others are named.
const CRATES: [&str; 6] = ["extfmt", "journal", "ext", "fileio", "block", "fuse"];

/// A test that includes sources of a crate by `#[path]`: it is the root of these, too.
const INCLUDING: (&str, &str) = ("fileio", "crates/fileio/tests/model/main.rs");

/// How often the compiler may find bugs that do not compile.
const ROUNDS: usize = 25;

const USAGE: &str = "usage: throughline-planted plant SEED COUNT DIR [CRATE...]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("planted: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let ["plant", seed, count, dir, crates @ ..] = arguments else {
        return Err(USAGE.into());
    };
    let (Ok(seed), Ok(count)) = (seed.parse(), count.parse()) else {
        return Err(USAGE.into());
    };
    let crates = if crates.is_empty() { &CRATES } else { crates };
    Copy::read(Path::new(dir), crates)?.plant(seed, count)
}

/// A file of the copy.
struct Source {
    /// The place of its crate in the list.
    of: usize,
    /// Below the copy.
    path: PathBuf,
    /// As it was before bugs were planted.
    text: String,
    points: Vec<Point>,
    /// It is the root of a crate.
    is_root: bool,
}

/// A drawn point.
struct Bug {
    number: u32,
    file: usize,
    point: Point,
    /// Where it is in the rewritten file.
    lines: RangeInclusive<usize>,
}

/// A copy of the repository.
struct Copy<'a> {
    dir: &'a Path,
    crates: &'a [&'a str],
    sources: Vec<Source>,
}

impl<'a> Copy<'a> {
    fn read(dir: &'a Path, crates: &'a [&'a str]) -> Result<Self> {
        if dir.join("planted.tsv").exists() {
            return Err(format!("{} has bugs already", dir.display()));
        }
        let mut copy = Self {
            dir,
            crates,
            sources: Vec::new(),
        };
        for (of, name) in crates.iter().enumerate() {
            copy.read_crate(of, &Path::new("crates").join(name).join("src"))?;
            if *name == INCLUDING.0 {
                let path = PathBuf::from(INCLUDING.1);
                let text = text_of(&dir.join(&path))?;
                copy.sources.push(Source {
                    of,
                    path,
                    text,
                    points: Vec::new(),
                    is_root: true,
                });
            }
        }
        Ok(copy)
    }

    fn read_crate(&mut self, of: usize, folder: &Path) -> Result<()> {
        // Each with the folder of its modules.
        let mut left = vec![(folder.join("lib.rs"), folder.to_owned())];
        while let Some((path, folder)) = left.pop() {
            let text = text_of(&self.dir.join(&path))?;
            let parsed =
                points::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            // Those of the power-cut tests are bugs already.
            let modules = parsed.modules.iter().filter(|name| *name != "planted");
            for name in modules {
                let alone = folder.join(format!("{name}.rs"));
                let file = match self.dir.join(&alone).exists() {
                    true => alone,
                    false => folder.join(name).join("mod.rs"),
                };
                left.push((file, folder.join(name)));
            }
            self.sources.push(Source {
                of,
                is_root: path.ends_with("src/lib.rs"),
                path,
                text,
                points: parsed.points,
            });
        }
        Ok(())
    }

    fn plant(&self, mut seed: u64, count: u32) -> Result<()> {
        let mut urns = Vec::new();
        for (of, name) in self.crates.iter().enumerate() {
            let files = self
                .sources
                .iter()
                .enumerate()
                .filter(|(_, file)| file.of == of);
            let points: Vec<_> = files
                .flat_map(|(index, file)| {
                    file.points.iter().map(move |point| (index, point.clone()))
                })
                .collect();
            eprintln!("{name}: {}", summary(&points));
            urns.push(Urn::new(points, &mut seed));
        }
        let mut bugs = Vec::new();
        for number in 1..=count {
            bugs.push(self.draw(&mut urns, number)?);
        }
        for _ in 0..ROUNDS {
            self.write(&mut bugs)?;
            let wrong = self.check(&bugs)?;
            if wrong.is_empty() {
                return self.list(&bugs);
            }
            for index in wrong {
                eprintln!("does not compile: {}", self.describe(&bugs[index]));
                bugs[index] = self.draw(&mut urns, bugs[index].number)?;
            }
        }
        Err(format!(
            "there are bugs that do not compile after {ROUNDS} rounds"
        ))
    }

    /// The next bug of the crate whose turn the number is.
    fn draw(&self, urns: &mut [Urn], number: u32) -> Result<Bug> {
        let of = (number - 1) as usize % urns.len();
        let (file, point) = urns[of]
            .draw()
            .ok_or_else(|| format!("{} has no more points", self.crates[of]))?;
        Ok(Bug {
            number,
            file,
            point,
            lines: 0..=0,
        })
    }

    /// Writes the sources that have these bugs and no other.
    fn write(&self, bugs: &mut [Bug]) -> Result<()> {
        for (index, source) in self.sources.iter().enumerate() {
            let own: Vec<&mut Bug> = bugs.iter_mut().filter(|bug| bug.file == index).collect();
            let planted: Vec<_> = own.iter().map(|bug| (bug.number, &bug.point)).collect();
            let (mut text, lines) = rewrite::plant(&source.text, &planted);
            for (bug, lines) in own.into_iter().zip(lines) {
                bug.lines = lines;
            }
            if source.is_root {
                text.push_str(rewrite::SWITCH);
            }
            let path = self.dir.join(&source.path);
            // The compiler need not look at what stays the same.
            if text_of(&path)? != text {
                fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        Ok(())
    }

    /// The bugs, by index, that the compiler refuses.
    fn check(&self, bugs: &[Bug]) -> Result<BTreeSet<usize>> {
        let mut cargo = Command::new("cargo");
        cargo.args([
            "check",
            "--locked",
            "--keep-going",
            "--message-format=short",
        ]);
        for name in self.crates {
            cargo.args(["-p", &format!("throughline-{name}")]);
        }
        let output = cargo.current_dir(self.dir).output();
        let output = output.map_err(|error| format!("cargo: {error}"))?;
        if output.status.success() {
            return Ok(BTreeSet::new());
        }
        let messages = String::from_utf8_lossy(&output.stderr);
        let mut wrong = BTreeSet::new();
        for (path, line) in messages.lines().filter_map(error_place) {
            let in_file = |bug: &Bug| self.sources[bug.file].path == Path::new(path);
            let of_file = (0..bugs.len()).filter(|&index| in_file(&bugs[index]));
            let (at, near): (Vec<_>, Vec<_>) =
                of_file.partition(|&index| bugs[index].lines.contains(&line));
            // The error may be where the type that a bug changed is used.
            wrong.extend(if at.is_empty() { near } else { at });
        }
        match wrong.is_empty() {
            true => Err(format!(
                "cargo check fails, but not for the bugs:\n{messages}"
            )),
            false => Ok(wrong),
        }
    }

    /// Crate, place, kind, original and mutated text.
    fn describe(&self, bug: &Bug) -> String {
        let source = &self.sources[bug.file];
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let original = one_line(&source.text[bug.point.at.clone()]);
        let line = rewrite::line_of(&source.text[..bug.point.at.start]);
        format!(
            "{}\t{}:{line}\t{}\t{original}\t{}",
            self.crates[source.of],
            source.path.display(),
            bug.point.kind,
            one_line(&bug.point.mutated)
        )
    }

    fn list(&self, bugs: &[Bug]) -> Result<()> {
        let lines = bugs
            .iter()
            .map(|bug| format!("{}\t{}\n", bug.number, self.describe(bug)));
        let path = self.dir.join("planted.tsv");
        fs::write(&path, lines.collect::<String>())
            .map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn text_of(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// How many points of each kind there are.
fn summary(points: &[(usize, Point)]) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, point) in points {
        *kinds.entry(point.kind).or_default() += 1;
    }
    let functions: BTreeSet<_> = points
        .iter()
        .map(|(file, point)| (file, point.function))
        .collect();
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    format!(
        "{} points in {} functions: {}",
        points.len(),
        functions.len(),
        kinds.join(", ")
    )
}

/// The file and line of an error in the compiler's short form: `src/lib.rs:12:5: error[E0308]: ...`.
fn error_place(message: &str) -> Option<(&str, usize)> {
    let (place, _) = message.split_once(": error")?;
    let mut parts = place.split(':');
    let (path, line) = (parts.next()?, parts.next()?.parse().ok()?);
    Some((path, line))
}
