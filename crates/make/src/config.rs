//! `mke2fs.conf`: defaults by type of file system and by use.
//!
//! ```text
//! [defaults]
//!     blocksize = 4096
//! [fs_types]
//!     small = {
//!         blocksize = 1024
//!     }
//! ```
//! A type's value overrides that of `[defaults]`, and a later type's overrides an earlier one's; `features`
//! accumulate.

mod built_in;

use std::path::Path;

use crate::error::{Error, Result};

/// The system's file.
const SYSTEM: &str = "/etc/mke2fs.conf";
/// The variable that names another one.
const VARIABLE: &str = "MKE2FS_CONFIG";

/// Names and values.
type Tags = Vec<(String, String)>;

/// The content of a `mke2fs.conf`.
#[derive(Clone, Debug, Default)]
pub struct Config {
    defaults: Tags,
    types: Vec<(String, Tags)>,
}

impl Config {
    /// The defaults built in, for machines without a file: those of Debian.
    pub fn built_in() -> Config {
        built_in::config()
    }

    /// The file that `MKE2FS_CONFIG` names, else the system's, else the one built in.
    ///
    /// # Errors
    /// A file that cannot be read, or is malformed: with its line.
    pub fn of_system() -> Result<Config> {
        let named = std::env::var_os(VARIABLE);
        let path = named.as_deref().map_or(Path::new(SYSTEM), Path::new);
        match std::fs::read_to_string(path) {
            Ok(text) => Config::parse(&text)
                .map_err(|why| Error::invalid(format!("{}: {why}", path.display()))),
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Config::built_in())
            }
            Err(source) => Err(Error::open(path)(source)),
        }
    }

    /// Reads a text.
    ///
    /// # Errors
    /// The first line that is not understood.
    pub fn parse(text: &str) -> std::result::Result<Config, String> {
        let mut config = Config::default();
        let mut section = String::new();
        // The subsection that is open, and those below it, which have no meaning here.
        let mut open: Option<(String, Tags)> = None;
        let mut deeper = 0u32;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            let wrong = |why: &str| format!("line {number}: {why}");
            if line.starts_with('}') {
                match (deeper, open.take()) {
                    (0, None) => return Err(wrong("no section is open")),
                    (0, Some(done)) if section == "fs_types" => config.types.push(done),
                    (0, Some(_)) => {}
                    (_, still) => {
                        open = still;
                        deeper -= 1;
                    }
                }
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                let name = name.trim_end_matches('*').strip_suffix(']');
                section = name
                    .ok_or_else(|| wrong("']' is missing"))?
                    .trim()
                    .to_owned();
                continue;
            }
            let (tag, value) = line
                .split_once('=')
                .ok_or_else(|| wrong("'=' is missing"))?;
            let (tag, value) = (tag.trim().trim_end_matches('*'), value.trim());
            if value == "{" {
                match open {
                    None => open = Some((tag.to_owned(), Tags::new())),
                    Some(_) => deeper += 1,
                }
                continue;
            }
            let value = unquoted(value).ok_or_else(|| wrong("'\"' is missing"))?;
            match &mut open {
                Some((_, tags)) if deeper == 0 => tags.push((tag.to_owned(), value)),
                Some(_) => {}
                None if section == "defaults" => config.defaults.push((tag.to_owned(), value)),
                None => {}
            }
        }
        match open {
            Some((name, _)) => Err(format!("section {name} is not closed")),
            None => Ok(config),
        }
    }

    /// Whether there is a section for a type.
    pub(crate) fn has_type(&self, name: &str) -> bool {
        self.types.iter().any(|(known, _)| known == name)
    }

    /// The names of all types.
    pub(crate) fn types(&self) -> Vec<&str> {
        self.types.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The value of a tag in `[defaults]`.
    pub(crate) fn default_value(&self, tag: &str) -> Option<&str> {
        value(&self.defaults, tag)
    }

    /// The value of a tag for a list of types.
    pub(crate) fn value(&self, types: &[String], tag: &str) -> Option<&str> {
        let of_types = types.iter().rev().find_map(|name| self.of_type(name, tag));
        of_types.or_else(|| self.default_value(tag))
    }

    /// The value of a tag in the section of one type.
    pub(crate) fn of_type(&self, name: &str, tag: &str) -> Option<&str> {
        let mut sections = self.types.iter().filter(|(known, _)| known == name);
        sections.find_map(|(_, tags)| value(tags, tag))
    }

    /// A number for a list of types.
    ///
    /// # Errors
    /// Another value.
    pub(crate) fn number(&self, types: &[String], tag: &str) -> Result<Option<i64>> {
        self.value(types, tag)
            .map(|text| {
                text.parse().map_err(|_| {
                    Error::invalid(format!("mke2fs.conf: {tag} = {text} is not a number"))
                })
            })
            .transpose()
    }

    /// A truth value for a list of types.
    ///
    /// # Errors
    /// Another value.
    pub(crate) fn truth(&self, types: &[String], tag: &str) -> Result<Option<bool>> {
        self.value(types, tag)
            .map(|text| match text.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" | "t" | "1" | "on" => Ok(true),
                "n" | "no" | "false" | "f" | "nil" | "0" | "off" => Ok(false),
                _ => Err(Error::invalid(format!(
                    "mke2fs.conf: {tag} = {text} is neither true nor false"
                ))),
            })
            .transpose()
    }
}

fn value<'t>(tags: &'t Tags, tag: &str) -> Option<&'t str> {
    let found = tags.iter().find(|(name, _)| name == tag);
    found.map(|(_, value)| value.as_str())
}

/// A value without its quotes, or up to the first blank if it has none.
fn unquoted(text: &str) -> Option<String> {
    let Some(quoted) = text.strip_prefix('"') else {
        return Some(text.to_owned());
    };
    let mut value = String::new();
    let mut letters = quoted.chars();
    loop {
        match letters.next()? {
            '"' => return Some(value),
            '\\' => value.push(match letters.next()? {
                'n' => '\n',
                't' => '\t',
                'b' => '\u{8}',
                other => other,
            }),
            letter => value.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_defaults_of_debian_are_built_in() {
        let config = Config::built_in();
        assert_eq!(config.default_value("blocksize"), Some("4096"));
        let types = list(&["ext4", "small"]);
        assert_eq!(config.number(&types, "blocksize").unwrap(), Some(1024));
        assert_eq!(config.number(&types, "inode_size").unwrap(), Some(256));
        assert_eq!(
            config.truth(&types, "enable_periodic_fsck").unwrap(),
            Some(false)
        );
        assert!(
            config
                .of_type("ext4", "features")
                .unwrap()
                .contains("metadata_csum")
        );
        assert!(config.has_type("hurd") && !config.has_type("ext5"));
    }

    #[test]
    fn quotes_comments_and_later_types() {
        let config = Config::parse(
            "# a comment\n[defaults]\n\tfs_type = \"ext4\"\n\n[fs_types]\n a = {\n x = 1\n y = yes\n }\n b = \
             {\n x = 2\n sub = {\n x = 3\n }\n }\n",
        )
        .unwrap();
        assert_eq!(config.default_value("fs_type"), Some("ext4"));
        assert_eq!(config.number(&list(&["a", "b"]), "x").unwrap(), Some(2));
        assert_eq!(config.number(&list(&["b", "a"]), "x").unwrap(), Some(1));
        assert!(config.number(&list(&["a"]), "y").is_err());
        assert_eq!(config.truth(&list(&["a", "b"]), "y").unwrap(), Some(true));
        for (wrong, line) in [
            ("[defaults\n", "line 1"),
            ("x\n", "line 1"),
            ("\n}\n", "line 2"),
            ("[a]\nb = {\n", "not closed"),
            ("x = \"a\n", "line 1"),
        ] {
            let said = Config::parse(wrong).unwrap_err();
            assert!(said.contains(line), "{wrong:?}: {said}");
        }
    }
}
