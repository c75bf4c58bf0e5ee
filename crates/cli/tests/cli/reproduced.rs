//! The contract of `docs/pack.md`: the same sources make the same bytes, whatever the order in which the host
//! lists them, the umask, the time zone, the locale, the processors, the engine, the user, and the form of
//! the source.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use throughline_testkit::{left_out, program};

use crate::common::{noise, throughline, tools_are_missing};

/// How many trees, and archives.
const TREES: u64 = 10;
const NOBODY: &str = "65534";

/// What is in a tree, in one order or the other. All follows from the seed.
fn make(directory: &Path, seed: u64, is_reversed: bool) {
    let mut names: Vec<u64> = (0..30 + seed * 7).collect();
    if is_reversed {
        names.reverse();
    }
    fs::create_dir_all(directory).unwrap();
    let of = |at: u64| directory.join(format!("d{}/e{}", at % 5, at % 3));
    for &at in &names {
        fs::create_dir_all(of(at)).unwrap();
        let path = of(at).join(format!("file {at}"));
        let len = (at * at * 131 + seed * 977) as usize % 40_000;
        fs::write(&path, noise(len, seed * 1000 + at)).unwrap();
        let mode = if at % 4 == 0 { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        at_time(&path, seed + at);
        if at % 9 == 0 {
            symlink(format!("../target {at}"), of(at).join(format!("link {at}"))).unwrap();
        }
    }
    for &at in names.iter().filter(|at| *at % 11 == 0) {
        let path = of(at).join(format!("file {at}"));
        fs::hard_link(path, directory.join(format!("d{}/hard {at}", at % 5))).unwrap();
    }
    let hole = fs::File::create(directory.join("hole")).unwrap();
    hole.set_len(1 << 20).unwrap();
    drop(hole);
    at_time(&directory.join("hole"), seed);
    // Directories last: their times change with what is in them.
    let mut touch = program::command("bash");
    let script = "find . -type l -exec touch -hd @1600000000 {} +
        find . -depth -type d -exec touch -d @1500000000 {} +";
    touch.args(["-c", script]);
    assert!(touch.current_dir(directory).status().unwrap().success());
}

fn at_time(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::new(1_700_000_000 - seconds, 123_456_789);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// Packs, and returns the image, which is removed.
#[track_caller]
fn packed(mut pack: Command, sources: &[&Path], image: &Path) -> Vec<u8> {
    pack.arg("-q")
        .args(["pack", "--owner", "0:0"])
        .args(sources);
    let ran = pack.arg("-o").arg(image).output().unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{sources:?}: {errors}");
    let bytes = fs::read(image).unwrap();
    fs::remove_file(image).unwrap();
    bytes
}

/// The program as another user runs it, from a place that this user can reach.
fn as_nobody(directory: &Path) -> Option<Command> {
    if !throughline_testkit::tier::as_root() || !program::has(&["setpriv"]) {
        left_out!("another user needs root and setpriv");
        return None;
    }
    let copy = directory.join("throughline");
    if !copy.exists() {
        fs::copy(env!("CARGO_BIN_EXE_throughline"), &copy).unwrap();
    }
    let mut command = program::command("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]);
    command.arg(copy);
    Some(command)
}

/// The program on one processor, with another umask, time zone and locale, and no `SOURCE_DATE_EPOCH`.
fn elsewhere() -> Command {
    let mut command = program::command("bash");
    let run = "umask 077; exec taskset -c 0 \"$0\" \"$@\"";
    command.args([
        "-c",
        run,
        env!("CARGO_BIN_EXE_throughline"),
        "--engine",
        "threads",
    ]);
    command.env("TZ", "Asia/Tokyo").env("LC_ALL", "C");
    command
}

#[test]
fn trees_and_archives_make_the_same_bytes_everywhere() {
    if tools_are_missing() || !program::has(&["tar", "gzip", "zstd", "taskset"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
    let image = place.join("image");
    let mut others: Vec<PathBuf> = Vec::new();
    for seed in 0..TREES {
        let (tree, copy) = (
            place.join(format!("t{seed}")),
            place.join(format!("c{seed}")),
        );
        make(&tree, seed, false);
        make(&copy, seed, true);
        let expected = packed(throughline(), &[&tree], &image);
        let same = |command: Command, source: &Path| {
            assert!(packed(command, &[source], &image) == expected, "{source:?}");
        };
        same(elsewhere(), &copy);
        if let Some(nobody) = as_nobody(place) {
            same(nobody, &copy);
        }
        let mut tar = program::command("bash");
        tar.args([
            "-c",
            "cd $0; tar --format=pax --sparse --sort=name -cf ../a.tar . &&
            find . -print0 | LC_ALL=C sort -rz |
            tar --format=pax --sparse --no-recursion --null -T - -cf - | zstd -q > ../b.tar.zst",
        ]);
        assert!(tar.arg(&copy).status().unwrap().success());
        same(throughline(), &place.join("a.tar"));
        same(elsewhere(), &place.join("b.tar.zst"));
        fs::remove_file(place.join("b.tar.zst")).unwrap();
        others.push(tree);
    }
    // Several sources: their order counts.
    let (one, two) = (&*others[3], &*others[4]);
    let merged = packed(throughline(), &[one, two], &image);
    assert!(packed(elsewhere(), &[&place.join("c3"), two], &image) == merged);
    assert!(packed(throughline(), &[two, one], &image) != merged);
}
