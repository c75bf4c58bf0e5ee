//! [`Server`]: answers requests. Each family of requests is a type of its own, which owns or shares only the
//! parts of the mount that its requests need.
//!
//! ```text
//!  Server::serve ─► answer ─► one of the families                            families.rs
//!    │                          names, creation, attributes, data,
//!    │                          directories, xattrs, ioctls, space, forget
//!    │                            ▼
//!    │                          shared: Nodes, Files, Turns,
//!    │                          Identity, Shown                             identity.rs, shown.rs
//!    ├─► counts                                                             status.rs
//!    ├─► notifications: what is stale in the kernel's cache                 stale.rs
//!    └─► replies that the kernel did not receive                            undelivered.rs
//! ```
//!
//! Each thread reads a request into its own memory, serves it and sends the reply. Errors become an errno;
//! errors that are not the caller's fault are also logged.

mod attributes;
mod creation;
mod data;
mod directories;
mod families;
mod forget;
mod identity;
mod ioctls;
mod names;
mod null;
mod privileges;
mod request;
mod shown;
mod space;
mod stale;
mod status;
#[cfg(test)]
mod tests;
mod undelivered;
mod volume_ioctls;
mod xattrs;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use throughline::internal::VolumeLayers;
use throughline::{Error, Reason, Volume};

use crate::channel::{Body, Channel, Scratch};
use crate::errno;
use crate::files::Files;
use crate::nodes::Nodes;
use crate::options::MountOptions;
use crate::outside::Outside;
use crate::service::Service;
use crate::transport::Transport;
use crate::turns::{Parked, Turns};
use crate::wire::{InHeader, Opcode, WRITE_DATA_AT};

use families::{Families, Shared, opens_without_request};
use identity::Identity;
pub use null::serve_null;
use request::{Answer, Answered, Refusal, Request};
use stale::{Changed, Notices};
pub use status::{END_WRITING_ATTRIBUTE, STATUS_ATTRIBUTE};
use status::{Served, Status};
use undelivered::Undelivered;

/// The interval at which [`Server::close_early`] checks whether the last requests have ended.
const SHUT_LOOK: Duration = Duration::from_millis(1);

/// How long a request that finds the volume full waits for inodes that are being freed.
const ROOM_WAIT: Duration = Duration::from_millis(200);

/// See the head of this file.
pub(crate) struct Server {
    volume: Volume,
    nodes: Arc<Nodes>,
    files: Arc<Files>,
    turns: Arc<Turns>,
    identity: Arc<Identity>,
    notices: Notices,
    status: Status,
    families: Families,
    /// All further requests are refused.
    shut: AtomicBool,
}

/// Whether a request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It has its reply.
    Done,
    /// It waits for a turn.
    Later,
}

/// How a request is counted.
fn served(header: &InHeader, answered: &Answered) -> Served {
    match answered {
        Ok(Answer::Data(len)) => Served::Bytes(*len),
        // For a write: the bytes after its headers.
        Ok(_) => Served::Bytes((header.len as usize).saturating_sub(WRITE_DATA_AT)),
        // It is counted when it is done.
        Err(Refusal::Later) => Served::Bytes(0),
        Err(_) => Served::Refused,
    }
}

/// The reply to a request once the volume is closed: as on an aborted connection.
fn refused_as_shut(opcode: Opcode) -> Answered {
    match opcode {
        // The kernel expects no reply.
        Opcode::Forget | Opcode::BatchForget => Ok(Answer::Silence),
        Opcode::Destroy => Answer::done(),
        _ => Err(Errno::NOTCONN.into()),
    }
}

impl Server {
    pub(crate) fn new(
        volume: Volume,
        source: &Path,
        options: &MountOptions,
        long_setxattr: bool,
    ) -> Server {
        let nodes = Arc::new(Nodes::new(volume.clone()));
        let no_open = opens_without_request(&volume, options);
        let files = Arc::new(Files::new(&options.choices, no_open && !options.read_only));
        let turns = Arc::new(Turns::default());
        let identity = Arc::new(Identity::new(options));
        let shared = Shared {
            volume: &volume,
            nodes: &nodes,
            files: &files,
            turns: &turns,
            identity: &identity,
            no_open,
        };
        Server {
            families: Families::new(shared, options, long_setxattr),
            status: Status::new(&volume, source.to_owned(), options),
            notices: Notices::default(),
            shut: AtomicBool::new(false),
            volume,
            nodes,
            files,
            turns,
            identity,
        }
    }

    /// The mount is gone: drops all handles and nodes.
    pub(crate) fn end(&self) {
        tracing::debug!(
            files = self.files.len(),
            nodes = self.nodes.len(),
            "the mount is gone"
        );
        self.files.clear();
        self.nodes.clear();
    }

    /// Closes the volume while the kernel still has the mount: waits for the requests in progress, and
    /// refuses all later ones. Nothing is written after it returns; if closing fails, the device is cut off.
    ///
    /// # Errors
    /// As [`Volume::end_writing`].
    pub(crate) fn close_early(&self) -> throughline::Result<()> {
        self.shut.store(true, Ordering::SeqCst);
        while self.status.at_work() > 0 {
            std::thread::sleep(SHUT_LOOK);
        }
        self.end();
        let ended = self.volume.end_writing();
        if ended.is_err() {
            self.volume.disk().cut();
        }
        ended
    }

    /// Writes everything to the device.
    pub(crate) fn sync(&self) -> throughline::Result<()> {
        self.volume.sync()
    }

    /// Shows in the status what this process gave up.
    pub(crate) fn set_sandbox(&self, sandbox: serde_json::Value) {
        self.status.set_sandbox(sandbox);
    }

    /// Leaves to `outside` what this process may not do.
    pub(crate) fn set_outside(&self, outside: Arc<dyn Outside>) {
        let _ = self.families.ioctls.outside.set(outside);
    }

    /// How long the longest request in progress has taken; of an untrusted image only.
    pub(crate) fn longest_request(&self) -> Duration {
        self.status.longest()
    }

    fn serve_or_park(&self, channel: &Arc<Channel>, scratch: &mut Scratch) -> io::Result<()> {
        if self.serve_one(channel, scratch)? == Progress::Later {
            let another = scratch.another();
            self.turns.park(Parked {
                channel: Arc::clone(channel),
                scratch: std::mem::replace(scratch, another),
            });
        }
        Ok(())
    }

    fn serve_one(&self, channel: &Channel, scratch: &mut Scratch) -> io::Result<Progress> {
        let Some(header) = scratch.header() else {
            return Err(io::Error::other("the kernel sent no request"));
        };
        let opcode = Opcode::of(header.opcode);
        self.status.begin();
        let changed = Changed::default();
        let answered = match opcode {
            // Checked after `begin`: either this request sees `shut`, or `close_early` sees this request.
            Some(opcode) if self.shut.load(Ordering::SeqCst) => refused_as_shut(opcode),
            Some(opcode) => self.answer_with_room(opcode, header, channel, scratch, &changed),
            None => Err(Errno::NOSYS.into()),
        };
        self.status.end(opcode, served(&header, &answered));
        let body = match &answered {
            Ok(Answer::Bytes(bytes)) => Body::Bytes(bytes),
            Ok(Answer::Data(len)) => Body::InPlace(*len),
            Ok(Answer::Silence) => return Ok(Progress::Done),
            Err(Refusal::Later) => return Ok(Progress::Later),
            Err(refusal) => {
                let errno = self.errno(&header, refusal);
                self.notices
                    .notify_failure(refusal, (opcode, &header, scratch), channel, &changed);
                scratch.refuse(channel, header.unique, errno)?;
                return Ok(Progress::Done);
            }
        };
        changed.notify_success((opcode, &header), channel);
        let sent = scratch.reply(channel, header.unique, body);
        if !matches!(sent, Ok(true)) {
            let (nodes, files) = (&*self.nodes, &*self.files);
            Undelivered { nodes, files }.take_back(opcode, scratch.bytes_of(body));
        }
        sent.map(|_| Progress::Done)
    }

    fn errno(&self, header: &InHeader, refusal: &Refusal) -> Errno {
        match refusal {
            Refusal::Errno(errno) => *errno,
            // Not reached: it is answered later.
            Refusal::Later => Errno::AGAIN,
            Refusal::Volume(error) => {
                if let Error::Corrupt(damage) = error {
                    self.volume.fs().count_damage(damage);
                }
                if !errno::is_callers(error) {
                    tracing::error!(%error, inode = header.nodeid, "a request failed");
                }
                errno::of(error)
            }
        }
    }

    /// As [`Server::answer`], but before it fails with "no space", waits for inodes that are being freed.
    fn answer_with_room(
        &self,
        opcode: Opcode,
        header: InHeader,
        channel: &Channel,
        scratch: &mut Scratch,
        changed: &Changed,
    ) -> Answered {
        let full = |answered: &Answered| {
            matches!(
                answered,
                Err(Refusal::Volume(Error::Caller(Reason::NoSpace)))
            )
        };
        let mut answered = self.answer(opcode, header, channel, scratch, changed);
        if !full(&answered) {
            return answered;
        }
        let end = Instant::now() + ROOM_WAIT;
        let mut seen = Some(self.nodes.gone());
        while let Some(gone) = seen {
            // The first retry is immediate: space may have been freed since.
            answered = self.answer(opcode, header, channel, scratch, changed);
            seen = full(&answered)
                .then(|| self.nodes.await_room(gone, end))
                .flatten();
        }
        answered
    }

    fn answer(
        &self,
        opcode: Opcode,
        header: InHeader,
        channel: &Channel,
        scratch: &mut Scratch,
        changed: &Changed,
    ) -> Answered {
        if !self.identity.admits(opcode, &header, scratch.body(&header)) {
            return Err(Errno::ACCESS.into());
        }
        let _caller = self.identity.caller(&header).act();
        let of = &self.families;
        // These overwrite the request with their reply, so they copy their argument first.
        match opcode {
            Opcode::Read => return of.data.read(&header, scratch),
            Opcode::Readdir => return of.directories.read(&header, scratch, false),
            Opcode::Readdirplus => return of.directories.read(&header, scratch, true),
            _ => {}
        }
        let request = Request {
            body: scratch.body(&header),
            header,
            channel,
            changed,
        };
        self.answer_from_body(opcode, &request)
    }

    fn answer_from_body(&self, opcode: Opcode, request: &Request<'_>) -> Answered {
        let of = &self.families;
        match opcode {
            Opcode::Lookup => of.names.lookup(request),
            Opcode::Link => of.names.link(request),
            Opcode::Unlink => of.names.unlink(request),
            Opcode::Rmdir => of.names.rmdir(request),
            Opcode::Rename => of.names.rename(request),
            Opcode::Rename2 => of.names.rename2(request),
            Opcode::Readlink => of.names.readlink(request),
            Opcode::Create => of.creation.create(request),
            Opcode::Tmpfile => of.creation.tmpfile(request),
            Opcode::Mknod => of.creation.mknod(request),
            Opcode::Mkdir => of.creation.mkdir(request),
            Opcode::Symlink => of.creation.symlink(request),
            Opcode::Getattr => of.attributes.getattr(request),
            Opcode::Setattr => of.attributes.setattr(request),
            Opcode::Statx => of.attributes.statx(request),
            Opcode::Open => of.data.open(request),
            Opcode::Write => of.data.write(request),
            Opcode::Flush => of.data.flush(),
            Opcode::Release => of.data.release(request),
            Opcode::Fsync => of.data.fsync(request),
            Opcode::Fallocate => of.data.fallocate(request),
            Opcode::Lseek => of.data.lseek(request),
            Opcode::CopyFileRange => of.data.copy_file_range(request),
            Opcode::Opendir => of.directories.open(),
            Opcode::Releasedir => Answer::done(),
            Opcode::Fsyncdir => of.directories.fsync(request),
            Opcode::Setxattr => of.xattrs.setxattr(request),
            Opcode::Getxattr => {
                let status = self.status.attribute(request, &self.notices, &self.files);
                status.unwrap_or_else(|| of.xattrs.getxattr(request))
            }
            Opcode::Listxattr => of.xattrs.listxattr(request),
            Opcode::Removexattr => of.xattrs.removexattr(request),
            Opcode::Ioctl => of.ioctls.ioctl(request),
            Opcode::Statfs => of.space.statfs(),
            Opcode::Bmap => of.space.bmap(request),
            Opcode::Forget => forget::forget(&self.nodes, &self.files, request),
            Opcode::BatchForget => forget::batch_forget(&self.nodes, &self.files, request),
            Opcode::Syncfs => {
                self.volume.sync()?;
                Answer::done()
            }
            Opcode::Destroy => self.destroy(),
            Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => Err(Errno::NOSYS.into()),
        }
    }

    /// For a `fuseblk` mount: umount(2) waits for the reply, and the device is free after it.
    fn destroy(&self) -> Answered {
        self.end();
        self.volume.end_writing()?;
        Answer::done()
    }
}

impl Service for Server {
    /// Also serves queued requests as long as a turn is free.
    fn serve(&self, channel: &Arc<Channel>, scratch: &mut Scratch) -> io::Result<()> {
        let served = self.serve_or_park(channel, scratch);
        while let Some(mut parked) = self.turns.next() {
            if let Err(error) = self.serve_or_park(&parked.channel, &mut parked.scratch) {
                tracing::warn!(%error, "answering a request");
            }
        }
        self.send_notices(channel);
        served
    }

    fn serve_entry(&self, channel: &Channel, scratch: &mut Scratch) -> io::Result<bool> {
        Ok(self.serve_one(channel, scratch)? == Progress::Done)
    }

    fn await_turn(&self) {
        self.turns.wait();
    }

    fn has_notices(&self) -> bool {
        self.notices.pending() > 0
    }

    fn send_notices(&self, channel: &Channel) {
        self.notices.send(channel, &self.turns);
    }

    fn transport(&self) -> &Transport {
        self.status.transport()
    }
}
