//! Under a limit on processes (RLIMIT_NPROC), a command or a mount goes on with fewer threads, or says that
//! it cannot: it does not panic, and leaves nothing half done.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use throughline_testing::program::has;

use crate::common::{fsck, throughline, tools_are_missing};
use crate::{copy_program, mount};

/// A user who runs nothing else: the limit counts all processes of a user.
const USER: u32 = 61_234;

/// Runs the program as a user who may have so many threads.
fn limited(threads: u32, dir: &Path, arguments: &[&str]) -> Output {
    Command::new("prlimit")
        .arg(format!("--nproc={threads}"))
        .arg(dir.join("throughline"))
        .args(arguments)
        .uid(USER)
        .gid(USER)
        .current_dir(dir)
        .output()
        .unwrap()
}

/// A directory with the program, which every user can reach and write to.
fn shared() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("throughline");
    copy_program(throughline().get_program(), &program);
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    dir
}

#[test]
fn commands_under_a_limit_on_threads() {
    if tools_are_missing() || !has(&["prlimit"]) {
        return;
    }
    if !throughline_testkit::tier::as_root() {
        return throughline_testkit::left_out!("only root runs programs as another user");
    }
    let dir = shared();
    let dir = dir.path();
    fs::create_dir_all(dir.join("tree/below")).unwrap();
    for number in 0..40 {
        fs::write(dir.join(format!("tree/below/{number}")), vec![number; 9000]).unwrap();
    }
    fs::write(dir.join("tree/large"), vec![7; 12 << 20]).unwrap();
    for name in ["tree", "tree/below"] {
        fs::set_permissions(dir.join(name), Permissions::from_mode(0o777)).unwrap();
    }
    let mut done = [0; 3];
    for threads in 1..14 {
        let commands: [&[&str]; 3] = [
            &["pack", "-F", "tree", "-o", "packed"],
            &["mkfs", "-F", "made", "32M"],
            &["cp", "-r", "tree", "made:/"],
        ];
        let mut copied = [false; 3];
        for ((command, done), copied) in commands.iter().zip(&mut done).zip(&mut copied) {
            let ran = limited(threads, dir, command);
            let said = String::from_utf8_lossy(&ran.stderr);
            assert!(!said.contains("panicked"), "{threads}, {command:?}: {said}");
            assert!(
                ran.status.code().is_some(),
                "{threads}, {command:?}: {ran:?}"
            );
            *copied = ran.status.success();
            match *copied {
                true => *done += 1,
                false => assert!(!said.is_empty(), "{threads}, {command:?}"),
            }
        }
        for image in ["packed", "made"].map(|name| dir.join(name)) {
            if image.exists() {
                fsck(&image);
            }
        }
        // What it is said to have copied is there.
        for (image, tree) in [("packed", "/"), ("made", "/tree")] {
            let file = |name: &str| {
                let place = format!("{}:{tree}/{name}", dir.join(image).display());
                throughline().args(["cat", &place]).output().unwrap().stdout
            };
            let is_whole =
                || file("large") == vec![7; 12 << 20] && file("below/7") == vec![7; 9000];
            let copied = match image {
                "packed" => copied[0],
                _ => copied[2],
            };
            assert!(!copied || is_whole(), "{threads}, {image}");
        }
    }
    assert!(done.iter().all(|done| *done > 2), "{done:?}");
    assert!(done.iter().any(|done| *done < 13), "nothing was limited");
}

/// Mounts `made` at `mnt` as a user under a limit, one who has a name and runs nothing else, uses the mount,
/// and ends it by `throughline umount` or by a signal. In a namespace, where the user may open the device of
/// FUSE.
const MOUNT: &str = r#"
mknod -m 666 fuse c 10 229
mount --bind fuse /dev/fuse
chown games made mnt
setpriv $WHO ./throughline mkfs -qF -E root_owner made 256M
setpriv $WHO prlimit --nproc="$THREADS" ./throughline mount -f made mnt >log 2>&1 &
server=$!
trap 'kill -9 $server 2>/dev/null || true' EXIT
failed() {
  kill $server 2>/dev/null || true
  if wait $server; then exit 4; else exit 3; fi
}
until grep -q " $PWD/mnt fuse" /proc/self/mounts; do
  kill -0 $server 2>/dev/null || failed
  sleep 0.01
done
setpriv $WHO sh -ec 'mkdir mnt/dir; cp throughline mnt/dir/; cmp throughline mnt/dir/throughline' || failed
# Past the kernel's cache, which has these pages: the server waits for the kernel.
for at in 0 1 2; do
  setpriv $WHO dd if=throughline of=mnt/dir/throughline bs=64k count=8 skip=$((8 * at)) seek=$((8 * at)) \
    conv=notrunc oflag=direct >direct$at 2>&1 || grep -q 'temporarily unavailable' direct$at || failed
done
case $END in umount) setpriv $WHO ./throughline umount mnt ;; *) kill -s "$END" $server ;; esac
wait $server
"#;
/// Exit codes of [`MOUNT`]: there was no mount; its server failed in the end.
const NO_MOUNT: i32 = 3;
const FAILED: i32 = 32;

#[test]
fn mounts_under_a_limit_on_threads() {
    if mount::skipped() || !has(&["prlimit", "setpriv", "unshare", "fusermount3"]) {
        return;
    }
    let dir = shared();
    let dir = dir.path();
    fs::create_dir(dir.join("mnt")).unwrap();
    let made = dir.join("made");
    File::create(&made).unwrap();
    let program = fs::read(dir.join("throughline")).unwrap();
    let (mut served, mut refused) = (0, 0);
    for threads in (1..36).step_by(2) {
        let ran = Command::new("unshare")
            .args(["-m", "sh", "-ec", MOUNT])
            .current_dir(dir)
            .env("WHO", "--reuid=games --regid=games --clear-groups")
            .env("THREADS", threads.to_string())
            .env("END", if threads % 4 == 1 { "umount" } else { "TERM" })
            .output()
            .unwrap();
        let _ = fs::remove_file(dir.join("fuse"));
        let log = fs::read_to_string(dir.join("log")).unwrap();
        assert!(!log.contains("panicked"), "{threads}: {log}");
        let is_there = match ran.status.code() {
            Some(0) => true,
            Some(NO_MOUNT) => {
                assert!(!log.is_empty(), "{threads}");
                false
            }
            // It could not start the program that unmounts: the mount stays, but the image is closed.
            Some(FAILED) => true,
            _ => panic!("{threads}: {ran:?}, {log}"),
        };
        fsck(&made);
        if is_there {
            let place = format!("{}:/dir/throughline", made.display());
            let file = throughline().args(["cat", &place]).output().unwrap();
            assert!(file.stdout == program, "{threads}: {log}");
        }
        *if is_there { &mut served } else { &mut refused } += 1;
    }
    assert!(
        served > 2 && refused > 0,
        "{served} served, {refused} refused"
    );
}
