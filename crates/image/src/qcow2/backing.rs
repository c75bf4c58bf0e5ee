//! Changing the name of the backing file.

use std::io;

use super::cluster::{long, size};
use super::header::{Header, put_extension};
use crate::store::Store;
use crate::virtual_disk::unsupported;

/// What a disk writes as a whole.
const SECTOR_BYTES: usize = 512;
/// Where a name is that does not fit into the first sector: where the one before is not.
const PLACES: [u64; 2] = [512, 2048];

/// The image has the backing file of this name and format from now on. A power cut leaves the old or the new
/// one: what refers to a name is in the first sector, and a name behind it is on the disk before.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] for an image with snapshots, or with extensions that are not known here;
/// [`io::ErrorKind::InvalidInput`] if the name is too long; of the device.
pub(crate) fn set_backing(file: &dyn Store, name: &str, format: &str) -> io::Result<()> {
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
    put_extension(&mut first, super::header::BACKING_FORMAT, format.as_bytes());
    put_extension(&mut first, super::header::END, &[]);
    if first.len() > SECTOR_BYTES {
        return Err(unsupported("a qcow2 image with so long a header"));
    }
    let name_bytes = u32::try_from(name.len()).unwrap_or(u32::MAX);
    let place = match first.len().saturating_add(name.len()) <= SECTOR_BYTES {
        true => long(first.len()),
        false => {
            let mut places = PLACES.into_iter();
            let is_free = |at: &u64| {
                let end = at.saturating_add(name_bytes.into());
                end <= old_at || old_at.saturating_add(old_bytes.into()) <= *at
            };
            places.find(is_free).unwrap_or(u64::MAX)
        }
    };
    if name_bytes > 1023 || place.saturating_add(name_bytes.into()) > header.cluster_bytes() {
        let why = "the name of the base is too long for this image";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if place == long(first.len()) {
        first.extend(name.as_bytes());
    } else {
        file.write_all_at(name.as_bytes(), place)?;
        file.sync()?;
    }
    first.resize(SECTOR_BYTES, 0);
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(there) = first.get_mut(at..at.saturating_add(bytes.len())) {
            there.copy_from_slice(bytes);
        }
    };
    put(8, &place.to_be_bytes());
    put(16, &name_bytes.to_be_bytes());
    file.write_all_at(&first, 0)?;
    file.sync()
}
