//! The extended attributes and ACLs that `cp` keeps, compared with cp of coreutils.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use throughline_testing::Mount;
use throughline_testing::program::has;

use crate::common::{Image, fails, is_root, ok, run, str, tools_are_missing};

/// Whether to skip, with a note: tools are missing, or the file system of the temporary directory has no
/// attributes.
fn cannot_be_tested() -> bool {
    if tools_are_missing() || !has(&["getfattr", "setfattr", "setfacl", "cp"]) {
        return true;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "").unwrap();
    let set = |tool: &str, arguments: &[&str]| {
        let ran = Command::new(tool).args(arguments).arg(&path).output();
        ran.unwrap().status.success()
    };
    let can = set("setfattr", &["-n", "user.a", "-v", "1"]) && set("setfacl", &["-m", "u:1000:r"]);
    if !can {
        throughline_testkit::missing!("no extended attributes or ACLs below {}", str(dir.path()));
    }
    !can
}

#[track_caller]
fn shell(dir: &Path, script: &str) -> String {
    let ran = Command::new("sh")
        .args(["-ec", script])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{script}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// All attributes of all names as shown by getfattr, and the modes.
#[track_caller]
fn metadata_of(dir: &Path) -> String {
    let script = "find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -e hex
        find . ! -type l -printf '%p %m\\n' | sort";
    shell(dir, script)
}

/// A tree with attributes of all kinds; those that need root only if run by root.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("d/sub")).unwrap();
    for name in ["plain", "d/a", "d/sub/b", "d/closed", "many"] {
        fs::write(root.join(name), name).unwrap();
    }
    fs::write(root.join("large"), vec![7; 3 << 20]).unwrap();
    fs::hard_link(root.join("d/a"), root.join("again")).unwrap();
    symlink("d/a", root.join("link")).unwrap();
    shell(
        root,
        "setfattr -n user.name -v value d/a
        setfattr -n user.bytes -v 0x00ff0a00 d/a
        setfattr -n user.empty d/a
        setfattr -n user.dir -v dir d d/sub
        setfattr -n user.large -v \"$(head -c 700 /dev/zero | tr '\\0' v)\" large d/sub/b
        for n in 1 2 3 4 5 6 7 8 9; do setfattr -n user.number$n -v $n many; done
        setfattr -n user.$(head -c 250 /dev/zero | tr '\\0' n) -v longest many
        setfacl -m u:1234:rw,g:77:r,m::rw d/a large
        setfacl -m u:1234:rwx,d:u:4321:rx,d:o::- d
        setfacl -m m::r d/sub/b
        setfattr -n user.c -v closed d/closed
        setfacl -m u:1:r d/closed
        chmod 0440 d/closed
        mkfifo pipe
        setfacl -m u:9:rw pipe",
    );
    if is_root() {
        shell(
            root,
            "chown 1234:77 plain large
            setfattr -n trusted.t -v trusted d/a
            setfattr -n security.s -v secure d
            setfattr -h -n trusted.link -v link link
            setfattr -n trusted.pipe -v pipe pipe
            setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 plain",
        );
    } else {
        throughline_testkit::missing!("trusted and security attributes: not root");
    }
    shell(root, "chmod u+s large");
}

#[test]
fn an_archive_copy_keeps_attributes_and_lists() {
    if cannot_be_tested() {
        return;
    }
    let one = Image::new("64M", &["-t", "ext4"]);
    let two = Image::new("64M", &["-t", "ext3", "-b", "1024", "-I", "128"]);
    let tree = one.sibling("tree");
    make_tree(&tree);
    let wanted = metadata_of(&tree);
    assert!(wanted.contains("user.bytes=0x00ff0a00") && wanted.contains("posix_acl_default"));
    ok(["cp", "-a", str(&tree), &one.at("/")]);
    ok(["cp", "-a", &one.at("/tree"), &two.at("/")]);
    ok(["cp", "-a", &two.at("/tree"), &two.at("/inside")]);
    for (place, image) in [
        (one.at("/tree"), &one),
        (two.at("/tree"), &two),
        (two.at("/inside"), &two),
    ] {
        image.assert_clean();
        let back = image.sibling("back");
        let _ = fs::remove_dir_all(&back);
        ok(["cp", "-a", &place, str(&back)]);
        assert_eq!(metadata_of(&back), wanted, "{place}");
    }
    // Compare with debugfs, and with a copy made by cp of coreutils.
    assert!(one.debugfs("ea_list /tree/d/a").contains("user.empty (0)"));
    let theirs = one.sibling("theirs");
    shell(&one.sibling(""), "cp -a tree theirs");
    assert_eq!(metadata_of(&theirs), wanted);
    let mount = is_root()
        .then(|| Mount::or_skip(&one.path(), true))
        .flatten();
    if let Some(mount) = mount {
        assert_eq!(metadata_of(&mount.root().join("tree")), wanted);
        mount.close();
    }
}

#[test]
fn metadata_not_requested_is_not_preserved() {
    if cannot_be_tested() {
        return;
    }
    let image = Image::ext4();
    let tree = image.sibling("tree");
    make_tree(&tree);
    let back = |name: &str, options: &[&str]| {
        let (inside, host) = (format!("/{name}"), image.sibling(name));
        let mut words = vec!["cp", "-r"];
        words.extend(options);
        let target = image.at(&inside);
        ok([&words[..], &[str(&tree), &target]].concat());
        ok(["cp", "-a", &image.at(&inside), str(&host)]);
        metadata_of(&host)
    };
    let plain = back("plain", &[]);
    assert!(!plain.contains("=0x"), "{plain}");
    let usual = back("usual", &["-p"]);
    assert!(usual.contains("posix_acl_access=") && usual.contains("posix_acl_default="));
    assert!(
        !usual.contains("user.") && usual.contains("./d/closed 440"),
        "{usual}"
    );
    assert_eq!(
        back("mode", &["--preserve=mode"]).lines().count(),
        usual.lines().count()
    );
    let only = back("only", &["--preserve=xattr"]);
    assert!(
        only.contains("user.bytes=") && only.contains("user.c="),
        "{only}"
    );
    assert!(
        !only.contains("posix_acl") && only.contains("./large 644"),
        "{only}"
    );
    let all = back("all", &["--preserve=all", "--preserve"]);
    assert_eq!(all, metadata_of(&tree));
    let times = back("times", &["--preserve=timestamps,links"]);
    assert!(!times.contains("=0x"), "{times}");
    let mtime = |name: &str| fs::metadata(image.sibling(name)).unwrap().mtime_nsec();
    assert_eq!(mtime("times/plain"), mtime("tree/plain"));
    image.assert_clean();
    fails(
        [
            "cp",
            "--preserve=xattr,context",
            str(&tree),
            &image.at("/x"),
        ],
        2,
        "not a list of mode, ownership",
    );
}

/// Attributes that the target cannot hold.
#[test]
fn attributes_that_cannot_be_set_fail_only_if_requested() {
    if cannot_be_tested() {
        return;
    }
    let roomy = Image::new("64M", &["-t", "ext4", "-b", "1024", "-O", "ea_inode"]);
    let tree = roomy.sibling("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "bytes").unwrap();
    fs::write(tree.join("g"), "bytes").unwrap();
    shell(
        &tree,
        "setfattr -n user.small -v small f g
        setfattr -n user.big -v \"$(head -c 3000 /dev/zero | tr '\\0' v)\" f",
    );
    // If the target has room, the attribute is copied.
    ok(["cp", "-r", "--preserve=xattr", str(&tree), &roomy.at("/")]);
    roomy.assert_clean();
    assert!(roomy.debugfs("ea_list /tree/f").contains("user.big (3000)"));
    let image = Image::new("32M", &["-t", "ext4", "-b", "1024"]);
    let listed = |path: &str| image.debugfs(&format!("ea_list {path}"));
    // With `-a`, it is reported without failure, and the other attributes are copied.
    let ran = run(["cp", "-a", &roomy.at("/tree"), &image.at("/archive")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("'user.big'"), "{}", ran.stderr);
    assert!(listed("/archive/f").contains("user.small") && !listed("/archive/f").contains("big"));
    let ran = fails(
        [
            "cp",
            "-r",
            "--preserve=xattr",
            &roomy.at("/tree"),
            &image.at("/named"),
        ],
        1,
        "cannot set attribute 'user.big' of",
    );
    assert!(
        ran.stderr.contains("No space left") && ran.stderr.contains("ea_inode"),
        "{}",
        ran.stderr
    );
    assert!(listed("/named/f").contains("user.small") && listed("/named/g").contains("user.small"));
    assert_eq!(image.contents("/named/f"), b"bytes");
    let ran = run([
        "cp",
        "-r",
        "--preserve=all",
        &roomy.at("/tree"),
        &image.at("/all"),
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("'user.big'"), "{}", ran.stderr);
    image.assert_clean();
}

/// A default ACL of the target's directory applies as with cp: if permissions are not preserved, it replaces
/// the umask.
#[test]
fn lists_of_the_targets_directory() {
    if cannot_be_tested() {
        return;
    }
    let image = Image::ext4();
    let (tree, theirs) = (image.sibling("tree"), image.sibling("theirs"));
    fs::create_dir_all(tree.join("new/sub")).unwrap();
    fs::write(tree.join("new/f"), "x").unwrap();
    fs::write(tree.join("new/sub/g"), "x").unwrap();
    fs::set_permissions(tree.join("new/f"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::create_dir(&theirs).unwrap();
    shell(
        &image.sibling(""),
        "setfacl -d -m u:1000:rwx,g::rwx,o::rw theirs",
    );
    ok(["cp", "-a", str(&theirs), &image.at("/ours")]);
    for (name, option) in [("plain", "-r"), ("usual", "-rp"), ("archive", "-a")] {
        let inside = image.at(&format!("/ours/{name}"));
        ok(["cp", option, str(&tree), &inside]);
        let script = format!("umask 022; cp {option} tree theirs/{name}");
        shell(&image.sibling(""), &script);
    }
    let back = image.sibling("back");
    ok(["cp", "-a", &image.at("/ours"), str(&back)]);
    assert_eq!(metadata_of(&back), metadata_of(&theirs));
    image.assert_clean();
}
