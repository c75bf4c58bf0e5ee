//! Makes the allocation of free memory fast. If the balloon of a virtual machine reports free pages, its host
//! takes them within seconds, and returns them page by page when they are next touched: at 0.4 GB/s on a
//! machine whose disk writes 3 GB/s. A stream through a page cache would then measure how much of the free
//! memory was recently in use. So as much memory as a stream will need is touched before it: [`warm`]. What a
//! newcomer sees is measured the other way, with no free memory that was recently in use: [`cool`].

use std::time::Duration;

use throughline_device::{MAX_PAGES_BYTES, PagePool, Pages};
use throughline_explain::record::free_memory_leaves;

use crate::outcome::Outcome;

/// The balloon reports pages two seconds after they were freed, a part of them at a time.
const LEAVING: Duration = Duration::from_secs(6);

/// Touches this much free memory, if needed, but at most half of it. Uses huge pages and small ones, because
/// they come from different free lists of the kernel, and a page cache may use either.
pub(crate) fn warm(bytes: u64) {
    if !free_memory_leaves() {
        return;
    }
    let info = rustix::system::sysinfo();
    let free = (info.freeram as u64).saturating_mul(info.mem_unit.into());
    let bytes = bytes.min(free / 4);
    let huge = PagePool::new(bytes);
    let touched = |mut pages: Pages| {
        pages[0] = 1;
        pages
    };
    let held: Vec<Pages> = std::iter::from_fn(|| huge.take(MAX_PAGES_BYTES).map(touched)).collect();
    let mut small = Vec::<u8>::new();
    // If the memory cannot be allocated, there is nothing to touch.
    if small.try_reserve_exact(bytes as usize).is_ok() {
        small.resize(bytes as usize, 1);
    }
    std::hint::black_box((&held, &small));
}

/// Waits until free memory has returned to the host, if it does.
pub(crate) fn cool() {
    if free_memory_leaves() {
        std::thread::sleep(LEAVING);
    }
}

/// Notes in the outcome that memory was touched in advance.
pub(crate) fn note(outcome: &mut Outcome) {
    if free_memory_leaves() {
        outcome.note(
            "this machine returns free memory to its host, and gets it back slowly: the memory for each \
             stream was touched in advance",
        );
    }
}
