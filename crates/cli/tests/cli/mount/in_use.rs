//! A mount of a user without privileges that is in use when it is ended, where nothing can disconnect the
//! programs that use it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use throughline_testing::program::has;
use throughline_testkit::e2fs;

use super::{ok, skipped};
use crate::common::{fsck, throughline};
use crate::copy_program;

/// Writes a file, lets another program write and sync until it gets an error, or once, and ends the mount by
/// a signal, before the first commit by age; `BEFORE` is done before that. Exits as the server. The namespace
/// has no control files of FUSE, and the user may open its device.
const SCRIPT: &str = r#"
umount /sys/fs/fuse/connections 2>/dev/null || true
mknod -m 666 fuse c 10 229
mount --bind fuse /dev/fuse
user="setpriv --reuid=lp --regid=lp --clear-groups"
touch made
chown lp made mnt
$user ../throughline mkfs -qF -E root_owner made 64M
PATH="$PWD/programs:$PATH" $user ../throughline mount -f -o commit=60 made mnt >log 2>&1 &
server=$!
trap 'kill -9 $server $writer 2>/dev/null || true' EXIT
until grep -q " $PWD/mnt fuse" /proc/self/mounts; do
  kill -0 $server
  sleep 0.01
done
$user sh -ec 'echo text > mnt/file'
outside="$PWD" $user sh -c '
  cd mnt
  synced=0
  while echo line >> lines && sync lines; do
    synced=$((synced + 1))
    echo $synced > "$outside/now"
    mv "$outside/now" "$outside/synced"
    [ "$WRITES" = on ] || exec sleep 600
  done' >writer 2>&1 &
writer=$!
until [ -s synced ]; do
  kill -0 $writer
  sleep 0.01
done
helper() {
  mkdir programs
  printf '#!/bin/sh\n%s\n' "$1" > programs/fusermount3
  chmod 755 programs/fusermount3
}
BEFORE
kill -s TERM $server
wait $server
"#;
/// Exit code of mount(8): the mount could not be removed.
const FAILED: i32 = 32;

/// How the mount is when it is ended: a name, whether a program goes on writing, what is done before, the
/// exit code of the server.
const CASES: [(&str, bool, &str, i32); 6] = [
    ("open", false, "", 0),
    ("written to", true, "", 0),
    ("detached", true, "$user fusermount3 -uz mnt", 0),
    ("covered", true, "mount -t tmpfs none mnt", FAILED),
    ("unmounting fails", true, "helper 'exit 1'", FAILED),
    ("unmounting hangs", false, "helper 'exec sleep 6'", FAILED),
];

#[test]
fn a_mount_in_use_that_is_ended_closes_its_image() {
    if skipped() || !has(&["setpriv", "unshare", "fusermount3"]) {
        return;
    }
    let shared = tempfile::tempdir().unwrap();
    let shared = shared.path();
    let allow_all = |dir: &Path| fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
    allow_all(shared);
    copy_program(throughline().get_program(), &shared.join("throughline"));
    for (number, (case, writes, before, code)) in CASES.into_iter().enumerate() {
        let dir = shared.join(number.to_string());
        fs::create_dir_all(dir.join("mnt")).unwrap();
        allow_all(&dir);
        let ran = Command::new("timeout")
            .args(["100", "unshare", "-m", "sh", "-ec"])
            .arg(SCRIPT.replace("BEFORE", before))
            .env("WRITES", if writes { "on" } else { "once" })
            .current_dir(&dir)
            .output()
            .unwrap();
        let text = |name| fs::read_to_string(dir.join(name)).unwrap();
        let log = format!("{}; the writer: {}", text("log"), text("writer"));
        assert_eq!(ran.status.code(), Some(code), "{case}: {ran:?}, {log}");
        assert!(log.contains("the image is closed"), "{case}: {log}");
        let made = dir.join("made");
        fsck(&made);
        let state = e2fs::dumpe2fs(&made, &["-h"]);
        assert!(!state.contains("needs_recovery"), "{case}: {log}");
        let there = |name| ok(["cat", &format!("{}:/{name}", made.display())]).stdout;
        assert_eq!(there("file"), b"text\n", "{case}: {log}");
        let synced: usize = text("synced").trim().parse().unwrap();
        let lines = there("lines").len() / "line\n".len();
        assert!(lines >= synced, "{case}: {lines} of {synced} lines, {log}");
    }
}
