//! The header of a qcow2 image, as far as it decides whether the image may be opened.
//!
//! By QEMU's specification, `docs/interop/qcow2.txt`. Numbers are big-endian.

use std::io;

use crate::source::{ReadAt, read};
use crate::virtual_disk::unsupported;

/// The length of the header of version 2, and of the fixed part of version 3.
const HEADER_BYTES: usize = 104;

/// Reference counts may be wrong: a writer with lazy ones has crashed.
const DIRTY: u64 = 1 << 0;
/// Something has found the image to be damaged.
const CORRUPT: u64 = 1 << 1;
/// The data is in another file.
const DATA_FILE: u64 = 1 << 2;
/// Clusters are compressed otherwise than by deflate.
const COMPRESSION: u64 = 1 << 3;
/// Clusters have parts that are allocated one by one.
const SUBCLUSTERS: u64 = 1 << 4;

/// See the head of this file.
pub(crate) struct Header {
    version: u32,
    pub(crate) cluster_bits: u32,
    pub(crate) l1_entries: u32,
    pub(crate) l1_offset: u64,
    pub(crate) refcount_table_offset: u64,
    pub(crate) refcount_table_clusters: u32,
    /// The logarithm of the bits of a reference count.
    pub(crate) refcount_order: u32,
    /// The number of snapshots.
    pub(crate) snapshots: u32,
    pub(crate) snapshots_offset: u64,
    encryption: u32,
    incompatible: u64,
}

impl Header {
    /// # Errors
    /// Of the device.
    pub(crate) fn read(file: &impl ReadAt) -> io::Result<Header> {
        let bytes: [u8; HEADER_BYTES] = match read(file, 0)? {
            Some(bytes) => bytes,
            // Version 2 may be as short as 72 bytes.
            None => {
                let mut bytes = [0; HEADER_BYTES];
                let short: [u8; 72] = read(file, 0)?.unwrap_or([0; 72]);
                bytes[..72].copy_from_slice(&short);
                bytes
            }
        };
        let word = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).copied();
        let number = |at| u32::from_be_bytes(word(at).unwrap_or_default());
        let version = number(4);
        let long =
            |at: usize| u64::from(number(at)) << 32 | u64::from(number(at.saturating_add(4)));
        Ok(Header {
            version,
            cluster_bits: number(20),
            l1_entries: number(36),
            l1_offset: long(40),
            refcount_table_offset: long(48),
            refcount_table_clusters: number(56),
            refcount_order: if version >= 3 { number(96) } else { 4 },
            snapshots: number(60),
            snapshots_offset: long(64),
            encryption: number(32),
            incompatible: if version >= 3 { long(72) } else { 0 },
        })
    }

    /// The size of a cluster; that it is one is checked when the image is opened.
    pub(crate) fn cluster_bytes(&self) -> u64 {
        1_u64.checked_shl(self.cluster_bits).unwrap_or(1)
    }

    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for what is not supported.
    pub(crate) fn check(&self) -> io::Result<()> {
        const REASONS: [(u64, &str); 5] = [
            (
                DIRTY,
                "a qcow2 image with lazy reference counts that was not closed: 'qemu-img check -r all' \
                 mends it",
            ),
            (
                CORRUPT,
                "a qcow2 image that is marked as corrupt: 'qemu-img check -r all' mends it",
            ),
            (DATA_FILE, "a qcow2 image with its data in another file"),
            (
                COMPRESSION,
                "a qcow2 image that is compressed by zstd: 'qemu-img convert -O qcow2' makes one that is not",
            ),
            (
                SUBCLUSTERS,
                "a qcow2 image with extended L2 entries: 'qemu-img convert -O qcow2' makes one without",
            ),
        ];
        if !(2..=3).contains(&self.version) {
            return Err(unsupported(format!("qcow2 of version {}", self.version)));
        }
        if self.encryption != 0 {
            return Err(unsupported("an encrypted qcow2 image"));
        }
        let mut reasons = REASONS.iter();
        match reasons.find(|(flag, _)| self.incompatible & flag != 0) {
            Some((_, why)) => Err(unsupported(*why)),
            None if self.incompatible != 0 => Err(unsupported(format!(
                "a qcow2 image with unknown features ({:#x})",
                self.incompatible
            ))),
            None => Ok(()),
        }
    }
}
