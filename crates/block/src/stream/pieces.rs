//! Maps the bytes of a stream to the pieces they belong to, and tracks which are done.
//!
//! The stream numbers the bytes that pass through it. Its builder and plug keep their order, so every bio and
//! every piece is a range of these numbers, however the bios were split.
//!
//! Invariants: pieces follow one another without gaps, in the order in which they were added. A piece is
//! returned when all its bytes are done, independently of the pieces before it.

use std::collections::VecDeque;

use super::Written;
use crate::error::{Error, Result};

/// The pieces of a stream that are not done.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Ascending by `begin`. Pieces that are done stay until they are at the front.
    list: VecDeque<Piece>,
    /// The number of pieces in the list that are not done.
    waiting: usize,
    /// The number of the next byte to be added.
    end: u64,
    /// The number of the next byte to be submitted.
    submitted: u64,
}

#[derive(Debug)]
struct Piece {
    cookie: u64,
    begin: u64,
    end: u64,
    /// Bytes that are not done.
    left: u64,
    result: Result<()>,
}

impl Pieces {
    /// Adds a piece of `len` bytes, which must not be 0.
    pub(super) fn add(&mut self, cookie: u64, len: u64) {
        let begin = self.end;
        self.end += len;
        self.waiting += 1;
        self.list.push_back(Piece {
            cookie,
            begin,
            end: self.end,
            left: len,
            result: Ok(()),
        });
    }

    /// Takes the next `len` bytes for submission. Returns the number of the first one.
    pub(super) fn submit(&mut self, len: u64) -> u64 {
        let first = self.submitted;
        self.submitted += len;
        debug_assert!(self.submitted <= self.end);
        first
    }

    /// Marks the `len` bytes from number `first` on as done, or failed. Pieces that this completes are
    /// appended to `done`.
    pub(super) fn complete(
        &mut self,
        first: u64,
        len: u64,
        error: Option<&Error>,
        done: &mut Vec<Written>,
    ) {
        let end = first + len;
        let at = self.list.partition_point(|piece| piece.end <= first);
        for piece in self.list.range_mut(at..) {
            if piece.begin >= end {
                break;
            }
            piece.left -= piece.end.min(end) - piece.begin.max(first);
            if let (Some(error), Ok(())) = (error, &piece.result) {
                piece.result = Err(error.clone());
            }
            if piece.left == 0 {
                self.waiting -= 1;
                let result = std::mem::replace(&mut piece.result, Ok(()));
                done.push(Written {
                    cookie: piece.cookie,
                    result,
                });
            }
        }
        while self.list.front().is_some_and(|piece| piece.left == 0) {
            self.list.pop_front();
        }
    }

    /// Pieces that are not done.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use throughline_device::Op;
    use throughline_testkit::cases::config;

    use super::*;

    fn error(at: u64) -> Error {
        Error::device(Op::Write, at, 1, std::io::ErrorKind::Other.into())
    }

    proptest! {
        #![proptest_config(config(256))]

        /// Pieces and bios split the same bytes at different places; bios complete in any order.
        #[test]
        fn each_piece_comes_back_once_with_what_became_of_its_bytes(
            lens in prop::collection::vec(1_u64..20, 1..30),
            bio_lens in prop::collection::vec(1_u64..20, 1..30),
            ends in prop::collection::vec((any::<prop::sample::Index>(), prop::bool::weighted(0.2)), 700),
        ) {
            let mut pieces = Pieces::default();
            for (cookie, len) in lens.iter().enumerate() {
                pieces.add(cookie as u64, *len);
            }
            let total: u64 = lens.iter().sum();
            let (mut bios, mut at) = (Vec::new(), 0);
            for len in bio_lens.iter().cycle() {
                let len = (*len).min(total - at);
                prop_assert_eq!(pieces.submit(len), at);
                bios.push((at, len));
                at += len;
                if at == total {
                    break;
                }
            }
            let (mut bytes_done, mut failed) = (vec![false; total as usize], vec![false; total as usize]);
            let mut seen = vec![false; lens.len()];
            for (which, fails) in ends {
                if bios.is_empty() {
                    break;
                }
                let (first, len) = bios.swap_remove(which.index(bios.len()));
                let mut done = Vec::new();
                pieces.complete(first, len, fails.then(|| error(first)).as_ref(), &mut done);
                bytes_done[first as usize..(first + len) as usize].fill(true);
                failed[first as usize..(first + len) as usize].fill(fails);
                for written in done {
                    let cookie = written.cookie as usize;
                    prop_assert!(!std::mem::replace(&mut seen[cookie], true), "returned twice");
                    let begin = lens[..cookie].iter().sum::<u64>() as usize;
                    let of_piece = begin..begin + lens[cookie] as usize;
                    prop_assert!(bytes_done[of_piece.clone()].iter().all(|byte| *byte), "returned early");
                    prop_assert_eq!(written.result.is_err(), failed[of_piece].iter().any(|byte| *byte));
                }
                prop_assert_eq!(pieces.waiting(), seen.iter().filter(|one| !**one).count());
            }
            prop_assert!(bios.is_empty() && seen.iter().all(|one| *one) && pieces.list.is_empty());
        }
    }
}
