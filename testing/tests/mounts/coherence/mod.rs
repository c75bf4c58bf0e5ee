//! What two programs see of one file opened in different ways, on our mount and, as the reference, on the
//! kernel's own ext4: through the kernel's cache and past it, mapped, asynchronous, copied, spliced,
//! truncated.
//!
//! ```text
//!  every pair of openers ──► two.c: two processes, each word of the file with one owner, every read judged
//!  the same page at the same moment ──► step.c: a write beside a store, page by page
//!  the library's own openers ──► library.rs: the same rules, in threads
//!  requests that fail on a full volume ──► failures.rs: what the kernel keeps of the file's attributes
//!  attributes and write-back ──► stable.rs: the kernel's cached attributes are right after it
//! ```
//!
//! The programs are written in C, because safe Rust has no mappings and asynchronous requests. They are built
//! here, and skipped without a C compiler. `THROUGHLINE_SOAK=1` runs for `THROUGHLINE_COHERENCE_SECONDS`
//! (600); `THROUGHLINE_SEED` sets the first seed.

mod failures;
mod library;
mod pairs;
mod programs;
mod stable;
