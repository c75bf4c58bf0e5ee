//! What a copy preserves of its source besides bytes and names: the words of `--preserve`.

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preserve {
    /// Permissions and ACLs.
    pub(crate) mode: bool,
    pub(crate) owner: bool,
    pub(crate) times: bool,
    pub(crate) xattrs: Xattrs,
}

/// Which extended attributes are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Xattrs {
    /// None.
    #[default]
    No,
    /// Those that the target accepts. Others are reported, unless the target supports none at all.
    Supported,
    /// All. One that the target does not accept is a failure.
    All,
}

impl Preserve {
    /// What `-p` preserves.
    pub(crate) const USUAL: Preserve = Preserve {
        mode: true,
        owner: true,
        times: true,
        xattrs: Xattrs::No,
    };
    /// What `-a` preserves.
    pub(crate) const ARCHIVE: Preserve = Preserve {
        xattrs: Xattrs::Supported,
        ..Preserve::USUAL
    };

    /// Parses a list of words, as cp does.
    pub(crate) fn parse(list: &str) -> Result<Preserve, String> {
        let mut preserve = Preserve::default();
        for word in list.split(',') {
            match word {
                "mode" => preserve.mode = true,
                "ownership" => preserve.owner = true,
                "timestamps" => preserve.times = true,
                "xattr" => preserve.xattrs = Xattrs::All,
                // Hard links are always preserved.
                "links" => {}
                "all" => preserve = preserve.and(Preserve::ARCHIVE),
                _ => {
                    return Err(
                        "not a list of mode, ownership, timestamps, links, xattr, all".into(),
                    );
                }
            }
        }
        Ok(preserve)
    }

    /// What `self` preserves and `other` does not, for `--no-preserve`.
    pub(crate) fn without(self, other: Preserve) -> Preserve {
        Preserve {
            mode: self.mode && !other.mode,
            owner: self.owner && !other.owner,
            times: self.times && !other.times,
            xattrs: match other.xattrs {
                Xattrs::No => self.xattrs,
                _ => Xattrs::No,
            },
        }
    }

    /// What either of them preserves.
    pub(crate) fn and(self, other: Preserve) -> Preserve {
        Preserve {
            mode: self.mode || other.mode,
            owner: self.owner || other.owner,
            times: self.times || other.times,
            xattrs: self.xattrs.max(other.xattrs),
        }
    }

    /// Whether to read attributes of the source, including ACLs.
    pub(crate) fn reads_attributes(self) -> bool {
        self.mode || self.xattrs != Xattrs::No
    }

    /// The initial permissions of a new file whose source has `mode`, before the umask. If more attributes
    /// follow, the group and others get no access until these are set, and the owner may write if that is
    /// needed to set them.
    pub(crate) fn first_mode(self, mode: u32) -> u32 {
        let writable = if self.xattrs == Xattrs::No { 0 } else { 0o200 };
        if self.changes_new() {
            mode & 0o700 | writable
        } else {
            mode & 0o777
        }
    }

    /// The final permissions of a new file; `None` if the initial ones are final.
    pub(crate) fn last_mode(self, mode: u32, umask: u32) -> Option<u32> {
        match self.mode {
            true => Some(mode),
            false => self.changes_new().then_some(mode & 0o777 & !umask),
        }
    }

    fn changes_new(self) -> bool {
        self.owner || self.reads_attributes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_add_up() {
        assert_eq!(
            Preserve::parse("mode,ownership,timestamps"),
            Ok(Preserve::USUAL)
        );
        let both = Preserve::parse("links,xattr")
            .unwrap()
            .and(Preserve::ARCHIVE);
        assert_eq!((both.mode, both.xattrs), (true, Xattrs::All));
        let less = Preserve::ARCHIVE.without(Preserve::parse("ownership,xattr").unwrap());
        assert_eq!(
            (less.mode, less.owner, less.xattrs),
            (true, false, Xattrs::No)
        );
        let all = Preserve::parse("all").unwrap().and(Preserve::ARCHIVE);
        assert_eq!(all.xattrs, Xattrs::Supported);
        for bad in ["", "mode,", "xattrs", "Mode"] {
            assert!(Preserve::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn new_files_are_closed_until_they_have_all() {
        let none = Preserve::default();
        assert_eq!(none.first_mode(0o4755), 0o755);
        assert_eq!(none.last_mode(0o4755, 0o022), None);
        assert_eq!(Preserve::USUAL.first_mode(0o4575), 0o500);
        assert_eq!(Preserve::USUAL.last_mode(0o4575, 0o022), Some(0o4575));
        let xattr = Preserve::parse("xattr").unwrap();
        assert_eq!(xattr.first_mode(0o4575), 0o700);
        assert_eq!(xattr.last_mode(0o4575, 0o022), Some(0o555));
    }
}
