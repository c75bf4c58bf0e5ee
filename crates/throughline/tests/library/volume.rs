//! The public face as a program uses it, with `e2fsck` as the judge of what is on the disk.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throughline::{
    Attributes, DeviceNumber, DirBuilder, Error, Fallocate, FileOptions, NewNode, OpenOptions,
    Reason, RenameMode, Result, Volume,
};
use throughline_testkit::e2fs::{assert_clean, mke2fs};

/// An image of 32 MiB in a folder that vanishes; `None` where nobody can make one.
fn image(options: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    mke2fs(&path, "32M", options).then_some((dir, path))
}

fn reason<T>(result: Result<T>) -> Reason {
    match result {
        Err(Error::Caller(reason)) => reason,
        Err(other) => panic!("not the caller's fault: {other}"),
        Ok(_) => panic!("it succeeded"),
    }
}

#[test]
fn files_directories_and_links() -> Result<()> {
    let Some((_dir, path)) = image(&["-t", "ext4"]) else {
        return Ok(());
    };
    let volume = OpenOptions::new().write(true).open(&path)?;
    DirBuilder::new()
        .attributes(Attributes::new().mode(0o750))
        .create(&volume, "/a")?;
    let file = volume.create_file("/a/file")?;
    file.write_all_at(b"hello", 5000)?;
    assert_eq!(file.append(b", world")?, (5005, 7));
    volume.symlink("a/file", "/soft")?;
    volume.hard_link("/a/file", "/hard")?;
    let null = NewNode::CharDevice(DeviceNumber { major: 1, minor: 3 });
    volume.make_node("/null", null, &Attributes::new())?;

    let mut buffer = [0xff; 20];
    let through_link = volume.open_file("/soft")?;
    assert_eq!(through_link.read_at(&mut buffer, 4998)?, 14);
    assert_eq!(&buffer[..14], b"\0\0hello, world");
    let meta = volume.metadata("soft")?;
    assert_eq!((meta.len(), meta.nlink(), meta.is_file()), (5012, 2, true));
    assert!(volume.symlink_metadata("soft")?.is_symlink());
    assert_eq!(volume.read_link("soft")?, Path::new("a/file"));
    assert_eq!(
        volume.metadata("/null")?.device(),
        Some(DeviceNumber { major: 1, minor: 3 })
    );
    assert_eq!(volume.metadata("/a")?.mode(), 0o750);
    let mut names: Vec<_> = volume
        .read_dir("/")?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_>>()?;
    names.sort();
    assert_eq!(names, ["a", "hard", "lost+found", "null", "soft"]);

    volume.rename_with("/hard", "/a/moved", RenameMode::NoReplace)?;
    assert_eq!(
        reason(volume.rename_with("/null", "/soft", RenameMode::NoReplace)),
        Reason::Exists
    );
    volume.rename_with("/null", "/soft", RenameMode::Exchange)?;
    assert_eq!(volume.read_link("/null")?, Path::new("a/file"));
    assert_eq!(reason(volume.remove_dir("/a")), Reason::NotEmpty);
    assert_eq!(reason(volume.remove_file("/a")), Reason::IsDir);
    assert_eq!(reason(volume.open_file("/a")), Reason::IsDir);
    assert_eq!(reason(volume.open_dir("/a/file")), Reason::NotDir);
    assert_eq!(reason(volume.create_dir("/")), Reason::Exists);
    drop((file, through_link));
    volume.close()?;
    assert_clean(&path);
    Ok(())
}

#[test]
fn an_open_file_outlives_its_name() -> Result<()> {
    let Some((_dir, path)) = image(&["-t", "ext4"]) else {
        return Ok(());
    };
    let volume = OpenOptions::new().write(true).open(&path)?;
    let free = volume.stat_fs()?.free_inodes;
    let file = volume.create_file("/f")?;
    file.write_all_at(&vec![7; 100_000], 0)?;
    volume.remove_file("/f")?;
    let mut buffer = vec![0; 100_000];
    assert_eq!(file.read_at(&mut buffer, 0)?, 100_000);
    assert!(buffer.iter().all(|byte| *byte == 7));
    // Closing while something is in use says so, and loses nothing.
    assert!(matches!(reason(volume.clone().close()), Reason::Busy(_)));
    drop(file);
    assert_eq!(volume.stat_fs()?.free_inodes, free);
    volume.close()?;
    assert_clean(&path);
    Ok(())
}

#[test]
fn attributes_times_and_space() -> Result<()> {
    let Some((_dir, path)) = image(&["-t", "ext4"]) else {
        return Ok(());
    };
    let volume = OpenOptions::new().write(true).open(&path)?;
    let early = UNIX_EPOCH - Duration::new(100, 500);
    let late = UNIX_EPOCH + Duration::new(10_000_000_000, 1);
    let attributes = Attributes::new()
        .mode(0o6711)
        .uid(100_000)
        .gid(200_000)
        .accessed(early)
        .modified(late);
    let file = FileOptions::new()
        .create(true)
        .attributes(attributes)
        .open(&volume, "/f")?;
    let meta = file.metadata()?;
    assert_eq!(
        (meta.mode(), meta.uid(), meta.gid()),
        (0o6711, 100_000, 200_000)
    );
    assert_eq!((meta.accessed(), meta.modified()), (early, late));
    assert!(meta.created().is_some_and(|made| made <= SystemTime::now()));

    file.allocate(Fallocate::Allocate, 0, 1 << 20)?;
    assert!(file.metadata()?.blocks_512() >= 2048);
    file.write_all_at(b"data", 300_000)?;
    assert!(
        file.seek_data(0)?
            .is_some_and(|start| start <= 300_000 && start > 200_000)
    );
    file.allocate(Fallocate::PunchHole, 0, 1 << 20)?;
    assert_eq!(
        (file.seek_data(0)?, file.metadata()?.len()),
        (None, 1 << 20)
    );
    file.set_len(0)?;
    file.sync_all()?;
    assert_eq!(file.metadata()?.blocks_512(), 0);
    drop(file);
    volume.close()?;
    assert_clean(&path);
    Ok(())
}

#[test]
fn one_writer_or_many_readers() -> Result<()> {
    let Some((_dir, path)) = image(&["-t", "ext4"]) else {
        return Ok(());
    };
    let writer = OpenOptions::new().write(true).open(&path)?;
    assert!(matches!(
        reason(OpenOptions::new().write(true).open(&path)),
        Reason::Busy(_)
    ));
    assert!(matches!(reason(Volume::open(&path)), Reason::Busy(_)));
    writer.close()?;
    let (one, two) = (Volume::open(&path)?, Volume::open(&path)?);
    assert!(one.is_read_only() && two.is_read_only());
    assert_eq!(reason(one.create_file("/f")), Reason::ReadOnly);
    assert!(matches!(
        reason(OpenOptions::new().write(true).open(&path)),
        Reason::Busy(_)
    ));
    Ok(())
}

#[test]
fn errors_become_those_of_std() {
    let missing = Volume::open("/no/such/image").map(drop).unwrap_err();
    assert!(matches!(missing, Error::Open { .. }));
    assert_eq!(io::Error::from(missing).kind(), io::ErrorKind::NotFound);
    let full = Error::from(Reason::NoSpace);
    let full = io::Error::from(full);
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert_eq!(full.raw_os_error(), Some(28), "ENOSPC");
    // What says more keeps its words.
    let busy = Error::from(Reason::Busy("it is process 7".into()));
    assert_eq!(busy.raw_os_error(), Some(16), "EBUSY");
    let busy = io::Error::from(busy);
    assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
    assert!(busy.to_string().contains("process 7"));
    let cause = io::Error::from_raw_os_error(110);
    let failed = throughline_block::Error::device(throughline_device::Op::Read, 0, 512, cause);
    let failed = Error::Device(failed);
    assert_eq!(failed.raw_os_error(), Some(110));
    let source = std::error::Error::source(&failed).expect("what the device said");
    assert_eq!(source.to_string(), failed.io_error().unwrap().to_string());
    let failed = io::Error::from(failed);
    assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
    assert!(
        failed
            .get_ref()
            .is_some_and(|inner| inner.source().is_some())
    );
}

#[test]
fn a_raw_file_has_the_same_calls() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("raw");
    std::fs::write(&path, b"0123456789").unwrap();
    let raw = OpenOptions::new().write(true).open_raw(&path)?;
    assert_eq!(raw.write_at(b"abc", 8).unwrap(), 3);
    let mut buffer = [0; 20];
    assert_eq!(raw.read_at(&mut buffer, 1).unwrap(), 10);
    assert_eq!(&buffer[..10], b"1234567abc");
    drop(raw);
    assert_eq!(std::fs::read(&path).unwrap(), b"01234567abc");
    Ok(())
}

#[test]
fn many_files_are_written_in_one_go() -> Result<()> {
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-O", "inline_data"],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let Some((_dir, path)) = image(options) else {
            return Ok(());
        };
        let volume = OpenOptions::new().write(true).open(&path)?;
        // Sizes around every kind of block, more files than are held at once, and one that exists already.
        let sizes = [0usize, 1, 60, 511, 512, 1024, 4095, 4096, 4097, 70_000];
        let contents: Vec<Vec<u8>> = (0..130)
            .map(|number| {
                (0..sizes[number % sizes.len()])
                    .map(|at| (at * 7 + number) as u8)
                    .collect()
            })
            .collect();
        let files: Vec<_> = (0..contents.len())
            .map(|number| volume.create_new(format!("/{number}")))
            .collect::<Result<_>>()?;
        files[7].write_all_at(&vec![0xee; 10_000], 0)?;
        let before = volume.status().io.writes;
        let mut all: Vec<(&throughline::File, &[u8])> = files
            .iter()
            .zip(contents.iter().map(Vec::as_slice))
            .collect();
        // One file twice: the second time it is written over what it has.
        all.push((&files[3], b"again"));
        for done in volume.write_new(&all) {
            done?;
        }
        let writes = volume.status().io.writes - before;
        assert!(
            writes < contents.len() as u64,
            "{writes} writes, {options:?}"
        );
        let mut expected = contents.clone();
        expected[3][..5].copy_from_slice(b"again");
        expected[7].resize(10_000, 0xee);
        let check = |volume: &Volume| -> Result<()> {
            for (number, expected) in expected.iter().enumerate() {
                let file = volume.open_file(format!("/{number}"))?;
                let mut found = vec![0; 100_000];
                let len = file.read_at(&mut found, 0)?;
                assert!(found[..len] == **expected, "file {number}, {options:?}");
            }
            Ok(())
        };
        check(&volume)?;
        drop(all);
        drop(files);
        volume.close()?;
        assert_clean(&path);
        check(&Volume::open(&path)?)?;
    }
    Ok(())
}

#[test]
fn many_files_and_no_room_or_another_volume() -> Result<()> {
    let (Some((_one, path)), Some((_two, other))) =
        (image(&["-t", "ext4"]), image(&["-t", "ext4"]))
    else {
        return Ok(());
    };
    let volume = OpenOptions::new().write(true).open(&path)?;
    let free = volume.stat_fs()?;
    let free_bytes = free.free_blocks * u64::from(free.block_bytes);
    let data = vec![7u8; 1 << 20];
    let files: Vec<_> = (0..free_bytes / data.len() as u64 + 8)
        .map(|number| volume.create_new(format!("/{number}")))
        .collect::<Result<_>>()?;
    let all: Vec<(&throughline::File, &[u8])> =
        files.iter().map(|file| (file, data.as_slice())).collect();
    let mut full = 0;
    for (file, done) in files.iter().zip(volume.write_new(&all)) {
        match done {
            Ok(()) => assert_eq!(file.metadata()?.len(), data.len() as u64),
            Err(error) => {
                assert!(matches!(error, Error::Caller(Reason::NoSpace)), "{error}");
                assert_eq!(file.metadata()?.len(), 0);
                full += 1;
            }
        }
    }
    assert!(
        (1..files.len()).contains(&full),
        "{full} of {}",
        files.len()
    );

    let other = OpenOptions::new().write(true).open(&other)?;
    let stranger = other.create_new("/f")?;
    let mixed = other.write_new(&[(&stranger, b"x"), (&files[0], b"x")]);
    assert!(
        mixed
            .into_iter()
            .all(|done| reason(done) == Reason::CrossDevice)
    );
    assert_eq!(stranger.metadata()?.len(), 0);
    drop(all);
    drop((files, stranger));
    other.close()?;
    volume.close()?;
    assert_clean(&path);
    Ok(())
}

/// What an image holds while it is in use is what a crash of the machine leaves, as far as its device has
/// been told.
#[test]
fn synced_changes_survive_a_crash() -> Result<()> {
    for kind in [&["-t", "ext4"][..], &["-t", "ext3", "-b", "1024"]] {
        let Some((dir, path)) = image(kind) else {
            return Ok(());
        };
        let volume = OpenOptions::new().write(true).open(&path)?;
        assert!(volume.recovery().is_empty() && volume.stopped().is_none());
        volume.create_dir("/a")?;
        let below = volume.create_dir("/a/b")?;
        let file = below.create_new("file")?;
        file.write_all_at(&[7; 10_000], 0)?;
        file.sync_data()?;
        below.create_new("gone")?;
        below.remove_file("gone")?;
        below.create_new("named")?;
        below.sync()?;
        // Open, and without a name by then.
        let orphan = below.create_new("orphan")?;
        orphan.write_all_at(&[1; 5000], 0)?;
        below.remove_file("orphan")?;
        orphan.sync_all()?;
        let crashed = dir.path().join("crashed");
        std::fs::copy(&path, &crashed).unwrap();
        drop((file, below, orphan));
        volume.close()?;
        assert_clean(&path);

        let look = |options: &mut OpenOptions| -> Result<()> {
            let volume = options.open(&crashed)?;
            let file = volume.open_file("/a/b/file")?;
            let mut bytes = vec![0; 10_001];
            assert_eq!(file.read_at(&mut bytes, 0)?, 10_000);
            assert!(bytes[..10_000].iter().all(|byte| *byte == 7));
            assert_eq!(volume.metadata("/a/b/named")?.len(), 0);
            for name in ["/a/b/gone", "/a/b/orphan"] {
                assert_eq!(reason(volume.metadata(name)), Reason::NotFound);
            }
            drop(file);
            volume.close()
        };
        let before = std::fs::read(&crashed).unwrap();
        look(&mut OpenOptions::new())?;
        assert!(std::fs::read(&crashed).unwrap() == before);
        let report = OpenOptions::new().write(true).recover(&crashed)?;
        let log = report.done.replayed.expect("it was not closed");
        assert!(log.transactions >= 3 && log.blocks > 0, "{log:?}");
        assert_eq!(report.done.orphans.freed, 1);
        assert!(report.clean && !report.errors);
        assert_clean(&crashed);
        look(OpenOptions::new().write(true))?;
        assert_clean(&crashed);
        assert!(
            OpenOptions::new()
                .write(true)
                .recover(&crashed)?
                .done
                .is_empty()
        );
    }
    Ok(())
}

#[test]
fn a_node_of_another_volume_is_refused() -> Result<()> {
    let (Some((_one, a)), Some((_other, b))) = (image(&["-t", "ext4"]), image(&["-t", "ext4"]))
    else {
        return Ok(());
    };
    let (a, b) = (
        OpenOptions::new().write(true).open(&a)?,
        OpenOptions::new().write(true).open(&b)?,
    );
    a.create_file("/file")?;
    b.create_file("/file")?;
    let (here, there) = (a.node("/")?, b.node("/")?);
    let node = there.lookup(b"file")?;
    assert_eq!(reason(here.link(&node, b"link")), Reason::CrossDevice);
    assert_eq!(reason(here.lookup(b"link")), Reason::NotFound);
    let moved = here.rename(b"file", &there, b"moved", RenameMode::NoReplace);
    assert_eq!(reason(moved), Reason::CrossDevice);
    assert_eq!(here.lookup(b"file")?.metadata()?.nlink(), 1);
    assert_eq!(node.metadata()?.nlink(), 1);
    Ok(())
}

#[test]
fn system_inodes_cannot_be_linked() -> Result<()> {
    let Some((_dir, path)) = image(&["-t", "ext4", "-O", "orphan_file"]) else {
        return Ok(());
    };
    let volume = OpenOptions::new().write(true).open(&path)?;
    let root = volume.root()?;
    // Quotas, the boot loader's, undelete, the blocks for resizing, the journal; and the file of orphans,
    // behind them.
    for ino in (1..11).filter(|ino| *ino != 2).chain([12, 0]) {
        let refused = reason(volume.node_by_ino(ino));
        assert_eq!(refused, Reason::NotFound, "inode {ino}");
    }
    let refused = root.link_node(&volume.node_by_ino(2)?, "/link");
    assert_eq!(reason(refused), Reason::Permission);
    drop(root);
    volume.close()?;
    assert_clean(&path);
    Ok(())
}

#[test]
fn delayed_and_allocated_blocks_count_once() -> Result<()> {
    for options in [&["-t", "ext4", "-b", "4096"], &["-t", "ext4", "-b", "1024"]] {
        let Some((_dir, path)) = image(options) else {
            return Ok(());
        };
        let volume = OpenOptions::new().write(true).open(&path)?;
        let free = volume.stat_fs()?.free_blocks;
        let file = volume.create_file("/file")?;
        file.write_all_at(&[7; 32768], 0)?;
        let used = free - volume.stat_fs()?.free_blocks;
        file.allocate(Fallocate::KeepSize, 0, 5000)?;
        file.allocate(Fallocate::Allocate, 6000, 30)?;
        assert_eq!(file.metadata()?.blocks_512(), 64);
        assert_eq!(free - volume.stat_fs()?.free_blocks, used);
        file.sync_all()?;
        assert_eq!(file.metadata()?.blocks_512(), 64);
        drop(file);
        volume.close()?;
        assert_clean(&path);
    }
    Ok(())
}
