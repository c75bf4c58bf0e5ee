//! Calls by path that change names.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::RenameFlags;
use throughline::{Attributes, DeviceNumber, DirBuilder, NewNode, RenameMode};

use crate::failure::{Failure, done, run};
use crate::pointers::{MemoryMut, Text, copied, given};
use crate::volume::tl_volume;

/// Makes a directory with these permissions.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkdir(volume: Option<&tl_volume>, at: Text<'_>, mode: u32) -> c_int {
    done(|| {
        let mut builder = DirBuilder::new();
        builder.attributes(Attributes::new().mode(mode));
        builder.create(&given(volume)?.0, at.path()?)?;
        Ok(())
    })
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub extern "C" fn tl_rmdir(volume: Option<&tl_volume>, at: Text<'_>) -> c_int {
    done(|| Ok(given(volume)?.0.remove_dir(at.path()?)?))
}

/// Removes the name of anything but a directory.
#[unsafe(no_mangle)]
pub extern "C" fn tl_unlink(volume: Option<&tl_volume>, at: Text<'_>) -> c_int {
    done(|| Ok(given(volume)?.0.remove_file(at.path()?)?))
}

/// Removes a directory and all below it.
#[unsafe(no_mangle)]
pub extern "C" fn tl_rmtree(volume: Option<&tl_volume>, at: Text<'_>) -> c_int {
    done(|| Ok(given(volume)?.0.remove_dir_all(at.path()?)?))
}

/// Renames, atomically, also over a crash. With `flags` 0, a file or an empty directory at the new name is
/// replaced; RENAME_NOREPLACE and RENAME_EXCHANGE are those of renameat2(2).
#[unsafe(no_mangle)]
pub extern "C" fn tl_rename(
    volume: Option<&tl_volume>,
    from: Text<'_>,
    to: Text<'_>,
    flags: u32,
) -> c_int {
    done(|| {
        let mode = match RenameFlags::from_bits(flags) {
            Some(flags) if flags.is_empty() => RenameMode::Replace,
            Some(RenameFlags::NOREPLACE) => RenameMode::NoReplace,
            Some(RenameFlags::EXCHANGE) => RenameMode::Exchange,
            _ => return Err(Failure::invalid("unknown flags of tl_rename")),
        };
        let volume = given(volume)?;
        Ok(volume.0.rename_with(from.path()?, to.path()?, mode)?)
    })
}

/// Makes a hard link. A symbolic link is linked itself.
#[unsafe(no_mangle)]
pub extern "C" fn tl_link(volume: Option<&tl_volume>, from: Text<'_>, to: Text<'_>) -> c_int {
    done(|| Ok(given(volume)?.0.hard_link(from.path()?, to.path()?)?))
}

/// Makes a symbolic link `at` with a target.
#[unsafe(no_mangle)]
pub extern "C" fn tl_symlink(volume: Option<&tl_volume>, target: Text<'_>, at: Text<'_>) -> c_int {
    done(|| Ok(given(volume)?.0.symlink(target.path()?, at.path()?)?))
}

/// Makes a named pipe, a socket or a device node, by the type in `mode` (S_IFIFO, S_IFSOCK, S_IFCHR,
/// S_IFBLK), which has the permissions, too.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mknod(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    mode: u32,
    major: u32,
    minor: u32,
) -> c_int {
    done(|| {
        let device = DeviceNumber { major, minor };
        let kind = match mode & 0o170_000 {
            0o010_000 => NewNode::Fifo,
            0o140_000 => NewNode::Socket,
            0o020_000 => NewNode::CharDevice(device),
            0o060_000 => NewNode::BlockDevice(device),
            _ => return Err(Failure::invalid("not a type that tl_mknod makes")),
        };
        let attributes = Attributes::new().mode(mode & 0o7777);
        given(volume)?.0.make_node(at.path()?, kind, &attributes)?;
        Ok(())
    })
}

/// Copies the target of a symbolic link, without a NUL byte at its end, and returns its length; `size` 0 asks
/// only for that. `-ERANGE` if it is longer than `size`.
#[unsafe(no_mangle)]
pub extern "C" fn tl_readlink(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    target: MemoryMut<'_>,
    size: usize,
) -> i64 {
    run(|| {
        let found = given(volume)?.0.read_link(at.path()?)?;
        copied(found.as_os_str().as_bytes(), target, size)
    })
}
