//! Requests that fail or complete partially on a full volume: afterwards the kernel's cached attributes match
//! the volume.
//!
//! They are read in three ways: cached (`AT_STATX_DONT_SYNC`), as a program gets them, and by a forced
//! request (`AT_STATX_FORCE_SYNC`). All three have the same size. The last two have the same mode, owner,
//! link count, block count, and modification and change times.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, Statx, StatxFlags, XattrFlags, statx,
};
use rustix::io::Errno;
use throughline_testing::{DiskImage, Mounted, View};

use crate::coherence::pairs::number;

pub(crate) fn look(path: &Path, how: AtFlags) -> Statx {
    let flags = AtFlags::SYMLINK_NOFOLLOW | how;
    statx(CWD, path, flags, StatxFlags::BASIC_STATS).expect("statx")
}

/// Checks that programs see the volume's values for a file.
#[track_caller]
pub(crate) fn check(path: &Path, when: &str) {
    let kept = look(path, AtFlags::STATX_DONT_SYNC);
    let shown = look(path, AtFlags::empty());
    let asked = look(path, AtFlags::STATX_FORCE_SYNC);
    let parts = |s: &Statx| {
        let times = [s.stx_mtime, s.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec));
        let owner = (s.stx_mode, s.stx_uid, s.stx_nlink);
        (s.stx_size, owner, s.stx_blocks, times)
    };
    let path = path.display();
    assert_eq!(
        kept.stx_size, asked.stx_size,
        "{path}: the cached size, {when}"
    );
    assert_eq!(
        parts(&shown),
        parts(&asked),
        "{path}: the attributes, {when}"
    );
}

/// Fills a volume except for this many bytes.
fn fill(root: &Path, but: u64) {
    let file = File::create(root.join("filling")).expect("a file");
    let piece = vec![0xa5; 64 << 10];
    let mut at = 0;
    while file.write_all_at(&piece, at).is_ok() {
        at += piece.len() as u64;
    }
    let len = file.metadata().expect("its size").len();
    file.set_len(len.saturating_sub(but)).expect("cut");
    file.sync_all().expect("a sync");
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// A mount that is full except for this many bytes, with a file of 6 MiB.
fn full(but: u64) -> Option<(DiskImage, Mounted, Vec<u8>)> {
    if !Mounted::possible() {
        return None;
    }
    let image = DiskImage::make("-t ext4 -m 0 -b 4096", "24m")?;
    let mounted = Mounted::new(image.path(), "");
    let source = bytes(6 << 20, 1);
    fs::write(mounted.path("source"), &source).expect("a source");
    fill(mounted.root(), but);
    Some((image, mounted, source))
}

#[test]
fn a_copy_without_room_reports_its_bytes_and_appends_follow_them() {
    let Some((image, mounted, source)) = full(5 << 20) else {
        return;
    };
    let path = mounted.path("target");
    let target = File::create(&path).expect("a target");
    let mut append = OpenOptions::new().append(true).open(&path).expect("opened");
    let from = File::open(mounted.path("source")).expect("the source");
    let (mut at, mut to) = (0, 0);
    let error = loop {
        let asked = source.len() - at as usize;
        match rustix::fs::copy_file_range(&from, Some(&mut at), &target, Some(&mut to), asked) {
            Ok(0) => panic!("6 MiB were copied to where there are 5"),
            Ok(_) => check(&path, "after a part of a copy"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Errno::NOSPC);
    check(&path, "after a copy");
    assert!(to > 4 << 20, "only {to} bytes were copied");
    fs::remove_file(mounted.path("filling")).expect("removed");
    append.write_all(b"behind").expect("appended");
    let found = fs::read(&path).expect("the target");
    assert_eq!(found.len() as u64, to + 6);
    assert!(found[..to as usize] == source[..to as usize] && found.ends_with(b"behind"));
    drop((target, append, from));
    finish(&image, mounted);
}

#[test]
fn an_allocation_without_room_leaves_the_file_and_appends_follow_it() {
    let Some((image, mounted, _)) = full(3 << 20) else {
        return;
    };
    let path = mounted.path("target");
    fs::write(&path, b"what is there").expect("a file");
    let file = OpenOptions::new().append(true).read(true).open(&path);
    let mut file = file.expect("opened");
    check(&path, "before");
    for mode in [
        FallocateFlags::empty(),
        FallocateFlags::ZERO_RANGE,
        FallocateFlags::KEEP_SIZE,
    ] {
        let refused = rustix::fs::fallocate(&file, mode, 4096, 20 << 20);
        assert_eq!(refused, Err(Errno::NOSPC), "{mode:?}");
        check(&path, &format!("after fallocate {mode:?}"));
    }
    file.write_all(b", and more").expect("appended");
    let found = fs::read(&path).expect("the file");
    assert_eq!(String::from_utf8_lossy(&found), "what is there, and more");
    drop(file);
    // The refused allocation left no blocks in use.
    fs::write(mounted.path("large"), bytes(2 << 20, 2)).expect("there is room");
    finish(&image, mounted);
}

/// The tree is the same after a remount.
fn finish(image: &DiskImage, mounted: Mounted) {
    let seen = View::of(mounted.root());
    mounted.unmount();
    image.check("a full volume");
    let again = Mounted::new(image.path(), "ro");
    seen.assert_same(&View::of(again.root()), "before and after a new mount");
    again.unmount();
}

/// One modifying request, which may be refused.
fn change(rng: &mut Rng, root: &Path, names: &[PathBuf]) -> String {
    let path = &names[rng.usize(..names.len())];
    let other = &names[rng.usize(..names.len())];
    let (at, len) = (rng.u64(..400_000), rng.u64(1..300_000));
    let which = rng.u8(..10);
    let mut options = OpenOptions::new();
    options
        .create(true)
        .append(which == 0)
        .write(true)
        .read(rng.bool());
    let file = options.open(path);
    let outcome = match (which, file) {
        (0, Ok(mut file)) => format!("append {:?}", file.write(&vec![1; len as usize])),
        (1 | 2, Ok(file)) => format!("write {:?}", file.write_at(&vec![2; len as usize], at)),
        (3, Ok(file)) => {
            let modes = [
                FallocateFlags::empty(),
                FallocateFlags::KEEP_SIZE,
                FallocateFlags::ZERO_RANGE,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            ];
            let mode = modes[at as usize % modes.len()];
            let done = rustix::fs::fallocate(&file, mode, at, len * 20);
            format!("fallocate {mode:?} {done:?}")
        }
        (4, Ok(file)) => {
            let from = File::open(root.join("source")).expect("the source");
            let (mut from_at, mut to) = (0, at / 4096 * 4096);
            let len = len as usize * 4;
            let done =
                rustix::fs::copy_file_range(&from, Some(&mut from_at), &file, Some(&mut to), len);
            format!("copy {done:?}")
        }
        (5, Ok(file)) => format!("truncate {:?}", file.set_len(at)),
        (6, Ok(_)) => {
            let value = vec![3; len as usize % 3000];
            let done = rustix::fs::setxattr(path, "user.some", &value, XattrFlags::empty());
            format!("setxattr {done:?}")
        }
        (7, Ok(_)) => format!("rename {:?}", fs::rename(path, other)),
        (8, Ok(_)) => format!("link {:?}", fs::hard_link(path, other)),
        (9, Ok(_)) => {
            let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY;
            let mode = Mode::from_raw_mode(0o644);
            format!("create {:?}", rustix::fs::open(path, flags, mode).map(drop))
        }
        (_, opened) => format!("open {:?}", opened.map(drop)),
    };
    format!("{outcome} of {} at {at}, {len} bytes", path.display())
}

#[test]
fn after_any_failure_the_kernel_keeps_what_the_volume_has() {
    let Some((image, mounted, _)) = full(400 << 10) else {
        return;
    };
    let soak = throughline_testkit::tier::soak();
    let names: Vec<PathBuf> = (0..6).map(|n| mounted.path(&format!("file-{n}"))).collect();
    let mut rng = Rng::with_seed(number("THROUGHLINE_SEED", 7));
    let mut refused = 0;
    for step in 0..if soak { 20_000 } else { 600 } {
        let outcome = change(&mut rng, mounted.root(), &names);
        refused += u32::from(outcome.contains("Err") || outcome.contains("NOSPC"));
        for path in names.iter().filter(|path| path.exists()) {
            check(path, &format!("step {step}: {outcome}"));
        }
        check(mounted.root(), &format!("step {step}: {outcome}"));
    }
    assert!(refused > 50, "only {refused} were refused");
    finish(&image, mounted);
}
