//! Pages of the kernel's ring buffer, as read from `trace_pipe_raw`: a time, the length used, and consecutive
//! records, each with its time delta.
//!
//! Invariant: whatever a page contains, nothing is read beyond its end, and every step advances.

use super::format::{Field, Format};
use crate::{Error, Result};

/// The header of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    timestamp: Field,
    commit: Field,
    data: usize,
    /// The size of a page.
    pub(super) page_bytes: usize,
}

/// The bits of the used length that hold the length. Higher bits mean that records were lost before the page;
/// the statistics count these too.
const LENGTH_MASK: u64 = (1 << 27) - 1;

const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
/// An absolute time lacks its highest bits; they are those of the page's time.
const STAMP_BITS: u32 = 59;

/// The largest page size of the kernel's buffers.
const MAX_PAGE_BYTES: usize = 1 << 20;

impl Header {
    /// Parses the text of `events/header_page`.
    pub(super) fn parse(text: &str) -> Result<Header> {
        let format = Format::parse(text)?;
        let field = |name| {
            let missing = || Error::new(format!("the trace's pages have no '{name}'"));
            format.field(name).ok_or_else(missing)
        };
        let data = field("data")?;
        let page_bytes = data.offset.saturating_add(data.size);
        if page_bytes > MAX_PAGE_BYTES || data.offset > page_bytes {
            return Err(Error::new("the trace's pages are larger than any kernel's"));
        }
        Ok(Header {
            timestamp: field("timestamp")?,
            commit: field("commit")?,
            data: data.offset,
            page_bytes,
        })
    }

    /// Calls `each` for every record of a page, with its time in nanoseconds of the trace clock and its
    /// bytes.
    pub(super) fn records(&self, page: &[u8], mut each: impl FnMut(u64, &[u8])) {
        let (Some(begin), Some(commit)) = (self.timestamp.number(page), self.commit.number(page))
        else {
            return;
        };
        let used = usize::try_from(commit & LENGTH_MASK).unwrap_or(usize::MAX);
        let end = self.data.saturating_add(used).min(page.len());
        let mut rest = page.get(self.data..end).unwrap_or_default();
        let mut time = begin;
        while let Some((head, behind)) = split_u32(rest) {
            let (kind, delta) = type_and_delta(head);
            let first = split_u32(behind).map(|(word, _)| word);
            // After the record's header: where its payload starts, and its length.
            let (skip, len) = match (kind, first) {
                // The rest of the page is empty.
                (TYPE_PADDING, _) if delta == 0 => return,
                (TYPE_PADDING, Some(len)) => {
                    time = time.wrapping_add(delta);
                    rest = behind.get(len as usize..).unwrap_or_default();
                    continue;
                }
                (TYPE_TIME_EXTEND, Some(high)) => {
                    time = time.wrapping_add((u64::from(high) << 27) + delta);
                    rest = &behind[4..];
                    continue;
                }
                (TYPE_TIME_STAMP, Some(high)) => {
                    let low = ((u64::from(high) << 27) + delta) & ((1 << STAMP_BITS) - 1);
                    time = begin >> STAMP_BITS << STAMP_BITS | low;
                    rest = &behind[4..];
                    continue;
                }
                (0, Some(len)) if len >= 4 => (4, len as usize - 4),
                (1..TYPE_PADDING, _) => (0, kind as usize * 4),
                _ => return,
            };
            time = time.wrapping_add(delta);
            let Some(record) = behind.get(skip..skip + len) else {
                return;
            };
            each(time, record);
            let next = (skip + len).next_multiple_of(4);
            rest = behind.get(next..).unwrap_or_default();
        }
    }
}

/// The fields of a record's first word.
fn type_and_delta(head: u32) -> (u32, u64) {
    match cfg!(target_endian = "little") {
        true => (head & 31, u64::from(head >> 5)),
        false => (head >> 27, u64::from(head & ((1 << 27) - 1))),
    }
}

fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_ne_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\
	field: u64 timestamp;	offset:0;	size:8;	signed:0;
	field: local_t commit;	offset:8;	size:8;	signed:1;
	field: int overwrite;	offset:8;	size:1;	signed:1;
	field: char data;	offset:16;	size:4080;	signed:0;
";

    fn head(kind: u32, delta: u32) -> [u8; 4] {
        match cfg!(target_endian = "little") {
            true => kind | delta << 5,
            false => kind << 27 | delta,
        }
        .to_ne_bytes()
    }

    fn page(data: &[&[u8]]) -> Vec<u8> {
        let data = data.concat();
        let commit = data.len() as u64 | 1 << 31;
        let mut page = [&1000u64.to_ne_bytes()[..], &commit.to_ne_bytes(), &data].concat();
        page.resize(4096, 0xee);
        page
    }

    fn records(page: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut seen = Vec::new();
        let header = Header::parse(HEADER).expect("a header");
        header.records(page, |at, bytes| seen.push((at, bytes.to_vec())));
        seen
    }

    #[test]
    fn records_and_times() {
        let page = page(&[
            &head(2, 5),
            b"eight by",
            &head(0, 1),
            &9u32.to_ne_bytes(),
            b"fiveb\0\0\0",
            &head(TYPE_TIME_EXTEND, 3),
            &1u32.to_ne_bytes(),
            &head(TYPE_PADDING, 2),
            &8u32.to_ne_bytes(),
            b"gone",
            &head(1, 0),
            b"four",
            &head(TYPE_TIME_STAMP, 7),
            &0u32.to_ne_bytes(),
            &head(1, 1),
            b"last",
            &head(TYPE_PADDING, 0),
            b"nothing of this",
        ]);
        let late = 1006 + (1 << 27) + 3 + 2;
        let expected = [
            (1005, &b"eight by"[..]),
            (1006, b"fiveb"),
            (late, b"four"),
            (8, b"last"),
        ];
        let expected: Vec<_> = expected.map(|(at, text)| (at, text.to_vec())).into();
        assert_eq!(records(&page), expected);
    }

    #[test]
    fn parsing_any_page_terminates() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut page: Vec<u8> = (0..random.usize(0..300)).map(|_| random.u8(..)).collect();
            records(&page);
            if page.len() > 16 {
                page[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
                records(&page);
            }
        }
        // A record that claims to be longer than the page, and padding that does not advance.
        assert!(records(&page(&[&head(0, 1), &u32::MAX.to_ne_bytes()])).is_empty());
        assert!(records(&page(&[&head(28, 1), b"short"])).len() <= 1);
        records(&page(&[&head(TYPE_PADDING, 1), &0u32.to_ne_bytes()]));
        assert!(Header::parse("field: u64 timestamp;	offset:0;	size:8;	signed:0;").is_err());
    }
}
