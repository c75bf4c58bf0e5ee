//! POSIX ACLs as text, `user:ann:rw-`, and as extended attributes.
//!
//! The attribute has the format of `linux/posix_acl_xattr.h`: a version, then entries of tag, permissions and
//! ID, little-endian.

use crate::owner::{Names, Owner};

/// The name of the attribute with the access ACL of a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The name of the attribute with the default ACL of a directory, which new names in it inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
/// The ID in entries without a named user or group.
const NOBODY: u32 = u32::MAX;

/// The subject of an entry, in the order of entries in an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// The owner of the file.
    Owner,
    /// A named user.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// A named group.
    Group(u32),
    /// Maximum permissions of users and groups.
    Mask,
    /// All others.
    Other,
}

/// The entries of an ACL, sorted, with each tag once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl(Vec<(Tag, u8)>);

impl Acl {
    /// The ACL equivalent to a mode.
    pub fn of_mode(mode: u32) -> Acl {
        let rights = |shift: u32| (mode >> shift & 7) as u8;
        Acl(vec![
            (Tag::Owner, rights(6)),
            (Tag::OwningGroup, rights(3)),
            (Tag::Other, rights(0)),
        ])
    }

    /// Parses the attribute; `None` if it is not an ACL.
    pub fn from_bytes(bytes: &[u8]) -> Option<Acl> {
        let (version, entries) = bytes.split_at_checked(4)?;
        if version != VERSION.to_le_bytes() || entries.len() % ENTRY_BYTES != 0 {
            return None;
        }
        let mut acl = Acl::default();
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let number = u32::from_le_bytes(entry[4..].try_into().ok()?);
            let tag = match u16::from_le_bytes([entry[0], entry[1]]) {
                0x01 => Tag::Owner,
                0x02 => Tag::User(number),
                0x04 => Tag::OwningGroup,
                0x08 => Tag::Group(number),
                0x10 => Tag::Mask,
                0x20 => Tag::Other,
                _ => return None,
            };
            acl.set(tag, entry[2] & 7);
        }
        Some(acl)
    }

    /// The value of the attribute.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights) in &self.0 {
            let (code, number): (u16, u32) = match tag {
                Tag::Owner => (0x01, NOBODY),
                Tag::User(number) => (0x02, *number),
                Tag::OwningGroup => (0x04, NOBODY),
                Tag::Group(number) => (0x08, *number),
                Tag::Mask => (0x10, NOBODY),
                Tag::Other => (0x20, NOBODY),
            };
            bytes.extend(code.to_le_bytes());
            bytes.extend(u16::from(*rights).to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    /// The permissions of a tag, if it has an entry.
    pub fn get(&self, tag: Tag) -> Option<u8> {
        let found = self.0.iter().find(|entry| entry.0 == tag);
        found.map(|entry| entry.1)
    }

    /// Sets the permissions of a tag.
    pub fn set(&mut self, tag: Tag, rights: u8) {
        match self.0.binary_search_by_key(&tag, |entry| entry.0) {
            Ok(at) => self.0[at].1 = rights,
            Err(at) => self.0.insert(at, (tag, rights)),
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, tag: Tag) {
        self.0.retain(|entry| entry.0 != tag);
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Only the entries equivalent to a mode, without named users, named groups and mask.
    pub fn minimal(&self) -> Acl {
        let mut acl = self.clone();
        acl.0
            .retain(|(tag, _)| !tag.is_named() && *tag != Tag::Mask);
        acl
    }

    /// Sets the mask to the union of the permissions that it limits; removes it if there are no named users
    /// or groups.
    pub fn compute_mask(&mut self) {
        if !self.0.iter().any(|(tag, _)| tag.is_named()) {
            return self.remove(Tag::Mask);
        }
        let limited = self.0.iter().filter(|(tag, _)| tag.is_limited());
        let rights = limited.fold(0, |all, (_, rights)| all | rights);
        self.set(Tag::Mask, rights);
    }

    /// Adds missing mandatory entries from `from`.
    pub fn complete(&mut self, from: &Acl) {
        for tag in [Tag::Owner, Tag::OwningGroup, Tag::Other] {
            if self.get(tag).is_none() {
                self.set(tag, from.get(tag).unwrap_or(0));
            }
        }
    }

    /// The lines as getfacl prints them, each after `prefix`, with the names of the host from `names`.
    pub fn lines(&self, prefix: &str, names: &Names, effective: Effective) -> Vec<String> {
        let mask = self.get(Tag::Mask);
        let line = |(tag, rights): &(Tag, u8)| {
            let mut line = format!("{prefix}{}{}", tag.text(names), letters(*rights));
            let left = mask.map_or(*rights, |mask| rights & mask);
            let is_less = tag.is_limited() && left != *rights;
            if tag.is_limited()
                && (effective == Effective::All || is_less && effective == Effective::Less)
            {
                line.push_str(&format!("\t#effective:{}", letters(left)));
            }
            line
        };
        self.0.iter().map(line).collect()
    }
}

/// Which entries show their effective permissions, after applying the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effective {
    /// None.
    No,
    /// Those that the mask reduces.
    Less,
    /// All that the mask applies to.
    All,
}

fn letters(rights: u8) -> String {
    let letter = |bit: u8, letter: char| if rights & bit != 0 { letter } else { '-' };
    [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')]
        .iter()
        .collect()
}

impl Tag {
    fn is_named(self) -> bool {
        matches!(self, Tag::User(_) | Tag::Group(_))
    }

    /// Whether the mask applies to it.
    fn is_limited(self) -> bool {
        self.is_named() || self == Tag::OwningGroup
    }

    fn text(self, names: &Names) -> String {
        match self {
            Tag::Owner => "user::".to_owned(),
            Tag::User(uid) => format!("user:{}:", names.user_or_number(uid)),
            Tag::OwningGroup => "group::".to_owned(),
            Tag::Group(gid) => format!("group:{}:", names.group_or_number(gid)),
            Tag::Mask => "mask::".to_owned(),
            Tag::Other => "other::".to_owned(),
        }
    }
}

/// An entry as given to setfacl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether it belongs to the default ACL.
    pub default: bool,
    /// The subject of the entry.
    pub tag: Tag,
    /// The permissions; `None` if the text has none, as in a list of entries to remove.
    pub rights: Option<Rights>,
}

impl Entry {
    /// The text of the entry without its permissions: `default:user:ann`, `mask:`.
    pub fn subject(&self, names: &Names) -> String {
        let prefix = if self.default { "default:" } else { "" };
        let mut text = format!("{prefix}{}", self.tag.text(names));
        text.pop();
        text
    }
}

/// Permissions. `X` in the text sets `search`, which means execute permission only where it makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    bits: u8,
    search: bool,
}

impl Rights {
    /// The permission bits. `X` is included if `searchable`: for a directory, or a file that someone may
    /// execute.
    pub fn of(self, searchable: bool) -> u8 {
        self.bits | u8::from(self.search && searchable)
    }
}

/// Parses `u:ann:rw,g::r,d:o::-`, with or without permissions.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let entries = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let entries: Vec<Entry> = entries
        .map(|part| {
            entry(part).ok_or_else(|| {
                format!(
                    "'{part}' is not an ACL entry: write u:NAME:rwx, \
            g:NAME:rx, m::rx, o::r, d:u:NAME:rw"
                )
            })
        })
        .collect::<Result<_, _>>()?;
    match entries.is_empty() {
        true => Err("no entry".to_owned()),
        false => Ok(entries),
    }
}

fn entry(text: &str) -> Option<Entry> {
    let mut fields: Vec<&str> = text.split(':').map(str::trim).collect();
    let default = matches!(fields.first(), Some(&"d" | &"default")) && fields.len() > 1;
    if default {
        fields.remove(0);
    }
    // "mask:rx" and "other:r" have no name field.
    if matches!(fields.first(), Some(&"m" | &"mask" | &"o" | &"other"))
        && fields.len() == 2
        && !fields[1].is_empty()
    {
        fields.insert(1, "");
    }
    let (kind, who, rights) = match fields.as_slice() {
        [kind, who] => (*kind, *who, None),
        [kind, who, rights] => (*kind, *who, Some(parse_rights(rights)?)),
        _ => return None,
    };
    let user = |who: &str| Owner::parse(who).ok()?.user;
    let group = |who: &str| Owner::parse(&format!(":{who}")).ok()?.group;
    let tag = match (kind, who) {
        ("u" | "user", "") => Tag::Owner,
        ("u" | "user", who) => Tag::User(user(who)?),
        ("g" | "group", "") => Tag::OwningGroup,
        ("g" | "group", who) => Tag::Group(group(who)?),
        ("m" | "mask", "") => Tag::Mask,
        ("o" | "other", "") => Tag::Other,
        _ => return None,
    };
    Some(Entry {
        default,
        tag,
        rights,
    })
}

fn parse_rights(text: &str) -> Option<Rights> {
    let mut rights = Rights {
        bits: 0,
        search: false,
    };
    if let Ok(bits @ 0..=7) = text.parse::<u8>() {
        rights.bits = bits;
        return Some(rights);
    }
    for letter in text.chars() {
        match letter {
            'r' => rights.bits |= 4,
            'w' => rights.bits |= 2,
            'x' => rights.bits |= 1,
            'X' => rights.search = true,
            '-' => {}
            _ => return None,
        }
    }
    Some(rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_round_trip() {
        let mut acl = Acl::of_mode(0o750);
        acl.set(Tag::Group(5), 4);
        acl.set(Tag::User(7), 6);
        acl.compute_mask();
        assert_eq!(acl.get(Tag::Mask), Some(7));
        assert_eq!(Acl::from_bytes(&acl.to_bytes()).unwrap(), acl);
        let lines = acl.lines("", &Names::of_host(true), Effective::Less);
        assert_eq!(
            lines,
            [
                "user::rwx",
                "user:7:rw-",
                "group::r-x",
                "group:5:r--",
                "mask::rwx",
                "other::---"
            ]
        );
        acl.set(Tag::Mask, 4);
        assert_eq!(
            acl.lines("d:", &Names::of_host(true), Effective::Less)[1],
            "d:user:7:rw-\t#effective:r--"
        );
        assert_eq!(acl.minimal(), Acl::of_mode(0o750));
        for bad in [&b""[..], b"\x01\0\0\0", b"\x02\0\0\0x"] {
            assert_eq!(Acl::from_bytes(bad), None);
        }
    }

    #[test]
    fn entries_as_setfacl_has_them() {
        let all = parse("u:0:rw, d:g::rX,mask:r,o::-,u:5").unwrap();
        assert_eq!(all[0].tag, Tag::User(0));
        assert!(all[1].default && all[1].rights.unwrap().of(true) == 5);
        assert_eq!(all[1].rights.unwrap().of(false), 4);
        assert_eq!(
            (all[2].tag, all[3].tag, all[4].rights),
            (Tag::Mask, Tag::Other, None)
        );
        for bad in ["", "x:y", "u:no-such-user:r", "u:0:q", "m:5:r", "u"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
