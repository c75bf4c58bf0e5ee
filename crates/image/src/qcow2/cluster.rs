//! Clusters: their arithmetic, and what an entry of an L2 table says of one.

use std::io;

use super::broken;

/// Bits 9 to 55 of an entry: where something is.
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
/// It is referred to once, and may be changed in place.
pub(super) const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
/// It reads as zeros, even if a place is set aside for it (version 3).
const ZEROS: u64 = 1;

/// The size of clusters, and what follows from it. `at` is a byte of the disk, `place` a byte of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clusters {
    bits: u32,
    has_zeros: bool,
    /// Entries of L2 tables have a second word, with bits for [`PARTS`] parts of the cluster.
    pub(super) has_parts: bool,
}

/// The parts of a cluster that are there or not one by one, if entries are extended.
const PARTS: u32 = 32;

impl Clusters {
    /// # Errors
    /// If the format does not have clusters of this size.
    pub(super) fn new(bits: u32, version: u32) -> io::Result<Clusters> {
        match (9..=21).contains(&bits) {
            true => Ok(Clusters {
                bits,
                has_zeros: version >= 3,
                has_parts: false,
            }),
            false => Err(broken("its header has impossible sizes")),
        }
    }

    /// The same, with extended entries.
    ///
    /// # Errors
    /// If parts of such clusters would be shorter than sectors.
    pub(super) fn in_parts(self) -> io::Result<Clusters> {
        match self.bits >= 14 {
            true => Ok(Clusters {
                // Each part has a bit that says so.
                has_zeros: false,
                has_parts: true,
                ..self
            }),
            false => Err(broken("its clusters are too short for extended entries")),
        }
    }

    pub(super) fn bytes(self) -> u64 {
        1 << self.bits
    }

    /// The number of bytes of a cluster, as a length in memory.
    pub(super) fn len(self) -> usize {
        1 << self.bits
    }

    /// Whether clusters can be marked as zeros.
    pub(super) fn has_zeros(self) -> bool {
        self.has_zeros
    }

    /// The number of words of an entry of an L2 table.
    pub(super) fn words(self) -> usize {
        if self.has_parts { 2 } else { 1 }
    }

    /// The number of clusters of the disk that an L2 table has.
    pub(super) fn in_table(self) -> usize {
        self.entries() >> u32::from(self.has_parts)
    }

    /// The number of words of a table that fills a cluster.
    pub(super) fn entries(self) -> usize {
        1 << self.bits.saturating_sub(3)
    }

    /// The number of the cluster that holds a byte.
    pub(super) fn number(self, byte: u64) -> u64 {
        byte >> self.bits
    }

    /// The same, for memory: what a file cannot hold is as far as the last.
    pub(super) fn index(self, byte: u64) -> usize {
        size(self.number(byte))
    }

    /// Where cluster `number` begins.
    pub(super) fn start(self, number: u64) -> u64 {
        number << self.bits
    }

    /// The place of a byte within its cluster.
    pub(super) fn within(self, byte: u64) -> u64 {
        byte & self.bytes().wrapping_sub(1)
    }

    /// The number of bytes from `byte` to the end of its cluster.
    pub(super) fn rest(self, byte: u64) -> u64 {
        self.bytes().saturating_sub(self.within(byte))
    }

    /// The place in an entry of an L1 table; `None`: there is no table.
    ///
    /// # Errors
    /// If it begins no cluster.
    pub(super) fn table(self, entry: u64) -> io::Result<Option<u64>> {
        match entry & PLACE {
            0 => Ok(None),
            place => self.aligned(place).map(Some),
        }
    }

    /// # Errors
    /// If no cluster begins there.
    pub(super) fn aligned(self, place: u64) -> io::Result<u64> {
        match self.within(place) {
            0 => Ok(place),
            _ => Err(broken(format!(
                "it refers to byte {place}, which begins no cluster"
            ))),
        }
    }

    /// The number of bytes of a part.
    fn part_bytes(self) -> u64 {
        self.bytes() >> PARTS.ilog2()
    }

    /// The number of bytes from `byte` to the end of its part.
    pub(super) fn rest_of_part(self, byte: u64) -> u64 {
        let within = byte & self.part_bytes().wrapping_sub(1);
        self.part_bytes().saturating_sub(within)
    }

    /// What an extended entry says of the part that `byte` of the disk is in; a place is that of the byte.
    /// The lower half of its second word has the bits of parts that are there, the upper one of zeros.
    ///
    /// # Errors
    /// If it cannot be.
    pub(super) fn part(self, entry: u64, parts: u64, byte: u64) -> io::Result<Entry> {
        let within = self.within(byte);
        let index = within.checked_div(self.part_bytes()).unwrap_or(0);
        let bit = |at: u64| {
            parts
                .checked_shr(u32::try_from(at).unwrap_or(64))
                .unwrap_or(0)
                & 1
                == 1
        };
        let (is_there, is_zeros) = (bit(index), bit(index.saturating_add(PARTS.into())));
        match self.entry(entry)? {
            compressed @ Entry::Compressed { .. } => Ok(compressed),
            Entry::Plain(place) if is_there && !is_zeros => {
                Ok(Entry::Plain(place.saturating_add(within)))
            }
            _ if is_there => Err(broken("a part of a cluster cannot be where it should be")),
            _ if is_zeros => Ok(Entry::Zeros(None)),
            _ => Ok(Entry::Absent),
        }
    }

    /// What an entry of an L2 table says; of an extended one, its first word.
    ///
    /// # Errors
    /// If it cannot be.
    pub(super) fn entry(self, entry: u64) -> io::Result<Entry> {
        if entry & COMPRESSED != 0 {
            // The place takes 62 bits less those of the number of sectors behind the first.
            let bits = 70_u32.saturating_sub(self.bits);
            let place = entry & 1_u64.wrapping_shl(bits).wrapping_sub(1);
            let sectors = (entry & COMPRESSED.wrapping_sub(1)).wrapping_shr(bits);
            let end = (place & !511).saturating_add(sectors.saturating_add(1).saturating_mul(512));
            return Ok(Entry::Compressed {
                place,
                len_bytes: end.saturating_sub(place),
            });
        }
        let place = match entry & PLACE {
            0 => None,
            place => Some(self.aligned(place)?),
        };
        let is_zeros = self.has_zeros && entry & ZEROS != 0;
        Ok(match place {
            place if is_zeros => Entry::Zeros(place),
            Some(place) => Entry::Plain(place),
            None => Entry::Absent,
        })
    }
}

/// Where the bytes of a cluster of the disk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// In the backing file; zeros without one.
    Absent,
    /// They are zeros. A place may be set aside for them.
    Zeros(Option<u64>),
    /// At this place.
    Plain(u64),
    /// In at most so many bytes there; the last sector may hold the begin of another one.
    Compressed { place: u64, len_bytes: u64 },
}

impl Entry {
    /// The places of the clusters of the file that it refers to: the first, and the end of the last.
    pub(super) fn refers_to(self, clusters: Clusters) -> Option<(u64, u64)> {
        match self {
            Entry::Absent | Entry::Zeros(None) => None,
            Entry::Zeros(Some(place)) | Entry::Plain(place) => {
                Some((place, place.saturating_add(clusters.bytes())))
            }
            // All of its sectors.
            Entry::Compressed { place, len_bytes } => {
                Some((place & !511, place.saturating_add(len_bytes)))
            }
        }
    }
}

/// The entry of something that is referred to once.
pub(super) fn copied(place: u64) -> u64 {
    place | COPIED
}

/// The entry of a cluster of zeros.
pub(super) fn zeros() -> u64 {
    ZEROS
}

/// A number of bytes as a length in memory.
pub(super) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A length in memory as a number of bytes.
pub(super) fn long(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
