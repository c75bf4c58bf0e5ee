//! The program under the name `fuse2fs`: arguments, messages and exit codes are those of fuse2fs, so that it
//! can replace fuse2fs for other programs.
//!
//! Intended differences from fuse2fs 1.47.0: that version exits with 0 if libfuse could not mount. We exit
//! with 1 for wrong arguments and for a missing or unusable mount point, as its later versions do. In the
//! foreground (`-f`), the server is a separate process, so that it can close the image even if the caller
//! kills us once the mount is gone.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use throughline::OpenOptions;
use throughline_fuse::options::{MountOptions, OptionError, escape};

use super::trouble::{EXIT_SYSTEM, EXIT_USAGE};
use super::{EXIT_FAILED, Plan, Stay, Trouble};
use crate::arguments;
use crate::image_name::ImageName;
use crate::objects;
use crate::output::say;
use crate::problem::Failure;

/// The program name.
pub(crate) const NAME: &str = "fuse2fs";

/// The version shown.
const VERSION: &str = concat!(
    "fuse2fs 1.47.0 (throughline ",
    env!("CARGO_PKG_VERSION"),
    ")"
);

/// The usage text after the program's name.
const USAGE: &str = include_str!("fuse2fs/usage.txt");

const FUSE_USAGE: &str = include_str!("fuse2fs/fuse-usage.txt");

/// The exit code of fuse2fs 1.47.0 for an image that does not open.
const EXIT_NOT_OPENED: u8 = 2;

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct CommandLine {
    device: Option<PathBuf>,
    dir: Option<PathBuf>,
    options: MountOptions,
    foreground: bool,
    shown: Option<Shown>,
    /// The first error, in libfuse's words. Errors of the device take precedence.
    wrong: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Version,
    Help,
    HelpFull,
}

/// Runs as `fuse2fs` with the arguments after the program name.
pub(crate) fn main(arguments: Vec<OsString>) -> ExitCode {
    if let Some(code) = without_preload(&arguments) {
        return code;
    }
    let line = read(arguments);
    match line.shown {
        Some(Shown::Version) => {
            say(VERSION);
            return ExitCode::SUCCESS;
        }
        Some(shown) => {
            let name = std::env::args().next();
            say(&format!(
                "usage: {} {USAGE}",
                name.as_deref().unwrap_or(NAME)
            ));
            match shown {
                Shown::HelpFull => say(&format!("{FUSE_USAGE}\n{}", super::help::options())),
                _ => say("Try --helpfull to get a list of all flags, including the FUSE options."),
            }
            return EXIT_USAGE.into();
        }
        None => {}
    }
    let Some(device) = line.device.clone() else {
        say("Missing ext4 device/image\nSee 'fuse2fs -h' for usage");
        return EXIT_USAGE.into();
    };
    if let Err(failure) = super::start_log(&line.options) {
        say(&format!("{NAME}: {failure}"));
        return EXIT_SYSTEM.into();
    }
    if let Some(wrong) = &line.wrong {
        say(&format!("fuse: {wrong}"));
        return EXIT_USAGE.into();
    }
    let Some(dir) = line.dir.clone() else {
        say("fuse: missing mountpoint parameter");
        return EXIT_USAGE.into();
    };
    match super::run(&plan(line, device.clone(), dir.clone())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble::Reported(code)) => code.into(),
        Err(Trouble::Failed(code, failure)) => print_failure(&device, code, &failure),
    }
}

fn plan(line: CommandLine, image: PathBuf, dir: PathBuf) -> Plan {
    let mut options = line.options;
    let ImageName { file, partition } = ImageName::of(&image);
    if options.partition.is_none() {
        options.partition = partition;
    }
    // The type that fuse2fs has in the list of mounts.
    options.subtype.get_or_insert_with(|| "ext4".to_owned());
    options
        .fs_name
        .get_or_insert_with(|| objects::shown(&image).to_string_lossy().into_owned());
    let open: OpenOptions = options.volume_options();
    let stay = if line.foreground || options.debug {
        Stay::Guarded
    } else {
        Stay::Background
    };
    Plan {
        image: file,
        dir,
        options,
        open,
        stay,
        watched: None,
        quiet: false,
    }
}

/// Prints `IMAGE: No such file or directory.` and the next step.
fn print_failure(device: &std::path::Path, code: u8, failure: &Failure) -> ExitCode {
    let about_image = failure.to_string().starts_with("cannot open ");
    let (Failure::Failed { problem, .. }, true) = (failure, about_image) else {
        say(&format!("fuse: {failure}"));
        if let Some(next) = failure.next() {
            say(&format!("  next: {next}"));
        }
        return if code == EXIT_FAILED {
            EXIT_USAGE
        } else {
            code
        }
        .into();
    };
    say(&format!("{}: {}.", device.display(), problem.reason));
    match &problem.next {
        Some(next) => say(&format!("  next: {next}")),
        None => say(&format!("Please run e2fsck -fy {}.", device.display())),
    }
    EXIT_NOT_OPENED.into()
}

/// Parses as libfuse does: options may be anywhere; `-o` takes its list from the same word or the next. The
/// first other word is the device, the second the mount point.
fn read(arguments: Vec<OsString>) -> CommandLine {
    let mut line = CommandLine::default();
    let mut words = arguments.into_iter();
    let mut only_words = false;
    while let Some(word) = words.next() {
        let text = word.to_str().filter(|_| !only_words);
        match text {
            Some("--") => only_words = true,
            Some("-V" | "--version") => line.shown = line.shown.or(Some(Shown::Version)),
            Some("-h" | "--help") => line.shown = line.shown.or(Some(Shown::Help)),
            Some("--helpfull") => line.shown = line.shown.or(Some(Shown::HelpFull)),
            Some("-f") => line.foreground = true,
            Some("-d") => line.options.debug = true,
            Some("-r") => line.add("ro".as_ref()),
            Some("-s") => {}
            Some("-o") => match words.next() {
                Some(list) => line.add(&list),
                None => line.complain("missing argument after `-o'".into()),
            },
            Some(option) if option.starts_with("-o") => line.add(option[2..].as_ref()),
            Some(option) if option.starts_with('-') && option.len() > 1 => {
                line.complain(format!("unknown option `{option}'"));
            }
            _ if line.device.is_none() => line.device = Some(word.into()),
            _ if line.dir.is_none() => line.dir = Some(word.into()),
            _ => line.complain(format!("invalid argument `{}'", word.display())),
        }
    }
    if let Err(error) = line.options.check() {
        line.complain(error.to_string());
    }
    line
}

impl CommandLine {
    fn add(&mut self, list: &std::ffi::OsStr) {
        let Some(list) = list.to_str() else {
            return self.complain("options have to be UTF-8".into());
        };
        match self.options.add(list) {
            Ok(()) if self.options.remount => self.complain("unknown option `remount'".into()),
            Ok(()) => {}
            Err(OptionError::Unknown { name, nearest }) => {
                let guess = nearest.map_or_else(String::new, |nearest| {
                    format!(" (did you mean `{nearest}'?)")
                });
                self.complain(format!("unknown option `{name}'{guess}"));
            }
            Err(other) => self.complain(other.to_string()),
        }
    }

    fn complain(&mut self, wrong: String) {
        self.wrong.get_or_insert(wrong);
    }
}

/// Apptainer preloads its own library (`offsetpreload.so`) to make fuse2fs read a part of a file. That
/// library wraps calls that we do not make. So its setting is converted to an option, and this program is
/// executed again without the library.
fn without_preload(given: &[OsString]) -> Option<ExitCode> {
    let offset = std::env::var("OFFSETPRELOAD_OFFSET").ok()?;
    let name = arguments::all().next().unwrap_or_else(|| NAME.into());
    let option = ["-o".into(), format!("offset={}", escape(&offset)).into()];
    let words = [name].into_iter().chain(option);
    let mut command = Command::new("/proc/self/exe");
    command
        .env_remove("LD_PRELOAD")
        .env_remove("OFFSETPRELOAD_FILE")
        .env_remove("OFFSETPRELOAD_OFFSET");
    let error = match arguments::give(&mut command, words.chain(given.iter().cloned())) {
        Ok(_memory) => command.exec(),
        Err(error) => error,
    };
    say(&format!(
        "{NAME}: cannot start without a preloaded library: {error}"
    ));
    Some(EXIT_SYSTEM.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> CommandLine {
        read(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn arguments_are_read_as_libfuse_reads_them() {
        let read = line(&[
            "-f",
            "-o",
            "ro,fakeroot",
            "a.img",
            "-oallow_other",
            "m",
            "-s",
        ]);
        assert_eq!(read.wrong, None);
        assert_eq!(read.device, Some("a.img".into()));
        assert_eq!(read.dir, Some("m".into()));
        assert!(read.foreground && read.options.read_only && read.options.fakeroot);
        assert_eq!(line(&["-o", "", "a", "b"]).wrong, None);
        assert!(line(&["-d", "a", "b"]).options.debug);
        assert!(line(&["-r", "a", "b"]).options.read_only);
        let talks = line(&["-o", "fuse2fs_debug", "a", "b"]);
        assert!(!talks.foreground && !talks.options.debug && talks.options.log.is_some());
        assert_eq!(line(&["--", "-a", "-b"]).device, Some("-a".into()));
        assert_eq!(line(&["-"]).device, Some("-".into()));
    }

    #[test]
    fn wrong_arguments_are_reported_as_by_fuse2fs() {
        for (words, text) in [
            (&["a", "m", "-o", "bogus"][..], "unknown option `bogus'"),
            (&["a", "m", "-Z"], "unknown option `-Z'"),
            (&["a", "m", "-o", "remount,ro"], "unknown option `remount'"),
            (&["a", "m", "-o", "umask=999"], "umask=999"),
            (&["a", "m", "-o", "modules=nosuch"], "modules=nosuch"),
            (&["a", "m", "extra"], "invalid argument `extra'"),
            (&["a", "m", "-o"], "missing argument"),
            (&["a", "m", "-o", "offset=xx"], "offset=xx"),
        ] {
            let wrong = line(words).wrong.unwrap();
            assert!(wrong.contains(text), "{wrong}");
        }
        assert_eq!(line(&["-V", "-h"]).shown, Some(Shown::Version));
    }
}
