//! What is recorded of damage and failed writes, as `dumpe2fs` and `e2fsck` see it, and what follows.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::Op;
use throughline_extfmt::superblock::{OnError, State};
use throughline_testing::{Fault, FaultDevice};
use throughline_testkit::e2fs::e2fsck;

use crate::testing::Image;
use crate::{Error, Fs, NewInode, NewKind, OpenOptions};

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    umask: 0,
};

fn make(fs: &Fs, name: &str) -> crate::Result<()> {
    let root = fs.root()?;
    fs.create(&root, name.as_bytes(), NewKind::File, OWNER)
        .map(drop)
}

fn writing() -> OpenOptions {
    OpenOptions {
        write: true,
        ..OpenOptions::default()
    }
}

/// Whether `e2fsck -n`, which repairs nothing, forces a check because errors are recorded.
fn is_checked_by_e2fsck(image: &Image) -> bool {
    let printed = e2fsck(image.path(), &["-n"]).stdout;
    printed.contains("file system with errors, check forced")
}

#[test]
fn damage_is_recorded_and_handled_as_configured() {
    for (asked, chosen, stops) in [
        ("continue", None, false),
        ("remount-ro", None, true),
        ("panic", None, true),
        ("continue", Some(OnError::RemountRo), true),
        ("remount-ro", Some(OnError::Continue), false),
    ] {
        for kind in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]] {
            let args = [kind, &["-b", "1024", "-e", asked]].concat();
            let Some(image) = Image::make("16M", &args) else {
                return;
            };
            image.debugfs_write_all(&["mkdir /d"]);
            let block: u64 = image.debugfs("bmap /d 0").trim().parse().expect("a block");
            let file = std::fs::File::options()
                .write(true)
                .open(image.path())
                .expect("the image");
            file.write_all_at(&[0xAA; 8], block * 1024 + 900)
                .expect("spoilt");
            let options = OpenOptions {
                on_error: chosen,
                ..writing()
            };
            let fs = image.try_open(&options).expect("the volume opens");
            let root = fs.root().expect("the root");
            let dir = fs.lookup(&root, b"d").expect("the directory");
            let found = fs.lookup(&dir, b"x");
            assert!(matches!(found, Err(Error::Corrupt(_))), "{asked}");
            for name in ["a", "b"] {
                match make(&fs, name) {
                    Ok(()) => assert!(!stops, "{asked}"),
                    Err(Error::Stopped(why)) => {
                        assert!(stops && why.to_string().contains("checksum"), "{why}");
                    }
                    Err(other) => panic!("{asked}: {other}"),
                }
            }
            assert_eq!(fs.close().is_err(), stops, "{asked}");
            assert!(image.header("Filesystem state").ends_with("with errors"));
            assert_eq!(image.header("FS Error count"), "1", "{asked}");
            for end in ["First", "Last"] {
                assert_eq!(
                    image.header(&format!("{end} error block #")),
                    block.to_string()
                );
                assert_eq!(image.header(&format!("{end} error err")), "EFSCORRUPTED");
            }
            assert!(is_checked_by_e2fsck(&image), "{asked}");
            let refused = image.try_open(&writing());
            assert!(
                matches!(&refused, Err(Error::Unsupported(why)) if why.contains("recorded errors")),
                "{asked}"
            );
        }
    }
}

#[test]
fn a_failed_write_stops_all_changes_and_is_recorded() {
    for kind in [&["-t", "ext4"][..], &["-t", "ext2"]] {
        let Some(image) = Image::make("16M", &[kind, &["-b", "1024"]].concat()) else {
            return;
        };
        let device = throughline_device::OpenOptions::new()
            .write(true)
            .direct(false)
            .open(image.path())
            .expect("the image opens");
        // Fail all writes except those of the superblock and of the journal's superblock.
        let journal: u64 = image.debugfs("bmap <8> 0").trim().parse().unwrap_or(0);
        let device = FaultDevice::counting(device).only_where(move |request| {
            request.op() == Op::Write && ![1024, journal * 1024].contains(&request.offset_bytes())
        });
        let device = Arc::new(device);
        let disk = Arc::new(Disk::new(Arc::clone(&device) as _).expect("a disk"));
        let fs = Fs::open(disk, &writing()).expect("it opens");
        make(&fs, "before").expect("made");
        fs.sync().expect("synced");
        device.set_fault(Fault::From(0));
        make(&fs, "after").expect("it is in memory");
        for is_first in [true, false] {
            let synced = fs.sync();
            // The first commit failed; the second sync had none.
            match is_first {
                true => assert!(matches!(synced, Err(Error::Device(_))), "{synced:?}"),
                false => assert!(matches!(synced, Err(Error::Stopped(_))), "{synced:?}"),
            }
            assert!(matches!(make(&fs, "more"), Err(Error::Stopped(_))));
        }
        fs.lookup(&fs.root().expect("the root"), b"before")
            .expect("what is there can be read");
        assert!(fs.close().is_err());
        assert!(image.header("Filesystem state").ends_with("with errors"));
        assert_eq!(image.header("FS Error count"), "1");
        assert_eq!(image.header("First error err"), "EIO");
        assert!(is_checked_by_e2fsck(&image));
        let as_it_lies = OpenOptions {
            no_replay: true,
            ..OpenOptions::default()
        };
        let fs = image.try_open(&as_it_lies).expect("it opens");
        if let Some(log) = fs.log_info().expect("the journal") {
            assert_eq!((log.errno, log.empty), (5, false));
        }
        drop(fs);
        // The journal still records the error after the superblock's flag is cleared.
        if kind.contains(&"ext4") {
            image.edit_super(|sb| sb.set_state(State::VALID));
        }
        let refused = image.try_open(&writing());
        assert!(
            matches!(&refused, Err(Error::Unsupported(why)) if why.contains("recorded errors")),
            "{:?}",
            refused.map(drop)
        );
    }
}
