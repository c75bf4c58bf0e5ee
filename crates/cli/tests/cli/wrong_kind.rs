//! Files that are not ext images, made by the usual programs, are recognized.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Image, fails, noise, ok, run, str, throughline, tool, tools_are_missing};

/// Runs a program that makes a file. Returns whether the program exists and succeeded.
fn made<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> bool {
    let made = tool(name)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match made {
        Ok(status) if status.success() => return true,
        Ok(status) => throughline_testkit::left_out!("{name} does not do that here: {status}"),
        Err(error) => throughline_testkit::missing!("{name}: {error}"),
    }
    false
}

fn empty(path: &Path, bytes: u64) {
    let _ = fs::remove_file(path);
    fs::File::create(path).unwrap().set_len(bytes).unwrap();
}

/// Asserts that `ls` prints this kind of file and the next step, and leaves the file unchanged.
#[track_caller]
fn is_called(path: &Path, what: &str, next: &str) {
    let before = fs::read(path).unwrap();
    for command in [vec!["ls"], vec!["mkdir"], vec!["info"]] {
        let place = format!("{}:/x", path.display());
        let ran = fails(command.into_iter().chain([place.as_str()]), 1, what);
        assert!(ran.stderr.contains("next:"), "{}", ran.stderr);
        assert!(ran.stderr.contains(next), "no {next:?} in {}", ran.stderr);
    }
    assert!(fs::read(path).unwrap() == before);
}

#[test]
fn images_of_disks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    for (format, what) in [
        ("qed", "a QED disk image"),
        ("vdi", "a VDI disk image"),
        ("vpc", "a VHD disk image"),
        ("parallels", "a Parallels disk image"),
    ] {
        if made("qemu-img", ["create", "-f", format, str(&path), "64M"]) {
            is_called(&path, what, "qemu-img convert -O raw");
        }
        let _ = fs::remove_file(&path);
    }
    if made("qemu-img", ["create", "-f", "qcow2", str(&path), "64M"]) {
        is_called(
            &path,
            "qcow2 image holds no ext file system",
            "throughline info",
        );
    }
}

#[test]
fn compressed_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    fs::write(&path, noise(300_000, 3)).unwrap();
    for (program, end) in [
        ("xz", "xz"),
        ("zstd", "zst"),
        ("gzip", "gz"),
        ("bzip2", "bz2"),
        ("lz4", "lz4"),
        ("lzip", "lz"),
        ("lzop", "lzo"),
    ] {
        let packed = dir.path().join(format!("disk.{end}"));
        let mut arguments = vec!["-k", "-f", str(&path)];
        // Without the name of the output, lz4 writes to standard output if that is not a terminal.
        if program == "lz4" {
            arguments.push(str(&packed));
        }
        if made(program, arguments) {
            is_called(&packed, "it is compressed", "decompress it first");
        }
    }
    let tar = dir.path().join("disk.tar");
    if made("tar", ["-cf", str(&tar), str(&path)]) {
        is_called(&tar, "a tar archive", "unpack it");
    }
}

#[test]
fn other_file_systems() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let name = str(&path);
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), noise(5000, 1)).unwrap();
    let tree = str(&tree);
    for (program, arguments, what) in [
        ("mkfs.xfs", vec!["-q", name], "an XFS file system"),
        ("mkfs.btrfs", vec!["-q", name], "a Btrfs file system"),
        ("mkfs.f2fs", vec!["-q", name], "an F2FS file system"),
        ("mkfs.vfat", vec!["-F", "32", name], "a FAT file system"),
        ("mkfs.vfat", vec!["-F", "16", name], "a FAT file system"),
        ("mkfs.exfat", vec![name], "an exFAT file system"),
        (
            "mkntfs",
            vec!["-q", "-Q", "-F", name],
            "an NTFS file system",
        ),
        ("mkfs.jfs", vec!["-q", name], "a JFS file system"),
        ("mkswap", vec!["-q", name], "swap space"),
        ("mkfs.cramfs", vec![tree, name], "a cramfs file system"),
        ("mkfs.erofs", vec![name, tree], "an EROFS file system"),
        (
            "genisoimage",
            vec!["-q", "-o", name, tree],
            "an ISO 9660 image",
        ),
        (
            "mksquashfs",
            vec![tree, name, "-quiet", "-noappend"],
            "a SquashFS file system",
        ),
        (
            "cryptsetup",
            vec![
                "-q",
                "luksFormat",
                "--pbkdf",
                "pbkdf2",
                "--pbkdf-force-iterations",
                "1000",
                name,
                "/proc/self/exe",
            ],
            "encrypted with LUKS",
        ),
    ] {
        empty(&path, 320 << 20);
        if made(program, arguments) {
            is_called_by_ls(&path, what);
        }
    }
}

/// As [`is_called`], for files too large to compare.
#[track_caller]
fn is_called_by_ls(path: &Path, what: &str) {
    let ran = fails(["ls", &format!("{}:/", path.display())], 1, what);
    assert!(ran.stderr.contains("next:"), "{}", ran.stderr);
}

#[test]
fn a_disk_with_partitions() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("8M", &["-t", "ext2"]);
    ok(["touch", &image.at("/inside")]);
    for label in ["gpt", "dos"] {
        let disk = image.sibling("disk");
        empty(&disk, 32 << 20);
        let script = format!("label: {label}\nstart=2048,size=4096\nstart=8192,size=16384\n");
        let script_file = image.sibling("script");
        fs::write(&script_file, script).unwrap();
        let sfdisk = tool("sfdisk")
            .arg("-q")
            .arg(&disk)
            .stdin(fs::File::open(&script_file).unwrap())
            .output();
        if !sfdisk.is_ok_and(|output| output.status.success()) {
            throughline_testkit::missing!("sfdisk is not installed");
            continue;
        }
        let place = format!("{}:/", disk.display());
        fails(["ls", &place], 1, "none of its partitions holds");
        let mut bytes = fs::read(&disk).unwrap();
        let volume = fs::read(image.path()).unwrap();
        bytes[8192 * 512..][..volume.len()].copy_from_slice(&volume);
        fs::write(&disk, &bytes).unwrap();
        for place in [&place, &format!("{}@2:/", disk.display())] {
            assert!(ok(["ls", place]).contains("inside"));
        }
        assert!(ok(["ls", "--offset", "8192s", &place]).contains("inside"));
    }
}

/// Start of the partitions of [`partitioned`].
const FIRST: usize = 2048 * 512;
const SECOND: usize = 8192 * 512;

/// A disk of two partitions, the second with this volume, of at most 8 MiB; `None` without `sfdisk`.
fn partitioned(image: &Image) -> Option<Vec<u8>> {
    let (disk, script) = (image.sibling("disk"), image.sibling("script"));
    empty(&disk, 32 << 20);
    fs::write(
        &script,
        "label: gpt\nstart=2048,size=4096\nstart=8192,size=16384\n",
    )
    .unwrap();
    let sfdisk = tool("sfdisk")
        .arg("-q")
        .arg(&disk)
        .stdin(fs::File::open(&script).unwrap())
        .output();
    if !sfdisk.is_ok_and(|output| output.status.success()) {
        throughline_testkit::missing!("sfdisk");
        return None;
    }
    let mut bytes = fs::read(&disk).unwrap();
    let volume = fs::read(image.path()).unwrap();
    bytes[SECOND..][..volume.len()].copy_from_slice(&volume);
    Some(bytes)
}

/// The advice for a partition must not destroy another one, nor what is in it.
#[test]
fn what_a_partition_holds_is_named() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("8M", &["-t", "ext4"]);
    let Some(disk) = partitioned(&image) else {
        return;
    };
    let path = image.sibling("disk");
    let place = format!("{}@1", path.display());
    for (at, magic, what) in [
        (0, &b"LUKS\xba\xbe"[..], "encrypted with LUKS"),
        (512, b"LABELONE", "an LVM physical volume"),
        (54, b"FAT16   ", "a FAT file system"),
        (0, b"nothing that is known", "holds no ext file system"),
    ] {
        let mut bytes = disk.clone();
        bytes[FIRST + at..][..magic.len()].copy_from_slice(magic);
        fs::write(&path, &bytes).unwrap();
        let root = format!("{place}:/");
        for words in [
            &["ls", &root][..],
            &["mkdir", &format!("{root}x")],
            &["resize", &place, "min"],
            &["replay", &place],
        ] {
            let ran = run(words);
            let said =
                ran.stderr.contains("the partition holds no ext") && ran.stderr.contains(what);
            let has_next = ran.stderr.contains("next:") && !ran.stderr.contains("mkfs");
            assert!(
                said && has_next && ran.code != Some(0),
                "{words:?}: {}",
                ran.stderr
            );
        }
        assert!(fs::read(&path).unwrap() == bytes, "{what}");
    }
}

/// Damage is no reason to make another file system.
#[test]
fn a_damaged_volume_is_an_ext_volume() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("8M", &["-t", "ext4", "-O", "mmp"]);
    let file = image.sibling("file");
    fs::write(&file, noise(300_000, 3)).unwrap();
    ok(["cp", str(&file), &image.at("/file")]);
    let sound = fs::read(image.path()).unwrap();
    let no_extents = |image: &Image| {
        throughline_testkit::e2fs::debugfs_write(&image.path(), "sif /file block[0] 0");
    };
    let no_mmp = |image: &Image| {
        image.patch(|bytes| {
            let at = bytes
                .chunks(1024)
                .position(|block| block.starts_with(b"PMM\0"));
            bytes[1024 * at.expect("an MMP block")] = 0;
        });
    };
    type Damage = fn(&Image);
    for (damage, commands) in [
        (no_extents as Damage, &[&["resize", "IMAGE", "min"][..]][..]),
        (
            no_mmp,
            &[&["resize", "IMAGE", "min"], &["mkdir", "IMAGE:/x"]],
        ),
    ] {
        fs::write(image.path(), &sound).unwrap();
        damage(&image);
        let mut places = vec![str(&image.path()).to_owned()];
        if let Some(bytes) = partitioned(&image) {
            let disk = image.sibling("disk");
            fs::write(&disk, bytes).unwrap();
            places.push(format!("{}@2", disk.display()));
        }
        let qcow2 = image.sibling("qcow2");
        if made(
            "qemu-img",
            ["convert", "-O", "qcow2", str(&image.path()), str(&qcow2)],
        ) {
            places.push(str(&qcow2).to_owned());
        }
        for place in places {
            for words in commands {
                let words: Vec<_> = words
                    .iter()
                    .map(|word| word.replace("IMAGE", &place))
                    .collect();
                let ran = run(&words);
                let is_wrong = |wrong: &str| ran.stderr.contains(wrong);
                let is_none = ["no ext", "mkfs", "not an ext"].into_iter().any(is_wrong);
                assert!(!is_none && ran.code != Some(0), "{words:?}: {}", ran.stderr);
            }
        }
    }
}

#[test]
fn nothing_in_it_and_a_lost_superblock() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("64M", &["-t", "ext4", "-b", "1024"]);
    image.patch(|bytes| bytes[..8192].fill(0xff));
    let ran = fails(["ls", &image.at("/")], 1, "whose superblock is lost");
    assert!(
        ran.stderr.contains("e2fsck -b 8193 -B 1024"),
        "{}",
        ran.stderr
    );
    image.patch(|bytes| bytes.fill(0));
    fails(["ls", &image.at("/")], 1, "throughline mkfs IMAGE");
}

/// `info` shows an image that a mount or another command has open.
#[test]
fn an_image_in_use_is_shown_by_info() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4", "-L", "held"]);
    ok(["touch", &image.at("/f")]);
    let before = fs::read(image.path()).unwrap();
    let held = fs::File::options()
        .read(true)
        .write(true)
        .open(image.path())
        .unwrap();
    rustix::fs::fcntl_lock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let path = image.path();
    let ran = run(["info", str(&path)]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.text().contains("held"), "{}", ran.text());
    assert!(
        ran.stderr.contains("is in use by process"),
        "{}",
        ran.stderr
    );
    let found = run(["info", "--json", "-q", str(&path)]);
    assert_eq!(
        (found.json()[0]["label"].as_str(), found.stderr.as_str()),
        (Some("held"), "")
    );
    // Listing names fails while the image is in use.
    fails(["ls", &image.at("/")], 1, "in use");
    assert!(fs::read(image.path()).unwrap() == before);
    drop(held);
}

/// `info` shows an image that the kernel has mounted.
#[test]
fn a_mounted_image_is_shown_by_info() {
    if tools_are_missing() || !throughline_testkit::tier::as_root() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4", "-L", "mounted"]);
    let dir = image.sibling("dir");
    fs::create_dir(&dir).unwrap();
    // In a separate mount namespace, so that nothing stays mounted.
    let output = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c"])
        .arg("mount -o loop \"$1\" \"$2\" || exit 99; echo new > \"$2\"/f; \"$3\" info \"$1\"; code=$?; \
            umount \"$2\"; exit $code")
        .arg("sh")
        .args([image.path(), dir])
        .arg(throughline().get_program())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) {
        throughline_testkit::missing!("the kernel mounts nothing here: {errors}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("mounted"));
    image.assert_clean();
}
