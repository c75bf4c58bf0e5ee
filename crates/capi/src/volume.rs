//! Volumes: opening, closing, and calls of the whole volume.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use throughline::{OpenOptions, Volume};

use crate::failure::{done, run};
use crate::options::tl_options;
use crate::pointers::{MemoryMut, Text, copied, given};

/// An open volume. Any number of threads may use it at once.
pub struct tl_volume(pub(crate) Volume);

/// Space of a volume, as of statvfs(3).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct tl_space {
    /// Size of a block in bytes.
    pub block_size: u64,
    /// Blocks that files can use.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks without reserved ones.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// The longest name in bytes.
    pub name_max: u64,
    /// The UUID.
    pub uuid: [u8; 16],
}

/// Opens the volume in an image: for reading, if `options` is NULL. An image is open either for any number of
/// readers, or for one writer: else it is `-EAGAIN` or `-EBUSY`. Close it with tl_close.
#[unsafe(no_mangle)]
pub extern "C" fn tl_open(
    image: Text<'_>,
    options: Option<&tl_options>,
    volume: Option<&mut MaybeUninit<Box<tl_volume>>>,
) -> c_int {
    done(|| {
        let volume = given(volume)?;
        let open = options.map_or_else(OpenOptions::new, tl_options::to_open);
        let opened = open.open(image.path()?)?;
        volume.write(Box::new(tl_volume(opened)));
        Ok(())
    })
}

/// Makes all durable, and closes a volume; NULL is ignored. Whatever is returned, the handle must not be used
/// again. Close files and directories of the volume before: else it is `-EBUSY`, all is durable, and the
/// volume is closed with the last of them.
#[unsafe(no_mangle)]
pub extern "C" fn tl_close(volume: Option<Box<tl_volume>>) -> c_int {
    done(|| match volume {
        Some(volume) => Ok(volume.0.close()?),
        None => Ok(()),
    })
}

/// Returns when all that was changed before survives a crash.
#[unsafe(no_mangle)]
pub extern "C" fn tl_sync(volume: Option<&tl_volume>) -> c_int {
    done(|| Ok(given(volume)?.0.sync()?))
}

/// The space of a volume.
#[unsafe(no_mangle)]
pub extern "C" fn tl_statvfs(
    volume: Option<&tl_volume>,
    space: Option<&mut MaybeUninit<tl_space>>,
) -> c_int {
    done(|| {
        let found = given(volume)?.0.stat_fs()?;
        given(space)?.write(tl_space {
            block_size: found.block_bytes.into(),
            blocks: found.blocks,
            free_blocks: found.free_blocks,
            available_blocks: found.available_blocks,
            inodes: found.inodes.into(),
            free_inodes: found.free_inodes.into(),
            name_max: found.name_max.into(),
            uuid: found.uuid,
        });
        Ok(())
    })
}

/// Copies the label, without a NUL byte at its end, and returns its length, which is at most 16; `size` 0
/// asks only for that. `-ERANGE` if it is longer than `size`.
#[unsafe(no_mangle)]
pub extern "C" fn tl_label(volume: Option<&tl_volume>, label: MemoryMut<'_>, size: usize) -> i64 {
    run(|| copied(&given(volume)?.0.label(), label, size))
}

/// Sets the label: at most 16 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn tl_set_label(volume: Option<&tl_volume>, label: Text<'_>) -> c_int {
    done(|| Ok(given(volume)?.0.set_label(label.bytes()?)?))
}

/// 1 if the volume cannot be written to, or not any more after a failure; else 0.
#[unsafe(no_mangle)]
pub extern "C" fn tl_is_read_only(volume: Option<&tl_volume>) -> c_int {
    let answer = run(|| {
        let volume = &given(volume)?.0;
        Ok((volume.is_read_only() || volume.stopped().is_some()).into())
    });
    c_int::try_from(answer).unwrap_or_default()
}
