//! Many machines on one base in object storage, as processes with one server; and many processes with one
//! cache.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use throughline_testkit::objects::{Asked, Server};

use crate::common::{Image, good, noise, throughline, tools_are_missing};

const MIB: u64 = 1 << 20;
const FILES: u64 = 20;
const FILE_BYTES: usize = 1 << 20;

/// A base of 2 GiB with files, and its server.
fn served() -> (Image, Server) {
    let image = Image::new("2G", &["-t", "ext4"]);
    let host = image.sibling("files");
    fs::create_dir(&host).unwrap();
    for number in 0..FILES {
        let bytes = noise(FILE_BYTES, number);
        fs::write(host.join(format!("f{number}")), bytes).unwrap();
    }
    good(
        throughline()
            .args(["cp", "-r"])
            .arg(host)
            .arg(image.at("/")),
    );
    let server = Server::of(File::open(image.path()).unwrap());
    (image, server)
}

/// Requests for bytes, and the bytes, of each path.
fn asked_by_path(asked: Vec<Asked>) -> BTreeMap<String, (u64, u64)> {
    let mut found = BTreeMap::<String, (u64, u64)>::new();
    for one in asked {
        let (requests, bytes) = found.entry(one.path).or_default();
        *requests += 1;
        *bytes += one.range.map_or(0, |range| range.end - range.start);
    }
    found
}

/// Calls `work` for each number, with some threads.
fn for_each(count: usize, threads: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    work(number);
                }
            });
        }
    });
}

/// Each reads one file, writes one of its own to its overlay, and reads that again. The base stays as it is.
#[test]
fn many_clients_share_a_base() {
    let clients = throughline_testkit::tier::pick(30, 200, 200);
    if tools_are_missing() {
        return;
    }
    let (image, server) = served();
    let before = fs::metadata(image.path()).unwrap().modified().unwrap();
    let root = tempfile::tempdir().unwrap();
    for_each(clients, 8, |number| {
        let home = root.path().join(number.to_string());
        fs::create_dir(&home).unwrap();
        let own = noise(1000 + number, 1_000_000 + number as u64);
        fs::write(home.join("own"), &own).unwrap();
        let url = server.url_of(&format!("client-{number}"));
        let run = |arguments: &[&str]| {
            let mut command = throughline();
            let command = command.args(arguments).current_dir(&home);
            good(command.env("THROUGHLINE_CACHE", home.join("cache"))).stdout
        };
        let with = ["--overlay", "over.qcow2"];
        let file = number as u64 % FILES;
        let read = run(&["cat", with[0], with[1], &format!("{url}:/files/f{file}")]);
        assert!(read == noise(FILE_BYTES, file), "client {number}");
        run(&["cp", with[0], with[1], "own", &format!("{url}:/own")]);
        let read = run(&["cat", with[0], with[1], &format!("{url}:/own")]);
        assert!(read == own, "client {number}");
    });
    let asked = asked_by_path(server.take_asked());
    assert_eq!(asked.len(), clients);
    let most_requests = asked.values().map(|it| it.0).max().unwrap();
    let most_bytes = asked.values().map(|it| it.1).max().unwrap();
    eprintln!(
        "at most {most_requests} requests and {} MiB for a client",
        most_bytes / MIB
    );
    // Three commands find the object; what one of them has fetched, no other fetches again.
    assert!(most_requests <= 30, "{asked:?}");
    assert!(most_bytes <= 16 * MIB, "{asked:?}");
    assert_eq!(
        fs::metadata(image.path()).unwrap().modified().unwrap(),
        before
    );
}

/// How often each chunk was asked for.
fn times(asked: &[Asked]) -> HashMap<u64, u64> {
    let mut times = HashMap::new();
    for range in asked.iter().filter_map(|one| one.range.clone()) {
        for chunk in range.start / MIB..range.end.div_ceil(MIB) {
            *times.entry(chunk).or_default() += 1;
        }
    }
    times
}

/// Processes that begin at the same time fill one cache. Each gets the right bytes; none fetches a chunk
/// twice; afterwards, nothing is missing.
#[test]
fn processes_fill_one_cache_at_once() {
    const PROCESSES: u64 = 6;
    if tools_are_missing() {
        return;
    }
    let (image, server) = served();
    let cache = tempfile::tempdir().unwrap();
    let places: Vec<String> = (0..FILES)
        .map(|number| format!("{}:/files/f{number}", server.url()))
        .collect();
    let command = || {
        let mut command = throughline();
        command.arg("cat").args(&places);
        command.env("THROUGHLINE_CACHE", cache.path());
        command
    };
    let expected: Vec<u8> = (0..FILES)
        .flat_map(|number| noise(FILE_BYTES, number))
        .collect();
    for_each(PROCESSES as usize, PROCESSES as usize, |number| {
        assert!(good(&mut command()).stdout == expected, "process {number}");
    });
    let asked = server.take_asked();
    for (chunk, times) in times(&asked) {
        assert!(times <= PROCESSES, "chunk {chunk}: {times}");
    }
    assert!(good(&mut command()).stdout == expected);
    let again = server.take_asked();
    assert!(again.iter().all(|one| one.method == "HEAD"), "{again:?}");
    drop(image);
}

/// Whatever a killed process leaves of its chunks, nobody reads a wrong byte of it.
#[test]
fn a_killed_process_leaves_no_wrong_chunk() {
    if tools_are_missing() {
        return;
    }
    let (image, server) = served();
    let cache = tempfile::tempdir().unwrap();
    let place = |number: u64| format!("{}:/files/f{number}", server.url());
    let command = || -> Command {
        let mut command = throughline();
        command.arg("cat").args((0..FILES).map(place));
        command.env("THROUGHLINE_CACHE", cache.path());
        command
    };
    for kill in 0..12 {
        let mut child = command().stdout(Stdio::null()).spawn().unwrap();
        // After so many requests; the chunks of those before are on their way to the disk.
        while server.asked_count() < kill {
            if child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        server.take_asked();
        let number = kill as u64 % FILES;
        let mut read = throughline();
        read.args(["cat", &place(number)]);
        let read = good(read.env("THROUGHLINE_CACHE", cache.path()));
        assert!(
            read.stdout == noise(FILE_BYTES, number),
            "after kill {kill}"
        );
        server.take_asked();
    }
    let expected: Vec<u8> = (0..FILES)
        .flat_map(|number| noise(FILE_BYTES, number))
        .collect();
    assert!(good(&mut command()).stdout == expected);
    server.take_asked();
    assert!(good(&mut command()).stdout == expected);
    let again = server.take_asked();
    assert!(again.iter().all(|one| one.method == "HEAD"), "{again:?}");
    drop(image);
}
