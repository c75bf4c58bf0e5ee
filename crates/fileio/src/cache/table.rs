//! (space, span number) → span, for look-ups from many threads.
