//! Damaged orphan lists and files: opening fails with an error that names the inode or block.

use super::*;

/// The error of opening an image for writing, whose orphan list was changed by `debugfs`.
fn damaged(args: &[&str], requests: impl FnOnce(&[InodeNumber]) -> Vec<String>) -> Option<String> {
    let image = Image::make("32M", args)?;
    let fs = image.open();
    let root = fs.root().expect("a root");
    let inodes: Vec<_> = ["a", "b", "c"]
        .map(|name| make(&fs, name, NewKind::File).ino)
        .into();
    drop(root);
    fs.close().expect("closed");
    let requests = requests(&inodes);
    image.debugfs_write_all(&requests.iter().map(String::as_str).collect::<Vec<_>>());
    match open_after_crash(&image) {
        Err(Error::Corrupt(what)) => Some(what.to_string()),
        Err(other) => panic!("{other}"),
        Ok(_) => Some(String::new()),
    }
}

#[test]
fn damaged_lists_are_refused_with_their_inode() {
    let args = ["-t", "ext4", "-O", "^orphan_file"];
    let unnamed = |ino: InodeNumber, name: &str| {
        vec![
            format!("unlink /{name}"),
            format!("sif <{ino}> links_count 0"),
        ]
    };
    // The inode is not in use.
    let Some(message) = damaged(&args, |_| vec!["ssv last_orphan 500".into()]) else {
        return;
    };
    assert!(
        message.contains("free inode") && message.contains("500"),
        "{message}"
    );
    let message = damaged(&args, |_| vec!["ssv last_orphan 8".into()]).expect("made");
    assert!(
        message.contains("reserved inode") && message.contains('8'),
        "{message}"
    );
    let message = damaged(&args, |_| vec!["ssv last_orphan 4000000".into()]).expect("made");
    assert!(message.contains("does not exist"), "{message}");
    // A cycle of inodes without names, and one of inodes with names.
    let message = damaged(&args, |inodes| {
        let [a, b, _] = inodes else { panic!() };
        let mut all = [unnamed(*a, "a"), unnamed(*b, "b")].concat();
        all.push(format!("sif <{a}> dtime {b}"));
        all.push(format!("sif <{b}> dtime {a}"));
        all.push(format!("ssv last_orphan {a}"));
        all
    });
    let message = message.expect("made");
    assert!(message.contains("free inode"), "{message}");
    let message = damaged(&args, |inodes| {
        let [a, b, _] = inodes else { panic!() };
        vec![
            format!("sif <{a}> dtime {b}"),
            format!("sif <{b}> dtime {a}"),
            format!("ssv last_orphan {a}"),
        ]
    });
    assert_eq!(
        message.expect("made"),
        "",
        "each is completed once and leaves the list"
    );
    // Free according to its bitmap.
    let message = damaged(&args, |inodes| {
        let [a, ..] = inodes else { panic!() };
        let mut all = unnamed(*a, "a");
        all.push(format!("freei <{a}>"));
        all.push(format!("ssv last_orphan {a}"));
        all
    });
    let message = message.expect("made");
    assert!(message.contains("free in its bitmap"), "{message}");
}

/// The error of opening a volume whose orphan file had an inode written to slot 7 directly, and then its
/// block changed; `pick` chooses from an inode with a name and one that is on the list.
fn damaged_file(
    pick: impl FnOnce(&Inode, &Inode) -> u32,
    change: impl FnOnce(&mut [u8]),
) -> Option<String> {
    let args = ["-t", "ext4", "-b", "1024", "-O", "orphan_file"];
    let image = Image::make("32M", &args)?;
    let fs = image.open();
    let named = make(&fs, "named", NewKind::File);
    let listed = make(&fs, "listed", NewKind::File);
    let file = fs.orphans.file.get().expect("an orphan file");
    let block = fs
        .transact(4, |h| {
            fs.orphans.list().push(&fs, h, &listed)?;
            fs.store(h, &listed)?;
            let ino = InodeNumber(pick(&named, &listed));
            file.set_slot_unrecorded(&fs, h, (7, ino), change)
        })
        .expect("changed");
    fs.sync().expect("synced");
    let crashed = image.copy();
    let message = match open_after_crash(&crashed) {
        Err(Error::Corrupt(what)) => what.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => return Some(String::new()),
    };
    assert!(
        message.contains(&block.to_string()),
        "{message} names block {block}"
    );
    Some(message)
}

#[test]
fn damaged_orphan_files_are_refused_with_their_block() {
    let keep = |_: &mut [u8]| ();
    let Some(message) = damaged_file(|_, _| 700, keep) else {
        return;
    };
    assert!(
        message.contains("free inode") && message.contains("700"),
        "{message}"
    );
    let message = damaged_file(|_, _| 8, keep).expect("made");
    assert!(message.contains("reserved inode"), "{message}");
    let message = damaged_file(|_, _| 5_000_000, keep).expect("made");
    assert!(message.contains("names inode 5000000"), "{message}");
    let message = damaged_file(|_, _| 700, |bytes| bytes[1000] ^= 1).expect("made");
    assert!(message.contains("checksum"), "{message}");
    let message = damaged_file(|_, _| 700, |bytes| bytes[1016] ^= 1).expect("made");
    assert!(message.contains("magic"), "{message}");
    // Both on the list and in the file: with names, its truncation is completed twice.
    let message = damaged_file(|_, listed| listed.ino.0, keep).expect("made");
    assert_eq!(message, "");
}

#[test]
fn an_invalid_orphan_file_is_refused() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "orphan_file"];
    for (number, why) in [
        (0, "does not exist"),
        (600, "free inode"),
        (1_000_000, "does not exist"),
    ] {
        let Some(image) = Image::make("32M", &args) else {
            return;
        };
        image.edit_super(|sb| sb.s_orphan_file_inum.set(number));
        match open_after_crash(&image) {
            Err(Error::Corrupt(message)) => assert!(message.to_string().contains(why), "{message}"),
            other => panic!("{number}: {:?}", other.map(drop)),
        }
    }
}

/// A block that was evicted, and is loaded again to be changed.
#[test]
fn a_block_of_orphan_slots_is_checked_again() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "orphan_file"];
    let Some(image) = Image::make("32M", &args) else {
        return;
    };
    let fs = image.open_forgetful();
    let file = make(&fs, "file", NewKind::File);
    fs.sync().expect("a sync");
    let orphans = fs.orphans.file.get().expect("an orphan file");
    orphans.found(&fs).expect("each block is read");
    let slots = orphans.places();
    slots.iter().for_each(|at| image.spoil(&fs, *at, 900));
    let before: Vec<_> = slots.iter().map(|at| image.block(&fs, *at)).collect();
    // All slots are damaged, so the inode must go on the list instead.
    fs.open_inode(&file).expect("opened");
    let root = fs.root().expect("the root");
    fs.unlink(&root, b"file").expect("unlinked");
    assert_eq!(fs.superblock().s_last_orphan.get(), file.ino.0);
    fs.sync().expect("a sync");
    fs.close_inode(&file).expect("closed");
    fs.shut_down().expect("shut down");
    let after: Vec<_> = slots.iter().map(|at| image.block(&fs, *at)).collect();
    assert!(before == after, "a damaged block was written");
}
