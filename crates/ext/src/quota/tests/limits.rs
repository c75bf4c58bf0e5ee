//! Limits of users: hard, soft with its grace time, and what they apply to.

use std::io::IoSlice;
use std::sync::Arc;

use throughline_extfmt::quota::QuotaKind;

use super::make;
use crate::quota::find_owner;
use crate::testing::Image;
use crate::{
    Attributes, Caller, Error, Fallocate, Fs, Inode, NewInode, NewKind, OpenOptions, QuotaLimits,
    Reason, Result,
};

const USER: u32 = 1000;
const NEW: NewInode = NewInode {
    permissions: 0o644,
    uid: USER,
    gid: 7,
    umask: 0,
};

fn options() -> OpenOptions {
    OpenOptions {
        write: true,
        limits: QuotaLimits {
            users: true,
            ..QuotaLimits::default()
        },
        ..OpenOptions::default()
    }
}

/// A volume on which the limits of users are enforced.
fn limited() -> Option<(Image, Arc<Fs>)> {
    limited_with("quota,project", &["-b", "1024"])
}

fn limited_with(features: &str, more: &[&str]) -> Option<(Image, Arc<Fs>)> {
    // For the rest of the test, which has its own thread.
    std::mem::forget(Caller::new(USER, NEW.gid).act());
    let image = make("40M", features, more)?;
    let fs = image.try_open(&options()).expect("opens");
    Some((image, Arc::new(fs)))
}

/// Sets a user's limits: space in KiB, and inodes; soft and hard.
fn set(fs: &Fs, (soft, hard): (u64, u64), inodes: (u64, u64)) {
    let owner = find_owner(fs, QuotaKind::User, USER).expect("an owner");
    let mut state = owner.state();
    state.entry.dqb_bsoftlimit.set(soft);
    state.entry.dqb_bhardlimit.set(hard);
    state.entry.dqb_isoftlimit.set(inodes.0);
    state.entry.dqb_ihardlimit.set(inodes.1);
}

fn create(fs: &Fs, name: &str, kind: NewKind<'_>) -> Result<Arc<Inode>> {
    let root = fs.root().expect("the root");
    fs.create(&root, name.as_bytes(), kind, NEW)
}

fn is_refused<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Caller(Reason::Quota)))
}

/// Writes through the cache; returns the bytes that were accepted.
fn write(fs: &Arc<Fs>, file: &Arc<Inode>, offset: u64, len: usize) -> Result<usize> {
    let open = fs.open_file(file)?;
    let bytes = vec![5; len];
    Ok(open.write(true, Some(offset), &[IoSlice::new(&bytes)])?.1)
}

fn close(image: &Image, fs: Arc<Fs>) {
    fs.shut_down().expect("closed");
    drop(fs);
    image.check("limits");
}

#[test]
fn nothing_passes_the_hard_limit() {
    let Some((image, fs)) = limited() else {
        return;
    };
    set(&fs, (0, 64), (0, 4));
    let file = create(&fs, "file", NewKind::File).expect("created");
    assert_eq!(write(&fs, &file, 0, 100 << 10).expect("a part"), 64 << 10);
    assert!(is_refused(&write(&fs, &file, 64 << 10, 1)));
    // Before and after write-back.
    fs.sync().expect("a sync");
    assert!(is_refused(&write(&fs, &file, 64 << 10, 1)));
    assert_eq!(write(&fs, &file, 0, 64 << 10).expect("in place"), 64 << 10);
    assert!(is_refused(&fs.fallocate(
        &file,
        Fallocate::Allocate,
        70 << 10,
        1024
    )));
    let direct = fs.write_at(&file, 80 << 10, &[IoSlice::new(&[1; 4096])]);
    assert!(is_refused(&direct), "{direct:?}");
    assert!(is_refused(&create(&fs, "dir", NewKind::Dir)));
    let link = create(&fs, "link", NewKind::Symlink(&[b't'; 200]));
    assert!(is_refused(&link));
    fs.truncate(&file, 60 << 10).expect("truncated");
    assert!(create(&fs, "dir", NewKind::Dir).is_ok());
    create(&fs, "one", NewKind::File).expect("created");
    create(&fs, "two", NewKind::Fifo).expect("created");
    assert!(is_refused(&create(&fs, "three", NewKind::File)));
    {
        let _root = Caller::ROOT.act();
        create(&fs, "three", NewKind::File).expect("created by root");
        assert_eq!(write(&fs, &file, 0, 200 << 10).expect("by root"), 200 << 10);
    }
    drop(file);
    close(&image, fs);
}

#[test]
fn a_rewritten_file_does_not_count_twice() {
    let Some((image, fs)) = limited() else {
        return;
    };
    fs.enable_deferred_truncation();
    set(&fs, (0, 100), (0, 0));
    let file = create(&fs, "file", NewKind::File).expect("created");
    for _ in 0..3 {
        fs.truncate(&file, 0).expect("truncated");
        assert_eq!(write(&fs, &file, 0, 90 << 10).expect("written"), 90 << 10);
    }
    drop(file);
    close(&image, fs);
}

#[test]
fn the_soft_limit_is_hard_after_its_grace_time() {
    let Some((image, fs)) = limited() else {
        return;
    };
    set(&fs, (16, 64), (0, 0));
    let file = create(&fs, "file", NewKind::File).expect("created");
    assert_eq!(write(&fs, &file, 0, 32 << 10).expect("written"), 32 << 10);
    fs.sync().expect("a sync");
    let owner = find_owner(&fs, QuotaKind::User, USER).expect("an owner");
    let ends = owner.state().entry.dqb_btime.get();
    let now = fs.now().seconds.cast_unsigned();
    assert!(
        ends > now + 600_000 && ends <= now + 604_800,
        "{ends} {now}"
    );
    assert_eq!(write(&fs, &file, 32 << 10, 1024).expect("written"), 1024);
    owner.state().entry.dqb_btime.set(now - 1);
    assert!(is_refused(&write(&fs, &file, 40 << 10, 1024)));
    fs.truncate(&file, 8 << 10).expect("truncated");
    fs.sync().expect("a sync");
    assert_eq!(owner.state().entry.dqb_btime.get(), 0);
    assert_eq!(write(&fs, &file, 40 << 10, 1024).expect("written"), 1024);
    drop((file, owner));
    close(&image, fs);
}

#[test]
fn a_gift_counts_for_the_new_owner() {
    let Some((image, fs)) = limited() else {
        return;
    };
    set(&fs, (0, 64), (0, 0));
    let root = fs.root().expect("the root");
    let other = NewInode { uid: 5, ..NEW };
    let file = fs
        .create(&root, b"big", NewKind::File, other)
        .expect("created");
    // Some of it is only in memory.
    assert_eq!(write(&fs, &file, 0, 100 << 10).expect("written"), 100 << 10);
    let give = Attributes {
        uid: Some(USER),
        ..Attributes::default()
    };
    assert!(is_refused(&fs.set_attributes(&file, &give)));
    fs.truncate(&file, 50 << 10).expect("truncated");
    assert_eq!(write(&fs, &file, 0, 60 << 10).expect("written"), 60 << 10);
    fs.set_attributes(&file, &give).expect("given");
    assert!(
        is_refused(&write(&fs, &file, 60 << 10, 5 << 10)) || {
            let state = find_owner(&fs, QuotaKind::User, USER).expect("an owner");
            let state = state.state();
            state.entry.dqb_curspace.get() + state.held_bytes <= 64 << 10
        }
    );
    fs.sync().expect("a sync");
    let owner = find_owner(&fs, QuotaKind::User, 5).expect("an owner");
    assert_eq!(owner.state().held_bytes, 0);
    drop((file, root, owner));
    close(&image, fs);
}

/// What the user uses and holds, in KiB.
fn used_kib(fs: &Fs) -> u64 {
    let owner = find_owner(fs, QuotaKind::User, USER).expect("an owner");
    let state = owner.state();
    (state.entry.dqb_curspace.get() + state.held_bytes) >> 10
}

#[test]
fn whole_clusters_count() {
    let Some((image, fs)) = limited_with("quota,bigalloc", &["-b", "1024", "-C", "16384"]) else {
        return;
    };
    set(&fs, (0, 64), (0, 0));
    let files: Vec<_> = ["a", "b", "c"]
        .map(|name| create(&fs, name, NewKind::File).expect("created"))
        .into();
    // A block of each of two clusters, in memory.
    assert_eq!(write(&fs, &files[0], 0, 100).expect("written"), 100);
    assert_eq!(write(&fs, &files[0], 20 << 10, 100).expect("written"), 100);
    assert_eq!(used_kib(&fs), 32);
    // The rest of them costs nothing.
    assert_eq!(
        write(&fs, &files[0], 0, 32 << 10).expect("written"),
        32 << 10
    );
    assert_eq!(used_kib(&fs), 32);
    assert_eq!(write(&fs, &files[1], 0, 1).expect("written"), 1);
    let direct = fs.write_at(&files[2], 4 << 10, &[IoSlice::new(&[1; 4096])]);
    assert_eq!(direct.expect("written"), 4096);
    assert!(is_refused(&write(&fs, &files[1], 16 << 10, 1)));
    assert!(is_refused(&create(&fs, "dir", NewKind::Dir)));
    let more = fs.fallocate(&files[2], Fallocate::Allocate, 16 << 10, 1024);
    assert!(is_refused(&more), "{more:?}");
    fs.sync().expect("a sync");
    assert_eq!(used_kib(&fs), 64);
    assert!(is_refused(&write(&fs, &files[1], 16 << 10, 1)));
    assert_eq!(
        write(&fs, &files[1], 0, 16 << 10).expect("its own"),
        16 << 10
    );
    fs.fallocate(&files[2], Fallocate::Allocate, 8 << 10, 8 << 10)
        .expect("its own cluster");
    fs.truncate(&files[0], 10 << 10).expect("truncated");
    assert_eq!(write(&fs, &files[1], 16 << 10, 1).expect("written"), 1);
    // Dropped before it is written.
    fs.truncate(&files[1], 0).expect("truncated");
    fs.sync().expect("a sync");
    assert_eq!(used_kib(&fs), 32);
    let owner = find_owner(&fs, QuotaKind::User, USER).expect("an owner");
    assert_eq!(owner.state().held_bytes, 0);
    drop((files, owner));
    close(&image, fs);
}

/// Adds names to a directory until one is refused; returns their number.
fn fill(fs: &Fs, dir: &Arc<Inode>) -> usize {
    let root = NewInode { uid: 0, ..NEW };
    let refused = (0..1000).find(|number| {
        let name = format!("{number}-{}", "n".repeat(200));
        let made = fs.create(dir, name.as_bytes(), NewKind::Fifo, root);
        is_refused(&made) || made.is_err_and(|error| panic!("{error}"))
    });
    refused.expect("the limit is reached")
}

#[test]
fn directories_grow_to_their_owners_limit() {
    for (features, more, kib) in [
        ("quota,project", &["-b", "1024"][..], 8),
        ("quota,^dir_index", &["-b", "1024"], 8),
        ("quota,bigalloc", &["-b", "1024", "-C", "4096"], 8),
        ("quota,inline_data", &["-b", "1024"], 1),
    ] {
        let Some((image, fs)) = limited_with(features, more) else {
            return;
        };
        let dir = create(&fs, "dir", NewKind::Dir).expect("created");
        set(&fs, (0, kib), (0, 0));
        let count = fill(&fs, &dir);
        assert!(count >= 3 * kib as usize / 2, "{features}: {count} names");
        assert_eq!(used_kib(&fs), kib, "{features}");
        set(&fs, (0, 2 * kib), (0, 0));
        create(&fs, "other", NewKind::Dir).expect("not more than a block");
        drop(dir);
        close(&image, fs);
    }
}

#[test]
fn attributes_count() {
    let Some((image, fs)) = limited_with("quota,ea_inode", &["-b", "1024", "-I", "256"]) else {
        return;
    };
    let [a, b] = ["a", "b"].map(|name| create(&fs, name, NewKind::File).expect("created"));
    set(&fs, (0, 5), (0, 3));
    let put = |file: &Inode, name: &str, bytes: usize| {
        let mode = crate::XattrMode::Either;
        fs.set_xattr(file, name.as_bytes(), &vec![bytes as u8; bytes], mode)
    };
    put(&a, "user.block", 500).expect("a block");
    assert_eq!(used_kib(&fs), 1);
    // An inode and its blocks; then there is no inode left.
    put(&a, "user.value", 2500).expect("a value");
    assert_eq!(used_kib(&fs), 4);
    assert!(is_refused(&put(&b, "user.value", 1500)));
    put(&b, "user.block", 600).expect("a block");
    assert!(is_refused(&write(&fs, &b, 0, 1)));
    let owner = find_owner(&fs, QuotaKind::User, USER).expect("an owner");
    assert_eq!(owner.state().held_bytes, 0);
    drop((a, b, owner));
    close(&image, fs);
}

#[test]
fn limits_need_the_feature() {
    let Some(image) = Image::make("24M", &["-t", "ext4"]) else {
        return;
    };
    let refused = image.try_open(&options()).map(drop);
    assert!(matches!(refused, Err(Error::Unsupported(why)) if why.contains("quota")));
    image.check("refused");
}
