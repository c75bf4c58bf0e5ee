//! Messages to the flusher: [`Inbox`].
//!
//! The flusher sleeps only if it has looked for work *after* announcing that it sleeps ([`WakeFlag`]). So no
//! wake-up is lost, and while the flusher is awake, notifying it costs one load.
//!
//! A file that became dirty is no reason to wake the flusher: it is written after some time, or when memory
//! requires it. Such files are collected in a separate list until the flusher's next look; it is woken only
//! if it would not look by itself. So a program that creates thousands of small files does not cause
//! thousands of context switches.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use throughline_locks::Mutex;

use super::reply::Reply;
use super::wake_flag::WakeFlag;
use crate::cache::Backing;
use crate::error::Error;

/// A message to the flusher.
pub(super) enum Message {
    /// A stream has passed part of the file.
    Passed(Arc<dyn Backing>),
    /// Start write-back of part of the file.
    Start(Arc<dyn Backing>),
    /// A thread tried to flush the file itself and got this error.
    Failed(Arc<dyn Backing>, Error),
    /// A thread waits for a range of the file.
    Flush(Arc<dyn Backing>, Range<u64>, Arc<Reply>),
    /// A thread waits for all files.
    FlushAll(Arc<Reply>),
    /// Memory is short.
    Pressure,
    /// A frozen file has thawed.
    Thawed,
    /// Look for work.
    Wake,
    /// Look for clean files.
    Look,
    /// Stop.
    Stop,
}

/// A dirty file, and since when it has been dirty.
pub(super) type Dirtied = (Arc<dyn Backing>, Instant);

/// See the module. Messages without contents are queued at most once.
pub(super) struct Inbox {
    to: Sender<Message>,
    from: Receiver<Message>,
    /// Files that became dirty, and when, not yet seen by the flusher.
    dirtied: Mutex<Vec<Dirtied>>,
    /// No flusher is running, or it sleeps or is about to sleep without a timeout.
    unwatched: WakeFlag,
    /// The flusher sleeps or is about to.
    asleep: WakeFlag,
    /// [`Message::Pressure`] is queued.
    pressed: AtomicBool,
    /// The flusher has skipped a frozen file.
    wants_thaw: WakeFlag,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        let (to, from) = unbounded();
        let unwatched = WakeFlag::default();
        unwatched.set();
        Inbox {
            to,
            from,
            dirtied: Mutex::default(),
            unwatched,
            asleep: WakeFlag::default(),
            pressed: AtomicBool::new(false),
            wants_thaw: WakeFlag::default(),
        }
    }

    pub(super) fn send(&self, message: Message) {
        // Cannot fail: this also holds the receiver.
        let _ = self.to.send(message);
    }

    /// Records a dirty file. Returns whether the caller must wake the flusher.
    pub(super) fn dirtied(&self, host: Arc<dyn Backing>) -> bool {
        self.dirtied.lock().push((host, Instant::now()));
        self.unwatched.take()
    }

    /// Whether there are files that the flusher has not seen.
    pub(super) fn has_dirtied(&self) -> bool {
        !self.dirtied.lock().is_empty()
    }

    /// Announces that no flusher is running that would look at dirty files.
    pub(super) fn set_unwatched(&self) {
        self.unwatched.set();
    }

    /// Whether the flusher may be asleep. Call after making the work visible.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.is_set()
    }

    /// Wakes the flusher if it sleeps.
    pub(super) fn wake(&self) {
        if self.asleep.take() {
            self.send(Message::Wake);
        }
    }

    pub(super) fn pressure(&self) {
        if !self.pressed.load(Ordering::Relaxed) && !self.pressed.swap(true, Ordering::AcqRel) {
            self.send(Message::Pressure);
        }
    }

    pub(super) fn thawed(&self) {
        if self.wants_thaw.take() {
            self.send(Message::Thawed);
        }
    }

    // ---- called by the flusher

    /// Files that became dirty since the last look.
    pub(super) fn take_dirtied(&self) -> Vec<Dirtied> {
        std::mem::take(&mut *self.dirtied.lock())
    }

    /// Announces that the flusher will sleep if it finds nothing now, without a timeout if `for_good`.
    pub(super) fn set_asleep(&self, for_good: bool) {
        if for_good {
            self.unwatched.set();
        }
        self.asleep.set();
    }

    /// Announces that it is awake.
    pub(super) fn set_awake(&self) {
        self.asleep.clear();
        self.unwatched.clear();
    }

    /// The flusher has found a frozen file and checks once more after this.
    pub(super) fn want_thaw(&self) {
        self.wants_thaw.set();
    }

    pub(super) fn next(&self) -> Option<Message> {
        self.from.try_recv().ok().inspect(|m| self.read(m))
    }

    /// Waits for a message; `None` at `until`.
    pub(super) fn wait(&self, until: Option<Instant>) -> Option<Message> {
        let message = match until {
            Some(until) => self.from.recv_deadline(until).ok(),
            None => self.from.recv().ok(),
        };
        self.set_awake();
        message.inspect(|m| self.read(m))
    }

    fn read(&self, message: &Message) {
        if matches!(message, Message::Pressure) {
            self.pressed.store(false, Ordering::Release);
        }
    }

    /// Called when no flusher can be started: fails the flushes that wait. Other messages stay queued.
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
