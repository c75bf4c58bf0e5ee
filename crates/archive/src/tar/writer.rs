//! Writes a tree as a PAX archive: names sorted, so the same tree gives the same bytes.
//!
//! - The first member is `./`, with the root's metadata.
//! - Of a file with several names, the first has the content and the others are hard links.
//! - PAX records hold what a ustar header cannot: names over 100 bytes, large numbers, fractions of seconds,
//!   attributes (`SCHILY.xattr.NAME`, which GNU tar and libarchive read), sparse files (GNU's format 1.0).
//! - POSIX ACLs are written twice: as text (`SCHILY.acl.*`, what GNU tar restores with `--acls`, and
//!   libarchive always), and as the attribute that they are on Linux. IDs in the text are numbers.
//! - Sockets have no form in a tar; they are left out and reported.

use std::io::{self, Write};

use super::{BLOCK, acl};
use crate::content::{Content, Extent};
use crate::error::{Error, Result};
use crate::meta::{Kind, Time};
use crate::source::{CHUNK, Sources};
use crate::tree::{NodeId, NodeRef, Tree};

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Members: names, with the root.
    pub members: u64,
    /// Bytes of the archive.
    pub bytes: u64,
    /// Sockets left out, by path; at most 1000 of them are listed.
    pub left_out: Vec<Vec<u8>>,
}

/// Sockets that are listed.
const LISTED: usize = 1000;
/// The largest number in a field of 8 bytes.
const SMALL_MAX: u64 = 0o777_7777;
/// The largest number in a field of 12 bytes.
const LARGE_MAX: u64 = 0o777_7777_7777;

/// Writes a tree to a tar archive. All its sources must be ones that are read at random.
///
/// ```
/// use throughline_archive::{Limits, Merge, write_tar};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # std::fs::write(directory.path().join("motd"), "hello\n")?;
/// # let path = directory.path().join("again.tar");
/// let mut merge = Merge::new(Limits::default());
/// merge.set_exclude(|path| path.ends_with(b".o"));
/// merge.add(directory.path())?;
/// let (mut tree, sources) = merge.finish();
/// tree.set_owner(0, 0);
/// let written = write_tar(&tree, &sources, &mut std::fs::File::create(&path)?)?;
/// assert_eq!(written.members, 2);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Io`] of `out` and of the sources; [`Error::Changed`] if a file changes meanwhile;
/// [`Error::Invalid`] for a source that is sequential.
pub fn write_tar(tree: &Tree, sources: &Sources, out: &mut dyn Write) -> Result<Written> {
    write_tar_past(tree, sources, out, &mut |_, error| Err(error))
}

/// As [`write_tar`]. If the data of a file cannot be read, `damaged` is called with its path and the error.
/// If that returns `Ok`, the file has zeros from there on, as with GNU tar.
///
/// # Errors
/// As there, and what `damaged` returns.
pub fn write_tar_past(
    tree: &Tree,
    sources: &Sources,
    out: &mut dyn Write,
    damaged: &mut dyn FnMut(&[u8], Error) -> Result<()>,
) -> Result<Written> {
    let mut writer = Writer {
        tree,
        sources,
        out,
        damaged,
        written: Written::default(),
        first_names: vec![None; tree.id_bound()],
        buffer: vec![0; CHUNK],
    };
    writer.member(b"./", NodeId::ROOT)?;
    let mut walk = tree.walk();
    while let Some(step) = walk.next() {
        let node = tree.node(step.node);
        match node.kind() {
            Kind::Socket => {
                if writer.written.left_out.len() < LISTED {
                    writer.written.left_out.push(step.path.to_vec());
                }
            }
            Kind::Directory => writer.member(&[step.path, b"/"].concat(), step.node)?,
            _ => writer.member(step.path, step.node)?,
        }
    }
    writer.put(&[0; 2 * BLOCK])?;
    writer
        .out
        .flush()
        .map_err(|error| Error::io("archive", error))?;
    Ok(writer.written)
}

struct Writer<'a> {
    tree: &'a Tree,
    sources: &'a Sources,
    out: &'a mut dyn Write,
    damaged: &'a mut dyn FnMut(&[u8], Error) -> Result<()>,
    written: Written,
    /// Of nodes with several names that were written: the name.
    first_names: Vec<Option<Box<[u8]>>>,
    buffer: Vec<u8>,
}

/// A header in the making.
struct Member {
    block: [u8; BLOCK],
    records: Vec<u8>,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.written.bytes += bytes.len() as u64;
        self.out
            .write_all(bytes)
            .map_err(|error: io::Error| Error::io("archive", error))
    }

    fn pad(&mut self, length: u64) -> Result<()> {
        let padding = (length.wrapping_neg() % BLOCK as u64) as usize;
        self.put(&[0; BLOCK][..padding])
    }

    fn member(&mut self, path: &[u8], id: NodeId) -> Result<()> {
        let tree = self.tree;
        let node = tree.node(id);
        let mut member = Member {
            block: [0; BLOCK],
            records: Vec::new(),
        };
        self.written.members += 1;
        if node.kind() != Kind::Directory && node.links() > 1 {
            if let Some(first) = self.first_names[id.index()].clone() {
                member.name(path);
                member.link(&first);
                member.describe(node, b'1');
                return self.headers(member);
            }
            self.first_names[id.index()] = Some(path.into());
        }
        let kind = match node.kind() {
            Kind::File => return self.file(member, path, node),
            Kind::Symlink => b'2',
            Kind::CharDevice => b'3',
            Kind::BlockDevice => b'4',
            Kind::Directory => b'5',
            Kind::Fifo => b'6',
            Kind::Socket => return Ok(()),
        };
        member.name(path);
        if let Some(target) = node.target() {
            member.link(target);
        }
        if let Some(device) = node.device() {
            number(&mut member.block[329..337], u64::from(device.major));
            number(&mut member.block[337..345], u64::from(device.minor));
        }
        member.describe(node, kind);
        member.attributes(node);
        self.headers(member)
    }

    fn file(&mut self, mut member: Member, path: &[u8], node: NodeRef<'_>) -> Result<()> {
        let content = node.content().expect("a file has content");
        let data = content.data_bytes();
        if data == content.size {
            member.name(path);
            member.size(data);
            member.describe(node, b'0');
            member.attributes(node);
            self.headers(member)?;
            return self.data(path, content, data);
        }
        let map = sparse_map(content);
        member.record(b"GNU.sparse.major", b"1");
        member.record(b"GNU.sparse.minor", b"0");
        member.record(b"GNU.sparse.name", path);
        member.record(b"GNU.sparse.realsize", content.size.to_string().as_bytes());
        member.name(b"GNUSparseFile.0");
        member.size(map.len() as u64 + data);
        member.describe(node, b'0');
        member.attributes(node);
        self.headers(member)?;
        self.put(&map)?;
        self.data(path, content, data)
    }

    fn data(&mut self, path: &[u8], content: Content<'_>, length: u64) -> Result<()> {
        let mut open = match self.sources.open(content) {
            Ok(open) => Some(open),
            Err(error) => (self.damaged)(path, error).map(|()| None)?,
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        for Extent { offset, length, .. } in content.extents() {
            let mut done = 0;
            while done < length {
                let part = (length - done).min(CHUNK as u64) as usize;
                let read = open.as_ref();
                let read = read.map(|open| open.read_at(offset + done, &mut buffer[..part]));
                if let Some(Err(error)) = read {
                    (self.damaged)(path, error)?;
                    open = None;
                }
                if open.is_none() {
                    buffer[..part].fill(0);
                }
                self.put(&buffer[..part])?;
                done += part as u64;
            }
        }
        self.buffer = buffer;
        open.map_or(Ok(()), |open| open.finish())?;
        self.pad(length)
    }

    /// Writes the PAX header, if there are records, and the header.
    fn headers(&mut self, mut member: Member) -> Result<()> {
        if !member.records.is_empty() {
            let mut pax = Member {
                block: [0; BLOCK],
                records: Vec::new(),
            };
            pax.block[..17].copy_from_slice(b"./PaxHeaders/next");
            number(&mut pax.block[100..108], 0o644);
            number(&mut pax.block[108..116], 0);
            number(&mut pax.block[116..124], 0);
            number(&mut pax.block[124..136], member.records.len() as u64);
            number(&mut pax.block[136..148], 0);
            pax.seal(b'x');
            self.put(&pax.block)?;
            self.put(&member.records)?;
            self.pad(member.records.len() as u64)?;
        }
        let kind = member.block[156];
        member.seal(kind);
        self.put(&member.block)
    }
}

impl Member {
    /// Adds a record, whose length counts its own digits.
    fn record(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        self.records
            .extend_from_slice(length.to_string().as_bytes());
        self.records.push(b' ');
        self.records.extend_from_slice(key);
        self.records.push(b'=');
        self.records.extend_from_slice(value);
        self.records.push(b'\n');
    }

    fn text(&mut self, from: usize, key: &[u8], text: &[u8]) {
        let short = &text[..text.len().min(100)];
        self.block[from..from + short.len()].copy_from_slice(short);
        if text.len() > 100 {
            if std::str::from_utf8(text).is_err() {
                self.record(b"hdrcharset", b"BINARY");
            }
            self.record(key, text);
        }
    }

    fn name(&mut self, path: &[u8]) {
        self.text(0, b"path", path);
    }

    fn link(&mut self, target: &[u8]) {
        self.text(157, b"linkpath", target);
    }

    fn size(&mut self, size: u64) {
        number(&mut self.block[124..136], size.min(LARGE_MAX));
        if size > LARGE_MAX {
            self.record(b"size", size.to_string().as_bytes());
        }
    }

    fn describe(&mut self, node: NodeRef<'_>, kind: u8) {
        self.block[156] = kind;
        number(&mut self.block[100..108], u64::from(node.permissions()));
        for (from, key, id) in [(108, &b"uid"[..], node.uid()), (116, b"gid", node.gid())] {
            number(
                &mut self.block[from..from + 8],
                u64::from(id).min(SMALL_MAX),
            );
            if u64::from(id) > SMALL_MAX {
                self.record(key, id.to_string().as_bytes());
            }
        }
        if self.block[124] == 0 {
            number(&mut self.block[124..136], 0);
        }
        let mtime = node.mtime();
        let whole = u64::try_from(mtime.seconds).unwrap_or(0).min(LARGE_MAX);
        number(&mut self.block[136..148], whole);
        if whole as i64 != mtime.seconds || mtime.nanoseconds != 0 {
            self.record(b"mtime", time(mtime).as_bytes());
        }
        for (key, other) in [(&b"atime"[..], node.atime()), (b"ctime", node.ctime())] {
            if let Some(other) = other {
                self.record(key, time(other).as_bytes());
            }
        }
    }

    fn attributes(&mut self, node: NodeRef<'_>) {
        for (name, value) in node.xattrs() {
            let text = match name {
                b"system.posix_acl_access" => {
                    acl::text(value).map(|text| (&b"SCHILY.acl.access"[..], text))
                }
                b"system.posix_acl_default" => {
                    acl::text(value).map(|text| (&b"SCHILY.acl.default"[..], text))
                }
                _ => None,
            };
            if let Some((key, text)) = text {
                self.record(key, text.as_bytes());
            }
            let mut key = b"SCHILY.xattr.".to_vec();
            for &byte in name {
                match byte {
                    b'=' => key.extend_from_slice(b"%3D"),
                    b'%' => key.extend_from_slice(b"%25"),
                    byte => key.push(byte),
                }
            }
            self.record(&key, value);
        }
    }

    /// Enters what all headers have, and the checksum.
    fn seal(&mut self, kind: u8) {
        self.block[156] = kind;
        self.block[257..265].copy_from_slice(b"ustar\x0000");
        self.block[148..156].fill(b' ');
        let sum: u32 = self.block.iter().map(|&byte| u32::from(byte)).sum();
        self.block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

/// A number in octal digits, or in GNU's base 256 where it has too many.
fn number(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    let text = format!("{value:0digits$o}\0");
    if text.len() == field.len() {
        field.copy_from_slice(text.as_bytes());
        return;
    }
    field.fill(0);
    field[0] = 0x80;
    let bytes = value.to_be_bytes();
    let low = bytes.len().min(digits);
    let start = field.len() - low;
    field[start..].copy_from_slice(&bytes[bytes.len() - low..]);
}

fn time(time: Time) -> String {
    let Time {
        seconds,
        nanoseconds,
    } = time;
    if nanoseconds == 0 {
        return seconds.to_string();
    }
    let (sign, seconds, nanoseconds) = match seconds {
        0.. => ("", seconds, nanoseconds),
        _ => ("-", -(seconds + 1), 1_000_000_000 - nanoseconds),
    };
    let text = format!("{sign}{seconds}.{nanoseconds:09}");
    text.trim_end_matches('0').to_owned()
}

/// The map of format 1.0, in whole blocks. A hole at the end is marked by an empty extent.
fn sparse_map(content: Content<'_>) -> Vec<u8> {
    let mut extents: Vec<(u64, u64)> = content
        .extents()
        .map(|extent| (extent.offset, extent.length))
        .collect();
    if extents
        .last()
        .is_none_or(|(offset, length)| offset + length < content.size)
    {
        extents.push((content.size, 0));
    }
    let mut map = format!("{}\n", extents.len()).into_bytes();
    for (offset, length) in extents {
        map.extend_from_slice(format!("{offset}\n{length}\n").as_bytes());
    }
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}
