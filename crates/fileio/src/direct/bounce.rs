//! Bounce memory: what cannot go straight to the device goes through here.
//!
//! One round of a call has at most [`ARENAS`] buffers of the disk's pool. Memory lent to the device is back only when
//! the round's pipeline ends, so a call that needs more takes several rounds. The bound holds for each call.

use throughline_device::{AlignedPool, PooledBuf};

/// Bounce buffers of one round.
const ARENAS: usize = 8;

/// The buffers of one round; made room for, and filled, as they are needed: most calls need none.
#[derive(Default)]
pub(crate) struct Store(Option<Box<[Option<PooledBuf>; ARENAS]>>);

/// Hands out the memory of a [`Store`].
pub(crate) struct Bounce<'env> {
    pool: &'env AlignedPool,
    /// Until the first buffer is needed.
    store: Option<&'env mut Store>,
    later: std::iter::Enumerate<std::slice::IterMut<'env, Option<PooledBuf>>>,
    /// What is left of the current buffer, a whole number of blocks.
    room: &'env mut [u8],
    place: Place,
}

/// Where handed-out memory lies in the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    arena: usize,
    at: usize,
}

impl Place {
    /// `bytes` further on in the same buffer.
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

    /// How many bytes the next [`Bounce::take`] can give; 0: the round is over. `block` is the unit that will be taken.
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

    /// Takes `len` bytes, which [`Bounce::room`] has promised. Their content is undefined.
    pub(crate) fn take(&mut self, len: usize) -> (Place, &'env mut [u8]) {
        let (taken, rest) = std::mem::take(&mut self.room).split_at_mut(len);
        self.room = rest;
        let place = self.place;
        self.place = place.plus(len);
        (place, taken)
    }
}
