//! A list as it stands behind `-o`, taken apart and entered.

use super::choices::CHOICES;
use super::ignored::REFUSED;
use super::table::{Known, known};
use super::{MountOptions, OptionError};

/// How alike a misspelt name and the one that was meant are, at least (Damerau-Levenshtein, normalised: 1 is the same).
const ALIKE: f64 = 0.6;

impl MountOptions {
    /// Enters the options of a list as `ro,commit=30`. Empty ones are passed over.
    ///
    /// # Errors
    /// [`OptionError`] for the first that cannot be; those before it are entered.
    pub fn add(&mut self, list: &str) -> Result<(), OptionError> {
        for option in split(list) {
            self.add_one(&option)?;
        }
        Ok(())
    }

    /// The same, passing over what is unknown (mount(8)'s `-s`). What is known has to be right.
    ///
    /// # Errors
    /// As [`MountOptions::add`], but for [`OptionError::Unknown`].
    pub fn add_known(&mut self, list: &str) -> Result<(), OptionError> {
        for option in split(list) {
            match self.add_one(&option) {
                Err(OptionError::Unknown { .. }) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// What no single option shows: whether they fit together. To be called once all are in.
    ///
    /// # Errors
    /// [`OptionError::Conflict`].
    pub fn check(&self) -> Result<(), OptionError> {
        if self.no_replay && !self.read_only {
            return Err(OptionError::Conflict(
                "mount option 'noload' shows an image as it lies, which cannot be changed so: add 'ro'",
            ));
        }
        if self.as_listed && !self.remount {
            return Err(OptionError::Conflict(
                "mount options 'user_id', 'group_id', 'rootmode' and 'blksize' are what a mount shows: they are no choice",
            ));
        }
        Ok(())
    }

    fn add_one(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        // What systemd and people note for themselves.
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
            // Flushes are what makes fsync a promise.
            ("barrier", Some(value)) if value != "1" => {
                return Err(wrong("flushes stay".to_owned()));
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

/// The options of a list. A backslash takes the next character as it is, and what stands in double quotes has no commas of
/// its own, as mount(8) has it.
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

/// The names in a list, in its order, whether they are known or not.
pub fn names(list: &str) -> Vec<String> {
    let name = |option: String| match option.split_once('=') {
        Some((name, _)) => name.to_owned(),
        None => option,
    };
    split(list).into_iter().map(name).collect()
}

/// A value so that [`MountOptions::add`] reads it as it is.
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

/// The name of a choice that was probably meant.
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
