//! Extended attributes and ACLs for test workloads: few names and few values, of all sizes, so that several
//! files have the same ones and share attribute blocks and value inodes.

use std::collections::BTreeMap;

/// The names. The last one is an ACL, which also changes the permissions.
pub const NAMES: [&str; 4] = [
    "user.a",
    "user.b",
    "trusted.name that is longer",
    "system.posix_acl_access",
];
/// Number of values per name, numbered from 0. The largest need their own inodes, or do not fit.
pub const VALUES: u8 = 5;

/// Attributes as read: values by name.
pub type Found = BTreeMap<String, Vec<u8>>;

/// The attributes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Value number by name.
    values: BTreeMap<u8, u8>,
    /// The permissions, if known.
    permissions: Option<u32>,
}

impl Attributes {
    /// The attributes read from a file, with its mode.
    ///
    /// # Errors
    /// A name or a value that no workload sets.
    pub fn of(found: &Found, mode: u32) -> Result<Attributes, String> {
        let mut values = BTreeMap::new();
        for (name, bytes) in found {
            let foreign = || format!("attribute {name} of {} foreign bytes", bytes.len());
            let at = NAMES.iter().position(|known| known == name);
            let at = at.ok_or_else(foreign)? as u8;
            let number = (0..VALUES).find(|number| value(at, *number) == *bytes);
            values.insert(at, number.ok_or_else(foreign)?);
        }
        Ok(Attributes {
            values,
            permissions: Some(mode & 0o777),
        })
    }

    /// Sets an attribute to the value with this number, or removes it.
    pub fn set(&mut self, name: u8, number: Option<u8>) {
        match number {
            Some(number) => self.values.insert(name, number),
            None => self.values.remove(&name),
        };
        if let (true, Some(number)) = (is_list(name), number) {
            self.permissions = Some(permissions(number));
        }
    }

    /// Whether the attribute is present.
    pub fn has(&self, name: u8) -> bool {
        self.values.contains_key(&name)
    }

    /// Whether a file with these attributes may look like `found`.
    pub fn admits(&self, found: &Attributes) -> bool {
        let modes = [self.permissions, found.permissions];
        let same_mode = modes[0] == modes[1] || modes.contains(&None);
        self.values == found.values && same_mode
    }
}

/// Whether the attribute is the ACL.
fn is_list(name: u8) -> bool {
    usize::from(name) + 1 == NAMES.len()
}

/// The attribute's value with this number, in the form that programs use.
pub fn value(name: u8, number: u8) -> Vec<u8> {
    if is_list(name) {
        return list(number);
    }
    let len = [8, 100, 700, 2500, 9000][usize::from(number % VALUES)];
    vec![b'a' + number; len]
}

/// The permissions implied by the ACL with this number.
fn permissions(number: u8) -> u32 {
    let [owner, mask, others] = rights(number);
    u32::from(owner) << 6 | u32::from(mask) << 3 | u32::from(others)
}

/// Rights of owner, mask and others.
fn rights(number: u8) -> [u16; 3] {
    let number = u16::from(number % VALUES);
    [6 | number & 1, number + 1, 4 & number]
}

fn list(number: u8) -> Vec<u8> {
    const NO_ID: u32 = u32::MAX;
    let [owner, mask, others] = rights(number);
    let named = u32::from(number) + 1;
    let mut entries = vec![(0x01, owner, NO_ID)];
    entries.extend((0..named).map(|user| (0x02, 7, 1000 + user)));
    entries.extend([(0x04, 5, NO_ID), (0x10, mask, NO_ID), (0x20, others, NO_ID)]);
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&u16::to_le_bytes(rights));
        bytes.extend_from_slice(&u32::to_le_bytes(id));
    }
    bytes
}
