//! Extended attributes: SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR.

use rustix::io::Errno;

use super::{Answered, Request, Server};

impl Server {
    pub(super) fn setxattr(&self, _request: &Request<'_>) -> Answered {
        Err(Errno::OPNOTSUPP.into())
    }

    pub(super) fn getxattr(&self, request: &Request<'_>) -> Answered {
        if let Some(answered) = self.status_attribute(request) {
            return answered;
        }
        Err(Errno::OPNOTSUPP.into())
    }

    pub(super) fn listxattr(&self, _request: &Request<'_>) -> Answered {
        Err(Errno::OPNOTSUPP.into())
    }

    pub(super) fn removexattr(&self, _request: &Request<'_>) -> Answered {
        Err(Errno::OPNOTSUPP.into())
    }
}
