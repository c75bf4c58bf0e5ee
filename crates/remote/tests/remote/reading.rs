//! Objects are read right, or not at all, whatever the server does; and are fetched once.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use throughline_image::ReadAt;
use throughline_remote::{Failure, Object, Options};
use throughline_testkit::objects::{Fault, Server};

const CHUNK: u64 = 64 << 10;

/// A file without two equal sectors, of a seed.
fn content(seed: u64, len: usize) -> (File, Vec<u8>) {
    let mut bytes = Vec::with_capacity(len);
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    while bytes.len() < len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 8).to_le_bytes());
    }
    bytes.truncate(len);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    (file, bytes)
}

/// A server of such a file.
fn served(seed: u64, len: usize) -> (Server, Vec<u8>) {
    let (file, bytes) = content(seed, len);
    (Server::of(file), bytes)
}

fn options(cache: Option<&Path>) -> Options {
    let mut options = Options::default();
    options.chunk_bytes = CHUNK as u32;
    options.request_bytes = 4 * CHUNK as u32;
    options.in_flight = 4;
    options.memory_bytes = 64 * CHUNK;
    options.cache = cache.map(Path::to_owned);
    options.patience = Duration::from_secs(1);
    options
}

fn open(server: &Server, options: &Options) -> io::Result<Object> {
    Object::open(&server.url().parse().unwrap(), options)
}

fn read(object: &Object, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    object.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

fn part(bytes: &[u8], range: Range<u64>) -> &[u8] {
    &bytes[range.start as usize..range.end as usize]
}

fn failure(error: &io::Error) -> &Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    inner.unwrap_or_else(|| panic!("not a failure of the object: {error:?}"))
}

#[test]
fn all_bytes_are_read_and_adjacent_chunks_are_fetched_together() {
    let len = 40 * CHUNK + 1234;
    let (server, bytes) = served(1, len as usize);
    let object = open(&server, &options(None)).unwrap();
    assert_eq!(object.len_bytes(), len);
    for range in [
        0..1,
        CHUNK - 1..CHUNK + 1,
        len - 1..len,
        5..5,
        3 * CHUNK + 7..30 * CHUNK + 9,
        0..len,
    ] {
        assert_eq!(
            read(&object, range.clone()).unwrap(),
            part(&bytes, range.clone()),
            "{range:?}"
        );
    }
    for range in [len..len + 1, len - 1..len + 1, u64::MAX - 1..u64::MAX] {
        let error = read(&object, range).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
    let requests = server.take_requests();
    assert_eq!(requests[0].0, "HEAD");
    let counters = object.counters();
    assert_eq!(
        (counters.chunks, counters.bytes),
        (41, len),
        "each chunk once"
    );
    assert_eq!(counters.requests as usize, requests.len() - 1);
    assert!(requests.len() <= 15, "{requests:?}");
}

#[test]
fn threads_that_read_the_same_fetch_it_once() {
    let len = 20 * CHUNK;
    let (server, bytes) = served(2, len as usize);
    let object = open(&server, &options(None)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert_eq!(read(&object, 0..len).unwrap(), bytes);
            });
        }
    });
    assert_eq!(object.counters().bytes, len);
}

#[test]
fn what_a_server_does_wrong_for_a_while_is_repeated() {
    let len = 16 * CHUNK;
    for fault in [
        Fault::Status(503),
        Fault::Status(500),
        Fault::Status(429),
        Fault::Closed,
        Fault::Cut,
        Fault::Short,
        Fault::Silent,
        Fault::Stalled,
        Fault::OtherRange,
    ] {
        let (server, bytes) = served(3, len as usize);
        let mut options = options(None);
        options.patience = Duration::from_secs(6);
        let object = open(&server, &options).unwrap();
        server.fail_next([fault, fault, fault]);
        assert_eq!(read(&object, 0..len).unwrap(), bytes, "{fault:?}");
        let failed = server.take_requests().len();
        assert!(failed >= 5, "{fault:?}: repeated, {failed}");
    }
}

#[test]
fn what_a_server_does_wrong_for_long_is_an_error_and_it_recovers() {
    if throughline_testkit::tier::is_too_long("waits between attempts") {
        return;
    }
    let len = 6 * CHUNK;
    let (server, bytes) = served(4, len as usize);
    let object = open(&server, &options(None)).unwrap();
    for fault in [
        Fault::Status(503),
        Fault::Closed,
        Fault::Cut,
        Fault::Short,
        Fault::Silent,
        Fault::Stalled,
        Fault::OtherRange,
        Fault::Whole,
        Fault::Status(401),
        Fault::Status(403),
        Fault::Status(404),
        Fault::Status(400),
    ] {
        let object = match fault {
            Fault::Status(503) => &object,
            _ => &open(&server, &options(None)).unwrap(),
        };
        server.fail_always(Some(fault));
        let error = read(object, 0..len).unwrap_err();
        let is_right = match (fault, failure(&error)) {
            (Fault::Status(401 | 403), Failure::Denied(_))
            | (Fault::Status(404), Failure::NotFound)
            | (Fault::Status(400), Failure::Refused(_))
            | (Fault::Whole, Failure::NoRanges) => true,
            (Fault::Status(401 | 403 | 404 | 400) | Fault::Whole, _) => false,
            (_, failure) => matches!(failure, Failure::Exhausted { .. }),
        };
        assert!(is_right, "{fault:?}: {error}");
        server.fail_always(None);
        assert_eq!(
            read(object, 0..len).unwrap(),
            bytes,
            "{fault:?}: it recovers"
        );
    }
}

#[test]
fn an_object_that_is_replaced_is_an_error_and_never_a_mixture() {
    let len = 8 * CHUNK;
    let time = |second: u32| format!("Fri, 27 Nov 2026 00:00:{second:02} GMT");
    for (before, after, conditions) in [
        ((Some("\"1\""), None), (Some("\"2\""), None), true),
        ((Some("\"1\""), None), (Some("\"2\""), None), false),
        ((Some("W/\"1\""), None), (Some("W/\"2\""), None), true),
        ((Some("\"1\""), None), (None, Some(time(9))), false),
        ((None, Some(time(1))), (None, Some(time(9))), false),
        (
            (Some("\"\""), Some(time(1))),
            (Some("\"\""), Some(time(9))),
            true,
        ),
    ] {
        let (old, bytes) = content(5, len as usize);
        let server = Server::of(tempfile::tempfile().unwrap());
        server.check_conditions(conditions);
        server.replace(old.try_clone().unwrap(), before.0, before.1.as_deref());
        let object = open(&server, &options(None)).unwrap();
        assert_eq!(read(&object, 0..10).unwrap(), part(&bytes, 0..10));
        server.replace(content(6, len as usize).0, after.0, after.1.as_deref());
        let error = read(&object, 4 * CHUNK..len).unwrap_err();
        assert!(matches!(failure(&error), Failure::Replaced(_)), "{error}");
        // What is here is of the old one, and stays so.
        assert_eq!(read(&object, 0..10).unwrap(), part(&bytes, 0..10));
        server.replace(old, before.0, before.1.as_deref());
        assert_eq!(read(&object, 0..len).unwrap(), bytes);
    }
    // Another length, with a server that gives the same ETag to all.
    let (old, _) = content(7, len as usize);
    let server = Server::of(old);
    let object = open(&server, &options(None)).unwrap();
    server.replace(content(7, len as usize - 1).0, Some("\"1\""), None);
    let error = read(&object, 0..10).unwrap_err();
    assert!(matches!(failure(&error), Failure::Replaced(_)), "{error}");
}

#[test]
fn what_cannot_be_pinned_is_refused() {
    let server = Server::of(tempfile::tempfile().unwrap());
    server.replace(content(8, 1000).0, None, None);
    let error = open(&server, &options(None)).unwrap_err();
    assert!(matches!(failure(&error), Failure::Unpinned), "{error}");
}

#[test]
fn a_second_open_fetches_nothing_again_and_torn_chunks_are_fetched() {
    let len = 12 * CHUNK + 99;
    let dir = tempfile::tempdir().unwrap();
    let (file, bytes) = content(9, len as usize);
    let server = Server::of(file.try_clone().unwrap());
    let options = options(Some(dir.path()));
    let object = open(&server, &options).unwrap();
    assert_eq!(read(&object, 0..len).unwrap(), bytes);
    drop(object);
    server.take_requests();

    let object = open(&server, &options).unwrap();
    assert_eq!(read(&object, 0..len).unwrap(), bytes);
    let requests = server.take_requests();
    assert_eq!(requests.len(), 1, "the one that pins it: {requests:?}");
    drop(object);

    // A power cut left one without its end, and one with zeros.
    let mut chunks = Vec::new();
    for object in std::fs::read_dir(dir.path().join("objects"))
        .unwrap()
        .flatten()
    {
        if object.file_type().unwrap().is_dir() {
            let files = std::fs::read_dir(object.path()).unwrap();
            chunks.extend(files.map(|file| file.unwrap().path()));
        }
    }
    chunks.sort();
    assert_eq!(chunks.len(), 13);
    File::options()
        .write(true)
        .open(&chunks[2])
        .unwrap()
        .set_len(1000)
        .unwrap();
    let mut zeroed = std::fs::read(&chunks[5]).unwrap();
    zeroed[4096..8192].fill(0);
    std::fs::write(&chunks[5], zeroed).unwrap();
    let object = open(&server, &options).unwrap();
    assert_eq!(read(&object, 0..len).unwrap(), bytes);
    assert_eq!(object.counters().chunks, 2);
    drop(object);

    // Another version has a cache of its own.
    let (other, other_bytes) = content(10, len as usize);
    server.replace(other, Some("\"2\""), None);
    let object = open(&server, &options).unwrap();
    assert_eq!(read(&object, 0..len).unwrap(), other_bytes);
}

#[test]
fn an_object_is_opened_and_dropped_inside_of_another_runtime() {
    let (server, bytes) = served(11, 5000);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let object = Arc::new(open(&server, &options(None)).unwrap());
        assert_eq!(read(&object, 0..5000).unwrap(), bytes);
    });
}

#[test]
fn dropping_gives_up_requests_in_flight() {
    let (server, _) = served(12, 40 * CHUNK as usize);
    let mut options = options(None);
    options.patience = Duration::from_secs(600);
    let object = open(&server, &options).unwrap();
    server.fail_always(Some(Fault::Silent));
    object.begin(0, 40 * CHUNK);
    drop(object);
}

#[test]
fn credentials_are_in_no_error() {
    let (server, _) = served(13, 5000);
    let url = format!(
        "{}?sig=SECRET",
        server.url().replace("http://", "http://user:SECRET@")
    );
    let mut options = options(None);
    options.patience = Duration::from_millis(300);
    let object = Object::open(&url.parse().unwrap(), &options).unwrap();
    for fault in [
        Fault::Closed,
        Fault::Status(400),
        Fault::Status(403),
        Fault::Status(503),
    ] {
        server.fail_always(Some(fault));
        let error = read(&object, 0..10).unwrap_err();
        let text = format!("{error} {error:?} {object:?}");
        assert!(!text.contains("SECRET"), "{text}");
    }
}
