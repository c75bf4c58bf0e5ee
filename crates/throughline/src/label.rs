//! A volume's label and UUID.

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
    /// [`crate::Reason::Invalid`] for more than 16 bytes or a NUL byte; [`crate::Reason::ReadOnly`]; device
    /// errors.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        Ok(self.fs().set_label(label)?)
    }

    /// The UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.fs().uuid()
    }

    /// Changes the UUID, durably. A volume with metadata checksums gets the feature `metadata_csum_seed`
    /// (Linux 4.4), so that its checksums remain valid.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] for volumes with `uninit_bg`, `stable_inodes`, or `ea_inode` without
    /// metadata checksums; [`crate::Reason::ReadOnly`]; device errors.
    pub fn set_uuid(&self, uuid: [u8; 16]) -> Result<()> {
        Ok(self.fs().set_uuid(uuid)?)
    }
}
