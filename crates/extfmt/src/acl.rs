//! POSIX access control lists (ACLs): the on-disk form, and the form that programs use.
//!
//! ```text
//! disk    | version 1 (4) | tag 2, perm 2            | tag 2, perm 2, id 4 | ...  id: named only
//! program | version 2 (4) | tag 2, perm 2, id 4 (-1) | tag 2, perm 2, id 4 | ...
//! ```
//! An [`Acl`] is well formed: owner, named users, group, named groups, mask (present if a user or group is
//! named), others, in this order.

use crate::{Corrupt, Result};

/// Version of the on-disk form.
const DISK_VERSION: u32 = 1;
/// Version of the programs' form.
const USER_VERSION: u32 = 2;
/// The id of an entry without an id.
const NO_ID: u32 = u32::MAX;
/// Sizes in bytes: of the version; of an entry without an id; of an entry with an id.
const VERSION_BYTES: usize = 4;
const SHORT_BYTES: usize = 4;
const LONG_BYTES: usize = 8;
/// The three permission bits.
const RIGHTS: u16 = 7;

/// The kind of an entry of an [`Acl`], and so whom it is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum Tag {
    /// The owner.
    Owner = 0x01,
    /// A named user.
    User = 0x02,
    /// The file's group.
    Group = 0x04,
    /// A named group.
    NamedGroup = 0x08,
    /// The mask: the upper bound for all entries except owner and others.
    Mask = 0x10,
    /// All others.
    Others = 0x20,
}

impl Tag {
    const ALL: [Self; 6] = [
        Self::Owner,
        Self::User,
        Self::Group,
        Self::NamedGroup,
        Self::Mask,
        Self::Others,
    ];

    fn of(word: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|tag| *tag as u16 == word)
    }

    fn has_id(self) -> bool {
        matches!(self, Self::User | Self::NamedGroup)
    }
}

/// An entry of an [`Acl`]: whom it is for, and what they may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Whom it is for.
    pub tag: Tag,
    /// Read 4, write 2, execute 1.
    pub rights: u16,
    /// The user or group of a named entry; arbitrary for others.
    pub id: u32,
}

/// A well-formed access control list (POSIX ACL).
///
/// ```
/// use throughline_extfmt::acl::{Acl, Entry, Tag};
///
/// let entry = |tag, rights, id| Entry { tag, rights, id };
/// let list = Acl::new(vec![
///     entry(Tag::Owner, 6, 0),
///     entry(Tag::User, 4, 1001), // user 1001 may read
///     entry(Tag::Group, 4, 0),
///     entry(Tag::Mask, 4, 0),
///     entry(Tag::Others, 0, 0),
/// ]);
/// assert!(list.is_some());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    entries: Vec<Entry>,
}

/// Why bytes from a program are not a valid ACL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Unknown version.
    Version,
    /// Not well formed.
    Malformed,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*word))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

impl Acl {
    /// An ACL of these entries; `None` unless they are well formed: one for the owner, any number for named
    /// users, one for the group, any number for named groups, one mask, and one for all others, in this
    /// order. The mask may be missing if no user or group is named. `rights` are at most 7.
    pub fn new(entries: Vec<Entry>) -> Option<Self> {
        let once = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let named = entries.iter().any(|entry| entry.tag.has_id());
        let masks = once(Tag::Mask);
        let whole = [Tag::Owner, Tag::Group, Tag::Others].map(once) == [1; 3]
            && masks <= 1
            && (masks == 1 || !named);
        let sound = |entry: &Entry| {
            entry.rights & !RIGHTS == 0 && (entry.id != NO_ID || !entry.tag.has_id())
        };
        let good = whole && entries.is_sorted_by_key(|e| e.tag) && entries.iter().all(sound);
        good.then_some(Self { entries })
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Reads the on-disk form.
    pub fn from_disk(bytes: &[u8]) -> Result<Self> {
        let corrupt = || Corrupt::new("ACL is not well formed");
        if u32_at(bytes, 0) != Some(DISK_VERSION) {
            return Err(Corrupt::new("ACL has an unknown version"));
        }
        let mut entries = Vec::new();
        let mut at = VERSION_BYTES;
        while at < bytes.len() {
            let (entry, len) = entry_at(bytes, at, false).ok_or_else(corrupt)?;
            entries.push(entry);
            at = at.saturating_add(len);
        }
        Self::new(entries).ok_or_else(corrupt)
    }

    /// Reads the programs' form; `None` for an empty list, which means no ACL.
    pub fn from_user(bytes: &[u8]) -> core::result::Result<Option<Self>, Refused> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let version = u32_at(bytes, 0).ok_or(Refused::Malformed)?;
        if version != USER_VERSION {
            return Err(Refused::Version);
        }
        let mut entries = Vec::new();
        let mut at = VERSION_BYTES;
        while at < bytes.len() {
            let (entry, len) = entry_at(bytes, at, true).ok_or(Refused::Malformed)?;
            entries.push(entry);
            at = at.saturating_add(len);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        Self::new(entries).map(Some).ok_or(Refused::Malformed)
    }

    /// The on-disk form.
    pub fn to_disk(&self) -> Vec<u8> {
        self.write(DISK_VERSION, |tag| tag.has_id())
    }

    /// The programs' form.
    pub fn to_user(&self) -> Vec<u8> {
        self.write(USER_VERSION, |_| true)
    }

    fn write(&self, version: u32, long: impl Fn(Tag) -> bool) -> Vec<u8> {
        let mut bytes = version.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            bytes.extend_from_slice(&entry.rights.to_le_bytes());
            if long(entry.tag) {
                let id = if entry.tag.has_id() { entry.id } else { NO_ID };
                bytes.extend_from_slice(&id.to_le_bytes());
            }
        }
        bytes
    }

    /// The nine permission bits that correspond to the ACL, with the mask, if present, in the group bits; and
    /// whether they are equivalent to the ACL.
    pub fn permissions(&self) -> (u16, bool) {
        let group = if self.has_mask() {
            Tag::Mask
        } else {
            Tag::Group
        };
        let bits = self.entries.iter().fold(0, |bits, entry| match entry.tag {
            Tag::Owner => bits | entry.rights << 6,
            Tag::Others => bits | entry.rights,
            tag if tag == group => bits | entry.rights << 3,
            _ => bits,
        });
        (bits, self.is_minimal())
    }

    /// Applies a change of the permission bits: sets the entries of the owner, of others, and of the mask
    /// (without one, of the group).
    pub fn set_permissions(&mut self, mode: u16) {
        self.each_of_mode(|rights, shift| *rights = mode >> shift & RIGHTS);
    }

    /// Applies this default ACL to a new inode created with `mode`: the inode's ACL, unless its permission
    /// bits are equivalent, and its nine permission bits.
    pub fn inherited(&self, mode: u16) -> (Option<Self>, u16) {
        let mut list = self.clone();
        list.each_of_mode(|rights, shift| *rights &= mode >> shift & RIGHTS);
        let (bits, all) = list.permissions();
        ((!all).then_some(list), bits)
    }

    /// The entries that correspond to the permission bits, each with the shift of its bits.
    fn each_of_mode(&mut self, mut change: impl FnMut(&mut u16, u16)) {
        let group = if self.has_mask() {
            Tag::Mask
        } else {
            Tag::Group
        };
        for entry in &mut self.entries {
            match entry.tag {
                Tag::Owner => change(&mut entry.rights, 6),
                Tag::Others => change(&mut entry.rights, 0),
                tag if tag == group => change(&mut entry.rights, 3),
                _ => {}
            }
        }
    }

    fn has_mask(&self) -> bool {
        self.entries.iter().any(|entry| entry.tag == Tag::Mask)
    }

    fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }
}

/// The entry at an offset, and its length; `long`: all have an id.
fn entry_at(bytes: &[u8], at: usize, long: bool) -> Option<(Entry, usize)> {
    let tag = Tag::of(u16_at(bytes, at)?)?;
    let rights = u16_at(bytes, at.checked_add(2)?)?;
    if !long && !tag.has_id() {
        let id = NO_ID;
        return Some((Entry { tag, rights, id }, SHORT_BYTES));
    }
    let id = u32_at(bytes, at.checked_add(4)?)?;
    Some((Entry { tag, rights, id }, LONG_BYTES))
}
