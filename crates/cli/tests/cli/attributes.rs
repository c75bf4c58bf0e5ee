//! Extended attributes, ACLs and flags, compared on a mount by the kernel: our commands show what the tools
//! set, and the tools show what our commands set.

use std::process::Command;

use throughline_testkit::e2fs::dumpe2fs;

use crate::common::{Image, fails, ok, run, throughline, tools_are_missing};

/// Runs a script with the image mounted by the kernel, in a separate mount namespace. Returns its output, or
/// `None` if that is not possible here.
fn on_the_kernel(image: &Image, script: &str) -> Option<String> {
    if !throughline_testkit::tier::as_root() {
        throughline_testkit::missing!("not root");
        return None;
    }
    let dir = image.sibling("mounted");
    let _ = std::fs::create_dir(&dir);
    let whole = format!(
        "PATH=$PATH:/usr/sbin:/sbin; command -v getfattr setfacl lsattr > /dev/null || exit 99
         mount -o loop,acl,user_xattr \"$1\" \"$2\" || exit 99
         ( cd \"$2\" && {script} ); code=$?; umount \"$2\"; exit $code"
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &whole, "sh"])
        .args([image.path(), dir])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) {
        throughline_testkit::missing!(
            "the kernel mounts nothing here, or attr and acl are missing: {errors}"
        );
        return None;
    }
    assert!(output.status.success(), "{script}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Our output, with each place replaced by its path below the mount.
fn ours(image: &Image, arguments: &[&str], places: &[&str]) -> String {
    let at = places.iter().map(|place| image.at(place));
    let output = throughline().args(arguments).args(at).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let root = format!("{}:/", image.path().display());
    String::from_utf8_lossy(&output.stdout).replace(&root, "")
}

#[test]
fn values_as_getfattr_shows_them() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let script = "
        touch f g; ln -s f link
        setfattr -n user.text -v 'plain text' f
        setfattr -n user.quotes -v 'a\"b\\\\c' f
        setfattr -n user.binary -v 0x00ff0102 f
        setfattr -n user.line -v 0x61610a61616161616161 f
        setfattr -n user.zero -v 0x6161616100 f
        setfattr -n user.none f
        setfattr -n trusted.t -v x f
        getfattr -d f > d; getfattr f > names; getfattr -d -e hex f > hex; getfattr -d -e base64 f > base64
        getfattr -d -m 'q.*s$|^user.l' f > some
        getfattr -d -e text f > text; getfattr -d -m - f > all; getfattr -n user.text link > one; getfattr -n user.text --only-values f > value";
    if on_the_kernel(&image, script).is_none() {
        return;
    }
    for (arguments, file) in [
        (vec!["getfattr", "-d"], "/d"),
        (vec!["getfattr"], "/names"),
        (vec!["getfattr", "-d", "-e", "hex"], "/hex"),
        (vec!["getfattr", "-d", "-e", "base64"], "/base64"),
        (vec!["getfattr", "-d", "-e", "text"], "/text"),
        (vec!["getfattr", "-d", "-m", "-"], "/all"),
        (vec!["getfattr", "-d", "-m", "q.*s$|^user.l"], "/some"),
        (
            vec!["getfattr", "-n", "user.text", "--only-values"],
            "/value",
        ),
    ] {
        let theirs = String::from_utf8_lossy(&image.contents(file)).into_owned();
        assert_eq!(ours(&image, &arguments, &["/f"]), theirs, "{arguments:?}");
    }
    let theirs = String::from_utf8_lossy(&image.contents("/one")).into_owned();
    assert_eq!(
        ours(&image, &["getfattr", "-n", "user.text"], &["/link"]),
        theirs
    );
    fails(
        ["getfattr", "-n", "user.no", &image.at("/f")],
        1,
        "No such attribute",
    );
    // The kernel shows what we set, in all encodings.
    for (name, value) in [
        ("user.a", "text"),
        ("user.b", "\"q\\\"\\012\""),
        ("user.c", "0x00ff"),
        ("user.d", "0saGVsbG8="),
    ] {
        ok(["setfattr", "-n", name, "-v", value, &image.at("/g")]);
    }
    ok(["setfattr", "-x", "user.none", &image.at("/f")]);
    fails(
        ["setfattr", "-x", "user.none", &image.at("/f")],
        1,
        "No such attribute",
    );
    fails(
        ["setfattr", "-n", "user.x", "-v", "0xq", &image.at("/f")],
        2,
        "hexadecimal",
    );
    fails(["setfattr", "-n", "other.x", &image.at("/f")], 1, "next:");
    image.assert_clean();
    let there = on_the_kernel(&image, "getfattr -d -e hex g; getfattr f").unwrap();
    for line in [
        "user.a=0x74657874",
        "user.b=0x71220a",
        "user.c=0x00ff",
        "user.d=0x68656c6c6f",
    ] {
        assert!(there.contains(line), "no {line} in {there}");
    }
    assert!(!there.contains("user.none"));
    let json = run(["getfattr", "--json", "-d", &image.at("/g")]).json();
    assert_eq!(json[0]["attributes"]["user.a"], "\"text\"");
}

#[test]
fn lists_as_getfacl_shows_them() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let script = "
        mkdir -p d/sub; touch f d/f plain; chmod 3755 d
        setfacl -m u:bin:rwx,u:12345:r,g:adm:rx,m:r f
        setfacl -d -m u:bin:rw,g:7:x d
        getfacl f d plain > all; getfacl -e f > e; getfacl -E f > no; getfacl -c f > c; getfacl -n f > n
        getfacl -d d > def; getfacl -a d > acc; getfacl -cR d | grep -v '^#' > r; getfacl -s plain f > s";
    if on_the_kernel(&image, script).is_none() {
        return;
    }
    for (arguments, places, file) in [
        (vec!["getfacl"], vec!["/f", "/d", "/plain"], "/all"),
        (vec!["getfacl", "-e"], vec!["/f"], "/e"),
        (vec!["getfacl", "-E"], vec!["/f"], "/no"),
        (vec!["getfacl", "-c"], vec!["/f"], "/c"),
        (vec!["getfacl", "-n"], vec!["/f"], "/n"),
        (vec!["getfacl", "-d"], vec!["/d"], "/def"),
        (vec!["getfacl", "-a"], vec!["/d"], "/acc"),
        (vec!["getfacl", "-s"], vec!["/plain", "/f"], "/s"),
    ] {
        let theirs = String::from_utf8_lossy(&image.contents(file)).into_owned();
        assert_eq!(ours(&image, &arguments, &places), theirs, "{arguments:?}");
    }
    assert_eq!(
        ours(&image, &["getfacl", "-cR"], &["/d"])
            .lines()
            .filter(|line| line.is_empty())
            .count(),
        3
    );
}

/// The same changes by our `setfacl` and by the tool give the same ACLs and permissions.
#[test]
fn lists_set_as_setfacl_sets_them() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let changes = [
        "-m u:5:rwx f",
        "-m u:5:r,g:6:rw f",
        "-m m::r f",
        "-m g::rwx f",
        "-n -m u:7:rwx f",
        "-x u:5 f",
        "-m u:8:rwX f",
        "-b f",
        "-m u:9:rX d",
        "-d -m u:9:rwx d",
        "-m d:g:3:rx,g:3:rx d",
        "-x d:u:9 d",
        "-k d",
        "--set u::rw,g::r,o::-,u:4:rwx f",
        "-R -m u:2:rX d",
        "-b d",
    ];
    let setup = "for s in k o; do mkdir -p $s/d/e; touch $s/f $s/d/x; chmod 640 $s/f; chmod 2750 $s/d; done";
    if on_the_kernel(&image, setup).is_none() {
        return;
    }
    for change in changes {
        let theirs = format!(
            "cd k && setfacl {change} && cd .. && getfacl -nR k && stat -c '%n %a' k/f k/d k/d/x"
        );
        let theirs = on_the_kernel(&image, &theirs).unwrap();
        let mut words: Vec<String> = change.split(' ').map(str::to_owned).collect();
        let place = image.at(&format!("/o/{}", words.pop().unwrap()));
        ok(["setfacl".to_owned()]
            .into_iter()
            .chain(words)
            .chain([place]));
        let there = on_the_kernel(&image, "getfacl -nR o; stat -c '%n %a' o/f o/d o/d/x").unwrap();
        let alike = |text: &str| {
            let mut parts: Vec<&str> = text.split("\n\n").collect();
            parts.sort_unstable();
            parts.join("\n\n")
        };
        let there = there.replace("# file: o", "# file: k").replace("o/", "k/");
        assert_eq!(alike(&there), alike(&theirs), "{change}");
        image.assert_clean();
    }
    let place = image.at("/o/f");
    fails(["setfacl", "-m", "x:y", &place], 2, "not an ACL entry");
    for (entry, subject) in [
        ("u:12345", "user:12345"),
        ("u:root", "user:root"),
        ("d:g:12345", "default:group:12345"),
        ("g:", "group:"),
        ("m:", "mask:"),
    ] {
        let said = format!("an entry without permissions: {subject} (write {subject}:rwx)");
        fails(["setfacl", "-m", entry, &place], 2, &said);
    }
    fails(
        ["setfacl", "-d", "-m", "u:5:r", &place],
        1,
        "only directories",
    );
    fails(["setfacl", &place], 2, "nothing to do");
}

/// Our dumps and those of the tools are restored as the tools restore them.
#[test]
fn dumps_are_restored() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let setup = "
        mkdir -p a/d b/d; touch a/f a/'o dd' b/f b/'o dd'
        setfattr -n user.x -v 'a \"b' a/f; setfattr -n user.y -v 0x00ff0a a/'o dd'; setfattr -n user.gone -v q b/f
        chown 7:8 a/f; setfacl -m u:bin:rx,g:9:w a/f; chmod 4751 a/f; setfacl -d -m u:3:rwx a/d; setfacl -d -m u:4:r b/d; chmod 1777 a/d
        cd a; getfattr -dR . > ../fattr; getfacl -R . > ../facl";
    if on_the_kernel(&image, setup).is_none() {
        return;
    }
    for (command, dump, show) in [
        ("setfattr", "fattr", "getfattr -dR ."),
        (
            "setfacl",
            "facl",
            "getfacl -R . | grep -v ^$; stat -c '%n %a %u %g' * | sort",
        ),
    ] {
        let theirs =
            format!("cp -a b k-{dump}; cd k-{dump}; {command} --restore=../{dump}; {show}");
        let theirs = on_the_kernel(&image, &theirs).unwrap();
        ok([
            "cp",
            "-a",
            &image.at("/b"),
            &image.at(&format!("/o-{dump}")),
        ]);
        let host = image.sibling(dump);
        std::fs::write(&host, image.contents(&format!("/{dump}"))).unwrap();
        let from = format!("--restore={}", host.display());
        ok([command, &from, &image.at(&format!("/o-{dump}"))]);
        let there = on_the_kernel(&image, &format!("cd o-{dump}; {show}")).unwrap();
        assert_eq!(there, theirs, "{command}");
        fails([command, &from], 1, "to which the names");
        image.assert_clean();
    }
    // Our own dump names its image.
    let dumped = run(["getfattr", "-dR", &image.at("/a")]).stdout;
    ok(["setfattr", "-x", "user.x", &image.at("/a/f")]);
    let back = crate::common::run_with_input(["setfattr", "--restore=-"], &dumped);
    assert_eq!((back.code, back.stderr.as_str()), (Some(0), ""));
    let value = ok([
        "getfattr",
        "-n",
        "user.x",
        "--only-values",
        &image.at("/a/f"),
    ]);
    assert_eq!(value, "a \"b");
    let host = image.sibling("entries");
    std::fs::write(&host, "# some\nu:11:rwx  # one\n\ng:12:r\n").unwrap();
    let host = host.to_str().unwrap();
    ok(["setfacl", "-M", host, &image.at("/b/f")]);
    assert!(ours(&image, &["getfacl", "-c"], &["/b/f"]).contains("user:11:rwx"));
    std::fs::write(host, "u:11\n").unwrap();
    ok(["setfacl", "-X", host, &image.at("/b/f")]);
    assert!(!ours(&image, &["getfacl", "-c"], &["/b/f"]).contains("user:11"));
    fails(
        ["setfacl", "-M", "/no/such", &image.at("/b/f")],
        2,
        "No such file",
    );
    std::fs::write(host, "user.x=1\n").unwrap();
    fails(
        ["setfattr", &format!("--restore={host}")],
        1,
        "line 1: it must follow a line",
    );
    image.assert_clean();
}

/// A new UUID is written to the superblock and its backups; checksums seeded with the old one stay valid.
#[test]
fn uuids_are_set() {
    if tools_are_missing() {
        return;
    }
    let wanted = "01234567-89ab-cdef-0123-456789abcdef";
    for options in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext4", "-O", "metadata_csum_seed"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2"],
        &["-t", "ext4", "-O", "^has_journal,^metadata_csum,uninit_bg"],
    ] {
        let image = Image::new("64M", options);
        let path = image.str();
        ok(["mkdir", &image.at("/d")]);
        let refused = options.concat().contains("^metadata_csum");
        if refused {
            fails(["uuid", "-U", wanted, path], 1, "uninit_bg");
            continue;
        }
        ok(["uuid", "-U", wanted, path]);
        image.assert_clean();
        assert_eq!(ok(["uuid", path]), format!("{wanted}\n"));
        // 64 MiB with blocks of 4 KiB are one group, which has no backup.
        let copy = options.contains(&"1024");
        let copy = copy.then_some(&["-h", "-o", "superblock=8193"][..]);
        for from in [Some(&["-h"][..]), copy].into_iter().flatten() {
            let printed = dumpe2fs(&image.path(), from);
            assert!(printed.contains(wanted), "{options:?} {from:?}: {printed}");
        }
        ok(["mkdir", &image.at("/e")]);
        if let Some(there) = on_the_kernel(&image, "mkdir k; ls") {
            assert_eq!(there, "d\ne\nk\nlost+found\n");
        }
        image.assert_clean();
        ok(["uuid", "--set", "random", path]);
        assert_ne!(ok(["uuid", path]), format!("{wanted}\n"));
        ok(["uuid", "-U", "clear", path]);
        assert!(ok(["uuid", path]).starts_with("00000000-"));
        image.assert_clean();
        fails(["uuid", "-U", "time-ish", path], 2, "random, time or clear");
    }
}

#[test]
fn flags_as_lsattr_and_chattr_have_them() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let script =
        "mkdir d; touch f d/x .dot; chattr +adA f; chattr +D d; lsattr -d f d > l; chattr -a f";
    if on_the_kernel(&image, script).is_none() {
        return;
    }
    ok(["chattr", "+a", &image.at("/f")]);
    let theirs = String::from_utf8_lossy(&image.contents("/l")).into_owned();
    assert_eq!(ours(&image, &["lsattr", "-d"], &["/f", "/d"]), theirs);
    fails(
        ["truncate", "-s", "9", &image.at("/f")],
        1,
        "throughline lsattr",
    );
    ok(["chattr", "-a+i", &image.at("/f")]);
    fails(["rm", &image.at("/f")], 1, "chattr -i -a");
    ok(["chattr", "-R", "+d", &image.at("/d")]);
    let there = on_the_kernel(&image, "lsattr -d f d d/x").unwrap();
    let shown = ours(&image, &["lsattr", "-d"], &["/f", "/d", "/d/x"]);
    assert_eq!(shown, there);
    assert!(
        there.starts_with("----i-dA") && there.contains("---D--d-"),
        "{there}"
    );
    ok(["chattr", "=", &image.at("/f")]);
    ok(["rm", &image.at("/f")]);
    assert!(!ours(&image, &["lsattr"], &["/"]).contains(".dot"));
    assert!(ours(&image, &["lsattr", "-a"], &["/"]).contains(".dot"));
    fails(
        ["chattr", "+q", &image.at("/d")],
        2,
        "not a change of flags",
    );
    image.assert_clean();
}

#[test]
fn nodes_labels_and_uuids() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4", "-L", "before"]);
    let at = |path: &str| image.at(path);
    ok(["mknod", &at("/null"), "c", "1", "3"]);
    ok(["mknod", "-m", "600", &at("/disk"), "b", "259", "70000"]);
    ok(["mknod", &at("/pipe"), "p"]);
    ok(["mknod", &at("/socket"), "s"]);
    let stat = ok([
        "stat",
        "-c",
        "%F %a %t:%T",
        &at("/null"),
        &at("/disk"),
        &at("/pipe"),
        &at("/socket"),
    ]);
    assert_eq!(
        stat,
        "character special file 644 1:3\nblock special file 600 103:11170\nfifo 644 0:0\nsocket 644 0:0\n"
    );
    fails(["mknod", &at("/x"), "c", "1"], 2, "a major and a minor");
    fails(["mknod", &at("/x"), "p", "1", "2"], 2, "no major");
    fails(["mknod", &at("/x"), "q"], 2, "b, c, u, p, s");
    fails(["mknod", &at("/pipe"), "p"], 1, "File exists");
    let path = image.str();
    assert_eq!(ok(["label", path]), "before\n");
    ok(["label", path, "after"]);
    fails(["label", path, "much too long a label"], 1, "16 bytes");
    let dumped = dumpe2fs(&image.path(), &["-h"]);
    assert!(dumped.contains("after"), "{dumped}");
    assert!(dumped.contains(ok(["uuid", path]).trim()), "{dumped}");
    ok(["label", path, ""]);
    assert_eq!(ok(["label", path]), "\n");
    image.assert_clean();
}
