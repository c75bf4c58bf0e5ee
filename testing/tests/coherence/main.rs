//! What two programs see of one file that they have open in different ways, on our mount and, as the judge of this test, on the
//! kernel's own ext4: through the kernel's cache and past it, mapped, asynchronous, copied, spliced, cut.
//!
//! ```text
//!  every pair of openers ──► two.c: two processes, each word of the file with one owner, every read judged
//!  the same page at the same moment ──► step.c: a write beside a store, page by page
//!  the library's own openers ──► library.rs: the same rules, in threads
//!  requests that fail on a full volume ──► failures.rs: what the kernel keeps of the file's attributes
//!  attributes and write-back ──► settled.rs: what the kernel keeps of them is true when the data is on the disk
//! ```
//!
//! The programs are C, as mappings and asynchronous requests are not for safe Rust; they are built here, and skipped where no C
//! compiler is. `THROUGHLINE_SOAK=1` goes on for `THROUGHLINE_COHERENCE_SECONDS` (600), `THROUGHLINE_SEED` begins elsewhere.

mod failures;
mod library;
mod pairs;
mod programs;
mod settled;

throughline_testing::mount_server!();
