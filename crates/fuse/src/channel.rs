//! [`Channel`], a descriptor of the FUSE connection, and [`Scratch`], the memory that a request is read into.
//!
//! Invariants:
//! - A request is read to where the data of a WRITE is page-aligned: direct I/O sends it from there to the
//!   disk.
//! - The same page-aligned memory takes the reply data of READ and READDIR, whose requests end before it.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use throughline_device::AlignedBuf;
use zerocopy::{FromBytes, IntoBytes};

use crate::wire::{InHeader, NotifyInvalEntry, NotifyInvalInode, OutHeader, WRITE_DATA_AT};

/// A page: the alignment of request and reply data.
const PAGE_BYTES: usize = 4096;
/// The offset of a request in its memory.
const REQUEST_AT: usize = PAGE_BYTES - WRITE_DATA_AT;

/// See the head of this file.
pub(crate) struct Channel {
    fd: OwnedFd,
}

/// The result of reading a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A request was read.
    Request,
    /// No request is queued.
    Nothing,
    /// The mount is gone.
    Ended,
}

impl Channel {
    pub(crate) fn new(fd: OwnedFd) -> Channel {
        Channel { fd }
    }

    /// Sets whether [`receive`](Channel::receive) blocks, for all readers of the channel.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn set_waits(&self, waits: bool) -> io::Result<()> {
        let mut flags = rustix::fs::fcntl_getfl(&self.fd)?;
        flags.set(OFlags::NONBLOCK, !waits);
        Ok(rustix::fs::fcntl_setfl(&self.fd, flags)?)
    }

    /// Reads the next request into `scratch`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn receive(&self, scratch: &mut Scratch) -> io::Result<Received> {
        loop {
            match rustix::io::read(&self.fd, &mut scratch.buf[REQUEST_AT..]) {
                // Not of `/dev/fuse`, whose reads fail then, but of a socket.
                Ok(0) => return Ok(Received::Ended),
                Ok(len) => {
                    scratch.len = len;
                    return Ok(Received::Request);
                }
                // The request was interrupted before it was read; a signal.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::Ended),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Replies to a request. Returns whether the kernel received it: `false` if the request was interrupted.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn reply(&self, unique: u64, data: &[&[u8]]) -> io::Result<bool> {
        self.send(unique, 0, data)
    }

    /// Replies to a request with an error.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn refuse(&self, unique: u64, errno: Errno) -> io::Result<()> {
        self.send(unique, -errno.raw_os_error(), &[]).map(drop)
    }

    /// Notifies the kernel that its cached attributes of an inode are stale.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn attributes_are_old(&self, nodeid: u64) -> io::Result<()> {
        let notice = NotifyInvalInode {
            nodeid,
            // Its data is unchanged.
            offset: -1,
            len: 0,
        };
        self.send(0, NotifyInvalInode::CODE, &[notice.as_bytes()])
            .map(drop)
    }

    /// Makes the kernel write back dirty pages of a range and drop the range from its cache. Waits for pages
    /// that are being read or written, and so for other requests.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn pages_are_old(&self, nodeid: u64, range: &Range<u64>) -> io::Result<()> {
        let notice = NotifyInvalInode {
            nodeid,
            offset: i64::try_from(range.start).unwrap_or(i64::MAX),
            len: i64::try_from(range.end - range.start).unwrap_or(i64::MAX),
        };
        self.send(0, NotifyInvalInode::CODE, &[notice.as_bytes()])
            .map(drop)
    }

    /// Makes the kernel look a name of a directory up again. Waits for requests that change the directory.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn name_is_old(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        let notice = NotifyInvalEntry {
            parent,
            namelen: name.len() as u32,
            flags: NotifyInvalEntry::EXPIRE_ONLY,
        };
        self.send(0, NotifyInvalEntry::CODE, &[notice.as_bytes(), name, &[0]])
            .map(drop)
    }

    /// Returns whether the kernel took it.
    fn send(&self, unique: u64, error: i32, data: &[&[u8]]) -> io::Result<bool> {
        let bytes: usize = data.iter().map(|part| part.len()).sum();
        let header = OutHeader {
            len: (size_of::<OutHeader>() + bytes) as u32,
            error,
            unique,
        };
        let mut parts = smallvec::SmallVec::<[IoSlice<'_>; 4]>::new();
        parts.push(IoSlice::new(header.as_bytes()));
        parts.extend(data.iter().map(|part| IoSlice::new(part)));
        match rustix::io::writev(&self.fd, &parts) {
            Ok(_) => Ok(true),
            // The request was interrupted, the kernel does not know the inode or name of a notification, or
            // the
            // mount is gone.
            Err(Errno::NOENT | Errno::NODEV) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// See the head of this file.
pub(crate) struct Scratch {
    buf: AlignedBuf,
    len: usize,
}

impl Scratch {
    /// For requests and replies with up to `data_bytes` of data.
    pub(crate) fn new(data_bytes: usize) -> Scratch {
        Scratch {
            buf: AlignedBuf::zeroed(PAGE_BYTES + data_bytes, PAGE_BYTES),
            len: 0,
        }
    }

    /// An empty one of the same size.
    pub(crate) fn another(&self) -> Scratch {
        Scratch::new(self.buf.len() - PAGE_BYTES)
    }

    /// The header of the request; `None` if the bytes are not a request.
    pub(crate) fn header(&self) -> Option<InHeader> {
        let (header, _) = InHeader::read_from_prefix(self.request()).ok()?;
        (header.len as usize == self.len).then_some(header)
    }

    fn request(&self) -> &[u8] {
        &self.buf[REQUEST_AT..REQUEST_AT + self.len]
    }

    /// The bytes after the header, without the extensions at the end.
    pub(crate) fn body(&self, header: &InHeader) -> &[u8] {
        let body = self
            .request()
            .get(size_of::<InHeader>()..)
            .unwrap_or_default();
        let extensions = usize::from(header.total_extlen) * 8;
        &body[..body.len().saturating_sub(extensions)]
    }

    /// The memory for the data of a reply. Writing to it overwrites the request.
    pub(crate) fn reply_data(&mut self) -> &mut [u8] {
        &mut self.buf[PAGE_BYTES..]
    }
}
