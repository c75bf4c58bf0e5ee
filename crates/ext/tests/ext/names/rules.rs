//! What each operation refuses, and with which error; several threads at once.

use std::sync::Arc;

use throughline_ext::{Error, Fs, Inode, Last, NewInode, NewKind, Reason, RenameMode};

use crate::names::image::{Image, Random};

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 7,
    gid: 8,
    umask: 0,
};

fn refused<T>(done: Result<T, Error>, reason: Reason) {
    match done.map(drop) {
        Err(Error::Caller(got))
            if std::mem::discriminant(&got) == std::mem::discriminant(&reason) => {}
        other => panic!("{other:?}, not {reason:?}"),
    }
}

struct Tree {
    fs: Fs,
    root: Arc<Inode>,
    dir: Arc<Inode>,
    below: Arc<Inode>,
    file: Arc<Inode>,
}

/// `/dir/below/inner`, `/dir/f`, `/file`, `/empty`.
fn tree(image: &Image) -> Tree {
    let fs = image.open();
    let root = fs.root().expect("a root");
    let dir = fs.create(&root, b"dir", NewKind::Dir, OWNER).expect("made");
    let below = fs
        .create(&dir, b"below", NewKind::Dir, OWNER)
        .expect("made");
    fs.create(&below, b"inner", NewKind::Dir, OWNER)
        .expect("made");
    fs.create(&dir, b"f", NewKind::File, OWNER).expect("made");
    let file = fs
        .create(&root, b"file", NewKind::File, OWNER)
        .expect("made");
    fs.create(&root, b"empty", NewKind::Dir, OWNER)
        .expect("made");
    Tree {
        fs,
        root,
        dir,
        below,
        file,
    }
}

#[test]
fn refusals_are_distinguished() {
    let Some(image) = Image::make(&["-t", "ext4", "-O", "metadata_csum"], "32M") else {
        return;
    };
    let Tree {
        fs,
        root,
        dir,
        below,
        file,
    } = tree(&image);
    let create = |at: &Arc<Inode>, name: &[u8]| fs.create(at, name, NewKind::File, OWNER);
    refused(create(&root, b"file"), Reason::Exists);
    refused(create(&root, b"."), Reason::Exists);
    refused(create(&root, b""), Reason::Invalid(""));
    refused(create(&root, b"a/b"), Reason::Invalid(""));
    refused(create(&root, &[b'n'; 256]), Reason::NameTooLong);
    refused(create(&file, b"x"), Reason::NotDir);
    refused(
        fs.create(&root, b"x", NewKind::Symlink(b""), OWNER),
        Reason::NotFound,
    );
    refused(
        fs.create(
            &root,
            b"x",
            NewKind::CharDevice {
                major: 4096,
                minor: 0,
            },
            OWNER,
        ),
        Reason::Invalid(""),
    );
    refused(fs.unlink(&root, b"none"), Reason::NotFound);
    refused(fs.unlink(&root, b"dir"), Reason::IsDir);
    refused(fs.unlink(&root, b".."), Reason::IsDir);
    refused(fs.rmdir(&root, b"dir"), Reason::NotEmpty);
    refused(fs.rmdir(&root, b"file"), Reason::NotDir);
    refused(fs.rmdir(&root, b"."), Reason::Invalid(""));
    refused(fs.rmdir(&dir, b".."), Reason::NotEmpty);
    refused(fs.link(&dir, &root, b"x"), Reason::Permission);
    refused(fs.link(&file, &dir, b"f"), Reason::Exists);
    let rename = |old: &Arc<Inode>, from: &[u8], new: &Arc<Inode>, to: &[u8], mode| {
        fs.rename(old, from, new, to, mode)
    };
    use RenameMode::{Exchange, NoReplace, Replace};
    refused(
        rename(&root, b"none", &root, b"x", Replace),
        Reason::NotFound,
    );
    refused(
        rename(&root, b"file", &root, b"none", Exchange),
        Reason::NotFound,
    );
    refused(
        rename(&root, b"file", &dir, b"f", NoReplace),
        Reason::Exists,
    );
    refused(
        rename(&root, b"file", &root, b"dir", Replace),
        Reason::IsDir,
    );
    refused(
        rename(&root, b"empty", &root, b"file", Replace),
        Reason::NotDir,
    );
    refused(
        rename(&root, b"empty", &root, b"dir", Replace),
        Reason::NotEmpty,
    );
    refused(
        rename(&root, b"dir", &below, b"x", Replace),
        Reason::Invalid(""),
    );
    refused(
        rename(&root, b"dir", &dir, b"x", Replace),
        Reason::Invalid(""),
    );
    refused(
        rename(&root, b"dir", &below, b"inner", Exchange),
        Reason::Invalid(""),
    );
    refused(
        rename(&below, b"inner", &root, b"dir", Exchange),
        Reason::Invalid(""),
    );
    refused(
        rename(&below, b"inner", &root, b"dir", Replace),
        Reason::NotEmpty,
    );
    refused(
        rename(&root, b"..", &root, b"x", Replace),
        Reason::Busy(String::new()),
    );
    refused(
        rename(&root, b"file", &root, b".", Replace),
        Reason::Busy(String::new()),
    );
    refused(
        rename(&root, b"file", &root, &[b'n'; 256], Replace),
        Reason::NameTooLong,
    );
    // Removed directories cannot be used any more, even through existing references.
    fs.rmdir(&below, b"inner").expect("removed");
    fs.rmdir(&dir, b"below").expect("removed");
    refused(create(&below, b"x"), Reason::NotFound);
    refused(fs.lookup(&dir, b"below"), Reason::NotFound);
    fs.unlink(&root, b"file").expect("removed");
    refused(fs.link(&file, &root, b"again"), Reason::NotFound);
    fs.close().expect("closed");
    image.check();
}

#[test]
fn renames_move_what_they_should() {
    let Some(image) = Image::make(&["-t", "ext4", "-O", "metadata_csum"], "32M") else {
        return;
    };
    let Tree {
        fs,
        root,
        dir,
        below,
        file,
    } = tree(&image);
    let at = |path: &str| {
        fs.resolve(path.as_bytes(), Last::NoFollow)
            .map(|inode| inode.ino)
            .ok()
    };
    let empty = at("/empty");
    fs.rename(&root, b"file", &root, b"file", RenameMode::Replace)
        .expect("nothing to do");
    fs.rename(&root, b"dir", &root, b"empty", RenameMode::Exchange)
        .expect("exchanged");
    assert_eq!((at("/empty/below"), at("/dir")), (Some(below.ino), empty));
    fs.rename(&root, b"file", &dir, b"below", RenameMode::Exchange)
        .expect("exchanged");
    assert_eq!(
        (at("/file"), at("/empty/below")),
        (Some(below.ino), Some(file.ino))
    );
    assert_eq!(fs.parent(&below).expect("..").ino, root.ino);
    fs.rename(&root, b"file", &root, b"dir", RenameMode::Replace)
        .expect("over an empty directory");
    assert_eq!((at("/file"), at("/dir")), (None, Some(below.ino)));
    fs.rename(&dir, b"below", &dir, b"f", RenameMode::Replace)
        .expect("over a file");
    assert_eq!(at("/empty/f"), Some(file.ino));
    fs.close().expect("closed");
    image.check();
}

#[test]
fn nodes_of_every_kind() {
    let Some(image) = Image::make(&["-t", "ext4", "-O", "metadata_csum"], "32M") else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let made = [
        ("old", NewKind::CharDevice { major: 5, minor: 1 }),
        (
            "new",
            NewKind::BlockDevice {
                major: 259,
                minor: 1_000_000,
            },
        ),
        ("fifo", NewKind::Fifo),
        ("socket", NewKind::Socket),
    ];
    for (name, kind) in made {
        fs.create(
            &root,
            name.as_bytes(),
            kind,
            NewInode {
                uid: 100_000,
                gid: 4_000_000_000,
                ..OWNER
            },
        )
        .expect("made");
    }
    // A directory with the setgid bit passes its group on.
    let shared = NewInode {
        permissions: 0o2775,
        ..OWNER
    };
    let dir = fs
        .create(&root, b"shared", NewKind::Dir, shared)
        .expect("made");
    let child = fs
        .create(
            &dir,
            b"child",
            NewKind::Dir,
            NewInode {
                gid: 99,
                permissions: 0o755,
                ..OWNER
            },
        )
        .expect("made");
    let found = fs.metadata(&child).expect("attributes");
    assert_eq!((found.gid, found.permissions), (8, 0o2755));
    fs.close().expect("closed");
    image.check();
    let listed = image.debugfs("ls -l /");
    for (name, numbers) in [("old", "5,"), ("new", "259,")] {
        let stat = image.debugfs(&format!("stat /{name}"));
        assert!(
            stat.contains("Device major/minor number"),
            "{name} {numbers}: {stat}"
        );
    }
    assert!(listed.contains("fifo") && listed.contains("socket"));
    let fs = image.open();
    for (name, kind) in made {
        let inode = fs
            .resolve(format!("/{name}").as_bytes(), Last::NoFollow)
            .expect("there");
        let found = fs.metadata(&inode).expect("attributes");
        let device = match kind {
            NewKind::CharDevice { major, minor } | NewKind::BlockDevice { major, minor } => {
                Some((major, minor))
            }
            _ => None,
        };
        assert_eq!(
            (found.device, found.uid, found.gid),
            (device, 100_000, 4_000_000_000),
            "{name}"
        );
        fs.unlink(&fs.root().expect("a root"), name.as_bytes())
            .expect("unlinked");
    }
    fs.close().expect("closed");
    image.check();
}

#[test]
fn a_read_only_volume_refuses_changes() {
    let Some(image) = Image::make(&["-t", "ext4"], "32M") else {
        return;
    };
    let fs = image
        .open_with(|options| options.write = false)
        .expect("opens");
    let root = fs.root().expect("a root");
    refused(
        fs.create(&root, b"x", NewKind::File, OWNER),
        Reason::ReadOnly,
    );
    refused(fs.rmdir(&root, b"lost+found"), Reason::ReadOnly);
    refused(
        fs.rename(&root, b"lost+found", &root, b"x", RenameMode::Replace),
        Reason::ReadOnly,
    );
    refused(
        fs.set_attributes(&root, &Default::default()),
        Reason::ReadOnly,
    );
}

#[test]
fn threads_that_rename_and_remove_at_once() {
    let Some(image) = Image::make(&["-t", "ext4", "-b", "1024", "-O", "metadata_csum"], "64M")
    else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    for dir in 0..4 {
        fs.create(&root, format!("d{dir}").as_bytes(), NewKind::Dir, OWNER)
            .expect("made");
    }
    std::thread::scope(|threads| {
        for thread in 0..4u64 {
            let fs = &fs;
            threads.spawn(move || work(fs, thread));
        }
    });
    let mut count = 0;
    let mut left = vec![fs.root().expect("a root")];
    while let Some(dir) = left.pop() {
        for entry in fs.read_dir(&dir) {
            let inode = fs.lookup(&dir, &entry.expect("sound").name).expect("there");
            count += 1;
            assert!(count < 100_000, "directories form a cycle");
            if inode.is_dir() {
                left.push(inode);
            }
        }
    }
    fs.close().expect("closed");
    image.check();
}

/// Random operations on a few names that all threads contend for: any error except damage is allowed.
fn work(fs: &Fs, thread: u64) {
    let mut random = Random(thread);
    let path = |random: &mut Random| {
        let depth = 1 + random.below(3);
        (0..depth)
            .map(|_| format!("/d{}", random.below(4)))
            .collect::<String>()
    };
    for step in 0..1500 {
        let (a, b) = (path(&mut random), path(&mut random));
        let name = format!("/d{}", random.below(4));
        let place = |path: &str| fs.place(path.as_bytes(), Last::NoFollow);
        let done = (|| {
            let (from, to) = (place(&a)?, place(&format!("{b}{name}"))?);
            match random.below(6) {
                0 => fs.create(&to.dir, &to.name, NewKind::Dir, OWNER).map(drop),
                1 => fs.create(&to.dir, &to.name, NewKind::File, OWNER).map(drop),
                2 => fs.rmdir(&from.dir, &from.name),
                3 => fs.unlink(&from.dir, &from.name),
                4 => fs.rename(
                    &from.dir,
                    &from.name,
                    &to.dir,
                    &to.name,
                    RenameMode::Exchange,
                ),
                _ => fs.rename(
                    &from.dir,
                    &from.name,
                    &to.dir,
                    &to.name,
                    RenameMode::Replace,
                ),
            }
        })();
        assert!(
            matches!(done, Ok(()) | Err(Error::Caller(_))),
            "thread {thread}, step {step}: {done:?}"
        );
    }
}
