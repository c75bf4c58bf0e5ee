//! A refused change has changed nothing: a truncation or `fallocate` in which one request of the device
//! fails, or that comes after the volume has stopped changes. The file's contents, its size, and the data
//! on the device are as before, including data not yet written back.

use std::sync::Arc;

use throughline::internal::OpenBlockDevice;
use throughline::{Error, Fallocate, File, FileOptions, OpenOptions, Volume};
use throughline_testing::{Fault, FaultDevice, Image, PowerDevice};

use super::durable::{Step, bytes};
use super::fsck::Fsck;
use super::judge;
use super::oracle::image::tools;
use super::recipes::Recipe;
use super::tree;

/// Maximum number of requests of one change.
const MOST: u64 = 200;

/// What is in memory when the file is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing of the file.
    Cold,
    /// All of the file, clean.
    Cached,
    /// Dirty data too: changed bytes, and others past the end.
    Staged,
}

/// A volume with one durable file.
struct Start {
    image: Image,
    content: Vec<u8>,
}

/// The volume, opened on a device that can fail.
struct Opened {
    below: Arc<PowerDevice>,
    device: Arc<FaultDevice>,
    volume: Volume,
    file: File,
    /// The file's contents as readers see them.
    content: Vec<u8>,
}

impl Start {
    fn make(recipe: &Recipe) -> Start {
        let device = Arc::new(PowerDevice::new(recipe.image(), 0));
        let volume = tree::options()
            .open_block_device(Arc::clone(&device) as _)
            .unwrap();
        let block = recipe.block_bytes();
        let content = bytes(&mut fastrand::Rng::with_seed(1), 30 * block + 300);
        let file = volume.create_new("/f").unwrap();
        file.write_all_at(&content, 0).unwrap();
        drop(file);
        volume.close().unwrap();
        Start {
            image: device.contents(),
            content,
        }
    }

    fn open(&self, options: &OpenOptions, known: Known, block: u64) -> Opened {
        let below = Arc::new(PowerDevice::new(self.image.clone(), 0));
        let device = Arc::new(FaultDevice::counting(Arc::clone(&below) as _));
        let volume = options.open_block_device(Arc::clone(&device) as _).unwrap();
        let file = volume.open_file("/f").unwrap();
        let mut content = self.content.clone();
        if known != Known::Cold {
            file.read_exact_at(&mut vec![0; content.len()], 0).unwrap();
        }
        if known == Known::Staged {
            let new = bytes(&mut fastrand::Rng::with_seed(2), 2 * block);
            for at in [5 * block + 5, content.len() as u64] {
                file.write_all_at(&new, at).unwrap();
                let at = at as usize;
                content.resize(content.len().max(at + new.len()), 0);
                content[at..at + new.len()].copy_from_slice(&new);
            }
        }
        Opened {
            below,
            device,
            volume,
            file,
            content,
        }
    }
}

impl Opened {
    fn take(&self, step: Step) -> Result<(), Error> {
        match step {
            Step::SetLen(len) => self.file.set_len(len),
            Step::Append(_) => unreachable!("not used in this test"),
            Step::Allocate(mode, at, len) => self.file.allocate(mode, at, len),
        }
    }

    /// Checks that the file has this content: buffered and, if `directly`, also with direct reads, which
    /// write it back first.
    fn reads(&self, content: &[u8], directly: bool) -> Result<(), String> {
        let size = self
            .file
            .metadata()
            .map_err(|error| error.to_string())?
            .len();
        if size != content.len() as u64 {
            return Err(format!("{size} bytes, not {}", content.len()));
        }
        for direct in [false, true] {
            if direct && !directly {
                continue;
            }
            let mut options = FileOptions::new();
            options.direct(direct);
            let file = self
                .file
                .reopen(&options)
                .map_err(|error| error.to_string())?;
            let mut found = vec![0; content.len()];
            let read = file.read_exact_at(&mut found, 0);
            read.map_err(|error| format!("reading, direct {direct}: {error}"))?;
            if let Some(at) = (0..found.len()).find(|at| found[*at] != content[*at]) {
                return Err(format!("byte {at} is wrong, direct {direct}"));
            }
        }
        Ok(())
    }
}

fn steps(recipe: &Recipe) -> Vec<Step> {
    let block = recipe.block_bytes();
    let mut steps = vec![
        Step::SetLen(0),
        Step::SetLen(4 * block),
        Step::SetLen(4 * block + 100),
        Step::SetLen(30 * block + 17),
        Step::SetLen(50 * block + 7),
        Step::Allocate(Fallocate::PunchHole, block + 10, 3 * block),
        Step::Allocate(Fallocate::PunchHole, 4 * block, 20 * block),
    ];
    if recipe.extents {
        steps.extend([
            Step::Allocate(Fallocate::ZeroRange, block + 10, 3 * block),
            Step::Allocate(Fallocate::Collapse, 2 * block, 3 * block),
            Step::Allocate(Fallocate::Insert, 2 * block, 3 * block),
        ]);
    }
    steps
}

/// Runs the change with one of its requests failing. Returns whether one failed: `false` if the change
/// makes fewer requests.
fn with_fault(
    start: &Start,
    recipe: &Recipe,
    known: Known,
    step: Step,
    fault: Fault,
) -> Result<bool, String> {
    let block = recipe.block_bytes();
    let opened = start.open(&tree::options(), known, block);
    let after = step.apply(&opened.content, &[]);
    let from = opened.device.requests();
    let gone = matches!(fault, Fault::From(_));
    opened.device.set_fault(match fault {
        Fault::Once(n) => Fault::Once(from + n),
        Fault::From(n) => Fault::From(from + n),
        Fault::AfterDone(n) => Fault::AfterDone(from + n),
        other => other,
    });
    let done = opened.take(step);
    let hit = opened.device.failed() > 0;
    let here = |what: String| format!("{step:?}, {known:?}, {fault:?}, {}: {what}", recipe.name);
    if let Err(error) = &done {
        // While the device keeps failing, only data in memory can be read.
        if !gone {
            opened.device.set_fault(Fault::Never);
        }
        let stopped = opened.volume.stopped();
        if !gone || known != Known::Cold {
            let directly = !gone && stopped.is_none();
            opened.reads(&opened.content, directly).map_err(|what| {
                here(format!(
                    "{what}; it was refused: {error}; stopped: {stopped:?}"
                ))
            })?;
        }
        opened.device.set_fault(Fault::Never);
        if stopped.is_none() {
            opened
                .take(step)
                .map_err(|error| here(format!("second attempt: {error}")))?;
        } else {
            // Durable data must still be there.
            let state = opened.below.contents();
            drop(opened);
            let tree = match recipe.journaled {
                true => tree::read(&judge::recover(&state).map_err(here)?.contents()),
                false => tree::read(&Fsck::new().repair(&state).map_err(here)?.0),
            };
            let found = &tree.map_err(here)?["/f"].content;
            if known != Known::Staged && *found != start.content {
                return Err(here("the durable bytes have changed".into()));
            }
            return Ok(hit);
        }
    }
    opened.device.set_fault(Fault::Never);
    opened
        .reads(&after, true)
        .map_err(|what| here(format!("done: {what}")))?;
    let Opened {
        below,
        volume,
        file,
        ..
    } = opened;
    drop(file);
    volume
        .close()
        .map_err(|error| here(format!("closing: {error}")))?;
    if hit {
        Fsck::new().check(&below.contents()).map_err(here)?;
    }
    Ok(hit)
}

const NAMES: [&str; 5] = [
    "ext4 1k",
    "ext3 1k",
    "ext2 1k",
    "ext4 1k without a journal",
    "ext4 4k",
];

#[test]
fn a_change_in_which_a_request_fails_has_changed_nothing() {
    if !tools() {
        return;
    }
    let mut wrong = Vec::new();
    let mut tried = 0;
    let every = throughline_testkit::tier::pick(5, 1, 1);
    for name in NAMES {
        let recipe = Recipe::named(name);
        let start = Start::make(recipe);
        for step in steps(recipe) {
            for known in [Known::Cold, Known::Cached, Known::Staged] {
                for kind in [Fault::Once, Fault::From] {
                    for n in (0..MOST).step_by(every) {
                        match with_fault(&start, recipe, known, step, kind(n)) {
                            Ok(true) => tried += 1,
                            Ok(false) => break,
                            Err(what) => wrong.push(what),
                        }
                    }
                }
            }
        }
    }
    throughline_testkit::ledger::judged(tried as u64, "failed requests before a crash");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(
        tried > throughline_testkit::tier::pick(40, 200, 200),
        "only {tried} requests failed"
    );
}

#[test]
fn a_volume_that_takes_no_changes_refuses_and_keeps_what_is_in_memory() {
    if !tools() {
        return;
    }
    for name in NAMES {
        let recipe = Recipe::named(name);
        let start = Start::make(recipe);
        for step in steps(recipe) {
            for known in [Known::Cached, Known::Staged] {
                let opened = start.open(&tree::options(), known, recipe.block_bytes());
                // The journal or the volume's metadata cannot be written, so all changes stop.
                opened.volume.create_dir("/d").unwrap();
                opened.volume.open_dir("/d").unwrap().sync().unwrap();
                opened.volume.create_dir("/d/e").unwrap();
                opened.device.set_fault(Fault::From(0));
                opened.volume.open_dir("/d").unwrap().sync().unwrap_err();
                assert!(opened.volume.stopped().is_some(), "{name}");
                opened.device.set_fault(Fault::Never);
                let refused = opened.take(step).unwrap_err();
                let reads = opened.reads(&opened.content, false);
                assert_eq!(reads, Ok(()), "{name}, {step:?}, {known:?}: {refused}");
            }
        }
    }
}
