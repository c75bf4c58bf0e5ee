//! IOCTL: flags of inodes, labels, trimming, shutting down.

use rustix::io::Errno;

use super::{Answered, Request, Server};

impl Server {
    pub(super) fn ioctl(&self, _request: &Request<'_>) -> Answered {
        Err(Errno::NOTTY.into())
    }
}
