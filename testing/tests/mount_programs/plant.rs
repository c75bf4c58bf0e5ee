//! Trees by a seed.

use std::fs;
use std::path::Path;

/// `count` files in a few directories below `root`, of 0 to 40 KB, a part of them compressible.
pub(crate) fn files(root: &Path, seed: u64, count: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for number in 0..count {
        let dir = root.join(format!("dir{}/sub{}", number % 7, number % 3));
        fs::create_dir_all(&dir).expect("mkdir -p");
        let mut bytes = vec![0; random.usize(..40_000)];
        if number % 2 == 0 {
            random.fill(&mut bytes);
        } else {
            let line = format!("line of {number} in {seed}\n");
            bytes
                .iter_mut()
                .zip(line.bytes().cycle())
                .for_each(|(to, from)| *to = from);
        }
        fs::write(dir.join(format!("file{number}")), bytes).expect("a file");
    }
}
