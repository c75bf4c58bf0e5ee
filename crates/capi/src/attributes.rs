//! Metadata by path, and extended attributes.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use throughline::{Attributes, XattrMode, Xattrs};

use crate::failure::{Failure, done, run};
use crate::pointers::{Memory, MemoryMut, Text, copied, given};
use crate::stat::{tl_stat, tl_time};
use crate::volume::tl_volume;

/// The metadata of what is at a path. A symbolic link is followed if `follow`.
#[unsafe(no_mangle)]
pub extern "C" fn tl_stat_at(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    follow: c_int,
    stat: Option<&mut MaybeUninit<tl_stat>>,
) -> c_int {
    done(|| {
        let volume = given(volume)?;
        let meta = match follow != 0 {
            true => volume.0.metadata(at.path()?)?,
            false => volume.0.symlink_metadata(at.path()?)?,
        };
        given(stat)?.write(tl_stat::of(&meta));
        Ok(())
    })
}

/// Sets the permissions; a symbolic link is followed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_chmod(volume: Option<&tl_volume>, at: Text<'_>, mode: u32) -> c_int {
    done(|| {
        set(
            given(volume)?,
            at.path()?,
            true,
            &Attributes::new().mode(mode),
        )
    })
}

/// Sets user and group; 4294967295 (-1) leaves one as it is. A symbolic link is followed if `follow`.
#[unsafe(no_mangle)]
pub extern "C" fn tl_chown(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    uid: u32,
    gid: u32,
    follow: c_int,
) -> c_int {
    done(|| {
        let mut wanted = Attributes::new();
        if uid != u32::MAX {
            wanted = wanted.uid(uid);
        }
        if gid != u32::MAX {
            wanted = wanted.gid(gid);
        }
        set(given(volume)?, at.path()?, follow != 0, &wanted)
    })
}

/// Sets the times of the last read and of the last change of the contents; NULL: now. A symbolic link is
/// followed if `follow`.
#[unsafe(no_mangle)]
pub extern "C" fn tl_utimes(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    atime: Option<&tl_time>,
    mtime: Option<&tl_time>,
    follow: c_int,
) -> c_int {
    done(|| {
        let wanted = Attributes::new();
        let wanted = match atime {
            Some(time) => wanted.accessed(time.to_system()?),
            None => wanted.accessed_now(),
        };
        let wanted = match mtime {
            Some(time) => wanted.modified(time.to_system()?),
            None => wanted.modified_now(),
        };
        set(given(volume)?, at.path()?, follow != 0, &wanted)
    })
}

fn set(volume: &tl_volume, at: &Path, follow: bool, wanted: &Attributes) -> Result<(), Failure> {
    match follow {
        true => volume.0.set_attributes(at, wanted)?,
        false => volume.0.set_symlink_attributes(at, wanted)?,
    }
    Ok(())
}

/// Those of what is at a path; a symbolic link is followed, as by getxattr(2).
fn xattrs(volume: Option<&tl_volume>, at: &Text<'_>) -> Result<Xattrs, Failure> {
    Ok(given(volume)?.0.xattrs(at.path()?)?)
}

/// Copies the value of an extended attribute, and returns its length; `size` 0 asks only for that. `-ERANGE`
/// if it is longer than `size`, `-ENODATA` if there is none. A symbolic link is followed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_getxattr(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    name: Text<'_>,
    value: MemoryMut<'_>,
    size: usize,
) -> i64 {
    run(|| {
        let found = xattrs(volume, &at)?.get(name.bytes()?)?;
        let none = || Failure::new(Errno::NODATA, "no such attribute");
        copied(&found.ok_or_else(none)?, value, size)
    })
}

/// Sets an extended attribute. With `flags` 0 it may exist; XATTR_CREATE and XATTR_REPLACE are those of
/// setxattr(2). A symbolic link is followed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_setxattr(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    name: Text<'_>,
    value: Memory<'_>,
    size: usize,
    flags: u32,
) -> c_int {
    done(|| {
        let mode = match XattrFlags::from_bits(flags) {
            Some(flags) if flags.is_empty() => XattrMode::Either,
            Some(XattrFlags::CREATE) => XattrMode::Create,
            Some(XattrFlags::REPLACE) => XattrMode::Replace,
            _ => return Err(Failure::invalid("unknown flags of tl_setxattr")),
        };
        Ok(xattrs(volume, &at)?.set_with(name.bytes()?, value.bytes(size)?, mode)?)
    })
}

/// Removes an extended attribute. A symbolic link is followed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_removexattr(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    name: Text<'_>,
) -> c_int {
    done(|| Ok(xattrs(volume, &at)?.remove(name.bytes()?)?))
}

/// Copies the names of all extended attributes, each with a NUL byte at its end, and returns their length;
/// `size` 0 asks only for that. `-ERANGE` if they are longer than `size`. A symbolic link is followed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_listxattr(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    names: MemoryMut<'_>,
    size: usize,
) -> i64 {
    run(|| {
        let mut found = Vec::new();
        for name in xattrs(volume, &at)?.names()? {
            found.extend(name);
            found.push(0);
        }
        copied(&found, names, size)
    })
}
