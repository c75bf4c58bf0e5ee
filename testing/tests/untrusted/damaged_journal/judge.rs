//! Operations on an image with a damaged log, and what must hold whatever the log contains:
//!
//! - Opening for reading writes nothing.
//! - If opening for writing is refused, nothing is written, and the error blames the image.
//! - After opening for writing and closing, every block outside the log's claims is unchanged. If the
//!   checksums were left unchanged, the result is exactly one of the committed states.

use std::collections::BTreeSet;
use std::sync::Arc;

use throughline::internal::OpenBlockDevice;
use throughline::{Error, FileType, OpenOptions, Volume};

use super::craft::{Base, Crafted};
use super::disk::{bytes_of, load};
use super::ring::is_state;

/// The most names visited.
const MAX_NAMES: usize = 200;

/// The result for an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// It could be opened for reading.
    pub(crate) read: bool,
    /// It could be opened for writing.
    pub(crate) written: bool,
}

/// A modified image of a log.
pub(crate) struct Damaged {
    pub(crate) bytes: Vec<u8>,
    /// Blocks that the log may overwrite in addition to those it claimed before the damage.
    pub(crate) also: BTreeSet<u64>,
    /// All checksums are those of the valid log: the recovery must give a committed state.
    pub(crate) unsealed: bool,
    /// The log may refer to any inodes and names, so the blocks it may change are unknown.
    pub(crate) anywhere: bool,
}

/// All checks on one image.
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

/// Checks that an error blames the image.
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
            // Recovery from a false log may damage the volume in any way, which closing may find.
            let closed = volume.close();
            if damaged.unsealed {
                closed.map_err(|e| format!("closing: {e}"))?;
            }
        }
        Err(error) => {
            refused(&error)?;
            if bytes_of(&*device) != damaged.bytes {
                return Err(format!("refused ({error}), but the image was changed"));
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
            return Err(format!("it is not one of the states: {last}"));
        }
    }
    Ok(true)
}

/// Checks the blocks that there was no reason to write.
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
    let (mut left, mut dirs) = (MAX_NAMES, vec![String::from("/")]);
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
