//! Opens the quota files of a volume that is about to be written.

use throughline_extfmt::FileBlock;
use throughline_extfmt::FsBlock;
use throughline_extfmt::Superblock;
use throughline_extfmt::features::RoCompat;
use throughline_extfmt::inode::FileType;
use throughline_extfmt::quota::{QuotaHeader, QuotaKind};

use super::file::QuotaFile;
use crate::error::{Error, Reason, Result};
use crate::inode::Inodes;
use crate::map;

/// Upper limit for the blocks of a quota file: entries of more than ten million owners.
pub(super) const MAX_BLOCKS: u64 = 1 << 20;

/// Starts to keep usage, if the volume has quota files. Before the first change.
///
/// # Errors
/// `Corrupt` for a file with holes, with an invalid size, or with a damaged header: as in the kernel, such a
/// volume can only be read until `e2fsck` has repaired it. Device errors.
pub(crate) fn start(fs: &Inodes) -> Result<()> {
    let sb = fs.superblock();
    check_limits(fs, &sb)?;
    if !sb.ro_compat().contains(RoCompat::QUOTA) {
        return Ok(());
    }
    for kind in QuotaKind::ALL {
        // Without the feature, inodes have no project.
        let has_kind = kind != QuotaKind::Project || sb.ro_compat().contains(RoCompat::PROJECT);
        if has_kind && kind.inode(&sb).is_some() {
            fs.quotas.start(open(fs, kind)?);
        }
    }
    Ok(())
}

/// Whether the volume has what is needed to enforce the limits that were asked for.
fn check_limits(fs: &Inodes, sb: &Superblock) -> Result<()> {
    let has_feature = sb.ro_compat().contains(RoCompat::QUOTA);
    for kind in fs.quotas.limited() {
        if !has_feature || kind.inode(sb).is_none() {
            let name = kind.name();
            return Err(Error::Unsupported(format!(
                "limits of {name}s: the volume does not keep their usage (tune2fs -O quota adds that)"
            )));
        }
    }
    Ok(())
}

fn open(fs: &Inodes, kind: QuotaKind) -> Result<QuotaFile> {
    let ino = kind.inode(&fs.superblock()).unwrap_or_default();
    let corrupt = |what: String| {
        let what = format!("the quota file of {}s: {what}", kind.name());
        Error::corrupt(what).in_inode(ino)
    };
    let file = match fs.inode(ino) {
        Err(Error::Caller(Reason::NotFound)) => return Err(corrupt("a free inode".into())),
        other => other.map_err(|e| e.in_inode(ino))?,
    };
    if file.kind != Some(FileType::Regular) {
        return Err(corrupt("not a regular file".into()));
    }
    let bytes = file.raw.read().size_bytes(&fs.geo)?;
    let count = bytes.div_ceil(fs.geo.block_bytes.into());
    if count > MAX_BLOCKS {
        return Err(corrupt(format!("{count} blocks, over {MAX_BLOCKS}")));
    }
    let mut blocks = Vec::new();
    while (blocks.len() as u64) < count {
        let at = FileBlock(blocks.len() as u32);
        let left = count as u32 - at.0;
        let (first, len) = map::lookup_block_run(fs, &file, at, left)?
            .ok_or_else(|| corrupt(format!("block {at} is a hole")))?;
        fs.check_data_range(first, len.into())
            .map_err(|e| e.in_inode(ino))?;
        blocks.extend((first.0..first.0.saturating_add(len.into())).map(FsBlock));
    }
    let Some(first) = blocks.first().copied() else {
        return Err(corrupt("it is empty".into()));
    };
    let header = fs
        .read(first)
        .and_then(|block| Ok(QuotaHeader::read(&block, kind, bytes)?))
        .map_err(|e| e.in_inode(ino).in_block(first))?;
    Ok(QuotaFile::new(
        kind,
        ino,
        fs.geo.block_bytes,
        blocks,
        header,
    ))
}
