//! Writes the contents of many small new files together.

use std::io::IoSlice;

use throughline_fileio::direct::{self, NewFile};

use crate::coherent;
use crate::data::Data;
use crate::error::{Reason, Result};
use crate::inode::Inode;
use crate::map;
use crate::mapper::FileMapper;
use crate::regular::is_inline;

/// Number of files locked at once.
const FILES_AT_ONCE: usize = 64;

impl Data {
    /// Writes the whole contents of several files, as [`Data::write_at`] from byte 0 would. Empty files, such
    /// as new ones, are written together: a few large I/Os and one wait for all. Returns one result per file,
    /// in order.
    ///
    /// Uses about as much memory as the data; the caller must limit it.
    pub fn write_new(&self, files: &[(&Inode, &[u8])]) -> Vec<Result<()>> {
        let mut results: Vec<Option<Result<()>>> = files.iter().map(|_| None).collect();
        // Take each lock once, in ascending order.
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by_key(|at| files[*at].0.ino);
        order.dedup_by_key(|at| files[*at].0.ino);
        for some in order.chunks(FILES_AT_ONCE) {
            write_some(self, files, some, &mut results);
        }
        let one_by_one = |(result, (inode, data)): (Option<Result<()>>, &(&Inode, &[u8]))| {
            let done = result.unwrap_or_else(|| write_whole(self, inode, data));
            done.and_then(|()| self.data_changed(inode))
        };
        results.into_iter().zip(files).map(one_by_one).collect()
    }
}

/// Writes the suitable files of `some` (indices into `files`). The results of the others stay `None`.
fn write_some(
    fs: &Data,
    files: &[(&Inode, &[u8])],
    some: &[usize],
    results: &mut [Option<Result<()>>],
) {
    let mut fit = Vec::with_capacity(some.len());
    for at in some {
        let (inode, data) = files[*at];
        if fs.check_may_write(inode).is_err() {
            continue;
        }
        let lock = inode.io_exclusive();
        let len = data.len() as u64;
        let empty = coherent::size(fs, inode).is_ok_and(|size| size == 0) && !is_inline(inode);
        if !empty || len == 0 || len > map::max_size(fs, inode) {
            continue;
        }
        let Ok(frozen) = coherent::make_way(fs, inode, coherent::ALL) else {
            continue;
        };
        let mapper = FileMapper::for_write(fs, inode, len);
        fit.push((*at, (frozen, lock), mapper));
    }
    let new: Vec<NewFile<'_>> = fit
        .iter()
        .map(|(at, _, mapper)| NewFile {
            mapper,
            data: files[*at].1,
        })
        .collect();
    let done = direct::write_new(&fs.disk, &new);
    drop(new);
    for ((at, _exclusive, _), done) in fit.into_iter().zip(done) {
        let (inode, _) = files[at];
        let size = map::size(fs, inode);
        if let Ok(size) = &size {
            coherent::resized(inode, *size);
        }
        results[at] = Some(done.map_err(Into::into).and(size.map(|_| ())));
    }
}

fn write_whole(fs: &Data, inode: &Inode, data: &[u8]) -> Result<()> {
    let mut at = 0;
    while at < data.len() {
        match fs.write_at(inode, at as u64, &[IoSlice::new(&data[at..])])? {
            0 => return Err(Reason::NoSpace.into()),
            written => at = at.saturating_add(written),
        }
    }
    Ok(())
}
