//! Background work on a file (write-back, readahead) against whatever takes its blocks away.
//!
//! Background work enters and leaves; a freeze keeps new work out and waits for what runs. It is entered without waiting:
//! background work that finds a file frozen does something else first. So the flusher holds no lock of a file, and waits for none.

/// See the module.
#[derive(Default)]
pub(crate) struct Activity {}

/// Background work on a file, until dropped. Owned: it goes along with a run to wherever that completes.
pub(crate) struct Running {}

/// No background work runs on the file, nor begins, until this is dropped.
pub struct Frozen<'a> {
    _activity: &'a Activity,
}
