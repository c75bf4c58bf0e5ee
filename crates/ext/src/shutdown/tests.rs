//! A volume taken down while threads use it: the resulting disk, and that nothing is written afterwards.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throughline_fileio::ReadStream;
use throughline_testing::{Image as Medium, PowerDevice};

use super::TakeDown;
use crate::testing::{Image, power_on};
use crate::{Error, Fs, NewInode, NewKind, OpenFile, Reason, Result};

const OWNER: NewInode = NewInode {
    permissions: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

fn make(fs: &Arc<Fs>, name: &str) -> Result<OpenFile> {
    let inode = fs.create(&fs.root()?, name.as_bytes(), NewKind::File, OWNER)?;
    fs.open_file(&inode)
}

fn write(file: &OpenFile, offset: u64, bytes: &[u8]) -> Result<()> {
    file.write(true, Some(offset), &[IoSlice::new(bytes)])
        .map(drop)
}

fn read(file: &OpenFile) -> Result<Vec<u8>> {
    let mut bytes = vec![0; file.size() as usize];
    let bufs = &mut [IoSliceMut::new(&mut bytes)];
    file.read(true, 0, bufs, &ReadStream::default())?;
    Ok(bytes)
}

fn open_again(fs: &Arc<Fs>, name: &str) -> Result<OpenFile> {
    let inode = fs.lookup(&fs.root()?, name.as_bytes())?;
    fs.open_file(&inode)
}

#[track_caller]
fn is_down<T>(result: Result<T>) {
    match result {
        Err(Error::Down) => {}
        Err(other) => panic!("not taken down: {other}"),
        Ok(_) => panic!("it succeeded"),
    }
}

/// Threads create and write files until they fail because the volume is taken down meanwhile.
fn use_and_take_down(fs: &Arc<Fs>, mode: TakeDown) {
    let rounds = AtomicUsize::new(0);
    let work = |thread: usize| {
        for round in 0.. {
            // Reuse names after a while, so that the volume does not fill up.
            let name = format!("{thread}-{}", round % 40);
            let file = match make(fs, &name) {
                Err(Error::Caller(Reason::Exists)) => open_again(fs, &name),
                other => other,
            };
            let done = file.and_then(|file| {
                write(&file, 0, &vec![thread as u8; 20_000])?;
                if round % 3 == 0 {
                    file.sync(false)?;
                }
                Ok(())
            });
            rounds.fetch_add(1, Ordering::Relaxed);
            match done {
                Ok(()) => {}
                // Calls in progress got the error of the journal or of the device.
                Err(Error::Down | Error::Stopped(_) | Error::Device(_)) => return,
                Err(other) => panic!("{other}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|n| scope.spawn(move || work(n))).collect();
        while rounds.load(Ordering::Relaxed) < 30 && threads.iter().any(|t| !t.is_finished()) {
            std::thread::yield_now();
        }
        fs.take_down(mode).expect("taken down");
        fs.take_down(TakeDown::Flush).expect("it is already");
    });
}

fn judged(image: &Image, medium: &Medium, mode: TakeDown, has_journal: bool) {
    image.hold(medium);
    if !has_journal {
        image.repair();
    }
    let fs = Arc::new(image.open());
    let synced = open_again(&fs, "synced").expect("it was synced");
    assert_eq!(read(&synced).expect("read"), [7; 30_000], "{mode:?}");
    let dirty = open_again(&fs, "dirty").map(|file| file.size());
    match mode {
        TakeDown::Flush => assert_eq!(dirty.expect("it was flushed"), 5000),
        // Without a journal, `e2fsck` has repaired its findings.
        TakeDown::FlushLog => assert_eq!(dirty.expect("its name was committed"), 0),
        TakeDown::NoFlush => {}
    }
    drop(synced);
    fs.shut_down().expect("closed");
    image.check(&format!("{mode:?}"));
}

#[test]
fn the_disk_after_a_take_down_is_as_after_a_crash() {
    for kind in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]] {
        let Some(image) = Image::make("32M", &[kind, &["-b", "1024"]].concat()) else {
            return;
        };
        let medium = Medium::read_file(image.path()).expect("the image");
        for mode in [TakeDown::Flush, TakeDown::FlushLog, TakeDown::NoFlush] {
            let (device, fs): (Arc<PowerDevice>, _) = power_on(&medium);
            let fs = Arc::new(fs.expect("it opens"));
            let synced = make(&fs, "synced").expect("made");
            write(&synced, 0, &[7; 30_000]).expect("written");
            synced.sync(false).expect("synced");
            let dirty = make(&fs, "dirty").expect("made");
            write(&dirty, 0, &[8; 5000]).expect("written");
            if mode == TakeDown::Flush {
                use_and_take_down(&fs, mode);
            } else {
                // Concurrent commits, or the flusher, would write more.
                fs.take_down(mode).expect("taken down");
            }
            let position = device.position();
            assert!(fs.is_down());
            is_down(make(&fs, "more").map(drop));
            is_down(write(&synced, 0, b"more"));
            is_down(read(&synced));
            is_down(synced.sync(false));
            is_down(synced.sync(true));
            // An inode in memory can still be queried, as in the kernel's ext4.
            fs.root().expect("it is in memory");
            is_down(open_again(&fs, "synced").map(drop));
            is_down(fs.sync());
            drop((synced, dirty));
            fs.shut_down().expect("there is nothing to do");
            drop(fs);
            assert_eq!(
                device.position(),
                position,
                "{mode:?}: something was written"
            );
            judged(&image, &device.contents(), mode, kind.len() == 2);
        }
    }
}

#[test]
fn under_load_too() {
    let Some(image) = Image::make("64M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let medium = Medium::read_file(image.path()).expect("the image");
    for mode in [TakeDown::FlushLog, TakeDown::NoFlush] {
        for _ in 0..4 {
            let (device, fs) = power_on(&medium);
            let fs = Arc::new(fs.expect("it opens"));
            let synced = make(&fs, "synced").expect("made");
            write(&synced, 0, &[7; 30_000]).expect("written");
            synced.sync(false).expect("synced");
            use_and_take_down(&fs, mode);
            let position = device.position();
            drop(synced);
            fs.shut_down().expect("there is nothing to do");
            drop(fs);
            assert_eq!(
                device.position(),
                position,
                "{mode:?}: something was written"
            );
            image.hold(&device.contents());
            let fs = Arc::new(image.open());
            let synced = open_again(&fs, "synced").expect("it was synced");
            assert_eq!(read(&synced).expect("read"), [7; 30_000], "{mode:?}");
            drop(synced);
            fs.shut_down().expect("closed");
            image.check(&format!("{mode:?}"));
        }
    }
}
