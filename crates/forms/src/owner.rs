//! Users and groups by ID, or by the host's names for them (NSS: `/etc/passwd`, LDAP and others).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

mod host;

pub use host::{answer, ask_over};

/// The host's names, each looked up once.
#[derive(Debug, Default)]
pub struct Names {
    /// Whether to show IDs only.
    numeric: bool,
    users: Known,
    groups: Known,
}

/// Cached names by ID; `None` if the host has none.
type Known = RefCell<HashMap<u32, Option<Rc<str>>>>;

/// What `chown` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The new user, if any.
    pub user: Option<u32>,
    /// The new group, if any.
    pub group: Option<u32>,
}

impl Owner {
    /// Changes nothing.
    pub const NONE: Owner = Owner {
        user: None,
        group: None,
    };

    /// Parses `USER`, `USER:GROUP`, `USER:` (the user's login group) and `:GROUP`, by ID or by the host's
    /// names.
    pub fn parse(text: &str) -> Result<Owner, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let known = match user {
            "" => None,
            user => Some(parse_user(user)?),
        };
        let group = match (group, known) {
            (None | Some(""), None) => {
                return Err(format!(
                    "invalid owner '{text}': write USER, USER:GROUP or :GROUP"
                ));
            }
            (None, _) => None,
            (Some(""), Some((_, Some(login)))) => Some(login),
            (Some(""), _) => {
                return Err(format!(
                    "user '{user}' has no login group here: write USER:GROUP"
                ));
            }
            (Some(group), _) => Some(parse_group(group)?),
        };
        Ok(Owner {
            user: known.map(|(uid, _)| uid),
            group,
        })
    }
}

impl Names {
    /// The host's names; no names if `numeric`.
    pub fn of_host(numeric: bool) -> Names {
        Names {
            numeric,
            ..Names::default()
        }
    }

    /// The user's name, if the host has one.
    pub fn user(&self, uid: u32) -> Option<Rc<str>> {
        self.known(&self.users, uid, host::user_name)
    }

    /// The user's name, or the ID if the host has none.
    pub fn user_or_number(&self, uid: u32) -> String {
        self.user(uid)
            .map_or_else(|| uid.to_string(), |name| name.to_string())
    }

    /// The group's name, or the ID if the host has none.
    pub fn group_or_number(&self, gid: u32) -> String {
        self.group(gid)
            .map_or_else(|| gid.to_string(), |name| name.to_string())
    }

    /// The group's name, if the host has one.
    pub fn group(&self, gid: u32) -> Option<Rc<str>> {
        self.known(&self.groups, gid, host::group_name)
    }

    fn known(
        &self,
        names: &Known,
        id: u32,
        ask: impl Fn(u32) -> Option<String>,
    ) -> Option<Rc<str>> {
        if self.numeric {
            return None;
        }
        let mut names = names.borrow_mut();
        let name = names.entry(id).or_insert_with(|| ask(id).map(Rc::from));
        name.clone()
    }
}

/// The user, and the login group if the host has one.
fn parse_user(text: &str) -> Result<(u32, Option<u32>), String> {
    match host::user(text) {
        Some((uid, login)) => Ok((uid, Some(login))),
        None => id(text).map(|uid| (uid, None)).ok_or_else(|| {
            format!("invalid user '{text}': neither a number nor a user of this host")
        }),
    }
}

fn parse_group(text: &str) -> Result<u32, String> {
    match host::group(text) {
        Some(gid) => Ok(gid),
        None => id(text).ok_or_else(|| {
            format!("invalid group '{text}': neither a number nor a group of this host")
        }),
    }
}

/// Parses an ID. `u32::MAX` is not valid: it means "unchanged" to the kernel.
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

    #[test]
    fn owners() {
        let owner = |user, group| Ok(Owner { user, group });
        assert_eq!(Owner::parse("root"), owner(Some(0), None));
        assert_eq!(Owner::parse("root:root"), owner(Some(0), Some(0)));
        assert_eq!(Owner::parse("root:"), owner(Some(0), Some(0)));
        assert_eq!(Owner::parse(":root"), owner(None, Some(0)));
        assert_eq!(Owner::parse("7:8"), owner(Some(7), Some(8)));
        assert_eq!(Owner::parse("+7"), owner(Some(7), None));
        for bad in [
            "",
            ":",
            "no such user",
            "root:no such group",
            "4294967290:",
            "4294967295",
            "-1",
            "a\0b",
        ] {
            assert!(Owner::parse(bad).is_err(), "{bad}");
        }
        let names = Names::default();
        for _ in 0..2 {
            assert_eq!(names.user(0).as_deref(), Some("root"));
            assert_eq!(names.group(0).as_deref(), Some("root"));
            assert_eq!(names.user_or_number(4_294_967_290), "4294967290");
        }
        assert_eq!(Names::of_host(true).user_or_number(0), "0");
    }
}
