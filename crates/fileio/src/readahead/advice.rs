//! Access advice by the user of an open file.

use std::ops::Range;
use std::sync::Arc;

use super::stream::{Pattern, ReadStream};
use crate::buffered;
use crate::cache::Backing;

/// Advice as in `posix_fadvise`. Wrong advice affects only performance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// No advice for this handle: windows adapt to the observed accesses.
    Normal,
    /// This handle reads ahead up to twice as far.
    Sequential,
    /// Reads on this handle are not read ahead.
    Random,
    /// This handle reads each byte once: folios it has read are dropped.
    NoReuse,
    /// The range will be read soon: starts reading it in the background.
    WillNeed,
    /// The range is not needed for now: starts write-back of dirty blocks and drops clean ones.
    DontNeed,
}

/// Applies `advice` to `range` of the file, or to the handle that owns `stream`. Never waits for the device.
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
