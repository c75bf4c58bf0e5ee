//! Coherence of buffered and direct access to one file. **The rules, in one place.**
//!
//! 1. *Direct read.* Sees every buffered write that returned before it began: what is dirty in its range is written back first.
//! 2. *Direct write.* To a file of which nothing is cached: as without a cache. Otherwise alone in the file: its range (widened to
//!    whole blocks) is flushed, the space frozen, the range dropped, then written.
//! 3. *Truncation, punching, collapsing, inserting, zeroing.* Alone in the file. What the operation needs on the device is flushed
//!    first, then the space is frozen and what it changes is dropped.
//! 4. *The size* is the space's, which is never smaller than the committed one. The committed one grows when data is there.
//! 5. *A buffered fill* runs under the file's lock (shared) or as background work, so it never meets 2 or 3 half-way.
