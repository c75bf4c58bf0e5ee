//! [`Cuttable`]: a store of an image, in memory, whose power is cut: of what was written since the last sync,
//! any part may be lost, in sectors.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use throughline_image::{ReadAt, Store};

const SECTOR: usize = 512;

/// A file, and what a power cut may take from it.
#[derive(Default)]
struct File {
    now: Vec<u8>,
    /// As of the last sync.
    durable: Vec<u8>,
    /// Since then.
    written: Vec<(usize, Vec<u8>)>,
    /// The power is to be cut after so many more calls.
    cut_after: Option<usize>,
    /// What was there then.
    at_cut: Option<Left>,
}

/// What a cut finds.
struct Left {
    durable: Vec<u8>,
    written: Vec<(usize, Vec<u8>)>,
}

impl File {
    fn left(&self) -> Left {
        Left {
            durable: self.durable.clone(),
            written: self.written.clone(),
        }
    }

    /// Before each call that writes or syncs.
    fn count_down(&mut self) {
        self.cut_after = match self.cut_after {
            Some(0) => {
                self.at_cut = Some(self.left());
                None
            }
            Some(calls) => Some(calls - 1),
            None => None,
        };
    }
}

/// See the head of this file. Clones share their bytes.
#[derive(Clone, Default)]
pub struct Cuttable(Arc<Mutex<File>>);

impl Left {
    /// What a cut leaves: any part of each write, in sectors, and in any order.
    fn cut(&self, numbers: &mut fastrand::Rng) -> Vec<u8> {
        let mut left = self.durable.clone();
        let kept = numbers.usize(..5);
        for (at, bytes) in &self.written {
            let mut from = 0;
            while from < bytes.len() {
                let at = at + from;
                let len = (SECTOR - at % SECTOR).min(bytes.len() - from);
                if numbers.usize(..4) < kept {
                    if left.len() < at + len {
                        left.resize(at + len, 0);
                    }
                    left[at..at + len].copy_from_slice(&bytes[from..from + len]);
                }
                from += len;
            }
        }
        left
    }
}

impl Cuttable {
    /// What a cut leaves now: any part of each write, in sectors, and in any order.
    pub fn cut(&self, numbers: &mut fastrand::Rng) -> Vec<u8> {
        self.0.lock().left().cut(numbers)
    }

    /// Orders a cut before one of the calls that write or sync: so many are still to come before it.
    pub fn cut_after(&self, calls: usize) {
        self.0.lock().cut_after = Some(calls);
    }

    /// What the cut left that was ordered last, if the power was cut since then.
    pub fn was_cut(&self, numbers: &mut fastrand::Rng) -> Option<Vec<u8>> {
        let mut file = self.0.lock();
        file.cut_after = None;
        file.at_cut.take().map(|left| left.cut(numbers))
    }
}

impl ReadAt for Cuttable {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let file = self.0.lock();
        let at = usize::try_from(at).unwrap();
        match file.now.get(at..at + buffer.len()) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.lock().now.len() as u64)
    }
}

impl Store for Cuttable {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut file = self.0.lock();
        let at = usize::try_from(at).unwrap();
        let end = at + bytes.len();
        file.count_down();
        if file.now.len() < end {
            file.now.resize(end, 0);
        }
        file.now[at..end].copy_from_slice(bytes);
        file.written.push((at, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut file = self.0.lock();
        file.count_down();
        file.durable = file.now.clone();
        file.written.clear();
        Ok(())
    }

    /// What is freed may become anything: a hole, at once.
    fn free(&self, at: u64, len_bytes: u64) {
        let len = self.len_bytes().unwrap();
        let len_bytes = len_bytes.min(len.saturating_sub(at));
        self.write_all_at(&vec![0xdd; len_bytes as usize], at)
            .unwrap();
    }
}
