//! Changing the name of the backing file.

use std::io;

use super::cluster::{long, size};
use super::header::{Header, NewBacking};
use crate::store::Store;
use crate::virtual_disk::unsupported;

/// What a disk writes as a whole.
const SECTOR_BYTES: usize = 512;
/// Where a name is that does not fit into the first sector: where the one before is not.
const PLACES: [u64; 2] = [512, 2048];

/// The image has this backing file from now on. A power cut leaves the old or the new one: what refers to a
/// name is in the first sector, and a name behind it is on the disk before.
///
/// # Errors
/// As [`check_backing`]; of the device.
pub(crate) fn set_backing(file: &dyn Store, backing: NewBacking<'_>) -> io::Result<()> {
    let Change { mut first, place } = Change::of(file, backing)?;
    if place == long(first.len()) {
        first.extend(backing.name.as_bytes());
    } else {
        file.write_all_at(backing.name.as_bytes(), place)?;
        file.sync()?;
    }
    first.resize(SECTOR_BYTES, 0);
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(there) = first.get_mut(at..at.saturating_add(bytes.len())) {
            there.copy_from_slice(bytes);
        }
    };
    put(8, &place.to_be_bytes());
    put(16, &name_bytes(backing).to_be_bytes());
    file.write_all_at(&first, 0)?;
    file.sync()
}

/// Whether [`set_backing`] can do it. Nothing is written.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] for an image with snapshots, or with extensions that are not known here;
/// [`io::ErrorKind::InvalidInput`] if the name is too long; of the device.
pub(crate) fn check_backing(file: &dyn Store, backing: NewBacking<'_>) -> io::Result<()> {
    Change::of(file, backing).map(drop)
}

/// What is written.
struct Change {
    /// The header with its extensions.
    first: Vec<u8>,
    /// Where the name goes: behind them, or behind the first sector.
    place: u64,
}

impl Change {
    fn of(file: &dyn Store, backing: NewBacking<'_>) -> io::Result<Change> {
        let header = Header::read(file)?;
        if header.has_unknown_parts() {
            return Err(unsupported(
                "changing the backing file of a qcow2 image with unknown extensions: 'qemu-img rebase' does it",
            ));
        }
        if header.snapshots > 0 {
            return Err(unsupported(
                "changing the base of a qcow2 image with snapshots, which would show the new base as well: \
                 'qemu-img snapshot -d' removes them",
            ));
        }
        let mut first = vec![0; SECTOR_BYTES];
        super::read_cut_short(file, &mut first, 0)?;
        let (old_at, old_bytes) = header.backing_place;
        first.truncate(size(header.header_bytes));
        backing.put_extensions(&mut first);
        if first.len() > SECTOR_BYTES {
            return Err(unsupported("a qcow2 image with so long a header"));
        }
        let place = match first.len().saturating_add(backing.name.len()) <= SECTOR_BYTES {
            true => long(first.len()),
            false => {
                let mut places = PLACES.into_iter();
                let is_free = |at: &u64| {
                    let end = at.saturating_add(name_bytes(backing).into());
                    end <= old_at || old_at.saturating_add(old_bytes.into()) <= *at
                };
                places.find(is_free).unwrap_or(u64::MAX)
            }
        };
        let end = place.saturating_add(name_bytes(backing).into());
        if name_bytes(backing) > 1023 || end > header.cluster_bytes() {
            let why = "the name of the base is too long for this image";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Change { first, place })
    }
}

fn name_bytes(backing: NewBacking<'_>) -> u32 {
    u32::try_from(backing.name.len()).unwrap_or(u32::MAX)
}
