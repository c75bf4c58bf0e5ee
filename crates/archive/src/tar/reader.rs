//! Reads the members of an archive one by one, and skips their data.

use super::BLOCK;
use super::acl;
use super::entry::{Entry, EntryKind};
use super::header::Header;
use super::pax::Pax;
use super::sparse;
use crate::content::Extent;
use crate::error::{Error, Result, shown};
use crate::limits::Limits;
use crate::meta::{Device, Kind, Meta, Time};
use crate::stream::Input;

/// Bytes of a long name, or of PAX records without attributes.
const RECORDS_MAX: u64 = 1 << 20;
/// Headers that describe one member, or say nothing.
const PREFIXES_MAX: usize = 4096;

/// Most bytes of an archive without members: tar pads with zeros, to 10 KiB unless it is told otherwise.
const PADDING_BYTES: usize = 1 << 20;
const NO_TAR: &str = "this is not a tar archive";

/// See the module's head.
pub(crate) struct Reader<'i> {
    input: &'i mut dyn Input,
    limits: &'i Limits,
    global: Pax,
    any: bool,
}

impl<'i> Reader<'i> {
    pub(crate) fn new(input: &'i mut dyn Input, limits: &'i Limits) -> Reader<'i> {
        Reader {
            input,
            limits,
            global: Pax::default(),
            any: false,
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
            match header.kind() {
                b'x' | b'X' => {
                    let data = self.records(&header)?;
                    pax.read(&data, self.limits)?;
                }
                b'g' => {
                    let data = self.records(&header)?;
                    self.global.read(&data, self.limits)?;
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
        self.skip_padding(size)?;
        Ok(data)
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
        let path = pax
            .sparse
            .name
            .clone()
            .or_else(|| pax.path.clone())
            .or(name);
        let path = path.unwrap_or_else(|| header.path());
        let entry = self.described(header, &pax, &path, link);
        let (meta, kind) = entry.map_err(|error| error.within(&shown(&path)))?;
        Ok(Entry { path, meta, kind })
    }

    fn described(
        &mut self,
        header: &Header<'_>,
        pax: &Pax,
        path: &[u8],
        link: Option<Vec<u8>>,
    ) -> Result<(Meta, EntryKind)> {
        let meta = meta(header, pax)?;
        let target = || pax.link.clone().or(link).unwrap_or_else(|| header.link());
        let size = pax.size.map_or_else(|| header.size(), Ok)?;
        let kind = match header.kind() {
            b'0' | 0 | b'7' if header.kind() == 0 && path.ends_with(b"/") => EntryKind::Directory,
            b'0' | 0 | b'7' | b'S' => return Ok((meta, self.file(header, pax, size)?)),
            // PAX allows data here, of the file that is linked.
            b'1' => EntryKind::Link(target()),
            b'2' => EntryKind::Symlink(target()),
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

fn meta(header: &Header<'_>, pax: &Pax) -> Result<Meta> {
    let (atime, ctime) = header.gnu_times()?;
    let access = pax
        .xattrs
        .iter()
        .rfind(|(name, _)| name == b"system.posix_acl_access");
    let access = access.and_then(|(_, acl)| acl::permissions(acl));
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
        xattrs: pax.xattrs.clone(),
    })
}
