//! Parsing of an `-o` list.

use super::choices::CHOICES;
use super::ignored::REFUSED;
use super::table::{Known, known};
use super::{MountOptions, OptionError};

/// The minimum similarity of a suggestion to a misspelt name (normalised Damerau-Levenshtein; 1 means equal).
const ALIKE: f64 = 0.6;

impl MountOptions {
    /// Sets the options of a list like `ro,commit=30`. Empty options are skipped.
    ///
    /// # Errors
    /// [`OptionError`] for the first invalid option; those before it are set.
    pub fn add(&mut self, list: &str) -> Result<(), OptionError> {
        for option in split(list) {
            self.add_one(&option)?;
        }
        Ok(())
    }

    /// The same, but skips unknown options (mount(8)'s `-s`). Known options must be valid.
    ///
    /// # Errors
    /// As [`MountOptions::add`], except [`OptionError::Unknown`].
    pub fn add_known(&mut self, list: &str) -> Result<(), OptionError> {
        for option in split(list) {
            match self.add_one(&option) {
                Err(OptionError::Unknown { .. }) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Checks that the options are compatible. Call it after all options are set.
    ///
    /// # Errors
    /// [`OptionError::Conflict`].
    pub fn check(&self) -> Result<(), OptionError> {
        if self.no_replay && !self.read_only {
            return Err(OptionError::Conflict(
                "mount option 'noload' works only with a read-only mount: add 'ro'",
            ));
        }
        if self.resize && self.read_only {
            return Err(OptionError::Conflict(
                "mount option 'resize' changes the image: it does not go with 'ro'",
            ));
        }
        if self.untrusted && !self.sandbox {
            return Err(OptionError::Conflict(
                "mount option 'untrusted' needs the sandbox: it does not go with nosandbox",
            ));
        }
        if self.untrusted && (!self.read_only || self.suid || self.dev) {
            return Err(OptionError::Conflict(
                "mount option 'untrusted' implies ro, nosuid and nodev: it does not go with rw, suid, dev or \
                 kernel",
            ));
        }
        if self.as_listed && !self.remount {
            return Err(OptionError::Conflict(
                "mount options 'user_id', 'group_id', 'rootmode' and 'blksize' cannot be chosen: they only \
                 appear in the list of mounts",
            ));
        }
        Ok(())
    }

    fn add_one(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        // Options for systemd and other programs.
        if name.starts_with("x-") || name.starts_with("X-") {
            return Ok(());
        }
        let wrong = |reason: String| OptionError::Value {
            option: option.to_owned(),
            reason,
        };
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            return Err(wrong((*why).to_owned()));
        }
        match (name, value) {
            ("with" | "without", Some(value)) => {
                return self.choices.set(value, name == "with").map_err(wrong);
            }
            // Without flushes, fsync would promise nothing.
            ("barrier", Some(value)) if value != "1" => {
                return Err(wrong(
                    "fsync needs flushes: they cannot be disabled".to_owned(),
                ));
            }
            _ => {}
        }
        let Some(known) = known().find(|known| known.name == name) else {
            return Err(OptionError::Unknown {
                name: name.to_owned(),
                nearest: nearest(name),
            });
        };
        match (known.takes(), value) {
            (Takes::Nothing, Some(_)) => Err(wrong("it takes no value".to_owned())),
            (Takes::Value, None) => Err(wrong(format!("write {name}={}", known.value))),
            _ => (known.set)(self, value.unwrap_or_default()).map_err(wrong),
        }
    }
}

enum Takes {
    Nothing,
    Perhaps,
    Value,
}

impl Known {
    fn takes(&self) -> Takes {
        match self.value {
            "" => Takes::Nothing,
            value if value.starts_with('[') => Takes::Perhaps,
            _ => Takes::Value,
        }
    }
}

/// Splits a list at its commas, except those after a backslash or in double quotes, as mount(8) does.
fn split(list: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut quoted = false;
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        let last = options.last_mut().expect("there is always one");
        match character {
            '\\' => last.extend(characters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => options.push(String::new()),
            other => last.push(other),
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

/// The option names in a list, in order, known or not.
pub fn names(list: &str) -> Vec<String> {
    let name = |option: String| match option.split_once('=') {
        Some((name, _)) => name.to_owned(),
        None => option,
    };
    split(list).into_iter().map(name).collect()
}

/// Escapes a value for [`MountOptions::add`].
pub fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '"') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn nearest(name: &str) -> Option<&'static str> {
    let names = known().map(|known| known.name);
    closest(name, names.chain(["with", "without"]))
}

/// The name of the choice that was probably meant.
pub(super) fn nearest_choice(name: &str) -> Option<&'static str> {
    closest(name, CHOICES.iter().map(|choice| choice.name))
}

fn closest(name: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    names
        .map(|known| (strsim::normalized_damerau_levenshtein(known, name), known))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}
