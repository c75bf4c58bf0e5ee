//! Path walks: links, slashes, dots, and the bounds of the volume.

use throughline_ext::{Error, Fs, Last, MAX_LINKS, NewInode, NewKind, Reason};

use crate::names::image::Image;

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    umask: 0,
};

fn make(fs: &Fs, path: &str, kind: NewKind<'_>) {
    let place = fs.place(path.as_bytes(), Last::NoFollow).expect("a place");
    fs.create(&place.dir, &place.name, kind, OWNER)
        .unwrap_or_else(|e| panic!("{path}: {e}"));
}

#[test]
fn paths_lead_where_they_say() {
    for features in ["^inline_data", "inline_data"] {
        let Some(image) = Image::make(&["-t", "ext4", "-I", "256", "-O", features], "32M") else {
            return;
        };
        let fs = image.open();
        for dir in ["/a", "/a/b", "/a/b/c"] {
            make(&fs, dir, NewKind::Dir);
        }
        make(&fs, "/a/file", NewKind::File);
        make(&fs, "/up", NewKind::Symlink(b"../../../../a/b/../file"));
        make(&fs, "/a/b/abs", NewKind::Symlink(b"/a/file"));
        make(&fs, "/todir", NewKind::Symlink(b"a/b/"));
        make(&fs, "/dangling", NewKind::Symlink(b"a/new"));
        make(&fs, "/self", NewKind::Symlink(b"self"));
        make(
            &fs,
            "/long",
            NewKind::Symlink(&[b"./".repeat(400).as_slice(), b"a"].concat()),
        );
        for number in 0..=MAX_LINKS {
            let target = if number == 0 {
                "/a/file".to_owned()
            } else {
                format!("l{}", number - 1)
            };
            make(
                &fs,
                &format!("/l{number}"),
                NewKind::Symlink(target.as_bytes()),
            );
        }
        let ino = |path: &str| {
            fs.resolve(path.as_bytes(), Last::Follow)
                .map(|inode| inode.ino)
        };
        let same = |path: &str, other: &str| {
            assert_eq!(ino(path).expect(path), ino(other).expect(other), "{path}")
        };
        for path in [
            "/up",
            "/a/b/abs",
            "//a///./file",
            "/a/b/c/../../file",
            "a/file",
            "/../../a/file",
            "/todir/../file",
        ] {
            same(path, "/a/file");
        }
        same("/l39", "/a/file");
        for path in ["/", "//", "/..", "/a/..", ".", "/a/b/../.."] {
            same(path, "/");
        }
        same("/todir", "/a/b");
        same("/todir/", "/a/b");
        same("/long", "/a");
        let fails = |path: &str, reason: Reason| match ino(path) {
            Err(Error::Caller(got)) if got == reason => {}
            other => panic!("{path}: {other:?}, not {reason:?}"),
        };
        fails("", Reason::NotFound);
        fails("/none", Reason::NotFound);
        fails("/none/x", Reason::NotFound);
        fails("/dangling", Reason::NotFound);
        fails("/a/file/", Reason::NotDir);
        fails("/a/file/x", Reason::NotDir);
        fails("/a/file/.", Reason::NotDir);
        fails("/self", Reason::Loop);
        fails(&format!("/l{MAX_LINKS}"), Reason::Loop);
        fails(&format!("/{}", "n".repeat(256)), Reason::NameTooLong);
        fails(
            "/a\0b",
            Reason::Invalid("a name must not contain a slash or NUL"),
        );
        // The links themselves.
        let link = |path: &str| {
            fs.resolve(path.as_bytes(), Last::NoFollow)
                .expect(path)
                .is_symlink()
        };
        assert!(link("/up") && link("/self") && link("/dangling") && !link("/todir/"));
        // The place of a name that does not exist yet.
        let place = fs.place(b"/dangling", Last::Follow).expect("a place");
        assert_eq!(
            (place.dir.ino, place.name.as_slice()),
            (ino("/a").expect("a"), b"new".as_slice())
        );
        assert!(place.inode.is_none() && !place.slash);
        let place = fs.place(b"/a/new//", Last::Follow).expect("a place");
        assert!(place.slash && place.inode.is_none());
        fs.close().expect("closed");
        image.check();
    }
}

#[test]
fn symlinks_of_every_length_round_trip() {
    for args in [
        &["-t", "ext2", "-b", "1024"][..],
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum"],
        &["-t", "ext4", "-b", "4096", "-I", "256", "-O", "inline_data"],
    ] {
        let Some(image) = Image::make(args, "32M") else {
            return;
        };
        let lengths = [1usize, 58, 59, 60, 61, 100, 255, 1000, 1023];
        let target = |len: usize| "abcdefghij".repeat(103)[..len].to_owned();
        let fs = image.open();
        for len in lengths {
            make(
                &fs,
                &format!("/{len}"),
                NewKind::Symlink(target(len).as_bytes()),
            );
        }
        let root = fs.root().expect("a root");
        let too_long = "t".repeat(fs.geometry().block_bytes as usize);
        let refused = fs
            .create(&root, b"x", NewKind::Symlink(too_long.as_bytes()), OWNER)
            .map(drop);
        assert!(
            matches!(refused, Err(Error::Caller(Reason::NameTooLong))),
            "{refused:?}"
        );
        fs.close().expect("closed");
        image.check();
        // Made by debugfs: inline if the volume supports that.
        image.debugfs_write(&format!("symlink /other {}", target(80)));
        image.check();
        let fs = image.open();
        for len in lengths {
            let link = fs
                .resolve(format!("/{len}").as_bytes(), Last::NoFollow)
                .expect("a link");
            assert_eq!(
                fs.read_link(&link).expect("a target"),
                target(len).as_bytes()
            );
            assert_eq!(
                fs.metadata(&link).expect("attributes").size_bytes,
                len as u64
            );
        }
        let link = fs.resolve(b"/other", Last::NoFollow).expect("a link");
        assert_eq!(
            fs.read_link(&link).expect("a target"),
            target(80).as_bytes()
        );
        for len in lengths {
            fs.unlink(&fs.root().expect("a root"), len.to_string().as_bytes())
                .expect("unlinked");
        }
        fs.unlink(&fs.root().expect("a root"), b"other")
            .expect("unlinked");
        fs.close().expect("closed");
        image.check();
    }
}
