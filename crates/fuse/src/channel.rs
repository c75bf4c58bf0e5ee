//! [`Channel`], a descriptor of the FUSE connection, and [`Scratch`], the memory of a request and its reply.
//!
//! Invariants:
//! - The data of a WRITE is page-aligned: direct I/O sends it from there to the disk.
//! - The same page-aligned memory takes the reply data of READ and READDIR, whose requests end before it.
//! - In the memory of a ring's entry, a request has the form of one that is read: its header and first
//!   argument are copied to just before the payload. So the server does not depend on the transport.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use throughline_device::{AlignedBuf, FuseEntry, OP_IN_AT, PAYLOAD_AT, RING_AT};
use zerocopy::{FromBytes, IntoBytes};

use crate::wire::{
    InHeader, NotifyInvalEntry, NotifyInvalInode, NotifyRetrieve, OutHeader, RingInOut,
    WRITE_DATA_AT,
};

/// A page: the alignment of request and reply data.
const PAGE_BYTES: usize = 4096;
/// The offset in its memory at which a request is read.
const REQUEST_AT: usize = PAGE_BYTES - WRITE_DATA_AT;
/// The payload of a ring's entry and the data of a request that is read are at the same offset.
const _: () = assert!(PAYLOAD_AT == PAGE_BYTES);

/// See the head of this file.
pub(crate) struct Channel {
    fd: OwnedFd,
    takes_turns: bool,
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
        Channel {
            fd,
            takes_turns: true,
        }
    }

    /// For a thread that must not wait for the kernel, because the kernel may wait for that thread.
    pub(crate) fn without_turns(fd: OwnedFd) -> Channel {
        Channel {
            fd,
            takes_turns: false,
        }
    }

    /// Whether its requests may take turns ([`crate::turns`]).
    pub(crate) fn takes_turns(&self) -> bool {
        self.takes_turns
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
            match rustix::io::read(&self.fd, &mut scratch.buf()[REQUEST_AT..]) {
                // The end of a socket. Reads of `/dev/fuse` fail instead.
                Ok(0) => return Ok(Received::Ended),
                Ok(len) => {
                    (scratch.at, scratch.len) = (REQUEST_AT, len);
                    return Ok(Received::Request);
                }
                // The request was interrupted before it was read, or a signal arrived.
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

    /// Makes the kernel send a request that needs no service ([`Scratch::is_nudge`]), to the queue of the
    /// CPU on which this runs. `nodeid` is a regular file. `number` is one that no other such request
    /// has. Returns false if the kernel does not know the file, and sends nothing.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn nudge(&self, nodeid: u64, number: u64) -> io::Result<bool> {
        let notice = NotifyRetrieve {
            // The kernel counts its own requests up from 0, by two.
            unique: 1 << 63 | number << 1,
            nodeid,
            ..NotifyRetrieve::default()
        };
        self.send(0, NotifyRetrieve::CODE, &[notice.as_bytes()])
    }

    /// Returns whether the kernel received it.
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
            // The request was interrupted, the kernel has not cached the inode or name of a notification, or
            // the mount is gone.
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
    memory: Memory,
    /// The offset of the request.
    at: usize,
    /// The length of the request.
    len: usize,
}

enum Memory {
    /// Requests are read into it.
    Own(AlignedBuf),
    /// The kernel writes requests into it.
    Entry {
        entry: Box<FuseEntry>,
        /// The length of the prepared reply, without its header.
        reply_bytes: usize,
        /// The part of the payload that was written to and not returned to the system since, in bytes.
        touched_bytes: usize,
    },
}

/// The data of a reply.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// This many bytes of [`Scratch::reply_data`].
    InPlace(usize),
}

impl Scratch {
    /// For requests and replies with up to `data_bytes` of data.
    pub(crate) fn new(data_bytes: usize) -> Scratch {
        Scratch {
            memory: Memory::Own(AlignedBuf::zeroed(PAGE_BYTES + data_bytes, PAGE_BYTES)),
            at: REQUEST_AT,
            len: 0,
        }
    }

    /// For the requests of a ring's entry.
    pub(crate) fn of_entry(entry: FuseEntry) -> Scratch {
        Scratch {
            memory: Memory::Entry {
                entry: Box::new(entry),
                reply_bytes: 0,
                touched_bytes: 0,
            },
            at: PAGE_BYTES,
            len: 0,
        }
    }

    /// The entry; `None` if the memory is of no entry.
    pub(crate) fn entry(&self) -> Option<&FuseEntry> {
        match &self.memory {
            Memory::Own(_) => None,
            Memory::Entry { entry, .. } => Some(entry),
        }
    }

    /// The same, and nothing else of it.
    pub(crate) fn into_entry(self) -> Option<FuseEntry> {
        match self.memory {
            Memory::Own(_) => None,
            Memory::Entry { entry, .. } => Some(*entry),
        }
    }

    /// An empty scratch of the same size, for requests that are read.
    pub(crate) fn another(&mut self) -> Scratch {
        Scratch::new(self.buf().len() - PAGE_BYTES)
    }

    /// As [`FuseEntry::wait`], for the memory of an entry.
    pub(crate) fn wait(&mut self) -> io::Result<bool> {
        match &mut self.memory {
            Memory::Own(_) => Ok(false),
            Memory::Entry { entry, .. } => entry.wait(),
        }
    }

    /// As [`FuseEntry::commit`].
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        match &mut self.memory {
            Memory::Own(_) => Ok(()),
            Memory::Entry { entry, .. } => entry.commit(),
        }
    }

    /// The part of an entry's payload that takes memory, in bytes from its start.
    pub(crate) fn touched_bytes(&self) -> usize {
        match self.memory {
            Memory::Own(_) => 0,
            Memory::Entry { touched_bytes, .. } => touched_bytes,
        }
    }

    /// The length of the reply that is prepared in an entry, in bytes without its header.
    pub(crate) fn reply_bytes(&self) -> usize {
        match self.memory {
            Memory::Own(_) => 0,
            Memory::Entry { reply_bytes, .. } => reply_bytes,
        }
    }

    /// Returns the memory of an entry's payload to the system, except for the first `keep_bytes` and the
    /// reply.
    pub(crate) fn discard(&mut self, keep_bytes: usize) {
        if let Memory::Entry {
            entry,
            reply_bytes,
            touched_bytes,
        } = &mut self.memory
        {
            let keep_bytes = keep_bytes.max(*reply_bytes);
            if keep_bytes < *touched_bytes {
                entry.discard(keep_bytes);
                *touched_bytes = keep_bytes;
            }
        }
    }

    /// The memory; empty while the kernel has it.
    fn buf(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Own(buf) => buf,
            Memory::Entry { entry, .. } => entry.memory_mut().unwrap_or_default(),
        }
    }

    /// Takes the request in the entry's memory: joins its parts, and prepares an error as the reply, in case
    /// no other is written.
    ///
    /// # Errors
    /// If the kernel's lengths contradict each other.
    pub(crate) fn take_from_entry(&mut self) -> io::Result<()> {
        let parts = assemble(self.buf());
        let parts = parts.ok_or_else(|| io::Error::other("the kernel sent no request"))?;
        (self.at, self.len) = (parts.at, parts.len);
        if let Memory::Entry { touched_bytes, .. } = &mut self.memory {
            *touched_bytes = (*touched_bytes).max(parts.at + parts.len - PAGE_BYTES);
        }
        self.write_reply(parts.unique, -Errno::IO.raw_os_error(), Body::Bytes(&[]));
        Ok(())
    }

    /// Replies to the request in this memory: through `channel`, or in the entry of a ring, which sends the
    /// reply when it is committed. Returns whether the kernel received it: `false` if the request was
    /// interrupted. A ring always takes it.
    ///
    /// # Errors
    /// As [`Channel::reply`].
    pub(crate) fn reply(
        &mut self,
        channel: &Channel,
        unique: u64,
        body: Body<'_>,
    ) -> io::Result<bool> {
        if matches!(self.memory, Memory::Entry { .. }) {
            self.write_reply(unique, 0, body);
            return Ok(true);
        }
        channel.reply(unique, &[self.bytes_of(body)])
    }

    /// Replies with an error.
    ///
    /// # Errors
    /// As [`Channel::refuse`].
    pub(crate) fn refuse(
        &mut self,
        channel: &Channel,
        unique: u64,
        errno: Errno,
    ) -> io::Result<()> {
        if matches!(self.memory, Memory::Entry { .. }) {
            self.write_reply(unique, -errno.raw_os_error(), Body::Bytes(&[]));
            return Ok(());
        }
        channel.refuse(unique, errno)
    }

    /// The bytes of `body`.
    pub(crate) fn bytes_of<'a>(&'a mut self, body: Body<'a>) -> &'a [u8] {
        match body {
            Body::Bytes(bytes) => bytes,
            Body::InPlace(len) => &self.reply_data()[..len],
        }
    }

    /// Writes a reply into the memory of an entry.
    fn write_reply(&mut self, unique: u64, error: i32, body: Body<'_>) {
        let buf = self.buf();
        let len = match body {
            Body::Bytes(bytes) => {
                buf[PAGE_BYTES..][..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
            Body::InPlace(len) => len,
        };
        let header = OutHeader {
            len: (size_of::<OutHeader>() + len) as u32,
            error,
            unique,
        };
        buf[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        let at = RING_AT + std::mem::offset_of!(RingInOut, payload_sz);
        buf[at..at + 4].copy_from_slice(&(len as u32).to_ne_bytes());
        if let Memory::Entry {
            reply_bytes,
            touched_bytes,
            ..
        } = &mut self.memory
        {
            *reply_bytes = len;
            *touched_bytes = (*touched_bytes).max(len);
        }
    }

    /// Whether the request was caused by [`Channel::nudge`], and is served by committing its entry.
    pub(crate) fn is_nudge(&self) -> bool {
        self.header()
            .is_some_and(|header| header.opcode == NotifyRetrieve::REPLY)
    }

    /// The header of the request; `None` if the bytes are not a request.
    pub(crate) fn header(&self) -> Option<InHeader> {
        let (header, _) = InHeader::read_from_prefix(self.request()).ok()?;
        (header.len as usize == self.len).then_some(header)
    }

    fn request(&self) -> &[u8] {
        let buf: &[u8] = match &self.memory {
            Memory::Own(buf) => buf,
            Memory::Entry { entry, .. } => entry.memory().unwrap_or_default(),
        };
        &buf[self.at..self.at + self.len]
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
        &mut self.buf()[PAGE_BYTES..]
    }
}

/// A request in one piece: its offset, its length and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Whole {
    at: usize,
    len: usize,
    unique: u64,
}

/// Copies header and first argument of the request in an entry's memory to just before its payload. `None` if
/// the kernel's lengths contradict each other.
fn assemble(buf: &mut [u8]) -> Option<Whole> {
    let (header, _) = InHeader::read_from_prefix(buf).ok()?;
    let (ring, _) = RingInOut::read_from_prefix(buf.get(RING_AT..)?).ok()?;
    let len = header.len as usize;
    let before_payload = len.checked_sub(ring.payload_sz as usize)?;
    let argument = before_payload.checked_sub(size_of::<InHeader>())?;
    let at = PAGE_BYTES - before_payload.min(PAGE_BYTES);
    if argument > RING_AT - OP_IN_AT || at + len > buf.len() {
        return None;
    }
    buf.copy_within(OP_IN_AT..OP_IN_AT + argument, PAGE_BYTES - argument);
    buf[at..][..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
    let unique = header.unique;
    Some(Whole { at, len, unique })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of an entry with a request of these lengths. The bytes of its argument are numbered.
    fn memory(len: usize, payload_sz: usize, room: usize) -> Vec<u8> {
        let mut buf = vec![0; PAGE_BYTES + room];
        buf[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        buf[8..16].copy_from_slice(&77_u64.to_ne_bytes());
        for (number, byte) in (0..).zip(&mut buf[OP_IN_AT..RING_AT]) {
            *byte = number;
        }
        let at = RING_AT + 16;
        buf[at..at + 4].copy_from_slice(&(payload_sz as u32).to_ne_bytes());
        buf[PAGE_BYTES..].fill(0xaa);
        buf
    }

    #[test]
    fn the_parts_of_a_request_are_put_together() {
        for (argument, payload) in [(0, 0), (40, 0), (128, 3), (40, 8192), (0, 8192)] {
            let len = 40 + argument + payload;
            let mut buf = memory(len, payload, 8192);
            let whole = assemble(&mut buf).unwrap();
            let at = PAGE_BYTES - 40 - argument;
            let unique = 77;
            assert_eq!(whole, Whole { at, len, unique });
            let request = &buf[at..at + len];
            let (header, _) = InHeader::read_from_prefix(request).unwrap();
            assert_eq!((header.len as usize, header.unique), (len, 77));
            let numbers: Vec<u8> = (0..argument as u8).collect();
            assert_eq!(request[40..40 + argument], numbers);
            assert!(request[40 + argument..].iter().all(|byte| *byte == 0xaa));
        }
    }

    #[test]
    fn lengths_that_contradict_each_other_are_no_request() {
        for (len, payload) in [
            (0, 0),
            (39, 0),
            (40, 1),
            (48, 9),
            (40 + 129, 0),
            (40 + 8193, 8193),
            (u32::MAX as usize, 0),
            (u32::MAX as usize, u32::MAX as usize - 40),
        ] {
            assert_eq!(assemble(&mut memory(len, payload, 8192)), None, "{len}");
        }
        assert_eq!(assemble(&mut []), None);
    }
}
