//! The words of `-J`.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::words::{self, Amount};

const OPTION: &str = "-J";

/// What `-J` says.
#[derive(Clone, Debug, Default)]
pub(crate) struct JournalWords {
    /// The device of the journal, if it is outside.
    pub(crate) device: Option<PathBuf>,
    pub(crate) size_mib: Option<u32>,
    pub(crate) fast_commit_kib: Option<u32>,
    pub(crate) location: Option<Amount>,
}

impl JournalWords {
    /// Reads words such as `size=64,location=1G`.
    ///
    /// # Errors
    /// A word that is not understood, or not supported.
    pub(crate) fn read(&mut self, text: &str) -> Result<()> {
        for (name, value) in words::split(text) {
            let number = || words::number(OPTION, name, value, 1, u64::from(u32::MAX >> 10));
            match name {
                "size" => self.size_mib = Some(number()? as u32),
                "fast_commit_size" => self.fast_commit_kib = Some(number()? as u32),
                "location" => self.location = Some(words::amount(OPTION, name, value)?),
                "device" => match value {
                    Some(path) if !path.is_empty() => self.device = Some(path.into()),
                    _ => return Err(Error::invalid("-J device=PATH names a journal device")),
                },
                _ => {
                    return Err(words::wrong(
                        OPTION,
                        name,
                        "the words are size=MIB, fast_commit_size=KIB, location=BLOCK and device=PATH",
                    ));
                }
            }
        }
        Ok(())
    }
}
