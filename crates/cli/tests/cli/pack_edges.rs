//! `pack` where options, sources and images meet their limits: what it says, and its exit codes.

use std::fs;
use std::path::Path;

use crate::common::{assert_clean, fails, ok, run, throughline, tools_are_missing};
use crate::sources::{Place, has};

/// Small images have blocks of 1 KiB, unless what has to fit a block needs larger ones.
#[test]
fn blocks_are_as_large_as_attributes_and_links_need() {
    if !has(&["setfattr"]) {
        return;
    }
    let place = Place::new();
    let block_bytes = |options: &[&str]| {
        place.pack(&[&["source"], options].concat());
        let info = run(["info", "--json", &place.text("image")]).json();
        info[0]["block_bytes"].as_u64().unwrap()
    };
    place.shell("mkdir source; echo hello > source/file");
    assert_eq!(block_bytes(&[]), 1024);
    place.shell("setfattr -n user.long -v \"$(printf 'y%.0s' {1..2000})\" source/file");
    assert_eq!(block_bytes(&[]), 4096);
    assert_eq!(block_bytes(&["-b", "-1024"]), 4096);
    let image = place.text("image");
    let long = ok([
        "getfattr",
        "--only-values",
        "-n",
        "user.long",
        &format!("{image}:/file"),
    ]);
    assert_eq!(long.trim_end(), "y".repeat(2000));
    let (source, out) = (place.text("source"), place.text("out"));
    fails(
        ["pack", &source, "-b", "1024", "-o", &out],
        1,
        "larger blocks (-b)",
    );
    place.shell("rm source/file; ln -s \"$(printf 'x%.0s' {1..1500})\" source/link");
    assert_eq!(block_bytes(&[]), 2048);
    ok(["mkfs", "-q", "-d", &source, &out, "2M"]);
    assert_clean(Path::new(&out));
}

/// As diff(1): 1 if they differ, 2 if that cannot be told.
#[test]
fn a_check_has_the_exit_codes_of_diff() {
    let place = Place::new();
    place.shell("mkdir source; echo hello > source/file");
    let (image, source) = (place.image("image"), place.text("source"));
    ok(["pack", &source, "--check", &image]);
    fails(
        ["pack", &source, "--check", &place.text("none")],
        2,
        "No such file",
    );
    let mut pack = throughline();
    pack.current_dir(place.dir.path());
    let ran = pack
        .args(["pack", "source", "--check", "nope"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(
        errors.contains("No such file") && !errors.contains("mkdir"),
        "{errors}"
    );
    fails(
        ["pack", &place.text("none"), "--check", &image],
        2,
        "No such file",
    );
    fails(["pack", &source, "--check", &image, "-b", "3"], 2, "-b");
    place.shell("echo other > source/file");
    fails(["pack", &source, "--check", &image], 1, "differs");
}

#[test]
fn an_image_is_no_part_of_itself() {
    let place = Place::new();
    place.shell("mkdir source; echo hello > source/file; touch -d @1000 source");
    let source = place.text("source");
    let image = place.text("source/image");
    let pack = || {
        ok(["pack", "-q", "-F", &source, "-o", &image]);
        // The name of the image gives its directory another time.
        place.shell("touch -d @1000 source");
        fs::read(&image).unwrap()
    };
    let first = pack();
    assert!(pack() == first);
    place.shell("ln source/image source/again; touch -d @1000 source");
    ok(["pack", &source, "--check", &image]);
    place.shell("rm source/again; touch -d @1000 source");
    assert_eq!(ok(["ls", &format!("{image}:/")]).trim(), "file\nlost+found");
    // Another file of the source is a part of it.
    let other = place.text("other");
    ok(["pack", "-q", &source, "-o", &other]);
    assert_eq!(
        ok(["ls", &format!("{other}:/")]).trim(),
        "file\nimage\nlost+found"
    );
    ok(["mkfs", "-q", "-F", "-d", &source, &image, "2M"]);
    assert_eq!(ok(["ls", &format!("{image}:/")]).trim(), "file\nlost+found");
}

#[test]
fn a_plan_of_mkfs_counts_what_is_in_the_source() {
    let place = Place::new();
    place.shell("mkdir source; head -c 3000000 /dev/zero > source/file; ln -s file source/link");
    let (source, image) = (place.text("source"), place.text("image"));
    let planned = run(["mkfs", "-n", "--json", "-d", &source, &image, "8M"]).json();
    assert!(!Path::new(&image).exists());
    assert_eq!(
        (&planned["files"], &planned["others"]),
        (&1.into(), &1.into())
    );
    assert!(planned["uuid"].is_null());
    let made = run(["mkfs", "--json", "-d", &source, &image, "8M"]).json();
    assert_eq!(planned["free_blocks"], made["free_blocks"]);
    assert_eq!(made["data_bytes"], 3_000_000);
    let before = fs::read(&image).unwrap();
    let shown = ok(["mkfs", "-n", "-d", &source, &image, "-U", "clear"]);
    assert!(shown.contains("UUID: 00000000-0000"), "{shown}");
    assert!(shown.contains("files: 1, others: 1"), "{shown}");
    assert!(fs::read(&image).unwrap() == before);
    fails(["mkfs", "-n", "-d", &source, &image, "2M"], 1, "--size");
    fails(
        ["mkfs", "-n", "-d", &place.text("none"), &image, "2M"],
        1,
        "No such file",
    );
}

/// A platform that cannot be applied is refused; one that only the configuration names is applied.
/// What an option or a name says is not silently left out.
#[test]
fn options_that_pack_does_not_use_are_refused() {
    let place = Place::new();
    place.shell("mkdir source; touch source/file");
    let (source, image) = (place.text("source"), place.text("image"));
    for words in [
        &["--offset", "512"][..],
        &["--image-format", "qcow2"],
        &["--overlay", "over"],
        &["--backing", "."],
        &["--journal", "log"],
        &["--noload"],
    ] {
        let all = [words, &["pack", &source, "-o", &image]].concat();
        fails(all, 2, &format!("{} is not for pack", words[0]));
    }
    for name in ["new.qcow2", "new.VMDK", "new.vhdx"] {
        let named = place.text(name);
        fails(["pack", &source, "-o", &named], 1, "its name says");
        fails(["mkfs", &named, "8M"], 1, "its name says");
        assert!(!place.path(name).exists());
        ok(["-q", "--image-format", "raw", "pack", &source, "-o", &named]);
        ok(["ls", "--image-format", "raw", &format!("{named}:/file")]);
    }
}

#[test]
fn a_platform_is_applied_or_refused() {
    let place = Place::new();
    place.shell("mkdir source; echo hello > source/file; tar -cf tar -C source .");
    let out = place.text("out");
    for source in ["source", "tar"] {
        let source = place.text(source);
        let words = ["pack", &source, "--platform", "linux/arm64", "-o", &out];
        fails(words, 2, "--platform linux/arm64 cannot be applied");
    }
    if !has(&["umoci"]) {
        return;
    }
    place.shell("umoci init --layout img; umoci new --image img:a");
    let image = place.text("img");
    let words = ["pack", &image, "--platform", "linux/sparc", "-o", &out];
    fails(words, 1, "not for linux/sparc");
    assert!(!Path::new(&out).exists());
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        _ => return,
    };
    let platform = format!("linux/{architecture}");
    // With something over it that has no platform.
    let source = place.text("source");
    ok([
        "pack",
        "-q",
        &image,
        &source,
        "--platform",
        &platform,
        "-o",
        &out,
    ]);
}

#[test]
fn times_that_do_not_fit_are_counted() {
    let place = Place::new();
    place.shell("mkdir source; touch -d @3000000000 source/late source/later; : > source/now");
    let (source, image) = (place.text("source"), place.text("image"));
    let pack = ["pack", "-F", &source, "-o", &image, "--size", "+8M"];
    let ran = run(pack.iter().chain(&["-I", "128"]));
    assert_eq!(ran.code, Some(0));
    let says = "times that inodes of 128 bytes cannot hold (1901 to 2038): 2";
    assert!(ran.stderr.contains(says), "{}", ran.stderr);
    let ran = run(pack.iter().chain(&["-I", "128", "--json"])).json();
    assert_eq!(ran["times_clamped"], 2);
    assert_eq!(run(pack).stderr, "");
    let epoch = throughline()
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .args(pack)
        .args(["-I", "128"])
        .output()
        .unwrap();
    assert!(epoch.status.success() && epoch.stderr.is_empty());
}

/// Wrong options exit with 2, whatever finds them; each message says what to do.
#[test]
fn wrong_options_are_usage_errors() {
    let place = Place::new();
    place.shell("mkdir source; echo text > text; mkdir shut; chmod 555 shut");
    let (source, out) = (place.text("source"), place.text("out"));
    for (words, says) in [
        (&["-t", "foo"][..], "foo is no type of file system (-t)"),
        (&["-b", "999"], "1024 to 65536"),
        (&["-L", "a label that is too long"], "at most 16"),
        (&["-m", "60"], "0 to 50"),
        (&["--size", "1k"], "too small"),
        (&["--owner", "99999999999:1"], "from 0 to 4294967295"),
        (&["-E", "offset=1024"], "-E offset="),
    ] {
        fails([&["pack", &source, "-o", &out], words].concat(), 2, says);
        assert!(!Path::new(&out).exists(), "{words:?}");
    }
    let none = place.text("none/image");
    let ran = fails(["pack", &source, "-o", &none], 1, "mkdir -p");
    assert!(!ran.stderr.contains(".pack-"), "{}", ran.stderr);
    // No file of a usual host is as large.
    let ran = run(["pack", &source, "--size", "8000000T", "-o", &out]);
    assert!(
        ran.code != Some(0) && !ran.stderr.contains("dmesg"),
        "{}",
        ran.stderr
    );
    let text = format!("{}:/", place.text("text"));
    let ran = fails(["tar", &text], 1, "check the name");
    assert!(!ran.stderr.contains("mkfs"), "{}", ran.stderr);
    fails(
        ["tar", &format!("{}:/", place.text("none"))],
        1,
        "No such file",
    );
}

/// What is read from a pipe is kept in `TMPDIR`; if that fails, the message has its name.
#[test]
fn errors_of_temporary_files_name_their_directory() {
    if tools_are_missing() || !has(&["tar"]) {
        return;
    }
    let place = Place::new();
    place.shell("mkdir source; echo hello > source/file; tar -cf tar -C source .");
    let mut pack = throughline();
    pack.env("TMPDIR", place.path("no such directory"));
    pack.args(["pack", "-", "-o", &place.text("out")]);
    let input = fs::File::open(place.path("tar")).unwrap();
    let ran = pack.stdin(input).output().unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(errors.contains("no such directory (TMPDIR)"), "{errors}");
    assert_eq!(ran.status.code(), Some(1));
}
