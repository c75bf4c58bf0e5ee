//! The layout of a tracepoint's record, from its `format` file.
//!
//! Invariant: a field is read only from within the record, whatever the file or the record claims.

use crate::{Error, Result};

/// The position of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) signed: bool,
}

/// The layout of a tracepoint's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Format {
    /// Its number in this kernel.
    pub(super) id: u16,
    fields: Vec<(String, Field)>,
}

impl Format {
    /// Parses a `format` file.
    pub(super) fn parse(text: &str) -> Result<Format> {
        let mut format = Format::default();
        for line in text.lines() {
            let line = line.trim();
            if let Some(id) = line.strip_prefix("ID:") {
                let strange = |_| Error::new(format!("invalid tracepoint ID '{id}'"));
                format.id = id.trim().parse().map_err(strange)?;
            } else if let Some((name, field)) = line.strip_prefix("field:").and_then(field) {
                format.fields.push((name.to_owned(), field));
            }
        }
        match format.fields.is_empty() {
            true => Err(Error::new("a tracepoint's format has no fields")),
            false => Ok(format),
        }
    }

    /// The position of a field.
    pub(super) fn field(&self, name: &str) -> Option<Field> {
        let found = self.fields.iter().find(|field| field.0 == name);
        found.map(|field| field.1)
    }

    /// A numeric field; negative values are in two's complement.
    pub(super) fn number(&self, record: &[u8], name: &str) -> Option<u64> {
        self.field(name)?.number(record)
    }

    /// A field that is an array of characters, up to its first NUL.
    pub(super) fn text<'r>(&self, record: &'r [u8], name: &str) -> Option<&'r [u8]> {
        let bytes = self.field(name)?.bytes(record)?;
        bytes.split(|byte| *byte == 0).next()
    }
}

impl Field {
    pub(super) fn bytes(self, record: &[u8]) -> Option<&[u8]> {
        record.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// Numbers are in native byte order.
    pub(super) fn number(self, record: &[u8]) -> Option<u64> {
        let bytes = self.bytes(record)?;
        let signed = |value: i64| value.cast_unsigned();
        Some(match (bytes, self.signed) {
            (&[a], false) => a.into(),
            (&[a], true) => signed(a.cast_signed().into()),
            (&[a, b], false) => u16::from_ne_bytes([a, b]).into(),
            (&[a, b], true) => signed(i16::from_ne_bytes([a, b]).into()),
            (&[a, b, c, d], false) => u32::from_ne_bytes([a, b, c, d]).into(),
            (&[a, b, c, d], true) => signed(i32::from_ne_bytes([a, b, c, d]).into()),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        })
    }
}

/// Parses a line such as `unsigned int nr_sector; offset:24; size:4; signed:0;`, with tabs.
fn field(text: &str) -> Option<(&str, Field)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next()?.split_whitespace().next_back()?;
    let name = name.split('[').next()?.trim_start_matches('*');
    let mut value = |what: &str| -> Option<usize> {
        let value = parts.next()?.strip_prefix(what)?.strip_prefix(':')?;
        value.parse().ok()
    };
    let (offset, size) = (value("offset")?, value("size")?);
    let signed = value("signed") == Some(1);
    Some((
        name,
        Field {
            offset,
            size,
            signed,
        },
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The file of Linux 6.18 on x86-64.
    pub(in super::super) const BIO_QUEUE: &str = "\
name: block_bio_queue
ID: 2097
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:dev_t dev;	offset:8;	size:4;	signed:0;
	field:sector_t sector;	offset:16;	size:8;	signed:0;
	field:unsigned int nr_sector;	offset:24;	size:4;	signed:0;
	field:char rwbs[10];	offset:28;	size:10;	signed:0;
	field:char comm[16];	offset:38;	size:16;	signed:0;

print fmt: \"%d,%d %s %llu + %u [%s]\", ((unsigned int) ((REC->dev) >> 20)), ((unsigned int) ((REC->dev) & ((1U << 20) - 1))), REC->rwbs, (unsigned long long)REC->sector, REC->nr_sector, REC->comm
";

    #[test]
    fn a_format_is_read() {
        let format = Format::parse(BIO_QUEUE).expect("a format");
        assert_eq!(format.id, 2097);
        let mut record = vec![0u8; 54];
        record[4..8].copy_from_slice(&(-1i32).to_ne_bytes());
        record[16..24].copy_from_slice(&0x0102_0304_0506_0708u64.to_ne_bytes());
        record[28..31].copy_from_slice(b"WSM");
        record[38..54].copy_from_slice(b"sixteen letters!");
        assert_eq!(
            format.number(&record, "sector"),
            Some(0x0102_0304_0506_0708)
        );
        assert_eq!(format.number(&record, "common_pid"), Some(u64::MAX));
        assert_eq!(format.text(&record, "rwbs"), Some(&b"WSM"[..]));
        assert_eq!(format.text(&record, "comm"), Some(&b"sixteen letters!"[..]));
        // No end of the string, no such field, not enough room.
        assert_eq!(format.number(&record, "nr_bytes"), None);
        assert_eq!(format.number(&record[..20], "sector"), None);
        assert_eq!(format.text(&record[..40], "comm"), None);
    }

    #[test]
    fn invalid_formats_are_refused() {
        assert!(Format::parse("").is_err());
        assert!(Format::parse("ID: many\n").is_err());
        assert!(Format::parse("field:int x;\toffset:-1;\tsize:4;\tsigned:1;\n").is_err());
        let huge = "field:int x;\toffset:18446744073709551615;\tsize:4;\tsigned:1;\n";
        let format = Format::parse(huge).expect("a format");
        assert_eq!(format.number(&[0; 64], "x"), None);
    }
}
