//! The header of a qcow2 image.
//!
//! It ends with the name of the backing file, which fits into the first cluster. Numbers are big-endian.

use std::io;

use super::broken;
use super::cluster::{Clusters, long, size};
use crate::source::{ReadAt, read};
use crate::virtual_disk::unsupported;

/// The length of the header of version 2.
const SHORT_BYTES: usize = 72;
/// The length of the part of version 3 that is always there, and of the type of compression.
const LONG_BYTES: usize = 105;
/// QEMU's limit for the name of a backing file.
const MAX_NAME_BYTES: u32 = 1023;
/// The most extensions that are looked at.
const MAX_EXTENSIONS: usize = 64;

/// Where the place and the length of the table of reference counts are.
pub(super) const REFCOUNT_TABLE_AT: u64 = 48;
/// Where the features are that a reader must know, and those that a writer clears.
pub(super) const FEATURES_AT: u64 = 72;

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

/// Extensions of the header.
const END: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;
const FEATURE_NAMES: u32 = 0x6803_f857;
/// Ours, which QEMU skips: `TLbv`, the version of the backing file.
const BACKING_VERSION: u32 = 0x544c_6276;
/// Ours as well: `TLbs`, without data. The name of the backing file is a URL, without the query or the
/// password that it had.
const BACKING_SHORTENED: u32 = 0x544c_6273;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Header {
    pub(super) version: u32,
    cluster_bits: u32,
    /// The length of the disk in bytes.
    pub(super) len_bytes: u64,
    pub(super) l1_entries: u32,
    pub(super) l1_offset: u64,
    pub(super) refcount_table_offset: u64,
    pub(super) refcount_table_clusters: u32,
    /// The logarithm of the bits of a reference count.
    pub(super) refcount_order: u32,
    /// The number of snapshots.
    pub(super) snapshots: u32,
    pub(super) snapshots_offset: u64,
    encryption: u32,
    pub(super) incompatible: u64,
    pub(super) compatible: u64,
    pub(super) autoclear: u64,
    compression: u8,
    /// The length of the header without its extensions.
    pub(super) header_bytes: u64,
    /// Where the name of the backing file is, and its length.
    pub(super) backing_place: (u64, u32),
    backing_file: Option<String>,
    backing_format: Option<String>,
    backing_version: Option<String>,
    backing_is_shortened: bool,
    has_unknown_extensions: bool,
}

/// How clusters are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Deflate,
    Zstd,
}

impl Header {
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]; of the device.
    pub(crate) fn read(file: &dyn ReadAt) -> io::Result<Header> {
        let mut bytes = [0; LONG_BYTES];
        super::read_cut_short(file, &mut bytes, 0)?;
        let word = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).copied();
        let number = |at| u32::from_be_bytes(word(at).unwrap_or_default());
        let long =
            |at: usize| u64::from(number(at)) << 32 | u64::from(number(at.saturating_add(4)));
        let version = number(4);
        let is_new = version >= 3;
        let header_bytes = if is_new { number(100) } else { 72 };
        let mut header = Header {
            version,
            cluster_bits: number(20),
            len_bytes: long(24),
            l1_entries: number(36),
            l1_offset: long(40),
            refcount_table_offset: long(48),
            refcount_table_clusters: number(56),
            refcount_order: if is_new { number(96) } else { 4 },
            snapshots: number(60),
            snapshots_offset: long(64),
            encryption: number(32),
            incompatible: if is_new { long(72) } else { 0 },
            compatible: if is_new { long(80) } else { 0 },
            autoclear: if is_new { long(88) } else { 0 },
            compression: match bytes.last() {
                Some(kind) if is_new && header_bytes > 104 => *kind,
                _ => 0,
            },
            header_bytes: header_bytes.into(),
            backing_place: (long(8), number(16)),
            backing_file: None,
            backing_format: None,
            backing_version: None,
            backing_is_shortened: false,
            has_unknown_extensions: false,
        };
        header.check_version()?;
        header.backing_file = header.name(file, long(8), number(16))?;
        header.extensions(file, header_bytes.into(), long(8))?;
        Ok(header)
    }

    pub(super) fn clusters(&self) -> io::Result<Clusters> {
        if self.refcount_order > 6 {
            return Err(broken("its header has impossible sizes"));
        }
        let clusters = Clusters::new(self.cluster_bits, self.version)?;
        match self.incompatible & SUBCLUSTERS {
            0 => Ok(clusters),
            _ => clusters.in_parts(),
        }
    }

    /// The size of a cluster.
    pub(super) fn cluster_bytes(&self) -> u64 {
        1_u64.checked_shl(self.cluster_bits).unwrap_or(1)
    }

    /// The name of the backing file, as it is in the image.
    pub(crate) fn backing_file(&self) -> Option<&str> {
        self.backing_file.as_deref()
    }

    /// The format of the backing file.
    pub(crate) fn backing_format(&self) -> Option<&str> {
        self.backing_format.as_deref()
    }

    /// The only version of the backing file that fits.
    pub(crate) fn backing_version(&self) -> Option<&str> {
        self.backing_version.as_deref()
    }

    /// Whether the name of the backing file is a URL without the query or the password that it had.
    pub(crate) fn backing_is_shortened(&self) -> bool {
        self.backing_is_shortened
    }

    /// Whether clusters may be used by something that is not known here.
    pub(super) fn has_unknown_parts(&self) -> bool {
        self.has_unknown_extensions || self.autoclear != 0
    }

    pub(super) fn compression(&self) -> Compression {
        match self.compression {
            0 => Compression::Deflate,
            _ => Compression::Zstd,
        }
    }

    /// Features that say something about the last writer, which is no longer so after this one.
    pub(super) fn features_after_writing(&self) -> [u64; 3] {
        [self.incompatible & !DIRTY, self.compatible, 0]
    }

    fn check_version(&self) -> io::Result<()> {
        match self.version {
            2 | 3 => Ok(()),
            version => Err(unsupported(format!("qcow2 of version {version}"))),
        }
    }

    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for what is not supported.
    pub(crate) fn check(&self, write: bool) -> io::Result<()> {
        if self.encryption != 0 {
            return Err(unsupported("an encrypted qcow2 image"));
        }
        if self.incompatible & DATA_FILE != 0 {
            return Err(unsupported("a qcow2 image with its data in another file"));
        }
        if write && self.incompatible & SUBCLUSTERS != 0 {
            return Err(unsupported(
                "writing to a qcow2 image with extended L2 entries: an overlay takes changes, or 'qemu-img \
                 convert -O qcow2' makes an image without them",
            ));
        }
        let unknown = self.incompatible & !(DIRTY | CORRUPT | COMPRESSION | SUBCLUSTERS);
        if unknown != 0 {
            return Err(unsupported(format!(
                "a qcow2 image with unknown features ({unknown:#x})"
            )));
        }
        if self.compression > 1 {
            return Err(unsupported("a qcow2 image with an unknown compression"));
        }
        if write && self.incompatible & CORRUPT != 0 {
            return Err(unsupported(
                "writing to a qcow2 image that is marked as corrupt: 'qemu-img check -r all' mends it",
            ));
        }
        let clusters = self.clusters()?;
        let covered = long(clusters.in_table()).saturating_mul(clusters.bytes());
        if u64::from(self.l1_entries).saturating_mul(covered) < self.len_bytes {
            return Err(broken("its first table is too short"));
        }
        Ok(())
    }

    fn name(&self, file: &dyn ReadAt, at: u64, len_bytes: u32) -> io::Result<Option<String>> {
        if at == 0 {
            return Ok(None);
        }
        let end = at.saturating_add(len_bytes.into());
        if len_bytes > MAX_NAME_BYTES || end > self.cluster_bytes() {
            return Err(broken("the name of its backing file is too long"));
        }
        text(file, at, len_bytes, "the name of its backing file").map(Some)
    }

    fn extensions(&mut self, file: &dyn ReadAt, from: u64, backing_at: u64) -> io::Result<()> {
        let end = match backing_at {
            0 => self.cluster_bytes(),
            at => at.min(self.cluster_bytes()),
        };
        let mut at = from;
        for _ in 0..MAX_EXTENSIONS {
            let Some(head) = (at < end)
                .then(|| read::<8>(file, at))
                .transpose()?
                .flatten()
            else {
                return Ok(());
            };
            let [a, b, c, d, e, f, g, h] = head;
            let (kind, len_bytes) = (
                u32::from_be_bytes([a, b, c, d]),
                u32::from_be_bytes([e, f, g, h]),
            );
            at = at.saturating_add(8);
            if at.saturating_add(len_bytes.into()) > end {
                return match kind {
                    END => Ok(()),
                    _ => Err(broken("an extension of its header is too long")),
                };
            }
            match kind {
                END => return Ok(()),
                BACKING_FORMAT if len_bytes <= MAX_NAME_BYTES => {
                    let format = text(file, at, len_bytes, "the format of its backing file")?;
                    self.backing_format = Some(format);
                }
                BACKING_VERSION if len_bytes <= MAX_NAME_BYTES => {
                    let version = text(file, at, len_bytes, "the version of its backing file")?;
                    self.backing_version = Some(version);
                }
                BACKING_SHORTENED => self.backing_is_shortened = true,
                FEATURE_NAMES => {}
                _ => self.has_unknown_extensions = true,
            }
            at = at.saturating_add(len_bytes.into()).next_multiple_of(8);
        }
        Err(broken("its header has too many extensions"))
    }
}

fn text(file: &dyn ReadAt, at: u64, len_bytes: u32, what: &str) -> io::Result<String> {
    let mut bytes = vec![0; size(len_bytes.into())];
    super::read_cut_short(file, &mut bytes, at)?;
    String::from_utf8(bytes).map_err(|_| unsupported(format!("{what} is not UTF-8")))
}

/// The first cluster of a new image of version 3, with clusters of `1 << cluster_bits` bytes.
pub(super) struct NewHeader<'a> {
    pub(super) cluster_bits: u32,
    pub(super) len_bytes: u64,
    pub(super) l1_entries: u32,
    pub(super) l1_offset: u64,
    pub(super) refcount_table_offset: u64,
    pub(super) backing: Option<NewBacking<'a>>,
}

/// What a new image is laid over.
#[derive(Clone, Copy)]
pub(crate) struct NewBacking<'a> {
    pub(crate) name: &'a str,
    pub(crate) format: &'a str,
    /// The only version of it that fits.
    pub(crate) version: Option<&'a str>,
    /// The name is a URL without the query or the password that it had.
    pub(crate) is_shortened: bool,
}

impl NewBacking<'_> {
    /// Appends the extensions of a header that say this, and their end.
    pub(super) fn put_extensions(&self, tail: &mut Vec<u8>) {
        put_extension(tail, BACKING_FORMAT, self.format.as_bytes());
        if let Some(version) = self.version {
            put_extension(tail, BACKING_VERSION, version.as_bytes());
        }
        if self.is_shortened {
            put_extension(tail, BACKING_SHORTENED, &[]);
        }
        put_extension(tail, END, &[]);
    }
}

impl NewHeader<'_> {
    /// # Errors
    /// If the name is too long.
    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut tail = Vec::new();
        match self.backing {
            Some(backing) => backing.put_extensions(&mut tail),
            None => put_extension(&mut tail, END, &[]),
        }
        let name = self.backing.map_or("", |backing| backing.name);
        let name_bytes = u32::try_from(name.len()).unwrap_or(u32::MAX);
        // Up to the extensions, the header has 112 bytes.
        let name_at = match name.is_empty() {
            true => 0,
            false => 112_u64.saturating_add(long(tail.len())),
        };
        let end = name_at.saturating_add(name_bytes.into());
        if name_bytes > MAX_NAME_BYTES || end > 1 << self.cluster_bits {
            let why = "the name of the base is too long for a qcow2 image";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut bytes = Vec::new();
        bytes.extend(crate::format::QCOW2);
        bytes.extend(3_u32.to_be_bytes());
        bytes.extend(name_at.to_be_bytes());
        bytes.extend(name_bytes.to_be_bytes());
        bytes.extend(self.cluster_bits.to_be_bytes());
        bytes.extend(self.len_bytes.to_be_bytes());
        bytes.extend(0_u32.to_be_bytes());
        bytes.extend(self.l1_entries.to_be_bytes());
        bytes.extend(self.l1_offset.to_be_bytes());
        bytes.extend(self.refcount_table_offset.to_be_bytes());
        bytes.extend(1_u32.to_be_bytes());
        // No snapshots.
        bytes.resize(SHORT_BYTES, 0);
        // No features.
        bytes.resize(96, 0);
        bytes.extend(4_u32.to_be_bytes());
        bytes.extend(112_u32.to_be_bytes());
        // Compressed by deflate.
        bytes.resize(112, 0);
        bytes.extend(tail);
        bytes.extend(name.as_bytes());
        Ok(bytes)
    }
}

fn put_extension(tail: &mut Vec<u8>, kind: u32, data: &[u8]) {
    tail.extend(kind.to_be_bytes());
    tail.extend(u32::try_from(data.len()).unwrap_or(0).to_be_bytes());
    tail.extend(data);
    tail.resize(tail.len().next_multiple_of(8), 0);
}
