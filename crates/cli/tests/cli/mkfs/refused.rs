//! What `mkfs` refuses, what it shows, and the same bytes for the same command.

use std::fs;

use throughline_testkit::kernel::{Loop, Mount};
use throughline_testkit::{e2fs, missing};

use super::Names;
use crate::common::{Ran, fails, noise, ok, run, throughline};

#[test]
fn what_a_target_holds_is_kept_without_force() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let mut table = vec![0; 1 << 20];
    // A partition of type 0x83 from sector 64 on.
    table[446 + 4] = 0x83;
    table[446 + 8..446 + 16].copy_from_slice(&[64, 0, 0, 0, 0, 4, 0, 0]);
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    for (bytes, said) in [
        (noise(1 << 20, 3), "not blank"),
        ([&b"QFI\xfb"[..], &[0; 1 << 20]].concat(), "qcow"),
        (table, "partition table"),
    ] {
        fs::write(&image, &bytes).unwrap();
        let ran = fails(["mkfs", path], 1, said);
        assert!(ran.stderr.contains("-F"), "{}", ran.stderr);
        assert!(fs::read(&image).unwrap() == bytes);
        ok(["-q", "mkfs", "-F", path]);
    }
    // Now it holds a volume.
    fails(["mkfs", path], 1, "it holds an ext volume");
    let names = Names::new();
    let ran: Ran = names
        .command("mkfs.ext4")
        .arg(path)
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("it holds an ext volume"),
        "{}",
        ran.stderr
    );
    ok(["-q", "mkfs", "-F", path]);
}

#[test]
fn wrong_words_write_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    for (words, code, said) in [
        (&["-O", "bogus"][..], 2, "has_journal"),
        (&["-O", "bigalloc"], 2, "bigalloc is not written"),
        (&["-E", "quotatype=usr"], 2, "usrquota"),
        (&["-E", "quotatype=usr"], 2, "usrquota"),
        (&["-E", "encoding=latin1"], 2, "utf8-12.1"),
        (&["-E", "encoding_flags=strict"], 2, "casefold"),
        (&["-E", "bogus"], 2, "stripe_width"),
        (&["-J", "device="], 2, "names a journal device"),
        (&["-C", "65536"], 2, "bigalloc"),
        (&["-d", "/nosuch"], 1, "No such file"),
        (&["-c"], 2, "badblocks(8)"),
        (&["-U", "bogus"], 2, "not a UUID"),
        (&["-e", "bogus"], 2, "remount-ro"),
        (&["-o", "bogus"], 2, "freebsd"),
        (&["-b", "bogus"], 2, "'-b <BYTES>'"),
        (&["-b", "512"], 2, "1024 to 65536"),
        (&["-t", "ext5"], 2, "ext5 is no type of file system"),
        (&["-m", "60"], 2, "0 to 50"),
        (&["-L", "a label that is too long"], 2, "at most 16"),
        (&["-J", "size=999"], 2, "to 32 MiB"),
    ] {
        let all = [&["mkfs"], words, &[path, "64M"]].concat();
        fails(all, code, said);
        assert!(!image.exists(), "{words:?}");
    }
    fails(["mkfs", path], 2, "no size was given");
    fails(["mkfs", path, "64X"], 2, "64X");
    fails(["mkfs", path, "20k"], 2, "or a larger volume");
    fails(["mkfs", path, "4k"], 2, "too small");
    assert!(!image.exists());
    let wrong = throughline()
        .env("SOURCE_DATE_EPOCH", "yesterday")
        .args(["mkfs", path, "8M"])
        .output();
    let wrong: Ran = wrong.unwrap().into();
    assert!(
        wrong.code == Some(2) && wrong.stderr.contains("seconds since 1970"),
        "{wrong:?}"
    );
    assert!(!image.exists());
}

#[test]
fn a_command_that_changes_nothing_shows_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let plan = run(["mkfs", "--json", "-n", path, "20G"]).json();
    assert!(!image.exists());
    assert_eq!(plan["blocks"], 5_242_880);
    assert_eq!(plan["journal_blocks"], 32768);
    let shown = ok(["mkfs", "-v", "-t", "ext3", "-L", "a", path, "20M"]);
    for words in [
        "Created a file system with 20480 1k blocks",
        "Label: a",
        "8193",
        "has_journal",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert_eq!(fs::metadata(&image).unwrap().len(), 20 << 20);
    // Blocks of zeros take no space.
    use std::os::unix::fs::MetadataExt;
    assert!(fs::metadata(&image).unwrap().blocks() * 512 < 2 << 20);
}

/// `SOURCE_DATE_EPOCH` determines all that is random otherwise.
#[test]
fn the_same_command_makes_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, label: &str, epoch: Option<&str>| {
        let path = dir.path().join(name);
        let mut command = throughline();
        command
            .args(["mkfs", "-q", "-L", label])
            .arg(&path)
            .arg("8M");
        epoch.map(|epoch| command.env("SOURCE_DATE_EPOCH", epoch));
        assert!(command.status().unwrap().success());
        fs::read(path).unwrap()
    };
    let first = make("a", "x", Some("1700000000"));
    assert!(first == make("b", "x", Some("1700000000")));
    let other = make("c", "y", Some("1700000000"));
    assert_ne!(
        first[1024 + 0x68..][..16],
        other[1024 + 0x68..][..16],
        "UUIDs"
    );
    assert!(make("d", "x", None) != make("e", "x", None));
}

/// What the kernel or another process uses is refused, also with `-F`.
#[test]
fn what_is_in_use_is_refused_even_with_force() {
    if !throughline_testkit::tier::as_root() || crate::common::tools_are_missing() {
        missing!("only root mounts with the kernel");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (dir.path().join("image"), dir.path().join("mnt"));
    fs::create_dir(&point).unwrap();
    let path = image.to_str().unwrap();
    ok(["-q", "mkfs", path, "16M"]);
    let Some(device) = Loop::new(&image, &[]) else {
        return;
    };
    fails(["mkfs", "-F", path], 1, "loop");
    let node = device.node().to_owned();
    if let Some(mount) = Mount::or_skip(device.node().as_ref(), &point, &[]) {
        fails(["mkfs", "-F", &node], 1, "mounted");
        mount.unmount();
    }
    // Not mounted, the device is made anew: with old content everywhere.
    fails(["mkfs", &node], 1, "it holds an ext volume");
    let size = fs::metadata(&image).unwrap().len();
    fs::write(&node, noise(size as usize, 9)).unwrap();
    for words in [
        &["-t", "ext4"][..],
        &["-t", "ext3"],
        &["-t", "ext4", "-E", "nodiscard,lazy_itable_init=0"],
    ] {
        ok([&["-q", "mkfs", "-F"], words, &[&node]].concat());
        e2fs::assert_clean_after(node.as_ref(), &format!("{words:?}"));
        fs::write(&node, noise(size as usize, 9)).unwrap();
    }
    device.detach();
}

#[test]
fn a_size_can_be_given_as_pack_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    for (number, size) in ["8M", "8388608"].into_iter().enumerate() {
        let image = dir.path().join(number.to_string());
        ok(["-q", "mkfs", image.to_str().unwrap(), "--size", size]);
        assert_eq!(fs::metadata(&image).unwrap().len(), 8 << 20);
    }
    let both = dir.path().join("both");
    let path = both.to_str().unwrap();
    fails(
        ["mkfs", path, "8M", "--size", "8M"],
        2,
        "cannot be used with",
    );
    fails(["mkfs", path, "--size", "8X"], 2, "invalid size");
    assert!(!both.exists());
}
