//! The partitions of a disk, and how one of them is chosen.

use std::fmt::Write;
use std::io;
use std::ops::Range;

use crate::source::ReadAt;
use crate::volume::{Signature, volume_at};
use crate::{gpt, mbr};

/// Why there is no partition to use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The table, or the entry of a partition, cannot be used.
    #[error("{0}")]
    Damaged(String),
    /// No partition, or more than one, fits what was asked for. The text lists what there is.
    #[error("{0}")]
    Choice(String),
    /// The disk could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// See [`Error`].
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The table of partitions of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The kind of table: `GPT` or `MBR`.
    pub kind: &'static str,
    /// Whether the table is damaged, so that its copy at the end of the disk was read.
    pub is_copy: bool,
    /// The partitions, by number.
    pub partitions: Vec<Partition>,
    /// The length of the disk.
    pub(crate) len_bytes: u64,
    /// Where tables are on the disk: no partition may cover them.
    pub(crate) tables: Vec<Range<u64>>,
}

/// A partition, as the table describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Linux's number for it: 1 for `sda1`; logical partitions from 5 on.
    pub number: u32,
    /// Where it begins on the disk.
    pub start_bytes: u64,
    /// Its length.
    pub len_bytes: u64,
    /// Its name; an MBR has none.
    pub name: String,
    /// Its UUID (`PARTUUID`), in lower case. In an MBR, the disk's signature and the number.
    pub uuid: String,
    /// Its type: a GUID, or two hexadecimal digits.
    pub kind: String,
    /// The ext volume in it, if there is one.
    pub volume: Option<Signature>,
}

impl Partition {
    fn end(&self) -> u64 {
        self.start_bytes.saturating_add(self.len_bytes)
    }

    fn has_label(&self, label: &str) -> bool {
        let of_volume = self
            .volume
            .as_ref()
            .is_some_and(|volume| volume.label == label);
        !label.is_empty() && (self.name == label || of_volume)
    }

    fn has_uuid(&self, uuid: &str) -> bool {
        let of_volume = self.volume.as_ref().map(|volume| &volume.uuid);
        let mut uuids = std::iter::once(&self.uuid).chain(of_volume);
        uuids.any(|one| one.eq_ignore_ascii_case(uuid))
    }
}

impl Table {
    /// Reads the table, if there is one. Like Linux, a GPT is used only if the MBR says that the disk has
    /// one.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there should be a GPT, and it cannot be used; [`Error::Io`].
    pub fn read(disk: &impl ReadAt) -> Result<Option<Table>> {
        let mut table = match mbr::read_table(disk)? {
            mbr::Found::Nothing => return Ok(None),
            mbr::Found::Protective => gpt::read_table(disk)?,
            mbr::Found::Table(table) => table,
        };
        for partition in &mut table.partitions {
            partition.volume = volume_at(disk, partition.start_bytes)?;
        }
        Ok(Some(table))
    }

    /// The only partition that holds an ext volume.
    ///
    /// # Errors
    /// [`Error::Choice`] if there is none, or more than one; [`Error::Damaged`].
    pub fn volume(&self) -> Result<&Partition> {
        let mut found = self.partitions.iter().filter(|one| one.volume.is_some());
        match (found.next(), found.next()) {
            (Some(one), None) => self.with_volume(self.checked(one)?),
            (None, _) => self.no_choice("none of its partitions holds an ext volume"),
            (Some(_), Some(_)) => self
                .no_choice("several of its partitions hold an ext volume: name one, as in IMAGE@2"),
        }
    }

    /// The partition that `name` means: a number; else a label or UUID, of the partition or of the ext volume
    /// in it. `label=` or `uuid=` before it says which.
    ///
    /// # Errors
    /// [`Error::Choice`] if there is none, or more than one; [`Error::Damaged`].
    pub fn named(&self, name: &str) -> Result<&Partition> {
        let one = self.place(name)?;
        self.with_volume(one)
    }

    /// As [`Table::named`], but a volume in it need not fit: for a caller that overwrites it.
    ///
    /// # Errors
    /// As there.
    pub fn place(&self, name: &str) -> Result<&Partition> {
        let (label, uuid) = match (name.strip_prefix("label="), name.strip_prefix("uuid=")) {
            (Some(label), _) => (Some(label), None),
            (_, Some(uuid)) => (None, Some(uuid)),
            _ if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number = name.parse().unwrap_or(u32::MAX);
                let one = self.partitions.iter().find(|one| one.number == number);
                return match one {
                    Some(one) => self.checked(one),
                    None => self.no_choice(&format!("it has no partition {name}")),
                };
            }
            _ => (Some(name), Some(name)),
        };
        let mut fits = self.partitions.iter().filter(|one| {
            label.is_some_and(|label| one.has_label(label))
                || uuid.is_some_and(|uuid| one.has_uuid(uuid))
        });
        match (fits.next(), fits.next()) {
            (Some(one), None) => self.checked(one),
            (None, _) => self.no_choice(&format!("it has no partition '{name}'")),
            _ => self.no_choice(&format!("it has more than one partition '{name}'")),
        }
    }

    /// Checks that a partition can be used.
    fn checked<'t>(&self, one: &'t Partition) -> Result<&'t Partition> {
        let (number, end) = (one.number, one.end());
        let damaged = |why: String| Err(Error::Damaged(format!("partition {number} {why}")));
        if one.len_bytes == 0 {
            return damaged("ends before it begins".to_owned());
        }
        if end > self.len_bytes {
            return damaged(format!(
                "ends at byte {end}, and the disk at byte {}: the image is not complete",
                self.len_bytes
            ));
        }
        let covers = |start: u64, to: u64| start < end && to > one.start_bytes;
        let overlaps = |other: &&Partition| {
            !std::ptr::eq(*other, one) && covers(other.start_bytes, other.end())
        };
        if let Some(other) = self.partitions.iter().find(overlaps) {
            return damaged(format!("overlaps partition {}", other.number));
        }
        if self
            .tables
            .iter()
            .any(|table| covers(table.start, table.end))
        {
            return damaged("covers the table of partitions itself".to_owned());
        }
        Ok(one)
    }

    /// Checks that the volume in a partition fits it.
    fn with_volume<'t>(&self, one: &'t Partition) -> Result<&'t Partition> {
        match &one.volume {
            Some(volume) if volume.len_bytes > one.len_bytes => Err(Error::Damaged(format!(
                "partition {} has {} bytes, and the volume in it {}: the partition was made smaller, or the \
                 volume larger",
                one.number, one.len_bytes, volume.len_bytes
            ))),
            _ => Ok(one),
        }
    }

    fn no_choice<T>(&self, why: &str) -> Result<T> {
        let mut text = format!(
            "a disk with partitions ({}), and {why}. There are:",
            self.kind
        );
        for partition in &self.partitions {
            let _ = write!(
                text,
                "\n  {}: {} bytes at byte {}",
                partition.number, partition.len_bytes, partition.start_bytes
            );
            if !partition.name.is_empty() {
                let _ = write!(text, ", {:?}", partition.name);
            }
            if let Some(volume) = &partition.volume {
                text.push_str(", ext");
                if !volume.label.is_empty() {
                    let _ = write!(text, " {:?}", volume.label);
                }
            }
        }
        Err(Error::Choice(text))
    }
}
