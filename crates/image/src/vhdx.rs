//! [`Vhdx`]: a disk of Hyper-V, read by the crate `vhdx-core`.
//!
//! By the specification MS-VHDX. What the crate does not bound is refused before it sees the image: a log
//! that has to be replayed (it may say anything, and the crate reads it otherwise than the specification),
//! and regions longer than [`MAX_REGION_BYTES`], which it would read as a whole. A disk that holds the
//! changes of another one is refused by the crate.

use std::io::{self, Read, Seek, SeekFrom};

use crc32c::crc32c;
use throughline_locks::{Mutex, Rank};
use vhdx::{VhdxError, VhdxReader};

use crate::cursor::{Cursor, Failure, Source};
use crate::source::{ReadAt, long, read, word};
use crate::virtual_disk::{damaged, unsupported};

/// The places of the two headers, and of the two tables of regions.
const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
const TABLES: [u64; 2] = [192 << 10, 256 << 10];
const HEADER_BYTES: usize = 4 << 10;
const TABLE_BYTES: usize = 64 << 10;
/// The longest region that is read: enough for 4 TiB in blocks of 1 MiB, and 128 TiB in those of 32 MiB.
const MAX_REGION_BYTES: u32 = 32 << 20;

/// See the head of this file.
pub(crate) struct Vhdx {
    len_bytes: u64,
    reader: Mutex<VhdxReader>,
    failure: Failure,
}

impl Vhdx {
    /// # Errors
    /// [`io::ErrorKind::Unsupported`], [`io::ErrorKind::InvalidData`]; of the device.
    pub(crate) fn open(source: Source) -> io::Result<Vhdx> {
        if has_log(&source)? {
            return Err(unsupported(
                "a vhdx image that was not closed: open it with its program first, or 'qemu-img check -r all' \
                 replays its log",
            ));
        }
        check_regions(&source)?;
        let failure = Failure::default();
        let cursor = Cursor::new(&source, &failure)?;
        let reader = VhdxReader::open_reader(Box::new(cursor)).map_err(|error| match error {
            VhdxError::Io(error) => failure.explain_read("vhdx", &error),
            VhdxError::DifferencingNotSupported => unsupported(
                "a vhdx image that holds the changes of another one: 'qemu-img convert -O qcow2' makes one of both",
            ),
            error => failure.explain("vhdx", &error),
        })?;
        Ok(Vhdx {
            len_bytes: reader.virtual_disk_size(),
            reader: Mutex::ranked(Rank::ImageReader, reader),
            failure,
        })
    }
}

impl ReadAt for Vhdx {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(u64::try_from(buffer.len()).unwrap_or(u64::MAX));
        if end.is_none_or(|end| end > self.len_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut reader = self.reader.lock();
        let found = reader.seek(SeekFrom::Start(at));
        let read = found.and_then(|_| reader.read_exact(buffer));
        read.map_err(|error| self.failure.explain_read("vhdx", &error))
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.len_bytes)
    }
}

/// Whether the header in use names a log. It is the one with the larger number of those whose checksum is
/// right.
fn has_log(source: &Source) -> io::Result<bool> {
    let mut newest: Option<(u64, bool)> = None;
    for place in HEADERS {
        let Some(mut header) = read::<HEADER_BYTES>(source, place)? else {
            continue;
        };
        let sum = word(&header, 4);
        if let Some(place) = header.get_mut(4..8) {
            place.fill(0);
        }
        if !header.starts_with(b"head") || crc32c(&header) != sum {
            continue;
        }
        let number = long(&header, 8);
        let has_log = long(&header, 48) != 0 || long(&header, 56) != 0;
        if newest.is_none_or(|(known, _)| known < number) {
            newest = Some((number, has_log));
        }
    }
    match newest {
        Some((_, has_log)) => Ok(has_log),
        None => Err(damaged(
            "the vhdx image is damaged: it has no header whose checksum is right",
        )),
    }
}

/// No table has a region that is too long.
fn check_regions(source: &Source) -> io::Result<()> {
    for place in TABLES {
        let mut table = vec![0; TABLE_BYTES];
        match source.read_exact_at(&mut table, place) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            read => read?,
        }
        let entries = table.get(16..).unwrap_or_default().as_chunks::<32>();
        let number = match table.starts_with(b"regi") {
            true => usize::try_from(word(&table, 8)).unwrap_or(usize::MAX),
            false => 0,
        };
        for entry in entries.0.iter().take(number) {
            if word(entry, 24) > MAX_REGION_BYTES {
                return Err(unsupported(
                    "a vhdx image with so many blocks, or whose tables are damaged",
                ));
            }
        }
    }
    Ok(())
}
