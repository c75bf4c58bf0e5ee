//! Open files. Every call names its offset, so that any number of threads may use one file.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use rustix::fs::OFlags;
use rustix::io::Errno;
use throughline::{Attributes, Fallocate, File, FileOptions};

use crate::failure::{Failure, done, freed, run};
use crate::pointers::{Memory, MemoryMut, Text, given};
use crate::stat::tl_stat;
use crate::volume::tl_volume;

/// An open file. Any number of threads may use it at once.
pub struct tl_file(File);

/// The flags of open(2) that have a meaning here.
fn options(flags: u32, mode: u32) -> Result<FileOptions, Failure> {
    let known = OFlags::ACCMODE
        | OFlags::CREATE
        | OFlags::EXCL
        | OFlags::TRUNC
        | OFlags::APPEND
        | OFlags::DIRECT
        | OFlags::SYNC
        | OFlags::DSYNC
        | OFlags::NOATIME
        | OFlags::CLOEXEC
        | OFlags::LARGEFILE;
    let flags = OFlags::from_bits_retain(flags);
    let has = |flag| flags.contains(flag);
    let access = flags & OFlags::ACCMODE;
    if access == OFlags::ACCMODE || !known.contains(flags) {
        return Err(Failure::invalid("unknown flags of tl_file_open"));
    }
    let mut options = FileOptions::new();
    options
        .read(access != OFlags::WRONLY)
        .write(access != OFlags::RDONLY)
        .append(has(OFlags::APPEND) && access != OFlags::RDONLY)
        .direct(has(OFlags::DIRECT))
        // In this order: O_SYNC has the bit of O_DSYNC, too.
        .data_sync(has(OFlags::DSYNC))
        .sync(has(OFlags::SYNC))
        .truncate(has(OFlags::TRUNC))
        .no_access_time(has(OFlags::NOATIME))
        .create(has(OFlags::CREATE))
        .create_new(has(OFlags::CREATE | OFlags::EXCL))
        .attributes(Attributes::new().mode(mode & 0o7777));
    Ok(options)
}

/// Opens a file with flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND,
/// O_DIRECT, O_SYNC, O_DSYNC, O_NOATIME. Only a file that is opened for writing is created or truncated. A
/// file that is created has the permissions `mode`. Close it with tl_file_close.
#[unsafe(no_mangle)]
pub extern "C" fn tl_file_open(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    flags: c_int,
    mode: u32,
    file: Option<&mut MaybeUninit<Box<tl_file>>>,
) -> c_int {
    done(|| {
        let (volume, file) = (given(volume)?, given(file)?);
        let options = options(flags.cast_unsigned(), mode)?;
        let open = options.open(&volume.0, at.path()?)?;
        file.write(Box::new(tl_file(open)));
        Ok(())
    })
}

/// Closes a file; NULL is ignored. What was written to it and not synced stays in the volume's memory until
/// it is written back.
#[unsafe(no_mangle)]
pub extern "C" fn tl_file_close(file: Option<Box<tl_file>>) {
    freed(file);
}

/// Reads at an offset, and returns the number of bytes: less than `size` only at the end of the file, or
/// before an error, which the next call returns.
#[unsafe(no_mangle)]
pub extern "C" fn tl_pread(
    file: Option<&tl_file>,
    data: MemoryMut<'_>,
    size: usize,
    offset: u64,
) -> i64 {
    run(|| {
        let file = given(file)?;
        counted(file.0.read_at(data.bytes(size)?, offset)?)
    })
}

/// Writes at an offset, or at the end of a file opened with O_APPEND, and returns the number of bytes: less
/// than `size` only before an error, which the next call returns.
#[unsafe(no_mangle)]
pub extern "C" fn tl_pwrite(
    file: Option<&tl_file>,
    data: Memory<'_>,
    size: usize,
    offset: u64,
) -> i64 {
    run(|| {
        let file = given(file)?;
        counted(file.0.write_at(data.bytes(size)?, offset)?)
    })
}

fn counted(bytes: usize) -> Result<i64, Failure> {
    i64::try_from(bytes).map_err(|_| Failure::new(Errno::OVERFLOW, "too many bytes"))
}

/// Returns when data and metadata of the file survive a crash.
#[unsafe(no_mangle)]
pub extern "C" fn tl_fsync(file: Option<&tl_file>) -> c_int {
    done(|| Ok(given(file)?.0.sync_all()?))
}

/// Returns when the data of the file survives a crash, and what is needed to read it.
#[unsafe(no_mangle)]
pub extern "C" fn tl_fdatasync(file: Option<&tl_file>) -> c_int {
    done(|| Ok(given(file)?.0.sync_data()?))
}

/// Sets the length.
#[unsafe(no_mangle)]
pub extern "C" fn tl_ftruncate(file: Option<&tl_file>, size: u64) -> c_int {
    done(|| Ok(given(file)?.0.set_len(size)?))
}

/// Allocates, punches a hole, zeroes, collapses or inserts a range, by the flags of fallocate(2).
#[unsafe(no_mangle)]
pub extern "C" fn tl_fallocate(
    file: Option<&tl_file>,
    mode: c_int,
    offset: u64,
    size: u64,
) -> c_int {
    done(|| {
        let unknown = || Failure::new(Errno::OPNOTSUPP, "unknown flags of tl_fallocate");
        let mode = Fallocate::of_flags(mode.cast_unsigned()).ok_or_else(unknown)?;
        Ok(given(file)?.0.allocate(mode, offset, size)?)
    })
}

/// The metadata of an open file, which may have lost its name.
#[unsafe(no_mangle)]
pub extern "C" fn tl_fstat(
    file: Option<&tl_file>,
    stat: Option<&mut MaybeUninit<tl_stat>>,
) -> c_int {
    done(|| {
        let meta = given(file)?.0.metadata()?;
        given(stat)?.write(tl_stat::of(&meta));
        Ok(())
    })
}

/// The offset of the first data at or after an offset, as of lseek(2) with SEEK_DATA; `-ENXIO` if there is
/// none.
#[unsafe(no_mangle)]
pub extern "C" fn tl_seek_data(file: Option<&tl_file>, offset: u64) -> i64 {
    run(|| found(given(file)?.0.seek_data(offset)?))
}

/// The offset of the first hole at or after an offset, as of lseek(2) with SEEK_HOLE: the end of the file
/// counts. `-ENXIO` past it.
#[unsafe(no_mangle)]
pub extern "C" fn tl_seek_hole(file: Option<&tl_file>, offset: u64) -> i64 {
    run(|| found(given(file)?.0.seek_hole(offset)?))
}

fn found(offset: Option<u64>) -> Result<i64, Failure> {
    let none = || Failure::new(Errno::NXIO, "no data, or no hole, from there on");
    let offset = offset.ok_or_else(none)?;
    i64::try_from(offset).map_err(|_| Failure::new(Errno::OVERFLOW, "an offset above 2^63"))
}
