//! Bounce buffers, for data that cannot be transferred directly.
//!
//! One round of a call uses at most [`ARENAS`] buffers of the disk's pool. Memory lent to the device is
//! returned only when the round's pipeline ends, so a call that needs more takes several rounds. The limit
//! applies per call.

use throughline_device::{AlignedPool, PooledBuf};

/// Maximum number of bounce buffers in one round.
const ARENAS: usize = 8;

/// The buffers of one round. Allocated when first needed: most calls need none.
#[derive(Default)]
pub(crate) struct Store(Option<Box<[Option<PooledBuf>; ARENAS]>>);

/// Allocates from a [`Store`].
pub(crate) struct Bounce<'env> {
    pool: &'env AlignedPool,
    /// `None` once the first buffer was needed.
    store: Option<&'env mut Store>,
    later: std::iter::Enumerate<std::slice::IterMut<'env, Option<PooledBuf>>>,
    /// The rest of the current buffer, in whole blocks.
    room: &'env mut [u8],
    place: Place,
}

/// Position of an allocation in the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    arena: usize,
    at: usize,
}

impl Place {
    /// The position `bytes` further on in the same buffer.
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Self {
            at: self.at + bytes,
            ..self
        }
    }
}

/// The `len` bytes at `place`, once the round is over.
pub(crate) fn bytes_at(store: &Store, place: Place, len: usize) -> &[u8] {
    let arenas = store.0.as_deref().map_or(&[][..], |arenas| &arenas[..]);
    arenas
        .get(place.arena)
        .and_then(Option::as_ref)
        .map_or(&[], |arena| &arena[place.at..place.at + len])
}

impl<'env> Bounce<'env> {
    pub(crate) fn new(pool: &'env AlignedPool, store: &'env mut Store) -> Self {
        Self {
            pool,
            store: Some(store),
            later: [].iter_mut().enumerate(),
            room: &mut [],
            place: Place::default(),
        }
    }

    /// The number of bytes that the next [`Bounce::take`] may take, in units of `block`; 0: the round is
    /// over.
    pub(crate) fn room(&mut self, block: u64) -> usize {
        if (self.room.len() as u64) < block {
            if let Some(Store(arenas)) = self.store.take() {
                self.later = arenas.insert(Box::default()).iter_mut().enumerate();
            }
            let Some((arena, slot)) = self.later.next() else {
                return 0;
            };
            self.room = slot.insert(self.pool.take());
            self.place = Place { arena, at: 0 };
        }
        self.room.len() - self.room.len() % block as usize
    }

    /// Takes `len` bytes, at most what [`Bounce::room`] returned. Their contents are undefined.
    pub(crate) fn take(&mut self, len: usize) -> (Place, &'env mut [u8]) {
        let (taken, rest) = std::mem::take(&mut self.room).split_at_mut(len);
        self.room = rest;
        let place = self.place;
        self.place = place.plus(len);
        (place, taken)
    }
}
