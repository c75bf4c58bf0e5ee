//! What a volume is called: its label and its UUID.

use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// The label, up to 16 bytes; empty if there is none.
    pub fn label(&self) -> Vec<u8> {
        self.fs().label()
    }

    /// Changes the label, durably.
    ///
    /// # Errors
    /// [`crate::Reason::Invalid`] for one of more than 16 bytes, or with a NUL byte; [`crate::Reason::ReadOnly`]; the device's.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        Ok(self.fs().set_label(label)?)
    }

    /// The UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.fs().uuid()
    }

    /// Changes the UUID, durably. A volume with metadata checksums gets the feature `metadata_csum_seed` (Linux 4.4), so that
    /// its checksums stay as they are.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] for volumes with `uninit_bg`, `stable_inodes`, or `ea_inode` without metadata checksums;
    /// [`crate::Reason::ReadOnly`]; the device's.
    pub fn set_uuid(&self, uuid: [u8; 16]) -> Result<()> {
        Ok(self.fs().set_uuid(uuid)?)
    }
}
