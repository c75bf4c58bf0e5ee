//! The work done on the mount; each kind is measured as a rate.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::{OFlags, symlinkat};

use crate::kernel::named;
use crate::mounts::Session;
use crate::mounts::place::Place;
use crate::mounts::tree::{FILES_PER_FOLDER, Tree};
use crate::mounts::work::{NEW, drained, read_stream, together, write_stream};
use crate::{Error, Result};

/// The amount of work.
pub(super) struct Sizes {
    pub(super) file_bytes: u64,
    pub(super) folders: u64,
}

/// One kind of work.
pub(super) struct Work {
    pub(super) name: &'static str,
    /// The unit of its measurement.
    pub(super) unit: &'static str,
    pub(super) measure: fn(&mut Session<'_>, &Sizes) -> Result<f64>,
}

/// All kinds of work.
pub(super) const WORK: &[Work] = &[
    work("write", "MB/s", |s, sizes| write_files(s, sizes, 1)),
    work("write 4 files", "MB/s", |s, sizes| write_files(s, sizes, 4)),
    work("write one file by 4", "MB/s", write_together),
    work("small writes", "per s", small_writes),
    work("small reads", "per s", small_reads),
    work("small reads, new", "per s", small_reads_of_new),
    work("read", "MB/s", |s, sizes| read(s, sizes, Reading::Cold)),
    work("read again", "MB/s", |s, sizes| {
        read(s, sizes, Reading::Again)
    }),
    work("read, appended to", "MB/s", |s, sizes| {
        read(s, sizes, Reading::Appended)
    }),
    work("create", "files/s", |s, sizes| create(s, sizes, 1)),
    work("create by 4", "files/s", |s, sizes| create(s, sizes, 4)),
    work("rewrite", "files/s", rewrite),
    work("read small files", "files/s", read_small),
    work("look-ups by 4", "files/s", look_up),
    work("stat again", "files/s", stat_again),
    work("look up, missing", "per s", look_up_missing),
    work("ls -R", "files/s", |s, sizes| list(s, sizes, "-R")),
    work("ls -lR", "files/s", |s, sizes| list(s, sizes, "-lR")),
    work("readlink", "per s", read_links),
];

const fn work(
    name: &'static str,
    unit: &'static str,
    measure: fn(&mut Session<'_>, &Sizes) -> Result<f64>,
) -> Work {
    Work {
        name,
        unit,
        measure,
    }
}

const CALL_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 4096;
/// Number of repetitions of short work.
const TURNS: u64 = 5;

fn per_second(count: u64, wall: Duration) -> f64 {
    count as f64 / wall.as_secs_f64().max(1e-9)
}

/// One stream per thread, with fsync.
fn write_files(session: &mut Session<'_>, sizes: &Sizes, threads: u64) -> Result<f64> {
    let (root, source) = (session.root(), &session.bench.source);
    let each_bytes = sizes.file_bytes / threads;
    let spent = together(threads as usize, |thread| {
        let file = root.open(&format!("file{thread}"), NEW)?;
        write_stream(&file, source, each_bytes, CALL_BYTES)
    })?;
    Ok(spent.mb_per_s(sizes.file_bytes))
}

/// One existing file, written with `O_DIRECT`; each thread writes its own quarter.
fn write_together(session: &mut Session<'_>, sizes: &Sizes) -> Result<f64> {
    const THREADS: u64 = 4;
    write_files(session, sizes, 1)?;
    let (root, source) = (session.root(), &session.bench.source);
    let file = root.open("file0", OFlags::WRONLY | OFlags::DIRECT)?;
    let each_bytes = sizes.file_bytes / THREADS;
    let spent = together(THREADS as usize, |thread| {
        let base = thread as u64 * each_bytes;
        let calls = source.chunks_exact(CALL_BYTES).cycle();
        for (call, at) in calls.zip((base..base + each_bytes).step_by(CALL_BYTES)) {
            file.write_all_at(call, at)?;
        }
        Ok(())
    })?;
    Ok(spent.mb_per_s(sizes.file_bytes))
}

/// Sequential writes of 4 KiB to a file open for reading and writing.
fn small_writes(session: &mut Session<'_>, sizes: &Sizes) -> Result<f64> {
    let bytes = sizes.file_bytes / 4;
    let flags = OFlags::RDWR | OFlags::CREATE;
    let file = session.root().open("file", flags)?;
    let source = &session.bench.source;
    let spent = together(1, |_| write_stream(&file, source, bytes, SMALL_BYTES))?;
    Ok(per_second(bytes / SMALL_BYTES as u64, spent.wall))
}

/// Sequential reads of 4 KiB from a cached file open for reading and writing.
fn small_reads(session: &mut Session<'_>, sizes: &Sizes) -> Result<f64> {
    write_files(session, sizes, 1)?;
    let file = session.root().open("file0", OFlags::RDWR)?;
    let bytes = sizes.file_bytes / 4;
    read_stream(&file, bytes, CALL_BYTES)?;
    let spent = together(1, |_| read_stream(&file, bytes, SMALL_BYTES))?;
    Ok(per_second(bytes / SMALL_BYTES as u64, spent.wall))
}

/// Sequential reads of 4 KiB of data just written through the same descriptor.
fn small_reads_of_new(session: &mut Session<'_>, sizes: &Sizes) -> Result<f64> {
    let file = session.root().open("file", OFlags::RDWR | OFlags::CREATE)?;
    let bytes = sizes.file_bytes / 4;
    write_stream(&file, &session.bench.source, bytes, CALL_BYTES)?;
    read_stream(&file, bytes, CALL_BYTES)?;
    let spent = together(1, |_| read_stream(&file, bytes, SMALL_BYTES))?;
    Ok(per_second(bytes / SMALL_BYTES as u64, spent.wall))
}

/// Which read of a file to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The first read.
    Cold,
    /// A second one, after opening it again.
    Again,
    /// A second one, after the file has grown.
    Appended,
}

fn read(session: &mut Session<'_>, sizes: &Sizes, when: Reading) -> Result<f64> {
    write_files(session, sizes, 1)?;
    session.cold()?;
    let root = session.root();
    let read = |_| {
        let file = root.open("file0", OFlags::RDONLY)?;
        read_stream(&file, sizes.file_bytes, CALL_BYTES)
    };
    let mut spent = together(1, read)?;
    if when == Reading::Appended {
        let file = root.open("file0", OFlags::WRONLY)?;
        file.write_all_at(b"more", sizes.file_bytes)?;
    }
    if when != Reading::Cold {
        spent = together(1, read)?;
    }
    Ok(spent.mb_per_s(sizes.file_bytes))
}

/// The tree of small files.
fn tree(sizes: &Sizes, threads: usize) -> Tree<'static> {
    Tree {
        threads,
        folders: sizes.folders,
        top: "tree",
    }
}

fn create(session: &mut Session<'_>, sizes: &Sizes, threads: usize) -> Result<f64> {
    let tree = tree(sizes, threads);
    let spent = tree.create(session)?;
    Ok(per_second(tree.files(), spent.wall))
}

/// Overwrites existing files, with `O_TRUNC`.
fn rewrite(session: &mut Session<'_>, sizes: &Sizes) -> Result<f64> {
    let tree = tree(sizes, 1);
    tree.create(session)?;
    let source = &session.bench.source;
    let spent = tree.each_file(session, |folder, name| {
        let flags = OFlags::WRONLY | OFlags::TRUNC;
        Ok(folder
            .open(name, flags)?
            .write_all_at(&source[..SMALL_BYTES], 0)?)
    })?;
    Ok(per_second(tree.files(), spent.wall))
}

/// Opens, reads and closes files that were read before.
fn read_small(session: &mut Session<'_>, sizes: &Sizes) -> Result<f64> {
    let tree = tree(sizes, 1);
    tree.create(session)?;
    session.cold()?;
    let read = |folder: Place<'_>, name: &str| {
        let mut buffer = [0; SMALL_BYTES];
        folder.open(name, OFlags::RDONLY)?.read_at(&mut buffer, 0)?;
        Ok(())
    };
    tree.each_file(session, read)?;
    let spent = tree.each_file(session, read)?;
    Ok(per_second(tree.files(), spent.wall))
}

/// The first lookup of every name, by four threads in one directory.
fn look_up(session: &mut Session<'_>, sizes: &Sizes) -> Result<f64> {
    const THREADS: u64 = 4;
    let tree = tree(sizes, 1);
    tree.create(session)?;
    session.cold()?;
    let top = session.root().dir(tree.top)?;
    let spent = together(THREADS as usize, |thread| {
        for number in 0..tree.folders {
            let folder = Place::new(top.as_fd()).dir(&Tree::folder_name(number))?;
            for file in (thread as u64..FILES_PER_FOLDER).step_by(THREADS as usize) {
                Place::new(folder.as_fd()).stat(&Tree::file_name(file))?;
            }
        }
        Ok(())
    })?;
    Ok(per_second(tree.files(), spent.wall))
}

fn stat_again(session: &mut Session<'_>, sizes: &Sizes) -> Result<f64> {
    let tree = tree(sizes, 1);
    tree.create(session)?;
    let mut wall = Duration::ZERO;
    for _ in 0..TURNS {
        wall += tree
            .each_file(session, |folder, name| folder.stat(name).map(drop))?
            .wall;
    }
    Ok(per_second(tree.files() * TURNS, wall))
}

/// Lookups of missing names, each repeated.
fn look_up_missing(session: &mut Session<'_>, sizes: &Sizes) -> Result<f64> {
    let root = session.root();
    let names = sizes.folders * FILES_PER_FOLDER;
    let spent = together(1, |_| {
        for number in (0..names).cycle().take((names * TURNS) as usize) {
            if root.stat(&Tree::file_name(number)).is_ok() {
                return Err(Error::new("a name that was never created exists"));
            }
        }
        Ok(())
    })?;
    Ok(per_second(names * TURNS, spent.wall))
}

fn list(session: &mut Session<'_>, sizes: &Sizes, how: &str) -> Result<f64> {
    let tree = tree(sizes, 1);
    tree.create(session)?;
    session.cold()?;
    let path = session.root().path(tree.top);
    let spent = drained(named("ls").args([how, &path]))?;
    Ok(per_second(tree.files(), spent.wall))
}

fn read_links(session: &mut Session<'_>, sizes: &Sizes) -> Result<f64> {
    let top = session.root().make_dir("links")?;
    let links = sizes.folders * FILES_PER_FOLDER;
    let failed = |e| Error::new(format!("symbolic link: {e}"));
    for number in 0..links {
        symlinkat("/a/target/of/some/length", &top, Tree::file_name(number)).map_err(failed)?;
    }
    let spent = together(1, |_| {
        for number in (0..links).cycle().take((links * TURNS) as usize) {
            rustix::fs::readlinkat(&top, Tree::file_name(number), Vec::new()).map_err(failed)?;
        }
        Ok(())
    })?;
    Ok(per_second(links * TURNS, spent.wall))
}
