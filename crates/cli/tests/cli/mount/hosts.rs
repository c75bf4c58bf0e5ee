//! Unusual hosts: write-protected devices, a file on large sectors, no `/proc`, namespaces that end, root
//! without `fusermount3`.

use std::fs;
use std::process::Command;

use throughline_testing::program::has;
use throughline_testkit::e2fs;
use throughline_testkit::kernel::{Loop, Mount};

use super::user::script;
use super::*;

/// As with mount(8): "source write-protected, mounted read-only".
#[test]
fn a_device_that_takes_no_writes_is_mounted_for_reading() {
    if skipped() {
        return;
    }
    let image = image();
    let before = fs::read(image.path()).unwrap();
    let Some(device) = Loop::new(&image.path(), &["-r"]) else {
        return;
    };
    let node = device.node();
    let point = Point::new(&image, "mnt");
    let ran = ok(["mount", node, point.str()]);
    let expected = format!("'{node}' is write-protected, mounted read-only");
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
    assert!(point.path("lost+found").is_dir());
    let error = fs::write(point.path("file"), "x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let all = mounts();
    let line = all.iter().find(|line| line.contains(point.str())).unwrap();
    assert!(line.contains(" ro,"), "{line}");
    ok(["umount", point.str()]);
    // Commands that change something do not fall back to read-only.
    fails(["mkdir", &format!("{node}:/x")], 1, &["write-protected"]);
    assert!(fs::read(image.path()).unwrap() == before);
}

/// The host's file system needs blocks of 4096 bytes for direct I/O, and the volume has smaller ones.
#[test]
fn small_blocks_on_a_host_of_large_ones_go_through_its_cache() {
    if skipped() {
        return;
    }
    let host = image();
    let disk = host.sibling("disk");
    File::create(&disk).unwrap().set_len(96 << 20).unwrap();
    let Some(device) = Loop::new(&disk, &["--sector-size", "4096"]) else {
        return;
    };
    let below = Point::new(&host, "below");
    let node = Path::new(device.node());
    let made = e2fs::try_mke2fs(node, "", &["-t", "ext4"]);
    let made = made.is_some_and(|made| made.status.success());
    let mounted = Mount::new(node, &below.dir, &[]);
    let (true, Ok(mounted)) = (made, mounted) else {
        return throughline_testkit::left_out!("no file system on large sectors");
    };
    let small = Image::new("16M", &["-t", "ext4", "-b", "1024"]);
    let (file, disk) = (below.path("file"), below.path("disk"));
    let bytes = fs::read(small.path()).unwrap();
    fs::write(&file, &bytes).unwrap();
    // The same with a volume that is not aligned to the host's blocks.
    fs::write(&disk, [vec![0; 63 * 512], bytes].concat()).unwrap();
    let point = Point::new(&host, "mnt");
    for (path, options) in [(&file, "rw"), (&disk, "offset=63s")] {
        let path = path.to_str().unwrap();
        ok(["mount", path, point.str(), "-o", options]);
        fs::write(point.path("file"), options).unwrap();
        ok(["umount", point.str()]);
    }
    for (whole, skip, text) in [(&file, 0, "rw"), (&disk, 63 * 512, "offset=63s")] {
        fs::write(small.path(), &fs::read(whole).unwrap()[skip..]).unwrap();
        small.assert_clean();
        assert_eq!(small.contents("/file"), text.as_bytes());
    }
    mounted.unmount();
}

/// Runs a script in a separate mount namespace: `$T` is the binary, `$IMAGE` the image, `$DIR` the mount
/// point.
fn apart(image: &Image, point: &Point, text: &str) -> Ran {
    program(
        Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-ec", text])
            .env("T", env!("CARGO_BIN_EXE_throughline"))
            .env("IMAGE", image.path())
            .env("DIR", &point.dir),
    )
}

#[test]
fn a_missing_proc_is_reported() {
    if skipped() || !has(&["unshare"]) {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let text = "umount -l /proc
        try() { code=0; \"$@\" || code=$?; echo \"exit $code\" >&2; }
        try $T mount $IMAGE $DIR
        try $T mount -f $IMAGE $DIR
        try $T umount $DIR
        $T ls $IMAGE:/";
    let ran = apart(&image, &point, text);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(
        ran.stderr.matches("/proc is not mounted").count(),
        3,
        "{}",
        ran.stderr
    );
    assert_eq!(ran.stderr.matches("exit 2\n").count(), 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("mount -t proc proc /proc"),
        "{}",
        ran.stderr
    );
    assert!(users_of(&image.path()).is_empty());
}

/// The kernel removes a mount with its namespace, but a server in that namespace would keep it. So the server
/// ends.
#[test]
fn a_server_ends_with_the_namespace_of_its_mount() {
    if skipped() || !has(&["unshare"]) {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    // The server stays, although it checks several times during the sleep.
    let text = "$T mount $IMAGE $DIR; sleep 4; echo here > $DIR/file; cat $DIR/file";
    let ran = apart(&image, &point, text);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.text(), "here\n");
    wait("the server has ended", || {
        users_of(&image.path()).is_empty()
    });
    image.assert_clean();
    assert_eq!(image.contents("/file"), b"here\n");
}

/// The server, or its keeper, waits for the end of a process in the namespace; it does not look for one again
/// and again.
#[test]
fn an_idle_server_in_a_namespace_sleeps() {
    if skipped() || !has(&["unshare"]) {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let text = r#"$T mount $IMAGE $DIR
        P=$($T status --json $DIR | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -1)
        for C in $(cat /proc/$P/task/*/children); do children="$children /proc/$C/task/*/comm"; done
        task=$(grep -l '^namespace$' /proc/$P/task/*/comm $children); task=${task%/comm}
        wakeups() { sed -n 's/^voluntary_ctxt_switches:\s*//p' $task/status; }
        now=no
        for turn in $(seq 60); do before=$now; now=$(wakeups); [ "$before" = "$now" ] && break; sleep 2; done
        sleep 4
        echo $(($(wakeups) - now))
        $T umount $DIR"#;
    let ran = apart(&image, &point, text);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.text(), "0\n", "wake-ups in 4 s");
    image.assert_clean();
}

/// A namespace that a process can enter again is in use.
#[test]
fn a_namespace_that_is_kept_keeps_its_mount() {
    if skipped() || !has(&["unshare", "nsenter"]) {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    // No process is in the namespace, but another process has it open.
    let text = "P=\"$DIR.fifo\"; mkfifo \"$P\"; export P
        unshare -m --propagation private sh -ec '$T mount $IMAGE $DIR; echo here > $DIR/file; echo there > $P; read end < $P' &
        read there < \"$P\"
        exec 8< /proc/$!/ns/mnt
        echo end > \"$P\"
        wait $!
        sleep 4
        nsenter --mount=/proc/self/fd/8 cat $DIR/file
        nsenter --mount=/proc/self/fd/8 $T umount $DIR";
    let ran = apart(&image, &point, text);
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    assert_eq!(ran.text(), "here\n");
    image.assert_clean();
}

#[test]
fn a_missing_fusermount3_is_reported() {
    if skipped() || !has(&["chroot", "ldd"]) {
        return;
    }
    let image = super::user::own_image();
    let point = Point::new(&image, "mnt");
    let before = "R=\"$W/root\"; mkdir -p \"$R/dev\" \"$R/proc\" \"$R/mnt\"
        for lib in $(ldd \"$BINARY\" | grep -o '/[^ ]*'); do mkdir -p \"$R/$(dirname $lib)\"; cp \"$lib\" \"$R/$lib\"; done
        touch \"$R/image\" \"$R/throughline\" \"$R/dev/fuse\" \"$R/dev/null\"
        mount --bind \"$IMAGE\" \"$R/image\"; mount --bind \"$BINARY\" \"$R/throughline\"
        mount --bind /dev/fuse \"$R/dev/fuse\"; mount --bind /dev/null \"$R/dev/null\"; mount -t proc proc \"$R/proc\"
        chown 12345 \"$R/mnt\"
        code=0; chroot --userspec=12345:12345 \"$R\" /throughline mount /image /mnt || code=$?; echo \"user $code\"
        chroot \"$R\" /throughline mount /image /mnt; echo root > \"$R/mnt/file\"; chroot \"$R\" /throughline umount /mnt";
    let Some(ran) = script(&image, &point, before, "true") else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    assert!(ran.text().contains("user 32\n"), "{}", ran.text());
    for text in ["fusermount3 is not installed", "Debian package fuse3"] {
        assert!(ran.stderr.contains(text), "no {text:?}: {}", ran.stderr);
    }
    image.assert_clean();
    assert_eq!(image.contents("/file"), b"root\n");
}
