//! The caller's buffers, consumed piece by piece, and the decision whether a piece can be transferred
//! directly.

use std::io::{IoSlice, IoSliceMut};

/// The device's alignment requirements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alignment {
    /// For device offsets and lengths: the logical block size, in bytes.
    pub(crate) block: u64,
    /// For memory addresses, in bytes.
    pub(crate) memory: usize,
}

/// How to transfer the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Transfer this many bytes of the current piece directly: whole blocks in aligned memory.
    Direct(usize),
    /// Transfer this many bytes through a bounce buffer; they may span several pieces.
    Bounce(usize),
}

impl Alignment {
    pub(crate) fn of(disk: &throughline_block::Disk) -> Self {
        let limits = disk.limits();
        Self {
            block: u64::from(limits.logical_block_bytes.max(1)),
            memory: limits.memory_align_bytes.max(1) as usize,
        }
    }

    /// How to transfer the bytes at device offset `device`, given the current piece of `piece` bytes at
    /// `address` and `rest` (at least 1) contiguous bytes on the device. A bounced transfer ends on a block
    /// boundary or at the end of `rest`, so no block is bounced twice.
    pub(crate) fn step(&self, device: u64, address: usize, piece: usize, rest: u64) -> Step {
        let here = (piece as u64).min(rest);
        let to_block = device.next_multiple_of(self.block) - device;
        let aligned_there = address
            .wrapping_add(to_block as usize)
            .is_multiple_of(self.memory);
        if aligned_there && here >= to_block.saturating_add(self.block) {
            return match to_block {
                0 => Step::Direct((here - here % self.block) as usize),
                head => Step::Bounce(head as usize),
            };
        }
        let end = device
            .saturating_add(here)
            .checked_next_multiple_of(self.block);
        Step::Bounce(end.map_or(here, |end| end - device).min(rest) as usize)
    }

    /// The whole blocks around `len` bytes at `device`: start, length, and the offset of the bytes within
    /// them.
    pub(crate) fn around(&self, device: u64, len: usize) -> (u64, usize, usize) {
        let into = device % self.block;
        let blocks = (into + len as u64).next_multiple_of(self.block);
        (device - into, blocks as usize, into as usize)
    }
}

/// Buffers to fill, in order.
pub(crate) struct ReadMemory<'m, 'b> {
    piece: &'m mut [u8],
    later: std::slice::IterMut<'m, IoSliceMut<'b>>,
}

impl<'m, 'b> ReadMemory<'m, 'b> {
    pub(crate) fn new(bufs: &'m mut [IoSliceMut<'b>]) -> Self {
        Self {
            piece: &mut [],
            later: bufs.iter_mut(),
        }
    }

    /// Address and length of the current piece. The length is 0 only if everything is taken.
    pub(crate) fn current(&mut self) -> (usize, usize) {
        while self.piece.is_empty() {
            match self.later.next() {
                Some(piece) => self.piece = piece,
                None => break,
            }
        }
        (self.piece.as_ptr().addr(), self.piece.len())
    }

    /// Takes up to `most` bytes of the current piece.
    pub(crate) fn take(&mut self, most: usize) -> &'m mut [u8] {
        let (_, len) = self.current();
        let (taken, rest) = std::mem::take(&mut self.piece).split_at_mut(most.min(len));
        self.piece = rest;
        taken
    }
}

/// Buffers to write, in order.
pub(crate) struct WriteMemory<'m> {
    piece: &'m [u8],
    later: std::slice::Iter<'m, IoSlice<'m>>,
}

impl<'m> WriteMemory<'m> {
    pub(crate) fn new(bufs: &'m [IoSlice<'m>]) -> Self {
        Self {
            piece: &[],
            later: bufs.iter(),
        }
    }

    /// Address and length of the current piece. The length is 0 only if everything is taken.
    pub(crate) fn current(&mut self) -> (usize, usize) {
        while self.piece.is_empty() {
            match self.later.next() {
                Some(piece) => self.piece = piece,
                None => break,
            }
        }
        (self.piece.as_ptr().addr(), self.piece.len())
    }

    /// Takes up to `most` bytes of the current piece.
    pub(crate) fn take(&mut self, most: usize) -> &'m [u8] {
        let (_, len) = self.current();
        let (taken, rest) = self.piece.split_at(most.min(len));
        self.piece = rest;
        taken
    }

    /// Passes over the next bytes.
    pub(crate) fn skip(&mut self, mut bytes: usize) {
        while bytes > 0 {
            match self.take(bytes).len() {
                0 => return,
                taken => bytes -= taken,
            }
        }
    }

    /// Copies the next bytes into `to`, from as many pieces as needed.
    pub(crate) fn copy_to(&mut self, mut to: &mut [u8]) {
        while !to.is_empty() {
            let from = self.take(to.len());
            if from.is_empty() {
                return;
            }
            let (now, rest) = to.split_at_mut(from.len());
            now.copy_from_slice(from);
            to = rest;
        }
    }
}
