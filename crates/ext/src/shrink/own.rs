//! The volume's own files, the journal and the orphan file: where they are. They are moved while the volume
//! is closed.

use throughline_extfmt::extent::Extent;
use throughline_extfmt::{FsBlock, GroupDesc, GroupNumber, InodeImage, InodeNumber};

use crate::error::Result;
use crate::fs::Fs;
use crate::map::{self, Piece};

/// A file of the volume itself.
#[derive(Clone, Debug)]
pub struct OwnFile {
    /// Its number.
    pub ino: InodeNumber,
    /// Its inode.
    pub image: InodeImage,
    /// Where the inode is, in bytes from the start of the volume.
    pub inode_at: u64,
    /// Its blocks, ascending.
    pub data: Vec<Extent>,
}

impl Fs {
    /// The descriptors of all groups.
    ///
    /// # Errors
    /// `Corrupt`; device errors.
    pub fn group_descs(&self) -> Result<Vec<GroupDesc>> {
        let groups = (0..self.geo.groups).map(GroupNumber);
        groups
            .map(|group| {
                self.read_descriptors_ahead(group);
                self.group_desc(group)
            })
            .collect()
    }

    /// A file of the volume itself, by its number.
    ///
    /// # Errors
    /// `Corrupt`; device errors.
    pub fn own_file(&self, ino: InodeNumber) -> Result<OwnFile> {
        let inode = self.inode(ino)?;
        let mut data = Vec::new();
        map::each_piece(self, &inode, |piece| {
            if let Piece::Data(extent) = piece {
                data.push(extent);
            }
            Ok(())
        })?;
        let (FsBlock(block), offset) = self.inode_place(ino)?;
        Ok(OwnFile {
            ino,
            image: inode.image(),
            inode_at: (block << self.geo.block_log).saturating_add(offset as u64),
            data,
        })
    }
}
