//! Processes that share a cache on disk fetch each chunk once. They do not wait for a process that was killed
//! or does not go on. The server counts.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use throughline_image::ReadAt;
use throughline_remote::{Object, Options};
use throughline_testkit::objects::{Fault, Server};

const CHUNK: u64 = 64 << 10;
const LEN: u64 = 48 * CHUNK + 1234;

/// Whatever a test waits for comes before this time is over.
const LIMIT: Duration = Duration::from_secs(60);

/// The object, its server and a cache.
struct Place {
    server: Server,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..LEN as u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
            .collect();
        let mut file = File::create_new(folder.path().join("content")).unwrap();
        file.write_all(&bytes).unwrap();
        let file = File::open(folder.path().join("content")).unwrap();
        let server = Server::of(file);
        Place { server, folder }
    }

    /// Begins to read the whole object in a process of its own, in calls of so many bytes.
    fn reader(&self, patience: Duration, call_bytes: u64) -> Reader {
        let this = std::env::current_exe().unwrap();
        let mut command = Command::new(this);
        command.args(["--exact", "together::reads_all", "--ignored", "--nocapture"]);
        command
            .env("TEST_URL", self.server.url())
            .env("TEST_FOLDER", self.folder.path())
            .env("TEST_PATIENCE_MS", patience.as_millis().to_string())
            .env("TEST_CALL_BYTES", call_bytes.to_string());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        Reader { child }
    }

    /// Returns when the server was asked for parts of the object so often.
    fn wait_for_gets(&self, count: usize) -> Vec<Range<u64>> {
        let begun = Instant::now();
        let mut gets = Vec::new();
        while gets.len() < count {
            assert!(begun.elapsed() < LIMIT, "{gets:?}");
            gets.extend(self.gets());
            std::thread::sleep(Duration::from_millis(2));
        }
        gets
    }

    /// The parts that were asked for since the last look.
    fn gets(&self) -> Vec<Range<u64>> {
        let asked = self.server.take_requests().into_iter();
        asked.filter_map(|(_, range)| range).collect()
    }
}

/// A process, which is killed if a test ends early.
struct Reader {
    child: Child,
}

impl Reader {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn assert_good(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "run by the tests below, in processes of its own"]
fn reads_all() {
    let setting = |name: &str| std::env::var(name).unwrap();
    let folder = setting("TEST_FOLDER");
    let mut options = Options::default();
    options.chunk_bytes = CHUNK as u32;
    options.request_bytes = 4 * CHUNK as u32;
    options.in_flight = 4;
    options.memory_bytes = 32 * CHUNK;
    options.cache = Some(Path::new(&folder).join("cache"));
    options.patience = Duration::from_millis(setting("TEST_PATIENCE_MS").parse().unwrap());
    let object = Object::open(&setting("TEST_URL").parse().unwrap(), &options).unwrap();
    let expected = fs::read(Path::new(&folder).join("content")).unwrap();
    let call: usize = setting("TEST_CALL_BYTES").parse().unwrap();
    let mut found = vec![0; expected.len()];
    for (number, part) in found.chunks_mut(call).enumerate() {
        object.read_exact_at(part, (number * call) as u64).unwrap();
    }
    assert!(found == expected);
}

/// Also those whose reads begin at other places, so that their requests overlap.
#[test]
fn processes_that_read_the_same_at_once_fetch_it_once() {
    let place = Place::new();
    place.server.delay(Duration::from_millis(50));
    let calls = [LEN, 3 * CHUNK, 5 * CHUNK + 77, LEN];
    let readers = calls.map(|call| place.reader(LIMIT, call));
    for reader in readers {
        reader.assert_good();
    }
    let gets = place.gets();
    let bytes: u64 = gets.iter().map(|range| range.end - range.start).sum();
    assert_eq!(bytes, LEN, "each chunk once: {gets:?}");
    // What nobody fetches is fetched, as ever, by few requests.
    assert!(gets.len() <= 49, "{gets:?}");
}

#[test]
fn who_waits_takes_over_from_a_process_that_is_killed() {
    let place = Place::new();
    place.server.fail_always(Some(Fault::Silent));
    let first = place.reader(LIMIT * 3, LEN);
    let of_first = place.wait_for_gets(4);
    let second = place.reader(LIMIT * 3, LEN);
    let begun = Instant::now();
    while place.server.asked_count() == 0 {
        assert!(begun.elapsed() < LIMIT, "the second one opens the object");
        std::thread::sleep(Duration::from_millis(2));
    }
    first.kill();
    place.server.fail_always(None);
    let begun = Instant::now();
    second.assert_good();
    // Much less than the time for which a process that lives is waited for.
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    let gets = place.gets();
    let bytes: u64 = gets.iter().map(|range| range.end - range.start).sum();
    assert!(bytes >= LEN, "{of_first:?} {gets:?}");
}

#[test]
fn nobody_waits_long_for_a_process_that_is_stopped() {
    let place = Place::new();
    place.server.fail_always(Some(Fault::Silent));
    let stopped = place.reader(LIMIT, LEN);
    place.wait_for_gets(4);
    stopped.signal(Signal::STOP);
    place.server.fail_always(None);
    // It waits for a third of this time, and once.
    place.reader(Duration::from_secs(6), LEN).assert_good();
    let bytes: u64 = place
        .gets()
        .iter()
        .map(|range| range.end - range.start)
        .sum();
    assert!(bytes >= LEN);
    stopped.signal(Signal::CONT);
    stopped.assert_good();
}
