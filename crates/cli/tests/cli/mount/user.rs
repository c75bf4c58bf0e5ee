//! Mounts by a user without root, through `fusermount3` and in a user namespace.
//!
//! `/dev/fuse` may be accessible to root only. So this runs in a mount namespace where everyone may use it,
//! as on a desktop.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use throughline_testing::program::has;
use throughline_testing::transport::io_uring_is_on;

use super::*;

/// An unused user ID.
const USER: &str = "12345";

/// Runs a script in that namespace as that user: `$T` is the binary, `$IMAGE` the image, `$DIR` the mount
/// point. `before` runs as root.
pub(super) fn script(image: &Image, point: &Point, before: &str, text: &str) -> Option<Ran> {
    script_on(image, point, before, text, Stdio::null())
}

/// As [`script`], with this standard input.
pub(super) fn script_on(
    image: &Image,
    point: &Point,
    before: &str,
    text: &str,
    stdin: Stdio,
) -> Option<Ran> {
    if !has(&["fusermount3", "setpriv", "unshare"]) {
        return None;
    }
    let folder = image.sibling("");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    // fusermount3 needs the user's name.
    let own = "chown 12345:12345 \"$IMAGE\" \"$DIR\"
        mount -t tmpfs -o mode=755 none \"$W\"
        mknod -m 666 \"$W/fuse\" c 10 229
        mount --bind \"$W/fuse\" /dev/fuse
        touch \"$W/throughline\"
        { cat /etc/passwd; echo 'somebody:x:12345:12345::/:/bin/sh'; } > \"$W/passwd\"
        mount --bind \"$W/passwd\" /etc/passwd
        mount --bind \"$BINARY\" \"$W/throughline\"";
    let whole = format!(
        "{own}\n{before}\nexport T=\"$W/throughline\"\nexec setpriv --reuid {USER} --regid {USER} --clear-groups sh -ec \"$TEXT\""
    );
    let work = image.sibling("work");
    let _ = std::fs::create_dir(&work);
    let ran = program_on(
        Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-ec", &whole])
            .env("IMAGE", image.path())
            .env("DIR", &point.dir)
            .env("W", &work)
            .env("BINARY", env!("CARGO_BIN_EXE_throughline"))
            .env(
                "TEXT",
                format!("trap '$T umount -l $DIR 2>/dev/null || true' EXIT\n{text}"),
            ),
        stdin,
    );
    if ran.stderr.contains("mknod:") || ran.stderr.contains("unshare:") {
        throughline_testkit::missing!("{}", ran.stderr);
        return None;
    }
    Some(ran)
}

pub(super) fn own_image() -> Image {
    Image::new("32M", &["-t", "ext4", "-E", "root_owner=12345:12345"])
}

#[test]
fn a_user_mounts_uses_and_unmounts() {
    if skipped() {
        return;
    }
    let image = own_image();
    let point = Point::new(&image, "mnt");
    let text = "
        $T mount $IMAGE $DIR
        grep \" $DIR fuse.throughline \" /proc/self/mounts
        echo hello > $DIR/file
        mkdir -p $DIR/a/b
        cat $DIR/file
        stat -c '%u:%g %a' $DIR/file
        $T status $DIR > $DIR/status
        $T umount $DIR
        ! grep \" $DIR \" /proc/self/mounts
        $T ls $IMAGE:/";
    let Some(ran) = script(&image, &point, "", text) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    let text = ran.text();
    assert!(text.contains("user_id=12345"), "{text}");
    assert!(text.contains("hello\n12345:12345 644\n"), "{text}");
    assert!(text.contains("a\nfile\nlost+found\nstatus\n"), "{text}");
    image.assert_clean();
}

/// Whatever other processes of the user take of the limit of locked memory, which counts the rings of
/// io_uring: a mount that finds too little left serves through `/dev/fuse`, and no request fails.
#[test]
fn no_request_fails_for_want_of_locked_memory() {
    if skipped() || !has(&["xfs_io", "prlimit", "fallocate"]) {
        return;
    }
    let image = own_image();
    let point = Point::new(&image, "mnt");
    let text = "
        work() {
            xfs_io -f -c 'pwrite -q 0 256k' $1/f
            xfs_io -r -c 'mmap -r 0 256k' -c 'mread 0 256k' $1/f > $1/read
            xfs_io -c 'mmap -r 0 256k' -c 'mread 0 256k' -c 'fpunch 0 4k' -c 'pwrite -q 8k 5k' \\
                -c 'pwrite -q 256k 8k' $1/f > $1/changed
            seq 40 | xargs -P 40 -I{} fallocate -p -o 0 -l 8192 $1/f
            seq 40 | xargs -P 40 -I{} sh -c \"echo {} >> $1/f\"
            $T status --json $1 | grep '\"kind\"'
        }
        for limit in 8192 200000 1000000; do
            prlimit --memlock=$limit:$limit $T mount $IMAGE $DIR
            work $DIR
            $T umount $DIR
        done
        echo one after the other
        D=$(dirname $IMAGE)/all
        for i in 1 2 3 4 5 6 7 8 9; do
            mkdir $D/$i
            cp --sparse=always $IMAGE $D/$i.img
            prlimit --memlock=8388608:8388608 $T mount $D/$i.img $D/$i
        done
        for i in 1 2 3 4 5 6 7 8 9; do
            work $D/$i
            $T umount $D/$i
        done";
    let before = "mkdir $(dirname \"$IMAGE\")/all; chown 12345:12345 $(dirname \"$IMAGE\")/all";
    let Some(ran) = script(&image, &point, before, text) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    let text = ran.text();
    let (short, enough) = text.split_once("one after the other").expect("both parts");
    assert_eq!(short.matches("/dev/fuse").count(), 3, "{text}");
    assert_eq!(enough.matches("\"kind\"").count(), 9, "{text}");
    if throughline_testing::transport::chosen().is_none() && io_uring_is_on() {
        let first = enough.trim_start().lines().next();
        assert!(
            first.is_some_and(|kind| kind.contains("io_uring")),
            "{text}"
        );
    }
    image.assert_clean();
}

/// mke2fs makes root the owner of the root directory, regardless of who runs it.
#[test]
fn a_user_who_may_not_write_is_advised_how_to() {
    if skipped() {
        return;
    }
    let image = Image::new("32M", &["-t", "ext4"]);
    let point = Point::new(&image, "mnt");
    let text = "
        $T mount $IMAGE $DIR
        ! mkdir $DIR/a 2>/dev/null
        $T umount $DIR
        $T mount -r $IMAGE $DIR
        $T umount $DIR
        $T chown 12345:12345 $IMAGE:/
        $T mount $IMAGE $DIR
        mkdir $DIR/a
        $T umount $DIR";
    let Some(ran) = script(&image, &point, "", text) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    let expected = "belongs to user 0, and you may not write there";
    assert_eq!(ran.stderr.matches(expected).count(), 1, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("throughline chown 12345:12345"),
        "{}",
        ran.stderr
    );
    image.assert_clean();
}

#[test]
fn a_users_mistakes_are_explained() {
    if skipped() {
        return;
    }
    let image = own_image();
    let point = Point::new(&image, "mnt");
    let text = "
        try() { code=0; \"$@\" || code=$?; echo \"exit $code\" >&2; }
        try $T mount $IMAGE $DIR -o allow_other
        try $T mount $IMAGE $DIR -o allow_root
        try $T mount $IMAGE /usr
        try $T mount $IMAGE /root
        chmod 444 $IMAGE
        try $T mount $IMAGE $DIR
        $T mount -r $IMAGE $DIR
        try $T umount /proc
        $T umount $DIR";
    let conf = "echo '# nothing' > \"$W/fuse.conf\"; touch /etc/fuse.conf; mount --bind \"$W/fuse.conf\" /etc/fuse.conf";
    let Some(ran) = script(&image, &point, conf, text) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let output = &ran.stderr;
    assert_eq!(output.matches("exit 32").count(), 6, "{output}");
    assert_eq!(
        output.matches("use a directory of your own").count(),
        2,
        "{output}"
    );
    for text in [
        "cannot mount with 'allow_other': /etc/fuse.conf does not contain user_allow_other",
        "cannot mount with 'allow_root'",
        "cannot mount at '/usr'",
        "cannot mount at '/root'",
        "Permission denied",
        "-o ro",
    ] {
        assert!(output.contains(text), "no {text:?}: {output}");
    }
}

#[test]
fn a_user_whom_the_configuration_allows_shares_a_mount() {
    if skipped() {
        return;
    }
    let image = own_image();
    let point = Point::new(&image, "mnt");
    let conf =
        "echo user_allow_other > \"$W/fuse.conf\"; mount --bind \"$W/fuse.conf\" /etc/fuse.conf";
    let text = "
        $T mount $IMAGE $DIR -o allow_other
        grep \" $DIR .*allow_other\" /proc/self/mounts
        $T umount $DIR";
    let Some(ran) = script(&image, &point, conf, text) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

/// Root may not access another user's mount, so `status` queries the server as that user. Root can also
/// unmount it.
#[test]
fn root_sees_what_a_users_mount_does() {
    if skipped() {
        return;
    }
    let image = own_image();
    let point = Point::new(&image, "mnt");
    if !has(&["fusermount3", "setpriv", "unshare"]) {
        return;
    }
    // The user's commands run in a child of the script, which itself stays root.
    let before = "
        setpriv --reuid 12345 --regid 12345 --clear-groups \"$W/throughline\" mount \"$IMAGE\" \"$DIR\"
        ! ls \"$DIR\" 2>/dev/null
        \"$W/throughline\" status \"$DIR\"
        \"$W/throughline\" umount \"$DIR\"";
    let Some(ran) = script(&image, &point, before, "true") else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    assert!(ran.text().contains("Requests:"), "{}", ran.text());
    image.assert_clean();
}

/// As in rootless containers: root in a user namespace mounts without `fusermount3`.
#[test]
fn a_user_namespace_has_mounts_of_its_own() {
    if skipped() {
        return;
    }
    // The image's root directory belongs to the root of the namespace.
    let image = super::image();
    let point = Point::new(&image, "mnt");
    let text = "
        unshare -Urm true || { echo unshare: no user namespaces >&2; exit 0; }
        unshare -Urm sh -ec '
            $T mount $IMAGE $DIR
            grep \" $DIR fuse.throughline \" /proc/self/mounts
            echo inside > $DIR/file
            stat -c %u:%g $DIR/file
            $T umount $DIR'
        $T cat $IMAGE:/file";
    let Some(ran) = script(&image, &point, "", text) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    assert!(ran.text().ends_with("0:0\ninside\n"), "{}", ran.text());
    image.assert_clean();
}
