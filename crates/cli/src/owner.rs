//! Users and groups by number or by the names in the host's `/etc/passwd` and `/etc/group`.

use std::collections::HashMap;
use std::path::Path;

/// The host's names, read once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
    user_ids: HashMap<String, (u32, u32)>,
    group_ids: HashMap<String, u32>,
}

/// What `chown` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The new user, if any.
    pub(crate) user: Option<u32>,
    /// The new group, if any.
    pub(crate) group: Option<u32>,
}

impl Owner {
    /// Nothing is changed.
    pub(crate) const NONE: Owner = Owner {
        user: None,
        group: None,
    };

    /// For clap: by number or by the host's names.
    pub(crate) fn parse(text: &str) -> Result<Owner, String> {
        Names::of_host().parse_owner(text)
    }
}

impl Names {
    /// Reads the host's files; a file that is missing or unreadable gives no names, only numbers.
    pub(crate) fn of_host() -> Names {
        Names::read(Path::new("/etc/passwd"), Path::new("/etc/group"))
    }

    fn read(passwd: &Path, group: &Path) -> Names {
        let text = |path| {
            std::fs::read(path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .unwrap_or_default()
        };
        let mut names = Names::default();
        for line in text(passwd).lines() {
            let mut fields = line.split(':');
            let (Some(name), _, Some(Ok(uid)), Some(Ok(gid))) = (
                fields.next(),
                fields.next(),
                fields.next().map(str::parse),
                fields.next().map(str::parse),
            ) else {
                continue;
            };
            names.users.entry(uid).or_insert_with(|| name.to_owned());
            names.user_ids.entry(name.to_owned()).or_insert((uid, gid));
        }
        for line in text(group).lines() {
            let mut fields = line.split(':');
            let (Some(name), _, Some(Ok(gid))) =
                (fields.next(), fields.next(), fields.next().map(str::parse))
            else {
                continue;
            };
            names.groups.entry(gid).or_insert_with(|| name.to_owned());
            names.group_ids.entry(name.to_owned()).or_insert(gid);
        }
        names
    }

    /// The user's name, if the host knows one.
    pub(crate) fn user(&self, uid: u32) -> Option<&str> {
        self.users.get(&uid).map(String::as_str)
    }

    /// The group's name, if the host knows one.
    pub(crate) fn group(&self, gid: u32) -> Option<&str> {
        self.groups.get(&gid).map(String::as_str)
    }

    /// Reads `USER`, `USER:GROUP`, `USER:` (the user's login group), `:GROUP`.
    pub(crate) fn parse_owner(&self, text: &str) -> Result<Owner, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        if user.is_empty() && group.is_none_or(str::is_empty) {
            return Err(format!(
                "invalid owner '{text}': write USER, USER:GROUP or :GROUP"
            ));
        }
        let known = if user.is_empty() {
            None
        } else {
            Some(self.parse_user(user)?)
        };
        let group = match group {
            None => None,
            Some("") => match known {
                Some((_, Some(login))) => Some(login),
                _ => {
                    return Err(format!(
                        "user '{user}' has no login group here: write USER:GROUP"
                    ));
                }
            },
            Some(group) => Some(self.parse_group(group)?),
        };
        Ok(Owner {
            user: known.map(|(uid, _)| uid),
            group,
        })
    }

    fn parse_user(&self, text: &str) -> Result<(u32, Option<u32>), String> {
        if let Some((uid, gid)) = self.user_ids.get(text) {
            return Ok((*uid, Some(*gid)));
        }
        id(text)
            .map(|uid| (uid, None))
            .ok_or_else(|| format!("invalid user '{text}': not a number, and not in /etc/passwd"))
    }

    fn parse_group(&self, text: &str) -> Result<u32, String> {
        if let Some(gid) = self.group_ids.get(text) {
            return Ok(*gid);
        }
        id(text)
            .ok_or_else(|| format!("invalid group '{text}': not a number, and not in /etc/group"))
    }
}

/// A number that can be an owner: `u32::MAX` means "unchanged" to the kernel and is none.
fn id(text: &str) -> Option<u32> {
    text.strip_prefix('+')
        .unwrap_or(text)
        .parse()
        .ok()
        .filter(|id| *id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let dir = tempfile::tempdir().unwrap();
        let passwd = dir.path().join("passwd");
        let group = dir.path().join("group");
        std::fs::write(
            &passwd,
            "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1001::/:\n",
        )
        .unwrap();
        std::fs::write(&group, "root:x:0:\nstaff:x:50:ann\n").unwrap();
        Names::read(&passwd, &group)
    }

    #[test]
    fn owners() {
        let names = names();
        let owner = |user, group| Ok(Owner { user, group });
        assert_eq!(names.parse_owner("ann"), owner(Some(1000), None));
        assert_eq!(names.parse_owner("ann:staff"), owner(Some(1000), Some(50)));
        assert_eq!(names.parse_owner("ann:"), owner(Some(1000), Some(1001)));
        assert_eq!(names.parse_owner(":staff"), owner(None, Some(50)));
        assert_eq!(names.parse_owner("7:8"), owner(Some(7), Some(8)));
        for bad in ["", ":", "bob", "ann:bob", "7:", "4294967295", "-1"] {
            assert!(names.parse_owner(bad).is_err(), "{bad}");
        }
        assert_eq!(names.user(1000), Some("ann"));
        assert_eq!(names.group(50), Some("staff"));
        assert_eq!(names.user(5), None);
    }
}
