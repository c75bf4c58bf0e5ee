//! [`Null`]: directories and files in memory, without a volume. It shows the minimum cost of requests on a
//! transport: `throughline lab run mount/small` measures our mount beside it.
//!
//! It negotiates the same features with the kernel as a mount, and allows the kernel to cache the same
//! things. It answers what creating, looking up, reading, writing and removing files takes; other requests
//! fail with ENOSYS.

mod tree;

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType as Kind;
use rustix::io::Errno;
use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

use super::stale::Changed;
use super::{Answer, Answered, Refusal, Request};
use crate::channel::{Body, Channel, Scratch};
use crate::connection::{Connection, Origin};
use crate::options::{Choices, MountOptions};
use crate::policy::Policy;
use crate::service::Service;
use crate::session::MountError;
use crate::transport::Transport;
use crate::wire::{
    Attr, AttrOut, BatchForgetIn, CreateIn, EntryOut, ForgetIn, ForgetOne, InHeader, MkdirIn,
    Opcode, OpenIn, OpenOut, ReadIn, WriteIn, WriteOut,
};
use tree::{Content, Inode, Tree};

/// How long the kernel may cache names and attributes, in seconds.
const KEEP_SECS: u64 = 1 << 30;
const PAGE_BYTES: u32 = 4096;
/// The maximum size of a file, which is in memory.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Mounts the null server at a directory, and serves it until it is unmounted.
///
/// # Errors
/// [`MountError::Mount`], [`MountError::Serve`].
pub fn serve_null(at: &Path, options: &MountOptions) -> Result<(), MountError> {
    let mut connection = Connection::new(Origin::Directory(at), Path::new("null"), options)?;
    let null = Null {
        tree: Tree::default(),
        choices: options.choices,
        transport: Transport::default(),
    };
    connection.serve(&null).map_err(MountError::Serve)?;
    connection.has_ended();
    Ok(())
}

/// See the head of this file.
struct Null {
    tree: Tree,
    choices: Choices,
    transport: Transport,
}

impl Service for Null {
    fn serve(&self, channel: &Arc<Channel>, scratch: &mut Scratch) -> io::Result<()> {
        self.serve_entry(channel, scratch).map(drop)
    }

    fn serve_entry(&self, channel: &Channel, scratch: &mut Scratch) -> io::Result<bool> {
        let Some(header) = scratch.header() else {
            return Err(io::Error::other("the kernel sent no request"));
        };
        match self.answer(&header, channel, scratch) {
            Ok(Answer::Silence) => Ok(true),
            Ok(Answer::Bytes(bytes)) => scratch.reply(channel, header.unique, Body::Bytes(&bytes)),
            Ok(Answer::Data(len)) => scratch.reply(channel, header.unique, Body::InPlace(len)),
            Err(refusal) => {
                let errno = match refusal {
                    Refusal::Errno(errno) => errno,
                    Refusal::Volume(_) | Refusal::Later => Errno::IO,
                };
                scratch.refuse(channel, header.unique, errno).map(|()| true)
            }
        }
        .map(|_| true)
    }

    fn await_turn(&self) {}

    fn has_notices(&self) -> bool {
        false
    }

    fn send_notices(&self, _: &Channel) {}

    fn transport(&self) -> &Transport {
        &self.transport
    }
}

impl Null {
    fn answer(&self, header: &InHeader, channel: &Channel, scratch: &mut Scratch) -> Answered {
        let opcode = Opcode::of(header.opcode).ok_or(Errno::NOSYS)?;
        if opcode == Opcode::Read {
            return self.read(header, scratch);
        }
        let request = Request {
            body: scratch.body(header),
            header: *header,
            channel,
            changed: &Changed::default(),
        };
        self.answer_from_body(opcode, &request)
    }

    fn answer_from_body(&self, opcode: Opcode, request: &Request<'_>) -> Answered {
        let nodeid = request.header.nodeid;
        match opcode {
            Opcode::Lookup => self.lookup(request),
            Opcode::Mkdir => {
                let (make, rest) = request.argument::<MkdirIn>()?;
                let mode = Kind::Directory.as_raw_mode() | make.mode & 0o7777;
                Answer::of(&self.make(request, rest, mode)?)
            }
            Opcode::Create => self.create(request),
            Opcode::Unlink | Opcode::Rmdir => {
                let (name, _) = Request::name(request.body)?;
                self.tree.remove(nodeid, name)?;
                Answer::done()
            }
            Opcode::Getattr => Answer::of(&self.attr_out(nodeid)?),
            Opcode::Open => {
                let (open, _) = request.argument::<OpenIn>()?;
                let empty = self.tree.with(nodeid, |inode| Ok(inode.len() == 0))?;
                Answer::of(&self.open_out(open.flags, empty))
            }
            Opcode::Write => self.write(request),
            Opcode::Release | Opcode::Releasedir | Opcode::Fsync | Opcode::Fsyncdir => {
                Answer::done()
            }
            Opcode::Forget => {
                let (forget, _) = request.argument::<ForgetIn>()?;
                self.tree.forget(nodeid, forget.lookups);
                Ok(Answer::Silence)
            }
            Opcode::BatchForget => {
                let (_, mut rest) = request.argument::<BatchForgetIn>()?;
                while let Ok((one, after)) = ForgetOne::read_from_prefix(rest) {
                    self.tree.forget(one.nodeid, one.lookups);
                    rest = after;
                }
                Ok(Answer::Silence)
            }
            _ => Err(Errno::NOSYS.into()),
        }
    }

    fn lookup(&self, request: &Request<'_>) -> Answered {
        let (name, _) = Request::name(request.body)?;
        match self.tree.find(request.header.nodeid, name)? {
            Some(nodeid) => Answer::of(&self.entry(nodeid)?),
            // The kernel may cache that there is none.
            None => Answer::of(&EntryOut {
                entry_valid: KEEP_SECS,
                ..EntryOut::default()
            }),
        }
    }

    fn make(&self, request: &Request<'_>, name: &[u8], mode: u32) -> Result<EntryOut, Refusal> {
        let (name, _) = Request::name(name)?;
        let header = &request.header;
        let inode = Inode::new(mode, header.uid, header.gid);
        let nodeid = self.tree.add(header.nodeid, name, inode)?;
        Ok(self.entry(nodeid)?)
    }

    fn create(&self, request: &Request<'_>) -> Answered {
        let (create, rest) = request.argument::<CreateIn>()?;
        let mode = Kind::RegularFile.as_raw_mode() | create.mode & 0o7777;
        let entry = self.make(request, rest, mode)?;
        let mut bytes = SmallVec::from_slice(entry.as_bytes());
        bytes.extend_from_slice(self.open_out(create.flags, true).as_bytes());
        Ok(Answer::Bytes(bytes))
    }

    fn write(&self, request: &Request<'_>) -> Answered {
        let (write, data) = request.argument::<WriteIn>()?;
        let end = write.offset.saturating_add(data.len() as u64);
        self.tree.with(request.header.nodeid, |inode| {
            let Content::File(file) = &mut inode.content else {
                return Err(Errno::ISDIR);
            };
            if end > file.len() as u64 {
                resize(file, end)?;
            }
            file[write.offset as usize..end as usize].copy_from_slice(data);
            Ok(())
        })?;
        Answer::of(&WriteOut {
            size: data.len() as u32,
            padding: 0,
        })
    }

    fn read(&self, header: &InHeader, scratch: &mut Scratch) -> Answered {
        let (read, _) = ReadIn::read_from_prefix(scratch.body(header)).map_err(|_| Errno::INVAL)?;
        let room = scratch.reply_data().get_mut(..read.size as usize);
        let room = room.ok_or(Errno::INVAL)?;
        let len = self.tree.with(header.nodeid, |inode| {
            let Content::File(file) = &inode.content else {
                return Err(Errno::ISDIR);
            };
            let from = usize::try_from(read.offset).unwrap_or(usize::MAX);
            let there = file.get(from..).unwrap_or_default();
            let len = there.len().min(room.len());
            room[..len].copy_from_slice(&there[..len]);
            Ok(len)
        })?;
        Ok(Answer::Data(len))
    }

    /// The reply to a look-up, which is counted.
    fn entry(&self, nodeid: u64) -> Result<EntryOut, Errno> {
        let attr = self.tree.with(nodeid, |inode| {
            inode.lookups += 1;
            Ok(attr(nodeid, inode))
        })?;
        Ok(EntryOut {
            nodeid,
            generation: 0,
            entry_valid: KEEP_SECS,
            attr_valid: KEEP_SECS,
            entry_valid_ns: 0,
            attr_valid_ns: 0,
            attr,
        })
    }

    fn attr_out(&self, nodeid: u64) -> Result<AttrOut, Errno> {
        Ok(AttrOut {
            attr_valid: KEEP_SECS,
            attr_valid_ns: 0,
            dummy: 0,
            attr: self.tree.with(nodeid, |inode| Ok(attr(nodeid, inode)))?,
        })
    }

    fn open_out(&self, flags: u32, empty: bool) -> OpenOut {
        OpenOut {
            open_flags: Policy::of(flags, empty, &self.choices).answer,
            ..OpenOut::default()
        }
    }
}

fn attr(nodeid: u64, inode: &Inode) -> Attr {
    Attr {
        ino: nodeid,
        size: inode.len(),
        blocks: inode.len().div_ceil(512),
        mode: inode.mode,
        nlink: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        blksize: PAGE_BYTES,
        ..Attr::default()
    }
}

fn resize(file: &mut Vec<u8>, len_bytes: u64) -> Result<(), Errno> {
    if len_bytes > MAX_FILE_BYTES {
        return Err(Errno::FBIG);
    }
    file.resize(len_bytes as usize, 0);
    Ok(())
}
