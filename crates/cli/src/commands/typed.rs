//! Reads a shell's lines from a terminal, with editing, completion and history.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Behavior, CompletionType, Config, Editor, Helper};
use throughline::Volume;

use super::complete::names_below;
use crate::args::Cli;
use crate::place::Base;
use crate::problem::{Doing, Failure};

/// Maximum number of lines in the history.
const MAX_LINES: usize = 1000;

/// An interactive line editor.
pub(super) struct Typed {
    editor: Editor<Names, FileHistory>,
    /// The history file; `None` if the user has no home directory.
    kept: Option<PathBuf>,
}

impl Typed {
    /// Loads the history.
    pub(super) fn new(volume: &Volume) -> Result<Typed, Failure> {
        let cannot = || "cannot read from the terminal";
        let config = Config::builder()
            .max_history_size(MAX_LINES)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(std::io::Error::other)
            .doing(cannot)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .behavior(Behavior::PreferTerm)
            .build();
        let mut editor = Editor::with_config(config)
            .map_err(std::io::Error::other)
            .doing(cannot)?;
        editor.set_helper(Some(Names {
            volume: volume.clone(),
            commands: commands(),
        }));
        let kept = history();
        if let Some(path) = &kept {
            // Before the first session there is no history file.
            let _ = editor.load_history(path);
        }
        Ok(Typed { editor, kept })
    }

    /// The next line; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<String>, Failure> {
        match self.editor.readline(&format!("{}> ", Base::shown())) {
            Ok(line) => {
                // The history is optional.
                let _ = self.editor.add_history_entry(line.as_str());
                Ok(Some(line))
            }
            // Ctrl-C drops the line but does not end the shell.
            Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
            Err(ReadlineError::Eof) => Ok(None),
            Err(error) => {
                Err(std::io::Error::other(error)).doing(|| "cannot read the next command")
            }
        }
    }
}

impl Drop for Typed {
    fn drop(&mut self) {
        if let Some(path) = &self.kept
            && let Some(dir) = path.parent()
            && std::fs::create_dir_all(dir).is_ok()
        {
            // The history is optional.
            let _ = self.editor.append_history(path);
        }
    }
}

/// The history file according to the XDG base directory specification.
fn history() -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    let dir = state.and_then(absolute).or_else(|| absolute(home()?))?;
    Some(dir.join("throughline/history"))
}

/// The names of all commands, including those that exist only in the shell.
fn commands() -> Vec<String> {
    let all = Cli::command();
    let shown = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let own = ["cd", "pwd", "sync", "help", "exit", "quit"].map(str::to_owned);
    shown
        .map(|command| command.get_name().to_owned())
        .chain(own)
        .collect()
}

/// Completes words.
struct Names {
    volume: Volume,
    commands: Vec<String>,
}

impl Completer for Names {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        end: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = line.get(..end).unwrap_or_default();
        let start = typed.rfind(' ').map_or(0, |space| space.saturating_add(1));
        let word = typed.get(start..).unwrap_or_default();
        let pair = |text: Cow<'_, str>| Pair {
            display: text.to_string(),
            replacement: text.to_string(),
        };
        if start == 0 {
            let known = self.commands.iter().filter(|name| name.starts_with(word));
            let found = known.map(|name| pair(format!("{name} ").into()));
            return Ok((start, found.collect()));
        }
        let (dir, begun) =
            word.split_at(word.rfind('/').map_or(0, |slash| slash.saturating_add(1)));
        let whole = Base::dir().join(Path::new(dir));
        let found = names_below(&self.volume, &whole, begun.as_bytes());
        let found = found
            .iter()
            .map(|name| {
                let name = OsStr::from_bytes(name).to_string_lossy();
                pair(format!("{dir}{name}").into())
            })
            .collect();
        Ok((start, found))
    }
}

impl Helper for Names {}
impl Highlighter for Names {}
impl Validator for Names {}
impl Hinter for Names {
    type Hint = String;
}
