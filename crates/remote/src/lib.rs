//! Objects in object storage as read-only disks: `s3://`, `gs://`, `az://`, `https://` and `http://`. New
//! ones are uploaded as a whole.
//!
//! ```no_run
//! use throughline_image::ReadAt;
//! use throughline_remote::{Object, ObjectName, Options};
//!
//! # fn main() -> std::io::Result<()> {
//! let name: ObjectName = "s3://bucket/disk.img".parse().map_err(std::io::Error::other)?;
//! let object = Object::open(&name, &Options::from_env())?;
//! let mut first = [0; 512];
//! object.read_exact_at(&mut first, 0)?;
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//!  Object      ReadAt: bytes ↔ chunks
//!    chunks    in memory: ready ones (bounded), and those that somebody fetches
//!    cache     on disk: one file for each chunk, shared by processes; evict: its bound
//!    claims    what processes fetch, for the others
//!    ahead     what is fetched before it is read
//!    fetch     one request for a run of chunks; tries: repeats it within its time
//!    pin       what identifies the object; store: where it is, and with which credentials
//!    secrets   of URLs, from the environment; client: its settings, and what a redirect may carry along
//!    lines     HTTP, a thread for each request; answers: those that say no, as errors
//!  upload      a new object, in parts; create_only: one that is there is not replaced
//!    workers   the thread that goes on with the requests of either
//! ```
//!
//! Invariants:
//! - All bytes that are read through one [`Object`] are of one version of the object. Every reply is checked
//!   against the ETag (or time of change) and the length that were found when it was opened.
//! - A chunk is fetched once at a time, by all threads of all processes that share a cache on disk; other
//!   readers wait for it. They do not wait long for a process that does not go on.
//! - A chunk from the disk is returned only if its checksum is right.
//! - Every read returns within a bound, whatever the server does. A chunk that failed is tried again by the
//!   next read.
//! - Callers block; threads of the object do the work, and end when it is dropped.
//! - An object is uploaded as a whole or not at all.
//! - Credentials, the queries of URLs among them, are in no message, and in no name of a file. They are sent
//!   to no server but that of the object's own URL.
#![forbid(unsafe_code)]

mod ahead;
mod answers;
mod cache;
mod chunks;
mod claims;
mod client;
mod connections;
mod create_only;
mod evict;
mod failure;
mod fetch;
mod name;
mod object;
mod options;
mod pin;
mod secrets;
mod shared;
mod store;
mod tries;
mod upload;
mod workers;

pub use failure::Failure;
pub use name::{NotAnObject, ObjectName, without_secrets, word_without_secrets};
pub use object::{Counters, Object};
pub use options::Options;
pub use secrets::has_secrets;
pub use shared::open_shared;
pub use upload::{Progress, UploadOptions, upload};
