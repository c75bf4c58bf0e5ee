//! A mount of a user without privileges that is in use when it is ended, where nothing can disconnect the
//! programs that use it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use throughline_testing::program::has;
use throughline_testkit::e2fs;

use super::{ok, skipped};
use crate::common::{fsck, throughline};

/// Writes a file, holds it open, and ends the mount by a signal, before the first commit by age. `$DETACH`
/// may detach the mount before that. Exits as the server. The namespace has no control files of FUSE, and the
/// user may open its device.
const SCRIPT: &str = r#"
umount /sys/fs/fuse/connections 2>/dev/null || true
mknod -m 666 fuse c 10 229
mount --bind fuse /dev/fuse
user="setpriv --reuid=lp --regid=lp --clear-groups"
touch made
chown lp made mnt
$user ./throughline mkfs -qF -E root_owner made 64M
$user ./throughline mount -f -o commit=60 made mnt >log 2>&1 &
server=$!
trap 'kill -9 $server $holder 2>/dev/null || true' EXIT
until grep -q " $PWD/mnt fuse" /proc/self/mounts; do
  kill -0 $server
  sleep 0.01
done
$user sh -ec 'echo text > mnt/file'
$user sh -ec 'exec 9<mnt/file; exec sleep 600' >holder 2>&1 &
holder=$!
until [ -L /proc/$holder/fd/9 ]; do
  kill -0 $holder
  sleep 0.01
done
$DETACH
kill -s TERM $server
wait $server
"#;

#[test]
fn a_mount_in_use_that_is_ended_closes_its_image() {
    if skipped() || !has(&["setpriv", "unshare", "fusermount3"]) {
        return;
    }
    for detach in ["", "$user fusermount3 -uz mnt"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::copy(throughline().get_program(), dir.join("throughline")).unwrap();
        fs::create_dir(dir.join("mnt")).unwrap();
        fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
        let ran = Command::new("unshare")
            .args(["-m", "sh", "-ec", &SCRIPT.replace("$DETACH", detach)])
            .current_dir(dir)
            .output()
            .unwrap();
        let log = fs::read_to_string(dir.join("log")).unwrap();
        assert!(ran.status.success(), "{detach}: {ran:?}, {log}");
        assert!(
            log.contains("programs that use the mount get errors"),
            "{detach}: {log}"
        );
        let made = dir.join("made");
        fsck(&made);
        let state = e2fs::dumpe2fs(&made, &["-h"]);
        assert!(!state.contains("needs_recovery"), "{detach}: {log}");
        let place = format!("{}:/file", made.display());
        assert_eq!(ok(["cat", &place]).stdout, b"text\n", "{detach}: {log}");
    }
}
