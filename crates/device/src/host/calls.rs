//! The thread engine of a file: `preadv2` and `pwritev2`, for systems that forbid io_uring.

use std::io;

use rustix::fs::fdatasync;
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

use super::file::HostFile;
use super::transfer::{Step, Transfer};
use crate::{Completion, Execute, Limits, Op, Request};

impl Execute for HostFile {
    fn limits(&self) -> &Limits {
        &self.info.limits
    }

    fn admit(&self, request: &Request) -> io::Result<()> {
        HostFile::admit(self, request)
    }

    fn execute(&self, request: Request) -> Completion {
        execute(self, request)
    }
}

/// Executes a whole request on this thread.
pub(super) fn execute(file: &HostFile, request: Request) -> Completion {
    let mut transfer = Transfer::new(request);
    loop {
        let offset = transfer.offset_bytes();
        let result = match transfer.request.op() {
            Op::Read => {
                let mut slices = transfer.read_slices();
                preadv2(file.fd(), &mut slices, offset, ReadWriteFlags::empty()).map(|n| n as u64)
            }
            Op::Write => {
                let fua = transfer.request.fua();
                let flags = if fua {
                    ReadWriteFlags::DSYNC
                } else {
                    ReadWriteFlags::empty()
                };
                pwritev2(file.fd(), &transfer.write_slices(), offset, flags).map(|n| n as u64)
            }
            Op::Flush => fdatasync(file.fd()).map(|()| 0),
            op => file
                .clear(op, offset, transfer.request.len_bytes())
                .map(|()| 0),
        };
        if let Step::Finished(result) = transfer.advance(file, result) {
            return transfer.finish(result);
        }
    }
}
