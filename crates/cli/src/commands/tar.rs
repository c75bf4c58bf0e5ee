//! `tar`: what is in an image, as an archive.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use throughline::archive::{self, Sources, Tree, Written, write_tar_past};
use throughline::internal::NewFile;

use crate::context::Context;
use crate::images::Access;
use crate::output::note;
use crate::place::Place;
use crate::precious;
use crate::problem::{Doing, Failure, Problem};
use crate::sources;
use crate::text::quote;

/// Bytes written at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// Sockets that are named.
const NAMED: usize = 10;

/// Arguments of `tar`.
#[derive(Args, Debug)]
pub(crate) struct TarArgs {
    /// A directory in an image
    #[arg(value_name = "IMAGE:/PATH")]
    place: Place,
    /// Write to a new file, instead of standard output (-)
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave out paths that match, and everything below them, as 'pack' does
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// The owner of everything, by number
    #[arg(long, value_name = "UID:GID", value_parser = sources::owner)]
    owner: Option<(u32, u32)>,
    /// Replace FILE if it exists
    #[arg(short = 'F', long, requires = "output")]
    force: bool,
}

/// Writes the archive.
pub(crate) fn run(args: &TarArgs, context: &mut Context) -> Result<(), Failure> {
    let output = args
        .output
        .as_deref()
        .filter(|file| *file != Path::new("-"));
    match output {
        None if context.out.terminal => {
            return Err(Failure::Usage(
                "not writing an archive to a terminal: give -o FILE, or redirect standard output"
                    .to_owned(),
            ));
        }
        Some(file) => check_output(file, args.force)?,
        None => {}
    }
    let place = &args.place;
    let doing = || format!("cannot archive {place}");
    let opened = context.open(place, Access::Read)?;
    let directory = opened.volume.open_dir(&opened.path).doing(doing)?;
    context.out.flush()?;
    let lacks = &Lacks {
        context,
        place,
        count: Cell::new(0),
    };
    let mut left_out = |error| lacks.note(place, error);
    let read = throughline::read_tree_past(&directory, &mut left_out);
    let (mut tree, contents) = read.doing(doing)?;
    sources::exclude(&mut tree, &args.exclude, context.globals.quiet)?;
    if let Some((uid, gid)) = args.owner {
        tree.set_owner(uid, gid);
    }
    let written = match output {
        Some(file) if !is_special(file) => to_new_file(&tree, &contents, file, args, lacks)?,
        Some(file) => {
            let open = File::options().write(true).open(file);
            let mut open = open.doing(|| format!("cannot write to {}", quote(file)))?;
            write(&tree, &contents, &mut open, lacks, Some(file))?
        }
        None => write(&tree, &contents, &mut io::stdout().lock(), lacks, None)?,
    };
    let lacking = lacks.count.get();
    if !context.globals.quiet {
        report(&written);
        if lacking > 0 {
            note(&format!(
                "the archive is incomplete, by {lacking} files or directories: see above"
            ));
        }
    }
    match lacking {
        0 => Ok(()),
        _ => Err(Failure::Reported),
    }
}

/// What could not be read, and is missing in the archive, or has zeros there.
struct Lacks<'a> {
    context: &'a Context,
    place: &'a Place,
    count: Cell<u64>,
}

impl Lacks<'_> {
    /// Reports an error of an image, and lets the archive go on.
    fn note(&self, of: &Place, error: archive::Error) -> archive::Result<()> {
        self.count.set(self.count.get() + 1);
        let failure = Problem::from(error).met(format!("cannot read all of {of}"));
        self.context.complaints.say(&failure);
        Ok(())
    }
}

/// A device or a pipe, which is written to as it is.
fn is_special(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn check_output(file: &Path, force: bool) -> Result<(), Failure> {
    if is_special(file) {
        return Ok(());
    }
    precious::check_output(file)?;
    match file.symlink_metadata() {
        Ok(found) if !found.is_file() => Err(Problem::new("it is not a regular file")
            .with_next("name another file")
            .met(format!("not writing to {}", quote(file)))),
        Ok(_) if !force => Err(Problem::new("it exists")
            .with_next("-F replaces it")
            .met(format!("not writing to {}", quote(file)))),
        _ => Ok(()),
    }
}

/// The file gets its name when it is complete and durable.
fn to_new_file(
    tree: &Tree,
    contents: &Sources,
    file: &Path,
    args: &TarArgs,
    lacks: &Lacks<'_>,
) -> Result<Written, Failure> {
    let doing = || format!("cannot write to {}", quote(file));
    let new = NewFile::new(file).doing(doing)?;
    let mut open = File::options().write(true).open(new.path()).doing(doing)?;
    let written = write(tree, contents, &mut open, lacks, Some(file))?;
    open.sync_all().doing(doing)?;
    new.persist(file, args.force).doing(doing)?;
    Ok(written)
}

/// `file`: what `out` is, for messages; `None` for standard output.
fn write(
    tree: &Tree,
    contents: &Sources,
    out: &mut dyn Write,
    lacks: &Lacks<'_>,
    file: Option<&Path>,
) -> Result<Written, Failure> {
    let mut out = Noting {
        out: BufWriter::with_capacity(BUFFER_BYTES, out),
        failed: None,
    };
    let mut damaged = |path: &[u8], error| {
        let path = OsStr::from_bytes(path);
        lacks.note(&lacks.place.join(path), error)
    };
    let written = write_tar_past(tree, contents, &mut out, &mut damaged);
    match (written, out.failed, file) {
        (Ok(written), ..) => Ok(written),
        (Err(_), Some(error), None) => Err(Failure::output(error)),
        (Err(_), Some(error), Some(file)) => {
            Err(error).doing(|| format!("cannot write to {}", quote(file)))
        }
        (Err(error), None, _) => Err(error).doing(|| format!("cannot archive {}", lacks.place)),
    }
}

/// Keeps the error of the output apart from those of the image.
struct Noting<W: Write> {
    out: BufWriter<W>,
    failed: Option<io::Error>,
}

impl<W: Write> Noting<W> {
    fn note<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| {
            let kind = error.kind();
            self.failed.get_or_insert(error);
            kind.into()
        })
    }
}

impl<W: Write> Write for Noting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.out.write(bytes);
        self.note(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.out.flush();
        self.note(done)
    }
}

fn report(written: &Written) {
    let left_out = &written.left_out;
    for path in left_out.iter().take(NAMED) {
        let path = OsStr::from_bytes(path);
        note(&format!(
            "{} is left out: a tar holds no sockets",
            quote(path)
        ));
    }
    if left_out.len() > NAMED {
        note(&format!("and {} more sockets", left_out.len() - NAMED));
    }
}
