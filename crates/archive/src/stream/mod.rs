//! Bytes of archives: plain, compressed, or from a stream that can be read only once.

mod decompress;
mod input;
mod spool;
mod unpack;

pub(crate) use decompress::{Compression, decoder};
pub(crate) use input::from_read;
pub(crate) use input::{FileInput, Input, StreamInput, Window};
pub(crate) use spool::{Spool, place as spool_place};
pub use unpack::{is_compressed, unpack};
