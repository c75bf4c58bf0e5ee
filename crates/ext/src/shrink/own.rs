//! The volume's own files, the journal and the orphan file: where they are. They are moved while the volume
//! is closed.

use throughline_extfmt::extent::Extent;
use throughline_extfmt::{FsBlock, GroupDesc, GroupNumber, InodeImage, InodeNumber};

use crate::error::Result;
use crate::fs::Fs;
use crate::map::{self, Format, Piece};

/// A file of the volume itself.
#[derive(Clone, Debug)]
pub struct OwnFile {
    /// Its number.
    pub ino: InodeNumber,
    /// Its inode.
    pub image: InodeImage,
    /// Where the inode is, in bytes from the start of the volume.
    pub inode_at: u64,
    /// Whether it is mapped by extents.
    pub is_extents: bool,
    /// Its blocks, ascending.
    pub data: Vec<Extent>,
    /// Number of blocks of its mapping.
    pub nodes: u64,
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
        let (mut data, mut nodes) = (Vec::new(), 0);
        map::each_piece(self, &inode, |piece| {
            match piece {
                Piece::Data(extent) => data.push(extent),
                Piece::Node(_) => nodes += 1,
            }
            Ok(())
        })?;
        let (FsBlock(block), offset) = self.inode_place(ino)?;
        let image = inode.image();
        Ok(OwnFile {
            ino,
            is_extents: Format::of(&image) == Format::Extents,
            image,
            inode_at: (block << self.geo.block_log).saturating_add(offset as u64),
            data,
            nodes,
        })
    }
}
