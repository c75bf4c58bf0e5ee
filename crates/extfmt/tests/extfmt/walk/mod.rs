//! Reads whole images for the tests: follows every structure, checks every checksum
//! and count, and asserts that they are consistent.

use std::collections::HashSet;
use std::path::Path;

use throughline_extfmt::dir::{self, DirFormat};
use throughline_extfmt::extent::{self, Expect, Node};
use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::group_desc::{self, GroupFlags};
use throughline_extfmt::hash::HashVersion;
use throughline_extfmt::htree::{self, IndexNode, Root, TreeFormat};
use throughline_extfmt::indirect::{self, IndirectGeometry};
use throughline_extfmt::inode::{FileType, InodeFlags};
use throughline_extfmt::jbd2::{JournalGeometry, JournalSuperblock};
use throughline_extfmt::mmp::MmpBlock;
use throughline_extfmt::superblock::{Flags, Superblock};
use throughline_extfmt::{
    FileBlock, FsBlock, Geometry, GroupDesc, GroupNumber, InodeImage, InodeNumber, bitmap,
    inline_data, orphan, xattr,
};

pub(crate) struct Image {
    bytes: Vec<u8>,
    pub(crate) superblock: Superblock,
    pub(crate) geometry: Geometry,
}

/// What a walk has found.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) directories: usize,
    pub(crate) names: usize,
    pub(crate) hashed: usize,
    pub(crate) index_nodes: usize,
    pub(crate) extent_blocks: usize,
    pub(crate) attributes: usize,
}

/// Blocks of a file: logical to physical, and the blocks of the map itself.
#[derive(Default)]
struct Map {
    data: Vec<(u64, FsBlock)>,
    nodes: usize,
}

impl Image {
    pub(crate) fn open(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let superblock = Superblock::read(&bytes[1024..]).unwrap();
        let geometry = superblock.validate().unwrap();
        assert_eq!(
            geometry.blocks * u64::from(geometry.block_bytes) / 1024,
            bytes.len() as u64 / 1024
        );
        Self {
            bytes,
            superblock,
            geometry,
        }
    }

    pub(crate) fn block(&self, block: FsBlock) -> &[u8] {
        let start = block.byte_offset(self.geometry.block_bytes).unwrap() as usize;
        &self.bytes[start..][..self.geometry.block_bytes as usize]
    }

    pub(crate) fn group(&self, group: GroupNumber) -> GroupDesc {
        let (block, offset) = self.geometry.desc_place(group);
        group_desc::read_checked(&self.geometry, group, self.block(block), offset).unwrap()
    }

    pub(crate) fn inode(&self, number: InodeNumber) -> InodeImage {
        let (group, index) = self.geometry.inode_place(number).unwrap();
        assert_eq!(self.geometry.inode_at(group, index), number);
        let (block, offset) = self.geometry.inode_in_table(index);
        let table = self.group(group).inode_table();
        let bytes = self.block(table.checked_add(u64::from(block)).unwrap());
        let size = usize::from(self.geometry.inode_bytes);
        let image = InodeImage::read(&bytes[offset..][..size]).unwrap();
        image.verify_checksum(&self.geometry, number).unwrap();
        image
    }

    fn seed(&self, number: InodeNumber, inode: &InodeImage) -> Option<u32> {
        self.geometry.inode_seed(number, inode.generation())
    }

    /// Walks the whole volume.
    pub(crate) fn walk(&self) -> Summary {
        let mut summary = Summary::default();
        self.check_backups();
        if self.geometry.incompat.contains(Incompat::MMP) {
            let block = FsBlock(self.superblock.s_mmp_block.get());
            MmpBlock::read(self.block(block), self.geometry.csum_seed).unwrap();
        }
        let (mut free_blocks, mut free_inodes) = (0, 0);
        let mut attribute_blocks = HashSet::new();
        for group in (0..self.geometry.groups).map(GroupNumber) {
            let desc = self.group(group);
            self.check_block_bitmap(group, &desc);
            free_blocks += u64::from(desc.free_blocks());
            free_inodes += desc.free_inodes();
            let used = self.used_inodes(group, &desc);
            let mut directories = 0;
            for number in used {
                let inode = self.inode(number);
                if inode.mode() == 0 {
                    assert!(
                        number < self.geometry.first_ino,
                        "inode {number} has no mode"
                    );
                    continue;
                }
                directories += u32::from(inode.file_type() == Ok(FileType::Directory));
                self.walk_inode(number, &inode, &mut summary, &mut attribute_blocks);
            }
            assert_eq!(
                directories,
                desc.used_dirs(),
                "directories of group {group}"
            );
        }
        let free_blocks = free_blocks << self.geometry.cluster_ratio_log;
        assert_eq!(free_blocks, self.superblock.free_blocks_count());
        assert_eq!(free_inodes, self.superblock.s_free_inodes_count.get());
        summary
    }

    /// Checks that backups of the superblock and of descriptor blocks are where the layout says.
    fn check_backups(&self) {
        let geometry = &self.geometry;
        for group in geometry.superblock_groups().skip(1) {
            let block = self.block(geometry.superblock_block(group).unwrap());
            let backup = Superblock::read(block).unwrap();
            assert_eq!(backup.s_uuid, self.superblock.s_uuid);
            assert_eq!(u32::from(backup.s_block_group_nr.get()), group.0);
            backup.verify_checksum().unwrap();
        }
        for index in 0..geometry.desc_blocks {
            let first = GroupNumber(index * geometry.descs_per_block());
            for place in geometry.desc_block_backups(index) {
                // Counts may be stale in backups, locations may not.
                let backup =
                    GroupDesc::read(&self.block(place)[..usize::from(geometry.desc_bytes)]);
                assert_eq!(
                    backup.unwrap().inode_table(),
                    self.group(first).inode_table()
                );
            }
        }
    }

    fn check_block_bitmap(&self, group: GroupNumber, desc: &GroupDesc) {
        let geometry = &self.geometry;
        let clusters = geometry.group_clusters(group);
        let mut initial = vec![0u8; geometry.block_bytes as usize];
        geometry.init_block_bitmap(group, desc, &mut initial);
        let bits = if geometry.has_group_csum() && desc.flags().contains(GroupFlags::BLOCK_UNINIT) {
            assert_eq!(
                bitmap::count_clear(&initial, 0..clusters),
                desc.free_blocks(),
                "group {group}"
            );
            &initial[..]
        } else {
            let bits = self.block(desc.block_bitmap());
            self.check_bitmap_csum(bits, geometry.clusters_per_group, desc.block_bitmap_csum());
            bits
        };
        assert_eq!(
            bitmap::count_clear(bits, 0..clusters),
            desc.free_blocks(),
            "group {group}"
        );
        // The fixed metadata is in use, and the bits past the end are set.
        for (byte, fixed) in bits.iter().zip(&initial) {
            assert_eq!(byte & fixed, *fixed, "fixed metadata of group {group}");
        }
    }

    fn check_bitmap_csum(&self, bits: &[u8], count: u32, found: u32) {
        if let Some(seed) = self.geometry.csum_seed {
            let right = bitmap::checksum(bits, count, seed);
            let mask = if self.geometry.desc_bytes >= 64 {
                !0
            } else {
                0xFFFF
            };
            assert_eq!(found, right & mask);
        }
    }

    fn used_inodes(&self, group: GroupNumber, desc: &GroupDesc) -> Vec<InodeNumber> {
        let geometry = &self.geometry;
        let per_group = geometry.inodes_per_group;
        if geometry.has_group_csum() && desc.flags().contains(GroupFlags::INODE_UNINIT) {
            assert_eq!(desc.free_inodes(), per_group);
            return Vec::new();
        }
        let bits = self.block(desc.inode_bitmap());
        self.check_bitmap_csum(bits, per_group, desc.inode_bitmap_csum());
        assert_eq!(
            bitmap::count_clear(bits, 0..per_group),
            desc.free_inodes(),
            "group {group}"
        );
        let used: Vec<u32> = (0..per_group)
            .filter(|&bit| bitmap::is_set(bits, bit))
            .collect();
        if geometry.has_group_csum()
            && let Some(last) = used.last()
        {
            assert!(
                *last < per_group - desc.itable_unused(),
                "unused inodes of group {group}"
            );
        }
        used.into_iter()
            .map(|index| geometry.inode_at(group, index))
            .collect()
    }

    fn walk_inode(
        &self,
        number: InodeNumber,
        inode: &InodeImage,
        summary: &mut Summary,
        attribute_blocks: &mut HashSet<FsBlock>,
    ) {
        let map = self.map(number, inode, summary);
        let acl = inode.file_acl(&self.geometry);
        let mut owned = (map.data.len() + map.nodes) as u64;
        let ibody = xattr::read_ibody(inode.xattr_area()).unwrap();
        summary.attributes += ibody
            .iter()
            .filter(|a| a.name_index == xattr::INDEX_USER)
            .count();
        if acl.0 != 0 {
            owned += 1;
            attribute_blocks.insert(acl);
            let block = self.block(acl);
            xattr::verify_checksum(block, acl, self.geometry.csum_seed).unwrap();
            let list = xattr::read_block(block).unwrap();
            summary.attributes += list.len();
            let mut again = block.to_vec();
            assert!(xattr::write_block(&mut again, &list));
            assert_eq!(xattr::read_block(&again).unwrap(), list);
            // libext2fs does not set h_hash, but sets e_hash (byte 12 of an entry).
            assert_eq!(again[32 + 12..32 + 16], block[32 + 12..32 + 16]);
        }
        if self.geometry.cluster_ratio_log == 0 {
            let sectors = owned << (self.geometry.block_log - 9);
            assert_eq!(
                inode.blocks_512(&self.geometry),
                sectors,
                "blocks of inode {number}"
            );
        }
        if inode.file_type() == Ok(FileType::Directory) {
            summary.directories += 1;
            let names = self.walk_dir(number, inode, &map, summary);
            summary.names += names.len();
        }
        if self.geometry.compat.contains(Compat::ORPHAN_FILE)
            && number.0 == self.superblock.s_orphan_file_inum.get()
        {
            for (_, block) in &map.data {
                let seed = self.seed(number, inode);
                orphan::check(self.block(*block), *block, self.geometry.inodes, seed).unwrap();
                assert_eq!(orphan::orphans(self.block(*block)).unwrap().count(), 0);
            }
        }
    }

    fn map(&self, number: InodeNumber, inode: &InodeImage, summary: &mut Summary) -> Map {
        let mut map = Map::default();
        let flags = inode.flags();
        let no_map = match inode.file_type().unwrap() {
            FileType::Regular | FileType::Directory => flags.contains(InodeFlags::INLINE_DATA),
            FileType::Symlink => inode.is_fast_symlink() || flags.contains(InodeFlags::INLINE_DATA),
            _ => true,
        };
        if no_map {
            return map;
        }
        if flags.contains(InodeFlags::EXTENTS) {
            let node = Node::new(inode.i_block()).unwrap();
            self.extents(number, inode, node, &Expect::ROOT, &mut map);
            summary.extent_blocks += map.nodes;
        } else {
            let geometry = IndirectGeometry::new(self.geometry.block_bytes);
            for index in 0..15 {
                let levels = (index as usize).saturating_sub(11);
                let first = if levels == 0 {
                    index
                } else {
                    geometry.first_of(levels)
                };
                self.pointers(
                    inode.block_pointer(index as usize),
                    levels,
                    first,
                    &geometry,
                    &mut map,
                );
            }
        }
        map
    }

    fn extents(
        &self,
        number: InodeNumber,
        inode: &InodeImage,
        node: Node<'_>,
        expect: &Expect,
        map: &mut Map,
    ) {
        node.check(&self.geometry, expect).unwrap();
        for extent in node.extents() {
            for skip in 0..extent.len {
                let block = FileBlock(extent.block.0 + skip);
                assert_eq!(
                    node.search(block).and_then(|at| node.extent(at)),
                    Some(extent)
                );
                map.data
                    .push((u64::from(block.0), extent.map(block).unwrap()));
            }
        }
        for (at, index) in node.indexes().enumerate() {
            map.nodes += 1;
            let block = self.block(index.child);
            extent::verify_block_checksum(block, self.seed(number, inode)).unwrap();
            let child = Node::new(block).unwrap();
            let expect = node.expect_child(at, expect.end).unwrap();
            self.extents(number, inode, child, &expect, map);
        }
    }

    fn pointers(
        &self,
        pointer: u32,
        levels: usize,
        first: u64,
        g: &IndirectGeometry,
        map: &mut Map,
    ) {
        if pointer == 0 {
            return;
        }
        let block = FsBlock(u64::from(pointer));
        assert!(self.geometry.holds_blocks(block, 1));
        if levels == 0 {
            map.data.push((first, block));
            return;
        }
        map.nodes += 1;
        for index in 0..g.per_block() {
            let first = first + u64::from(index) * g.span(levels - 1);
            self.pointers(
                indirect::pointer(self.block(block), index),
                levels - 1,
                first,
                g,
                map,
            );
        }
    }

    /// Names and inodes of a directory, "." and ".." left out.
    fn walk_dir(
        &self,
        number: InodeNumber,
        inode: &InodeImage,
        map: &Map,
        summary: &mut Summary,
    ) -> Vec<(Vec<u8>, InodeNumber)> {
        let format = DirFormat::new(&self.geometry);
        let seed = self.seed(number, inode);
        let mut names = Vec::new();
        let mut collect = |region: &[u8], format: &DirFormat| {
            for entry in dir::entries(region, format) {
                let entry = entry.unwrap();
                if entry.is_used() && entry.name != b"." && entry.name != b".." {
                    names.push((entry.name.to_vec(), entry.inode));
                }
            }
        };
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            collect(inline_data::dir_region(inode.i_block()), &format.inline());
            for attribute in xattr::read_ibody(inode.xattr_area()).unwrap() {
                if let xattr::Value::Bytes(bytes) = attribute.value
                    && attribute.name == inline_data::XATTR_NAME
                    && attribute.name_index == inline_data::XATTR_NAME_INDEX
                {
                    collect(&bytes, &format.inline());
                }
            }
            return names;
        }
        let hashed = inode.flags().contains(InodeFlags::INDEX);
        let indexes = if hashed {
            self.walk_tree(map, seed, summary)
        } else {
            HashSet::new()
        };
        for (logical, block) in &map.data {
            let bytes = self.block(*block);
            if !indexes.contains(logical) {
                dir::verify_checksum(bytes, seed).unwrap();
                dir::check(bytes, &format).unwrap();
                collect(bytes, &format);
            }
        }
        names
    }

    /// Follows a hash tree; the logical blocks of its index blocks.
    fn walk_tree(&self, map: &Map, seed: Option<u32>, summary: &mut Summary) -> HashSet<u64> {
        summary.hashed += 1;
        let format = TreeFormat::new(&self.geometry);
        let at = |logical: u64| map.data.iter().find(|(l, _)| *l == logical).unwrap().1;
        let root_block = self.block(at(0));
        htree::verify_checksum(root_block, &format, true, seed).unwrap();
        let root = Root::read(root_block, &format).unwrap();
        let unsigned = self.superblock.flags().contains(Flags::UNSIGNED_HASH);
        let version = HashVersion::from_disk(root.hash_version, unsigned).unwrap();
        let mut indexes = HashSet::from([0]);
        let mut level = vec![(
            IndexNode::root(root_block, &format).unwrap(),
            0u32,
            u32::MAX,
        )];
        for depth in 0..=root.indirect_levels {
            let mut next = Vec::new();
            for (node, low, high) in level {
                node.check(map.data.len() as u32).unwrap();
                for entry in 0..node.count() {
                    let low = if entry == 0 { low } else { node.hash(entry) };
                    let high = if entry + 1 < node.count() {
                        node.hash(entry + 1)
                    } else {
                        high
                    };
                    assert_eq!(
                        node.search(low),
                        if low == 0 { 0 } else { node.search(low) }
                    );
                    let logical = u64::from(node.block(entry).0);
                    let block = self.block(at(logical));
                    if depth < root.indirect_levels {
                        summary.index_nodes += 1;
                        indexes.insert(logical);
                        htree::verify_checksum(block, &format, false, seed).unwrap();
                        next.push((IndexNode::node(block, &format).unwrap(), low, high));
                    } else {
                        self.check_hashes(block, version, low & !1, high);
                    }
                }
            }
            level = next;
        }
        indexes
    }

    /// Every name of a leaf hashes into its range.
    fn check_hashes(&self, block: &[u8], version: HashVersion, low: u32, high: u32) {
        let seed = self.superblock.hash_seed();
        for entry in dir::entries(block, &DirFormat::new(&self.geometry)) {
            let entry = entry.unwrap();
            if entry.is_used() {
                let hash = version.hash(entry.name, seed).unwrap().major;
                assert!(
                    (low..=high).contains(&hash),
                    "hash {hash:#x}, {low:#x} to {high:#x}"
                );
            }
        }
    }

    /// The inode at a path of names.
    pub(crate) fn lookup(&self, path: &str) -> InodeImage {
        let mut number = InodeNumber::ROOT;
        for name in path.split('/') {
            let inode = self.inode(number);
            let mut ignored = Summary::default();
            let map = self.map(number, &inode, &mut ignored);
            let names = self.walk_dir(number, &inode, &map, &mut ignored);
            let found = names.iter().find(|(found, _)| found == name.as_bytes());
            number = found.unwrap_or_else(|| panic!("no {name} in {path}")).1;
        }
        self.inode(number)
    }

    /// Block `at` of the journal.
    pub(crate) fn journal_block(&self, at: u32) -> &[u8] {
        let inode = self.inode(InodeNumber::JOURNAL);
        let map = self.map(InodeNumber::JOURNAL, &inode, &mut Summary::default());
        let found = map
            .data
            .iter()
            .find(|(logical, _)| *logical == u64::from(at));
        self.block(found.expect("the journal has no holes").1)
    }

    /// The journal in inode 8.
    pub(crate) fn journal(&self) -> Option<JournalGeometry> {
        let number = InodeNumber(self.superblock.s_journal_inum.get());
        if number == InodeNumber::NONE || !self.geometry.compat.contains(Compat::HAS_JOURNAL) {
            return None;
        }
        let inode = self.inode(number);
        let map = self.map(number, &inode, &mut Summary::default());
        let superblock = JournalSuperblock::read(self.block(map.data[0].1)).unwrap();
        let mut again = superblock;
        again.update_checksum();
        assert_eq!(again.s_checksum.get(), superblock.s_checksum.get());
        let blocks = map.data.len() as u64;
        Some(
            superblock
                .validate(self.geometry.block_bytes, blocks)
                .unwrap(),
        )
    }
}
