//! How a volume is opened.

use std::ffi::c_int;
use std::path::PathBuf;
use std::time::{Duration, TryFromFloatSecsError};

use throughline::{Backing, ImageOptions, OpenOptions, UnknownFormat, VolumeOptions};

use crate::failure::{Failure, done, freed};
use crate::pointers::{Text, given};

/// Options of tl_open. Only one thread may use them at a time.
#[derive(Default)]
pub struct tl_options {
    open: OpenOptions,
    image: ImageOptions,
    backing: Backing,
    volume: VolumeOptions,
}

impl tl_options {
    pub(crate) fn to_open(&self) -> OpenOptions {
        let mut open = self.open.clone();
        let image = self.image.clone().backing(self.backing.clone()).clone();
        open.image(&image).volume(&self.volume);
        open
    }
}

/// Changes a part of the options.
fn set<P>(
    options: Option<&mut tl_options>,
    part: fn(&mut tl_options) -> &mut P,
    change: impl FnOnce(&mut P) -> Result<&mut P, Failure>,
) -> c_int {
    done(|| change(part(given(options)?)).map(drop))
}

/// New options: for reading, the format by content, the only partition with a volume. Free them with
/// tl_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_new() -> Box<tl_options> {
    Box::default()
}

/// Frees options; NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_free(options: Option<Box<tl_options>>) {
    freed(options);
}

/// Opens for writing, too.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_write(options: Option<&mut tl_options>, write: c_int) -> c_int {
    set(
        options,
        |all| &mut all.open,
        |open| Ok(open.write(write != 0)),
    )
}

/// The partition of a disk: a number, label or UUID. NULL: the only one with a volume.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_partition(options: Option<&mut tl_options>, name: Text<'_>) -> c_int {
    set(
        options,
        |all| &mut all.open,
        |open| {
            let name = name.or_null().map(|name| name.words());
            Ok(open.partition(name.transpose()?.map(str::to_owned)))
        },
    )
}

/// Where the volume begins, in bytes, where no table of partitions says it.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_offset(options: Option<&mut tl_options>, offset: u64) -> c_int {
    set(options, |all| &mut all.open, |open| Ok(open.offset(offset)))
}

/// The format of the image: "raw", "qcow2", "vmdk" or "vhdx". NULL: by content.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_format(options: Option<&mut tl_options>, name: Text<'_>) -> c_int {
    set(
        options,
        |all| &mut all.image,
        |image| {
            let unknown = |unknown: UnknownFormat| Failure::invalid(unknown.to_string());
            let format = |name: Text<'_>| name.words()?.parse().map_err(unknown);
            Ok(image.format(name.or_null().map(format).transpose()?))
        },
    )
}

/// Allows a qcow2 image to name this file, or files below this directory, as its backing files. May be
/// repeated.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_backing(options: Option<&mut tl_options>, file: Text<'_>) -> c_int {
    set(
        options,
        |all| &mut all.backing,
        |backing| {
            *backing = std::mem::take(backing).allow(file.path()?);
            Ok(backing)
        },
    )
}

/// A qcow2 image that takes all changes instead of the image itself; it is made if need be. NULL: none.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_overlay(options: Option<&mut tl_options>, file: Text<'_>) -> c_int {
    set(
        options,
        |all| &mut all.image,
        |image| Ok(image.overlay(path_or_null(file)?)),
    )
}

/// The device or image of an external journal. NULL: none is named.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_journal(options: Option<&mut tl_options>, file: Text<'_>) -> c_int {
    set(
        options,
        |all| &mut all.volume,
        |volume| Ok(volume.journal(path_or_null(file)?)),
    )
}

/// Memory for cached data, in bytes. By default, a quarter of what the process may have.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_cache(options: Option<&mut tl_options>, bytes: u64) -> c_int {
    set(
        options,
        |all| &mut all.open,
        |open| Ok(open.cache_bytes(Some(bytes))),
    )
}

/// Opens a volume that was not closed cleanly as it is, without replaying its journal; for reading only.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_no_replay(
    options: Option<&mut tl_options>,
    no_replay: c_int,
) -> c_int {
    set(
        options,
        |all| &mut all.open,
        |open| Ok(open.no_replay(no_replay != 0)),
    )
}

/// Every call that changes something returns when the change survives a crash.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_synchronous(
    options: Option<&mut tl_options>,
    synchronous: c_int,
) -> c_int {
    set(
        options,
        |all| &mut all.volume,
        |volume| Ok(volume.synchronous(synchronous != 0)),
    )
}

/// What is freed is discarded: an image file gets holes.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_discard(options: Option<&mut tl_options>, discard: c_int) -> c_int {
    set(
        options,
        |all| &mut all.volume,
        |volume| Ok(volume.discard(discard != 0)),
    )
}

/// What is changed survives a crash after so many seconds at the latest, though nobody asks for it.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_durable_within(
    options: Option<&mut tl_options>,
    seconds: f64,
) -> c_int {
    set(
        options,
        |all| &mut all.volume,
        |volume| {
            let time = Duration::try_from_secs_f64(seconds);
            let wrong = |wrong: TryFromFloatSecsError| Failure::invalid(wrong.to_string());
            Ok(volume.durable_within(time.map_err(wrong)?))
        },
    )
}

fn path_or_null(file: Text<'_>) -> Result<Option<PathBuf>, Failure> {
    let path = |file: Text<'_>| file.path().map(PathBuf::from);
    file.or_null().map(path).transpose()
}
