//! Images that somebody made to do harm. Nothing panics, hangs or uses unbounded memory.

mod damaged_journal;
mod hostile;
mod survey;
mod watch;
