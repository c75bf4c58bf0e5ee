//! A volume's label and UUID.

use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::superblock::SUPERBLOCK_BYTES;
use throughline_extfmt::{FsBlock, Superblock};
use zerocopy::IntoBytes;

use crate::alloc::Alloc;
use crate::base;
use crate::error::{Error, Reason, Result};
use crate::external;

/// The longest label, in bytes (`s_volume_name`).
pub const MAX_LABEL_BYTES: usize = 16;

impl Alloc {
    /// The label, up to 16 bytes; empty if there is none.
    pub fn label(&self) -> Vec<u8> {
        let sb = self.superblock.lock();
        sb.volume_name().to_vec()
    }

    /// Changes the label, durably, in the primary superblock; `e2fsck` and `tune2fs` bring the copies up to
    /// date.
    ///
    /// # Errors
    /// `Invalid` for more than [`MAX_LABEL_BYTES`] or a NUL byte; `ReadOnly`; journal errors.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > MAX_LABEL_BYTES || label.contains(&0) {
            return Err(
                Reason::Invalid("a label of more than 16 bytes, or with a NUL byte").into(),
            );
        }
        let mut h = self.begin(1)?;
        self.update_super(&mut h, |sb| put_label(sb, label))?;
        h.stop()?;
        self.sync_metadata()?;
        show_name(self)
    }

    /// The UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.lock().s_uuid
    }

    /// Changes the UUID, durably, in the primary superblock and its copies.
    ///
    /// Metadata checksums are seeded with the volume's original UUID, unless `metadata_csum_seed` stores the
    /// seed in the superblock. A volume without that feature gets it, so that no checksum has to change;
    /// Linux mounts it from 4.4 on.
    ///
    /// # Errors
    /// `Unsupported` if group checksums (`uninit_bg`) or attribute hashes (`ea_inode`) would have to change,
    /// if the UUID is part of encryption keys (`stable_inodes`), or if an external journal knows the volume
    /// by it; `ReadOnly`; journal errors.
    pub fn set_uuid(&self, uuid: [u8; 16]) -> Result<()> {
        let seed = uuid_seed(self)?;
        let groups = self.geo.superblock_groups().skip(1);
        let copies: Vec<FsBlock> = groups
            .filter_map(|group| self.geo.superblock_block(group))
            .collect();
        if let Some(seed) = seed {
            // Nothing is written where changes are refused.
            self.begin(1)?.stop()?;
            // The seed is in the second sector, and has no meaning without the feature in the first one.
            let edited = base::edit_primary(self, |home, _| home.s_checksum_seed.set(seed));
            // A full host keeps what is there, and there may be room later.
            if edited.as_ref().is_err_and(|error| !error.is_host_full()) && self.stopped().is_none()
            {
                self.journal
                    .refuse_changes("the superblock was not written");
            }
            edited?;
        }
        let mut h = self.begin(1 + u32::try_from(copies.len()).unwrap_or(u32::MAX))?;
        for block in copies {
            h.modify(block, |bytes| {
                let place = bytes.get_mut(..SUPERBLOCK_BYTES);
                // Leave a damaged copy to `e2fsck`.
                if let Some(place) = place
                    && let Ok(mut copy) = Superblock::read(place)
                {
                    put_uuid(&mut copy, uuid, seed);
                    copy.update_checksum();
                    place.copy_from_slice(copy.as_bytes());
                }
            })?;
        }
        self.update_super(&mut h, |sb| put_uuid(sb, uuid, seed))?;
        h.stop()?;
        self.sync_metadata()?;
        show_name(self)
    }
}

/// The checksum seed to store when the UUID changes; `None` if nothing depends on the UUID.
fn uuid_seed(fs: &Alloc) -> Result<Option<u32>> {
    let is = |is: bool, name: &str| match is {
        true => Err(Error::Unsupported(format!(
            "the UUID of a volume with {name} cannot be changed here ('tune2fs -U' may be able to)"
        ))),
        false => Ok(()),
    };
    let geo = &fs.geo;
    is(geo.compat.contains(Compat::STABLE_INODES), "stable_inodes")?;
    // The journal lists its users by UUID.
    let is_external = external::is_used(&fs.superblock.lock());
    is(is_external, "an external journal")?;
    if geo.incompat.contains(Incompat::CSUM_SEED) || geo.csum_seed.is_some() {
        return Ok(geo.csum_seed);
    }
    is(geo.ro_compat.contains(RoCompat::GDT_CSUM), "uninit_bg")?;
    is(geo.incompat.contains(Incompat::EA_INODE), "ea_inode")?;
    Ok(None)
}

/// Writes the committed label and UUID in place at once, so that readers of the device (`blkid`, `e2label`,
/// `mount LABEL=`) see them. The rest of the superblock is not written.
fn show_name(fs: &Alloc) -> Result<()> {
    if !fs.has_log() {
        // The commit wrote it in place.
        return Ok(());
    }
    // The current values: if two callers change them, the later change wins.
    base::edit_primary(fs, |home, now| {
        home.s_volume_name = now.s_volume_name;
        home.s_uuid = now.s_uuid;
        home.s_checksum_seed = now.s_checksum_seed;
        let seeded = now.incompat() & Incompat::CSUM_SEED;
        home.s_feature_incompat
            .set(home.s_feature_incompat.get() | seeded.bits());
    })
}

fn put_label(sb: &mut Superblock, label: &[u8]) {
    sb.s_volume_name = [0; MAX_LABEL_BYTES];
    let place = sb.s_volume_name.iter_mut();
    place.zip(label).for_each(|(to, from)| *to = *from);
}

fn put_uuid(sb: &mut Superblock, uuid: [u8; 16], seed: Option<u32>) {
    sb.s_uuid = uuid;
    if let Some(seed) = seed {
        sb.s_checksum_seed.set(seed);
        let incompat = sb.s_feature_incompat.get() | Incompat::CSUM_SEED.bits();
        sb.s_feature_incompat.set(incompat);
    }
}
