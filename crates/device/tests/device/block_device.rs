//! A real block device: a loop device over a file. Needs root; prints a message if skipped.

use crate::common;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use common::loops::{LEN, Loop, run};
use throughline_device::{
    AlignedBuf, BlockDevice, DeviceKind, EngineChoice, LockMode, Op, OpenOptions, Segment, scope,
};

/// Opens it for writing, with an exclusive lock.
fn open(disk: &Loop, engine: EngineChoice) -> std::io::Result<std::sync::Arc<dyn BlockDevice>> {
    OpenOptions::new()
        .engine(engine)
        .write(true)
        .lock(LockMode::Exclusive)
        .open(&disk.node)
}

fn io(device: &dyn BlockDevice, op: Op, at: u64, memory: &mut [u8]) -> std::io::Result<()> {
    let mut queue = device.open_queue()?;
    let mut done = Vec::new();
    scope(&mut *queue, |s| {
        match op {
            Op::Read => s.submit(0, op, at, [Segment::Read(memory)], false),
            Op::Write => s.submit(0, op, at, [Segment::Write(memory)], true),
            _ => s.submit_range(0, op, at, memory.len() as u64),
        }
        s.reap(1, &mut done);
    });
    done.pop().expect("one").result
}

#[test]
fn a_block_device_is_read_written_cleared_and_flushed() {
    for block_bytes in [512, 4096] {
        let Some(disk) = Loop::new(block_bytes) else {
            return;
        };
        for engine in [EngineChoice::Auto, EngineChoice::Threads] {
            let device = open(&disk, engine).unwrap();
            let info = device.info();
            assert_eq!(
                (info.kind, info.direct, device.len_bytes()),
                (DeviceKind::BlockDevice, true, LEN)
            );
            assert_eq!(info.limits.logical_block_bytes, block_bytes, "{info:?}");
            let mut memory = AlignedBuf::zeroed(3 << 20, 4096);
            memory.fill(0x5a);
            io(&*device, Op::Write, 1 << 20, &mut memory).unwrap();
            io(&*device, Op::Flush, 0, &mut []).unwrap();
            let content = fs::read(disk.image()).unwrap();
            assert!(content[1 << 20..4 << 20].iter().all(|&b| b == 0x5a));
            assert!(content[4 << 20..].iter().all(|&b| b == 0));

            io(&*device, Op::WriteZeroes, 2 << 20, &mut memory[..1 << 20]).unwrap();
            memory.fill(1);
            io(&*device, Op::Read, 1 << 20, &mut memory).unwrap();
            let expected = |i: usize| {
                if (1 << 20..2 << 20).contains(&i) {
                    0
                } else {
                    0x5a
                }
            };
            assert!(memory.iter().enumerate().all(|(i, &b)| b == expected(i)));
            match io(&*device, Op::Discard, 0, &mut memory) {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
            }
            assert!(device.set_len(1).is_err());
            let past = io(&*device, Op::Read, LEN, &mut memory[..4096]);
            assert_eq!(past.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
}

#[test]
fn a_mounted_device_is_in_use() {
    let Some(disk) = Loop::new(512) else { return };
    let made = run("mke2fs", &["-q", &disk.node]);
    if !made.is_ok_and(|output| output.status.success()) {
        return throughline_testkit::missing!("no mke2fs");
    }
    let at = disk.folder.path().join("mounted");
    fs::create_dir(&at).unwrap();
    let at = at.to_str().unwrap();
    if !run("mount", &[&disk.node, at]).is_ok_and(|output| output.status.success()) {
        return throughline_testkit::missing!("cannot mount");
    }
    let refused = open(&disk, EngineChoice::Auto).err();
    assert!(run("umount", &[at]).unwrap().status.success());
    let refused = refused.expect("mounted");
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(
        refused.to_string().contains(&format!("mounted at {at}")),
        "{refused}"
    );
    disk.wait_unmounted();
    drop(open(&disk, EngineChoice::Auto).unwrap());
    for _ in 0..20 {
        // Closing releases the device at once, with rings too.
        drop(open(&disk, EngineChoice::Auto).unwrap());
    }
    assert!(!Path::new(at).join("lost+found").exists());
}

#[test]
fn one_writer_or_many_readers_have_a_device() {
    let Some(disk) = Loop::new(512) else { return };
    let reader = || OpenOptions::new().lock(LockMode::Shared).open(&disk.node);
    let us = format!("in use by this process ({})", std::process::id());
    let first = open(&disk, EngineChoice::Auto).unwrap();
    for refused in [open(&disk, EngineChoice::Auto), reader()] {
        let refused = refused.err().expect("it has a writer");
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
        assert!(refused.to_string().contains(&us), "{refused}");
    }
    drop(first);
    let readers = [reader().unwrap(), reader().unwrap()];
    let refused = open(&disk, EngineChoice::Auto)
        .err()
        .expect("it has readers");
    assert!(refused.to_string().contains(&us), "{refused}");
    drop(readers);
    open(&disk, EngineChoice::Auto).unwrap();
}
