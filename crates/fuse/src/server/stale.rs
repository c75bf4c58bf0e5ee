//! Notifications of the kernel: what its cache may hold that is stale after a request.
//!
//! Each operation returns which inodes it changed ([`throughline::ops::Outcome`]); the request collects them.
//!
//! 1. *After a success*, the kernel itself drops what the request changes. It is notified only of changes
//!    that it cannot detect: `Opcode::hides_changes`.
//! 2. *After a failure*, the kernel assumes that nothing changed. Before the reply, it is notified that the
//!    attributes of all listed inodes are stale.
//! 3. After that reply, it is also made to drop the data of a file whose truncation or copy failed, and, of a
//!    directory that is listed, the cached listing and the names of the request. (The kernel keeps no data of
//!    a failed write, and [`crate::coherence`] makes it drop that of a failed `fallocate`.) The kernel waits
//!    for locks then, which the request itself may hold until its reply. So these notifications are queued.
//!    The thread that sends them holds one of the [`Turns`], so that enough threads remain to serve requests
//!    that hold such locks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;
use throughline::Error;
use throughline::ops::Outcome;
use throughline_locks::Mutex;
use zerocopy::FromBytes;

use super::{Refusal, Request};
use crate::channel::{Channel, Scratch};
use crate::coherence::ALL_BYTES;
use crate::nodes::nodeid_of;
use crate::turns::Turns;
use crate::wire::{CreateIn, InHeader, LinkIn, MkdirIn, MknodIn, Opcode, Rename2In, RenameIn};

/// The inodes that a request changed so far.
#[derive(Default)]
pub(super) struct Changed {
    inodes: RefCell<SmallVec<[u64; 4]>>,
}

impl Changed {
    fn add(&self, inodes: &[u64]) {
        let mut all = self.inodes.borrow_mut();
        for ino in inodes {
            if !all.contains(ino) {
                all.push(*ino);
            }
        }
    }

    /// Their node ids.
    fn nodeids(&self) -> SmallVec<[u64; 4]> {
        let inodes = self.inodes.borrow();
        inodes.iter().map(|ino| nodeid_of(*ino)).collect()
    }

    /// Before the reply to a request that succeeded: rule 1.
    pub(super) fn notify_success(
        &self,
        (opcode, header): (Option<Opcode>, &InHeader),
        channel: &Channel,
    ) {
        if opcode.is_some_and(Opcode::hides_changes) && self.nodeids().contains(&header.nodeid) {
            logged(channel.attributes_are_old(header.nodeid));
        }
    }
}

impl Request<'_> {
    /// Records what an operation changed, and returns its result.
    pub(super) fn did<T>(&self, outcome: Outcome<T>) -> throughline::Result<T> {
        self.changed.add(outcome.changed());
        outcome.into_result()
    }
}

/// A notification for which the kernel may wait for locks.
enum Notice {
    /// The data of a file, or the listing of a directory.
    Data { nodeid: u64 },
    /// A name in a directory.
    Name { dir: u64, name: Vec<u8> },
}

/// The notifications that follow a reply.
#[derive(Default)]
pub(super) struct Notices {
    queue: Mutex<VecDeque<Notice>>,
    /// The number of notifications that are not sent yet, readable without the lock.
    pending: AtomicUsize,
}

impl Notices {
    fn add(&self, notice: Notice) {
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.queue.lock().push_back(notice);
    }

    /// The number of notifications that are not sent yet.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::SeqCst)
    }

    /// Before the reply to a request that failed: rule 2; queues the notifications of rule 3.
    pub(super) fn notify_failure(
        &self,
        refusal: &Refusal,
        request: (Option<Opcode>, &InHeader, &Scratch),
        channel: &Channel,
        changed: &Changed,
    ) {
        let nodeids = changed.nodeids();
        // After a shutdown, the kernel's cached attributes are all that is left, so they are kept.
        if nodeids.is_empty() || matches!(refusal, Refusal::Volume(Error::Down)) {
            return;
        }
        for nodeid in &nodeids {
            logged(channel.attributes_are_old(*nodeid));
        }
        if request.0.is_some_and(Opcode::may_keep_data) {
            for nodeid in nodeids {
                self.add(Notice::Data { nodeid });
            }
            return;
        }
        for (dir, name) in names_of(request).unwrap_or_default() {
            if nodeids.contains(&dir) {
                self.add(Notice::Data { nodeid: dir });
                let name = name.to_owned();
                self.add(Notice::Name { dir, name });
            }
        }
    }

    /// Sends the queued notifications. If no turn is free, a holder of one sends them after its request.
    pub(super) fn send(&self, channel: &Channel, turns: &Turns) {
        while self.pending() > 0 && !self.queue.lock().is_empty() {
            let Some(_turn) = turns.take() else { return };
            loop {
                let notice = self.queue.lock().pop_front();
                let Some(notice) = notice else { break };
                let sent = match &notice {
                    Notice::Data { nodeid } => channel.pages_are_old(*nodeid, &ALL_BYTES),
                    Notice::Name { dir, name } => channel.name_is_old(*dir, name),
                };
                logged(sent);
                self.pending.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

/// A notification that fails does not change the reply: the connection is gone, and so is the kernel's cache.
pub(super) fn logged(sent: io::Result<()>) {
    if let Err(error) = sent {
        tracing::warn!(%error, "notifying the kernel");
    }
}

/// The node id of a directory, and a name in it.
type NameIn<'a> = (u64, &'a [u8]);

/// The names that a request changes.
fn names_of<'a>(
    (opcode, header, scratch): (Option<Opcode>, &InHeader, &'a Scratch),
) -> Option<SmallVec<[NameIn<'a>; 2]>> {
    fn after<T: FromBytes>(body: &[u8]) -> Option<(T, &[u8])> {
        T::read_from_prefix(body).ok()
    }
    let body = scratch.body(header);
    let mut new_dir = header.nodeid;
    let (names, count) = match opcode? {
        Opcode::Create => (after::<CreateIn>(body)?.1, 1),
        Opcode::Mknod => (after::<MknodIn>(body)?.1, 1),
        Opcode::Mkdir => (after::<MkdirIn>(body)?.1, 1),
        Opcode::Link => (after::<LinkIn>(body)?.1, 1),
        Opcode::Symlink | Opcode::Unlink | Opcode::Rmdir => (body, 1),
        Opcode::Rename => {
            let (rename, rest) = after::<RenameIn>(body)?;
            new_dir = rename.new_dir;
            (rest, 2)
        }
        Opcode::Rename2 => {
            let (rename, rest) = after::<Rename2In>(body)?;
            new_dir = rename.new_dir;
            (rest, 2)
        }
        _ => return None,
    };
    let dirs = [header.nodeid, new_dir];
    Some(
        dirs.into_iter()
            .zip(names.split(|byte| *byte == 0))
            .take(count)
            .collect(),
    )
}
