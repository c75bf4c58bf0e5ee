//! Many threads on few files with little memory.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cache::Backing;
use crate::cache::testing::Volume;
use crate::cache::tests::finish;

const REGION: u64 = 96 << 10;
const REGIONS: u64 = 24;

/// Each thread owns regions of both files and checks its writes, while other threads read everywhere,
/// truncate behind the regions, drop and flush.
#[test]
fn threads_find_what_they_wrote() {
    for block in [1024_u64, 4096] {
        let volume = Volume::new(block, (12 << 20) / block, 2 << 20);
        let files = [volume.file(), volume.file()];
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (files, done) = (&files, &done);
            let owners: Vec<_> = (0..3_u64)
                .map(|thread| scope.spawn(move || owner(thread, files)))
                .collect();
            scope.spawn(move || disturb(&files[0], done));
            scope.spawn(move || disturb(&files[1], done));
            for owner in owners {
                owner.join().expect("an owner");
            }
            done.store(true, Ordering::Relaxed);
        });
        finish(&volume, files.into_iter().collect());
    }
}

fn owner(thread: u64, files: &[std::sync::Arc<crate::cache::testing::FakeFile>; 2]) {
    let mut random = fastrand::Rng::with_seed(thread);
    let mut known = vec![vec![0_u8; (REGION * REGIONS) as usize]; 2];
    for _ in 0..600 {
        let index = random.usize(..2);
        let region = random.u64(..REGIONS / 3) * 3 + thread;
        let from = random.u64(..REGION);
        let most = if random.bool() { 3000 } else { REGION };
        let len = random.u64(1..=most.min(REGION - from));
        let at = region * REGION + from;
        let range = at as usize..(at + len) as usize;
        let file = &files[index];
        let model = &mut known[index][range];
        if random.bool() {
            model.fill(random.u8(..));
            assert_eq!(file.write(at, model).unwrap(), model.len());
        } else {
            let read = file.read(at, len as usize).unwrap();
            // Past the end that the other threads have reached there is nothing, and unwritten bytes are
            // zero.
            assert!(read == model[..read.len()], "at {at} of file {index}");
            assert!(model[read.len()..].iter().all(|byte| *byte == 0));
        }
    }
}

fn disturb(file: &crate::cache::testing::FakeFile, done: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(99);
    let mut buf = vec![0; 200_000];
    while !done.load(Ordering::Relaxed) {
        let at = random.u64(..REGION * REGIONS);
        match random.u8(..6) {
            0 => file.space().drop_clean(at..u64::MAX),
            1 => file.flush().unwrap(),
            2 => {
                let _exclusive = file.lock.write();
                let _frozen = file.space().freeze();
            }
            3 => drop(file.read(at, buf.len()).unwrap()),
            _ => drop(file.space().read_cached(at, &mut buf)),
        }
    }
}
