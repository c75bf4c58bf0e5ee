//! The state of a command: global options, open images and output.

use std::path::Path;

use throughline::Volume;
use throughline_face::globals::Globals;
use throughline_face::program::failure_code;

use crate::images::{Access, Images, Opened};
use crate::interrupt::Interrupt;
use crate::output::{Complaints, Output};
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::Failure;

/// The state of one run of the program.
pub(crate) struct Context {
    /// Options of all commands.
    pub(crate) globals: Globals,
    /// Whether to print results as JSON.
    pub(crate) json: bool,
    /// Standard output.
    pub(crate) out: Output,
    /// Messages on standard error.
    pub(crate) complaints: Complaints,
    /// The open images.
    pub(crate) images: Images,
    /// Exit code after a failure, as bits; set by commands with exit codes of their own.
    pub(crate) exit_bits: u8,
}

impl Context {
    /// The state at the start of a command.
    pub(crate) fn new(globals: Globals, json: bool) -> Context {
        let images = Images::new(globals.clone(), umask());
        Context {
            globals,
            json,
            out: Output::stdout(),
            complaints: Complaints::default(),
            images,
            exit_bits: 0,
        }
    }

    /// Sets whether notes and progress are suppressed. Returns the previous setting.
    pub(crate) fn set_quiet(&mut self, quiet: bool) -> bool {
        self.images.set_quiet(quiet);
        std::mem::replace(&mut self.globals.quiet, quiet)
    }

    /// The exit code after a failure.
    pub(crate) fn failure_code(&self) -> u8 {
        failure_code(self.exit_bits)
    }

    /// Opens the image of a place, as [`Images::open`] does.
    pub(crate) fn open(&mut self, place: &Place, access: Access) -> Result<Opened, Failure> {
        self.images.open(place, access)
    }

    /// The places that arguments refer to, with patterns in images expanded ([`crate::pattern`]).
    pub(crate) fn expand(
        &mut self,
        places: &[Place],
        purpose: Purpose,
    ) -> Result<Vec<Place>, Failure> {
        crate::pattern::expand(&mut self.images, places, purpose)
    }

    /// Opens each place, with patterns expanded, and calls `part` for it. Failures are handled as by
    /// [`Context::each`].
    pub(crate) fn each_opened(
        &mut self,
        places: &[Place],
        purpose: Purpose,
        mut part: impl FnMut(&mut Context, &Opened) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let places = self.expand(places, purpose)?;
        self.each(&places, |context, place| {
            let opened = context.open(place, purpose.access())?;
            part(context, &opened)
                .map_err(|failure| purpose.explain(failure, &opened.volume, &opened.path))
        })
    }

    /// Prints a line about what was done, if `verbose`.
    pub(crate) fn verbose_line(
        &mut self,
        verbose: bool,
        line: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match verbose {
            true => self.out.line(line()),
            false => Ok(()),
        }
    }

    /// Prints the results as one list, if JSON is requested.
    pub(crate) fn list(&mut self, found: Vec<serde_json::Value>) -> Result<(), Failure> {
        match self.json {
            true => self.out.json(&found),
            false => Ok(()),
        }
    }

    /// The user's request to interrupt the command.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.images.interrupt
    }

    /// Opens a whole image for reading.
    pub(crate) fn open_image(&mut self, image: &Path) -> Result<Volume, Failure> {
        Ok(self.images.open_image(image, Access::Read)?.1)
    }

    /// Reports a failure and continues, unless the failure ends the command.
    pub(crate) fn complain(&self, failure: Failure) -> Result<(), Failure> {
        if failure.ends_command() {
            return Err(failure);
        }
        self.complaints.say(&failure);
        Ok(())
    }

    /// Calls `part` for each item. A failure is reported, and the next item follows.
    pub(crate) fn each<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut part: impl FnMut(&mut Context, T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for item in items {
            self.interrupt().check()?;
            if let Err(failure) = part(self, item) {
                self.complain(failure)?;
            }
        }
        Ok(())
    }

    /// Writes back and closes every image.
    pub(crate) fn close(&mut self, failed: bool) {
        let failed = failed || self.complaints.any();
        self.images.close(failed, &self.complaints);
    }
}

/// This process's umask. It can only be read by setting it, so this must be called before other threads
/// create files.
fn umask() -> u32 {
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    umask.as_raw_mode() & 0o777
}
