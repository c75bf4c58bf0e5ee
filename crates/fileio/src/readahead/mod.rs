//! Readahead: on-demand windows.

use std::sync::Arc;

use crate::cache::Backing;

/// What is known of one open file's reading: its window, as the hints have it. One for each open file, shared by its threads.
#[derive(Debug, Default)]
pub struct ReadStream {}

/// Those who read ahead: threads that start when they are needed.
pub struct Readahead {}

impl Readahead {
    /// A read at `offset` of `len` bytes missed at `missed`. Says how many bytes from there on the reader should read itself, now (at least
    /// what it misses), and sends for the rest of the window.
    pub(crate) fn missed(
        &self,
        host: &Arc<dyn Backing>,
        stream: &ReadStream,
        offset: u64,
        len: u64,
        missed: u64,
    ) -> u64 {
        let _ = (host, stream);
        (offset + len).saturating_sub(missed)
    }

    /// A read met the mark in a window: the next one is sent for.
    pub(crate) fn met_mark(&self, host: &Arc<dyn Backing>, stream: &ReadStream, at: u64) {
        let _ = (host, stream, at);
    }
}
