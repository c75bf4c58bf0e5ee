//! Failures: a clear message, the right exit code, no loss of data.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::common::{
    Image, assert_clean, fails, is_root, noise, ok, run, run_with_input, throughline,
    tools_are_missing,
};

#[test]
fn not_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("zeroes"), vec![0; 1 << 20]).unwrap();
    fs::write(path("noise"), noise(1 << 20, 9)).unwrap();
    fs::write(path("short"), b"x").unwrap();
    fs::write(path("empty"), b"").unwrap();
    for name in ["zeroes", "noise", "short", "empty"] {
        let before = fs::read(path(name)).unwrap();
        for arguments in [vec!["ls"], vec!["mkdir"], vec!["rm", "-rf"]] {
            let place = format!("{}:/x", path(name));
            let ran = run(arguments.iter().copied().chain([place.as_str()]));
            assert_eq!(ran.code, Some(1), "{name}: {}", ran.stderr);
            assert!(
                ran.stderr.starts_with("throughline: cannot open "),
                "{name}: {}",
                ran.stderr
            );
        }
        assert!(
            fs::read(path(name)).unwrap() == before,
            "{name} was changed"
        );
    }
    fails(["ls", &format!("{}:/", path("zeroes"))], 1, "--offset");
    fails(
        ["ls", &format!("{}:/", path("missing"))],
        1,
        "No such file or directory",
    );
    fails(
        ["ls", &format!("{}:/", dir.path().display())],
        1,
        "Is a directory",
    );
    fails(["info", "/dev/null"], 1, "cannot open '/dev/null'");
}

#[test]
fn a_truncated_image() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["touch", &image.at("/f")]);
    fs::OpenOptions::new()
        .write(true)
        .open(image.path())
        .unwrap()
        .set_len(20 << 20)
        .unwrap();
    let before = fs::read(image.path()).unwrap();
    for arguments in [["ls"], ["mkdir"]] {
        let place = image.at("/x");
        let ran = run(arguments.iter().copied().chain([place.as_str()]));
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains("cannot open"), "{}", ran.stderr);
    }
    assert!(fs::read(image.path()).unwrap() == before);
}

#[test]
fn an_image_in_use() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["truncate", "-s", "16M", &image.at("/zeroes")]);
    // A reader that is blocked in the middle of its file, because its output is not read.
    let mut reader = throughline()
        .args(["cat", &image.at("/zeroes")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = reader.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    let ran = fails(["mkdir", &image.at("/x")], 1, "cannot open");
    assert!(
        ran.stderr.contains(&reader.id().to_string()),
        "it does not name the other: {}",
        ran.stderr
    );
    // Two readers do not exclude each other.
    ok(["ls", &image.at("/")]);
    stdout.read_to_end(&mut Vec::new()).unwrap();
    assert!(reader.wait().unwrap().success());
    ok(["mkdir", &image.at("/x")]);
    // An image that another process is writing is not read.
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(image.path())
        .unwrap();
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    fails(["ls", &image.at("/")], 1, "cannot open");
    drop(file);
    image.assert_clean();
}

/// Sets a bit in a feature word of the superblock; the image has no checksums.
fn set_feature(image: &Image, word_offset: usize, bit: u32) {
    image.patch(|bytes| {
        let at = 1024 + word_offset;
        let word = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) | 1 << bit;
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    });
}

#[test]
fn unknown_features() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext2"]);
    ok(["touch", &image.at("/f")]);
    set_feature(&image, 0x64, 30);
    // This feature does not prevent reading.
    assert_eq!(ok(["ls", &image.at("/")]), "f\nlost+found\n");
    let ran = fails(["touch", &image.at("/f")], 1, "FEATURE_R30");
    assert!(ran.stderr.contains("writing"), "{}", ran.stderr);
    set_feature(&image, 0x60, 29);
    fails(["ls", &image.at("/")], 1, "FEATURE_I29");
    fails(["touch", &image.at("/f")], 1, "FEATURE_I29");
}

#[test]
fn a_full_image() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("8M", &["-t", "ext4", "-m", "0"]);
    let dear = noise(100_000, 10);
    assert_eq!(
        run_with_input(["cp", "-", &image.at("/dear")], &dear).code,
        Some(0)
    );
    let ran = run_with_input(["cp", "-", &image.at("/large")], &noise(16 << 20, 11));
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("No space left on device") && ran.stderr.contains("next:"),
        "{}",
        ran.stderr
    );
    image.assert_clean();
    assert!(image.contents("/dear") == dear);
    // If many small files fail for the same reason, each is reported.
    let tree = image.sibling("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..20 {
        fs::write(tree.join(number.to_string()), noise(200_000, number)).unwrap();
    }
    fails(
        ["cp", "-r", tree.to_str().unwrap(), &image.at("/")],
        1,
        "No space left on device",
    );
    image.assert_clean();
    ok(["rm", "-rf", &image.at("/large"), &image.at("/tree")]);
    ok(["cp", "-r", tree.to_str().unwrap(), &image.at("/")]);
    image.assert_clean();
    assert!(image.contents("/dear") == dear && image.contents("/tree/7") == noise(200_000, 7));
}

#[test]
fn no_inodes_left() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("8M", &["-t", "ext4", "-N", "16"]);
    let free = run(["--json", "df", &image.at("/")]).json()[0]["inodes_free"]
        .as_u64()
        .unwrap();
    for number in 0..free {
        ok(["touch", &image.at(&format!("/{number}"))]);
    }
    fails(
        ["touch", &image.at("/one-too-many")],
        1,
        "No space left on device",
    );
    image.assert_clean();
    ok(["rm", &image.at("/0")]);
    ok(["mkdir", &image.at("/dir")]);
    image.assert_clean();
}

#[test]
fn a_read_only_image() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    fs::set_permissions(image.path(), fs::Permissions::from_mode(0o444)).unwrap();
    let as_user = |arguments: &[&str]| {
        let mut command = throughline();
        command.args(arguments);
        if is_root() {
            // Root may write to every file, so this runs as another user.
            fs::set_permissions(
                image.path().parent().unwrap(),
                fs::Permissions::from_mode(0o755),
            )
            .unwrap();
            command.uid(65534).gid(65534);
        }
        command.output()
    };
    let read = match as_user(&["ls", &image.at("/")]) {
        Ok(output) => output,
        Err(error) => {
            throughline_testkit::left_out!("the binary cannot be run by another user: {error}");
            return;
        }
    };
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    let write = as_user(&["touch", &image.at("/f")]).unwrap();
    assert_eq!(write.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&write.stderr).contains("Permission denied"));
    image.assert_clean();
}

#[test]
fn a_read_only_file() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    assert_eq!(
        run_with_input(["cp", "-", &image.at("/f")], b"dear").code,
        Some(0)
    );
    image.debugfs_write("set_inode_field /f flags 0x80010");
    for arguments in [
        vec!["rm", "-f"],
        vec!["chmod", "600"],
        vec!["truncate", "-s", "0"],
        vec!["touch"],
        vec!["chown", "1"],
    ] {
        let place = image.at("/f");
        let ran = run(arguments.iter().copied().chain([place.as_str()]));
        assert_eq!(ran.code, Some(1), "{arguments:?}");
        assert!(
            ran.stderr.contains("Operation not permitted") && ran.stderr.contains("next:"),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
    fails(
        ["mv", &image.at("/f"), &image.at("/g")],
        1,
        "Operation not permitted",
    );
    assert_eq!(image.contents("/f"), b"dear");
    image.assert_clean();
}

#[test]
fn names_too_long() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let (fits, long) = ("n".repeat(255), "n".repeat(256));
    ok(["touch", &image.at(&format!("/{fits}"))]);
    for command in ["touch", "mkdir"] {
        let ran = fails(
            [command, &image.at(&format!("/{long}"))],
            1,
            "name too long",
        );
        assert!(ran.stderr.contains("255 bytes"), "{}", ran.stderr);
    }
    fails(
        [
            "mv",
            &image.at(&format!("/{fits}")),
            &image.at(&format!("/{long}")),
        ],
        1,
        "name too long",
    );
    fails(
        ["ln", "-s", "x", &image.at(&format!("/{long}"))],
        1,
        "name too long",
    );
    let ran = run_with_input(["cp", "-", &image.at(&format!("/{long}"))], b"x");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("name too long"), "{}", ran.stderr);
    image.assert_clean();
    assert_eq!(ok(["ls", &image.at("/")]), format!("lost+found\n{fits}\n"));
}

#[test]
fn a_file_larger_than_the_format_holds() {
    if tools_are_missing() {
        return;
    }
    // With blocks of 1 KiB, three levels of indirect blocks end just above 16 GiB; extents end at 4 TiB.
    for (options, fits, too_large) in [
        (["-t", "ext2"], "16G", "17G"),
        (["-t", "ext4"], "4095G", "4097G"),
    ] {
        let image = Image::new("16M", &[options[0], options[1], "-b", "1024"]);
        assert_eq!(
            run_with_input(["cp", "-", &image.at("/f")], b"dear").code,
            Some(0)
        );
        ok(["truncate", "-s", fits, &image.at("/f")]);
        fails(
            ["truncate", "-s", too_large, &image.at("/f")],
            1,
            "File too large",
        );
        ok(["truncate", "-s", "4", &image.at("/f")]);
        assert_eq!(image.contents("/f"), b"dear");
        image.assert_clean();
    }
    let image = Image::new("16M", &["-t", "ext2", "-b", "1024"]);
    let huge = image.sibling("huge");
    fs::File::create(&huge).unwrap().set_len(17 << 30).unwrap();
    fails(
        ["cp", huge.to_str().unwrap(), &image.at("/huge")],
        1,
        "File too large",
    );
    image.assert_clean();
}

#[test]
fn a_path_never_leaves_the_image() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let outside = image.sibling("outside");
    fs::write(&outside, b"dear").unwrap();
    ok(["mkdir", &image.at("/d")]);
    ok([
        "ln",
        "-s",
        outside.to_str().unwrap(),
        &image.at("/d/absolute"),
    ]);
    ok([
        "ln",
        "-s",
        "../../../../../../../../etc/passwd",
        &image.at("/d/up"),
    ]);
    assert_eq!(ok(["ls", &image.at("/../../..")]), "d\nlost+found\n");
    ok(["touch", &image.at("/d/../../x")]);
    ok(["stat", &image.at("/x")]);
    fails(["cat", &image.at("/d/up")], 1, "No such file or directory");
    fails(
        ["cat", &image.at("/d/absolute")],
        1,
        "No such file or directory",
    );
    fails(
        ["truncate", "-s", "0", &image.at("/d/absolute/x")],
        1,
        "No such file or directory",
    );
    assert_eq!(fs::read(&outside).unwrap(), b"dear");
    image.assert_clean();
}

#[test]
fn a_failure_in_the_middle_does_not_stop_the_rest() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["touch", &image.at("/a"), &image.at("/c")]);
    let out = image.sibling("out");
    fs::create_dir(&out).unwrap();
    let ran = fails(
        [
            "cp",
            &image.at("/a"),
            &image.at("/b"),
            &image.at("/c"),
            out.to_str().unwrap(),
        ],
        1,
        "/b",
    );
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(out.join("a").exists() && out.join("c").exists());
    fails(
        ["rm", &image.at("/a"), &image.at("/b"), &image.at("/c")],
        1,
        "/b",
    );
    assert_eq!(ok(["ls", &image.at("/")]), "lost+found\n");
    assert_clean(&image.path());
}
