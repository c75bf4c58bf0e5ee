//! The options of a new volume, under the names of mke2fs.

use std::time::SystemTime;

use throughline_extfmt::superblock::OnError;

use crate::config::Config;
use crate::error::Result;
use crate::extended::Extended;
use crate::features::Features;
use crate::journal_words::JournalWords;

/// The length of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeSize {
    /// In bytes; rounded down to whole blocks.
    Bytes(u64),
    /// In blocks of the volume.
    Blocks(u64),
}

/// How a volume is made. Nothing needs to be set: by default, it is an ext4 volume as mke2fs makes it.
///
/// What is not set comes from `mke2fs.conf` ([`MkfsOptions::config`]), by the type of the file system and its
/// use. Two volumes made with the same options, [`uuid`](MkfsOptions::uuid),
/// [`hash_seed`](MkfsOptions::hash_seed) and [`time`](MkfsOptions::time) have the same bytes.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    pub(crate) fs_type: Option<String>,
    pub(crate) default_type: Option<String>,
    pub(crate) usage: Option<String>,
    pub(crate) block_bytes: Option<u32>,
    pub(crate) min_block_bytes: Option<u32>,
    pub(crate) inode_bytes: Option<u32>,
    pub(crate) bytes_per_inode: Option<u64>,
    pub(crate) inodes: Option<u64>,
    pub(crate) reserved_percent: Option<f64>,
    pub(crate) label: Option<Vec<u8>>,
    pub(crate) last_mounted: Option<Vec<u8>>,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) hash_seed: Option<[u8; 16]>,
    pub(crate) features: Vec<String>,
    pub(crate) wants_journal: bool,
    pub(crate) journal: JournalWords,
    pub(crate) extended: Extended,
    pub(crate) revision: Option<u32>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) blocks_per_group: Option<u32>,
    pub(crate) groups_per_flex: Option<u32>,
    pub(crate) creator_os: Option<u32>,
    pub(crate) only_supers: bool,
    pub(crate) time: Option<u64>,
    pub(crate) size: Option<VolumeSize>,
    pub(crate) overwrite: bool,
    pub(crate) reproducible: bool,
    pub(crate) discard: Option<bool>,
    pub(crate) config: Option<Config>,
}

/// Defines methods that set one field.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $from:ty => |$value:ident| $field:ident = $to:expr;)+) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, $value: $from) -> &mut MkfsOptions {
            self.$field = $to;
            self
        }
    )+};
}

impl MkfsOptions {
    /// The defaults.
    pub fn new() -> MkfsOptions {
        MkfsOptions::default()
    }

    setters! {
        /// `ext2`, `ext3`, `ext4` (the default), or a type of the configuration. `-t`
        fs_type: &str => |name| fs_type = Some(name.to_owned());
        /// The type if neither [`fs_type`](MkfsOptions::fs_type) nor the configuration says one. Default:
        /// `ext4`.
        default_type: &str => |name| default_type = Some(name.to_owned());
        /// What the volume is for: types of the configuration, separated by commas, instead of those that
        /// follow from its size. `-T`
        usage: &str => |names| usage = Some(names.to_owned());
        /// Bytes of a block: a power of two from 1024 to 65536. The kernel mounts blocks of up to 4096. `-b`
        block_bytes: u32 => |bytes| block_bytes = Some(bytes);
        /// The least size of a block, in bytes, if the configuration has a smaller one. `-b -SIZE`
        min_block_bytes: u32 => |bytes| min_block_bytes = Some(bytes);
        /// Bytes of an inode: a power of two from 128 to the block size. `-I`
        inode_bytes: u32 => |bytes| inode_bytes = Some(bytes);
        /// Bytes of the volume per inode. `-i`
        bytes_per_inode: u64 => |bytes| bytes_per_inode = Some(bytes);
        /// The minimum number of inodes; 0 for the default. `-N`
        inodes: u64 => |count| inodes = (count > 0).then_some(count);
        /// Percent of the blocks that are kept for root: 0 to 50; the default is 5. `-m`
        reserved_percent: f64 => |percent| reserved_percent = Some(percent);
        /// The label; at most 16 bytes. `-L`
        label: impl AsRef<[u8]> => |label| label = Some(label.as_ref().to_vec());
        /// Where the volume was last mounted; at most 63 bytes. `-M`
        last_mounted: impl AsRef<[u8]> => |dir| last_mounted = Some(dir.as_ref().to_vec());
        /// The UUID; the default is a random one. `-U`
        uuid: [u8; 16] => |uuid| uuid = Some(uuid);
        /// The seed of directory hashes; the default is a random one. `-E hash_seed=`
        hash_seed: [u8; 16] => |seed| hash_seed = Some(seed);
        /// The time of the making, instead of now.
        time: SystemTime => |time| time = Some(seconds(time));
        /// The revision of the format: 0 or 1. `-r`
        revision: u32 => |revision| revision = Some(revision);
        /// What the kernel does when it finds damage. `-e`
        on_error: OnError => |on_error| on_error = Some(on_error);
        /// Blocks of a group: a multiple of 8. `-g`
        blocks_per_group: u32 => |blocks| blocks_per_group = Some(blocks);
        /// Groups of a flex group: a power of two. `-G`
        groups_per_flex: u32 => |groups| groups_per_flex = Some(groups);
        /// Writes superblocks and descriptors only, and leaves all else as it is: a last resort to get at the
        /// files of a volume that lost all of them. `-S`
        only_supers: bool => |only| only_supers = only;
        /// The length of the volume; the default is that of the target.
        size: VolumeSize => |size| size = Some(size);
        /// Whether the target may hold anything that would be lost. Default: false.
        overwrite: bool => |overwrite| overwrite = overwrite;
        /// Whether a UUID and a hash seed that are not given follow from all else that determines the volume,
        /// instead of being random. Default: false.
        reproducible: bool => |reproducible| reproducible = reproducible;
        /// Whether the blocks of a device are discarded first. Default: true. `-E discard`, `nodiscard`
        discard: bool => |discard| discard = Some(discard);
        /// The configuration, instead of the system's. [`Config::built_in`] makes a volume independent of the
        /// system.
        config: Config => |config| config = Some(config);
    }

    /// Adds or removes (`^`) features, in a list separated by commas; may be called several times. `-O`
    ///
    /// # Errors
    /// A name that is no feature, or a feature that this version does not make.
    pub fn features(&mut self, list: &str) -> Result<&mut MkfsOptions> {
        let mut scratch = Features::default();
        scratch.edit(list)?;
        self.features.push(list.to_owned());
        Ok(self)
    }

    /// Makes a journal, also if the type has none. `-j`
    pub fn journal(&mut self) -> &mut MkfsOptions {
        self.wants_journal = true;
        self
    }

    /// Words about the journal, such as `size=64`, separated by commas; makes one. `-J`
    ///
    /// # Errors
    /// A word that is not understood, or not supported, with those that are.
    pub fn journal_options(&mut self, words: &str) -> Result<&mut MkfsOptions> {
        self.journal.read(words)?;
        Ok(self.journal())
    }

    /// Extended options, such as `stride=16,lazy_itable_init=0`. `-E`
    ///
    /// # Errors
    /// A word that is not understood, or not supported, with those that are.
    pub fn extended(&mut self, words: &str) -> Result<&mut MkfsOptions> {
        self.extended.read(words)?;
        Ok(self)
    }

    /// The operating system that made the volume: `linux`, `hurd`, `masix`, `freebsd`, `lites`, or a number.
    /// `-o`
    ///
    /// # Errors
    /// Another name.
    pub fn creator_os(&mut self, name: &str) -> Result<&mut MkfsOptions> {
        self.creator_os = Some(crate::resolve::creator_os(name)?);
        Ok(self)
    }
}

/// Seconds since 1970; 0 for an earlier time.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
