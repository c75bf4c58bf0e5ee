//! A whole image: the volume, and what is around it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use throughline_block::Disk;
use throughline_device::{
    BlockDevice, EngineChoice, LockMode, NewFile, OffsetDevice, OpenOptions, directory_of,
};
use throughline_extfmt::verity::BLOCK_BYTES;

use super::frame::{self, Frame, HashTree};
use super::options::{PackOptions, open};
use super::planned::PackedPartition;
use super::size::Sized;
use super::verity::{self, Verity};
use crate::error::{Error, Result};
use crate::options::MkfsOptions;
use crate::plan::Plan;
use crate::request::Request;
use crate::write::Clear;

/// A whole image that is written, and has no name yet.
pub(super) struct Written<'w> {
    pub(super) plan: Plan<'w>,
    pub(super) request: Request,
    pub(super) verity: Option<Verity>,
    /// The file of the hash tree, if it is not in the image.
    pub(super) hashes: Option<NewFile>,
}

impl PackOptions {
    /// Writes a whole image into a new, empty file. Returns what its volume became.
    pub(super) fn write_image<'w>(
        &self,
        image: &Path,
        sized: &'w Sized<'w>,
        frame: &Frame,
        options: &MkfsOptions,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Written<'w>> {
        let disk = create(image, sized, frame)?;
        let (plan, request) = self.write(sized, options, &disk, Clear::New, progress)?;
        drop(disk);
        let mut written = Written {
            plan,
            request,
            verity: None,
            hashes: None,
        };
        self.write_hashes(image, frame, &sized.measured.walk.digest, &mut written)?;
        if let Some(table) = self.around.table {
            let request = &written.request;
            let places = PackedPartition::of(frame, &request.uuid);
            frame::write_table(image, frame, table, &request.label, &places)?;
        }
        Ok(written)
    }

    /// Makes the hash tree of a volume that is written, if one is asked for.
    fn write_hashes(
        &self,
        image: &Path,
        frame: &Frame,
        digest: &[u8; 32],
        written: &mut Written<'_>,
    ) -> Result<()> {
        let hash_offset = match &self.around.hashes {
            None => return Ok(()),
            Some(HashTree::Appended) => frame.hashed,
            Some(HashTree::File(path)) => {
                written.hashes = Some(new_file(path)?);
                0
            }
        };
        let uuid = &written.request.uuid;
        let request = verity::Request {
            salt: sum(&[b"verity salt", uuid, digest]),
            uuid: derived(&[b"verity UUID", uuid, digest]),
            data_at: frame.start,
            data_bytes: frame.hashed,
            hash_at: match written.hashes {
                Some(_) => 0,
                None => frame.start + hash_offset,
            },
        };
        let hashes = written.hashes.as_ref().map_or(image, NewFile::path);
        let made = verity::write(image, hashes, &request);
        let root_hash = made.map_err(|error| match (error, &self.around.hashes) {
            // Not the path of a file that has no name yet.
            (Error::Open { path, source }, Some(HashTree::File(named))) if path == hashes => {
                Error::Open {
                    path: named.clone(),
                    source,
                }
            }
            (other, _) => other,
        })?;
        written.verity = Some(Verity {
            root_hash,
            salt: request.salt,
            data_blocks: request.data_bytes / BLOCK_BYTES,
            hash_offset,
        });
        Ok(())
    }
}

/// Opens a new file for the image: the part of it that is the volume.
fn create(path: &Path, sized: &Sized<'_>, frame: &Frame) -> Result<Disk> {
    let disk = open(path, sized.request.block_bytes)?;
    disk.set_len(frame.total).map_err(|error| match error {
        throughline_block::Error::Device { source, .. }
            if source.kind() == std::io::ErrorKind::FileTooLarge =>
        {
            Error::invalid(format!(
                "an image of {} bytes is larger than the host's file system lets a file be",
                frame.total
            ))
        }
        other => other.into(),
    })?;
    if (frame.start, frame.volume) == (0, frame.total) {
        return Ok(disk);
    }
    let inner = OffsetDevice::new(Arc::clone(disk.device()), frame.start, Some(frame.volume));
    let inner = inner.map_err(Error::open(path))?;
    Ok(Disk::new(Arc::new(inner))?)
}

/// A new file in the directory of a path.
pub(super) fn new_file(path: &Path) -> Result<NewFile> {
    NewFile::new(path).map_err(Error::open(path))
}

/// Locks the file that will be replaced, if there is one and as long as the result lasts: who has it open
/// would go on writing to a file without a name.
///
/// # Errors
/// [`Error::Open`] if it is in use.
pub(super) fn hold(path: &Path) -> Result<Option<Arc<dyn BlockDevice>>> {
    if !path.metadata().is_ok_and(|found| found.len() > 0) {
        return Ok(None);
    }
    let open = || {
        let options = OpenOptions::new().direct(false);
        options.engine(EngineChoice::Threads)
    };
    let held = open().write(true).lock(LockMode::Exclusive).open(path);
    let held = match held {
        // What may not be written may be replaced.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            open().lock(LockMode::Shared).open(path)
        }
        held => held,
    };
    held.map(Some).map_err(Error::open(path))
}

/// Gives a file its name, durably.
pub(super) fn persist(file: NewFile, path: &Path, overwrite: bool) -> Result<()> {
    let named = file.persist(path, overwrite).and_then(|()| {
        let directory = File::open(directory_of(path))?;
        directory.sync_all()
    });
    named.map_err(Error::open(path))
}

/// The GUIDs of a disk and of its partition.
pub(super) fn guids(uuid: &[u8; 16]) -> [[u8; 16]; 2] {
    [b"disk GUID".as_slice(), b"partition GUID"].map(|what| derived(&[what, uuid]))
}

/// 32 bytes that follow from others.
fn sum(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// 16 bytes that follow from others, as a UUID.
pub(super) fn derived(parts: &[&[u8]]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&sum(parts)[..16]);
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .into_bytes()
}
