//! A fixed script, run with the n-th I/O failing, for every n and every kind of failure. Nothing panics,
//! `e2fsck -fy` can repair what it finds, everything synced before survives, and a volume closed with `Ok` is
//! consistent.
//!
//! Without `THROUGHLINE_SOAK=1`, the rarer kinds of failure are tried on part of the requests; in the quick
//! tier, all kinds.

use crate::oracle;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oracle::image::{Scratch, Shape, bytes_of, load, shape_of, tools};
use oracle::subject::VolumeSubject;
use throughline_device::{BlockDevice, Op};
use throughline_testing::model::{
    Answer, FallocateMode, Form, Handle, Refusal, RenameMode, Subject,
};
use throughline_testing::{Fault, FaultDevice};
use throughline_testkit::tier;

/// The shapes that the countdown runs on.
const NAMES: &[&str] = &[
    "ext2 1k",
    "ext3 1k",
    "ext4 1k",
    "inline_data 1k",
    "quota",
    "bigalloc 1k in 4k",
    "casefold",
    "encrypt, verity",
    "journal outside",
];
/// MiB of the images: small, since every run has its own, but large enough for a backup superblock, which is
/// needed after a torn write of the superblock.
const MIB: u64 = 10;

/// The content of a file or link, as far as the results tell.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    Content(Vec<u8>),
    /// An operation on it failed: its content is undefined.
    Unknown,
}

/// The script's record of what it did.
#[derive(Default)]
struct Progress {
    files: BTreeMap<Vec<u8>, Held>,
    /// The state at the last successful sync, for the directory that is not modified afterwards.
    durable: BTreeMap<Vec<u8>, Held>,
    failures: u32,
    closed: bool,
}

impl Progress {
    /// Records the result of an operation on `paths`, which on success leads to `held`.
    fn note(&mut self, answer: Answer<()>, paths: &[&str], held: Option<Vec<u8>>) {
        let ok = answer.is_ok();
        self.failures += u32::from(!ok);
        for path in paths {
            let path = path.as_bytes().to_vec();
            match (&held, ok) {
                (Some(content), true) => self.files.insert(path, Held::Content(content.clone())),
                (None, true) => self.files.remove(&path),
                (_, false) => self.files.insert(path, Held::Unknown),
            };
        }
    }

    fn held(&self, path: &str) -> Option<Vec<u8>> {
        match self.files.get(path.as_bytes()) {
            Some(Held::Content(content)) => Some(content.clone()),
            _ => None,
        }
    }
}

fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 31 + seed * 17 + at / 251) as u8 | 1)
        .collect()
}

/// Creates a file and writes it.
fn put(subject: &mut dyn Subject, progress: &mut Progress, path: &str, data: &[u8]) {
    let answer = subject.create(path.as_bytes(), 0o644);
    progress.note(answer, &[path], Some(Vec::new()));
    overwrite(subject, progress, path, data);
}

/// Overwrites a file from its start.
fn overwrite(subject: &mut dyn Subject, progress: &mut Progress, path: &str, data: &[u8]) {
    let Some(mut expected) = progress.held(path) else {
        return;
    };
    let answer = subject
        .write(path.as_bytes(), Handle::Direct, Form::Plain, 0, data)
        .and_then(|n| match n == data.len() || data.is_empty() {
            true => Ok(()),
            false => Err(Refusal::NoSpace),
        });
    if expected.len() < data.len() {
        expected.resize(data.len(), 0);
    }
    expected[..data.len()].copy_from_slice(data);
    progress.note(answer, &[path], Some(expected));
}

fn first_part(subject: &mut dyn Subject, progress: &mut Progress) {
    let answer = subject.mkdir(b"/a", 0o755);
    progress.failures += u32::from(answer.is_err());
    for (index, len) in [0, 40, 100, 5000, 70_000, 300_000].into_iter().enumerate() {
        put(
            subject,
            progress,
            &format!("/a/file{index}"),
            &content(index, len),
        );
    }
    let target = content(9, 200);
    progress.note(
        subject.symlink(b"/a/link", &target),
        &["/a/link"],
        Some(target),
    );
    if let Some(linked) = progress.held("/a/file3") {
        progress.note(
            subject.link(b"/a/file3", b"/a/name"),
            &["/a/name"],
            Some(linked),
        );
    }
    match subject.sync() {
        Ok(()) => progress.durable = progress.files.clone(),
        Err(_) => progress.failures += 1,
    }
}

fn second_part(subject: &mut dyn Subject, progress: &mut Progress) {
    let answer = subject.mkdir(b"/b", 0o755);
    progress.failures += u32::from(answer.is_err());
    let name = |index: usize| format!("/b/{index}-{}", "x".repeat(180));
    for index in 0..24 {
        put(
            subject,
            progress,
            &name(index),
            &content(index, index * 700),
        );
    }
    for index in (0..24).step_by(3) {
        progress.note(
            subject.unlink(name(index).as_bytes()),
            &[&name(index)],
            None,
        );
    }
    for index in (1..24).step_by(6) {
        if let Some(mut content) = progress.held(&name(index)) {
            content.truncate(333);
            progress.note(
                subject.truncate(name(index).as_bytes(), 333),
                &[&name(index)],
                Some(content),
            );
        }
    }
    let (from, to) = (name(5), "/b/renamed");
    if let Some(content) = progress.held(&from) {
        let answer = subject.rename(from.as_bytes(), to.as_bytes(), RenameMode::Replace);
        match answer {
            Ok(()) => {
                progress.note(Ok(()), &[&from], None);
                progress.note(Ok(()), &[to], Some(content));
            }
            Err(refusal) => progress.note(Err(refusal), &[&from, to], None),
        }
    }
    overwrite(subject, progress, &name(8), &content(77, 20_000));
    if let Some(expected) = progress.held(&name(11)) {
        let answer = subject.fallocate(name(11).as_bytes(), FallocateMode::KeepSize, 0, 60_000);
        if answer != Err(Refusal::Unsupported) {
            progress.note(answer, &[&name(11)], Some(expected));
        }
    }
    progress.failures += u32::from(subject.sync().is_err());
    progress.failures += u32::from(subject.mkdir(b"/b/deep", 0o700).is_err());
    progress.failures += u32::from(
        subject
            .rename(b"/b/deep", b"/moved", RenameMode::Replace)
            .is_err(),
    );
    progress.failures += u32::from(subject.rmdir(b"/moved").is_err());
}

/// The whole script, from opening to closing.
fn script(device: Arc<dyn BlockDevice>) -> Progress {
    let mut progress = Progress::default();
    match VolumeSubject::open(device) {
        Ok(mut subject) => {
            first_part(&mut subject, &mut progress);
            second_part(&mut subject, &mut progress);
            progress.closed = subject.close().is_ok();
            progress.failures += u32::from(!progress.closed);
        }
        Err(_) => progress.failures += 1,
    }
    progress
}

/// Checks that every file of `files` with known content is there with it.
fn compare(device: Arc<dyn BlockDevice>, files: &BTreeMap<Vec<u8>, Held>) -> Result<(), String> {
    let mut subject =
        VolumeSubject::open(device).map_err(|refusal| format!("open: {refusal:?}"))?;
    for (path, held) in files {
        let Held::Content(expected) = held else {
            continue;
        };
        let name = path.escape_ascii();
        let found = if path.ends_with(b"link") {
            subject
                .read_link(path)
                .map_err(|refusal| format!("{name}: {refusal:?}"))?
        } else {
            let mut bytes = vec![0; expected.len() + 1];
            let n = subject
                .read(path, Handle::Direct, 0, &mut bytes)
                .map_err(|refusal| format!("{name}: {refusal:?}"))?;
            bytes.truncate(n);
            bytes
        };
        if &found != expected {
            return Err(format!(
                "{name} reads as {} bytes, not as the {} bytes expected",
                found.len(),
                expected.len()
            ));
        }
    }
    subject
        .close()
        .map_err(|refusal| format!("close: {refusal:?}"))
}

/// One run with one fault; returns whether a failure was reported.
fn run(image: &[u8], fault: Fault, scratch: &Scratch) -> Result<bool, String> {
    let below = load(image);
    let device = Arc::new(FaultDevice::new(Arc::clone(&below), fault).logged());
    let progress = script(Arc::clone(&device) as Arc<dyn BlockDevice>);
    let seen = progress.failures > 0;
    // A failed read may have been retried or unnecessary. The loss of a failed write or flush must be
    // reported.
    let lost = device
        .take_log()
        .into_iter()
        .find(|one| one.failed && matches!(one.op, Op::Write | Op::Flush));
    if let (Some(lost), false) = (lost, seen) {
        return Err(format!("{lost:?} failed, and every call succeeded"));
    }
    if progress.closed {
        let named = |what: String| format!("closed, {} failures: {what}", progress.failures);
        scratch.check(&*below).map_err(named)?;
        return compare(below, &progress.files)
            .map(|()| seen)
            .map_err(named);
    }
    let (code, output) = scratch.e2fsck(&*below, &["-fy"]);
    if !(0..=1).contains(&code) {
        return Err(format!("e2fsck -fy exited with {code}: {output}"));
    }
    let repaired = scratch.repaired();
    scratch
        .check(&*repaired)
        .map_err(|what| format!("after e2fsck -fy ({output}): {what}"))?;
    compare(repaired, &progress.durable)
        .map(|()| seen)
        .map_err(|what| format!("synced, and after e2fsck -fy ({output}): {what}"))
}

/// The faults to try on a script of `requests` requests.
fn faults(requests: u64) -> Vec<Fault> {
    let every = |step: usize| (0..requests).step_by(tier::pick(5 * step, step, 1));
    let mut faults: Vec<Fault> = every(1).map(Fault::Once).collect();
    faults.extend(every(2).map(Fault::From));
    faults.extend(every(3).map(Fault::Torn));
    faults.extend(every(7).map(Fault::AfterDone));
    faults
}

fn countdown(shape: &Shape) -> Vec<String> {
    let scratch = Scratch::new();
    let image = bytes_of(&*scratch.device(&Shape { mib: MIB, ..*shape }));
    let counting = Arc::new(FaultDevice::counting(load(&image)));
    let progress = script(Arc::clone(&counting) as Arc<dyn BlockDevice>);
    assert!(
        progress.closed && progress.failures == 0,
        "{}: the script fails without a fault",
        shape.name
    );
    assert_eq!(progress.durable.len(), 8);
    let faults = faults(counting.requests());
    let (next, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    let worker = || {
        let scratch = Scratch::new();
        let mut wrong = Vec::new();
        while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let result = std::panic::catch_unwind(|| run(&image, *fault, &scratch));
            match result {
                Ok(Ok(was_seen)) => drop(seen.fetch_add(u64::from(was_seen), Ordering::Relaxed)),
                Ok(Err(what)) => wrong.push(format!("{} {fault:?}: {what}", shape.name)),
                Err(_) => wrong.push(format!("{} {fault:?}: panicked", shape.name)),
            }
        }
        wrong
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let wrong = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("panics are caught"))
            .collect()
    });
    let (seen, tried) = (seen.into_inner(), faults.len());
    eprintln!(
        "{}: {} requests, {tried} faults, {seen} reported",
        shape.name,
        counting.requests()
    );
    throughline_testkit::ledger::judged(tried as u64, "injected faults");
    assert!(seen > tried as u64 / 2, "{}: faults go unseen", shape.name);
    wrong
}

#[test]
fn every_request_may_fail() {
    if !tools() {
        return;
    }
    let mut wrong = Vec::new();
    for name in NAMES {
        wrong.extend(countdown(shape_of(name)));
    }
    assert!(
        wrong.is_empty(),
        "{} faults failed:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}
