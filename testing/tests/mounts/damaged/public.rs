//! A public collection of damaged images, if available.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use throughline_testing::{Mounted, program};

use crate::damaged::judge::{Verdict, judge};

const LIMIT: Duration = Duration::from_secs(120);

fn images(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder of damaged images");
    let found = entries.map(|entry| entry.expect("an entry").path());
    let mut images: Vec<_> = found
        .filter_map(|path| {
            let inside = path.join("image.gz");
            let itself = path.to_string_lossy().ends_with(".img.gz");
            inside
                .is_file()
                .then_some(inside)
                .or(itself.then_some(path))
        })
        .collect();
    images.sort();
    images
}

fn judge_packed(packed: &Path) -> (String, Verdict) {
    let scratch = tempfile::TempDir::with_prefix("throughline-damaged-").expect("a place");
    let image = scratch.path().join("image");
    let mut unpack = Command::new("sh");
    unpack
        .args(["-c", "exec gzip -dc \"$0\" > \"$1\""])
        .args([packed, &image]);
    program::run(&mut unpack, LIMIT).good("gzip");
    let verdict = judge(&image, scratch.path());
    (packed.to_string_lossy().into_owned(), verdict)
}

#[test]
fn no_public_image_shows_others_more() {
    let Some(folder) = std::env::var_os("THROUGHLINE_DAMAGED_IMAGES") else {
        throughline_testkit::left_out!(
            "THROUGHLINE_DAMAGED_IMAGES is not set to a folder of damaged images"
        );
        return;
    };
    if !program::has(&["debugfs", "gzip"]) || !Mounted::possible() {
        return;
    }
    let only = std::env::var("THROUGHLINE_DAMAGED_ONLY").unwrap_or_default();
    let images = images(Path::new(&folder));
    let mut verdicts: Vec<_> = images
        .iter()
        .filter(|path| path.to_string_lossy().contains(&only))
        .map(|image| judge_packed(image))
        .collect();
    assert!(!verdicts.is_empty(), "no images in {}", folder.display());
    let all = verdicts.len();
    verdicts.retain(|(_, verdict)| !verdict.lacking.is_empty());
    let nothing = verdicts
        .iter()
        .filter(|(_, verdict)| verdict.unrecovered.names.is_empty());
    eprintln!(
        "{all} images; other readers read more from {}, and we list nothing at all in {} of those",
        verdicts.len(),
        nothing.count()
    );
    for (name, verdict) in &verdicts {
        let Verdict {
            unrecovered,
            others,
            lacking,
            ..
        } = verdict;
        let names = unrecovered.names.len();
        eprintln!(
            "{name}: {names} names, others {others}; lacking {}:",
            lacking.len()
        );
        for line in lacking.iter().take(6) {
            eprintln!("    {line}");
        }
    }
    assert!(verdicts.is_empty(), "other readers read more than we do");
}
