//! ACLs as text, to the form of `getxattr(2)`.

use crate::error::{Error, Result, shown};

/// Parses `user::rw-,user:joe:r--:1000,group::r--,mask::r--,other::r--`. Names are not looked up on this
/// machine, which need not know them: a named entry needs a number as its name or as a fourth field.
pub(super) fn parse(text: &[u8]) -> Result<Vec<u8>> {
    let wrong = |problem: &str| Error::damaged(format_args!("ACL {}", shown(text)), problem);
    let mut entries = Vec::new();
    for entry in text.split(|byte| matches!(byte, b',' | b'\n')) {
        let comment = entry
            .iter()
            .position(|&byte| byte == b'#')
            .unwrap_or(entry.len());
        let entry = entry[..comment].trim_ascii();
        if entry.is_empty() {
            continue;
        }
        let entry = entry.strip_prefix(b"default:").unwrap_or(entry);
        let fields: Vec<&[u8]> = entry
            .split(|&byte| byte == b':')
            .map(<[u8]>::trim_ascii)
            .collect();
        let (kind, name, rights, extra) = match fields[..] {
            [kind @ (b"other" | b"o" | b"mask" | b"m"), rights] => (kind, &b""[..], rights, None),
            [kind, name, rights] => (kind, name, rights, None),
            [kind, name, rights, extra] => (kind, name, rights, Some(extra)),
            _ => return Err(wrong("an entry has too few or too many fields")),
        };
        let tag: u16 = match (kind, name.is_empty()) {
            (b"user" | b"u", true) => 0x01,
            (b"user" | b"u", false) => 0x02,
            (b"group" | b"g", true) => 0x04,
            (b"group" | b"g", false) => 0x08,
            (b"mask" | b"m", true) => 0x10,
            (b"other" | b"o", true) => 0x20,
            _ => return Err(wrong("an entry is of no known kind")),
        };
        let right = |letter: u8, bit: u16| if rights.contains(&letter) { bit } else { 0 };
        if !rights.iter().all(|letter| b"rwx-".contains(letter)) {
            return Err(wrong("the rights of an entry are not of rwx-"));
        }
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u32>().ok();
        let id = match tag {
            0x02 | 0x08 => extra
                .and_then(number)
                .or_else(|| number(name))
                .ok_or_else(|| {
                    wrong(
                        "an entry has a name and no number; make the archive with --numeric-owner",
                    )
                })?,
            _ => u32::MAX,
        };
        entries.push((tag, id, right(b'r', 4) | right(b'w', 2) | right(b'x', 1)));
    }
    entries.sort_unstable();
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, id, rights) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    Ok(bytes)
}

/// Whether an ACL, in the form of `getxattr(2)`, has only the three entries that a mode is.
pub(super) fn is_mode(bytes: &[u8]) -> bool {
    let mut tags = bytes[4..].chunks_exact(8).map(|entry| entry[0]);
    tags.all(|tag| matches!(tag, 0x01 | 0x04 | 0x20))
}

/// The nine permission bits that a file with this ACL has: the group's are the mask's. Some programs write
/// another mode into the header. `None` if it is not an ACL.
pub(super) fn permissions(bytes: &[u8]) -> Option<u16> {
    let entries = bytes.get(4..).filter(|entries| entries.len() % 8 == 0)?;
    let of = |tag: u8| {
        let found = entries
            .chunks_exact(8)
            .find(|entry| entry[0] == tag && entry[1] == 0);
        found.map(|entry| u16::from(entry[2] & 7))
    };
    Some(of(0x01)? << 6 | of(0x10).or_else(|| of(0x04))? << 3 | of(0x20)?)
}

/// The text of an ACL in the form of `getxattr(2)`, with numbers as names; `None` if it is not one.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let (version, entries) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != 2 || entries.len() % 8 != 0 {
        return None;
    }
    let mut texts = Vec::new();
    for entry in entries.chunks_exact(8) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let rights = entry[2];
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let who = match tag {
            0x01 => "user:".to_owned(),
            0x02 => format!("user:{id}"),
            0x04 => "group:".to_owned(),
            0x08 => format!("group:{id}"),
            0x10 => "mask:".to_owned(),
            0x20 => "other:".to_owned(),
            _ => return None,
        };
        let letter = |bit, letter| if rights & bit != 0 { letter } else { '-' };
        texts.push(format!(
            "{who}:{}{}{}",
            letter(4, 'r'),
            letter(2, 'w'),
            letter(1, 'x')
        ));
    }
    Some(texts.join(","))
}
