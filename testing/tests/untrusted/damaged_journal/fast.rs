//! Hand-made fast commits: one more file than in the log, encoded as the kernel would in the area after the
//! log.
//!
//! ```text
//!  | head (tid) | inode | ranges of it ... | its name | tail (tid, sum), to the block's end |
//! ```

use throughline::OpenOptions;
use throughline::internal::OpenBlockDevice;
use throughline_extfmt::InodeNumber;
use throughline_extfmt::checksum::crc32c;

use super::craft::{Base, Crafted, QUICK};
use super::disk::load;
use crate::survey::{self, Kind};

/// Tag numbers.
const ADD_RANGE: u16 = 1;
const CREATE: u16 = 3;
const INODE: u16 = 6;
const TAIL: u16 = 8;
const HEAD: u16 = 9;
/// Bytes of an inode that matter: 128, and the extra fields that mke2fs makes room for.
const INODE_BYTES: usize = 160;
const ROOT: InodeNumber = InodeNumber(2);

/// A fast commit in an image.
pub(crate) struct Fast {
    /// The byte offset of its block.
    pub(crate) at: usize,
    /// For each tag: its byte offset in the block, its code, and the bytes of its value.
    pub(crate) tags: Vec<(usize, u16, usize)>,
}

/// Adds a fast commit of transaction `tid` to the crafted image: the file's data goes to its home, everything
/// else to the area.
pub(crate) fn add(base: &Base, crafted: &mut Crafted, tid: u32) -> Fast {
    let volume = OpenOptions::new()
        .open_block_device(load(&base.quick) as _)
        .expect("a sound image");
    let found = volume.metadata(QUICK).expect("the file");
    let ino = InodeNumber(found.ino() as u32);
    let survey = survey::Base::new(base.quick.clone());
    let inode = |ino: InodeNumber| {
        let targets = &mut survey.targets.iter();
        let target = targets.find(|target| target.kind == Kind::Inode(ino));
        &base.quick[target.expect("an inode in use").at..][..INODE_BYTES]
    };
    let mut writer = Writer::default();
    writer.tag(HEAD, &[&0u32.to_le_bytes(), &tid.to_le_bytes()]);
    writer.tag(INODE, &[&ino.0.to_le_bytes(), inode(ino)]);
    for leaf in leaves(inode(ino)) {
        writer.tag(ADD_RANGE, &[&ino.0.to_le_bytes(), leaf]);
        copy_data(base, crafted, leaf);
    }
    let (parent, number) = (ROOT.0.to_le_bytes(), ino.0.to_le_bytes());
    writer.tag(CREATE, &[&parent, &number, QUICK.as_bytes()]);
    let size = base.kind.block_bytes as usize;
    writer.tail(tid, size);
    // The block between the log and the area is not used.
    let at = base.at(base.log_end + 1);
    crafted.bytes[at..at + size].copy_from_slice(&writer.bytes);
    let size = base.kind.block_bytes as usize;
    let quick = base
        .quick
        .chunks(size)
        .zip(base.states[base.states.len() - 1].chunks(size));
    let differing = (0u64..)
        .zip(quick)
        .filter(|(_, (quick, last))| quick != last);
    crafted.claims.extend(differing.map(|(block, _)| block));
    Fast {
        at,
        tags: writer.tags,
    }
}

/// The leaf entries of an inode's root node.
fn leaves(inode: &[u8]) -> impl Iterator<Item = &[u8]> {
    let map = &inode[0x28..0x28 + 60];
    let depth = u16::from_le_bytes([map[6], map[7]]);
    assert_eq!(depth, 0, "a small file");
    let count = u16::from_le_bytes([map[2], map[3]]);
    map[12..].chunks_exact(12).take(count.into())
}

/// Data is written to its home before anything refers to it.
fn copy_data(base: &Base, crafted: &mut Crafted, leaf: &[u8]) {
    let size = base.kind.block_bytes as usize;
    let number = |at: usize| u32::from_le_bytes(leaf[at..at + 4].try_into().expect("four bytes"));
    let (first, len) = (number(8) as usize, u16::from_le_bytes([leaf[4], leaf[5]]));
    let range = first * size..(first + usize::from(len)) * size;
    crafted.bytes[range.clone()].copy_from_slice(&base.quick[range]);
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    tags: Vec<(usize, u16, usize)>,
}

impl Writer {
    fn tag(&mut self, code: u16, value: &[&[u8]]) {
        let len: usize = value.iter().map(|part| part.len()).sum();
        self.tags.push((self.bytes.len(), code, len));
        self.bytes.extend(code.to_le_bytes());
        self.bytes.extend((len as u16).to_le_bytes());
        value.iter().for_each(|part| self.bytes.extend(*part));
    }

    /// Its padding extends to the end of the block.
    fn tail(&mut self, tid: u32, size: usize) {
        let len = size - self.bytes.len() - 4;
        let padding = vec![0; len - 8];
        self.tag(TAIL, &[&tid.to_le_bytes(), &[0; 4], &padding]);
        seal(&mut self.bytes, &self.tags);
    }
}

/// Corrects the checksum of the last tag, a tail: it covers everything before the tag, and the tag up to the
/// checksum.
pub(crate) fn seal(block: &mut [u8], tags: &[(usize, u16, usize)]) {
    if let Some((at, TAIL, _)) = tags.last() {
        let sum = crc32c(0, &block[..at + 8]);
        block[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
    }
}
