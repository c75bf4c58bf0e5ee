//! Files with inline data that are larger than their inodes: `mke2fs -d` makes such of sparse files. The
//! kernel reads what the inode does not hold as zeroes.

use std::fs;

use throughline::OpenOptions;
use throughline_testkit::{e2fs, missing};

const SIZE: usize = 1 << 20;

#[test]
fn a_sparse_file_with_inline_data_is_read_and_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir(&tree).expect("a directory");
    let names = [
        "read", "written", "appended", "grown", "cut", "cut more", "punched",
    ];
    for name in names {
        let file = fs::File::create(tree.join(name)).expect("a file");
        file.set_len(SIZE as u64).expect("a length");
    }
    let from = tree.to_str().expect("a path in UTF-8");
    if !e2fs::mke2fs(
        &image,
        "16M",
        &["-t", "ext4", "-O", "inline_data", "-I", "256", "-d", from],
    ) {
        missing!("mke2fs with inline data is required");
        return;
    }
    let has_inline = e2fs::debugfs(&image, "stat /read").contains("Flags: 0x10000000");
    assert!(has_inline, "mke2fs made another file");

    let volume = OpenOptions::new()
        .write(true)
        .open(&image)
        .expect("a sound volume");
    let mut expected = vec![vec![0_u8; SIZE]; names.len()];
    assert_eq!(volume.read("read").expect("it can be read"), expected[0]);
    let open = |name| volume.open_file(name).expect("it can be opened");
    let mut some = [1; 100];
    assert_eq!(
        open("read")
            .read_at(&mut some, SIZE as u64 - 10)
            .expect("its end"),
        10
    );
    assert_eq!(some[..11], [[0; 10].as_slice(), &[1]].concat());
    assert_eq!(
        open("read")
            .read_at(&mut some, SIZE as u64)
            .expect("its end"),
        0
    );

    open("written")
        .write_all_at(b"text", 20)
        .expect("it can be written");
    expected[1][20..24].copy_from_slice(b"text");
    open("appended")
        .append_all(b"more")
        .expect("it can be appended to");
    expected[2].extend(b"more");
    for (at, (name, size)) in [("grown", SIZE + 5000), ("cut", 5000), ("cut more", 30)]
        .into_iter()
        .enumerate()
    {
        open(name).set_len(size as u64).expect("its size changes");
        expected[3 + at].resize(size, 0);
    }
    let punch = throughline::Fallocate::PunchHole;
    open("punched").allocate(punch, 10, 50_000).expect("a hole");
    let check = |volume: &throughline::Volume| {
        for (name, expected) in names.iter().zip(&expected) {
            assert!(
                volume.read(name).expect("it can be read") == *expected,
                "{name}"
            );
        }
    };
    check(&volume);
    volume.close().expect("it can be closed");
    e2fs::assert_clean(&image);
    check(&OpenOptions::new().open(&image).expect("a sound volume"));
}
