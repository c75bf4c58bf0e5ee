//! What the flusher is told: [`Inbox`].
//!
//! The flusher sleeps only when it has looked for work *after* it said that it is asleep; whoever makes work looks at that
//! word afterwards. So a wake-up is never missed, and costs a load while the flusher is awake.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::reply::Reply;
use crate::cache::Backing;
use crate::error::Error;

/// One thing that the flusher is told.
pub(super) enum Message {
    /// The file is dirty.
    Dirtied(Arc<dyn Backing>),
    /// A stream has passed some of the file.
    Passed(Arc<dyn Backing>),
    /// Somebody wants some of the file written.
    Start(Arc<dyn Backing>),
    /// Somebody waits for a range of the file.
    Flush(Arc<dyn Backing>, Range<u64>, Arc<Reply>),
    /// Somebody waits for all files.
    FlushAll(Arc<Reply>),
    /// Memory is short.
    Pressure,
    /// A frozen file has thawed.
    Thawed,
    /// Look for work.
    Wake,
    /// No more.
    Stop,
}

/// See the module. Messages that carry nothing are in line once at most.
pub(super) struct Inbox {
    to: Sender<Message>,
    from: Receiver<Message>,
    /// The flusher sleeps, or is about to.
    asleep: AtomicBool,
    /// [`Message::Pressure`] is in line.
    pressed: AtomicBool,
    /// The flusher has passed over a frozen file.
    wants_thaw: AtomicBool,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        let (to, from) = unbounded();
        Inbox {
            to,
            from,
            asleep: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            wants_thaw: AtomicBool::new(false),
        }
    }

    pub(super) fn send(&self, message: Message) {
        // It cannot fail: the other end is in here too.
        let _ = self.to.send(message);
    }

    /// Whether the flusher may be asleep; after the caller has made its work visible.
    pub(super) fn is_asleep(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed)
    }

    /// There may be work.
    pub(super) fn wake(&self) {
        if self.is_asleep() && self.asleep.swap(false, Ordering::AcqRel) {
            self.send(Message::Wake);
        }
    }

    pub(super) fn pressure(&self) {
        if !self.pressed.load(Ordering::Relaxed) && !self.pressed.swap(true, Ordering::AcqRel) {
            self.send(Message::Pressure);
        }
    }

    pub(super) fn thawed(&self) {
        fence(Ordering::SeqCst);
        if self.wants_thaw.load(Ordering::Relaxed) && self.wants_thaw.swap(false, Ordering::AcqRel)
        {
            self.send(Message::Thawed);
        }
    }

    // ---- the flusher's side

    /// The flusher will sleep if it finds nothing now.
    pub(super) fn say_asleep(&self) {
        self.asleep.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// It has found something.
    pub(super) fn say_awake(&self) {
        self.asleep.store(false, Ordering::Release);
    }

    /// The flusher has found a frozen file, and looks once more.
    pub(super) fn want_thaw(&self) {
        self.wants_thaw.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    pub(super) fn next(&self) -> Option<Message> {
        self.from.try_recv().ok().inspect(|m| self.read(m))
    }

    /// Waits for a message; `None` at `until`.
    pub(super) fn wait(&self, until: Option<Instant>) -> Option<Message> {
        let message = match until {
            Some(until) => match self.from.recv_deadline(until) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
            },
            None => self.from.recv().ok(),
        };
        self.asleep.store(false, Ordering::Release);
        message.inspect(|m| self.read(m))
    }

    fn read(&self, message: &Message) {
        if matches!(message, Message::Pressure) {
            self.pressed.store(false, Ordering::Release);
        }
    }

    /// There is no flusher and none can be had: answers those who wait for one. What else there is stays.
    pub(super) fn refuse_waiters(&self, error: &Error) {
        let messages: Vec<Message> = self.from.try_iter().collect();
        for message in messages {
            match message {
                Message::Flush(_, _, reply) | Message::FlushAll(reply) => {
                    reply.end(Err(error.clone()));
                }
                other => self.send(other),
            }
        }
    }
}
