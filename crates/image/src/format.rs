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
    /// VMware's, in one file. Only read.
    Vmdk,
    /// Hyper-V's. Only read.
    Vhdx,
}

/// All of them, by name.
const NAMES: [(&str, Format); 4] = [
    ("raw", Format::Raw),
    ("qcow2", Format::Qcow2),
    ("vmdk", Format::Vmdk),
    ("vhdx", Format::Vhdx),
];

/// `QFI` and 0xfb, the first bytes of qcow2; then follows the version.
pub(crate) const QCOW2: [u8; 4] = [0x51, 0x46, 0x49, 0xfb];
/// The first bytes of a vmdk with a sparse disk; then follows the version.
pub(crate) const VMDK: [u8; 4] = *b"KDMV";
/// Those of a file that describes a vmdk whose disk is in other files.
pub(crate) const VMDK_TEXT: [u8; 21] = *b"# Disk DescriptorFile";
/// The first bytes of vhdx.
pub(crate) const VHDX: [u8; 8] = *b"vhdxfile";

impl Format {
    /// The format of a file, by its first bytes. Whoever can write to a raw disk, such as a guest, can make
    /// it begin like another format. So a file that also holds an ext volume as if it was raw is refused, as
    /// is one with a table of partitions where vmdk and vhdx have zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it can be both; of the device.
    pub fn of(file: &(impl ReadAt + ?Sized)) -> io::Result<Format> {
        let format = match read::<21>(file, 0)? {
            Some(first) if first == VMDK_TEXT => Format::Vmdk,
            Some([a, b, c, d, 0, 0, 0, 2 | 3, ..]) if [a, b, c, d] == QCOW2 => Format::Qcow2,
            Some([a, b, c, d, 1..=3, 0, 0, 0, ..]) if [a, b, c, d] == VMDK => Format::Vmdk,
            Some(first) if first.starts_with(&VHDX) => Format::Vhdx,
            _ => return Ok(Format::Raw),
        };
        let has_table = format != Format::Qcow2 && read(file, 510)? == Some([0x55, 0xaa]);
        match has_table || volume_at(file, 0)?.is_some() {
            false => Ok(format),
            true => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                Doubtful { format },
            )),
        }
    }

    /// Whether images of this format can be written.
    pub fn is_written(self) -> bool {
        matches!(self, Format::Raw | Format::Qcow2)
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
#[error("it begins like {format}, but also holds an ext volume or partitions as a raw image")]
pub struct Doubtful {
    /// What it begins like.
    pub format: Format,
}

/// Images of this format are not written.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "a {format} image is only read: an overlay takes changes, or 'qemu-img convert -O qcow2' makes an image that \
     is written"
)]
pub struct OnlyRead {
    /// The format.
    pub format: Format,
}

/// A name of a format that does not exist.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no such format; there are raw and qcow2, and vmdk and vhdx, which are only read")]
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
