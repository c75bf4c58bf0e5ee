//! Apptainer runs `fuse2fs` on a descriptor that it has locked. These tests make the same calls without
//! Apptainer, and run Apptainer itself where it is installed.

use std::fs;
use std::process::{Command, Stdio};

use throughline_testing::lock_from;
use throughline_testing::program::has;

use super::user::script_on;
use super::*;
use crate::common::noise;

/// Environment variable: the root file system made by `scripts/apptainer-root`.
const ROOT: &str = "THROUGHLINE_APPTAINER_ROOT";

/// The steps of Apptainer's starter in its user namespace: no search path, fuse2fs in the foreground, an
/// overlay over the mount, and an unmount by another process. On our mount, the kernel's overlayfs works; on
/// a mount of fuse2fs 1.47 it does not, and Apptainer uses another one. In one of many runs, the mount was
/// busy for a moment, for an unknown reason: so the output names its users, and the unmount is repeated.
const STARTER: &str = r#"
    set -e
    PATH= "$FUSE2FS" -f -o "$OPTIONS" /proc/self/fd/3 "$DIR" &
    until grep -q " $DIR fuse" /proc/self/mounts; do kill -0 $!; sleep 0.01; done
    # Until the first stat, the kernel uses a default owner for the root, which the namespace may not map.
    stat "$DIR" > /dev/null
    mkdir -p "$DIR/upper" "$DIR/work"
    mount -t overlay none "$W/seen" -o "lowerdir=$W/lower,upperdir=$DIR/upper,workdir=$DIR/work,userxattr"
    cd "$W/seen"
    echo "wrote $1" >> made
    cat made
    rm -f gone
    mv kept moved 2> /dev/null || true
    mkdir -p dir
    ls -1
    stat -c '%n %u:%g %a' made dir moved
    cd /
    umount "$W/seen"
    tries=0
    until umount "$DIR"; do
        ls -l /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/fd /proc/[0-9]*/map_files 2>/dev/null |
            grep -F "$DIR" >&2 || true
        tries=$((tries + 1))
        [ $tries -lt 100 ]
        sleep 0.1
    done
    wait $!
    echo "ended with $?"
"#;

/// A case: options of `fuse2fs`, the starter's user namespace, and the owner of the image's root directory.
type Flow = (&'static str, &'static str, &'static str);

const OVERLAY: Flow = ("allow_other,fakeroot", "-Ucm --keep-caps", "12345:12345");
const FAKEROOT: Flow = ("allow_other", "-Urm", "0:0");

/// Runs the starter twice on an image that starts at byte `begin` of a file of this owner. Returns the
/// output.
fn turns(flow: Flow, begin: usize, owner: &str) -> Option<String> {
    let (options, namespace, root) = flow;
    let image = Image::new("32M", &["-t", "ext3", "-E", &format!("root_owner={root}")]);
    let mut bytes = noise(begin, 5);
    bytes.extend(fs::read(image.path()).unwrap());
    fs::write(image.path(), &bytes).unwrap();
    let held = File::options()
        .read(true)
        .write(true)
        .open(image.path())
        .unwrap();
    assert!(lock_from(&held, begin as i64));
    let point = Point::new(&image, "mnt");
    let before = format!(
        "chown {owner} \"$IMAGE\"; chmod 600 \"$IMAGE\"
        mkdir \"$W/ours\" \"$W/lower\" \"$W/seen\"; ln -s ../throughline \"$W/ours/fuse2fs\"
        echo kept > \"$W/lower/kept\"; echo gone > \"$W/lower/gone\"; chown -R 12345:12345 \"$W/lower\"
        export FUSE2FS=\"$W/ours/fuse2fs\" OPTIONS={options}"
    );
    let offset = match begin {
        0 => String::new(),
        _ => format!("export OFFSETPRELOAD_FILE=/proc/self/fd/3 OFFSETPRELOAD_OFFSET={begin}"),
    };
    let text = format!(
        "unshare -Urm true || {{ echo unshare: no user namespaces >&2; exit 0; }}
        exec 3<&0 < /dev/null
        {offset}
        for turn in 1 2; do unshare {namespace} sh -c '{}' sh $turn; done",
        STARTER.replace('\'', r"'\''")
    );
    let stdin = Stdio::from(held.try_clone().unwrap());
    let ran = script_on(&image, &point, &before, &text, stdin)?;
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    wait("no process uses the image", || {
        users_of(&point.dir).is_empty()
    });
    let other = File::options().read(true).write(true).open(image.path());
    let is_free = lock_from(&other.unwrap(), 0);
    assert!(!is_free, "the caller still holds the lock");
    let after = fs::read(image.path()).unwrap();
    assert!(
        after[..begin] == bytes[..begin],
        "the bytes before the volume are unchanged"
    );
    fs::write(image.path(), &after[begin..]).unwrap();
    image.assert_clean();
    Some(ran.text())
}

#[test]
fn an_image_that_its_giver_has_locked_is_mounted() {
    if skipped() || !has(&["setpriv", "unshare"]) {
        return;
    }
    for flow in [OVERLAY, FAKEROOT] {
        // The second owner's file cannot be reopened in the user namespace.
        for (begin, owner) in [(0, "12345:12345"), (0, "0:0"), (1 << 20, "0:0")] {
            let Some(ours) = turns(flow, begin, owner) else {
                return;
            };
            assert_eq!(ours.matches("ended with 0\n").count(), 2, "{ours}");
            assert!(ours.contains("wrote 1\nwrote 2\n"), "{ours}");
        }
    }
}

/// Apptainer's uses of writable images, twice each, by a user in a new directory.
const FLOWS: &str = r#"
    cd "$(mktemp -d)"
    mkdir -p box/bin box/etc box/tmp box/dev box/proc box/sys box/var box/root box/home box/usr
    cp /bin/busybox box/bin
    for name in sh cat id mkdir rm sync; do ln -s busybox box/bin/$name; done
    cp /etc/passwd /etc/group /etc/hosts box/etc; : > box/etc/resolv.conf
    apptainer -s build one.sif box
    for flow in "--overlay over.img one.sif" "--fakeroot --overlay over.img one.sif" "--writable two.sif" \
        "--fakeroot --writable two.sif" "--overlay over.img box" "--fakeroot --overlay over.img box"; do
        rm -f over.img two.sif
        apptainer overlay create --size 64 over.img
        cp one.sif two.sif
        apptainer overlay create --size 64 two.sif
        for turn in 1 2; do
            echo "== $flow"
            timeout 120 apptainer -s exec $WHO $flow sh -c \
                'echo wrote >> /var/file; sync; cat /var/file; mkdir -p /opt/dir; rm /etc/group; id -u' 2>&1
            echo "ended with $?"
        done
        e2fsck -fn over.img > said 2>&1 || cat said
    done
"#;

/// Runs them as `user`, with this `fuse2fs` first in the search path. Uses separate namespaces with that root
/// file system instead of a chroot, in which user namespaces are refused.
fn flows(root: &str, user: &str, who: &str, path: &str) -> String {
    let enter = r#"
        mount --bind "$ROOT" "$ROOT"; cd "$ROOT"
        mount -t proc proc proc; mount --rbind /sys sys; mount --rbind /dev dev; mount -t tmpfs -o mode=1777 none tmp
        mknod -m 666 tmp/fuse c 10 229; mount --bind tmp/fuse dev/fuse
        mkdir -p opt/throughline; touch opt/throughline/fuse2fs; mount --bind "$BINARY" opt/throughline/fuse2fs
        mkdir -p old; pivot_root . old; umount -l old
        exec setpriv --reuid "$NAME" --regid "$NAME" --init-groups env -i HOME=/tmp WHO="$WHO" PATH="$FIRST:/usr/bin:/usr/sbin" sh -c "$TEXT""#;
    let ran = program(
        Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-ec", enter])
            .envs([("ROOT", root), ("NAME", user), ("WHO", who)])
            .envs([("FIRST", path), ("TEXT", FLOWS)])
            .env("BINARY", env!("CARGO_BIN_EXE_throughline")),
    );
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    ran.text()
}

/// The reference is the `fuse2fs` in the root file system, which came with Apptainer.
#[test]
fn apptainers_writable_flows() {
    let Ok(root) = std::env::var(ROOT) else {
        throughline_testkit::left_out!("{ROOT} is not set (scripts/apptainer-root makes one)");
        return;
    };
    if skipped() {
        return;
    }
    for (user, who) in [("user", ""), ("root", "-u")] {
        let [real, ours] =
            ["/usr/bin", "/opt/throughline"].map(|path| flows(&root, user, who, path));
        assert_eq!(ours, real, "{user}: ours, and fuse2fs's");
        assert_eq!(ours.matches("\nended with ").count(), 12, "{ours}");
        if user == "user" {
            assert_eq!(ours.matches("\nended with 0\n").count(), 12, "{ours}");
            assert_eq!(ours.matches("wrote\nwrote\n").count(), 6, "{ours}");
        }
    }
}
