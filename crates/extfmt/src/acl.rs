//! Lists of access rights (POSIX ACLs): as the volume has them, and as programs see them.
//!
//! ```text
//! disk    | version 1 (4) | tag 2, perm 2            | tag 2, perm 2, id 4 | ...   an id only for named users and groups
//! program | version 2 (4) | tag 2, perm 2, id 4 (-1) | tag 2, perm 2, id 4 | ...
//! ```
//! An [`Acl`] is well formed: the owner, named users, the group, named groups, the mask (there if anybody is named), the
//! others, in this order.

use crate::{Corrupt, Result};

/// Version in the volume's form.
const DISK_VERSION: u32 = 1;
/// Version in the programs' form.
const USER_VERSION: u32 = 2;
/// The id of an entry that has none.
const NO_ID: u32 = u32::MAX;
/// Bytes of a version; of an entry without an id; of one with an id.
const VERSION_BYTES: usize = 4;
const SHORT_BYTES: usize = 4;
const LONG_BYTES: usize = 8;
/// The three rights.
const RIGHTS: u16 = 7;

/// Whose rights an entry says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum Tag {
    /// The owner's.
    Owner = 0x01,
    /// A named user's.
    User = 0x02,
    /// The group's.
    Group = 0x04,
    /// A named group's.
    NamedGroup = 0x08,
    /// The most that all but the owner and the others have.
    Mask = 0x10,
    /// Everybody else's.
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

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Whose rights.
    pub tag: Tag,
    /// Read 4, write 2, execute 1.
    pub rights: u16,
    /// The user or group, where one is named; anything else where not.
    pub id: u32,
}

/// A list, well formed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    entries: Vec<Entry>,
}

/// Why bytes of a program are no list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Another version.
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
    /// A list of the entries; `None` unless they are well formed.
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

    /// Reads the volume's form.
    pub fn from_disk(bytes: &[u8]) -> Result<Self> {
        let corrupt = || Corrupt::new("list of access rights is not well formed");
        if u32_at(bytes, 0) != Some(DISK_VERSION) {
            return Err(Corrupt::new("list of access rights of another version"));
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

    /// Reads the programs' form; `None` for an empty list, which stands for none.
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

    /// The volume's form.
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

    /// The nine permission bits that say the same, or as much of it as they can: the group's are the mask's, where there is
    /// one. And whether they say all of it.
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

    /// The permission bits are set: the owner's, the others' and the mask's rights (without one, the group's) become them.
    pub fn set_permissions(&mut self, mode: u16) {
        self.each_of_mode(|rights, shift| *rights = mode >> shift & RIGHTS);
    }

    /// What a new inode has of this default list, whose maker asked for `mode`: its list, if the bits do not say all of it,
    /// and its nine permission bits.
    pub fn inherited(&self, mode: u16) -> (Option<Self>, u16) {
        let mut list = self.clone();
        list.each_of_mode(|rights, shift| *rights &= mode >> shift & RIGHTS);
        let (bits, all) = list.permissions();
        ((!all).then_some(list), bits)
    }

    /// The entries that the permission bits stand for, each with the place of its bits.
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
