//! Small files, a hundred per directory. The directories are distributed over threads.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::Session;
use super::place::Place;
use super::work::{NEW, together};
use crate::Result;
use crate::meter::Spent;

/// Files per directory.
pub(crate) const FILES_PER_FOLDER: u64 = 100;
const FILE_BYTES: std::ops::RangeInclusive<usize> = 1024..=4096;

/// A tree: where its files are, and how many threads work on it.
pub(crate) struct Tree<'a> {
    pub(crate) threads: usize,
    /// The number for all threads together.
    pub(crate) folders: u64,
    /// The directory that contains all others.
    pub(crate) top: &'a str,
}

impl Tree<'_> {
    /// Creates `top` and all files in it: create, write, close.
    pub(crate) fn create(&self, session: &Session<'_>) -> Result<Spent> {
        let source = &session.bench.source;
        let top = session.root().make_dir(self.top)?;
        together(self.threads, |thread| {
            let mut random = fastrand::Rng::with_seed(thread as u64);
            for number in self.folders_of(thread) {
                let folder = Place::new(top.as_fd()).make_dir(&Tree::folder_name(number))?;
                for file in 0..FILES_PER_FOLDER {
                    let content = &source[..random.usize(FILE_BYTES)];
                    let file = Place::new(folder.as_fd()).open(&Tree::file_name(file), NEW)?;
                    file.write_all_at(content, 0)?;
                }
            }
            Ok(())
        })
    }

    /// Calls `each` for every file. Each thread handles its own files.
    pub(crate) fn each_file(
        &self,
        session: &Session<'_>,
        each: impl Fn(Place<'_>, &str) -> Result<()> + Sync,
    ) -> Result<Spent> {
        let top = session.root().dir(self.top)?;
        together(self.threads, |thread| {
            for number in self.folders_of(thread) {
                let folder = Place::new(top.as_fd()).dir(&Tree::folder_name(number))?;
                for file in 0..FILES_PER_FOLDER {
                    each(Place::new(folder.as_fd()), &Tree::file_name(file))?;
                }
            }
            Ok(())
        })
    }

    fn folders_of(&self, thread: usize) -> std::ops::Range<u64> {
        let each = self.folders / self.threads as u64;
        let first = thread as u64 * each;
        first..first + each
    }

    /// The number of files.
    pub(crate) fn files(&self) -> u64 {
        self.folders * FILES_PER_FOLDER
    }

    pub(crate) fn folder_name(number: u64) -> String {
        format!("d{number:04}")
    }

    pub(crate) fn file_name(number: u64) -> String {
        format!("file-{number:06}")
    }
}
