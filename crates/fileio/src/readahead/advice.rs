//! What the owner of an open file says about its reading.

use std::ops::Range;
use std::sync::Arc;

use super::stream::{Pattern, ReadStream};
use crate::buffered;
use crate::cache::Backing;

/// Advice, as `posix_fadvise` has it. Nothing breaks when it is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing special about this handle: windows follow what is seen.
    Normal,
    /// This handle reads ahead up to twice as far.
    Sequential,
    /// This handle reads nothing ahead.
    Random,
    /// This handle reads each byte once: what it has read is let go.
    NoReuse,
    /// The range will be read soon: reading it begins, in the background.
    WillNeed,
    /// The range is not needed for now: what is dirty begins to be written, what is clean is let go.
    DontNeed,
}

/// Takes `advice` on the bytes `range` of the file, or on the handle whose stream this is. Never waits for the device.
pub fn advise(host: &Arc<dyn Backing>, stream: &ReadStream, advice: Advice, range: Range<u64>) {
    match advice {
        Advice::Normal => stream.set_pattern(Pattern::Normal),
        Advice::Sequential => stream.set_pattern(Pattern::Sequential),
        Advice::Random => stream.set_pattern(Pattern::Random),
        Advice::NoReuse => stream.set_pattern(Pattern::Once),
        Advice::WillNeed => host.space().cache().readahead.will_need(host, range),
        Advice::DontNeed => {
            buffered::start_flush(host, range.clone());
            host.space().drop_clean(range);
        }
    }
}
