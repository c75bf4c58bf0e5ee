//! Locates the structures of a sound image, and reseals them after changes.

use throughline_extfmt::checksum::crc32c;
use throughline_extfmt::dir;
use throughline_extfmt::extent::{self, Node};
use throughline_extfmt::features::Compat;
use throughline_extfmt::htree::{self, IndexNode, Root, TreeFormat};
use throughline_extfmt::inode::{FileType, InodeFlags};
use throughline_extfmt::quota::QuotaKind;
use throughline_extfmt::{
    FsBlock, Geometry, GroupDesc, GroupNumber, InodeImage, InodeNumber, Superblock, bitmap,
    group_desc, indirect, orphan, xattr,
};

/// The kind of a structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Superblock,
    GroupDesc(GroupNumber),
    BlockBitmap(GroupNumber),
    InodeBitmap(GroupNumber),
    Inode(InodeNumber),
    /// A block of a directory with names.
    Names(InodeNumber),
    TreeRoot(InodeNumber),
    TreeNode(InodeNumber),
    Extents(InodeNumber),
    Pointers,
    Xattrs,
    Orphans(InodeNumber),
    /// A block of a quota file.
    Quota,
    Journal,
}

/// The location of a structure in the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    /// Offset of its first byte.
    pub(crate) at: usize,
    /// Length in bytes.
    pub(crate) len: usize,
}

/// A sound image and the locations of its structures.
pub(crate) struct Base {
    pub(crate) bytes: Vec<u8>,
    pub(crate) geometry: Geometry,
    pub(crate) targets: Vec<Target>,
}

/// Blocks of a file, and of its map.
#[derive(Default)]
struct Map {
    data: Vec<FsBlock>,
    nodes: Vec<Target>,
}

impl Base {
    /// Surveys an image made by the tools; may panic on any other.
    pub(crate) fn new(bytes: Vec<u8>) -> Base {
        let superblock = Superblock::read(&bytes[1024..]).unwrap();
        let geometry = superblock.validate().unwrap();
        let mut base = Base {
            bytes,
            geometry,
            targets: Vec::new(),
        };
        base.push(Kind::Superblock, 1024, 1024);
        for group in (0..base.geometry.groups).map(GroupNumber) {
            base.survey_group(group, &superblock);
        }
        base
    }

    fn push(&mut self, kind: Kind, at: usize, len: usize) {
        self.targets.push(Target { kind, at, len });
    }

    fn push_block(&mut self, kind: Kind, block: FsBlock) {
        let target = self.target(kind, block);
        self.targets.push(target);
    }

    fn target(&self, kind: Kind, block: FsBlock) -> Target {
        let len = self.geometry.block_bytes as usize;
        Target {
            kind,
            at: block.0 as usize * len,
            len,
        }
    }

    fn block(&self, block: FsBlock) -> &[u8] {
        let target = self.target(Kind::Pointers, block);
        &self.bytes[target.at..][..target.len]
    }

    fn desc(&self, group: GroupNumber) -> GroupDesc {
        let (block, offset) = self.geometry.desc_place(group);
        GroupDesc::read(&self.block(block)[offset..][..usize::from(self.geometry.desc_bytes)])
            .unwrap()
    }

    fn survey_group(&mut self, group: GroupNumber, superblock: &Superblock) {
        let (block, offset) = self.geometry.desc_place(group);
        let at = self.target(Kind::Pointers, block).at + offset;
        self.push(Kind::GroupDesc(group), at, self.geometry.desc_bytes.into());
        let desc = self.desc(group);
        self.push_block(Kind::BlockBitmap(group), desc.block_bitmap());
        self.push_block(Kind::InodeBitmap(group), desc.inode_bitmap());
        if desc.flags().contains(group_desc::GroupFlags::INODE_UNINIT) {
            return;
        }
        for index in 0..self.geometry.inodes_per_group {
            let number = self.geometry.inode_at(group, index);
            if bitmap::is_set(self.block(desc.inode_bitmap()), index) {
                self.survey_inode(number, superblock);
            }
        }
    }

    fn inode_at(&self, number: InodeNumber) -> usize {
        let (group, index) = self.geometry.inode_place(number).unwrap();
        let (block, offset) = self.geometry.inode_in_table(index);
        let table = self.desc(group).inode_table();
        self.target(Kind::Pointers, FsBlock(table.0 + u64::from(block)))
            .at
            + offset
    }

    fn inode(&self, number: InodeNumber) -> InodeImage {
        let at = self.inode_at(number);
        InodeImage::read(&self.bytes[at..][..usize::from(self.geometry.inode_bytes)]).unwrap()
    }

    fn survey_inode(&mut self, number: InodeNumber, superblock: &Superblock) {
        let inode = self.inode(number);
        let at = self.inode_at(number);
        self.push(Kind::Inode(number), at, self.geometry.inode_bytes.into());
        if inode.mode() == 0 {
            return;
        }
        let acl = inode.file_acl(&self.geometry);
        if acl.0 != 0 {
            self.push_block(Kind::Xattrs, acl);
        }
        let map = self.map(number, &inode);
        self.targets.extend(&map.nodes);
        if inode.file_type() == Ok(FileType::Directory) {
            self.survey_dir(number, &inode, &map);
        } else if number == InodeNumber::JOURNAL {
            // Past the first few there are only zeros.
            for block in map.data.iter().take(24) {
                self.push_block(Kind::Journal, *block);
            }
        } else if QuotaKind::ALL
            .iter()
            .any(|kind| kind.inode(superblock) == Some(number))
        {
            for block in &map.data {
                self.push_block(Kind::Quota, *block);
            }
        } else if self.geometry.compat.contains(Compat::ORPHAN_FILE)
            && number.0 == superblock.s_orphan_file_inum.get()
        {
            for block in &map.data {
                self.push_block(Kind::Orphans(number), *block);
            }
        }
    }

    fn survey_dir(&mut self, number: InodeNumber, inode: &InodeImage, map: &Map) {
        let format = TreeFormat::new(&self.geometry);
        let indexed = inode.flags().contains(InodeFlags::INDEX);
        for (at, block) in map.data.iter().enumerate() {
            let bytes = self.block(*block);
            let kind = if indexed && at == 0 && Root::read(bytes, &format).is_ok() {
                Kind::TreeRoot(number)
            } else if indexed && IndexNode::node(bytes, &format).is_ok() {
                Kind::TreeNode(number)
            } else {
                Kind::Names(number)
            };
            self.push_block(kind, *block);
        }
    }

    fn map(&self, number: InodeNumber, inode: &InodeImage) -> Map {
        let mut map = Map::default();
        let mapped = match inode.file_type() {
            Ok(FileType::Regular | FileType::Directory) => true,
            Ok(FileType::Symlink) => !inode.is_fast_symlink(),
            _ => false,
        };
        if !mapped || inode.flags().contains(InodeFlags::INLINE_DATA) {
            return map;
        }
        if inode.flags().contains(InodeFlags::EXTENTS) {
            self.extents(number, Node::new(inode.i_block()).unwrap(), &mut map);
        } else {
            for index in 0..15usize {
                self.pointers(
                    inode.block_pointer(index),
                    index.saturating_sub(11),
                    &mut map,
                );
            }
        }
        map
    }

    fn extents(&self, number: InodeNumber, node: Node<'_>, map: &mut Map) {
        for extent in node.extents() {
            map.data
                .extend((0..u64::from(extent.len)).map(|n| FsBlock(extent.start.0 + n)));
        }
        for index in node.indexes() {
            map.nodes
                .push(self.target(Kind::Extents(number), index.child));
            self.extents(number, Node::new(self.block(index.child)).unwrap(), map);
        }
    }

    fn pointers(&self, pointer: u32, levels: usize, map: &mut Map) {
        let block = FsBlock(u64::from(pointer));
        if pointer == 0 {
            return;
        }
        if levels == 0 {
            return map.data.push(block);
        }
        map.nodes.push(self.target(Kind::Pointers, block));
        for index in 0..self.geometry.block_bytes / indirect::POINTER_BYTES {
            self.pointers(indirect::pointer(self.block(block), index), levels - 1, map);
        }
    }

    /// Corrects the checksum of a changed structure, so that it passes verification. A structure too damaged
    /// to have a checksum is left as it is.
    pub(crate) fn seal(&self, bytes: &mut [u8], target: &Target) {
        let geometry = &self.geometry;
        let seed = |number| {
            let at = self.inode_at(number);
            let inode = InodeImage::read(&bytes[at..][..usize::from(geometry.inode_bytes)]).ok()?;
            geometry.inode_seed(number, inode.generation())
        };
        let format = TreeFormat::new(geometry);
        let place = FsBlock((target.at / geometry.block_bytes as usize) as u64);
        match target.kind {
            Kind::Superblock => self.seal_superblock(&mut bytes[target.at..][..target.len]),
            Kind::GroupDesc(group) => {
                seal_desc(geometry, group, &mut bytes[target.at..][..target.len]);
            }
            Kind::BlockBitmap(group) | Kind::InodeBitmap(group) => {
                self.seal_bitmap(bytes, target, group)
            }
            Kind::Inode(number) => {
                let place = &mut bytes[target.at..][..target.len];
                if let Ok(mut inode) = InodeImage::read(place) {
                    inode.update_checksum(geometry, number);
                    place.copy_from_slice(inode.as_bytes());
                }
            }
            Kind::Names(number) => {
                let seed = seed(number);
                dir::update_checksum(&mut bytes[target.at..][..target.len], seed);
            }
            Kind::TreeRoot(number) | Kind::TreeNode(number) => {
                let (seed, is_root) = (seed(number), matches!(target.kind, Kind::TreeRoot(_)));
                let block = &mut bytes[target.at..][..target.len];
                let _ = htree::update_checksum(block, &format, is_root, seed);
            }
            Kind::Extents(number) => {
                let seed = seed(number);
                let _ = extent::update_block_checksum(&mut bytes[target.at..][..target.len], seed);
            }
            Kind::Xattrs => {
                xattr::update_checksum(
                    &mut bytes[target.at..][..target.len],
                    place,
                    geometry.csum_seed,
                );
            }
            Kind::Orphans(number) => {
                let seed = seed(number);
                // Setting a slot to its own value seals the block.
                let block = &mut bytes[target.at..][..target.len];
                let first = u32::from_le_bytes(block[..4].try_into().unwrap());
                let _ = orphan::set_slot(block, 0, InodeNumber(first), place, seed);
            }
            Kind::Journal => self.seal_journal(bytes, target),
            Kind::Pointers | Kind::Quota => {}
        }
    }

    fn seal_superblock(&self, bytes: &mut [u8]) {
        if let (Ok(superblock), true) = (Superblock::read(bytes), self.geometry.has_metadata_csum())
        {
            bytes[1020..].copy_from_slice(&superblock.checksum().to_le_bytes());
        }
    }

    fn seal_journal(&self, bytes: &mut [u8], target: &Target) {
        let first = self.targets.iter().find(|one| one.kind == Kind::Journal);
        let start = first.map_or(target.at, |first| first.at);
        // s_feature_incompat and s_uuid of the journal's superblock.
        let incompat = u32::from_be_bytes(bytes[start + 0x28..][..4].try_into().unwrap());
        let seed = crc32c(!0, &bytes[start + 0x30..][..16]);
        let block = &mut bytes[target.at..][..target.len];
        if incompat & 0x18 == 0 || block[..4] != [0xC0, 0x3B, 0x39, 0x98] {
            return;
        }
        let (place, covered, seed) = match block[7] {
            2 => (0x10, target.len, seed),
            3 | 4 => (0xFC, 1024, !0),
            _ => (target.len - 4, target.len, seed),
        };
        block[place..place + 4].fill(0);
        let sum = crc32c(seed, &block[..covered]);
        block[place..place + 4].copy_from_slice(&sum.to_be_bytes());
    }

    fn seal_bitmap(&self, bytes: &mut [u8], target: &Target, group: GroupNumber) {
        let Some(fs_seed) = self.geometry.csum_seed else {
            return;
        };
        let bits = &bytes[target.at..][..target.len];
        let per_group = self.geometry.inodes_per_group;
        let (blocks, inodes) = (self.geometry.clusters_per_group, per_group);
        let count = if matches!(target.kind, Kind::BlockBitmap(_)) {
            blocks
        } else {
            inodes
        };
        let sum = bitmap::checksum(bits, count, fs_seed);
        let (block, offset) = self.geometry.desc_place(group);
        let at = self.target(Kind::Pointers, block).at + offset;
        let place = &mut bytes[at..][..usize::from(self.geometry.desc_bytes)];
        if let Ok(mut desc) = GroupDesc::read(place) {
            match target.kind {
                Kind::BlockBitmap(_) => desc.set_block_bitmap_csum(sum),
                _ => desc.set_inode_bitmap_csum(sum),
            }
            desc.write(place);
            seal_desc(&self.geometry, group, place);
        }
    }
}

fn seal_desc(geometry: &Geometry, group: GroupNumber, bytes: &mut [u8]) {
    if let Ok(mut desc) = GroupDesc::read(bytes) {
        group_desc::write_with_checksum(geometry, group, &mut desc, bytes);
    }
}
