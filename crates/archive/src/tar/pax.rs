//! Records of PAX headers.
//!
//! Records of a global header apply to all members that follow. So what is cloned for each member is shared
//! (`Arc`): a member costs no more than its own headers.

use std::sync::Arc;

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use percent_encoding::percent_decode;

use super::{acl, header, sparse};
use crate::content::Extent;
use crate::error::{Error, Result, shown};
use crate::limits::Limits;
use crate::meta::{Time, Xattr};

/// What the records of a member, or of all that follow, say. A clone is cheap, but for a map of a sparse
/// file.
#[derive(Clone, Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Arc<[u8]>>,
    pub(super) link: Option<Arc<[u8]>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<Time>,
    pub(super) atime: Option<Time>,
    pub(super) ctime: Option<Time>,
    /// Attributes of global headers.
    pub(super) inherited: Attributes,
    /// Those of the member.
    pub(super) xattrs: Attributes,
    pub(super) sparse: SparseRecords,
}

/// Attributes, in the order of their records.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    pub(super) list: Arc<Vec<Xattr>>,
    /// Bytes of names and values, and a few for each.
    pub(super) bytes: usize,
    /// The permissions that the last access ACL gives, if there is one: `None` if it is not sound.
    pub(super) access: Option<Option<u16>>,
}

/// What an attribute counts for, besides its name and value.
const ATTRIBUTE_BYTES: usize = 5;
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

impl Attributes {
    fn push(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.bytes += name.len() + value.len() + ATTRIBUTE_BYTES;
        if name == ACCESS_ACL {
            self.access = Some(acl::permissions(&value));
        }
        Arc::make_mut(&mut self.list).push((name, value));
    }

    /// Adds those of `other` after these. How many bytes were copied for it.
    fn append(&mut self, other: Attributes) -> usize {
        if other.list.is_empty() {
            return 0;
        }
        let copied = match Arc::get_mut(&mut self.list) {
            Some(_) => other.bytes,
            None => self.bytes + other.bytes,
        };
        self.access = other.access.or(self.access);
        self.bytes += other.bytes;
        Arc::make_mut(&mut self.list).extend(Arc::unwrap_or_clone(other.list));
        copied
    }
}

/// Records of GNU's sparse files, formats 0.0, 0.1 and 1.0.
#[derive(Clone, Debug, Default)]
pub(super) struct SparseRecords {
    pub(super) name: Option<Arc<[u8]>>,
    pub(super) major: u64,
    pub(super) size: Option<u64>,
    /// Offsets and lengths; `at` is not known here.
    pub(super) map: Option<Vec<Extent>>,
    offset: Option<u64>,
}

fn damaged(problem: impl std::fmt::Display) -> Error {
    Error::damaged("PAX header", problem)
}

impl Pax {
    /// Adds the records of a header's data: `LENGTH KEY=VALUE\n`, where the length is that of the record.
    pub(super) fn read(&mut self, data: &[u8], limits: &Limits) -> Result<()> {
        let mut rest = data;
        while !rest.is_empty() && rest[0] != 0 {
            let digits = rest
                .iter()
                .take(20)
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            let length = decimal(&rest[..digits])? as usize;
            if rest.get(digits) != Some(&b' ') || length <= digits + 1 || length > rest.len() {
                return Err(damaged("the length of a record is wrong"));
            }
            let (record, after) = rest.split_at(length);
            rest = after;
            let record = record[digits + 1..].strip_suffix(b"\n");
            let record = record.ok_or_else(|| damaged("a record does not end where it says"))?;
            let equals = record.iter().position(|&byte| byte == b'=');
            let equals = equals.ok_or_else(|| damaged("a record has no \"=\""))?;
            self.record(&record[..equals], &record[equals + 1..], limits.extents)?;
        }
        // Some programs write each attribute twice. Global records add up.
        if self.inherited.bytes + self.xattrs.bytes > 4 * limits.xattr_bytes as usize {
            let limit = limits.xattr_bytes;
            let problem = format!("the attributes of one file need more than {limit} bytes");
            return Err(Error::limit("PAX header", problem));
        }
        Ok(())
    }

    /// Adds the records of a global header. How many bytes of earlier ones had to be copied.
    pub(super) fn read_global(&mut self, data: &[u8], limits: &Limits) -> Result<usize> {
        self.read(data, limits)?;
        if self.sparse.map.is_some() || self.sparse.offset.is_some() {
            return Err(damaged("a map of a sparse file is in a global header"));
        }
        let xattrs = std::mem::take(&mut self.xattrs);
        Ok(self.inherited.append(xattrs))
    }

    fn record(&mut self, key: &[u8], value: &[u8], extents: u32) -> Result<()> {
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            // GNU tar writes these two characters of a name so.
            let name = replace(&replace(name, b"%3D", b"="), b"%25", b"%");
            self.xattrs.push(name, value.to_vec());
            return Ok(());
        }
        if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
            let name = percent_decode(name).collect();
            self.xattrs.push(name, base64_decoded(value)?);
            return Ok(());
        }
        if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
            return self.sparse.record(key, value, extents);
        }
        let set = !value.is_empty();
        match key {
            b"path" => self.path = set.then(|| value.into()),
            b"linkpath" => self.link = set.then(|| value.into()),
            b"size" => self.size = set.then(|| decimal(value)).transpose()?,
            b"uid" => self.uid = set.then(|| user(value)).transpose()?,
            b"gid" => self.gid = set.then(|| user(value)).transpose()?,
            b"mtime" => self.mtime = set.then(|| time(value)).transpose()?,
            b"atime" => self.atime = set.then(|| time(value)).transpose()?,
            b"ctime" => self.ctime = set.then(|| time(value)).transpose()?,
            b"SCHILY.acl.access" if set => {
                let acl = acl::parse(value)?;
                // GNU tar also writes those that say no more than the mode, which Linux does not store.
                if !acl::is_mode(&acl) {
                    self.xattrs.push(ACCESS_ACL.to_vec(), acl);
                }
            }
            b"SCHILY.acl.default" if set => {
                self.xattrs
                    .push(b"system.posix_acl_default".to_vec(), acl::parse(value)?);
            }
            _ => {}
        }
        Ok(())
    }
}

impl SparseRecords {
    fn record(&mut self, key: &[u8], value: &[u8], extents: u32) -> Result<()> {
        match key {
            b"name" => self.name = Some(value.into()),
            b"major" => self.major = decimal(value)?,
            b"size" | b"realsize" => self.size = Some(decimal(value)?),
            b"offset" => self.offset = Some(decimal(value)?),
            b"numbytes" => {
                let offset = self
                    .offset
                    .take()
                    .ok_or_else(|| damaged("a sparse length has no offset"))?;
                let map = self.map.get_or_insert_default();
                sparse::add(map, offset, decimal(value)?, extents)?;
            }
            b"map" => {
                let numbers = value
                    .split(|&byte| byte == b',')
                    .filter(|number| !number.is_empty());
                let mut numbers = numbers.map(decimal);
                let map = self.map.insert(Vec::new());
                while let Some(offset) = numbers.next() {
                    let length = numbers
                        .next()
                        .ok_or_else(|| damaged("a sparse map has an odd number"))?;
                    sparse::add(map, offset?, length?, extents)?;
                }
            }
            b"numblocks" => drop(self.map.get_or_insert_default()),
            _ => {}
        }
        Ok(())
    }
}

/// A decimal number without a sign.
pub(super) fn decimal(text: &[u8]) -> Result<u64> {
    let number = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = number.and_then(|text| text.parse().ok());
    number.ok_or_else(|| damaged(format_args!("{} is not a number", shown(text))))
}

fn user(text: &[u8]) -> Result<u32> {
    header::id(decimal(text)?.try_into().unwrap_or(i64::MAX))
}

/// Seconds with a fraction, of which nine digits count.
fn time(text: &[u8]) -> Result<Time> {
    let wrong = || damaged(format_args!("{} is not a time", shown(text)));
    let (negative, digits) = text
        .strip_prefix(b"-")
        .map_or((false, text), |rest| (true, rest));
    let dot = digits.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = dot.map_or((digits, &b""[..]), |dot| {
        (&digits[..dot], &digits[dot + 1..])
    });
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err(wrong());
    }
    let seconds = i64::try_from(decimal(whole)?).map_err(|_| wrong())?;
    let digit = |place: usize| u32::from(fraction.get(place).map_or(0, |&digit| digit - b'0'));
    let nanoseconds = (0..9).fold(0, |value, place| value * 10 + digit(place));
    Ok(match (negative, nanoseconds) {
        (false, _) => Time {
            seconds,
            nanoseconds,
        },
        (true, 0) => Time::from_seconds(-seconds),
        (true, _) => Time {
            seconds: -seconds - 1,
            nanoseconds: 1_000_000_000 - nanoseconds,
        },
    })
}

fn replace(text: &[u8], from: &[u8; 3], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(from) {
            replaced.extend_from_slice(to);
            at += from.len();
        } else {
            replaced.push(text[at]);
            at += 1;
        }
    }
    replaced
}

/// Base64 without or with padding.
fn base64_decoded(text: &[u8]) -> Result<Vec<u8>> {
    const ANY: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireNone),
    );
    let digits = text.iter().filter(|byte| !matches!(byte, b'=' | b'\n'));
    let digits: Vec<u8> = digits.copied().collect();
    let decoded = ANY.decode(digits);
    decoded.map_err(|_| damaged("a value of an attribute is not base64"))
}
