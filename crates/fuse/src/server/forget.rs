//! FORGET and BATCH_FORGET: the kernel forgets inodes. They get no reply, even if they are malformed.

use zerocopy::FromBytes;

use super::{Answer, Answered, Request};
use crate::files::Files;
use crate::nodes::Nodes;
use crate::wire::{BatchForgetIn, ForgetIn, ForgetOne};

pub(super) fn forget(nodes: &Nodes, files: &Files, request: &Request<'_>) -> Answered {
    if let Ok((forget, _)) = request.argument::<ForgetIn>() {
        forget_inode(nodes, files, request.header.nodeid, forget.lookups);
    }
    Ok(Answer::Silence)
}

pub(super) fn batch_forget(nodes: &Nodes, files: &Files, request: &Request<'_>) -> Answered {
    let Ok((batch, mut rest)) = request.argument::<BatchForgetIn>() else {
        return Ok(Answer::Silence);
    };
    for _ in 0..batch.count {
        let Ok((one, behind)) = ForgetOne::read_from_prefix(rest) else {
            break;
        };
        forget_inode(nodes, files, one.nodeid, one.lookups);
        rest = behind;
    }
    Ok(Answer::Silence)
}

fn forget_inode(nodes: &Nodes, files: &Files, nodeid: u64, lookups: u64) {
    // First: an inode without a name is freed with the last reference to it, which should be that of `nodes`,
    // where requests wait for its space.
    files.forgotten(nodeid);
    nodes.forget(nodeid, lookups);
}
