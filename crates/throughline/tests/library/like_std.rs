//! What a person who knows `std::fs` expects to find, and to work alike.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use throughline::{
    Acl, AclEntry, AclTag, Attributes, Error, Fallocate, FileOptions, FileType, Memory,
    OpenOptions, Reason, Volume, Walk,
};
use throughline_testkit::e2fs::{assert_clean, mke2fs, tool};

/// Runs `test` on a new volume of 32 MiB, and has it judged; does nothing where nobody can make one.
fn on_a_volume(options: &[&str], test: impl FnOnce(&Volume)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    if !mke2fs(&path, "32M", options) {
        return;
    }
    let volume = OpenOptions::new().write(true).open(&path).unwrap();
    test(&volume);
    volume.close().unwrap();
    assert_clean(&path);
}

fn reason<T: std::fmt::Debug>(result: throughline::Result<T>) -> Reason {
    match result {
        Err(Error::Caller(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_speak_std_io() {
    on_a_volume(&["-t", "ext4"], |volume| {
        let file = volume.create_new("/file").unwrap();
        let raw = OpenOptions::new()
            .write(true)
            .open_raw_device(Memory::zeroed(1 << 20));
        let raw = raw.unwrap();
        write!(&file, "one two ").unwrap();
        (&raw).write_all(b"one two ").unwrap();
        // The position is the file's, not the reference's.
        writeln!(&file, "three").unwrap();
        assert_eq!((&file).stream_position().unwrap(), 14);
        (&file).seek(SeekFrom::End(-6)).unwrap();
        let mut text = String::new();
        (&file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "three\n");
        let before = (&file).seek(SeekFrom::Current(-15)).unwrap_err();
        assert_eq!(before.kind(), io::ErrorKind::InvalidInput);
        // A cursor has a position of its own.
        let mut cursor = file.cursor();
        cursor.read_exact(&mut [0; 3]).unwrap();
        assert_eq!((&file).stream_position().unwrap(), 14);
        let mut two = [0; 4];
        (&raw).seek(SeekFrom::Start(4)).unwrap();
        (&raw).read_exact(&mut two).unwrap();
        assert_eq!(&two, b"two ");
        // Owned, as any reader or writer.
        let mut log = BufWriter::new(volume.create_file("/log").unwrap());
        for line in 0..1000 {
            writeln!(log, "line {line}").unwrap();
        }
        log.flush().unwrap();
        drop(log);
        let lines = BufReader::new(volume.open_file("/log").unwrap()).lines();
        let lines: io::Result<Vec<_>> = lines.collect();
        let lines = lines.unwrap();
        assert_eq!((lines.len(), lines[999].as_str()), (1000, "line 999"));
    });
}

#[test]
fn appends_are_whole() {
    on_a_volume(&["-t", "ext4"], |volume| {
        let file = volume.create_new("/log").unwrap();
        assert_eq!(file.append_all(b"abc").unwrap(), 0);
        assert_eq!(file.append_all(b"").unwrap(), 3);
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let file = &file;
                scope.spawn(move || {
                    for _ in 0..200 {
                        file.append_all(&[b'0' + thread; 100]).unwrap();
                    }
                });
            }
        });
        let all = volume.read("/log").unwrap();
        assert_eq!(all.len(), 3 + 4 * 200 * 100);
        for piece in all[3..].chunks(100) {
            assert!(piece.iter().all(|byte| *byte == piece[0]), "{piece:?}");
        }
    });
}

#[test]
fn whole_files_in_one_call() {
    on_a_volume(&["-t", "ext4"], |volume| {
        assert!(!volume.exists("/motd").unwrap());
        volume.write("/motd", "hello\n").unwrap();
        assert!(volume.exists("/motd").unwrap());
        assert_eq!(volume.read_to_string("/motd").unwrap(), "hello\n");
        volume.write("/motd", [0xff, 0xfe]).unwrap();
        assert_eq!(volume.read("/motd").unwrap(), [0xff, 0xfe]);
        let text = reason(volume.read_to_string("/motd"));
        assert!(matches!(text, Reason::Invalid(_)));
        volume.write("/empty", "").unwrap();
        assert_eq!(volume.read("/empty").unwrap(), b"");
        assert_eq!(reason(volume.read("/none")), Reason::NotFound);
        assert_eq!(reason(volume.read("/")), Reason::IsDir);
        // Where a name is no directory, that is an error and not a "no".
        assert_eq!(reason(volume.exists("/motd/x")), Reason::NotDir);
        volume.symlink("/none", "/dangling").unwrap();
        assert!(!volume.exists("/dangling").unwrap());

        let large: Vec<u8> = (0..5_000_001_u32).map(|i| (i % 251) as u8).collect();
        FileOptions::new()
            .create(true)
            .attributes(Attributes::new().mode(0o751))
            .open(volume, "/large")
            .unwrap()
            .write_all_at(&large, 0)
            .unwrap();
        assert_eq!(volume.copy("/large", "/motd").unwrap(), 5_000_001);
        assert!(volume.read("/motd").unwrap() == large);
        assert_eq!(volume.metadata("/motd").unwrap().mode(), 0o751);
        assert!(matches!(
            reason(volume.copy("/motd", "/motd")),
            Reason::Invalid(_)
        ));
        assert!(volume.read("/motd").unwrap() == large, "nothing was lost");
        // No memory for it, and no panic; a system that promises any memory would end the process.
        let file = volume.create_new("/vast").unwrap();
        file.set_len(1 << 41).unwrap();
        let policy = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
        if policy.is_ok_and(|policy| policy.trim() != "1") {
            assert_eq!(reason(volume.read("/vast")), Reason::TooLarge);
        }
    });
}

fn paths(walk: Walk) -> BTreeSet<PathBuf> {
    walk.map(|entry| entry.unwrap().path().to_owned()).collect()
}

/// ext2 without file types in its directories, and ext4.
const KINDS: [&[&str]; 2] = [&["-t", "ext2", "-O", "^filetype"], &["-t", "ext4"]];

#[test]
fn trees_are_made_walked_and_removed() {
    for options in KINDS {
        on_a_volume(options, |volume| {
            volume.create_dir_all("/a/b/c/d").unwrap();
            volume.create_dir_all("/a/b").unwrap();
            volume.create_dir_all("a/../a/./b/e").unwrap();
            volume.symlink("/a", "/a/b/up").unwrap();
            for number in 0..300 {
                volume.write(format!("/a/b/c/{number}"), "x").unwrap();
            }
            assert_eq!(reason(volume.create_dir_all("/a/b/c/7/x")), Reason::NotDir);
            let found = paths(volume.walk("/a").unwrap());
            assert_eq!(found.len(), 300 + 5);
            assert!(found.contains(Path::new("/a/b/c/299")));
            let found = paths(volume.walk("/").unwrap());
            assert_eq!(found.len(), 300 + 7, "and lost+found");

            let mut walk = volume.walk("/a").unwrap();
            let mut left = 0;
            while let Some(entry) = walk.next() {
                let entry = entry.unwrap();
                let meta = entry.metadata().unwrap();
                assert_eq!(meta.ino(), entry.ino());
                assert_eq!(meta.file_type(), entry.file_type());
                let below = entry.path().strip_prefix("/a").unwrap();
                assert_eq!(below.components().count(), entry.depth() + 1);
                if below == Path::new("b/c") {
                    walk.skip_dir();
                }
                left += 1;
            }
            assert_eq!(left, 4, "b, up, e, c");

            let entry = volume.read_dir("/a/b/c/d/..").unwrap().next().unwrap();
            let entry = entry.unwrap();
            volume.remove_dir_all("/a/b").unwrap();
            assert_eq!(reason(entry.metadata()), Reason::NotFound);
            assert!(volume.exists("/a").unwrap() && !volume.exists("/a/b").unwrap());
            assert_eq!(reason(volume.remove_dir_all("/none")), Reason::NotFound);
            volume.write("/file", "").unwrap();
            assert_eq!(reason(volume.remove_dir_all("/file")), Reason::NotDir);
        });
    }
}

#[test]
fn a_deep_tree_is_walked_as_far_as_a_path_reaches() {
    on_a_volume(&["-t", "ext4", "-N", "4096"], |volume| {
        let mut dir = volume.create_dir("/top").unwrap();
        for _ in 0..2100 {
            dir = dir.create_dir("d").unwrap();
        }
        drop(dir);
        let mut errors = 0;
        let found = volume.walk("/top").unwrap().inspect(|entry| {
            errors += usize::from(matches!(entry, Err(Error::Caller(Reason::NameTooLong))));
        });
        assert_eq!(found.filter(Result::is_ok).count(), 2048);
        assert_eq!(errors, 1);
        let refused = reason(volume.remove_dir_all("/top"));
        assert_eq!(refused, Reason::NameTooLong);
    });
}

#[test]
fn attributes_and_access_lists_by_path() {
    on_a_volume(&["-t", "ext4"], |volume| {
        volume.write("/file", "x").unwrap();
        volume.symlink("file", "/link").unwrap();
        volume
            .xattrs("/link")
            .unwrap()
            .set("user.comment", "good")
            .unwrap();
        let file = volume.xattrs("/file").unwrap();
        let value = file.get("user.comment").unwrap();
        assert_eq!(value.as_deref(), Some(&b"good"[..]));
        assert_eq!(file.names().unwrap(), [b"user.comment"]);
        file.remove("user.comment").unwrap();
        assert_eq!(file.get("user.comment").unwrap(), None);
        let again = reason(file.remove("user.comment"));
        assert_eq!(again, Reason::NoAttribute);

        let entry = |tag, rights, id| AclEntry { tag, rights, id };
        let list = Acl::new(vec![
            entry(AclTag::Owner, 7, u32::MAX),
            entry(AclTag::User, 6, 1000),
            entry(AclTag::Group, 5, u32::MAX),
            entry(AclTag::Mask, 7, u32::MAX),
            entry(AclTag::Others, 0, u32::MAX),
        ])
        .unwrap();
        assert_eq!(file.acl().unwrap(), None);
        let link = volume.xattrs("/link").unwrap();
        link.set_acl(Some(&list)).unwrap();
        assert_eq!(file.acl().unwrap(), Some(list.clone()));
        assert_eq!(volume.metadata("/file").unwrap().mode(), 0o770);
        file.set_acl(None).unwrap();
        assert_eq!(file.acl().unwrap(), None);
        let root = volume.root().unwrap();
        root.create_dir("d").unwrap();
        let dir = root.xattrs("d").unwrap();
        dir.set_default_acl(Some(&list)).unwrap();
        assert_eq!(dir.default_acl().unwrap(), Some(list.clone()));
        volume.write("/d/heir", "x").unwrap();
        let heir = volume.open_file("/d/heir").unwrap();
        assert!(heir.xattrs().acl().unwrap().is_some());
        let refused = reason(file.set_default_acl(Some(&list)));
        assert_eq!(refused, Reason::Denied);
    });
}

#[test]
fn public_types_have_a_useful_debug_format() {
    on_a_volume(&["-t", "ext4"], |volume| {
        let file = volume.create_new("/file").unwrap();
        let dir = volume.root().unwrap();
        let entry = dir.entries().unwrap().next().unwrap().unwrap();
        for text in [
            format!("{volume:?}"),
            format!("{file:?} {:?}", *file),
            format!("{dir:?} {:?} {entry:?}", dir.entries().unwrap()),
            format!("{:?} {:?}", file.node(), volume.walk("/").unwrap()),
            format!("{:?} {:?}", OpenOptions::new(), FileOptions::new()),
        ] {
            assert!(text.len() > 10 && !text.contains("0x"), "{text}");
        }
    });
}

#[test]
fn directories_that_hold_each_other_end_a_walk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    if !mke2fs(&path, "8M", &["-t", "ext4"]) {
        return;
    }
    let volume = OpenOptions::new().write(true).open(&path).unwrap();
    volume.create_dir_all("/a/b/c").unwrap();
    volume.write("/a/file", "x").unwrap();
    volume.close().unwrap();
    for link in ["link /a /a/b/up", "link /a/b/c /a/b/same"] {
        let debugfs = tool("debugfs").args(["-w", "-R", link]).arg(&path).output();
        assert!(debugfs.unwrap().status.success());
    }
    let volume = OpenOptions::new().write(true).open(&path).unwrap();
    let (mut found, mut damaged) = (BTreeSet::new(), 0);
    for entry in volume.walk("/a").unwrap() {
        match entry {
            Ok(entry) => assert!(found.insert(entry.path().to_owned())),
            Err(Error::Corrupt(_)) => damaged += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let names = ["b", "b/c", "b/same", "b/up", "file"];
    let names = names.iter().map(|name| Path::new("/a").join(name));
    assert_eq!(found, names.collect());
    assert_eq!(damaged, 2);
    let removed = volume.remove_dir_all("/a");
    assert!(matches!(removed, Err(Error::Corrupt(_))), "{removed:?}");
    assert!(volume.exists("/a/b").unwrap());
}

#[test]
fn handles_do_what_they_were_opened_for() {
    on_a_volume(&["-t", "ext4"], |volume| {
        volume.write("/file", "old").unwrap();
        let read = FileOptions::new().read(true).open(volume, "/file").unwrap();
        let write = FileOptions::new()
            .write(true)
            .open(volume, "/file")
            .unwrap();
        let mut byte = [0];
        assert_eq!(read.read_at(&mut byte, 0).unwrap(), 1);
        let why = Reason::NotOpenedFor("writing");
        assert_eq!(reason(read.write_at(b"x", 0)), why);
        assert_eq!(reason(read.append(b"x")), why);
        assert_eq!(reason(read.set_len(0)), why);
        assert_eq!(reason(read.allocate(Fallocate::Allocate, 0, 1)), why);
        assert_eq!(
            reason(write.copy_range(0, &read, 2, 1)),
            Reason::NotOpenedFor("reading")
        );
        assert_eq!(
            reason(write.read_at(&mut byte, 0)),
            Reason::NotOpenedFor("reading")
        );
        write.write_at(b"n", 0).unwrap();
        // Another handle on the same file may have other rights.
        let both = read
            .reopen(FileOptions::new().read(true).write(true))
            .unwrap();
        both.write_at(b"o", 0).unwrap();
        let log = FileOptions::new()
            .read(true)
            .append(true)
            .open(volume, "/file")
            .unwrap();
        log.append_all(b"er").unwrap();
        assert_eq!(volume.read("/file").unwrap(), b"older");
        // As std::fs: a file that is to be read only is not created or truncated.
        for options in [
            FileOptions::new().read(true).create(true),
            FileOptions::new().read(true).create_new(true),
            FileOptions::new().read(true).truncate(true),
        ] {
            let refused = options.open(volume, "/file");
            assert!(matches!(reason(refused), Reason::Invalid(_)));
        }
        assert_eq!(volume.read("/file").unwrap(), b"older");
        let error = io::Error::from(read.write_at(b"x", 0).unwrap_err());
        let system = std::fs::File::open("/dev/null").unwrap().write(b"x");
        assert_eq!(error.raw_os_error(), system.unwrap_err().raw_os_error());
    });
}

#[test]
fn clones_of_a_file_share_a_position() {
    on_a_volume(&["-t", "ext4"], |volume| {
        let mut file = volume.create_file("/file").unwrap();
        file.write_all(b"one ").unwrap();
        let mut clone = file.try_clone().unwrap();
        clone.write_all(b"two ").unwrap();
        file.write_all(b"three").unwrap();
        clone.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two three");
        // Another handle by its options has a position of its own.
        let mut other = file.reopen(&FileOptions::new()).unwrap();
        let mut again = String::new();
        other.read_to_string(&mut again).unwrap();
        assert_eq!(again, text);
    });
}

#[test]
fn entries_and_permissions_are_those_of_std() {
    use std::os::unix::fs::PermissionsExt;
    // Without types in the directory, as ext2 was at first, they are read from the inodes.
    for format in [["-O", "filetype"], ["-O", "^filetype"]] {
        on_a_volume(&format, |volume| {
            volume.create_dir_all("/a/dir").unwrap();
            volume.write("/a/file", "x").unwrap();
            volume.symlink("file", "/a/link").unwrap();
            let mut found: Vec<(PathBuf, FileType)> = volume
                .read_dir("/a")
                .unwrap()
                .map(|entry| entry.map(|entry| (entry.path(), entry.file_type().unwrap())))
                .collect::<Result<_, _>>()
                .unwrap();
            found.sort_by(|one, other| one.0.cmp(&other.0));
            let expected = [
                ("/a/dir", FileType::Directory),
                ("/a/file", FileType::File),
                ("/a/link", FileType::Symlink),
            ];
            let expected = expected.map(|(path, kind)| (PathBuf::from(path), kind));
            assert_eq!(found, expected);
            let dir = volume.open_dir("/").unwrap();
            let below = dir.read_dir("a").unwrap().next().unwrap().unwrap();
            assert_eq!(below.path(), Path::new("a").join(below.file_name()));

            let permissions = std::fs::Permissions::from_mode(0o640);
            volume
                .set_permissions("/a/link", permissions.clone())
                .unwrap();
            assert_eq!(
                volume.metadata("/a/file").unwrap().permissions(),
                permissions
            );
            let file = volume.open_file("/a/file").unwrap();
            file.set_permissions(std::fs::Permissions::from_mode(0o604))
                .unwrap();
            let time = UNIX_EPOCH + Duration::from_secs(1_000_000);
            file.set_modified(time).unwrap();
            let seen = file.metadata().unwrap();
            assert_eq!((seen.mode(), seen.modified()), (0o604, time));
        });
    }
}
