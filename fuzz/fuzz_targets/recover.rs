//! Recovery: a small image with a live log and a fast commit, patched as the input says, is recovered for
//! reading and for writing, and listed.
//!
//! The images are made at the start; that needs e2fsprogs. The bytes of an input: kind and options, start
//! of the log, sequence number, then patches (part of the log, offset in it, number of bytes, the bytes).
//! In half of the inputs, the checksums are corrected, so that the code after the checks is reached.
//!
//! Besides no panic, no hang and bounded memory: opening for reading, or a refused opening, writes nothing;
//! nothing is written past the volume's end; and after a recovery and a close, the journal is empty.
#![no_main]

#[allow(dead_code)] // used by the tests
#[path = "../../testing/tests/untrusted/damaged_journal/craft.rs"]
mod craft;
#[path = "../../testing/tests/untrusted/damaged_journal/disk.rs"]
mod disk;
#[allow(dead_code)] // used by the tests
#[path = "../../testing/tests/untrusted/damaged_journal/fast.rs"]
mod fast;
#[path = "../../testing/tests/untrusted/damaged_journal/seal.rs"]
mod seal;
#[allow(dead_code)] // used by the tests
#[path = "../../testing/tests/untrusted/survey.rs"]
mod survey;

use std::sync::{Arc, LazyLock};

use craft::{Base, Crafted, KINDS, Place};
use disk::{bytes_of, load};
use fast::Fast;
use throughline::internal::OpenBlockDevice;
use throughline::{JournalState, OpenOptions, Volume};

/// Bytes of the device after the volume.
const BEHIND: usize = 64 << 10;
const MAX_NAMES: usize = 100;
const JOURNAL: throughline_extfmt::InodeNumber = throughline_extfmt::InodeNumber(8);

static BASES: LazyLock<Vec<(Base, usize)>> = LazyLock::new(|| {
    let made = KINDS.iter().map(|kind| Base::new(*kind));
    let made: Option<Vec<Base>> = made.collect();
    let made = made.expect("mke2fs and debugfs are needed");
    made.into_iter().map(|base| (inode_at(&base), base)).map(|(at, base)| (base, at)).collect()
});

/// The byte offset of the journal's inode in the image.
fn inode_at(base: &Base) -> usize {
    let survey = survey::Base::new(base.states[0].clone());
    let targets = &mut survey.targets.iter();
    let inode = targets.find(|target| target.kind == survey::Kind::Inode(JOURNAL));
    inode.expect("a journal").at
}

/// An input, consumed from the front.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<usize> {
        Some(usize::from(self.byte()?) | usize::from(self.byte()?) << 8)
    }
}

fn sequence(choice: u8) -> u32 {
    match choice {
        0..128 => choice.into(),
        128..192 => u32::MAX - u32::from(choice - 128),
        _ => u32::from(choice) << 24,
    }
}

/// The image that an input describes.
fn image(data: &[u8]) -> Option<Vec<u8>> {
    let mut input = Input(data);
    let options = input.byte()?;
    let (base, inode) = &BASES[usize::from(options & 3) % BASES.len()];
    let (sealed, fast) = (options & 4 != 0, options & 8 != 0);
    let place = Place {
        start: 1 + input.word()? as u32 % (base.log_end - 1),
        sequence: sequence(input.byte()?),
    };
    let mut crafted = base.craft(place);
    let fast = (fast && base.fast_commits())
        .then(|| fast::add(base, &mut crafted, place.sequence.wrapping_add(3)));
    while let Some(()) = patch(&mut input, &mut crafted, *inode, fast.as_ref(), base) {}
    if sealed {
        seal::seal(&mut crafted.bytes, &crafted.parts, &crafted.format);
        if let Some(fast) = &fast {
            let size = base.kind.block_bytes as usize;
            fast::seal(&mut crafted.bytes[fast.at..fast.at + size], &fast.tags);
        }
    }
    crafted.bytes.extend([0xA5; BEHIND]);
    Some(crafted.bytes)
}

/// One patch; `None` at the end of the input.
fn patch(
    input: &mut Input<'_>,
    crafted: &mut Crafted,
    inode: usize,
    fast: Option<&Fast>,
    base: &Base,
) -> Option<()> {
    let (part, offset, len) = (input.byte()?, input.word()?, input.byte()? % 9);
    let size = base.kind.block_bytes as usize;
    let at = match part {
        255 => inode + offset % 128,
        254 => 1024 + offset % 1024,
        224..254 if fast.is_some() => fast?.at + offset % size,
        // The journal's superblock is the first part; most other parts are copies of blocks.
        200..254 => crafted.parts[0].0 + offset % 256,
        _ => crafted.parts[usize::from(part) % crafted.parts.len()].0 + offset % size,
    };
    for index in 0..usize::from(len) {
        let byte = input.byte()?;
        if let Some(place) = crafted.bytes.get_mut(at + index) {
            *place = byte;
        }
    }
    Some(())
}

fn walk(volume: &Volume) {
    let mut buf = vec![0; 4096];
    let (mut left, mut dirs) = (MAX_NAMES, vec![String::from("/")]);
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = volume.read_dir(&dir) else {
            continue;
        };
        for entry in entries.map_while(Result::ok) {
            left -= 1;
            if left == 0 {
                return;
            }
            let path = format!("{dir}/{}", entry.file_name().to_string_lossy());
            let _ = volume.open_file(&path).map(|file| file.read_at(&mut buf, 0));
            if volume.symlink_metadata(&path).is_ok_and(|found| found.file_type().is_dir()) {
                dirs.push(path);
            }
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(bytes) = image(data) else { return };
    let device = load(&bytes);
    if let Ok(volume) = OpenOptions::new().open_block_device(Arc::clone(&device) as _) {
        walk(&volume);
        let _ = volume.close();
    }
    assert!(bytes_of(&*device) == bytes, "opened for reading, but written to");
    match OpenOptions::new().write(true).open_block_device(Arc::clone(&device) as _) {
        Err(_) => assert!(bytes_of(&*device) == bytes, "refused, but written to"),
        Ok(volume) => {
            walk(&volume);
            let closed = volume.close();
            let after = bytes_of(&*device);
            assert!(
                after[after.len() - BEHIND..].iter().all(|byte| *byte == 0xA5),
                "bytes after the volume were changed"
            );
            if closed.is_ok() {
                let again = OpenOptions::new().open_block_device(device as _);
                let state = again.and_then(|volume| volume.info()).map(|info| info.journal);
                assert!(!matches!(state, Ok(JournalState::NeedsRecovery)), "recovered, but the journal is \
                    not empty");
            }
        }
    }
});
