//! How a volume is opened.

use std::ffi::c_int;
use std::path::PathBuf;
use std::time::Duration;

use throughline::{Backing, Format, ImageOptions, OpenOptions, UnknownFormat, VolumeOptions};

use crate::failure::{Failure, done, freed};
use crate::pointers::{Text, given};

/// Options of tl_open. Only one thread may use them at a time.
#[derive(Default)]
pub struct tl_options {
    write: bool,
    partition: Option<String>,
    offset: u64,
    format: Option<Format>,
    backing: Vec<PathBuf>,
    overlay: Option<PathBuf>,
    journal: Option<PathBuf>,
    cache_bytes: Option<u64>,
    no_replay: bool,
    synchronous: bool,
    discard: bool,
    durable_within: Option<Duration>,
}

impl tl_options {
    pub(crate) fn to_open(&self) -> OpenOptions {
        let backing = self.backing.iter();
        let backing = backing.fold(Backing::none(), |all, path| all.allow(path));
        let mut image = ImageOptions::new();
        image.format(self.format).backing(backing);
        image.overlay(self.overlay.clone());

        let mut volume = VolumeOptions::new();
        volume.journal(self.journal.clone());
        volume.synchronous(self.synchronous).discard(self.discard);
        if let Some(time) = self.durable_within {
            volume.durable_within(time);
        }

        let mut options = OpenOptions::new();
        options.write(self.write).image(&image).volume(&volume);
        options
            .offset(self.offset)
            .partition(self.partition.clone());
        options.cache_bytes(self.cache_bytes);
        options.no_replay(self.no_replay);
        options
    }
}

fn set(
    options: Option<&mut tl_options>,
    change: impl FnOnce(&mut tl_options) -> Result<(), Failure>,
) -> c_int {
    done(|| change(given(options)?))
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
    set(options, |options| {
        options.write = write != 0;
        Ok(())
    })
}

/// The partition of a disk: a number, label or UUID. NULL: the only one with a volume.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_partition(options: Option<&mut tl_options>, name: Text<'_>) -> c_int {
    set(options, |options| {
        let name = name.or_null().map(|name| name.words());
        options.partition = name.transpose()?.map(str::to_owned);
        Ok(())
    })
}

/// Where the volume begins, in bytes, where no table of partitions says it.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_offset(options: Option<&mut tl_options>, offset: u64) -> c_int {
    set(options, |options| {
        options.offset = offset;
        Ok(())
    })
}

/// The format of the image: "raw", "qcow2", "vmdk" or "vhdx". NULL: by content.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_format(options: Option<&mut tl_options>, name: Text<'_>) -> c_int {
    set(options, |options| {
        let unknown = |unknown: UnknownFormat| Failure::invalid(unknown.to_string());
        let format = |name: Text<'_>| name.words()?.parse().map_err(unknown);
        options.format = name.or_null().map(format).transpose()?;
        Ok(())
    })
}

/// Allows a qcow2 image to name this file, or files below this directory, as its backing files. May be
/// repeated.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_backing(options: Option<&mut tl_options>, file: Text<'_>) -> c_int {
    set(options, |options| {
        options.backing.push(file.path()?.to_owned());
        Ok(())
    })
}

/// A qcow2 image that takes all changes instead of the image itself; it is made if need be. NULL: none.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_overlay(options: Option<&mut tl_options>, file: Text<'_>) -> c_int {
    set(options, |options| {
        options.overlay = path_or_null(file)?;
        Ok(())
    })
}

/// The device or image of an external journal. NULL: none is named.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_journal(options: Option<&mut tl_options>, file: Text<'_>) -> c_int {
    set(options, |options| {
        options.journal = path_or_null(file)?;
        Ok(())
    })
}

/// Memory for cached data, in bytes. By default, a quarter of what the process may have.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_cache(options: Option<&mut tl_options>, bytes: u64) -> c_int {
    set(options, |options| {
        options.cache_bytes = Some(bytes);
        Ok(())
    })
}

/// Opens a volume that was not closed cleanly as it is, without replaying its journal; for reading only.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_no_replay(
    options: Option<&mut tl_options>,
    no_replay: c_int,
) -> c_int {
    set(options, |options| {
        options.no_replay = no_replay != 0;
        Ok(())
    })
}

/// Every call that changes something returns when the change survives a crash.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_synchronous(
    options: Option<&mut tl_options>,
    synchronous: c_int,
) -> c_int {
    set(options, |options| {
        options.synchronous = synchronous != 0;
        Ok(())
    })
}

/// What is freed is discarded: an image file gets holes.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_discard(options: Option<&mut tl_options>, discard: c_int) -> c_int {
    set(options, |options| {
        options.discard = discard != 0;
        Ok(())
    })
}

/// What is changed survives a crash after so many seconds at the latest, though nobody asks for it.
#[unsafe(no_mangle)]
pub extern "C" fn tl_options_durable_within(
    options: Option<&mut tl_options>,
    seconds: f64,
) -> c_int {
    set(options, |options| {
        let time = Duration::try_from_secs_f64(seconds);
        options.durable_within = Some(time.map_err(|wrong| Failure::invalid(wrong.to_string()))?);
        Ok(())
    })
}

fn path_or_null(file: Text<'_>) -> Result<Option<PathBuf>, Failure> {
    let path = |file: Text<'_>| file.path().map(PathBuf::from);
    file.or_null().map(path).transpose()
}
