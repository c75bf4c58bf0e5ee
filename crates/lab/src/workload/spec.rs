//! [`TargetSpec`]: a target in one word, such as `make:xfs?mount=noatime`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use throughline::internal::parse_size;

use crate::mounts::System;
use crate::{Error, Result};

/// All kinds of targets, for messages.
const KINDS: &str = "cmd:COMMAND, dir:PATH, file:PATH, make:FS, mount:, fuse2fs:";

/// The prefix of a command.
const COMMAND: &str = "cmd";

/// A target, as written by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// The whole text.
    text: String,
    /// The name in tables, if given.
    name: Option<String>,
    /// The kind of target.
    pub kind: TargetKind,
}

/// The kinds of target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A command that does its own work: a new process for each sample.
    Command {
        /// The argument of `sh -c`.
        line: String,
        /// Its working directory; `None` for the current one.
        dir: Option<PathBuf>,
    },
    /// New files in this directory.
    Dir(PathBuf),
    /// A plain file or block device.
    File(PathBuf),
    /// A mounted file system that is made for the run.
    Made(MadeSpec),
}

/// A file system to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeSpec {
    /// What serves it.
    pub by: System,
    /// Arguments of `mkfs`.
    pub mkfs: Vec<String>,
    /// Options of `mount`.
    pub mount: Option<String>,
    /// How much data it needs room for, if not as much as the jobs write.
    pub data_bytes: Option<u64>,
}

impl TargetSpec {
    /// Parses a target.
    ///
    /// # Errors
    /// Says what is wrong, and what kinds there are.
    pub fn parse(text: &str) -> Result<TargetSpec> {
        let wrong = |why: String| Error::new(format!("target '{text}': {why}"));
        let (word, rest) = text
            .split_once(':')
            .ok_or_else(|| wrong(format!("write KIND:WHAT; there are {KINDS}")))?;
        let (what, words) = match word {
            COMMAND => behind_command(rest),
            _ => rest.split_once('?').unwrap_or((rest, "")),
        };
        let mut options = options(words).map_err(wrong)?;
        let name = options.remove("name").map(str::to_owned);
        let kind = kind(word, what, &mut options).map_err(wrong)?;
        if let Some(key) = options.keys().next() {
            return Err(wrong(format!("'{key}' is not an option of '{word}:'")));
        }
        let text = text.to_owned();
        Ok(TargetSpec { text, name, kind })
    }

    /// Whether a text is meant as a target, valid or not, because it starts with a kind and a colon.
    pub fn is_meant(text: &str) -> bool {
        let word = text.split_once(':').map(|(word, _)| word);
        let kinds = || KINDS.split(", ").filter_map(|kind| kind.split_once(':'));
        word.is_some_and(|word| kinds().any(|(kind, _)| kind == word))
    }

    /// Whether it is a command that does its own work.
    pub fn is_command(&self) -> bool {
        matches!(self.kind, TargetKind::Command { .. })
    }

    /// The name in tables.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.text)
    }
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The options after the `?`.
type Options<'t> = BTreeMap<&'t str, &'t str>;

const OPTIONS: [&str; 5] = ["name", "mkfs", "mount", "dir", "size"];

/// Splits a command from its options. A `?` in the command, and any `&` after it, belong to the shell, unless
/// one of our options follows the last `?`.
fn behind_command(rest: &str) -> (&str, &str) {
    let ours = |words: &str| {
        let key = words.split_once('=').map(|(key, _)| key);
        key.is_some_and(|key| OPTIONS.contains(&key))
    };
    match rest.rsplit_once('?') {
        Some((line, words)) if ours(words) => (line, words),
        _ => (rest, ""),
    }
}

fn options(words: &str) -> std::result::Result<Options<'_>, String> {
    let mut options = Options::new();
    for word in words.split('&').filter(|word| !word.is_empty()) {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| format!("'{word}' is not of the form key=value"))?;
        if !OPTIONS.contains(&key) {
            let there = OPTIONS.join(", ");
            return Err(format!("no option '{key}'; there are {there}"));
        }
        if value.is_empty() || options.insert(key, value).is_some() {
            return Err(format!("'{key}' must be given once, with a value"));
        }
    }
    Ok(options)
}

fn kind(word: &str, what: &str, options: &mut Options) -> std::result::Result<TargetKind, String> {
    let needs = |thing: &str| match what.trim().is_empty() {
        true => Err(format!("'{word}:' needs a {thing} after it")),
        false => Ok(what),
    };
    let path = || needs("path").map(PathBuf::from);
    let nothing = || match what {
        "" => Ok(()),
        _ => Err(format!("nothing may stand between '{word}:' and '?'")),
    };
    let mkfs = |options: &mut Options| -> Vec<String> {
        let words = options.remove("mkfs").unwrap_or_default();
        words.split_whitespace().map(str::to_owned).collect()
    };
    let made = |by, options: &mut Options| {
        Ok::<_, String>(TargetKind::Made(MadeSpec {
            mount: match by {
                System::Fuse2fs => None,
                _ => options.remove("mount").map(str::to_owned),
            },
            mkfs: mkfs(options),
            data_bytes: options.remove("size").map(parse_size).transpose()?,
            by,
        }))
    };
    Ok(match word {
        COMMAND => TargetKind::Command {
            line: needs("command")?.to_owned(),
            dir: options.remove("dir").map(PathBuf::from),
        },
        "dir" => TargetKind::Dir(path()?),
        "file" => TargetKind::File(path()?),
        "make" => made(System::Kernel(fs_type(what)?), options)?,
        "mount" => nothing().and_then(|()| made(System::Ours, options))?,
        "fuse2fs" => nothing().and_then(|()| made(System::Fuse2fs, options))?,
        _ => return Err(format!("no kind '{word}'; there are {KINDS}")),
    })
}

/// Checks a file system type, which becomes part of a program's name, `mkfs.TYPE`.
fn fs_type(what: &str) -> std::result::Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !what.is_empty() && what.chars().all(fits) {
        true => Ok(what.to_owned()),
        false => Err("write a file system's type behind 'make:': ext4, xfs, btrfs".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> TargetKind {
        TargetSpec::parse(text).expect(text).kind
    }

    #[test]
    fn every_kind_is_read() {
        let command = |line: &str, dir: Option<&str>| TargetKind::Command {
            line: line.into(),
            dir: dir.map(PathBuf::from),
        };
        assert_eq!(kind("cmd:make -s"), command("make -s", None));
        assert_eq!(kind("cmd:ls a?b && c"), command("ls a?b && c", None));
        let named = TargetSpec::parse("cmd:ls ?x && a=b?name=old&dir=../old").expect("it is one");
        assert_eq!(named.kind, command("ls ?x && a=b", Some("../old")));
        assert_eq!(named.label(), "old");
        assert_eq!(kind("dir:."), TargetKind::Dir(".".into()));
        assert_eq!(kind("file:a:b"), TargetKind::File("a:b".into()));
        let fuse2fs = TargetKind::Made(MadeSpec {
            by: System::Fuse2fs,
            mkfs: vec![],
            mount: None,
            data_bytes: None,
        });
        assert_eq!(kind("fuse2fs:"), fuse2fs);
        let made = TargetSpec::parse(
            "make:ext4?name=no journal&mkfs=-O ^has_journal&mount=noatime,data=writeback&size=2g",
        )
        .expect("it is one");
        assert_eq!(made.label(), "no journal");
        assert_eq!(
            made.kind,
            TargetKind::Made(MadeSpec {
                by: System::Kernel("ext4".into()),
                mkfs: vec!["-O".into(), "^has_journal".into()],
                mount: Some("noatime,data=writeback".into()),
                data_bytes: Some(2 << 30),
            })
        );
    }

    #[test]
    fn a_file_is_not_taken_for_a_target() {
        for (text, meant) in [
            ("cmd:./bench", true),
            ("make:", true),
            ("run.jsonl", false),
            ("./cmd:x", false),
            ("cmd", false),
            ("", false),
        ] {
            assert_eq!(TargetSpec::is_meant(text), meant, "{text}");
        }
    }

    #[test]
    fn invalid_targets_are_explained() {
        for (text, expected) in [
            ("", "KIND:WHAT"),
            ("/dev/sda", "KIND:WHAT"),
            ("disk:/x", "no kind 'disk'"),
            ("file:", "needs a path"),
            ("cmd:", "needs a command"),
            ("cmd: ?name=x", "needs a command"),
            ("cmd:true?mkfs=-q", "not an option"),
            ("mount:64M", "nothing may stand"),
            ("fuse2fs:?mount=ro", "not an option"),
            ("make:", "type"),
            ("make:../../bin/sh", "type"),
            ("make:ext4?mkfs", "form key=value"),
            ("make:ext4?mkfs=", "once, with a value"),
            ("make:ext4?mount=a&mount=b", "once, with a value"),
            ("make:ext4?sice=1", "no option 'sice'"),
            ("make:ext4?size=much", "much"),
            ("dir:.?size=1g", "not an option"),
        ] {
            let error = TargetSpec::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
