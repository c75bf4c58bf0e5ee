//! Making an image.

use std::io;

use super::broken;
use super::cluster::{Clusters, long};
use super::header::{NewBacking, NewHeader};
use crate::store::Store;

/// The logarithm of the size of the clusters of a new image: QEMU's default.
const CLUSTER_BITS: u32 = 16;
/// The longest L1 table: QEMU's limit.
const MAX_L1_BYTES: u64 = 32 << 20;

/// Makes an empty image of a disk of `len_bytes` in an empty file, over a base if there is one, by its name
/// and its format. It is on the disk when this returns.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it would be too large, or the name is too long; of the device.
pub(crate) fn create(
    file: &dyn Store,
    len_bytes: u64,
    backing: Option<NewBacking<'_>>,
) -> io::Result<()> {
    let clusters = Clusters::new(CLUSTER_BITS, 3)?;
    let covered = long(clusters.entries()).saturating_mul(clusters.bytes());
    let l1_entries = len_bytes.div_ceil(covered);
    let l1_bytes = l1_entries.saturating_mul(8);
    if l1_bytes > MAX_L1_BYTES {
        let why = "a disk of that size does not fit into a qcow2 image";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // The header, the table of counts, a block of them, the L1 table.
    let [table, block, l1] = [1, 2, 3].map(|number| clusters.start(number));
    let header = NewHeader {
        cluster_bits: CLUSTER_BITS,
        len_bytes,
        l1_entries: u32::try_from(l1_entries).map_err(|_| broken("its L1 table is too long"))?,
        l1_offset: l1,
        refcount_table_offset: table,
        backing,
    };
    let used = l1_bytes.div_ceil(clusters.bytes()).max(1).saturating_add(3);
    let mut counts = Vec::new();
    for _ in 0..used {
        counts.extend(1_u16.to_be_bytes());
    }
    counts.resize(clusters.len(), 0);
    let end = clusters.start(used);
    file.write_all_at(&[0], end.saturating_sub(1))?;
    file.write_all_at(&counts, block)?;
    file.write_all_at(&block.to_be_bytes(), table)?;
    // What is not finished is not taken for an image.
    file.sync()?;
    file.write_all_at(&header.bytes()?, 0)?;
    file.sync()
}
