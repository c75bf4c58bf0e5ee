//! Images of other programs that are only read (vmdk, vhdx), and qcow2 with extended L2 entries: by every
//! command that reads, and through an overlay by those that write.

use std::fs;
use std::path::{Path, PathBuf};

use throughline_testkit::program::{self, has};

use crate::common::{
    fails, fsck, good, noise, ok, qemu, qemu_is_missing, run, throughline, tools_are_missing,
};

const FORMS: [(&str, &str); 6] = [
    ("vmdk", "subformat=monolithicSparse"),
    ("vmdk", "subformat=streamOptimized"),
    ("vhdx", "subformat=dynamic"),
    ("vhdx", "subformat=fixed"),
    ("qcow2", "extended_l2=on,cluster_size=64k"),
    ("qcow2", "extended_l2=on,cluster_size=2M"),
];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn at(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

/// A raw disk with a volume in it: in a partition, or as a whole; and the bytes of its file `/dir/data`.
struct Source {
    folder: tempfile::TempDir,
    raw: PathBuf,
    data: Vec<u8>,
}

impl Source {
    /// `None` if a tool is missing.
    fn new(is_partition: bool) -> Option<Source> {
        if tools_are_missing() || qemu_is_missing() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let raw = folder.path().join("disk.raw");
        let mut volume = raw.clone().into_os_string();
        if is_partition {
            if !has(&["sfdisk"]) {
                throughline_testkit::missing!("sfdisk is not installed");
                return None;
            }
            fs::File::create(&raw).unwrap().set_len(64 << 20).unwrap();
            let script = folder.path().join("script");
            fs::write(&script, "label: gpt\nsize=8M\nname=root\n").unwrap();
            let mut sfdisk = program::command("sfdisk");
            sfdisk.args(["-q", text(&raw)]);
            sfdisk.stdin(fs::File::open(&script).unwrap());
            assert!(sfdisk.status().unwrap().success());
            volume.push("@root");
            ok(["mkfs", "-q", volume.to_str().unwrap()]);
        } else {
            ok(["mkfs", "-q", text(&raw), "48M"]);
        }
        let data = noise(3_000_003, 5);
        fs::write(folder.path().join("data"), &data).unwrap();
        ok(["mkdir", &at(&raw, "/dir")]);
        ok(["cp", text(&folder.path().join("data")), &at(&raw, "/dir/")]);
        Some(Source { folder, raw, data })
    }

    fn convert(&self, (format, options): (&str, &str)) -> PathBuf {
        let image = self.folder.path().join("image");
        let _ = fs::remove_file(&image);
        let raw = text(&self.raw);
        qemu(&["convert", "-O", format, "-o", options, raw, text(&image)]);
        image
    }
}

/// Whether the volume is in a partition; in the quick tier, it always is.
fn volumes() -> &'static [bool] {
    throughline_testkit::tier::pick(&[true], &[false, true], &[false, true])
}

#[test]
fn every_command_that_reads_takes_them() {
    for &is_partition in volumes() {
        let Some(source) = Source::new(is_partition) else {
            return;
        };
        for form in FORMS {
            let image = source.convert(form);
            let before = fs::read(&image).unwrap();
            assert!(ok(["ls", &at(&image, "/")]).contains("dir"), "{form:?}");
            assert!(ok(["find", &at(&image, "/")]).contains("data"), "{form:?}");
            ok(["stat", &at(&image, "/dir/data")]);
            ok(["du", &at(&image, "/dir")]);
            let out = source.folder.path().join("out");
            ok(["cp", &at(&image, "/dir/data"), text(&out)]);
            assert!(fs::read(&out).unwrap() == source.data, "{form:?}");
            let packed = source.folder.path().join("packed.tar");
            let to = fs::File::create(&packed).unwrap();
            good(throughline().args(["tar", &at(&image, "/dir")]).stdout(to));
            assert!(fs::metadata(&packed).unwrap().len() > 3_000_000, "{form:?}");
            let info = &run(["info", "--json", text(&image)]).json()[0];
            assert_eq!(info["image_format"], form.0);
            let named = ["ls", "--image-format", form.0, &at(&image, "/dir")];
            assert!(ok(named).contains("data"), "{form:?}");
            assert!(fs::read(&image).unwrap() == before, "{form:?}");
        }
    }
}

#[test]
fn what_writes_says_what_to_do_instead() {
    let Some(source) = Source::new(true) else {
        return;
    };
    let new = source.folder.path().join("data");
    for form in FORMS {
        let image = source.convert(form);
        let before = fs::read(&image).unwrap();
        for command in [
            vec!["mkdir", &at(&image, "/x")],
            vec!["cp", text(&new), &at(&image, "/")],
            vec!["rm", &at(&image, "/dir/data")],
            vec!["chmod", "600", &at(&image, "/dir/data")],
            vec!["label", text(&image), "anew"],
            vec!["resize", text(&image), "max"],
            vec!["mkfs", "-F", text(&image)],
            vec!["mkfs", &format!("{}@1", image.display())],
        ] {
            let said = fails(command.iter().copied(), 1, "qemu-img convert -O qcow2").stderr;
            assert!(said.contains("overlay"), "{form:?}, {command:?}: {said}");
        }
        // It is not overwritten by mistake.
        fails(["cp", text(&new), text(&image)], 1, "image of a disk");
        assert!(fs::read(&image).unwrap() == before, "{form:?}");
    }
}

#[test]
fn an_overlay_takes_changes() {
    for &is_partition in volumes() {
        let Some(source) = Source::new(is_partition) else {
            return;
        };
        for form in FORMS {
            let image = source.convert(form);
            let before = fs::read(&image).unwrap();
            let over = source.folder.path().join("over.qcow2");
            let over = text(&over);
            ok(["mkdir", "--overlay", over, &at(&image, "/here")]);
            ok(["rm", "--overlay", over, &at(&image, "/dir/data")]);
            let listed = ok(["ls", "--overlay", over, &at(&image, "/")]);
            assert!(listed.contains("here"), "{form:?}");
            assert!(fs::read(&image).unwrap() == before, "{form:?}");
            qemu(&["check", "-q", over]);
            let flat = source.folder.path().join("flat.raw");
            qemu(&["convert", "-O", "raw", over, text(&flat)]);
            assert!(ok(["ls", &at(&flat, "/")]).contains("here"), "{form:?}");
            if !is_partition {
                fsck(&flat);
            }
            fs::remove_file(over).unwrap();
        }
    }
}

/// No crate that is fit for strangers' images reads these.
#[test]
fn vdi_is_refused() {
    let Some(source) = Source::new(false) else {
        return;
    };
    for form in [("vdi", "static=off"), ("vdi", "static=on")] {
        let image = source.convert(form);
        let said = fails(["ls", &at(&image, "/")], 1, "VDI disk image").stderr;
        assert!(said.contains("qemu-img convert"), "{said}");
    }
}
