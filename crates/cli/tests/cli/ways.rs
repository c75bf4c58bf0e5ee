//! Variants of `cp`: streams, engines, images inside disks, holes, and statistics.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::common::{Image, fails, noise, ok, run, run_with_input, str, tools_are_missing};
use crate::copy::{assert_same_trees, make_tree};

#[test]
fn streams_on_either_side() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let data = noise(25 << 20 | 99, 5);
    let ran = run_with_input(["cp", "-", &image.at("/stream")], &data);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    image.assert_clean();
    assert!(
        image.contents("/stream") == data,
        "debugfs shows different bytes"
    );
    let ran = run(["cp", &image.at("/stream"), "-"]);
    assert!(ran.stdout == data, "the output has different bytes");
    // In a stream, holes become zeroes.
    ok(["truncate", "-s", "26M", &image.at("/stream")]);
    let out = run(["cp", &image.at("/stream"), "-"]).stdout;
    assert!(out.len() == 26 << 20 && out[data.len()..].iter().all(|byte| *byte == 0));
    fails(["cp", "-", &image.at("/")], 2, "has no name");
    fails(["cp", "-r", &image.at("/"), "-"], 2, "only one file");
}

#[test]
fn an_image_inside_a_disk() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let disk = image.sibling("disk");
    let bytes = fs::read(image.path()).unwrap();
    let file = fs::File::create(&disk).unwrap();
    file.write_all_at(&noise(1 << 20, 7), 0).unwrap();
    file.write_all_at(&bytes, 1 << 20).unwrap();
    let place = format!("{}:/f", disk.display());
    let ran = run_with_input(["--offset", "2048s", "cp", "-", &place], b"inside");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(ok(["cat", "--offset=1M", &place]), "inside");
    fails(["cat", &place], 1, "--offset");
    fails(["cat", "--offset", "1025", &place], 1, "multiple");
    fails(["cat", "--offset", "1G", &place], 1, "past the end");
    let mut after = fs::read(&disk).unwrap();
    assert!(
        after[..1 << 20] == noise(1 << 20, 7),
        "what is before the image changed"
    );
    fs::write(image.path(), after.split_off(1 << 20)).unwrap();
    image.assert_clean();
}

#[test]
fn both_engines_copy_alike() {
    if tools_are_missing() {
        return;
    }
    for engine in ["uring", "threads"] {
        let image = Image::new("96M", &["-t", "ext4"]);
        let tree = image.sibling("tree");
        make_tree(&tree);
        let ran = run(["--engine", engine, "cp", "-a", str(&tree), &image.at("/")]);
        if engine == "uring" && ran.code != Some(0) && ran.stderr.contains("io_uring") {
            throughline_testkit::left_out!("io_uring cannot be used here: {}", ran.stderr);
            continue;
        }
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{engine}");
        image.assert_clean();
        let back = image.sibling("back");
        ok([
            "--engine",
            engine,
            "--host-cache",
            "cp",
            "-a",
            &image.at("/tree"),
            str(&back),
        ]);
        assert_same_trees(&tree, &back);
    }
}

#[test]
fn stats_are_for_people_and_scripts() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let file = image.sibling("file");
    fs::write(&file, noise(16 << 20, 8)).unwrap();
    assert!(ok(["cp", "--stats", str(&file), &image.at("/f")]).contains("bios per MiB"));
    let found = run([
        "--json",
        "cp",
        "--stats",
        &image.at("/f"),
        str(&image.sibling("out")),
    ])
    .json();
    assert_eq!(found["bytes"], 16 << 20);
    assert!(found["bios_per_mib"].as_f64().unwrap() > 0.0);
    assert!(found["first_submit_us"].as_f64().unwrap() > 0.0);
    assert!(found["peak_memory_mib"].as_f64().unwrap() < 256.0);
    let place = image.at("/g");
    let found = run(["cp", "--stats", "--json", str(&file), &place]).json();
    assert_eq!(found["names"], 1);
}

#[test]
fn sparse_as_asked() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let (dense, holes) = (image.sibling("dense"), image.sibling("holes"));
    let mut data = noise(3 << 20, 6);
    data[100_000..2_500_000].fill(0);
    fs::write(&dense, &data).unwrap();
    fs::File::create(&holes).unwrap().set_len(3 << 20).unwrap();
    let allocated = |path: &str| {
        run(["--json", "stat", &image.at(path)]).json()[0]["allocated_bytes"]
            .as_u64()
            .unwrap()
    };
    ok(["cp", str(&dense), &image.at("/auto")]);
    ok(["cp", "--sparse=always", str(&dense), &image.at("/always")]);
    ok(["cp", "--sparse=never", str(&holes), &image.at("/never")]);
    ok(["cp", str(&holes), &image.at("/kept")]);
    assert!(allocated("/auto") >= 3 << 20, "{}", allocated("/auto"));
    assert!(
        (500_000..800_000).contains(&allocated("/always")),
        "{}",
        allocated("/always")
    );
    assert!(allocated("/never") >= 3 << 20);
    assert!(allocated("/kept") <= 4096);
    for path in ["/auto", "/always"] {
        assert!(image.contents(path) == data, "{path}");
    }
    assert!(image.contents("/never") == vec![0; 3 << 20]);
    image.assert_clean();
}

/// `stat` reports 0 bytes for files below /proc/sys, and 4096 for those of sysfs.
#[test]
fn files_that_the_kernel_generates_are_copied_whole_and_no_longer() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    for (name, source) in [
        ("sysctl", "/proc/sys/kernel/ostype"),
        ("sysfs", "/sys/devices/system/cpu/possible"),
        ("proc", "/proc/version"),
    ] {
        let inside = image.at(&format!("/{name}"));
        let wanted = fs::read(source).unwrap();
        ok(["cp", source, &inside]);
        assert_eq!(image.contents(&format!("/{name}")), wanted, "{source}");
        assert!(ok(["cp", source, "-"]).as_bytes() == wanted, "{source}");
    }
    image.assert_clean();
}
