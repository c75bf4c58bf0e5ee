//! The contents of a file in the model: a size, and the written bytes, stored sparsely.

use std::collections::BTreeMap;

/// Chunk size in bytes. No block size is smaller, so a hole in the model is never part of a block with data.
const CHUNK: u64 = 1024;

/// A sparse sequence of bytes. Unwritten bytes read as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    len: u64,
    chunks: BTreeMap<u64, Box<[u8]>>,
}

impl Content {
    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether its size is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes `data` at `offset`; extends the size to the end of the data if needed.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let inside = (at % CHUNK) as usize;
            let n = rest.len().min(CHUNK as usize - inside);
            let chunk = self
                .chunks
                .entry(at / CHUNK)
                .or_insert_with(|| vec![0; CHUNK as usize].into());
            chunk[inside..inside + n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            at += n as u64;
        }
        self.len = self.len.max(at);
    }

    /// Fills `to` from `offset` on, with zeros past the end. Returns the number of bytes before the end.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> usize {
        to.fill(0);
        let n = self.len.saturating_sub(offset).min(to.len() as u64) as usize;
        let to = &mut to[..n];
        let end = offset + n as u64;
        for (index, chunk) in self.chunks.range(offset / CHUNK..end.div_ceil(CHUNK)) {
            let begin = index * CHUNK;
            let (from, until) = (begin.max(offset), (begin + CHUNK).min(end));
            to[(from - offset) as usize..(until - offset) as usize]
                .copy_from_slice(&chunk[(from - begin) as usize..(until - begin) as usize]);
        }
        n
    }

    /// Truncates to `len` bytes, or extends with zeros.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, self.len - len);
            self.chunks.split_off(&len.div_ceil(CHUNK));
        }
        self.len = len;
    }

    /// Zeroes `len` bytes at `offset` without changing the size.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let touched: Vec<u64> = self
            .chunks
            .range(offset / CHUNK..end.div_ceil(CHUNK))
            .map(|(i, _)| *i)
            .collect();
        for index in touched {
            let begin = index * CHUNK;
            let (from, until) = (begin.max(offset), (begin + CHUNK).min(end));
            if until - from == CHUNK {
                self.chunks.remove(&index);
            } else if let Some(chunk) = self.chunks.get_mut(&index) {
                chunk[(from - begin) as usize..(until - begin) as usize].fill(0);
            }
        }
    }

    /// Removes `len` bytes at `offset`; later bytes move down. Both are multiples of a block.
    pub fn collapse(&mut self, offset: u64, len: u64) {
        self.zero(offset, len);
        let moved = self.chunks.split_off(&(offset / CHUNK));
        self.chunks.extend(
            moved
                .into_iter()
                .map(|(index, chunk)| (index - len / CHUNK, chunk)),
        );
        self.len -= len;
    }

    /// Inserts `len` zero bytes at `offset`; later bytes move up. Both are multiples of a block.
    pub fn insert(&mut self, offset: u64, len: u64) {
        let moved = self.chunks.split_off(&(offset / CHUNK));
        self.chunks.extend(
            moved
                .into_iter()
                .map(|(index, chunk)| (index + len / CHUNK, chunk)),
        );
        self.len += len;
    }

    /// Offset of the first nonzero byte in `offset..end`.
    pub fn first_nonzero(&self, offset: u64, end: u64) -> Option<u64> {
        self.chunks
            .range(offset / CHUNK..end.div_ceil(CHUNK))
            .find_map(|(index, chunk)| {
                let begin = index * CHUNK;
                let bytes = (begin..).zip(chunk.iter());
                bytes
                    .filter(|(at, _)| (offset..end).contains(at))
                    .find(|(_, byte)| **byte != 0)
                    .map(|(at, _)| at)
            })
    }

    /// Ranges to compare in a file too large to compare completely: around every written run, and at both
    /// ends.
    pub fn interesting(&self, whole_below: u64) -> Vec<(u64, u64)> {
        if self.len <= whole_below {
            return vec![(0, self.len)];
        }
        let around = |at: u64| (at.saturating_sub(CHUNK), (at + 2 * CHUNK).min(self.len));
        let mut ranges = vec![around(0), around(self.len - 1)];
        let mut last: Option<u64> = None;
        for index in self.chunks.keys() {
            match (last, ranges.last_mut()) {
                (Some(previous), Some(range)) if previous + 1 == *index => {
                    range.1 = around(index * CHUNK).1
                }
                _ => ranges.push(around(index * CHUNK)),
            }
            last = Some(*index);
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the sparse content with a plain vector.
    #[test]
    fn as_a_vector() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut content = Content::default();
        let mut plain: Vec<u8> = Vec::new();
        for _ in 0..3000 {
            let (offset, len) = (random.usize(..20_000), random.usize(..5000));
            let block = |n: usize| n / 1024 * 1024;
            match random.u8(..6) {
                0 | 1 => {
                    let data: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
                    content.write(offset as u64, &data);
                    if len > 0 {
                        plain.resize(plain.len().max(offset + len), 0);
                        plain[offset..offset + len].copy_from_slice(&data);
                    }
                }
                2 => {
                    content.set_len(offset as u64);
                    plain.resize(offset, 0);
                }
                3 => {
                    content.zero(offset as u64, len as u64);
                    let end = plain.len().min(offset + len);
                    plain[offset.min(end)..end].fill(0);
                }
                4 if block(offset) + block(len) < plain.len() => {
                    content.collapse(block(offset) as u64, block(len) as u64);
                    plain.drain(block(offset)..block(offset) + block(len));
                }
                5 if block(offset) < plain.len() && plain.len() < 60_000 => {
                    content.insert(block(offset) as u64, block(len) as u64);
                    plain.splice(block(offset)..block(offset), vec![0; block(len)]);
                }
                _ => {}
            }
            assert_eq!(content.len() as usize, plain.len());
            let mut read = vec![1; len];
            let n = content.read(offset as u64, &mut read);
            assert_eq!(n, plain.len().saturating_sub(offset).min(len));
            assert_eq!(
                &read[..n],
                plain.get(offset..offset + n).unwrap_or_default()
            );
            let first = plain
                .iter()
                .skip(offset)
                .position(|byte| *byte != 0)
                .map(|at| (at + offset) as u64);
            assert_eq!(
                content.first_nonzero(offset as u64, content.len().max(offset as u64)),
                first
            );
        }
    }
}
