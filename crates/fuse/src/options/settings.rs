//! The settings of a mount, by option name: shown in its status, and compared on a remount.

use std::path::PathBuf;

use throughline::internal::object_shown;

use super::{Atime, MountOptions};

impl MountOptions {
    /// The allowed backing files, for everybody who may use the mount: URLs without their secrets.
    pub fn backing_shown(&self) -> Vec<String> {
        let shown = |path: &PathBuf| {
            object_shown(path).unwrap_or_else(|| path.to_string_lossy().into_owned())
        };
        self.backing.iter().map(shown).collect()
    }

    /// The settings that cannot change while it is mounted: names, and values as text.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        fn text(value: &impl std::fmt::Debug) -> String {
            format!("{value:?}").to_lowercase()
        }
        vec![
            ("offset", self.offset_bytes.to_string()),
            ("journal_path", text(&self.journal)),
            ("partition", self.partition.clone().unwrap_or_default()),
            (
                "format",
                self.format.map(|it| it.to_string()).unwrap_or_default(),
            ),
            ("backing", text(&self.backing_shown())),
            ("overlay", text(&self.overlay)),
            ("noload", text(&self.no_replay)),
            ("resize", text(&self.resize)),
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
            ("allocate", text(&self.allocate)),
            ("resuid", text(&self.reserved_user)),
            ("resgid", text(&self.reserved_group)),
            ("quota", text(&self.limits)),
            ("small_files", text(&self.small_files)),
            ("grpid", text(&self.group_of_directory)),
            ("minixdf", text(&self.minix_df)),
            ("fsname", text(&self.fs_name)),
            ("subtype", text(&self.subtype)),
            ("auto_unmount", text(&self.auto_unmount)),
            ("direct_io", text(&self.choices.direct_io)),
            ("untrusted", text(&self.untrusted)),
            ("sandbox", text(&self.sandbox)),
        ]
    }

    /// The first setting requested by these options of a remount that differs from the mount's.
    ///
    /// `mounted` returns a setting of the mount by name, in the form of [`MountOptions::settings`].
    pub fn asks_for_other<T: AsRef<str>>(
        &self,
        mounted: impl Fn(&str) -> Option<T>,
    ) -> Option<&'static str> {
        // The list of mounts shows relatime also for a mount with strictatime.
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
                // A server of another version may not know the setting.
                mounted(name).is_none_or(|has| has.as_ref() != value)
            })
            .map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_different_settings_are_reported() {
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
