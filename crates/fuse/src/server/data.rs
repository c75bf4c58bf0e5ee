//! Open files and their data: OPEN, READ, WRITE, FLUSH, RELEASE, FSYNC, FALLOCATE, LSEEK, COPY_FILE_RANGE.

use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use throughline::{Caller, Fallocate, OpenFor, ops};
use zerocopy::FromBytes;

use super::identity::Identity;
use super::{Answer, Answered, Refusal, Request};
use crate::channel::Scratch;
use crate::coherence::{Before, PAGE_BYTES, while_clean};
use crate::files::{Durable, Files, OpenFile};
use crate::nodes::Nodes;
use crate::turns::Turns;
use crate::wire::{
    CopyFileRangeIn, FSYNC_FDATASYNC, FallocateIn, FsyncIn, InHeader, LseekIn, LseekOut,
    OPEN_KILL_PRIVILEGES, OpenIn, READ_LOCK_OWNER, ReadIn, ReleaseIn, WRITE_CACHE,
    WRITE_KILL_PRIVILEGES, WRITE_LOCK_OWNER, WriteIn, WriteOut,
};

/// `SEEK_DATA` and `SEEK_HOLE`; the kernel handles the others itself.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// The maximum length of one COPY_FILE_RANGE. The caller repeats it for more, and can be interrupted in
/// between.
const COPY_BYTES: u64 = 16 << 20;

/// The access that open flags request.
fn opened_for(flags: u32) -> OpenFor {
    let flags = OFlags::from_bits_retain(flags);
    OpenFor {
        write: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
        append: flags.contains(OFlags::APPEND),
        truncate: flags.contains(OFlags::TRUNC),
    }
}

/// Whether a change covers its pages completely, up to the end of the file.
fn is_whole_pages(offset: u64, len: u64, size: u64) -> bool {
    let end = offset.saturating_add(len);
    offset.is_multiple_of(PAGE_BYTES) && (end.is_multiple_of(PAGE_BYTES) || end >= size)
}

/// See the head of this file.
pub(super) struct DataRequests {
    pub(super) nodes: Arc<Nodes>,
    pub(super) files: Arc<Files>,
    pub(super) identity: Arc<Identity>,
    pub(super) turns: Arc<Turns>,
    /// The kernel opens files without a request. Requests on an open file then have no handle.
    pub(super) no_open: bool,
}

impl DataRequests {
    /// The file of a request: that of its handle, or that of its inode if files have no handles.
    fn file(&self, nodeid: u64, fh: u64) -> Result<Arc<OpenFile>, Refusal> {
        self.file_opened_with(nodeid, fh, 0)
    }

    /// As [`Self::file`], for a request that has the open flags of the program's descriptor.
    fn file_opened_with(&self, nodeid: u64, fh: u64, flags: u32) -> Result<Arc<OpenFile>, Refusal> {
        if self.no_open {
            let node = || self.nodes.get(nodeid);
            return Ok(self.files.without_handle(nodeid, flags, node)?);
        }
        Ok(self.files.get(fh).ok_or(Errno::BADF)?)
    }

    /// After ENOSYS, the kernel sends no more OPEN and RELEASE.
    pub(super) fn open(&self, request: &Request<'_>) -> Answered {
        if self.no_open {
            return Err(Errno::NOSYS.into());
        }
        let (open, _) = request.argument::<OpenIn>()?;
        let node = self.nodes.get(request.header.nodeid)?;
        node.check_open(opened_for(open.flags))?;
        let truncates = OFlags::from_bits_retain(open.flags).contains(OFlags::TRUNC);
        let kills = open.open_flags & OPEN_KILL_PRIVILEGES != 0;
        if truncates || kills {
            self.identity.before_change(request, &node, !kills)?;
        }
        let answer = self.files.open(node, open.flags)?;
        if truncates {
            let emptied = ops::set_len(self.file(request.header.nodeid, answer.fh)?.node(), 0);
            if let Err(error) = request.did(emptied) {
                self.files.remove(answer.fh);
                return Err(error.into());
            }
        }
        Answer::of(&answer)
    }

    /// A close needs no work. After ENOSYS, the kernel sends no more FLUSH.
    pub(super) fn flush(&self) -> Answered {
        Err(Errno::NOSYS.into())
    }

    pub(super) fn release(&self, request: &Request<'_>) -> Answered {
        let (release, _) = request.argument::<ReleaseIn>()?;
        self.files.remove(release.fh);
        Answer::done()
    }

    pub(super) fn read(&self, header: &InHeader, scratch: &mut Scratch) -> Answered {
        let (read, _) = ReadIn::read_from_prefix(scratch.body(header)).map_err(|_| Errno::INVAL)?;
        let file = self.file_opened_with(header.nodeid, read.fh, read.flags)?;
        if read.read_flags & READ_LOCK_OWNER == 0 {
            let end = read.offset.saturating_add(read.size.into());
            file.kernel_pages().fill(read.offset..end);
        }
        let data = scratch.reply_data();
        let data = data.get_mut(..read.size as usize).ok_or(Errno::INVAL)?;
        Ok(Answer::Data(file.read(read.flags, read.offset, data)?))
    }

    pub(super) fn write(&self, request: &Request<'_>) -> Answered {
        let (write, rest) = request.argument::<WriteIn>()?;
        let data = rest.get(..write.size as usize).ok_or(Errno::INVAL)?;
        let file = self.file_opened_with(request.header.nodeid, write.fh, write.flags)?;
        if write.write_flags & WRITE_CACHE != 0 {
            return self.write_back(request, &file, &write, data);
        }
        if self.no_open {
            // What OPEN would have refused.
            file.node().check_open(opened_for(write.flags))?;
        }
        let keeps = write.write_flags & WRITE_KILL_PRIVILEGES == 0;
        self.identity.before_change(request, file.node(), keeps)?;
        let put = || self.put(request, &file, &write, data);
        let size = if write.write_flags & WRITE_LOCK_OWNER == 0 {
            put()
        } else {
            let range = write.offset..write.offset.saturating_add(write.size.into());
            let kernel = (request.channel, &*self.turns);
            (file.kernel_pages()).change(kernel, range, Before::Dropped, put)?
        };
        let size = size? as u32;
        Answer::of(&WriteOut { size, padding: 0 })
    }

    /// Takes what a program has stored already: all of it, or none by the reply. The kernel would take a
    /// short count for a success, and forgets what was refused. So the file remembers it, and its syncs fail.
    fn write_back(
        &self,
        request: &Request<'_>,
        file: &OpenFile,
        write: &WriteIn,
        data: &[u8],
    ) -> Answered {
        // If its owner cannot be read, it counts as the caller's.
        let _writer = self.identity.stored_by(file).map(Caller::act);
        request.did(ops::write_back(file.buffered(), data, write.offset))?;
        let size = write.size;
        Answer::of(&WriteOut { size, padding: 0 })
    }

    /// Writes, and syncs if the descriptor or the call (`RWF_DSYNC`) asks for it. Returns the number of bytes
    /// written.
    fn put(
        &self,
        request: &Request<'_>,
        file: &OpenFile,
        write: &WriteIn,
        data: &[u8],
    ) -> throughline::Result<usize> {
        let to = file.with_flags(write.flags)?;
        let written = request.did(ops::write(to, data, write.offset))?;
        Durable::of(write.flags).wait(to)?;
        Ok(written)
    }

    pub(super) fn fsync(&self, request: &Request<'_>) -> Answered {
        let (fsync, _) = request.argument::<FsyncIn>()?;
        let data_only = fsync.flags & FSYNC_FDATASYNC != 0;
        self.file(request.header.nodeid, fsync.fh)?
            .node()
            .sync(data_only)?;
        Answer::done()
    }

    pub(super) fn fallocate(&self, request: &Request<'_>) -> Answered {
        let (ask, _) = request.argument::<FallocateIn>()?;
        let mode = Fallocate::of_flags(ask.mode).ok_or(Errno::OPNOTSUPP)?;
        let file = self.file(request.header.nodeid, ask.fh)?;
        let by_root = request.header.uid == 0;
        self.identity.before_change(request, file.node(), by_root)?;
        let allocate = || {
            let (offset, length) = (ask.offset, ask.length);
            request.did(ops::allocate(file.node(), mode, offset, length))
        };
        if matches!(mode, Fallocate::Allocate | Fallocate::KeepSize) {
            allocate()?;
        } else {
            let range = ask.offset..ask.offset.saturating_add(ask.length);
            let kernel = (request.channel, &*self.turns);
            (file.kernel_pages()).change(kernel, range, Before::WrittenBack, allocate)??;
        }
        file.changed()?;
        Answer::done()
    }

    pub(super) fn lseek(&self, request: &Request<'_>) -> Answered {
        let (seek, _) = request.argument::<LseekIn>()?;
        let file = self.file(request.header.nodeid, seek.fh)?;
        let found = match seek.whence {
            SEEK_DATA => file.buffered().seek_data(seek.offset)?,
            SEEK_HOLE => file.buffered().seek_hole(seek.offset)?,
            _ => return Err(Errno::INVAL.into()),
        };
        Answer::of(&LseekOut {
            offset: found.ok_or(Errno::NXIO)?,
        })
    }

    pub(super) fn copy_file_range(&self, request: &Request<'_>) -> Answered {
        let (copy, _) = request.argument::<CopyFileRangeIn>()?;
        if self.no_open {
            // Without a handle, it is not known whether the target was opened with `O_SYNC`. After ENOSYS,
            // the kernel copies by requests that say so.
            return Err(Errno::NOSYS.into());
        }
        let from = self.file(request.header.nodeid, copy.fh_in)?;
        let to = self.file(copy.nodeid_out, copy.fh_out)?;
        let len = copy.len.min(COPY_BYTES);
        let by_root = request.header.uid == 0;
        self.identity.before_change(request, to.node(), by_root)?;
        // After the copy, the kernel drops whole pages of the target from its cache, including data stored to
        // them meanwhile; and it has not written back stores to the source. If we refuse, the kernel copies
        // by itself.
        let len = len.min(from.buffered().size()?.saturating_sub(copy.offset_in));
        if !is_whole_pages(copy.offset_out, len, to.buffered().size()?) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let copied = while_clean([from.kernel_pages(), to.kernel_pages()], || {
            let source = (from.buffered(), copy.offset_in);
            let target = (to.buffered(), copy.offset_out);
            request.did(ops::copy_range(source, target, len))
        });
        let size = copied.ok_or(Errno::OPNOTSUPP)?? as u32;
        to.changed()?;
        Answer::of(&WriteOut { size, padding: 0 })
    }
}
