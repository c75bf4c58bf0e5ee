//! The formats of images of disks, and how they are told apart.

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::source::{ReadAt, read};
use crate::volume::volume_at;

/// How the bytes of a disk are stored in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// One after another.
    Raw,
    /// In clusters, with tables that say where each is: QEMU's qcow2, versions 2 and 3.
    Qcow2,
}

/// All of them, by name.
const NAMES: [(&str, Format); 2] = [("raw", Format::Raw), ("qcow2", Format::Qcow2)];

/// `QFI` and 0xfb, the first bytes of qcow2; then follows the version.
pub(crate) const QCOW2: [u8; 4] = [0x51, 0x46, 0x49, 0xfb];
impl Format {
    /// The format of a file, by its first bytes. Whoever can write to a raw disk, such as a guest, can make
    /// it begin like another format. So a file that also holds an ext volume as if it was raw is refused.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it can be both; of the device.
    pub fn of(file: &(impl ReadAt + ?Sized)) -> io::Result<Format> {
        match read::<8>(file, 0)? {
            Some([a, b, c, d, 0, 0, 0, 2 | 3]) if [a, b, c, d] == QCOW2 => {}
            _ => return Ok(Format::Raw),
        }
        match volume_at(file, 0)? {
            None => Ok(Format::Qcow2),
            Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, Doubtful)),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = NAMES.iter().filter(|(_, format)| format == self);
        f.write_str(names.next().map_or("", |(name, _)| name))
    }
}

/// A file may be of two formats, so its format has to be named.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it begins like qcow2, but also holds an ext volume as a raw image")]
pub struct Doubtful;

/// A name of a format that does not exist.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no such format; there are raw and qcow2")]
pub struct UnknownFormat;

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Format, UnknownFormat> {
        let mut formats = NAMES.iter().filter(|(one, _)| *one == name);
        formats
            .next()
            .map(|(_, format)| *format)
            .ok_or(UnknownFormat)
    }
}
