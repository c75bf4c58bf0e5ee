//! [`Mount`]: a server; the test plays the part of the kernel.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Deref;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use throughline::{OpenOptions, VolumeOptions};

use super::bytes::{self, Bytes, op};
use super::device::{Faulty, Kind};
use crate::channel::{Channel, Received, Scratch};
use crate::nodes::ROOT_NODEID;
use crate::options::MountOptions;
use crate::server::Server;
use crate::service::Service;

/// The maximum data of a request or reply, in bytes.
pub(super) const DATA_BYTES: usize = 64 << 10;

/// The process that makes a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
}

impl Caller {
    pub(super) fn root() -> Caller {
        Caller::user(0, 0)
    }

    pub(super) fn user(uid: u32, gid: u32) -> Caller {
        Caller {
            uid,
            gid,
            pid: std::process::id(),
        }
    }
}

/// `FUSE_NOTIFY_INVAL_INODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) nodeid: u64,
    pub(super) offset: i64,
    pub(super) len: i64,
}

impl Notice {
    /// The notification that an inode's attributes are stale.
    pub(super) fn attributes(nodeid: u64) -> Notice {
        Notice {
            nodeid,
            offset: -1,
            len: 0,
        }
    }
}

/// A reply, and the notifications before it.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// As sent to the kernel: 0 or a negated errno.
    error: i32,
    body: Vec<u8>,
    pub(super) notices: Vec<Notice>,
}

impl Reply {
    #[track_caller]
    pub(super) fn fails(self, errno: Errno) -> Reply {
        assert!(
            self.is_errno(errno),
            "{} instead of {errno}",
            self.describe()
        );
        assert!(self.body.is_empty(), "a body with an error");
        self
    }

    /// The body of a successful reply.
    #[track_caller]
    pub(super) fn ok(self) -> Body {
        assert!(self.is_ok(), "{}", self.describe());
        Body(self.body)
    }

    /// Checks for a successful reply without a body.
    #[track_caller]
    pub(super) fn done(self) {
        assert!(self.ok().is_empty(), "a body where none is expected");
    }

    fn describe(&self) -> String {
        match self.error {
            0 => format!("success with {} bytes", self.body.len()),
            error => io::Error::from_raw_os_error(-error).to_string(),
        }
    }

    pub(super) fn is_ok(&self) -> bool {
        self.error == 0
    }

    pub(super) fn is_errno(&self, errno: Errno) -> bool {
        self.error == -errno.raw_os_error()
    }
}

/// The body of a reply, with numbers at byte offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body(pub(super) Vec<u8>);

impl Body {
    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.0[at..at + 2].try_into().unwrap())
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().unwrap())
    }

    /// The node id of `struct fuse_entry_out`.
    pub(super) fn nodeid(&self) -> u64 {
        assert!(self.len() >= 128, "not an entry: {} bytes", self.len());
        self.u64(0)
    }

    /// The attributes at the end of `struct fuse_entry_out` and `struct fuse_attr_out`.
    pub(super) fn attr(&self) -> Attr {
        let at = match self.len() {
            104 => 16,
            128 | 144 => 40,
            len => panic!("no attributes in {len} bytes"),
        };
        Attr::at(self, at)
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// `struct fuse_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attr {
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) atime: (i64, u32),
    pub(super) mtime: (i64, u32),
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) blksize: u32,
}

impl Attr {
    pub(super) fn at(body: &Body, at: usize) -> Attr {
        Attr {
            ino: body.u64(at),
            size: body.u64(at + 8),
            atime: (body.u64(at + 24).cast_signed(), body.u32(at + 48)),
            mtime: (body.u64(at + 32).cast_signed(), body.u32(at + 52)),
            mode: body.u32(at + 60),
            nlink: body.u32(at + 64),
            uid: body.u32(at + 68),
            gid: body.u32(at + 72),
            rdev: body.u32(at + 76),
            blksize: body.u32(at + 80),
        }
    }
}

/// `struct fuse_dirent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dirent {
    pub(super) ino: u64,
    pub(super) off: u64,
    pub(super) kind: u32,
    pub(super) name: String,
    /// The entry before it in READDIRPLUS.
    pub(super) entry: Body,
}

/// The entries of a page, each after an entry of `entry_bytes`.
pub(super) fn dirents(page: &Body, entry_bytes: usize) -> Vec<Dirent> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < page.len() {
        let entry = Body(page[at..at + entry_bytes].to_vec());
        at += entry_bytes;
        let len = page.u32(at + 16) as usize;
        let name = &page[at + 24..at + 24 + len];
        all.push(Dirent {
            ino: page.u64(at),
            off: page.u64(at + 8),
            kind: page.u32(at + 20),
            name: String::from_utf8_lossy(name).into_owned(),
            entry,
        });
        at += (24 + len).next_multiple_of(8);
    }
    all
}

/// The channel of a server, and the kernel's end of it.
pub(super) fn connection() -> (Arc<Channel>, UnixDatagram) {
    let (ours, kernel) = UnixDatagram::pair().expect("a pair of sockets");
    kernel.set_nonblocking(true).expect("a socket");
    (Arc::new(Channel::new(ours.into())), kernel)
}

/// The bytes of a request.
pub(super) fn request(op: u32, unique: u64, nodeid: u64, by: Caller, body: &[u8]) -> Vec<u8> {
    let head = Bytes::new().u32((40 + body.len()) as u32).u32(op);
    let head = head.u64(unique).u64(nodeid).u32(by.uid).u32(by.gid);
    let all = head.u32(by.pid).u16(0).u16(0).raw(body);
    all.as_ref().to_vec()
}

/// The next message that the kernel's end receives: error and number of its header, and its body.
fn message(kernel: &UnixDatagram) -> Option<(i32, u64, Body)> {
    let mut buf = vec![0; DATA_BYTES + 4096];
    match kernel.recv(&mut buf) {
        Ok(len) => buf.truncate(len),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
        Err(error) => panic!("receiving: {error}"),
    }
    let all = Body(buf);
    assert_eq!(all.u32(0) as usize, all.len(), "the length in the header");
    let head = (all.u32(4).cast_signed(), all.u64(8));
    Some((head.0, head.1, Body(all[16..].to_vec())))
}

/// Everything that the kernel's end has received: notifications, and at most one reply, to `unique`.
pub(super) fn received(kernel: &UnixDatagram, unique: u64) -> (Vec<Notice>, Option<Reply>) {
    let (mut notices, mut reply) = (Vec::new(), None);
    while let Some((error, of, body)) = message(kernel) {
        if of == 0 {
            if error == 3 {
                // FUSE_NOTIFY_INVAL_ENTRY, with FUSE_EXPIRE_ONLY, after a failure.
                assert_eq!(body.len(), 17 + body.u32(8) as usize);
                assert_eq!((body.u32(12), body.last()), (1, Some(&0)));
                assert!(reply.is_some(), "the kernel waits for the directory's lock");
                continue;
            }
            assert_eq!(error, 2, "FUSE_NOTIFY_INVAL_INODE");
            assert_eq!(body.len(), 24);
            notices.push(Notice {
                nodeid: body.u64(0),
                offset: body.u64(8).cast_signed(),
                len: body.u64(16).cast_signed(),
            });
            continue;
        }
        assert_eq!(of, unique, "the reply to another request");
        assert!(reply.is_none(), "two replies");
        reply = Some(Reply {
            error,
            body: body.0,
            notices: notices.clone(),
        });
    }
    (notices, reply)
}

/// See the head of this file.
pub(super) struct Mount {
    pub(super) server: Server,
    pub(super) device: Faulty,
    pub(super) channel: Arc<Channel>,
    pub(super) kernel: UnixDatagram,
    scratch: RefCell<Scratch>,
    caller: Cell<Caller>,
    unique: Cell<u64>,
}

/// A server on a new ext4 volume; `None`, after a message, if `mke2fs` is missing.
pub(super) fn mount() -> Option<Mount> {
    mount_of(Kind::Ext4)
}

/// The same, on another kind of volume.
pub(super) fn mount_of(kind: Kind) -> Option<Mount> {
    mount_with(kind, &MountOptions::default())
}

/// The same, with options.
pub(super) fn mount_with(kind: Kind, options: &MountOptions) -> Option<Mount> {
    Some(Mount::on(Faulty::new(kind)?, options))
}

impl Mount {
    /// A server of the volume on `device`.
    pub(super) fn on(device: Faulty, options: &MountOptions) -> Mount {
        Mount::negotiated(device, options, true)
    }

    /// The same. `long`: `FUSE_SETXATTR_EXT` was negotiated.
    pub(super) fn negotiated(device: Faulty, options: &MountOptions, long: bool) -> Mount {
        let mut open = OpenOptions::new();
        open.write(!options.read_only).no_replay(options.no_replay);
        open.volume(VolumeOptions::new().acl(options.acl));
        let volume = open.open_device(device.clone()).expect("the volume");
        let (channel, kernel) = connection();
        Mount {
            server: Server::new(volume, Path::new("image"), options, long),
            device,
            channel,
            kernel,
            scratch: RefCell::new(Scratch::new(DATA_BYTES)),
            caller: Cell::new(Caller::root()),
            unique: Cell::new(2),
        }
    }

    /// Closes the volume and serves its bytes with a new server, which has nothing of it in memory.
    pub(super) fn again(self, options: &MountOptions) -> Mount {
        let device = self.device.clone();
        self.close();
        Mount::on(device, options)
    }

    /// Closes the volume cleanly.
    pub(super) fn close(self) {
        self.server.end();
        self.server.volume.end_writing().expect("a clean close");
    }

    /// Sets the caller of all further requests.
    pub(super) fn by(&self, caller: Caller) {
        self.caller.set(caller);
    }

    /// Sends a request and serves it. Returns its unique number.
    fn send(&self, op: u32, nodeid: u64, body: &[u8]) -> u64 {
        let unique = self.unique.get();
        self.unique.set(unique + 2);
        self.serve_bytes(&request(op, unique, nodeid, self.caller.get(), body))
            .expect("served");
        unique
    }

    /// Serves these bytes as a request.
    pub(super) fn serve_bytes(&self, request: &[u8]) -> io::Result<()> {
        self.kernel.send(request).expect("a request is sent");
        let mut scratch = self.scratch.borrow_mut();
        let got = self.channel.receive(&mut scratch).expect("a request");
        assert_eq!(got, Received::Request);
        self.server.serve(&self.channel, &mut scratch)
    }

    /// The reply to a request.
    #[track_caller]
    pub(super) fn ask(&self, op: u32, nodeid: u64, body: impl AsRef<[u8]>) -> Reply {
        let unique = self.send(op, nodeid, body.as_ref());
        let (notices, reply) = received(&self.kernel, unique);
        let reply = reply.unwrap_or_else(|| panic!("no reply to request {op}"));
        let late = notices.len() > reply.notices.len();
        assert!(reply.error != 0 || !late, "a notification after a success");
        reply
    }

    /// The reply to a request on the root.
    #[track_caller]
    pub(super) fn ask_root(&self, op: u32, body: impl AsRef<[u8]>) -> Reply {
        self.ask(op, ROOT_NODEID, body)
    }

    /// Sends a request that gets no reply.
    #[track_caller]
    pub(super) fn send_unanswered(&self, op: u32, nodeid: u64, body: impl AsRef<[u8]>) {
        let unique = self.send(op, nodeid, body.as_ref());
        let (notices, reply) = received(&self.kernel, unique);
        assert_eq!(notices, []);
        assert!(reply.is_none(), "a reply to request {op}: {reply:?}");
    }

    /// The node id of a name in the root; a look-up is counted.
    #[track_caller]
    pub(super) fn find(&self, name: &str) -> u64 {
        self.ask_root(op::LOOKUP, bytes::named(name)).ok().nodeid()
    }

    /// A new file in the root, not open; a look-up is counted.
    #[track_caller]
    pub(super) fn file(&self, name: &str) -> u64 {
        let made = self.ask_root(op::MKNOD, bytes::mknod(0o100_644, 0, name));
        made.ok().nodeid()
    }

    /// A new file in the root with data, not open.
    #[track_caller]
    pub(super) fn file_with(&self, name: &str, data: &[u8]) -> u64 {
        let node = self.file(name);
        let fh = self.open(node, 1);
        self.ask(op::WRITE, node, bytes::write(fh, 0, data)).ok();
        self.ask(op::RELEASE, node, bytes::release(fh)).done();
        node
    }

    /// A new directory in the root.
    #[track_caller]
    pub(super) fn dir(&self, name: &str) -> u64 {
        let made = self.ask_root(op::MKDIR, bytes::mkdir(0o755, name));
        made.ok().nodeid()
    }

    /// The node of a name in the root; a new file if there is none.
    #[track_caller]
    pub(super) fn file_or_found(&self, name: &str) -> u64 {
        match self.find(name) {
            0 => self.file(name),
            found => found,
        }
    }

    /// Sets an inode's flags, as `chattr` does.
    #[track_caller]
    pub(super) fn set_flags(&self, nodeid: u64, flags: u32) {
        let ask = bytes::ioctl(0x4008_6602, &flags.to_ne_bytes());
        self.ask(op::IOCTL, nodeid, ask).ok();
    }

    /// The names in the root, sorted, without `.` and `..`.
    #[track_caller]
    pub(super) fn names(&self) -> Vec<String> {
        let page = self.ask_root(op::READDIR, bytes::read(0, 0, DATA_BYTES as u32));
        let mut names: Vec<_> = dirents(&page.ok(), 0).into_iter().map(|d| d.name).collect();
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }

    /// A new handle of a node; 0 if files are opened without a request.
    #[track_caller]
    pub(super) fn open(&self, nodeid: u64, flags: u32) -> u64 {
        let open = self.ask(op::OPEN, nodeid, bytes::open(flags));
        if open.is_errno(Errno::NOSYS) {
            return 0;
        }
        open.ok().u64(0)
    }

    /// The attributes of a node.
    #[track_caller]
    pub(super) fn attr(&self, nodeid: u64) -> Attr {
        let got = self.ask(op::GETATTR, nodeid, bytes::getattr(None));
        got.ok().attr()
    }

    /// The content of a node, read through a new handle.
    #[track_caller]
    pub(super) fn contents(&self, nodeid: u64) -> Vec<u8> {
        let fh = self.open(nodeid, 0);
        let size = DATA_BYTES as u32;
        let data = self.ask(op::READ, nodeid, bytes::read(fh, 0, size)).ok();
        if fh != 0 {
            self.ask(op::RELEASE, nodeid, bytes::release(fh)).done();
        }
        data.0
    }

    /// The number of nodes with counted look-ups.
    pub(super) fn known(&self) -> usize {
        self.server.nodes.len()
    }

    /// The number of open handles.
    pub(super) fn handles(&self) -> usize {
        self.server.files.len()
    }
}
