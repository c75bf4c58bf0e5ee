//! [`Channel`], a descriptor of the FUSE connection, and [`Scratch`], the memory that a request is read into.
//!
//! Invariants:
//! - A request is read so that the data of a write start on a page: direct I/O takes them from there to the disk.
//! - The same page-aligned memory takes the data of a reply to READ or READDIR, whose requests end before it.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use throughline_device::AlignedBuf;
use zerocopy::{FromBytes, IntoBytes};

use crate::wire::{InHeader, NotifyInvalInode, OutHeader, WRITE_DATA_AT};

/// A page; data of requests and replies are aligned to it.
const PAGE_BYTES: usize = 4096;
/// Where a request begins in the memory that it is read into.
const REQUEST_AT: usize = PAGE_BYTES - WRITE_DATA_AT;

/// See the head of this file.
pub(crate) struct Channel {
    fd: OwnedFd,
}

/// What reading a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// There is one.
    Request,
    /// There is none yet.
    Nothing,
    /// The mount has gone.
    Ended,
}

impl Channel {
    pub(crate) fn new(fd: OwnedFd) -> Channel {
        Channel { fd }
    }

    /// From now on [`receive`](Channel::receive) waits for requests, or does not. For all that read through the channel.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn set_waits(&self, waits: bool) -> io::Result<()> {
        let mut flags = rustix::fs::fcntl_getfl(&self.fd)?;
        flags.set(OFlags::NONBLOCK, !waits);
        Ok(rustix::fs::fcntl_setfl(&self.fd, flags)?)
    }

    /// Reads the next request into `scratch`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn receive(&self, scratch: &mut Scratch) -> io::Result<Received> {
        loop {
            match rustix::io::read(&self.fd, &mut scratch.buf[REQUEST_AT..]) {
                Ok(len) => {
                    scratch.len = len;
                    return Ok(Received::Request);
                }
                // A request that was withdrawn before it was read; a signal.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::Ended),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers a request. That its asker has gone is no error.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn reply(&self, unique: u64, data: &[&[u8]]) -> io::Result<()> {
        self.send(unique, 0, data)
    }

    /// Answers a request with an error.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn refuse(&self, unique: u64, errno: Errno) -> io::Result<()> {
        self.send(unique, -errno.raw_os_error(), &[])
    }

    /// Tells the kernel that what it keeps of an inode's attributes is old.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn attributes_are_old(&self, nodeid: u64) -> io::Result<()> {
        let notice = NotifyInvalInode {
            nodeid,
            // Its data are as they were.
            offset: -1,
            len: 0,
        };
        self.send(0, NotifyInvalInode::CODE, &[notice.as_bytes()])
    }

    /// Tells the kernel to write back what is dirty in a range of a file, and to drop it from its cache. Waits for pages that are
    /// being read or written, and so for other requests.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn pages_are_old(&self, nodeid: u64, range: &Range<u64>) -> io::Result<()> {
        let notice = NotifyInvalInode {
            nodeid,
            offset: i64::try_from(range.start).unwrap_or(i64::MAX),
            len: i64::try_from(range.end - range.start).unwrap_or(i64::MAX),
        };
        self.send(0, NotifyInvalInode::CODE, &[notice.as_bytes()])
    }

    fn send(&self, unique: u64, error: i32, data: &[&[u8]]) -> io::Result<()> {
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
            // The request was interrupted, the inode of a notice is not known, or the mount has gone.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
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
    /// For requests and replies of up to `data_bytes` of data.
    pub(crate) fn new(data_bytes: usize) -> Scratch {
        Scratch {
            buf: AlignedBuf::zeroed(PAGE_BYTES + data_bytes, PAGE_BYTES),
            len: 0,
        }
    }

    /// As large as this one, and with nothing in it.
    pub(crate) fn another(&self) -> Scratch {
        Scratch::new(self.buf.len() - PAGE_BYTES)
    }

    /// The header of the request; `None` for bytes that are none.
    pub(crate) fn header(&self) -> Option<InHeader> {
        let (header, _) = InHeader::read_from_prefix(self.request()).ok()?;
        (header.len as usize == self.len).then_some(header)
    }

    fn request(&self) -> &[u8] {
        &self.buf[REQUEST_AT..REQUEST_AT + self.len]
    }

    /// What is behind the header, without the extensions at its end.
    pub(crate) fn body(&self, header: &InHeader) -> &[u8] {
        let body = self
            .request()
            .get(size_of::<InHeader>()..)
            .unwrap_or_default();
        let extensions = usize::from(header.total_extlen) * 8;
        &body[..body.len().saturating_sub(extensions)]
    }

    /// The memory for the data of a reply. The request is gone once it is written to.
    pub(crate) fn reply_data(&mut self) -> &mut [u8] {
        &mut self.buf[PAGE_BYTES..]
    }
}
