//! The file of a run's record. It is opened before the measurement, so that an error is reported before there
//! are results to lose.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::stdio::stdout;
use throughline_lab::record::{Head, Writer};

use crate::context::Context;
use crate::precious::check_output;
use crate::problem::{Doing, Failure};
use crate::text::quote;

/// Maximum number of runs that start in one millisecond.
const MAX_SAME: u32 = 1000;

/// Where a record is written. An existing file keeps its contents until the head of the record is written. A
/// new file is removed if no head was written.
pub(crate) struct OutPlace {
    /// `None` is standard output.
    path: Option<PathBuf>,
    file: File,
    made: bool,
}

impl OutPlace {
    /// Opens `out` (`-` is standard output) or, without it, a new file in the current directory, named after
    /// the run.
    pub(crate) fn open(
        out: Option<&Path>,
        name: &str,
        started: Timestamp,
    ) -> Result<OutPlace, Failure> {
        match out {
            Some(path) if path.as_os_str() == "-" => {
                let file = rustix::io::dup(stdout()).doing(|| "cannot write standard output")?;
                Ok(OutPlace {
                    path: None,
                    file: file.into(),
                    made: false,
                })
            }
            Some(path) => OutPlace::at(path),
            None => OutPlace::new_file(name, started),
        }
    }

    fn at(path: &Path) -> Result<OutPlace, Failure> {
        let mut options = File::options();
        options.write(true);
        check_output(path)?;
        let made = options.clone().create_new(true).open(path);
        let (file, made) = match made {
            // A dangling symbolic link gives the same error.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                (options.create(true).truncate(false).open(path), false)
            }
            file => (file, true),
        };
        Ok(OutPlace {
            file: file.doing(|| format!("cannot write {}", quote(path)))?,
            path: Some(path.to_owned()),
            made,
        })
    }

    /// Creates a file with a unique name.
    fn new_file(name: &str, started: Timestamp) -> Result<OutPlace, Failure> {
        let (name, time) = (
            name.replace('/', "-"),
            started.strftime("%Y%m%d-%H%M%S%.3f"),
        );
        let mut number = 1;
        let (path, file) = loop {
            let path = PathBuf::from(match number {
                1 => format!("{name}-{time}.jsonl"),
                _ => format!("{name}-{time}-{number}.jsonl"),
            });
            match File::create_new(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MAX_SAME => {
                    number += 1;
                }
                file => break (path, file),
            }
        };
        Ok(OutPlace {
            file: file.doing(|| format!("cannot write {}", quote(&path)))?,
            path: Some(path),
            made: true,
        })
    }

    /// Truncates the file and writes the head.
    pub(crate) fn begin(&mut self, head: &Head) -> throughline_lab::Result<Writer> {
        // A pipe or a terminal cannot be truncated.
        if self.path.is_some() && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.made = false;
        Writer::to(self.file.try_clone()?, self.name(), head)
    }

    /// Its name for messages.
    pub(crate) fn name(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new("standard output"))
    }

    /// Prints the table and the name of the file.
    pub(crate) fn show(&self, table: &str, context: &mut Context) -> Result<(), Failure> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        context.out.line(table.trim_end())?;
        if !context.globals.quiet {
            let message = format!("the result is in {}", quote(path));
            context.complaints.note(&message);
        }
        Ok(())
    }
}

impl Drop for OutPlace {
    fn drop(&mut self) {
        if let (true, Some(path)) = (self.made, &self.path) {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}
