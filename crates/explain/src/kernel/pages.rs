//! Pages of the kernel's ring buffer, as read from `trace_pipe_raw`: a time, the length used, and consecutive
//! records, each with its time delta.
//!
//! Invariant: whatever a page contains, nothing is read beyond its end, and every step advances.

/// The time of a page is in its first bytes, then comes its used length, a long integer, then its records.
/// `events/header_page` shows this layout, which Linux has had since 2.6.28.
const TIME_BYTES: usize = 8;
const DATA: usize = TIME_BYTES + size_of::<usize>();

/// The bits of the used length that hold the length. Higher bits mean that records were lost before the page;
/// the statistics count these too.
const LENGTH_MASK: usize = (1 << 27) - 1;

const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
/// An absolute time lacks its highest bits; they are those of the page's time.
const STAMP_BITS: u32 = 59;

/// Calls `each` for every record of a page, with its time in nanoseconds of the trace clock and its bytes.
pub(super) fn records(page: &[u8], mut each: impl FnMut(u64, &[u8])) {
    let (Some(begin), Some(used)) = (page.first_chunk(), page.get(TIME_BYTES..DATA)) else {
        return;
    };
    let begin = u64::from_ne_bytes(*begin);
    let used = used.try_into().map_or(0, usize::from_ne_bytes) & LENGTH_MASK;
    let end = DATA.saturating_add(used).min(page.len());
    let mut rest = page.get(DATA..end).unwrap_or_default();
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
        super::records(page, |at, bytes| seen.push((at, bytes.to_vec())));
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
    }
}
