//! The manual pages, and those for the program's other names.

use std::path::Path;

use clap::Command;
use roff::{Roff, roman};
use throughline_face::manual::{page, write};

use crate::args::Cli;
use crate::mount;
use crate::problem::Result;

/// Examples, exit codes and more, as [`throughline_face::pages`] reads them.
pub(crate) const TEXTS: &str = include_str!("manual/pages.txt");

/// The pages for the program's other names. `@OPTIONS@` is replaced by the table of options.
const FUSE2FS: &str = include_str!("manual/fuse2fs.1");
const HELPER: &str = include_str!("manual/mount.fuse.throughline.8");

/// The main page.
pub(super) fn main_page() -> Result<Vec<u8>> {
    page(&described(), TEXTS)
}

/// Writes all pages into a directory.
pub(super) fn write_all(dir: &Path) -> Result<()> {
    write(dir, &described(), TEXTS)?;
    let options = escaped(&mount::help::options());
    for (name, page) in [("fuse2fs.1", FUSE2FS), ("mount.fuse.throughline.8", HELPER)] {
        std::fs::write(dir.join(name), page.replace("@OPTIONS@", &options))?;
    }
    Ok(())
}

fn described() -> Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// Preformatted lines for a page.
fn escaped(text: &str) -> String {
    let mut roff = Roff::default();
    for line in text.trim_end().lines() {
        roff.text([roman(line)]);
    }
    roff.to_roff().trim_end().to_owned()
}
