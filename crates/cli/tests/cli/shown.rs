//! Commands that show the contents of images.

use crate::common::{Image, fails, noise, ok, run, run_with_input, tools_are_missing};

fn filled() -> Image {
    let image = Image::new("64M", &["-t", "ext4", "-L", "a label", "-b", "4096"]);
    ok(["mkdir", "-p", &image.at("/etc/sub"), &image.at("/var")]);
    assert_eq!(
        run_with_input(["cp", "-", &image.at("/etc/motd")], &noise(10_000, 1)).code,
        Some(0)
    );
    ok(["touch", &image.at("/etc/.hidden")]);
    ok(["ln", "-s", "motd", &image.at("/etc/link")]);
    image
}

#[test]
fn ls_shows_names_lines_and_trees() {
    if tools_are_missing() {
        return;
    }
    let image = filled();
    assert_eq!(ok(["ls", &image.at("/etc")]), "link\nmotd\nsub\n");
    assert_eq!(
        ok(["ls", "-A", &image.at("/etc")]),
        ".hidden\nlink\nmotd\nsub\n"
    );
    assert_eq!(
        ok(["ls", "-a", &image.at("/etc")]),
        ".\n..\n.hidden\nlink\nmotd\nsub\n"
    );
    assert_eq!(
        ok(["ls", "-d", &image.at("/etc")]),
        format!("{}\n", image.at("/etc"))
    );
    assert_eq!(
        ok(["ls", "-S", &image.at("/etc")]).lines().next(),
        Some("motd")
    );
    let long = ok(["ls", "-lnh", &image.at("/etc")]);
    let motd = long.lines().find(|line| line.starts_with('-')).unwrap();
    assert!(
        motd.starts_with("-rw-r--r-- 1 ") && motd.ends_with(" motd"),
        "{long}"
    );
    assert!(motd.contains(" 9.8K "), "{long}");
    assert!(
        long.lines()
            .any(|line| line.starts_with("lrwxrwxrwx 1") && line.ends_with("link -> motd")),
        "{long}"
    );
    assert!(long.starts_with("total "), "{long}");
    let inodes = ok(["ls", "-i", &image.at("/")]);
    assert!(
        inodes.lines().any(|line| line.trim() == "11 lost+found"),
        "{inodes}"
    );
    let all = ok(["ls", "-R", &image.at("/etc"), &image.at("/var")]);
    assert_eq!(
        all,
        format!(
            "{0}:\nlink\nmotd\nsub\n\n{0}/sub:\n\n{1}:\n",
            image.at("/etc"),
            image.at("/var")
        )
    );
    let ran = fails(
        ["ls", &image.at("/none"), &image.at("/var")],
        1,
        "cannot access",
    );
    assert_eq!(ran.text(), format!("{}:\n", image.at("/var")));
}

#[test]
fn ls_speaks_json() {
    if tools_are_missing() {
        return;
    }
    let image = filled();
    let found = run(["--json", "ls", &image.at("/etc")]).json();
    let names: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["link", "motd", "sub"]);
    assert_eq!(
        (&found[0]["type"], &found[0]["target"]),
        (&"symlink".into(), &"motd".into())
    );
    assert_eq!(
        (
            &found[1]["type"],
            &found[1]["size_bytes"],
            &found[1]["mode"]
        ),
        (&"file".into(), &10_000.into(), &"0644".into())
    );
}

#[test]
fn names_that_are_not_text_survive() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let mut place = image.at("/").into_bytes();
    place.extend_from_slice(b"\xff\x1b[31m");
    ok([OsStr::new("touch"), OsStr::from_bytes(&place)]);
    assert_eq!(
        run(["ls", &image.at("/")]).stdout,
        b"lost+found\n\xff\x1b[31m\n"
    );
    let found = run(["ls", "--json", &image.at("/")]).json();
    assert_eq!(found[1]["name_hex"], "ff1b5b33316d");
    // A message never contains a control character.
    let ran = run([OsStr::new("mkdir"), OsStr::from_bytes(&place)]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("\\377\\033[31m") && !ran.stderr.contains('\x1b'),
        "{}",
        ran.stderr
    );
    image.assert_clean();
}

#[test]
fn tree_draws_and_counts() {
    if tools_are_missing() {
        return;
    }
    let image = filled();
    let drawn = ok(["tree", &image.at("/etc")]);
    let place = image.at("/etc");
    assert_eq!(
        drawn,
        format!("{place}\n├── link -> motd\n├── motd\n└── sub\n\n1 directory, 2 files\n")
    );
    assert!(ok(["tree", "-a", "-L", "1", &image.at("/")]).ends_with("3 directories, 0 files\n"));
    let found = run(["tree", "--json", &image.at("/")]).json();
    assert_eq!(found[0]["contents"][0]["contents"][1]["name"], "motd");
}

#[test]
fn stat_follows_the_layout_of_coreutils() {
    if tools_are_missing() {
        return;
    }
    let image = filled();
    ok([
        "touch",
        "-d",
        "2001-02-03 04:05:06.7",
        &image.at("/etc/motd"),
    ]);
    ok(["chown", "0:12345", &image.at("/etc/motd")]);
    let text = ok(["stat", &image.at("/etc/motd")]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], format!("  File: {}", image.at("/etc/motd")));
    assert_eq!(
        lines[1],
        "  Size: 10000           Blocks: 24         IO Block: 4096   regular file"
    );
    assert!(
        lines[2].starts_with("Inode: ") && lines[2].ends_with("Links: 1"),
        "{text}"
    );
    assert_eq!(
        lines[3],
        "Access: (0644/-rw-r--r--)  Uid: (    0/    root)   Gid: (12345/ UNKNOWN)"
    );
    assert_eq!(lines[4], "Access: 2001-02-03 04:05:06.700000000 +0000");
    assert!(lines[7].starts_with(" Birth: 20"), "{text}");
    assert!(ok(["stat", &image.at("/etc/link")]).contains("symbolic link"));
    assert!(ok(["stat", "-L", &image.at("/etc/link")]).contains("regular file"));
}

#[test]
fn cat_joins_images_host_and_input() {
    if tools_are_missing() {
        return;
    }
    let image = filled();
    let host = image.sibling("host");
    std::fs::write(&host, b"host").unwrap();
    let ran = run_with_input(
        ["cat", host.to_str().unwrap(), "-", &image.at("/etc/link")],
        b"input",
    );
    assert_eq!(ran.code, Some(0));
    assert_eq!(
        ran.stdout,
        [b"hostinput".as_slice(), &noise(10_000, 1)].concat()
    );
    fails(["cat", &image.at("/etc")], 1, "Is a directory");
}

#[test]
fn df_counts_as_the_image_does() {
    if tools_are_missing() {
        return;
    }
    let image = filled();
    let found = run(["--json", "df", image.str()]).json();
    let header = image.debugfs("stats");
    let counted = |name: &str| {
        let line = header.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(
        found[0]["free_bytes"].as_u64().unwrap(),
        counted("Free blocks:") * 4096
    );
    assert_eq!(
        found[0]["inodes_free"].as_u64().unwrap(),
        counted("Free inodes:")
    );
    assert_eq!(
        found[0]["inodes"].as_u64().unwrap(),
        counted("Inode count:")
    );
    let text = ok(["df", "-h", &image.at("/")]);
    assert!(
        text.starts_with("Image ") && text.lines().count() == 2,
        "{text}"
    );
    assert!(ok(["df", "-i", &image.at("/")]).contains("IFree"));
}

#[test]
fn du_counts_each_file_once() {
    if tools_are_missing() {
        return;
    }
    let image = filled();
    ok(["ln", &image.at("/etc/motd"), &image.at("/etc/sub/again")]);
    ok(["truncate", "-s", "1G", &image.at("/var/hole")]);
    // One block per directory, three for motd.
    assert_eq!(
        ok(["du", "-s", &image.at("/etc")]),
        format!("20\t{}\n", image.at("/etc"))
    );
    assert_eq!(
        ok(["du", "-s", &image.at("/var")]),
        format!("4\t{}\n", image.at("/var"))
    );
    assert_eq!(
        ok(["du", "-sb", &image.at("/var/hole")]),
        format!("{}\t{}\n", 1u64 << 30, image.at("/var/hole"))
    );
    assert_eq!(ok(["du", "-a", &image.at("/etc")]).lines().count(), 5);
    assert_eq!(
        run(["du", "--json", "-s", &image.at("/etc")]).json()[0]["bytes"],
        20 * 1024
    );
}

#[test]
fn info_says_what_the_image_is() {
    if tools_are_missing() {
        return;
    }
    let image = filled();
    let path = image.path();
    let text = ok(["info", path.to_str().unwrap()]);
    for line in [
        "Format:        ext4",
        "Label:         a label",
        "State:         clean",
        "Journal:       clean, ",
    ] {
        assert!(
            text.lines().any(|found| found.starts_with(line)),
            "no {line:?} in {text}"
        );
    }
    let found = run([
        "info",
        "--json",
        "--engine",
        "threads",
        "--bio-target",
        "64K",
        path.to_str().unwrap(),
    ])
    .json();
    let features = image.debugfs("features");
    for feature in features
        .trim_start_matches("Filesystem features:")
        .split_whitespace()
    {
        assert!(
            found[0]["features"]
                .as_array()
                .unwrap()
                .contains(&feature.into()),
            "no {feature} in {found}"
        );
    }
    assert_eq!(found[0]["device"]["engine"], "threads");
    assert_eq!(found[0]["device"]["bio_target_bytes"], 65536);
    assert!(found[0]["device"]["direct"].is_boolean());
    let buffered = run(["info", "--json", "--host-cache", path.to_str().unwrap()]).json();
    assert_eq!(buffered[0]["device"]["direct"], false);
    for (kind, format) in [("ext2", "ext2"), ("ext3", "ext3")] {
        let image = Image::new("16M", &["-t", kind]);
        assert_eq!(
            run(["info", "--json", image.str()]).json()[0]["format"],
            format
        );
    }
}
