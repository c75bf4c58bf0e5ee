//! Commands that change names and attributes.

use crate::common::{Image, fails, ok, run, tools_are_missing};

fn type_and_mode(image: &Image, path: &str) -> String {
    let stat = image.debugfs(&format!("stat {path}"));
    let field = |name: &str| {
        let rest = &stat[stat
            .find(name)
            .unwrap_or_else(|| panic!("no {name} in {stat}"))
            + name.len()..];
        rest.split_whitespace().next().unwrap().to_owned()
    };
    format!("{} {}", field("Type:"), field("Mode:"))
}

#[test]
fn mkdir_makes_directories() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", &image.at("/a"), &image.at("/b")]);
    ok(["mkdir", "-p", &image.at("/a/b/c"), &image.at("/a/b")]);
    ok(["mkdir", "-m", "u=rwx,go=", &image.at("/private")]);
    assert_eq!(type_and_mode(&image, "/a/b/c"), "directory 0755");
    assert_eq!(type_and_mode(&image, "/private"), "directory 0700");
    let output = ok(["mkdir", "-pv", &image.at("/a/new/er")]);
    assert_eq!(output.lines().count(), 2, "{output}");
    fails(["mkdir", &image.at("/a")], 1, "File exists");
    fails(
        ["mkdir", &image.at("/none/x")],
        1,
        "No such file or directory",
    );
    // After a failure, the other directories are still created.
    fails(
        ["mkdir", &image.at("/a"), &image.at("/d")],
        1,
        "cannot create directory",
    );
    ok(["stat", &image.at("/d")]);
    ok(["touch", &image.at("/file")]);
    fails(["mkdir", "-p", &image.at("/file/x")], 1, "Not a directory");
    fails(["mkdir", "-p", &image.at("/file")], 1, "Not a directory");
    image.assert_clean();
}

#[test]
fn rm_removes_files_and_directories_as_named() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", "-p", &image.at("/d/e/f"), &image.at("/empty")]);
    ok([
        "touch",
        &image.at("/d/one"),
        &image.at("/d/e/two"),
        &image.at("/three"),
    ]);
    fails(["rm", &image.at("/d")], 1, "Is a directory");
    fails(["rm", &image.at("/none")], 1, "No such file or directory");
    ok(["rm", "-f", &image.at("/none"), &image.at("/three")]);
    ok(["rm", "-d", &image.at("/empty")]);
    fails(["rm", "-d", &image.at("/d")], 1, "Directory not empty");
    let output = ok(["rm", "-rv", &image.at("/d")]);
    assert_eq!(output.lines().count(), 5, "{output}");
    for root in ["/", "/..", "/lost+found/.."] {
        fails(["rm", "-rf", &image.at(root)], 1, "refusing");
    }
    assert_eq!(ok(["ls", &image.at("/")]), "lost+found\n");
    image.assert_clean();
}

#[test]
fn rm_of_a_large_directory_meets_every_name() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("64M", &["-t", "ext4", "-N", "20000"]);
    let tree = image.sibling("tree");
    std::fs::create_dir(&tree).unwrap();
    for number in 0..9000 {
        std::fs::write(tree.join(format!("file-{number}")), b"").unwrap();
    }
    ok(["cp", "-r", tree.to_str().unwrap(), &image.at("/")]);
    image.assert_clean();
    ok(["rm", "-r", &image.at("/tree")]);
    assert_eq!(ok(["ls", &image.at("/")]), "lost+found\n");
    image.assert_clean();
}

#[test]
fn mv_renames_replaces_and_exchanges() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", &image.at("/dir"), &image.at("/other")]);
    ok([
        "touch",
        &image.at("/a"),
        &image.at("/b"),
        &image.at("/dir/inside"),
    ]);
    ok(["truncate", "-s", "7", &image.at("/a")]);
    ok(["mv", &image.at("/a"), &image.at("/c")]);
    ok(["mv", "-n", &image.at("/c"), &image.at("/b")]);
    assert_eq!(ok(["ls", &image.at("/")]), "b\nc\ndir\nlost+found\nother\n");
    ok(["mv", &image.at("/c"), &image.at("/b")]);
    ok([
        "mv",
        &image.at("/b"),
        &image.at("/dir"),
        &image.at("/other"),
    ]);
    assert_eq!(
        ok(["ls", "-R", &image.at("/other/dir")]).lines().last(),
        Some("inside")
    );
    assert_eq!(
        ok(["--json", "stat", &image.at("/other/b")])
            .matches("\"size_bytes\": 7")
            .count(),
        1
    );
    ok(["touch", &image.at("/x")]);
    ok(["mv", "--exchange", &image.at("/x"), &image.at("/other/b")]);
    assert!(ok(["--json", "stat", &image.at("/x")]).contains("\"size_bytes\": 7"));
    fails(
        ["mv", &image.at("/other"), &image.at("/other/dir")],
        1,
        "cannot move",
    );
    fails(
        ["mv", "-T", &image.at("/x"), &image.at("/other")],
        1,
        "cannot move",
    );
    fails(
        ["mv", &image.at("/none"), &image.at("/y")],
        1,
        "No such file or directory",
    );
    fails(
        [
            "mv",
            &image.at("/x"),
            &image.at("/lost+found"),
            &image.at("/none"),
        ],
        1,
        "Not a directory",
    );
    image.assert_clean();
}

#[test]
fn mv_stays_inside_one_image() {
    if tools_are_missing() {
        return;
    }
    let (one, two) = (Image::ext4(), Image::ext4());
    ok(["touch", &one.at("/x")]);
    let ran = fails(["mv", &one.at("/x"), &two.at("/x")], 2, "cp -a");
    assert!(ran.stdout.is_empty());
    fails(["mv", &one.at("/x"), "host"], 2, "cp -a");
    fails(["mv", &one.at("/x")], 2, "missing destination");
    ok(["stat", &one.at("/x")]);
}

#[test]
fn ln_and_readlink() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", &image.at("/d")]);
    ok(["touch", &image.at("/file")]);
    ok(["ln", &image.at("/file"), &image.at("/d/hard")]);
    ok(["ln", "-s", "../file", &image.at("/d/soft")]);
    ok(["ln", "-s", &image.at("/d"), &image.at("/to-d")]);
    let long = format!("/{}", "x/".repeat(400));
    ok(["ln", "-s", &long, &image.at("/long")]);
    assert_eq!(
        ok(["readlink", &image.at("/d/soft"), &image.at("/to-d")]),
        "../file\n/d\n"
    );
    assert_eq!(ok(["readlink", "-n", &image.at("/long")]), long);
    assert!(ok(["ls", "-l", &image.at("/d")]).contains("soft -> ../file"));
    assert!(ok(["stat", &image.at("/to-d/hard")]).contains("Links: 2"));
    fails(
        ["ln", &image.at("/file"), &image.at("/d/hard")],
        1,
        "File exists",
    );
    ok(["ln", "-sf", "elsewhere", &image.at("/d/hard")]);
    assert_eq!(ok(["readlink", &image.at("/d/hard")]), "elsewhere\n");
    fails(
        ["ln", &image.at("/d"), &image.at("/d2")],
        1,
        "hard link not allowed for directory",
    );
    fails(
        ["ln", "-f", &image.at("/file"), &image.at("/file")],
        1,
        "same file",
    );
    fails(["readlink", &image.at("/file")], 1, "cannot read link");
    fails(["ln", "host-file", &image.at("/x")], 2, "to another image");
    image.assert_clean();
}

#[test]
fn chmod_octal_symbolic_recursive() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", "-p", &image.at("/d/e")]);
    ok(["touch", &image.at("/d/file"), &image.at("/d/e/prog")]);
    ok(["ln", "-s", "nowhere", &image.at("/d/broken")]);
    ok(["chmod", "4750", &image.at("/d/file")]);
    assert_eq!(type_and_mode(&image, "/d/file"), "regular 04750");
    ok(["chmod", "u-s,g+w,o=r", &image.at("/d/file")]);
    assert_eq!(type_and_mode(&image, "/d/file"), "regular 0774");
    ok(["chmod", "0644", &image.at("/d/e/prog")]);
    ok(["chmod", "-R", "a=rX,u+w", &image.at("/d")]);
    assert_eq!(type_and_mode(&image, "/d/e"), "directory 0755");
    assert_eq!(type_and_mode(&image, "/d/e/prog"), "regular 0644");
    ok(["chmod", "-w", &image.at("/d/e/prog")]);
    assert_eq!(type_and_mode(&image, "/d/e/prog"), "regular 0444");
    fails(["chmod", "u+q", &image.at("/d")], 2, "invalid mode");
    fails(
        ["chmod", "644", &image.at("/none")],
        1,
        "No such file or directory",
    );
    image.assert_clean();
}

#[test]
fn chown_by_number_and_name() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", &image.at("/d")]);
    ok(["touch", &image.at("/d/file")]);
    ok(["ln", "-s", "file", &image.at("/d/link")]);
    ok(["chown", "100000:200000", &image.at("/d/file")]);
    let owner = |path: &str| {
        let found = run(["--json", "stat", &image.at(path)]).json();
        (
            found[0]["uid"].as_u64().unwrap(),
            found[0]["gid"].as_u64().unwrap(),
        )
    };
    assert_eq!(owner("/d/file"), (100_000, 200_000));
    ok(["chown", "root:", &image.at("/d/file")]);
    assert_eq!(owner("/d/file"), (0, 0));
    ok(["chown", ":7", &image.at("/d/link")]);
    assert_eq!((owner("/d/file").1, owner("/d/link").1 == 7), (7, false));
    ok(["chown", "-h", "9", &image.at("/d/link")]);
    assert_eq!(owner("/d/link").0, 9);
    ok(["chown", "-R", "5:6", &image.at("/d")]);
    assert_eq!(
        (owner("/d"), owner("/d/file"), owner("/d/link")),
        ((5, 6), (5, 6), (5, 6))
    );
    ok(["chmod", "6755", &image.at("/d/file")]);
    ok(["chown", "8", &image.at("/d/file")]);
    assert_eq!(type_and_mode(&image, "/d/file"), "regular 0755");
    fails(
        ["chown", "no-such-user-here", &image.at("/d")],
        2,
        "invalid user",
    );
    image.assert_clean();
}

#[test]
fn touch_sets_times_and_makes_files() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let times = || {
        let found = run(["--json", "stat", &image.at("/f")]).json();
        let text = |name: &str| found[0][name].as_str().unwrap().to_owned();
        (text("accessed"), text("modified"))
    };
    ok(["touch", "-c", &image.at("/f")]);
    fails(["stat", &image.at("/f")], 1, "No such file or directory");
    ok(["touch", "-d", "2001-02-03T04:05:06.789Z", &image.at("/f")]);
    let set = "2001-02-03T04:05:06.789Z".to_owned();
    assert_eq!(times(), (set.clone(), set.clone()));
    ok(["touch", "-a", "-d", "@0", &image.at("/f")]);
    assert_eq!(times(), ("1970-01-01T00:00:00Z".to_owned(), set));
    ok(["touch", "-m", "-t", "203902030405.06", &image.at("/f")]);
    assert_eq!(times().1, "2039-02-03T04:05:06Z");
    assert!(
        image.debugfs("stat /f").contains("2039"),
        "{}",
        image.debugfs("stat /f")
    );
    fails(
        ["touch", "-d", "some day", &image.at("/f")],
        2,
        "invalid date",
    );
    fails(
        ["touch", &image.at("/none/f")],
        1,
        "No such file or directory",
    );
    image.assert_clean();
}

#[test]
fn truncate_sets_sizes() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let size = || {
        run(["--json", "stat", &image.at("/f")]).json()[0]["size_bytes"]
            .as_u64()
            .unwrap()
    };
    ok(["truncate", "-s", "10", &image.at("/f")]);
    for (change, after) in [
        ("+5", 15),
        ("%4K", 4096),
        ("-96", 4000),
        ("/1000", 4000),
        ("<100", 100),
        (">1M", 1 << 20),
        ("0", 0),
    ] {
        ok(["truncate", &format!("--size={change}"), &image.at("/f")]);
        assert_eq!(size(), after, "{change}");
    }
    ok(["truncate", "-c", "-s", "1", &image.at("/none")]);
    fails(["stat", &image.at("/none")], 1, "No such file or directory");
    fails(
        ["truncate", "-s", "1", &image.at("/lost+found")],
        1,
        "Is a directory",
    );
    fails(
        ["truncate", "-s", "huge", &image.at("/f")],
        2,
        "invalid size",
    );
    image.assert_clean();
}
