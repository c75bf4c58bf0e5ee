//! What is done to an image with a damaged log, and what must hold whatever is in it.
//!
//! - Opened for reading, nothing is written.
//! - Refused for writing, nothing is written, and it is said whose fault it is.
//! - Opened for writing and closed, every block is as it was that the log does not speak of; and with sums that were left as
//!   they are, what is there is one of the states that were committed, whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use throughline::{Error, FileType, OpenOptions, Volume};

use crate::craft::{Base, Crafted};
use crate::disk::{bytes_of, load};
use crate::ring::is_state;

/// Most names that are looked at.
const MOST_NAMES: usize = 200;

/// What came of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// It could be read.
    pub(crate) read: bool,
    /// It could be written.
    pub(crate) written: bool,
}

/// A log's image, changed.
pub(crate) struct Damaged {
    pub(crate) bytes: Vec<u8>,
    /// Blocks that the log may write over beyond those it spoke of before the damage.
    pub(crate) also: BTreeSet<u64>,
    /// All sums are those of the sound log: what is recovered must be a state.
    pub(crate) unsealed: bool,
    /// The log speaks of inodes and names, any of them: there is no telling which blocks that reaches.
    pub(crate) anywhere: bool,
}

/// Everything, on one image.
pub(crate) fn judge(base: &Base, sound: &Crafted, damaged: &Damaged) -> Result<Outcome, String> {
    Ok(Outcome {
        read: read_only(&damaged.bytes)?,
        written: writable(base, sound, damaged)?,
    })
}

fn read_only(bytes: &[u8]) -> Result<bool, String> {
    let device = load(bytes);
    let opened = OpenOptions::new().open_block_device(Arc::clone(&device) as _);
    let good = match opened {
        Ok(volume) => {
            walk(&volume);
            volume.close().map_err(|e| format!("closing: {e}"))?;
            true
        }
        Err(error) => refused(&error).map(|()| false)?,
    };
    if bytes_of(&*device) != bytes {
        return Err("opening it for reading wrote to it".into());
    }
    Ok(good)
}

/// Errors of such images are the image's.
fn refused(error: &Error) -> Result<(), String> {
    match error {
        Error::Corrupt(_) | Error::Unsupported(_) => Ok(()),
        other => Err(format!("refused with {other:?}")),
    }
}

fn writable(base: &Base, sound: &Crafted, damaged: &Damaged) -> Result<bool, String> {
    let device = load(&damaged.bytes);
    match OpenOptions::new()
        .write(true)
        .open_block_device(Arc::clone(&device) as _)
    {
        Ok(volume) => {
            walk(&volume);
            // What is recovered of a log that lies may be damaged in any way; closing may find that.
            let closed = volume.close();
            if damaged.unsealed {
                closed.map_err(|e| format!("closing: {e}"))?;
            }
        }
        Err(error) => {
            refused(&error)?;
            if bytes_of(&*device) != damaged.bytes {
                return Err(format!("refused ({error}), and written to"));
            }
            return Ok(false);
        }
    }
    let after = bytes_of(&*device);
    if !damaged.anywhere {
        outside(base, sound, damaged, &after)?;
    }
    if damaged.unsealed {
        let states = 0..base.states.len();
        let found = states.rev().map(|state| is_state(base, &after, state));
        if let Some(Err(last)) = found.reduce(Result::or) {
            return Err(format!("it is none of the states: {last}"));
        }
    }
    Ok(true)
}

/// Blocks that nobody had a reason to write.
fn outside(base: &Base, sound: &Crafted, damaged: &Damaged, after: &[u8]) -> Result<(), String> {
    let size = base.kind.block_bytes as usize;
    let blocks = damaged.bytes.chunks(size).zip(after.chunks(size));
    for (block, (before, after)) in (0u64..).zip(blocks) {
        let named = sound.claims.contains(&block)
            || damaged.also.contains(&block)
            || base.reserved.contains(&block)
            || block == base.superblock_block();
        if !named && before != after {
            return Err(format!(
                "block {block} was changed, and the log does not name it"
            ));
        }
    }
    Ok(())
}

/// Reads names and the beginnings of files.
fn walk(volume: &Volume) {
    let (mut left, mut dirs) = (MOST_NAMES, vec![String::from("/")]);
    let mut buf = vec![0; 8192];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = volume.read_dir(&dir) else {
            continue;
        };
        for entry in entries.map_while(Result::ok) {
            left -= 1;
            if left == 0 {
                return;
            }
            let path = format!("{dir}/{}", entry.file_name().to_string_lossy());
            match volume
                .symlink_metadata(&path)
                .map(|found| found.file_type())
            {
                Ok(FileType::Directory) => dirs.push(path),
                Ok(FileType::File) => {
                    let _ = volume
                        .open_file(&path)
                        .map(|file| file.read_at(&mut buf, 0));
                }
                _ => {}
            }
        }
    }
}
