//! FORGET and BATCH_FORGET: the kernel forgets inodes. They get no reply, even if they are malformed.

use zerocopy::FromBytes;

use super::{Answer, Answered, Request};
use crate::nodes::Nodes;
use crate::wire::{BatchForgetIn, ForgetIn, ForgetOne};

pub(super) fn forget(nodes: &Nodes, request: &Request<'_>) -> Answered {
    if let Ok((forget, _)) = request.argument::<ForgetIn>() {
        nodes.forget(request.header.nodeid, forget.lookups);
    }
    Ok(Answer::Silence)
}

pub(super) fn batch_forget(nodes: &Nodes, request: &Request<'_>) -> Answered {
    let Ok((batch, mut rest)) = request.argument::<BatchForgetIn>() else {
        return Ok(Answer::Silence);
    };
    for _ in 0..batch.count {
        let Ok((one, behind)) = ForgetOne::read_from_prefix(rest) else {
            break;
        };
        nodes.forget(one.nodeid, one.lookups);
        rest = behind;
    }
    Ok(Answer::Silence)
}
