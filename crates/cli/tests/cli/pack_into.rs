//! `pack --into`: sources over a directory of an image that exists. The judge is `pack` from nothing: the
//! tars of both must have the same bytes.

use std::fs;
use std::path::Path;

use crate::common::{assert_clean, fails, is_root, noise, ok, run, throughline, tools_are_missing};
use crate::sources::{Place, has};

/// A base, and a layer over it with every kind of file.
const TREES: &str = r#"
mkdir -p base/etc/old base/bin base/swap base/kept; cd base
echo motd > etc/motd; ln etc/motd bin/motd; echo gone > swap/file; echo same > kept/same
head -c 300000 /dev/urandom > bin/large; ln -s etc/motd link; echo plain > becomes; mkfifo pipe
setfattr -n user.base -v old etc; setfacl -d -m u:1236:rx etc; chmod 4755 bin/large
cd ..; mkdir -p layer/etc/new/deep layer/bin layer/becomes layer/etc/motd.d; cd layer
echo other > etc/motd; head -c 500000 /dev/urandom > bin/large; echo in > becomes/inside
echo a > swap; ln -s ../new/place link; echo deep > etc/new/deep/file; ln etc/new/deep/file again
chmod 6711 bin/large; setfattr -n user.new -v yes etc/new; setfacl -m u:1235:rwx etc/motd
setfattr -n user.long -v "$(printf 'y%.0s' {1..900})" bin/large; setfacl -d -m u:1234:rw etc/new
truncate -s 3M hole; truncate -s 5M sparse
printf data | dd of=sparse bs=4096 seek=100 conv=notrunc status=none
: > nothing; touch -d '1960-02-03 04:05:06.25' nothing; ln -s "$(printf 'x%.0s' {1..150})" long
printf b > $'\xff\xfe'; mkfifo etc/pipe; chmod 1777 etc/new
"#;

const AS_ROOT: &str = r#"
cd layer; mknod null c 1 3; mknod disk b 259 70000; chown 3000000:4000000 etc/new; chown -h 7:8 link
setcap cap_net_raw+ep bin/large
"#;

fn made() -> Option<Place> {
    if !has(&["setfattr", "setfacl", "tar", "zstd"]) {
        return None;
    }
    let place = Place::new();
    place.shell(TREES);
    if is_root() {
        place.shell(AS_ROOT);
    }
    Some(place)
}

/// The archive of a directory of an image.
#[track_caller]
fn tar(image: &str, path: &str) -> Vec<u8> {
    let ran = run(["tar", "-q", &format!("{image}:{path}")]);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    ran.stdout
}

impl Place {
    /// Packs a directory into `image`, with more room.
    #[track_caller]
    fn packed(&self, source: &str, more: &str) -> String {
        let image = self.text("image");
        let source = self.text(source);
        ok(["pack", "-q", "-F", &source, "--size", more, "-o", &image]);
        image
    }

    /// Packs the sources one into the other, and all from nothing; both must have the same tree.
    #[track_caller]
    fn same(&self, options: &[&str], base: &str, over: &[&str]) {
        let (image, other) = (self.text("image"), self.text("other"));
        let size = &["--size", "+24M"][..];
        let base = self.text(base);
        let over: Vec<String> = over.iter().map(|name| self.text(name)).collect();
        let over: Vec<&str> = over.iter().map(String::as_str).collect();
        ok([&["pack", "-q", "-F", &base, "-o", &image], size, options].concat());
        let into = format!("{image}:/");
        ok([&["pack", "-q", "--into", &into], &over[..]].concat());
        assert_clean(Path::new(&image));
        ok([
            &["pack", "-q", "-F", "-o", &other, &base],
            &over[..],
            size,
            options,
        ]
        .concat());
        let (found, expected) = (tar(&image, "/"), tar(&other, "/"));
        assert!(found == expected, "{options:?} {over:?}");
    }
}

#[test]
fn a_tree_is_what_packing_from_nothing_makes() {
    let Some(place) = made() else { return };
    place.shell(
        "tar --format=pax --sparse --xattrs --xattrs-include='*' --acls --numeric-owner -I zstd \
         -cf layer.tar.zst -C layer .",
    );
    for options in [
        &[][..],
        &["-t", "ext3", "-b", "1024"],
        &["-O", "inline_data"],
    ] {
        place.same(options, "base", &["layer"]);
        place.same(options, "base", &["layer.tar.zst", "base"]);
    }
    // Again: nothing is left to do.
    let image = place.text("image");
    let into = format!("{image}:/");
    let before = tar(&image, "/");
    let layers = [place.text("layer.tar.zst"), place.text("base")];
    let again = run(["pack", "--json", "--into", &into, &layers[0], &layers[1]]).json();
    assert!(tar(&image, "/") == before);
    assert!(again["files"].as_u64().unwrap() > 0 && again["removed"].as_u64().unwrap() > 0);
}

/// Into a directory below the root, with another owner; what is beside it stays.
#[test]
fn only_the_directory_and_only_new_files_change() {
    let Some(place) = made() else { return };
    let image = place.packed("base", "+24M");
    ok(["mkdir", &format!("{image}:/srv")]);
    let beside = tar(&image, "/etc");
    let into = format!("{image}:/srv");
    ok([
        "pack",
        "-q",
        &place.text("layer"),
        "--owner",
        "5:6",
        "--into",
        &into,
    ]);
    assert_clean(Path::new(&image));
    assert!(tar(&image, "/etc") == beside);
    let other = place.text("other");
    ok([
        "pack",
        "-q",
        &place.text("layer"),
        "--owner",
        "5:6",
        "-o",
        &other,
    ]);
    assert!(tar(&image, "/srv") == tar(&other, "/"));
    place.shell("mkdir more; echo more > more/more");
    ok([
        "pack",
        "-q",
        &place.text("more"),
        "--owner",
        "8:9",
        "--into",
        &into,
    ]);
    let owners = |path: &str| ok(["stat", "-c", "%u:%g", &format!("{into}/{path}")]);
    assert_eq!((&*owners("more"), &*owners("swap")), ("8:9\n", "5:6\n"));
    fails(
        [
            "pack",
            &place.text("more"),
            "--into",
            &format!("{image}:/none"),
        ],
        1,
        "No such file",
    );
}

/// A link to what was there, under a name that is taken, while the old name goes.
#[test]
fn links_to_what_was_there_keep_it() {
    if !has(&["tar"]) {
        return;
    }
    let place = Place::new();
    place.shell(
        "mkdir base one two; echo old > base/a; echo taken > base/b; : > base/c
         echo x > one/a; ln one/a one/b; ln one/a one/z; tar -cf layer.tar -C one a b z
         tar --delete -f layer.tar a; echo new > two/a; tar -rf layer.tar -C two a",
    );
    place.same(&[], "base", &["layer.tar"]);
    let image = place.text("image");
    assert_eq!(
        ok(["cat", &format!("{image}:/b"), &format!("{image}:/a")]),
        "old\nnew\n"
    );
    assert_eq!(ok(["stat", "-c", "%h", &format!("{image}:/z")]).trim(), "2");
    assert_eq!(
        ok(["ls", &format!("{image}:/")]).trim(),
        "a\nb\nc\nlost+found\nz"
    );
}

/// Whiteouts and opaque directories of a container's layers hide what the image has.
#[test]
fn whiteouts_apply_to_what_is_there() {
    if !has(&["umoci"]) {
        return;
    }
    let place = Place::new();
    place.shell(
        "umoci init --layout img; umoci new --image img:a
         umoci unpack --rootless --image img:a b 2>/dev/null
         mkdir -p b/rootfs/opaque; echo 1 > b/rootfs/gone; echo 2 > b/rootfs/opaque/old
         umoci repack --image img:a b 2>/dev/null; rm -rf b
         umoci unpack --rootless --image img:a b 2>/dev/null
         rm -r b/rootfs/gone b/rootfs/opaque; mkdir b/rootfs/opaque; echo n > b/rootfs/opaque/new
         umoci repack --image img:a b 2>/dev/null
         mkdir -p base/opaque; echo mine > base/gone; echo mine > base/opaque/mine; echo stays > base/stays",
    );
    place.same(&[], "base", &["img"]);
    let image = place.text("image");
    let listed = ok(["ls", &format!("{image}:/")]);
    assert!(
        !listed.contains("gone") && listed.contains("stays"),
        "{listed}"
    );
}

#[test]
fn what_makes_no_sense_with_it_is_refused_by_name() {
    let place = Place::new();
    place.shell("mkdir source; echo hello > source/file");
    let (image, source) = (place.image("image"), place.text("source"));
    let into = format!("{image}:/");
    let before = fs::read(&image).unwrap();
    for words in [
        &["-o", "x"][..],
        &["--size", "8M"],
        &["--check", "x"],
        &["--force"],
        &["-t", "ext3"],
        &["-L", "x"],
        &["-U", "random"],
        &["-E", "hash_seed=1"],
    ] {
        let all = [&["pack", &source, "--into", &into], words].concat();
        fails(all, 2, words[0]);
    }
    fails(["pack", &source, "--into", &source], 2, "IMAGE:/path");
    assert!(fs::read(&image).unwrap() == before);
    let content = tar(&image, "/");
    fails(
        ["pack", &source, "--into", &format!("{image}:/file")],
        1,
        "Not a directory",
    );
    fails(
        ["pack", &place.text("none"), "--into", &into],
        1,
        "No such file",
    );
    assert!(tar(&image, "/") == content);
}

/// What does not fit is refused before anything is written.
#[test]
fn a_full_image_keeps_what_it_has() {
    if tools_are_missing() {
        return;
    }
    let place = Place::new();
    place.shell("mkdir source layer; echo hello > source/file");
    fs::write(place.path("layer/large"), noise(4_000_000, 1)).unwrap();
    let image = place.image("image");
    let into = format!("{image}:/");
    let before = tar(&image, "/");
    fails(
        ["pack", &place.text("layer"), "--into", &into],
        1,
        "No space left",
    );
    assert_clean(Path::new(&image));
    assert!(tar(&image, "/") == before);
    // What goes does not make enough room.
    place.shell("mkdir layer/file");
    let ran = fails(
        ["pack", &place.text("layer"), "--into", &into],
        1,
        "large: No space left",
    );
    assert!(!ran.stderr.contains("may be there"), "{}", ran.stderr);
    assert!(tar(&image, "/") == before);
}

/// What replaces a file has to fit beside it, and is there before the old one goes.
#[test]
fn a_file_is_replaced_only_when_the_new_one_is_there() {
    if tools_are_missing() {
        return;
    }
    let place = Place::new();
    place.shell("mkdir source layer many; echo hello > source/note");
    for at in 0..12 {
        let old = noise(1_500_000, at);
        fs::write(place.path(&format!("source/file{at}")), &old).unwrap();
        let new = noise(1_600_000, at + 100);
        fs::write(place.path(&format!("many/file{at}")), &new).unwrap();
    }
    fs::write(place.path("layer/file1"), noise(9_000_000, 50)).unwrap();
    place.shell("ln layer/file1 layer/file2; ln -s note layer/note");
    let image = place.packed("source", "+5M");
    let into = format!("{image}:/");
    let before = tar(&image, "/");
    // 9 MB do not fit the 5 MiB that are free, although two old files go.
    let ran = fails(["pack", &place.text("layer"), "--into", &into], 1, "file1");
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("may be there"), "{}", ran.stderr);
    assert!(tar(&image, "/") == before);
    assert_clean(Path::new(&image));
    // 19 MB in all, each file beside its old one only.
    ok(["pack", "-q", &place.text("many"), "--into", &into]);
    assert_clean(Path::new(&image));
    for at in 0..12 {
        let found = run(["cat", &format!("{image}:/file{at}")]).stdout;
        assert!(found == noise(1_600_000, at + 100), "file{at}");
    }
    assert_eq!(ok(["ls", "-A", &into]).matches("pack-into").count(), 0);
}

/// The order of the writes is not that of the sources: what is compressed comes last.
#[test]
fn room_is_followed_in_the_order_of_the_writes() {
    if !has(&["tar", "gzip"]) {
        return;
    }
    let place = Place::new();
    place.shell("mkdir source one two");
    fs::write(place.path("source/x"), noise(4_000_000, 1)).unwrap();
    fs::write(place.path("one/x"), noise(1_000_000, 2)).unwrap();
    fs::write(place.path("two/y"), noise(6_000_000, 3)).unwrap();
    place.shell("tar -czf one.tar.gz -C one x");
    let image = place.packed("source", "+5M");
    let into = format!("{image}:/");
    let (one, two) = (place.text("one.tar.gz"), place.text("two"));
    let before = tar(&image, "/");
    let ran = fails(["pack", &one, &two, "--into", &into], 1, "y: No space left");
    assert!(!ran.stderr.contains("may be there"), "{}", ran.stderr);
    assert!(tar(&image, "/") == before);
    // One after the other, they fit.
    ok(["pack", "-q", &one, "--into", &into]);
    ok(["pack", "-q", &two, "--into", &into]);
    assert_clean(Path::new(&image));
}

/// As in packing from nothing, `lost+found` is a directory.
#[test]
fn lost_and_found_stays_a_directory() {
    let place = Place::new();
    place.shell("mkdir source file link; : > 'file/lost+found'; ln -s x 'link/lost+found'");
    let (image, out) = (place.packed("source", "+1M"), place.text("out"));
    for source in ["file", "link"] {
        let source = place.text(source);
        let says = "lost+found that is no directory";
        fails(["pack", &source, "-o", &out], 1, says);
        fails(["pack", &source, "--into", &format!("{image}:/")], 1, says);
        ok(["mkdir", "-p", &format!("{image}:/below")]);
        ok(["pack", "-q", &source, "--into", &format!("{image}:/below")]);
    }
    let kind = ok(["stat", "-c", "%F", &format!("{image}:/lost+found")]);
    assert_eq!(kind.trim(), "directory");
}

/// Symbolic links have the mode that Linux gives them, whatever an archive says.
#[test]
fn symbolic_links_have_one_mode() {
    if !has(&["tar"]) {
        return;
    }
    let place = Place::new();
    place.shell(
        "mkdir source link; ln -s target link/name; tar --mode=0644 -cf link.tar -C link name",
    );
    let (image, link) = (place.image("image"), place.text("link.tar"));
    ok(["pack", "-q", &link, "--into", &format!("{image}:/")]);
    ok(["pack", "-q", &link, "-o", &place.text("out")]);
    for image in ["image", "out"] {
        let at = format!("{}:/name", place.text(image));
        assert_eq!(ok(["stat", "-c", "%a", &at]).trim(), "777", "{image}");
    }
}

/// What is left out of the sources stays in the image as it was.
#[test]
fn what_is_excluded_leaves_what_is_there() {
    if !has(&["tar"]) {
        return;
    }
    let place = Place::new();
    place.shell(
        "mkdir -p base/doc layer/doc/more; echo old > base/keep.o; echo old > base/doc/text
         echo new > layer/keep.o; echo new > layer/new.o; ln layer/new.o layer/other
         ln layer/new.o layer/third; echo new > layer/doc/text; echo new > layer/doc/more/text
         echo new > layer/plain; tar --sort=name -cf layer.tar -C layer .
         mkdir expected; cp -a base/. expected; echo new > expected/plain; echo new > expected/other
         ln expected/other expected/third",
    );
    for layer in ["layer", "layer.tar"] {
        let image = place.packed("base", "+1M");
        let into = format!("{image}:/");
        let words = [
            "pack",
            "-q",
            &place.text(layer),
            "--exclude",
            "*.o",
            "--exclude",
            "/doc",
        ];
        ok(words.iter().chain(&["--into", &into]));
        let out = place.text("out");
        let _ = fs::remove_dir_all(&out);
        ok(["cp", "-a", &format!("{into}."), &out]);
        place.shell(
            "rmdir out/lost+found; diff -r out expected; test \"$(stat -c %h out/other)\" = 2",
        );
    }
}

/// A kill at any moment leaves a sound image that another run completes.
#[test]
fn a_killed_run_leaves_a_sound_image() {
    if tools_are_missing() {
        return;
    }
    let Some(place) = made() else { return };
    for at in 0..30 {
        let name = format!("layer/more {at}");
        fs::write(place.path(&name), noise(400_000, at)).unwrap();
    }
    place.same(&[], "base", &["layer"]);
    let expected = tar(&place.text("image"), "/");
    let layer = place.text("layer");
    let image = place.packed("base", "+24M");
    let first = fs::read(&image).unwrap();
    let into = format!("{image}:/");
    let wholes =
        ["base", "layer"].map(|tree| fs::read(place.path(tree).join("bin/large")).unwrap());
    let mut was_cut = false;
    for changes in 1..12 {
        fs::write(&image, &first).unwrap();
        let mut pack = throughline();
        pack.args(["pack", "-q", "--commit", "1", &layer, "--into", &into]);
        let mut running = pack.spawn().unwrap();
        let stamp = || fs::metadata(&image).unwrap().modified().unwrap();
        let (mut last, mut seen) = (stamp(), 0);
        while seen < changes && running.try_wait().unwrap().is_none() {
            let now = stamp();
            seen += i32::from(now != last);
            last = now;
        }
        running.kill().unwrap();
        was_cut |= !running.wait().unwrap().success();
        ok(["replay", "-q", &image]);
        assert_clean(Path::new(&image));
        let kept = ok(["cat", &format!("{image}:/kept/same")]);
        assert_eq!(kept, "same\n");
        // What is replaced is whole, old or new.
        let large = run(["cat", &format!("{image}:/bin/large")]).stdout;
        assert!(wholes.contains(&large), "after {changes} changes");
        ok(["pack", "-q", &layer, "--into", &into]);
        assert_clean(Path::new(&image));
        assert!(tar(&image, "/") == expected, "after {changes} changes");
    }
    assert!(was_cut);
}
