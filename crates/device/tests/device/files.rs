//! Properties of files: length, tail, locks, and errors of the system.

use crate::common;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use common::{block, buffer, engines, image, range, read, write};
use throughline_device::{DeviceKind, EngineChoice, LockMode, Op, OpenOptions};

fn file_of(folder: &tempfile::TempDir, len: u64) -> PathBuf {
    let path = folder.path().join("file");
    fs::write(&path, vec![0xaa_u8; len as usize]).unwrap();
    path
}

#[test]
fn the_tail_of_a_file_reads_as_zeros_and_is_cut_to_the_byte() {
    for engine in engines() {
        for direct in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = file_of(&folder, 5000);
            let device = OpenOptions::new()
                .engine(engine)
                .write(true)
                .direct(direct)
                .open(&path)
                .unwrap();
            let unit = block(&*device) as u64;
            assert_eq!(
                (device.len_bytes(), device.info().kind),
                (5000, DeviceKind::RegularFile)
            );
            let end = 5000_u64.next_multiple_of(unit);
            let mut queue = device.open_queue().unwrap();
            let mut back = buffer(&*device, end as usize);
            back.fill(1);
            read(&mut *queue, 0, &mut back).unwrap();
            assert!(
                back[..5000].iter().all(|&b| b == 0xaa) && back[5000..].iter().all(|&b| b == 0)
            );
            // Only the last block, of which the file holds a part.
            back.fill(1);
            let (tail, in_file) = (unit as usize, (5000 - (end - unit)) as usize);
            read(&mut *queue, end - unit, &mut back[..tail]).unwrap();
            assert!(
                back[..in_file].iter().all(|&b| b == 0xaa)
                    && back[in_file..tail].iter().all(|&b| b == 0)
            );
            assert_eq!(device.len_bytes(), 5000, "reading lengthens nothing");

            back[..tail].fill(0xbb);
            write(&mut *queue, end - unit, &back[..tail]).unwrap();
            assert_eq!(
                (device.len_bytes(), fs::metadata(&path).unwrap().len()),
                (end, end)
            );
            device.set_len(4999).unwrap();
            let content = fs::read(&path).unwrap();
            assert_eq!((content.len(), content[4998]), (4999, 0xbb));
            device.set_len(1 << 20).unwrap();
            assert_eq!(
                (device.len_bytes(), fs::metadata(&path).unwrap().len()),
                (1 << 20, 1 << 20)
            );
            write(&mut *queue, (1 << 20) - unit, &back[..tail]).unwrap();
        }
    }
}

#[test]
fn a_file_truncated_by_another_process_is_an_error() {
    for engine in engines() {
        for direct in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = file_of(&folder, 1 << 20);
            let device = OpenOptions::new()
                .engine(engine)
                .direct(direct)
                .open(&path)
                .unwrap();
            let mut queue = device.open_queue().unwrap();
            fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(100_000)
                .unwrap();
            let mut back = buffer(&*device, 65536);
            for at in [65536, 131_072] {
                let error = read(&mut *queue, at, &mut back).unwrap_err();
                assert_eq!(
                    error.kind(),
                    ErrorKind::UnexpectedEof,
                    "{engine:?} {direct}: {error}"
                );
            }
            read(&mut *queue, 0, &mut back).unwrap();
        }
    }
}

#[test]
fn a_read_only_device_refuses_writes() {
    for engine in engines() {
        let folder = tempfile::tempdir().unwrap();
        let path = file_of(&folder, 65536);
        let device = OpenOptions::new().engine(engine).open(&path).unwrap();
        assert!(device.info().read_only);
        let mut queue = device.open_queue().unwrap();
        let memory = buffer(&*device, 4096);
        for result in [
            write(&mut *queue, 0, &memory),
            range(&mut *queue, Op::Discard, 0, 4096),
            range(&mut *queue, Op::WriteZeroes, 0, 4096),
        ] {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
        }
        range(&mut *queue, Op::Flush, 0, 0).unwrap();
        assert!(device.set_len(0).is_err());
        assert!(fs::read(&path).unwrap().iter().all(|&b| b == 0xaa));
    }
}

#[test]
fn a_lock_conflict_names_the_holder() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_of(&folder, 65536);
    let open = |write, lock| OpenOptions::new().write(write).lock(lock).open(&path);
    let first = open(true, LockMode::Exclusive).unwrap();
    for lock in [LockMode::Exclusive, LockMode::Shared] {
        let error = open(true, lock).err().expect("locked");
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        let text = error.to_string();
        assert!(
            text.contains("in use by") && text.contains(&std::process::id().to_string()),
            "{text}"
        );
    }
    open(true, LockMode::None).unwrap();
    // An open queue keeps the lock too, because it can still write.
    let queue = first.open_queue().unwrap();
    drop(first);
    open(true, LockMode::Exclusive).err().expect("still locked");
    drop(queue);
    let readers = [
        open(false, LockMode::Shared).unwrap(),
        open(false, LockMode::Shared).unwrap(),
    ];
    open(true, LockMode::Exclusive)
        .err()
        .expect("locked by readers");
    drop(readers);
    open(true, LockMode::Exclusive).unwrap();
}

#[test]
fn a_locked_file_is_not_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_of(&folder, 65536);
    let _first = OpenOptions::new()
        .write(true)
        .lock(LockMode::Exclusive)
        .open(&path)
        .unwrap();
    let second = OpenOptions::new()
        .write(true)
        .truncate(true)
        .lock(LockMode::Exclusive)
        .open(&path);
    assert_eq!(second.err().unwrap().kind(), ErrorKind::ResourceBusy);
    assert_eq!(fs::metadata(&path).unwrap().len(), 65536);
}

#[test]
fn files_that_cannot_be_a_device_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let kind = |path: &Path, write| {
        OpenOptions::new()
            .write(write)
            .open(path)
            .err()
            .unwrap()
            .kind()
    };
    assert_eq!(kind(folder.path(), false), ErrorKind::InvalidInput);
    assert_eq!(kind(Path::new("/dev/null"), true), ErrorKind::InvalidInput);
    assert_eq!(
        kind(&folder.path().join("absent"), true),
        ErrorKind::NotFound
    );
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    assert_eq!(
        kind(&fifo, false),
        ErrorKind::InvalidInput,
        "and does not hang"
    );
    let path = file_of(&folder, 100);
    let readable = OpenOptions::new().truncate(true).open(&path);
    assert_eq!(readable.err().unwrap().kind(), ErrorKind::InvalidInput);
    assert_eq!(fs::metadata(&path).unwrap().len(), 100);
    let locked = OpenOptions::new().lock(LockMode::Exclusive).open(&path);
    assert_eq!(locked.err().unwrap().kind(), ErrorKind::InvalidInput);
    let again = OpenOptions::new().write(true).create_new(true).open(&path);
    assert_eq!(again.err().unwrap().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn limits_come_from_the_system() {
    let folder = tempfile::tempdir().unwrap();
    let device = image(EngineChoice::Auto, folder.path(), true).unwrap();
    let limits = device.info().limits;
    assert!(limits.logical_block_bytes.is_power_of_two() && limits.logical_block_bytes >= 512);
    assert!(limits.memory_align_bytes.is_power_of_two());
    assert!(limits.physical_block_bytes >= limits.logical_block_bytes);
    assert!(
        limits.max_transfer_bytes >= 4096 && limits.queue_depth >= 1 && limits.max_segments >= 1
    );
    assert!(limits.volatile_cache, "a file has metadata to flush");
    eprintln!("{:#?}", device.info());
}
