//! What the flusher is told: [`Inbox`].
//!
//! The flusher sleeps only when it has looked for work *after* it said that it is asleep ([`Wish`]). So a wake-up is never
//! missed, and costs a load while the flusher is awake.
//!
//! A file that became dirty is no reason to wake it: what is to be done is a matter of time or of memory. Such files wait in
//! a list of their own for the flusher's next look, and it is told only where it would not look by itself: a program that
//! makes thousands of small files does not make thousands of switches of threads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use super::reply::Reply;
use super::wish::Wish;
use crate::cache::Backing;
use crate::error::Error;

/// One thing that the flusher is told.
pub(super) enum Message {
    /// A stream has passed some of the file.
    Passed(Arc<dyn Backing>),
    /// Somebody wants some of the file written.
    Start(Arc<dyn Backing>),
    /// Somebody tried to flush the file himself, and met this.
    Failed(Arc<dyn Backing>, Error),
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
    /// Look for files that are clean.
    Look,
    /// No more.
    Stop,
}

/// A file that is dirty, since then.
pub(super) type Dirtied = (Arc<dyn Backing>, Instant);

/// See the module. Messages that carry nothing are in line once at most.
pub(super) struct Inbox {
    to: Sender<Message>,
    from: Receiver<Message>,
    /// Files that became dirty, and when, that the flusher has not looked at.
    dirtied: Mutex<Vec<Dirtied>>,
    /// There is no flusher, or it sleeps, or is about to, and nothing will wake it by itself.
    unwatched: Wish,
    /// The flusher sleeps, or is about to.
    asleep: Wish,
    /// [`Message::Pressure`] is in line.
    pressed: AtomicBool,
    /// The flusher has passed over a frozen file.
    wants_thaw: Wish,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        let (to, from) = unbounded();
        let unwatched = Wish::default();
        unwatched.make();
        Inbox {
            to,
            from,
            dirtied: Mutex::default(),
            unwatched,
            asleep: Wish::default(),
            pressed: AtomicBool::new(false),
            wants_thaw: Wish::default(),
        }
    }

    pub(super) fn send(&self, message: Message) {
        // It cannot fail: the other end is in here too.
        let _ = self.to.send(message);
    }

    /// A file is dirty. Whether the flusher must be told to look, by this caller.
    pub(super) fn dirtied(&self, host: Arc<dyn Backing>) -> bool {
        self.dirtied.lock().push((host, Instant::now()));
        self.unwatched.grant()
    }

    /// There is no flusher any more that would look at what became dirty.
    pub(super) fn say_unwatched(&self) {
        self.unwatched.make();
    }

    /// Whether the flusher may be asleep; after the caller has made its work visible.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.is_made()
    }

    /// There may be work.
    pub(super) fn wake(&self) {
        if self.asleep.grant() {
            self.send(Message::Wake);
        }
    }

    pub(super) fn pressure(&self) {
        if !self.pressed.load(Ordering::Relaxed) && !self.pressed.swap(true, Ordering::AcqRel) {
            self.send(Message::Pressure);
        }
    }

    pub(super) fn thawed(&self) {
        if self.wants_thaw.grant() {
            self.send(Message::Thawed);
        }
    }

    // ---- the flusher's side

    /// What became dirty since the last look.
    pub(super) fn take_dirtied(&self) -> Vec<Dirtied> {
        std::mem::take(&mut *self.dirtied.lock())
    }

    /// The flusher will sleep if it finds nothing now, with an alarm or for good.
    pub(super) fn say_asleep(&self, for_good: bool) {
        if for_good {
            self.unwatched.make();
        }
        self.asleep.make();
    }

    /// It has found something.
    pub(super) fn say_awake(&self) {
        self.asleep.drop_it();
        self.unwatched.drop_it();
    }

    /// The flusher has found a frozen file, and looks once more.
    pub(super) fn want_thaw(&self) {
        self.wants_thaw.make();
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
        self.say_awake();
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
