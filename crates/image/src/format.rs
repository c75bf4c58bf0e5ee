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

/// `QFI` and 0xfb, the first bytes of qcow2.
const QCOW2: [u8; 4] = [0x51, 0x46, 0x49, 0xfb];
/// The first bytes of formats that are known, but not read.
const OTHERS: [(&[u8], &str); 6] = [
    (b"KDMV", "vmdk"),
    (b"# Disk D", "vmdk"),
    (b"vhdxfile", "vhdx"),
    (b"conectix", "vhd"),
    (b"<<< Orac", "vdi"),
    (b"<<< QEMU", "vdi"),
];

impl Format {
    /// The format of a file, by its first bytes. Whoever can write to a raw disk, such as a guest, can make it
    /// begin like another format. So a file that also holds an ext volume as if it was raw is refused.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it can be both; [`io::ErrorKind::Unsupported`] for a format that is
    /// not read; of the device.
    pub fn of(file: &impl ReadAt) -> io::Result<Format> {
        let start = read::<8>(file, 0)?.unwrap_or_default();
        let mut others = OTHERS.iter().filter(|(magic, _)| start.starts_with(magic));
        let name = match others.next() {
            Some((_, name)) => name,
            None if start.starts_with(&QCOW2) => "qcow2",
            None => return Ok(Format::Raw),
        };
        let is_volume = volume_at(file, 0)?.is_some();
        match name.parse() {
            Ok(format) if !is_volume => Ok(format),
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                Doubtful(format!(
                    "it begins like {name}, but also holds an ext volume as a raw image"
                )),
            )),
            // The bytes before a volume are anybody's.
            Err(_) if is_volume => Ok(Format::Raw),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                Doubtful(format!("images of the format {name} are not read")),
            )),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = NAMES.iter().filter(|(_, format)| format == self);
        f.write_str(names.next().map_or("", |(name, _)| name))
    }
}

/// Why the format of a file has to be named, or the file to be converted.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Doubtful(String);

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
