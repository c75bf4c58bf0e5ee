//! Which bytes of a stream are whose, and which of them are done.
//!
//! The stream numbers the bytes that go through it. Its builder and plug keep their order, so a bio is a range of those
//! numbers, and so is each piece that was added; how bios were cut plays no part.
//!
//! Invariants: pieces lie one behind the other without gaps, in the order in which they were added. A piece leaves when all
//! its bytes are done, whatever became of those before it.

use std::collections::VecDeque;

use super::Written;
use crate::error::{Error, Result};

/// The pieces of a stream that are not done.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Ascending by `begin`; those in the middle that are done stay until they are first.
    list: VecDeque<Piece>,
    /// How many of the list are not done.
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
    /// A piece of `len` bytes, not none.
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

    /// The next `len` bytes go to the device; answers the number of the first.
    pub(super) fn submit(&mut self, len: u64) -> u64 {
        let first = self.submitted;
        self.submitted += len;
        debug_assert!(self.submitted <= self.end);
        first
    }

    /// The `len` bytes from number `first` on are done, or failed. Pieces that are done with them go to `done`.
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

    use super::*;

    fn error(at: u64) -> Error {
        Error::device(Op::Write, at, 1, std::io::ErrorKind::Other.into())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Pieces and bios cut the same bytes at places of their own; bios end in any order.
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
                    prop_assert!(!std::mem::replace(&mut seen[cookie], true), "came back twice");
                    let begin = lens[..cookie].iter().sum::<u64>() as usize;
                    let of_piece = begin..begin + lens[cookie] as usize;
                    prop_assert!(bytes_done[of_piece.clone()].iter().all(|byte| *byte), "came back early");
                    prop_assert_eq!(written.result.is_err(), failed[of_piece].iter().any(|byte| *byte));
                }
                prop_assert_eq!(pieces.waiting(), seen.iter().filter(|one| !**one).count());
            }
            prop_assert!(bios.is_empty() && seen.iter().all(|one| *one) && pieces.list.is_empty());
        }
    }
}
