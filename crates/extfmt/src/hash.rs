//! Directory hashes: legacy, half MD4 and TEA, each over signed or unsigned bytes.
//!
//! The result is a 32-bit major hash, whose lowest bit is 0 (it marks collisions in the
//! tree), and a minor hash, which orders equal majors for readers.

/// `s_def_hash_version`, `hash_version` of a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum HashVersion {
    /// The first one, signed bytes.
    Legacy,
    /// Half MD4, signed bytes.
    HalfMd4,
    /// TEA, signed bytes.
    Tea,
    /// The first one, unsigned bytes.
    LegacyUnsigned,
    /// Half MD4, unsigned bytes.
    HalfMd4Unsigned,
    /// TEA, unsigned bytes.
    TeaUnsigned,
    /// SipHash with a key of the directory (encrypted and casefolded): known, not computed.
    SipHash,
}

/// Major and minor hash of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct NameHash {
    /// What the tree is sorted by; even.
    pub major: u32,
    /// Orders names of equal major hash.
    pub minor: u32,
}

/// The major hash that means "end of directory" to readers; no name has it.
pub const HASH_EOF: u32 = 0x7FFF_FFFF << 1;
