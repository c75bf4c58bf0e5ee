//! The label of a volume.

use throughline_extfmt::Superblock;

use crate::error::{Reason, Result};
use crate::fs::Fs;
use crate::lock_order::{Rank, locked};
use crate::primary;

/// The longest label, in bytes (`s_volume_name`).
pub const MAX_LABEL_BYTES: usize = 16;

impl Fs {
    /// The label, up to 16 bytes; empty if there is none.
    pub fn label(&self) -> Vec<u8> {
        let sb = locked(Rank::Super, 0, || self.superblock.lock());
        sb.volume_name().to_vec()
    }

    /// Changes the label, durably, in the primary superblock; `e2fsck` and `tune2fs` bring the copies up to date.
    ///
    /// # Errors
    /// `Invalid` for one that is longer than [`MAX_LABEL_BYTES`], or has a NUL byte; `ReadOnly`; those of the journal.
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
        self.show_label()
    }

    /// What is durable in the journal is put home at once too, so that who looks at the device finds it there: `blkid`,
    /// `e2label`, `mount LABEL=`. Nothing else of the superblock goes with it.
    fn show_label(&self) -> Result<()> {
        if !self.has_log() {
            // The commit was the way home.
            return Ok(());
        }
        self.journal.while_home_rests(|| {
            // As it is now: of two who set it the later one's stays.
            let label = self.label();
            primary::edit(&self.disk, |home| put_label(home, &label))
        })
    }
}

fn put_label(sb: &mut Superblock, label: &[u8]) {
    sb.s_volume_name = [0; MAX_LABEL_BYTES];
    let place = sb.s_volume_name.iter_mut();
    place.zip(label).for_each(|(to, from)| *to = *from);
}
