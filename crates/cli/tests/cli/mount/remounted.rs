//! `mount -o remount`, through mount(8) and its helper, and by our own command: it either takes effect or
//! fails.

use super::helper::script;
use super::*;

/// Shell functions for the tests' scripts.
const TOOLS: &str = "
    $T -q install-helpers --copy=/sbin
    fails() { ! \"$@\" 2> $W/said || { echo \"not refused: $*\"; exit 1; }; cat $W/said; }
    place() { findmnt -n -o OPTIONS $DIR; }
    closed() {
        cp $IMAGE $W/copy
        e2fsck -fn $W/copy > $W/said 2>&1 || { cat $W/said; exit 1; }
        ! dumpe2fs -h $W/copy 2>&1 | grep needs_recovery
    }";

fn ran(image: &Image, text: &str) -> Option<Ran> {
    let point = Point::new(image, "mnt");
    let ran = script(image, &point, &format!("{TOOLS}\n{text}"))?;
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    wait("no process uses the image", || {
        users_of(&image.path()).is_empty()
    });
    image.assert_clean();
    Some(ran)
}

#[test]
fn read_only_closes_the_image() {
    if skipped() {
        return;
    }
    let image = image();
    let text = "
        mount -t fuse.throughline $IMAGE $DIR -o noexec
        echo first > $DIR/a
        mkdir $DIR/d
        mount -o remount,ro $DIR
        place
        closed
        cat $DIR/a
        ls $DIR/d
        fails touch $DIR/b
        fails rm $DIR/a
        # Repeating it is not an error. It cannot be undone.
        mount -o remount,ro $DIR
        fails mount -o remount,rw $DIR
        place
        fails touch $DIR/b
        umount $DIR
        mount -t fuse.throughline $IMAGE $DIR
        cat $DIR/a
        umount $DIR";
    let Some(ran) = ran(&image, text) else {
        return;
    };
    let output = ran.text();
    assert_eq!(
        output.matches("ro,nosuid,nodev,noexec").count(),
        2,
        "{output}"
    );
    assert_eq!(
        output.matches("Read-only file system").count(),
        3,
        "{output}"
    );
    assert_eq!(output.matches("first\n").count(), 2, "{output}");
    assert!(output.contains("is open read-only"), "{output}");
}

#[test]
fn files_open_for_writing_prevent_a_read_only_remount() {
    if skipped() {
        return;
    }
    let image = image();
    let text = "
        mount -t fuse.throughline $IMAGE $DIR
        exec 9> $DIR/open
        fails mount -o remount,ro $DIR
        echo still >&9
        exec 9>&-
        # If only the kernel's flag was changed, it can be undone.
        mount -i -o remount,ro $DIR
        fails touch $DIR/b
        mount -o remount,rw $DIR
        echo more >> $DIR/open
        cat $DIR/open
        umount $DIR";
    let Some(ran) = ran(&image, text) else {
        return;
    };
    let output = ran.text();
    assert!(
        output.contains("busy") && output.contains("fuser -vm"),
        "{output}"
    );
    assert!(output.ends_with("still\nmore\n"), "{output}");
}

#[test]
fn options_that_cannot_be_changed_are_refused() {
    if skipped() {
        return;
    }
    let image = image();
    let text = "
        mount -t fuse.throughline $IMAGE $DIR -o noatime,commit=30
        fails mount -o remount,commit=7 $DIR
        fails mount -o remount,relatime $DIR
        fails mount -o remount,sync $DIR
        place
        # Options that already have these values are accepted, as from fstab.
        echo \"$IMAGE $DIR fuse.throughline noauto,noatime,commit=30,noexec 0 0\" > $W/fstab
        mount -T $W/fstab -o remount,ro $DIR
        place
        umount $DIR
        $T mount -o ro $IMAGE $DIR
        fails $T mount -o remount,rw $IMAGE $DIR
        $T mount -o remount,ro,noexec $IMAGE $DIR
        place
        $T umount $DIR
        fails mount -t fuse.throughline $IMAGE $DIR -o remount,ro
        fails $T mount -o user_id=7 $IMAGE $DIR";
    let Some(ran) = ran(&image, text) else {
        return;
    };
    let output = ran.text();
    for text in [
        "'commit' cannot be changed",
        "'relatime' cannot be changed",
        "'sync' cannot be changed",
        "rw,nosuid,nodev,noatime",
        "ro,nosuid,nodev,noexec,noatime",
        "ro,nosuid,nodev,noexec,relatime",
        "is open read-only",
        "cannot be chosen",
    ] {
        assert!(output.contains(text), "no {text:?}: {output}");
    }
}
