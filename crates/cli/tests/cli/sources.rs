//! `pack` from every kind of source, and `tar`: the way out again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use throughline_testkit::{kernel, left_out, program};

use crate::common::{assert_clean, fails, is_root, noise, ok, run, throughline, tools_are_missing};

/// A temporary directory in which scripts run.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn shell(&self, script: &str) {
        let mut bash = program::command("bash");
        bash.args(["-euo", "pipefail", "-c", script]);
        let ran = bash.current_dir(self.dir.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{script}: {errors}");
    }

    /// Packs sources, which are names here, or arguments. Returns the image's bytes.
    #[track_caller]
    pub(crate) fn pack(&self, arguments: &[&str]) -> Vec<u8> {
        let image = self.text("image");
        let mut pack = throughline();
        pack.current_dir(self.dir.path())
            .arg("pack")
            .args(arguments);
        let ran = pack.args(["-q", "-F", "-o", &image]).output().unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success() && errors.is_empty(),
            "{arguments:?}: {errors}"
        );
        assert_clean(Path::new(&image));
        fs::read(image).unwrap()
    }

    /// Packs `source` without looking at the result. Returns the image's path.
    #[track_caller]
    pub(crate) fn image(&self, name: &str) -> String {
        let image = self.text(name);
        ok(["pack", "-q", &self.text("source"), "-o", &image]);
        image
    }

    /// The archive of the image.
    #[track_caller]
    fn tar(&self) -> Vec<u8> {
        let ran = run(["tar", "-q", &format!("{}:/", self.text("image"))]);
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
        ran.stdout
    }

    /// Makes the image of the archive, which is read from standard input.
    #[track_caller]
    fn pack_stream(&self, archive: &[u8]) -> Vec<u8> {
        fs::write(self.path("stream"), archive).unwrap();
        let image = self.text("image");
        let mut pack = throughline();
        pack.args(["pack", "-q", "-", "-F", "-o", &image]);
        let input = fs::File::open(self.path("stream")).unwrap();
        let ran = pack.stdin(Stdio::from(input)).output().unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{errors}");
        fs::read(image).unwrap()
    }
}

/// Whether these programs are there.
pub(crate) fn has(programs: &[&str]) -> bool {
    program::has(programs) && !tools_are_missing()
}

/// A tree in `source` of everything that can be made without root; with it, owners, devices and capabilities.
const TREE: &str = r#"
long="source/a directory with a long name that goes on and on and on and on and on/and one more below it"
mkdir -p source/etc/empty source/bin "$long"; cd source
echo hello > etc/motd; ln etc/motd again; ln etc/motd etc/third; ln -s etc/motd link
ln -s "$(printf 'x%.0s' {1..150})" longlink
head -c 3000000 /dev/urandom > bin/large; chmod 4755 bin/large; chmod 1777 etc/empty
for at in $(seq 60); do head -c $((at * 97)) /dev/urandom > "bin/file $at"; done
mkfifo pipe; echo deep > "${long#source/}/a file"; : > nothing; touch -d '1960-02-03 04:05:06.25' nothing
printf a > $'\xc3\xa4'; printf b > $'\xff\xfe'; touch -d '2001-02-03 04:05:06.789012345' again
truncate -s 5M sparse; printf data | dd of=sparse bs=4096 seek=100 conv=notrunc status=none
printf end | dd of=sparse bs=1 seek=5242877 conv=notrunc status=none
truncate -s 3M hole; mkdir lost+found
"#;

/// Attributes, where the file system of temporary files has them.
const ATTRIBUTES: &str = r#"
cd source
setfattr -n user.comment -v 'a = "b" %' etc/motd
setfattr -n user.binary -v 0x00ff0a3d25 bin; setfattr -n user.long -v "$(printf 'y%.0s' {1..900})" bin/large
setfacl -m u:1234:rwx,g:77:r bin/large; setfacl -d -m u:99:rx etc
"#;

const AS_ROOT: &str = r#"
cd source
mknod null c 1 3; mknod disk b 259 70000; chown 1000:100 etc/motd; chown 3000000:4000000 bin
setcap cap_net_raw+ep 'bin/file 7'; setfattr -n trusted.secret -v yes etc
chown -h 7:8 link
"#;

fn made() -> Option<Place> {
    if !has(&["setfattr", "setfacl", "tar", "gzip", "xz", "zstd", "bzip2"]) {
        return None;
    }
    let place = Place::new();
    place.shell(TREE);
    place.shell(ATTRIBUTES);
    if is_root() {
        place.shell(AS_ROOT);
    }
    Some(place)
}

/// The archive of GNU tar in every form, and the directory itself, make one image.
#[test]
fn a_directory_and_its_archives_make_one_image() {
    let Some(place) = made() else { return };
    place.shell(
        "tar --format=pax --numeric-owner --sparse --xattrs --xattrs-include='*' --acls -cf plain -C source .
         gzip -k plain; xz -0 -k plain; zstd -q -k plain; bzip2 -k plain",
    );
    let image = place.pack(&["source"]);
    for form in ["plain", "plain.gz", "plain.xz", "plain.zst", "plain.bz2"] {
        assert!(place.pack(&[form]) == image, "{form}");
        let check = ok(["pack", &place.text(form), "--check", &place.text("image")]);
        assert_eq!(check, "", "{form}");
    }
    for form in ["plain", "plain.zst"] {
        let archive = fs::read(place.path(form)).unwrap();
        assert!(place.pack_stream(&archive) == image, "{form} as a stream");
    }
    place.shell(
        "mkdir -p etc/etc; echo new > etc/etc/motd; touch -d @1000 etc/etc/motd etc/etc etc",
    );
    place.shell("tar -cf etc.tar -C etc .; tar -I zstd -cf etc.tar.zst -C etc .");
    let over = place.pack(&["source", "etc"]);
    assert!(over != image);
    for (base, upper) in [
        ("plain.gz", "etc"),
        ("source", "etc.tar"),
        ("plain.zst", "etc.tar.zst"),
    ] {
        assert!(
            place.pack(&[base, upper, "--owner", "5:6"])
                == place.pack(&["source", "etc", "--owner=5:6"])
        );
    }
}

/// `pack | tar | pack` is a fixed point, and GNU tar reads what `tar` writes.
#[test]
fn an_image_comes_out_as_a_tar_and_makes_itself() {
    let Some(place) = made() else { return };
    let options = [
        &[][..],
        &["-t", "ext3", "-b", "1024"],
        &["-O", "inline_data", "-I", "512"],
        &["-t", "ext2", "--size", "64M"],
    ];
    for options in options {
        let image = place.pack(&[&["source"], options].concat());
        let archive = place.tar();
        fs::write(place.path("out.tar"), &archive).unwrap();
        assert!(
            place.pack(&[&["out.tar"], options].concat()) == image,
            "{options:?}"
        );
        assert!(place.tar() == archive, "{options:?}");
    }
    let other = ok([
        "tar",
        &format!("{}:/etc", place.text("image")),
        "-o",
        &place.text("etc.tar"),
    ]);
    assert_eq!(other, "");
    place.shell(
        "mkdir out; tar -xf out.tar -C out --xattrs --xattrs-include='user.*' --acls --numeric-owner
         diff -r --no-dereference source out 2>&1 | grep -v 'is a \\(fifo\\|char\\|block\\)' &&
           exit 1
         test \"$(stat -c %h out/again)\" = 3; test \"$(stat -c %b out/hole)\" = 0
         for of in motd ../bin/large; do
           show() { (cd $1/etc; stat -c '%a %Y %s' $of; getfacl $of); }; cmp <(show source) <(show out)
           cmp <(cd source/etc; getfattr -d $of) <(cd out/etc; getfattr -d $of)
         done
         printf './\\nempty/\\nmotd\\nthird\\n' | cmp - <(tar -tf etc.tar)",
    );
}

#[test]
fn a_tar_is_written_whole_or_not_at_all() {
    let place = Place::new();
    place.shell("mkdir source; head -c 3000000 /dev/urandom > source/file; ln -s file source/link");
    place.image("image");
    let root = format!("{}:/", place.text("image"));
    let out = place.text("out.tar");
    ok(["tar", &root, "-o", &out]);
    assert!(fs::read(&out).unwrap() == run(["tar", &root]).stdout);
    fails(["tar", &root, "-o", &out], 1, "-F");
    fails(["tar", &root, "-F"], 2, "--output");
    ok(["tar", &root, "-F", "-o", &out, "--exclude", "link"]);
    let listed = program::command("tar")
        .args(["-tf", &out])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "./\nfile\n");
    fails(
        ["tar", &format!("{root}file"), "-o", &out, "-F"],
        1,
        "Not a directory",
    );
    fails(
        ["tar", &format!("{root}none"), "-o", &out, "-F"],
        1,
        "No such file",
    );
    ok(["tar", &root, "-o", "/dev/null"]);
    fails(["tar", &root, "-o", "/dev/full"], 1, "No space left");
    let image = place.text("image");
    fails(["tar", &root, "-F", "-o", &image], 1, "name another file");
    let before = fs::read(&image).unwrap();
    ok(["tar", &root, "-o", &out, "-F"]);
    assert!(fs::read(&image).unwrap() == before);
    let names = fs::read_dir(place.dir.path()).unwrap().count();
    assert_eq!(names, 3, "image, source, out.tar");
}

#[test]
fn archives_are_not_for_terminals() {
    if !has(&["script"]) {
        return;
    }
    let place = Place::new();
    place.shell("mkdir source");
    place.image("image");
    let binary = env!("CARGO_BIN_EXE_throughline");
    for (command, says) in [
        ("tar image:/", "not writing an archive to a terminal"),
        ("pack - -o none", "not reading an archive from a terminal"),
    ] {
        place.shell(&format!(
            "script -qec '{binary} {command}' /dev/null < /dev/null > said && exit 1
             grep -q '{says}' said; ! [ -e none ]"
        ));
    }
}

/// What a container image is to look like, for umoci as the judge.
pub(crate) const CONTAINER: &str = "
umoci init --layout img; umoci new --image img:a
umoci unpack --rootless --image img:a b 2>/dev/null
mkdir -p b/rootfs/d/e b/rootfs/opaque b/rootfs/usr/lib; echo 1 > b/rootfs/d/e/f; echo 2 > b/rootfs/gone
ln b/rootfs/gone b/rootfs/d/linked; ln -s usr/lib b/rootfs/lib; ln -s d/e b/rootfs/way
echo o > b/rootfs/opaque/old; echo x > b/rootfs/usr/lib/x; chmod 4711 b/rootfs/usr/lib/x
umoci repack --image img:a b 2>/dev/null; rm -rf b
umoci unpack --rootless --image img:a b 2>/dev/null
rm -r b/rootfs/gone b/rootfs/opaque; mkdir b/rootfs/opaque; echo n > b/rootfs/opaque/new
echo 3 > b/rootfs/d/e/f; ln b/rootfs/d/linked b/rootfs/relinked; rm b/rootfs/way; mkdir b/rootfs/way
umoci repack --image img:a b 2>/dev/null; rm -rf b
umoci unpack --rootless --image img:a b 2>/dev/null
skopeo --insecure-policy copy -q oci:img:a oci-archive:oci.tar:a
skopeo --insecure-policy copy -q oci:img:a docker-archive:docker.tar:a:latest
gzip -k docker.tar
";

#[test]
fn an_image_of_a_container_is_what_umoci_unpacks() {
    if !has(&["umoci", "skopeo"]) {
        return;
    }
    let place = Place::new();
    place.shell(CONTAINER);
    // Owners of the unpacked tree are the user's.
    let owner = &["--owner", "0:0"][..];
    let mut images = Vec::new();
    for form in [
        "img",
        "oci.tar",
        "docker.tar",
        "docker.tar.gz",
        "docker-archive:docker.tar:a:latest",
    ] {
        images.push(place.pack(&[&[form], owner].concat()));
        let root = format!("{}:/.", place.text("image"));
        let out = place.text("out");
        let _ = fs::remove_dir_all(&out);
        ok(["cp", "-a", &root, &out]);
        place.shell(
            "rmdir out/lost+found; diff -r --no-dereference out b/rootfs
             list() { (cd $1; find . -printf '%p %y %m %n %l %T@\\n' | grep -v '^\\. ' | sort); }
             diff <(list out | cut -d. -f1-2) <(list b/rootfs | cut -d. -f1-2)",
        );
    }
    assert!(images.windows(2).all(|pair| pair[0] == pair[1]));
    fails(
        ["pack", "docker-archive:no:such", "-o", "/tmp/none"],
        1,
        "No such file",
    );
    let wrong = format!("docker-archive:{}:other", place.text("docker.tar"));
    fails(["pack", &wrong, "-o", &place.text("none")], 1, "a:latest");
}

/// Sources that are hostile or wrong end with a clear error, and leave nothing.
#[test]
fn bad_sources_leave_nothing() {
    if !has(&["tar", "gzip"]) {
        return;
    }
    let place = Place::new();
    place.shell(
        "mkdir one; echo 1 > one/file; tar -cf good.tar -C one .; gzip -k good.tar
         head -c 1100 good.tar > cut.tar; head -c 100 good.tar.gz > cut.tar.gz
         tar -P --transform='s,file,../../etc/passwd,' -cf up.tar -C one file
         tar -P --transform='s,file,/etc/passwd,' -cf absolute.tar -C one file
         truncate -s 300M bomb; tar -cf - bomb | gzip -1 > bomb.tar.gz; rm bomb; echo text > text; : > empty",
    );
    let count = || fs::read_dir(place.dir.path()).unwrap().count();
    let before = count();
    let image = place.text("image");
    let pack = |source: &str, more: &[&str], says: &str| {
        let source = place.text(source);
        let words = ["pack", &source, "-o", &image];
        fails(words.iter().chain(more), 1, says);
        assert_eq!(count(), before, "{source}");
    };
    pack("cut.tar", &[], "truncated");
    pack("cut.tar.gz", &[], "cut.tar.gz");
    pack("text", &[], "a source is a directory, a tar");
    pack("empty", &[], "a source is a directory, a tar");
    pack("bomb.tar.gz", &["--size", "64M"], "--size min");
    fails(["pack", "-", "-", "-o", &image], 2, "one source only");
    pack("up.tar", &[], "could leave the tree");
    // The root is that of the tree.
    place.pack(&["absolute.tar"]);
    let shown = ok(["cat", &format!("{image}:/etc/passwd")]);
    assert_eq!(shown, "1\n");
}

/// `mkfs -d`: a new file, an old one in place, and sources of all kinds.
#[test]
fn mkfs_fills_what_it_makes() {
    let Some(place) = made() else { return };
    place.shell("tar --format=pax --sparse --xattrs --acls -I zstd -cf source.tar.zst -C source .");
    let (image, source) = (place.text("image"), place.text("source"));
    let archive = place.text("source.tar.zst");
    let shown = |what: &str| {
        assert_clean(Path::new(&image));
        let out = place.text("out");
        let _ = fs::remove_dir_all(&out);
        ok(["cp", "-a", &format!("{image}:/."), &out]);
        place.shell(
            "diff -r --no-dereference source out | grep -v 'is a \\(fifo\\|char\\|block\\)' && exit 1 || :",
        );
        let large = ok(["stat", "-c", "%a %s", &format!("{image}:/bin/large")]);
        assert_eq!(large.trim(), "4775 3000000", "{what}");
        fs::read(&image).unwrap()
    };
    let mkfs = |more: &[&str]| {
        let words = ["mkfs", "-q", "-d"].into_iter();
        ok(words.chain(more.iter().copied()));
    };
    mkfs(&[&source, &image, "32M"]);
    let new = shown("a new file");
    assert_eq!(new.len(), 32 << 20);
    for more in [&["-F"][..], &["-F", "-E", "nodiscard"]] {
        fs::write(&image, noise(40 << 20, 9)).unwrap();
        mkfs(&[&[&*archive, &*image], more].concat());
        assert_eq!(shown("an old file").len(), 40 << 20);
    }
    fs::write(&image, noise(1 << 20, 9)).unwrap();
    fails(["mkfs", "-q", "-d", &source, &image, "32M"], 1, "-F");
    assert!(fs::read(&image).unwrap() == noise(1 << 20, 9));
    fails(["mkfs", "-q", "-d", &source, &image, "-F"], 1, "--size min");
    mkfs(&[
        &source,
        &image,
        "-F",
        "32M",
        "-t",
        "ext3",
        "-E",
        "root_owner=7:8",
    ]);
    shown("lengthened");
    let root = ok(["stat", "-c", "%u:%g", &format!("{image}:/")]);
    assert_eq!(root.trim(), "7:8");
    fs::remove_file(&image).unwrap();
    mkfs(&[&archive, &image, "32M"]);
    assert!(shown("the archive") == new);
}

/// `mkfs -d` on a block device with old content.
#[test]
fn mkfs_fills_a_device() {
    let Some(place) = made() else { return };
    let image = place.path("image");
    fs::write(&image, noise(40 << 20, 3)).unwrap();
    let Some(device) = kernel::Loop::new(&image, &[]) else {
        return;
    };
    let source = place.text("source");
    fails(
        ["mkfs", "-q", "-d", &source, device.node()],
        1,
        "-F overwrites it",
    );
    ok(["mkfs", "-q", "-F", "-d", &source, device.node()]);
    device.detach();
    assert_clean(&image);
    let large = ok([
        "stat",
        "-c",
        "%a %s",
        &format!("{}:/bin/large", image.display()),
    ]);
    assert_eq!(large.trim(), "4775 3000000");
}

/// A killed `pack` leaves nothing where the file system has files without names.
#[test]
fn a_killed_pack_leaves_nothing() {
    let place = Place::new();
    fs::create_dir(place.path("source")).unwrap();
    fs::write(place.path("source/file"), noise(64 << 20, 1)).unwrap();
    let own = format!("--verity={}", place.text("hashes"));
    for options in [&[][..], &["--partition", "gpt", "--verity"], &[&own]] {
        // One that is done before it is seen at work is no proof.
        if !(0..50).any(|_| is_killed_without_a_trace(&place, options)) {
            left_out!("pack was never seen at work: the file system has no files without names");
            return;
        }
    }
}

/// Kills a run that is at work; `false` if it was done before.
fn is_killed_without_a_trace(place: &Place, options: &[&str]) -> bool {
    let names = || fs::read_dir(place.dir.path()).unwrap().count();
    let mut pack = throughline();
    pack.args(["pack", "-q", "-F", &place.text("source"), "-o"]);
    let mut running = pack.arg(place.path("image")).args(options).spawn().unwrap();
    let open = PathBuf::from(format!("/proc/{}/fd", running.id()));
    let is_at_work = || {
        let links = fs::read_dir(&open).into_iter().flatten().flatten();
        let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
        targets
            .filter(|target| target.starts_with(place.dir.path()))
            .any(|target| target.to_string_lossy().ends_with("(deleted)"))
    };
    while running.try_wait().unwrap().is_none() {
        if is_at_work() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }
    if !place.path("image").exists() {
        assert_eq!(names(), 1, "{options:?}");
        return true;
    }
    fs::remove_file(place.path("image")).unwrap();
    let _ = fs::remove_file(place.path("hashes"));
    false
}

/// Files that begin with zeros as an empty archive does, and other things that were not meant.
#[test]
fn what_is_no_source_is_refused() {
    let place = Place::new();
    place.shell(
        "mkdir source; echo hello > source/file; head -c 2000000 /dev/zero > zeros; : > nothing
         head -c 10240 /dev/zero > empty.tar; gzip -k empty.tar zeros",
    );
    place.image("ext");
    let out = place.text("out");
    let refused = |source: &str, why: &str| {
        fails(["pack", source, "-o", &out], 1, why);
        assert!(!place.path("out").exists(), "{source}");
    };
    refused(&place.text("ext"), "it holds an ext file system");
    for zeros in ["zeros", "zeros.gz"] {
        refused(&place.text(zeros), "this is not a tar archive");
    }
    refused("/dev/zero", "this is not a tar archive");
    refused(&place.text("nothing"), "it is empty");
    for form in ["oci", "oci-archive", "docker-archive"] {
        let named = format!("{form}:{}", place.text("source"));
        refused(&named, "is not a container image");
    }
    fails(
        ["mkfs", "-q", &out, "8M", "-d", &place.text("ext")],
        1,
        "it holds an ext file system",
    );
    for empty in ["empty.tar", "empty.tar.gz"] {
        place.pack(&[empty]);
    }
    let source = place.text("source");
    fails(["pack", &source, "-o", "-"], 2, "name a file");
    fails(
        ["pack", &source, "-o", &out, "--offset", "1M"],
        2,
        "--offset",
    );
}

#[test]
fn attributes_bring_their_feature() {
    let place = Place::new();
    place.shell("mkdir source; : > source/file; setfattr -n user.x -v 1 source/file");
    place.pack(&["source", "-O", "none", "-I", "128"]);
    let image = place.text("image");
    assert!(ok(["info", &image]).contains("ext_attr"));
    let at = format!("{image}:/file");
    assert!(ok(["getfattr", "-d", &at]).contains("user.x=\"1\""));
    fails(
        [
            "pack",
            &place.text("source"),
            "-r",
            "0",
            "-o",
            &place.text("old"),
        ],
        1,
        "revision 0",
    );
}

#[test]
fn a_random_identity_is_random() {
    let place = Place::new();
    place.shell("mkdir source; echo hello > source/file");
    let pack = || place.pack(&["source", "-U", "random"]);
    assert!(pack() != pack());
}

#[test]
fn patterns_that_leave_nothing_out_are_named() {
    let place = Place::new();
    place.shell("mkdir -p source/secrets source/kept; echo 1 > source/secrets/key");
    let (source, out) = (place.text("source"), place.text("out"));
    let ran = run([
        "pack",
        &source,
        "--exclude",
        "secrets/",
        "--exclude",
        "kep",
        "-o",
        &out,
    ]);
    let notes = &ran.stderr;
    assert_eq!(ran.code, Some(0), "{notes}");
    assert!(notes.contains("--exclude 'kep' matches nothing"), "{notes}");
    assert!(!notes.contains("secrets"), "{notes}");
    assert_eq!(ok(["ls", &format!("{out}:/")]).trim(), "kept\nlost+found");
    fails(
        ["pack", &source, "--exclude", "", "-o", &out, "-F"],
        2,
        "names no path",
    );
}

#[test]
fn a_replaced_image_keeps_its_permissions() {
    let place = Place::new();
    place.shell("mkdir source; : > image; chmod 640 image");
    place.pack(&["source"]);
    place.shell("test \"$(stat -c %a image)\" = 640");
}
