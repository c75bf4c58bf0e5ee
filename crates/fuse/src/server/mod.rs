//! [`Server`]: answers requests, with one file per family of requests.
//!
//! Each thread reads a request into its own memory, serves it and sends the reply. Errors become an errno;
//! errors that are not the caller's fault are also logged.

mod attributes;
mod data;
mod directories;
mod forget;
mod ioctls;
mod names;
mod privileges;
mod space;
mod stale;
mod status;
#[cfg(test)]
mod tests;
mod volume_ioctls;
mod xattrs;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use smallvec::SmallVec;
use throughline::internal::VolumeLayers;
use throughline::{Error, Reason, Volume};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::channel::{Channel, Scratch};
use crate::coherence::{Later, Parked, Turns};
use crate::errno;
use crate::files::Files;
use crate::nodes::Nodes;
use crate::options::{Access, Choices, MountOptions};
use crate::wire::{InHeader, Opcode, WRITE_DATA_AT};

use stale::{Changed, Notices};
pub use status::{END_WRITING_ATTRIBUTE, STATUS_ATTRIBUTE};
use status::{Served, Status};

/// How long the kernel may cache names and attributes: without limit, because nothing else changes the image.
const FOR_GOOD: Duration = Duration::from_secs(1 << 30);

/// The interval of checks whether the last requests have ended.
const SHUT_LOOK: Duration = Duration::from_millis(1);

/// How long a request that finds the volume full waits for inodes that are being freed.
const ROOM_WAIT: Duration = Duration::from_millis(200);

/// See the head of this file.
pub(crate) struct Server {
    volume: Volume,
    nodes: Nodes,
    files: Files,
    turns: Turns,
    notices: Notices,
    choices: Choices,
    identity: Identity,
    /// New files inherit the group of their directory.
    group_of_directory: bool,
    status: Status,
    /// With `minixdf`: the total number of blocks, which `df` then includes the volume's own metadata in.
    minix_blocks: Option<u64>,
    acl: bool,
    /// Permissions are checked (not with `fakeroot`).
    checks: bool,
    /// `FUSE_SETXATTR_EXT` was negotiated.
    long_setxattr: bool,
    user_xattr: bool,
    /// All further requests are refused.
    shut: AtomicBool,
}

/// Overrides of file ownership, and access to the mount.
struct Identity {
    uid: Option<u32>,
    gid: Option<u32>,
    /// Permissions shown for all files, in place of their own.
    permissions: Option<u32>,
    /// With `allow_root`: the only user ID besides root that may use the mount.
    only_root_and: Option<u32>,
}

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum Refusal {
    /// An error of the protocol.
    Errno(Errno),
    /// An error of the volume.
    Volume(Error),
    /// The request is served later: it waits for a turn.
    Later,
}

impl From<Later> for Refusal {
    fn from(_: Later) -> Refusal {
        Refusal::Later
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Errno(errno)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Volume(error)
    }
}

/// The reply to a request.
#[allow(
    clippy::large_enum_variant,
    reason = "one per request, on the stack; a box would be slower"
)]
pub(super) enum Answer {
    /// These bytes.
    Bytes(SmallVec<[u8; 256]>),
    /// This many bytes of the thread's memory.
    Data(usize),
    /// No reply.
    Silence,
}

pub(super) type Answered = Result<Answer, Refusal>;

impl Answer {
    /// Success without data.
    fn done() -> Answered {
        Ok(Answer::Bytes(SmallVec::new()))
    }

    fn of(value: &(impl IntoBytes + Immutable)) -> Answered {
        Ok(Answer::Bytes(SmallVec::from_slice(value.as_bytes())))
    }
}

/// A request: its header and body.
pub(super) struct Request<'a> {
    pub(super) header: InHeader,
    body: &'a [u8],
    /// The channel that it was read from.
    channel: &'a Channel,
    /// What it changed so far.
    changed: &'a Changed,
}

impl<'a> Request<'a> {
    /// The argument, and the bytes after it.
    fn argument<T: FromBytes>(&self) -> Result<(T, &'a [u8]), Refusal> {
        T::read_from_prefix(self.body).map_err(|_| Errno::INVAL.into())
    }

    /// The NUL-terminated name at the start of `bytes`, and the bytes after it.
    fn name(bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Refusal> {
        let end = bytes.iter().position(|byte| *byte == 0);
        let end = end.ok_or(Errno::INVAL)?;
        Ok((&bytes[..end], &bytes[end + 1..]))
    }
}

/// The volume's total number of blocks, with `minixdf`.
fn minix_blocks(volume: &Volume, options: &MountOptions) -> Option<u64> {
    if !options.minix_df {
        return None;
    }
    Some(volume.info().ok()?.blocks)
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
        let me = rustix::process::getuid().as_raw();
        Server {
            nodes: Nodes::new(volume.clone()),
            files: Files::new(),
            turns: Turns::default(),
            notices: Notices::default(),
            minix_blocks: minix_blocks(&volume, options),
            volume,
            choices: options.choices,
            group_of_directory: options.group_of_directory,
            status: Status::new(source.to_owned(), options),
            identity: Identity {
                uid: options.uid,
                gid: options.gid,
                permissions: options.umask.map(|umask| 0o777 & !umask),
                only_root_and: (options.access == Access::OwnerAndRoot).then_some(me),
            },
            acl: options.acl,
            checks: options.kernel_checks_permissions(),
            long_setxattr,
            user_xattr: options.user_xattr,
            shut: AtomicBool::new(false),
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
    pub(crate) fn close_early(&self) {
        self.shut.store(true, Ordering::SeqCst);
        while self.status.at_work() > 0 {
            std::thread::sleep(SHUT_LOOK);
        }
        self.end();
        if let Err(error) = self.volume.end_writing() {
            tracing::error!(%error, "the image was not closed cleanly");
            self.volume.disk().cut();
        }
    }

    /// Serves the request in `scratch`, then queued requests as long as a turn is free.
    ///
    /// # Errors
    /// The system's, when the reply is written.
    pub(crate) fn serve(&self, channel: &Arc<Channel>, scratch: &mut Scratch) -> io::Result<()> {
        let served = self.serve_one(channel, scratch);
        while let Some(mut parked) = self.turns.next() {
            if let Err(error) = self.serve_one(&parked.channel, &mut parked.scratch) {
                tracing::warn!(%error, "answering a request");
            }
        }
        self.notices.send(channel, &self.turns);
        served
    }

    fn serve_one(&self, channel: &Arc<Channel>, scratch: &mut Scratch) -> io::Result<()> {
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
        let reply: &[u8] = match &answered {
            Ok(Answer::Bytes(bytes)) => bytes,
            Ok(Answer::Data(len)) => &scratch.reply_data()[..*len],
            Ok(Answer::Silence) => return Ok(()),
            Err(Refusal::Later) => {
                let another = scratch.another();
                self.turns.park(Parked {
                    channel: Arc::clone(channel),
                    scratch: std::mem::replace(scratch, another),
                });
                return Ok(());
            }
            Err(refusal) => {
                let errno = self.errno(&header, refusal);
                self.notify_failure(refusal, (opcode, &header, scratch), channel, &changed);
                return channel.refuse(header.unique, errno);
            }
        };
        self.notify_success((opcode, &header), channel, &changed);
        let sent = channel.reply(header.unique, &[reply]);
        if !matches!(sent, Ok(true)) {
            self.take_back(opcode, reply);
        }
        sent.map(drop)
    }

    fn errno(&self, header: &InHeader, refusal: &Refusal) -> Errno {
        match refusal {
            Refusal::Errno(errno) => *errno,
            // Not reached: it is answered later.
            Refusal::Later => Errno::AGAIN,
            Refusal::Volume(error) => {
                if let Error::Corrupt(damage) = error {
                    self.volume.count_damage(damage);
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
        if let Some(owner) = self.identity.only_root_and
            && header.uid != 0
            && header.uid != owner
            && !opcode.is_for_all()
        {
            return Err(Errno::ACCESS.into());
        }
        // These overwrite the request with their reply, so they copy their argument first.
        match opcode {
            Opcode::Read => return self.read(&header, scratch),
            Opcode::Readdir => return self.read_dir(&header, scratch, false),
            Opcode::Readdirplus => return self.read_dir(&header, scratch, true),
            _ => {}
        }
        let request = Request {
            body: scratch.body(&header),
            header,
            channel,
            changed,
        };
        let request = &request;
        match opcode {
            Opcode::Lookup => self.lookup(request),
            Opcode::Getattr => self.getattr(request),
            Opcode::Setattr => self.setattr(request),
            Opcode::Statx => self.statx(request),
            Opcode::Open => self.open(request),
            Opcode::Create => self.create(request),
            Opcode::Write => self.write(request),
            Opcode::Release => self.release(request),
            Opcode::Fsync => self.fsync(request),
            Opcode::Fallocate => self.fallocate(request),
            Opcode::Lseek => self.lseek(request),
            Opcode::CopyFileRange => self.copy_file_range(request),
            Opcode::Mknod => self.mknod(request),
            Opcode::Mkdir => self.mkdir(request),
            Opcode::Symlink => self.symlink(request),
            Opcode::Readlink => self.readlink(request),
            Opcode::Link => self.link(request),
            Opcode::Unlink => self.unlink(request),
            Opcode::Rmdir => self.rmdir(request),
            Opcode::Rename => self.rename(request),
            Opcode::Rename2 => self.rename2(request),
            Opcode::Tmpfile => self.tmpfile(request),
            Opcode::Opendir => self.opendir(request),
            // A close needs no work. After ENOSYS, the kernel sends no more FLUSH.
            Opcode::Flush if self.choices.no_flush => Err(Errno::NOSYS.into()),
            Opcode::Flush | Opcode::Releasedir => Answer::done(),
            Opcode::Fsyncdir => self.fsyncdir(request),
            Opcode::Setxattr => self.setxattr(request),
            Opcode::Getxattr => self.getxattr(request),
            Opcode::Listxattr => self.listxattr(request),
            Opcode::Removexattr => self.removexattr(request),
            Opcode::Ioctl => self.ioctl(request),
            Opcode::Statfs => self.statfs(),
            Opcode::Forget => self.forget(request),
            Opcode::BatchForget => self.batch_forget(request),
            Opcode::Syncfs => {
                self.volume.sync()?;
                Answer::done()
            }
            Opcode::Bmap => self.bmap(request),
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

    /// How long the kernel may cache names and attributes, in seconds.
    fn keep_secs(&self) -> u64 {
        if self.choices.entry_cache {
            FOR_GOOD.as_secs()
        } else {
            0
        }
    }
}
