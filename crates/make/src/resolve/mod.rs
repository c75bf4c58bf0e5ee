//! From options to a request: every default is taken, from the command, the configuration, or the size.

mod values;

use std::time::SystemTime;

use throughline_extfmt::casefold;
use throughline_extfmt::checksum::crc32c;
use throughline_extfmt::features::{Compat, Incompat, RoCompat};

pub(crate) use values::creator_os;
pub use values::parse_on_error;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::extended::Extended;
use crate::features::Features;
use crate::options::{MkfsOptions, VolumeSize};
use crate::request::Request;
use crate::words::Amount;

const DEFAULT_TYPE: &str = "ext4";
const DEFAULT_BLOCK_BYTES: u32 = 4096;
const DEFAULT_BASE_FEATURES: &str = "sparse_super,large_file,filetype,resize_inode,dir_index";
const DEFAULT_MMP_INTERVAL_S: u16 = 5;
const HURD: u32 = 1;

/// What the target is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Bytes from the start of the volume to the end; `None`: the file does not exist yet.
    pub(crate) bytes: Option<u64>,
}

/// How a volume is made, beside what is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) lazy_journal: bool,
    pub(crate) lazy_itable: bool,
    pub(crate) discard: bool,
}

impl Manner {
    /// For a target that is an existing file. When it is discarded, all of it reads as zeros. So the inode
    /// tables are marked as zeroed, and the kernel does not zero them again. mke2fs does the same, and marks
    /// nothing in a new file.
    pub(crate) fn becomes_holes(&mut self, request: &mut Request) {
        if self.discard {
            request.itable_zeroed = true;
            // If the host's file system makes no holes, the tables are written.
            self.lazy_itable = false;
        }
    }
}

/// Resolves the options for a target.
///
/// # Errors
/// Values that are out of bounds, with the bounds; a type that the configuration does not have.
pub(crate) fn resolve(options: &MkfsOptions, target: Target) -> Result<(Request, Manner)> {
    let config = match &options.config {
        Some(config) => config.clone(),
        None => Config::of_system()?,
    };
    let resolver = Resolver::new(options, config, target)?;
    resolver.request()
}

struct Resolver<'o> {
    options: &'o MkfsOptions,
    config: Config,
    /// The type, then the uses.
    types: Vec<String>,
    extended: Extended,
    block_bytes: u32,
    blocks: u64,
}

impl<'o> Resolver<'o> {
    fn new(options: &'o MkfsOptions, config: Config, target: Target) -> Result<Resolver<'o>> {
        let mut resolver = Resolver {
            options,
            config,
            types: Vec::new(),
            extended: Extended::default(),
            block_bytes: options.block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES),
            blocks: 0,
        };
        if let Some(bytes) = options.block_bytes {
            check_block_bytes(bytes)?;
        }
        resolver.types = resolver.find_types(resolver.volume_bytes(target)?)?;
        resolver.block_bytes = resolver.find_block_bytes()?;
        let bytes = resolver.volume_bytes(target)?;
        resolver.blocks = bytes / u64::from(resolver.block_bytes);
        if let Some(words) = resolver.config.value(&resolver.types, "options") {
            resolver.extended.read(words)?;
        }
        Ok(resolver)
    }

    /// Bytes of the volume, with blocks of the size known so far.
    fn volume_bytes(&self, target: Target) -> Result<u64> {
        let bytes = match (self.options.size, target.bytes) {
            (Some(VolumeSize::Bytes(bytes)), _) => Some(bytes),
            (Some(VolumeSize::Blocks(blocks)), _) => {
                blocks.checked_mul(u64::from(self.block_bytes))
            }
            (None, Some(bytes)) => Some(bytes),
            (None, None) => {
                return Err(Error::invalid(
                    "the file does not exist, and no size was given",
                ));
            }
        };
        bytes
            .filter(|bytes| i64::try_from(*bytes).is_ok())
            .ok_or_else(|| Error::invalid("the size is more than 2^63 bytes"))
    }

    /// The type, and the uses: as given, or by size.
    fn find_types(&self, bytes: u64) -> Result<Vec<String>> {
        let options = self.options;
        let given = options.fs_type.as_deref();
        let fs_type = given
            .or_else(|| self.config.default_value("fs_type"))
            .or(options.default_type.as_deref())
            .unwrap_or(DEFAULT_TYPE);
        if fs_type != "ext2" && !self.config.has_type(fs_type) {
            return Err(Error::invalid(format!(
                "{fs_type} is no type of file system (-t): ext2, ext3 and ext4 are; mke2fs.conf defines {}",
                self.config.types().join(", ")
            )));
        }
        let mut types = vec![fs_type.to_owned()];
        match &self.options.usage {
            None => types.extend(by_size(bytes).map(str::to_owned)),
            Some(names) => {
                for name in names.split(',').filter(|name| !name.is_empty()) {
                    if !self.config.has_type(name) && name != "default" {
                        return Err(Error::invalid(format!(
                            "mke2fs.conf does not define the use {name} (-T); it defines {}",
                            self.config.types().join(", ")
                        )));
                    }
                    types.push(name.to_owned());
                }
            }
        }
        if self.options.creator_os == Some(HURD) {
            types.push("hurd".to_owned());
        }
        Ok(types)
    }

    fn find_block_bytes(&self) -> Result<u32> {
        if let Some(bytes) = self.options.block_bytes {
            return Ok(bytes);
        }
        let configured = self.config.number(&self.types, "blocksize")?;
        let bytes = match configured {
            // At least so many bytes.
            Some(least) if least < 0 => {
                let least = u32::try_from(-least).unwrap_or(u32::MAX);
                DEFAULT_BLOCK_BYTES.max(least)
            }
            Some(bytes) => u32::try_from(bytes).unwrap_or(u32::MAX),
            None => DEFAULT_BLOCK_BYTES,
        };
        let bytes = bytes.max(self.options.min_block_bytes.unwrap_or(0));
        check_block_bytes(bytes)?;
        Ok(bytes)
    }

    fn features(&self) -> Result<Features> {
        let mut features = Features::NONE;
        let base = self.config.value(&self.types, "base_features");
        features.edit(base.unwrap_or(DEFAULT_BASE_FEATURES))?;
        for name in &self.types {
            if let Some(list) = self.config.of_type(name, "features") {
                features.edit(list)?;
            }
        }
        match self.options.features.as_slice() {
            [] => {
                if let Some(list) = self.config.value(&self.types, "default_features") {
                    features.edit(list)?;
                }
            }
            lists => lists.iter().try_for_each(|list| features.edit(list))?,
        }
        if features.incompat.contains(Incompat::JOURNAL_DEV) {
            return self.of_journal_device(features);
        }
        if self.extended.encoding.is_some() {
            features.incompat.insert(Incompat::CASEFOLD);
        }
        if self.extended.resize.is_some() {
            features.compat.insert(Compat::RESIZE_INODE);
        }
        if self.options.wants_journal {
            features.compat.insert(Compat::HAS_JOURNAL);
        }
        // Pointers of descriptors reach blocks of 32 bits.
        if self.blocks > u64::from(u32::MAX) {
            if !features.incompat.contains(Incompat::BIT64) {
                return Err(Error::invalid(format!(
                    "{} blocks of {} bytes need the feature 64bit, or larger blocks",
                    self.blocks, self.block_bytes
                )));
            }
            features.compat.remove(Compat::RESIZE_INODE);
        }
        if self.options.creator_os == Some(HURD) {
            features.incompat.remove(Incompat::FILETYPE);
            // It has its own use for these fields of an inode.
            features
                .ro_compat
                .remove(RoCompat::HUGE_FILE | RoCompat::METADATA_CSUM);
        }
        Ok(features)
    }

    /// A journal device has no other feature but a checksum of its superblock, and no journal.
    fn of_journal_device(&self, features: Features) -> Result<Features> {
        let options = self.options;
        if options.features.iter().any(|list| list != "journal_dev") {
            return Err(Error::invalid(
                "the feature journal_dev makes a journal device, which has no other features",
            ));
        }
        if options.wants_journal {
            return Err(Error::invalid(
                "a journal device (-O journal_dev) is as large as the target, and has no journal (-j, -J)",
            ));
        }
        Ok(Features {
            incompat: Incompat::JOURNAL_DEV,
            ro_compat: features.ro_compat & RoCompat::METADATA_CSUM,
            ..Features::NONE
        })
    }

    fn request(mut self) -> Result<(Request, Manner)> {
        let options = self.options;
        for words in &options.extended.words {
            self.extended.read(words)?;
        }
        let features = self.features()?;
        let revision_0 = self.revision_0()?;
        if self.extended.has_descriptor_bytes && !features.incompat.contains(Incompat::BIT64) {
            return Err(Error::invalid("-E desc_size=64 needs the feature 64bit"));
        }
        let inode_bytes = self.inode_bytes(revision_0)?;
        let extended = &self.extended;
        let time = options.time.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(0, |since| since.as_secs())
        });
        let config_flag = |tag: &str| self.config.truth(&self.types, tag);
        let hash_seed = options.hash_seed.or(extended.hash_seed);
        let prezeroed = extended.prezeroed.unwrap_or(false);
        let manner = Manner {
            lazy_journal: first(
                extended.lazy_journal,
                config_flag("lazy_journal_init")?,
                false,
            ) || prezeroed,
            lazy_itable: first(extended.lazy_itable, config_flag("lazy_itable_init")?, true)
                || prezeroed,
            discard: options.discard.unwrap_or(first(
                extended.discard,
                config_flag("discard")?,
                true,
            )),
        };
        let resize = extended
            .resize
            .map(|amount| self.growth(amount))
            .transpose()?;
        let packed = first(
            extended.packed_meta_blocks,
            config_flag("packed_meta_blocks")?,
            false,
        );
        let mut request = Request {
            block_bytes: self.block_bytes,
            blocks: self.blocks,
            inode_bytes,
            inodes: self.inodes(inode_bytes)?,
            features,
            revision_0,
            blocks_per_group: options.blocks_per_group,
            groups_per_flex: self.groups_per_flex(&features)?,
            reserved_percent: self.reserved_percent()?,
            journal: self.journal()?,
            resize_blocks: resize,
            stride: extended.stride.unwrap_or(0),
            stripe_width: extended.stripe_width.unwrap_or(0),
            packed_meta_blocks: packed,
            backups: self.backups()?,
            root_owner: extended.root_owner.unwrap_or((0, 0)),
            orphan_file_bytes: extended.orphan_file.map(|amount| match amount {
                Amount::Blocks(blocks) => blocks.saturating_mul(u64::from(self.block_bytes)),
                Amount::Bytes(bytes) => bytes,
            }),
            quota_kinds: extended.quota_kinds,
            lazy_itable: manner.lazy_itable,
            itable_zeroed: prezeroed,
            mmp_interval: match extended.mmp_interval {
                None | Some(0) => DEFAULT_MMP_INTERVAL_S,
                Some(seconds) => seconds,
            },
            encoding: encoding(extended, &features)?,
            test_fs: extended.test_fs,
            label: field("label (-L)", options.label.as_deref(), 16)?,
            last_mounted: field("directory (-M)", options.last_mounted.as_deref(), 63)?,
            uuid: options.uuid.unwrap_or_default(),
            hash_seed: hash_seed.unwrap_or_default(),
            hash_version: self.hash_version()?,
            on_error: self.on_error()?,
            mount_options: if revision_0 { 0 } else { self.mount_options()? },
            creator_os: options.creator_os.unwrap_or(0),
            periodic_check: config_flag("enable_periodic_fsck")?.unwrap_or(false),
            time,
        };
        let chosen = |what: &str, request: &Request| match options.reproducible {
            true => derived(what, request),
            false => uuid::Uuid::new_v4().into_bytes(),
        };
        if options.uuid.is_none() {
            request.uuid = chosen("uuid", &request);
        }
        if hash_seed.is_none() {
            request.hash_seed = chosen("hash seed", &request);
        }
        Ok((request, manner))
    }
}

/// `s_encoding` and its flags.
fn encoding(extended: &Extended, features: &Features) -> Result<(u16, u16)> {
    let flags = extended.encoding_flags;
    if features.incompat.contains(Incompat::CASEFOLD) {
        let encoding = extended.encoding.unwrap_or(casefold::UTF8_12_1);
        return Ok((encoding, flags.unwrap_or(0)));
    }
    match flags {
        None => Ok((0, 0)),
        Some(_) => Err(Error::invalid(
            "-E encoding_flags needs -E encoding=, or the feature casefold",
        )),
    }
}

fn first(given: Option<bool>, configured: Option<bool>, default: bool) -> bool {
    given.or(configured).unwrap_or(default)
}

/// The use that follows from the size.
fn by_size(bytes: u64) -> Option<&'static str> {
    const MIB: u64 = 1 << 20;
    const TIB: u64 = 1 << 40;
    match bytes {
        _ if bytes < 3 * MIB => Some("floppy"),
        _ if bytes < 512 * MIB => Some("small"),
        _ if bytes < 4 * TIB => None,
        _ if bytes < 16 * TIB => Some("big"),
        _ => Some("huge"),
    }
}

fn check_block_bytes(bytes: u32) -> Result<()> {
    match bytes.is_power_of_two() && (1024..=65536).contains(&bytes) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "blocks of {bytes} bytes (-b): a power of two from 1024 to 65536 is allowed"
        ))),
    }
}

/// A text that fits a field of the superblock.
fn field(what: &str, text: Option<&[u8]>, most: usize) -> Result<Vec<u8>> {
    let text = text.unwrap_or_default();
    match text.len() <= most {
        true => Ok(text.to_vec()),
        false => Err(Error::invalid(format!(
            "the {what} has {} bytes; at most {most} fit",
            text.len()
        ))),
    }
}

/// 16 bytes that follow from a request: different for different requests, as far as 128 bits of a checksum
/// go.
fn derived(what: &str, request: &Request) -> [u8; 16] {
    let text = format!("{what} {request:?}");
    let mut bytes = [0; 16];
    for (salt, place) in (1u32..).zip(bytes.as_chunks_mut::<4>().0) {
        *place = crc32c(salt.wrapping_mul(0x9e37_79b9), text.as_bytes()).to_le_bytes();
    }
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .into_bytes()
}
