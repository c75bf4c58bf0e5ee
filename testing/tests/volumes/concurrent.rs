//! Many threads on one volume: names, data and space of the same groups change concurrently; `e2fsck` checks
//! the result.

use std::path::Path;
use std::sync::Barrier;

use throughline::{OpenOptions, Volume};
use throughline_testkit::e2fs;

const THREADS: u64 = 4;
const STEPS: u64 = 400;

/// One thread's work in its own directory and in the shared one. The content of a file identifies its writer.
fn work(volume: &Volume, thread: u64, seed: u64) -> throughline::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed ^ thread);
    let own = format!("/own{thread}");
    volume.create_dir(&own)?;
    for step in 0..STEPS {
        let path = if step % 3 == 0 {
            format!("/shared/t{thread}-{step}")
        } else {
            format!("{own}/{step}")
        };
        if step % 5 == 0 {
            volume.create_dir(&path)?;
            volume
                .create_file(format!("{path}/inside"))?
                .write_at(&[thread as u8; 100], 0)?;
            continue;
        }
        let content = vec![thread as u8; random.usize(1..40_000)];
        let file = volume.create_file(&path)?;
        file.write_at(&content, random.u64(0..3) * 4096)?;
        drop(file);
        match random.u32(0..4) {
            0 => volume.remove_file(&path)?,
            1 => volume.rename(&path, format!("/shared/moved-{thread}-{step}"))?,
            2 => volume.open_file(&path)?.set_len(10)?,
            _ => volume.hard_link(&path, format!("{own}/link-{step}"))?,
        }
    }
    Ok(())
}

/// Checks that every byte of every file in a directory is 0 or its writer's.
fn check_owners(volume: &Volume, folder: &Path) {
    for entry in volume.read_dir(folder).expect("a folder can be read") {
        let entry = entry.expect("an entry can be read");
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(writer) = name
            .strip_prefix("moved-")
            .or_else(|| name.strip_prefix('t'))
            .and_then(|n| n.split('-').next()?.parse::<u8>().ok())
        else {
            continue;
        };
        let path = folder.join(&name);
        if volume.metadata(&path).expect("metadata").file_type() != throughline::FileType::File {
            continue;
        }
        let mut content = vec![0; 64 << 10];
        let len = volume
            .open_file(&path)
            .expect("opens")
            .read_at(&mut content, 0)
            .expect("reads");
        assert!(
            content[..len].iter().all(|b| *b == 0 || *b == writer),
            "{name} holds another's bytes"
        );
    }
}

#[test]
fn threads_on_one_volume_leave_it_clean() {
    let seed = std::env::var("THROUGHLINE_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0x5eed);
    for arguments in [
        &["-t", "ext4"][..],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2"],
        &["-t", "ext4", "-O", "inline_data,^metadata_csum,uninit_bg"],
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = folder.path().join("image");
        assert!(e2fs::mke2fs(&image, "160M", arguments));
        let volume = OpenOptions::new().write(true).open(&image).expect("opens");
        volume.create_dir("/shared").expect("mkdir");
        let start = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (volume, start) = (&volume, &start);
                scope.spawn(move || {
                    start.wait();
                    work(volume, thread, seed).unwrap_or_else(|e| {
                        panic!("thread {thread}, THROUGHLINE_SEED={seed}: {e}")
                    });
                });
            }
        });
        check_owners(&volume, Path::new("/shared"));
        volume.close().expect("closes");
        let what = format!("{arguments:?}, THROUGHLINE_SEED={seed}");
        e2fs::assert_clean_after(&image, &what);
    }
}
