//! Inode flags by the letters of chattr and lsattr.

use throughline::InodeFlags;

/// Letters and flags, in the order in which lsattr shows them.
pub const LETTERS: [(char, InodeFlags); 22] = [
    ('s', InodeFlags::SECRM),
    ('u', InodeFlags::UNRM),
    ('S', InodeFlags::SYNC),
    ('D', InodeFlags::DIRSYNC),
    ('i', InodeFlags::IMMUTABLE),
    ('a', InodeFlags::APPEND),
    ('d', InodeFlags::NODUMP),
    ('A', InodeFlags::NOATIME),
    ('c', InodeFlags::COMPR),
    ('E', InodeFlags::ENCRYPT),
    ('j', InodeFlags::JOURNAL_DATA),
    ('I', InodeFlags::INDEX),
    ('t', InodeFlags::NOTAIL),
    ('T', InodeFlags::TOPDIR),
    ('e', InodeFlags::EXTENTS),
    ('C', InodeFlags::from_bits_retain(0x0080_0000)),
    ('x', InodeFlags::DAX),
    ('F', InodeFlags::CASEFOLD),
    ('N', InodeFlags::INLINE_DATA),
    ('P', InodeFlags::PROJINHERIT),
    ('V', InodeFlags::VERITY),
    ('m', InodeFlags::from_bits_retain(0x0000_0400)),
];

/// The flags as lsattr shows them, for example `----ia--------e-------`.
pub fn show(flags: InodeFlags) -> String {
    let letter = |(letter, flag): &(char, InodeFlags)| match flags.contains(*flag) {
        true => *letter,
        false => '-',
    };
    LETTERS.iter().map(letter).collect()
}

/// A change of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    keep: InodeFlags,
    set: InodeFlags,
}

impl Change {
    /// Parses `+i`, `-ia+d`, `=d`.
    pub fn parse(text: &str) -> Result<Change, String> {
        let wrong = || {
            let letters: String = LETTERS.iter().map(|(letter, _)| letter).collect();
            format!("'{text}' is not a change of flags: write +i, -ia, =d ({letters})")
        };
        let mut change = Change {
            keep: InodeFlags::from_bits_retain(u32::MAX),
            set: InodeFlags::empty(),
        };
        let mut operation = None;
        for letter in text.chars() {
            if matches!(letter, '+' | '-' | '=') {
                operation = Some(letter);
                if letter == '=' {
                    change.keep = LASTING;
                    change.set = InodeFlags::empty();
                }
                continue;
            }
            let flag = LETTERS.iter().find(|(known, _)| *known == letter);
            let (Some((_, flag)), Some(operation)) = (flag, operation) else {
                return Err(wrong());
            };
            change.keep -= *flag;
            match operation {
                '-' => change.set -= *flag,
                _ => change.set |= *flag,
            }
        }
        operation.map(|_| change).ok_or_else(wrong)
    }

    /// The flags after the change.
    pub fn apply(self, flags: InodeFlags) -> InodeFlags {
        (flags & self.keep) | self.set
    }
}

/// Flags that `=` does not clear, because they describe the inode's format.
const LASTING: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::INDEX)
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::INLINE_DATA)
    .union(InodeFlags::VERITY)
    .union(InodeFlags::CASEFOLD);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_as_chattr_has_them() {
        let before = InodeFlags::EXTENTS | InodeFlags::NODUMP;
        for (text, after) in [
            ("+i", before | InodeFlags::IMMUTABLE),
            ("-d+a", InodeFlags::EXTENTS | InodeFlags::APPEND),
            ("=A", InodeFlags::EXTENTS | InodeFlags::NOATIME),
            ("=", InodeFlags::EXTENTS),
        ] {
            assert_eq!(Change::parse(text).unwrap().apply(before), after, "{text}");
        }
        for bad in ["", "i", "+q", "ia+"] {
            assert!(Change::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(show(before), "------d-------e-------");
    }
}
