//! The kernel's ext4 as the reference: it reads what we wrote, and we read what it wrote. Needs root and
//! loop devices.

use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;
use throughline_testing::Mount;

use crate::mapping::support::{Image, Modelled, Random, create, read_all};

/// Arguments of `mke2fs`, whether files have extents, and the bytes of a cluster.
const SHAPES: &[(&[&str], bool, usize)] = &[
    (&["-t", "ext2", "-b", "1024"], false, 1024),
    (&["-t", "ext3", "-b", "4096"], false, 4096),
    (&["-t", "ext4", "-b", "1024"], true, 1024),
    (
        &["-t", "ext4", "-b", "4096", "-O", "inline_data"],
        true,
        4096,
    ),
    (
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"],
        true,
        4096,
    ),
    (
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
        true,
        16384,
    ),
];

fn ours(image: &Image, seed: u64, block: usize, extents: bool) -> Vec<(String, Vec<u8>)> {
    let fs = image.open();
    let mut random = Random::new(seed);
    let mut files: Vec<Modelled> = (0..3)
        .map(|n| {
            let name = format!("ours{n}");
            let inode = create(&fs, &name);
            let limit = if n == 0 { 200 } else { 600 * block };
            Modelled {
                name,
                inode,
                model: Vec::new(),
                limit,
                block,
                extents,
            }
        })
        .collect();
    for _ in 0..200 {
        let n = random.below(3) as usize;
        files[n].step(&fs, &mut random);
    }
    let files = files.into_iter().map(|f| (f.name, f.model)).collect();
    fs.close().expect("closing");
    files
}

/// Files as the kernel writes them: sparse, with unwritten ranges and holes; and a small one.
fn files_by_the_kernel(
    mount: &Mount,
    seed: u64,
    block: usize,
    extents: bool,
) -> Vec<(String, Vec<u8>)> {
    let mut random = Random::new(seed);
    let mut files = vec![("small".to_owned(), random.bytes(100))];
    std::fs::write(mount.path("small"), &files[0].1).expect("a small file");
    let file = std::fs::File::options()
        .create_new(true)
        .write(true)
        .open(mount.path("large"))
        .expect("a file");
    let mut model = vec![0; 700 * block];
    file.set_len(model.len() as u64).expect("a size");
    for step in 0..300 {
        let offset = random.below(690 * block as u64) as usize;
        let len = 1 + random.below((model.len() - offset).min(20 * block) as u64) as usize;
        let (from, size) = (offset as u64, len as u64);
        let keep = FallocateFlags::KEEP_SIZE;
        match random.below(10) {
            0 => {
                rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, from, size)
                    .expect("punch");
                model[offset..offset + len].fill(0);
            }
            1 if extents => {
                rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE | keep, from, size)
                    .expect("zero");
                model[offset..offset + len].fill(0);
            }
            2 if extents => rustix::fs::fallocate(&file, keep, from, size).expect("allocate"),
            _ => {
                let bytes = random.bytes(len);
                file.write_all_at(&bytes, from).expect("a write");
                model[offset..offset + len].copy_from_slice(&bytes);
            }
        }
        if step % 40 == 0 {
            file.sync_all().expect("fsync");
        }
    }
    files.push(("large".to_owned(), model));
    files
}

#[test]
fn the_kernel_and_we_read_each_other() {
    if !throughline_testkit::tier::as_root() {
        throughline_testkit::missing!("not root");
        return;
    }
    for (shape, (args, extents, cluster)) in SHAPES.iter().enumerate() {
        let Some(image) = Image::make("64M", args) else {
            continue;
        };
        let block: usize = args[3].parse().expect("a block size");
        let seed = 77 + shape as u64;
        println!("{args:?}: seed {seed}");
        let written = ours(&image, seed, *cluster, *extents);
        image.check("ours");
        let Some(mount) = Mount::or_skip(image.path(), true) else {
            return;
        };
        for (name, model) in &written {
            assert!(
                std::fs::read(mount.path(name)).expect("a file") == *model,
                "{args:?}: the kernel reads {name} differently"
            );
        }
        let written = files_by_the_kernel(&mount, seed, block, *extents);
        drop(mount);
        image.check("written by the kernel");
        let fs = image.open();
        let root = fs.root().expect("the root");
        for (name, model) in &written {
            let inode = fs.lookup(&root, name.as_bytes()).expect("the file");
            assert!(
                read_all(&fs, &inode, model.len()) == *model,
                "{args:?}: we read {name} differently"
            );
            let limit = model.len();
            let mut file = Modelled {
                name: name.clone(),
                inode,
                model: model.clone(),
                limit,
                block: *cluster,
                extents: *extents,
            };
            // Then change files that the kernel wrote.
            let mut random = Random::new(seed + 1);
            (0..60).for_each(|_| file.step(&fs, &mut random));
            file.verify(&fs);
        }
        fs.close().expect("closing");
        image.check("written by the kernel, changed by us");
    }
}
