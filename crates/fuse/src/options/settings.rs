//! What a mount was made with, by the names of its options: shown in its status, and compared where it is to be changed.

use super::{Atime, MountOptions};

impl MountOptions {
    /// What cannot be changed while it is mounted: names, and values as text.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        fn text(value: &impl std::fmt::Debug) -> String {
            format!("{value:?}").to_lowercase()
        }
        vec![
            ("offset", self.offset_bytes.to_string()),
            ("noload", text(&self.no_replay)),
            ("errors", text(&self.errors)),
            ("cache_size", text(&self.cache)),
            ("access", text(&self.access)),
            ("fakeroot", text(&self.fakeroot)),
            ("uid", text(&self.uid)),
            ("gid", text(&self.gid)),
            ("umask", text(&self.umask)),
            ("commit", text(&self.commit)),
            ("sync", text(&self.sync)),
            ("dirsync", text(&self.dirsync)),
            ("atime", text(&self.atime)),
            ("diratime", text(&self.dir_atime)),
            ("lazytime", text(&self.lazytime)),
            ("acl", text(&self.acl)),
            ("user_xattr", text(&self.user_xattr)),
            ("discard", text(&self.discard)),
            ("grpid", text(&self.group_of_directory)),
            ("minixdf", text(&self.minix_df)),
            ("fsname", text(&self.fs_name)),
            ("subtype", text(&self.subtype)),
            ("auto_unmount", text(&self.auto_unmount)),
            ("direct_io", text(&self.choices.direct_io)),
        ]
    }

    /// The first setting that these options, given to change a mount, ask for and that it does not have.
    ///
    /// `mounted` gives the settings of the mount by name, as [`MountOptions::settings`] has them.
    pub fn asks_for_other<T: AsRef<str>>(
        &self,
        mounted: impl Fn(&str) -> Option<T>,
    ) -> Option<&'static str> {
        // Of a mount with strictatime the list says relatime.
        if self.relatime_said
            && self.atime == Atime::Relative
            && mounted("atime").is_some_and(|has| has.as_ref() == "never")
        {
            return Some("relatime");
        }
        let usual = MountOptions::default().settings();
        let asked = self.settings().into_iter().zip(usual);
        asked
            .filter(|((_, value), (_, usual))| value != usual)
            .map(|((name, value), _)| (name, value))
            .find(|(name, value)| {
                // Something else may not be known to a server of another version.
                mounted(name).is_none_or(|has| has.as_ref() != value)
            })
            .map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_already_is_nothing_else() {
        let mut mounted = MountOptions::default();
        mounted.add("noatime,commit=30").unwrap();
        let has = |name: &str| {
            let settings = mounted.settings();
            settings
                .into_iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value)
        };
        for (list, other) in [
            ("ro", None),
            ("ro,noatime,commit=30,nosuid,nofail", None),
            ("rw,commit=5", Some("commit")),
            ("ro,acl,noacl", Some("acl")),
            ("ro,relatime", Some("relatime")),
            ("ro,relatime,noatime", None),
            ("offset=1024", Some("offset")),
        ] {
            let mut options = MountOptions::default();
            options.add(list).unwrap();
            assert_eq!(options.asks_for_other(has), other, "{list}");
        }
    }
}
