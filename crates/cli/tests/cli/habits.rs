//! What users of coreutils type by habit.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Image, assert_clean, fails, ok, run, throughline, tools_are_missing};

#[test]
fn a_source_named_twice_stays() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let (dir, back) = (image.sibling("dir"), image.sibling("back"));
    for folder in [&dir, &back] {
        fs::create_dir(folder).unwrap();
    }
    let x = dir.join("x");
    fs::write(&x, b"dear").unwrap();
    fs::hard_link(&x, dir.join("y")).unwrap();
    fs::hard_link(&x, image.sibling("outside")).unwrap();
    let x = x.to_str().unwrap();
    ok(["cp", x, x, &image.at("/")]);
    assert_eq!(image.contents("/x"), b"dear");
    let dir = dir.to_str().unwrap();
    ok(["cp", "-r", dir, dir, &image.at("/")]);
    assert_eq!(image.contents("/dir/x"), b"dear");
    let stat = run(["stat", "--json", &image.at("/dir/y")]).json();
    assert_eq!(stat[0]["links"], 2);
    image.assert_clean();
    let (from, back) = (image.at("/dir/x"), back.to_str().unwrap());
    ok(["cp", &from, &from, back]);
    assert_eq!(fs::read(format!("{back}/x")).unwrap(), b"dear");
}

#[test]
fn a_slash_behind_a_file_is_refused() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let (host, slashed) = (image.sibling("host"), image.sibling("host/"));
    fs::write(&host, b"new").unwrap();
    ok(["touch", &image.at("/f")]);
    let (host, slashed) = (host.to_str().unwrap(), slashed.to_str().unwrap());
    for arguments in [
        vec!["rm", &image.at("/f/")],
        vec!["rm", "-rf", &image.at("/f/")],
        vec!["cp", host, &image.at("/f/")],
        vec!["cp", slashed, &image.at("/g")],
        vec!["cp", &image.at("/f/"), &image.at("/g")],
        vec!["cp", &image.at("/f"), slashed],
        vec!["mv", &image.at("/f/"), &image.at("/g")],
    ] {
        fails(arguments, 1, "Not a directory");
    }
    assert_eq!(ok(["ls", &image.at("/")]), "f\nlost+found\n");
    assert_eq!(image.contents("/f"), b"");
    assert_eq!(fs::read(host).unwrap(), b"new");
    image.assert_clean();
}

#[test]
fn a_slash_behind_a_link_means_the_directory() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", &image.at("/dir")]);
    ok(["touch", &image.at("/dir/f")]);
    ok(["ln", "-s", "dir", &image.at("/link")]);
    let out = image.sibling("out");
    fs::create_dir(&out).unwrap();
    let out = out.to_str().unwrap();
    ok(["cp", "-r", &image.at("/link/"), &image.at("/dir/"), out]);
    assert!(
        fs::symlink_metadata(format!("{out}/link"))
            .unwrap()
            .is_dir()
    );
    for copied in ["link/f", "dir/f"] {
        assert!(fs::exists(format!("{out}/{copied}")).unwrap(), "{copied}");
    }
}

#[test]
fn nothing_is_not_the_present_directory() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    fails(
        ["cp", "-r", "", &image.at("/")],
        1,
        "cannot stat '': No such file or directory",
    );
    ok(["touch", &image.at("/f")]);
    fails(["cp", &image.at("/f"), ""], 1, "No such file or directory");
    assert_eq!(ok(["ls", &image.at("/")]), "f\nlost+found\n");
}

#[test]
fn an_image_with_its_slash_forgotten() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let host = image.sibling("host");
    fs::write(&host, b"x").unwrap();
    let bare = format!("{}:", image.path().display());
    fails(["cp", host.to_str().unwrap(), &bare], 2, "for its root");
    assert!(!fs::exists(&bare).unwrap());
}

#[test]
fn mv_onto_another_name_of_the_same_file() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", &image.at("/d")]);
    ok(["touch", &image.at("/a")]);
    ok(["ln", &image.at("/a"), &image.at("/d/b")]);
    for same in ["/a", "/d/../a", "/"] {
        fails(["mv", &image.at("/a"), &image.at(same)], 1, "same file");
    }
    ok(["mv", &image.at("/a"), &image.at("/d/b")]);
    assert_eq!(ok(["ls", &image.at("/")]), "d\nlost+found\n");
    assert!(ok(["stat", &image.at("/d/b")]).contains("Links: 1"));
    image.assert_clean();
}

#[test]
fn a_nested_file_that_cannot_be_removed_is_reported_once() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", "-p", &image.at("/a/b/c/d")]);
    ok(["touch", &image.at("/a/b/c/d/stays"), &image.at("/a/goes")]);
    image.debugfs_write("set_inode_field /a/b/c/d/stays flags 0x80010");
    let ran = fails(["rm", "-r", &image.at("/a")], 1, "d/stays': Operation");
    assert_eq!(ran.stderr.matches("cannot").count(), 1, "{}", ran.stderr);
    assert_eq!(ok(["ls", &image.at("/a")]), "b\n");
    image.assert_clean();
}

#[test]
fn a_full_disk_below_the_image_is_named() {
    if tools_are_missing() || !throughline_testkit::tier::as_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // In a separate mount namespace, so that nothing stays mounted.
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c"])
        .arg(
            "PATH=$PATH:/usr/sbin:/sbin; mount -t tmpfs -o size=8M none \"$1\" && cd \"$1\" || exit 99
             truncate -s 32M image && mke2fs -q -F image || exit 99
             head -c 20M /dev/zero | \"$2\" cp - image:/f; code=$?
             e2fsck -fn image >&2 || exit 98
             exit $code",
        )
        .arg("sh")
        .arg(dir.path())
        .arg(throughline().get_program())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) {
        throughline_testkit::missing!("no tmpfs here: {errors}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("the host's disk is full"), "{errors}");
}

/// The signal that comes with it does not end the program, and the image needs no repair.
#[test]
fn a_limit_of_file_sizes_is_an_error() {
    if tools_are_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("bash")
        .arg("-c")
        .arg(
            "PATH=$PATH:/usr/sbin:/sbin; cd \"$1\" && truncate -s 32M image || exit 99
             mke2fs -q -F -t ext4 -J size=4 image || exit 99
             (ulimit -f 20480; head -c 26M /dev/zero | \"$2\" cp - image:/f); code=$?
             \"$2\" replay image >&2; e2fsck -fn image >&2 || exit 98
             exit $code",
        )
        .arg("bash")
        .arg(dir.path())
        .arg(throughline().get_program())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("a limit there is reached"), "{errors}");
}

#[test]
fn few_open_files_are_enough() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let (tree, back, host) = (
        image.sibling("tree"),
        image.sibling("back"),
        image.sibling("host"),
    );
    fs::create_dir(&tree).unwrap();
    for number in 0..600 {
        fs::write(tree.join(number.to_string()), number.to_string()).unwrap();
    }
    // More directories inside each other, and beside each other, than can be open.
    let deep = "deep/".repeat(100);
    fs::create_dir_all(tree.join(&deep)).unwrap();
    fs::write(tree.join(&deep).join("file"), "deep").unwrap();
    std::os::unix::fs::symlink("file", tree.join(&deep).join("link")).unwrap();
    for number in 0..100 {
        let wide = tree.join(format!("wide{number}"));
        fs::create_dir(&wide).unwrap();
        fs::hard_link(tree.join("0"), wide.join("0")).unwrap();
    }
    let (tree, back, host) = (
        tree.to_str().unwrap(),
        back.to_str().unwrap(),
        host.to_str().unwrap(),
    );
    let place = image.at("/tree");
    let packed = image.sibling("packed");
    let packed = packed.to_str().unwrap();
    for arguments in [
        ["cp", "-r", tree, &place],
        ["cp", "-r", &place, back],
        ["cp", "-r", tree, host],
        ["pack", tree, "-o", packed],
    ] {
        let output = Command::new("sh")
            .args(["-c", "ulimit -n 32; exec \"$0\" -q \"$@\""])
            .arg(throughline().get_program())
            .args(arguments)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
    }
    image.assert_clean();
    assert_clean(Path::new(packed));
    let deepest = format!("/{deep}link");
    assert_eq!(ok(["readlink", &format!("{packed}:{deepest}")]), "file\n");
    for copied in [back, host] {
        for number in 0..600 {
            let found = fs::read_to_string(format!("{copied}/{number}")).unwrap();
            assert_eq!(found, number.to_string());
        }
        let found = fs::read_link(format!("{copied}{deepest}")).unwrap();
        assert_eq!(found, Path::new("file"));
        let found = fs::metadata(format!("{copied}/wide99/0")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&found), 101);
    }
}

#[test]
fn a_directory_does_not_move_onto_itself_and_df_wants_a_place_that_is_there() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", &image.at("/dir")]);
    let (dir, nope) = (image.at("/dir"), image.at("/nope"));
    let moved = run(["mv", "-T", &dir, &dir]);
    assert_eq!(moved.code, Some(1));
    assert!(
        moved.stderr.contains("are the same file"),
        "{}",
        moved.stderr
    );
    let free = run(["df", &nope]);
    assert_eq!(free.code, Some(1));
    assert!(
        free.stderr.contains("No such file or directory"),
        "{}",
        free.stderr
    );
    ok(["df", &dir]);
}
