//! New volumes: empty ones, and with the files of a directory or archive.

use std::ffi::c_int;

use throughline::archive::{Limits, Merge};
use throughline::pack::{PackOptions, PackSize};
use throughline::{MkfsError, MkfsOptions, VolumeSize};

use crate::failure::{Failure, done, freed};
use crate::pointers::{Memory, Text, given};
use crate::stat::tl_time;

/// Options of tl_mkfs and tl_pack. Only one thread may use them at a time.
#[derive(Clone, Default)]
pub struct tl_mkfs_options {
    mkfs: MkfsOptions,
    overwrite: bool,
}

fn set(
    options: Option<&mut tl_mkfs_options>,
    change: impl FnOnce(&mut MkfsOptions) -> Result<&mut MkfsOptions, Failure>,
) -> c_int {
    done(|| change(&mut given(options)?.mkfs).map(drop))
}

/// New options: those of mke2fs for an ext4 volume. Free them with tl_mkfs_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_new() -> Box<tl_mkfs_options> {
    Box::default()
}

/// Frees options; NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_free(options: Option<Box<tl_mkfs_options>>) {
    freed(options);
}

/// "ext2", "ext3", "ext4", or a type of mke2fs.conf: mke2fs -t.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_type(
    options: Option<&mut tl_mkfs_options>,
    name: Text<'_>,
) -> c_int {
    set(options, |options| Ok(options.fs_type(name.words()?)))
}

/// What the volume is for, such as "largefile": mke2fs -T.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_usage(
    options: Option<&mut tl_mkfs_options>,
    names: Text<'_>,
) -> c_int {
    set(options, |options| Ok(options.usage(names.words()?)))
}

/// Bytes of a block: a power of two from 1024 to 65536; the kernel mounts up to 4096. mke2fs -b.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_block_size(
    options: Option<&mut tl_mkfs_options>,
    bytes: u32,
) -> c_int {
    set(options, |options| Ok(options.block_bytes(bytes)))
}

/// Bytes of an inode: mke2fs -I.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_inode_size(
    options: Option<&mut tl_mkfs_options>,
    bytes: u32,
) -> c_int {
    set(options, |options| Ok(options.inode_bytes(bytes)))
}

/// The least number of inodes: mke2fs -N.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_inodes(
    options: Option<&mut tl_mkfs_options>,
    count: u64,
) -> c_int {
    set(options, |options| Ok(options.inodes(count)))
}

/// Percent of the blocks that are kept for root, 0 to 50: mke2fs -m.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_reserved(
    options: Option<&mut tl_mkfs_options>,
    percent: f64,
) -> c_int {
    set(options, |options| Ok(options.reserved_percent(percent)))
}

/// The label, at most 16 bytes: mke2fs -L.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_label(
    options: Option<&mut tl_mkfs_options>,
    label: Text<'_>,
) -> c_int {
    set(options, |options| Ok(options.label(label.bytes()?)))
}

/// The UUID, 16 bytes, instead of a random one: mke2fs -U.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_uuid(
    options: Option<&mut tl_mkfs_options>,
    uuid: Memory<'_>,
) -> c_int {
    set(options, |options| {
        let sixteen = |_| Failure::invalid("a UUID has 16 bytes");
        Ok(options.uuid(uuid.bytes(16)?.try_into().map_err(sixteen)?))
    })
}

/// Features, separated by commas; with ^, those that are left out: mke2fs -O.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_features(
    options: Option<&mut tl_mkfs_options>,
    list: Text<'_>,
) -> c_int {
    set(options, |options| Ok(options.features(list.words()?)?))
}

/// The journal, such as "size=64": mke2fs -J.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_journal(
    options: Option<&mut tl_mkfs_options>,
    list: Text<'_>,
) -> c_int {
    set(options, |options| {
        Ok(options.journal_options(list.words()?)?)
    })
}

/// Extended options, such as "lazy_itable_init=0": mke2fs -E.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_extended(
    options: Option<&mut tl_mkfs_options>,
    list: Text<'_>,
) -> c_int {
    set(options, |options| Ok(options.extended(list.words()?)?))
}

/// The time of the making, instead of now.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_time(
    options: Option<&mut tl_mkfs_options>,
    time: Option<&tl_time>,
) -> c_int {
    set(options, |options| {
        Ok(options.time(given(time)?.to_system()?))
    })
}

/// Whether the UUID and the seed of hashes that are not given follow from all else: the same bytes each time,
/// with the time given, too.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_reproducible(
    options: Option<&mut tl_mkfs_options>,
    reproducible: c_int,
) -> c_int {
    set(options, |options| {
        Ok(options.reproducible(reproducible != 0))
    })
}

/// Whether the target may hold anything that is lost: mke2fs -F.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs_options_overwrite(
    options: Option<&mut tl_mkfs_options>,
    overwrite: c_int,
) -> c_int {
    done(|| {
        let options = given(options)?;
        options.overwrite = overwrite != 0;
        options.mkfs.overwrite(options.overwrite);
        Ok(())
    })
}

/// Makes a volume of so many bytes in a file, which is created, or on a block device; `size` 0: as large as
/// the file or device is. `options` may be NULL. `-EEXIST` if the target holds something, unless it may be
/// overwritten.
#[unsafe(no_mangle)]
pub extern "C" fn tl_mkfs(image: Text<'_>, size: u64, options: Option<&tl_mkfs_options>) -> c_int {
    done(|| {
        let mut options = options.cloned().unwrap_or_default().mkfs;
        if size > 0 {
            options.size(VolumeSize::Bytes(size));
        }
        options.make(image.path()?)?;
        Ok(())
    })
}

/// Makes a volume with the files of a directory, an archive (tar, also compressed), or an image of
/// containers. `size` in bytes; 0: as small as it can be. No time in it is later than `epoch`, unless that is
/// NULL, and the same files give the same bytes. `options` may be NULL. `-EEXIST` as of tl_mkfs.
#[unsafe(no_mangle)]
pub extern "C" fn tl_pack(
    source: Text<'_>,
    image: Text<'_>,
    size: u64,
    epoch: Option<&tl_time>,
    options: Option<&tl_mkfs_options>,
) -> c_int {
    done(|| {
        let tl_mkfs_options { mkfs, overwrite } = options.cloned().unwrap_or_default();
        let image = image.path()?;
        let mut options = PackOptions::new();
        options.mkfs(mkfs).overwrite(overwrite);
        options.size(match size {
            0 => PackSize::Min,
            bytes => PackSize::Exact(bytes),
        });
        if let Some(time) = epoch {
            options.epoch(time.to_system()?);
        }
        options.check_options()?;
        let mut merge = Merge::new(Limits::default());
        if let Ok(before) = image.metadata() {
            merge.leave_out(&before);
        }
        merge.add(source.path()?).map_err(MkfsError::from)?;
        let (tree, contents) = merge.finish();
        options.pack(&tree, &contents, image)?;
        Ok(())
    })
}
