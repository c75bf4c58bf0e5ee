//! Rings for the commands of FUSE ([`crate::FuseEntry`]), and these commands.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::{opcode, squeue, types};

use crate::rings::FuseRing as Ring;

/// `FUSE_IO_URING_CMD_REGISTER`.
pub(crate) const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
pub(crate) const COMMIT_AND_FETCH: u32 = 2;
/// The maximum size of a submission queue: commands that one system call can submit.
const SUBMISSIONS: u32 = 16;
/// The maximum size of a completion queue. The kernel keeps completions for which there is no room.
const MAX_COMPLETIONS: u32 = 1 << 16;
/// The offset of `len` in `struct io_uring_sqe`, in units of four bytes.
const SQE_LEN_AT: usize = 6;
/// The pause before a command is submitted again for which there was no memory.
const RETRY: Duration = Duration::from_millis(10);

/// Makes a ring for the commands of FUSE, and for nothing else. It is disabled, as the thread that enables it
/// must be the one that uses it.
pub(crate) fn new_ring() -> io::Result<Ring> {
    ring_for(1, &mut [Restriction::sqe_op(opcode::UringCmd80::CODE)])
}

/// The same, for the commands of `entries` entries, and to wait for a descriptor.
pub(crate) fn reserve_ring(entries: u32) -> io::Result<Ring> {
    let allowed = [opcode::UringCmd80::CODE, opcode::PollAdd::CODE];
    ring_for(entries, &mut allowed.map(Restriction::sqe_op))
}

fn ring_for(entries: u32, allowed: &mut [Restriction]) -> io::Result<Ring> {
    let mut builder = Ring::builder();
    builder
        .dontfork()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_r_disabled()
        .setup_cqsize(entries.next_power_of_two().clamp(2, MAX_COMPLETIONS));
    let ring = builder.build(entries.min(SUBMISSIONS))?;
    ring.submitter().register_restrictions(allowed)?;
    Ok(ring)
}

/// Submits the commands in the queue, and waits for `completions` of them. Tries again while the system is
/// short of memory: the caller could not take back a command that is left in the queue.
///
/// # Errors
/// Other system errors. The ring cannot be used any more.
pub(crate) fn enter(ring: &Ring, completions: usize) -> io::Result<()> {
    loop {
        let Err(error) = ring.submit_and_wait(completions) else {
            return Ok(());
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::ENOMEM) => std::thread::sleep(RETRY),
            _ => return Err(error),
        }
    }
}

/// Completes when the descriptor can be read.
pub(crate) fn readable(number: RawFd) -> squeue::Entry128 {
    let poll = opcode::PollAdd::new(types::Fd(number), libc::POLLIN as u32);
    poll.build().into()
}

/// A command that the kernel refuses, after which it uses `/dev/fuse`: the queue does not exist.
pub(crate) fn refused_command(connection: RawFd) -> squeue::Entry128 {
    command(connection, REGISTER, u16::MAX, 0, None)
}

/// A command of FUSE on a ring (`struct fuse_uring_cmd_req`).
pub(crate) fn command(
    connection: RawFd,
    operation: u32,
    queue: u16,
    commit_id: u64,
    iovecs: Option<*mut u8>,
) -> squeue::Entry128 {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
    let entry = opcode::UringCmd80::new(types::Fd(connection), operation)
        .cmd(bytes)
        .addr(iovecs.map(|iovecs| iovecs as u64));
    let mut entry = entry.build();
    if iovecs.is_some() {
        let words = (&raw mut entry).cast::<u32>().wrapping_add(SQE_LEN_AT);
        // SAFETY: `Entry128` is `struct io_uring_sqe`, whose field `len` is there; the crate has no setter.
        unsafe { words.write(2) };
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_layout_of_the_kernel() {
        let mut iovecs = [0_u8; 32];
        let at = iovecs.as_mut_ptr();
        let entry = command(7, REGISTER, 0x0102, 0x0304_0506_0708_090a, Some(at));
        // SAFETY: plain bytes, all initialised.
        let bytes: [u8; 128] = unsafe { std::mem::transmute(entry) };
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        // IORING_OP_URING_CMD, the descriptor, the command, address and number of the iovecs.
        assert_eq!((bytes[0], u32_at(4), u32_at(8)), (46, 7, REGISTER));
        assert_eq!((u64_at(16), u32_at(24)), (at as u64, 2));
        // The command's own bytes.
        assert_eq!((u64_at(48), u64_at(56)), (0, 0x0304_0506_0708_090a));
        assert_eq!(bytes[64..66], 0x0102_u16.to_ne_bytes());
        assert!(bytes[66..].iter().all(|byte| *byte == 0));
    }
}
