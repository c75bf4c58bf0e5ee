//! The permissions of copied trees, in every direction: those that the host's `cp` sets.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use throughline_testkit::program::has;

use crate::common::{Image, Ran, is_root, ok, throughline, tools_are_missing};

/// An unused user and group ID.
const USER: u32 = 12345;

/// A tree with files and directories that their owner may not change, and special files.
const TREE: &str = "umask 022
    mkdir -p s/closed/below s/private
    echo a > s/closed/below/f; echo b > s/closed/kept; echo c > s/run
    mkfifo s/fifo; cd s; python3 -c 'import socket
socket.socket(socket.AF_UNIX).bind(\"socket\")'; cd ..
    chmod 0400 s/closed/kept; chmod 4755 s/run; chmod 0640 s/fifo s/socket
    chmod 0555 s/closed/below s/closed; chmod 0700 s/private; chmod 0711 s
    $T cp -a s image:/s";

/// Runs a script in the image's directory, where `$T` is the binary. If this is root, another user runs it,
/// because to root, permissions of the host mean nothing.
fn script(image: &Image, text: &str) -> Ran {
    let mut command = match is_root() {
        true => Command::new("setpriv"),
        false => Command::new("env"),
    };
    if is_root() {
        let ids = [format!("--reuid={USER}"), format!("--regid={USER}")];
        command.args(ids).arg("--clear-groups");
    }
    // The user may have no access to the binary's directory.
    let binary = fs::File::open(throughline().get_program()).unwrap();
    let command = command.args(["sh", "-ec", text]).stdin(binary);
    let command = command.env("T", "/proc/self/fd/0");
    command
        .current_dir(image.sibling(""))
        .output()
        .unwrap()
        .into()
}

/// The names below a directory of the host and their permissions.
fn modes(root: &Path) -> String {
    let mut lines = vec![format!(
        " {:o}",
        fs::metadata(root).unwrap().mode() & 0o7777
    )];
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            let name = path.strip_prefix(root).unwrap().display();
            lines.push(format!("{name} {:o}", meta.mode() & 0o7777));
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
    lines.sort();
    lines.join("\n")
}

/// The same for a directory of the image.
fn modes_inside(image: &Image, path: &str) -> String {
    let listed = ok(["find", &image.at(path), "-printf", "%P %m\n"]);
    let mut lines: Vec<&str> = listed.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn copied_trees_have_the_permissions_that_cp_gives_them() {
    if tools_are_missing() || !has(&["setpriv", "python3", "cp"]) {
        return;
    }
    let image = Image::ext4();
    let dir = image.sibling("");
    if is_root() {
        fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        chown(&dir, Some(USER), Some(USER)).unwrap();
        chown(image.path(), Some(USER), Some(USER)).unwrap();
    }
    let made = script(&image, TREE);
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    // With 0777, only root can list the copies.
    let umasks = ["022", "027", "0277", "0777"];
    let umasks = &umasks[..if is_root() { 4 } else { 3 }];
    let mut at = 0;
    for umask in umasks {
        for options in [
            "-r",
            "-r --no-preserve=mode",
            "-rp",
            "-rp --no-preserve=mode",
            "-a --no-preserve=mode",
            "-r --preserve=timestamps",
        ] {
            at += 1;
            let copied = script(
                &image,
                &format!(
                    "mkdir o{at}; umask {umask}
                    cp {options} s o{at}/theirs
                    $T -q cp {options} s o{at}/ours
                    $T cp {options} image:/s o{at}/out
                    $T cp {options} s image:/in{at}
                    $T cp {options} image:/s image:/within{at}"
                ),
            );
            let what = format!("umask {umask}, cp {options}");
            assert_eq!(
                (copied.code, copied.stderr.as_str()),
                (Some(0), ""),
                "{what}"
            );
            let theirs = modes(&dir.join(format!("o{at}/theirs")));
            assert_eq!(theirs.lines().count(), 9, "{theirs}");
            for name in ["ours", "out"] {
                let shown = modes(&dir.join(format!("o{at}/{name}")));
                assert_eq!(shown, theirs, "{what}: {name}");
            }
            for name in ["in", "within"] {
                let shown = modes_inside(&image, &format!("/{name}{at}"));
                assert_eq!(shown, theirs, "{what}: {name}");
            }
        }
    }
    image.assert_clean();
    // So that the directories can be removed.
    script(&image, "chmod -R u+rwx .");
}
