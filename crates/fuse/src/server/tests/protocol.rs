//! Malformed requests: unknown, truncated, with an unterminated name.

use rustix::io::Errno;

use super::bytes::{self, Bytes, op};
use super::harness::{Caller, DATA_BYTES, mount, received, request};
use crate::nodes::ROOT_NODEID;
use crate::service::Service;

/// The requests that the server supports, by number.
const SUPPORTED: &[u32] = &[
    1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 27, 28, 29,
    30, 35, 37, 38, 39, 42, 43, 44, 45, 46, 47, 50, 51, 52,
];

/// The requests whose body begins with a structure, and its size in bytes.
const STRUCTURES: &[(u32, usize)] = &[
    (op::GETATTR, 16),
    (op::SETATTR, 88),
    (op::MKNOD, 16),
    (op::MKDIR, 8),
    (op::RENAME, 8),
    (op::LINK, 8),
    (op::OPEN, 8),
    (op::READ, 40),
    (op::WRITE, 40),
    (op::RELEASE, 24),
    (op::FSYNC, 16),
    (op::SETXATTR, 16),
    (op::GETXATTR, 8),
    (op::LISTXATTR, 8),
    (op::READDIR, 40),
    (op::READDIRPLUS, 40),
    (op::FSYNCDIR, 16),
    (op::CREATE, 16),
    (op::BMAP, 16),
    (op::IOCTL, 32),
    (op::FALLOCATE, 32),
    (op::RENAME2, 16),
    (op::LSEEK, 24),
    (op::COPY_FILE_RANGE, 56),
    (op::TMPFILE, 16),
    (op::STATX, 24),
];

#[test]
fn unknown_requests_are_enosys() {
    let Some(mount) = mount() else { return };
    let all = (0..=100).chain([4096, u32::MAX]);
    for number in all.filter(|number| !SUPPORTED.contains(number)) {
        let reply = mount.ask_root(number, Bytes::new().raw(&[0; 64]));
        reply.fails(Errno::NOSYS);
    }
    // These are known, whatever the error for an empty body is.
    for number in SUPPORTED {
        if !matches!(*number, op::FORGET | op::BATCH_FORGET | op::FLUSH) {
            let reply = mount.ask(*number, 999, []);
            let unknown = reply.clone();
            assert!(
                reply.is_ok() || !unknown.is_errno(Errno::NOSYS) || *number == op::OPENDIR,
                "request {number} is unknown"
            );
        }
    }
}

#[test]
fn a_truncated_body_is_invalid() {
    let Some(mount) = mount() else { return };
    let before = mount.device.to_vec();
    for (number, size) in STRUCTURES {
        for len in [0, 1, size - 1] {
            let body = vec![0; len];
            mount.ask_root(*number, body).fails(Errno::INVAL);
        }
    }
    assert_eq!((mount.known(), mount.handles()), (0, 0));
    mount.server.volume.sync().expect("a sync");
    assert_eq!(mount.device.to_vec().len(), before.len());
    assert_eq!(mount.names(), ["lost+found"]);
}

#[test]
fn a_truncated_forget_gets_no_reply() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    for len in [0, 1, 7] {
        mount.send_unanswered(op::FORGET, node, vec![0xff; len]);
        mount.send_unanswered(op::BATCH_FORGET, 0, vec![0xff; len]);
    }
    assert_eq!(mount.known(), 1);
}

#[test]
fn an_unterminated_name_is_invalid() {
    let Some(mount) = mount() else { return };
    mount.file("file");
    let size = |number| STRUCTURES.iter().find(|(op, _)| *op == number);
    let bare = |number| Bytes::new().raw(&vec![0; size(number).map_or(0, |(_, size)| *size)]);
    let whole: &[(u32, Bytes)] = &[
        (op::LOOKUP, bytes::named("file")),
        (op::UNLINK, bytes::named("file")),
        (op::RMDIR, bytes::named("file")),
        (op::REMOVEXATTR, bytes::named("user.a")),
        (op::SYMLINK, bytes::named("link")),
        (op::SYMLINK, bytes::symlink("link", "target")),
        (op::MKNOD, bare(op::MKNOD).name("node")),
        (op::MKDIR, bare(op::MKDIR).name("dir")),
        (op::CREATE, bare(op::CREATE).name("new")),
        (op::LINK, bare(op::LINK).name("other")),
        (op::RENAME, bare(op::RENAME).name("file")),
        (op::RENAME, bytes::rename("file", ROOT_NODEID, "other")),
        (op::RENAME2, bare(op::RENAME2).name("file")),
        (op::RENAME2, bytes::rename2(0, "file", ROOT_NODEID, "other")),
        (op::SETXATTR, bare(op::SETXATTR).name("user.a")),
        (op::GETXATTR, bare(op::GETXATTR).name("user.a")),
    ];
    for (number, body) in whole {
        let cut = body.clone().cut(body.len() - 1);
        mount.ask_root(*number, cut).fails(Errno::INVAL);
    }
    assert_eq!(mount.names(), ["file", "lost+found"]);
    assert_eq!(mount.known(), 1);
}

#[test]
fn truncated_data_is_invalid() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let fh = mount.open(node, 2);
    let cut = |body: Bytes| {
        let len = body.len();
        body.cut(len - 1)
    };
    let write = cut(bytes::write(fh, 0, b"data"));
    mount.ask(op::WRITE, node, write).fails(Errno::INVAL);
    let set = cut(bytes::setxattr("user.a", b"value", 0, 0));
    mount.ask(op::SETXATTR, node, set).fails(Errno::INVAL);
    assert_eq!(mount.attr(node).size, 0);
    let names = mount.ask(op::LISTXATTR, node, bytes::listxattr(100)).ok();
    assert!(names.is_empty());
}

#[test]
fn a_request_for_more_data_than_fits_is_invalid() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", b"data");
    let fh = mount.open(node, 0);
    for size in [DATA_BYTES as u32 + 1, u32::MAX] {
        let ask = || bytes::read(fh, 0, size);
        mount.ask(op::READ, node, ask()).fails(Errno::INVAL);
        mount.ask_root(op::READDIR, ask()).fails(Errno::INVAL);
        mount.ask_root(op::READDIRPLUS, ask()).fails(Errno::INVAL);
    }
    let whole = bytes::read(fh, 0, DATA_BYTES as u32);
    assert_eq!(*mount.ask(op::READ, node, whole).ok(), *b"data");
}

#[test]
fn bytes_that_are_not_a_request_are_an_error_of_the_connection() {
    let Some(mount) = mount() else { return };
    let good = request(op::STATFS, 8, ROOT_NODEID, Caller::root(), &[]);
    let mut long = good.clone();
    long[0] += 1;
    for bytes in [
        &good[..39],
        &good[..1],
        &long[..],
        &[good.clone(), good.clone()].concat(),
    ] {
        assert!(mount.serve_bytes(bytes).is_err());
        let (notices, reply) = received(&mount.kernel, 8);
        assert!(notices.is_empty() && reply.is_none());
    }
    mount.serve_bytes(&good).expect("served");
    assert!(received(&mount.kernel, 8).1.is_some());
}

#[test]
fn extensions_after_the_body_are_not_part_of_it() {
    let Some(mount) = mount() else { return };
    let ask = |body: &Bytes, units: u16| {
        let mut bytes = request(op::MKDIR, 8, ROOT_NODEID, Caller::root(), body.as_ref());
        bytes[36..38].copy_from_slice(&units.to_ne_bytes());
        mount.serve_bytes(&bytes).expect("served");
        received(&mount.kernel, 8).1.expect("an answer")
    };
    let extended = bytes::mkdir(0o700, "dir").raw(&[b'x'; 16]);
    assert_eq!(ask(&extended, 2).ok().attr().mode, 0o040_700);
    // With more extensions than bytes, the body is empty.
    ask(&extended, 100).fails(Errno::INVAL);
    assert_eq!(mount.names(), ["dir", "lost+found"]);
}

#[test]
fn a_reply_that_cannot_be_sent_is_an_error() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let ours = std::sync::Arc::clone(&mount.channel);
    let server = mount.server;
    let mut scratch = crate::channel::Scratch::new(DATA_BYTES);
    let mut serve = |op, nodeid, body: Bytes| {
        let bytes = request(op, 8, nodeid, Caller::root(), body.as_ref());
        mount.kernel.send(&bytes).expect("sent");
        ours.receive(&mut scratch).expect("received");
        let full = std::fs::File::open("/dev/null").expect("/dev/null");
        // It is open for reading only, so each write to it fails.
        let broken = crate::channel::Channel::new(full.into());
        server.serve(&std::sync::Arc::new(broken), &mut scratch)
    };
    assert!(serve(op::STATFS, ROOT_NODEID, Bytes::new()).is_err());
    assert!(serve(op::LOOKUP, 999, bytes::named("a")).is_err());
    assert!(serve(op::READDIR, ROOT_NODEID, bytes::read(0, 0, 4096)).is_err());
    // The notification comes first, and its failure is already an error.
    assert!(
        serve(
            op::IOCTL,
            node,
            bytes::ioctl(0x4008_6602, &0x40_u32.to_ne_bytes())
        )
        .is_err()
    );
    assert!(serve(op::FORGET, node, Bytes::new().u64(1)).is_ok());
    server.end();
}
