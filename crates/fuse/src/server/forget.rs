//! FORGET and BATCH_FORGET: the kernel forgets inodes. They are never answered, not even malformed ones.

use zerocopy::FromBytes;

use super::{Answer, Answered, Request, Server};
use crate::wire::{BatchForgetIn, ForgetIn, ForgetOne};

impl Server {
    pub(super) fn forget(&self, request: &Request<'_>) -> Answered {
        if let Ok((forget, _)) = request.argument::<ForgetIn>() {
            self.nodes.forget(request.header.nodeid, forget.lookups);
        }
        Ok(Answer::Silence)
    }

    pub(super) fn batch_forget(&self, request: &Request<'_>) -> Answered {
        let Ok((batch, mut rest)) = request.argument::<BatchForgetIn>() else {
            return Ok(Answer::Silence);
        };
        for _ in 0..batch.count {
            let Ok((one, behind)) = ForgetOne::read_from_prefix(rest) else {
                break;
            };
            self.nodes.forget(one.nodeid, one.lookups);
            rest = behind;
        }
        Ok(Answer::Silence)
    }
}
