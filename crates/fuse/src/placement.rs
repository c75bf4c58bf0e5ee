//! [`Placement`]: the CPU of a thread that serves requests on its caller's CPU, and its policy.
//! Both decide whether the scheduler leaves the caller there.
//!
//! The thread is bound to that CPU. With the usual policy, the scheduler would move the program to
//! another, idle CPU when its request is answered, because our thread keeps this one busy. So our
//! thread has the policy `SCHED_IDLE` while requests follow one another and no other thread competes for the
//! CPU ([`crate::watch`]).
//!
//! A stream of reads is an exception. The kernel reads ahead, so the program goes on while its request waits.
//! A bound thread would wait until the program sleeps, and the two would copy in turn, each stream taking up
//! to twice as long. So a thread whose last reply was long is not bound.

use throughline_device::{bind_thread, spread_thread};

use crate::watch::Watching;

/// A reply of at least this length is part of a stream, in bytes. The kernel reads less ahead for anything
/// else.
const STREAM_BYTES: usize = 256 << 10;

/// Belongs to one thread. See the head of this file.
pub(crate) struct Placement<'a> {
    processor: u16,
    /// The last reply was part of a stream.
    streams: bool,
    /// `None`: the thread keeps the usual policy.
    watching: Option<Watching<'a>>,
}

impl<'a> Placement<'a> {
    /// For the current thread, which is bound to `processor`.
    pub(crate) fn new(processor: u16, watching: Option<Watching<'a>>) -> Placement<'a> {
        Placement {
            processor,
            streams: false,
            watching,
        }
    }

    /// A request was served, with a reply of this length.
    pub(crate) fn served(&mut self, reply_bytes: usize) {
        let streams = reply_bytes >= STREAM_BYTES;
        if std::mem::replace(&mut self.streams, streams) != streams {
            match streams {
                true => spread_thread(),
                false => bind_thread(self.processor),
            }
        }
        if let Some(watching) = &mut self.watching {
            watching.served();
        }
    }
}
