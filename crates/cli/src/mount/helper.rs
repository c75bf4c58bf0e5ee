//! The program under the name `mount.fuse.throughline`: mount(8) runs it for `mount -t fuse.throughline` and
//! for fstab.
//!
//! Its arguments are those that mount(8) documents for helpers: `SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS]
//! [-t TYPE]`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use throughline_fuse::options::MountOptions;

use super::trouble::EXIT_USAGE;
use super::{HELPER_NAME, Plan, Stay, Trouble};
use crate::output::say;

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct CommandLine {
    words: Vec<OsString>,
    lists: Vec<String>,
    /// Ignore unknown options.
    sloppy: bool,
    /// Check only; do not mount.
    fake: bool,
    verbose: bool,
}

/// Runs as the helper, with the arguments after the program name.
pub(crate) fn main(arguments: Vec<OsString>) -> ExitCode {
    let done = read(arguments).and_then(|line| mount(&line));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble::Reported(code)) => code.into(),
        Err(Trouble::Failed(code, failure)) => {
            say(&format!("{HELPER_NAME}: {failure}"));
            if let Some(next) = failure.next() {
                say(&format!("  next: {next}"));
            }
            code.into()
        }
    }
}

fn mount(line: &CommandLine) -> Result<(), Trouble> {
    let [image, dir] = line.words.as_slice() else {
        return Err(usage());
    };
    let mut options = MountOptions::default();
    for list in &line.lists {
        if line.sloppy {
            options.add_known(list)
        } else {
            options.add(list)
        }
        .map_err(|error| Trouble::usage(error.to_string()))?;
    }
    options
        .check()
        .map_err(|error| Trouble::usage(error.to_string()))?;
    if line.fake {
        return Ok(());
    }
    if options.remount {
        return super::remount(dir.as_ref(), &options, &line.lists);
    }
    super::start_log(&options).map_err(|failure| Trouble::Failed(EXIT_USAGE, failure))?;
    let plan = Plan {
        image: PathBuf::from(image),
        dir: PathBuf::from(dir),
        open: options.volume_options(),
        options,
        stay: Stay::Background,
        watched: None,
        quiet: !line.verbose,
    };
    super::run(&plan)
}

fn read(arguments: Vec<OsString>) -> Result<CommandLine, Trouble> {
    let mut line = CommandLine::default();
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        let Some(flags) = word.to_str().and_then(|text| text.strip_prefix('-')) else {
            line.words.push(word);
            continue;
        };
        let mut flags = flags.chars();
        while let Some(flag) = flags.next() {
            match flag {
                's' => line.sloppy = true,
                'f' => line.fake = true,
                'v' => line.verbose = true,
                'n' => {}
                'r' => line.lists.push("ro".into()),
                'w' => line.lists.push("rw".into()),
                // An option with a value: the rest of the word, or the next word.
                'o' | 't' | 'N' => {
                    let rest = flags.as_str().to_owned();
                    let value = match (rest.is_empty(), rest) {
                        (false, rest) => OsString::from(rest),
                        (true, _) => words.next().ok_or_else(usage)?,
                    };
                    if flag == 'o' {
                        let list = value.into_string();
                        line.lists
                            .push(list.map_err(|_| Trouble::usage("options have to be UTF-8"))?);
                    }
                    break;
                }
                _ => return Err(usage()),
            }
        }
    }
    Ok(line)
}

fn usage() -> Trouble {
    Trouble::usage(format!(
        "usage: {HELPER_NAME} IMAGE DIR [-sfnvrw] [-o OPTIONS]; mount(8) runs it: mount -t fuse.throughline \
         IMAGE DIR"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Option<CommandLine> {
        read(words.iter().map(OsString::from).collect()).ok()
    }

    #[test]
    fn the_protocol_of_mount_is_read() {
        let read = line(&[
            "/a b.img",
            "/mnt",
            "-sfnv",
            "-N",
            "/proc/1/ns/mnt",
            "-o",
            "rw,noexec",
            "-t",
            "fuse.throughline",
            "-r",
        ])
        .unwrap();
        assert_eq!(read.words, ["/a b.img", "/mnt"]);
        assert_eq!(read.lists, ["rw,noexec", "ro"]);
        assert!(read.sloppy && read.fake && read.verbose);
        assert_eq!(line(&["a", "b", "-oro"]).unwrap().lists, ["ro"]);
        for wrong in [&["a", "b", "-o"][..], &["a", "b", "-x"], &["a", "--help"]] {
            assert_eq!(line(wrong), None, "{wrong:?}");
        }
    }
}
