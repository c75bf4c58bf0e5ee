//! Damaged images through the mount: a call that meets the damage fails with EUCLEAN or EIO and the log
//! describes it; other calls are unaffected, and nothing panics or hangs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::Errno;
use throughline_testing::sectors::filled;
use throughline_testing::{DiskImage, Mounted, program};

const BLOCK: u64 = 1024;

/// An image with a directory of more than two blocks, a fragmented file, and some other files.
fn populated() -> Option<DiskImage> {
    let possible = Mounted::possible() && program::has(&["debugfs"]);
    let recipe = format!("-t ext4 -b {BLOCK}");
    let image = possible
        .then(|| DiskImage::make(&recipe, "32m"))
        .flatten()?;
    let mounted = Mounted::new(image.path(), "");
    let dir = mounted.path("dir");
    std::fs::create_dir(&dir).expect("a directory");
    for number in 0..100 {
        File::create(dir.join(format!("some-longer-name-{number}"))).expect("a file");
    }
    // More extents than fit in an inode.
    let pieces = File::create(mounted.path("pieces")).expect("a file");
    for piece in 0..12 {
        let at = piece * 40 * BLOCK;
        pieces
            .write_all_at(&filled(4096, 1, at, 1), at)
            .expect("a write");
    }
    drop(pieces);
    std::fs::write(mounted.path("other"), filled(64 << 10, 2, 0, 1)).expect("a file");
    mounted.unmount();
    Some(image)
}

/// The first number after a word in the answer of `debugfs` to a request.
fn number_after(image: &DiskImage, request: &str, word: &str) -> u64 {
    let output = image.debugfs(request);
    let after = output.rsplit_once(word).map_or("", |(_, after)| after);
    let digits: String = after
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no {word} in: {output}"))
}

fn overwrite(image: &Path, at: u64, len: usize) {
    let image = OpenOptions::new()
        .write(true)
        .open(image)
        .expect("the image");
    image.write_all_at(&vec![0xa5; len], at).expect("damage");
}

/// Blocks of an inode table that are read at once, from its start on.
const AHEAD_BLOCKS: u64 = 32;

/// Whether it is the error for damage.
#[track_caller]
fn assert_damaged<T>(result: io::Result<T>) {
    let errno = result.err().and_then(|e| e.raw_os_error());
    let errno = errno.map(Errno::from_raw_os_error);
    let known = [Errno::UCLEAN, Errno::IO].map(Some);
    assert!(known.contains(&errno), "{errno:?} instead of EUCLEAN");
}

fn list(dir: &Path) -> io::Result<usize> {
    std::fs::read_dir(dir)?.try_fold(0, |count, entry| entry.map(|_| count + 1))
}

/// Calls that do not meet the damage still succeed.
fn others_go_on(mounted: &Mounted) {
    let read = std::fs::read(mounted.path("other")).expect("another file");
    assert!(read == filled(64 << 10, 2, 0, 1));
    assert!(std::fs::symlink_metadata(mounted.root()).is_ok());
}

fn ends_well(mounted: Mounted) {
    let (_, log) = mounted.end();
    assert!(!log.contains("panicked"), "{log}");
    assert!(!log.is_empty(), "the damage was not logged");
}

#[test]
fn access_to_a_damaged_directory_file_or_inode_fails() {
    let Some(whole) = populated() else { return };
    // The extent block of the fragmented file.
    let extents = number_after(&whole, "stat /pieces", "(ETB0):");
    let directory = number_after(&whole, "blocks /dir", "debugfs: blocks /dir");
    let table = number_after(&whole, "imap /pieces", "located at block");
    let root_table = number_after(&whole, "imap <2>", "located at block");
    for before in [true, false] {
        let damaged = |block: u64, len: usize| {
            let image = whole.copy();
            let early = before.then(|| overwrite(image.path(), block * BLOCK, len));
            let mounted = Mounted::new(image.path(), "");
            if early.is_none() {
                overwrite(image.path(), block * BLOCK, len);
            }
            (image, mounted)
        };
        // It is the root of a hash tree: all names are still found, but none can be added.
        let (_image, mounted) = damaged(directory, 64);
        assert_eq!(list(&mounted.path("dir")).expect("a listing"), 100);
        assert_damaged(File::create(mounted.path("dir/new")));
        others_go_on(&mounted);
        ends_well(mounted);

        let (_image, mounted) = damaged(extents, 64);
        assert_damaged(std::fs::read(mounted.path("pieces")));
        others_go_on(&mounted);
        assert_eq!(list(&mounted.path("dir")).expect("a whole directory"), 100);
        ends_well(mounted);

        let (_image, mounted) = damaged(table, BLOCK as usize);
        let seen = std::fs::metadata(mounted.path("pieces"));
        if !before && table < root_table + AHEAD_BLOCKS {
            // The mount read it with the block of the root's inode, before it was damaged.
            assert!(seen.is_ok(), "{seen:?}");
            mounted.end();
            continue;
        }
        assert_damaged(seen);
        ends_well(mounted);
    }
}

#[test]
fn a_volume_damaged_beyond_opening_is_not_mounted() {
    let Some(whole) = populated() else { return };
    let root_table = number_after(&whole, "imap <2>", "located at block");
    let journal = number_after(&whole, "blocks <8>", "debugfs: blocks <8>");
    // The superblock, the group descriptors, the root inode, the journal superblock.
    for (what, at) in [
        ("superblock", 1024),
        ("descriptors", 2 * BLOCK),
        ("root", root_table * BLOCK),
        ("journal", journal * BLOCK),
    ] {
        let image = whole.copy();
        overwrite(image.path(), at, BLOCK as usize);
        match Mounted::start(image.path(), "") {
            Err(refused) => assert!(
                !refused.contains("panicked") && !refused.contains("no answer"),
                "{what}: {refused}"
            ),
            // Some damage is detected only when it is accessed.
            Ok(mounted) => {
                let _ = list(mounted.root());
                let _ = File::create(mounted.path("new"));
                let (_, log) = mounted.end();
                assert!(!log.contains("panicked"), "{what}: {log}");
            }
        }
    }
}
