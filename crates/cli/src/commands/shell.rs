//! `shell`: many commands on one open image, from a file, a pipe or a terminal.
//!
//! Each line is a command as on the command line. A path without an image is in the open image, relative to
//! the directory set by `cd`; `host:PATH` is a path on the host. The image is opened once and closed after
//! the last command.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Component, Path, PathBuf};

use clap::Args;
use clap::error::ErrorKind;

use super::df::image_of;
use super::typed::Typed;
use super::within::{Stop, within};
use crate::args::{Cli, Command};
use crate::context::Context;
use crate::images::Access;
use crate::place::{Base, Place};
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// Help for lines other than commands.
const LINES: &str = "\
In a shell, /path and path are in the image (path is relative to the directory set by 'cd'), \
    host:PATH is a path on the host,
- is standard input or output, and IMAGE:/path is in another image. Quoted words are one word; \
    # starts a comment.

  cd [DIR], pwd      change or print the current directory
  sync               write everything done so far to the disk
  help [COMMAND]     list the commands, or show the help of one
  exit, quit         end the shell, as the end of input does

Of the global options, a line takes only --quiet. ls, tree, find, du, df and lsattr without a path show the \
    current directory.

  throughline shell disk.img -c 'mkdir /etc' -c 'cp host:motd /etc/' -c 'chmod --glob 644 /etc/*'
  throughline shell disk.img -f script
  throughline shell disk.img < script";

/// Maximum length of a line of a script, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Arguments of `shell`.
#[derive(Args, Debug)]
#[command(after_long_help = LINES)]
pub(crate) struct ShellArgs {
    /// The image
    #[arg(value_name = "IMAGE")]
    image: Place,
    /// Run this command; may be given several times
    #[arg(short, long, value_name = "COMMAND", conflicts_with = "file")]
    command: Vec<String>,
    /// Run the commands in this file instead of those on standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Continue after a command that failed
    #[arg(short, long)]
    keep_going: bool,
    /// Open the image read-only
    #[arg(short, long)]
    read_only: bool,
}

/// The source of the lines.
enum Source {
    Given(std::vec::IntoIter<String>),
    File(BufReader<File>),
    Input,
    Terminal(Box<Typed>),
}

/// Runs the commands.
pub(crate) fn run(args: &ShellArgs, context: &mut Context) -> Result<(), Failure> {
    let image = image_of(&args.image)?;
    let access = match args.read_only {
        true => Access::Read,
        false => Access::Write,
    };
    let mut source = match (&args.file, args.command.is_empty()) {
        (Some(path), _) => {
            let file = File::open(path).doing(|| format!("cannot open {}", quote(path)))?;
            Source::File(BufReader::new(file))
        }
        (None, false) => Source::Given(args.command.clone().into_iter()),
        (None, true) => Source::Input,
    };
    let (_, volume) = context.images.open_image(&image, access)?;
    if matches!(source, Source::Input) && std::io::stdin().is_terminal() {
        source = Source::Terminal(Box::new(Typed::new(&volume)?));
    }
    let _base = Base::enter(image, PathBuf::from("/"));
    let stops = !args.keep_going && !matches!(source, Source::Terminal(_));
    let json = context.json;
    let (mut number, mut failed) = (0u64, None);
    while let Some(line) = source.next()? {
        number += 1;
        context.json = json;
        let done = one(&line, context);
        context.out.flush()?;
        match done {
            Ok(Next::Line) => {}
            Ok(Next::End) => break,
            Err(Stop::Ends(failure)) => return Err(failure),
            Err(Stop::Failed(code)) => {
                failed = Some(code);
                if stops {
                    context.complaints.note(&format!(
                        "stopped at command {number}; the effects of earlier commands are kept \
                         (--keep-going continues after errors)"
                    ));
                    break;
                }
            }
        }
    }
    let is_person = matches!(source, Source::Terminal(_));
    match failed.filter(|_| !is_person) {
        Some(code) => {
            context.exit_bits = code;
            Err(Failure::Reported)
        }
        None => Ok(()),
    }
}

/// What to do after a command.
enum Next {
    Line,
    End,
}

impl Source {
    fn next(&mut self) -> Result<Option<String>, Failure> {
        let mut line = Vec::new();
        let read = match self {
            Source::Given(lines) => return Ok(lines.next()),
            Source::File(file) => read_line(file, &mut line),
            Source::Input => read_line(&mut std::io::stdin().lock(), &mut line),
            Source::Terminal(typed) => return typed.next(),
        };
        read.doing(|| "cannot read the next command")?;
        if line.is_empty() {
            return Ok(None);
        }
        String::from_utf8(line)
            .map(Some)
            .map_err(|_| Problem::new("it is not UTF-8").met("cannot read the next command"))
    }
}

fn read_line(from: &mut dyn BufRead, line: &mut Vec<u8>) -> std::io::Result<()> {
    use std::io::Read;
    from.take(MAX_LINE_BYTES).read_until(b'\n', line)?;
    if line.len() as u64 == MAX_LINE_BYTES {
        return Err(std::io::Error::other("a line of more than 1 MiB"));
    }
    Ok(())
}

/// Runs a command as on the command line.
fn command_line(words: &[&str], context: &mut Context) -> Result<Next, Stop> {
    within(words.iter().map(OsString::from), context).map(|()| Next::Line)
}

/// Runs one line.
fn one(line: &str, context: &mut Context) -> Result<Next, Stop> {
    let Some(words) = shlex::split(line) else {
        context
            .complaints
            .note(&format!("unclosed quote: {}", line.trim()));
        return Err(Stop::Failed(2));
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let report = |context: &Context, failure: Failure| {
        context.complaints.say(&failure);
        let code = match failure {
            Failure::Usage(_) => 2,
            _ => 1,
        };
        Err(Stop::Failed(code))
    };
    match words.as_slice() {
        [] => Ok(Next::Line),
        ["exit" | "quit"] => Ok(Next::End),
        ["cd"] => change("/", context).or_else(|failure| report(context, failure)),
        ["cd", dir] => change(dir, context).or_else(|failure| report(context, failure)),
        ["pwd"] => {
            let dir = Base::dir();
            context
                .out
                .line(dir.as_os_str().as_encoded_bytes())
                .map_err(Stop::Ends)?;
            Ok(Next::Line)
        }
        ["sync"] => match context.images.sync() {
            Ok(()) => Ok(Next::Line),
            Err(failure) => report(context, failure),
        },
        ["help"] => {
            let help = Cli::command().render_help();
            context
                .out
                .line(format!("{help}\n{LINES}"))
                .map_err(Stop::Ends)?;
            Ok(Next::Line)
        }
        ["help", command] => command_line(&[*command, "--help"], context),
        words => {
            let here: &[&str] = if is_bare(words) { &["."] } else { &[] };
            command_line(&[words, here].concat(), context)
        }
    }
}

fn change(dir: &str, context: &mut Context) -> Result<Next, Failure> {
    let place = Place::parse(dir.as_ref());
    let cannot = || format!("cannot go to {place}");
    let opened = context.open(&place, Access::Read)?;
    if !opened.metadata(true).doing(cannot)?.is_dir() {
        return Err(Problem::new("Not a directory").met(cannot()));
    }
    Base::set_dir(plain(&opened.path));
    Ok(Next::Line)
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut dir = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => dir.push(name),
            Component::ParentDir => {
                dir.pop();
            }
            _ => {}
        }
    }
    dir
}

/// Whether a line lacks a place, and is of a command that then shows the current directory.
fn is_bare(words: &[&str]) -> bool {
    let parsed = |more: &[&str]| {
        let words = ["throughline"].iter().chain(words).chain(more);
        Cli::try_parse_inner(words.map(OsString::from))
    };
    let lacks_place = |error: clap::Error| error.kind() == ErrorKind::MissingRequiredArgument;
    parsed(&[]).is_err_and(lacks_place) && parsed(&["."]).is_ok_and(|cli| shows_here(&cli.command))
}

fn shows_here(command: &Command) -> bool {
    matches!(
        command,
        Command::Ls(_)
            | Command::Tree(_)
            | Command::Find(_)
            | Command::Du(_)
            | Command::Df(_)
            | Command::Lsattr(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_shown_plainly() {
        for (path, shown) in [("/", "/"), ("/a/./b/../c/", "/a/c"), ("/../..", "/")] {
            assert_eq!(plain(Path::new(path)), Path::new(shown));
        }
    }
}
