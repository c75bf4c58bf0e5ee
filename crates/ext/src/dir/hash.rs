//! How a volume hashes names, and the position of a hash in a directory listing.

use throughline_extfmt::Superblock;
use throughline_extfmt::casefold::CaseFolding;
use throughline_extfmt::features::Compat;
use throughline_extfmt::hash::{HashVersion, NameHash};
use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::superblock::Flags;

/// The first position of a name in a listing; the ones before are `.` and `..`.
pub(super) const NAMES: u64 = 2;

/// How the volume hashes names.
pub(crate) struct HashRules {
    dir_index: bool,
    pub(super) unsigned: bool,
    pub(super) seed: [u32; 4],
    /// For directories that become hashed.
    default: HashVersion,
    /// For directories that ignore case.
    folding: Option<CaseFolding>,
}

impl HashRules {
    /// From the superblock.
    pub(crate) fn new(sb: &Superblock) -> Self {
        let unsigned = sb.flags().contains(Flags::UNSIGNED_HASH);
        let fallback = if unsigned {
            HashVersion::HalfMd4Unsigned
        } else {
            HashVersion::HalfMd4
        };
        let default = HashVersion::from_disk(sb.s_def_hash_version, unsigned).unwrap_or(fallback);
        let default = if default == HashVersion::SipHash {
            fallback
        } else {
            default
        };
        Self {
            dir_index: sb.compat().contains(Compat::DIR_INDEX),
            unsigned,
            seed: sb.hash_seed(),
            default,
            folding: CaseFolding::of(sb),
        }
    }

    /// Whether directories with these flags are, or can become, hashed in a way this crate supports. (Names
    /// that are both encrypted and case-insensitive are hashed with a key.)
    pub(super) fn indexes(&self, flags: InodeFlags) -> bool {
        self.dir_index && (!flags.contains(InodeFlags::CASEFOLD) || self.folding(flags).is_some())
    }

    /// How directories with these flags fold names; `None` if they compare them as bytes.
    pub(super) fn folding(&self, flags: InodeFlags) -> Option<CaseFolding> {
        let is_plain = flags.contains(InodeFlags::CASEFOLD) && !flags.contains(InodeFlags::ENCRYPT);
        self.folding.filter(|_| is_plain)
    }

    /// How names of a directory with these flags are hashed once it has a tree.
    pub(super) fn hashing(&self, flags: InodeFlags) -> Hashing {
        Hashing {
            version: self.default,
            seed: self.seed,
            folding: self.folding(flags),
        }
    }

    /// The hash version code for new trees.
    pub(super) fn default_code(&self) -> u8 {
        self.default.to_disk()
    }

    /// The hash version for new trees.
    pub(super) fn default_version(&self) -> HashVersion {
        self.default
    }

    /// The hash of a name; `None` for a hash version that this crate cannot compute.
    pub(super) fn hash(&self, version: HashVersion, name: &[u8]) -> Option<NameHash> {
        version.hash(name, self.seed)
    }
}

/// How the names of one directory are hashed.
#[derive(Clone, Copy)]
pub(super) struct Hashing {
    pub(super) version: HashVersion,
    seed: [u32; 4],
    folding: Option<CaseFolding>,
}

impl Hashing {
    /// The same, in a tree with another hash version.
    pub(super) fn with_version(self, version: HashVersion) -> Self {
        Self { version, ..self }
    }

    /// The hash of a name; 0 for a version that this crate cannot compute.
    pub(super) fn hash(&self, name: &[u8]) -> NameHash {
        let folded = self.folding.and_then(|folding| folding.fold(name));
        let hash = self
            .version
            .hash(folded.as_deref().unwrap_or(name), self.seed);
        hash.unwrap_or(NameHash { major: 0, minor: 0 })
    }

    /// The position of a name in a listing by hash.
    pub(super) fn key(&self, name: &[u8]) -> u64 {
        let legacy = matches!(
            self.version,
            HashVersion::Legacy | HashVersion::LegacyUnsigned
        );
        key_of(self.hash(name), name, legacy)
    }
}

/// The position of a name, from its hash.
pub(super) fn key_of(hash: NameHash, name: &[u8], legacy: bool) -> u64 {
    // The legacy hash has no minor part, so a checksum of the name distinguishes names with the same hash.
    let minor = if legacy {
        throughline_extfmt::checksum::crc32c(!0, name)
    } else {
        hash.minor
    };
    NAMES.saturating_add(u64::from(hash.major >> 1) << 32 | u64::from(minor))
}
