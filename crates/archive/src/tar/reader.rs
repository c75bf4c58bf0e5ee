//! Reads the members of an archive one by one, and skips their data.
//!
//! Invariant: the work for a member is bounded by its own headers. What global headers say is shared by all
//! members; where it has to be copied for one, the copies so far are held to [`COPIES_MAX`].

use std::sync::Arc;

use super::BLOCK;
use super::entry::{Entry, EntryKind};
use super::header::Header;
use super::pax::{Attributes, Pax};
use super::sparse;
use crate::content::Extent;
use crate::error::{Error, Result, shown};
use crate::limits::Limits;
use crate::meta::{Device, Kind, Meta, Time, Xattr};
use crate::stream::Input;

/// Bytes of a long name, or of PAX records without attributes.
const RECORDS_MAX: u64 = 1 << 20;
/// Headers that describe one member, or say nothing.
const PREFIXES_MAX: usize = 4096;

/// Bytes of records that may be copied to members, for each byte of the headers so far. An own record is
/// copied once; a global one may be copied to each member.
const COPIES_MAX: u64 = 8;

/// Most bytes of an archive without members: tar pads with zeros, to 10 KiB unless it is told otherwise.
const PADDING_BYTES: usize = 1 << 20;
const NO_TAR: &str = "this is not a tar archive";

/// See the module's head.
pub(crate) struct Reader<'i> {
    input: &'i mut dyn Input,
    limits: &'i Limits,
    global: Pax,
    any: bool,
    /// Bytes of headers and records so far.
    headers: u64,
    /// Bytes of records that were copied to members.
    copied: u64,
}

impl<'i> Reader<'i> {
    pub(crate) fn new(input: &'i mut dyn Input, limits: &'i Limits) -> Reader<'i> {
        Reader {
            input,
            limits,
            global: Pax::default(),
            any: false,
            headers: 0,
            copied: 0,
        }
    }

    /// The next member; `None` at the end: a block of zeros, or where the input ends between members.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>> {
        let at = self.input.position();
        self.read_member()
            .map_err(|error| error.within(&format!("member at byte {at}")))
    }

    /// Reads the rest of an archive without members, which has only zeros: other files, such as images of
    /// disks, begin with zeros too.
    fn padding(&mut self) -> Result<()> {
        let mut part = [0; PADDING_BYTES / 64];
        for _ in 0..64 {
            let read = self.input.read(&mut part)?;
            if part[..read].iter().any(|&byte| byte != 0) {
                return Err(Error::damaged("header", NO_TAR));
            }
            if read < part.len() {
                return Ok(());
            }
        }
        Err(Error::damaged("header", NO_TAR))
    }

    fn read_member(&mut self) -> Result<Option<Entry>> {
        let mut pax = self.global.clone();
        let (mut name, mut link) = (None, None);
        for prefixes in 0..PREFIXES_MAX {
            let mut block = [0; BLOCK];
            let read = self.input.read(&mut block)?;
            if read == 0 && prefixes == 0 && self.any {
                return Ok(None);
            }
            if read < BLOCK {
                let problem = match read {
                    _ if self.any => "the archive is truncated",
                    0 => "it is empty: this is not a tar archive",
                    _ => NO_TAR,
                };
                return Err(Error::damaged("header", problem));
            }
            if block.iter().all(|&byte| byte == 0) {
                if prefixes > 0 {
                    return Err(Error::damaged(
                        "header",
                        "the archive ends where a member should be",
                    ));
                }
                if !self.any {
                    self.padding()?;
                }
                return Ok(None);
            }
            let Some(header) = Header::new(&block) else {
                let problem = if self.any {
                    "its checksum is wrong"
                } else {
                    NO_TAR
                };
                return Err(Error::damaged("header", problem));
            };
            self.any = true;
            self.headers += BLOCK as u64;
            match header.kind() {
                b'x' | b'X' => {
                    let data = self.records(&header)?;
                    pax.read(&data, self.limits)?;
                }
                b'g' => {
                    let data = self.records(&header)?;
                    // Not shared with this one while it changes.
                    drop(std::mem::take(&mut pax));
                    let copied = self.global.read_global(&data, self.limits)?;
                    self.copy(copied)?;
                    pax = self.global.clone();
                }
                b'L' => name = Some(self.long_name(&header)?),
                b'K' => link = Some(self.long_name(&header)?),
                // A label of the volume.
                b'V' => self.skip_data(header.size()?)?,
                _ => return self.member(&header, pax, name, link).map(Some),
            }
        }
        Err(Error::damaged(
            "header",
            "too many headers describe nothing",
        ))
    }

    fn records(&mut self, header: &Header<'_>) -> Result<Vec<u8>> {
        let size = header.size()?;
        // Attributes may be in base64, and have long names.
        let most = RECORDS_MAX + 2 * u64::from(self.limits.xattr_bytes);
        if size > most {
            return Err(Error::limit(
                "header",
                format_args!("its records have {size} bytes, over {most}"),
            ));
        }
        let mut data = vec![0; size as usize];
        if self.input.read(&mut data)? < data.len() {
            return Err(Error::damaged(
                "header",
                "the archive is truncated in its records",
            ));
        }
        self.headers += size;
        self.skip_padding(size)?;
        Ok(data)
    }

    /// Counts bytes of records that are copied.
    fn copy(&mut self, bytes: usize) -> Result<()> {
        self.copied += bytes as u64;
        if self.copied > COPIES_MAX * self.headers {
            return Err(Error::limit(
                "PAX header",
                "global records are too large for so many members",
            ));
        }
        Ok(())
    }

    /// A copy of a record, which may be a global one.
    fn copy_of(&mut self, record: &[u8]) -> Result<Vec<u8>> {
        self.copy(record.len())?;
        Ok(record.to_vec())
    }

    fn long_name(&mut self, header: &Header<'_>) -> Result<Vec<u8>> {
        let mut name = self.records(header)?;
        let end = name
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(name.len());
        name.truncate(end);
        Ok(name)
    }

    fn skip_padding(&mut self, size: u64) -> Result<()> {
        self.input.skip(size.wrapping_neg() % BLOCK as u64)
    }

    fn skip_data(&mut self, size: u64) -> Result<()> {
        self.input.skip(size)?;
        self.skip_padding(size)
    }

    fn member(
        &mut self,
        header: &Header<'_>,
        pax: Pax,
        name: Option<Vec<u8>>,
        link: Option<Vec<u8>>,
    ) -> Result<Entry> {
        let path = match pax.sparse.name.as_ref().or(pax.path.as_ref()) {
            Some(path) => self.copy_of(path)?,
            None => name.unwrap_or_else(|| header.path()),
        };
        let entry = self.described(header, &pax, &path, link);
        let (meta, kind) = entry.map_err(|error| error.within(&shown(&path)))?;
        let shared = (meta.xattrs.is_empty() && !pax.inherited.list.is_empty())
            .then(|| Arc::clone(&pax.inherited.list));
        Ok(Entry {
            path,
            meta,
            shared,
            kind,
        })
    }

    fn described(
        &mut self,
        header: &Header<'_>,
        pax: &Pax,
        path: &[u8],
        link: Option<Vec<u8>>,
    ) -> Result<(Meta, EntryKind)> {
        let meta = self.meta(header, pax)?;
        let size = pax.size.map_or_else(|| header.size(), Ok)?;
        let kind = match header.kind() {
            b'0' | 0 | b'7' if header.kind() == 0 && path.ends_with(b"/") => EntryKind::Directory,
            b'0' | 0 | b'7' | b'S' => return Ok((meta, self.file(header, pax, size)?)),
            // PAX allows data here, of the file that is linked.
            b'1' => EntryKind::Link(self.target(header, pax, link)?),
            b'2' => EntryKind::Symlink(self.target(header, pax, link)?),
            b'3' => EntryKind::Special(Kind::CharDevice, header.device()?),
            b'4' => EntryKind::Special(Kind::BlockDevice, header.device()?),
            b'5' | b'D' => EntryKind::Directory,
            b'6' => EntryKind::Special(Kind::Fifo, Device::default()),
            b'M' => {
                return Err(Error::Unsupported(
                    "this part of a multi-volume archive begins within a file".to_owned(),
                ));
            }
            other => {
                let name = char::from(other).escape_default();
                return Err(Error::Unsupported(format!(
                    "members of type '{name}' are not read"
                )));
            }
        };
        // Links and devices have no data, whatever their size says; GNU's directories may have a list of
        // names.
        let has_data =
            matches!(header.kind(), b'D') || (header.kind() == b'1' && pax.size.is_some());
        if has_data {
            self.skip_data(size)?;
        }
        Ok((meta, kind))
    }

    fn target(&mut self, header: &Header<'_>, pax: &Pax, link: Option<Vec<u8>>) -> Result<Vec<u8>> {
        match &pax.link {
            Some(target) => self.copy_of(target),
            None => Ok(link.unwrap_or_else(|| header.link())),
        }
    }

    /// The member's metadata. Without attributes of its own, it has none, and shares the inherited ones.
    fn meta(&mut self, header: &Header<'_>, pax: &Pax) -> Result<Meta> {
        let (atime, ctime) = header.gnu_times()?;
        let access = pax.xattrs.access.or(pax.inherited.access).flatten();
        let permissions = header.permissions()?;
        Ok(Meta {
            permissions: access.map_or(permissions, |access| permissions & 0o7000 | access),
            uid: pax.uid.map_or_else(|| header.uid(), Ok)?,
            gid: pax.gid.map_or_else(|| header.gid(), Ok)?,
            mtime: pax
                .mtime
                .map_or_else(|| header.mtime().map(Time::from_seconds), Ok)?,
            atime: pax.atime.or(atime.map(Time::from_seconds)),
            ctime: pax.ctime.or(ctime.map(Time::from_seconds)),
            xattrs: self.attributes(&pax.inherited, &pax.xattrs)?,
        })
    }

    /// A member's own attributes, after those that it inherits.
    fn attributes(&mut self, inherited: &Attributes, own: &Attributes) -> Result<Vec<Xattr>> {
        if own.list.is_empty() {
            return Ok(Vec::new());
        }
        self.copy(inherited.bytes)?;
        Ok(inherited.list.iter().chain(&*own.list).cloned().collect())
    }

    fn file(&mut self, header: &Header<'_>, pax: &Pax, stored: u64) -> Result<EntryKind> {
        let limit = self.limits.extents;
        if stored > i64::MAX as u64 {
            return Err(Error::damaged(
                "header",
                format_args!("the size is {stored}"),
            ));
        }
        let mut map_bytes = 0;
        let (map, size) = if header.kind() == b'S' {
            let (map, size) = sparse::read_old(header, self.input, limit)?;
            (Some(map), size)
        } else if pax.sparse.major >= 1 {
            let (map, bytes) = sparse::read_new(self.input, stored, limit)?;
            map_bytes = bytes;
            (Some(map), pax.sparse.size.unwrap_or(stored))
        } else {
            (pax.sparse.map.clone(), pax.sparse.size.unwrap_or(stored))
        };
        let stored = stored - map_bytes;
        if stored > self.limits.data_bytes {
            let limit = self.limits.data_bytes;
            return Err(Error::limit(
                "header",
                format_args!("a file has more than {limit} bytes of data"),
            ));
        }
        let at = self.input.pass(stored)?;
        self.skip_padding(stored)?;
        let whole = Extent {
            offset: 0,
            length: stored,
            at,
        };
        let extents = match map {
            Some(map) => sparse::placed(map, at, stored, size)?,
            None if stored == 0 => Vec::new(),
            None => vec![whole],
        };
        Ok(EntryKind::File { size, extents })
    }
}
