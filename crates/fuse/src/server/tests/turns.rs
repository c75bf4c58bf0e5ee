//! Writes that wait for a turn while the kernel drops its pages.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use super::bytes::{self, op};
use super::harness::{Caller, DATA_BYTES, connection, mount, received, request};
use crate::channel::{Channel, Scratch};
use crate::service::Service;

/// `FUSE_WRITE_LOCKOWNER`.
const LOCK_OWNER: u32 = 1 << 1;

/// A connection with a full buffer: the server's next message waits until the kernel's end is read.
fn full_connection() -> (Arc<Channel>, UnixDatagram) {
    let (channel, kernel) = connection();
    channel.set_waits(false).expect("a channel");
    while channel.refuse(1, rustix::io::Errno::IO).is_ok() {}
    channel.set_waits(true).expect("a channel");
    (channel, kernel)
}

/// All turns are taken by writes that wait because the kernel is slow to drop its pages. One more write is
/// queued, its thread is free, and it is served as soon as one of the others is done.
#[test]
fn a_write_without_a_turn_is_served_later() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", &[0; 20_000]);
    let fh = mount.open(node, 2);
    mount.ask(op::READ, node, bytes::read(fh, 0, 4096)).ok();
    let server = &mount.server;
    let write = |channel: &Arc<Channel>, kernel: &UnixDatagram, number: u64| {
        let body = bytes::write_with(fh, number * 1000, LOCK_OWNER, 0, &[number as u8; 1000]);
        let bytes = request(op::WRITE, number, node, Caller::root(), body.as_ref());
        kernel.send(&bytes).expect("sent");
        let mut scratch = Scratch::new(DATA_BYTES);
        channel.receive(&mut scratch).expect("received");
        let channel = Arc::clone(channel);
        move || server.serve(&channel, &mut scratch).expect("served")
    };
    let slow: Vec<_> = (0..4).map(|_| full_connection()).collect();
    let (channel, kernel) = connection();
    std::thread::scope(|scope| {
        for (number, (channel, kernel)) in (10..).zip(&slow) {
            scope.spawn(write(channel, kernel, number));
        }
        // Until all turns are taken.
        while server.turns.free() > 0 {
            std::thread::yield_now();
        }
        write(&channel, &kernel, 14)();
        let (notices, reply) = received(&kernel, 14);
        assert!(
            notices.is_empty() && reply.is_none(),
            "answered without a turn"
        );
        // The kernel goes on. The first thread that is done serves the queued write.
        for (_, kernel) in &slow {
            kernel.set_nonblocking(true).expect("a socket");
            while kernel.recv(&mut [0; 4096]).is_ok() {}
        }
    });
    let (notices, reply) = received(&kernel, 14);
    assert_eq!(notices.len(), 1);
    assert_eq!(reply.expect("an answer").ok().u32(0), 1000);
    let data = mount.contents(node);
    for number in 10..15_u8 {
        let at = usize::from(number) * 1000;
        assert_eq!(data[at..at + 1000], [number; 1000]);
    }
}
