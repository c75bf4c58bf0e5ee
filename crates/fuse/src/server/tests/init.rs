//! INIT as bytes, and a whole session on a socket in place of `/dev/fuse`.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use throughline::{OpenOptions, Volume};

use super::bytes::{self, Bytes, op};
use super::device::{Faulty, Kind};
use super::harness::{Body, Caller, request};
use crate::nodes::ROOT_NODEID;
use crate::options::{Choices, MountOptions};
use crate::session::{MountError, Session};

const ASYNC_READ: u64 = 1 << 0;
const ATOMIC_O_TRUNC: u64 = 1 << 3;
const EXPORT: u64 = 1 << 4;
const DONT_MASK: u64 = 1 << 6;
const DO_READDIRPLUS: u64 = 1 << 13;
const ASYNC_DIO: u64 = 1 << 15;
const WRITEBACK_CACHE: u64 = 1 << 16;
const POSIX_ACL: u64 = 1 << 20;
const MAX_PAGES: u64 = 1 << 22;
const SETXATTR_EXT: u64 = 1 << 29;
const INIT_EXT: u64 = 1 << 30;
const OVER_IO_URING: u64 = 1 << 41;

/// `struct fuse_init_in` of protocol 7.`minor`.
fn init(major: u32, minor: u32, flags: u64) -> Bytes {
    let head = Bytes::new().u32(major).u32(minor).u32(128 << 10);
    let all = head.u32(flags as u32).u32((flags >> 32) as u32);
    all.raw(&[0; 44])
}

/// The kernel's end of a connection; it waits for replies.
struct Kernel {
    end: UnixDatagram,
    /// The server's end, to shut it down.
    ours: UnixDatagram,
}

impl Kernel {
    fn send(&self, op: u32, unique: u64, nodeid: u64, body: &Bytes) {
        let bytes = request(op, unique, nodeid, Caller::root(), body.as_ref());
        self.end.send(&bytes).expect("sent");
    }

    /// The reply to a request: its error and body.
    fn answer(&self, unique: u64) -> (i32, Body) {
        let mut buf = vec![0; 70_000];
        let len = self.end.recv(&mut buf).expect("an answer");
        buf.truncate(len);
        let all = Body(buf);
        assert_eq!((all.u32(0) as usize, all.u64(8)), (len, unique));
        (all.u32(4).cast_signed(), Body(all[16..].to_vec()))
    }
}

/// A session that begins with these messages already queued.
fn session(
    options: &MountOptions,
    device: Faulty,
    messages: &[(u32, Bytes)],
) -> (Result<Session, MountError>, Kernel) {
    let mut open = OpenOptions::new();
    let volume = open.write(true).open_device(device).expect("a volume");
    let (end, ours) = UnixDatagram::pair().expect("a pair of sockets");
    let kernel = Kernel {
        end,
        ours: ours.try_clone().expect("a socket"),
    };
    for (unique, (number, body)) in (2..).zip(messages) {
        kernel.send(*number, unique, 0, body);
    }
    let session = Session::of_connection(volume, ours.into(), Path::new("image"), options);
    (session, kernel)
}

/// The flags in the reply to INIT.
fn agreed(answer: &Body) -> u64 {
    u64::from(answer.u32(12)) | u64::from(answer.u32(32)) << 32
}

#[test]
fn offered_and_chosen_flags_are_accepted() {
    let offered = ASYNC_READ
        | ATOMIC_O_TRUNC
        | EXPORT
        | DONT_MASK
        | DO_READDIRPLUS
        | ASYNC_DIO
        | WRITEBACK_CACHE
        | POSIX_ACL
        | MAX_PAGES
        | SETXATTR_EXT
        | INIT_EXT;
    let plain = MountOptions::default();
    let no_acl = MountOptions {
        acl: false,
        ..plain.clone()
    };
    let read_only = MountOptions {
        read_only: true,
        ..plain.clone()
    };
    let delayed = MountOptions {
        choices: Choices {
            writeback_cache: true,
            readdirplus: false,
            ..Choices::default()
        },
        ..plain.clone()
    };
    let usual = ATOMIC_O_TRUNC | EXPORT | DO_READDIRPLUS | MAX_PAGES | SETXATTR_EXT;
    let acl = DONT_MASK | POSIX_ACL;
    for (options, wanted) in [
        (plain, usual | acl),
        (no_acl, usual),
        (read_only, (usual | acl | ASYNC_DIO) & !ATOMIC_O_TRUNC),
        (delayed, (usual | acl | WRITEBACK_CACHE) & !DO_READDIRPLUS),
    ] {
        let Some(device) = Faulty::new(Kind::Ext4) else {
            return;
        };
        let hello = (op::INIT, init(7, 40, offered));
        let (session, kernel) = session(&options, device, &[hello]);
        let session = session.expect("a session");
        let (error, answer) = kernel.answer(2);
        assert_eq!((error, answer.len(), answer.u32(0)), (0, 64, 7));
        assert_eq!(agreed(&answer) & !INIT_EXT & !ASYNC_READ, wanted);
        let (background, max_write) = (answer.u16(16), answer.u32(20));
        assert_eq!(background, 64);
        assert!((1 << 20..=2 << 20).contains(&max_write), "{max_write}");
        // `max_pages` covers `max_write`.
        assert_eq!(u32::from(answer.u16(28)) * 4096, max_write);
        drop(session);
    }
}

#[test]
fn a_kernel_without_optional_features_is_served() {
    let Some(device) = Faulty::new(Kind::Ext4) else {
        return;
    };
    let hello = (op::INIT, init(7, 31, 0));
    let (session, kernel) = session(&MountOptions::default(), device.clone(), &[hello]);
    let session = session.expect("a session");
    let (error, answer) = kernel.answer(2);
    assert_eq!((error, agreed(&answer)), (0, 0));
    std::thread::scope(|scope| {
        let served = scope.spawn(|| session.run());
        // Linux before 5.13 sends the short form.
        let set = bytes::setxattr_short("user.a", b"value", 0);
        kernel.send(op::SETXATTR, 4, ROOT_NODEID, &set);
        assert_eq!(kernel.answer(4).0, 0);
        kernel.send(op::GETXATTR, 6, ROOT_NODEID, &bytes::getxattr("user.a", 10));
        assert_eq!(*kernel.answer(6).1, *b"value");
        kernel.ours.shutdown(Shutdown::Read).expect("the end");
        let served = served.join().expect("no panic");
        served.expect("a clean end");
    });
}

#[test]
fn a_session_serves_until_the_connection_ends_and_closes_the_volume() {
    let Some(device) = Faulty::new(Kind::Ext4) else {
        return;
    };
    let hello = (op::INIT, init(7, 40, SETXATTR_EXT | INIT_EXT));
    let (session, kernel) = session(&MountOptions::default(), device.clone(), &[hello]);
    let session = session.expect("a session");
    assert_eq!(kernel.answer(2).0, 0);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| session.run());
        let create = bytes::create(2, 0o100_644, "file");
        kernel.send(op::CREATE, 4, ROOT_NODEID, &create);
        let (error, made) = kernel.answer(4);
        assert_eq!(error, 0);
        let write = bytes::write(made.u64(128), 0, b"data");
        kernel.send(op::WRITE, 6, made.u64(0), &write);
        assert_eq!(kernel.answer(6).1.u32(0), 4);
        // A message that is not a request is dropped, and the next one is served.
        kernel.end.send(b"noise").expect("sent");
        kernel.send(op::GETATTR, 8, made.u64(0), &bytes::getattr(None));
        assert_eq!(kernel.answer(8).1.attr().size, 4);
        kernel.ours.shutdown(Shutdown::Read).expect("the end");
        served.join().expect("no panic").expect("a clean end");
    });
    let volume = Volume::in_memory(device.to_vec()).expect("a clean volume");
    assert_eq!(volume.read("/file").expect("the file"), b"data");
}

/// The kernel agrees on io_uring, but then accepts no entry of a ring.
#[test]
fn a_session_whose_rings_are_refused_is_served_through_the_descriptor() {
    let choices = Choices {
        io_uring: true,
        ..Choices::default()
    };
    let options = MountOptions {
        choices,
        ..MountOptions::default()
    };
    for offered in [0, OVER_IO_URING] {
        let Some(device) = Faulty::new(Kind::Ext4) else {
            return;
        };
        let hello = (op::INIT, init(7, 42, offered | INIT_EXT));
        let (session, kernel) = session(&options, device, &[hello]);
        let session = session.expect("a session");
        let (error, answer) = kernel.answer(2);
        assert_eq!(error, 0);
        // The server does not offer io_uring where this process may not use it.
        assert!([0, offered].contains(&(agreed(&answer) & OVER_IO_URING)));
        std::thread::scope(|scope| {
            let served = scope.spawn(|| session.run());
            let ask = bytes::getxattr("throughline.status", 10_000);
            kernel.send(op::GETXATTR, 4, ROOT_NODEID, &ask);
            let (error, status) = kernel.answer(4);
            assert_eq!(error, 0);
            let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
            assert_eq!(status["transport"]["kind"], "/dev/fuse");
            kernel.ours.shutdown(Shutdown::Read).expect("the end");
            served.join().expect("no panic").expect("a clean end");
        });
    }
}

#[test]
fn a_volume_that_cannot_be_closed_is_an_error_of_the_session() {
    let Some(device) = Faulty::new(Kind::Ext4) else {
        return;
    };
    let hello = (op::INIT, init(7, 40, 0));
    let (session, kernel) = session(&MountOptions::default(), device.clone(), &[hello]);
    let session = session.expect("a session");
    assert_eq!(kernel.answer(2).0, 0);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| session.run());
        kernel.send(op::MKDIR, 4, ROOT_NODEID, &bytes::mkdir(0o755, "dir"));
        assert_eq!(kernel.answer(4).0, 0);
        device.fail_writes(true);
        kernel.ours.shutdown(Shutdown::Read).expect("the end");
        let served = served.join().expect("no panic");
        assert!(matches!(served, Err(MountError::Close(_))), "{served:?}");
    });
}

#[test]
fn a_newer_protocol_is_negotiated_down() {
    let Some(device) = Faulty::new(Kind::Ext4) else {
        return;
    };
    let hellos = [(op::INIT, init(8, 0, 0)), (op::INIT, init(7, 40, 0))];
    let (session, kernel) = session(&MountOptions::default(), device, &hellos);
    assert!(session.is_ok());
    let (error, version) = kernel.answer(2);
    assert_eq!((error, version.u32(0)), (0, 7));
    let (error, answer) = kernel.answer(3);
    assert_eq!((error, answer.len()), (0, 64));
}

#[test]
fn without_a_common_protocol_the_mount_fails() {
    for (hello, answered) in [
        ((op::INIT, init(7, 5, 0)), true),
        ((op::INIT, init(6, 40, 0)), true),
        ((op::INIT, Bytes::new().u32(7)), false),
        ((op::GETATTR, bytes::getattr(None)), true),
    ] {
        let Some(device) = Faulty::new(Kind::Ext4) else {
            return;
        };
        let before = device.to_vec();
        let options = MountOptions::default();
        let (session, kernel) = session(&options, device.clone(), &[hello]);
        let refused = session.err().expect("no session");
        assert!(matches!(refused, MountError::Mount(_)), "{refused}");
        if answered {
            let (error, body) = kernel.answer(2);
            assert!(error < 0 && body.is_empty(), "{error}");
        }
        kernel.end.set_nonblocking(true).expect("a socket");
        let more = kernel.end.recv(&mut [0; 100]).expect_err("nothing more");
        assert_ne!(more.kind(), io::ErrorKind::Interrupted);
        let volume = Volume::in_memory(device.to_vec());
        assert!(volume.is_ok(), "left unclean");
        assert_eq!(before.len(), device.to_vec().len());
    }
}
